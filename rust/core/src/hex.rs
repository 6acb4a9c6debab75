//! Bytes as text.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The hex digits of bytes, two for each.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    push_hex(&mut text, bytes);
    text
}

/// Adds the hex digits of `bytes` to `text`.
pub fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{hex, push_hex};

    #[test]
    fn every_byte_has_two_digits() {
        let all: Vec<u8> = (0..=255).collect();
        let expected: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex(&all), expected);
        let mut text = "0x".to_owned();
        push_hex(&mut text, &[0, 255]);
        assert_eq!((text, hex(&[])), ("0x00ff".to_owned(), String::new()));
    }
}

//! CRC-32 (IEEE 802.3, as zlib computes it): tells a damaged record from a whole one.

use crc32fast::Hasher;

/// The checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32_after(0, bytes)
}

/// The checksum of bytes whose first have the checksum `before`, and whose others are `bytes`.
pub fn crc32_after(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::{crc32, crc32_after};

    #[test]
    fn has_its_check_values() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(&[0; 32]), 0x190a_55ad);
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(crc32(text), 0x414f_a339);
    }

    #[test]
    fn every_length_is_that_of_one_bit_after_another_however_it_is_cut() {
        let bytes: Vec<u8> = (0..400_u32).map(|at| ((at * at) >> 3) as u8).collect();
        for length in 0..bytes.len() {
            let slowly = !bytes[..length].iter().fold(!0_u32, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |value, _| {
                    (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg())
                })
            });
            assert_eq!(crc32(&bytes[..length]), slowly);
            let (first, rest) = bytes[..length].split_at(length / 3);
            assert_eq!(crc32_after(crc32(first), rest), slowly);
        }
    }
}

//! CRC-32 (IEEE 802.3, as zlib computes it): tells a damaged record from a whole one.

/// Bytes that one step takes: a table for each, since a step through one table waits for the step before it.
const STEP: usize = 8;

const TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut at = 1;
    while at < STEP {
        let mut byte = 0;
        while byte < 256 {
            let value = tables[at - 1][byte];
            tables[at][byte] = (value >> 8) ^ tables[0][(value & 0xff) as usize];
            byte += 1;
        }
        at += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let crc = steps.iter().fold(!0, |crc: u32, step| {
        let word = u64::from_le_bytes(*step) ^ u64::from(crc);
        let bytes = word.to_le_bytes().into_iter().zip(TABLES.iter().rev());
        bytes.fold(0, |sum, (byte, table)| sum ^ table[usize::from(byte)])
    });
    !rest.iter().fold(crc, |crc, byte| {
        TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn has_its_check_values() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(&[0; 32]), 0x190a_55ad);
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(crc32(text), 0x414f_a339);
    }
}

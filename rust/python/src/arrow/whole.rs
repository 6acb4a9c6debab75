//! Messages that are whole in a partition: what crosses the network of each, so that its status and
//! its only row are what all partitions together say.

use shardwire_core::keccak;

const DIGEST_BYTES: usize = 16;
const PACKED_BYTES: usize = 1 + 4 + DIGEST_BYTES;

/// A data segment that a partition recovered without having it: how to know it elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub index: u8,
    length: u32,
    /// The first bytes of the Keccak-256 of its piece of the payload.
    digest: [u8; DIGEST_BYTES],
}

impl Missing {
    /// The data segment of this index, whose piece of the payload this is.
    pub fn new(index: usize, piece: &[u8]) -> Self {
        Missing {
            index: u8::try_from(index).expect("a message has at most 256 data segments"),
            length: u32::try_from(piece.len()).expect("a segment is shorter than 4 GiB"),
            digest: digest_of(piece),
        }
    }

    /// The bytes in which these cross the network.
    pub fn pack(missing: &[Missing]) -> Vec<u8> {
        let mut packed = Vec::with_capacity(missing.len() * PACKED_BYTES);
        for one in missing {
            packed.push(one.index);
            packed.extend(one.length.to_le_bytes());
            packed.extend(one.digest);
        }
        packed
    }

    /// What `pack` gave.
    pub fn unpack(packed: &[u8]) -> Vec<Missing> {
        packed
            .chunks_exact(PACKED_BYTES)
            .map(|one| Missing {
                index: one[0],
                length: u32::from_le_bytes([one[1], one[2], one[3], one[4]]),
                digest: std::array::from_fn(|place| one[5 + place]),
            })
            .collect()
    }

    /// Whether this shard, padded or not, is the missing one's.
    pub fn is(&self, shard: &[u8]) -> bool {
        let Some((piece, padding)) = shard.split_at_checked(self.length as usize) else {
            return false;
        };
        padding.iter().all(|byte| *byte == 0) && digest_of(piece) == self.digest
    }
}

fn digest_of(piece: &[u8]) -> [u8; DIGEST_BYTES] {
    let digest = keccak::keccak256(piece);
    std::array::from_fn(|place| digest[place])
}

/// A message that a partition holds whole.
#[derive(Debug)]
pub struct WholeCopy {
    pub partition: i64,
    pub missing: Vec<Missing>,
}

#[cfg(test)]
mod tests {
    use super::Missing;

    #[test]
    fn a_missing_segment_is_known_by_its_bytes_with_or_without_padding() {
        let missing = Missing::new(7, b"piece");
        assert!(missing.is(b"piece"));
        assert!(missing.is(b"piece\0\0"));
        assert!(!missing.is(b"piec"));
        assert!(!missing.is(b"piece\0x"));
        assert!(!missing.is(b"other"));
        assert_eq!(
            Missing::unpack(&Missing::pack(std::slice::from_ref(&missing))),
            [missing]
        );
    }
}

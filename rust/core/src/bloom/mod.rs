//! The SDS bloom filter, byte-exact with @waku/sds (`Spec`) and nim-sds (`Nim`).
//!
//! Both share the construction: `bits per element = ceil(-ln(error rate) / ln(2)^2)`, as many
//! hashes as ln(2) times that, rounded, and `1 + bits / 64` words. They differ in the string hash
//! and in the serialization. Ids are hashed as UTF-8.

mod hash;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;

use crate::wire::proto::sds::nim;
use crate::wire::sds::WireFormat;
pub use hash::farmhash64;
use hash::murmur3_x86_32_and_salted;
use prost::Message as _;

/// Bits beyond which a filter is refused (512 MiB).
pub const BITS_MAX: u64 = 1 << 32;

/// Hashes beyond which a peer's filter is ignored: an error rate of 2^-64.
const HASH_COUNT_MAX: u64 = 64;

/// A filter that errs more often than ours with so many times its capacity in it is overfull: whoever rolls does
/// so at 1.2 times.
const OVERFULL: f64 = 1.25;

/// A filter's parameters are out of range.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum BloomError {
    /// A filter is sized for at least one message.
    #[error("capacity is {0}: it must be at least 1")]
    Capacity(u64),
    /// The rate must lie strictly between 0 and 1.
    #[error("error_rate is {0}: it must lie between 0 and 1, both excluded")]
    ErrorRate(f64),
    /// The filter would be too large.
    #[error("capacity {capacity} at error_rate {error_rate} takes {bits} bits: at most 2^32")]
    TooLarge {
        /// The capacity asked for.
        capacity: u64,
        /// The error rate asked for.
        error_rate: f64,
        /// What they would take.
        bits: u64,
    },
}

/// A set of message ids that errs on the side of membership.
#[derive(Debug, Clone, PartialEq)]
pub struct BloomFilter {
    wire_format: WireFormat,
    capacity: u64,
    error_rate: f64,
    hash_count: u64,
    bit_count: u64,
    words: Vec<u64>,
}

impl BloomFilter {
    /// An empty filter sized for `capacity` ids at `error_rate`.
    ///
    /// # Errors
    /// [`BloomError`] with the value and its limit.
    pub fn new(
        capacity: u64,
        error_rate: f64,
        wire_format: WireFormat,
    ) -> Result<Self, BloomError> {
        if capacity == 0 {
            return Err(BloomError::Capacity(capacity));
        }
        if !(error_rate > 0.0 && error_rate < 1.0) {
            return Err(BloomError::ErrorRate(error_rate));
        }
        let ln2 = std::f64::consts::LN_2;
        let bits_per_element = (-error_rate.ln() / (ln2 * ln2)).ceil();
        let hash_count = (ln2 * bits_per_element).round() as u64;
        let bits = capacity.saturating_mul(bits_per_element as u64);
        if bits > BITS_MAX {
            return Err(BloomError::TooLarge {
                capacity,
                error_rate,
                bits,
            });
        }
        let words = vec![0; word_count(bits)];
        Ok(BloomFilter {
            wire_format,
            capacity,
            error_rate,
            hash_count,
            bit_count: bits,
            words,
        })
    }

    /// Hashes of each id.
    pub fn hash_count(&self) -> u64 {
        self.hash_count
    }

    /// Bits of the filter.
    pub fn bit_count(&self) -> u64 {
        self.bit_count
    }

    /// Adds an id, given as its UTF-8.
    pub fn insert(&mut self, message_id: &[u8]) {
        let hashes = Hashes::of(message_id, self.wire_format, self.bit_count);
        for position in hashes.positions(self.hash_count) {
            self.words[(position / 64) as usize] |= 1 << (position % 64);
        }
    }

    /// Whether the id was added, or collides with what was.
    pub fn contains(&self, message_id: &str) -> bool {
        Hashes::of(message_id.as_bytes(), self.wire_format, self.bit_count)
            .positions(self.hash_count)
            .all(|position| self.bit(position))
    }

    /// Removes every id.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Length of [`BloomFilter::to_bytes`].
    pub fn size_bytes(&self) -> usize {
        match self.wire_format {
            WireFormat::Spec => self.words.len() * 8,
            WireFormat::Nim => {
                let envelope = nim::BloomFilter {
                    words: Some(Vec::new()),
                    ..self.envelope()
                };
                let words = self.words.len() * 8;
                // One byte of the empty envelope already stands for the length of the words.
                envelope.encoded_len() + prost::length_delimiter_len(words) - 1 + words
            }
        }
    }

    /// The filter as a message carries it: big-endian words for `Spec`; for `Nim` little-endian
    /// words in an envelope with the parameters.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.wire_format {
            WireFormat::Spec => self
                .words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect(),
            WireFormat::Nim => {
                let words = self
                    .words
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect();
                nim::BloomFilter {
                    words: Some(words),
                    ..self.envelope()
                }
                .encode_to_vec()
            }
        }
    }

    /// Takes the content of a serialized filter of the same parameters; returns false, and changes
    /// nothing, where `bytes` are none.
    pub fn load(&mut self, bytes: &[u8]) -> bool {
        let Some(peer) = Peer::read(bytes, self) else {
            return false;
        };
        if (peer.bit_count, peer.hash_count) != (self.bit_count, self.hash_count) {
            return false;
        }
        for (word, bytes) in self.words.iter_mut().zip(peer.words.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks of 8 bytes");
            *word = match self.wire_format {
                WireFormat::Spec => u64::from_be_bytes(bytes),
                WireFormat::Nim => u64::from_le_bytes(bytes),
            };
        }
        true
    }

    /// Positions in `message_ids` of those that a peer's serialized filter holds; `None` where its
    /// size is not that of this filter (`Spec`) or of its own parameters (`Nim`). Nothing is
    /// copied, and only the bits asked for are read.
    pub fn review<'a>(
        &self,
        bytes: &[u8],
        message_ids: impl IntoIterator<Item = &'a str>,
    ) -> Option<Vec<usize>> {
        let peer = Peer::read(bytes, self)?;
        let held = message_ids
            .into_iter()
            .enumerate()
            .filter(|(_, message_id)| {
                Hashes::of(message_id.as_bytes(), self.wire_format, peer.bit_count)
                    .positions(peer.hash_count)
                    .all(|position| peer.bit(position, self.wire_format))
            });
        Some(held.map(|(position, _)| position).collect())
    }

    /// Whether a peer's serialized filter has so many bits set that it holds what nobody put into it more
    /// often than one of ours ever does; true as well where it cannot be read.
    ///
    /// Some implementations never roll theirs, and anybody can set every bit.
    pub fn is_overfull(&self, bytes: &[u8]) -> bool {
        let Some(peer) = Peer::read(bytes, self) else {
            return true;
        };
        let set: u64 = peer
            .words
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum();
        let errs = |set: f64, hash_count: u64| set.powf(hash_count as f64);
        let inserted = OVERFULL * self.capacity as f64 * self.hash_count as f64;
        let ours = 1.0 - (-inserted / self.bit_count as f64).exp();
        let theirs = set as f64 / peer.bit_count as f64;
        errs(theirs, peer.hash_count) > errs(ours, self.hash_count)
    }

    /// Positions in `message_ids` of those that a filter of `others` and of the rest of
    /// `message_ids` does not hold: that a peer's filter holds one of these is no accident.
    pub fn conclusive<'a>(
        &self,
        message_ids: &[&str],
        others: impl IntoIterator<Item = &'a str>,
    ) -> Vec<usize> {
        let mut rest = BloomFilter {
            words: vec![0; self.words.len()],
            ..*self
        };
        for other in others {
            rest.insert(other.as_bytes());
        }
        let unheld = message_ids.iter().map(|message_id| {
            let hashes = Hashes::of(message_id.as_bytes(), self.wire_format, self.bit_count);
            let positions = hashes.positions(self.hash_count);
            positions.filter(|&position| !rest.bit(position)).collect()
        });
        let unheld: Vec<BTreeSet<u64>> = unheld.collect();
        let mut holders: HashMap<u64, usize> = HashMap::new();
        for position in unheld.iter().flatten() {
            *holders.entry(*position).or_default() += 1;
        }
        let alone = |index: &usize| unheld[*index].iter().any(|position| holders[position] == 1);
        (0..message_ids.len()).filter(alone).collect()
    }

    fn bit(&self, position: u64) -> bool {
        self.words[(position / 64) as usize] >> (position % 64) & 1 == 1
    }

    fn envelope(&self) -> nim::BloomFilter {
        nim::BloomFilter {
            words: None,
            capacity: Some(self.capacity),
            error_rate_millionths: Some((self.error_rate * 1e6) as u64),
            hash_count: Some(self.hash_count),
            bit_count: Some(self.bit_count),
        }
    }
}

fn word_count(bits: u64) -> usize {
    1 + (bits / 64) as usize
}

/// A serialized filter, read in place.
struct Peer<'a> {
    words: std::borrow::Cow<'a, [u8]>,
    hash_count: u64,
    bit_count: u64,
}

impl<'a> Peer<'a> {
    fn read(bytes: &'a [u8], own: &BloomFilter) -> Option<Self> {
        let peer = match own.wire_format {
            WireFormat::Spec => Peer {
                words: bytes.into(),
                hash_count: own.hash_count,
                bit_count: own.bit_count,
            },
            WireFormat::Nim => {
                let envelope = nim::BloomFilter::decode(bytes).ok()?;
                Peer {
                    words: envelope.words?.into(),
                    hash_count: envelope.hash_count?,
                    bit_count: envelope.bit_count?,
                }
            }
        };
        let sound = (1..=BITS_MAX).contains(&peer.bit_count)
            && (1..=HASH_COUNT_MAX.max(own.hash_count)).contains(&peer.hash_count)
            && peer.words.len() == word_count(peer.bit_count) * 8;
        sound.then_some(peer)
    }

    fn bit(&self, position: u64, wire_format: WireFormat) -> bool {
        let (word, bit) = ((position / 64) as usize, (position % 64) as usize);
        let byte = match wire_format {
            WireFormat::Spec => word * 8 + 7 - bit / 8,
            WireFormat::Nim => word * 8 + bit / 8,
        };
        self.words[byte] >> (bit % 8) & 1 == 1
    }
}

/// What follows an id for the second of its hashes.
const SALT: &[u8; 2] = b" b";

/// Double hashing: the n-th position is `(a + n * b) mod bits`.
struct Hashes {
    a: u64,
    b: u64,
    bit_count: u64,
}

impl Hashes {
    fn of(id: &[u8], wire_format: WireFormat, bit_count: u64) -> Self {
        let (a, b) = match wire_format {
            WireFormat::Spec => {
                let hashes = murmur3_x86_32_and_salted(id, *SALT);
                let [a, b] = hashes.map(|hash| u64::from((hash as i32).unsigned_abs()));
                (a, b)
            }
            WireFormat::Nim => {
                let hash = |bytes: &[u8]| (farmhash64(bytes) as i64).unsigned_abs();
                (hash(id), hash(&[id, SALT].concat()))
            }
        };
        Hashes {
            a: a % bit_count,
            b: b % bit_count,
            bit_count,
        }
    }

    /// Both terms are below `bit_count`: one subtraction takes the place of each division.
    fn positions(&self, hash_count: u64) -> impl Iterator<Item = u64> + '_ {
        let mut next = self.a;
        (0..hash_count).map(move |_| {
            let position = next;
            next += self.b;
            if next >= self.bit_count {
                next -= self.bit_count;
            }
            position
        })
    }
}

//! Choices of the worlds, made from bytes or from a seed.

use shardwire_core::sds::Randomness;

use crate::random::Random;

/// Draws from bytes, so that a fuzzer sees what each of them changes, or from a seed where there are
/// none.
#[derive(Debug, Clone)]
pub struct Draws {
    bytes: std::vec::IntoIter<u8>,
    random: Random,
}

impl Draws {
    pub fn from_seed(state: u64) -> Self {
        Draws {
            bytes: Vec::new().into_iter(),
            random: Random(state),
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> Self {
        Draws {
            bytes: Vec::from(bytes).into_iter(),
            random: Random(0),
        }
    }

    /// Whether bytes are left.
    pub fn goes_on(&self) -> bool {
        self.bytes.len() > 0
    }

    pub fn next(&mut self) -> u64 {
        self.random.number()
    }

    pub fn below(&mut self, limit: usize) -> usize {
        let drawn = match self.bytes.next() {
            Some(byte) => u64::from(byte),
            None => self.next(),
        };
        (drawn % limit.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

impl Randomness for Draws {
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn bits(&mut self) -> u64 {
        self.next()
    }
}

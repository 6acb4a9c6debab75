//! Shards that are to be checked against each other.

use crate::erasure::ErasureCode;

/// Shards of one code, some lost, more than k held.
pub(super) struct Word<'a> {
    pub code: ErasureCode,
    pub shards: Vec<Option<&'a [u8]>>,
    pub data_count: usize,
    pub parity_count: usize,
    pub shard_len: usize,
}

impl Word<'_> {
    /// Ordinals of the shards that are there.
    pub fn held(&self) -> Vec<usize> {
        (0..self.shards.len())
            .filter(|ordinal| self.shards[*ordinal].is_some())
            .collect()
    }
}

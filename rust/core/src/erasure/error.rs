//! What can be wrong with shards, with the numbers.

use super::ErasureCode;

/// Why shards could not be encoded or reconstructed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErasureError {
    /// There is no data shard.
    #[error("at least one data shard is needed")]
    NoDataShards,
    /// Shards have no bytes.
    #[error("shards must have at least one byte")]
    EmptyShards,
    /// More shards than the code has field elements for.
    #[error(
        "{code} takes at most {limit} shards: {data_count} data and {parity_count} parity shards \
         count as {total}"
    )]
    TooManyShards {
        /// The code that was asked.
        code: ErasureCode,
        /// Data shards.
        data_count: usize,
        /// Parity shards.
        parity_count: usize,
        /// What the shards count as. Leopard rounds the parity count up to a power of two.
        total: usize,
        /// The largest total.
        limit: usize,
    },
    /// Leopard makes at most as many parity shards as there are data shards.
    #[error("leopard takes at most as many parity as data shards: {parity_count} > {data_count}")]
    ParityExceedsData {
        /// Data shards.
        data_count: usize,
        /// Parity shards.
        parity_count: usize,
    },
    /// Leopard codes shards in pieces of 64 bytes.
    #[error("leopard needs shards of a multiple of 64 bytes: {len} is not, {nearest} is nearest")]
    NotMultipleOf64 {
        /// Bytes in a shard.
        len: usize,
        /// The nearest length that is allowed.
        nearest: usize,
    },
    /// A shard's length does not go with the others'.
    #[error("shard {index} has {len} bytes where shards have {shard_len}")]
    UnequalShards {
        /// Its place: data shards first, parity shards after them.
        index: usize,
        /// Its bytes.
        len: usize,
        /// Bytes in a shard.
        shard_len: usize,
    },
    /// The list of shards does not have a place for each shard.
    #[error("{given} shards were given where there are {expected} places")]
    ShardCount {
        /// Data shards and parity shards.
        expected: usize,
        /// Length of the list.
        given: usize,
    },
    /// Fewer shards are left than there are data shards.
    #[error("{needed} shards are needed and {present} are present")]
    NotEnoughShards {
        /// Data shards.
        needed: usize,
        /// Shards present.
        present: usize,
    },
}

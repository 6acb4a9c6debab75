//! What can be wrong with shards, with the numbers.

use super::ErasureCode;

/// Why shards could not be encoded or reconstructed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErasureError {
    /// There is no data shard.
    #[error("there are 0 data shards: at least 1 is needed")]
    NoDataShards,
    /// Shards have no bytes.
    #[error("shards have 0 bytes: at least 1 is needed")]
    EmptyShards,
    /// More shards than the code has field elements for.
    #[error(
        "{code} takes at most {limit} shards: {data_count} data and {parity_count} parity shards \
         count as {total}; take fewer, larger shards"
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
    #[error(
        "leopard takes at most as many parity as data shards: {parity_count} > {data_count}; ask \
         for fewer, or take vandermonde"
    )]
    ParityExceedsData {
        /// Data shards.
        data_count: usize,
        /// Parity shards.
        parity_count: usize,
    },
    /// Leopard codes shards in pieces of 64 bytes.
    #[error(
        "leopard needs shards of a multiple of 64 bytes: {len} is not; pad with zeros to {padded}, or \
         take vandermonde"
    )]
    NotMultipleOf64 {
        /// Bytes in a shard.
        len: usize,
        /// The next length that is allowed.
        padded: usize,
    },
    /// A shard's length does not go with the others'.
    #[error("shard {index} has {len} bytes where shards have {shard_len}: pad all to one length")]
    UnequalShards {
        /// Its place: data shards first, parity shards after them.
        index: usize,
        /// Its bytes.
        len: usize,
        /// Bytes in a shard.
        shard_len: usize,
    },
    /// The list of shards does not have a place for each shard.
    #[error(
        "{given} shards were given where there are {expected} places: data shards, then parity \
         shards, None where one is lost"
    )]
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

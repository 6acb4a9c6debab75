//! What looking for a payload takes, in bytes of hashing.

/// So many bytes of shards are multiplied by a coefficient while one is hashed.
const PRODUCTS_PER_HASHED_BYTE: u64 = 64;

/// What a hash costs beyond its bytes: buffers, permutations that are not full.
pub(super) const HASH_WORK: u64 = 1024;

/// What testing one candidate end costs, in bytes of hashing: a permutation and a copied sponge.
pub(super) const CANDIDATE_WORK: u64 = 200;

/// The work of an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// Bytes hashed, decoded and compared.
    pub hashing: u64,
    /// The same of searches for the end of a payload.
    pub tails: u64,
}

impl Work {
    /// More than any budget: nothing is tried any more.
    pub const EXHAUSTED: Work = Work {
        hashing: u64::MAX,
        tails: u64::MAX,
    };

    pub fn is_exhausted(&self) -> bool {
        self.hashing == u64::MAX
    }

    /// Whether nothing was tried.
    pub fn is_none(&self) -> bool {
        self.hashing == 0
    }

    pub fn add(&mut self, other: Work) {
        self.hashing = self.hashing.saturating_add(other.hashing);
        self.tails = self.tails.saturating_add(other.tails);
    }
}

/// What it takes to make `targets` shards of `sources` ones, in bytes of hashing.
pub(super) fn products_work(sources: usize, targets: usize, shard_len: usize) -> u64 {
    let products = sources as u64 * targets as u64 * shard_len as u64;
    products / PRODUCTS_PER_HASHED_BYTE
}

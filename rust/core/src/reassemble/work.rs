//! What looking for a payload takes, in bytes of hashing.

/// So many bytes of shards are multiplied by a coefficient while one is hashed.
const PRODUCTS_PER_HASHED_BYTE: u64 = 64;

/// What a hash costs beyond its bytes: buffers, permutations that are not full.
pub(super) const HASH_WORK: u64 = 1024;

/// What testing one candidate end costs, in bytes of hashing: a permutation and a copied sponge.
pub(super) const CANDIDATE_WORK: u64 = 200;

/// The work of an attempt, each kind of which has a purse of its own: what one kind leaves over buys
/// nothing of another.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    /// Payloads made of chosen segments and hashed.
    pub hashing: u64,
    /// Looks at segments beyond k for those that are wrong, and guesses at what looks do not tell.
    pub looks: u64,
    /// Searches for the end of a payload.
    pub tails: u64,
}

impl Work {
    /// More than any budget: nothing is tried any more.
    pub const EXHAUSTED: Work = Work {
        hashing: u64::MAX,
        looks: u64::MAX,
        tails: u64::MAX,
    };

    pub fn is_exhausted(&self) -> bool {
        self.hashing == u64::MAX
    }

    /// Whether nothing was tried.
    pub fn is_none(&self) -> bool {
        self.hashing == 0 && self.looks == 0
    }

    pub fn add(&mut self, other: Work) {
        self.hashing = self.hashing.saturating_add(other.hashing);
        self.looks = self.looks.saturating_add(other.looks);
        self.tails = self.tails.saturating_add(other.tails);
    }
}

/// What it takes to make `targets` shards of `sources` ones, in bytes of hashing.
pub(super) fn products_work(sources: usize, targets: usize, shard_len: usize) -> u64 {
    let products = sources as u64 * targets as u64 * shard_len as u64;
    products / PRODUCTS_PER_HASHED_BYTE
}

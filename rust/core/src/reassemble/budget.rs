//! What the attempts at a set may cost, in bytes of hashing, and which choices may spend it.

use super::locate;
use super::work::{CANDIDATE_WORK, HASH_WORK, Work, products_work};

/// What a reconstruction counts at most, in bytes of hashing: a budget gives large payloads bytes, not
/// as many reconstructions as small ones.
const RECONSTRUCTION_WORK_MAX: u64 = 4 << 20;

/// Reconstructions that a budget of as many affords, however large they are.
const RECONSTRUCTIONS_MIN: u64 = 4;

/// Wrong shards are located again and again for at most this part of what is left.
const LOCATE_SHARE: u64 = 4;

/// Searches for the end of a last segment of zeros that a budget affords: one takes at most half of
/// what is left, and that must be enough for the second code after the first.
const TAIL_SEARCHES: u64 = 3;

/// Ends that every search may test: payloads do end in a few zeros.
const TAIL_ENDS_MIN: u64 = 16;

/// Whose turn it is. What a peer can make up must not spend what is promised.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Turn {
    /// Mixtures of rivals, and guesses: the budget.
    Guesses,
    /// One sender's segments and those of others that it repeated: half as much again.
    Repeated,
    /// Slots without rivals, and one claimed sender's own segments: as much again.
    #[default]
    Promised,
    /// One proven sender's own segments: as much once more, which claims cannot spend.
    Proven,
}

/// What is left for a set.
#[derive(Debug, Default)]
pub(super) struct Budget {
    limit: Work,
    /// What earlier attempts took.
    before: Work,
    pub turn: Turn,
    /// This attempt's.
    pub work: Work,
}

impl Budget {
    /// The budget of `reconstructions` of `whole` bytes in shards of `shard_len`, of which
    /// `ends_max` bytes at the end may be padding: the last shard may be hashed twice.
    pub fn new(
        before: Work,
        counts: (usize, usize),
        [whole, shard_len, ends_max]: [usize; 3],
        reconstructions: u64,
    ) -> Self {
        let located = 2 * locate::work_of(counts, shard_len);
        let hashed = (whole + shard_len) as u64 + HASH_WORK;
        let price = hashed + products_work(counts.0, counts.1, shard_len) + located;
        let at_least = reconstructions.min(RECONSTRUCTIONS_MIN);
        let limited = price.min(RECONSTRUCTION_WORK_MAX);
        let limit = Work {
            hashing: limited
                .saturating_mul(reconstructions)
                .max(price.saturating_mul(at_least)),
            tails: ends_max as u64 * CANDIDATE_WORK * TAIL_SEARCHES,
        };
        Budget {
            limit,
            before,
            turn: Turn::Promised,
            work: Work::default(),
        }
    }

    /// The most that the choices whose turn it is, and those before them, may take.
    fn up_to(&self, limit: u64) -> u64 {
        match self.turn {
            Turn::Guesses => limit,
            Turn::Repeated => limit.saturating_add(limit / 2),
            Turn::Promised => limit.saturating_mul(2),
            Turn::Proven => limit.saturating_mul(3),
        }
    }

    /// What is left for the choices whose turn it is.
    pub fn left(&self) -> u64 {
        let taken = self.before.hashing.saturating_add(self.work.hashing);
        self.up_to(self.limit.hashing).saturating_sub(taken)
    }

    /// What may be spent on locating the wrong shards of one choice: what is found out on the way helps
    /// the next attempt.
    pub fn left_to_locate(&self) -> u64 {
        self.left() / LOCATE_SHARE
    }

    /// Ends of a payload that may be tested now. Half of what is left at most: zeros that one code
    /// makes of the last shard must not spend what the other code, or a later segment, needs. What
    /// no segment beyond k bears out is wrong as soon as one of them is: it must not spend what
    /// those that are `borne_out` and promised need.
    pub fn ends_left(&self, borne_out: bool) -> usize {
        let taken = self.before.tails.saturating_add(self.work.tails);
        let limit = match (self.turn, borne_out) {
            (Turn::Promised, true) | (Turn::Proven, _) => {
                self.up_to(self.limit.tails).saturating_mul(2)
            }
            _ => self.up_to(self.limit.tails),
        };
        let left = limit.saturating_sub(taken);
        (left / 2 / CANDIDATE_WORK).max(TAIL_ENDS_MIN) as usize
    }
}

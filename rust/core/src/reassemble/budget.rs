//! What the attempts at a set may cost, in bytes of hashing, and which choices may spend it.

use super::locate;
use super::work::{CANDIDATE_WORK, HASH_WORK, Work, products_work};

/// What a reconstruction counts at most, and its looks do, in bytes of hashing: a budget gives large
/// payloads bytes, not as many reconstructions as small ones.
const RECONSTRUCTION_WORK_MAX: u64 = 4 << 20;
const LOOKS_WORK_MAX: u64 = 2 << 20;

/// Reconstructions that a budget of as many affords, however large they are, and those whose looks it does.
const RECONSTRUCTIONS_MIN: u64 = 4;
const LOOKED_AT_MIN: u64 = 2;

/// Looks that a reconstruction counts: one under either code, and one more with what the first found out.
const LOOKS: u64 = 3;

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
    /// Of one reconstruction: what comes before a proven sender's turn may pass its limit by that.
    price: Work,
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
        let hashed = (whole + shard_len) as u64 + HASH_WORK;
        let price = Work {
            hashing: hashed + products_work(counts.0, counts.1, shard_len),
            looks: LOOKS * locate::work_of(counts, shard_len),
            tails: 0,
        };
        let limit_of = |price: u64, max: u64, min: u64| {
            let limited = price.min(max);
            let at_least = price.saturating_mul(reconstructions.min(min));
            limited.saturating_mul(reconstructions).max(at_least)
        };
        let limit = Work {
            hashing: limit_of(price.hashing, RECONSTRUCTION_WORK_MAX, RECONSTRUCTIONS_MIN),
            looks: limit_of(price.looks, LOOKS_WORK_MAX, LOOKED_AT_MIN),
            tails: ends_max as u64 * CANDIDATE_WORK * TAIL_SEARCHES,
        };
        Budget {
            limit,
            price,
            before,
            turn: Turn::Promised,
            work: Work::default(),
        }
    }

    /// The most that the choices whose turn it is, and those before them, may take.
    fn up_to(&self, limit: u64, price: u64) -> u64 {
        match self.turn {
            Turn::Guesses => limit,
            Turn::Repeated => limit.saturating_add(limit / 2),
            Turn::Promised => limit.saturating_mul(2),
            Turn::Proven => limit.saturating_mul(3).saturating_add(price),
        }
    }

    /// What is left to hash the choices whose turn it is.
    pub fn hashing_left(&self) -> u64 {
        let taken = self.before.hashing.saturating_add(self.work.hashing);
        self.up_to(self.limit.hashing, self.price.hashing)
            .saturating_sub(taken)
    }

    /// What is left to look at the choices whose turn it is.
    pub fn looks_left(&self) -> u64 {
        let taken = self.before.looks.saturating_add(self.work.looks);
        self.up_to(self.limit.looks, self.price.looks)
            .saturating_sub(taken)
    }

    /// Whether a choice can be hashed, and looked at before where it `is_located`.
    pub fn affords(&self, is_located: bool) -> bool {
        self.hashing_left() > 0 && (!is_located || self.looks_left() > 0)
    }

    /// Whether either purse is empty. Nobody looks where there is no parity.
    pub fn is_spent(&self) -> bool {
        !self.affords(self.limit.looks > 0)
    }

    /// What may be spent on locating the wrong shards of one choice: what is found out on the way helps
    /// the next attempt.
    pub fn left_to_locate(&self) -> u64 {
        self.looks_left() / LOCATE_SHARE
    }

    /// Ends of a payload that may be tested now. Half of what is left at most: zeros that one code
    /// makes of the last shard must not spend what the other code, or a later segment, needs. What
    /// no segment beyond k bears out is wrong as soon as one of them is: it must not spend what
    /// those that are `borne_out` and promised need.
    pub fn ends_left(&self, borne_out: bool) -> usize {
        let taken = self.before.tails.saturating_add(self.work.tails);
        let limit = match (self.turn, borne_out) {
            (Turn::Promised, true) | (Turn::Proven, _) => {
                self.up_to(self.limit.tails, 0).saturating_mul(2)
            }
            _ => self.up_to(self.limit.tails, 0),
        };
        let left = limit.saturating_sub(taken);
        (left / 2 / CANDIDATE_WORK).max(TAIL_ENDS_MIN) as usize
    }
}

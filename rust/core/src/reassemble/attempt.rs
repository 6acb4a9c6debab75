//! What is looked at in one attempt at a set, and what that may cost.

use std::cmp::Reverse;

use super::budget::{Budget, Turn};
use super::candidate::Candidate;
use super::failed_attempts::FailedAttempts;
use super::set::Set;
use crate::segment::Parameters;
use crate::wire::segment::Slot;

/// Different shard lengths that one attempt looks at: forged segments may have any length.
const LENGTHS_MAX: usize = 4;

/// A candidate's place by ordinal: data segments first, then parity segments.
pub(super) type Selection = Vec<Option<usize>>;

/// The state of one attempt.
pub(super) struct Attempt<'a> {
    pub set: &'a Set,
    /// What earlier attempts and this one found out.
    pub failed_attempts: FailedAttempts,
    pub parameters: &'a Parameters,
    pub data_count: usize,
    pub parity_count: usize,
    /// The candidate that came last: what does not use it was tried before.
    pub newest: usize,
    pub budget: Budget,
    /// No segment that may come can settle it: guesses are what is left.
    pub is_last_resort: bool,
    /// Whether a hash was compared.
    pub hashed: bool,
    /// The budget did not afford every end that the payload hashed last may have.
    pub is_cut_short: bool,
}

impl<'a> Attempt<'a> {
    /// `None` while the number of data segments is unknown or more segments are needed.
    ///
    /// Takes `failed_attempts` out of the set, since they change while the set is read.
    pub fn new(
        set: &'a Set,
        failed_attempts: &mut FailedAttempts,
        parameters: &'a Parameters,
        work_budget: u64,
    ) -> Option<Self> {
        let data_count = usize::from(set.geometry.data?);
        let parity_count = usize::from(set.geometry.parity.unwrap_or(0));
        if set.slots_held() < data_count {
            return None;
        }
        let newest = set.newest;
        let mut attempt = Attempt {
            set,
            failed_attempts: std::mem::take(failed_attempts),
            parameters,
            data_count,
            parity_count,
            newest,
            budget: Budget::default(),
            is_last_resort: false,
            hashed: false,
            is_cut_short: false,
        };
        attempt.budget = attempt.budget_of(work_budget);
        Some(attempt)
    }

    /// Reconstructions are priced by what enough segments could be: one that claims to be long buys
    /// no work on short ones.
    fn budget_of(&self, reconstructions: u64) -> Budget {
        let (set, k) = (self.set, self.data_count);
        let shard_len = self.shard_lengths().into_iter().max().unwrap_or(0);
        let longest = |ordinal| {
            let lengths = set
                .range(self.slot(ordinal))
                .map(|place| self.bytes(place).len());
            lengths.max().unwrap_or(0)
        };
        let whole = (0..k).map(longest).sum::<usize>().max(shard_len * k);
        // lip243 tells its length; what is not recovered has no padding to find but zeros.
        let last = set.range(Slot::Data(k.saturating_sub(1) as u8));
        let mut tails = set.candidates()[last].iter();
        let may_be_padded = set.geometry.parity != Some(0)
            || tails.any(|candidate| candidate.payload.last() == Some(&0));
        let is_open = set.geometry.payload_length.is_none() && may_be_padded;
        let ends_max = match is_open {
            true => shard_len.min(self.parameters.settings().max_tail_candidates),
            false => 0,
        };
        let counts = (k, self.parity_count);
        Budget::new(
            set.work(),
            counts,
            [whole, shard_len, ends_max],
            reconstructions,
        )
    }

    /// Whether what the set may cost is spent.
    pub fn is_spent(&mut self) -> bool {
        self.budget.turn = match self.is_last_resort {
            true => Turn::Guesses,
            // What guests may cost is bounded whoever they are.
            false if self.set.has_proven() && !self.set.is_of_guests => Turn::Proven,
            false => Turn::Promised,
        };
        self.budget.is_spent()
    }

    pub fn slot(&self, ordinal: usize) -> Slot {
        if ordinal < self.data_count {
            Slot::Data(ordinal as u8)
        } else {
            Slot::Parity((ordinal - self.data_count) as u8)
        }
    }

    pub fn ordinals(&self) -> std::ops::Range<usize> {
        0..self.data_count + self.parity_count
    }

    pub fn bytes(&self, place: usize) -> &'a [u8] {
        &self.set.candidates()[place].payload
    }

    /// Lengths that enough segments could have as shards: first those of which a proven sender has
    /// enough, then those of most slots. All but the last data segment have the full length.
    pub fn shard_lengths(&self) -> Vec<usize> {
        let mut slots: Vec<(usize, Slot)> = self
            .set
            .candidates()
            .iter()
            .filter(|candidate| candidate.slot != self.slot(self.data_count - 1))
            .map(|candidate| (candidate.payload.len(), candidate.slot))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        let mut lengths: Vec<(usize, usize)> = slots
            .chunk_by(|a, b| a.0 == b.0)
            .map(|slots| (slots.len(), slots[0].0))
            .filter(|(count, _)| count + 1 >= self.data_count)
            .collect();
        lengths.sort_unstable_by_key(|(count, length)| {
            Reverse((self.is_proven_length(*length), *count, *length))
        });
        if self.data_count == 1 && lengths.is_empty() {
            let longest = self
                .set
                .candidates()
                .iter()
                .map(|candidate| candidate.payload.len());
            lengths.extend(longest.max().map(|length| (1, length)));
        }
        lengths
            .into_iter()
            .take(LENGTHS_MAX)
            .map(|(_, length)| length)
            .collect()
    }

    /// Whether any proven sender has enough segments of this length.
    fn is_proven_length(&self, length: usize) -> bool {
        let last = self.slot(self.data_count - 1);
        let fits = |held: &&Candidate| held.payload.len() == length && held.slot != last;
        let shares = self.set.shares().iter();
        let mut proven = shares.filter(|share| share.sender.is_authenticated());
        proven.any(|share| {
            let held = self.set.candidates().iter().filter(fits);
            let own = held.filter(|held| held.sender == share.sender);
            own.count() + 1 >= self.data_count
        })
    }
}

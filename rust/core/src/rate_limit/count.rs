//! What was counted, by epoch.
//!
//! Epochs are floor(unix time / epoch size), as RLN counts them; the number only grows. A clock that steps back into an
//! epoch that was left finds it closed, but for acknowledgements: they take the reserve of the newest epoch, the one on
//! record, and only where what was counted in the earlier one is known too. A proof for one message too many reveals
//! the key that made it.

use std::collections::BTreeMap;

use super::Moment;
use crate::channel::Allowance;
use crate::sds::{Kinds, TransmitKind};

/// Epochs that were left of which it is remembered how much was counted.
pub const EARLIER_MAX: usize = 1_000;

/// What takes a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// A message takes one, whatever the number of its segments, and however often it is sent again.
    Message,
    /// Each envelope takes one.
    Segment,
}

/// A limit.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Length of an epoch, at least 1.
    pub epoch_size_ms: i64,
    /// Places of an epoch, at least 1.
    pub quota: i64,
    /// What takes a place.
    pub counts: Counts,
    /// Of the places, how many are kept for acknowledgements.
    pub ack_reserve: i64,
    /// After how many places ephemeral messages are dropped.
    pub ephemeral_max: i64,
}

/// The count of an epoch, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The newest epoch that was opened.
    pub epoch: i64,
    /// Its length.
    pub epoch_size_ms: i64,
    /// Places that are taken in it.
    pub used: i64,
}

/// How a limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Places that are taken in the newest epoch.
    pub used: i64,
    /// The quota.
    pub total: i64,
    /// Unix time at which the next epoch begins.
    pub resets_at_ms: i64,
}

/// Counts what leaves.
#[derive(Debug)]
pub struct Count {
    terms: Terms,
    reserve: i64,
    /// How much of an epoch what others ask for may take.
    repairs_max: i64,
    free: Kinds,
    epoch: i64,
    used: i64,
    repairs: i64,
    /// Unix time at which an acknowledgement took a place last, in this life.
    synced_at_ms: Option<i64>,
    is_changed: bool,
    /// Whether a count was taken over, and the epoch whose count nobody here knows.
    is_known: bool,
    unknown_epoch: Option<i64>,
    /// What was counted in epochs before the open one, none where absent; before `known_from` nobody knows.
    earlier: BTreeMap<i64, i64>,
    known_from: i64,
    /// The epoch that was left, in which the clock stands.
    entered: Option<i64>,
    /// Places of the reserve that acknowledgements took while the clock stood in an earlier epoch.
    reserve_used: i64,
}

impl Count {
    pub fn new(terms: Terms) -> Self {
        // One place at least is left for messages, else a quota of 1 could never send any.
        let reserve = terms.ack_reserve.min(terms.quota - 1);
        Count {
            terms,
            reserve,
            // What others ask for takes no more than half of the rest: our own messages leave in the same epoch.
            repairs_max: ((terms.quota - reserve) / 2).max(1),
            free: match terms.counts {
                Counts::Segment => Kinds::NONE,
                Counts::Message => Kinds::NONE
                    .with(TransmitKind::Further)
                    .with(TransmitKind::Retransmission),
            },
            epoch: 0,
            used: 0,
            repairs: 0,
            synced_at_ms: None,
            is_changed: false,
            is_known: false,
            unknown_epoch: None,
            earlier: BTreeMap::new(),
            known_from: 0,
            entered: None,
            reserve_used: 0,
        }
    }

    pub fn add(&mut self, stored: Record) {
        // With another epoch size it is carried into the last epoch that the old one touched.
        let end_ms = stored
            .epoch
            .saturating_add(1)
            .saturating_mul(stored.epoch_size_ms);
        let epoch = self.epoch_of(end_ms.saturating_sub(1));
        self.is_known = true;
        self.unknown_epoch = None;
        self.known_from = self.known_from.max(epoch);
        if epoch > self.epoch {
            self.leave_epoch();
            self.epoch = epoch;
            self.used = stored.used;
        } else if epoch == self.epoch {
            self.used = self.used.saturating_add(stored.used);
        } else {
            self.note_earlier(epoch, stored.used);
        }
    }

    /// Whether a count was taken over.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Nothing is known of the count of this epoch: nothing more of it is spent unless that is learned.
    pub fn close(&mut self, now: Moment) {
        self.advance(now);
        self.unknown_epoch = Some(self.epoch);
        self.known_from = self.known_from.max(self.epoch);
    }

    /// The newest epoch that was opened.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    pub fn epoch_size_ms(&self) -> i64 {
        self.terms.epoch_size_ms
    }

    pub fn epoch_of(&self, epoch_ms: i64) -> i64 {
        epoch_ms.div_euclid(self.terms.epoch_size_ms)
    }

    pub fn free_kinds(&self) -> Kinds {
        self.free
    }

    /// What of the quota is not kept for acknowledgements.
    pub fn open_quota(&self) -> i64 {
        self.terms.quota - self.reserve
    }

    fn starts_at_ms(&self) -> i64 {
        self.epoch.saturating_mul(self.terms.epoch_size_ms)
    }

    pub fn resets_at_ms(&self) -> i64 {
        self.starts_at_ms().saturating_add(self.terms.epoch_size_ms)
    }

    /// Unix time from which more of a kind may leave, where none may now: acknowledgements have times of their own, and
    /// a clock that stands in an epoch that was left waits for the open one.
    pub fn reopens_at_ms(&self, kind: TransmitKind, epoch_ms: i64) -> i64 {
        let left = self.terms.quota.saturating_sub(self.used());
        let candidates = if left <= 0 {
            [None, None]
        } else if epoch_ms < self.starts_at_ms() {
            [Some(self.starts_at_ms()), None]
        } else if kind == TransmitKind::Sync {
            let unused_at_ms = self.due_before_ms(self.open_quota(), left);
            [unused_at_ms, self.sync_in_turn_at_ms()]
        } else {
            [self.due_before_ms(self.reserve, left), None]
        };
        let later = candidates
            .into_iter()
            .flatten()
            .filter(|at_ms| *at_ms > epoch_ms);
        later.min().unwrap_or(self.resets_at_ms())
    }

    /// Unix time from which fewer than `left` of these places are due later, see [`Count::due_later`].
    fn due_before_ms(&self, places: i64, left: i64) -> Option<i64> {
        let size_ms = i128::from(self.terms.epoch_size_ms);
        let later_ms = (i128::from(left - 1) * size_ms).checked_div(i128::from(places))?;
        let later_ms = i64::try_from(later_ms.min(size_ms)).expect("no longer than an epoch");
        Some(self.resets_at_ms().saturating_sub(later_ms))
    }

    /// How many of these places are due later in the epoch where they are taken evenly: rounded up, so the last one is
    /// due at its end.
    pub fn due_later(&self, places: i64, epoch_ms: i64) -> i64 {
        let size_ms = self.terms.epoch_size_ms;
        let left_ms = (self.resets_at_ms().saturating_sub(epoch_ms)).clamp(0, size_ms);
        let due = (i128::from(places) * i128::from(left_ms) + i128::from(size_ms) - 1)
            / i128::from(size_ms);
        i64::try_from(due).expect("no more than all")
    }

    /// How many acknowledgements may leave beside messages that are yet to come: those that the time which is over
    /// left, or one where the last is as long ago as an even use of the reserve asks for.
    fn syncs_in_time(&self, left: i64, epoch_ms: i64) -> i64 {
        let is_in_turn = self
            .sync_in_turn_at_ms()
            .is_none_or(|at_ms| at_ms <= epoch_ms);
        let unused = left - self.due_later(self.open_quota(), epoch_ms);
        unused.max(i64::from(is_in_turn))
    }

    fn sync_in_turn_at_ms(&self) -> Option<i64> {
        let between_ms = self.terms.epoch_size_ms / self.reserve.max(1);
        Some(self.synced_at_ms?.saturating_add(between_ms))
    }

    pub fn enters(&self, epoch_ms: i64) -> bool {
        let epoch = self.epoch_of(epoch_ms);
        epoch > self.epoch
            || (epoch < self.epoch && epoch >= self.known_from && self.entered != Some(epoch))
    }

    /// Opens the epoch of this time unless that or a later one is open already.
    pub fn advance(&mut self, now: Moment) {
        let epoch = self.epoch_of(now.epoch_ms);
        if epoch <= self.epoch {
            return;
        }
        self.leave_epoch();
        self.epoch = epoch;
        self.used = now.in_flight.min(self.terms.quota);
        self.is_changed |= self.used > 0;
    }

    /// What may leave now.
    ///
    /// `left_to_others` are places that others may claim; acknowledgements take them all the same, but for `turns` of
    /// them. While it is paused nothing that counts leaves, though places are left.
    ///
    /// Acknowledgements come for ever where others speak, so they leave our messages as much of the epoch as its time
    /// is left; and our messages leave them as much of their reserve.
    pub fn allowance(
        &mut self,
        now: Moment,
        left_to_others: i64,
        turns: i64,
        is_paused: bool,
    ) -> Allowance {
        let left = self.left(now);
        let unreserved = left - self.due_later(self.reserve, now.epoch_ms);
        let (mut open_left, mut sync_left) = if self.behind_ms(now) > 0 {
            (0, self.left_behind(now))
        } else {
            let in_time = self.syncs_in_time(left, now.epoch_ms);
            (
                unreserved - left_to_others,
                in_time.min(left - turns).max(0),
            )
        };
        if is_paused {
            (open_left, sync_left) = (0, 0);
        }
        Allowance {
            free: self.free,
            left,
            open_left: open_left.max(0),
            sync_left,
            ephemeral_left: (self.terms.ephemeral_max.saturating_sub(self.used))
                .min(unreserved)
                .max(0),
            repairs: self.repairs < self.repairs_max,
        }
    }

    /// Counts one envelope that is about to leave, of a kind that takes a place.
    pub fn take(&mut self, kind: TransmitKind, now: Moment) {
        let is_behind = self.behind_ms(now) > 0;
        self.used = self.used.saturating_add(1);
        self.repairs += i64::from(kind == TransmitKind::Repair);
        if kind == TransmitKind::Sync {
            self.synced_at_ms = Some(now.epoch_ms);
        }
        self.is_changed = true;
        if is_behind {
            self.note_earlier(self.epoch_of(now.epoch_ms), 1);
            self.reserve_used += 1;
        }
    }

    /// These were counted in `epoch` and never left; so many of them are what others asked for.
    pub fn give_back(&mut self, places: i64, repairs: i64, epoch: i64) {
        if epoch == self.epoch {
            self.used = self.used.saturating_sub(places).max(0);
            self.repairs = self.repairs.saturating_sub(repairs).max(0);
            self.is_changed = true;
        }
    }

    pub fn behind_ms(&mut self, now: Moment) -> i64 {
        self.advance(now);
        self.starts_at_ms().saturating_sub(now.epoch_ms).max(0)
    }

    pub fn standing(&mut self, now: Moment) -> Standing {
        self.advance(now);
        Standing {
            used: self.used(),
            total: self.terms.quota,
            resets_at_ms: self.resets_at_ms(),
        }
    }

    pub fn record(&self) -> Record {
        Record {
            epoch: self.epoch,
            epoch_size_ms: self.terms.epoch_size_ms,
            used: self.used(),
        }
    }

    pub fn poll_record(&mut self) -> Option<Record> {
        std::mem::take(&mut self.is_changed).then(|| self.record())
    }

    fn used(&self) -> i64 {
        if self.unknown_epoch == Some(self.epoch) {
            self.used.max(self.terms.quota)
        } else {
            self.used
        }
    }

    /// Places of the quota that are left at this time.
    fn left(&mut self, now: Moment) -> i64 {
        self.advance(now);
        if self.epoch_of(now.epoch_ms) != self.epoch {
            return 0;
        }
        self.terms.quota.saturating_sub(self.used()).max(0)
    }

    /// Places for acknowledgements at this time, in an epoch that was left.
    fn left_behind(&mut self, now: Moment) -> i64 {
        let epoch = self.epoch_of(now.epoch_ms);
        if epoch < self.known_from {
            return 0;
        }
        if self.entered != Some(epoch) {
            self.entered = Some(epoch);
            // Nobody knows when these leave.
            self.note_earlier(epoch, now.in_flight);
        }
        let taken_there = self.earlier.get(&epoch).copied().unwrap_or(0);
        let there = self.terms.quota.saturating_sub(taken_there);
        let here = self.terms.quota.saturating_sub(self.used());
        (self.reserve - self.reserve_used)
            .min(here)
            .min(there)
            .max(0)
    }

    fn note_earlier(&mut self, epoch: i64, places: i64) {
        let counted = self.earlier.entry(epoch).or_default();
        *counted = counted.saturating_add(places);
    }

    fn leave_epoch(&mut self) {
        // One of which nothing is known stays full.
        let used = self.used();
        if used != 0 {
            self.note_earlier(self.epoch, used);
        }
        self.entered = None;
        self.repairs = 0;
        self.reserve_used = 0;
        while self.earlier.len() > EARLIER_MAX
            && let Some((oldest, _)) = self.earlier.pop_first()
        {
            self.known_from = self.known_from.max(oldest + 1);
        }
    }
}

//! Segments to payload: any k of k + m, in any order, from peers that may lie.
//!
//! Owns the incomplete sets, what each sender holds of the budget and which payloads are complete.
//! It reads no clock and does no I/O: time is an argument, what must be saved is polled. A header's
//! counts allocate nothing; nothing a peer sends panics or fails.

mod admit;
mod attempt;
mod batch;
mod budget;
mod bytes;
mod candidate;
mod complete;
mod completed;
mod draft_counts;
mod eviction;
mod failed_attempts;
mod field;
mod guests;
mod locate;
mod outcome;
mod payload;
mod persist;
mod receive;
mod recover;
mod selections;
mod sender_accounts;
mod set;
mod syndrome_decoder;
mod tail;
mod verify;
mod word;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use batch::{Joined, reassemble_many};
pub use bytes::{Lend, Lent};
pub use outcome::{Discard, Drop, Dropped, Outcome, Reconstructed, Stats};
pub use payload::Payload;
pub use persist::{Change, Record, Records};

use crate::segment::Parameters;
use crate::wire::segment::HASH_LENGTH;
use completed::Completed;
use sender_accounts::SenderAccounts;
use set::{Set, SetId, key_of};

/// What a receiver may hold (specification 002, Denial of Service).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Incomplete sets, over all senders.
    pub sets_max: u64,
    /// Incomplete sets with segments of one sender.
    pub sets_per_sender_max: u64,
    /// Wire bytes in incomplete sets, over all senders.
    pub buffered_bytes_max: u64,
    /// Wire bytes of one sender.
    pub buffered_bytes_per_sender_max: u64,
    /// Part of both global budgets that senders without an authenticated identity share.
    pub unauthenticated_share: f64,
    /// Different segments kept for one position of a set.
    pub candidates_per_slot_max: usize,
    /// Completed payloads remembered.
    pub completed_remembered_max: usize,
    /// A set expires this long after its last new segment.
    pub timeout_ms: i64,
    /// What guesses at wrong segments of one set may cost, in whole reconstructions. As much again is
    /// kept for what needs no guess.
    pub work_budget: u64,
}

/// How and when a segment came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Receipt<'a> {
    /// Milliseconds on the caller's clock.
    pub now_ms: i64,
    /// Who sent it, as far as known.
    pub sender: Option<&'a str>,
    /// Whether that identity is proven.
    pub authenticated: bool,
    /// What tells two sends of the same payload apart.
    pub message_key: Option<&'a [u8]>,
}

/// The state machine of a receiver. One owner; outputs are polled.
#[derive(Debug)]
pub struct Reassembler {
    parameters: Parameters,
    limits: Limits,
    sets: BTreeMap<SetId, Box<Set>>,
    /// Sets by the order of their last new segment, the oldest first.
    by_update: BTreeMap<u64, SetId>,
    next_tick: u64,
    accounts: SenderAccounts,
    completed: Completed,
    dropped: VecDeque<Dropped>,
    /// Sets with segments that `poll_persist` has not given.
    unsaved: BTreeSet<SetId>,
    /// Saved sets that are gone.
    deleted: Vec<SetId>,
    stats: Stats,
}

impl Reassembler {
    /// An empty receiver.
    pub fn new(parameters: Parameters, limits: Limits) -> Self {
        Reassembler {
            parameters,
            limits,
            sets: BTreeMap::new(),
            by_update: BTreeMap::new(),
            next_tick: 0,
            accounts: SenderAccounts::default(),
            completed: Completed::new(limits.completed_remembered_max),
            dropped: VecDeque::new(),
            unsaved: BTreeSet::new(),
            deleted: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// What may be held.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Drops the sets whose last new segment came `timeout_ms` before `now_ms` or earlier.
    pub fn expire(&mut self, now_ms: i64) -> Vec<Dropped> {
        let mut expired = Vec::new();
        while let Some(id) = self.oldest().filter(|id| self.expiry_ms(id) <= now_ms) {
            expired.extend(self.drop_set(id, Drop::Expired));
        }
        expired
    }

    /// When the next set expires; `None` while there is none.
    pub fn next_expiry_ms(&self) -> Option<i64> {
        self.oldest().map(|id| self.expiry_ms(&id))
    }

    /// Sets that `receive` evicted to make room, since the last call.
    pub fn poll_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped).into()
    }

    /// Whether segments are held of the payload of this hash under `message_key`.
    #[cfg(debug_assertions)]
    pub fn is_partial(&self, message_key: &[u8], payload_hash: &[u8; HASH_LENGTH]) -> bool {
        let key = key_of(Some(message_key), payload_hash);
        self.sets.keys().any(|id| id.key == key)
    }

    /// Remembers a payload that came as it is, without segments, like one that was completed; false where it is
    /// remembered already.
    pub fn complete_whole(&mut self, message_key: &[u8], payload_hash: &[u8; HASH_LENGTH]) -> bool {
        let key = key_of(Some(message_key), payload_hash);
        let is_new = !self.completed.contains(&key);
        self.completed.insert(key);
        is_new
    }

    /// Counts of what was received and of what is held.
    pub fn stats(&self) -> Stats {
        Stats {
            sets_held: self.sets.len() as u64,
            bytes_held: self.accounts.total_bytes(),
            senders_held: self.accounts.senders(),
            completed_remembered: self.completed.len() as u64,
            ..self.stats
        }
    }

    fn oldest(&self) -> Option<SetId> {
        self.by_update.first_key_value().map(|(_, id)| *id)
    }

    fn expiry_ms(&self, id: &SetId) -> i64 {
        self.sets[id]
            .updated_ms
            .saturating_add(self.limits.timeout_ms)
    }

    /// Moves a set to the end of the order of updates.
    fn touch(&mut self, id: SetId, now_ms: i64) {
        let set = self.sets.get_mut(&id).expect("a touched set is held");
        self.by_update.remove(&set.tick);
        set.tick = self.next_tick;
        set.updated_ms = now_ms;
        self.by_update.insert(set.tick, id);
        self.next_tick += 1;
    }

    /// Takes a set out of every index and gives its charges back.
    fn remove_set(&mut self, id: SetId) -> Option<Box<Set>> {
        let set = self.sets.remove(&id)?;
        if let Some(guests) = &set.guests {
            self.forget_sets(guests.key);
        }
        self.by_update.remove(&set.tick);
        self.unsaved.remove(&id);
        let sharers = set.candidates().iter().filter_map(|held| held.sharer);
        sharers.for_each(|sharer| self.accounts.release(sharer));
        self.accounts
            .count_claimed(set.main_claimed().is_some(), false);
        for share in set.shares() {
            self.accounts.refund(share.sender, share.bytes);
            self.accounts.close_share(share.sender);
        }
        if set.is_stored {
            self.deleted.push(id);
        }
        Some(set)
    }

    /// Removes a set that will not be completed, counted under `reason`.
    fn drop_set(&mut self, id: SetId, reason: Drop) -> Option<Dropped> {
        let sender = self.sets.get(&id)?.first_sender();
        let sender = sender.and_then(|sender| self.accounts.name(sender));
        let sender = sender.map(str::to_owned);
        let set = self.remove_set(id)?;
        if set.is_of_guests {
            return None;
        }
        self.stats.count_drop(reason);
        Some(Dropped {
            entire_message_hash: set.hash,
            message_key: set.message_key.map(Vec::from),
            sender,
            reason,
        })
    }
}

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod eviction_tests;
#[cfg(test)]
mod guest_tests;
#[cfg(test)]
mod persist_tests;
#[cfg(test)]
mod poison_tests;
#[cfg(test)]
mod tests;

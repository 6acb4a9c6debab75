//! Who was heard in the channel, and when.

use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

/// Sender ids are free to forge; the least recently heard goes first.
pub const PARTICIPANTS_MAX: usize = 10_000;
/// Times are kept this exactly: who speaks all the time is not moved all the time.
const HEARD_EXACTLY_MS: i64 = 1_000;

/// Senders by the time they were last heard.
#[derive(Debug, Default)]
pub struct Participants {
    heard_ms: LinkedHashMap<Arc<str>, i64>,
    /// When each spoke last, other than out of a store.
    live_ms: LinkedHashMap<Arc<str>, i64>,
    /// When anybody was heard first, in epoch milliseconds.
    first_epoch_ms: Option<i64>,
    /// For `poll_persist`.
    changed: LinkedHashSet<Arc<str>>,
}

impl Participants {
    /// Notes that `sender_id` spoke; true the first time.
    pub fn hear(&mut self, sender_id: &Arc<str>, monotonic_ms: i64) -> bool {
        if let Some(heard_ms) = self.heard_ms.get_mut(sender_id) {
            if monotonic_ms - *heard_ms >= HEARD_EXACTLY_MS {
                *heard_ms = monotonic_ms;
                self.heard_ms.to_back(sender_id);
            }
            return false;
        }
        self.heard_ms.insert(Arc::clone(sender_id), monotonic_ms);
        self.changed.replace(Arc::clone(sender_id));
        if self.heard_ms.len() > PARTICIPANTS_MAX
            && let Some((forgotten, _)) = self.heard_ms.pop_front()
        {
            self.changed.replace(forgotten);
        }
        true
    }

    /// Notes that `sender_id` spoke just now, other than out of a store.
    pub fn hear_live(&mut self, sender_id: &Arc<str>, monotonic_ms: i64) {
        if let Some(live_ms) = self.live_ms.get_mut(sender_id) {
            *live_ms = monotonic_ms;
            self.live_ms.to_back(sender_id);
            return;
        }
        self.live_ms.insert(Arc::clone(sender_id), monotonic_ms);
        if self.live_ms.len() > PARTICIPANTS_MAX {
            self.live_ms.pop_front();
        }
    }

    /// When a sender spoke last, other than out of a store.
    pub fn live_ms(&self, sender_id: &Arc<str>) -> Option<i64> {
        self.live_ms.get(sender_id).copied()
    }

    /// Those who spoke after `monotonic_ms`, other than out of a store, the latest first.
    pub fn live_since(&self, monotonic_ms: i64) -> impl Iterator<Item = &Arc<str>> {
        let live = self
            .live_ms
            .iter()
            .rev()
            .take_while(move |(_, live_ms)| **live_ms > monotonic_ms);
        live.map(|(name, _)| name)
    }

    /// How many are known, besides this participant.
    pub fn len(&self) -> usize {
        self.heard_ms.len()
    }

    /// Senders heard in the last `ttl_ms`, in the order of their names.
    pub fn within(&self, monotonic_ms: i64, ttl_ms: i64) -> Vec<Arc<str>> {
        let recent = self
            .heard_ms
            .iter()
            .filter(|(_, heard_ms)| monotonic_ms - **heard_ms <= ttl_ms);
        let mut names: Vec<_> = recent.map(|(name, _)| Arc::clone(name)).collect();
        names.sort();
        names
    }

    /// When anybody was heard first, in epoch milliseconds: now where nobody was.
    pub fn first_heard_ms(&mut self, epoch_ms: i64) -> i64 {
        *self.first_epoch_ms.get_or_insert(epoch_ms)
    }

    /// As [`Participants::first_heard_ms`], for the stored state; 0 where nobody was heard.
    pub fn first_epoch_ms(&self) -> i64 {
        self.first_epoch_ms.unwrap_or(0)
    }

    /// Restores what [`Participants::first_epoch_ms`] gave.
    pub fn set_first_epoch_ms(&mut self, epoch_ms: i64) {
        self.first_epoch_ms = Some(epoch_ms).filter(|at_ms| *at_ms != 0);
    }

    /// Names whose record changed, and whether each is still known.
    pub fn poll_changed(&mut self) -> Vec<(Arc<str>, bool)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|name| (Arc::clone(&name), self.heard_ms.contains_key(&name)))
            .collect()
    }

    /// Restores a stored name.
    pub fn restore(&mut self, sender_id: &Arc<str>, monotonic_ms: i64) {
        self.hear(sender_id, monotonic_ms);
        self.changed.clear();
    }
}

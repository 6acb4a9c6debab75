//! Who was heard in the channel, and when.

use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

/// Sender ids are free to forge; the least recently heard goes first.
pub const PARTICIPANTS_MAX: usize = 10_000;
/// Times are kept this exactly: who speaks all the time is not moved all the time.
const HEARD_EXACTLY_MS: i64 = 1_000;

/// One sender.
#[derive(Debug)]
struct Heard {
    heard_ms: i64,
    /// The latest Lamport timestamp of its contents that left the log, and what is stored of that.
    horizon: u64,
    stored_horizon: u64,
}

/// Senders by the time they were last heard.
#[derive(Debug, Default)]
pub struct Participants {
    heard: LinkedHashMap<Arc<str>, Heard>,
    /// When each spoke last, other than out of a store.
    live_ms: LinkedHashMap<Arc<str>, i64>,
    /// When anybody was heard first, in epoch milliseconds.
    first_epoch_ms: Option<i64>,
    /// For `poll_persist`.
    changed: LinkedHashSet<Arc<str>>,
    /// The latest that any horizon is, or was.
    horizon_max: u64,
}

impl Participants {
    /// Notes that `sender_id` spoke; true the first time.
    pub fn hear(&mut self, sender_id: &Arc<str>, monotonic_ms: i64) -> bool {
        let last = self.heard.iter_mut().next_back();
        if let Some((_, known)) = last.filter(|(last, _)| *last == sender_id) {
            if monotonic_ms - known.heard_ms >= HEARD_EXACTLY_MS {
                known.heard_ms = monotonic_ms;
            }
            return false;
        }
        if let Some(known) = self.heard.get_mut(sender_id) {
            if monotonic_ms - known.heard_ms >= HEARD_EXACTLY_MS {
                known.heard_ms = monotonic_ms;
                self.heard.to_back(sender_id);
            }
            return false;
        }
        let heard = Heard {
            heard_ms: monotonic_ms,
            horizon: 0,
            stored_horizon: 0,
        };
        self.heard.insert(Arc::clone(sender_id), heard);
        self.changed.replace(Arc::clone(sender_id));
        if self.heard.len() > PARTICIPANTS_MAX
            && let Some((forgotten, _)) = self.heard.pop_front()
        {
            self.changed.replace(forgotten);
        }
        true
    }

    /// A content of `sender_id` left the log. What is stored of that may be older by `exactly`.
    pub fn on_forgotten(&mut self, sender_id: &Arc<str>, lamport: u64, exactly: u64) {
        let Some(known) = self.heard.get_mut(sender_id) else {
            return;
        };
        known.horizon = known.horizon.max(lamport);
        self.horizon_max = self.horizon_max.max(lamport);
        if known.horizon - known.stored_horizon >= exactly {
            known.stored_horizon = known.horizon;
            self.changed.replace(Arc::clone(sender_id));
        }
    }

    /// The latest Lamport timestamp of contents of a sender that left the log; 0 where none did.
    fn horizon(&self, sender_id: &Arc<str>) -> u64 {
        self.heard.get(sender_id).map_or(0, |known| known.horizon)
    }

    /// Whether no content of a sender that left the log has this Lamport timestamp or a later one, as
    /// far as is known.
    pub fn is_beyond_horizon(&self, sender_id: &Arc<str>, lamport: u64) -> bool {
        if lamport > self.horizon_max {
            return true;
        }
        let horizon = self.horizon(sender_id);
        horizon == 0 || lamport > horizon
    }

    /// Notes that `sender_id` spoke just now, other than out of a store.
    pub fn hear_live(&mut self, sender_id: &Arc<str>, monotonic_ms: i64) {
        let last = self.live_ms.iter_mut().next_back();
        if let Some((_, live_ms)) = last.filter(|(last, _)| *last == sender_id) {
            *live_ms = monotonic_ms;
            return;
        }
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

    /// Participants heard from the network, not from a store, after `monotonic_ms`; the latest first.
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
        self.heard.len()
    }

    /// Senders heard in the last `ttl_ms`, in the order of their names.
    pub fn within(&self, monotonic_ms: i64, ttl_ms: i64) -> Vec<Arc<str>> {
        let recent = self
            .heard
            .iter()
            .filter(|(_, known)| monotonic_ms - known.heard_ms <= ttl_ms);
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

    /// Names whose record changed, and the horizon of each that is still known.
    pub fn poll_changed(&mut self) -> Vec<(Arc<str>, Option<u64>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|name| {
                let horizon = self.heard.get(&name).map(|known| known.stored_horizon);
                (name, horizon)
            })
            .collect()
    }

    /// Restores a stored name.
    pub fn restore(&mut self, sender_id: &Arc<str>, horizon: u64, monotonic_ms: i64) {
        self.hear(sender_id, monotonic_ms);
        if let Some(known) = self.heard.get_mut(sender_id) {
            (known.horizon, known.stored_horizon) = (horizon, horizon);
            self.horizon_max = self.horizon_max.max(horizon);
        }
        self.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: usize) -> Arc<str> {
        number.to_string().into()
    }

    #[test]
    fn the_least_recently_heard_is_forgotten_beyond_the_limit() {
        let mut participants = Participants::default();
        for number in 0..PARTICIPANTS_MAX {
            assert!(participants.hear(&named(number), 0));
            participants.hear_live(&named(number), 0);
        }
        assert_eq!(participants.poll_changed().len(), PARTICIPANTS_MAX);
        assert!(!participants.hear(&named(0), HEARD_EXACTLY_MS));
        participants.hear_live(&named(0), 1);
        assert!(participants.hear(&named(PARTICIPANTS_MAX), HEARD_EXACTLY_MS));
        participants.hear_live(&named(PARTICIPANTS_MAX), 1);
        assert_eq!(participants.len(), PARTICIPANTS_MAX);
        assert_eq!(participants.live_ms(&named(0)), Some(1));
        assert_eq!(participants.live_ms(&named(1)), None);
        let changed = participants.poll_changed();
        assert_eq!(
            changed,
            [(named(PARTICIPANTS_MAX), Some(0)), (named(1), None)]
        );
        assert_eq!(participants.live_since(0).count(), 2);
    }

    #[test]
    fn a_time_is_that_of_the_last_word_to_the_second() {
        let mut participants = Participants::default();
        let alice: Arc<str> = "alice".into();
        participants.hear(&alice, 0);
        participants.hear(&alice, HEARD_EXACTLY_MS - 1);
        assert_eq!(participants.within(5_000, 5_000), [Arc::clone(&alice)]);
        assert!(participants.within(5_001, 5_000).is_empty());
        participants.hear(&alice, HEARD_EXACTLY_MS);
        assert_eq!(participants.within(6_000, 5_000), [alice]);
    }

    #[test]
    fn a_horizon_is_stored_when_it_moved_far_and_never_goes_back() {
        let mut participants = Participants::default();
        let alice: Arc<str> = "alice".into();
        participants.on_forgotten(&alice, 7, 1);
        assert_eq!(participants.horizon(&alice), 0, "who is unknown has none");
        participants.hear(&alice, 0);
        participants.poll_changed();
        for (lamport, horizon, stored) in [
            (99, 99, None),
            (100, 100, Some(100)),
            (50, 100, None),
            (199, 199, None),
            (200, 200, Some(200)),
        ] {
            participants.on_forgotten(&alice, lamport, 100);
            assert_eq!(participants.horizon(&alice), horizon);
            assert!(!participants.is_beyond_horizon(&alice, horizon));
            assert!(participants.is_beyond_horizon(&alice, horizon + 1));
            let changed = participants.poll_changed();
            assert_eq!(changed.first().and_then(|(_, stored)| *stored), stored);
        }
        let bob: Arc<str> = "bob".into();
        assert!(participants.is_beyond_horizon(&bob, 7));
        participants.restore(&alice, 300, 0);
        assert!(!participants.is_beyond_horizon(&alice, 300));
        assert_eq!(participants.horizon(&alice), 300);
        assert!(participants.poll_changed().is_empty());
    }
}

//! What this participant received and has not said yet, and when it must say so.

use hashlink::LinkedHashSet;

use super::feedback::feedback_delay_ms;
use crate::sds::config::{Config, Now, Randomness};
use crate::sds::log::{Entry, EntryRef, Log};

/// What a sync said once is said again by so many further syncs within three acknowledgement
/// timeouts, since the first one may be lost: at a loss of 20 % one in 125 is then still unheard, and
/// its sender asks by sending it again.
const REPEATS_MAX: u8 = 2;
const REPEATED_WINDOWS: i64 = 12;
pub const REPEATED_MAX: usize = 600;
/// From so many messages on that nobody has spoken of, they are acknowledged sooner: who sends that many
/// is soon at the end of its outgoing buffer, and waits.
pub const TOGETHER_MAX: usize = 128;
/// Within so large a part of the usual time, and where one speaks for many within a larger one: about
/// `members ^ (delay of the network / time)` of them speak before they hear each other.
const SOONER: i64 = 8;

/// Received contents that no message of ours has named since they came.
///
/// Delivered ones ride on any message; those of a send that is still incomplete only on syncs,
/// since in the history of a content message they would make it wait, at every receiver, for a send
/// that it does not follow. An acknowledgement sync is due at a random moment in the first quarter
/// of the acknowledgement timeout; where one participant's is enough, the moments of a large group
/// crowd towards the end, so that few speak. In a burst of messages it is due sooner, see
/// [`TOGETHER_MAX`]; segments of one message are no burst, where ids name their send.
///
/// Entries are numbered as they become unacknowledged. What is stored is that number, with the
/// entry, and the highest number up to which all was acknowledged (`order_acknowledged`): to
/// acknowledge everything costs no record.
#[derive(Debug)]
pub struct Acknowledgements {
    window_ms: i64,
    /// Whether acknowledgements have a time of their own.
    prompt: bool,
    /// Another participant's acknowledgement counts for ours where any one of them is enough.
    suppress: bool,
    delivered: LinkedHashSet<EntryRef>,
    incomplete: LinkedHashSet<EntryRef>,
    by_others: LinkedHashSet<EntryRef>,
    /// How many entries are marked as the first content of a message that nobody has spoken of.
    unspoken: usize,
    /// When it was due before there were so many of these; none while it is not due sooner.
    regular_due_ms: Option<i64>,
    /// Said by a sync, and to be said again: the oldest first.
    repeated: LinkedHashSet<EntryRef>,
    order: u64,
    order_acknowledged: u64,
    /// When the next acknowledgement sync is due.
    pub due_ms: Option<i64>,
}

impl Acknowledgements {
    /// Nothing is owed.
    pub fn new(config: &Config) -> Self {
        Acknowledgements {
            window_ms: config.window_ms(),
            prompt: config.acknowledgement_sync,
            suppress: config.any_is_enough(),
            delivered: LinkedHashSet::new(),
            incomplete: LinkedHashSet::new(),
            by_others: LinkedHashSet::new(),
            unspoken: 0,
            regular_due_ms: None,
            repeated: LinkedHashSet::new(),
            order: 0,
            order_acknowledged: 0,
            due_ms: None,
        }
    }

    /// Entries that are not acknowledged.
    pub fn len(&self) -> usize {
        self.delivered.len() + self.incomplete.len()
    }

    /// Entries said by a sync, and to be said again.
    pub fn repeated_count(&self) -> usize {
        self.repeated.len()
    }

    /// Whether an entry is not acknowledged.
    pub fn owes(&self, entry: EntryRef) -> bool {
        self.delivered.contains(&entry) || self.incomplete.contains(&entry)
    }

    /// Delivered entries that are not acknowledged, the oldest first.
    pub fn delivered(&self) -> impl Iterator<Item = EntryRef> {
        self.delivered.iter().copied()
    }

    /// Entries of sends that are not delivered and that are not acknowledged, the oldest first.
    pub fn incomplete(&self) -> impl Iterator<Item = EntryRef> {
        self.incomplete.iter().copied()
    }

    /// Whether [`Acknowledgements::incomplete`] has any.
    pub fn has_incomplete(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Up to which number everything is acknowledged.
    pub fn order_acknowledged(&self) -> u64 {
        self.order_acknowledged
    }

    /// A content came, for the first time or again because its sender heard no acknowledgement.
    pub fn received(
        &mut self,
        entry: EntryRef,
        log: &mut Log,
        now: Now,
        members: usize,
        rng: &mut dyn Randomness,
    ) {
        let Some(held) = log.get_mut(entry) else {
            return;
        };
        let is_delivered = held.send.is_none();
        let is_new = held.ordinal == 0 && !std::mem::replace(&mut held.unspoken, true);
        if held.unacknowledged == 0 {
            self.order += 1;
            held.unacknowledged = self.order;
            log.touch(entry);
        }
        let owed = if is_delivered {
            &mut self.delivered
        } else {
            &mut self.incomplete
        };
        owed.replace(entry);
        if !self.by_others.is_empty() {
            self.by_others.remove(&entry);
        }
        self.unspoken += usize::from(is_new);
        if !self.prompt {
            return;
        }
        if self.due_ms.is_none() {
            self.draw(now, members, rng);
        } else if is_new && self.unspoken == TOGETHER_MAX {
            self.hasten(now, members, rng);
        }
    }

    fn is_burst(&self) -> bool {
        self.unspoken >= TOGETHER_MAX
    }

    /// Somebody spoke of an entry: where few are left that nobody spoke of, the rest has its usual time.
    fn spoken_of(&mut self, held: &mut Entry) {
        self.unspoken -= usize::from(std::mem::take(&mut held.unspoken));
        if !self.is_burst() {
            self.due_ms = self.regular_due_ms.take().or(self.due_ms);
        }
    }

    /// Something else is to be said in the time of an acknowledgement.
    pub fn hurry(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        if self.due_ms.is_none() {
            self.draw(now, members, rng);
        }
    }

    /// What is owed changes all the time just now: it is said later.
    pub fn put_off(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.draw_usual(now, members, rng);
    }

    /// Draws the moment of the next acknowledgement sync.
    fn draw(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.draw_usual(now, members, rng);
        if self.is_burst() {
            self.hasten(now, members, rng);
        }
    }

    /// Where it comes sooner so, it is due at the moment that a burst has.
    fn hasten(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        let members = if self.suppress { members } else { 1 };
        let size = i64::from(members.max(2).next_power_of_two().ilog2()).min(SOONER);
        let wait_ms = feedback_delay_ms(rng, self.window_ms * size / SOONER, members);
        let sooner_ms = now.monotonic_ms + wait_ms;
        if let Some(due_ms) = self.due_ms.filter(|due_ms| *due_ms > sooner_ms) {
            self.regular_due_ms = self.regular_due_ms.or(Some(due_ms));
            self.due_ms = Some(sooner_ms);
        }
    }

    fn draw_usual(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        let members = if self.suppress { members } else { 1 };
        self.due_ms = Some(now.monotonic_ms + feedback_delay_ms(rng, self.window_ms, members));
        self.regular_due_ms = None;
    }

    /// What is counted is what is marked, and what is owed is said in time, in the next life too.
    #[cfg(debug_assertions)]
    pub fn audit(&self, log: &Log) {
        let marked = log.arrivals().filter(|(_, entry)| entry.unspoken);
        assert_eq!(self.unspoken, marked.count());
        let owed = log.arrivals().filter(|(_, held)| held.unacknowledged != 0);
        let (mut count, mut latest) = (0, 0);
        for (entry, held) in owed {
            assert!(self.owes(entry), "{:?} is never said", held.message_id);
            assert!(held.unacknowledged > self.order_acknowledged);
            (count, latest) = (count + 1, held.unacknowledged.max(latest));
        }
        assert_eq!(self.len(), count);
        assert!(latest <= self.order);
        assert!(self.by_others.iter().all(|entry| self.owes(*entry)));
        let waits = self.prompt && self.len() > self.by_others.len();
        assert!(self.due_ms.is_some() || !waits, "what is owed has no time");
    }

    /// Restores what of the log is not acknowledged; the timer restarts.
    pub fn restore(
        &mut self,
        log: &mut Log,
        order_acknowledged: u64,
        now: Now,
        members: usize,
        rng: &mut dyn Randomness,
    ) {
        self.order_acknowledged = order_acknowledged;
        self.order = order_acknowledged;
        let stored = log
            .arrivals()
            .filter(|(_, entry)| entry.unacknowledged != 0);
        let mut stored: Vec<_> = stored
            .map(|(entry, held)| (held.unacknowledged, entry))
            .collect();
        stored.sort();
        for (number, entry) in stored {
            if number <= order_acknowledged {
                if let Some(held) = log.get_mut(entry) {
                    held.unacknowledged = 0;
                }
            } else {
                self.order = number;
                self.received(entry, log, now, members, rng);
            }
        }
    }

    /// The send of these was delivered: any message may name them.
    pub fn send_delivered(&mut self, entries: &[EntryRef]) {
        for entry in entries {
            if self.incomplete.remove(entry) {
                self.delivered.replace(*entry);
            }
        }
    }

    /// Another participant than its sender acknowledged `entry`.
    pub fn acknowledged_by_other(&mut self, entry: EntryRef, log: &mut Log) {
        let Some(held) = log.get_mut(entry).filter(|_| self.suppress) else {
            return;
        };
        held.repeats = 0;
        if held.unacknowledged != 0 {
            self.by_others.replace(entry);
            self.spoken_of(held);
            self.rest_if_all_said();
        }
    }

    /// Another participant lacks as much as is lacking here of a send that has these, or more: that need
    /// not be said.
    pub fn lacked_by_other(&mut self, entries: &[EntryRef], log: &mut Log) {
        for entry in entries {
            if self.owes(*entry)
                && let Some(held) = log.get_mut(*entry)
            {
                self.by_others.replace(*entry);
                self.spoken_of(held);
            }
        }
        self.rest_if_all_said();
    }

    /// The content left the log, or must not be said.
    pub fn forget(&mut self, entry: EntryRef, held: &mut Entry) {
        self.repeated.remove(&entry);
        let owed = self.delivered.remove(&entry) || self.incomplete.remove(&entry);
        if owed {
            held.unacknowledged = 0;
            self.by_others.remove(&entry);
            self.spoken_of(held);
            self.rest_if_all_said();
        }
    }

    fn rest_if_all_said(&mut self) {
        if self.by_others.len() == self.len() {
            self.rest();
        }
    }

    fn rest(&mut self) {
        self.due_ms = None;
        self.regular_due_ms = None;
    }

    /// A message of ours that leaves now names these; gives those that were not acknowledged.
    ///
    /// What a sync said, syncs repeat for a while, unless another participant said it too. A content
    /// that gets lost is sent again and says it again.
    pub fn said(
        &mut self,
        entries: &[EntryRef],
        by_sync: bool,
        log: &mut Log,
        now: Now,
        members: usize,
        rng: &mut dyn Randomness,
    ) -> Vec<EntryRef> {
        let mut newly = Vec::new();
        let mut numbers = Vec::new();
        for &entry in entries {
            let Some(held) = log.get_mut(entry) else {
                continue;
            };
            if held.unacknowledged == 0 {
                if by_sync {
                    held.repeats = held.repeats.saturating_sub(1);
                }
                continue;
            }
            if !self.delivered.remove(&entry) {
                self.incomplete.remove(&entry);
            }
            self.spoken_of(held);
            numbers.push(held.unacknowledged);
            newly.push(entry);
            held.unacknowledged = 0;
            held.spoken_ms = now.monotonic_ms;
            if by_sync && (self.by_others.is_empty() || !self.by_others.contains(&entry)) {
                held.repeats = REPEATS_MAX;
                self.repeated.replace(entry);
            }
        }
        if !newly.is_empty() {
            self.note_said(&newly, &numbers, log);
        }
        if self.len() == self.by_others.len() {
            self.rest();
        } else if self.due_ms.is_some_and(|due_ms| due_ms <= now.monotonic_ms) {
            // More than one message can name: the rest follows in its own time.
            self.draw(now, members, rng);
        }
        newly
    }

    /// Stores that these were acknowledged: by `order_acknowledged` where nothing before them is
    /// left, else with each.
    fn note_said(&mut self, newly: &[EntryRef], numbers: &[u64], log: &mut Log) {
        if !self.by_others.is_empty() {
            for entry in newly {
                self.by_others.remove(entry);
            }
        }
        if self.delivered.is_empty() {
            // What is incomplete stands in the order of its numbers.
            let first = self.incomplete.front().and_then(|entry| log.get(*entry));
            self.order_acknowledged = match first {
                None => self.order,
                Some(first) => self.order_acknowledged.max(first.unacknowledged - 1),
            };
        }
        for (entry, number) in newly.iter().zip(numbers) {
            if *number > self.order_acknowledged {
                log.touch(*entry);
            }
        }
    }

    /// What a sync names once more: what is still to be said again and was said lately, the newest of
    /// it. The rest is taken out.
    pub fn repeated(&mut self, log: &Log, now: Now) -> Vec<EntryRef> {
        if self.repeated.is_empty() {
            return Vec::new();
        }
        let oldest_ms = now.monotonic_ms - REPEATED_WINDOWS * self.window_ms;
        let again = |entry: &EntryRef| {
            let held = log.get(*entry);
            held.is_some_and(|held| held.repeats > 0 && held.spoken_ms >= oldest_ms)
        };
        self.repeated.retain(again);
        while self.repeated.len() > REPEATED_MAX {
            self.repeated.pop_front();
        }
        self.repeated.iter().copied().collect()
    }
}

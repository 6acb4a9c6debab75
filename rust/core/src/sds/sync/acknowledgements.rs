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
/// [`TOGETHER_MAX`], and so is what one sync could not name; segments of one message are no burst, where ids
/// name their send.
///
/// Entries are numbered as they become unacknowledged. What is stored is that number, with the
/// entry, and the highest number up to which all was acknowledged (`order_acknowledged`): to
/// acknowledge everything costs no record.
#[derive(Debug)]
pub struct Acknowledgements {
    window_ms: i64,
    /// Whether acknowledgements have a time of their own.
    prompt: bool,
    /// Whether those of a burst have one where others leave by the schedule.
    prompt_in_burst: bool,
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
            prompt_in_burst: config.sync_min_interval_ms > 0,
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

    /// Whether some that nobody acknowledged have no time of their own.
    pub fn wait_for_the_schedule(&self) -> bool {
        !self.prompt && self.len() > self.by_others.len()
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
        if self.due_ms.is_none() {
            if self.prompt || (self.prompt_in_burst && self.is_burst()) {
                self.draw(now, members, rng);
            }
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

    /// A sync of the schedule left that could not name all that is owed: the rest follows, without acknowledgement
    /// syncs too. By the schedule alone it would come after its senders gave up.
    pub fn follow_up(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        if self.due_ms.is_none() && self.len() > self.by_others.len() {
            self.draw_rest(now, members, rng);
        }
    }

    /// What is owed changes all the time just now: it is said later.
    pub fn put_off(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.draw_usual(now, members, rng);
    }

    /// The rest of what one message could not name is said as soon as a burst: its senders count as missing what is
    /// named later than the rest of its send.
    fn draw_rest(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.draw_usual(now, members, rng);
        self.hasten(now, members, rng);
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
            // More than one message can name.
            self.draw_rest(now, members, rng);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::config::Drawn;
    use crate::sds::incoming::IncomingSend;
    use crate::sds::log::Change;
    use crate::sds::name::Name;
    use crate::sds::slab::Slab;

    /// A third of the time in which [`REPEATED_WINDOWS`] windows go by.
    const TIMEOUT_MS: i64 = 5_000;
    const WINDOW_MS: i64 = TIMEOUT_MS / 4;

    /// A log, and what is owed of it.
    struct Bob {
        acknowledgements: Acknowledgements,
        log: Log,
        rng: Drawn,
        now: Now,
    }

    impl Bob {
        fn new() -> Self {
            Bob::with(Log::of(10_000))
        }

        fn with(log: Log) -> Self {
            let config = Config {
                acknowledgement_timeout_ms: TIMEOUT_MS,
                ..Config::example()
            };
            Bob {
                acknowledgements: Acknowledgements::new(&config),
                log,
                rng: Drawn::from([]),
                now: Now {
                    monotonic_ms: 0,
                    epoch_ms: 0,
                },
            }
        }

        /// A content comes, of a send that is whole or not.
        fn hears(&mut self, message_id: &str, is_whole: bool) -> EntryRef {
            let name = Name::new(message_id);
            let (entry, _) = self.log.add(name.clone(), "alice".into(), 1, None, 0);
            if !is_whole {
                let send = IncomingSend::new(name.clone(), name, "alice".into(), 0);
                self.log.get_mut(entry).unwrap().send = Some(Slab::default().insert(send));
            }
            self.hears_again(entry);
            entry
        }

        fn hears_again(&mut self, entry: EntryRef) {
            let (log, rng) = (&mut self.log, &mut self.rng);
            self.acknowledgements.received(entry, log, self.now, 2, rng);
            self.audit();
        }

        fn says(&mut self, entries: &[EntryRef], by_sync: bool) {
            let (log, rng) = (&mut self.log, &mut self.rng);
            self.acknowledgements
                .said(entries, by_sync, log, self.now, 2, rng);
            self.audit();
        }

        fn audit(&self) {
            #[cfg(debug_assertions)]
            self.acknowledgements.audit(&self.log);
        }

        /// What a sync repeats.
        fn repeats(&mut self) -> Vec<EntryRef> {
            self.acknowledgements.repeated(&self.log, self.now)
        }

        /// Up to where all is acknowledged, and the ids of the entries that are stored anew.
        fn stores(&mut self) -> (u64, Vec<String>) {
            let mut stored = Vec::new();
            self.log.poll_persist(|change| {
                if let Change::Entry(entry) = change {
                    stored.push(entry.message_id.to_string());
                }
            });
            (self.acknowledgements.order_acknowledged(), stored)
        }
    }

    #[test]
    fn two_further_syncs_say_again_what_a_sync_said() {
        let mut bob = Bob::new();
        let [one, other, third, fourth] = ["1", "2", "3", "4"].map(|id| bob.hears(id, true));
        // Others said it before or after, or a message of ours, which is sent again if it gets lost.
        bob.acknowledgements
            .acknowledged_by_other(other, &mut bob.log);
        bob.says(&[third], false);
        bob.says(&[one, other, fourth], true);
        assert_eq!(bob.repeats(), [one, fourth]);
        bob.acknowledgements
            .acknowledged_by_other(fourth, &mut bob.log);
        for _ in 0..2 {
            bob.says(&[one], false);
            assert_eq!(bob.repeats(), [one]);
            bob.says(&[one], true);
        }
        assert_eq!(bob.repeats(), []);
    }

    #[test]
    fn what_a_sync_said_is_said_again_within_three_timeouts_and_the_newest_of_it() {
        let mut bob = Bob::new();
        bob.now.monotonic_ms = 1_000;
        let first = bob.hears("first", true);
        bob.says(&[first], true);
        bob.now.monotonic_ms = 1_000 + 3 * TIMEOUT_MS;
        assert_eq!(bob.repeats(), [first]);
        let many: Vec<_> = (0..REPEATED_MAX)
            .map(|number| bob.hears(&number.to_string(), true))
            .collect();
        bob.says(&many, true);
        assert_eq!(bob.repeats(), many);
        bob.now.monotonic_ms += 3 * TIMEOUT_MS + 1;
        assert_eq!(bob.repeats(), []);
        assert_eq!(bob.acknowledgements.repeated_count(), 0);
    }

    #[test]
    fn what_comes_again_is_said_though_another_one_said_it() {
        let mut bob = Bob::new();
        let entry = bob.hears("1", false);
        bob.acknowledgements.send_delivered(&[entry]);
        assert_eq!(
            bob.acknowledgements.delivered().collect::<Vec<_>>(),
            [entry]
        );
        bob.acknowledgements
            .acknowledged_by_other(entry, &mut bob.log);
        assert_eq!(bob.acknowledgements.due_ms, None);
        bob.log.get_mut(entry).unwrap().send = None;
        bob.hears_again(entry);
        assert!(bob.acknowledgements.due_ms.is_some());
        bob.says(&[entry], true);
        assert_eq!(bob.repeats(), [entry]);
    }

    #[test]
    fn what_must_not_be_said_is_neither_owed_nor_said_again() {
        let mut bob = Bob::new();
        let entries = ["1", "2", "3"].map(|id| bob.hears(id, true));
        bob.says(&entries[..1], true);
        bob.acknowledgements
            .acknowledged_by_other(entries[1], &mut bob.log);
        for entry in entries {
            let held = bob.log.get_mut(entry).unwrap();
            bob.acknowledgements.forget(entry, held);
            bob.audit();
        }
        assert_eq!(bob.repeats(), []);
        assert_eq!(bob.acknowledgements.due_ms, None);
        bob.acknowledgements.hurry(bob.now, 2, &mut bob.rng);
        assert!(bob.acknowledgements.due_ms.is_some());
    }

    #[test]
    fn to_say_the_oldest_of_what_is_owed_changes_one_number() {
        let mut bob = Bob::new();
        let whole = bob.hears("1", true);
        let parts = ["2", "3", "4"].map(|id| bob.hears(id, false));
        assert_eq!(bob.stores().1, ["1", "2", "3", "4"]);
        // What comes again has its number, and its place.
        bob.hears_again(parts[0]);
        bob.says(&parts[2..], true);
        assert_eq!(bob.stores(), (0, vec!["4".to_owned()]));
        bob.says(&[whole], true);
        assert_eq!(bob.stores(), (1, vec![]));
        bob.says(&parts[..1], true);
        assert_eq!(bob.stores(), (2, vec![]));
        bob.says(&parts[1..2], true);
        assert_eq!(bob.stores(), (4, vec![]));
        assert_eq!(bob.acknowledgements.due_ms, None);
        bob.hears_again(whole);
        assert_eq!(bob.stores(), (4, vec!["1".to_owned()]));
    }

    #[test]
    fn what_is_owed_is_owed_in_the_next_life_in_the_order_in_which_it_came() {
        let mut log = Log::of(10);
        let numbers = [("a", 3), ("b", 6), ("c", 2), ("d", 0), ("e", 4)];
        let [a, b, c, d, e] = numbers.map(|(id, number)| {
            let (entry, _) = log.add(Name::new(id), "alice".into(), 1, None, 0);
            log.get_mut(entry).unwrap().unacknowledged = number;
            entry
        });
        let mut bob = Bob::with(log);
        let (log, rng) = (&mut bob.log, &mut bob.rng);
        bob.acknowledgements.restore(log, 2, bob.now, 2, rng);
        bob.audit();
        assert_eq!(
            bob.acknowledgements.delivered().collect::<Vec<_>>(),
            [a, e, b]
        );
        for entry in [c, d] {
            assert_eq!(bob.log.get(entry).unwrap().unacknowledged, 0);
        }
        let next = bob.hears("next", true);
        assert_eq!(bob.log.get(next).unwrap().unacknowledged, 7);
        bob.says(&[next], true);
        assert_eq!(bob.acknowledgements.order_acknowledged(), 2);
        // All of that life is said already.
        let mut bob = Bob::new();
        let (log, rng) = (&mut bob.log, &mut bob.rng);
        bob.acknowledgements.restore(log, 9, bob.now, 2, rng);
        let next = bob.hears("next", true);
        assert_eq!(bob.log.get(next).unwrap().unacknowledged, 10);
        assert_eq!(bob.acknowledgements.order_acknowledged(), 9);
    }

    #[test]
    fn the_usual_time_is_the_one_that_was_drawn_last() {
        let mut bob = Bob::new();
        bob.rng = Drawn::from([0.9, 0.1, 0.2, 0.15, 0.4]);
        let entries: Vec<_> = (0..2 * TOGETHER_MAX)
            .map(|number| bob.hears(&number.to_string(), true))
            .collect();
        let due_ms = bob.acknowledgements.due_ms.unwrap();
        assert!(due_ms < WINDOW_MS / 4);
        bob.says(&entries[..1], false);
        assert_eq!(bob.acknowledgements.due_ms, Some(due_ms));
        // What one sync cannot name follows, sooner than usual as long as it is so much.
        bob.now.monotonic_ms = due_ms;
        bob.says(&entries[..10], true);
        let wait_ms = |bob: &Bob| bob.acknowledgements.due_ms.unwrap() - bob.now.monotonic_ms;
        assert!(wait_ms(&bob) < WINDOW_MS / 8);
        let (last, before) = entries[10..=entries.len() - TOGETHER_MAX]
            .split_last()
            .unwrap();
        for entry in before {
            bob.acknowledgements
                .acknowledged_by_other(*entry, &mut bob.log);
        }
        assert!(wait_ms(&bob) < WINDOW_MS / 8);
        bob.acknowledgements
            .acknowledged_by_other(*last, &mut bob.log);
        let usual_ms = wait_ms(&bob);
        assert!(usual_ms > WINDOW_MS / 8 && usual_ms < WINDOW_MS / 2);
        let (now, rng) = (bob.now, &mut bob.rng);
        bob.acknowledgements.hurry(now, 2, rng);
        assert_eq!(wait_ms(&bob), usual_ms);
        bob.acknowledgements.put_off(now, 2, &mut bob.rng);
        assert_ne!(wait_ms(&bob), usual_ms);
    }

    #[test]
    fn what_one_sync_could_not_name_follows_as_soon_as_a_burst() {
        let mut bob = Bob::new();
        bob.rng = Drawn::from([0.9; 4]);
        let entries = ["1", "2", "3"].map(|id| bob.hears(id, false));
        bob.now.monotonic_ms = bob.acknowledgements.due_ms.unwrap();
        assert!(bob.now.monotonic_ms > WINDOW_MS / 8);
        bob.says(&entries[..2], true);
        let due_ms = bob.acknowledgements.due_ms.unwrap();
        assert!(due_ms - bob.now.monotonic_ms <= WINDOW_MS / 8);
        bob.says(&entries[2..], true);
        assert_eq!(bob.acknowledgements.due_ms, None);
    }

    #[test]
    fn a_burst_puts_nothing_off() {
        let mut bob = Bob::new();
        bob.rng = Drawn::from([0.01, 0.9]);
        bob.hears("first", true);
        let due_ms = bob.acknowledgements.due_ms;
        for number in 1..TOGETHER_MAX {
            bob.hears(&number.to_string(), true);
        }
        assert_eq!(bob.acknowledgements.due_ms, due_ms);
    }
}

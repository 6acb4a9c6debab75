//! The local log: what this participant holds, or can reconstruct, by id, in the order in which it
//! came, and in causal order.

mod entry;
mod heads;
mod hint;
mod kept;
mod originals;
mod packed;

use std::collections::VecDeque;
use std::sync::Arc;

pub use entry::{Entry, EntryRef};
pub use heads::{HEADS_MAX, Heads};
use originals::Originals;

use super::index::Index;
use super::name::Name;
use super::octets::Octets;
use super::queue;
use super::slab::Slab;

/// Entries that one that comes puts out at most: more than one may be beyond the limit, where all
/// waited that came before.
const FORGOTTEN_AT_ONCE: usize = 2;

/// Entries by id, in the order in which they came, and the delivered sends in log order.
#[derive(Debug)]
pub struct Log {
    entries_max: usize,
    entries: Slab<Entry>,
    index: Index<Entry>,
    sequence: u64,
    /// Slots of what is held.
    arrival: VecDeque<u32>,
    /// By Lamport timestamp, then message id.
    ordered: VecDeque<(u64, EntryRef)>,
    originals: Originals,
    /// Histories composed so far.
    histories: u32,
    /// For `poll_persist`: entries whose stored form changed, and ids that were forgotten, each with
    /// whether the record of its message goes too.
    changed: Vec<EntryRef>,
    forgotten: Vec<(Name, bool)>,
}

/// What the log just forgot, and the handles that it had.
pub type Forgotten = [Option<(Entry, EntryRef)>; FORGOTTEN_AT_ONCE];

impl Log {
    /// An empty log that keeps `entries_max` entries, and `bytes_max` bytes of messages to answer others with.
    pub fn new(entries_max: usize, bytes_max: usize) -> Self {
        Log {
            entries_max,
            entries: Slab::default(),
            index: Index::default(),
            sequence: 0,
            arrival: VecDeque::new(),
            ordered: VecDeque::new(),
            originals: Originals::new(bytes_max),
            histories: 0,
            changed: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// An empty log that keeps `entries_max` entries, and bytes enough.
    #[cfg(test)]
    pub fn of(entries_max: usize) -> Self {
        Log::new(entries_max, crate::sds::Config::example().log_bytes_max)
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of the last entry that came.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The entry of an id.
    pub fn find(&self, message_id: &[u8]) -> Option<EntryRef> {
        self.index.find(message_id, &self.entries)
    }

    /// Whether an id is held.
    pub fn contains(&self, message_id: &[u8]) -> bool {
        self.find(message_id).is_some()
    }

    /// An entry; `None` where the log holds it no longer.
    pub fn get(&self, entry: EntryRef) -> Option<&Entry> {
        self.entries.get(entry)
    }

    /// An entry to change; its stored form is marked by [`Log::touch`].
    pub fn get_mut(&mut self, entry: EntryRef) -> Option<&mut Entry> {
        self.entries.get_mut(entry)
    }

    /// Holds a new entry, whose id is not held yet; gives what had to go for it.
    pub fn add(
        &mut self,
        message_id: Name,
        sender_id: Arc<str>,
        lamport: u64,
        retrieval_hint: Option<&[u8]>,
        ordinal: u32,
    ) -> (EntryRef, Forgotten) {
        debug_assert!(
            !self.contains(message_id.as_bytes()),
            "{message_id:?} is held"
        );
        self.sequence += 1;
        let mut entry = Entry::new(message_id, sender_id, lamport, self.sequence, ordinal);
        entry.retrieval_hint = retrieval_hint.into();
        let entry = self.entries.insert(entry);
        self.index.insert(entry, &self.entries);
        self.touch(entry);
        let mut gone = Forgotten::default();
        for place in &mut gone {
            if self.entries.len() <= self.entries_max {
                break;
            }
            *place = self.forget_oldest();
        }
        queue::push(&mut self.arrival, entry.slot());
        (entry, gone)
    }

    /// Forgets the entry that came first, unless its send still waits.
    fn forget_oldest(&mut self) -> Option<(Entry, EntryRef)> {
        for _ in 0..self.arrival.len() {
            let slot = self.arrival.pop_front()?;
            let (oldest, held) = self.entries.at(slot)?;
            if held.send.is_some() {
                self.arrival.push_back(slot);
                continue;
            }
            self.take_out_of_order(oldest);
            let mut entry = self.entries.remove(oldest)?;
            self.index.remove(entry.message_id.as_bytes(), oldest);
            let paired = self.originals.on_forgotten(&mut entry, &mut self.entries);
            self.forgotten.push((entry.message_id.clone(), paired));
            return Some((entry, oldest));
        }
        None
    }

    /// Takes out an entry, as if it had not come; its message stays.
    pub fn refuse(&mut self, entry: EntryRef) -> Option<Entry> {
        self.take_out_of_order(entry);
        let mut refused = self.entries.remove(entry)?;
        self.index.remove(refused.message_id.as_bytes(), entry);
        self.originals.set_apart(&mut refused);
        if let Some(at) = self.arrival.iter().rposition(|slot| *slot == entry.slot()) {
            self.arrival.remove(at);
        }
        self.forgotten.push((refused.message_id.clone(), false));
        Some(refused)
    }

    /// As [`Log::refuse`], of the entry of an id.
    pub fn withdraw(&mut self, message_id: &[u8]) -> Option<(EntryRef, Entry)> {
        let handle = self.find(message_id)?;
        Some((handle, self.refuse(handle)?))
    }

    /// Puts a delivered send, by the content that stands for it, into the order: Lamport timestamp, then
    /// id; false where it stands there.
    pub fn deliver(&mut self, entry: EntryRef) -> bool {
        let Some(delivered) = self.entries.get_mut(entry).filter(|held| !held.ordered) else {
            return false;
        };
        delivered.ordered = true;
        let lamport = delivered.lamport;
        self.touch(entry);
        let at = self.place(lamport, &self.entries[entry].message_id);
        if at < self.ordered.len() {
            self.ordered.insert(at, (lamport, entry));
        } else {
            queue::push(&mut self.ordered, (lamport, entry));
        }
        true
    }

    /// Takes a send, by the content that stands for it, out of the order; the content stays held.
    pub fn leave_out(&mut self, entry: EntryRef) {
        if self.take_out_of_order(entry) {
            self.entries[entry].ordered = false;
            self.touch(entry);
        }
    }

    /// Whether it stood there.
    fn take_out_of_order(&mut self, entry: EntryRef) -> bool {
        let Some(held) = self.entries.get(entry).filter(|held| held.ordered) else {
            return false;
        };
        // What leaves the log mostly stands in front.
        let is_first = self
            .ordered
            .front()
            .is_some_and(|(_, first)| *first == entry);
        let at = if is_first {
            0
        } else {
            self.place(held.lamport, &held.message_id)
        };
        let removed = self.ordered.remove(at);
        debug_assert_eq!(removed.map(|(_, held)| held), Some(entry));
        true
    }

    /// How much of the order comes before this.
    fn place(&self, lamport: u64, message_id: &Name) -> usize {
        let is_before = |(held_lamport, held): &(u64, EntryRef)| {
            *held_lamport < lamport
                || *held_lamport == lamport && self.entries[*held].message_id < *message_id
        };
        if self.ordered.back().is_none_or(is_before) {
            self.ordered.len()
        } else {
            self.ordered.partition_point(is_before)
        }
    }

    /// The last `count` delivered sends' entries, the newest first.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = EntryRef> {
        let newest = self.ordered.iter().rev().take(count);
        newest.map(|(_, entry)| *entry)
    }

    /// Ids of the delivered sends in log order.
    pub fn ordered_ids(&self) -> impl Iterator<Item = &Name> {
        let ordered = self.ordered.iter();
        ordered.map(|(_, entry)| &self.entries[*entry].message_id)
    }

    /// Every entry, the last one to come first.
    pub fn newest_arrivals(&self) -> impl Iterator<Item = (EntryRef, &Entry)> {
        self.arrival
            .iter()
            .rev()
            .filter_map(|slot| self.entries.at(*slot))
    }

    /// Every entry, in the order in which they came.
    pub fn arrivals(&self) -> impl Iterator<Item = (EntryRef, &Entry)> {
        self.arrival
            .iter()
            .filter_map(|slot| self.entries.at(*slot))
    }

    /// Marks an entry whose stored form changed.
    pub fn touch(&mut self, entry: EntryRef) {
        if let Some(held) = self.entries.get_mut(entry)
            && !std::mem::replace(&mut held.changed, true)
        {
            self.changed.push(entry);
        }
    }

    /// The number of the history that is composed now.
    pub fn next_history(&mut self) -> u32 {
        self.histories = self.histories.wrapping_add(1).max(1);
        self.histories
    }

    // --- messages, to answer repair requests with -----------------------------------------------

    /// Ids of the messages that are kept to repair others with.
    pub fn originals(&self) -> impl Iterator<Item = &Name> {
        let held = self
            .arrivals()
            .filter(|(_, entry)| entry.original.is_some());
        held.map(|(_, entry)| &entry.message_id)
            .chain(self.originals.names_apart())
    }

    /// Bytes of the messages that are kept to repair others with.
    pub fn original_bytes(&self) -> usize {
        self.originals.size_bytes()
    }

    /// The message of an id, as it came or left.
    pub fn original(&self, message_id: &[u8]) -> Option<Octets> {
        let held = self
            .find(message_id)
            .and_then(|entry| self.originals.of(&self.entries[entry]));
        held.or_else(|| self.originals.apart(message_id).cloned())
    }

    /// The message that an entry came by; `None` too where another one of its id is kept from before.
    pub fn original_of(&self, entry: EntryRef) -> Option<Octets> {
        self.originals.of(self.entries.get(entry)?)
    }

    /// Whether the message of an id is kept.
    pub fn has_original(&self, message_id: &[u8]) -> bool {
        let held = self.find(message_id);
        held.is_some_and(|entry| self.entries[entry].original.is_some())
            || self.originals.apart(message_id).is_some()
    }

    /// Keeps the message of an entry that was just added.
    pub fn keep_original(&mut self, entry: EntryRef, message: Octets) {
        self.originals.keep(&mut self.entries, entry, message, true);
    }

    /// Keeps a message of ours that is no longer sent again; `stored` tells that its record is
    /// written already.
    pub fn keep_own(&mut self, message_id: &Name, message: Octets, stored: bool) {
        let Some(entry) = self.find(message_id.as_bytes()) else {
            if self.originals.apart(message_id.as_bytes()).is_none() {
                // Nobody is answered with what the log forgot.
                self.originals.mark(message_id.clone());
            }
            return;
        };
        // It stays whole: many are acknowledged at once, and to copy and free them all would hold up the sender.
        if self
            .originals
            .keep(&mut self.entries, entry, message, false)
            && !stored
        {
            self.originals.mark(message_id.clone());
        }
    }

    /// Forgets the message of an id.
    pub fn forget_original(&mut self, message_id: &Name) {
        let held = self.find(message_id.as_bytes());
        self.originals.forget(message_id, &mut self.entries, held);
    }

    /// Has the record of a message deleted that is not kept.
    pub fn forget_stored_original(&mut self, message_id: &Name) {
        self.originals.mark(message_id.clone());
    }

    // --- stored form ----------------------------------------------------------------------------

    /// Restores stored entries, given in the order of their sequence.
    pub fn restore(&mut self, entries: Vec<Entry>) {
        let mut ordered = Vec::new();
        for mut entry in entries {
            entry.changed = false;
            self.sequence = self.sequence.max(entry.sequence);
            let (is_ordered, lamport) = (entry.ordered, entry.lamport);
            let entry = self.entries.insert(entry);
            self.index.insert(entry, &self.entries);
            self.arrival.push_back(entry.slot());
            if is_ordered {
                ordered.push((lamport, entry));
            }
        }
        ordered.sort_by(|(one_lamport, one), (other_lamport, other)| {
            let id = |entry: &EntryRef| &self.entries[*entry].message_id;
            one_lamport
                .cmp(other_lamport)
                .then_with(|| id(one).cmp(id(other)))
        });
        self.ordered = ordered.into();
    }

    /// Restores the message of an entry.
    pub fn restore_original(&mut self, message_id: &[u8], message: Octets) {
        if let Some(entry) = self.find(message_id) {
            self.originals
                .keep(&mut self.entries, entry, message, false);
            self.originals.pack(&mut self.entries[entry]);
        }
    }

    /// What is said to stand in the order stands there once, in its place.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        let ordered = self.arrivals().filter(|(_, entry)| entry.ordered);
        assert_eq!(self.ordered.len(), ordered.count());
        let places = self.ordered.iter();
        let places = places.map(|(lamport, entry)| (lamport, &self.entries[*entry].message_id));
        assert!(places.is_sorted());
    }

    /// Forgets which messages were to be stored.
    pub fn settle_originals(&mut self) {
        self.originals.poll_changed();
    }

    /// Gives `put` what changed since the last call: ids that were forgotten, with whether the record
    /// of the message goes, and entries, whose message goes along where it is new.
    pub fn poll_persist(&mut self, mut put: impl FnMut(Change<'_>)) {
        for (message_id, paired) in self.forgotten.drain(..) {
            put(Change::Forgotten(&message_id));
            if paired {
                put(Change::Message(&message_id, None));
            }
        }
        for handle in std::mem::take(&mut self.changed) {
            let Some(entry) = self.entries.get_mut(handle) else {
                continue;
            };
            if !std::mem::take(&mut entry.changed) {
                continue;
            }
            let with_message = std::mem::take(&mut entry.original_new);
            put(Change::Entry(entry));
            if with_message {
                let message = self.originals.of(entry);
                put(Change::Message(&entry.message_id, message));
                self.originals.pack(entry);
            }
        }
    }

    /// Gives `put` the further messages that are kept or forgotten since the last call.
    pub fn poll_originals(&mut self, mut put: impl FnMut(&Name, Option<Octets>)) {
        for message_id in self.originals.poll_changed() {
            put(&message_id, self.original(message_id.as_bytes()));
            if let Some(entry) = self.find(message_id.as_bytes()) {
                self.originals.pack(&mut self.entries[entry]);
            }
        }
    }
}

/// One change of what is stored.
pub enum Change<'a> {
    /// An entry that is new or differs.
    Entry(&'a Entry),
    /// An id that is no longer held.
    Forgotten(&'a Name),
    /// The message of an id, or that there is none any more.
    Message(&'a Name, Option<Octets>),
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::sds::incoming::IncomingSend;

    const BYTES_MAX: usize = 32 << 20;

    fn add(log: &mut Log, message_id: &str, lamport: u64) -> EntryRef {
        log.add(Name::new(message_id), "alice".into(), lamport, None, 0)
            .0
    }

    fn ordered(log: &Log) -> Vec<&str> {
        log.ordered_ids().map(|id| &**id).collect()
    }

    #[test]
    fn the_log_is_ordered_by_timestamp_then_id_however_it_was_delivered() {
        let sorted = [
            ("z", 1),
            ("a", 2),
            ("b", 2),
            ("c", 2),
            ("a0", 3),
            ("y", 3),
            ("x", 4),
        ];
        let ids = sorted.map(|(id, _)| id);
        // Every order in which the seven may be delivered that a step through them gives, both ways.
        for step in 1..sorted.len() {
            for first in 0..sorted.len() {
                let mut log = Log::of(10);
                for place in 0..sorted.len() {
                    let (id, lamport) = sorted[(first + place * step) % sorted.len()];
                    let entry = add(&mut log, id, lamport);
                    log.deliver(entry);
                }
                assert_eq!(ordered(&log), ids, "from {first} in steps of {step}");
                let newest = log
                    .newest(3)
                    .map(|entry| &*log.get(entry).unwrap().message_id);
                assert_eq!(newest.collect::<Vec<_>>(), ["x", "y", "a0"]);
            }
        }
    }

    #[test]
    fn an_entry_is_stored_anew_where_its_place_in_the_order_changes() {
        let mut log = Log::of(10);
        let entry = add(&mut log, "one", 1);
        let mut stored = |change: &dyn Fn(&mut Log)| {
            change(&mut log);
            let mut stored = None;
            log.poll_persist(|change| {
                if let Change::Entry(entry) = change {
                    stored = Some(entry.ordered);
                }
            });
            stored
        };
        assert_eq!(stored(&|_| {}), Some(false));
        assert_eq!(stored(&|log| assert!(log.deliver(entry))), Some(true));
        assert_eq!(stored(&|log| assert!(!log.deliver(entry))), None);
        assert_eq!(stored(&|log| log.leave_out(entry)), Some(false));
        assert_eq!(stored(&|log| log.leave_out(entry)), None);
    }

    #[test]
    fn what_was_stored_is_ordered_and_stored_anew_where_it_changes() {
        let mut log = Log::of(10);
        let entries = (1..).zip([("b", 2), ("a", 2), ("c", 1), ("waits", 1)]);
        let entries = entries.map(|(sequence, (id, lamport))| {
            let mut entry = Entry::new(Name::new(id), "alice".into(), lamport, sequence, 0);
            entry.ordered = id != "waits";
            entry.changed = true;
            entry
        });
        log.restore(entries.collect());
        assert_eq!(ordered(&log), ["c", "a", "b"]);
        assert_eq!(log.sequence(), 4);
        let entry = log.find(b"waits").unwrap();
        log.deliver(entry);
        let mut stored = Vec::new();
        log.poll_persist(|change| {
            if let Change::Entry(entry) = change {
                stored.push(entry.message_id.clone());
            }
        });
        assert_eq!(stored, [Name::new("waits")]);
    }

    #[test]
    fn what_came_first_is_forgotten_unless_its_send_waits() {
        let mut log = Log::of(2);
        let waiting = add(&mut log, "waits", 1);
        let send = IncomingSend::new(Name::new("s"), Name::new("s"), "alice".into(), 0);
        log.get_mut(waiting).unwrap().send = Some(Slab::default().insert(send));
        for id in ["one", "two", "three"] {
            add(&mut log, id, 1);
            let held: BTreeSet<_> = log.arrivals().map(|(_, held)| &*held.message_id).collect();
            assert_eq!(held, BTreeSet::from(["waits", id]));
            assert!(
                ["one", "two", "three"]
                    .iter()
                    .all(|other| other == &id || !log.contains(other.as_bytes()))
            );
        }
        log.get_mut(waiting).unwrap().send = None;
        add(&mut log, "four", 1);
        assert!(!log.contains(b"waits"));
    }

    #[test]
    fn a_message_of_ours_that_is_stored_already_is_not_stored_again() {
        for is_stored in [false, true] {
            let mut log = Log::of(10);
            add(&mut log, "ours", 1);
            log.keep_own(&Name::new("ours"), vec![7; 10].into(), is_stored);
            let mut stored = 0;
            log.poll_originals(|_, message| stored += usize::from(message.is_some()));
            assert_eq!(stored, usize::from(!is_stored));
        }
    }

    #[test]
    fn what_left_the_log_has_no_place_in_its_order() {
        for is_refused in [false, true] {
            let mut log = Log::of(4);
            for (id, lamport) in [("c", 1), ("d", 2), ("b", 1)] {
                let entry = add(&mut log, id, lamport);
                log.deliver(entry);
            }
            if is_refused {
                log.withdraw(b"c");
            } else {
                add(&mut log, "pushes", 1);
                add(&mut log, "out", 1);
            }
            let entry = log.find(b"d").unwrap();
            log.leave_out(entry);
            assert_eq!(ordered(&log), ["b"]);
            let entry = add(&mut log, "a", 1);
            log.deliver(entry);
            assert_eq!(ordered(&log), ["a", "b"]);
        }
    }

    #[test]
    fn the_oldest_messages_make_room_for_new_ones() {
        const COUNT_MAX: usize = 32;
        let large = Octets::from(vec![0; BYTES_MAX / COUNT_MAX]);
        let mut log = Log::new(1_000, BYTES_MAX);
        for number in 0..COUNT_MAX as u64 {
            let entry = add(&mut log, &number.to_string(), 1);
            log.keep_original(entry, large.clone());
        }
        assert_eq!(log.original_bytes(), BYTES_MAX);
        assert_eq!(log.originals().count(), COUNT_MAX);
        // Of the two oldest one is held by the log no longer.
        log.withdraw(b"0");
        assert!(log.original(b"0").is_some() && log.has_original(b"0"));
        for (number, gone) in [("a", "0"), ("b", "1")] {
            let entry = add(&mut log, number, 1);
            log.keep_original(entry, large.clone());
            assert!(log.original(gone.as_bytes()).is_none());
            assert_eq!(log.original_bytes(), BYTES_MAX);
            assert_eq!(log.originals().count(), COUNT_MAX);
        }
        let entry = add(&mut log, "largest", 1);
        log.keep_original(entry, vec![0; BYTES_MAX].into());
        assert_eq!(
            log.originals().map(|id| &**id).collect::<Vec<_>>(),
            ["largest"]
        );
        let entry = add(&mut log, "too large", 1);
        log.keep_original(entry, vec![0; BYTES_MAX + 1].into());
        assert_eq!(log.originals().count(), 1);
        log.forget_original(&Name::new("largest"));
        assert_eq!((log.originals().count(), log.original_bytes()), (0, 0));
    }

    #[test]
    fn messages_that_stay_do_not_hold_the_room_of_those_that_went() {
        const COUNT: usize = 5_000;
        const STAYS: usize = 40;
        const BYTES: usize = 2_000;
        let message = |number: usize| Octets::from(vec![number as u8; BYTES]);
        for are_pushed_out in [false, true] {
            let mut log = Log::new(COUNT + 1, BYTES_MAX);
            let entries = (0..COUNT).map(|number| add(&mut log, &number.to_string(), 1));
            let entries: Vec<_> = entries.collect();
            let (stay, go): (Vec<_>, Vec<_>) = (0..COUNT).partition(|number| number % STAYS == 0);
            // Those that stay are the newest, and lie among the others.
            for &number in go.iter().chain(&stay) {
                log.keep_original(entries[number], message(number));
            }
            log.poll_persist(|_| {});
            let room = log.originals.packed_room();
            if are_pushed_out {
                let entry = add(&mut log, "large", 1);
                let bytes = BYTES_MAX - stay.len() * BYTES;
                log.keep_original(entry, vec![0; bytes].into());
            } else {
                for number in go {
                    log.forget_original(&Name::new(&number.to_string()));
                }
            }
            assert!(log.originals.packed_room() < room / 4);
            for number in 0..COUNT {
                let kept = log.original(number.to_string().as_bytes());
                assert_eq!(kept, (number % STAYS == 0).then(|| message(number)));
            }
        }
    }

    #[test]
    fn a_message_that_is_apart_again_goes_in_its_turn() {
        let quarters = |count| Octets::from(vec![0; count * (BYTES_MAX / 4)]);
        let mut log = Log::new(10, BYTES_MAX);
        let keep = |log: &mut Log, id: &str, count| {
            let entry = add(log, id, 1);
            log.keep_original(entry, quarters(count));
        };
        keep(&mut log, "first", 1);
        keep(&mut log, "apart", 1);
        log.withdraw(b"apart");
        log.forget_original(&Name::new("apart"));
        keep(&mut log, "second", 1);
        keep(&mut log, "third", 1);
        keep(&mut log, "apart", 1);
        log.withdraw(b"apart");
        keep(&mut log, "large", 2);
        let kept: BTreeSet<_> = log.originals().map(|id| &**id).collect();
        assert_eq!(kept, BTreeSet::from(["apart", "large", "third"]));
    }

    /// The message of an entry is stored. How many records of messages are written and deleted when that
    /// changes.
    fn records_of(change: impl Fn(&mut Log, EntryRef)) -> (usize, usize) {
        let mut log = Log::of(1);
        let entry = add(&mut log, "kept", 1);
        log.keep_original(entry, vec![7; 10].into());
        log.poll_persist(|_| {});
        change(&mut log, entry);
        let (mut written, mut deleted) = (0, 0);
        let mut count = |message: Option<Octets>| match message {
            Some(_) => written += 1,
            None => deleted += 1,
        };
        log.poll_persist(|change| {
            if let Change::Message(_, message) = change {
                count(message);
            }
        });
        log.poll_originals(|_, message| count(message));
        (written, deleted)
    }

    #[test]
    fn a_record_of_a_message_changes_once_and_stays_where_the_message_does() {
        let forget = |log: &mut Log, _| {
            add(log, "next", 1);
        };
        assert_eq!(records_of(forget), (0, 1));
        let refuse = |log: &mut Log, entry| drop(log.refuse(entry));
        assert_eq!(records_of(refuse), (0, 0));
        let refuse_and_keep = |log: &mut Log, entry| {
            log.refuse(entry);
            log.keep_own(&Name::new("kept"), vec![7; 10].into(), false);
        };
        assert_eq!(records_of(refuse_and_keep), (0, 0));
    }

    /// What the records of the log's messages are, when every change is applied.
    #[derive(Default)]
    struct Stored {
        entries: BTreeSet<Name>,
        messages: BTreeMap<Name, usize>,
    }

    impl Stored {
        fn take(&mut self, log: &mut Log) {
            let mut put = |id: &Name, message: Option<Octets>| match message {
                Some(message) => drop(self.messages.insert(id.clone(), message.len())),
                None => drop(self.messages.remove(id)),
            };
            log.poll_persist(|change| match change {
                Change::Entry(entry) => drop(self.entries.insert(entry.message_id.clone())),
                Change::Forgotten(id) => drop(self.entries.remove(id)),
                Change::Message(id, message) => put(id, message),
            });
            log.poll_originals(put);
        }
    }

    proptest! {
        #[test]
        fn what_is_stored_is_what_is_held(steps in vec((0_u8..10, 0_u8..12, 0_usize..4), 1..300)) {
            let sizes = [1, 5_000, BYTES_MAX / 3, BYTES_MAX / 2];
            let messages = sizes.map(|size| Octets::from(vec![0; size]));
            let mut log = Log::new(5, BYTES_MAX);
            let mut stored = Stored::default();
            for (number, (step, id, size)) in steps.into_iter().enumerate() {
                let (id, message) = (Name::new(&id.to_string()), messages[size].clone());
                match (step, log.find(id.as_bytes())) {
                    (0..5, None) => {
                        let entry = add(&mut log, &id, number as u64 % 7);
                        match step {
                            0 => log.keep_original(entry, message),
                            1 => log.keep_own(&id, message, false),
                            2 => {
                                log.keep_original(entry, message);
                                log.refuse(entry);
                            }
                            3 => assert!(log.deliver(entry)),
                            _ => {}
                        }
                    }
                    (0 | 1, Some(_)) => log.keep_own(&id, message, false),
                    (2, Some(entry)) => {
                        let was_ordered = log.get(entry).unwrap().ordered;
                        assert_eq!(log.deliver(entry), !was_ordered);
                    }
                    (3, Some(entry)) => log.leave_out(entry),
                    (4 | 5, _) => drop(log.withdraw(id.as_bytes())),
                    (6, _) => log.forget_original(&id),
                    (7, _) => log.keep_own(&id, message, false),
                    _ => stored.take(&mut log),
                }
                #[cfg(debug_assertions)]
                log.audit();
                let held: BTreeMap<_, _> = log
                    .originals()
                    .map(|id| (id.clone(), log.original(id.as_bytes()).unwrap().len()))
                    .collect();
                prop_assert_eq!(log.original_bytes(), held.values().sum::<usize>());
                prop_assert!(log.original_bytes() <= BYTES_MAX);
                prop_assert_eq!(log.originals().count(), held.len());
                if step > 7 {
                    prop_assert_eq!(&stored.messages, &held);
                    let ids: BTreeSet<_> = log.arrivals().map(|(_, entry)| entry.message_id.clone()).collect();
                    prop_assert_eq!(&stored.entries, &ids);
                    prop_assert_eq!(log.len(), ids.len());
                    prop_assert!(ids.len() <= 5);
                }
            }
        }
    }
}

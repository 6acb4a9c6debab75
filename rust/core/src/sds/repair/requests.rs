//! What is asked for, and when: a fair share of the requests that leave for each participant that
//! names what is missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::rules::REPAIR_BUFFER_MAX;
use crate::maps::HashMap;
use crate::sds::name::Name;
use crate::wire::sds::HistoryEntry;

/// How many participants are looked at for the one that named most.
const SHARES_MAX: usize = 100;
/// Participants of whom it is known that what they named exists.
const PROVEN_MAX: usize = 1_000;

/// Whether a message may leave for a request alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// At its moment.
    Urgent,
    /// Some time after the last message that asked for anything.
    Patient,
    /// Never: it rides on what leaves anyway.
    Rides,
}

/// One message that is asked for.
#[derive(Debug)]
pub struct Request {
    /// What is asked for.
    pub entry: HistoryEntry,
    /// Who named it.
    pub named_by: Arc<str>,
    /// When it is asked for next.
    pub at_ms: i64,
    /// Whether a message may leave for it alone.
    pub haste: Haste,
    /// Whether its moments have come further apart, since nobody answered.
    pub in_vain: bool,
}

/// What one participant named: in the order of their moments, but for what was asked for in vain.
#[derive(Debug, Default)]
struct Share {
    order: BTreeSet<(i64, Name)>,
    urgent: BTreeSet<(i64, Name)>,
    in_vain: BTreeSet<Name>,
}

impl Share {
    fn due(&self, monotonic_ms: i64) -> Option<&Name> {
        let first = |order: &'_ BTreeSet<(i64, Name)>| {
            order
                .first()
                .is_some_and(|(at_ms, _)| *at_ms <= monotonic_ms)
        };
        let order = [&self.urgent, &self.order];
        let due = order.into_iter().find(|order| first(order))?;
        due.first().map(|(_, name)| name)
    }
}

/// Requests by id, each with a moment. Participants take turns, so that nobody's inventions put off
/// what the others name for longer than their number says; those of whom something came that they
/// had named, and that was asked for, have every second turn, whatever number of names a stranger
/// takes. When full, the largest share loses its latest.
#[derive(Debug, Default)]
pub struct RequestBuffer {
    by_id: HashMap<Name, Request>,
    /// Who had no turn for longest comes first.
    shares: LinkedHashMap<Arc<str>, Share>,
    proven: LinkedHashSet<Arc<str>>,
    order: BTreeSet<(i64, Name)>,
    urgent: BTreeSet<(i64, Name)>,
    patient: BTreeSet<(i64, Name)>,
    turns: u64,
}

impl RequestBuffer {
    /// Requests held.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// A request.
    pub fn get(&self, message_id: &[u8]) -> Option<&Request> {
        self.by_id.get(message_id)
    }

    /// What is asked for, and when, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.order.iter().map(|(at_ms, name)| (name, *at_ms))
    }

    /// Adds a request, or moves it to another moment.
    pub fn put(&mut self, request: Request) {
        let name = Name::new(&request.entry.message_id);
        self.remove(&name);
        let share_of = Arc::clone(&request.named_by);
        self.add(name, request);
        if self.by_id.len() > REPAIR_BUFFER_MAX {
            self.make_room(&share_of);
        }
    }

    /// It is in the share of `named_by` from now on.
    pub fn set_named_by(&mut self, message_id: &[u8], named_by: &Arc<str>) {
        let known = self.by_id.get(message_id);
        if known.is_none_or(|request| request.named_by == *named_by) {
            return;
        }
        let name = Name::from_wire(message_id);
        if let Some(mut request) = self.remove(&name) {
            request.named_by = Arc::clone(named_by);
            self.add(name, request);
        }
    }

    /// Something that was asked for came, and this participant had named it.
    pub fn on_proven(&mut self, named_by: Arc<str>) {
        self.proven.replace(named_by);
        if self.proven.len() > PROVEN_MAX {
            self.proven.pop_front();
        }
    }

    /// What this participant named and was asked for in vain. It counts as such no more.
    pub fn take_in_vain(&mut self, named_by: &str) -> BTreeSet<Name> {
        let share = self.shares.get_mut(named_by);
        let taken = share.map(|share| std::mem::take(&mut share.in_vain));
        let taken = taken.unwrap_or_default();
        for name in &taken {
            if let Some(request) = self.by_id.get_mut(name) {
                request.in_vain = false;
            }
        }
        taken
    }

    /// Whether something came that this participant had named.
    pub fn is_proven(&self, named_by: &str) -> bool {
        self.proven.contains(named_by)
    }

    /// It is asked for no more.
    pub fn remove(&mut self, message_id: &Name) -> Option<Request> {
        let request = self.by_id.remove(message_id)?;
        let place = (request.at_ms, message_id.clone());
        self.order.remove(&place);
        self.urgent.remove(&place);
        self.patient.remove(&place);
        if let Some(share) = self.shares.get_mut(&request.named_by) {
            share.order.remove(&place);
            share.urgent.remove(&place);
            share.in_vain.remove(message_id);
            if share.order.is_empty() {
                self.shares.remove(&request.named_by);
            }
        }
        Some(request)
    }

    /// The moment of the first urgent request.
    pub fn next_ms(&self) -> Option<i64> {
        self.urgent.first().map(|(at_ms, _)| *at_ms)
    }

    /// The moment of the first patient request.
    pub fn next_patient_ms(&self) -> Option<i64> {
        self.patient.first().map(|(at_ms, _)| *at_ms)
    }

    /// The next request whose moment has come: of the participant whose turn it is an urgent one, or
    /// else the earliest.
    pub fn take_turn(&mut self, monotonic_ms: i64) -> Option<(Name, &Request)> {
        let is_due = |(at_ms, _): &(i64, Name)| *at_ms <= monotonic_ms;
        if !self.order.first().is_some_and(is_due) {
            return None;
        }
        let before_others = self.turns.is_multiple_of(2);
        self.turns += 1;
        let mut found = None;
        for (named_by, share) in &self.shares {
            let Some(name) = share.due(monotonic_ms) else {
                continue;
            };
            let is_first = self.proven.contains(named_by) == before_others;
            if is_first || found.is_none() {
                found = Some((Arc::clone(named_by), name.clone()));
            }
            if is_first {
                break;
            }
        }
        let (named_by, name) = found?;
        self.shares.to_back(&named_by);
        let request = self.by_id.get(&name)?;
        Some((name, request))
    }

    fn add(&mut self, name: Name, request: Request) {
        let place = (request.at_ms, name.clone());
        let named_by = &request.named_by;
        // Who has a share already keeps its place.
        let share = match self.shares.get_mut(named_by) {
            Some(share) => share,
            None => (self.shares.entry(Arc::clone(named_by))).or_insert_with(Share::default),
        };
        match request.haste {
            Haste::Urgent => {
                self.urgent.insert(place.clone());
                share.urgent.insert(place.clone());
            }
            Haste::Patient => {
                self.patient.insert(place.clone());
            }
            Haste::Rides => {}
        }
        if request.in_vain {
            share.in_vain.insert(place.1.clone());
        }
        share.order.insert(place.clone());
        self.order.insert(place);
        self.by_id.insert(name, request);
    }

    /// Each is in one share, and where its moment puts it.
    #[cfg(any(test, debug_assertions))]
    pub fn audit(&self) {
        let places = |haste: Option<Haste>| {
            let is_such = move |r: &Request| haste.is_none_or(|haste| r.haste == haste);
            let requests = self.by_id.iter().filter(move |(_, r)| is_such(r));
            requests.map(|(name, request)| (request.at_ms, name.clone()))
        };
        assert_eq!(self.order, places(None).collect());
        assert_eq!(self.urgent, places(Some(Haste::Urgent)).collect());
        assert_eq!(self.patient, places(Some(Haste::Patient)).collect());
        for (named_by, share) in &self.shares {
            let is_own = |(_, name): &(i64, Name)| self.by_id[name].named_by == *named_by;
            assert!(!share.order.is_empty() && share.order.iter().all(is_own));
            assert!(share.order.is_subset(&self.order));
            assert!(share.urgent.is_subset(&share.order) && share.urgent.is_subset(&self.urgent));
            let in_vain = |(_, name): &&(i64, Name)| self.by_id[name].in_vain;
            let in_vain = share.order.iter().filter(in_vain).map(|(_, name)| name);
            assert_eq!(share.in_vain, in_vain.cloned().collect());
        }
        let sizes = |of: fn(&Share) -> usize| self.shares.values().map(of).sum::<usize>();
        assert_eq!(sizes(|share| share.order.len()), self.order.len());
        assert_eq!(sizes(|share| share.urgent.len()), self.urgent.len());
    }

    /// Of several that are as large the one of `named_by` loses, who names more.
    fn make_room(&mut self, named_by: &Arc<str>) {
        let shares = self.shares.values().rev().take(SHARES_MAX);
        let shares = shares.chain(self.shares.get(named_by));
        let largest = shares.max_by_key(|share| share.order.len());
        let latest = largest.and_then(|share| share.order.last());
        if let Some((_, name)) = latest.cloned() {
            self.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(message_id: &str, by: &str, at_ms: i64, haste: Haste) -> Request {
        Request {
            entry: HistoryEntry {
                message_id: message_id.into(),
                ..HistoryEntry::default()
            },
            named_by: by.into(),
            at_ms,
            haste,
            in_vain: false,
        }
    }

    fn add(buffer: &mut RequestBuffer, message_id: &str, by: &str, at_ms: i64, urgent: bool) {
        let haste = if urgent { Haste::Urgent } else { Haste::Rides };
        buffer.put(request(message_id, by, at_ms, haste));
        buffer.audit();
    }

    /// Takes a turn, and what had it away.
    fn turn(buffer: &mut RequestBuffer, now_ms: i64) -> Option<String> {
        let (name, _) = buffer.take_turn(now_ms)?;
        buffer.remove(&name);
        buffer.audit();
        Some(name.to_string())
    }

    fn turns(buffer: &mut RequestBuffer, now_ms: i64) -> Vec<String> {
        std::iter::from_fn(|| turn(buffer, now_ms)).collect()
    }

    #[test]
    fn of_one_participant_the_urgent_come_first_and_each_at_its_moment() {
        let mut buffer = RequestBuffer::default();
        for (message_id, at_ms, urgent) in [
            ("old", 1, false),
            ("first", 4, true),
            ("second", 5, true),
            ("later", 9, true),
            ("at last", 10, false),
        ] {
            add(&mut buffer, message_id, "alice", at_ms, urgent);
        }
        assert_eq!(buffer.next_ms(), Some(4));
        assert_eq!(turn(&mut buffer, 0), None);
        assert_eq!(turns(&mut buffer, 8), ["first", "second", "old"]);
        assert_eq!(buffer.next_ms(), Some(9));
        assert_eq!(turns(&mut buffer, 10), ["later", "at last"]);
        assert_eq!((buffer.next_ms(), buffer.len()), (None, 0));
    }

    #[test]
    fn what_is_asked_for_no_more_is_counted_nowhere() {
        for haste in [Haste::Urgent, Haste::Patient, Haste::Rides] {
            let mut buffer = RequestBuffer::default();
            for message_id in ["one", "other"] {
                buffer.put(Request {
                    in_vain: true,
                    ..request(message_id, "alice", 1, haste)
                });
            }
            buffer.remove(&Name::new("one"));
            buffer.audit();
            assert_eq!(buffer.take_in_vain("alice"), [Name::new("other")].into());
            buffer.audit();
        }
    }

    #[test]
    fn who_had_no_turn_for_longest_has_the_next_one() {
        let mut buffer = RequestBuffer::default();
        for (message_id, by) in [
            ("a1", "a"),
            ("b1", "b"),
            ("c1", "c"),
            ("a2", "a"),
            ("b2", "b"),
        ] {
            add(&mut buffer, message_id, by, 0, true);
        }
        assert_eq!(turn(&mut buffer, 0).as_deref(), Some("a1"));
        // Who has nothing due is passed over, and keeps the place.
        add(&mut buffer, "d1", "d", 5, true);
        assert_eq!(turns(&mut buffer, 0), ["b1", "c1", "a2", "b2"]);
        assert_eq!(turns(&mut buffer, 5), ["d1"]);
    }

    #[test]
    fn those_of_whom_something_came_have_every_second_turn_that_is_taken() {
        let mut buffer = RequestBuffer::default();
        buffer.on_proven("known".into());
        for number in 0..4 {
            add(&mut buffer, &format!("known {number}"), "known", 0, true);
            add(
                &mut buffer,
                &format!("new {number}"),
                &format!("new {number}"),
                0,
                true,
            );
        }
        // Nothing is due yet, so nobody had a turn.
        assert_eq!(turn(&mut buffer, -1), None);
        let of_known = |taken: &[String]| taken.iter().map(|id| id.starts_with("known")).collect();
        let taken: Vec<bool> = of_known(&turns(&mut buffer, 0));
        assert_eq!(taken, [true, false, true, false, true, false, true, false]);
        // Where only the one kind has something due, all turns are theirs.
        for by in ["known", "new"] {
            (0..3).for_each(|number| add(&mut buffer, &format!("{by} {number}"), by, 0, true));
            assert_eq!(turns(&mut buffer, 0).len(), 3);
        }
    }

    #[test]
    fn of_whom_something_came_longest_ago_is_forgotten_first() {
        let mut buffer = RequestBuffer::default();
        for number in 0..PROVEN_MAX {
            buffer.on_proven(format!("member {number}").into());
        }
        assert!(buffer.proven.contains("member 0"));
        buffer.on_proven("one more".into());
        assert_eq!(buffer.proven.len(), PROVEN_MAX);
        assert!(!buffer.proven.contains("member 0"));
        assert!(buffer.proven.contains("member 1") && buffer.proven.contains("one more"));
    }

    #[test]
    fn what_is_in_anothers_share_keeps_its_moment_and_its_haste() {
        let mut buffer = RequestBuffer::default();
        add(&mut buffer, "wanted", "mallory", 7, true);
        add(&mut buffer, "other", "mallory", 3, false);
        for by in ["alice", "alice"] {
            buffer.set_named_by(b"wanted", &by.into());
            buffer.set_named_by(b"unknown", &by.into());
            buffer.audit();
            let request = buffer.get(b"wanted").unwrap();
            assert_eq!((&*request.named_by, request.at_ms), ("alice", 7));
        }
        assert_eq!(buffer.next_ms(), Some(7));
        assert_eq!(buffer.len(), 2);
        assert_eq!(&*buffer.get(b"other").unwrap().named_by, "mallory");
    }

    #[test]
    fn who_is_in_its_share_already_loses_no_turn_by_it() {
        let mut buffer = RequestBuffer::default();
        add(&mut buffer, "a", "alice", 0, true);
        add(&mut buffer, "b", "bob", 0, true);
        buffer.set_named_by(b"a", &"alice".into());
        assert_eq!(turns(&mut buffer, 0), ["a", "b"]);
    }

    #[test]
    fn a_full_buffer_loses_the_latest_of_the_largest_share() {
        let mut buffer = RequestBuffer::default();
        add(&mut buffer, "honest", "alice", 1_000_000, true);
        for number in 1..REPAIR_BUFFER_MAX {
            let at_ms = i64::try_from(number).unwrap();
            let invented = format!("invented {number}");
            buffer.put(request(&invented, "mallory", at_ms, Haste::Rides));
        }
        let latest = format!("invented {}", REPAIR_BUFFER_MAX - 1);
        assert_eq!(buffer.len(), REPAIR_BUFFER_MAX);
        assert!(buffer.get(latest.as_bytes()).is_some());
        add(&mut buffer, "one more", "mallory", 0, false);
        assert_eq!(buffer.len(), REPAIR_BUFFER_MAX);
        assert!(buffer.get(latest.as_bytes()).is_none());
        assert!(buffer.get(b"honest").is_some() && buffer.get(b"one more").is_some());
    }

    #[test]
    fn however_many_others_name_something_who_fills_the_buffer_is_looked_at() {
        let mut buffer = RequestBuffer::default();
        for number in 0..REPAIR_BUFFER_MAX - SHARES_MAX {
            add(
                &mut buffer,
                &format!("invented {number}"),
                "mallory",
                0,
                true,
            );
        }
        for number in 0..SHARES_MAX {
            add(
                &mut buffer,
                &format!("honest {number}"),
                &format!("member {number}"),
                0,
                true,
            );
        }
        for number in 0..SHARES_MAX {
            add(&mut buffer, &format!("more {number}"), "mallory", 1, true);
        }
        for number in 0..SHARES_MAX {
            assert!(buffer.get(format!("honest {number}").as_bytes()).is_some());
        }
    }
}

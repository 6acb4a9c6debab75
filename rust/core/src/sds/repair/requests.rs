//! What is asked for, and when: a fair share of the requests that leave for each participant that
//! names what is missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::REPAIR_BUFFER_MAX;
use crate::sds::name::Name;
use crate::wire::sds::HistoryEntry;

/// How many participants are looked at for the one that named most.
const SHARES_MAX: usize = 100;
/// Participants of whom it is known that what they named exists.
const PROVEN_MAX: usize = 1_000;

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
    urgent: bool,
}

/// What one participant named. Both in the order of their moments.
#[derive(Debug, Default)]
struct Share {
    order: BTreeSet<(i64, Name)>,
    urgent: BTreeSet<(i64, Name)>,
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
/// had named have every second turn, whatever number of names a stranger takes. When full, the
/// largest share loses its latest.
#[derive(Debug, Default)]
pub struct RequestBuffer {
    by_id: HashMap<Name, Request>,
    /// Who had no turn for longest comes first.
    shares: LinkedHashMap<Arc<str>, Share>,
    proven: LinkedHashSet<Arc<str>>,
    order: BTreeSet<(i64, Name)>,
    urgent: BTreeSet<(i64, Name)>,
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

    /// Adds `entry`, or moves it to another moment; one that is not urgent waits for what leaves
    /// anyway.
    pub fn put(&mut self, entry: HistoryEntry, named_by: Arc<str>, at_ms: i64, urgent: bool) {
        let name = Name::new(&entry.message_id);
        self.remove(&name);
        self.add(
            name,
            Request {
                entry,
                named_by,
                at_ms,
                urgent,
            },
        );
        if self.by_id.len() > REPAIR_BUFFER_MAX {
            self.make_room();
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

    /// Something came that this participant had named.
    pub fn on_proven(&mut self, named_by: Arc<str>) {
        self.proven.replace(named_by);
        if self.proven.len() > PROVEN_MAX {
            self.proven.pop_front();
        }
    }

    /// It is asked for no more.
    pub fn remove(&mut self, message_id: &Name) -> Option<Request> {
        let request = self.by_id.remove(message_id)?;
        let place = (request.at_ms, message_id.clone());
        self.order.remove(&place);
        self.urgent.remove(&place);
        if let Some(share) = self.shares.get_mut(&request.named_by) {
            share.order.remove(&place);
            share.urgent.remove(&place);
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
        let named_by = Arc::clone(&request.named_by);
        let share = self.shares.entry(named_by).or_insert_with(Share::default);
        if request.urgent {
            self.urgent.insert(place.clone());
            share.urgent.insert(place.clone());
        }
        share.order.insert(place.clone());
        self.order.insert(place);
        self.by_id.insert(name, request);
    }

    /// Each is in one share, and where its moment puts it.
    #[cfg(any(test, debug_assertions))]
    pub fn audit(&self) {
        let places = |urgent: bool| {
            let requests = self.by_id.iter().filter(move |(_, r)| r.urgent || !urgent);
            requests.map(|(name, request)| (request.at_ms, name.clone()))
        };
        assert_eq!(self.order, places(false).collect());
        assert_eq!(self.urgent, places(true).collect());
        for (named_by, share) in &self.shares {
            let is_own = |(_, name): &(i64, Name)| self.by_id[name].named_by == *named_by;
            assert!(!share.order.is_empty() && share.order.iter().all(is_own));
            assert!(share.order.is_subset(&self.order));
            assert!(share.urgent.is_subset(&share.order) && share.urgent.is_subset(&self.urgent));
        }
        let sizes = |of: fn(&Share) -> usize| self.shares.values().map(of).sum::<usize>();
        assert_eq!(sizes(|share| share.order.len()), self.order.len());
        assert_eq!(sizes(|share| share.urgent.len()), self.urgent.len());
    }

    fn make_room(&mut self) {
        let shares = self.shares.values().rev().take(SHARES_MAX);
        let largest = shares.max_by_key(|share| share.order.len());
        let latest = largest.and_then(|share| share.order.last());
        if let Some((_, name)) = latest.cloned() {
            self.remove(&name);
        }
    }
}

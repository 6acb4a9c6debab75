//! Messages that were handed out and that nobody has answered for, and until when an answer is awaited.

use hashlink::LinkedHashMap;

use crate::sds::{Kinds, Name, Transmit, TransmitKind};

/// Messages of which an answer of the node is awaited: enough to keep a node busy over a network round trip, few
/// enough that what leaves carries a fresh history.
pub const DISPATCHES_MAX: usize = 64;
/// Of these, answers to what others ask for: one who was away asks for as much as a slow node takes minutes for, and
/// what is new would wait behind all that the node holds of it.
pub const REPAIRS_MAX: usize = 8;
/// Of these, contents that are not the first of their send, while the node is slow: what is new then waits behind so
/// many of a large message. A node that is fast is busy with as many as there are places.
pub const FURTHER_SLOW_MAX: usize = 16;
/// A node is slow that took longer than this for what it answered last.
pub const SLOW_MS: i64 = 500;
/// How long an answer is awaited: a node that never says what became of a message does not hold its place for ever
/// (logos-delivery gives up likewise), and one whose `send` never returns does not hold up the others.
pub const PROPAGATION_TIMEOUT_MS: i64 = 60_000;

/// A message that was handed out.
#[derive(Debug)]
pub(super) struct Flight {
    pub transmit: Transmit,
    /// Whether it takes a place of a rate limit.
    counts: bool,
    /// When it was handed to the node; `None` while it waits for that, and for its place.
    pub left_ms: Option<i64>,
}

/// By transmit id, oldest first. A node that answers in turn is not silent, however long its turn takes.
#[derive(Debug)]
pub(super) struct Flights {
    by_id: LinkedHashMap<u64, Flight>,
    unplaced: usize,
    repairs: usize,
    further: usize,
    /// When to look next for what the node has not answered for; `None` while nothing is in flight.
    look_ms: Option<i64>,
    /// When the node answered last, and when the latest that it answered for had left.
    answered_ms: i64,
    answered_left_ms: i64,
    /// How long it took for what it answered last.
    took_ms: i64,
}

impl Flights {
    pub fn new() -> Self {
        Flights {
            by_id: LinkedHashMap::new(),
            unplaced: 0,
            repairs: 0,
            further: 0,
            look_ms: None,
            answered_ms: 0,
            answered_left_ms: 0,
            took_ms: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn contains(&self, transmit_id: u64) -> bool {
        self.by_id.contains_key(&transmit_id)
    }

    pub fn transmit(&self, transmit_id: u64) -> Option<&Transmit> {
        Some(&self.by_id.get(&transmit_id)?.transmit)
    }

    /// Whether it was handed out, and not to the node.
    pub fn is_prepared(&self, transmit_id: u64) -> bool {
        let flight = self.by_id.get(&transmit_id);
        flight.is_some_and(|flight| flight.left_ms.is_none())
    }

    pub fn ids(&self) -> Vec<u64> {
        self.by_id.keys().copied().collect()
    }

    pub fn of_send(&self, send_id: &str) -> Vec<u64> {
        let found = self
            .by_id
            .iter()
            .filter(|(_, flight)| flight.transmit.send_id.as_deref() == Some(send_id));
        found.map(|(id, _)| *id).collect()
    }

    /// How many wait for a place of a rate limit.
    pub fn unplaced(&self) -> usize {
        self.unplaced
    }

    /// The kinds that have places.
    pub fn with_places(&self) -> Kinds {
        let mut kinds = Kinds::ALL;
        if self.repairs >= REPAIRS_MAX {
            kinds = kinds.without(TransmitKind::Repair);
        }
        if self.took_ms > SLOW_MS && self.further >= FURTHER_SLOW_MAX {
            kinds = kinds.without(TransmitKind::Further);
            kinds = kinds.without(TransmitKind::Retransmission);
        }
        kinds
    }

    /// How many the node holds that take a place of a rate limit.
    pub fn counted(&self) -> usize {
        let counted = |flight: &&Flight| flight.counts && flight.left_ms.is_some();
        self.by_id.values().filter(counted).count()
    }

    /// When to look next for what the node has not answered for.
    pub fn look_ms(&self) -> Option<i64> {
        self.look_ms
    }

    pub fn add(&mut self, transmit: Transmit, counts: bool, monotonic_ms: i64) {
        self.unplaced += usize::from(counts);
        self.repairs += usize::from(transmit.kind == TransmitKind::Repair);
        self.further += usize::from(is_further(&transmit));
        self.look_ms
            .get_or_insert(monotonic_ms + PROPAGATION_TIMEOUT_MS);
        let flight = Flight {
            transmit,
            counts,
            left_ms: None,
        };
        self.by_id.insert(flight.transmit.transmit_id, flight);
    }

    /// It is handed to the node now; false where nobody waits for it any longer.
    pub fn leave(&mut self, transmit_id: u64, monotonic_ms: i64) -> bool {
        let Some(flight) = self.by_id.get_mut(&transmit_id) else {
            return false;
        };
        if flight.left_ms.is_none() {
            self.unplaced -= usize::from(flight.counts);
        }
        flight.left_ms = Some(monotonic_ms);
        true
    }

    pub fn take(&mut self, transmit_id: u64) -> Option<Flight> {
        let flight = self.by_id.remove(&transmit_id)?;
        self.repairs -= usize::from(flight.transmit.kind == TransmitKind::Repair);
        self.further -= usize::from(is_further(&flight.transmit));
        if flight.left_ms.is_none() {
            self.unplaced -= usize::from(flight.counts);
        }
        Some(flight)
    }

    /// Takes the messages of a send that were not handed to the node.
    pub fn take_prepared(&mut self, send_id: &str) -> Vec<Transmit> {
        let mut ids = self.of_send(send_id);
        ids.retain(|id| self.by_id[id].left_ms.is_none());
        let taken = ids.into_iter().filter_map(|id| self.take(id));
        taken.map(|flight| flight.transmit).collect()
    }

    /// The node brought a message to the network that left then.
    pub fn on_answered(&mut self, left_ms: Option<i64>, monotonic_ms: i64) {
        self.answered_ms = monotonic_ms;
        self.answered_left_ms = self.answered_left_ms.max(left_ms.unwrap_or(0));
        self.took_ms = left_ms.map_or(self.took_ms, |left_ms| monotonic_ms - left_ms);
    }

    /// Messages of which the node has said nothing for `PROPAGATION_TIMEOUT_MS`, counted from `not_before_ms` at
    /// the earliest. The caller takes them out, then calls `look_again`.
    pub fn overdue(&self, monotonic_ms: i64, not_before_ms: i64) -> Vec<u64> {
        if self.look_ms.is_none_or(|look_ms| look_ms > monotonic_ms) {
            return Vec::new();
        }
        let is_overdue =
            |flight: &Flight| self.overdue_ms(flight, monotonic_ms, not_before_ms) <= monotonic_ms;
        let overdue = self.by_id.iter().filter(|(_, flight)| is_overdue(flight));
        overdue.map(|(id, _)| *id).collect()
    }

    /// Sets when the next may be overdue.
    pub fn look_again(&mut self, monotonic_ms: i64, not_before_ms: i64) {
        if self.look_ms.is_some_and(|look_ms| look_ms <= monotonic_ms) {
            let flights = self.by_id.values();
            let due = flights.map(|flight| self.overdue_ms(flight, monotonic_ms, not_before_ms));
            self.look_ms = due.min();
        }
    }

    /// When a flight has waited too long; what was not handed to the node has not begun to.
    fn overdue_ms(&self, flight: &Flight, monotonic_ms: i64, not_before_ms: i64) -> i64 {
        let mut since_ms = flight.left_ms.unwrap_or(monotonic_ms);
        if since_ms >= self.answered_left_ms {
            // A slow node that answers in turn has not come to it yet.
            since_ms = since_ms.max(self.answered_ms);
        }
        since_ms.max(not_before_ms) + PROPAGATION_TIMEOUT_MS
    }

    /// Sends of which something is in flight, each once, by id.
    pub fn sends(&self, is_wanted: impl Fn(&Transmit) -> bool) -> Vec<Name> {
        let transmits = self.by_id.values().map(|flight| &flight.transmit);
        let wanted = transmits.filter(|transmit| is_wanted(transmit));
        let mut sends: Vec<Name> = wanted
            .filter_map(|transmit| transmit.send_id.clone())
            .collect();
        sends.sort();
        sends.dedup();
        sends
    }
}

/// Whether it is a content that is not the first of its send.
fn is_further(transmit: &Transmit) -> bool {
    use TransmitKind::{Further, Retransmission};
    matches!(transmit.kind, Further | Retransmission)
}

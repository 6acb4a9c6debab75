//! The table of our sends.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::send::{FailureStage, OutcomeKind, OwnSend};
use super::send_events::{ChunkProgress, Listened, RequestIds, SendEvent, SendEventKind};
use crate::channel::restore_error::RestoreError;
use crate::maps::HashMap;
use crate::sds::{DeliveredWhen, Name, Octets};

/// Settled sends that are remembered, so that the application may ask for one and a late acknowledgement
/// finds it.
pub const SETTLED_REMEMBERED_MAX: usize = 10_000;

/// A send and the number of its registration: another under the same id, begun after it was cancelled, has
/// another.
struct Entry {
    send: OwnSend,
    serial: u64,
}

/// Owns the progress of sends that are not settled and the memory of those that are.
///
/// It decides nothing about retransmission: SDS does, and says what happened.
pub struct OwnSends {
    delivered_when: DeliveredWhen,
    listened: Listened,
    /// In the order of their registration.
    sends: LinkedHashMap<Name, Entry>,
    /// Neither delivered nor failed, in that order: they are few beside the others.
    pending: LinkedHashSet<Name>,
    /// Delivered or failed, the oldest first.
    settled: LinkedHashSet<Name>,
    /// Sends by request.
    send_ids: HashMap<Name, Name>,
    /// Neither sent nor failed, the oldest first.
    unsent: LinkedHashSet<Name>,
    changed: BTreeSet<Name>,
    events: Vec<SendEvent>,
    registered: u64,
}

impl OwnSends {
    /// None so far; a message counts as delivered when those have it that `delivered_when` says.
    pub fn new(delivered_when: DeliveredWhen) -> Self {
        OwnSends {
            delivered_when,
            listened: Listened::default(),
            sends: LinkedHashMap::new(),
            pending: LinkedHashSet::new(),
            settled: LinkedHashSet::new(),
            send_ids: HashMap::default(),
            unsent: LinkedHashSet::new(),
            changed: BTreeSet::new(),
            events: Vec::new(),
            registered: 0,
        }
    }

    /// Which events somebody listens to: chunk events that nobody wants are not made.
    pub fn listened(&self) -> &Listened {
        &self.listened
    }

    /// Who must have a message before it counts as delivered.
    #[cfg(test)]
    pub fn delivered_when(&self) -> &DeliveredWhen {
        &self.delivered_when
    }

    // --- what is known --------------------------------------------------------------------------

    /// The send of a request.
    pub fn send_id_of(&self, request_id: &str) -> Option<&Name> {
        self.send_ids.get(request_id.as_bytes())
    }

    /// A send.
    pub fn get(&self, send_id: &str) -> Option<&OwnSend> {
        self.sends.get(send_id.as_bytes()).map(|entry| &entry.send)
    }

    /// The number of its registration.
    pub fn serial_of(&self, send_id: &str) -> Option<u64> {
        self.sends.get(send_id.as_bytes()).map(|entry| entry.serial)
    }

    /// Sends that are not settled, the oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &OwnSend> {
        self.pending.iter().filter_map(|send_id| self.get(send_id))
    }

    /// Their ids.
    #[cfg(debug_assertions)]
    pub fn pending_ids(&self) -> impl Iterator<Item = &Name> {
        self.pending.iter()
    }

    /// How many those are.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether a send failed, was told so, and nothing of it can have reached the network.
    pub fn never_left(&self, send_id: &str) -> bool {
        let Some(send) = self.get(send_id) else {
            return false;
        };
        send.failure.is_some()
            && send.unannounced.is_empty()
            && send.propagated.count() == 0
            && send.unanswered == 0
    }

    /// Whether other requests have the send of this one.
    pub fn is_shared(&self, request_id: &str) -> bool {
        let send_id = self.send_id_of(request_id);
        let send = send_id.and_then(|send_id| self.get(send_id));
        send.is_some_and(|send| send.request_ids.len() > 1)
    }

    /// Segments of sends that are not settled which a store has.
    pub fn in_store(&self) -> Vec<(Name, u32)> {
        let pending = self.pending.iter();
        pending
            .filter_map(|send_id| Some((send_id, self.get(send_id)?)))
            .flat_map(|(send_id, send)| {
                let stored = (0..send.content_count).filter(|&at| send.stored.contains(at));
                stored.map(|ordinal| (send_id.clone(), ordinal))
            })
            .collect()
    }

    /// Sends that do not count as sent, and their segments of which the network is not known to have any.
    pub fn unsent(&self) -> Vec<(Name, Vec<u32>)> {
        let unsent = self.unsent.iter();
        unsent
            .filter_map(|send_id| Some((send_id.clone(), self.get(send_id)?.unsent())))
            .collect()
    }

    // --- what happens ---------------------------------------------------------------------------

    /// A send of a request begins; one under its id that failed before anything of it left is begun anew.
    pub fn register(&mut self, send_id: &str, send: OwnSend) {
        self.forget(send_id);
        let send_id = Name::new(send_id);
        for request_id in &send.request_ids {
            self.send_ids.insert(request_id.clone(), send_id.clone());
        }
        self.unsent.insert(send_id.clone());
        self.changed.insert(send_id.clone());
        self.insert(send_id, send);
    }

    fn insert(&mut self, send_id: Name, send: OwnSend) {
        self.registered += 1;
        let serial = self.registered;
        if send.is_pending() {
            self.pending.insert(send_id.clone());
        }
        self.sends.insert(send_id, Entry { send, serial });
    }

    /// Gives a remembered send another request, and that the outcomes that the send already has.
    pub fn attach(&mut self, send_id: &str, request_id: &str) {
        let request_id = Name::new(request_id);
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        send.request_ids.push(request_id.clone());
        let (sent, delivered) = (send.sent, send.delivered);
        let failed = send.failure.is_some();
        self.send_ids.insert(request_id.clone(), send_id.clone());
        self.changed.insert(send_id.clone());
        let requests = [request_id];
        if sent {
            self.outcome(&send_id, OutcomeKind::Sent, &requests);
        }
        if delivered {
            self.outcome(&send_id, OutcomeKind::Delivered, &requests);
        } else if failed {
            // Under its id the network may hold parts of it, and receivers wait for the rest, or the first
            // request was not told its error yet: it is not begun anew.
            self.outcome(&send_id, OutcomeKind::Failed, &requests);
        }
    }

    /// Forgets a request, and with the last one its send: no event follows.
    pub fn withdraw(&mut self, request_id: &str) {
        let Some(send_id) = self.send_ids.remove(request_id.as_bytes()) else {
            return;
        };
        let Some((_, send)) = find(&mut self.sends, &send_id) else {
            return;
        };
        let is_this = |name: &Name| **name == *request_id;
        send.request_ids.retain(|name| !is_this(name));
        send.unannounced
            .retain(|(_, name)| !name.as_ref().is_some_and(is_this));
        let is_last = send.request_ids.is_empty();
        self.changed.insert(send_id.clone());
        if is_last {
            self.forget(&send_id);
        }
    }

    fn forget(&mut self, send_id: &str) {
        let Some((send_id, entry)) = self.sends.remove_entry(send_id.as_bytes()) else {
            return;
        };
        self.pending.remove(&send_id);
        self.settled.remove(&send_id);
        self.unsent.remove(&send_id);
        for request_id in &entry.send.request_ids {
            self.send_ids.remove(request_id);
        }
        self.changed.insert(send_id);
    }

    /// A segment is handed to the node. Parity that was asked for later belongs to no stage of the message.
    pub fn on_dispatched(&mut self, send_id: &str, ordinal: u32) {
        let Some((_, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if ordinal >= send.content_count {
            return;
        }
        send.sending.insert(ordinal);
        if ordinal < send.data_count && self.listened.has(SendEventKind::ChunkSending) {
            let chunks = send.chunks(&send.sending);
            tell_chunks(&mut self.events, send, chunks, SendEvent::ChunkSending);
        }
    }

    /// A segment was handed to the node, which may never say what became of it.
    pub fn on_unanswered(&mut self, send_id: &str) {
        if let Some((send_id, send)) = find(&mut self.sends, send_id) {
            send.unanswered += 1;
            self.changed.insert(send_id);
        }
    }

    /// One of those did not leave, says the node after all.
    pub fn on_answered(&mut self, send_id: &str) {
        if let Some((send_id, send)) = find(&mut self.sends, send_id) {
            send.unanswered = send.unanswered.saturating_sub(1);
            self.changed.insert(send_id);
        }
    }

    /// The network took a segment.
    pub fn on_propagated(&mut self, send_id: &str, ordinal: u32) {
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if ordinal >= send.content_count {
            return;
        }
        send.propagated.insert(ordinal);
        if ordinal < send.data_count && self.listened.has(SendEventKind::ChunkSent) {
            let chunks = send.chunks(&send.propagated);
            tell_chunks(&mut self.events, send, chunks, SendEvent::ChunkSent);
        }
        self.changed.insert(send_id.clone());
        self.review_sent(&send_id);
    }

    /// A store has a segment.
    pub fn on_stored(&mut self, send_id: &str, ordinal: u32) {
        if let Some((send_id, send)) = find(&mut self.sends, send_id)
            && ordinal < send.content_count
            && !send.stored.contains(ordinal)
        {
            send.stored.insert(ordinal);
            self.changed.insert(send_id);
        }
    }

    /// A parity segment can never be sent: the message does without it, and no event speaks of it.
    pub fn on_left_out(&mut self, send_id: &str, ordinal: u32) {
        if let Some((send_id, send)) = find(&mut self.sends, send_id)
            && ordinal < send.content_count
        {
            send.left_out.insert(ordinal);
            self.changed.insert(send_id.clone());
            self.review_sent(&send_id);
        }
    }

    /// A participant holds a segment.
    pub fn on_acknowledged(&mut self, send_id: &str, ordinal: u32, by: &Arc<str>) {
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if ordinal >= send.content_count {
            return;
        }
        // Whoever holds it got it from the network, though the node may have died before it said so.
        send.propagated.insert(ordinal);
        self.changed.insert(send_id.clone());
        self.review_sent(&send_id);
        let Some((_, send)) = find(&mut self.sends, &send_id) else {
            return;
        };
        if ordinal < send.data_count {
            send.acknowledged.insert(ordinal);
            self.tell_acknowledged(&send_id, by);
        }
    }

    /// A participant's bloom filter holds a segment.
    pub fn on_possibly_acknowledged(&mut self, send_id: &str, ordinal: u32) {
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if ordinal >= send.data_count || send.acknowledged.contains(ordinal) {
            return;
        }
        send.possibly_acknowledged.insert(ordinal);
        self.changed.insert(send_id);
        if self.listened.has(SendEventKind::ChunkPossiblyAcknowledged) {
            let chunks = send.chunks(&send.possibly_acknowledged);
            tell_chunks(
                &mut self.events,
                send,
                chunks,
                SendEvent::ChunkPossiblyAcknowledged,
            );
        }
    }

    /// A participant can reconstruct the message, so it holds every chunk, by parity those that never
    /// reached it.
    pub fn on_reconstructible(&mut self, send_id: &str, by: &Arc<str>) {
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if send.delivered_to.contains(by) {
            return;
        }
        send.delivered_to.push(by.clone());
        self.changed.insert(send_id.clone());
        if send.acknowledged.count() != send.data_count {
            send.acknowledged = crate::sds::Ordinals::all(send.data_count);
            self.tell_acknowledged(&send_id, by);
        }
        self.review_delivered(&send_id);
    }

    /// SDS sends nothing of it again.
    pub fn on_given_up(&mut self, send_id: &str, unacknowledged: &[u32]) {
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if !send.is_pending() {
            return;
        }
        let total = send.content_count;
        let (stage, error) = if send.sent {
            // Parity that was made later is of no stage of the message.
            let count = unacknowledged.iter().filter(|&&at| at < total).count();
            let store = if send.is_stored() {
                "; a store has the message"
            } else {
                ""
            };
            let what = match count {
                0 => "not all who are to have the message acknowledged it",
                _ => &format!("{count} of {total} segments were not acknowledged"),
            };
            let error = format!("{what} after the last retransmission{store}");
            (FailureStage::Delivery, error)
        } else {
            let missing = total - send.propagated.count();
            let error = format!("{missing} of {total} segments could not be handed to the network");
            (FailureStage::Dispatch, error)
        };
        self.fail(&send_id, stage, error.into());
    }

    /// A data segment can never be sent, or not once more (004, Irrecoverable errors): nor can the message.
    pub fn on_irrecoverable(&mut self, send_id: &str, ordinal: u32, error: &str) {
        self.fail_chunks(send_id, vec![ordinal], error);
    }

    /// What the network did not take of a message will not be tried again.
    pub fn on_undispatched(&mut self, send_id: &str, error: &str) {
        if let Some(send) = self.get(send_id) {
            let taken = &send.propagated;
            let failed = (0..send.data_count).filter(|&ordinal| !taken.contains(ordinal));
            self.fail_chunks(send_id, failed.collect(), error);
        }
    }

    fn fail_chunks(&mut self, send_id: &str, failed: Vec<u32>, error: &str) {
        let Some((send_id, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if !send.is_pending() {
            return;
        }
        let error: Arc<str> = error.into();
        if !failed.is_empty() && self.listened.has(SendEventKind::ChunkError) {
            tell_chunks(&mut self.events, send, failed, |progress| {
                let error = error.clone();
                SendEvent::ChunkError { progress, error }
            });
        }
        let stage = if send.sent {
            FailureStage::Delivery
        } else {
            FailureStage::Dispatch
        };
        self.fail(&send_id, stage, error);
    }

    /// Whether the application is still to be told an outcome.
    pub fn is_unannounced(&self, send_id: &str, kind: OutcomeKind, request_id: &str) -> bool {
        let send = self.get(send_id);
        send.is_some_and(|send| place_of(send, kind, request_id).is_some())
    }

    /// The application was told an outcome of a request, or nobody is there to be told it.
    pub fn on_announced(&mut self, send_id: &str, kind: OutcomeKind, request_id: &str) {
        if let Some((send_id, send)) = find(&mut self.sends, send_id)
            && let Some(place) = place_of(send, kind, request_id)
        {
            send.unannounced.remove(place);
            self.changed.insert(send_id);
        }
    }

    // --- outputs --------------------------------------------------------------------------------

    /// Adds an event of what is no send of its own, in its turn.
    pub fn add_event(&mut self, event: SendEvent) {
        self.events.push(event);
    }

    /// Events since the last call, in the order in which they happened.
    pub fn poll_events(&mut self) -> Vec<SendEvent> {
        std::mem::take(&mut self.events)
    }

    /// Records that changed since the last call; `None` deletes.
    pub fn poll_persist(&mut self) -> impl Iterator<Item = (Name, Option<Octets>)> + '_ {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|send_id| {
            let record = self.get(&send_id).map(OwnSend::encode);
            (send_id, record)
        })
    }

    /// In place of [`OwnSends::poll_persist`] where nothing is stored.
    pub fn drop_changes(&mut self) {
        self.changed.clear();
    }

    /// Takes back a stored send; outcomes that were never announced become events again.
    ///
    /// # Errors
    /// As [`OwnSend::decode`].
    pub fn restore(&mut self, send_id: Name, record: &[u8]) -> Result<(), RestoreError> {
        let mut send = OwnSend::decode(record)?;
        for request_id in &send.request_ids {
            self.send_ids.insert(request_id.clone(), send_id.clone());
        }
        if !send.is_pending() {
            self.settled.insert(send_id.clone());
        } else if !send.sent {
            self.unsent.insert(send_id.clone());
            // Its node may have taken something just before the end of the earlier life.
            send.unanswered += 1;
        }
        let mut untold: Vec<(OutcomeKind, Name)> = Vec::new();
        for (kind, request_id) in std::mem::take(&mut send.unannounced) {
            // What an earlier release stored does not say whose it is.
            let waiting = match request_id {
                Some(request_id) => vec![request_id],
                None => send.request_ids.clone(),
            };
            for request_id in waiting {
                let entry = (kind, request_id);
                if !untold.contains(&entry) {
                    untold.push(entry);
                }
            }
        }
        for (kind, request_id) in untold {
            tell_outcome(&mut self.events, &send_id, &send, kind, &request_id);
            // It waits until somebody listens.
            send.unannounced.push((kind, Some(request_id)));
        }
        self.insert(send_id, send);
        Ok(())
    }

    // --- details --------------------------------------------------------------------------------

    /// Each send is where its progress puts it, and each request leads to its own.
    #[cfg(test)]
    pub fn audit(&self) {
        let of = |is_it: fn(&OwnSend) -> bool| {
            let found = self
                .sends
                .iter()
                .filter(move |(_, entry)| is_it(&entry.send));
            found.map(|(send_id, _)| send_id).collect::<BTreeSet<_>>()
        };
        assert_eq!(of(OwnSend::is_pending), self.pending.iter().collect());
        assert_eq!(of(|send| !send.is_pending()), self.settled.iter().collect());
        let is_unsent = |send: &OwnSend| send.is_pending() && !send.sent;
        assert_eq!(of(is_unsent), self.unsent.iter().collect());
        let requests = self.sends.iter().flat_map(|(send_id, entry)| {
            let requests = entry.send.request_ids.iter();
            requests.map(|request_id| (request_id.clone(), send_id.clone()))
        });
        assert_eq!(requests.collect::<HashMap<_, _>>(), self.send_ids);
    }

    fn review_sent(&mut self, send_id: &Name) {
        let Some((_, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        if send.sent || !send.is_propagated() {
            return;
        }
        send.sent = true;
        self.unsent.remove(send_id);
        self.outcome_of_all(send_id, OutcomeKind::Sent);
        self.review_delivered(send_id);
    }

    /// Delivered never comes before sent, whoever acknowledged meanwhile.
    fn review_delivered(&mut self, send_id: &Name) {
        let Some((_, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        let has = |participant: &Arc<str>| send.delivered_to.contains(participant);
        let is_delivered = match &self.delivered_when {
            DeliveredWhen::Any => !send.delivered_to.is_empty(),
            DeliveredWhen::Count(count) => send.delivered_to.len() >= *count,
            DeliveredWhen::Named(wanted) => wanted.iter().all(has),
        };
        if send.delivered || !send.sent || !is_delivered {
            return;
        }
        send.delivered = true;
        self.outcome_of_all(send_id, OutcomeKind::Delivered);
        self.settle(send_id);
    }

    fn fail(&mut self, send_id: &Name, stage: FailureStage, error: Arc<str>) {
        if let Some((_, send)) = find(&mut self.sends, send_id) {
            send.failure = Some((stage, error));
        }
        self.outcome_of_all(send_id, OutcomeKind::Failed);
        self.settle(send_id);
    }

    fn settle(&mut self, send_id: &Name) {
        // The newest is the last, also where it was settled before.
        self.settled.insert(send_id.clone());
        self.pending.remove(send_id);
        self.unsent.remove(send_id);
        while self.settled.len() > SETTLED_REMEMBERED_MAX {
            let Some(oldest) = self.settled.front().cloned() else {
                return;
            };
            self.forget(&oldest);
        }
    }

    fn outcome_of_all(&mut self, send_id: &Name, kind: OutcomeKind) {
        let requests = self.get(send_id).map(|send| send.request_ids.clone());
        self.outcome(send_id, kind, &requests.unwrap_or_default());
    }

    /// Tells requests what their send has come to. Where nobody listens there is nobody to tell.
    fn outcome(&mut self, send_id: &Name, kind: OutcomeKind, request_ids: &[Name]) {
        let waits = self.listened.has(match kind {
            OutcomeKind::Sent => SendEventKind::MessageSent,
            OutcomeKind::Delivered => SendEventKind::MessageDelivered,
            OutcomeKind::Failed => SendEventKind::MessageSendError,
        });
        self.changed.insert(send_id.clone());
        let Some((_, send)) = find(&mut self.sends, send_id) else {
            return;
        };
        for request_id in request_ids {
            tell_outcome(&mut self.events, send_id, send, kind, request_id);
            if waits {
                send.unannounced.push((kind, Some(request_id.clone())));
            }
        }
    }

    fn tell_acknowledged(&mut self, send_id: &Name, by: &Arc<str>) {
        if self.listened.has(SendEventKind::ChunkAcknowledged)
            && let Some((_, send)) = find(&mut self.sends, send_id)
        {
            let chunks = send.chunks(&send.acknowledged);
            tell_chunks(&mut self.events, send, chunks, |progress| {
                let by = by.clone();
                SendEvent::ChunkAcknowledged { progress, by }
            });
        }
    }
}

/// A send and its id as the table has it.
fn find<'a>(
    sends: &'a mut LinkedHashMap<Name, Entry>,
    send_id: &str,
) -> Option<(Name, &'a mut OwnSend)> {
    match sends.raw_entry_mut().from_key(send_id.as_bytes()) {
        hashlink::linked_hash_map::RawEntryMut::Occupied(found) => {
            let (send_id, entry) = found.into_key_value();
            Some((send_id.clone(), &mut entry.send))
        }
        hashlink::linked_hash_map::RawEntryMut::Vacant(_) => None,
    }
}

fn place_of(send: &OwnSend, kind: OutcomeKind, request_id: &str) -> Option<usize> {
    let is_it = |(other, name): &(OutcomeKind, Option<Name>)| {
        *other == kind && name.as_deref() == Some(request_id)
    };
    send.unannounced.iter().position(is_it)
}

fn tell_chunks(
    events: &mut Vec<SendEvent>,
    send: &OwnSend,
    chunks: Vec<u32>,
    event: impl Fn(ChunkProgress) -> SendEvent,
) {
    for request_id in &send.request_ids {
        events.push(event(ChunkProgress {
            message_id: send.message_id.clone(),
            request_id: request_id.clone(),
            chunks: chunks.clone(),
            total: send.data_count,
        }));
    }
}

fn tell_outcome(
    events: &mut Vec<SendEvent>,
    send_id: &Name,
    send: &OwnSend,
    kind: OutcomeKind,
    request_id: &Name,
) {
    let ids = RequestIds {
        send_id: send_id.clone(),
        message_id: send.message_id.clone(),
        request_id: request_id.clone(),
    };
    events.push(match kind {
        OutcomeKind::Sent => SendEvent::MessageSent(ids),
        OutcomeKind::Delivered => SendEvent::MessageDelivered {
            ids,
            to: send.delivered_to.clone(),
        },
        OutcomeKind::Failed => {
            let failure = send.failure.clone();
            let (stage, error) = failure.unwrap_or((FailureStage::Dispatch, "".into()));
            SendEvent::MessageSendError { ids, stage, error }
        }
    });
}

//! The machine of a reliable channel: SDS joined with segmentation and reassembly.
//!
//! SDS carries contents that it does not read; here they are segments. A [`Channel`] takes SDS messages and
//! gives whole messages, what became of ours, and records. What passes between SDS and reassembly stays
//! inside:
//!
//! - `receiving`: which message a content is part of, and what becomes of it;
//! - `whole`: complete messages until SDS releases them;
//! - `shared_bytes`: the stored form, in which no byte stands twice;
//! - `deliveries`: messages that wait for the application, and the one that it has;
//! - `submissions`: messages of ours on their way in;
//! - `own`: how far each of our sends has come, and what the application is told of it;
//! - `dispatch`: what leaves, and what becomes of it;
//! - `retrieval`: what a store is asked, and when;
//! - `division`: how a message of the network is divided between SDS and a segment;
//! - `records`: what changed, of which the last counts;
//! - `references`: records that name others instead of having their bytes;
//! - `restored`: all of them read back after a restart; `json_record` as earlier releases wrote them,
//!   `restore_error` why they cannot be;
//! - `parity`: parity that receivers of a message of ours need.

mod deliveries;
mod dispatch;
mod division;
mod events;
mod json_record;
mod own;
mod parity;
mod receiving;
mod records;
mod references;
mod restore_error;
mod restored;
mod retrieval;
mod shared_bytes;
mod submissions;
mod whole;

use std::collections::{BTreeMap, HashMap, VecDeque};

pub use deliveries::{Deliveries, Delivery, Handover, Redelivery};
pub use dispatch::{
    Allowance, DISPATCHES_MAX, DispatchCounts, DropReason, Failure, NodeState,
    PROPAGATION_TIMEOUT_MS,
};
pub use division::{Division, TooSmall, divide};
pub use events::{Event, Fault, FaultKind, SegmentSeen, SegmentStage};
pub use own::{
    ChunkProgress, FailureStage, Listened, OutcomeKind, OwnSend, OwnSends, RequestIds,
    SETTLED_REMEMBERED_MAX, SendEvent, SendEventKind,
};
pub use parity::make_parity;
pub use receiving::{Arrival, Counts};
pub use records::{Record, RecordKey, Value, payload_key};
pub use restore_error::RestoreError;
pub use restored::StoredRecord;
pub use retrieval::{Question, RetrievalConfig, last_seen_ns};
pub use submissions::{QueueLimits, Submission, SubmitError, Taken};

use crate::reassemble::{self, Limits};
use crate::sds::{self, Config, Kinds, Machine, Name, Now, Octets, Randomness, Refusal, Transmit};
use crate::segment::Parameters;
use dispatch::Dispatch;
use receiving::{Context, Receiving};
use records::{COMPLETED, Records, SEND, last_of_each};
use restored::Stored;
use retrieval::Retrieval;
use submissions::Submissions;

/// How the segments of a channel are read and put together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segmentation {
    /// The wire, and the code tried first.
    pub parameters: Parameters,
    /// What may be held.
    pub limits: Limits,
}

/// How one participant takes part in a channel.
#[derive(Debug, Clone)]
pub struct ChannelConfig {
    /// In its SDS.
    pub sds: Config,
    /// How its messages are divided and put together.
    pub segmentation: Segmentation,
    /// How much of its own may wait to leave.
    pub queue: QueueLimits,
    /// How they are handed to the application.
    pub handover: Handover,
    /// When a store is asked.
    pub retrieval: RetrievalConfig,
}

/// One participant's side of a reliable channel.
///
/// Its one owner serialises the calls, as with [`Machine`]: one input, then everything that the `poll_`
/// methods give. What [`Channel::poll_persist`] gives is made durable before a message is handed over or
/// leaves, so that nothing that was acknowledged is lost.
pub struct Channel {
    sds: Machine,
    receiving: Receiving,
    submissions: Submissions,
    own: OwnSends,
    dispatch: Dispatch,
    deliveries: Deliveries,
    retrieval: Retrieval,
    events: VecDeque<Event>,
    /// Parity that was made on demand.
    parity_made: u64,
}

impl Channel {
    /// A channel that begins now.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub fn new(
        channel_id: &str,
        sender_id: &str,
        config: ChannelConfig,
        now: Now,
        rng: Box<dyn Randomness>,
    ) -> Result<Self, Refusal> {
        let own = OwnSends::new(config.sds.delivered_when.clone());
        let dispatch = Dispatch::new(&config.sds, now.monotonic_ms);
        let mut segmentation = config.segmentation;
        // A late segment of a message that the log still has must not bring it again.
        let remembered_max = &mut segmentation.limits.completed_remembered_max;
        *remembered_max = (*remembered_max).max(config.sds.log_messages_max);
        Ok(Channel {
            receiving: Receiving::new(segmentation, config.sds.wire_format),
            sds: Machine::new(channel_id, sender_id, config.sds, now, rng)?,
            submissions: Submissions::new(config.queue),
            own,
            dispatch,
            deliveries: Deliveries::new(config.handover),
            retrieval: Retrieval::new(config.retrieval),
            events: VecDeque::new(),
            parity_made: 0,
        })
    }

    /// This channel, which is new, as `records` describe it: all that [`Channel::poll_persist`] of an
    /// earlier life ever gave, later over earlier.
    ///
    /// # Errors
    /// [`RestoreError`] where another release wrote them, or bytes are missing.
    pub fn restore<'a>(
        mut self,
        records: impl IntoIterator<Item = StoredRecord<'a>>,
        now: Now,
    ) -> Result<Self, RestoreError> {
        let mut stored = Stored::read(records, self.receiving.shared_mut())?;
        if !stored.sds.is_empty() {
            let records = std::mem::take(&mut stored.sds);
            let records = records
                .iter()
                .map(|(kind, key, value)| (&**kind, key.clone(), value.clone()));
            self.sds = self.sds.restore(records, now)?;
        }
        self.deliveries.restore(
            &std::mem::take(&mut stored.deliveries),
            stored.handover.take().as_deref(),
            &mut stored.payloads,
        )?;
        if let Some(record) = stored.last_seen.take() {
            self.retrieval.restore(&record, now)?;
        }
        self.restore_own(std::mem::take(&mut stored.own), now)?;
        let (receiving, mut context) = self.receiving(now);
        receiving.restore(stored, &mut context)?;
        Ok(self)
    }

    /// What receives, and what it may change beside itself.
    fn receiving(&mut self, now: Now) -> (&mut Receiving, Context<'_>) {
        let context = Context {
            sds: &mut self.sds,
            events: &mut self.events,
            now,
        };
        (&mut self.receiving, context)
    }

    /// Takes back our sends. What an earlier life may have ended before goes once more; first parity that
    /// was not stored is done without.
    fn restore_own(
        &mut self,
        stored: BTreeMap<Name, Octets>,
        now: Now,
    ) -> Result<(), RestoreError> {
        // SDS keeps the order of sends; those that it is done with are the oldest.
        let order: HashMap<&Name, usize> = self.sds.sends().zip(1..).collect();
        let mut stored: Vec<_> = stored.into_iter().collect();
        stored.sort_by_key(|(send_id, _)| order.get(send_id).copied().unwrap_or_default());
        for (send_id, record) in stored {
            self.own.restore(send_id, &record)?;
        }
        for (send_id, ordinals) in self.own.unsent() {
            let send = self.own.get(&send_id);
            if send.is_some_and(|send| send.propagated.count() == 0) {
                self.dispatch.uncounted.insert(send_id.clone());
            }
            for ordinal in self.sds.resume(&send_id, &ordinals, now) {
                self.own.on_left_out(&send_id, ordinal);
            }
        }
        Ok(())
    }

    /// Our sends.
    pub fn own(&self) -> &OwnSends {
        &self.own
    }

    /// Our sends, for what the node says of them and what the application was told.
    pub fn own_mut(&mut self) -> &mut OwnSends {
        &mut self.own
    }

    /// Messages that wait for the application.
    pub fn deliveries(&self) -> &Deliveries {
        &self.deliveries
    }

    /// The SDS machine, for what concerns it alone: commands, and what became of what left.
    pub fn sds(&self) -> &Machine {
        &self.sds
    }

    /// As [`Channel::sds`].
    pub fn sds_mut(&mut self) -> &mut Machine {
        &mut self.sds
    }

    // --- inputs ---------------------------------------------------------------------------------

    /// Takes an SDS message, whatever it contains; false where there was no room for its content, so that
    /// it may come again.
    pub fn handle_message(&mut self, arrival: &Arrival<'_>, now: Now) -> bool {
        self.retrieval.on_arrival(arrival.timestamp_ns);
        let kept = self.take(arrival, now);
        // A send goes on that was given up once: what is kept of it is taken in as if it came again.
        for (data, hint) in self.sds.poll_reopened() {
            let again = Arrival {
                data: &data,
                retrieval_hint: hint.as_deref(),
                timestamp_ns: 0,
                authenticated_sender: None,
                from_store: true,
                observed: arrival.observed,
            };
            self.take(&again, now);
        }
        kept
    }

    fn take(&mut self, arrival: &Arrival<'_>, now: Now) -> bool {
        let (data, hint) = (arrival.data, arrival.retrieval_hint);
        self.sds.handle_message(data, hint, arrival.from_store, now);
        self.settle(Some(arrival), now)
    }

    /// A message of ours can never be sent (004, Irrecoverable errors): a send of its own under any rule.
    pub fn refuse(&mut self, request_id: &str, message_id: &str, data_count: u32, error: &str) {
        let (id, message_id) = (Name::new(request_id), Name::new(message_id));
        let send = OwnSend::new(id, message_id, data_count, 1, "");
        self.own.register(request_id, send);
        self.own.on_irrecoverable(request_id, 0, error);
    }

    /// Lets nothing more of a request's send leave, first or again, and forgets the request; false where
    /// that cannot be taken back. With the send as it was, and as far as it had left; `None` where there is none.
    pub fn cancel(&mut self, request_id: &str) -> Option<(bool, OwnSend)> {
        if let Some(waiting) = self.submissions.take_out(request_id) {
            return Some((true, waiting));
        }
        let send_id = self.own.send_id_of(request_id)?.clone();
        let mut send = self.own.get(&send_id)?.clone();
        // What may still be queued of one that has ended is parity that nobody needs.
        let has_ended = send.delivered || send.failure.is_some();
        if has_ended {
            return Some((false, send));
        }
        // Where the send is another request's too, it goes on for that one.
        if !self.own.is_shared(request_id) {
            let Some(unsent) = self.withdraw_send(&send_id) else {
                return Some((false, send));
            };
            for ordinal in unsent {
                send.sending.remove(ordinal);
            }
        }
        self.own.withdraw(request_id);
        Some((true, send))
    }

    /// As [`Channel::cancel`], of a request whose id its caller never learns: what becomes of a send that
    /// is its own and has left is still told.
    pub fn withdraw(&mut self, request_id: &str) {
        self.dispatch.on_withdrawn(request_id);
        self.cancel(request_id);
        let send_id = self.own.send_id_of(request_id);
        let has_left = send_id.is_some_and(|send_id| self.sds.knows_send(send_id));
        if self.own.is_shared(request_id) || !has_left {
            self.own.withdraw(request_id);
        }
    }

    /// The next message for the application, to be handed over after those before it, once what
    /// [`Channel::poll_persist`] gives is durable; `None` where none waits, or enough have begun.
    pub fn begin_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.begin()
    }

    /// The application is done with the oldest message that has begun, if there is one.
    pub fn finish_delivery(&mut self) {
        self.deliveries.finish();
    }

    /// The channel ends: of the messages that have begun the application was given the first `given`; the
    /// others come in its next life as if they had not.
    pub fn end_deliveries(&mut self, given: usize) {
        self.deliveries.end(given);
    }

    /// A store has a content of ours.
    pub fn handle_stored(&mut self, send_id: &str, ordinal: u32, now: Now) {
        self.own.on_stored(send_id, ordinal);
        self.sds.handle_stored(send_id, ordinal, now);
    }

    /// What a store had in an earlier life it has still.
    pub fn resume_in_store(&mut self, now: Now) {
        for (send_id, ordinal) in self.own.in_store() {
            self.sds.handle_stored(&send_id, ordinal, now);
        }
    }

    /// Drops partial messages that nothing new came for (001, 002, timeouts).
    pub fn expire(&mut self, now: Now) {
        let (receiving, mut context) = self.receiving(now);
        receiving.expire(&mut context);
    }

    /// Monotonic milliseconds at which the next partial message expires; `None` for never.
    pub fn next_expiry_ms(&self) -> Option<i64> {
        self.receiving.next_expiry_ms()
    }

    // --- outputs --------------------------------------------------------------------------------

    /// The next message that is to leave, of the kinds that may.
    pub fn poll_transmit(&mut self, now: Now, kinds: Kinds) -> Option<Transmit> {
        let transmit = self.sds.poll_transmit(now, kinds)?;
        if let (Some(send_id), Some(ordinal)) = (&transmit.send_id, transmit.ordinal) {
            self.own.on_dispatched(send_id, ordinal);
        }
        Some(transmit)
    }

    /// What happened since the last call, in its order.
    pub fn poll_events(&mut self, now: Now) -> VecDeque<Event> {
        self.settle(None, now);
        std::mem::take(&mut self.events)
    }

    /// Whether the content that `arrival` brought was kept, where it brought one.
    fn settle(&mut self, arrival: Option<&Arrival<'_>>, now: Now) -> bool {
        let mut kept = true;
        while let Some(event) = self.sds.poll_event() {
            match event {
                sds::Event::ContentReceived {
                    message_id,
                    sender_id,
                    content,
                    send_id,
                    ordinal,
                } => {
                    // Contents come out of the message that is taken in, of no other.
                    let Some(arrival) = arrival else { continue };
                    let came = receiving::Content {
                        message_id,
                        sender_id,
                        content,
                        send_id,
                        ordinal,
                    };
                    let (receiving, mut context) = self.receiving(now);
                    kept &= receiving.on_content(came, arrival, &mut context);
                }
                sds::Event::SendReleased {
                    sender_id, send_id, ..
                } => {
                    let (deliveries, events) = (&mut self.deliveries, &mut self.events);
                    let receiving = &mut self.receiving;
                    receiving.on_released(sender_id, &send_id, deliveries, events, now);
                }
                sds::Event::EphemeralReceived {
                    message_id,
                    sender_id,
                    content,
                } => {
                    let (deliveries, events) = (&mut self.deliveries, &mut self.events);
                    let receiving = &mut self.receiving;
                    receiving.on_ephemeral(&message_id, sender_id, &content, deliveries, events);
                }
                sds::Event::ParityReceived {
                    message_id,
                    sender_id,
                    send_sender_id,
                    send_id,
                    content,
                } => {
                    let Some(arrival) = arrival else { continue };
                    let came = receiving::Content {
                        message_id,
                        sender_id,
                        content,
                        send_id: Some(send_id),
                        ordinal: None,
                    };
                    let (receiving, mut context) = self.receiving(now);
                    receiving.on_parity(came, &send_sender_id, arrival, &mut context);
                }
                sds::Event::ParityWanted {
                    sender_id,
                    send_id,
                    count,
                } => {
                    let segmentation = self.receiving.segmentation();
                    let send = (&sender_id, &send_id);
                    parity::answer_with_parity(&mut self.sds, send, count, segmentation, now);
                }
                // Nothing for whoever owns a channel, and by far the most.
                sds::Event::SyncReceived { .. } => {}
                event => {
                    let is_observed = arrival.is_some_and(|arrival| arrival.observed);
                    self.settle_own(event, is_observed, now);
                }
            }
        }
        kept
    }

    /// What others have, or want, of our sends; and what only whoever owns the channel is told.
    fn settle_own(&mut self, event: sds::Event, is_observed: bool, now: Now) {
        match event {
            sds::Event::ContentAcknowledged {
                ref send_id,
                ordinal,
                ref by,
                ..
            } => {
                self.own.on_acknowledged(send_id, ordinal, by);
                if is_observed {
                    self.events.push_back(Event::Sds(event));
                }
            }
            sds::Event::ContentPossiblyAcknowledged {
                send_id, ordinal, ..
            } => self.own.on_possibly_acknowledged(&send_id, ordinal),
            sds::Event::SendAcknowledged { send_id, by } => {
                self.own.on_reconstructible(&send_id, &by);
            }
            sds::Event::SendGivenUp {
                send_id,
                unacknowledged,
            } => self.own.on_given_up(&send_id, &unacknowledged),
            sds::Event::ContentsWanted { send_id, count } => {
                let form = self.own.get(&send_id).map(|send| send.form.clone());
                let made = parity::make_as_segmented(
                    &mut self.sds,
                    &send_id,
                    count,
                    &form.unwrap_or_default(),
                    now,
                );
                self.parity_made += made as u64;
            }
            event => self.events.push_back(Event::Sds(event)),
        }
    }

    /// What changed since the last call, to be stored in one transaction.
    pub fn poll_persist(&mut self) -> Vec<Record> {
        let records = self.take_changes();
        #[cfg(debug_assertions)]
        self.audit();
        records
    }

    /// What one part holds for another is known to both: every test that stores something looks.
    #[cfg(debug_assertions)]
    fn audit(&self) {
        self.receiving.audit(&self.sds, &self.deliveries);
        self.dispatch.audit(&self.sds, &self.own);
    }

    fn take_changes(&mut self) -> Vec<Record> {
        let mut records = Records::default();
        let shared = self.receiving.shared_mut();
        for key in self.deliveries.poll_done() {
            shared.on_delivered(&key);
        }
        // A record may stand more than once: the last one counts, whatever became of it before.
        let changes = self.sds.poll_persist();
        let changes = last_of_each(changes, |record| (record.kind, record.key.as_bytes()));
        let sds = &self.sds;
        let is_ours = |message_id: &str, message: &[u8]| {
            let own = sds.own_message(message_id);
            own.is_some_and(|own| std::ptr::eq::<[u8]>(&**own, message))
        };
        for record in changes {
            shared.take(record, is_ours, &mut records);
        }
        shared.apply(|message_id| sds.needs_message(message_id), &mut records);
        for record in self.receiving.poll_completions() {
            let is_put = record.change == reassemble::Change::PutCompleted;
            records.put(COMPLETED, record.key, is_put.then_some(record.value));
        }
        for (send_id, record) in self.own.poll_persist() {
            records.put(SEND, send_id, record);
        }
        self.deliveries.poll_persist(&mut records);
        self.retrieval.poll_persist(&mut records);
        records.into_vec()
    }

    /// In place of [`Channel::poll_persist`] where nothing is stored: forgets what changed.
    pub fn drop_changes(&mut self) {
        let shared = self.receiving.shared_mut();
        for key in self.deliveries.poll_done() {
            shared.on_delivered(&key);
        }
        self.deliveries.drop_changes();
        self.retrieval.drop_changes();
        self.sds.drop_changes();
        self.own.drop_changes();
        shared.drop_changes();
        self.receiving.poll_completions();
    }

    // --- views ----------------------------------------------------------------------------------

    /// Whether what is received is to be taken in, behind so many messages and bytes more: not while the
    /// application has to catch up first.
    pub fn has_delivery_room(&self, behind_messages: usize, behind_bytes: usize) -> bool {
        let (_, held_bytes) = self.receiving.waiting();
        let held_bytes = held_bytes + behind_bytes;
        !self.deliveries.is_full(held_bytes, behind_messages)
    }

    /// Whether some of a message is here that is not whole.
    pub fn has_partial(&self) -> bool {
        self.receiving.has_partial()
    }

    /// Whole messages that wait for what they follow, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        self.receiving.waiting()
    }

    /// How much parity was made of messages of ours for those who asked.
    pub fn parity_made(&self) -> u64 {
        self.parity_made
    }

    /// What was received and what is held of it.
    pub fn counts(&self) -> (Counts, reassemble::Stats) {
        self.receiving.counts()
    }
}

/// The send id under which SDS releases a message that is stored under `stored_id`, which may be a rival's.
fn release_id_of(stored_id: &str) -> &str {
    sds::rival_of(stored_id).unwrap_or(stored_id)
}

/// The name that a received content has in SDS where it is a message of its own.
fn is_rival(name: &Name) -> bool {
    sds::rival_of(name).is_some()
}

#[cfg(test)]
mod deliveries_tests;
#[cfg(test)]
mod receiving_tests;
#[cfg(test)]
mod references_tests;
#[cfg(test)]
mod requests_tests;
#[cfg(test)]
mod restored_tests;
#[cfg(test)]
mod sending_tests;
#[cfg(test)]
mod spelled_tests;
#[cfg(test)]
mod submissions_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;

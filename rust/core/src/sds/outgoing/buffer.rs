//! The outgoing buffer: contents of ours from when they are registered until they are acknowledged or
//! given up (SDS, Review ACK Status).

use std::collections::VecDeque;
use std::sync::Arc;

use super::changes::{Changes, Stored};
use super::demand::Demand;
use super::finished::Finished;
use super::first_parity::FirstParity;
use super::in_store::InStore;
use super::inquiries::{Asked, Inquiries};
use super::on_demand::{Around, OnDemand, Review};
use super::queue::DispatchQueue;
use super::quorum::Quorum;
use super::send::{ContentRef, OutgoingContent, OutgoingRef, OutgoingSend};
use super::sends::Sends;
use super::unacknowledged::{Turn, Unacknowledged};
use crate::sds::config::Config;
use crate::sds::events::Event;
use crate::sds::log::Log;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::participants::Participants;

/// Joins the parts: a send is queued, its contents leave, wait for their acknowledgements or go again,
/// and it ends.
#[derive(Debug)]
pub struct Outgoing {
    quorum: Quorum,
    enable_repair: bool,
    messages_max: usize,
    possible_threshold: usize,
    sends: Sends,
    queue: DispatchQueue,
    unacknowledged: Unacknowledged,
    inquiries: Inquiries,
    on_demand: OnDemand,
    finished: Finished,
    /// Sends of which what is heard just now tells what is lacking.
    answered: Vec<OutgoingRef>,
    sends_so_far: u64,
    changes: Changes,
}

impl Outgoing {
    /// Nothing is sent.
    pub fn new(config: &Config) -> Self {
        Outgoing {
            quorum: Quorum::from(&config.delivered_when),
            enable_repair: config.enable_repair,
            messages_max: config.outgoing_buffer_messages_max,
            possible_threshold: config.possible_acks_threshold,
            sends: Sends::default(),
            queue: DispatchQueue::new(config.acknowledgement_timeout_ms),
            unacknowledged: Unacknowledged::new(config),
            inquiries: Inquiries::default(),
            on_demand: OnDemand::default(),
            finished: Finished::default(),
            answered: Vec::new(),
            sends_so_far: 0,
            changes: Changes::default(),
        }
    }

    // --- views ----------------------------------------------------------------------------------

    /// A send by its id.
    pub fn find(&self, send_id: &str) -> Option<OutgoingRef> {
        self.sends.find(send_id)
    }

    /// A send.
    pub fn get(&self, send: OutgoingRef) -> Option<&OutgoingSend> {
        self.sends.get(send)
    }

    /// A send to change.
    pub fn get_mut(&mut self, send: OutgoingRef) -> Option<&mut OutgoingSend> {
        self.sends.get_mut(send)
    }

    /// A content by its message id.
    pub fn find_content(&self, message_id: &[u8]) -> Option<ContentRef> {
        self.sends.find_content(message_id)
    }

    /// A content.
    pub fn content(&self, place: ContentRef) -> Option<&OutgoingContent> {
        self.sends.content(place)
    }

    /// A content to change.
    pub fn content_mut(&mut self, place: ContentRef) -> Option<&mut OutgoingContent> {
        self.sends.content_mut(place)
    }

    /// The message of a content that keeps its bytes itself.
    pub fn wire(&self, message_id: &[u8]) -> Option<&Octets> {
        self.sends.wire(message_id)
    }

    /// As [`Self::wire`], for contents that are stored: not for made parity.
    pub fn stored_wire(&self, message_id: &[u8]) -> Option<&Octets> {
        self.sends.stored_wire(message_id)
    }

    /// Whether an id is one that a content of ours has, or will have.
    pub fn is_own_id(&self, message_id: &[u8]) -> bool {
        self.sends.is_own_id(message_id)
    }

    /// Whether there are no sends.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// Sends, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &OutgoingSend> {
        self.sends.iter()
    }

    /// Sends so far, over all lives.
    pub fn sends_so_far(&self) -> u64 {
        self.sends_so_far
    }

    /// Contents that wait for acknowledgements, those that are held back last.
    pub fn awaiting(&self) -> impl Iterator<Item = ContentRef> {
        let in_store = self.unacknowledged.in_store();
        self.unacknowledged.iter().chain(in_store.iter())
    }

    /// Contents that are unacknowledged, the longest first.
    pub fn unacknowledged(&self) -> impl Iterator<Item = ContentRef> {
        self.unacknowledged.iter()
    }

    /// How many are unacknowledged.
    pub fn unacknowledged_count(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Contents of ours that a store has and that wait for somebody who lacks them.
    pub fn in_store(&self) -> &InStore {
        self.unacknowledged.in_store()
    }

    /// Contents that are due again.
    pub fn due(&self) -> usize {
        self.unacknowledged.due()
    }

    /// What waits for its first dispatch.
    pub fn queue(&self) -> &DispatchQueue {
        &self.queue
    }

    /// Sends that have not begun.
    pub fn fresh(&self) -> usize {
        self.queue.fresh()
    }

    /// Contents of sends that are finished, and remembered.
    pub fn finished_contents(&self) -> usize {
        self.finished.contents()
    }

    /// How much parity leaves with a message before anybody asks.
    pub fn first_parity(&self) -> &FirstParity {
        self.on_demand.first_parity()
    }

    /// Whether the buffer is below its limit, so that sends may be registered.
    pub fn has_room(&self) -> bool {
        self.unacknowledged.len() < self.messages_max
    }

    // --- registered -----------------------------------------------------------------------------

    /// Queues a send; its id and its message ids are new. `reserve` further contents of it can be made.
    pub fn add(
        &mut self,
        send_id: Name,
        message_ids: &[Name],
        contents: Vec<Octets>,
        contents_needed: u32,
        reserve: u32,
    ) {
        self.sends_so_far += 1;
        let mut send = OutgoingSend::new(send_id, self.sends_so_far, contents_needed);
        send.demand = (reserve > 0).then(|| Demand::new(reserve, contents.len() as u32));
        send.contents.reserve_exact(contents.len());
        for (ordinal, (message_id, content)) in (0..).zip(message_ids.iter().zip(contents)) {
            let mut content = OutgoingContent::new(message_id.clone(), content);
            // Parity, of which more can be made.
            content.made = reserve > 0 && ordinal >= contents_needed;
            send.contents.push(content);
        }
        let handle = self.sends.add(send);
        let send = &mut self.sends[handle];
        self.queue.add(handle, send);
        for (ordinal, content) in (0..).zip(&mut send.contents) {
            self.changes.on_queued((handle, ordinal), content);
        }
        self.changes.on_send(handle, send);
    }

    /// Whether the next send that has not begun may: there is room for all of it, so that none stops
    /// halfway. One that is larger than the buffer goes while that is empty.
    pub fn may_begin(&mut self) -> bool {
        let Some(send) = self.queue.next_fresh(&self.sends) else {
            return false;
        };
        let taken = self.unacknowledged.len() + self.queue.started_contents(&self.sends);
        taken == 0 || taken + self.sends[send].contents.len() <= self.messages_max
    }

    /// Takes the next content that may leave.
    pub fn next(&mut self, first: bool, further: bool, monotonic_ms: i64) -> Option<ContentRef> {
        self.queue
            .next(first, further, &mut self.sends, monotonic_ms)
    }

    /// The first transmission of a content failed.
    pub fn put_back(&mut self, place: ContentRef) {
        if self.content(place).is_none_or(|content| content.queued) {
            return;
        }
        self.untrack(place);
        let (handle, ordinal) = place;
        self.queue
            .put_back(handle, &mut self.sends[handle], ordinal);
        self.touch_content(place);
    }

    /// Drops what was not dispatched and stops resending the rest; false when all of it had left.
    pub fn cancel(&mut self, handle: OutgoingRef) -> bool {
        let send = &mut self.sends[handle];
        if !send.waits() {
            return false;
        }
        self.queue.clear(send);
        send.finished = true;
        self.forget(handle);
        true
    }

    /// Forgets a send all of which has left; false when it is finished, and so was heard or given up.
    pub fn withdraw(&mut self, handle: OutgoingRef) -> bool {
        let send = &mut self.sends[handle];
        if std::mem::replace(&mut send.finished, true) {
            return false;
        }
        self.forget(handle);
        true
    }

    // --- dispatched -----------------------------------------------------------------------------

    /// A content was encoded: from now on its message is what is stored, or nothing where others like
    /// it can be made.
    pub fn on_encoded(&mut self, place: ContentRef, lamport: u64, wire: Octets) {
        let Some(send) = self.sends.get_mut(place.0) else {
            return;
        };
        let is_stored_queued = (place.1 as usize) < send.scheduled();
        if let Some(content) = send.contents.get_mut(place.1 as usize) {
            content.lamport = lamport;
            content.content = None;
            content.wire = Some(wire.clone());
            let stored = (!content.made).then_some(wire);
            if stored.is_some() || is_stored_queued {
                self.changes.on_encoded(content, stored);
            }
        }
    }

    /// The message of a content is another one now.
    pub fn on_encoded_again(&mut self, place: ContentRef, wire: Octets) {
        if let Some(content) = self.content_mut(place) {
            let message_id = content.message_id.clone();
            content.wire = Some(wire.clone());
            let stored = (!content.made).then_some(wire);
            self.changes.on_encoded_again(message_id, stored);
        }
    }

    /// Sends that name one of these in messages of which none has left, nor may have in an earlier life.
    /// `is_held` knows transmissions that were handed out and have not left.
    pub fn unsent_naming(
        &self,
        message_ids: &[Name],
        is_held: &dyn Fn(u64) -> bool,
    ) -> Vec<OutgoingRef> {
        let is_unsent = |content: &OutgoingContent| {
            let is_held = content.in_flight != 0 && is_held(content.in_flight);
            content.content.is_some()
                || (content.wire.is_some()
                    && (content.queued || is_held)
                    && content.attempts == 0
                    && !content.unconfirmed)
        };
        let is_such = |send: &OutgoingSend| {
            let mut named = send.history.iter().flat_map(|history| &history.ids);
            !send.finished
                && named.any(|id| message_ids.contains(id))
                && send.contents.iter().all(is_unsent)
        };
        let sends = self.sends.iter().filter(|send| is_such(send));
        let found = sends.map(|send| self.sends.find(&send.send_id));
        found.flatten().collect()
    }

    /// The record of a send is to be written.
    pub fn touch(&mut self, handle: OutgoingRef) {
        self.changes.on_send(handle, &mut self.sends[handle]);
    }

    /// A content leaves now: it stands in the outgoing buffer until it is acknowledged.
    pub fn on_dispatched(&mut self, place: ContentRef, monotonic_ms: i64) {
        let Some(send) = self.sends.get_mut(place.0) else {
            return;
        };
        send.on_left(place.1, monotonic_ms);
        if !send.finished {
            self.unacknowledged
                .on_left(place, monotonic_ms, &mut self.sends);
        }
        self.touch_content(place);
    }

    /// A content is in the network since now: its acknowledgement is waited for from here on.
    pub fn on_propagated(&mut self, place: ContentRef, monotonic_ms: i64) {
        if let Some(content) = self.sends.content_mut(place) {
            content.unconfirmed = false;
        }
        if self.unacknowledged.awaits(place) {
            self.sends[place.0].on_left(place.1, monotonic_ms);
            self.unacknowledged
                .wait(place, monotonic_ms, &mut self.sends);
        }
    }

    /// A store has a content.
    pub fn on_stored(&mut self, send_id: &str, ordinal: u32, monotonic_ms: i64) {
        let send = self.sends.find(send_id);
        if let Some(send) = send.and_then(|send| self.sends.get_mut(send))
            && !send.finished
            && let Some(content) = send.contents.get_mut(ordinal as usize)
            && !content.queued
        {
            content.stored_ms = Some(monotonic_ms);
        }
    }

    // --- again ----------------------------------------------------------------------------------

    /// When a content is due again.
    pub fn next_deadline(&mut self) -> Option<i64> {
        self.unacknowledged.next_deadline(&mut self.sends)
    }

    /// Sees to what is due.
    pub fn on_timeout(
        &mut self,
        monotonic_ms: i64,
        participants: &Participants,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        while let Some(place) = self
            .unacknowledged
            .take_timer(monotonic_ms, &mut self.sends)
        {
            let send = self.sends.get(place.0).filter(|send| !send.finished);
            let Some(send) = send else {
                continue;
            };
            if send.demand.is_some() {
                self.review_demand(place.0, monotonic_ms, participants, log, events);
            } else {
                match self.unacknowledged.on_time(
                    place,
                    monotonic_ms,
                    participants,
                    &self.quorum,
                    &mut self.sends,
                ) {
                    Turn::Taken => {}
                    Turn::PutOff => self.touch_content(place),
                    Turn::Asked => {
                        self.touch_content(place);
                        let send_id = self.sends[place.0].send_id.clone();
                        self.inquiries.add(send_id, monotonic_ms);
                    }
                    Turn::Last => drop(self.give_up(place.0, log, events)),
                }
            }
            // What waits longest in a store is given up where more waits there than may.
            while let Some((oldest, _)) = self.unacknowledged.in_store().overflow()
                && self.give_up(oldest, log, events)
            {}
        }
        if let Some(probed) = self.unacknowledged.probe(monotonic_ms, &mut self.sends)
            && let Some(send) = self.sends.get(probed)
            && send.demand.is_some()
        {
            // Who has all of it and said so is silent about a content: the answer may be all that got lost.
            self.inquiries.add(send.send_id.clone(), monotonic_ms);
        }
    }

    fn review_demand(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        participants: &Participants,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let (on_demand, mut around) = self.around_on_demand();
        match on_demand.review(handle, monotonic_ms, participants, &mut around) {
            Review::Nothing => {}
            Review::GiveUp => drop(self.give_up(handle, log, events)),
            Review::Contents(count) => {
                let send_id = self.sends[handle].send_id.clone();
                events.push_back(Event::ContentsWanted { send_id, count });
            }
        }
    }

    /// The owner made contents that were wanted, or none: then there are no more.
    pub fn extend(
        &mut self,
        handle: OutgoingRef,
        contents: Vec<Octets>,
        log: &Log,
        monotonic_ms: i64,
    ) {
        let (_, mut around) = self.around_on_demand();
        around.extend(handle, contents, log, monotonic_ms);
    }

    /// Since when receivers are to be asked what they lack.
    pub fn inquiry_due_ms(&self) -> Option<i64> {
        self.inquiries.due_ms()
    }

    /// Sends whose receivers are asked by the message that leaves now.
    pub fn take_inquiries(&mut self) -> Vec<Asked> {
        let gap_ms = self.unacknowledged.gap_ms();
        self.inquiries.take(&self.quorum, &self.sends, gap_ms)
    }

    /// The content to send again, counted as an attempt unless it goes as a probe.
    pub fn next_due(&mut self, monotonic_ms: i64) -> Option<ContentRef> {
        self.unacknowledged
            .next_due(monotonic_ms, &self.quorum, &mut self.sends)
    }

    /// A retransmission failed: it was no attempt, and is due as soon as anything may leave.
    pub fn not_sent_again(&mut self, place: ContentRef) {
        if self.unacknowledged.on_not_sent(place, &mut self.sends) {
            self.touch_content(place);
        }
    }

    /// Sends a content that its send can do without no more.
    pub fn leave_out(&mut self, message_id: &str) {
        if let Some(place) = self.find_content(message_id.as_bytes()) {
            self.untrack(place);
        }
    }

    /// Gives up a send all of which has left, as after the last retransmission.
    pub fn stop(&mut self, send_id: &str, log: &mut Log, events: &mut VecDeque<Event>) {
        if let Some(handle) = self.find(send_id)
            && !self.sends[handle].finished
        {
            self.give_up(handle, log, events);
        }
    }

    // --- acknowledged ---------------------------------------------------------------------------

    /// `by` named a content in a causal history.
    pub fn acknowledge(
        &mut self,
        (handle, ordinal): ContentRef,
        by: &Arc<str>,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let counts = self.quorum.counts(by);
        let send = &mut self.sends[handle];
        let mut speaks = false;
        if counts && !send.finished && !send.acknowledged.is_complete(by) {
            let count = send.contents.len();
            if let Some(demand) = &mut send.demand {
                speaks = demand.on_named(by, monotonic_ms);
            } else if send.inquiry.on_named(by, count, monotonic_ms) {
                self.answered.push(handle);
            }
        }
        let send = &mut self.sends[handle];
        if !send.acknowledged.has_room(by, self.quorum.names(by)) {
            return;
        }
        let held = send.acknowledged.add(by, ordinal);
        if let Some(held) = held {
            if let Some(demand) = send.demand.as_mut().filter(|_| counts) {
                demand.on_news();
                // With half of it what it names counts as all that came.
                speaks |= held == send.contents_needed.div_ceil(2);
            }
            events.push_back(Event::ContentAcknowledged {
                send_id: send.send_id.clone(),
                ordinal,
                message_id: send.contents[ordinal as usize].message_id.clone(),
                by: Arc::clone(by),
            });
            self.changes.on_send(handle, send);
        }
        let is_complete = held.is_some_and(|held| held >= send.contents_needed);
        if speaks {
            self.around_on_demand().1.hasten(handle, monotonic_ms);
        }
        if is_complete {
            self.complete(handle, by, log, events);
        }
    }

    /// All that a message names, or its filter holds, is acknowledged: what waited for that goes once all who
    /// answer had time to.
    pub fn on_heard(&mut self, monotonic_ms: i64) {
        for handle in std::mem::take(&mut self.answered) {
            if self.sends.get(handle).is_some() {
                self.unacknowledged.on_answered(
                    handle,
                    monotonic_ms,
                    &self.quorum,
                    &mut self.sends,
                );
            }
        }
    }

    /// `by`, one of `members`, says how many contents it lacks of a send.
    pub fn on_stated<'m>(
        &mut self,
        handle: OutgoingRef,
        (by, lacking): (&Arc<str>, u32),
        members: impl Iterator<Item = &'m Arc<str>>,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let send = &mut self.sends[handle];
        let lacking = lacking.min(send.contents_needed);
        let count = send.contents.len();
        if send.finished || !self.quorum.counts(by) {
            // Nobody waits for what is said of it, or for what they say who need not have it.
        } else if let Some(demand) = &mut send.demand {
            if demand.on_stated(by, lacking, monotonic_ms) {
                let (_, mut around) = self.around_on_demand();
                around.hasten_by_number(handle, monotonic_ms, members);
            }
        } else if lacking == 0 {
            send.inquiry.on_named(by, count, monotonic_ms);
        }
        let acknowledged = &self.sends[handle].acknowledged;
        if lacking == 0 && acknowledged.has_room(by, self.quorum.names(by)) {
            self.complete(handle, by, log, events);
        }
    }

    /// `by` can reconstruct a send: it holds all contents, without having received each.
    fn complete(
        &mut self,
        handle: OutgoingRef,
        by: &Arc<str>,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let send = &mut self.sends[handle];
        let count = send.contents.len() as u32;
        let Some(named) = send.acknowledged.on_complete(by, count) else {
            return;
        };
        for (ordinal, content) in (0..).zip(&send.contents) {
            if !named.contains(ordinal) {
                events.push_back(Event::ContentAcknowledged {
                    send_id: send.send_id.clone(),
                    ordinal,
                    message_id: content.message_id.clone(),
                    by: Arc::clone(by),
                });
            }
        }
        self.changes.on_send(handle, send);
        events.push_back(Event::SendAcknowledged {
            send_id: send.send_id.clone(),
            by: Arc::clone(by),
        });
        if !send.finished && self.quorum.is_delivered(&send.acknowledged) {
            self.finish(handle, log);
        }
    }

    /// `by`'s filter, which came with `message_id`, holds a content that waits; whether enough filters do to
    /// count it as acknowledged.
    pub fn possibly_acknowledge(
        &mut self,
        place: ContentRef,
        by: &Arc<str>,
        message_id: &Name,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let (handle, ordinal) = place;
        let send = &mut self.sends[handle];
        let named = send.acknowledged.holds(by, ordinal);
        let content = &mut send.contents[ordinal as usize];
        let was_unheard = content.possible.is_empty();
        let is_new = !content.possible.contains_key(by);
        if named || !content.on_filter(by, message_id) {
            return false;
        }
        let count = content.filter_hits();
        if !is_new && count > self.possible_threshold {
            // Told already, and as good as any number of them.
            return true;
        }
        events.push_back(Event::ContentPossiblyAcknowledged {
            send_id: send.send_id.clone(),
            ordinal,
            message_id: content.message_id.clone(),
            by: Arc::clone(by),
            count,
        });
        if was_unheard {
            self.unacknowledged.wait_longer(place, &mut self.sends);
        }
        self.touch_content(place);
        count >= self.possible_threshold
    }

    /// Enough filters hold the content (004, `possible_acks_threshold`), and not by accident.
    pub fn acknowledge_possible(
        &mut self,
        place: ContentRef,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let names = self
            .content(place)
            .map(|content| content.possible.keys().cloned().collect::<Vec<_>>());
        for name in names.into_iter().flatten() {
            if self.sends.get(place.0).is_some() {
                self.acknowledge(place, &name, monotonic_ms, log, events);
            }
        }
    }

    // --- ended ----------------------------------------------------------------------------------

    /// Nobody answers for a send; false where it was given up before.
    fn give_up(
        &mut self,
        handle: OutgoingRef,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let send = &mut self.sends[handle];
        if std::mem::replace(&mut send.given_up, true) {
            return false;
        }
        let held = send.acknowledged.by_anybody();
        let send_id = send.send_id.clone();
        let lacking = (0..send.contents.len() as u32).filter(|ordinal| !held.contains(*ordinal));
        let unacknowledged = lacking.collect();
        self.finish(handle, log);
        events.push_back(Event::SendGivenUp {
            send_id,
            unacknowledged,
        });
        true
    }

    /// Resending stops; acknowledgements are still collected, for a bounded number of sends.
    fn finish(&mut self, handle: OutgoingRef, log: &mut Log) {
        let send = &self.sends[handle];
        if !send.given_up && !send.waits() {
            self.on_demand.count_lacked(handle, 0, &mut self.sends);
        }
        let send = &mut self.sends[handle];
        send.finished = true;
        if send.demand.take().is_some()
            && !send.waits()
            && let Some(history) = &mut send.history
        {
            history.fields = Vec::new();
        }
        let count = send.contents.len();
        for ordinal in 0..count as u32 {
            self.untrack((handle, ordinal));
            self.on_send_finished((handle, ordinal), log);
        }
        self.touch(handle);
        self.finished.add(handle, count);
        while let Some(oldest) = self.finished.take_surplus(&self.sends) {
            self.forget(oldest);
        }
    }

    /// A content of a send that is no longer resent: its bytes are kept for repair only.
    pub fn on_send_finished(&mut self, place: ContentRef, log: &mut Log) {
        let Some(content) = self.sends.content_mut(place) else {
            return;
        };
        // One that the node did not take leaves once more, and is given up with its answer.
        if content.in_flight != 0 || content.queued {
            return;
        }
        let Some(wire) = content.wire.take() else {
            return;
        };
        if content.made {
            // Nobody asks for it by name.
            return;
        }
        let message_id = content.message_id.clone();
        if self.enable_repair {
            let stored = self.find_content(message_id.as_bytes()) == Some(place);
            log.keep_own(&message_id, wire, stored);
        } else {
            log.forget_stored_original(&message_id);
        }
    }

    fn untrack(&mut self, place: ContentRef) {
        self.unacknowledged.discard(place);
        // On demand the timer of its first content is that of the send.
        let has_own_timer = self.get(place.0).is_some_and(|send| send.demand.is_none());
        if let Some(content) = self.sends.content_mut(place) {
            content.unconfirmed = false;
            if has_own_timer {
                content.resend_ms = None;
            }
        }
    }

    fn forget(&mut self, handle: OutgoingRef) {
        let Some(send) = self.sends.remove(handle) else {
            return;
        };
        for ordinal in 0..send.contents.len() as u32 {
            self.unacknowledged.discard((handle, ordinal));
        }
        self.changes.on_forgotten(send);
    }

    fn touch_content(&mut self, place: ContentRef) {
        if let Some(content) = self.sends.content_mut(place) {
            self.changes.on_content(place, content);
        }
    }

    fn around_on_demand(&mut self) -> (&mut OnDemand, Around<'_>) {
        let around = Around {
            sends: &mut self.sends,
            unacknowledged: &mut self.unacknowledged,
            quorum: &self.quorum,
            inquiries: &mut self.inquiries,
            changes: &mut self.changes,
        };
        (&mut self.on_demand, around)
    }

    // --- stored form ----------------------------------------------------------------------------

    /// Gives `put` what changed since the last call.
    pub fn poll_persist(&mut self, log: &Log, put: impl FnMut(Stored<'_>)) {
        self.changes.poll(&mut self.sends, log, put);
    }

    /// Restores a stored send; sends come in the order of their numbers.
    pub fn restore(&mut self, mut send: OutgoingSend, monotonic_ms: i64) {
        let count = send.contents.len() as u32;
        let finished = send.finished;
        send.acknowledged.restore_complete(count);
        let handle = self.sends.add(send);
        for ordinal in 0..count {
            let content = &self.sends[handle].contents[ordinal as usize];
            if !content.queued && !finished && content.has_bytes() {
                let never_left = content.lamport == 0;
                self.on_dispatched((handle, ordinal), monotonic_ms);
                if never_left {
                    self.unacknowledged
                        .restore_due((handle, ordinal), &mut self.sends);
                }
            }
        }
        self.queue
            .restore(handle, &mut self.sends[handle], monotonic_ms);
        if finished {
            self.finished.add(handle, count as usize);
        }
        self.changes.on_restored(&mut self.sends);
    }

    /// Restores that contents of a send are to be made again, whose records are deleted.
    pub fn restore_unmade(&mut self, send_id: &Name, ids: Vec<Name>) {
        if let Some(handle) = self.find(send_id)
            && !ids.is_empty()
        {
            self.touch(handle);
            self.changes.on_unmade(ids);
        }
    }

    /// These contents of a restored send are not known to have left. On demand, where they have no timers
    /// of their own, each goes once more unless that is known in two periods: whoever crashes often does
    /// not send all of it each time. Those of which nothing is kept are given back.
    pub fn resume(&mut self, send_id: &str, ordinals: &[u32], monotonic_ms: i64) -> Vec<u32> {
        let Some(handle) = self.find(send_id) else {
            return Vec::new();
        };
        let send = &mut self.sends[handle];
        if send.finished {
            return Vec::new();
        }
        let has_one_timer = send.demand.is_some();
        let mut left_out = Vec::new();
        for &ordinal in ordinals {
            match send.contents.get_mut(ordinal as usize) {
                Some(content) if content.has_bytes() => {
                    // One that was not encoded is due already.
                    if has_one_timer && !content.queued && content.lamport != 0 {
                        send.unconfirmed.push(ordinal);
                    }
                }
                _ => left_out.push(ordinal),
            }
        }
        if !send.unconfirmed.is_empty() {
            let at_ms = monotonic_ms + 2 * self.unacknowledged.period_ms();
            self.unacknowledged
                .look_again(handle, at_ms, &mut self.sends);
        }
        left_out
    }

    /// Restores how many sends there were.
    pub fn restore_count(&mut self, sends_so_far: u64) {
        self.sends_so_far = sends_so_far;
    }

    /// Goes on from a stored rate of first parity.
    pub fn restore_first_parity(&mut self, millionths: u32) {
        self.on_demand.restore_first_parity(millionths);
    }

    /// What is counted is what is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        self.sends.audit();
        self.queue.audit(&self.sends);
        self.finished.audit();
        self.unacknowledged.audit(&self.sends);
        assert!(self.awaiting().all(|place| self.content(place).is_some()));
    }
}

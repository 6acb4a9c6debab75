//! The outgoing buffer: dispatched contents until they are acknowledged, and who acknowledged what
//! (SDS, Review ACK Status).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::changes::{Changes, Stored};
use super::demand::{Answer, Demand, Need};
use super::first_parity::FirstParity;
use super::in_store::InStore;
use super::inquiry::Due;
use super::ordinals::Ordinals;
use super::queue::DispatchQueue;
use super::resend::ResendTimers;
use super::send::{ContentRef, OutgoingContent, OutgoingRef, OutgoingSend};
use crate::sds::config::{Config, DeliveredWhen};
use crate::sds::events::Event;
use crate::sds::ids::{content_id, split_content_id};
use crate::sds::log::Log;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::participants::Participants;
use crate::sds::slab::Slab;

/// Contents of finished sends that still collect acknowledgements, so that it goes on growing who
/// has them.
pub const FINISHED_CONTENTS_MAX: usize = 4_096;
/// Participants whose acknowledgements one send keeps.
pub const PARTICIPANTS_PER_SEND_MAX: usize = 1_000;

/// Sends of this participant by id, the queue before dispatch, and what is unacknowledged after it.
#[derive(Debug)]
pub struct Outgoing {
    delivered_when: DeliveredWhen,
    enable_repair: bool,
    messages_max: usize,
    retransmissions_max: u32,
    possible_threshold: usize,
    config: Config,
    sends: Slab<OutgoingSend>,
    by_send_id: LinkedHashMap<Name, OutgoingRef>,
    by_id: HashMap<Name, ContentRef>,
    unacknowledged: LinkedHashSet<ContentRef>,
    /// Held back, and not unacknowledged meanwhile.
    in_store: InStore,
    queue: DispatchQueue,
    finished: VecDeque<(usize, OutgoingRef)>,
    finished_contents: usize,
    timers: ResendTimers,
    due: VecDeque<ContentRef>,
    /// Sends whose receivers are to be asked what they lack, and since when.
    inquiries: LinkedHashMap<Name, i64>,
    first_parity: FirstParity,
    sends_so_far: u64,
    changes: Changes,
}

impl Outgoing {
    /// Nothing is sent.
    pub fn new(config: &Config) -> Self {
        Outgoing {
            delivered_when: config.delivered_when.clone(),
            enable_repair: config.enable_repair,
            messages_max: config.outgoing_buffer_messages_max,
            retransmissions_max: config.max_retransmissions,
            possible_threshold: config.possible_acks_threshold,
            config: config.clone(),
            sends: Slab::default(),
            by_send_id: LinkedHashMap::new(),
            by_id: HashMap::new(),
            unacknowledged: LinkedHashSet::new(),
            in_store: InStore::new(config.max_retransmissions),
            queue: DispatchQueue::new(config.acknowledgement_timeout_ms),
            finished: VecDeque::new(),
            finished_contents: 0,
            timers: ResendTimers::default(),
            due: VecDeque::new(),
            inquiries: LinkedHashMap::new(),
            first_parity: FirstParity::default(),
            sends_so_far: 0,
            changes: Changes::default(),
        }
    }

    // --- views ----------------------------------------------------------------------------------

    /// A send by its id.
    pub fn find(&self, send_id: &str) -> Option<OutgoingRef> {
        self.by_send_id.get(send_id.as_bytes()).copied()
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
        self.by_id.get(message_id).copied()
    }

    /// A content.
    pub fn content(&self, (send, ordinal): ContentRef) -> Option<&OutgoingContent> {
        self.sends.get(send)?.contents.get(ordinal as usize)
    }

    /// A content to change.
    pub fn content_mut(&mut self, (send, ordinal): ContentRef) -> Option<&mut OutgoingContent> {
        self.sends.get_mut(send)?.contents.get_mut(ordinal as usize)
    }

    /// The message of a content that keeps its bytes itself.
    pub fn wire(&self, message_id: &[u8]) -> Option<&Octets> {
        self.content(self.find_content(message_id)?)?.wire.as_ref()
    }

    /// The same where it is stored.
    pub fn stored_wire(&self, message_id: &[u8]) -> Option<&Octets> {
        let content = self.content(self.find_content(message_id)?)?;
        content.wire.as_ref().filter(|_| !content.made)
    }

    /// Contents of sends that are finished, and remembered.
    pub fn finished_contents(&self) -> usize {
        self.finished_contents
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Contents that wait for acknowledgements, those that are held back last.
    pub fn awaiting(&self) -> impl Iterator<Item = ContentRef> {
        self.unacknowledged
            .iter()
            .copied()
            .chain(self.in_store.iter())
    }

    /// Contents that are unacknowledged, the longest first.
    pub fn unacknowledged(&self) -> impl Iterator<Item = ContentRef> {
        self.unacknowledged.iter().copied()
    }

    /// How many are unacknowledged.
    pub fn unacknowledged_count(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Contents of ours that a store has and that wait for somebody who lacks them.
    pub fn in_store(&self) -> &InStore {
        &self.in_store
    }

    /// Contents that are due again.
    pub fn due(&self) -> usize {
        self.due.len()
    }

    /// What waits for its first dispatch.
    pub fn queue(&self) -> &DispatchQueue {
        &self.queue
    }

    /// Sends that have not begun.
    pub fn fresh(&self) -> usize {
        self.queue.fresh(&self.sends)
    }

    /// Sends, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &OutgoingSend> {
        self.by_send_id.values().map(|send| &self.sends[*send])
    }

    /// Sends so far, over all lives.
    pub fn sends_so_far(&self) -> u64 {
        self.sends_so_far
    }

    /// Whether the buffer is below its limit, so that sends may be registered.
    pub fn has_room(&self) -> bool {
        self.unacknowledged.len() < self.messages_max
    }

    // --- queue ----------------------------------------------------------------------------------

    /// Queues a send; its id and its message ids are new. `reserve` further contents of it can be made.
    pub fn add(
        &mut self,
        send_id: Name,
        message_ids: Vec<Name>,
        contents: Vec<Octets>,
        contents_needed: u32,
        reserve: u32,
    ) {
        self.sends_so_far += 1;
        let mut send = OutgoingSend::new(send_id.clone(), self.sends_so_far, contents_needed);
        send.demand = (reserve > 0).then(|| Demand::new(reserve, contents.len() as u32));
        for (ordinal, (message_id, content)) in (0..).zip(message_ids.into_iter().zip(contents)) {
            self.changes.on_queued(message_id.clone(), content.clone());
            let mut content = OutgoingContent::new(message_id, content);
            // Parity, of which more can be made.
            content.made = reserve > 0 && ordinal >= contents_needed;
            send.contents.push(content);
        }
        let handle = self.sends.insert(send);
        let send = &mut self.sends[handle];
        for (ordinal, content) in (0..).zip(&send.contents) {
            self.by_id
                .insert(content.message_id.clone(), (handle, ordinal));
        }
        self.queue.add(handle, send);
        self.changes.on_send(send_id.clone());
        self.by_send_id.insert(send_id, handle);
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

    // --- dispatch -------------------------------------------------------------------------------

    /// A content was encoded: from now on its message is what is stored, or nothing where others like
    /// it can be made.
    pub fn on_encoded(&mut self, place: ContentRef, lamport: u64, wire: Octets) {
        if let Some(content) = self.content_mut(place) {
            content.lamport = lamport;
            content.content = None;
            content.wire = Some(wire.clone());
            let stored = (!content.made).then_some(wire);
            let message_id = content.message_id.clone();
            let is_stored_queued = (place.1 as usize) < self.sends[place.0].scheduled();
            if stored.is_some() || is_stored_queued {
                self.changes.on_encoded(message_id, stored);
            }
        }
    }

    /// The record of a send is to be written.
    pub fn touch(&mut self, handle: OutgoingRef) {
        self.changes.on_send(self.sends[handle].send_id.clone());
    }

    /// A content leaves now: it stands in the outgoing buffer until it is acknowledged.
    pub fn on_dispatched(&mut self, place: ContentRef, monotonic_ms: i64) {
        let Some(send) = self.sends.get_mut(place.0) else {
            return;
        };
        send.contents[place.1 as usize].left_ms = monotonic_ms;
        if let Some(demand) = &mut send.demand {
            demand.on_left(monotonic_ms);
        }
        if !send.finished {
            self.unacknowledged.replace(place);
            self.set_timer(place, monotonic_ms);
        }
        self.touch_content(place);
    }

    /// A content is in the network since now: its acknowledgement is waited for from here on.
    pub fn on_propagated(&mut self, place: ContentRef, monotonic_ms: i64) {
        if let Some(content) = self.content_mut(place) {
            content.unconfirmed = false;
        }
        if self.awaits_acknowledgement(place) {
            let send = &mut self.sends[place.0];
            send.contents[place.1 as usize].left_ms = monotonic_ms;
            if let Some(demand) = &mut send.demand {
                demand.on_left(monotonic_ms);
            }
            self.set_timer(place, monotonic_ms);
        }
    }

    /// A store has a content.
    pub fn on_stored(&mut self, send_id: &str, ordinal: u32, monotonic_ms: i64) {
        let Some(send) = self
            .by_send_id
            .get(send_id.as_bytes())
            .and_then(|send| self.sends.get_mut(*send))
        else {
            return;
        };
        let finished = send.finished;
        if let Some(content) = send.contents.get_mut(ordinal as usize)
            && !content.queued
            && !finished
        {
            content.stored_ms = Some(monotonic_ms);
        }
    }

    fn awaits_acknowledgement(&self, place: ContentRef) -> bool {
        self.unacknowledged.contains(&place) || self.in_store.contains(place)
    }

    fn set_timer(&mut self, place: ContentRef, monotonic_ms: i64) {
        if self.is_on_demand(place.0) {
            self.look_again(place.0, monotonic_ms + self.config.resend_period_ms(0));
            return;
        }
        let Some(content) = self.content(place) else {
            return;
        };
        // SDS: possibly acknowledged messages are rebroadcast at a longer period.
        let periods = if content.possible.is_empty() { 1 } else { 2 };
        let period_ms = periods * self.config.resend_period_ms(content.attempts);
        let held = self.unacknowledged.len() + self.in_store.len();
        self.timers
            .set(place, monotonic_ms + period_ms, held, &mut self.sends);
    }

    /// When a content is due again.
    pub fn next_deadline(&mut self) -> Option<i64> {
        self.timers.next_ms(&mut self.sends)
    }

    /// Sees to what is due.
    pub fn on_timeout(
        &mut self,
        monotonic_ms: i64,
        participants: &Participants,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let first_period_ms = self.config.resend_period_ms(0);
        while let Some(place) = self.timers.take(monotonic_ms, &mut self.sends) {
            let Some(send) = self.sends.get(place.0) else {
                continue;
            };
            if send.demand.is_some() {
                if !send.finished {
                    self.review_demand(place.0, monotonic_ms, participants, log, events);
                }
                continue;
            }
            let content = &send.contents[place.1 as usize];
            if content.in_flight != 0 || send.finished {
                // What the node has yet to answer for is timed anew by the answer.
                continue;
            }
            if !self.is_wanted(place) {
                // Not now: those who hold it may fall behind others who lack it.
                self.set_timer(place, monotonic_ms);
            } else if let Some(stored_ms) = content.stored_ms
                && let is_heard = self.is_heard_who_lacks(place, stored_ms, participants)
                && self
                    .in_store
                    .holds_back(place, is_heard, monotonic_ms, first_period_ms)
            {
                self.wait_in_store(place, monotonic_ms, log, events);
            } else {
                self.send_again_or_ask(place, monotonic_ms, log, events);
            }
        }
        if let Some(probe) = self.in_store.take_probe(monotonic_ms, first_period_ms) {
            self.due.push_back(probe);
        }
    }

    // --- on demand ------------------------------------------------------------------------------

    fn is_on_demand(&self, handle: OutgoingRef) -> bool {
        self.sends
            .get(handle)
            .is_some_and(|send| send.demand.is_some())
    }

    /// A send on demand has one timer, that of its first content.
    fn look_again(&mut self, handle: OutgoingRef, at_ms: i64) {
        let held = self.unacknowledged.len() + self.in_store.len();
        self.timers.set((handle, 0), at_ms, held, &mut self.sends);
    }

    /// Nothing of a send left for a period, or all that its receivers lack is known.
    fn review_demand(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        participants: &Participants,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let period_ms = self.config.resend_period_ms(0);
        for ordinal in std::mem::take(&mut self.sends[handle].unconfirmed) {
            let place = (handle, ordinal);
            if self.awaits_acknowledgement(place) {
                self.sends[handle].contents[ordinal as usize].unconfirmed = true;
                self.due.push_back(place);
            }
        }
        let send = &self.sends[handle];
        let is_under_way = |content: &OutgoingContent| {
            let has_not_left = content.lamport == 0 && content.has_bytes();
            content.in_flight != 0 || has_not_left || content.unconfirmed
        };
        let leaves = send.waits() || send.contents.iter().any(is_under_way);
        let need = self.need(handle);
        if leaves || need == Need::default() {
            self.look_again(handle, monotonic_ms + period_ms);
            return;
        }
        if self.waits_in_store(handle, monotonic_ms, participants, log, events) {
            return;
        }
        if need.most > 0 {
            self.count_lacked(handle, need.most);
        }
        let rounds_max = self.retransmissions_max;
        let Some(demand) = &mut self.sends[handle].demand else {
            return;
        };
        match demand.answer(&need, rounds_max) {
            Answer::GiveUp => self.give_up(handle, log, events),
            Answer::Inquiry => {
                demand.on_inquiry(monotonic_ms);
                let send_id = self.sends[handle].send_id.clone();
                self.inquiries.entry(send_id).or_insert(monotonic_ms);
                self.look_again(handle, monotonic_ms + period_ms / 2);
            }
            // The owner did not answer.
            Answer::Contents(_) if demand.wanted > 0 => self.end_demand(handle, monotonic_ms),
            Answer::Contents(count) if demand.reserve == 0 => {
                self.repeat(handle, count as usize);
                self.look_again(handle, monotonic_ms + period_ms);
            }
            Answer::Contents(count) => {
                let count = count.min(demand.reserve);
                demand.wanted = count;
                let send_id = self.sends[handle].send_id.clone();
                events.push_back(Event::ContentsWanted { send_id, count });
                self.look_again(handle, monotonic_ms + period_ms);
            }
        }
    }

    /// What its receivers lacked of a send after all of it left is what later ones leave with.
    fn count_lacked(&mut self, handle: OutgoingRef, lacked: u32) {
        let send = &mut self.sends[handle];
        let needed = send.contents_needed;
        if let Some(demand) = &mut send.demand
            && !std::mem::replace(&mut demand.is_counted, true)
        {
            let first = demand.scheduled.saturating_sub(needed);
            self.first_parity.on_first_round(needed, first, lacked);
        }
    }

    /// How much parity leaves with a message before anybody asks.
    pub fn first_parity(&self) -> &FirstParity {
        &self.first_parity
    }

    /// Goes on from a stored rate.
    pub fn restore_first_parity(&mut self, millionths: u32) {
        self.first_parity.restore(millionths);
    }

    /// What those who are to have a send lack of it.
    fn need(&self, handle: OutgoingRef) -> Need {
        let send = &self.sends[handle];
        let Some(demand) = &send.demand else {
            return Need::default();
        };
        let mut need = Need::default();
        let mut add = |name: &Arc<str>| match self.known_to_lack(send, demand, name) {
            Some(lacking) => need.most = need.most.max(lacking),
            None => need.is_unknown = true,
        };
        let quorum = match &self.delivered_when {
            DeliveredWhen::Named(names) => {
                names
                    .iter()
                    .filter(|name| !send.complete.contains(*name))
                    .for_each(add);
                return need;
            }
            DeliveredWhen::Any => 1,
            DeliveredWhen::Count(count) => *count,
        };
        let wanted = quorum.saturating_sub(send.complete.len());
        let named = send.acknowledged.keys();
        let stating = demand.stating();
        let candidates: BTreeSet<&Arc<str>> = named
            .chain(stating)
            .filter(|name| !send.complete.contains(*name))
            .collect();
        let mut nearest: Vec<&Arc<str>> = candidates.into_iter().collect();
        nearest.sort_by_key(|name| {
            let held = send.acknowledged.get(*name).map_or(0, Ordinals::count);
            let by_names = send.contents_needed.saturating_sub(held);
            demand.stated_once(name).unwrap_or(by_names)
        });
        nearest.iter().take(wanted).for_each(|name| add(name));
        need.is_unknown |= nearest.len() < wanted;
        need
    }

    /// How many contents `name` lacks, as it said since the last one left.
    fn known_to_lack(&self, send: &OutgoingSend, demand: &Demand, name: &Arc<str>) -> Option<u32> {
        let held = send.acknowledged.get(name).map_or(0, Ordinals::count);
        // Whoever says only what came says it in full: a few names are no more than a mention.
        let in_full = demand.is_named_by(name) && 2 * held >= send.contents_needed;
        let by_names = in_full.then(|| send.contents_needed.saturating_sub(held));
        demand.stated(name).or(by_names)
    }

    /// All parity has left: contents go again, first those that most of the receivers which named some
    /// lack, then those that left longest ago.
    fn repeat(&mut self, handle: OutgoingRef, count: usize) {
        let send = &self.sends[handle];
        let open = |name: &Arc<str>| match &self.delivered_when {
            DeliveredWhen::Named(names) => names.contains(name) && !send.complete.contains(name),
            DeliveredWhen::Any | DeliveredWhen::Count(_) => !send.complete.contains(name),
        };
        let named: Vec<&Ordinals> = send
            .acknowledged
            .iter()
            .filter(|(name, held)| open(name) && held.count() > 0)
            .map(|(_, held)| held)
            .collect();
        let lacked_by = |ordinal: u32| named.iter().filter(|held| !held.contains(ordinal)).count();
        let mut order: Vec<u32> = (0..send.contents.len() as u32)
            .filter(|ordinal| send.contents[*ordinal as usize].has_bytes())
            .collect();
        order.sort_by_cached_key(|ordinal| {
            let left_ms = send.contents[*ordinal as usize].left_ms;
            (std::cmp::Reverse(lacked_by(*ordinal)), left_ms, *ordinal)
        });
        order.truncate(count);
        for ordinal in order {
            self.unacknowledged.replace((handle, ordinal));
            self.due.push_back((handle, ordinal));
        }
    }

    /// Whether a store has all of a send that left, and comes first.
    fn waits_in_store(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        participants: &Participants,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let count = self.sends[handle].contents.len() as u32;
        let places = (0..count).map(|ordinal| (handle, ordinal));
        let places: Vec<_> = places
            .filter(|place| self.awaits_acknowledgement(*place))
            .collect();
        let stored = places
            .iter()
            .map(|place| self.content(*place).and_then(|content| content.stored_ms));
        let Some(Some(stored_ms)) = stored.reduce(|one, other| Some(one?.max(other?))) else {
            return false;
        };
        let send = &self.sends[handle];
        let lacks = |name: &Arc<str>| !send.complete.contains(name);
        let is_heard = match &self.delivered_when {
            DeliveredWhen::Named(names) => names
                .iter()
                .any(|name| participants.live_ms(name) > Some(stored_ms) && lacks(name)),
            DeliveredWhen::Any | DeliveredWhen::Count(_) => {
                participants.live_since(stored_ms).any(lacks)
            }
        };
        let period_ms = self.config.resend_period_ms(0);
        let mut waits = false;
        for place in &places {
            waits |= self
                .in_store
                .holds_back(*place, is_heard, monotonic_ms, period_ms);
        }
        for place in places {
            if !waits {
                self.unacknowledged.replace(place);
            } else if self.awaits_acknowledgement(place) {
                self.wait_in_store(place, monotonic_ms, log, events);
            }
        }
        waits
    }

    /// From now on what is missing of a send is sent again, content by content.
    fn end_demand(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let send = &mut self.sends[handle];
        send.demand = None;
        self.changes.on_send(send.send_id.clone());
        for ordinal in 0..self.sends[handle].contents.len() as u32 {
            if self.awaits_acknowledgement((handle, ordinal)) {
                let held = self.unacknowledged.len() + self.in_store.len();
                self.timers
                    .set((handle, ordinal), monotonic_ms, held, &mut self.sends);
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
        let send = &mut self.sends[handle];
        let Some(demand) = &mut send.demand else {
            return;
        };
        demand.wanted = 0;
        let first = send.contents.len() as u32;
        let count = contents.len() as u32;
        let ids = (first..first + count).map(|ordinal| content_id(&send.send_id, ordinal));
        let ids: Vec<_> = ids.collect();
        // An id that another participant's content has already cannot be ours any more.
        let is_taken = |id: &Name| self.by_id.contains_key(id) || log.contains(id.as_bytes());
        if count == 0 || count > demand.reserve || ids.iter().any(is_taken) {
            self.end_demand(handle, monotonic_ms);
            return;
        }
        demand.reserve -= count;
        for ((ordinal, message_id), content) in (first..).zip(ids).zip(contents) {
            self.changes.on_content(message_id.clone());
            self.by_id.insert(message_id.clone(), (handle, ordinal));
            let mut content = OutgoingContent::new(message_id, content);
            content.queued = false;
            content.made = true;
            send.contents.push(content);
            self.unacknowledged.replace((handle, ordinal));
            self.due.push_back((handle, ordinal));
        }
        let all = Ordinals::all(first + count);
        for name in &send.complete {
            send.acknowledged.replace(Arc::clone(name), all.clone());
        }
        self.changes.on_send(send.send_id.clone());
    }

    /// `by` says how many contents it lacks of a send.
    pub fn on_stated(
        &mut self,
        handle: OutgoingRef,
        by: &Arc<str>,
        lacking: u32,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let send = &mut self.sends[handle];
        let lacking = lacking.min(send.contents_needed);
        if let Some(demand) = &mut send.demand
            && !send.finished
            && demand.on_stated(by, lacking, monotonic_ms)
        {
            self.hasten_by_number(handle, monotonic_ms);
        }
        if lacking == 0 && self.may_acknowledge(handle, by) {
            self.complete(handle, by, log, events);
        }
    }

    /// Once all who are waited for have spoken, what they lack goes as soon as the last of them had
    /// time to say it all.
    fn hasten(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let at_ms = monotonic_ms + self.config.window_ms();
        let due_ms = self.sends[handle].contents[0].resend_ms;
        if due_ms.is_some_and(|due_ms| due_ms > at_ms) && !self.need(handle).is_unknown {
            self.look_again(handle, at_ms);
        }
    }

    /// What is known to be lacking goes as soon as all who were asked had time to answer: who lacks no
    /// more than another one said may be silent.
    fn hasten_by_number(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let Some(demand) = &self.sends[handle].demand else {
            return;
        };
        let at_ms = monotonic_ms.max(demand.asked_ms() + 2 * self.config.window_ms());
        let due_ms = self.sends[handle].contents[0].resend_ms;
        if due_ms.is_some_and(|due_ms| due_ms > at_ms) && self.need(handle).most > 0 {
            self.look_again(handle, at_ms);
        }
    }

    /// Whether an id is one that a content of ours has, or will have.
    pub fn is_own_id(&self, message_id: &[u8]) -> bool {
        if self.by_id.contains_key(message_id) {
            return true;
        }
        let place = std::str::from_utf8(message_id)
            .ok()
            .and_then(split_content_id);
        let send =
            place.and_then(|(send_id, ordinal)| Some((self.get(self.find(send_id)?)?, ordinal)));
        send.is_some_and(|(send, ordinal)| {
            let reserve = send.demand.as_ref().map_or(0, |demand| demand.reserve);
            (ordinal as usize) < send.contents.len() + reserve as usize
        })
    }

    /// Since when receivers are to be asked what they lack.
    pub fn inquiry_due_ms(&self) -> Option<i64> {
        self.inquiries.front().map(|(_, since_ms)| *since_ms)
    }

    /// Sends whose receivers are asked by the message that leaves now, and who of them: nobody in
    /// particular where it is not known who is to have it.
    pub fn take_inquiries(&mut self) -> Vec<(Name, Vec<Arc<str>>)> {
        let asked = std::mem::take(&mut self.inquiries).into_iter();
        let silent = |(send_id, _): (Name, i64)| {
            let send = self.get(self.find(&send_id)?)?;
            let demand = send.demand.as_ref().filter(|_| !send.finished)?;
            let DeliveredWhen::Named(names) = &self.delivered_when else {
                return Some((send_id, Vec::new()));
            };
            let open = names.iter().filter(|name| !send.complete.contains(*name));
            let silent = open.filter(|name| self.known_to_lack(send, demand, name).is_none());
            Some((send_id, silent.cloned().collect()))
        };
        asked.filter_map(silent).collect()
    }

    // --- again ----------------------------------------------------------------------------------

    /// A content goes again, unless a few of its send ask first what is missing; or its send ends.
    fn send_again_or_ask(
        &mut self,
        place: ContentRef,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let period_ms = self.config.resend_period_ms(0);
        let is_missing = self.is_known_to_be_missing(place);
        let send = &mut self.sends[place.0];
        let count = send.contents.len();
        let content = &mut send.contents[place.1 as usize];
        let left = (content.left_ms, is_missing);
        let due = send.inquiry.on_due(count, left, monotonic_ms, period_ms);
        let put_off_ms = content.put_off_ms.take();
        if put_off_ms.is_some_and(|until_ms| until_ms <= monotonic_ms) && due != Due::Missing {
            // It waited in vain, as if it had gone again.
            content.attempts += 1;
        }
        if content.attempts >= self.retransmissions_max {
            if send.waits() {
                // Its receivers may say nothing of a part, however long the rest takes to leave.
                self.set_timer(place, monotonic_ms);
            } else {
                self.give_up(place.0, log, events);
            }
            return;
        }
        self.unacknowledged.replace(place);
        let Due::Waits(until_ms) = due else {
            self.due.push_back(place);
            return;
        };
        content.put_off_ms = Some(until_ms);
        let held = self.unacknowledged.len() + self.in_store.len();
        self.timers.set(place, until_ms, held, &mut self.sends);
        self.touch_content(place);
    }

    /// Whether somebody whom a content is to reach named what it has since that left, and not it.
    fn is_known_to_be_missing(&self, (handle, ordinal): ContentRef) -> bool {
        let send = &self.sends[handle];
        let left_ms = send.contents[ordinal as usize].left_ms;
        let lacks = |name: &Arc<str>| {
            let held = send.acknowledged.get(name);
            !send.complete.contains(name)
                && send.inquiry.is_heard_since(name, left_ms)
                && held.is_none_or(|held| !held.contains(ordinal))
        };
        match &self.delivered_when {
            DeliveredWhen::Named(names) => names.iter().any(lacks),
            DeliveredWhen::Any | DeliveredWhen::Count(_) => send.acknowledged.keys().any(lacks),
        }
    }

    /// What its receivers lack of a send is known: what waited for that goes once all who answer had
    /// time to.
    fn on_answered(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let at_ms = monotonic_ms + self.config.window_ms();
        let held = self.unacknowledged.len() + self.in_store.len();
        for ordinal in 0..self.sends[handle].contents.len() as u32 {
            let content = &self.sends[handle].contents[ordinal as usize];
            let waits = content.put_off_ms.is_some()
                && content.resend_ms.is_some_and(|due_ms| due_ms > at_ms);
            if waits && self.is_known_to_be_missing((handle, ordinal)) {
                self.timers
                    .set((handle, ordinal), at_ms, held, &mut self.sends);
            }
        }
    }

    /// A content is looked at again in a period.
    fn wait_in_store(
        &mut self,
        place: ContentRef,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        self.set_timer(place, monotonic_ms);
        self.unacknowledged.remove(&place);
        if let Some((oldest, _)) = self.in_store.overflow() {
            self.give_up(oldest, log, events);
        }
    }

    /// Whether somebody whom the content is to reach, and who lacks it, spoke after `stored_ms`.
    fn is_heard_who_lacks(
        &self,
        (handle, ordinal): ContentRef,
        stored_ms: i64,
        participants: &Participants,
    ) -> bool {
        let send = &self.sends[handle];
        let lacks = |name: &Arc<str>| {
            send.acknowledged
                .get(name)
                .is_none_or(|held| !held.contains(ordinal))
        };
        match &self.delivered_when {
            DeliveredWhen::Named(names) => names
                .iter()
                .any(|name| participants.live_ms(name) > Some(stored_ms) && lacks(name)),
            DeliveredWhen::Any | DeliveredWhen::Count(_) => {
                participants.live_since(stored_ms).any(lacks)
            }
        }
    }

    /// The content to send again, counted as an attempt unless it goes as a probe.
    pub fn next_due(&mut self, monotonic_ms: i64) -> Option<ContentRef> {
        while let Some(place) = self.due.pop_front() {
            if !self.awaits_acknowledgement(place) {
                continue;
            }
            if self.is_wanted(place) {
                if self.is_attempt(place) {
                    self.sends[place.0].contents[place.1 as usize].attempts += 1;
                }
                return Some(place);
            }
            self.sends[place.0].contents[place.1 as usize].unconfirmed = false;
            self.set_timer(place, monotonic_ms);
        }
        None
    }

    /// Whether a content that is due counts as one that goes again: no probe, nor one that may not have left.
    fn is_attempt(&self, place: ContentRef) -> bool {
        let may_have_left = !self
            .content(place)
            .is_some_and(|content| content.unconfirmed);
        may_have_left && !self.in_store.contains(place)
    }

    /// Whether one of those the send must reach still lacks a content.
    fn is_wanted(&self, (handle, ordinal): ContentRef) -> bool {
        let send = &self.sends[handle];
        let quorum = match &self.delivered_when {
            DeliveredWhen::Named(names) => {
                let held = |name| send.acknowledged.get(name);
                return names
                    .iter()
                    .any(|name| held(name).is_none_or(|held| !held.contains(ordinal)));
            }
            DeliveredWhen::Any => 1,
            DeliveredWhen::Count(count) => *count,
        };
        if send.acknowledged.len() < quorum {
            return true;
        }
        let mut nearest: Vec<&Ordinals> = send.acknowledged.values().collect();
        nearest.sort_by_key(|held| std::cmp::Reverse(held.count()));
        nearest
            .iter()
            .take(quorum)
            .any(|held| !held.contains(ordinal))
    }

    /// A retransmission failed: it was no attempt, and is due as soon as anything may leave.
    pub fn not_sent_again(&mut self, place: ContentRef) {
        if self.awaits_acknowledgement(place) {
            if self.is_attempt(place) {
                let attempts = &mut self.sends[place.0].contents[place.1 as usize].attempts;
                *attempts = attempts.saturating_sub(1);
            }
            self.due.push_back(place);
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

    fn give_up(&mut self, handle: OutgoingRef, log: &mut Log, events: &mut VecDeque<Event>) {
        let send = &mut self.sends[handle];
        if std::mem::replace(&mut send.given_up, true) {
            return;
        }
        let mut held = Ordinals::NONE;
        send.acknowledged
            .values()
            .for_each(|theirs| held.extend(theirs));
        let send_id = send.send_id.clone();
        let lacking = (0..send.contents.len() as u32).filter(|ordinal| !held.contains(*ordinal));
        let unacknowledged = lacking.collect();
        self.finish(handle, log);
        events.push_back(Event::SendGivenUp {
            send_id,
            unacknowledged,
        });
    }

    // --- acknowledgement ------------------------------------------------------------------------

    /// `by` named a content in a causal history.
    pub fn acknowledge(
        &mut self,
        (handle, ordinal): ContentRef,
        by: &Arc<str>,
        monotonic_ms: i64,
        log: &mut Log,
        events: &mut VecDeque<Event>,
    ) {
        let send = &mut self.sends[handle];
        let mut speaks = false;
        if !send.finished && !send.complete.contains(by) {
            match &mut send.demand {
                Some(demand) => speaks = demand.on_named(by, monotonic_ms),
                None => {
                    let count = send.contents.len();
                    if send.inquiry.on_named(by, count, monotonic_ms) {
                        self.on_answered(handle, monotonic_ms);
                    }
                }
            }
        }
        if !self.may_acknowledge(handle, by) {
            return;
        }
        let send = &mut self.sends[handle];
        let mut held = send.acknowledged.get(by).cloned().unwrap_or(Ordinals::NONE);
        if held.contains(ordinal) {
            if speaks {
                self.hasten(handle, monotonic_ms);
            }
            return;
        }
        held.insert(ordinal);
        if let Some(demand) = &mut send.demand {
            demand.on_news();
            // With half of it what it names counts as all that came.
            speaks |= held.count() == send.contents_needed.div_ceil(2);
        }
        events.push_back(Event::ContentAcknowledged {
            send_id: send.send_id.clone(),
            ordinal,
            message_id: send.contents[ordinal as usize].message_id.clone(),
            by: Arc::clone(by),
        });
        let complete = held.count() >= send.contents_needed;
        send.acknowledged.replace(Arc::clone(by), held);
        self.changes.on_send(send.send_id.clone());
        if speaks {
            self.hasten(handle, monotonic_ms);
        }
        if complete {
            self.complete(handle, by, log, events);
        }
    }

    /// Whether there is room for what `by` holds of a send.
    fn may_acknowledge(&self, handle: OutgoingRef, by: &Arc<str>) -> bool {
        // Those who must have it are few, and have their place among any number of others.
        let is_named =
            matches!(&self.delivered_when, DeliveredWhen::Named(names) if names.contains(by));
        let send = &self.sends[handle];
        let is_full = send.acknowledged.len() >= PARTICIPANTS_PER_SEND_MAX;
        !is_full || is_named || send.acknowledged.contains_key(by)
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
        if !send.complete.insert(Arc::clone(by)) {
            return;
        }
        let held = send.acknowledged.get(by).cloned().unwrap_or(Ordinals::NONE);
        for (ordinal, content) in (0..).zip(&send.contents) {
            if !held.contains(ordinal) {
                events.push_back(Event::ContentAcknowledged {
                    send_id: send.send_id.clone(),
                    ordinal,
                    message_id: content.message_id.clone(),
                    by: Arc::clone(by),
                });
            }
        }
        let all = Ordinals::all(send.contents.len() as u32);
        send.acknowledged.replace(Arc::clone(by), all);
        self.changes.on_send(send.send_id.clone());
        events.push_back(Event::SendAcknowledged {
            send_id: send.send_id.clone(),
            by: Arc::clone(by),
        });
        if !send.finished && is_delivered(&self.delivered_when, &send.complete) {
            self.finish(handle, log);
        }
    }

    /// `by`'s filter, which came with `message_id`, holds the content; whether enough filters do to
    /// count it as acknowledged.
    pub fn possibly_acknowledge(
        &mut self,
        place: ContentRef,
        by: &Arc<str>,
        message_id: &Name,
        events: &mut VecDeque<Event>,
    ) -> bool {
        if !self.awaits_acknowledgement(place) {
            return false;
        }
        let (handle, ordinal) = place;
        let send = &mut self.sends[handle];
        let named = send
            .acknowledged
            .get(by)
            .is_some_and(|held| held.contains(ordinal));
        let content = &mut send.contents[ordinal as usize];
        let known = content.possible.get(by);
        let is_new = known.is_none();
        let repeated = known.is_some_and(|hits| hits.last.as_ref() == Some(message_id));
        if named || repeated || (is_new && content.possible.len() >= PARTICIPANTS_PER_SEND_MAX) {
            return false;
        }
        let was_unheard = content.possible.is_empty();
        let due_ms = content.resend_ms;
        let attempts = content.attempts;
        let hits = content.possible.entry(Arc::clone(by)).or_default();
        hits.count = hits.count.saturating_add(1);
        hits.last = Some(message_id.clone());
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
        if let Some(due_ms) = due_ms.filter(|_| was_unheard) {
            // The longer period holds for the wait that has begun, too.
            let held = self.unacknowledged.len() + self.in_store.len();
            let at_ms = due_ms + self.config.resend_period_ms(attempts);
            self.timers.set(place, at_ms, held, &mut self.sends);
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

    // --- the end of a send ----------------------------------------------------------------------

    /// Resending stops; acknowledgements are still collected, for a bounded number of sends.
    fn finish(&mut self, handle: OutgoingRef, log: &mut Log) {
        let send = &self.sends[handle];
        if !send.given_up && !send.waits() {
            self.count_lacked(handle, 0);
        }
        let send = &mut self.sends[handle];
        send.finished = true;
        if send.demand.take().is_some()
            && !send.waits()
            && let Some(history) = &mut send.history
        {
            history.fields = Vec::new();
        }
        for ordinal in 0..self.sends[handle].contents.len() as u32 {
            self.untrack((handle, ordinal));
            self.on_send_finished((handle, ordinal), log);
        }
        let send = &self.sends[handle];
        self.changes.on_send(send.send_id.clone());
        self.finished_contents += send.contents.len();
        self.finished.push_back((send.contents.len(), handle));
        // One of which contents still wait holds up those behind it.
        while self.finished_contents > FINISHED_CONTENTS_MAX
            && let Some(&(count, oldest)) = self.finished.front()
            && self.sends.get(oldest).is_none_or(|send| !send.waits())
        {
            self.finished.pop_front();
            self.finished_contents -= count;
            self.forget(oldest);
        }
    }

    /// A content of a send that is no longer resent: its bytes are kept for repair only.
    pub fn on_send_finished(&mut self, (handle, ordinal): ContentRef, log: &mut Log) {
        let Some(content) = self.content_mut((handle, ordinal)) else {
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
            let stored = self.by_id.get(&message_id) == Some(&(handle, ordinal));
            log.keep_own(&message_id, wire, stored);
        } else {
            log.forget_stored_original(&message_id);
        }
    }

    fn untrack(&mut self, place: ContentRef) {
        self.unacknowledged.remove(&place);
        self.in_store.discard(place);
        if let Some(content) = self.content_mut(place) {
            content.resend_ms = None;
            content.unconfirmed = false;
        }
    }

    fn touch_content(&mut self, place: ContentRef) {
        if let Some(content) = self.content(place) {
            let message_id = content.message_id.clone();
            self.changes.on_content(message_id);
        }
    }

    fn forget(&mut self, handle: OutgoingRef) {
        let Some(send) = self.sends.remove(handle) else {
            return;
        };
        self.by_send_id.remove(&send.send_id);
        self.changes.on_send(send.send_id);
        for (ordinal, content) in (0..).zip(send.contents) {
            self.unacknowledged.remove(&(handle, ordinal));
            self.in_store.discard((handle, ordinal));
            if self.by_id.get(&content.message_id) == Some(&(handle, ordinal)) {
                self.by_id.remove(&content.message_id);
            }
            self.changes
                .on_forgotten(content.message_id, content.lamport == 0);
        }
    }

    // --- stored form ----------------------------------------------------------------------------

    /// Gives `put` what changed since the last call.
    pub fn poll_persist(&mut self, log: &Log, put: impl FnMut(Stored<'_>)) {
        let (sends, by_id, by_send_id) = (&self.sends, &self.by_id, &self.by_send_id);
        self.changes.poll(
            |message_id| {
                let (send, ordinal) = by_id.get(message_id)?;
                Some((&sends[*send], *ordinal))
            },
            |send_id| by_send_id.get(send_id).map(|send| &sends[*send]),
            log,
            put,
        );
    }

    /// Restores a stored send; sends come in the order of their numbers.
    pub fn restore(&mut self, mut send: OutgoingSend, monotonic_ms: i64) {
        let count = send.contents.len() as u32;
        let whole = Ordinals::all(count);
        let complete = send.acknowledged.iter().filter(|(_, held)| **held == whole);
        send.complete = complete.map(|(name, _)| Arc::clone(name)).collect();
        let (send_id, finished) = (send.send_id.clone(), send.finished);
        let handle = self.sends.insert(send);
        self.by_send_id.insert(send_id, handle);
        for ordinal in 0..count {
            let content = &self.sends[handle].contents[ordinal as usize];
            let queued = content.queued;
            self.by_id
                .insert(content.message_id.clone(), (handle, ordinal));
            if !queued && !finished && content.has_bytes() {
                let never_left = content.lamport == 0;
                self.on_dispatched((handle, ordinal), monotonic_ms);
                if never_left {
                    self.due.push_back((handle, ordinal));
                }
            }
        }
        self.queue
            .restore(handle, &mut self.sends[handle], monotonic_ms);
        if finished {
            self.finished_contents += count as usize;
            self.finished.push_back((count as usize, handle));
        }
        self.changes.on_restored();
    }

    /// Contents that were made on demand and never left go back to what can be made; the ids whose
    /// records are to be deleted, for [`Outgoing::restore_unmade`].
    pub fn unmake(send: &mut OutgoingSend) -> Vec<Name> {
        let before = send.contents.len() as u32;
        let mut ids = Vec::new();
        while !send.finished
            && let Some(last) = send
                .contents
                .pop_if(|last| last.made && last.lamport == 0 && !last.queued)
        {
            ids.push(last.message_id);
        }
        let count = send.contents.len() as u32;
        if let Some(demand) = &mut send.demand {
            demand.reserve += before - count;
        }
        for held in send.acknowledged.values_mut() {
            held.truncate(count);
        }
        ids
    }

    /// Restores that contents of a send are to be made again.
    pub fn restore_unmade(&mut self, send_id: &Name, ids: Vec<Name>) {
        if !ids.is_empty() {
            self.changes.on_send(send_id.clone());
        }
        for message_id in ids {
            self.changes.on_content(message_id);
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
            self.look_again(handle, monotonic_ms + 2 * self.config.resend_period_ms(0));
        }
        left_out
    }

    /// Restores which contents have a record of their own.
    pub fn restore_stored(&mut self, stored: impl IntoIterator<Item = Name>) {
        self.changes.restore_stored(stored);
    }

    /// Restores how many sends there were.
    pub fn restore_count(&mut self, sends_so_far: u64) {
        self.sends_so_far = sends_so_far;
    }

    /// What is counted is what is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        assert_eq!(self.sends.len(), self.by_send_id.len());
        let queued = || {
            self.iter()
                .flat_map(|send| send.contents.iter().filter(|content| content.queued))
        };
        assert_eq!(self.queue.contents(), queued().count());
        assert_eq!(
            self.queue.contents(),
            self.iter().map(|send| send.queue.len()).sum::<usize>()
        );
        assert_eq!(
            self.queue.bytes(),
            queued().map(|content| content.size_bytes).sum::<usize>()
        );
        assert_eq!(
            self.finished_contents,
            self.finished.iter().map(|(count, _)| count).sum::<usize>()
        );
        let is_held = |place: ContentRef| self.content(place).is_some();
        assert!(
            self.by_id
                .values()
                .copied()
                .chain(self.awaiting())
                .all(is_held)
        );
    }
}

fn is_delivered(delivered_when: &DeliveredWhen, complete: &BTreeSet<Arc<str>>) -> bool {
    match delivered_when {
        DeliveredWhen::Named(names) => names.is_subset(complete),
        DeliveredWhen::Any => !complete.is_empty(),
        DeliveredWhen::Count(count) => complete.len() >= *count,
    }
}

//! What leaves: causal history, filter and requests within the header limit, encoded at the last
//! moment.

use hashlink::LinkedHashMap;

use super::config::Now;
use super::events::{Kinds, Transmit, TransmitKind};
use super::flights::Flight;
use super::history::History;
use super::ids::entry_bytes_max;
use super::log::EntryRef;
use super::machine::Machine;
use super::name::Name;
use super::octets::{KEPT_BYTES_MIN, Octets};
use super::outgoing::{ContentRef, FixedHistory};
use super::repair::fitting;
use super::sync::lacking::{inquiry, statement};
use crate::wire::sds::{HistoryEntry, Parts, WireFormat};

/// A sender that was heard within so many acknowledgement timeouts goes on counting.
const COUNTING_TIMEOUTS: i64 = 4;
/// A filter's tag and length, at most.
const FILTER_FRAME_BYTES: usize = 8;

impl Machine {
    pub(super) fn next_transmit(&mut self, now: Now, kinds: Kinds) -> Option<Transmit> {
        let at_ms = now.monotonic_ms;
        if kinds.has(TransmitKind::Sync)
            && let Some(sync) = self.next_sync(now)
        {
            return Some(sync);
        }
        if kinds.has(TransmitKind::Repair) {
            while let Some(message_id) = self.answering.take_answer(at_ms) {
                let own = self.outgoing.wire(message_id.as_bytes()).cloned();
                if let Some(message) = own.or_else(|| self.log.original(message_id.as_bytes())) {
                    self.hear_content(&message_id);
                    self.answering.on_answer_left(message.len(), at_ms);
                    return Some(self.transmission.leave(
                        TransmitKind::Repair,
                        message_id,
                        message,
                        Flight::Other,
                    ));
                }
            }
        }
        if kinds.has(TransmitKind::Repair)
            && self.needs.queued() > 0
            && let Some(parity) = self.next_parity(now)
        {
            return Some(parity);
        }
        if kinds.has(TransmitKind::Ephemeral)
            && let Some((send_id, message_id, content)) = self.transmission.ephemerals.pop_front()
        {
            let wire = self.encode(&message_id, None, &[], None, &[], Some(&content))?;
            let transmit =
                self.transmission
                    .leave(TransmitKind::Ephemeral, message_id, wire, Flight::Other);
            return Some(Transmit {
                send_id: Some(send_id),
                ordinal: Some(0),
                ..transmit
            });
        }
        // In turn, so that under a tight limit neither waits for all of the other.
        match self.transmission.again_left {
            true => self
                .next_new(now, kinds)
                .or_else(|| self.next_again(now, kinds)),
            false => self
                .next_again(now, kinds)
                .or_else(|| self.next_new(now, kinds)),
        }
    }

    /// A content that is due again.
    fn next_again(&mut self, now: Now, kinds: Kinds) -> Option<Transmit> {
        if !kinds.has(TransmitKind::Retransmission) {
            return None;
        }
        let place = self.outgoing.next_due(now.monotonic_ms)?;
        let wire = self.wire_of(place, now)?;
        self.outgoing.on_dispatched(place, now.monotonic_ms);
        self.transmission.again_left = true;
        Some(self.leave_content(TransmitKind::Retransmission, place, wire))
    }

    /// A content that leaves for the first time.
    fn next_new(&mut self, now: Now, kinds: Kinds) -> Option<Transmit> {
        let at_ms = now.monotonic_ms;
        let (first, further) = (
            kinds.has(TransmitKind::First),
            kinds.has(TransmitKind::Further),
        );
        if !(first || further) || self.outgoing.queue().contents() == 0 {
            return None;
        }
        let may_begin = first && self.outgoing.may_begin();
        let place = self.outgoing.next(may_begin, further, at_ms)?;
        let begun = self
            .outgoing
            .get(place.0)
            .is_some_and(|send| send.dispatched > 0);
        let kind = if begun {
            TransmitKind::Further
        } else {
            TransmitKind::First
        };
        let wire = self.wire_of(place, now)?;
        self.outgoing.on_dispatched(place, at_ms);
        self.transmission.again_left = false;
        Some(self.leave_content(kind, place, wire))
    }

    /// The message of a content that leaves now, encoded the first time.
    fn wire_of(&mut self, place: ContentRef, now: Now) -> Option<Octets> {
        match self.outgoing.content(place)?.wire.clone() {
            Some(wire) => Some(wire),
            None => self.encode_content(place, now),
        }
    }

    fn leave_content(&mut self, kind: TransmitKind, place: ContentRef, wire: Octets) -> Transmit {
        let send_id = self.outgoing.get(place.0).map(|send| send.send_id.clone());
        let content = self.outgoing.content_mut(place).expect("it leaves now");
        let (message_id, attempt) = (content.message_id.clone(), content.attempts);
        let flight = Flight::Content(kind, place, message_id.clone(), wire.clone());
        let transmit = self.transmission.leave(kind, message_id, wire, flight);
        content.in_flight = transmit.transmit_id;
        Transmit {
            send_id,
            ordinal: Some(place.1),
            attempt,
            ..transmit
        }
    }

    // --- answers --------------------------------------------------------------------------------

    /// The node propagated a transmission; `retrieval_hint` is the transport hash of what it
    /// propagated.
    pub fn handle_transmitted(
        &mut self,
        transmit_id: u64,
        retrieval_hint: Option<&[u8]>,
        now: Now,
    ) {
        let flight = self.transmission.in_flight.remove(&transmit_id);
        let Some(Flight::Content(_, place, message_id, wire)) = flight else {
            return;
        };
        match self.outgoing.content_mut(place) {
            Some(content) => {
                content.in_flight = 0;
                self.outgoing.on_propagated(place, now.monotonic_ms);
                if self.outgoing.get(place.0).is_some_and(|send| send.finished) {
                    self.outgoing.on_send_finished(place, &mut self.log);
                }
            }
            // Of a send that was cancelled meanwhile others may have it now.
            None if self.config.enable_repair => self.log.keep_own(&message_id, wire, false),
            None => self.log.forget_stored_original(&message_id),
        }
        // The hint is the newest propagated hash: a store has that one last.
        if let Some(hint) = retrieval_hint
            && let Some(entry) = self.log.find(message_id.as_bytes())
        {
            if let Some(held) = self.log.get_mut(entry) {
                held.retrieval_hint = Some(hint).into();
            }
            self.log.touch(entry);
        }
    }

    /// A transmission of a send that was taken back does not leave.
    pub fn handle_transmit_withdrawn(&mut self, transmit_id: u64) {
        self.transmission.in_flight.remove(&transmit_id);
    }

    /// Ids of the transmissions that have no answer yet.
    #[cfg(any(test, debug_assertions))]
    pub fn transmissions_in_flight(&self) -> impl Iterator<Item = u64> {
        self.transmission.in_flight.keys().copied()
    }

    /// Whether an ephemeral message waits to leave.
    #[cfg(debug_assertions)]
    pub fn is_ephemeral_queued(&self, send_id: &str) -> bool {
        let queued = &self.transmission.ephemerals;
        queued.iter().any(|(queued, ..)| **queued == *send_id)
    }

    /// The node could not send: a first transmission goes back to the queue, a later one is due; none
    /// counts.
    pub fn handle_transmit_failed(&mut self, transmit_id: u64, now: Now) {
        match self.transmission.in_flight.remove(&transmit_id) {
            None | Some(Flight::Other) => {}
            Some(Flight::Sync(said)) => {
                let members = self.participants.len();
                self.sync_schedule
                    .on_sync_failed(now, members, &mut *self.rng);
                for entry in said {
                    self.owe(entry, now);
                }
            }
            Some(Flight::Content(kind, place, ..)) => self.put_content_back(kind, place),
        }
    }

    /// A transmission of a content that is void since [`Machine::withdraw_among`]: its message leaves as it is now.
    pub fn handle_transmit_void(&mut self, transmit_id: u64) {
        let flight = self.transmission.in_flight.remove(&transmit_id);
        if let Some(Flight::Content(kind, place, ..)) = flight {
            self.put_content_back(kind, place);
        }
    }

    fn put_content_back(&mut self, kind: TransmitKind, place: ContentRef) {
        let Some(content) = self.outgoing.content_mut(place) else {
            return;
        };
        content.in_flight = 0;
        if kind == TransmitKind::Retransmission {
            self.outgoing.not_sent_again(place);
        } else {
            self.outgoing.put_back(place);
        }
    }

    // --- composing ------------------------------------------------------------------------------

    pub(super) fn encode(
        &mut self,
        message_id: &Name,
        lamport_timestamp: Option<u64>,
        history_fields: &[u8],
        bloom_filter: Option<&[u8]>,
        repair_request: &[HistoryEntry],
        content: Option<&[u8]>,
    ) -> Option<Octets> {
        let mut wire = std::mem::take(&mut self.transmission.spare_wire);
        let parts = Parts {
            sender_id: &self.sender_id,
            message_id,
            channel_id: &self.channel_id,
            lamport_timestamp,
            history_fields,
            bloom_filter,
            repair_request,
            content,
        };
        let wire_format = self.config.wire_format;
        // The wire "nim" has no ephemeral messages: its channels refuse to send one.
        let made = match content.filter(|content| content.len() >= KEPT_BYTES_MIN) {
            Some(content) => parts
                .encode_around(wire_format)
                .map(|(before, behind)| self.join.join(&[&before, content, &behind])),
            None => parts
                .encode_into(&mut wire, wire_format)
                .map(|()| Octets::from(wire.as_slice())),
        };
        wire.clear();
        self.transmission.spare_wire = wire;
        made.ok()
    }

    /// The causal history of a content: the configured part, the heads, which make it follow all that
    /// was delivered here before it, and what was received since we last spoke.
    fn history_of_content(&mut self) -> History {
        let counted = |entry: &EntryRef| {
            let held = self.log.get(*entry);
            held.is_some_and(|held| self.lacking.counts(&held.sender_id))
        };
        // What a number will say need not be named.
        let delivered = self.acknowledgements.delivered();
        let mut history = std::mem::take(&mut self.transmission.spare_history).cleared();
        let mut sources = history.take_sources();
        sources.extend(
            self.heads
                .entries()
                .chain(delivered.filter(|entry| !counted(entry))),
        );
        let budget = self.transmission.header_budget;
        let size = self.config.causal_history_size;
        history.compose_of(&mut self.log, size, sources, budget)
    }

    /// The history of a sync: what was received since we last spoke, what may not have been heard, and what others
    /// lack, with hints, so that they can fetch it. Half of it is for causal history `by_schedule`: other syncs are
    /// there to acknowledge.
    fn history_of_sync(
        &mut self,
        sources: &[EntryRef],
        budget: usize,
        by_schedule: bool,
    ) -> History {
        let owed: Vec<EntryRef> = self.anti_entropy.owed().collect();
        let size = self.config.causal_history_size;
        History::default().compose(
            &mut self.log,
            size,
            sources.iter().copied(),
            owed.into_iter(),
            budget,
            Some(if by_schedule { 2 } else { 1 }),
        )
    }

    fn filter_within(&mut self, budget: usize, by_sync: bool, now: Now) -> Option<Vec<u8>> {
        let fits = self.filter.size_bytes() + FILTER_FRAME_BYTES <= budget;
        let is_due = self.filter.is_due(now, self.participants.len(), by_sync);
        (is_due && fits).then(|| self.take_filter(now, by_sync))
    }

    fn say(&mut self, said: &[EntryRef], by_sync: bool, now: Now) -> Vec<EntryRef> {
        let members = self.participants.len();
        self.acknowledgements
            .said(said, by_sync, &mut self.log, now, members, &mut *self.rng)
    }

    fn encode_content(&mut self, place: ContentRef, now: Now) -> Option<Octets> {
        let (handle, ordinal) = place;
        if self.outgoing.get(handle)?.history.is_none() {
            self.fix_history(handle, now);
        }
        let send = self.outgoing.get_mut(handle)?;
        let content = send.contents[ordinal as usize].content.clone()?;
        // Given back below.
        let mut fixed = send.history.take()?;
        let last = send.dispatched as usize + 1 == send.scheduled();
        let is_on_demand = send.demand.is_some();
        let is_spare = self.config.by_send() && ordinal >= send.contents_needed;
        // Receivers learn that they are to say how much they lack: with the last one of a burst, and before
        // that, since those who lose that one would name all that came.
        let ends = !send.waits() && (last || ordinal as usize + 1 == send.contents.len());
        let is_early = ordinal == 0 || ordinal as usize == send.scheduled() / 2;
        let asks = is_on_demand && (ends || is_early);
        let inquiry = asks.then(|| statement(&send.send_id, 0, &self.sender_id));
        // The filter rides on the last content of a burst, or on every one.
        let rides = self.config.bloom_interval_ms == 0 || !send.waits();
        let leaving = &send.contents[ordinal as usize];
        let message_id = leaving.message_id.clone();
        // Nobody can answer for the id of parity that is not kept: data stands for the send.
        let kept = leaving.made.then(|| send.last_data()).flatten().cloned();
        let lamport = self.lamport.tick(now);
        if is_on_demand {
            self.filter.on_counted(now.monotonic_ms);
        }
        let requests = self.requests_beside(inquiry, fixed.header_left, now);
        let filter = fixed.bloom_filter.as_deref().filter(|_| rides);
        let wire = self.encode(
            &message_id,
            Some(lamport),
            &fixed.fields,
            filter,
            &requests,
            Some(&content),
        )?;
        self.outgoing.on_encoded(place, lamport, wire.clone());
        let sender_id = std::sync::Arc::clone(&self.sender_id);
        let entry = self.add_to_log(&message_id, &sender_id, lamport, None, ordinal);
        if is_spare {
            self.spare(entry);
        }
        self.outgoing.get_mut(handle)?.dispatched += 1;
        if last {
            let named = match kept {
                Some(id) => self.log.find(id.as_bytes()),
                None => Some(entry),
            };
            self.follow_own(named, &fixed.ids);
            if !is_on_demand {
                let mut fields = std::mem::take(&mut fixed.fields);
                fields.clear();
                self.transmission.spare_fields = fields;
            }
            fixed.bloom_filter = None;
        }
        if let Some(send) = self.outgoing.get_mut(handle) {
            send.history = Some(fixed);
        }
        self.sync_schedule.on_content_sent(now, &mut *self.rng);
        Some(wire)
    }

    /// The requests that a message has room for beside the question that it asks: none where that alone is too long.
    fn requests_beside(
        &mut self,
        inquiry: Option<HistoryEntry>,
        room: usize,
        now: Now,
    ) -> Vec<HistoryEntry> {
        let mut requests: Vec<HistoryEntry> = inquiry.into_iter().collect();
        let asking_bytes: usize = requests.iter().map(entry_bytes_max).sum();
        match room.checked_sub(asking_bytes) {
            Some(left) => requests.extend(self.take_requests(now, left)),
            None => requests.clear(),
        }
        self.settle_requests(&requests);
        requests
    }

    /// The last content of a burst leaves: what is sent from now on names the send, by `named`. While it is under way,
    /// for long perhaps, it would hold up at every receiver what follows it.
    ///
    /// A log that is shorter than the parity of a send has nothing to name it by. Where no more is made before all that
    /// was made has left, a last one leaves once more: what followed it names it.
    fn follow_own(&mut self, named: Option<EntryRef>, causes: &[Name]) {
        if let Some(named) = named
            && self.log.deliver(named)
        {
            self.heads.deliver(&self.log, named, causes);
        }
    }

    /// All contents of a send carry the same history and filter, so that none depends on a sibling.
    fn fix_history(&mut self, handle: super::outgoing::OutgoingRef, now: Now) {
        let history = self.history_of_content();
        let bloom_filter = self.filter_within(history.left, false, now);
        let filter_bytes = bloom_filter
            .as_ref()
            .map_or(0, |filter| filter.len() + FILTER_FRAME_BYTES);
        let spare = std::mem::take(&mut self.transmission.spare_fields);
        let fixed = FixedHistory {
            ids: history.ids(&self.log),
            fields: history.encode(&self.log, self.config.wire_format, spare),
            bloom_filter,
            header_left: history.left.saturating_sub(filter_bytes),
        };
        self.say(&history.said, false, now);
        self.transmission.spare_history = history;
        if let Some(send) = self.outgoing.get_mut(handle) {
            send.history = Some(fixed);
            if send.contents.len() > 1 {
                self.outgoing.touch(handle);
            }
        }
    }

    /// A sync, where one is due and there is something to say.
    fn next_sync(&mut self, now: Now) -> Option<Transmit> {
        let at_ms = now.monotonic_ms;
        self.put_off_numbers(now);
        self.anti_entropy.sample(&self.log, at_ms);
        let asked = self.ask_by_filter(now);
        let is_due = |due_ms: Option<i64>| due_ms.is_some_and(|due_ms| due_ms <= at_ms);
        let is_scheduled = is_due(self.sync_schedule.due_ms);
        let by_schedule = asked || is_scheduled || is_due(self.anti_entropy.due_ms);
        let inquires = is_due(self.outgoing.inquiry_due_ms());
        if inquires {
            self.filter.on_counted(at_ms);
        }
        let wanted = by_schedule || inquires || is_due(self.acknowledgements.due_ms);
        let again = is_due(self.lacking.again_ms());
        if !wanted && !again && !is_due(self.asking.next_request_ms()) {
            return None;
        }
        let budget = self.transmission.header_budget;
        let (sources, mut requests, stated) = if wanted {
            self.statements(budget, now)
        } else {
            (Vec::new(), Vec::new(), Vec::new())
        };
        if again {
            let taken: usize = requests.iter().map(entry_bytes_max).sum();
            requests.extend(self.take_numbers_again(now, budget.saturating_sub(taken)));
        }
        let stating_bytes: usize = requests.iter().map(entry_bytes_max).sum();
        let only_stated = !requests.is_empty() && sources.is_empty() && !by_schedule;
        let asked_for = self.take_requests(now, budget.saturating_sub(stating_bytes));
        let only_stated = only_stated && asked_for.is_empty();
        requests.extend(asked_for);
        self.settle_requests(&requests);
        if !wanted {
            if requests.is_empty() {
                return None;
            }
            self.asking.on_sync_for_requests(at_ms);
        }
        let taken: usize = requests.iter().map(entry_bytes_max).sum();
        let history = match only_stated {
            // Who is to hear it knows the send.
            true => History::default(),
            false => self.history_of_sync(&sources, budget.saturating_sub(taken), by_schedule),
        };
        if history.is_empty() && requests.is_empty() {
            let members = self.participants.len();
            self.sync_schedule
                .on_nothing_to_say(now, members, &mut *self.rng);
            return None;
        }
        self.filter.asked |= asked;
        // What a number says takes no filter, and neither does a request, unless every message is to
        // have one.
        let for_requests = !wanted && self.config.bloom_interval_ms > 0;
        let takes_filter = !only_stated && !for_requests;
        let sync = self.leave_sync(&history, &requests, stated, takes_filter, now);
        if is_scheduled {
            let members = self.participants.len();
            self.acknowledgements
                .follow_up(now, members, &mut *self.rng);
        }
        sync
    }

    /// Whether a sync is to ask by its filter what is missing: where that is due, and senders do not count it.
    fn ask_by_filter(&mut self, now: Now) -> bool {
        let at_ms = now.monotonic_ms;
        let due_ms = self.filter_request.due_ms;
        if due_ms.is_none_or(|due_ms| due_ms > at_ms)
            || (self.is_counted_by_senders(now) && self.filter_request.put_off(at_ms))
        {
            return false;
        }
        let missing = self.asking.requests_held() > 0;
        if !missing {
            self.settle_filter();
        }
        self.filter_request.take(missing, &self.filter, at_ms)
    }

    /// Encodes a sync, which leaves now. What it names, and the contents that were `stated` by number, count as said.
    fn leave_sync(
        &mut self,
        history: &History,
        requests: &[HistoryEntry],
        stated: Vec<EntryRef>,
        takes_filter: bool,
        now: Now,
    ) -> Option<Transmit> {
        let message_id = self.transmission.new_sync_id();
        let lamport = self.lamport.tick(now);
        let bloom_filter = match takes_filter {
            true => self.filter_within(history.left, true, now),
            false => None,
        };
        let fields = history.encode(&self.log, self.config.wire_format, Vec::new());
        let content: Option<&[u8]> = (self.config.wire_format == WireFormat::Nim).then_some(&[]);
        let filter = bloom_filter.as_deref();
        let wire = self.encode(
            &message_id,
            Some(lamport),
            &fields,
            filter,
            requests,
            content,
        )?;
        let said: Vec<EntryRef> = history.said.iter().copied().chain(stated).collect();
        let newly = self.say(&said, true, now);
        let at_ms = now.monotonic_ms;
        self.anti_entropy
            .on_named(history.entries(), &self.log, at_ms);
        self.anti_entropy.put_off(at_ms);
        let members = self.participants.len();
        self.sync_schedule
            .on_sync_sent(now, members, &mut *self.rng);
        let flight = Flight::Sync(newly);
        let sync = self
            .transmission
            .leave(TransmitKind::Sync, message_id, wire, flight);
        Some(sync)
    }

    /// How much is lacking is said once a burst has ended: before that the number is too large, and
    /// would make its sender send as much.
    fn put_off_numbers(&mut self, now: Now) {
        let is_due = |due_ms: &i64| *due_ms <= now.monotonic_ms;
        if self.acknowledgements.due_ms.filter(is_due).is_none() || !self.is_in_burst(now) {
            return;
        }
        let is_counted = |entry: EntryRef| {
            let held = self.log.get(entry);
            held.is_some_and(|held| self.lacking.counts(&held.sender_id))
        };
        let is_other = self.lacking.is_asked()
            || self.acknowledgements.delivered().next().is_some()
            || !self.acknowledgements.incomplete().all(is_counted);
        if !is_other {
            let members = self.participants.len();
            self.acknowledgements.put_off(now, members, &mut *self.rng);
        }
    }

    /// Whether contents of which numbers tell are coming just now.
    pub(super) fn is_in_burst(&self, now: Now) -> bool {
        let gap_ms = self.config.gap_ms();
        let last_ms = self.filter.counted_last_ms();
        last_ms.is_some_and(|last_ms| now.monotonic_ms - last_ms < gap_ms)
    }

    /// Whether the senders of all that is asked for count what is lacking of it, or hear it by name, and were heard
    /// lately.
    fn is_counted_by_senders(&self, now: Now) -> bool {
        let lately_ms = COUNTING_TIMEOUTS * self.config.acknowledgement_timeout_ms;
        let since_ms = now.monotonic_ms - lately_ms;
        let is_counted = |id: &Name| {
            let missing = self.incoming.missing().get(id.as_bytes());
            let send = missing.and_then(|missing| self.incoming.get(missing.send));
            send.is_some_and(|send| {
                // Of a send that is repeated every content is named in place of their number.
                self.lacking.counts(&send.sender_id)
                    && self.participants.live_ms(&send.sender_id) > Some(since_ms)
                    && (send.is_repeated
                        || self.count_lacking(&send.sender_id, &send.send_id).is_some())
            })
        };
        self.asking.requests_held() > 0 && self.asking.requests().all(|(id, _)| is_counted(id))
    }

    /// What a sync says of what came: the entries that it names, and how much is lacking of sends whose
    /// senders count that, with the entries which need not be named.
    fn statements(
        &mut self,
        budget: usize,
        now: Now,
    ) -> (Vec<EntryRef>, Vec<HistoryEntry>, Vec<EntryRef>) {
        let mut sources: Vec<EntryRef> = self.acknowledgements.delivered().collect();
        sources.extend(self.acknowledgements.incomplete());
        sources.extend(self.acknowledgements.repeated(&self.log, now));
        let inquiries = self.outgoing.take_inquiries();
        let mut requests: Vec<HistoryEntry> = inquiries
            .iter()
            .map(|asked| inquiry(asked, &self.sender_id))
            .collect();
        let mut sends = LinkedHashMap::new();
        let is_in_burst = self.is_in_burst(now);
        sources.retain(|entry| {
            let held = self.log.get(*entry);
            let Some(held) = held.filter(|held| self.lacking.counts(&held.sender_id)) else {
                return true;
            };
            let Some((send_id, _)) = self.incoming.place_of(&held.message_id) else {
                return true;
            };
            match self.count_lacking(&held.sender_id, send_id) {
                None => return true,
                Some(lacking) if lacking > 0 && is_in_burst => return false,
                Some(_) => {}
            }
            let key = (std::sync::Arc::clone(&held.sender_id), Name::new(send_id));
            sends.entry(key).or_insert_with(Vec::new).push(*entry);
            false
        });
        let mut lacking = std::mem::take(&mut self.lacking);
        let statements = lacking.take(sends, |sender_id, send_id| {
            self.count_lacking(sender_id, send_id)
        });
        self.lacking = lacking;
        requests.extend(statements.requests);
        (sources, fitting(requests, budget), statements.said)
    }

    /// These are asked for now. What is asked for no more is missing no more.
    pub(super) fn settle_requests(&mut self, requests: &[HistoryEntry]) {
        for request in requests {
            self.incoming.on_asked(&request.message_id);
        }
        for message_id in self.asking.poll_silent() {
            let (incoming, mut around) = self.around();
            incoming.forget_silent(&message_id, &mut around);
        }
    }
}

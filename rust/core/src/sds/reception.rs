//! What comes from the network: decoded, judged, and spread over the parts of the machine.

use std::sync::Arc;

use memchr::memchr;

use super::config::{DeliveredWhen, Now};
use super::events::{Dropped, Event};
use super::ids::{
    CONTENTS_PER_SEND_MAX, MESSAGE_ID_BYTES_MAX, RETRIEVAL_HINT_BYTES_MAX, SENDER_ID_BYTES_MAX,
    content_id, split_lacking_id,
};
use super::incoming::{Naming, Rival, SendRef};
use super::log::EntryRef;
use super::machine::Machine;
use super::members::repaired;
use super::name::Name;
use super::octets::{Octets, Part};
use super::outgoing::OutgoingContent;
use super::sync::filter::PeerFilter;
use super::sync::lacking::{asked_of_anybody, asks};
use crate::wire::sds::{EntryView, HistoryEntry, MessageView};

/// SDS-R: a message carries at most three requests. What a peer asks beyond this is not looked at.
pub const REQUESTS_HEARD_MAX: usize = 100;
/// Unknown entries of one history that are tracked; the newest stand last, so the last ones count.
pub const UNKNOWN_PER_MESSAGE_MAX: usize = 1_000;
/// Of a longer history a waiting send keeps both ends: the heads stand first, the causal history
/// last.
const HISTORY_ENDS: usize = 256;
/// Most histories name fewer.
const NAMED_USUAL_MAX: usize = 1_024;
/// A log of so many entries takes filters to be weighed against it at once; a longer one does so again
/// after this.
const CONCLUDED_AT_ONCE_MAX: usize = 2_000;
const CONCLUDED_AGAIN_MS: i64 = 1_000;

/// So many acknowledgement timeouts whoever said that it has all of a send is silent about more of it.
const QUIET_TIMEOUTS: i64 = 4;

/// The send of which a request says how much is lacking, and how much.
fn lacking_of<'a>(request: &EntryView<'a>) -> Option<(&'a str, u32)> {
    split_lacking_id(std::str::from_utf8(request.message_id).ok()?)
}

/// What the ids of a history are here.
struct Followed<'a> {
    known: Vec<EntryRef>,
    /// Here beside another participant's that came first under the id.
    beside: Vec<EntryView<'a>>,
    unknown: Vec<EntryView<'a>>,
}

/// A message of another participant that has a place in the order of all: a content or a sync.
struct Received<'a> {
    message: MessageView<'a>,
    message_id: Name,
    sender_id: Arc<str>,
    lamport: u64,
    /// `None` for a sync.
    content: Option<&'a [u8]>,
    /// The message as it came.
    data: &'a Octets,
    from_store: bool,
}

impl Machine {
    /// Takes any bytes from the network. Nothing that a peer sends is an error: it becomes
    /// [`Event::MessageDropped`].
    ///
    /// A known message `from_store` is no sign that its sender waits for an acknowledgement.
    pub fn handle_message(
        &mut self,
        data: &Octets,
        retrieval_hint: Option<&[u8]>,
        from_store: bool,
        now: Now,
    ) {
        self.incoming.begin_step();
        if let Err(reason) = self.take(data, retrieval_hint, from_store, now) {
            self.events.push_back(Event::MessageDropped(reason));
        }
    }

    /// Takes one message: refused, of ours, ephemeral, or else a content or a sync.
    fn take(
        &mut self,
        data: &Octets,
        retrieval_hint: Option<&[u8]>,
        from_store: bool,
        now: Now,
    ) -> Result<(), Dropped> {
        let decoded = MessageView::decode(data, self.config.wire_format);
        let message = decoded.map_err(|_| Dropped::Undecodable)?;
        if *message.channel_id != *self.channel_id.as_bytes() {
            return Err(Dropped::OtherChannel);
        }
        check_ids(&message)?;
        let message_id = Name::from_wire(message.message_id);
        let content = message.content.filter(|content| !content.is_empty());
        if *message.sender_id == *self.sender_id.as_bytes() {
            if !from_store {
                self.hear_own(&message_id, content, data, now);
            }
            let lamport = message.lamport_timestamp;
            return self.take_own(&message_id, lamport, content.is_some(), from_store);
        }
        let sender_id = self.sender_ids.text(message.sender_id);
        let Some(lamport) = message.lamport_timestamp else {
            return self.take_ephemeral(message_id, sender_id, &message, data);
        };
        let came = Received {
            message,
            message_id,
            sender_id,
            lamport,
            content,
            data,
            from_store,
        };
        if let Some(content) = content
            && !self.admit_content(&came, content, now)?
        {
            return Ok(());
        }
        self.take_admitted(&came, retrieval_hint, now);
        Ok(())
    }

    /// Takes a sync, or a content that is new.
    fn take_admitted(&mut self, came: &Received<'_>, retrieval_hint: Option<&[u8]>, now: Now) {
        let newness_ms = self.hear_sender(came, now);
        // What a store repeats was asked long ago; whoever lacks it still asks again.
        if !came.from_store {
            let (requests, has_content) = (&came.message.repair_request, came.content.is_some());
            self.take_statements(requests, &came.sender_id, has_content, now);
            self.heed_requests(came, now.monotonic_ms);
        }
        let Some(content) = came.content else {
            self.events.push_back(Event::SyncReceived {
                sender_id: Arc::clone(&came.sender_id),
            });
            self.take_history(came, None, newness_ms, now);
            self.on_sync(now);
            return;
        };
        let has_said_all = self.has_said_whole(&came.sender_id, &came.message_id, now);
        let (ours, _) = self.asking.asked_for(&came.message_id);
        let (send, entry) = self.take_content(came, content, retrieval_hint, now);
        if came.from_store {
            self.incoming.on_stored(send);
        }
        self.take_history(came, Some(send), newness_ms, now);
        if ours > 0 {
            let named = came.message.causal_history.iter();
            let named = named.map(|entry| entry.message_id);
            self.asking.on_named_by_answer(named, now.monotonic_ms);
        }
        if !has_said_all {
            self.owe(entry, now);
        }
    }

    /// Whether a content is new, and may be held. False where it was dealt with as a rival of one that is held.
    fn admit_content(
        &mut self,
        came: &Received<'_>,
        content: &[u8],
        now: Now,
    ) -> Result<bool, Dropped> {
        let id = came.message_id.as_bytes();
        if !came.from_store {
            self.hear_content(&came.message_id);
        }
        if let Some(known) = self.log.find(id) {
            self.take_duplicate(known, came, content, now)?;
            return Ok(false);
        }
        if self.outgoing.is_own_id(id) {
            // The id of a content of ours that has yet to leave: forged, or the same content.
            return Err(Dropped::Duplicate);
        }
        if self.is_replayed(came, now) {
            return Err(Dropped::Replayed);
        }
        if self.incoming.is_full() {
            let (incoming, mut around) = self.around();
            if !incoming.make_room(&came.message_id, &came.sender_id, &mut around) {
                return Err(Dropped::OverLimit);
            }
        }
        Ok(true)
    }

    /// The sender takes part. For one that is new: how long ago this participant's own first receipt was.
    fn hear_sender(&mut self, came: &Received<'_>, now: Now) -> Option<i64> {
        let is_new = self.participants.hear(&came.sender_id, now.monotonic_ms);
        if !came.from_store {
            self.participants
                .hear_live(&came.sender_id, now.monotonic_ms);
        }
        if is_new { self.newness_ms(now) } else { None }
    }

    /// SDS-R: the contents that a message asks for.
    fn heed_requests(&mut self, came: &Received<'_>, monotonic_ms: i64) {
        let requests = &came.message.repair_request;
        if requests.is_empty() || !self.answering.heed(came.message_id.clone(), came.lamport) {
            return;
        }
        let (_, within_ms) = self.times_without_store(monotonic_ms);
        self.answering.set_within_ms(within_ms);
        let heard = &requests[..requests.len().min(REQUESTS_HEARD_MAX)];
        for (position, request) in heard.iter().enumerate() {
            if lacking_of(request).is_some() {
                continue;
            }
            let own = self.outgoing.find_content(request.message_id);
            let own = own.and_then(|own| self.outgoing.content(own));
            if own.is_some_and(OutgoingContent::is_leaving) {
                // It answers the request itself.
                continue;
            }
            let is_own = || own.is_some_and(|own| own.wire.is_some());
            let wanted: HistoryEntry = (*request).into();
            // However often it stands here, it was asked for once.
            let is_same = |earlier: &EntryView<'_>| earlier.message_id == request.message_id;
            if !heard[..position].iter().any(is_same) {
                self.asking.on_request(&wanted.message_id, monotonic_ms);
            }
            // Another content than the one that is asked for may be held under the id.
            self.answering
                .on_request((&wanted, &came.sender_id), &self.log, is_own, monotonic_ms);
        }
    }

    /// What somebody's sync named is known: whether ours is wanted as soon shows only then.
    fn on_sync(&mut self, now: Now) {
        let (owes, members) = (
            self.acknowledgements.wait_for_the_schedule(),
            self.participants.len(),
        );
        self.sync_schedule
            .on_sync_received(now, owes, members, &mut *self.rng);
    }

    /// Causal history and bloom filter: what they acknowledge, what they show to be missing, and what a content of
    /// `send` has to wait for. A sync has no `send`.
    fn take_history(
        &mut self,
        came: &Received<'_>,
        send: Option<SendRef>,
        newness_ms: Option<i64>,
        now: Now,
    ) {
        let (history, filter) = (&came.message.causal_history, came.message.bloom_filter);
        let at_ms = now.monotonic_ms;
        // What a message follows is older than it.
        let held = send.and_then(|send| self.incoming.get(send));
        let is_past = held.is_some_and(|send| send.may_predate_us);
        let since_first_ms = newness_ms.or_else(|| is_past.then(|| self.since_first_ms(now)));
        let mut followed = self.follow(history);
        if send.is_none() {
            self.anti_entropy
                .on_named(followed.known.iter().copied(), &self.log, at_ms);
        }
        if !self.outgoing.is_empty() {
            let filter = filter.map(|filter| (filter, &came.message_id));
            self.review(history, filter, &came.sender_id, at_ms);
        }
        if let Some(filter) = filter.filter(|_| send.is_none() && !came.from_store) {
            self.compare_filters(filter, &came.sender_id, at_ms);
        }
        if !history.is_empty() {
            self.follow_on(
                send,
                history,
                &followed,
                &came.sender_id,
                at_ms,
                since_first_ms,
            );
        }
        // No peer decides how much room stays.
        if followed.known.capacity() <= NAMED_USUAL_MAX {
            followed.known.clear();
            self.named = followed.known;
        }
    }

    /// What `said_by` says, or asks, of how much is lacking of a send.
    fn take_statements(
        &mut self,
        requests: &[EntryView<'_>],
        said_by: &Arc<str>,
        with_content: bool,
        now: Now,
    ) {
        let mut touched = 0;
        for request in requests.iter().take(REQUESTS_HEARD_MAX) {
            let Some((send_id, lacking)) = lacking_of(request) else {
                continue;
            };
            let asked = asked_of_anybody(request.retrieval_hint, lacking);
            let own = self.outgoing.find(send_id);
            let is_sent = own.and_then(|own| self.outgoing.get(own));
            if let Some(asked) = asked.filter(|_| is_sent.is_none_or(|send| send.finished)) {
                if let Some(sender_id) = request.sender_id.filter(|id| **id != *said_by.as_bytes())
                {
                    let sender_id = self.sender_ids.text(sender_id);
                    self.on_asked_for_any((&sender_id, send_id), said_by, asked, now);
                }
            } else if lacking == 0 {
                self.needs.on_whole(send_id, said_by);
            }
            if let Some(send) = own {
                let at_ms = now.monotonic_ms;
                let members = self
                    .participants
                    .live_since(at_ms - self.config.participant_ttl_ms);
                let (log, events) = (&mut self.log, &mut self.events);
                self.outgoing
                    .on_stated(send, (said_by, lacking), members, at_ms, log, events);
            } else if request.sender_id == Some(said_by.as_bytes()) {
                let is_asked = asks(request.retrieval_hint, &self.sender_id);
                if lacking > 0 {
                    if is_asked && touched < UNKNOWN_PER_MESSAGE_MAX {
                        touched += self.name_anew(said_by, send_id, now);
                    }
                    continue;
                }
                self.lacking.on_asked(said_by);
                self.filter.on_counted(now.monotonic_ms);
                if !with_content && is_asked && self.count_lacking(said_by, send_id).is_some() {
                    self.lacking.owe(said_by, Name::new(send_id));
                    let members = self.participants.len();
                    self.acknowledgements.hurry(now, members, &mut *self.rng);
                }
            } else if lacking > 0 && asked.is_none() {
                self.on_lacked_by_other(request.sender_id, send_id, lacking, now);
            } else if self.config.any_is_enough() && touched < UNKNOWN_PER_MESSAGE_MAX {
                let first = self.log.find(content_id(send_id, 0).as_bytes());
                let siblings = first.map_or_else(Vec::new, |first| self.siblings_of(first));
                touched += siblings.len();
                for entry in siblings {
                    self.acknowledgements
                        .acknowledged_by_other(entry, &mut self.log);
                }
            }
        }
    }

    /// The sender of a send asks what came of it: what was said of that may not have been heard. Gives how
    /// many contents that are.
    fn name_anew(&mut self, sender_id: &Arc<str>, send_id: &str, now: Now) -> usize {
        let is_whole = self.count_lacking(sender_id, send_id) == Some(0);
        if is_whole && !self.config.any_is_enough() {
            // One number in place of all the names.
            self.lacking.owe(sender_id, Name::new(send_id));
            let members = self.participants.len();
            self.acknowledgements.hurry(now, members, &mut *self.rng);
            return 1;
        }
        let held = self.incoming.find(sender_id, send_id);
        let held = held.and_then(|held| self.incoming.get(held));
        if self.given_up.withholds(held) {
            return 0;
        }
        let came = match held {
            Some(held) => held.contents.clone(),
            None if is_whole => {
                let first = self.log.find(content_id(send_id, 0).as_bytes());
                first.map_or_else(Vec::new, |first| self.siblings_of(first))
            }
            None => Vec::new(),
        };
        // What was said so lately is on its way.
        let lately_ms = now.monotonic_ms - self.config.window_ms() / 4;
        for &entry in &came {
            let held = self.log.get(entry);
            if held.is_some_and(|held| held.spoken_ms == 0 || held.spoken_ms <= lately_ms) {
                self.owe(entry, now);
            }
        }
        came.len()
    }

    /// Another participant says how many contents it lacks of a send that is not ours: where no fewer are
    /// lacking here, what repairs it repairs this too, and nothing is said unless its sender asks.
    fn on_lacked_by_other(
        &mut self,
        sender_id: Option<&[u8]>,
        send_id: &str,
        lacking: u32,
        now: Now,
    ) {
        let is_shared = matches!(self.config.delivered_when, DeliveredWhen::Named(_));
        let Some(sender_id) = sender_id.filter(|_| is_shared) else {
            return;
        };
        let sender_id = self.sender_ids.text(sender_id);
        let is_less = self
            .count_lacking(&sender_id, send_id)
            .is_some_and(|ours| (1..=lacking).contains(&ours));
        let is_heeded = self.lacking.counts(&sender_id) && !self.lacking.is_asked();
        if !is_less || !is_heeded || self.is_in_burst(now) {
            return;
        }
        let send = self.incoming.find(&sender_id, send_id);
        if let Some(send) = send.and_then(|send| self.incoming.get(send)) {
            self.acknowledgements
                .lacked_by_other(&send.contents, &mut self.log);
        }
    }

    /// Whether all of a content's send is here and its sender, who counts, was told lately: more of it is
    /// meant for others, and whom it did not hear it asks.
    fn has_said_whole(&self, sender_id: &Arc<str>, message_id: &Name, now: Now) -> bool {
        if !self.lacking.counts(sender_id) {
            return false;
        }
        let Some((send_id, _)) = self.incoming.place_of(message_id) else {
            return false;
        };
        let quiet_ms = QUIET_TIMEOUTS * self.config.acknowledgement_timeout_ms;
        let first = self.log.find(content_id(send_id, 0).as_bytes());
        let is_said = first
            .and_then(|first| self.log.get(first))
            .is_some_and(|first| {
                let is_late = now.monotonic_ms - first.spoken_ms >= quiet_ms;
                first.unacknowledged == 0 && first.spoken_ms != 0 && !is_late
            });
        is_said && self.count_lacking(sender_id, send_id) == Some(0)
    }

    /// The content is one that its send can do without: not everybody gets it, so no filter has it and
    /// nobody misses it.
    pub(super) fn spare(&mut self, entry: EntryRef) {
        if let Some(held) = self.log.get_mut(entry).filter(|held| !held.spare) {
            held.spare = true;
            let message_id = held.message_id.clone();
            self.log.touch(entry);
            self.filter.refuse(&message_id);
        }
    }

    /// How many contents of a send are lacking here; `None` where nothing of it came, or the ids of what
    /// came say more.
    pub(super) fn count_lacking(&self, sender_id: &str, send_id: &str) -> Option<u32> {
        let Some(handle) = self.incoming.find(sender_id, send_id) else {
            let first = self.log.find(content_id(send_id, 0).as_bytes())?;
            let held = self.log.get(first)?;
            // One of a single content is named.
            let more = self.log.contains(content_id(send_id, 1).as_bytes());
            return (*held.sender_id == *sender_id && held.send.is_none() && more).then_some(0);
        };
        let send = self.incoming.get(handle)?;
        let is_plain = send.key == send.send_id && !send.is_repeated;
        if !is_plain || send.contents.is_empty() || self.given_up.withholds(Some(send)) {
            return None;
        }
        let needed = send.contents_needed.filter(|needed| *needed > 1)?;
        if send.reconstructed {
            return Some(0);
        }
        Some(needed.saturating_sub(send.contents.len() as u32).max(1))
    }

    /// Whether a content from the network is as old as what was delivered of its sender and forgotten since, or older
    /// than the replay window. What histories name is wanted, and so is what belongs to a send that is here in part,
    /// however old it is.
    fn is_replayed(&self, came: &Received<'_>, now: Now) -> bool {
        if came.from_store {
            return false;
        }
        let (message_id, sender_id, lamport) = (&came.message_id, &came.sender_id, came.lamport);
        let window_ms = self.config.replay_window_ms;
        let is_old = window_ms > 0 && self.lamport.is_older(lamport, window_ms, now);
        if !is_old && self.participants.is_beyond_horizon(sender_id, lamport) {
            return false;
        }
        let is_partial = |send_id| {
            let send = self.incoming.find(sender_id, send_id);
            send.and_then(|send| self.incoming.get(send))
                .is_some_and(|send| !send.contents.is_empty())
        };
        let place = self.incoming.place_of(message_id);
        !self.incoming.missing().contains(message_id.as_bytes())
            && !place.is_some_and(|(send_id, _)| is_partial(send_id))
    }

    /// Holds a new content; gives its send and its entry.
    fn take_content(
        &mut self,
        came: &Received<'_>,
        content: &[u8],
        retrieval_hint: Option<&[u8]>,
        now: Now,
    ) -> (SendRef, EntryRef) {
        let (message_id, sender_id) = (&came.message_id, &came.sender_id);
        let (send_id, ordinal) = self.incoming.place_in(message_id).unzip();
        // Of a send that is delivered already the owner tells that it is surplus.
        self.events.push_back(Event::ContentReceived {
            message_id: message_id.clone(),
            sender_id: Arc::clone(sender_id),
            content: Part::of(came.data, content),
            send_id: send_id.clone(),
            ordinal,
        });
        let hint = retrieval_hint.filter(|hint| hint.len() <= RETRIEVAL_HINT_BYTES_MAX);
        if self.lacking.counts(sender_id) {
            self.filter.on_counted(now.monotonic_ms);
        }
        let lamport = self.lamport.capped(came.lamport, now);
        let entry = self.add_to_log(message_id, sender_id, lamport, hint, ordinal.unwrap_or(0));
        if self.config.enable_repair {
            self.log.keep_original(entry, came.data.clone());
        }
        let members = self.participants.len();
        self.sync_schedule
            .on_content_received(now, members, &mut *self.rng);
        let (incoming, mut around) = self.around();
        let send = incoming.receive(entry, send_id, now.monotonic_ms, &mut around);
        (send, entry)
    }

    fn follow<'a>(&mut self, history: &[EntryView<'a>]) -> Followed<'a> {
        let mut followed = Followed {
            known: std::mem::take(&mut self.named),
            beside: Vec::new(),
            unknown: Vec::new(),
        };
        for entry in history {
            let Some(known) = self.log.find(entry.message_id) else {
                followed.unknown.push(*entry);
                continue;
            };
            let held = self.log.get(known);
            if !held.is_some_and(|held| self.incoming.is_of_another(*entry, &held.sender_id)) {
                followed.known.push(known);
            } else if self.incoming.came_beside(*entry) {
                followed.beside.push(*entry);
            } else {
                followed.unknown.push(*entry);
            }
        }
        followed
    }

    /// Follows a causal history: of a content of `send`, or of a sync, which waits for nothing.
    ///
    /// What another participant than its sender names of what we have not said yet, it acknowledged.
    fn follow_on(
        &mut self,
        send: Option<SendRef>,
        history: &[EntryView<'_>],
        followed: &Followed<'_>,
        named_by: &Arc<str>,
        monotonic_ms: i64,
        since_first_ms: Option<i64>,
    ) {
        for &entry in &followed.known {
            if let (Some(send), Some(cause)) =
                (send, self.log.get(entry).and_then(|held| held.send))
            {
                self.incoming.wait(send, cause);
            }
        }
        if let Some(send) = send {
            for &entry in &followed.beside {
                self.incoming.wait_beside(send, entry);
            }
        }
        for &entry in &followed.known {
            let owed = self.log.get(entry).is_some_and(|held| {
                (held.unacknowledged != 0 || held.repeats != 0) && held.sender_id != *named_by
            });
            if owed {
                self.acknowledgements
                    .acknowledged_by_other(entry, &mut self.log);
            }
        }
        if let Some(send) = send {
            self.incoming.follow(send, history.len(), || {
                let (first, rest) = history.split_at(history.len().min(HISTORY_ENDS));
                let last = &rest[rest.len().saturating_sub(HISTORY_ENDS)..];
                let mut kept = Vec::with_capacity(first.len() + last.len());
                let ends = first.iter().chain(last);
                kept.extend(ends.map(|entry| Name::from_wire(entry.message_id)));
                kept
            });
        }
        if !followed.unknown.is_empty() {
            let first = followed
                .unknown
                .len()
                .saturating_sub(UNKNOWN_PER_MESSAGE_MAX);
            let unknown = followed.unknown[first..]
                .iter()
                .map(|entry| (*entry).into())
                .collect();
            let naming = Naming {
                send,
                named_by,
                monotonic_ms,
                since_first_ms,
            };
            let (incoming, mut around) = self.around();
            incoming.on_unknown(&naming, unknown, &mut around);
        }
    }

    /// SDS, Review ACK Status: definitive by causal history, possible by bloom filter.
    fn review(
        &mut self,
        history: &[EntryView<'_>],
        filter: Option<(&[u8], &Name)>,
        sender_id: &Arc<str>,
        monotonic_ms: i64,
    ) {
        for entry in history {
            if let Some(own) = self.outgoing.find_content(entry.message_id) {
                self.outgoing.acknowledge(
                    own,
                    sender_id,
                    monotonic_ms,
                    &mut self.log,
                    &mut self.events,
                );
            }
        }
        if let Some((filter, message_id)) = filter {
            self.review_filter(filter, message_id, sender_id, monotonic_ms);
        }
        self.outgoing.on_heard(monotonic_ms);
    }

    fn review_filter(
        &mut self,
        filter: &[u8],
        message_id: &Name,
        sender_id: &Arc<str>,
        monotonic_ms: i64,
    ) {
        let own: Vec<_> = self.outgoing.awaiting().collect();
        // One that holds nearly everything says nothing of what came.
        if own.is_empty() || self.filter.filter().is_overfull(filter) {
            return;
        }
        self.settle_filter();
        let id_of = |place| {
            self.outgoing
                .content(place)
                .map_or("", |content| &content.message_id)
        };
        // A filter of another size has parameters that we do not know: it says nothing.
        let held = self
            .filter
            .filter()
            .review(filter, own.iter().map(|place| id_of(*place)));
        let mut enough = Vec::new();
        for position in held.unwrap_or_default() {
            if self.outgoing.possibly_acknowledge(
                own[position],
                sender_id,
                message_id,
                &mut self.events,
            ) {
                enough.push(own[position]);
            }
        }
        if enough.is_empty() || !self.may_conclude(monotonic_ms) {
            return;
        }
        // Participants hold much the same, so an accident in one filter is one in all of them.
        let id_of = |place: &_| {
            self.outgoing
                .content(*place)
                .map_or("", |content| &content.message_id)
        };
        let ids: Vec<&str> = enough.iter().map(id_of).collect();
        for position in self.filter.conclusive(&ids, &self.log) {
            self.outgoing.acknowledge_possible(
                enough[position],
                monotonic_ms,
                &mut self.log,
                &mut self.events,
            );
        }
    }

    /// Whether filters may be weighed against a whole log now: what that takes is spent once in a while,
    /// however many filters come.
    fn may_conclude(&mut self, monotonic_ms: i64) -> bool {
        if self.log.len() > CONCLUDED_AT_ONCE_MAX && monotonic_ms < self.conclude_ms {
            return false;
        }
        self.conclude_ms = monotonic_ms + CONCLUDED_AGAIN_MS;
        true
    }

    /// What a sync's filter shows that its sender lacks, or that we do.
    fn compare_filters(&mut self, filter: &[u8], sender_id: &Arc<str>, monotonic_ms: i64) {
        let members = self.participants.len();
        self.settle_filter();
        let (log, rng) = (&self.log, &mut *self.rng);
        let (ours, theirs) = (
            &self.filter,
            PeerFilter {
                bytes: filter,
                sender_id,
            },
        );
        self.anti_entropy
            .review(theirs, ours, log, monotonic_ms, members, rng);
        self.filter_request
            .on_filter(theirs, ours, monotonic_ms, members, rng);
    }

    /// How long ago this participant's own first receipt was; `None` once nobody sends again what is
    /// older.
    fn newness_ms(&mut self, now: Now) -> Option<i64> {
        let since_ms = self.since_first_ms(now);
        let retransmissions = i64::from(self.config.max_retransmissions);
        let new_ms = self
            .config
            .acknowledgement_timeout_ms
            .saturating_mul(1 + retransmissions);
        (since_ms <= new_ms).then_some(since_ms)
    }

    fn since_first_ms(&mut self, now: Now) -> i64 {
        let first_ms = self.participants.first_heard_ms(now.epoch_ms);
        now.epoch_ms.saturating_sub(first_ms).max(0)
    }

    /// The contents of a reconstructed send that never came count as received all the same.
    pub(super) fn infer(
        &mut self,
        handle: SendRef,
        content_count: u32,
        inferred: &[Name],
        now: Now,
    ) {
        let Some(send) = self.incoming.get(handle) else {
            return;
        };
        let (key, sender_id) = (send.key.clone(), Arc::clone(&send.sender_id));
        let named = self.config.by_send() && send.key == send.send_id;
        // As many as make it whole speak for it; of the others it is not even known that they left.
        let needed = send.contents_needed.unwrap_or(content_count);
        let content_count = needed.min(content_count);
        let count = if named {
            content_count.min(CONTENTS_PER_SEND_MAX)
        } else {
            inferred.len() as u32
        };
        for ordinal in 0..count {
            let message_id = if named {
                content_id(&key, ordinal)
            } else {
                inferred[ordinal as usize].clone()
            };
            let id = message_id.as_bytes();
            if self.log.contains(id) || self.outgoing.find_content(id).is_some() {
                continue;
            }
            let entry = self.add_to_log(&message_id, &sender_id, 0, None, ordinal);
            let (incoming, mut around) = self.around();
            incoming.infer(handle, entry, &mut around);
            self.owe(entry, now);
        }
    }

    /// A content under an id that is held: another copy of it, or a rival.
    fn take_duplicate(
        &mut self,
        known: EntryRef,
        came: &Received<'_>,
        content: &[u8],
        now: Now,
    ) -> Result<(), Dropped> {
        let (sender_id, data, from_store) = (&came.sender_id, came.data, came.from_store);
        let Some(held) = self.log.get(known) else {
            return Err(Dropped::Duplicate);
        };
        let (message_id, spoken_ms) = (held.message_id.clone(), held.spoken_ms);
        let held_sender = Arc::clone(&held.sender_id);
        let (is_own, send) = (held.sender_id == self.sender_id, held.send);
        // Another participant answered a request first. What a store answers nobody else heard, and under
        // the rule "send" the same content in another's name is another message.
        let is_anothers = self.config.by_send() && held_sender != *sender_id;
        let answer = !from_store
            && !is_anothers
            && self.answers(&message_id, Some(content), data)
            && self.answering.heard_again(&message_id, now.monotonic_ms);
        let is_open = send
            .and_then(|send| self.incoming.get(send))
            .is_some_and(|send| !send.reconstructed);
        let rival = self
            .rivals
            .find(known, is_open, sender_id, content, data, &self.log);
        let is_seen = rival.as_ref().is_some_and(|rival| !rival.unseen);
        if is_seen && self.is_replayed(came, now) {
            // It may have come when it had this id to itself, and been forgotten since.
            return Err(Dropped::Replayed);
        }
        if held_sender != *sender_id || self.incoming.missing().contains(message_id.as_bytes()) {
            let (incoming, mut around) = self.around();
            incoming.on_rival(&message_id, sender_id, now.monotonic_ms, &mut around);
        }
        if let Some(rival) = rival {
            self.take_rival(&message_id, rival, came, content, now);
            if is_seen {
                return Ok(());
            }
        }
        // Its sender heard no acknowledgement of it, unless the network or a store merely repeats
        // itself, or somebody was answered who lacks it: a large group that acknowledged every repair
        // again would talk of little else.
        let lately_ms = self.config.acknowledgement_timeout_ms / 2;
        let said_lately = spoken_ms != 0 && now.monotonic_ms - spoken_ms < lately_ms;
        let withheld = self
            .given_up
            .withholds(send.and_then(|send| self.incoming.get(send)));
        // One that counts asks whom it did not hear: what it repeats is meant for others.
        let is_said = !is_anothers && self.has_said_whole(sender_id, &message_id, now);
        let quiet = from_store || answer || said_lately || withheld || is_said;
        if !quiet && let Some(send) = send {
            self.incoming.on_repeated(send);
        }
        if !quiet && !is_own {
            self.owe_again(known, now);
        }
        Err(Dropped::Duplicate)
    }

    /// Hands up another content under the id `message_id`, which is held.
    fn take_rival(
        &mut self,
        message_id: &Name,
        rival: Rival,
        came: &Received<'_>,
        content: &[u8],
        now: Now,
    ) {
        self.rivals.take(&rival);
        if !rival.unseen {
            let (incoming, mut around) = self.around();
            incoming.on_rival(message_id, &came.sender_id, now.monotonic_ms, &mut around);
        }
        if !rival.unseen && !came.from_store {
            self.stand_by(message_id, now.monotonic_ms);
        }
        let (send_id, ordinal) = self.incoming.place_in(message_id).unzip();
        self.events.push_back(Event::ContentReceived {
            message_id: rival.name,
            sender_id: Arc::clone(&came.sender_id),
            content: Part::of(came.data, content),
            send_id,
            ordinal,
        });
    }

    /// The sender of a content did not hear its acknowledgement: it is due once more, with that of all of its send.
    fn owe_again(&mut self, known: EntryRef, now: Now) {
        if !self.acknowledgements.owes(known) {
            for entry in self.siblings_of(known) {
                self.owe(entry, now);
            }
        }
        if !self.config.acknowledgement_sync {
            // The schedule is what says it: soon, however often others' syncs put ours off.
            let members = self.participants.len();
            self.sync_schedule
                .on_content_received(now, members, &mut *self.rng);
        }
    }

    /// All that is held of a content's send: the message that acknowledged it and got lost named them
    /// too.
    fn siblings_of(&self, known: EntryRef) -> Vec<EntryRef> {
        let Some(held) = self.log.get(known) else {
            return Vec::new();
        };
        if let Some(send) = held.send.and_then(|send| self.incoming.get(send)) {
            return send.contents.clone();
        }
        let Some((send_id, _)) = self.incoming.place_of(&held.message_id) else {
            return vec![known];
        };
        let mut siblings = vec![known];
        for ordinal in 0..CONTENTS_PER_SEND_MAX {
            let Some(entry) = self.log.find(content_id(send_id, ordinal).as_bytes()) else {
                break;
            };
            if entry != known {
                siblings.push(entry);
            }
        }
        siblings
    }

    fn take_ephemeral(
        &mut self,
        message_id: Name,
        sender_id: Arc<str>,
        message: &MessageView<'_>,
        data: &Octets,
    ) -> Result<(), Dropped> {
        let content = message.content.filter(|content| !content.is_empty());
        let content = content.ok_or(Dropped::Undecodable)?;
        if self.recent_ephemerals.contains(&message_id) {
            return Err(Dropped::Duplicate);
        }
        self.remember_ephemeral(message_id.clone());
        let content = Part::of(data, content);
        let repaired = repaired(&message.repair_request);
        self.events.push_back(match repaired {
            Some((send_sender_id, send_id)) if self.config.answers_with_parity() => {
                Event::ParityReceived {
                    message_id,
                    sender_id,
                    send_sender_id: self.sender_ids.text(send_sender_id),
                    send_id: Name::new(send_id),
                    content,
                }
            }
            _ => Event::EphemeralReceived {
                message_id,
                sender_id,
                content,
            },
        });
        Ok(())
    }

    /// A content was heard, or left here: whoever lacks its send may need no more of it.
    pub(super) fn hear_content(&mut self, message_id: &Name) {
        if self.needs.is_empty() {
            return;
        }
        if let Some((send_id, _)) = self.incoming.place_of(message_id) {
            self.needs.on_heard(send_id, None);
        }
    }

    /// Whether a message under an id brings the content that is held under it: nothing else answers
    /// those who asked.
    fn answers(&self, message_id: &Name, content: Option<&[u8]>, message: &[u8]) -> bool {
        let Some(content) = content else {
            return false;
        };
        let id = message_id.as_bytes();
        let own = self.outgoing.wire(id).cloned();
        let kept = own.or_else(|| self.log.original(id));
        kept.is_none_or(|kept| !self.rivals.differs(&kept, content, message))
    }

    /// Another content was heard under the id of one that is held: who took it for that one asks for
    /// nothing, so what is held is sent again, within the bounds of answers.
    fn stand_by(&mut self, message_id: &Name, monotonic_ms: i64) {
        let wanted = HistoryEntry {
            message_id: message_id.to_string(),
            ..HistoryEntry::default()
        };
        let is_own = || {
            let own = self.outgoing.find_content(message_id.as_bytes());
            own.and_then(|own| self.outgoing.content(own))
                .is_some_and(|own| own.wire.is_some())
        };
        self.answering
            .stand_by(&wanted, &self.log, is_own, monotonic_ms);
    }

    /// The network brings a message in our name: an answer of ours, which others heard as well, or another content
    /// under its id.
    fn hear_own(&mut self, message_id: &Name, content: Option<&[u8]>, data: &Octets, now: Now) {
        if self.answers(message_id, content, data) {
            self.answering.on_answer(message_id, now.monotonic_ms);
        } else if content.is_some() {
            self.stand_by(message_id, now.monotonic_ms);
        }
    }

    /// SDS: own messages are ignored, except that one we never sent shows a second user of our id.
    ///
    /// What a store has, or others repeat, of the time before this life began is our past: its state
    /// was not kept.
    fn take_own(
        &mut self,
        message_id: &Name,
        lamport: Option<u64>,
        is_content: bool,
        from_store: bool,
    ) -> Result<(), Dropped> {
        let id = message_id.as_bytes();
        if self.outgoing.find_content(id).is_some()
            || self.log.contains(id)
            || self.recent_ephemerals.contains(message_id)
            || self.transmission.is_own_sync(message_id)
            || self.incoming.is_past(message_id)
        {
            return Err(Dropped::Own);
        }
        if is_content {
            let (incoming, mut around) = self.around();
            incoming.on_own(message_id, &mut around);
        }
        if from_store || lamport.is_some_and(|lamport| lamport < self.began) {
            return Err(Dropped::Own);
        }
        self.events.push_back(Event::SenderIdConflict {
            message_id: message_id.clone(),
        });
        Ok(())
    }
}

/// Refuses ids that are too long, and those that no implementation makes.
fn check_ids(message: &MessageView<'_>) -> Result<(), Dropped> {
    let (id_bytes, sender_bytes) = (message.message_id.len(), message.sender_id.len());
    if !(1..=MESSAGE_ID_BYTES_MAX).contains(&id_bytes) || sender_bytes > SENDER_ID_BYTES_MAX {
        return Err(Dropped::OverLimit);
    }
    if memchr(0, message.message_id).is_some() {
        // Names that are made here have it.
        return Err(Dropped::Undecodable);
    }
    Ok(())
}

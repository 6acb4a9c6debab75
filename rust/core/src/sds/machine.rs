//! The machine of one channel: inputs and time in, messages and events out.

use std::collections::VecDeque;
use std::sync::Arc;

use hashlink::LinkedHashSet;
use thiserror::Error;

use super::config::{Config, MessageIdRule, Now, Randomness};
use super::events::{Event, Kinds, Transmit, TransmitKind};
use super::flights::{Transmission, header_bytes_min};
use super::ids::{
    CONTENTS_PER_SEND_MAX, SEND_ID_BYTES, SENDER_ID_BYTES_MAX, SenderIds, is_send_id,
    message_ids_of, rival_of,
};
use super::incoming::{
    GivenUp, Incoming, IncomingSend, Place, Reopened, Rivals, SendRef, Surroundings, Voice,
};
use super::lamport::LamportClock;
use super::log::{EntryRef, Heads, Log};
use super::name::Name;
use super::octets::{IntoVec, Join, Octets};
use super::outgoing::{Outgoing, OutgoingContent, OutgoingRef};
use super::participants::Participants;
use super::records::Records;
use super::repair::{Answering, Asking, Needs};
use super::sync::acknowledgements::Acknowledgements;
use super::sync::anti_entropy::AntiEntropy;
use super::sync::filter::FilterSchedule;
use super::sync::filter_request::FilterRequest;
use super::sync::lacking::Lacking;
use super::sync::schedule::SyncSchedule;
use crate::wire::sds::{HistoryEntry, MessageView, WireFormat};

/// What left the log of a sender is stored this exactly.
const HORIZON_EXACTLY_MS: i64 = 60_000;
/// Among more members T_max grows no further: no number of names makes a group slow.
const MEMBERS_COUNTED_MAX: usize = 400;

/// One participant's side of a channel.
///
/// Its methods are of four kinds: views; `handle_…` for what arrived or happened; commands of the
/// application; `poll_…` for what must leave. Its one owner serialises the calls: one input, then
/// everything that the `poll_` methods give, then the next input. Time never goes back. What
/// [`Machine::poll_persist`] gives is made durable before what [`Machine::poll_transmit`] gave is
/// handed to the network, so that whatever a message acknowledges survives a crash.
pub struct Machine {
    pub(super) config: Config,
    pub(super) channel_id: Arc<str>,
    pub(super) sender_id: Arc<str>,
    pub(super) sender_ids: SenderIds,
    pub(super) log: Log,
    pub(super) heads: Heads,
    pub(super) lamport: LamportClock,
    pub(super) filter: FilterSchedule,
    pub(super) participants: Participants,
    pub(super) acknowledgements: Acknowledgements,
    pub(super) anti_entropy: AntiEntropy,
    pub(super) sync_schedule: SyncSchedule,
    pub(super) filter_request: FilterRequest,
    pub(super) asking: Asking,
    pub(super) answering: Answering,
    pub(super) lacking: Lacking,
    /// What others lack of what is whole here.
    pub(super) needs: Needs,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// Room for the entries that a history names.
    pub(super) named: Vec<EntryRef>,
    pub(super) rivals: Rivals,
    /// From when on filters may be weighed against a long log again.
    pub(super) conclude_ms: i64,
    pub(super) given_up: GivenUp,
    pub(super) transmission: Transmission,
    /// Ephemeral messages that were heard or sent: their echo is not news. Not kept over a restart.
    pub(super) recent_ephemerals: LinkedHashSet<Name>,
    /// When this life began, in the unit of Lamport timestamps.
    pub(super) began: u64,
    pub(super) records: Records,
    pub(super) events: VecDeque<Event>,
    pub(super) rng: Box<dyn Randomness>,
    pub(super) join: Box<dyn Join>,
}

/// A send that was taken back, and what it followed.
pub(super) struct TakenBack {
    pub message_ids: Vec<Name>,
    pub followed: Vec<Name>,
}

/// A mistake of the application, with the value, the limit and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A channel or sender id that the wire cannot carry.
    #[error("{field} has {length} bytes: it must have 1 to {SENDER_ID_BYTES_MAX}")]
    Id {
        /// Which.
        field: &'static str,
        /// Its length in UTF-8.
        length: usize,
    },
    /// No room for one history entry.
    #[error("header_bytes_max is {given}: these ids need at least {needed}")]
    Header {
        /// `header_bytes_max`.
        given: usize,
        /// The least that these ids need.
        needed: usize,
    },
    /// What is no send.
    #[error(
        "a send of {count} contents that needs {needed}: give 1 to {CONTENTS_PER_SEND_MAX} contents and \
         need no more than there are"
    )]
    Contents {
        /// How many contents there are.
        count: usize,
        /// How many are said to be needed.
        needed: u32,
    },
    /// A content without bytes.
    #[error("a content is empty: on the wire it would be a sync, so give at least one byte")]
    EmptyContent,
    /// The id has not the form that the rule "send" wants.
    #[error("send_id {0:?}: it must be {SEND_ID_BYTES} lower-case hex characters")]
    SendId(String),
    /// Two contents are equal, and under ids made of contents would share one.
    #[error("two contents of one send are equal: under 'content-sha256' they would share an id")]
    EqualContents,
    /// The id is in use.
    #[error("send_id {0:?} is in use: give each send its own")]
    SendIdInUse(String),
    /// A message id that is made of a content is known.
    #[error(
        "message id {0:?} is known: this channel has sent or received what it names already, and under \
         message_id='content-sha256' that is a duplicate while it is remembered: change the payload, or use \
         message_id='send'"
    )]
    MessageIdKnown(Name),
    /// The wire "nim" has no such messages.
    #[error("the nim wire has no ephemeral messages: lamport_timestamp must be set")]
    NimEphemeral,
}

/// Sizes of what a machine holds, by name.
pub type Stats = [(&'static str, usize); 24];

impl Machine {
    /// A machine that begins now.
    ///
    /// # Errors
    /// [`Refusal`] for an id that the wire cannot carry, or a header without room.
    pub fn new(
        channel_id: &str,
        sender_id: &str,
        config: Config,
        now: Now,
        mut rng: Box<dyn Randomness>,
    ) -> Result<Self, Refusal> {
        for (field, id) in [("channel_id", channel_id), ("sender_id", sender_id)] {
            if !(1..=SENDER_ID_BYTES_MAX).contains(&id.len()) {
                return Err(Refusal::Id {
                    field,
                    length: id.len(),
                });
            }
        }
        check_header(
            config.header_bytes_max,
            config.message_id,
            channel_id,
            sender_id,
        )?;
        let sender_id: Arc<str> = sender_id.into();
        let lamport = LamportClock::new(&config, now);
        let sync_schedule = SyncSchedule::new(config.sync_min_interval_ms, now, &mut *rng);
        let transmission = Transmission::new(&config, channel_id, &sender_id, &mut *rng);
        Ok(Machine {
            channel_id: channel_id.into(),
            sender_ids: SenderIds::default(),
            log: Log::new(config.log_messages_max, config.log_bytes_max),
            heads: Heads::new(config.by_send()),
            began: lamport.epoch(now),
            lamport,
            filter: FilterSchedule::new(&config),
            participants: Participants::default(),
            acknowledgements: Acknowledgements::new(&config),
            anti_entropy: AntiEntropy::new(&config),
            sync_schedule,
            filter_request: FilterRequest::new(&config),
            asking: Asking::new(&config, &sender_id),
            answering: Answering::new(&config, &sender_id),
            lacking: Lacking::default(),
            needs: Needs::default(),
            outgoing: Outgoing::new(&config),
            incoming: Incoming::new(&config, &sender_id),
            named: Vec::new(),
            rivals: Rivals::new(&config),
            conclude_ms: 0,
            given_up: GivenUp::new(&config),
            transmission,
            recent_ephemerals: LinkedHashSet::new(),
            records: Records::default(),
            events: VecDeque::new(),
            sender_id,
            config,
            rng,
            join: Box::new(IntoVec),
        })
    }

    /// Long messages that leave are made by `join` from now on.
    pub fn join_by(&mut self, join: Box<dyn Join>) {
        self.join = join;
    }

    // --- commands -------------------------------------------------------------------------------

    /// Registers and queues a send; nothing is encoded before it is dispatched. Gives the message ids,
    /// one a content.
    ///
    /// # Errors
    /// [`Refusal`]; nothing changed.
    pub fn send(
        &mut self,
        send_id: &str,
        contents: Vec<Octets>,
        contents_needed: u32,
    ) -> Result<Vec<Name>, Refusal> {
        self.send_on_demand(send_id, contents, contents_needed, 0)
    }

    /// As [`Machine::send`], of a send that can have `reserve` more contents: its receivers get as many
    /// of them as they need ([`Event::ContentsWanted`]) in place of those that they lost. Under another
    /// rule than "send" it has none.
    ///
    /// # Errors
    /// [`Refusal`]; nothing changed.
    pub fn send_on_demand(
        &mut self,
        send_id: &str,
        contents: Vec<Octets>,
        contents_needed: u32,
        reserve: u32,
    ) -> Result<Vec<Name>, Refusal> {
        let count = contents.len();
        let counted = (1..=CONTENTS_PER_SEND_MAX as usize).contains(&count);
        if !counted || !(1..=count).contains(&(contents_needed as usize)) {
            return Err(Refusal::Contents {
                count,
                needed: contents_needed,
            });
        }
        let message_ids = self.message_ids_of(send_id, &contents)?;
        let is_known = |id: &&Name| {
            self.outgoing.find_content(id.as_bytes()).is_some() || self.log.contains(id.as_bytes())
        };
        let known = message_ids.iter().find(is_known);
        if let Some(known) = known.filter(|_| !self.config.by_send()) {
            return Err(Refusal::MessageIdKnown(known.clone()));
        }
        if known.is_some() || self.outgoing.find(send_id).is_some() {
            return Err(Refusal::SendIdInUse(send_id.to_owned()));
        }
        self.outgoing.add(
            Name::new(send_id),
            &message_ids,
            contents,
            contents_needed,
            if self.config.by_send() { reserve } else { 0 },
        );
        Ok(message_ids)
    }

    /// Contents of a send of ours by their order, as long as it keeps them; `None` for one that cannot
    /// be read.
    pub fn contents_of(&self, send_id: &str) -> impl Iterator<Item = Option<&[u8]>> {
        let send = self
            .outgoing
            .find(send_id)
            .and_then(|send| self.outgoing.get(send));
        let contents = send.into_iter().flat_map(|send| &send.contents);
        contents.map(|content| match (&content.content, &content.wire) {
            (Some(content), _) => Some(&**content),
            (None, Some(wire)) => {
                let message = MessageView::decode(wire, self.config.wire_format);
                message.ok().and_then(|message| message.content)
            }
            (None, None) => None,
        })
    }

    /// How many contents make a send of ours whole, and how many it has.
    pub fn size_of(&self, send_id: &str) -> Option<(usize, usize)> {
        let send = self.outgoing.get(self.outgoing.find(send_id)?)?;
        Some((send.contents_needed as usize, send.contents.len()))
    }

    /// How much parity a message leaves with before anybody asks: contents for a million data
    /// contents, as earlier ones needed.
    pub fn first_parity_millionths(&self) -> u32 {
        self.outgoing.first_parity().millionths()
    }

    /// The owner made contents of a send that were wanted; none where it cannot, and then what is
    /// missing is sent again.
    pub fn handle_contents_made(&mut self, send_id: &str, contents: Vec<Octets>, now: Now) {
        if let Some(send) = self.outgoing.find(send_id) {
            self.outgoing
                .extend(send, contents, &self.log, now.monotonic_ms);
        }
    }

    /// Queues a message without order or acknowledgement (SDS, Ephemeral Messages); gives its
    /// message id.
    ///
    /// # Errors
    /// [`Refusal`]; nothing changed.
    pub fn send_ephemeral(&mut self, send_id: &str, content: Octets) -> Result<Name, Refusal> {
        if self.config.wire_format == WireFormat::Nim {
            return Err(Refusal::NimEphemeral);
        }
        let mut ids = self.message_ids_of(send_id, std::slice::from_ref(&content))?;
        let message_id = ids.pop().expect("one id for one content");
        self.transmission
            .ephemerals
            .push_back((Name::new(send_id), message_id.clone(), content));
        self.remember_ephemeral(message_id.clone());
        Ok(message_id)
    }

    fn message_ids_of(&self, send_id: &str, contents: &[Octets]) -> Result<Vec<Name>, Refusal> {
        let rule = self.config.message_id;
        if contents.iter().any(|content| content.is_empty()) {
            return Err(Refusal::EmptyContent);
        }
        if rule == MessageIdRule::Send && !is_send_id(send_id) {
            return Err(Refusal::SendId(send_id.to_owned()));
        }
        let ids = message_ids_of(rule, send_id, contents);
        if rule == MessageIdRule::ContentSha256 {
            let unique: std::collections::HashSet<&Name> = ids.iter().collect();
            if unique.len() < ids.len() {
                return Err(Refusal::EqualContents);
            }
        }
        Ok(ids)
    }

    /// From now on a message is at most this much longer than its content.
    ///
    /// # Errors
    /// [`Refusal::Header`]; nothing changed.
    pub fn limit_headers(&mut self, header_bytes_max: usize) -> Result<(), Refusal> {
        check_header(
            header_bytes_max,
            self.config.message_id,
            &self.channel_id,
            &self.sender_id,
        )?;
        self.transmission.limit_headers(header_bytes_max);
        Ok(())
    }

    /// Drops what was not dispatched of a send; false when all of it had left or it is unknown.
    pub fn cancel(&mut self, send_id: &str) -> bool {
        self.take_back(send_id, |_, _| false, &|_| false).is_some()
    }

    /// Takes a send back: nothing of it leaves any more, and what left of it is neither sent again
    /// nor given to who asks for it, nor named where nobody can reconstruct it. False when it is
    /// finished or unknown.
    pub fn withdraw(&mut self, send_id: &str) -> bool {
        self.withdraw_among(send_id, &|_| false).is_some()
    }

    /// As [`Machine::withdraw`], where `is_held` knows transmissions that were handed out and have not left.
    /// Gives the sends of which such transmissions are void, since their messages named it: each is to be told
    /// by [`Machine::handle_transmit_void`], and what it was leaves as it is now. `None` where the send is finished or unknown.
    pub fn withdraw_among(
        &mut self,
        send_id: &str,
        is_held: &dyn Fn(u64) -> bool,
    ) -> Option<Vec<Name>> {
        self.take_back(send_id, Outgoing::withdraw, is_held)
    }

    /// Drops what waits of a send, or does `otherwise` where nothing does; `None` where that fails.
    fn take_back(
        &mut self,
        send_id: &str,
        otherwise: fn(&mut Outgoing, OutgoingRef) -> bool,
        is_held: &dyn Fn(u64) -> bool,
    ) -> Option<Vec<Name>> {
        let Some(handle) = self.outgoing.find(send_id) else {
            let is_ephemeral = self.transmission.cancel_ephemeral(send_id);
            return is_ephemeral.then(Vec::new);
        };
        let send = self.outgoing.get(handle).expect("it was just found");
        let id_of = |content: &OutgoingContent| content.message_id.clone();
        let message_ids: Vec<_> = send.contents.iter().map(id_of).collect();
        let queued = send
            .queue
            .iter()
            .map(|ordinal| &send.contents[ordinal as usize]);
        let encoded = queued.filter(|content| content.wire.is_some());
        let encoded: Vec<_> = encoded.map(id_of).collect();
        let history = send.history.as_ref().map(|history| history.ids.clone());
        let history = history.unwrap_or_default();
        // What somebody has may be named on; what was never encoded is named nowhere.
        let was_encoded = send.dispatched > 0 || !encoded.is_empty();
        let stays_named = send.is_heard() || !was_encoded;
        if self.outgoing.cancel(handle) {
            self.heads.withdraw(&mut self.log, &encoded, &history);
            for message_id in &encoded {
                self.filter.refuse(message_id);
            }
        } else if !otherwise(&mut self.outgoing, handle) {
            return None;
        }
        if stays_named {
            return Some(Vec::new());
        }
        self.heads.leave_out(&mut self.log, &message_ids, &history);
        let taken_back = TakenBack {
            message_ids,
            followed: history,
        };
        Some(self.unname(&taken_back, is_held))
    }

    /// Gives up a send all of which has left, as after the last retransmission.
    pub fn stop(&mut self, send_id: &str) {
        self.outgoing.stop(send_id, &mut self.log, &mut self.events);
    }

    /// Contents of a restored send that are not known to have left go once more; those that cannot,
    /// since parity on demand is not stored once it is encoded, are given back.
    pub fn resume(&mut self, send_id: &str, ordinals: &[u32], now: Now) -> Vec<u32> {
        self.outgoing.resume(send_id, ordinals, now.monotonic_ms)
    }

    /// Sends a content that its send can do without no more.
    pub fn leave_out(&mut self, message_id: &str) {
        self.outgoing.leave_out(message_id);
    }

    // --- what the owner says of contents that it was handed -------------------------------------

    /// Says to which send a content belongs and how large that is.
    pub fn handle_content_placed(&mut self, message_id: &str, place: Place<'_>, now: Now) {
        let Some(entry) = self.log.find(message_id.as_bytes()) else {
            return;
        };
        let at_ms = now.monotonic_ms;
        let (incoming, mut around) = self.around();
        incoming.place(entry, place, at_ms, &mut around);
        let counts = place.content_count.zip(place.contents_needed);
        let has_parity = counts.is_some_and(|(count, needed)| count > needed);
        if has_parity && self.config.answers_with_parity() {
            // Numbers tell what its receivers lack, also of those who did not hear its sender ask.
            self.filter.on_counted(at_ms);
        }
        let counts = place.ordinal.zip(place.contents_needed);
        if self.config.by_send() && counts.is_some_and(|(ordinal, needed)| ordinal >= needed) {
            self.spare(entry);
        }
        if self.given_up.is_empty() {
            return;
        }
        let (given_up, incoming, mut voice, mut around) = self.around_given_up();
        if let Some(send) = given_up.on_placed(entry, now, incoming, &mut voice, &mut around) {
            self.on_whole(send, now);
        }
    }

    /// The owner has the message, where it is known with which content: every content counts as received,
    /// and the send is released in causal order. Where another one of its name waits it has that of a
    /// rival, and goes at once.
    ///
    /// Under the rule "send" all `content_count` ids are known; `inferred` names those of contents
    /// recovered under another rule.
    pub fn handle_send_reconstructed(
        &mut self,
        message_id: Option<&str>,
        sender_id: &str,
        send_id: &str,
        content_count: u32,
        inferred: &[Name],
        now: Now,
    ) {
        self.incoming.begin_step();
        // One that is called by its own content is of no send.
        let shared = rival_of(send_id).filter(|_| message_id != Some(send_id));
        let of_rival = shared.and_then(|shared| self.partial_of(message_id, sender_id, shared));
        let found = of_rival.or_else(|| self.send_of(message_id, sender_id, send_id));
        let send = found.and_then(|found| Some((found, self.incoming.get(found)?)));
        match send {
            Some((_, send)) if send.reconstructed => {}
            Some((handle, send)) if !send.contents.is_empty() => {
                let more = content_count as usize > send.contents.len() || !inferred.is_empty();
                if self.given_up.withholds(Some(send)) {
                    self.on_whole(handle, now);
                }
                if more {
                    self.infer(handle, content_count, inferred, now);
                }
                let (incoming, mut around) = self.around();
                if of_rival.is_some() {
                    incoming.release_as(handle, send_id, &mut around);
                } else {
                    incoming.reconstructed(handle, now.monotonic_ms, &mut around);
                }
            }
            named => {
                // Nothing but rivals came: it goes at once, since nothing is known that it follows.
                let named = named.map(|(handle, _)| handle);
                self.events.push_back(Event::SendReleased {
                    sender_id: self.sender_ids.text(sender_id.as_bytes()),
                    send_id: Name::new(send_id),
                    late: false,
                });
                if let Some(named) = named {
                    let (incoming, mut around) = self.around();
                    incoming.on_rival_whole(named, send_id, sender_id, &mut around);
                }
            }
        }
    }

    /// The send that the owner calls so, where it is known with one of its contents.
    fn send_of(&self, message_id: Option<&str>, sender_id: &str, send_id: &str) -> Option<SendRef> {
        // A message in one content may be called by its id.
        let held = self.held_of(message_id.unwrap_or(send_id), sender_id, send_id);
        held.or_else(|| self.incoming.find(sender_id, send_id))
    }

    /// As [`Machine::send_of`], of what is partial: what is whole may be spelled like it.
    fn partial_of(
        &self,
        message_id: Option<&str>,
        sender_id: &str,
        send_id: &str,
    ) -> Option<SendRef> {
        let send = |handle: &SendRef| self.incoming.get(*handle);
        let is_partial = |handle: &SendRef| send(handle).is_some_and(IncomingSend::is_partial);
        let held = self.held_of(message_id.unwrap_or(send_id), sender_id, send_id);
        let held = held.filter(is_partial);
        let found = held.or_else(|| self.incoming.find(sender_id, send_id));
        found.filter(is_partial)
    }

    /// The send that the owner calls so and that a content is held in: another one of its sender may be
    /// spelled like it.
    fn held_of(&self, message_id: &str, sender_id: &str, send_id: &str) -> Option<SendRef> {
        let held = self.log.get(self.log.find(message_id.as_bytes())?)?;
        let send = self.incoming.get(held.send?)?;
        (*send.send_id == *send_id && *send.sender_id == *sender_id).then_some(held.send?)
    }

    /// No room for what `message` brought just now, or no use: it was never received, and is missing as
    /// before where anybody named it. Nothing waits for what is `invalid`.
    pub fn handle_content_refused(&mut self, message_id: &str, message: &[u8], invalid: bool) {
        if rival_of(message_id).is_some()
            && let Ok(message) = MessageView::decode(message, self.config.wire_format)
        {
            self.refuse_rival(message_id, message.sender_id);
        }
        let Some(entry) = self.log.find(message_id.as_bytes()) else {
            return;
        };
        let original = self.log.original_of(entry);
        if original
            .as_ref()
            .is_some_and(|original| **original != *message)
        {
            // A rival of a content that is held is not that content.
            return;
        }
        let Some(handle) = self.log.get(entry).and_then(|held| held.send) else {
            return;
        };
        let key = self.incoming.get(handle).map(|send| send.key.clone());
        let (_, incoming, mut voice, mut around) = self.around_given_up();
        incoming.refuse(entry, &mut around);
        super::incoming::unsay(entry, &mut voice, &mut around);
        let message_id = Name::new(message_id);
        if original.is_some() {
            self.log.forget_original(&message_id);
        }
        let refused = self.log.refuse(entry);
        let (incoming, mut around) = self.around();
        if !invalid {
            let sender_id = refused.map(|refused| refused.sender_id.to_string());
            incoming.miss_again(handle, &message_id, sender_id, &mut around);
            return;
        }
        let key = key.unwrap_or_else(|| message_id.clone());
        if incoming.ask_again(&message_id, key.clone(), &mut around) {
            return;
        }
        match incoming.get(handle) {
            Some(send) if !send.contents.is_empty() => {}
            // Others of its contents are asked for still, though nothing waits for them.
            Some(send) if !send.missing.is_empty() => incoming.go_on_quietly(handle, &mut around),
            Some(_) => incoming.drop(handle, true, &mut around),
            None => incoming.restore_lost(key, true),
        }
    }

    /// The content is part of a message that is here: it counts as delivered, so that histories
    /// naming it close.
    pub fn handle_content_surplus(&mut self, message_id: &str) {
        let Some(entry) = self.log.find(message_id.as_bytes()) else {
            return;
        };
        let Some(handle) = self.log.get(entry).and_then(|held| held.send) else {
            return;
        };
        if self.config.by_send() {
            // Those that make its send whole are known.
            self.spare(entry);
        }
        // With siblings it stays held.
        let alone = self
            .incoming
            .get(handle)
            .is_some_and(|send| send.contents.len() == 1 && !send.reconstructed);
        if alone {
            let (incoming, mut around) = self.around();
            incoming.abandon(handle, &mut around);
            self.acknowledgements.send_delivered(&[entry]);
        }
    }

    /// There is enough of its send, and the message is not whole: the content is not acknowledged
    /// before that is.
    pub fn handle_content_doubted(&mut self, message_id: &str, sender_id: &str, send_id: &str) {
        if let Some(handle) = self.partial_of(Some(message_id), sender_id, send_id) {
            let message_id = message_id.split('\0').next().unwrap_or(message_id);
            let (given_up, incoming, mut voice, mut around) = self.around_given_up();
            given_up.doubt(message_id, handle, incoming, &mut voice, &mut around);
        }
    }

    /// The owner gave up reassembling a send, where it is known with which content: what follows it no
    /// longer waits. Whether it was news.
    ///
    /// Its contents count as never received, and are asked for when more comes, or with
    /// `keep_messages` taken from what is kept for repair ([`Machine::poll_reopened`]).
    pub fn handle_send_abandoned(
        &mut self,
        message_id: Option<&str>,
        sender_id: &str,
        send_id: &str,
        keep_messages: bool,
        now: Now,
    ) -> bool {
        self.incoming.begin_step();
        let Some(handle) = self.partial_of(message_id, sender_id, send_id) else {
            return self.incoming.lose_rivals(send_id, sender_id);
        };
        let at_ms = now.monotonic_ms;
        let (given_up, incoming, mut voice, mut around) = self.around_given_up();
        given_up.give_up(
            handle,
            keep_messages,
            at_ms,
            incoming,
            &mut voice,
            &mut around,
        )
    }

    /// Whether a content that comes first under its id now was a rival of another one that was given
    /// up since.
    pub fn was_rival(&self, message_id: &str, sender_id: &str, content: &[u8]) -> bool {
        self.rivals.has_taken(message_id, sender_id, content)
    }

    /// A message in one content came whole, by `message`: where the message kept under its id is
    /// another, it is a rival.
    pub fn handle_whole_content(
        &mut self,
        message_id: &str,
        sender_id: &str,
        content: &[u8],
        message: &[u8],
    ) {
        self.rivals
            .on_whole(message_id, sender_id, content, message, &self.log);
    }

    /// A message in one content came, by `message`, under the id of a content of a larger message: it
    /// is a rival of that content, which is missing still. Gives what the rival is called.
    pub fn handle_content_apart(
        &mut self,
        message_id: &str,
        sender_id: &str,
        content: &[u8],
        message: &[u8],
    ) -> Name {
        self.handle_content_refused(message_id, message, true);
        self.rivals.set_apart(message_id, sender_id, content)
    }

    /// There was no room for a rival, or it was of no use: it may come again, and is asked for once it
    /// is named.
    pub fn handle_rival_refused(&mut self, name: &str, sender_id: &str) {
        self.refuse_rival(name, sender_id.as_bytes());
    }

    fn refuse_rival(&mut self, name: &str, sender_id: &[u8]) {
        self.rivals.refuse(&Name::new(name));
        if let Some(message_id) = rival_of(name) {
            self.incoming.on_rival_refused(message_id, sender_id);
        }
    }

    /// A rival is part of a message that is here: it may come again, and nobody is asked for it.
    pub fn handle_rival_surplus(&mut self, name: &str) {
        self.rivals.refuse(&Name::new(name));
    }

    // --- what a store says ----------------------------------------------------------------------

    /// A message of this channel that a store answers with; `None` where it is none.
    pub fn read_message<'a>(&self, data: &'a [u8]) -> Option<MessageView<'a>> {
        let message = MessageView::decode(data, self.config.wire_format).ok()?;
        (*message.channel_id == *self.channel_id.as_bytes()).then_some(message)
    }

    /// Whether the history of a message leads to what passed by before it.
    pub fn leads_back(&self, message: &MessageView<'_>) -> bool {
        let has_content = message.content.is_some_and(|content| !content.is_empty());
        let history = &message.causal_history;
        !history.is_empty()
            && (has_content && !self.log.contains(message.message_id)
                || history
                    .iter()
                    .any(|entry| !self.log.contains(entry.message_id)))
    }

    /// The store does not have these. Only what is older than this participant's first receipt is
    /// lost by it.
    pub fn handle_irretrievable<'a>(&mut self, message_ids: impl IntoIterator<Item = &'a str>) {
        self.incoming.begin_step();
        let (incoming, mut around) = self.around();
        incoming.on_irretrievable(message_ids, &mut around);
    }

    /// A store has answered without these: others are asked for what is missing of them, sooner than a store would be
    /// given the time to bring it.
    pub fn handle_unstored<'a>(
        &mut self,
        message_ids: impl IntoIterator<Item = &'a str>,
        now: Now,
    ) {
        let times_ms = self.times_without_store(now.monotonic_ms);
        for message_id in message_ids {
            self.asking
                .on_unstored(message_id, times_ms, now.monotonic_ms);
        }
    }

    /// No store answers, or one does again: while none does, others are asked as for what none has.
    pub fn handle_store_away(&mut self, away: bool, now: Now) {
        let times_ms = self.times_without_store(now.monotonic_ms);
        self.asking.set_store_away(away, times_ms, now.monotonic_ms);
    }

    /// T_min and T_max where no store comes first, of so many as were heard lately: ids are free to forge, and who has
    /// left neither asks nor answers.
    pub(super) fn times_without_store(&self, monotonic_ms: i64) -> (i64, i64) {
        let since_ms = monotonic_ms - self.config.participant_ttl_ms;
        let live = self.participants.live_since(since_ms);
        self.config
            .times_without_store(live.take(MEMBERS_COUNTED_MAX).count())
    }

    /// A store was asked for the past and everything it had was taken in: what is unknown now is not
    /// older.
    pub fn handle_caught_up(&mut self) {
        self.participants.set_first_epoch_ms(1);
    }

    /// It has this content of a send of ours: the content is not sent again before somebody who lacks
    /// it is heard.
    pub fn handle_stored(&mut self, send_id: &str, ordinal: u32, now: Now) {
        self.outgoing.on_stored(send_id, ordinal, now.monotonic_ms);
    }

    // --- time -----------------------------------------------------------------------------------

    /// Does what is due; early and late calls are harmless.
    pub fn handle_timeout(&mut self, now: Now) {
        self.incoming.begin_step();
        let at_ms = now.monotonic_ms;
        self.asking.settle(at_ms);
        self.outgoing
            .on_timeout(at_ms, &self.participants, &mut self.log, &mut self.events);
        let (incoming, mut around) = self.around();
        incoming.on_timeout(at_ms, &mut around);
        self.want_parity(now);
    }

    /// Monotonic milliseconds of the next moment at which [`Machine::handle_timeout`] or
    /// [`Machine::poll_transmit`] has work; `None` for never.
    pub fn poll_timeout(&mut self) -> Option<i64> {
        let due = [
            self.outgoing.next_deadline(),
            self.incoming.next_deadline(),
            self.acknowledgements.due_ms,
            self.anti_entropy.due_ms,
            self.filter_request.due_ms,
            self.sync_schedule.due_ms,
            self.asking.next_request_ms(),
            self.answering.next_answer_ms(),
            self.next_parity_ms(),
            self.lacking.again_ms(),
            self.outgoing.inquiry_due_ms(),
        ];
        due.into_iter().flatten().min()
    }

    // --- outputs --------------------------------------------------------------------------------

    /// The oldest event that was not polled yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Messages to be taken in again, since the last call: a send goes on that was given up.
    pub fn poll_reopened(&mut self) -> Vec<Reopened> {
        self.given_up.poll_reopened()
    }

    /// The next message of an allowed kind, encoded now; `None` when nothing is due.
    ///
    /// Order: sync, repair, ephemeral, then contents that are due again and new ones in turn, of these
    /// first and further ones in turn. A content is sent again only after [`Machine::handle_transmitted`] or
    /// [`Machine::handle_transmit_failed`].
    pub fn poll_transmit(&mut self, now: Now, kinds: Kinds) -> Option<Transmit> {
        self.next_transmit(now, kinds)
    }

    // --- views ----------------------------------------------------------------------------------

    /// The channel.
    pub fn channel_id(&self) -> &str {
        &self.channel_id
    }

    /// This participant.
    pub fn sender_id(&self) -> &str {
        &self.sender_id
    }

    /// The newest Lamport timestamp.
    pub fn lamport_timestamp(&self) -> u64 {
        self.lamport.timestamp()
    }

    /// How many messages of a kind could leave, leaving aside syncs.
    pub fn waiting(&self, kind: TransmitKind) -> usize {
        match kind {
            TransmitKind::First => self.outgoing.fresh(),
            TransmitKind::Further => self.outgoing.queue().contents() - self.outgoing.fresh(),
            TransmitKind::Retransmission => self.outgoing.due(),
            TransmitKind::Sync => 0,
            TransmitKind::Ephemeral => self.transmission.ephemerals.len(),
            TransmitKind::Repair => self.answering.answers_held() + self.needs.queued(),
        }
    }

    /// Content bytes that wait for their first dispatch.
    pub fn queued_bytes(&self) -> usize {
        self.outgoing.queue().bytes()
    }

    /// Whether the outgoing buffer is below `outgoing_buffer_messages_max`, so that sends may be
    /// registered.
    pub fn has_room(&self) -> bool {
        self.outgoing.has_room()
    }

    /// Whether contents of a send of ours wait for their first dispatch.
    pub fn is_queued(&self, send_id: &str) -> bool {
        let send = self
            .outgoing
            .find(send_id)
            .and_then(|send| self.outgoing.get(send));
        send.is_some_and(|send| send.waits())
    }

    /// Contents of ours that were not encoded yet and are larger than this: send, ordinal and size.
    pub fn oversized(&self, content_bytes_max: usize) -> impl Iterator<Item = (&Name, u32, usize)> {
        self.outgoing.iter().flat_map(move |send| {
            let waiting = send
                .queue
                .iter()
                .map(|ordinal| (ordinal, &send.contents[ordinal as usize]));
            let large = waiting.filter(move |(_, content)| {
                content.wire.is_none() && content.size_bytes > content_bytes_max
            });
            large.map(|(ordinal, content)| (&send.send_id, ordinal, content.size_bytes))
        })
    }

    /// Whether a send of ours is known.
    pub fn knows_send(&self, send_id: &str) -> bool {
        self.outgoing.find(send_id).is_some()
    }

    /// Whether the machine still needs the stored message of an id: to send it again, or to repair
    /// others with.
    pub fn needs_message(&self, message_id: &str) -> bool {
        let id = message_id.as_bytes();
        let original = self.config.enable_repair && self.log.has_original(id);
        original || self.outgoing.find_content(id).is_some()
    }

    /// The message of an id that is stored, to send it again or to repair others with: one of ours that is
    /// not acknowledged is, whoever had used its id.
    pub fn message(&self, message_id: &str) -> Option<Octets> {
        let own = self.own_message(message_id).cloned();
        own.or_else(|| self.log.original(message_id.as_bytes()))
    }

    /// The message of a content of ours that may be sent again.
    pub fn own_message(&self, message_id: &str) -> Option<&Octets> {
        self.outgoing.stored_wire(message_id.as_bytes())
    }

    /// Whether a content is held, or can be reconstructed.
    pub fn holds(&self, message_id: &str) -> bool {
        self.log.contains(message_id.as_bytes())
    }

    /// What histories name and is not here, the longest known first.
    pub fn missing(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.incoming
            .missing()
            .iter()
            .map(|(_, message)| &message.entry)
    }

    /// A number that differs once another message is missing, or more is known of one.
    pub fn missing_version(&self) -> u64 {
        self.incoming.missing().version()
    }

    /// Whether an id is missing, and its send lost.
    pub fn missing_entry(&self, message_id: &str) -> Option<(&HistoryEntry, bool)> {
        let message = self.incoming.missing().get(message_id.as_bytes())?;
        let lost = self
            .incoming
            .get(message.send)
            .is_some_and(|send| send.lost);
        Some((&message.entry, lost))
    }

    /// Members: senders heard within `participant_ttl_ms`.
    pub fn participants_heard(&self, now: Now) -> Vec<Arc<str>> {
        self.participants
            .within(now.monotonic_ms, self.config.participant_ttl_ms)
    }

    /// Sends of ours that are neither delivered nor given up.
    pub fn pending_sends(&self) -> impl Iterator<Item = &Name> {
        self.outgoing
            .iter()
            .filter(|send| !send.finished)
            .map(|send| &send.send_id)
    }

    /// Sends that wait in a store, where nobody who lacks them is heard or answers.
    pub fn sends_in_store(&self) -> usize {
        self.outgoing.in_store().silent_sends()
    }

    /// Sends of ours that are remembered, the oldest first.
    pub fn sends(&self) -> impl Iterator<Item = &Name> {
        self.outgoing.iter().map(|send| &send.send_id)
    }

    /// Ids of the delivered sends, in the order of the log.
    pub fn ordered_ids(&self) -> impl Iterator<Item = &Name> {
        self.log.ordered_ids()
    }

    /// When an acknowledgement sync is due.
    pub fn acknowledgement_due_ms(&self) -> Option<i64> {
        self.acknowledgements.due_ms
    }

    /// Sizes of what is held.
    pub fn stats(&self) -> Stats {
        let (outgoing, incoming) = (&self.outgoing, &self.incoming);
        [
            ("log", self.log.len()),
            ("outgoing_queued", outgoing.queue().contents()),
            ("outgoing_queued_bytes", outgoing.queue().bytes()),
            ("outgoing_unacknowledged", outgoing.unacknowledged_count()),
            ("outgoing_in_store", outgoing.in_store().len()),
            ("incoming_sends", incoming.len()),
            ("incoming_contents", incoming.contents_held()),
            ("incoming_pairs", incoming.pairs()),
            ("missing", incoming.missing().len()),
            ("lost", incoming.lost().len()),
            ("unsaid_acknowledgements", self.acknowledgements.len()),
            ("repair_requests", self.asking.requests_held()),
            ("repair_answers", self.answering.answers_held()),
            ("participants", self.participants.len()),
            ("outgoing_finished_contents", outgoing.finished_contents()),
            ("heads", self.heads.len()),
            ("original_bytes", self.log.original_bytes()),
            (
                "acknowledgements_repeated",
                self.acknowledgements.repeated_count(),
            ),
            ("filters_remembered", self.filter_request.len()),
            ("entries_to_name", self.anti_entropy.owed_count()),
            ("entries_named", self.anti_entropy.named_count()),
            ("given_up_sends", self.given_up.len()),
            ("rivals", self.rivals.len()),
            ("records_unreadable", self.records.unreadable),
        ]
    }

    // --- parts ----------------------------------------------------------------------------------

    /// The incoming buffer, and what it acts on.
    pub(super) fn around(&mut self) -> (&mut Incoming, Surroundings<'_>) {
        let (_, incoming, _, around) = self.around_given_up();
        (incoming, around)
    }

    pub(super) fn around_given_up(
        &mut self,
    ) -> (&mut GivenUp, &mut Incoming, Voice<'_>, Surroundings<'_>) {
        let voice = Voice {
            filter: &mut self.filter,
            anti_entropy: &mut self.anti_entropy,
        };
        let around = Surroundings {
            log: &mut self.log,
            heads: &mut self.heads,
            lamport: &mut self.lamport,
            acknowledgements: &mut self.acknowledgements,
            asking: &mut self.asking,
            filter_request: &mut self.filter_request,
            members: self.participants.len(),
            rng: &mut *self.rng,
            events: &mut self.events,
        };
        (&mut self.given_up, &mut self.incoming, voice, around)
    }

    /// Lets ids that wait enter the filter.
    pub(super) fn settle_filter(&mut self) {
        let (given_up, incoming) = (&self.given_up, &self.incoming);
        let withholds = |entry: &super::log::Entry| {
            given_up.withholds(entry.send.and_then(|send| incoming.get(send)))
        };
        self.filter.settle(&self.log, &withholds);
    }

    pub(super) fn rebuild_filter(&mut self, base_sequence: u64, monotonic_ms: i64) {
        let (given_up, incoming) = (&self.given_up, &self.incoming);
        let withholds = |entry: &super::log::Entry| {
            given_up.withholds(entry.send.and_then(|send| incoming.get(send)))
        };
        self.filter
            .rebuild(base_sequence, monotonic_ms, &self.log, &withholds);
    }

    pub(super) fn take_filter(&mut self, now: Now, by_sync: bool) -> Vec<u8> {
        let (given_up, incoming) = (&self.given_up, &self.incoming);
        let withholds = |entry: &super::log::Entry| {
            given_up.withholds(entry.send.and_then(|send| incoming.get(send)))
        };
        self.filter.take(now, by_sync, &self.log, &withholds)
    }

    /// Holds a new content in the log and the filter.
    pub(super) fn add_to_log(
        &mut self,
        message_id: &Name,
        sender_id: &Arc<str>,
        lamport: u64,
        retrieval_hint: Option<&[u8]>,
        ordinal: u32,
    ) -> EntryRef {
        let (entry, forgotten) = self.log.add(
            message_id.clone(),
            Arc::clone(sender_id),
            lamport,
            retrieval_hint,
            ordinal,
        );
        for (mut entry, gone) in forgotten.into_iter().flatten() {
            let exactly = self.lamport.span(HORIZON_EXACTLY_MS);
            self.participants
                .on_forgotten(&entry.sender_id, entry.lamport, exactly);
            self.incoming.on_forgotten(&entry.message_id);
            self.acknowledgements.forget(gone, &mut entry);
            self.anti_entropy.forget(gone);
        }
        self.filter.insert(message_id.clone());
        entry
    }

    /// A content came, for the first time or again because its sender heard no acknowledgement.
    pub(super) fn owe(&mut self, entry: EntryRef, now: Now) {
        let members = self.participants.len();
        self.acknowledgements
            .received(entry, &mut self.log, now, members, &mut *self.rng);
    }

    /// All that was said of a send is true again: the rest is said.
    fn on_whole(&mut self, handle: SendRef, now: Now) {
        let Some(send) = self.incoming.get(handle) else {
            return;
        };
        if !self.given_up.on_whole(send, &mut self.log) {
            return;
        }
        for entry in send.contents.clone() {
            if let Some(held) = self.log.get(entry) {
                self.filter.insert(held.message_id.clone());
                self.owe(entry, now);
            }
        }
    }

    pub(super) fn remember_ephemeral(&mut self, message_id: Name) {
        self.recent_ephemerals.replace(message_id);
        if self.recent_ephemerals.len() > self.config.outgoing_buffer_messages_max {
            self.recent_ephemerals.pop_front();
        }
    }
}

fn check_header(
    given: usize,
    rule: MessageIdRule,
    channel_id: &str,
    sender_id: &str,
) -> Result<(), Refusal> {
    let needed = header_bytes_min(rule, channel_id, sender_id);
    if given < needed {
        Err(Refusal::Header { given, needed })
    } else {
        Ok(())
    }
}

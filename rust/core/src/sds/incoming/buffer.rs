//! The incoming buffer: who waits for whom, and what goes when.
//!
//! A send is a group of contents that make one message. Contents are handed up on receipt; the send
//! is released once it is reconstructed and every send it follows was released or is lost (SDS,
//! Deliver Message, kept between sends).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::lost::LostKeys;
use super::missing::{MissingMessage, MissingMessages};
use super::named::NamedSends;
use super::past::PastSends;
use super::rare::RareSet;
use super::send::{IncomingSend, Place, SendRef};
use super::step::{RELEASED_AT_ONCE_MAX, Step};
use crate::sds::config::{Config, Randomness};
use crate::sds::events::Event;
use crate::sds::ids::{
    SEND_ID_BYTES, apart_key, claimed_key, is_claimed, is_joined, joined_key, split_content_bytes,
    split_content_id,
};
use crate::sds::index::Index;
use crate::sds::lamport::LamportClock;
use crate::sds::log::{EntryRef, Heads, Log};
use crate::sds::name::Name;
use crate::sds::repair::Asking;
use crate::sds::slab::Slab;
use crate::sds::sync::acknowledgements::Acknowledgements;
use crate::sds::sync::filter_request::FilterRequest;

/// What is gone from the order may take this much room beyond twice what is held.
const STALE_ORDER_MIN: usize = 64;
pub(super) const CONTENT_COUNT_MAX: u32 = 65_536;
/// Pairs of a send and a cause that it waits for: once there are so many, a send takes on no more than
/// `CAUSES_OF_MANY_MAX` of its own.
pub const WAITING_PAIRS_MAX: usize = 131_072;
const CAUSES_OF_MANY_MAX: usize = 32;
/// Where nothing counts as lost a message that is whole waits so long at least, or twice as long as a
/// sender goes on sending again.
const PATIENCE_MS_MIN: i64 = 600_000;
/// So many acknowledgement timeouts without a content are a pause of its sender, however slow that is.
const PAUSE_TIMEOUTS: i64 = 6;

/// What the incoming buffer acts on when something is delivered, or found missing.
pub struct Surroundings<'a> {
    /// Where contents are held.
    pub log: &'a mut Log,
    /// Told what is delivered.
    pub heads: &'a mut Heads,
    /// Told what is delivered.
    pub lamport: &'a mut LamportClock,
    /// Told what is delivered.
    pub acknowledgements: &'a mut Acknowledgements,
    /// Told what is missing, and what is no longer.
    pub asking: &'a mut Asking,
    /// Told that something is missing.
    pub filter_request: &'a mut FilterRequest,
    /// Other participants that were heard.
    pub members: usize,
    /// The machine's.
    pub rng: &'a mut dyn Randomness,
    /// Where what happens is told.
    pub events: &'a mut VecDeque<Event>,
}

/// Sends whose records changed, and keys of those that are gone, each with the number of its last
/// change: most sends come and go between two calls, and then a name is copied once.
#[derive(Debug, Default)]
struct Changes {
    count: u64,
    sends: Vec<SendRef>,
    gone: Vec<(u64, Name)>,
}

impl Changes {
    /// The number of the next change.
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// No send is called so any more.
    fn on_gone(&mut self, key: Name) {
        let number = self.next();
        self.gone.push((number, key));
    }
}

/// All sends that are not delivered.
#[derive(Debug)]
pub struct Incoming {
    pub(super) by_send: bool,
    pub(super) me: Arc<str>,
    /// How long after its latest content the rest of a send is taken for lost: before anything tells how far apart they
    /// come, and at least and at most by that.
    pub(super) quiet_ms: i64,
    pub(super) quiet_least_ms: i64,
    pub(super) pause_ms: i64,
    pub(super) lost_ms: i64,
    /// How long a message that is whole waits at most: histories may name each other, or what nobody
    /// has.
    patience_ms: i64,
    /// Whether other participants answer requests, so that what is lost is asked for all the same.
    pub(super) others_answer: bool,
    nobody: Arc<str>,
    contents_max: usize,
    contents_held: usize,
    pub(super) sends: Slab<IncomingSend>,
    by_key: Index<IncomingSend>,
    /// Sends whose id another sender claimed first.
    claims: usize,
    /// Every send in the order in which it was first heard of, with what is gone since.
    order: VecDeque<SendRef>,
    /// Sends that the ids of their contents do not name.
    joined: usize,
    /// The send that is partial for longest, where it was looked for.
    eldest: Option<SendRef>,
    /// Reconstructed sends that wait, the longest waiting first.
    blocked: LinkedHashSet<SendRef>,
    /// Of these, those that follow what may be older than this participant's first receipt, and are not older
    /// themselves: however long that waits for what is older still, they wait for it as long as a newcomer
    /// does for what is named to it at first.
    behind_past: LinkedHashMap<SendRef, i64>,
    /// What became free waits for the next sweep (specification 004, Batched sweeping), or is not
    /// kept where there is no interval.
    sweep_interval_ms: i64,
    swept_ms: i64,
    ready: VecDeque<SendRef>,
    /// Whether more became free than one step releases.
    releasing: bool,
    /// How much the present step may release yet, and of how many pairs it leaves off.
    step: Step,
    /// Of all sends, how many causes they wait for.
    pairs: usize,
    pub(super) missing: MissingMessages,
    pub(super) lost: LostKeys,
    pub(super) past: PastSends,
    /// Ids of contents that came under our own name. Not kept over a restart.
    pub(super) own_names: LinkedHashSet<Name>,
    /// Of the content that came last, what was missing, and when it came: until the owner has read it.
    pub(super) found: Option<(MissingMessage, i64)>,
    pub(super) named: NamedSends,
    /// When partial sends are looked at again; what is out of date is passed over.
    pub(super) deadlines: BinaryHeap<Reverse<(i64, u64, SendRef)>>,
    pub(super) deadline_count: u64,
    /// For `poll_persist`.
    changes: Changes,
}

impl Incoming {
    /// An empty buffer of the participant `me`.
    pub fn new(config: &Config, me: &Arc<str>) -> Self {
        Incoming {
            by_send: config.by_send(),
            me: Arc::clone(me),
            quiet_ms: config.acknowledgement_timeout_ms,
            // Who repeats contents does so after that timeout; a number brings the rest before.
            quiet_least_ms: match config.answers_with_parity() {
                true => (config.acknowledgement_timeout_ms / 2).max(1),
                false => config.acknowledgement_timeout_ms,
            },
            pause_ms: (config.acknowledgement_timeout_ms).saturating_mul(PAUSE_TIMEOUTS),
            lost_ms: config.timeout_for_lost_messages_ms,
            patience_ms: match config.timeout_for_lost_messages_ms {
                0 => (2 * config.resending_ms()).max(PATIENCE_MS_MIN),
                lost_ms => 2 * lost_ms,
            },
            others_answer: config.enable_repair,
            nobody: "".into(),
            contents_max: config.incoming_buffer_messages_max,
            contents_held: 0,
            sends: Slab::default(),
            by_key: Index::default(),
            claims: 0,
            order: VecDeque::new(),
            joined: 0,
            eldest: None,
            blocked: LinkedHashSet::new(),
            behind_past: LinkedHashMap::new(),
            sweep_interval_ms: config.sweep_in_buf_interval_ms,
            swept_ms: 0,
            ready: VecDeque::new(),
            releasing: false,
            step: Step::new(0),
            pairs: 0,
            missing: MissingMessages::new(config.missing_messages_max),
            lost: LostKeys::new(config.missing_messages_max),
            past: PastSends::new(config.log_messages_max),
            own_names: LinkedHashSet::new(),
            found: None,
            named: NamedSends::new(config),
            deadlines: BinaryHeap::new(),
            deadline_count: 0,
            changes: Changes::default(),
        }
    }

    // --- views ----------------------------------------------------------------------------------

    /// Sends held.
    pub fn len(&self) -> usize {
        self.sends.len()
    }

    /// Contents held of them.
    pub fn contents_held(&self) -> usize {
        self.contents_held
    }

    /// Pairs of a send and a cause that it waits for.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// What is missing.
    pub fn missing(&self) -> &MissingMessages {
        &self.missing
    }

    /// What nothing waits for any more.
    pub fn lost(&self) -> &LostKeys {
        &self.lost
    }

    /// What is asked for of a send.
    pub fn missing_of(&self, send: SendRef) -> Vec<Name> {
        let send = self.sends.get(send);
        send.map_or_else(Vec::new, |send| send.missing.iter().cloned().collect())
    }

    /// So many contents are here that others made of a send. Gives who sent that, and its id.
    pub fn on_parity(&mut self, send: SendRef, held: u32) -> Option<(Arc<str>, Name)> {
        let send = self.sends.get_mut(send).filter(|send| send.is_partial())?;
        send.by_members = held;
        Some((Arc::clone(&send.sender_id), send.send_id.clone()))
    }

    /// Anybody is asked for more of a send, unless that was done `asked_max` times.
    pub fn may_ask_again(&mut self, send: SendRef, asked_max: u32) -> bool {
        let send = self.sends.get_mut(send);
        let Some(send) = send.filter(|send| send.asked_again < asked_max) else {
            return false;
        };
        send.asked_again += 1;
        true
    }

    /// A send; `None` where it was delivered or forgotten.
    pub fn get(&self, send: SendRef) -> Option<&IncomingSend> {
        self.sends.get(send)
    }

    /// The undelivered send that this buffer calls so.
    pub(super) fn keyed(&self, key: &[u8]) -> Option<SendRef> {
        self.by_key.find(key, &self.sends)
    }

    /// The undelivered send that the owner calls so.
    pub fn find(&self, sender_id: &str, send_id: &str) -> Option<SendRef> {
        let joined = self.joined(send_id, sender_id);
        let found = joined.or_else(|| self.keyed(send_id.as_bytes()));
        let is_its_own = |found: &SendRef| {
            let send = &self.sends[*found];
            !send.contents.is_empty() && *send.sender_id == *sender_id
        };
        let is_named = |found: &SendRef| self.sends[*found].contents.is_empty();
        found
            .filter(is_its_own)
            .or_else(|| self.claimed(send_id, sender_id))
            .or_else(|| found.filter(is_named))
    }

    /// The undelivered send of a participant that the ids of its contents do not name, and that the owner
    /// calls so: anybody may begin what another sends.
    fn joined(&self, send_id: &str, sender_id: &str) -> Option<SendRef> {
        if self.joined == 0 {
            return None;
        }
        self.keyed(joined_key(send_id, sender_id).as_bytes())
    }

    /// The undelivered send of a participant whose id another one claimed first: it stays apart though
    /// the other one's is gone.
    pub(super) fn claimed(&self, send_id: &str, sender_id: &str) -> Option<SendRef> {
        if self.claims == 0 {
            return None;
        }
        self.keyed(claimed_key(send_id, sender_id).as_bytes())
    }

    /// The send that a message id names, and its place there, under the rule "send".
    pub fn place_of<'a>(&self, message_id: &'a str) -> Option<(&'a str, u32)> {
        if self.by_send {
            split_content_id(message_id)
        } else {
            None
        }
    }

    /// What this buffer calls the send that a message id stands for. What names no send has a key that no
    /// send can have.
    pub fn key_of_id(&self, message_id: &str) -> Name {
        match self.place_of(message_id) {
            Some((send_id, _)) => Name::new(send_id),
            None if self.by_send && message_id.len() == SEND_ID_BYTES => apart_key(message_id),
            None => Name::new(message_id),
        }
    }

    /// As [`Incoming::place_of`], of the id of a content.
    pub fn place_in(&self, message_id: &Name) -> Option<(Name, u32)> {
        if !self.by_send {
            return None;
        }
        let (send_id, ordinal) = split_content_bytes(message_id.as_bytes())?;
        Some((Name::from_wire(send_id), ordinal))
    }

    /// An input comes: what it frees is one step.
    pub fn begin_step(&mut self) {
        self.step = Step::new(self.pairs);
    }

    // --- what arrives ---------------------------------------------------------------------------

    /// Whether no further content fits.
    pub fn is_full(&self) -> bool {
        self.contents_held >= self.contents_max
    }

    /// Makes room for one more content; false when all that is held is partial.
    ///
    /// The send that is partial for longest may have more: refused, it would never give its room to
    /// others. Another participant's content under its id is not of it.
    pub fn make_room(
        &mut self,
        message_id: &str,
        sender_id: &str,
        around: &mut Surroundings<'_>,
    ) -> bool {
        let Some(oldest) = self.blocked.front().copied() else {
            let eldest = self.eldest_partial().map(|eldest| &self.sends[eldest]);
            let place = self.place_of(message_id).zip(eldest);
            return place.is_some_and(|((send_id, _), eldest)| {
                *eldest.send_id == *send_id && *eldest.sender_id == *sender_id
            });
        };
        // Acknowledged contents are never dropped: the send that waits longest goes without its
        // causes.
        self.let_go(oldest, around);
        !self.is_full()
    }

    fn eldest_partial(&mut self) -> Option<SendRef> {
        let is_partial =
            |send: &SendRef| self.sends.get(*send).is_some_and(IncomingSend::is_partial);
        if self.eldest.is_none_or(|eldest| !is_partial(&eldest)) {
            self.eldest = self.order.iter().copied().find(is_partial);
        }
        self.eldest
    }

    /// Holds a send whose key no other one has.
    fn hold(&mut self, send: IncomingSend) -> SendRef {
        let handle = self.sends.insert(send);
        self.put_key(handle);
        if self.order.len() > 2 * self.sends.len() + STALE_ORDER_MIN {
            let sends = &self.sends;
            self.order.retain(|held| sends.get(*held).is_some());
        }
        self.order.push_back(handle);
        handle
    }

    /// A send is found by its key, which no other one has.
    fn put_key(&mut self, handle: SendRef) {
        let key = &self.sends[handle].key;
        self.claims += usize::from(is_claimed(key));
        self.joined += usize::from(is_joined(key));
        self.by_key.insert(handle, &self.sends);
    }

    /// A send is no longer found by the key that it has, or had.
    fn take_key(&mut self, handle: SendRef, key: Name) {
        self.claims -= usize::from(is_claimed(&key));
        self.joined -= usize::from(is_joined(&key));
        self.by_key.remove(key.as_bytes(), handle);
        self.changes.on_gone(key);
    }

    /// Holds a new content, of the send that its id names; gives its send.
    pub fn receive(
        &mut self,
        entry: EntryRef,
        send_id: Option<Name>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) -> SendRef {
        let held = around.log.get(entry).expect("it was just added");
        let sender_id = Arc::clone(&held.sender_id);
        let (mut key, send_id) = match send_id {
            Some(send_id) => (send_id.clone(), send_id),
            None => (self.key_of_id(&held.message_id), held.message_id.clone()),
        };
        let mut known = self.keyed(key.as_bytes());
        let named = self.named_as_anothers(held.message_id.as_bytes(), &sender_id);
        let is_anothers = known.is_some_and(|handle| {
            let send = &self.sends[handle];
            named == known || !send.contents.is_empty() && send.sender_id != sender_id
        });
        let begun = self.claimed(&key, &sender_id);
        if is_anothers || begun.is_some() {
            // Two senders claim one send id: they are two sends, and the first keeps the plain key.
            key = claimed_key(&key, &sender_id);
            known = begun;
        }
        let stray = begun.and_then(|begun| self.named_apart(begun, held.message_id.as_bytes()));
        let missed = self.missing.get(held.message_id.as_bytes());
        let missed = missed.map(|missed| missed.send);
        self.found = None;
        let handle = match known {
            None => {
                let mut send = IncomingSend::new(key, send_id, sender_id, monotonic_ms);
                // Most sends have one content.
                send.contents = vec![entry];
                self.hold(send)
            }
            Some(handle) => {
                let send = &self.sends[handle];
                if !send.missing.is_empty() || send.contents.is_empty() || stray.is_some() {
                    let send = &mut self.sends[handle];
                    (send.send_id, send.sender_id) = (send_id, sender_id);
                    let message_id = held.message_id.clone();
                    self.on_received(handle, &message_id, monotonic_ms, around);
                }
                let send = &mut self.sends[handle];
                send.on_progress(self.pause_ms, monotonic_ms);
                send.contents.push(entry);
                handle
            }
        };
        if let Some(held) = around.log.get_mut(entry) {
            held.send = Some(handle);
        }
        self.contents_held += 1;
        self.touch(handle);
        if let Some(named) = named.or(stray) {
            self.stand_in(handle, named, around);
        }
        if missed.is_some_and(|missed| missed != handle)
            && let Some(held) = around.log.get(entry)
            && let Some(missed) = self.missing.get(held.message_id.as_bytes())
            && missed.may_be_of(&held.sender_id)
        {
            // It is what histories speak of, though another participant began a send of that id first.
            let message_id = held.message_id.clone();
            self.on_received(handle, &message_id, monotonic_ms, around);
        }
        // It may have been all that was asked for of another send.
        for other in [named, stray, missed].into_iter().flatten() {
            self.drop_idle(other, around);
        }
        handle
    }

    /// The send that is only named, by whoever did not say whose, and that this content of `begun` is of.
    fn named_apart(&self, begun: SendRef, message_id: &[u8]) -> Option<SendRef> {
        let missing = self.missing.get(message_id)?;
        let named = self.sends.get(missing.send)?;
        let is_its_own = !missing.is_anothers(&self.sends[begun].sender_id);
        (is_its_own && named.contents.is_empty()).then_some(missing.send)
    }

    /// The send that histories say is another participant's, and of which nothing came but a content
    /// of `sender_id`.
    fn named_as_anothers(&self, message_id: &[u8], sender_id: &str) -> Option<SendRef> {
        if self.missing.is_empty() {
            return None;
        }
        let missing = self.missing.get(message_id);
        let missing = missing.filter(|missing| self.by_send && missing.is_anothers(sender_id))?;
        let named = self.sends.get(missing.send)?;
        named.contents.is_empty().then_some(missing.send)
    }

    /// What came under an id is what others wait for; the one that histories speak of is asked for
    /// still.
    fn stand_in(&mut self, handle: SendRef, named: SendRef, around: &mut Surroundings<'_>) {
        let Some(send) = self.sends.get_mut(named).filter(|_| named != handle) else {
            return;
        };
        send.lost = true;
        send.deadline_ms = None;
        let (key, dependents) = (send.key.clone(), std::mem::take(&mut send.dependents));
        self.named.discard(named);
        self.touch(named);
        self.lost.remember(key, true);
        let free = self.wait_instead(named, handle, dependents);
        self.go(free, around);
    }

    /// `dependents` wait for `target` and not for `cause`; gives those that wait for nothing then.
    fn wait_instead(
        &mut self,
        cause: SendRef,
        target: SendRef,
        dependents: RareSet<SendRef>,
    ) -> Vec<SendRef> {
        let mut free = Vec::new();
        for dependent in dependents {
            let waiting = self.sends.get_mut(dependent);
            if !waiting.is_some_and(|send| send.waits_for.remove(&cause)) {
                continue;
            }
            self.pairs -= 1;
            if dependent != target && !self.sends[target].lost {
                self.tie(dependent, target);
            }
            let dependent_send = &self.sends[dependent];
            if dependent_send.reconstructed && dependent_send.waits_for.is_empty() {
                // Nobody waits for a target that was given up.
                free.push(dependent);
            }
        }
        free
    }

    /// A longer history of the send replaces a shorter one.
    pub fn follow(&mut self, send: SendRef, length: usize, history: impl FnOnce() -> Vec<Name>) {
        if let Some(send) = self.sends.get_mut(send)
            && length > send.history.len()
        {
            send.history = history();
        }
    }

    /// A content came again that its sender repeats.
    pub fn on_repeated(&mut self, send: SendRef) {
        if let Some(send) = self.sends.get_mut(send) {
            send.is_repeated = true;
        }
    }

    /// Forgets a content that was received last, as if it had not come. The log forgets it next, and what
    /// was asked for is missing again ([`Incoming::miss_again`], [`Incoming::ask_again`]).
    pub fn refuse(&mut self, entry: EntryRef, around: &mut Surroundings<'_>) {
        let Some(held) = around.log.get(entry) else {
            return;
        };
        let Some(handle) = held.send else {
            return;
        };
        let found = self.found.as_ref();
        let was_missing =
            found.is_some_and(|(found, _)| *found.entry.message_id == *held.message_id);
        let send = &mut self.sends[handle];
        let Some(at) = send.contents.iter().position(|content| *content == entry) else {
            return;
        };
        send.contents.remove(at);
        self.contents_held -= 1;
        self.touch(handle);
        if !self.sends[handle].contents.is_empty() {
            return;
        }
        self.stop_waiting(handle);
        let send = &mut self.sends[handle];
        (send.content_count, send.contents_needed) = (None, None);
        (send.deadline_ms, send.siblings_reported) = (None, false);
        if send.dependents.is_empty() && send.missing.is_empty() && !was_missing {
            if let Some(send) = self.remove(handle) {
                self.forget(handle, &send);
            }
        } else if !send.lost {
            // Only named again, it counts as lost in time.
            let came_ms = send.last_progress_ms;
            self.resume_gaps(handle, came_ms);
        }
    }

    // --- what the owner says --------------------------------------------------------------------

    /// The owner read to which send a content belongs.
    pub fn place(
        &mut self,
        entry: EntryRef,
        place: Place<'_>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        let Place {
            send_id,
            ordinal,
            content_count,
            contents_needed,
        } = place;
        let Some(held) = around.log.get_mut(entry) else {
            return;
        };
        let Some(mut handle) = held.send else {
            return;
        };
        if let Some(ordinal) = ordinal {
            held.ordinal = ordinal;
        }
        let is_one_of_several =
            content_count != Some(1) && self.place_of(&held.message_id).is_none();
        let send = &self.sends[handle];
        let is_elsewhere =
            *send.send_id != *send_id || (is_one_of_several && !is_joined(&send.key));
        if is_elsewhere && !send.reconstructed {
            handle = self.join(handle, send_id, monotonic_ms, around);
        }
        let Some(send) = self.sends.get_mut(handle) else {
            return;
        };
        if content_count.is_some_and(|count| (1..=CONTENT_COUNT_MAX).contains(&count)) {
            send.content_count = content_count;
            send.contents_needed = contents_needed;
        }
        if send.lost {
            // Given up once, and it goes on: its gaps are told again.
            send.siblings_reported = false;
        }
        let is_watched = send.deadline_ms.is_some() || send.reconstructed;
        self.touch(handle);
        if content_count != Some(1) && !is_watched {
            self.watch(handle, monotonic_ms);
        }
    }

    /// The owner has the send's message: releases it unless it must wait.
    pub fn reconstructed(
        &mut self,
        handle: SendRef,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        self.sends[handle].reconstructed = true;
        self.forget_missing(handle, around);
        if self.sends[handle].waits_for.is_empty() {
            self.release(handle, around);
        } else {
            self.touch(handle);
            self.block(handle, monotonic_ms);
        }
    }

    /// The owner has the send's message, by another name than the send has: it goes at once.
    pub fn release_as(&mut self, handle: SendRef, send_id: &str, around: &mut Surroundings<'_>) {
        self.sends[handle].send_id = Name::new(send_id);
        self.let_go(handle, around);
    }

    fn block(&mut self, handle: SendRef, monotonic_ms: i64) {
        self.blocked.replace(handle);
        self.sends[handle].deadline_ms = Some(monotonic_ms + self.patience_ms);
        self.await_past(handle, monotonic_ms);
    }

    /// A send that waits is looked at once it has waited long enough for the past. For whoever was here in an
    /// earlier life that is no past: what kept it away lately is waited for as anything else.
    fn await_past(&mut self, handle: SendRef, monotonic_ms: i64) {
        let is_past = !self.named.returned && self.is_behind_past(handle);
        if is_past && !self.sends[handle].may_predate_us {
            self.behind_past
                .insert(handle, monotonic_ms + self.named.at_first_ms);
        }
    }

    fn is_behind_past(&self, handle: SendRef) -> bool {
        let mut causes = self.sends[handle].waits_for.iter();
        causes.any(|cause| self.sends[*cause].may_predate_us)
    }

    /// A send waits no longer for what is whole of the past; what is only named of that, or partial, is lost in
    /// its own time.
    fn leave_past(&mut self, handle: SendRef, monotonic_ms: i64, around: &mut Surroundings<'_>) {
        self.behind_past.remove(&handle);
        let waits = |cause: &SendRef| {
            let cause = &self.sends[*cause];
            cause.may_predate_us && cause.reconstructed
        };
        let causes = self.sends[handle].waits_for.iter().copied();
        for cause in causes.filter(waits).collect::<Vec<_>>() {
            self.sends[handle].waits_for.remove(&cause);
            self.sends[cause].dependents.remove(&handle);
            self.pairs -= 1;
        }
        if self.sends[handle].waits_for.is_empty() {
            self.release(handle, around);
        } else {
            self.touch(handle);
            self.await_past(handle, monotonic_ms);
        }
    }

    /// What a store has comes from there with all before it: it is waited for as anything else.
    pub fn on_stored(&mut self, handle: SendRef) {
        let send = self.sends.get_mut(handle);
        if let Some(send) = send.filter(|send| send.may_predate_us) {
            send.may_predate_us = false;
            self.touch(handle);
        }
    }

    /// `entry` was recovered with a send and never received.
    pub fn infer(&mut self, handle: SendRef, entry: EntryRef, around: &mut Surroundings<'_>) {
        let Some(held) = around.log.get_mut(entry) else {
            return;
        };
        held.send = Some(handle);
        let key = self.key_of_id(&held.message_id);
        let named = self.keyed(key.as_bytes());
        self.sends[handle].contents.push(entry);
        self.contents_held += 1;
        if let Some(named) = named
            && named != handle
            && self.sends[named].contents.is_empty()
        {
            self.absorb(handle, named, around);
        }
    }

    /// The send is not reconstructed: nothing waits for it, and its contents are not asked for.
    pub fn abandon(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        self.forget_missing(handle, around);
        let Some(send) = self.remove(handle) else {
            return;
        };
        self.forget(handle, &send);
        for &entry in &send.contents {
            if let Some(held) = around.log.get_mut(entry) {
                held.send = None;
            }
            around.log.touch(entry);
        }
        let free = self.unblock(handle, send.dependents);
        self.go(free, around);
    }

    // --- time -----------------------------------------------------------------------------------

    /// The next moment at which [`Incoming::on_timeout`] has work.
    pub fn next_deadline(&mut self) -> Option<i64> {
        let blocked = self.longest_waiting().map(|(at_ms, ..)| at_ms);
        let sweep = (!self.ready.is_empty()).then(|| self.next_sweep_ms());
        [self.next_gap_deadline(), blocked, sweep]
            .into_iter()
            .flatten()
            .min()
    }

    /// Reports the gaps of sends that fell quiet, and goes on without what stayed away too long.
    pub fn on_timeout(&mut self, monotonic_ms: i64, around: &mut Surroundings<'_>) {
        self.on_gap_timeout(monotonic_ms, around);
        for _ in 0..RELEASED_AT_ONCE_MAX {
            let may_go = !self.releasing && self.step.has_room(self.pairs);
            let due = self.longest_waiting();
            let Some((_, oldest, is_behind_past)) =
                due.filter(|(at_ms, ..)| may_go && *at_ms <= monotonic_ms)
            else {
                break;
            };
            if is_behind_past {
                self.leave_past(oldest, monotonic_ms, around);
                continue;
            }
            self.let_go(oldest, around);
        }
        // Last, since what was let go frees others.
        if !self.ready.is_empty() && monotonic_ms >= self.next_sweep_ms() {
            self.swept_ms = monotonic_ms;
            let ready = std::mem::take(&mut self.ready);
            self.release_ready(ready, around);
        }
    }

    /// The send that goes next without its causes, or without those that are past, and when.
    fn longest_waiting(&self) -> Option<(i64, SendRef, bool)> {
        let blocked = self.blocked.front();
        let blocked = blocked.and_then(|send| Some((self.sends[*send].deadline_ms?, *send, false)));
        let behind_past = self.behind_past.front();
        let behind_past = behind_past.map(|(send, at_ms)| (*at_ms, *send, true));
        let first = behind_past.into_iter().chain(blocked);
        first.min_by_key(|(at_ms, ..)| *at_ms)
    }

    fn next_sweep_ms(&self) -> i64 {
        if self.releasing {
            return self.swept_ms;
        }
        self.swept_ms + self.sweep_interval_ms
    }

    // --- waiting and going ----------------------------------------------------------------------

    /// `send` follows `cause`.
    pub fn wait(&mut self, send: SendRef, cause: SendRef) {
        let follows = |send: SendRef| self.sends.get(send).is_some_and(|send| !send.reconstructed);
        let counts = self.sends.get(cause).is_some_and(|cause| !cause.lost);
        if send != cause && counts && follows(send) {
            self.tie(send, cause);
        }
    }

    fn tie(&mut self, send: SendRef, cause: SendRef) {
        let is_full = self.pairs >= WAITING_PAIRS_MAX;
        let waiting = &mut self.sends[send];
        if waiting.waits_for.contains(&cause)
            || (is_full && waiting.waits_for.len() >= CAUSES_OF_MANY_MAX)
        {
            return;
        }
        waiting.waits_for.insert(cause);
        self.pairs += 1;
        self.touch(send);
        self.sends[cause].dependents.insert(send);
    }

    /// Delivers a send and whatever waited for it alone, causes first.
    pub fn release(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        let free = self.release_one(handle, around);
        self.go(free, around);
    }

    /// Nothing holds these any more.
    fn go(&mut self, free: Vec<SendRef>, around: &mut Surroundings<'_>) {
        if self.sweep_interval_ms != 0 || self.releasing {
            self.ready.extend(free);
        } else if !free.is_empty() {
            self.release_ready(free.into(), around);
        }
    }

    /// Releases these and what they alone held up, or of very many the first: the rest goes in the next
    /// step.
    fn release_ready(&mut self, mut ready: VecDeque<SendRef>, around: &mut Surroundings<'_>) {
        while self.step.has_room(self.pairs)
            && let Some(handle) = ready.pop_front()
        {
            if self.sends.get(handle).is_some() {
                ready.extend(self.release_one(handle, around));
            }
        }
        self.releasing = !ready.is_empty();
        // Before what became free later.
        ready.extend(std::mem::take(&mut self.ready));
        self.ready = ready;
    }

    /// Delivers one send; gives those that it alone held up.
    fn release_one(&mut self, handle: SendRef, around: &mut Surroundings<'_>) -> Vec<SendRef> {
        self.step.on_released();
        // Something of it may have been asked for since it was whole.
        self.forget_missing(handle, around);
        let Some(send) = self.remove(handle) else {
            return Vec::new();
        };
        self.forget(handle, &send);
        deliver(&send, around);
        around.events.push_back(Event::SendReleased {
            sender_id: send.sender_id,
            send_id: send.send_id,
            late: send.lost,
        });
        self.unblock(handle, send.dependents)
    }

    /// Takes a send that was removed out of every other table.
    fn forget(&mut self, handle: SendRef, send: &IncomingSend) {
        self.take_key(handle, send.key.clone());
        if !self.blocked.is_empty() {
            self.blocked.remove(&handle);
            self.behind_past.remove(&handle);
        }
        self.contents_held -= send.contents.len();
    }

    pub(super) fn remove(&mut self, handle: SendRef) -> Option<IncomingSend> {
        let send = self.sends.remove(handle)?;
        self.pairs -= send.waits_for.len();
        for cause in send.waits_for.iter() {
            if let Some(cause) = self.sends.get_mut(*cause) {
                cause.dependents.remove(&handle);
            }
        }
        Some(send)
    }

    /// `dependents` wait no longer for `cause`; gives those that may go now.
    fn unblock(&mut self, cause: SendRef, dependents: RareSet<SendRef>) -> Vec<SendRef> {
        let mut ready = Vec::new();
        if dependents.is_empty() {
            return ready;
        }
        for dependent in dependents {
            let Some(send) = self.sends.get_mut(dependent) else {
                continue;
            };
            if send.waits_for.remove(&cause) {
                self.pairs -= 1;
                if send.waits_for.is_empty() && send.reconstructed {
                    ready.push(dependent);
                }
                self.touch(dependent);
            }
        }
        ready
    }

    /// Releases a reconstructed send without the causes that it still waits for.
    fn let_go(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        self.stop_waiting(handle);
        self.release(handle, around);
    }

    fn stop_waiting(&mut self, handle: SendRef) -> RareSet<SendRef> {
        let causes = std::mem::take(&mut self.sends[handle].waits_for);
        self.pairs -= causes.len();
        for cause in causes.iter() {
            if let Some(cause) = self.sends.get_mut(*cause) {
                cause.dependents.remove(&handle);
            }
        }
        causes
    }

    /// A send is neither waited for nor asked for; one that was only named is forgotten, but for its
    /// key if it is to be remembered as settled.
    pub fn drop(&mut self, handle: SendRef, remember: bool, around: &mut Surroundings<'_>) {
        self.forget_missing(handle, around);
        let Some(send) = self.sends.get_mut(handle) else {
            return;
        };
        if !send.contents.is_empty() {
            self.go_on_without(handle, around);
            return;
        }
        let Some(send) = self.remove(handle) else {
            return;
        };
        self.forget(handle, &send);
        self.named.discard(handle);
        if remember {
            self.lost.remember(send.key, false);
        }
        let free = self.unblock(handle, send.dependents);
        self.go(free, around);
    }

    /// A send goes of which nothing is here and nothing is asked for.
    pub(super) fn drop_idle(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        if self.sends.get(handle).is_some_and(IncomingSend::is_idle) {
            self.drop(handle, false, around);
        }
    }

    /// Nothing waits for a send any longer.
    pub fn go_on_without(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        self.touch(handle);
        let send = &mut self.sends[handle];
        send.lost = true;
        let dependents = std::mem::take(&mut send.dependents);
        let free = self.unblock(handle, dependents);
        self.go(free, around);
    }

    /// Ids that do not name their send: the content joins the send that the owner read it into.
    fn join(
        &mut self,
        handle: SendRef,
        send_id: &str,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) -> SendRef {
        let key = joined_key(send_id, &self.sends[handle].sender_id);
        let Some(target) = self.keyed(key.as_bytes()) else {
            self.sends[handle].send_id = Name::new(send_id);
            self.rekey(handle, key, around.log);
            return handle;
        };
        self.absorb(target, handle, around);
        if let Some(target) = self.sends.get_mut(target) {
            target.on_progress(self.pause_ms, monotonic_ms);
        }
        target
    }

    /// A send has this key from now on, which no other one has.
    fn rekey(&mut self, handle: SendRef, key: Name, log: &mut Log) {
        let send = &mut self.sends[handle];
        let former = std::mem::replace(&mut send.key, key);
        for &entry in &send.contents {
            log.touch(entry);
        }
        for id in send.missing.iter() {
            self.missing.note_changed(id);
        }
        // What waits for it is stored with its key.
        for dependent in send.dependents.iter().copied().collect::<Vec<_>>() {
            self.touch(dependent);
        }
        self.take_key(handle, former);
        self.put_key(handle);
        self.touch(handle);
    }

    /// What was known of `handle` is part of `target`.
    fn absorb(&mut self, target: SendRef, handle: SendRef, around: &mut Surroundings<'_>) {
        self.forget_missing(handle, around);
        self.named.discard(handle);
        let causes = self.stop_waiting(handle);
        let Some(send) = self.sends.remove(handle) else {
            return;
        };
        self.take_key(handle, send.key);
        for entry in send.contents {
            if let Some(held) = around.log.get_mut(entry) {
                held.send = Some(target);
            }
            self.sends[target].contents.push(entry);
            around.log.touch(entry);
        }
        for cause in causes {
            self.wait(target, cause);
        }
        let free = self.wait_instead(handle, target, send.dependents);
        self.go(free, around);
    }

    // --- stored form ----------------------------------------------------------------------------

    /// The stored form of a send changed.
    pub(super) fn touch(&mut self, handle: SendRef) {
        let Some(send) = self.sends.get_mut(handle) else {
            return;
        };
        if std::mem::replace(&mut send.changed, self.changes.next()) == 0 {
            self.changes.sends.push(handle);
        }
    }

    /// Keys whose records changed since the last call, with the sends where they are still held, in the
    /// order of their last changes. Of those that are gone only where any `may_be_stored`.
    pub fn poll_changed(&mut self, may_be_stored: bool) -> Vec<(Name, Option<SendRef>)> {
        if !may_be_stored {
            self.changes.gone.clear();
        }
        let mut changed = Vec::with_capacity(self.changes.sends.len() + self.changes.gone.len());
        for (number, key) in self.changes.gone.drain(..) {
            // Another send may have the key by now.
            if self.by_key.find(key.as_bytes(), &self.sends).is_none() {
                changed.push((number, key, None));
            }
        }
        for handle in self.changes.sends.drain(..) {
            if let Some(send) = self.sends.get_mut(handle) {
                let number = std::mem::take(&mut send.changed);
                changed.push((number, send.key.clone(), Some(handle)));
            }
        }
        changed.sort_unstable_by_key(|(number, ..)| *number);
        let keys = changed.into_iter();
        keys.map(|(_, key, send)| (key, send)).collect()
    }

    /// Ids of missing messages whose records changed since the last call.
    pub fn poll_changed_missing(&mut self) -> LinkedHashSet<Name> {
        self.missing.poll_changed()
    }

    /// Keys that nothing waits for whose records changed since the last call.
    pub fn poll_changed_lost(&mut self) -> Vec<(Name, Option<bool>)> {
        self.lost.poll_changed()
    }

    /// Records of what left the log that are new since the last call, and those that go.
    pub fn poll_past(&mut self) -> BTreeMap<u32, Option<Vec<u64>>> {
        self.past.poll_changed()
    }

    /// Keys of the sends that a send waits for.
    pub fn causes_of(&self, send: &IncomingSend) -> impl Iterator<Item = &Name> {
        send.waits_for
            .iter()
            .filter_map(|cause| self.sends.get(*cause))
            .map(|cause| &cause.key)
    }

    /// Restores a stored send with its contents.
    pub fn restore_send(&mut self, send: IncomingSend, log: &mut Log) -> SendRef {
        self.contents_held += send.contents.len();
        let contents = send.contents.clone();
        let handle = self.hold(send);
        for entry in contents {
            if let Some(held) = log.get_mut(entry) {
                held.send = Some(handle);
            }
        }
        handle
    }

    /// The restored send of a key, or one that is only named.
    pub fn restored(&mut self, key: &str, monotonic_ms: i64) -> SendRef {
        if let Some(known) = self.keyed(key.as_bytes()) {
            return known;
        }
        let nobody = Arc::clone(&self.nobody);
        self.hold(IncomingSend::new(
            Name::new(key),
            Name::new(key),
            nobody,
            monotonic_ms,
        ))
    }

    pub(super) fn new_named(&mut self, key: Name, monotonic_ms: i64) -> SendRef {
        let nobody = Arc::clone(&self.nobody);
        let handle = self.hold(IncomingSend::new(key.clone(), key, nobody, monotonic_ms));
        self.touch(handle);
        handle
    }

    /// Ties restored sends to those they wait for, and starts their timers anew.
    pub fn resume(
        &mut self,
        causes: &[(SendRef, Vec<Name>)],
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        self.poll_changed(false);
        self.lost.poll_changed();
        self.missing.poll_changed();
        for (handle, keys) in causes {
            for key in keys {
                if let Some(cause) = self.keyed(key.as_bytes())
                    && cause != *handle
                    && !self.sends[cause].lost
                {
                    self.tie(*handle, cause);
                }
            }
        }
        let handles: Vec<_> = self.order.iter().copied().collect();
        for &handle in &handles {
            self.file(handle, around);
        }
        for handle in handles {
            let Some(send) = self.sends.get(handle) else {
                continue;
            };
            if send.is_idle() {
                // Earlier releases kept such.
                self.drop(handle, false, around);
            } else if !send.reconstructed {
                self.resume_gaps(handle, monotonic_ms);
            } else if !send.waits_for.is_empty() {
                self.block(handle, monotonic_ms);
            } else {
                self.release(handle, around);
            }
        }
    }

    /// A restored send has the key that it has here: earlier releases called what no id names by the id of
    /// what came of it first.
    fn file(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        let Some(send) = self.sends.get(handle) else {
            return;
        };
        let first = send.contents.first();
        let first = first.and_then(|first| around.log.get(*first));
        let content_id = first.map(|held| &held.message_id);
        let Some(id) = content_id.or(send.missing.front()) else {
            return;
        };
        let key = &send.key;
        let is_joined = content_id.is_some_and(|id| send.send_id != *id)
            || (content_id.is_some() && send.content_count != Some(1));
        let is_apart = key.as_bytes().starts_with(b"\0");
        let key = match self.place_of(id) {
            Some(_) => return,
            None if is_joined => joined_key(&send.send_id, &send.sender_id),
            None if !is_apart && self.key_of_id(id) != *id => apart_key(key),
            None => return,
        };
        match self.keyed(key.as_bytes()) {
            Some(known) if known == handle => {}
            Some(known) => self.absorb(known, handle, around),
            None => self.rekey(handle, key, around.log),
        }
    }

    /// All of them.
    #[cfg(debug_assertions)]
    pub fn sends(&self) -> impl Iterator<Item = &IncomingSend> {
        self.order
            .iter()
            .filter_map(|handle| self.sends.get(*handle))
    }

    /// What is counted is what is there, and who waits for whom is known to both.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        let sends = || {
            let held = |handle: &SendRef| Some((*handle, self.sends.get(*handle)?));
            self.order.iter().filter_map(held)
        };
        assert_eq!(self.sends.len(), sends().count());
        assert_eq!(self.by_key.len(), self.sends.len());
        for (handle, send) in sends() {
            assert_eq!(self.keyed(send.key.as_bytes()), Some(handle));
            assert!(!send.is_idle(), "{:?} is held for nothing", send.key);
            if send.reconstructed {
                let waits = match send.waits_for.is_empty() {
                    true => self.ready.contains(&handle),
                    false => self.blocked.contains(&handle) && send.deadline_ms.is_some(),
                };
                assert!(waits, "{:?} never goes", send.key);
            } else if !send.lost && self.lost_ms != 0 {
                let is_sized = send.content_count.is_some_and(|count| count > 1);
                assert!(
                    send.deadline_ms.is_some() || !(is_sized || send.contents.is_empty()),
                    "{:?} is never lost",
                    send.key
                );
            }
            if send.contents.is_empty() && send.deadline_ms.is_some() {
                assert!(self.named.holds(handle), "{:?} is never lost", send.key);
            }
            if let Some(at_ms) = send.deadline_ms.filter(|_| send.is_partial()) {
                let is_it =
                    |due: &Reverse<(i64, u64, SendRef)>| (due.0.0, due.0.2) == (at_ms, handle);
                assert!(
                    self.deadlines.iter().any(is_it),
                    "{:?} is never looked at",
                    send.key
                );
            }
        }
        let claims = sends().filter(|(_, send)| is_claimed(&send.key));
        assert_eq!(self.claims, claims.count());
        let joined = sends().filter(|(_, send)| is_joined(&send.key));
        assert_eq!(self.joined, joined.clone().count());
        for (_, send) in joined {
            assert_eq!(send.key, joined_key(&send.send_id, &send.sender_id));
        }
        assert_eq!(
            self.contents_held,
            sends().map(|(_, send)| send.contents.len()).sum::<usize>()
        );
        assert_eq!(
            self.pairs,
            sends().map(|(_, send)| send.waits_for.len()).sum::<usize>()
        );
        for (handle, send) in sends() {
            let is_tied = |cause: &SendRef| self.sends[*cause].dependents.contains(&handle);
            assert!(
                send.waits_for.iter().all(is_tied),
                "{:?} is not awaited",
                send.key
            );
            let is_tied = |waiting: &SendRef| self.sends[*waiting].waits_for.contains(&handle);
            assert!(
                send.dependents.iter().all(is_tied),
                "{:?} holds up nobody",
                send.key
            );
            let is_of_it =
                |id: &Name| self.missing.get(id.as_bytes()).map(|known| known.send) == Some(handle);
            assert!(
                send.missing.iter().all(is_of_it),
                "of {:?} nothing is missing",
                send.key
            );
        }
        for (id, missing) in self.missing.iter() {
            let send = self.sends.get(missing.send);
            assert!(
                send.is_some_and(|send| send.missing.contains(id)),
                "{id:?} is missing of {send:?}"
            );
        }
        assert!(
            self.blocked
                .iter()
                .all(|send| self.sends[*send].reconstructed)
        );
        assert!(
            self.behind_past
                .keys()
                .all(|send| self.blocked.contains(send))
        );
        self.missing.audit();
    }
}

/// Puts a delivered send where the causal order has it, and lets any message name its contents.
fn deliver(send: &IncomingSend, around: &mut Surroundings<'_>) {
    let Some(&first) = send.contents.first() else {
        return;
    };
    let mut newest = first;
    for &entry in &send.contents {
        if let Some(held) = around.log.get_mut(entry) {
            held.send = None;
        }
        if send.contents.len() > 1 {
            around.log.touch(entry);
        }
        let key = |entry: EntryRef| {
            around
                .log
                .get(entry)
                .map(|held| (held.lamport, &held.message_id))
        };
        if entry != newest && key(entry) > key(newest) {
            newest = entry;
        }
    }
    if let Some(held) = around.log.get(newest) {
        around.lamport.observe(held.lamport);
    }
    around.log.deliver(newest);
    around.heads.deliver(around.log, newest, &send.history);
    if around.acknowledgements.has_incomplete() {
        around.acknowledgements.send_delivered(&send.contents);
    }
}

//! What histories name and is not here: detected, waited for, and at last without being waited for.
//!
//! A send that is only named is missing at once. The gaps of a send of which something is held are
//! not: parity may close them. They are told once the send has been quiet for the acknowledgement
//! timeout. What is lost is asked for all the same, since whoever named it may hold it.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use super::buffer::{CONTENT_COUNT_MAX, Incoming, Surroundings};
use super::missing::MissingMessage;
use super::send::{IncomingSend, SendRef};
use crate::sds::events::Event;
use crate::sds::ids::{
    MESSAGE_ID_BYTES_MAX, RETRIEVAL_HINT_BYTES_MAX, SENDER_ID_BYTES_MAX, claimed_key, content_id,
    id_in, is_joined,
};
use crate::sds::log::{Entry, Log};
use crate::sds::name::Name;
use crate::wire::sds::{EntryView, HistoryEntry};

/// Deadlines that are out of date may take this much room beyond four times what is held.
const STALE_MIN: usize = 64;

/// So many times the distance of its contents without another one tell that a send is quiet.
const QUIET_PACES: i64 = 2;

/// Who names something, and when.
pub struct Naming<'a> {
    /// The send of the content that names it; none of a sync, which waits for nothing.
    pub send: Option<SendRef>,
    /// The participant.
    pub named_by: &'a Arc<str>,
    /// Now.
    pub monotonic_ms: i64,
    /// Of a participant that may speak of what is older than our first receipt: how long ago that
    /// was.
    pub since_first_ms: Option<i64>,
}

/// Contents that are only announced, by a header that anybody can write: so many are asked for at a
/// time, and twice as many as came.
const ANNOUNCED_AT_ONCE: usize = 8;

/// Ids of contents that came under our own name, of which nobody had said whose they are.
const OWN_NAMES_MAX: usize = 1_000;

impl Incoming {
    /// A history names these and the log has none of them.
    pub fn on_unknown(
        &mut self,
        by: &Naming<'_>,
        unknown: Vec<HistoryEntry>,
        around: &mut Surroundings<'_>,
    ) {
        let mut detected = Vec::new();
        for entry in unknown {
            let cause = self.cause(by, bounded(entry), &mut detected, around);
            if let (Some(send), Some(cause)) = (by.send, cause) {
                self.wait(send, cause);
            }
        }
        if !detected.is_empty() {
            around.events.push_back(Event::MissingDetected(detected));
        }
    }

    /// The undelivered send that `entry` stands for; `None` where nothing must wait for it.
    fn cause(
        &mut self,
        by: &Naming<'_>,
        entry: HistoryEntry,
        detected: &mut Vec<HistoryEntry>,
        around: &mut Surroundings<'_>,
    ) -> Option<SendRef> {
        let message_id = entry.message_id.as_str();
        if let Some(known) = self.missing.get(message_id.as_bytes()) {
            let send = known.send;
            let named_by = self
                .missing
                .learn(message_id.as_bytes(), &entry, by.named_by);
            around
                .asking
                .on_named_again(&entry, &named_by, by.monotonic_ms);
            return Some(send);
        }
        let is_ours = match &entry.sender_id {
            Some(sender_id) => **sender_id == *self.me,
            None => self.own_names.contains(message_id.as_bytes()),
        };
        // Names that are made here have NUL, and must not come from outside.
        let is_name =
            (1..=MESSAGE_ID_BYTES_MAX).contains(&message_id.len()) && !message_id.contains('\0');
        if is_ours || !is_name {
            return None;
        }
        let plain = self.key_of_id(message_id);
        let sender_id = entry.sender_id.as_deref().unwrap_or_default();
        let key = self.key_of(&plain, sender_id);
        let of_itself = by
            .send
            .is_some_and(|send| self.sends.get(send).is_some_and(|send| send.key == key));
        let is_settled = self.lost.is_settled(key.as_bytes())
            || self
                .lost
                .is_settled(claimed_key(&plain, sender_id).as_bytes());
        if of_itself || is_settled {
            return None;
        }
        let cause = match self.keyed(key.as_bytes()) {
            None => self.new_cause(key, &entry, by, around.log)?,
            Some(cause) if self.is_watched(cause, by) => return Some(cause),
            Some(cause) => cause,
        };
        self.track(cause, entry.clone(), by.named_by, by.monotonic_ms, around);
        detected.push(entry);
        self.sends.get(cause).map(|_| cause)
    }

    /// A send of which nothing was known but what `entry` says; `None` where it was delivered before.
    fn new_cause(
        &mut self,
        key: Name,
        entry: &HistoryEntry,
        by: &Naming<'_>,
        log: &Log,
    ) -> Option<SendRef> {
        let message_id = entry.message_id.as_str();
        let sender_id = entry.sender_id.as_deref().unwrap_or_default();
        let place = self.place_of(message_id);
        let first = place.and_then(|(send_id, _)| {
            let first = log.find(content_id(send_id, 0).as_bytes())?;
            log.get(first)
        });
        let is_of_it = |first: &Entry| {
            let came = self.came_key(first.message_id.as_bytes(), first.sender_id.as_bytes());
            (sender_id.is_empty() || *first.sender_id == *sender_id)
                && !self.lost.is_settled(came.as_bytes())
        };
        if first.is_some_and(is_of_it) {
            // Any content of a delivered send stands for it, also one that was never received here.
            return None;
        }
        if self.is_past(message_id) {
            return None;
        }
        // What came under the id is enough for what follows it.
        if log.contains(message_id.as_bytes()) {
            self.lost.remember(key.clone(), true);
        }
        let lost = self.lost.contains(key.as_bytes());
        let cause = self.new_named(key, by.monotonic_ms);
        let send = &mut self.sends[cause];
        send.lost = lost;
        send.may_predate_us = by.since_first_ms.is_some();
        if !lost {
            let since_ms = by.since_first_ms.unwrap_or(0);
            self.named
                .add(cause, &mut self.sends, by.monotonic_ms, since_ms);
        }
        Some(cause)
    }

    /// Whether a send that is named again asks for its contents itself, once it has been quiet: then what names it
    /// need not.
    fn is_watched(&mut self, cause: SendRef, by: &Naming<'_>) -> bool {
        if by.since_first_ms.is_some() && !self.sends[cause].may_predate_us {
            self.sends[cause].may_predate_us = true;
            self.touch(cause);
        }
        let send = &self.sends[cause];
        if send.contents.is_empty() {
            return false;
        }
        // Where its wire does not say how many contents there are, the quiet rule would never ask for this one.
        send.content_count.is_some() || send.reconstructed
    }

    /// What the send of a participant is called that histories name.
    fn key_of(&self, plain: &Name, sender_id: &str) -> Name {
        let known = self.keyed(plain.as_bytes());
        let known = known.map(|known| &self.sends[known]);
        let is_anothers = known.is_some_and(|known| {
            !known.contents.is_empty() && !sender_id.is_empty() && *known.sender_id != *sender_id
        });
        if is_anothers || self.claimed(plain, sender_id).is_some() {
            return claimed_key(plain, sender_id);
        }
        plain.clone()
    }

    /// Whether a history speaks of another message than the one of `held_sender` that has its id here.
    /// Ids of ours we know.
    pub fn is_of_another(&self, entry: EntryView<'_>, held_sender: &str) -> bool {
        let named = entry.sender_id.unwrap_or_default();
        self.by_send
            && self.others_answer
            && !named.is_empty()
            && *named != *held_sender.as_bytes()
            && *named != *self.me.as_bytes()
            && *held_sender != *self.me
    }

    /// Whether a content came of what a history names, beside the one that has its id here.
    pub fn came_beside(&self, entry: EntryView<'_>) -> bool {
        let key = self.came_key(entry.message_id, entry.sender_id.unwrap_or_default());
        self.lost.is_settled(key.as_bytes())
    }

    /// A content follows what a history names, of which a content came beside the one that has its id
    /// here: whoever has that, it waits for no other.
    pub fn wait_beside(&mut self, send: SendRef, entry: EntryView<'_>) {
        let [message_id, sender_id] = [Some(entry.message_id), entry.sender_id]
            .map(|text| String::from_utf8_lossy(text.unwrap_or_default()));
        let place = self.place_of(&message_id);
        let cause = place.and_then(|(send_id, _)| self.find(&sender_id, send_id));
        if let Some(cause) = cause.filter(|cause| !self.sends[*cause].contents.is_empty()) {
            self.wait(send, cause);
        }
    }

    /// Remembers that a content of `sender_id` came under an id that another one has.
    fn came_key(&self, message_id: &[u8], sender_id: &[u8]) -> Name {
        let [message_id, sender_id] = [message_id, sender_id].map(String::from_utf8_lossy);
        match self.place_of(&message_id) {
            Some(_) => claimed_key(&message_id, &sender_id),
            None => claimed_key(&self.key_of_id(&message_id), &sender_id),
        }
    }

    /// A content of `sender_id` came under an id that another one has: it is not asked for, unless
    /// histories say that it is a third participant's.
    pub fn on_rival(
        &mut self,
        message_id: &str,
        sender_id: &str,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        if !self.by_send {
            return;
        }
        let came = self.came_key(message_id.as_bytes(), sender_id.as_bytes());
        if !self.lost.is_settled(came.as_bytes()) {
            // Where its id names no send this is its key, and that may have been asked for.
            self.lost.forget(&came);
            self.lost.remember(came, false);
        }
        if self.missing.came(message_id.as_bytes(), sender_id) {
            if around.asking.on_others_came(message_id, monotonic_ms) {
                self.missing.note_changed(message_id);
            }
        } else if let Some(missing) = self.untrack(message_id.as_bytes(), around) {
            self.drop_idle(missing.send, around);
        }
    }

    /// There was no room for a rival, or it was of no use: its sender's content is asked for when it is
    /// named again.
    pub fn on_rival_refused(&mut self, message_id: &str, sender_id: &[u8]) {
        let came = self.came_key(message_id.as_bytes(), sender_id);
        self.lost.forget(&came);
    }

    /// Of a send that is given up nothing came but rivals; whether that is so for the first time.
    pub fn lose_rivals(&mut self, send_id: &str, sender_id: &str) -> bool {
        let key = claimed_key(send_id, sender_id);
        let is_first = !self.lost.contains(key.as_bytes());
        if is_first {
            self.lost.remember(key, true);
        }
        is_first
    }

    /// A message that came under a send id that another participant's has is whole. What histories say
    /// is a third one's is asked for still.
    pub fn on_rival_whole(
        &mut self,
        named: SendRef,
        send_id: &str,
        sender_id: &str,
        around: &mut Surroundings<'_>,
    ) {
        let key = claimed_key(send_id, sender_id);
        // It may have been given up before.
        self.lost.forget(&key);
        self.lost.remember(key, false);
        let Some(send) = self.sends.get(named) else {
            return;
        };
        let mut missing = send
            .missing
            .iter()
            .filter_map(|id| self.missing.get(id.as_bytes()));
        let is_asked_for = missing.any(|missing| missing.is_anothers(sender_id));
        drop(missing);
        if !is_asked_for {
            self.drop(named, false, around);
        }
    }

    /// A content came of a send that has missing messages. What histories say is another participant's is
    /// asked for still.
    pub(super) fn on_received(
        &mut self,
        send: SendRef,
        message_id: &Name,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        let sender_id = &self.sends[send].sender_id;
        // Under ids made of contents it is the same, whoever sent it.
        if !self.by_send || !self.missing.came(message_id.as_bytes(), sender_id) {
            for name in around.asking.on_came(message_id, monotonic_ms) {
                self.missing.note_changed(&name);
            }
            let found = self.untrack(message_id.as_bytes(), around);
            self.found = found.map(|missing| (missing, monotonic_ms));
        }
        if self.sends[send].contents.is_empty() {
            // The send speaks for itself now: what nobody named of it waits for the quiet rule. What
            // somebody did is asked for when its time comes, if it has not come by then.
            self.named.discard(send);
            self.sends[send].deadline_ms = None;
        }
    }

    /// A content came under our own name that this life has not sent: it is never taken in, so
    /// nothing waits for it. It may be forged: it is asked for still where somebody says that it is
    /// another participant's.
    pub fn on_own(&mut self, message_id: &str, around: &mut Surroundings<'_>) {
        let key = self.key_of_id(message_id);
        match self.keyed(key.as_bytes()) {
            None => {
                self.own_names.replace(Name::new(message_id));
                if self.own_names.len() > OWN_NAMES_MAX {
                    self.own_names.pop_front();
                }
            }
            Some(send) if self.sends[send].contents.is_empty() => {
                let missing = self.missing.get(message_id.as_bytes());
                if missing.is_some_and(|message| message.entry.sender_id.is_some()) {
                    self.go_on_quietly(send, around);
                } else {
                    self.drop(send, true, around);
                }
            }
            Some(_) => {}
        }
    }

    /// What follows a send that is only named goes on; it is asked for all the same, and no loss is
    /// told.
    pub fn go_on_quietly(&mut self, send: SendRef, around: &mut Surroundings<'_>) {
        self.named.discard(send);
        self.sends[send].deadline_ms = None;
        self.lost.remember(self.sends[send].key.clone(), true);
        self.go_on_without(send, around);
    }

    /// Looks at a partial send again once it has been quiet for long.
    pub(super) fn watch(&mut self, send: SendRef, monotonic_ms: i64) {
        self.set_deadline(send, monotonic_ms + self.quiet_least_ms);
    }

    /// The store does not have these: one that is most likely older than this participant is lost at
    /// once.
    pub fn on_irretrievable<'a>(
        &mut self,
        message_ids: impl IntoIterator<Item = &'a str>,
        around: &mut Surroundings<'_>,
    ) {
        for message_id in message_ids {
            let Some(message) = self.missing.get(message_id.as_bytes()) else {
                continue;
            };
            let send = message.send;
            if self.named.is_store_believed(send) && self.sends[send].contents.is_empty() {
                self.declare_lost(send, around);
            }
        }
    }

    // --- time -----------------------------------------------------------------------------------

    /// The next moment at which [`Incoming::on_gap_timeout`] has work; passes over what is done.
    pub(super) fn next_gap_deadline(&mut self) -> Option<i64> {
        while let Some(Reverse((at_ms, _, handle))) = self.deadlines.peek() {
            if is_current(self.sends.get(*handle), *at_ms) {
                break;
            }
            self.deadlines.pop();
        }
        let due_ms = self.deadlines.peek().map(|Reverse((at_ms, ..))| *at_ms);
        due_ms
            .into_iter()
            .chain(self.named.next_ms(&self.sends))
            .min()
    }

    pub(super) fn on_gap_timeout(&mut self, monotonic_ms: i64, around: &mut Surroundings<'_>) {
        for send in self.named.take_lost(&self.sends, monotonic_ms) {
            if self.sends.get(send).is_some() {
                self.declare_lost(send, around);
            }
        }
        while let Some(at_ms) = self
            .next_gap_deadline()
            .filter(|at_ms| *at_ms <= monotonic_ms)
        {
            let Some(Reverse((deadline_ms, _, send))) = self.deadlines.peek().copied() else {
                break;
            };
            if deadline_ms != at_ms {
                break;
            }
            self.deadlines.pop();
            self.sends[send].deadline_ms = None;
            self.check_quiet(send, monotonic_ms, around);
        }
    }

    /// How long after its latest content the rest of a send is taken for lost.
    fn quiet_ms_of(&self, send: SendRef) -> i64 {
        let Some(pace_ms) = self.sends[send].pace_ms() else {
            return self.quiet_ms;
        };
        (QUIET_PACES * pace_ms).clamp(self.quiet_least_ms, self.pause_ms)
    }

    fn check_quiet(&mut self, handle: SendRef, monotonic_ms: i64, around: &mut Surroundings<'_>) {
        let quiet_ms = self.quiet_ms_of(handle);
        let send = &mut self.sends[handle];
        let quiet_at_ms = send.last_progress_ms + quiet_ms;
        if monotonic_ms < quiet_at_ms {
            self.set_deadline(handle, quiet_at_ms);
            return;
        }
        if !send.siblings_reported {
            let (siblings, is_rest) = self.due_siblings(handle, around.log);
            let send = &mut self.sends[handle];
            send.siblings_reported = is_rest;
            send.siblings_told = match is_rest {
                // What has to give way is told again.
                true => 0,
                false => send.siblings_told + siblings.len() as u32,
            };
            self.ask_for(handle, siblings, monotonic_ms, around);
        }
        let Some(send) = self.sends.get(handle) else {
            return;
        };
        // There was no room for all of them.
        let mut due_ms = (!send.siblings_reported).then(|| monotonic_ms + quiet_ms);
        if self.lost_ms != 0 && !send.lost {
            let lost_at_ms = send.last_progress_ms + self.lost_ms;
            if monotonic_ms >= lost_at_ms {
                self.declare_lost(handle, around);
                return;
            }
            due_ms = Some(due_ms.map_or(lost_at_ms, |due_ms| due_ms.min(lost_at_ms)));
        }
        if let Some(due_ms) = due_ms {
            self.set_deadline(handle, due_ms);
        }
    }

    /// Of what is announced of a send and not here, what is to be told now: others each time without
    /// progress; and whether that is the rest.
    fn due_siblings(&self, handle: SendRef, log: &Log) -> (Vec<HistoryEntry>, bool) {
        let send = &self.sends[handle];
        let mut lacking = self.siblings(handle, log).peekable();
        let is_whole = lacking.peek().is_none();
        // Where its sender holds most of a full table, these would only take the place of others of his,
        // which would take it back.
        if is_whole || !self.missing.has_room_for(&send.sender_id) {
            return (Vec::new(), is_whole);
        }
        let mut lacking = lacking.skip(send.siblings_told as usize);
        let due = lacking.by_ref().take(announced_at_once(send));
        let due = due.map(|ordinal| sibling(send, ordinal)).collect();
        (due, lacking.next().is_none())
    }

    /// Ordinals of what is announced of a send and not here.
    fn siblings(&self, handle: SendRef, log: &Log) -> impl Iterator<Item = u32> + use<> {
        let send = &self.sends[handle];
        let contents = send.contents.iter().filter_map(|entry| log.get(*entry));
        let held: HashSet<u32> = contents.map(|held| held.ordinal).collect();
        // Enough to make it whole: of the others it is not even known that they left. Parity of the draft wire
        // does not say how much that is: what stands before it does.
        let before = || held.iter().max().copied();
        let count = (send.contents_needed.or(send.content_count).or_else(before))
            .filter(|count| *count <= CONTENT_COUNT_MAX && self.by_send && !is_joined(&send.key));
        (0..count.unwrap_or(0)).filter(move |ordinal| !held.contains(ordinal))
    }

    fn set_deadline(&mut self, handle: SendRef, at_ms: i64) {
        self.sends[handle].deadline_ms = Some(at_ms);
        self.deadline_count += 1;
        self.deadlines
            .push(Reverse((at_ms, self.deadline_count, handle)));
        if self.deadlines.len() > 4 * self.sends.len() + STALE_MIN {
            let sends = &self.sends;
            self.deadlines.retain(|Reverse((at_ms, _, handle))| {
                sends
                    .get(*handle)
                    .is_some_and(|send| send.deadline_ms == Some(*at_ms))
            });
        }
    }

    // --- lost -----------------------------------------------------------------------------------

    /// What follows a send goes on; it is asked for all the same.
    fn declare_lost(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        let send = &mut self.sends[handle];
        // Of one that is partly here the owner tells when it gives it up.
        if send.contents.is_empty() {
            send.deadline_ms = None;
            let key = send.key.clone();
            if !self.lost.contains(key.as_bytes()) {
                let first = send
                    .missing
                    .front()
                    .and_then(|id| self.missing.get(id.as_bytes()));
                let entry = first.map(|message| message.entry.clone());
                let entry = entry.unwrap_or_else(|| HistoryEntry {
                    message_id: id_in(&key).to_owned(),
                    ..HistoryEntry::default()
                });
                around.events.push_back(Event::DependencyLost(entry));
            }
            self.named.discard(handle);
            self.lost.remember(key, true);
        }
        self.go_on_without(handle, around);
        if !self.others_answer
            && let Some(send) = self.sends.get(handle)
        {
            for message_id in send.missing.iter().cloned().collect::<Vec<_>>() {
                self.forget_silent(&message_id, around);
            }
        }
    }

    /// Nobody answered for so long that it is asked for no more, unless somebody names it again.
    pub fn forget_silent(&mut self, message_id: &Name, around: &mut Surroundings<'_>) {
        let Some(handle) = self
            .missing
            .get(message_id.as_bytes())
            .map(|message| message.send)
        else {
            return;
        };
        self.untrack(message_id.as_bytes(), around);
        if let Some(send) = self.sends.get(handle)
            && send.missing.is_empty()
            && send.contents.is_empty()
        {
            let key = send.key.clone();
            self.drop(handle, false, around);
            self.lost.remember(key, true);
        }
    }

    /// What came last was asked for, and is refused as no content that could be meant: it is asked for
    /// still, though nothing waits for it. False where it was not asked for.
    pub fn ask_again(
        &mut self,
        message_id: &str,
        key: Name,
        around: &mut Surroundings<'_>,
    ) -> bool {
        let Some((missing, monotonic_ms)) = self.take_found(message_id) else {
            return false;
        };
        let handle = match self.keyed(key.as_bytes()) {
            Some(handle) => handle,
            None => self.new_named(key.clone(), monotonic_ms),
        };
        if self.sends[handle].contents.is_empty() {
            self.lost.remember(key, true);
            self.go_on_without(handle, around);
        }
        if self.sends.get(handle).is_some() {
            let MissingMessage {
                entry, named_by, ..
            } = missing;
            self.ask_in_share_of(&named_by, handle, vec![entry], monotonic_ms, around);
            // Under its id another participant's may be asked for.
            self.drop_idle(handle, around);
        }
        true
    }

    /// There was no room for the content of `sender_id` that came last: it is missing as before, and what
    /// follows it waits. It is no news, since there may be no room for the next one either.
    pub fn miss_again(
        &mut self,
        handle: SendRef,
        message_id: &str,
        sender_id: Option<String>,
        around: &mut Surroundings<'_>,
    ) {
        let found = self.take_found(message_id);
        let Some(send) = self.sends.get(handle) else {
            return;
        };
        let (entry, named_by, monotonic_ms) = match found {
            Some((missing, came_ms)) => (missing.entry, missing.named_by, came_ms),
            // It was named after it came.
            None if send.is_idle() => {
                let entry = HistoryEntry {
                    message_id: message_id.to_owned(),
                    retrieval_hint: None,
                    sender_id,
                };
                (entry, Arc::clone(&send.sender_id), send.last_progress_ms)
            }
            None => return,
        };
        if !self.missing.contains(entry.message_id.as_bytes()) {
            let message_id = Name::new(&entry.message_id);
            self.track(handle, entry, &named_by, monotonic_ms, around);
            around.asking.without_haste(&message_id);
        }
        // Under its id another participant's may be asked for.
        self.drop_idle(handle, around);
    }

    /// What was missing until this content came, which came last; and when it came.
    fn take_found(&mut self, message_id: &str) -> Option<(MissingMessage, i64)> {
        self.found
            .take_if(|(found, _)| found.entry.message_id == message_id)
    }

    /// These contents of a send are announced, or were here once, and are missing now.
    pub fn ask_for(
        &mut self,
        handle: SendRef,
        entries: Vec<HistoryEntry>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        let named_by = Arc::clone(&self.sends[handle].sender_id);
        self.ask_in_share_of(&named_by, handle, entries, monotonic_ms, around);
    }

    fn ask_in_share_of(
        &mut self,
        named_by: &Arc<str>,
        handle: SendRef,
        entries: Vec<HistoryEntry>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        let untracked = |entry: &HistoryEntry| !self.missing.contains(entry.message_id.as_bytes());
        let detected: Vec<_> = entries.into_iter().filter(untracked).collect();
        for entry in &detected {
            self.track(handle, entry.clone(), named_by, monotonic_ms, around);
        }
        if !detected.is_empty() {
            around.events.push_back(Event::MissingDetected(detected));
        }
    }

    /// What is announced or named of a send and not here, and who named it.
    pub fn lacking(&self, handle: SendRef, log: &Log) -> Vec<(HistoryEntry, Arc<str>)> {
        let send = &self.sends[handle];
        let named = send
            .missing
            .iter()
            .filter_map(|id| self.missing.get(id.as_bytes()));
        let mut lacking: Vec<_> = named
            .map(|message| (message.entry.clone(), Arc::clone(&message.named_by)))
            .collect();
        // What is named already comes first.
        let siblings = self.siblings(handle, log).take(announced_at_once(send));
        lacking
            .extend(siblings.map(|ordinal| (sibling(send, ordinal), Arc::clone(&send.sender_id))));
        lacking
    }

    /// Of a send that was given up: nothing waits for these, and somebody may hold them.
    pub fn go_on_asking(
        &mut self,
        lacking: Vec<(HistoryEntry, Arc<str>)>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        for (entry, named_by) in lacking {
            if self.missing.contains(entry.message_id.as_bytes()) {
                continue;
            }
            let key = self.key_of_id(&entry.message_id);
            let send = match self.keyed(key.as_bytes()) {
                Some(send) => send,
                None => {
                    let send = self.new_named(key, monotonic_ms);
                    self.sends[send].lost = true;
                    send
                }
            };
            let message_id = Name::new(&entry.message_id);
            self.track(send, entry, &named_by, monotonic_ms, around);
            // It was asked for while the send was waited for.
            around.asking.without_haste(&message_id);
        }
    }

    /// How often it was asked for is stored with it.
    pub fn on_asked(&mut self, message_id: &str) {
        self.missing.note_changed(message_id);
    }

    // --- the table ------------------------------------------------------------------------------

    fn track(
        &mut self,
        handle: SendRef,
        entry: HistoryEntry,
        named_by: &Arc<str>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        let evicted = self
            .missing
            .add(entry.clone(), handle, named_by, &self.sends);
        self.sends[handle]
            .missing
            .replace(Name::new(&entry.message_id));
        if around.asking.on_missing(entry, named_by, monotonic_ms) {
            around
                .filter_request
                .on_missing(monotonic_ms, around.members, around.rng);
        }
        if let Some((message_id, message)) = evicted {
            self.evict(&message_id, message, monotonic_ms, around);
        }
    }

    fn evict(
        &mut self,
        message_id: &Name,
        message: MissingMessage,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        around.asking.on_done(message_id);
        let handle = message.send;
        let Some(send) = self.sends.get_mut(handle) else {
            return;
        };
        send.missing.remove(message_id);
        if send.missing.is_empty() && send.contents.is_empty() {
            around
                .events
                .push_back(Event::DependencyLost(message.entry));
            // For want of room here, which says nothing of whether others hold it: who names it again
            // is believed.
            self.drop(handle, false, around);
        } else if !send.contents.is_empty() && send.siblings_reported {
            // Told again while the rest is waited for: there may be room then.
            send.siblings_reported = false;
            self.touch(handle);
            self.watch(handle, monotonic_ms);
        }
    }

    fn untrack(
        &mut self,
        message_id: &[u8],
        around: &mut Surroundings<'_>,
    ) -> Option<MissingMessage> {
        let (message_id, message) = self.missing.remove(message_id)?;
        around.asking.on_done(&message_id);
        if let Some(send) = self.sends.get_mut(message.send) {
            send.missing.remove(&message_id);
        }
        Some(message)
    }

    /// Nothing of a send is asked for any more.
    pub(super) fn forget_missing(&mut self, handle: SendRef, around: &mut Surroundings<'_>) {
        let Some(send) = self
            .sends
            .get_mut(handle)
            .filter(|send| !send.missing.is_empty())
        else {
            return;
        };
        for message_id in std::mem::take(&mut send.missing) {
            if self.missing.remove(message_id.as_bytes()).is_some() {
                around.asking.on_done(&message_id);
            }
        }
    }

    /// A content of a send that was delivered, or of one of ours, left the log: who names it later is told
    /// nothing new. Without send ids a later message may have its id again.
    pub fn on_forgotten(&mut self, message_id: &Name) {
        if let Some((send_id, _)) = self.place_of(message_id) {
            self.past.remember(send_id);
        }
    }

    /// Whether the send of a content is known to have left the log.
    pub fn is_past(&self, message_id: &str) -> bool {
        let place = self.place_of(message_id);
        place.is_some_and(|(send_id, _)| self.past.contains(send_id))
    }

    // --- stored form ----------------------------------------------------------------------------

    /// Restores a missing message.
    pub fn restore_missing(
        &mut self,
        entry: HistoryEntry,
        send: SendRef,
        named_by: &Arc<str>,
        monotonic_ms: i64,
        around: &mut Surroundings<'_>,
    ) {
        if !self.missing.contains(entry.message_id.as_bytes()) {
            self.track(send, entry, named_by, monotonic_ms, around);
        }
    }

    /// Starts the timer of a restored send that is not reconstructed.
    pub(super) fn resume_gaps(&mut self, send: SendRef, monotonic_ms: i64) {
        if self.sends[send].contents.is_empty() {
            self.named.restore(send, &mut self.sends, monotonic_ms);
        } else {
            self.watch(send, monotonic_ms);
        }
    }

    /// What others sent in an earlier life may be what is named now.
    pub fn set_returned(&mut self, returned: bool) {
        self.named.returned = returned;
    }

    /// Restores a key that nothing waits for.
    pub fn restore_lost(&mut self, key: Name, askable: bool) {
        self.lost.remember(key, askable);
    }

    /// Restores a record of what left the log; they come in the order of their numbers.
    pub fn restore_past(&mut self, number: u32, fingerprints: impl IntoIterator<Item = u64>) {
        self.past.restore(number, fingerprints);
    }
}

/// How many contents that a send only announces are asked for at a time.
fn announced_at_once(send: &IncomingSend) -> usize {
    ANNOUNCED_AT_ONCE + 2 * send.contents.len()
}

/// A content that a send announces.
fn sibling(send: &IncomingSend, ordinal: u32) -> HistoryEntry {
    HistoryEntry {
        message_id: content_id(&send.send_id, ordinal).to_string(),
        retrieval_hint: None,
        sender_id: Some(send.sender_id.to_string()),
    }
}

fn is_current(send: Option<&IncomingSend>, at_ms: i64) -> bool {
    send.is_some_and(|send| send.deadline_ms == Some(at_ms) && !send.reconstructed)
}

/// `entry` without a hint or sender that is too long to be one.
fn bounded(entry: HistoryEntry) -> HistoryEntry {
    let hint = entry.retrieval_hint.as_ref().map_or(0, Vec::len);
    let sender = entry.sender_id.as_ref().map_or(0, String::len);
    if hint > RETRIEVAL_HINT_BYTES_MAX || sender > SENDER_ID_BYTES_MAX {
        return HistoryEntry {
            message_id: entry.message_id,
            ..HistoryEntry::default()
        };
    }
    entry
}

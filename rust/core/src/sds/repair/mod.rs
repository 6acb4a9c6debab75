//! SDS-R: asking the channel for missing messages, and answering for others (SDS, SDS-Repair).

mod answers;
mod needs;
mod requests;

use std::collections::HashMap;
use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};
use sha2::{Digest, Sha256};

use super::config::Config;
use super::ids::entry_bytes_max;
use super::log::Log;
use super::name::Name;
use crate::bloom::farmhash64;
use crate::wire::sds::{HistoryEntry, WireFormat};
use answers::AnswerBuffer;
pub use needs::Needs;
use requests::RequestBuffer;

/// SDS-R: a message carries at most three requests.
const REQUESTS_PER_MESSAGE_MAX: usize = 3;
/// SDS-R: a repair buffer holds at most 1,000 entries.
pub const REPAIR_BUFFER_MAX: usize = 1_000;
/// Syncs sent for requests alone keep this distance, a shorter one where T_min is shorter: a peer that
/// invents ids must not make the others talk.
const REPAIR_SYNC_INTERVAL_MS: i64 = 1_000;
const REPAIR_SYNC_INTERVAL_MS_MIN: i64 = 100;
/// A message is asked for so often in the channel by syncs that leave for it alone; then by what
/// leaves anyway.
const URGENT_ROUNDS: u32 = 2;
/// It is asked for every T_max so often; then at distances that double with every second request that
/// found no answer.
const STEADY_ROUNDS: u32 = 4;
/// What was heard so often within `ANSWERS_REMEMBERED_MS` is answered again only after a pause that
/// doubles from then on: requests cost little, and answers much.
const ANSWERED_FREELY: u32 = 3;
const PAUSE_DOUBLINGS_MAX: u32 = 11;
const ANSWERS_REMEMBERED_MS: i64 = 3_600_000;
/// A content under whose id another one was heard is sent again so many times more, after T_max each.
const STOOD_BY: u32 = 3;
/// Messages whose requests were heeded: a recorded one that is replayed asks for nothing.
const HEEDED_MAX: usize = 10_000;
/// Beyond this distance it is not asked for again.
const SILENCE_MS_MAX: i64 = 24 * 3_600_000;

/// The hash that spreads requests and answers over time: @waku/sds takes the first eight bytes of
/// SHA-256, big-endian; nim-sds Nim's `hash(string)`, of which it works with absolute values. That
/// was derived from its source; it was never met as a live peer.
fn repair_hash(wire_format: WireFormat, parts: [&str; 2]) -> u64 {
    match wire_format {
        WireFormat::Spec => {
            let mut hasher = Sha256::new();
            parts.iter().for_each(|part| hasher.update(part));
            let digest = hasher.finalize();
            u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"))
        }
        WireFormat::Nim => farmhash64(parts.concat().as_bytes()),
    }
}

/// The absolute value that the wire takes of a hash.
fn magnitude(wire_format: WireFormat, hash: u64) -> u64 {
    match wire_format {
        WireFormat::Spec => hash,
        WireFormat::Nim => (hash as i64).unsigned_abs(),
    }
}

/// T_req - now.
pub fn request_offset_ms(
    participant: &str,
    message_id: &str,
    t_min_ms: i64,
    t_max_ms: i64,
    wire_format: WireFormat,
) -> i64 {
    let hash = magnitude(
        wire_format,
        repair_hash(wire_format, [participant, message_id]),
    );
    let spread = (t_max_ms - t_min_ms).max(1) as u64;
    (hash % spread) as i64 + t_min_ms
}

/// T_resp - now: 0 for the original sender, whose distance to itself is 0.
pub fn response_offset_ms(
    participant: &str,
    sender_id: &str,
    message_id: &str,
    t_max_ms: i64,
    wire_format: WireFormat,
) -> i64 {
    let hash = |text: &str| repair_hash(wire_format, [text, ""]);
    let distance = magnitude(wire_format, hash(participant) ^ hash(sender_id));
    let product = u128::from(distance) * u128::from(magnitude(wire_format, hash(message_id)));
    (product % t_max_ms.max(1) as u128) as i64
}

/// Whether `participant` answers for a message of `sender_id`; nobody does where the sender is
/// unknown.
pub fn in_response_group(
    participant: &str,
    sender_id: &str,
    message_id: &str,
    groups: u64,
    wire_format: WireFormat,
) -> bool {
    if sender_id.is_empty() {
        return false;
    }
    if groups <= 1 {
        return true;
    }
    let group =
        |name: &str| magnitude(wire_format, repair_hash(wire_format, [name, message_id])) % groups;
    group(participant) == group(sender_id)
}

/// A message that is missing for less than T_min.
#[derive(Debug)]
struct Upcoming {
    since_ms: i64,
    named_by: Arc<str>,
    entry: HistoryEntry,
}

/// A message that was sent again lately, by whomever.
#[derive(Debug)]
struct HeardAgain {
    last_ms: i64,
    times: u32,
    /// Whether we sent it last. Others may have missed that, and ask.
    by_us: bool,
}

/// The outgoing repair buffer (what we ask for) and the incoming one (what we answer).
///
/// A request that another participant makes first is put off, not forgotten, and one that found no
/// answer is made again after T_max: both implementations in the field ask once at most. What nobody
/// answers is asked for less and less often, and once more each time that somebody names it again.
#[derive(Debug)]
pub struct Repair {
    enabled: bool,
    t_min_ms: i64,
    t_max_ms: i64,
    groups: u64,
    wire_format: WireFormat,
    /// An answer that came so lately may have overtaken the request for it.
    overtaken_ms: i64,
    /// How long the sender of what anybody is asked for comes before the others.
    sender_first_ms: i64,
    /// Whether syncs leave by themselves, on which requests can ride.
    syncs: bool,
    me: Arc<str>,
    /// Missing for less than T_min: most of them come before anything need be computed. In order of
    /// time.
    upcoming: LinkedHashMap<Name, Upcoming>,
    requests: RequestBuffer,
    answers: AnswerBuffer,
    sync_not_before_ms: i64,
    /// How often each message was asked for, by us and by anyone: a stranger's requests silence ours
    /// no sooner.
    asked: HashMap<Name, (u32, u32)>,
    /// When others asked for what is held here and was not heard again since.
    requested_ms: LinkedHashMap<Name, i64>,
    /// When what is held here was last heard again, and how often lately.
    heard_again: LinkedHashMap<Name, HeardAgain>,
    heeded: LinkedHashSet<(Name, u64)>,
    /// What was answered for unasked: how many more times that is done, and how long after the others
    /// each time.
    standing: LinkedHashMap<Name, (u32, i64)>,
    /// Messages that are asked for no more.
    silent: Vec<Name>,
    /// For `poll_persist`: ids of answers.
    changed: LinkedHashSet<Name>,
}

impl Repair {
    /// Nothing is asked for or answered.
    pub fn new(config: &Config, me: &Arc<str>) -> Self {
        Repair {
            enabled: config.enable_repair,
            t_min_ms: config.repair_t_min_ms,
            t_max_ms: config.repair_t_max_ms,
            groups: config.repair_groups,
            wire_format: config.wire_format,
            overtaken_ms: config.window_ms(),
            sender_first_ms: config.sender_first_ms(),
            syncs: config.sync_min_interval_ms > 0,
            me: Arc::clone(me),
            upcoming: LinkedHashMap::new(),
            requests: RequestBuffer::default(),
            answers: AnswerBuffer::default(),
            sync_not_before_ms: 0,
            asked: HashMap::new(),
            requested_ms: LinkedHashMap::new(),
            heard_again: LinkedHashMap::new(),
            heeded: LinkedHashSet::new(),
            standing: LinkedHashMap::new(),
            silent: Vec::new(),
            changed: LinkedHashSet::new(),
        }
    }

    // --- what we ask for ------------------------------------------------------------------------

    /// Asks for `entry` at T_req unless it comes before; whether that is news.
    pub fn on_missing(
        &mut self,
        entry: HistoryEntry,
        named_by: &Arc<str>,
        monotonic_ms: i64,
    ) -> bool {
        if self.enabled {
            let upcoming = Upcoming {
                since_ms: monotonic_ms,
                named_by: Arc::clone(named_by),
                entry,
            };
            let name = Name::new(&upcoming.entry.message_id);
            self.upcoming.insert(name, upcoming);
        }
        self.enabled
    }

    /// What is asked for, and when next.
    pub fn requests(&self) -> impl Iterator<Item = (&Name, i64)> {
        let upcoming = self.upcoming.iter();
        let upcoming =
            upcoming.map(|(name, missing)| (name, self.first_ms(name, missing.since_ms)));
        self.requests.iter().chain(upcoming)
    }

    /// What is answered, and when.
    pub fn answers(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.answers.iter()
    }

    /// Missing messages that are or will be asked for.
    pub fn requests_held(&self) -> usize {
        self.requests.len() + self.upcoming.len()
    }

    /// It came: who named it named what exists.
    pub fn on_came(&mut self, message_id: &Name) {
        let id = message_id.as_bytes();
        let upcoming = self.upcoming.get(id).map(|missing| &missing.named_by);
        let asked_for = || Some(&self.requests.get(id)?.named_by);
        if let Some(named_by) = upcoming.or_else(asked_for).cloned() {
            self.requests.on_proven(named_by);
        }
    }

    /// It is no longer asked for.
    pub fn on_done(&mut self, message_id: &Name) {
        self.asked.remove(message_id);
        if self.upcoming.remove(message_id).is_none() {
            self.requests.remove(message_id);
        }
    }

    /// What is missing is asked for by what leaves anyway.
    pub fn without_haste(&mut self, message_id: &Name) {
        let (_, all) = self.asked.entry(message_id.clone()).or_default();
        *all = (*all).max(URGENT_ROUNDS);
    }

    /// Somebody names what is missing: whoever does may hold it, so it is asked for as soon as at
    /// first. It is in the share of `named_by`.
    pub fn on_named_again(&mut self, entry: &HistoryEntry, named_by: &Arc<str>, monotonic_ms: i64) {
        let message_id = entry.message_id.as_str();
        self.requests.set_named_by(message_id.as_bytes(), named_by);
        if let Some(missing) = self.upcoming.get_mut(message_id.as_bytes()) {
            missing.named_by = Arc::clone(named_by);
        } else if self.requests.get(message_id.as_bytes()).is_none() {
            // There may have been no room for it.
            self.on_missing(entry.clone(), named_by, monotonic_ms);
            return;
        }
        if self.asked_for(message_id).0 <= STEADY_ROUNDS {
            return;
        }
        let soon_ms = monotonic_ms + self.offset_ms(message_id);
        if let Some((entry, named_by, before_ms)) = self.settled(message_id) {
            self.ask_at(entry, named_by, before_ms.min(soon_ms));
        }
    }

    /// Gives those that have been missing for T_min their T_req.
    pub fn settle(&mut self, monotonic_ms: i64) {
        while let Some((_, missing)) = self.upcoming.front() {
            if missing.since_ms + self.t_min_ms > monotonic_ms {
                return;
            }
            if let Some((message_id, missing)) = self.upcoming.pop_front() {
                let at_ms = self.first_ms(&message_id, missing.since_ms);
                self.ask_at(missing.entry, missing.named_by, at_ms);
            }
        }
    }

    /// When a request may be due: at the earliest T_req, or when one must be given.
    pub fn next_request_ms(&self) -> Option<i64> {
        let upcoming_ms = self
            .upcoming
            .front()
            .map(|(_, missing)| missing.since_ms + self.t_min_ms);
        let at_ms = upcoming_ms.into_iter().chain(self.requests.next_ms()).min();
        at_ms.map(|at_ms| at_ms.max(self.sync_not_before_ms))
    }

    /// A sync left for requests alone: the next such one waits.
    pub fn on_sync_for_requests(&mut self, monotonic_ms: i64) {
        let interval_ms = self
            .t_min_ms
            .clamp(REPAIR_SYNC_INTERVAL_MS_MIN, REPAIR_SYNC_INTERVAL_MS);
        self.sync_not_before_ms = monotonic_ms + interval_ms;
    }

    /// Requests that ride on the message that leaves now; each is made again later if nothing comes.
    pub fn take_requests(&mut self, monotonic_ms: i64, budget_bytes: usize) -> Vec<HistoryEntry> {
        self.settle(monotonic_ms);
        let (mut taken, mut left) = (Vec::new(), budget_bytes);
        while taken.len() < REQUESTS_PER_MESSAGE_MAX {
            let Some((_, request)) = self.requests.take_turn(monotonic_ms) else {
                break;
            };
            let Some(after) = left.checked_sub(entry_bytes_max(&request.entry)) else {
                break;
            };
            let (entry, named_by) = (request.entry.clone(), Arc::clone(&request.named_by));
            left = after;
            self.ask_again_later(&entry, named_by, monotonic_ms);
            taken.push(entry);
        }
        taken
    }

    /// Messages that are asked for no more, since the last call.
    pub fn poll_silent(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.silent)
    }

    fn ask_again_later(&mut self, entry: &HistoryEntry, named_by: Arc<str>, monotonic_ms: i64) {
        let name = Name::new(&entry.message_id);
        let (ours, all) = self.asked.entry(name.clone()).or_default();
        *ours += 1;
        *all += 1;
        let wait_ms = self.wait_ms(&entry.message_id);
        if wait_ms <= SILENCE_MS_MAX {
            self.ask_at(entry.clone(), named_by, monotonic_ms + wait_ms);
        } else {
            self.requests.remove(&name);
            self.silent.push(name);
        }
    }

    /// Whether the time at which a message is asked for first is in the first half of what SDS-R leaves: a
    /// number may ask for it, and its name still comes within T_max where that is in vain.
    pub fn is_early(&self, message_id: &str) -> bool {
        self.asked_for(message_id).0 <= 1
            && self.offset_ms(message_id) <= i64::midpoint(self.t_min_ms, self.t_max_ms)
    }

    /// Contents are on their way that may bring what is asked for: the name waits until they had time to
    /// come. Where a stranger says so, once for each time that we asked.
    pub fn put_off(&mut self, message_id: &Name, by_stranger: bool, monotonic_ms: i64) {
        let (ours, all) = self.asked_for(message_id);
        if by_stranger && all > ours {
            return;
        }
        if let Some((entry, named_by, before_ms)) = self.settled(message_id) {
            if by_stranger {
                self.asked.entry(message_id.clone()).or_default().1 += 1;
            }
            let at_ms = monotonic_ms + self.sender_first_ms + self.t_min_ms + self.overtaken_ms;
            self.ask_at(entry, named_by, before_ms.max(at_ms));
        }
    }

    /// What is asked for under an id, or will be, and when; it is no longer among what has yet to get its
    /// time.
    fn settled(&mut self, message_id: &str) -> Option<(HistoryEntry, Arc<str>, i64)> {
        if let Some(missing) = self.upcoming.remove(message_id.as_bytes()) {
            let at_ms = self.first_ms(message_id, missing.since_ms);
            return Some((missing.entry, missing.named_by, at_ms));
        }
        let request = self.requests.get(message_id.as_bytes())?;
        let named_by = Arc::clone(&request.named_by);
        Some((request.entry.clone(), named_by, request.at_ms))
    }

    /// When what is missing since then is asked for first in this life. In an earlier one it may have
    /// been asked for in vain.
    fn first_ms(&self, message_id: &str, since_ms: i64) -> i64 {
        let wait_ms = match self.asked_for(message_id).0 {
            0 => self.offset_ms(message_id),
            _ => self.wait_ms(message_id).min(SILENCE_MS_MAX),
        };
        since_ms + wait_ms
    }

    /// How long after a request the next one follows.
    fn wait_ms(&self, message_id: &str) -> i64 {
        let (ours, _) = self.asked_for(message_id);
        let doublings = (ours.saturating_sub(STEADY_ROUNDS) / 2).min(32);
        self.period_ms(message_id).saturating_mul(1 << doublings)
    }

    fn ask_at(&mut self, entry: HistoryEntry, named_by: Arc<str>, at_ms: i64) {
        // Where nothing leaves by itself, there is nothing to ride on.
        let urgent = !self.syncs || self.asked_for(&entry.message_id).1 < URGENT_ROUNDS;
        self.requests.put(entry, named_by, at_ms, urgent);
    }

    /// How often a message was asked for without an answer: by us, and by anyone.
    pub fn asked_for(&self, message_id: &str) -> (u32, u32) {
        self.asked
            .get(message_id.as_bytes())
            .copied()
            .unwrap_or_default()
    }

    fn period_ms(&self, message_id: &str) -> i64 {
        self.t_max_ms + self.offset_ms(message_id)
    }

    fn offset_ms(&self, message_id: &str) -> i64 {
        request_offset_ms(
            &self.me,
            message_id,
            self.t_min_ms,
            self.t_max_ms,
            self.wire_format,
        )
    }

    // --- what we answer -------------------------------------------------------------------------

    /// Answers that are due now or later.
    pub fn answers_held(&self) -> usize {
        self.answers.len()
    }

    /// When the next answer is due.
    pub fn next_answer_ms(&self) -> Option<i64> {
        self.answers.next_ms()
    }

    /// Another content is heard under the id of one that is held: who took that one for it asks for
    /// nothing, so it is answered unasked, and some times more.
    pub fn stand_by(
        &mut self,
        entry: &HistoryEntry,
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        let name = Name::new(&entry.message_id);
        // What is to be sent again anyway is put off by nobody, and begins anew by no further content.
        let was_owed = self.answers.contains(name.as_bytes());
        if was_owed && self.standing.contains_key(&name) {
            return;
        }
        self.owe(entry, log, is_own, monotonic_ms);
        if let Some((at_ms, _)) = self.answers.get(name.as_bytes()) {
            let offset_ms = if was_owed { 0 } else { at_ms - monotonic_ms };
            self.standing.insert(name, (STOOD_BY, offset_ms));
        }
        if self.standing.len() > REPAIR_BUFFER_MAX {
            self.standing.pop_front();
        }
    }

    /// Somebody answered for what is held, us included: it need not be done now.
    pub fn on_answer(&mut self, message_id: &Name, monotonic_ms: i64) {
        if self.answers.remove(message_id) {
            self.changed.replace(message_id.clone());
        }
        let Some((left, offset_ms)) = self.standing.remove(message_id) else {
            return;
        };
        if left == 0 {
            return;
        }
        self.standing
            .insert(message_id.clone(), (left - 1, offset_ms));
        let entry = HistoryEntry {
            message_id: message_id.to_string(),
            ..HistoryEntry::default()
        };
        let gone = self
            .answers
            .put(entry, monotonic_ms + self.t_max_ms + offset_ms);
        self.changed.replace(message_id.clone());
        self.changed.extend(gone);
    }

    /// A message with requests came; whether it is the first time.
    pub fn heed(&mut self, message_id: Name, lamport_timestamp: u64) -> bool {
        if !self.heeded.insert((message_id, lamport_timestamp)) {
            return false;
        }
        if self.heeded.len() > HEEDED_MAX {
            self.heeded.pop_front();
        }
        true
    }

    /// Another participant asks for `entry`; `is_own` tells whether it is a content of ours whose
    /// bytes the outgoing buffer has.
    pub fn on_request(
        &mut self,
        entry: &HistoryEntry,
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        let message_id = entry.message_id.as_str();
        if let Some((wanted, named_by, before_ms)) = self.settled(message_id) {
            let at_ms = before_ms.max(monotonic_ms + self.period_ms(message_id));
            self.asked.entry(Name::new(message_id)).or_default().1 += 1;
            self.ask_at(wanted, named_by, at_ms);
            // Another content may be held under the id.
        }
        self.owe(entry, log, is_own, monotonic_ms);
    }

    /// What is held under an id is sent again at T_resp, where this participant answers for its sender.
    fn owe(
        &mut self,
        entry: &HistoryEntry,
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        let message_id = entry.message_id.as_str();
        if !self.enabled {
            return;
        }
        let held = log
            .find(message_id.as_bytes())
            .and_then(|held| log.get(held));
        let Some(held) = held.filter(|_| !self.was_answered(message_id, monotonic_ms)) else {
            return;
        };
        self.requested_ms
            .insert(held.message_id.clone(), monotonic_ms);
        if self.requested_ms.len() > REPAIR_BUFFER_MAX {
            self.requested_ms.pop_front();
        }
        let kept = || is_own() || log.has_original(message_id.as_bytes());
        if self.answers.contains(message_id.as_bytes()) || !kept() {
            return;
        }
        // The request may not name the sender, or a false one; who holds the message knows it.
        let (me, sender_id, wire_format) = (&*self.me, &*held.sender_id, self.wire_format);
        if in_response_group(me, sender_id, message_id, self.groups, wire_format) {
            let offset_ms =
                response_offset_ms(me, sender_id, message_id, self.t_max_ms, wire_format);
            let name = held.message_id.clone();
            let gone = self.answers.put(entry.clone(), monotonic_ms + offset_ms);
            self.changed.replace(name);
            self.changed.extend(gone);
        }
    }

    /// Whether the answer overtook the request, or was given so often that it must wait.
    fn was_answered(&self, message_id: &str, monotonic_ms: i64) -> bool {
        let heard = self.heard_again.get(message_id.as_bytes());
        heard.is_some_and(|heard| {
            let more = heard.times.saturating_sub(ANSWERED_FREELY);
            let pause_ms = self.overtaken_ms << more.min(PAUSE_DOUBLINGS_MAX);
            (more > 0 || !heard.by_us) && monotonic_ms - heard.last_ms < pause_ms
        })
    }

    /// A message that is held came again; whether it answers a request that was heard, true once a
    /// request.
    pub fn heard_again(&mut self, message_id: &Name, monotonic_ms: i64) -> bool {
        self.note_heard_again(message_id, false, monotonic_ms);
        self.on_answer(message_id, monotonic_ms);
        let requested_ms = self.requested_ms.remove(message_id);
        requested_ms.is_some_and(|requested_ms| monotonic_ms - requested_ms <= self.t_max_ms)
    }

    /// The id of the next answer that is due: it leaves now.
    pub fn take_answer(&mut self, monotonic_ms: i64) -> Option<Name> {
        let name = self.answers.due(monotonic_ms)?.clone();
        self.on_answer(&name, monotonic_ms);
        self.note_heard_again(&name, true, monotonic_ms);
        Some(name)
    }

    /// Whether a send was answered with parity so often lately that it must wait.
    pub fn rests(&self, send_id: &str, monotonic_ms: i64) -> bool {
        self.was_answered(send_id, monotonic_ms)
    }

    /// A send is answered with parity now.
    pub fn on_answered_with_parity(&mut self, send_id: &Name, monotonic_ms: i64) {
        self.note_heard_again(send_id, true, monotonic_ms);
    }

    /// When one more answer may leave.
    pub fn paced_ms(&self) -> i64 {
        self.answers.paced_ms()
    }

    /// The answer that was taken leaves, with so many bytes.
    pub fn on_answer_left(&mut self, size_bytes: usize, monotonic_ms: i64) {
        self.answers.on_left(size_bytes, monotonic_ms);
    }

    fn note_heard_again(&mut self, message_id: &Name, by_us: bool, monotonic_ms: i64) {
        let before = self.heard_again.remove(message_id);
        let lately = before.filter(|heard| monotonic_ms - heard.last_ms < ANSWERS_REMEMBERED_MS);
        let heard = HeardAgain {
            last_ms: monotonic_ms,
            times: lately.map_or(0, |heard| heard.times).saturating_add(1),
            by_us,
        };
        self.heard_again.insert(message_id.clone(), heard);
        if self.heard_again.len() > REPAIR_BUFFER_MAX {
            self.heard_again.pop_front();
        }
    }

    /// What is asked for is missing, and has one moment.
    #[cfg(debug_assertions)]
    pub fn audit(&self, is_missing: impl Fn(&Name) -> bool) {
        self.requests.audit();
        self.answers.audit();
        let asked_for = self.requests.iter().map(|(name, _)| name);
        assert!(asked_for.chain(self.upcoming.keys()).all(&is_missing));
        assert!(self.asked.keys().all(is_missing));
        let mut upcoming = self.upcoming.keys();
        assert!(upcoming.all(|name| self.requests.get(name.as_bytes()).is_none()));
    }

    // --- stored form ----------------------------------------------------------------------------

    /// A restart is no reason to ask as at first.
    pub fn restore_asked(&mut self, message_id: &str, asked: (u32, u32)) {
        if asked != (0, 0) {
            self.asked.insert(Name::new(message_id), asked);
        }
    }

    /// Ids of answers whose record changed since the last call, with what was asked for where the
    /// answer is still owed.
    pub fn poll_changed(&mut self) -> Vec<(Name, Option<&HistoryEntry>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|name| {
                let owed = self.answers.get(name.as_bytes()).map(|(_, entry)| entry);
                (name, owed)
            })
            .collect()
    }

    /// An answer was owed in an earlier life: it is owed still, and so it is stored, or its record goes.
    pub fn restore_answer(
        &mut self,
        entry: &HistoryEntry,
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        self.owe(entry, log, is_own, monotonic_ms);
        let name = Name::new(&entry.message_id);
        if self.answers.contains(name.as_bytes()) {
            self.changed.remove(&name);
        } else {
            self.changed.replace(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_MIN_MS: i64 = 1_000;
    const T_MAX_MS: i64 = 60_000;
    const ID: &str = "held";

    /// Of bob, who holds alice's message.
    fn holding() -> (Repair, Log) {
        let mut log = Log::new(10);
        let (held, _) = log.add(Name::new(ID), "alice".into(), 1, None, 0);
        log.keep_original(held, vec![7; 10].into());
        (asking(), log)
    }

    fn asking() -> Repair {
        Repair {
            enabled: true,
            t_min_ms: T_MIN_MS,
            t_max_ms: T_MAX_MS,
            groups: 1,
            wire_format: WireFormat::Spec,
            overtaken_ms: 100,
            sender_first_ms: 300,
            syncs: true,
            me: "bob".into(),
            upcoming: LinkedHashMap::new(),
            requests: RequestBuffer::default(),
            answers: AnswerBuffer::default(),
            sync_not_before_ms: 0,
            asked: HashMap::new(),
            requested_ms: LinkedHashMap::new(),
            heard_again: LinkedHashMap::new(),
            heeded: LinkedHashSet::new(),
            standing: LinkedHashMap::new(),
            silent: Vec::new(),
            changed: LinkedHashSet::new(),
        }
    }

    fn entry(message_id: &str) -> HistoryEntry {
        HistoryEntry {
            message_id: message_id.into(),
            ..HistoryEntry::default()
        }
    }

    fn due_ms(repair: &Repair) -> Option<i64> {
        repair.answers.get(ID.as_bytes()).map(|(at_ms, _)| at_ms)
    }

    #[test]
    fn what_is_held_under_a_contested_id_is_sent_three_times_more_in_its_own_time() {
        let (mut repair, log) = holding();
        let offset_ms = response_offset_ms("bob", "alice", ID, T_MAX_MS, WireFormat::Spec);
        let mut now_ms = 5_000;
        repair.stand_by(&entry(ID), &log, || false, now_ms);
        for _ in 0..STOOD_BY {
            assert_eq!(due_ms(&repair), Some(now_ms + offset_ms));
            // One more content under the id puts it off no further.
            repair.stand_by(&entry(ID), &log, || false, now_ms + 1);
            assert_eq!(due_ms(&repair), Some(now_ms + offset_ms));
            now_ms += offset_ms;
            assert_eq!(repair.take_answer(now_ms), Some(Name::new(ID)));
            now_ms += T_MAX_MS;
        }
        assert_eq!(repair.take_answer(now_ms + offset_ms), Some(Name::new(ID)));
        assert_eq!(due_ms(&repair), None);
    }

    #[test]
    fn what_is_owed_already_is_stood_by_from_when_it_leaves() {
        let (mut repair, log) = holding();
        repair.on_request(&entry(ID), &log, || false, 0);
        let owed_ms = due_ms(&repair).unwrap();
        repair.stand_by(&entry(ID), &log, || false, 10);
        assert_eq!(due_ms(&repair), Some(owed_ms));
        repair.take_answer(owed_ms);
        assert_eq!(due_ms(&repair), Some(owed_ms + T_MAX_MS));
    }

    #[test]
    fn a_request_neither_moves_an_answer_that_is_owed_nor_makes_one_of_what_is_not_kept() {
        let (mut repair, mut log) = holding();
        repair.on_request(&entry(ID), &log, || false, 0);
        let owed_ms = due_ms(&repair);
        repair.on_request(&entry(ID), &log, || false, 10);
        assert!(owed_ms.is_some() && due_ms(&repair) == owed_ms);
        log.forget_original(&Name::new(ID));
        let mut repair = asking();
        repair.on_request(&entry(ID), &log, || false, 0);
        assert_eq!(due_ms(&repair), None);
        repair.on_request(&entry(ID), &log, || true, 0);
        assert!(due_ms(&repair).is_some());
    }

    #[test]
    fn a_strangers_request_puts_ours_off_by_a_period_and_takes_the_haste_out_of_it() {
        let mut repair = asking();
        let log = Log::new(10);
        let carol: Arc<str> = "carol".into();
        let offset_ms = request_offset_ms("bob", "missing", T_MIN_MS, T_MAX_MS, WireFormat::Spec);
        repair.on_missing(entry("missing"), &carol, 0);
        repair.settle(T_MIN_MS);
        assert_eq!(repair.requests.get(b"missing").unwrap().at_ms, offset_ms);
        for strangers in 1..=URGENT_ROUNDS {
            assert!(repair.requests.next_ms().is_some());
            repair.on_request(&entry("missing"), &log, || false, 2_000);
            assert_eq!(repair.asked_for("missing"), (0, strangers));
        }
        let request = repair.requests.get(b"missing").unwrap();
        assert_eq!(request.at_ms, 2_000 + T_MAX_MS + offset_ms);
        assert_eq!(repair.requests.next_ms(), None);
    }

    #[test]
    fn a_request_comes_after_a_day_at_most_however_often_an_earlier_life_asked() {
        let mut repair = asking();
        repair.restore_asked("missing", (u32::MAX, u32::MAX));
        repair.on_missing(entry("missing"), &"carol".into(), 5);
        repair.settle(T_MIN_MS + 5);
        let request = repair.requests.get(b"missing").unwrap();
        assert_eq!(request.at_ms, 5 + SILENCE_MS_MAX);
    }

    #[test]
    fn a_config_without_groups_has_one() {
        for (groups, is_one) in [(0, true), (1, true), (1 << 40, false)] {
            let is_in = |name| in_response_group(name, "alice", ID, groups, WireFormat::Spec);
            assert!(is_in("alice"));
            assert_eq!(is_in("bob"), is_one);
        }
        assert!(!in_response_group("", "", ID, 1, WireFormat::Spec));
    }

    #[test]
    fn of_what_others_ask_and_answer_the_oldest_is_forgotten_first() {
        let count = REPAIR_BUFFER_MAX + 1;
        let (mut log, mut repair) = (Log::new(count), asking());
        let names: Vec<Name> = (0..count)
            .map(|number| Name::from(format!("held {number}")))
            .collect();
        for (at_ms, name) in (0..).zip(&names) {
            let (held, _) = log.add(name.clone(), "alice".into(), 1, None, 0);
            log.keep_original(held, vec![7; 10].into());
            repair.on_request(&entry(name), &log, || false, at_ms);
        }
        let (first, others) = names.split_first().unwrap();
        assert!(!repair.requested_ms.contains_key(first));
        assert!(others.iter().eq(repair.requested_ms.keys()));
        // Asked for again, it is the newest of them.
        repair.on_request(&entry(&others[0]), &log, || false, 2_000);
        assert_eq!(repair.requested_ms.front(), Some((&others[1], &2)));
        assert_eq!(repair.requested_ms.back(), Some((&others[0], &2_000)));
        for name in &names {
            repair.heard_again(name, 3_000);
        }
        assert!(others.iter().eq(repair.heard_again.keys()));
    }

    #[test]
    fn requests_that_were_heeded_longest_ago_are_forgotten_first() {
        let mut repair = asking();
        let mut heed = |number: usize| repair.heed(Name::from(format!("sync {number}")), 1);
        assert!((0..HEEDED_MAX).all(&mut heed));
        assert!(!heed(0));
        assert!(heed(HEEDED_MAX));
        // The first one was heard again since.
        assert!(!heed(0));
        assert!(heed(1));
        assert!(!repair.heed(Name::new("sync 0"), 1));
        assert!(repair.heed(Name::new("sync 0"), 2));
        assert_eq!(repair.heeded.len(), HEEDED_MAX);
    }

    #[test]
    fn what_is_stood_by_for_longest_is_forgotten_first() {
        let count = REPAIR_BUFFER_MAX + 1;
        let (mut log, mut repair) = (Log::new(count), asking());
        let names: Vec<Name> = (0..count)
            .map(|number| Name::from(format!("held {number}")))
            .collect();
        for name in &names {
            let (held, _) = log.add(name.clone(), "bob".into(), 1, None, 0);
            log.keep_original(held, vec![7; 10].into());
            // Ours are due at once, and leave before the next one.
            repair.stand_by(&entry(name), &log, || false, 0);
            assert_eq!(repair.take_answer(0).as_ref(), Some(name));
        }
        assert!(names[1..].iter().eq(repair.standing.keys()));
    }

    fn changed(repair: &mut Repair) -> Vec<(String, bool)> {
        let changed = repair.poll_changed().into_iter();
        let changed = changed.map(|(name, owed)| (name.to_string(), owed.is_some()));
        changed.collect()
    }

    /// What is stood by is owed no longer, since too much else is. There is room for one answer then.
    fn crowded_out() -> (Repair, Log, i64) {
        let (mut repair, log) = holding();
        repair.stand_by(&entry(ID), &log, || false, 0);
        let offset_ms = due_ms(&repair).unwrap();
        for number in 0..REPAIR_BUFFER_MAX {
            let gone = repair.answers.put(entry(&format!("other {number}")), 0);
            repair.changed.extend(gone);
        }
        assert_eq!(changed(&mut repair), [(ID.to_owned(), false)]);
        repair.on_answer(&Name::new("other 0"), 10);
        assert_eq!(changed(&mut repair), [("other 0".to_owned(), false)]);
        assert_eq!(due_ms(&repair), None);
        (repair, log, offset_ms)
    }

    #[test]
    fn what_was_crowded_out_is_stood_by_anew() {
        let (mut repair, log, offset_ms) = crowded_out();
        repair.stand_by(&entry(ID), &log, || false, 10);
        assert_eq!(due_ms(&repair), Some(10 + offset_ms));
        assert_eq!(changed(&mut repair), [(ID.to_owned(), true)]);
        repair.answers.audit();
    }

    #[test]
    fn what_is_to_be_sent_once_more_is_stored_and_what_must_go_for_it_is_not() {
        let (mut repair, _, offset_ms) = crowded_out();
        assert_eq!(repair.answers.put(entry("late"), i64::MAX), None);
        repair.on_answer(&Name::new(ID), 10);
        assert_eq!(due_ms(&repair), Some(10 + T_MAX_MS + offset_ms));
        let expected = [(ID.to_owned(), true), ("late".to_owned(), false)];
        assert_eq!(changed(&mut repair), expected);
        repair.answers.audit();
    }
}

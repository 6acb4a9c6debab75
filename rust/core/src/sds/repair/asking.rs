//! What we ask the channel for: messages that are missing (SDS, SDS-Repair: the outgoing repair buffer).

use std::collections::BTreeSet;
use std::sync::Arc;

use hashlink::LinkedHashMap;

use super::requests::{Haste, Request, RequestBuffer};
#[cfg(debug_assertions)]
use super::rules::REPAIR_BUFFER_MAX;
use super::rules::request_offset_ms;
use crate::maps::{HashMap, HashSet};
use crate::sds::config::Config;
use crate::sds::ids::entry_bytes_max;
use crate::sds::name::Name;
use crate::wire::sds::{HistoryEntry, WireFormat};

/// SDS-R: a message carries at most three requests.
const REQUESTS_PER_MESSAGE_MAX: usize = 3;
/// Syncs sent for requests alone keep this distance, a shorter one where T_min is shorter: a peer that
/// invents ids must not make the others talk.
const REPAIR_SYNC_INTERVAL_MS: i64 = 1_000;
const REPAIR_SYNC_INTERVAL_MS_MIN: i64 = 100;
/// One that found an answer is followed by the next after this long: what was named exists then, somebody
/// has it, and each further sync takes a further answer. Who lacks hundreds of messages would ask for
/// minutes otherwise, three at a time.
const ANSWERED_SYNC_INTERVAL_MS: i64 = 20;
/// A message is asked for so often in the channel by syncs that leave for it at once; then by what
/// leaves anyway, or, where something came that its namer had named, by a sync T_max after the last
/// message that asked for anything.
const URGENT_ROUNDS: u32 = 2;
/// That distance is twice as long after each so many syncs for requests in a row that found no answer, and
/// at most so many times. The distance between those that leave at once is so once.
const SYNCS_IN_VAIN: u32 = 32;
const IN_VAIN_DOUBLINGS_MAX: u32 = 3;
/// Where the others ask for a message so much oftener than we do, no sync of ours leaves for it.
const OUTNUMBERED: u32 = 3;
/// It is asked for every T_max so often; then at distances that double with every second request that
/// found no answer.
const STEADY_ROUNDS: u32 = 4;
/// What is followed from link to link is asked for so much sooner than anything that may be on its way.
const LINKS_PER_T_REQ: i64 = 10;
/// A request that another participant's content answers counts for so many.
const ROUNDS_IN_VAIN: u32 = 4;
/// Beyond this distance it is not asked for again.
const SILENCE_MS_MAX: i64 = 24 * 3_600_000;

/// A message that is missing for less than T_min.
#[derive(Debug)]
struct Upcoming {
    since_ms: i64,
    named_by: Arc<str>,
    entry: HistoryEntry,
}

/// What is missing, and when it is asked for.
///
/// A request that another participant makes first is put off, not forgotten, and one that found no
/// answer is made again after T_max: both implementations in the field ask once at most. What nobody
/// answers is asked for less and less often, and once more each time that somebody names it again.
#[derive(Debug)]
pub struct Asking {
    enabled: bool,
    t_min_ms: i64,
    t_max_ms: i64,
    /// T_min and T_max of what no store has.
    unstored_ms: (i64, i64),
    /// What a store has answered without.
    unstored: HashSet<Name>,
    /// Whether no store answers at all.
    store_away: bool,
    away_since_ms: Option<i64>,
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
    sync_not_before_ms: i64,
    /// When the last sync for requests alone left.
    sync_left_ms: Option<i64>,
    /// When a sync may leave for patient requests.
    patient_not_before_ms: i64,
    /// Syncs for requests alone since an answer came.
    syncs_in_vain: u32,
    /// How often each message was asked for, by us and by anyone: a stranger's requests silence ours
    /// no sooner, unless what answers them is another's.
    asked: HashMap<Name, (u32, u32)>,
    /// Messages that are asked for no more.
    silent: Vec<Name>,
}

impl Asking {
    /// Nothing is asked for.
    pub fn new(config: &Config, me: &Arc<str>) -> Self {
        Asking {
            enabled: config.enable_repair,
            t_min_ms: config.repair_t_min_ms,
            t_max_ms: config.repair_t_max_ms,
            unstored_ms: config.times_without_store(0),
            unstored: HashSet::default(),
            store_away: false,
            away_since_ms: None,
            wire_format: config.wire_format,
            overtaken_ms: config.window_ms(),
            sender_first_ms: config.sender_first_ms(),
            syncs: config.sync_min_interval_ms > 0,
            me: Arc::clone(me),
            upcoming: LinkedHashMap::new(),
            requests: RequestBuffer::default(),
            sync_not_before_ms: 0,
            sync_left_ms: None,
            patient_not_before_ms: 0,
            syncs_in_vain: 0,
            asked: HashMap::default(),
            silent: Vec::new(),
        }
    }

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
            // It may have been crowded out of the requests.
            self.unstored.remove(&name);
            self.upcoming.insert(name, upcoming);
        }
        self.enabled
    }

    /// A store has answered without it, so the others are asked sooner: within these T_min and T_max from now.
    pub fn on_unstored(&mut self, message_id: &str, times_ms: (i64, i64), monotonic_ms: i64) {
        self.unstored_ms = times_ms;
        let (ours, _) = self.asked_for(message_id);
        if ours >= STEADY_ROUNDS || self.unstored.contains(message_id.as_bytes()) {
            return;
        }
        if let Some((entry, named_by, before_ms)) = self.settled(message_id) {
            self.unstored.insert(Name::new(message_id));
            let soon_ms = monotonic_ms + self.offset_ms(message_id);
            self.ask_at(entry, named_by, before_ms.min(soon_ms));
            self.hurry(monotonic_ms);
        }
    }

    /// Something that was asked for came and names these: what of them is missing is as old, so it is not on its way. Where
    /// no store comes first it is asked for soon, since link follows link.
    pub fn on_named_by_answer<'a>(
        &mut self,
        named: impl Iterator<Item = &'a [u8]>,
        monotonic_ms: i64,
    ) {
        if !self.store_away {
            return;
        }
        for message_id in named {
            let is_new = |missing: &&Upcoming| missing.since_ms == monotonic_ms;
            if let Some(missing) = self.upcoming.get(message_id).filter(is_new) {
                let (entry, named_by) = (missing.entry.clone(), Arc::clone(&missing.named_by));
                let name = Name::from_wire(message_id);
                let soon_ms = self.offset_ms(&name) / LINKS_PER_T_REQ;
                self.upcoming.remove(&name);
                self.ask_at(entry, named_by, monotonic_ms + soon_ms);
            }
        }
    }

    /// No store answers, or one does again: while none does, all that is missing is asked for as what no store has.
    pub fn set_store_away(&mut self, away: bool, times_ms: (i64, i64), monotonic_ms: i64) {
        self.unstored_ms = times_ms;
        if std::mem::replace(&mut self.store_away, away) == away {
            return;
        }
        if !away {
            // Of a store that only takes long nothing is begun anew.
            if (self.away_since_ms).is_some_and(|since_ms| monotonic_ms - since_ms > self.t_max_ms)
            {
                self.count_by_longer_times();
            }
            return;
        }
        let is_first = self.away_since_ms.replace(monotonic_ms).is_none();
        let held = self.requests.iter().map(|(name, _)| name.clone());
        let names = held.chain(self.upcoming.keys().cloned());
        // What an earlier life asked for often is asked for once more, and then a store comes and goes.
        let is_hastened = |name: &Name| is_first || self.asked_for(name).0 < STEADY_ROUNDS;
        let names: Vec<Name> = names.filter(is_hastened).collect();
        for name in names {
            self.ask_soon(&name, monotonic_ms);
        }
        self.hurry(monotonic_ms);
    }

    /// What was asked for often at the shorter times would be asked for no more at the longer ones: it counts as asked for
    /// so often that the distance stays.
    fn count_by_longer_times(&mut self) {
        let ratio = self.t_max_ms / self.unstored_ms.1.max(1);
        let fewer = 2 * ratio.max(1).ilog2();
        for (ours, _) in self.asked.values_mut() {
            if *ours > STEADY_ROUNDS {
                *ours = ours.saturating_sub(fewer).max(STEADY_ROUNDS);
            }
        }
    }

    /// What is asked for, and when next.
    pub fn requests(&self) -> impl Iterator<Item = (&Name, i64)> {
        let upcoming = self.upcoming.iter();
        let upcoming =
            upcoming.map(|(name, missing)| (name, self.first_ms(name, missing.since_ms)));
        self.requests.iter().chain(upcoming)
    }

    /// Missing messages that are or will be asked for.
    pub fn requests_held(&self) -> usize {
        self.requests.len() + self.upcoming.len()
    }

    /// It came. Where we had asked for it, requests find answers: the next may leave soon. Who named it named what
    /// others have: what else that participant named and was asked for in vain is asked for as often as before. Gives
    /// what that is. What comes unasked says nothing: its sender may have named it, and invent the rest.
    pub fn on_came(&mut self, message_id: &Name, monotonic_ms: i64) -> BTreeSet<Name> {
        let id = message_id.as_bytes();
        let upcoming = self.upcoming.get(id).map(|missing| &missing.named_by);
        let asked_for = || Some(&self.requests.get(id)?.named_by);
        let named_by = upcoming.or_else(asked_for).cloned();
        let Some(named_by) = named_by.filter(|_| self.asked_for(message_id).0 > 0) else {
            return BTreeSet::new();
        };
        if let Some(left_ms) = self.sync_left_ms {
            let soon_ms = left_ms + ANSWERED_SYNC_INTERVAL_MS;
            self.sync_not_before_ms = self.sync_not_before_ms.min(soon_ms);
        }
        self.syncs_in_vain = 0;
        self.hurry(monotonic_ms);
        let in_vain = self.requests.take_in_vain(&named_by);
        for name in &in_vain {
            if let Some((ours, _)) = self.asked.get_mut(name) {
                *ours = (*ours).min(STEADY_ROUNDS);
            }
            self.ask_soon(name, monotonic_ms);
        }
        self.requests.on_proven(named_by);
        in_vain
    }

    /// Another participant's came under the id, which answers nobody: who was asked holds nothing else, so the next
    /// request waits, longer with each that anybody made. One such answer counts for each request. Whether this one
    /// does.
    pub fn on_others_came(&mut self, message_id: &str, monotonic_ms: i64) -> bool {
        let (ours, all) = self.asked_for(message_id);
        let counted = STEADY_ROUNDS.saturating_add(all.saturating_mul(ROUNDS_IN_VAIN));
        if all == 0 || counted <= ours {
            return false;
        }
        self.asked.insert(Name::new(message_id), (counted, all));
        if let Some((entry, named_by, before_ms)) = self.settled(message_id) {
            let wait_ms = self.wait_ms(message_id).min(SILENCE_MS_MAX);
            self.ask_at(entry, named_by, before_ms.max(monotonic_ms + wait_ms));
        }
        true
    }

    /// It is no longer asked for.
    pub fn on_done(&mut self, message_id: &Name) {
        self.asked.remove(message_id);
        self.unstored.remove(message_id);
        if self.upcoming.remove(message_id).is_none() {
            self.requests.remove(message_id);
        }
    }

    /// What is missing is asked for by what leaves anyway.
    pub fn without_haste(&mut self, message_id: &Name) {
        let (ours, all) = self.asked.entry(message_id.clone()).or_default();
        *all = (*all).max(ours.saturating_add(OUTNUMBERED));
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
        self.ask_soon(message_id, monotonic_ms);
        self.hurry(monotonic_ms);
    }

    /// A sync for patient requests leaves after T_max, if it was to leave later.
    fn hurry(&mut self, monotonic_ms: i64) {
        let soon_ms = monotonic_ms + self.patience_ms();
        self.patient_not_before_ms = self.patient_not_before_ms.min(soon_ms);
    }

    /// It is asked for as soon as at first, if that is sooner.
    fn ask_soon(&mut self, message_id: &str, monotonic_ms: i64) {
        let soon_ms = monotonic_ms + self.offset_ms(message_id);
        if let Some((entry, named_by, before_ms)) = self.settled(message_id) {
            self.ask_at(entry, named_by, before_ms.min(soon_ms));
        }
    }

    /// Gives those that have been missing for T_min their T_req.
    pub fn settle(&mut self, monotonic_ms: i64) {
        while let Some((_, missing)) = self.upcoming.front() {
            if missing.since_ms + self.first_t_min_ms() > monotonic_ms {
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
            .map(|(_, missing)| missing.since_ms + self.first_t_min_ms());
        let patient_ms = self.requests.next_patient_ms();
        let patient_ms = patient_ms.map(|at_ms| at_ms.max(self.patient_not_before_ms));
        let at_ms = upcoming_ms.into_iter().chain(self.requests.next_ms());
        let at_ms = at_ms.chain(patient_ms).min();
        at_ms.map(|at_ms| at_ms.max(self.sync_not_before_ms))
    }

    /// A sync left for requests alone: the next such one waits.
    pub fn on_sync_for_requests(&mut self, monotonic_ms: i64) {
        let interval_ms = self
            .t_min_ms
            .clamp(REPAIR_SYNC_INTERVAL_MS_MIN, REPAIR_SYNC_INTERVAL_MS);
        let in_vain = self.in_vain_doublings() > 0;
        self.sync_not_before_ms = monotonic_ms + (interval_ms << u32::from(in_vain));
        self.sync_left_ms = Some(monotonic_ms);
        self.syncs_in_vain = self.syncs_in_vain.saturating_add(1);
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
        if !taken.is_empty() {
            let asked = taken
                .iter()
                .map(|entry| self.asked_for(&entry.message_id).0);
            let is_steady = asked.min().is_some_and(|ours| ours <= STEADY_ROUNDS);
            let patience_ms = if is_steady {
                self.patience_ms()
            } else {
                self.t_max_ms
            };
            self.patient_not_before_ms = monotonic_ms + (patience_ms << self.in_vain_doublings());
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
        if *ours >= STEADY_ROUNDS {
            self.unstored.remove(&name);
        }
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
        let (t_min_ms, t_max_ms) = self.times_ms(message_id);
        self.asked_for(message_id).0 <= 1
            && self.offset_ms(message_id) <= i64::midpoint(t_min_ms, t_max_ms)
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
            let at_ms = monotonic_ms + self.number_wait_ms(message_id);
            self.ask_at(entry, named_by, before_ms.max(at_ms));
        }
    }

    /// A number left in place of this name, which follows where that is in vain.
    pub fn on_number_instead(&mut self, message_id: &Name, monotonic_ms: i64) {
        if let Some((entry, named_by, _)) = self.settled(message_id) {
            let at_ms = monotonic_ms + self.number_wait_ms(message_id);
            self.ask_at(entry, named_by, at_ms);
        }
    }

    /// How long what a number asks for has to come.
    fn number_wait_ms(&self, message_id: &str) -> i64 {
        self.sender_first_ms + self.times_ms(message_id).0 + self.overtaken_ms
    }

    /// T_min and T_max of a message.
    fn times_ms(&self, message_id: &str) -> (i64, i64) {
        match self.store_away || self.unstored.contains(message_id.as_bytes()) {
            true => self.unstored_ms,
            false => (self.t_min_ms, self.t_max_ms),
        }
    }

    fn in_vain_doublings(&self) -> u32 {
        (self.syncs_in_vain / SYNCS_IN_VAIN).min(IN_VAIN_DOUBLINGS_MAX)
    }

    /// T_max of those requests that are the first to be made again, while they are made at equal distances.
    fn patience_ms(&self) -> i64 {
        match self.store_away || !self.unstored.is_empty() {
            true => self.unstored_ms.1,
            false => self.t_max_ms,
        }
    }

    /// T_min of what was not asked for yet, and of which no store was asked.
    fn first_t_min_ms(&self) -> i64 {
        match self.store_away {
            true => self.unstored_ms.0,
            false => self.t_min_ms,
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
        let doublings = self.doublings(message_id).min(32);
        self.period_ms(message_id).saturating_mul(1 << doublings)
    }

    fn doublings(&self, message_id: &str) -> u32 {
        let (ours, _) = self.asked_for(message_id);
        ours.saturating_sub(STEADY_ROUNDS) / 2
    }

    fn ask_at(&mut self, entry: HistoryEntry, named_by: Arc<str>, at_ms: i64) {
        let (ours, all) = self.asked_for(&entry.message_id);
        let may_have_sync =
            all.saturating_sub(ours) < OUTNUMBERED && self.requests.is_proven(&named_by);
        let haste = match all {
            // Where nothing leaves by itself, there is nothing to ride on.
            _ if !self.syncs => Haste::Urgent,
            ..URGENT_ROUNDS => Haste::Urgent,
            _ if may_have_sync => Haste::Patient,
            _ => Haste::Rides,
        };
        let in_vain = self.doublings(&entry.message_id) > 0;
        self.requests.put(Request {
            entry,
            named_by,
            at_ms,
            haste,
            in_vain,
        });
    }

    /// How often a message was asked for without an answer: by us, and by anyone.
    pub fn asked_for(&self, message_id: &str) -> (u32, u32) {
        self.asked
            .get(message_id.as_bytes())
            .copied()
            .unwrap_or_default()
    }

    fn period_ms(&self, message_id: &str) -> i64 {
        self.times_ms(message_id).1 + self.offset_ms(message_id)
    }

    fn offset_ms(&self, message_id: &str) -> i64 {
        let (t_min_ms, t_max_ms) = self.times_ms(message_id);
        request_offset_ms(&self.me, message_id, t_min_ms, t_max_ms, self.wire_format)
    }

    /// Another participant asks for a message: where it is asked for here too, that waits for a period.
    pub fn on_request(&mut self, message_id: &str, monotonic_ms: i64) {
        if let Some((wanted, named_by, before_ms)) = self.settled(message_id) {
            let at_ms = before_ms.max(monotonic_ms + self.period_ms(message_id));
            self.asked.entry(Name::new(message_id)).or_default().1 += 1;
            self.ask_at(wanted, named_by, at_ms);
        }
    }

    /// What is asked for is missing, and has one moment. All that is missing is asked for, but for what
    /// nobody answered for long.
    #[cfg(debug_assertions)]
    pub fn audit(&self, missing: &HashSet<&Name>, missing_max: usize) {
        let is_missing = |name: &Name| missing.contains(name);
        if self.enabled && missing_max <= REPAIR_BUFFER_MAX {
            for name in missing {
                let id = name.as_bytes();
                let is_asked_for =
                    self.requests.get(id).is_some() || self.upcoming.contains_key(id);
                let is_silent = self.wait_ms(name) > SILENCE_MS_MAX;
                assert!(is_asked_for || is_silent, "{name:?} is never asked for");
            }
        }
        self.requests.audit();
        let asked_for = self.requests.iter().map(|(name, _)| name);
        assert!(asked_for.chain(self.upcoming.keys()).all(&is_missing));
        assert!(self.asked.keys().all(is_missing) && self.unstored.iter().all(is_missing));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_MIN_MS: i64 = 1_000;
    const T_MAX_MS: i64 = 60_000;

    /// Enough for any requests.
    const ROOM: usize = 10_000;
    const ID: &str = "missing";

    fn config() -> Config {
        Config {
            repair_t_min_ms: T_MIN_MS,
            repair_t_max_ms: T_MAX_MS,
            ..Config::example()
        }
    }

    fn of_bob() -> Asking {
        Asking::new(&config(), &"bob".into())
    }

    /// Something is missing since 0, and was asked for so often in an earlier life.
    fn missing(asked: (u32, u32)) -> Asking {
        let mut asking = of_bob();
        asking.restore_asked(ID, asked);
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.settle(T_MIN_MS);
        asking
    }

    /// Something came that was asked for, and that carol had named.
    fn prove_carol(asking: &mut Asking) {
        asking.restore_asked("came", (1, 1));
        asking.on_missing(entry("came"), &"carol".into(), 0);
        asking.on_came(&Name::new("came"), 0);
        asking.on_done(&Name::new("came"));
    }

    /// As [`missing`], where something came for a request that its namer had named.
    fn missing_of_proven(asked: (u32, u32)) -> Asking {
        let mut asking = of_bob();
        prove_carol(&mut asking);
        asking.restore_asked(ID, asked);
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.settle(T_MIN_MS);
        asking
    }

    fn offset_ms(message_id: &str) -> i64 {
        request_offset_ms("bob", message_id, T_MIN_MS, T_MAX_MS, WireFormat::Spec)
    }

    fn asked_ms(asking: &Asking) -> i64 {
        asking
            .requests
            .get(ID.as_bytes())
            .expect("it is asked for")
            .at_ms
    }

    fn take(asking: &mut Asking, now_ms: i64) -> Vec<String> {
        let taken = asking.take_requests(now_ms, ROOM).into_iter();
        taken.map(|entry| entry.message_id).collect()
    }

    fn entry(message_id: &str) -> HistoryEntry {
        HistoryEntry {
            message_id: message_id.into(),
            ..HistoryEntry::default()
        }
    }

    #[test]
    fn a_strangers_request_puts_ours_off_by_a_period_and_takes_the_haste_out_of_it() {
        let mut asking = of_bob();
        let carol: Arc<str> = "carol".into();
        let offset_ms = request_offset_ms("bob", "missing", T_MIN_MS, T_MAX_MS, WireFormat::Spec);
        asking.on_missing(entry("missing"), &carol, 0);
        asking.settle(T_MIN_MS);
        assert_eq!(asking.requests.get(b"missing").unwrap().at_ms, offset_ms);
        for strangers in 1..=URGENT_ROUNDS {
            assert!(asking.requests.next_ms().is_some());
            asking.on_request("missing", 2_000);
            assert_eq!(asking.asked_for("missing"), (0, strangers));
        }
        let request = asking.requests.get(b"missing").unwrap();
        assert_eq!(request.at_ms, 2_000 + T_MAX_MS + offset_ms);
        assert_eq!(asking.requests.next_ms(), None);
    }

    #[test]
    fn a_request_comes_after_a_day_at_most_however_often_an_earlier_life_asked() {
        let mut asking = of_bob();
        asking.restore_asked("missing", (u32::MAX, u32::MAX));
        asking.on_missing(entry("missing"), &"carol".into(), 5);
        asking.settle(T_MIN_MS + 5);
        let request = asking.requests.get(b"missing").unwrap();
        assert_eq!(request.at_ms, 5 + SILENCE_MS_MAX);
    }

    #[test]
    fn without_repair_nothing_is_asked_for() {
        let config = Config {
            enable_repair: false,
            ..config()
        };
        let mut asking = Asking::new(&config, &"bob".into());
        assert!(!asking.on_missing(entry(ID), &"carol".into(), 0));
        assert_eq!(
            (asking.requests_held(), asking.next_request_ms()),
            (0, None)
        );
        assert!(of_bob().on_missing(entry(ID), &"carol".into(), 0));
    }

    #[test]
    fn what_is_missing_gets_its_time_after_t_min_and_is_held_before() {
        let mut asking = of_bob();
        let first_ms = offset_ms(ID);
        assert!(first_ms > 3 * T_MIN_MS);
        asking.on_missing(entry(ID), &"carol".into(), 0);
        assert_eq!(asking.next_request_ms(), Some(T_MIN_MS));
        asking.settle(T_MIN_MS - 1);
        assert!(asking.requests.get(ID.as_bytes()).is_none());
        asking.settle(T_MIN_MS);
        assert_eq!(asking.next_request_ms(), Some(first_ms));
        asking.on_missing(entry("later"), &"carol".into(), T_MIN_MS);
        assert_eq!(asking.next_request_ms(), Some(2 * T_MIN_MS));
        assert_eq!((asking.requests_held(), asking.requests().count()), (2, 2));
        let mut asking = missing((0, 0));
        asking.on_missing(entry("later"), &"carol".into(), first_ms);
        assert_eq!(asking.next_request_ms(), Some(first_ms));
    }

    #[test]
    fn who_named_what_came_when_it_was_asked_for_is_asked_for_first() {
        for (settled, asked, first) in [
            (false, 1, "of alice"),
            (true, 1, "of alice"),
            (false, 0, "of mallory"),
            (true, 0, "of mallory"),
        ] {
            let mut asking = of_bob();
            asking.restore_asked("came", (asked, 1));
            let [alice, mallory] = ["alice", "mallory"].map(Arc::<str>::from);
            asking.on_missing(entry("came"), &alice, 0);
            if settled {
                asking.settle(T_MIN_MS);
            }
            asking.on_came(&Name::new("came"), T_MIN_MS);
            asking.on_done(&Name::new("came"));
            asking.on_missing(entry("of mallory"), &mallory, T_MIN_MS);
            asking.on_missing(entry("of alice"), &alice, T_MIN_MS);
            let taken = take(&mut asking, T_MIN_MS + T_MAX_MS);
            assert_eq!(taken.len(), 2);
            assert_eq!(taken[0], first);
        }
    }

    #[test]
    fn of_what_is_done_with_nothing_is_remembered() {
        let mut asking = missing((0, 0));
        assert_eq!(take(&mut asking, T_MAX_MS), [ID]);
        assert_eq!(asking.asked_for(ID), (1, 1));
        asking.on_done(&Name::new(ID));
        assert_eq!((asking.asked_for(ID), asking.requests_held()), ((0, 0), 0));
    }

    #[test]
    fn what_has_no_haste_waits_for_what_leaves_anyway() {
        let mut asking = of_bob();
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.without_haste(&Name::new(ID));
        asking.settle(T_MIN_MS);
        assert_eq!(asking.next_request_ms(), None);
        for (all, stands) in [(3, 4), (4, 4), (9, 9)] {
            let mut asking = missing((1, all));
            asking.without_haste(&Name::new(ID));
            assert_eq!(asking.asked_for(ID), (1, stands));
        }
    }

    #[test]
    fn what_was_asked_for_in_haste_in_vain_has_a_sync_t_max_after_the_last_that_asked() {
        let asked = (URGENT_ROUNDS, URGENT_ROUNDS);
        assert_eq!(missing(asked).next_request_ms(), None);
        let mut asking = missing_of_proven(asked);
        asking.restore_asked("other", asked);
        asking.on_missing(entry("other"), &"carol".into(), 0);
        asking.settle(T_MIN_MS);
        let [one_ms, other_ms] = [ID, "other"].map(|id| T_MAX_MS + offset_ms(id));
        let (first_ms, last_ms) = (one_ms.min(other_ms), one_ms.max(other_ms));
        assert!(last_ms - first_ms < T_MAX_MS);
        assert_eq!(asking.next_request_ms(), Some(first_ms));
        assert_eq!(take(&mut asking, first_ms).len(), 1);
        assert_eq!(asking.next_request_ms(), Some(first_ms + T_MAX_MS));
        // What leaves anyway takes it sooner, and the next sync waits from then.
        assert_eq!(take(&mut asking, last_ms).len(), 1);
        assert!(asking.next_request_ms() >= Some(last_ms + T_MAX_MS));
        // What takes nothing puts nothing off.
        let before_ms = asking.next_request_ms();
        assert_eq!(take(&mut asking, last_ms + 1), [""; 0]);
        assert_eq!(asking.next_request_ms(), before_ms);
    }

    #[test]
    fn no_sync_leaves_for_what_the_others_ask_for_oftener() {
        for (asked, has_sync) in [
            ((0, URGENT_ROUNDS), true),
            ((0, OUTNUMBERED), false),
            ((5, 5 + OUTNUMBERED - 1), true),
            ((5, 5 + OUTNUMBERED), false),
        ] {
            let asking = missing_of_proven(asked);
            assert_eq!(asking.next_request_ms().is_some(), has_sync);
            assert_eq!(asking.requests_held(), 1);
        }
    }

    #[test]
    fn once_an_answer_comes_what_else_its_namer_named_is_asked_for_as_before_it_was_in_vain() {
        let often = STEADY_ROUNDS + 9;
        let [carol, dave] = ["carol", "dave"].map(Arc::<str>::from);
        for (asked, named_by, is_sooner) in
            [(1, &carol, true), (0, &carol, false), (1, &dave, false)]
        {
            let mut asking = missing((often, often + 1));
            let before_ms = asked_ms(&asking);
            asking.restore_asked("answer", (asked, asked));
            asking.on_missing(entry("answer"), named_by, 0);
            asking.settle(T_MIN_MS);
            let sooner = asking.on_came(&Name::new("answer"), 2_000);
            asking.on_done(&Name::new("answer"));
            assert_eq!(sooner.contains(&Name::new(ID)), is_sooner);
            if is_sooner {
                assert_eq!(asking.asked_for(ID), (STEADY_ROUNDS, often + 1));
                assert_eq!(asked_ms(&asking), 2_000 + offset_ms(ID));
            } else {
                assert_eq!(asking.asked_for(ID), (often, often + 1));
                assert_eq!(asked_ms(&asking), before_ms);
            }
            asking.requests.audit();
        }
    }

    #[test]
    fn only_what_was_asked_for_in_vain_is_asked_for_sooner_once_an_answer_comes() {
        for (asked, is_in_vain) in [(STEADY_ROUNDS + 1, false), (STEADY_ROUNDS + 2, true)] {
            let mut asking = missing((asked, asked));
            let before_ms = asked_ms(&asking);
            asking.restore_asked("answer", (1, 1));
            asking.on_missing(entry("answer"), &"carol".into(), 0);
            asking.settle(T_MIN_MS);
            asking.on_came(&Name::new("answer"), 2_000);
            assert_eq!(asked_ms(&asking) < before_ms, is_in_vain);
        }
        // It is never put off by an answer.
        let mut asking = missing((STEADY_ROUNDS + 2, STEADY_ROUNDS + 2));
        let before_ms = asked_ms(&asking);
        asking.restore_asked("answer", (1, 1));
        asking.on_missing(entry("answer"), &"carol".into(), 0);
        asking.settle(before_ms);
        asking.on_came(&Name::new("answer"), before_ms - 1);
        assert_eq!(asked_ms(&asking), before_ms);
    }

    #[test]
    fn where_no_syncs_leave_by_themselves_every_request_has_haste() {
        let config = Config {
            sync_min_interval_ms: 0,
            ..config()
        };
        let mut asking = Asking::new(&config, &"bob".into());
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.without_haste(&Name::new(ID));
        asking.settle(T_MIN_MS);
        assert_eq!(asking.next_request_ms(), Some(offset_ms(ID)));
    }

    #[test]
    fn what_is_named_again_is_in_the_share_of_who_named_it_last() {
        let dave: Arc<str> = "dave".into();
        let mut asking = of_bob();
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.on_named_again(&entry(ID), &dave, 1);
        asking.settle(T_MIN_MS);
        let named_by =
            |asking: &Asking| asking.requests.get(ID.as_bytes()).unwrap().named_by.clone();
        assert_eq!(named_by(&asking), dave);
        asking.on_named_again(&entry(ID), &"erin".into(), T_MIN_MS);
        assert_eq!(&*named_by(&asking), "erin");
        // It keeps its time.
        assert_eq!(asked_ms(&asking), offset_ms(ID));
        let mut asking = of_bob();
        asking.on_named_again(&entry(ID), &dave, 7);
        asking.settle(7 + T_MIN_MS);
        assert_eq!(asked_ms(&asking), 7 + offset_ms(ID));
    }

    #[test]
    fn what_was_asked_for_in_vain_is_asked_for_as_soon_as_at_first_once_it_is_named_again() {
        let period_ms = T_MAX_MS + offset_ms(ID);
        for (asked, at_ms) in [
            ((STEADY_ROUNDS, STEADY_ROUNDS + 5), period_ms),
            (
                (STEADY_ROUNDS + 1, STEADY_ROUNDS + 1),
                2_000 + offset_ms(ID),
            ),
        ] {
            let mut asking = missing(asked);
            asking.on_named_again(&entry(ID), &"carol".into(), 2_000);
            assert_eq!(asked_ms(&asking), at_ms);
        }
        let mut asking = missing((STEADY_ROUNDS + 1, STEADY_ROUNDS + 1));
        asking.on_named_again(&entry(ID), &"carol".into(), T_MAX_MS + 5);
        assert_eq!(asked_ms(&asking), period_ms);
    }

    #[test]
    fn syncs_for_requests_keep_t_min_apart_within_bounds() {
        for (t_min_ms, interval_ms) in [(0, 100), (99, 100), (500, 500), (30_000, 1_000)] {
            let config = Config {
                repair_t_min_ms: t_min_ms,
                ..config()
            };
            let mut asking = Asking::new(&config, &"bob".into());
            asking.on_missing(entry(ID), &"carol".into(), 0);
            asking.on_sync_for_requests(100_000);
            assert_eq!(asking.next_request_ms(), Some(100_000 + interval_ms));
        }
    }

    #[test]
    fn after_so_many_in_vain_a_sync_for_requests_keeps_twice_the_distance() {
        let mut asking = of_bob();
        asking.on_missing(entry(ID), &"carol".into(), 0);
        for sync in 0..=SYNCS_IN_VAIN {
            let interval_ms = asking.sync_not_before_ms - i64::from(sync.max(1) - 1);
            assert!(sync == 0 || interval_ms == REPAIR_SYNC_INTERVAL_MS);
            asking.on_sync_for_requests(i64::from(sync));
        }
        let in_vain_ms = i64::from(SYNCS_IN_VAIN) + 2 * REPAIR_SYNC_INTERVAL_MS;
        assert_eq!(asking.sync_not_before_ms, in_vain_ms);
    }

    /// T_min and T_max of SDS-R, of which the others are made where no store comes first.
    fn with_a_store() -> Asking {
        Asking::new(&Config::example(), &"bob".into())
    }

    /// As of a group of two.
    const SHORT_MS: (i64, i64) = (500, 1_500);

    fn first_request_ms(asking: &Asking) -> i64 {
        asking.requests().next().expect("it is asked for").1
    }

    #[test]
    fn what_a_store_does_not_have_is_asked_for_within_the_shorter_times_at_first() {
        let short = |since_ms: i64| since_ms + SHORT_MS.0..since_ms + SHORT_MS.1;
        let mut asking = with_a_store();
        asking.on_missing(entry(ID), &"carol".into(), 0);
        assert!(first_request_ms(&asking) >= 30_000);
        asking.on_unstored("unknown", SHORT_MS, 1_000);
        asking.on_unstored(ID, SHORT_MS, 1_000);
        let mut now_ms = first_request_ms(&asking);
        assert!(short(1_000).contains(&now_ms), "{now_ms}");
        // Nor does another answer without it put it off, or bring it forward.
        asking.on_unstored(ID, SHORT_MS, now_ms - 1);
        assert_eq!(first_request_ms(&asking), now_ms);
        for round in 1..STEADY_ROUNDS {
            assert_eq!(take(&mut asking, now_ms), [ID]);
            let again_ms = first_request_ms(&asking);
            assert!(short(now_ms + SHORT_MS.1).contains(&again_ms), "{round}");
            now_ms = again_ms;
        }
        // Then nobody has it, or nobody hears us, whatever a store says once more.
        for _ in 0..2 {
            assert_eq!(take(&mut asking, now_ms), [ID]);
            asking.on_unstored(ID, SHORT_MS, now_ms);
            let again_ms = first_request_ms(&asking);
            assert!(again_ms >= now_ms + 120_000 + 30_000);
            now_ms = again_ms;
        }
    }

    #[test]
    fn while_no_store_answers_all_that_is_missing_is_asked_for_within_the_shorter_times() {
        let mut asking = with_a_store();
        for id in ["settled", "upcoming"] {
            asking.on_missing(entry(id), &"carol".into(), 0);
            asking.settle(if id == "settled" { 30_000 } else { 0 });
        }
        asking.set_store_away(true, SHORT_MS, 1_000);
        asking.on_missing(entry("later"), &"carol".into(), 20_000);
        let due = |asking: &Asking| -> Vec<i64> { asking.requests().map(|(_, ms)| ms).collect() };
        let within = |since_ms: i64, ms: i64| (SHORT_MS.0..SHORT_MS.1).contains(&(ms - since_ms));
        let found = due(&asking);
        assert!(found.len() == 3 && within(20_000, found[2]), "{found:?}");
        let soon_ms = 1_000 + SHORT_MS.1;
        assert!(found[..2].iter().all(|ms| *ms < soon_ms), "{found:?}");
        let settles_ms = asking.upcoming.front().unwrap().1.since_ms + SHORT_MS.0;
        assert_eq!(settles_ms, 20_500);
        asking.settle(settles_ms);
        assert!(asking.upcoming.is_empty());
        // What was asked for often already is asked for no sooner, however often a store goes and comes.
        let mut asking = with_a_store();
        asking.restore_asked(ID, (STEADY_ROUNDS, STEADY_ROUNDS));
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.settle(30_000);
        let before_ms = due(&asking);
        asking.set_store_away(true, SHORT_MS, 40_000);
        assert!(due(&asking) < before_ms, "an earlier life asked for it");
        asking.set_store_away(false, SHORT_MS, 40_001);
        let before_ms = due(&asking);
        asking.set_store_away(true, SHORT_MS, 40_002);
        assert_eq!(due(&asking), before_ms);
    }

    #[test]
    fn who_was_long_without_a_store_asks_on_when_one_answers_again() {
        for (away_ms, asks_on) in [(120_001, true), (120_000, false)] {
            let mut asking = with_a_store();
            asking.on_missing(entry(ID), &"carol".into(), 0);
            asking.set_store_away(true, SHORT_MS, 0);
            asking.restore_asked(ID, (34, 34));
            asking.settle(120_000);
            asking.set_store_away(false, SHORT_MS, away_ms);
            asking.ask_again_later(&entry(ID), "carol".into(), away_ms);
            assert_eq!(asking.poll_silent().is_empty(), asks_on);
        }
    }

    #[test]
    fn what_was_crowded_out_and_is_named_again_waits_for_a_store_anew() {
        let mut asking = with_a_store();
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.on_unstored(ID, SHORT_MS, 0);
        asking.requests.remove(&Name::new(ID));
        asking.on_named_again(&entry(ID), &"carol".into(), 1_000);
        assert!(first_request_ms(&asking) >= 31_000);
        asking.on_unstored(ID, SHORT_MS, 1_000);
        assert!(first_request_ms(&asking) < 2_500);
    }

    #[test]
    fn what_is_missing_once_a_store_answers_again_waits_for_it() {
        let mut asking = with_a_store();
        let due = |asking: &Asking| -> Vec<i64> { asking.requests().map(|(_, ms)| ms).collect() };
        asking.set_store_away(true, SHORT_MS, 1_000);
        asking.set_store_away(false, SHORT_MS, 21_000);
        asking.on_missing(entry("at last"), &"carol".into(), 21_000);
        assert!(*due(&asking).last().unwrap() >= 51_000);
    }

    #[test]
    fn what_an_answer_names_is_asked_for_sooner_where_no_store_comes_first() {
        for away in [true, false] {
            let mut asking = with_a_store();
            asking.set_store_away(away, SHORT_MS, 0);
            asking.on_missing(entry("before"), &"carol".into(), 0);
            asking.on_missing(entry(ID), &"carol".into(), 100);
            // What was named earlier keeps its time: more may be on its way.
            let named = ["before", "here", ID].map(str::as_bytes);
            asking.on_named_by_answer(named.into_iter(), 100);
            let due: HashMap<_, _> = asking.requests().collect();
            let wait_ms = due[&Name::new(ID)] - 100;
            let is_sooner = wait_ms <= SHORT_MS.1 / LINKS_PER_T_REQ;
            assert_eq!(is_sooner, away, "{wait_ms}");
            assert!(due[&Name::new("before")] >= SHORT_MS.0);
        }
    }

    #[test]
    fn what_no_store_has_is_asked_for_patiently_as_without_a_store() {
        let mut asking = with_a_store();
        prove_carol(&mut asking);
        asking.restore_asked(ID, (URGENT_ROUNDS, URGENT_ROUNDS));
        asking.on_missing(entry(ID), &"carol".into(), 0);
        asking.on_unstored(ID, SHORT_MS, 0);
        let now_ms = first_request_ms(&asking);
        assert_eq!(take(&mut asking, now_ms), [ID]);
        let again_ms = asking.next_request_ms().unwrap();
        assert!(again_ms - now_ms <= 2 * SHORT_MS.1, "{again_ms}");
    }

    #[test]
    fn a_sync_for_requests_follows_soon_on_one_that_found_an_answer() {
        let mut asking = of_bob();
        let carol: Arc<str> = "carol".into();
        for id in ["answered", "of somebody else", ID] {
            asking.on_missing(entry(id), &carol, 0);
        }
        let at_ms = T_MIN_MS + T_MAX_MS;
        asking.settle(at_ms);
        asking.ask_at(entry("answered"), Arc::clone(&carol), at_ms);
        asking.on_sync_for_requests(at_ms);
        asking.ask_again_later(&entry("answered"), Arc::clone(&carol), at_ms);
        // What comes without being asked for answers nothing.
        asking.on_came(&Name::new("of somebody else"), at_ms + 10);
        asking.on_done(&Name::new("of somebody else"));
        assert_eq!(
            asking.next_request_ms(),
            Some(at_ms + REPAIR_SYNC_INTERVAL_MS)
        );
        asking.on_came(&Name::new("answered"), at_ms + 10);
        asking.on_done(&Name::new("answered"));
        assert_eq!(
            asking.next_request_ms(),
            Some(at_ms + ANSWERED_SYNC_INTERVAL_MS)
        );
    }

    /// How far apart the syncs are that leave for requests of many rounds, one after the other.
    fn distances(asking: &mut Asking, now_ms: &mut i64, count: usize) -> Vec<i64> {
        let mut found = Vec::new();
        for _ in 0..count {
            let at_ms = asking.next_request_ms().unwrap().max(*now_ms);
            found.push((at_ms - *now_ms) / T_MAX_MS);
            *now_ms = at_ms;
            assert!(!take(asking, at_ms).is_empty());
            asking.on_sync_for_requests(at_ms);
        }
        found
    }

    #[test]
    fn who_asks_in_vain_for_long_asks_by_fewer_syncs_until_an_answer_comes() {
        let mut asking = of_bob();
        prove_carol(&mut asking);
        for number in 0..900 {
            let name = format!("phantom {number}");
            asking.restore_asked(&name, (URGENT_ROUNDS, URGENT_ROUNDS));
            asking.on_missing(entry(&name), &"carol".into(), 0);
        }
        asking.settle(T_MAX_MS);
        let mut now_ms = 10 * T_MAX_MS;
        let found = distances(&mut asking, &mut now_ms, 150);
        assert!(found[1..33].iter().all(|distance| *distance == 1));
        assert!(found[34..65].iter().all(|distance| *distance == 2));
        assert!(found[66..97].iter().all(|distance| *distance == 4));
        assert!(found[98..].iter().all(|distance| *distance == 8));
        // Whoever names one of them may have it.
        let asked_often = "phantom 0";
        asking.restore_asked(asked_often, (STEADY_ROUNDS + 1, STEADY_ROUNDS + 1));
        asking.on_named_again(&entry(asked_often), &"carol".into(), now_ms);
        assert_eq!(distances(&mut asking, &mut now_ms, 3), [1, 8, 8]);
        prove_carol(&mut asking);
        assert!(asking.next_request_ms().unwrap() <= now_ms + T_MAX_MS);
        let found = distances(&mut asking, &mut now_ms, 5);
        assert_eq!(found[1..], [1, 1, 1, 1]);
    }

    #[test]
    fn a_message_carries_three_requests_as_far_as_there_is_room() {
        let full = || {
            let mut asking = of_bob();
            for number in 0..4 {
                asking.on_missing(entry(&format!("missing {number}")), &"carol".into(), 0);
            }
            asking
        };
        // They get their time by being taken.
        let now_ms = T_MIN_MS + T_MAX_MS;
        assert_eq!(full().take_requests(now_ms, ROOM).len(), 3);
        let one = entry_bytes_max(&entry("missing 0"));
        for (budget, count) in [(one - 1, 0), (one, 1), (2 * one - 1, 1), (2 * one, 2)] {
            let mut asking = full();
            assert_eq!(asking.take_requests(now_ms, budget).len(), count);
            assert_eq!(asking.requests_held(), 4);
        }
    }

    #[test]
    fn what_nobody_answers_is_asked_for_less_and_less_often_and_then_no_more() {
        let mut asking = missing((0, 0));
        let mut now_ms = offset_ms(ID);
        for times in 1.. {
            assert_eq!(asked_ms(&asking), now_ms);
            assert_eq!(take(&mut asking, now_ms - 1), [""; 0]);
            assert_eq!(take(&mut asking, now_ms), [ID]);
            assert_eq!(asking.asked_for(ID), (times, times));
            let doublings = times.saturating_sub(STEADY_ROUNDS) / 2;
            let wait_ms = (T_MAX_MS + offset_ms(ID)) << doublings;
            if wait_ms > SILENCE_MS_MAX {
                break;
            }
            assert_eq!(asking.poll_silent(), []);
            now_ms += wait_ms;
        }
        assert_eq!(asking.poll_silent(), [Name::new(ID)]);
        assert_eq!((asking.poll_silent(), asking.requests_held()), (vec![], 0));
    }

    #[test]
    fn a_request_is_early_in_the_first_half_of_the_first_two_times() {
        let middle_ms = i64::midpoint(T_MIN_MS, T_MAX_MS);
        let ids: Vec<_> = (0..40).map(|number| number.to_string()).collect();
        for (asked, can_be) in [(0, true), (1, true), (2, false)] {
            for id in &ids {
                let mut asking = of_bob();
                asking.restore_asked(id, (asked, asked));
                let is_early = can_be && offset_ms(id) <= middle_ms;
                assert_eq!(asking.is_early(id), is_early);
            }
        }
        let is_between = |id: &String| (T_MAX_MS / 4..=middle_ms).contains(&offset_ms(id));
        assert!(ids.iter().any(is_between) && ids.iter().any(|id| offset_ms(id) > middle_ms));
    }

    #[test]
    fn a_name_is_put_off_until_what_is_on_its_way_had_time_to_come() {
        let config = config();
        let wait_ms = config.sender_first_ms() + T_MIN_MS + config.window_ms();
        let (id, first_ms) = (Name::new(ID), offset_ms(ID));
        assert!(first_ms > wait_ms);
        let mut asking = missing((0, 0));
        asking.put_off(&id, false, 0);
        assert_eq!(asked_ms(&asking), first_ms);
        for now_ms in [first_ms, first_ms + 10] {
            asking.put_off(&id, false, now_ms);
            assert_eq!(asked_ms(&asking), now_ms + wait_ms);
        }
        assert_eq!(asking.asked_for(ID), (0, 0));
        // A stranger does so once for each time that it was asked for.
        asking.put_off(&id, true, first_ms + 20);
        asking.put_off(&id, true, first_ms + 30);
        assert_eq!(asked_ms(&asking), first_ms + 20 + wait_ms);
        assert_eq!(asking.asked_for(ID), (0, 1));
        asking.put_off(&id, false, first_ms + 30);
        assert_eq!(asked_ms(&asking), first_ms + 30 + wait_ms);
        let again_ms = asked_ms(&asking);
        assert_eq!(take(&mut asking, again_ms), [ID]);
        let later_ms = again_ms + 2 * T_MAX_MS;
        asking.put_off(&id, true, later_ms);
        assert_eq!(asked_ms(&asking), again_ms + T_MAX_MS + first_ms);
        assert_eq!(asking.asked_for(ID), (1, 2));
    }

    #[test]
    fn what_anothers_content_answers_waits_longer_with_each_request_and_not_with_each_answer() {
        for by_us in [true, false] {
            let mut asking = missing((0, 0));
            // What nobody asked for answers nothing.
            assert!(!asking.on_others_came(ID, T_MIN_MS));
            assert_eq!(asked_ms(&asking), offset_ms(ID));
            let mut now_ms = offset_ms(ID);
            for doublings in [2, 4, 6] {
                if by_us {
                    assert_eq!(take(&mut asking, now_ms), [ID]);
                } else {
                    asking.on_request(ID, now_ms);
                }
                assert!(asking.on_others_came(ID, now_ms));
                let again_ms = now_ms + ((T_MAX_MS + offset_ms(ID)) << doublings);
                assert_eq!(asked_ms(&asking), again_ms);
                assert!(!asking.on_others_came(ID, now_ms + 5));
                assert_eq!(asked_ms(&asking), again_ms);
                now_ms = again_ms;
            }
            asking.on_named_again(&entry(ID), &"carol".into(), T_MIN_MS);
            assert_eq!(asked_ms(&asking), T_MIN_MS + offset_ms(ID));
        }
        let mut asking = missing((u32::MAX, u32::MAX));
        assert!(!asking.on_others_came(ID, T_MIN_MS));
    }

    #[test]
    fn a_strangers_request_brings_none_of_ours_forward() {
        let mut asking = missing((STEADY_ROUNDS + 4, STEADY_ROUNDS + 4));
        let before_ms = asked_ms(&asking);
        assert_eq!(before_ms, 4 * (T_MAX_MS + offset_ms(ID)));
        asking.on_request(ID, T_MIN_MS);
        assert_eq!(asked_ms(&asking), before_ms);
    }
}

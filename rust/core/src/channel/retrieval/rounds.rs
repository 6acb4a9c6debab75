//! When a store is asked for each missing message (004, Missing message retrieval).

use std::collections::{BTreeSet, VecDeque};

use hashlink::LinkedHashMap;

use crate::sds::{Machine, Name};
use crate::wire::sds::HistoryEntry;

/// Messages with their data: at most 3 MB in one answer.
const MESSAGES_PER_QUERY: usize = 20;
/// One query of the topic serves every missing message without a hint for this long, unless it brought some of them:
/// the next of a burst are as likely to be found.
const WINDOW_INTERVAL_MS: i64 = 10_000;
/// A message that so many rounds did not bring is asked for less and less often: whoever names what never was would
/// otherwise keep every member asking for as long as it is waited for.
const ROUNDS_AT_FREQUENCY: u32 = 10;
const WINDOW_ROUNDS_AT_FREQUENCY: u32 = 3;
const PAUSE_MS_MAX: i64 = 60_000;
const DOUBLINGS_MAX: u32 = 16;
/// After so many, half an hour and more, that pause doubles too, down to twice a day: the sum of them is small.
const ROUNDS_AT_PAUSE_MAX: u32 = 40;
const PAUSE_DOUBLINGS_MAX: u32 = 10;
/// Going through what is missing takes time: so many a millisecond of it, and what is detected meanwhile is gathered.
const MISSING_PER_MS_MAX: usize = 10;

/// A missing message that was asked for.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    /// How often a store answered without it.
    rounds: u32,
    /// When it is asked for again.
    due_ms: i64,
}

/// What one query is to bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Messages by their hints.
    Hinted(Vec<(Vec<u8>, Name)>),
    /// Messages without a hint, which only topic and time can find; of each, whether it was asked for before.
    Hintless(Vec<(Name, bool)>),
}

impl Wanted {
    /// Those of `absent` that the store does not have. Of what has no hint what it answers is taken in later: only the
    /// next answer can tell.
    pub fn surely_absent<'a>(
        &'a self,
        absent: &'a BTreeSet<Name>,
    ) -> impl Iterator<Item = &'a Name> {
        let (hinted, hintless) = match self {
            Wanted::Hinted(hinted) => (hinted.as_slice(), [].as_slice()),
            Wanted::Hintless(hintless) => ([].as_slice(), hintless.as_slice()),
        };
        let hinted = hinted.iter().map(|(_, message_id)| message_id);
        let asked = hintless.iter().filter(|(_, was_asked)| *was_asked);
        let asked = asked.map(|(message_id, _)| message_id);
        hinted
            .chain(asked)
            .filter(|message_id| absent.contains(*message_id))
    }
}

/// What was never asked for, at once; all others in turn, as many in a period as one query takes.
///
/// Those without a hint are asked for all at once, and take no turn from the others.
#[derive(Debug)]
pub(super) struct Rounds {
    frequency_ms: i64,
    /// What was asked for and is missing still, the one asked for longest ago first.
    asked: LinkedHashMap<Name, Asked>,
    /// What the latest look found due and no query asked for so far.
    hinted: VecDeque<Name>,
    hintless: Vec<Name>,
    /// What is found by no query for long: those before it were in vain.
    put_off: Vec<Name>,
    next_round_ms: i64,
    next_window_ms: i64,
    /// The state of what is missing that the latest look saw; `None` where answers changed something since.
    seen_version: Option<u64>,
    /// Before this time there is no other look.
    next_look_ms: i64,
    /// When something falls due of what the latest look saw.
    due_ms: Option<i64>,
}

impl Rounds {
    pub fn new(frequency_ms: i64) -> Self {
        Rounds {
            frequency_ms,
            asked: LinkedHashMap::new(),
            hinted: VecDeque::new(),
            hintless: Vec::new(),
            put_off: Vec::new(),
            next_round_ms: i64::MIN,
            next_window_ms: i64::MIN,
            seen_version: None,
            next_look_ms: i64::MIN,
            due_ms: None,
        }
    }

    /// Another store, or one that has learned more meanwhile.
    pub fn on_store_near(&mut self) {
        for (_, asked) in self.asked.iter_mut() {
            *asked = Asked::default();
        }
        self.seen_version = None;
    }

    /// Monotonic milliseconds at which [`Rounds::poll`] may give something; `None` for never.
    pub fn next_ms(&self, sds: &Machine) -> Option<i64> {
        if !self.hinted.is_empty() || !self.hintless.is_empty() {
            Some(i64::MIN)
        } else if self.seen_version == Some(sds.missing_version()) {
            self.due_ms
        } else {
            Some(self.next_look_ms)
        }
    }

    /// What a store is to be asked for now: those with a hint first.
    pub fn poll(&mut self, sds: &Machine, now_ms: i64) -> Option<Wanted> {
        if self.hinted.is_empty() && self.hintless.is_empty() {
            self.look(sds, now_ms);
        }
        let mut hinted: Vec<(Vec<u8>, Name)> = Vec::new();
        while hinted.len() < MESSAGES_PER_QUERY
            && let Some(message_id) = self.hinted.pop_front()
        {
            let entry = sds.missing_entry(&message_id).map(|(entry, _)| entry);
            if let Some(entry) = entry.filter(|entry| is_hinted(entry)) {
                hinted.push((entry.retrieval_hint.clone().unwrap_or_default(), message_id));
            }
        }
        if !hinted.is_empty() {
            for (_, message_id) in &hinted {
                self.note_asked(message_id, now_ms);
            }
            return Some(Wanted::Hinted(hinted));
        }
        let mut hintless = std::mem::take(&mut self.hintless);
        hintless.retain(|message_id| sds.missing_entry(message_id).is_some());
        if hintless.is_empty() {
            return None;
        }
        self.next_window_ms = now_ms.saturating_add(WINDOW_INTERVAL_MS);
        let note = |message_id: Name| {
            let was_asked = self.note_asked(&message_id, now_ms);
            (message_id, was_asked)
        };
        Some(Wanted::Hintless(hintless.into_iter().map(note).collect()))
    }

    /// What the latest look found that no query is to find soon.
    pub fn take_put_off(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.put_off)
    }

    /// Whether some of these are missing still, or of what they follow something is that was never asked for.
    pub fn is_wanting(&self, wanted: &Wanted, sds: &Machine) -> bool {
        let Wanted::Hintless(hintless) = wanted else {
            return true;
        };
        let is_missing = |(message_id, _): &(Name, bool)| sds.missing_entry(message_id).is_some();
        let is_new = |entry: &HistoryEntry| {
            !is_hinted(entry) && !self.asked.contains_key(entry.message_id.as_bytes())
        };
        hintless.iter().any(is_missing) || sds.missing().any(is_new)
    }

    /// A store has answered, without those of these that are `absent`.
    pub fn on_answered(&mut self, wanted: &Wanted, absent: &BTreeSet<Name>, now_ms: i64) {
        self.seen_version = None;
        match wanted {
            Wanted::Hinted(hinted) => {
                for (_, message_id) in hinted {
                    self.put_off(message_id, self.frequency_ms, ROUNDS_AT_FREQUENCY, now_ms);
                }
            }
            Wanted::Hintless(hintless) => {
                let is_brought = |(message_id, _): &(Name, bool)| !absent.contains(message_id);
                if hintless.iter().any(is_brought) {
                    let next_ms = now_ms.saturating_add(self.frequency_ms);
                    self.next_window_ms = self.next_window_ms.min(next_ms);
                }
                let frequency_ms = self.frequency_ms.max(WINDOW_INTERVAL_MS);
                for (message_id, _) in hintless {
                    self.put_off(message_id, frequency_ms, WINDOW_ROUNDS_AT_FREQUENCY, now_ms);
                }
            }
        }
    }

    /// Finds what is due, and when something will be.
    fn look(&mut self, sds: &Machine, now_ms: i64) {
        self.seen_version = Some(sds.missing_version());
        self.asked
            .retain(|message_id, _| sds.missing_entry(message_id).is_some());
        let mut missing = 0;
        let mut due_ms: Option<i64> = None;
        for entry in sds.missing() {
            missing += 1;
            let asked = self.asked.get(entry.message_id.as_bytes());
            let window_ms = if is_hinted(entry) {
                i64::MIN
            } else {
                self.next_window_ms
            };
            let entry_ms = asked.map_or(i64::MIN, |asked| asked.due_ms.max(self.next_round_ms));
            let entry_ms = entry_ms.max(window_ms);
            if asked.is_none() && entry_ms <= now_ms {
                let message_id = Name::new(&entry.message_id);
                if is_hinted(entry) {
                    self.hinted.push_back(message_id);
                } else {
                    self.hintless.push(message_id);
                }
            } else if asked.is_none() && entry_ms.saturating_sub(now_ms) > self.frequency_ms {
                self.put_off.push(Name::new(&entry.message_id));
            }
            due_ms = Some(due_ms.map_or(entry_ms, |due_ms| due_ms.min(entry_ms)));
        }
        self.due_ms = due_ms;
        self.next_look_ms = now_ms.saturating_add((missing / MISSING_PER_MS_MAX) as i64);
        if now_ms >= self.next_round_ms {
            self.look_at_asked(sds, now_ms);
        }
    }

    /// The turn of those that were asked for before.
    fn look_at_asked(&mut self, sds: &Machine, now_ms: i64) {
        let mut turns = 0;
        let mut is_round = false;
        let due = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.due_ms <= now_ms);
        for (message_id, _) in due {
            let entry = sds.missing_entry(message_id);
            if !entry.is_some_and(|(entry, _)| is_hinted(entry)) {
                if now_ms >= self.next_window_ms {
                    self.hintless.push(message_id.clone());
                    is_round = true;
                }
            } else if turns < MESSAGES_PER_QUERY {
                turns += 1;
                self.hinted.push_back(message_id.clone());
                is_round = true;
            }
        }
        if is_round {
            self.next_round_ms = now_ms.saturating_add(self.frequency_ms);
        }
    }

    /// Whether it was asked for before.
    fn note_asked(&mut self, message_id: &Name, now_ms: i64) -> bool {
        let known = self.asked.remove(message_id.as_bytes());
        let rounds = known.map_or(0, |asked| asked.rounds);
        let due_ms = now_ms.saturating_add(self.frequency_ms);
        self.asked
            .insert(message_id.clone(), Asked { rounds, due_ms });
        known.is_some()
    }

    fn put_off(&mut self, message_id: &Name, frequency_ms: i64, at_frequency: u32, now_ms: i64) {
        let Some(asked) = self.asked.get_mut(message_id.as_bytes()) else {
            return;
        };
        asked.rounds = asked.rounds.saturating_add(1);
        let doublings = asked.rounds.saturating_sub(at_frequency).min(DOUBLINGS_MAX);
        let pause_ms = frequency_ms.saturating_mul(1 << doublings);
        let pause_ms = pause_ms.min(frequency_ms.max(PAUSE_MS_MAX));
        let doublings = asked.rounds.saturating_sub(ROUNDS_AT_PAUSE_MAX);
        let pause_ms = pause_ms.saturating_mul(1 << doublings.min(PAUSE_DOUBLINGS_MAX));
        asked.due_ms = now_ms.saturating_add(pause_ms);
    }
}

fn is_hinted(entry: &HistoryEntry) -> bool {
    entry
        .retrieval_hint
        .as_ref()
        .is_some_and(|hint| !hint.is_empty())
}

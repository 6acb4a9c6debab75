//! What another participant's filter shows that it lacks, so that one sync tells it of all its gaps
//! at once: histories alone reveal a gap link by link.

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::feedback::feedback_delay_ms;
use super::filter::{FilterSchedule, PeerFilter};
use crate::sds::config::{Config, Randomness};
use crate::sds::log::{EntryRef, Log};
use crate::sds::name::Name;

/// Newest entries of the log that a filter is asked for, and as many may wait to be named.
pub const REVIEWED_MAX: usize = 1_000;
/// An entry that was named is not named again before this, doubled with every time that did not help.
pub const NAMED_AGAIN_MS: i64 = 30_000;
const DOUBLINGS_MAX: u32 = 16;
const SAMPLES: usize = 3;

/// Entries that some member lacks, to be named by our next sync unless another participant names
/// them first.
///
/// Only what came long enough ago counts, so that what is on its way is not told; and each entry at
/// growing distances, so that one who cannot or will not get it does not make the channel talk. A
/// newcomer is told of the past as well: where no store has it, the others do.
#[derive(Debug)]
pub struct AntiEntropy {
    /// Whether a sync may be sent for this, or the next periodic one must do.
    prompt: bool,
    settle_ms: i64,
    window_ms: i64,
    /// (monotonic ms, log sequence then), the older one old enough to count.
    samples: Vec<(i64, u64)>,
    /// When the next sample is to be taken.
    sample_ms: i64,
    /// (monotonic ms, how often) each was named.
    named: LinkedHashMap<Name, (i64, u32)>,
    owed: LinkedHashSet<EntryRef>,
    /// When a sync is to name what is owed; `None` while nothing is.
    pub due_ms: Option<i64>,
}

impl AntiEntropy {
    /// Nothing is owed.
    pub fn new(config: &Config) -> Self {
        AntiEntropy {
            prompt: config.acknowledgement_sync || config.enable_repair,
            settle_ms: config.settle_ms(),
            window_ms: config.window_ms(),
            samples: Vec::new(),
            sample_ms: 0,
            named: LinkedHashMap::new(),
            owed: LinkedHashSet::new(),
            due_ms: None,
        }
    }

    /// What our next sync is to name, the oldest first.
    pub fn owed(&self) -> impl Iterator<Item = EntryRef> {
        self.owed.iter().copied()
    }

    /// Entries that some member lacks.
    pub fn owed_count(&self) -> usize {
        self.owed.len()
    }

    /// Entries whose naming is remembered.
    pub fn named_count(&self) -> usize {
        self.named.len()
    }

    /// Compares a sync's filter with our log, and makes a sync due where there is something new to
    /// name.
    pub fn review(
        &mut self,
        theirs: PeerFilter<'_>,
        filter: &FilterSchedule,
        log: &Log,
        monotonic_ms: i64,
        members: usize,
        rng: &mut dyn Randomness,
    ) {
        let settled = self.settled_sequence(monotonic_ms);
        if settled == 0 {
            return;
        }
        let lacking = filter.lacking(theirs, log, REVIEWED_MAX, settled);
        if lacking.is_empty() {
            return;
        }
        for entry in lacking {
            let Some(held) = log.get(entry).filter(|_| self.owed.len() < REVIEWED_MAX) else {
                continue;
            };
            let again = match self.named.get(&held.message_id) {
                None => true,
                Some((named_ms, times)) => {
                    let doublings = (times - 1).min(DOUBLINGS_MAX);
                    monotonic_ms - named_ms >= NAMED_AGAIN_MS << doublings
                }
            };
            if again {
                self.owed.replace(entry);
            }
        }
        if !self.owed.is_empty() && self.due_ms.is_none() && self.prompt {
            self.due_ms = Some(monotonic_ms + feedback_delay_ms(rng, self.window_ms, members));
        }
    }

    /// Somebody, perhaps we, named these in a history.
    pub fn on_named(
        &mut self,
        named: impl IntoIterator<Item = EntryRef>,
        log: &Log,
        monotonic_ms: i64,
    ) {
        if self.owed.is_empty() {
            return;
        }
        for entry in named {
            if self.owed.remove(&entry)
                && let Some(held) = log.get(entry)
            {
                let (_, times) = self.named.remove(&held.message_id).unwrap_or_default();
                self.named
                    .insert(held.message_id.clone(), (monotonic_ms, times + 1));
            }
        }
        while self.named.len() > 2 * REVIEWED_MAX {
            self.named.pop_front();
        }
        if self.owed.is_empty() {
            self.due_ms = None;
        }
    }

    /// A sync left that had no room for all that is owed.
    pub fn put_off(&mut self, monotonic_ms: i64) {
        if self.due_ms.is_some() {
            self.due_ms = Some(monotonic_ms + self.window_ms);
        }
    }

    /// The entry left the log, or must not be said.
    pub fn forget(&mut self, entry: EntryRef) {
        if self.owed.remove(&entry) && self.owed.is_empty() {
            self.due_ms = None;
        }
    }

    /// Notes how far the log is, from time to time; called often.
    pub fn sample(&mut self, log: &Log, monotonic_ms: i64) {
        if monotonic_ms < self.sample_ms {
            return;
        }
        self.samples.push((monotonic_ms, log.sequence()));
        if self.samples.len() > SAMPLES {
            self.samples.remove(0);
        }
        self.sample_ms = monotonic_ms + self.settle_ms;
    }

    fn settled_sequence(&self, monotonic_ms: i64) -> u64 {
        let settled = self
            .samples
            .iter()
            .rev()
            .find(|(at_ms, _)| monotonic_ms - at_ms >= self.settle_ms);
        settled.map_or(0, |(_, sequence)| *sequence)
    }
}

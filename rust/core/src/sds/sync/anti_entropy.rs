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
/// Of one filter within so long more are looked at: what who was away lacks lies behind all that came since. That
/// takes milliseconds, and anybody may send filters.
const REVIEWED_DEEP_MAX: usize = 10_000;
const REVIEWED_DEEP_AGAIN_MS: i64 = 1_000;
/// An entry that was named is not named again before this, doubled with every time that did not help; for the first time
/// sooner, where filters are said more often.
const NAMED_AGAIN_MS: i64 = 30_000;
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
    named_again_ms: i64,
    /// (monotonic ms, log sequence then), the older one old enough to count.
    samples: Vec<(i64, u64)>,
    /// When the next sample is to be taken.
    sample_ms: i64,
    /// When more than the newest entries may be looked at.
    deep_ms: i64,
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
            // The next filter is answered: the naming may have been lost.
            named_again_ms: match config.bloom_interval_ms {
                interval_ms @ 1..NAMED_AGAIN_MS => interval_ms / 2,
                _ => NAMED_AGAIN_MS,
            },
            samples: Vec::new(),
            sample_ms: 0,
            deep_ms: 0,
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
        let lacking = filter.lacking(theirs, log, self.depth(filter, log, monotonic_ms), settled);
        if lacking.is_empty() {
            return;
        }
        for entry in lacking {
            let Some(held) = log.get(entry).filter(|_| self.owed.len() < REVIEWED_MAX) else {
                continue;
            };
            let again = match self.named.get(&held.message_id) {
                None => true,
                Some((named_ms, 1)) => monotonic_ms - named_ms >= self.named_again_ms,
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

    /// How many of the newest entries are looked at now.
    fn depth(&mut self, filter: &FilterSchedule, log: &Log, monotonic_ms: i64) -> usize {
        let deep = filter.surely_held().min(REVIEWED_DEEP_MAX);
        if monotonic_ms < self.deep_ms || deep.min(log.len()) <= REVIEWED_MAX {
            return REVIEWED_MAX;
        }
        self.deep_ms = monotonic_ms + REVIEWED_DEEP_AGAIN_MS;
        deep
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::BloomFilter;
    use crate::sds::config::Drawn;
    use crate::wire::sds::WireFormat;

    const HELD: usize = 1_500;

    fn name(number: usize) -> Name {
        Name::new(&format!("message {number}"))
    }

    /// The filter of somebody who lacks what `lacks` says.
    fn filter_without(lacks: &[usize]) -> Vec<u8> {
        let mut filter = BloomFilter::new(10_000, 0.001, WireFormat::Spec).expect("it is small");
        for number in (0..HELD).filter(|number| !lacks.contains(number)) {
            filter.insert(name(number).as_bytes());
        }
        filter.to_bytes()
    }

    #[test]
    fn a_gap_is_found_behind_a_thousand_messages_once_a_second() {
        let config = Config::example();
        let mut log = Log::of(10 * HELD);
        let mut filter = FilterSchedule::new(&config);
        for number in 0..HELD {
            log.add(name(number), "alice".into(), number as u64, None, 0);
            filter.insert(name(number));
        }
        filter.settle(&log, &|_| false);
        let mut anti_entropy = AntiEntropy::new(&config);
        let settle_ms = config.settle_ms();
        anti_entropy.sample(&log, 0);
        let behind = HELD - REVIEWED_MAX - 1;
        for (lacks, at_ms, found) in [
            (vec![0, behind], settle_ms, 2),
            (vec![behind, behind + 1], settle_ms + 1, 1),
            (vec![behind], settle_ms + REVIEWED_DEEP_AGAIN_MS, 1),
        ] {
            let theirs = PeerFilter {
                bytes: &filter_without(&lacks),
                sender_id: &"bob".into(),
            };
            let mut rng = Drawn::from(vec![0.5; 10]);
            anti_entropy.review(theirs, &filter, &log, at_ms, 2, &mut rng);
            assert_eq!(anti_entropy.owed_count(), found, "{lacks:?}");
            anti_entropy.owed.clear();
        }
    }

    #[test]
    fn what_was_named_in_vain_is_named_to_the_next_filter_and_then_at_growing_distances() {
        for (bloom_interval_ms, expected) in [
            (12_000, vec![0, 6_000, 66_000]),
            (30_000, vec![0, 30_000, 90_000]),
            (0, vec![0, 30_000, 90_000]),
        ] {
            let config = Config {
                bloom_interval_ms,
                ..Config::example()
            };
            assert_eq!(named_ms(&config), expected);
        }
    }

    /// When an entry is named that somebody lacks whatever is said, within 100 s.
    fn named_ms(config: &Config) -> Vec<i64> {
        let mut log = Log::of(HELD);
        let mut filter = FilterSchedule::new(config);
        for number in 0..2 {
            log.add(name(number), "alice".into(), number as u64, None, 0);
            filter.insert(name(number));
        }
        filter.settle(&log, &|_| false);
        let mut anti_entropy = AntiEntropy::new(config);
        anti_entropy.sample(&log, 0);
        let begin_ms = config.settle_ms();
        let mut named_ms = Vec::new();
        for second in 0..100 {
            let at_ms = begin_ms + 1_000 * second;
            let theirs = PeerFilter {
                bytes: &filter_without(&[0]),
                sender_id: &"bob".into(),
            };
            let mut rng = Drawn::from(vec![0.5; 10]);
            anti_entropy.review(theirs, &filter, &log, at_ms, 2, &mut rng);
            let owed: Vec<_> = anti_entropy.owed().collect();
            if !owed.is_empty() {
                named_ms.push(at_ms - begin_ms);
                anti_entropy.on_named(owed, &log, at_ms);
            }
        }
        named_ms
    }

    #[test]
    fn in_the_filter_of_a_small_group_no_more_is_looked_for_than_it_may_hold() {
        let config = Config {
            bloom_filter_capacity: 500,
            ..Config::example()
        };
        let mut log = Log::of(10 * HELD);
        for number in 0..HELD {
            log.add(name(number), "alice".into(), number as u64, None, 0);
        }
        let depth = |config: &Config| {
            let filter = FilterSchedule::new(config);
            AntiEntropy::new(config).depth(&filter, &log, 0)
        };
        assert_eq!(depth(&config), REVIEWED_MAX);
        assert_eq!(depth(&Config::example()), 5_000);
    }
}

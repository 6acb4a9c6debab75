//! The bloom filter of what this participant holds, and when it rides on a message.

use std::sync::Arc;

use crate::bloom::BloomFilter;
use crate::sds::config::{Config, Now};
use crate::sds::log::{Entry, EntryRef, Log};
use crate::sds::name::Name;

/// A filter that tells nothing new rides on one message in so many intervals. Of those that tell what numbers
/// are telling just now, a group says one in as many, however many members it has.
const UNCHANGED_INTERVALS: i64 = 4;
/// Members that are counted for that: names are free to forge.
const MEMBERS_MAX: usize = 50;

/// A filter that rolls: it is rebuilt from the newest entries before its error rate degrades.
///
/// At 1.2 x capacity insertions the filter is rebuilt from the newest 0.8 x capacity entries of the
/// log, so it never holds less than that and a rebuild comes once in 0.4 x capacity messages.
#[derive(Debug, Clone)]
pub struct FilterSchedule {
    capacity: u64,
    interval_ms: i64,
    filter: BloomFilter,
    size_bytes: usize,
    /// Ids on their way in: they enter together, and may be taken back until then.
    waiting: Vec<Name>,
    inserted: u64,
    /// Entries with a higher sequence are in the filter: enough to rebuild it bit by bit.
    base_sequence: u64,
    last_ms: Option<i64>,
    /// When it left last on a sync: of those alone others look for what we lack.
    last_sync_ms: Option<i64>,
    sent_count: Option<u64>,
    /// Whether the next sync is to have it.
    pub asked: bool,
    /// How often others heard this one before.
    pub unchanged: u32,
    /// Whether the filter holds what must not be said.
    stale: bool,
    settle_ms: i64,
    /// Since when numbers tell what is lacking of what comes, and when something of it came last.
    counted_ms: Option<(i64, i64)>,
}

/// A filter that came, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct PeerFilter<'a> {
    /// As it came.
    pub bytes: &'a [u8],
    /// Who said it.
    pub sender_id: &'a Arc<str>,
}

/// Which entries must not be said, of those whose send is not delivered.
pub type Withholds<'a> = &'a dyn Fn(&Entry) -> bool;

impl FilterSchedule {
    /// An empty filter.
    pub fn new(config: &Config) -> Self {
        let filter = BloomFilter::new(
            config.bloom_filter_capacity,
            config.bloom_filter_error_rate,
            config.wire_format,
        );
        let filter = filter.expect("checked where the configuration was made");
        FilterSchedule {
            interval_ms: config.bloom_interval_ms,
            settle_ms: 2 * config.settle_ms(),
            ..FilterSchedule::of(filter, config.bloom_filter_capacity)
        }
    }

    fn of(filter: BloomFilter, capacity: u64) -> Self {
        FilterSchedule {
            capacity,
            interval_ms: 0,
            size_bytes: filter.size_bytes(),
            filter,
            waiting: Vec::new(),
            inserted: 0,
            base_sequence: 0,
            last_ms: None,
            last_sync_ms: None,
            sent_count: None,
            asked: false,
            unchanged: 0,
            stale: false,
            settle_ms: 0,
            counted_ms: None,
        }
    }

    /// Inserts the id of an entry that was just added to the log.
    pub fn insert(&mut self, message_id: Name) {
        self.waiting.push(message_id);
    }

    /// A content came or left of which receivers say by a number what they lack.
    pub fn on_counted(&mut self, monotonic_ms: i64) {
        let since_ms = match self.counted_ms {
            Some((since_ms, last_ms)) if monotonic_ms - last_ms < self.settle_ms => since_ms,
            _ => monotonic_ms,
        };
        self.counted_ms = Some((since_ms, monotonic_ms));
    }

    /// When a content came or left last of which receivers say by a number what they lack.
    pub fn counted_last_ms(&self) -> Option<i64> {
        self.counted_ms.map(|(_, last_ms)| last_ms)
    }

    /// In how many intervals a filter leaves while numbers are telling what is lacking, as they have not done
    /// for longer; `None` where they do not.
    fn counted_intervals(&self, monotonic_ms: i64, members: usize) -> Option<i64> {
        let intervals = UNCHANGED_INTERVALS * members.clamp(1, MEMBERS_MAX) as i64;
        let long_ms = self.interval_ms.saturating_mul(intervals);
        let (since_ms, last_ms) = self.counted_ms?;
        let is_counted =
            monotonic_ms - last_ms < self.settle_ms && monotonic_ms - since_ms < long_ms;
        is_counted.then_some(intervals)
    }

    /// Length of the serialized filter.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Ids inserted since the filter was made or rolled.
    pub fn count(&self) -> u64 {
        self.inserted + self.waiting.len() as u64
    }

    /// When it left last on a sync.
    pub fn last_sync_ms(&self) -> Option<i64> {
        self.last_sync_ms
    }

    /// How many of the newest entries of a log a filter of this capacity surely holds, where they are held: in the
    /// other's log they may have come in another order.
    pub fn surely_held(&self) -> usize {
        (self.capacity / 2) as usize
    }

    /// What the stored state has of it.
    pub fn base_sequence(&self) -> u64 {
        self.base_sequence
    }

    /// The filter of everything that was settled.
    pub fn filter(&self) -> &BloomFilter {
        &self.filter
    }

    /// Takes back an id: from now on no filter that leaves holds it.
    pub fn refuse(&mut self, message_id: &Name) {
        match self
            .waiting
            .iter()
            .position(|waiting| waiting == message_id)
        {
            Some(at) => {
                self.waiting.remove(at);
            }
            None => self.stale = true,
        }
    }

    /// Has the filter made anew before it leaves.
    pub fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// After a restart: fills the filter with the log's entries after `base_sequence`, as one that was
    /// said at `monotonic_ms`.
    pub fn rebuild(
        &mut self,
        base_sequence: u64,
        monotonic_ms: i64,
        log: &Log,
        withholds: Withholds<'_>,
    ) {
        self.last_ms = Some(monotonic_ms);
        self.last_sync_ms = Some(monotonic_ms);
        self.base_sequence = base_sequence;
        self.refill(log, log.len(), base_sequence, withholds);
    }

    /// Whether the next message that may carry the filter should, in a group of so many members.
    pub fn is_due(&self, now: Now, members: usize, by_sync: bool) -> bool {
        if self.interval_ms == 0 || (by_sync && self.asked) {
            return true;
        }
        let counted = self.counted_intervals(now.monotonic_ms, members);
        let Some(last_ms) = self.last_ms else {
            return self.count() > 0 && counted.is_none();
        };
        let since_ms = now.monotonic_ms - last_ms;
        if since_ms < self.interval_ms || self.count() == 0 {
            return false;
        }
        // One that tells nothing new still shows a peer that was away what we lack, at a slower pace.
        let told = self.sent_count == Some(self.count());
        let slower = if told { UNCHANGED_INTERVALS } else { 1 };
        since_ms >= self.interval_ms.saturating_mul(counted.unwrap_or(slower))
    }

    /// The serialized filter, for the message that leaves now.
    pub fn take(
        &mut self,
        now: Now,
        by_sync: bool,
        log: &Log,
        withholds: Withholds<'_>,
    ) -> Vec<u8> {
        if self.stale {
            self.refill(log, log.len(), self.base_sequence, withholds);
            self.sent_count = None;
        }
        self.last_ms = Some(now.monotonic_ms);
        if by_sync {
            self.last_sync_ms = self.last_ms;
            self.asked = false;
        }
        if let Some((since_ms, _)) = &mut self.counted_ms {
            // Numbers may tell for as long again what is lacking of what comes from now on.
            *since_ms = now.monotonic_ms;
        }
        let unchanged = self.sent_count == Some(self.count());
        self.unchanged = if unchanged { self.unchanged + 1 } else { 0 };
        self.sent_count = Some(self.count());
        self.settle(log, withholds);
        self.filter.to_bytes()
    }

    /// Lets what waits enter, before the log is stored.
    pub fn settle(&mut self, log: &Log, withholds: Withholds<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        if self.count() * 5 < self.capacity * 6 {
            for message_id in &self.waiting {
                self.filter.insert(message_id.as_bytes());
            }
            self.inserted = self.count();
            self.waiting.clear();
            return;
        }
        let count = (self.capacity * 4 / 5).max(1) as usize;
        let oldest = self.refill(log, count, 0, withholds);
        self.base_sequence = oldest.map_or(log.sequence(), |oldest| oldest - 1);
        self.sent_count = None;
    }

    /// The filter is that of the newest `count` entries after `base_sequence`; gives the sequence
    /// number of the oldest.
    fn refill(
        &mut self,
        log: &Log,
        count: usize,
        base_sequence: u64,
        withholds: Withholds<'_>,
    ) -> Option<u64> {
        self.filter.clear();
        self.inserted = 0;
        self.stale = false;
        self.waiting.clear();
        let mut oldest = None;
        for (_, entry) in log.newest_arrivals().take(count) {
            if entry.sequence <= base_sequence || entry.spare {
                continue;
            }
            oldest = Some(entry.sequence);
            // Of what is delivered nothing is withheld.
            if entry.send.is_some() && withholds(entry) {
                continue;
            }
            self.filter.insert(entry.message_id.as_bytes());
            self.inserted += 1;
        }
        oldest
    }

    /// Whether a peer's filter of our size has a bit that ours has not.
    pub fn is_exceeded_by(&self, bytes: &[u8]) -> bool {
        let ours = self.filter.to_bytes();
        ours.len() == bytes.len()
            && bytes
                .iter()
                .zip(&ours)
                .any(|(theirs, ours)| theirs & !ours != 0)
    }

    /// Positions in `message_ids` of those that a filter of everything else in the log and in
    /// `message_ids` does not hold: that a peer's filter holds one of these is no accident.
    pub fn conclusive(&self, message_ids: &[&str], log: &Log) -> Vec<usize> {
        let asked: std::collections::HashSet<&str> = message_ids.iter().copied().collect();
        let others = log
            .newest_arrivals()
            .filter(|(_, entry)| !entry.spare)
            .map(|(_, entry)| entry.message_id.as_str());
        self.filter
            .conclusive(message_ids, others.filter(|id| !asked.contains(id)))
    }

    /// Which of the newest `count` entries of the log a peer's serialized filter lacks, of those that
    /// are delivered, came at the sequence number `settled` or before and are not of `sender_id`;
    /// none where the filter's size is unexpected, or it holds none of several: that is no member's
    /// who lost some messages.
    pub fn lacking(
        &self,
        theirs: PeerFilter<'_>,
        log: &Log,
        count: usize,
        settled: u64,
    ) -> Vec<EntryRef> {
        let PeerFilter { bytes, sender_id } = theirs;
        let newest = log.newest_arrivals().take(count);
        let asked = newest.filter(|(_, entry)| {
            let is_old = entry.sequence <= settled && !entry.spare;
            is_old && entry.send.is_none() && entry.sender_id != *sender_id
        });
        let asked: Vec<_> = asked.collect();
        let ids = asked.iter().map(|(_, entry)| entry.message_id.as_str());
        let Some(held) = self.filter.review(bytes, ids) else {
            return Vec::new();
        };
        if held.is_empty() && asked.len() > 1 {
            return Vec::new();
        }
        let mut held = held.into_iter().peekable();
        let lacking = asked
            .iter()
            .enumerate()
            .filter(|(at, _)| held.next_if_eq(at).is_none());
        lacking.map(|(_, (entry, _))| *entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sds::WireFormat;

    const INTERVAL_MS: i64 = 30_000;
    const SETTLE_MS: i64 = 20_000;

    fn schedule() -> FilterSchedule {
        let filter = BloomFilter::new(1_000, 0.01, WireFormat::Spec).expect("its size is small");
        FilterSchedule {
            interval_ms: INTERVAL_MS,
            settle_ms: SETTLE_MS,
            ..FilterSchedule::of(filter, 1_000)
        }
    }

    fn at(monotonic_ms: i64) -> Now {
        Now {
            monotonic_ms,
            epoch_ms: 1_760_000_000_000 + monotonic_ms,
        }
    }

    /// In which intervals a filter leaves while a content of which numbers tell comes in each third of one.
    fn left(members: usize, intervals: i64) -> Vec<i64> {
        let (mut schedule, log) = (schedule(), Log::of(10));
        let mut left = Vec::new();
        for third in 0..=3 * intervals {
            let now = at(third * INTERVAL_MS / 3);
            schedule.on_counted(now.monotonic_ms);
            schedule.insert(Name::new(&format!("content-{third}")));
            if schedule.is_due(now, members, true) {
                schedule.take(now, true, &log, &|_| false);
                left.push(now.monotonic_ms / INTERVAL_MS);
            }
        }
        left
    }

    #[test]
    fn a_group_says_one_filter_in_four_intervals_while_numbers_tell() {
        for (members, intervals) in [
            (0, 4),
            (1, 4),
            (5, 20),
            (20, 80),
            (50, 200),
            (1_000_000, 200),
        ] {
            let expected = [intervals, 2 * intervals];
            assert_eq!(left(members, 2 * intervals), expected, "{members}");
        }
    }

    #[test]
    fn once_numbers_are_silent_or_it_is_asked_for_a_filter_leaves() {
        let mut schedule = schedule();
        schedule.insert(Name::new("content"));
        schedule.on_counted(0);
        assert!(!schedule.is_due(at(SETTLE_MS - 1), 20, true));
        assert!(schedule.is_due(at(SETTLE_MS), 20, true));
        schedule.asked = true;
        assert!(schedule.is_due(at(0), 20, true));
    }

    #[test]
    fn what_is_asked_for_leaves_on_a_sync_though_a_content_just_had_it() {
        let (mut schedule, log) = (schedule(), Log::of(10));
        schedule.insert(Name::new("content"));
        schedule.take(at(0), true, &log, &|_| false);
        schedule.insert(Name::new("another"));
        schedule.asked = true;
        assert!(!schedule.is_due(at(INTERVAL_MS - 1), 2, false));
        assert!(schedule.is_due(at(INTERVAL_MS), 2, false));
        schedule.take(at(INTERVAL_MS), false, &log, &|_| false);
        assert_eq!(schedule.last_sync_ms(), Some(0));
        assert!(schedule.is_due(at(INTERVAL_MS), 2, true));
        schedule.take(at(INTERVAL_MS), true, &log, &|_| false);
        assert!(!schedule.is_due(at(INTERVAL_MS), 2, true));
    }
}

//! Sends that were delivered and left the log since: whoever was away names what it heard last.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use sha2::{Digest, Sha256};

/// Each half of what is remembered holds so many times the log, and so many at least.
const LOGS_PER_HALF: usize = 4;
const HALF_MIN: usize = 4_096;
/// Fingerprints of a record. The last ones, which do not fill one yet, are not stored.
const FINGERPRINTS_PER_RECORD: usize = 64;

/// A fingerprint of each send. They fill one half after the other; the older one goes when both are full.
#[derive(Debug)]
pub struct PastSends {
    half_max: usize,
    newer: Half,
    older: Half,
    /// Fingerprints of the next record.
    unwritten: Vec<u64>,
    next_record: u32,
    /// For `poll_persist`: records that are new, and those that go.
    changed: BTreeMap<u32, Option<Vec<u64>>>,
}

#[derive(Debug, Default)]
struct Half {
    /// Fingerprints are as good as random: each is its own hash.
    fingerprints: HashTable<u64>,
    /// Numbers of the records that hold these.
    records: Vec<u32>,
}

impl Half {
    fn contains(&self, fingerprint: u64) -> bool {
        let is_it = |known: &u64| *known == fingerprint;
        self.fingerprints.find(fingerprint, is_it).is_some()
    }
}

impl PastSends {
    /// None, beside a log of `log_messages_max` entries.
    pub fn new(log_messages_max: usize) -> Self {
        PastSends {
            half_max: log_messages_max.saturating_mul(LOGS_PER_HALF).max(HALF_MIN),
            newer: Half::default(),
            older: Half::default(),
            unwritten: Vec::new(),
            next_record: 0,
            changed: BTreeMap::new(),
        }
    }

    /// Whether a send left the log, as far as is remembered.
    pub fn contains(&self, send_id: &str) -> bool {
        let is_any = !self.newer.fingerprints.is_empty() || !self.older.fingerprints.is_empty();
        is_any && self.holds(fingerprint_of(send_id))
    }

    /// A content of a send that was delivered leaves the log.
    pub fn remember(&mut self, send_id: &str) {
        let fingerprint = fingerprint_of(send_id);
        if self.holds(fingerprint) {
            return;
        }
        self.add(fingerprint);
        self.unwritten.push(fingerprint);
        if self.unwritten.len() == FINGERPRINTS_PER_RECORD {
            let fingerprints = std::mem::take(&mut self.unwritten);
            self.changed.insert(self.next_record, Some(fingerprints));
            self.end_record(self.next_record);
        }
    }

    /// Records that are new since the last call, and those that go.
    pub fn poll_changed(&mut self) -> BTreeMap<u32, Option<Vec<u64>>> {
        std::mem::take(&mut self.changed)
    }

    /// Restores a record; they come in the order of their numbers.
    pub fn restore(&mut self, number: u32, fingerprints: impl IntoIterator<Item = u64>) {
        for fingerprint in fingerprints {
            self.add(fingerprint);
        }
        self.end_record(number);
    }

    fn holds(&self, fingerprint: u64) -> bool {
        self.newer.contains(fingerprint) || self.older.contains(fingerprint)
    }

    fn add(&mut self, fingerprint: u64) {
        let table = &mut self.newer.fingerprints;
        table.insert_unique(fingerprint, fingerprint, |known| *known);
    }

    /// Halves change where a record ends, so that each record is of one.
    fn end_record(&mut self, number: u32) {
        self.newer.records.push(number);
        self.next_record = number.wrapping_add(1);
        if self.newer.fingerprints.len() < self.half_max {
            return;
        }
        let gone = std::mem::replace(&mut self.older, std::mem::take(&mut self.newer));
        for number in gone.records {
            // One that came since the last call was never stored.
            if self.changed.remove(&number).is_none() {
                self.changed.insert(number, None);
            }
        }
    }
}

/// Nobody finds a second send with the fingerprint of a given one.
fn fingerprint_of(send_id: &str) -> u64 {
    let hash = Sha256::digest(send_id);
    let bytes = hash.first_chunk().expect("a hash has 32 bytes");
    u64::from_le_bytes(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forget(past: &mut PastSends, numbers: std::ops::Range<usize>) {
        for number in numbers {
            past.remember(&number.to_string());
            past.remember(&number.to_string());
        }
    }

    fn remembered(past: &PastSends, among: usize) -> usize {
        let numbers = 0..among;
        numbers
            .filter(|number| past.contains(&number.to_string()))
            .count()
    }

    #[test]
    fn the_oldest_half_goes_when_both_are_full_and_its_records_with_it() {
        let log = HALF_MIN / 2;
        let half = LOGS_PER_HALF * log;
        let mut past = PastSends::new(log);
        assert!(!past.contains("0"));
        forget(&mut past, 0..2 * half - 1);
        assert_eq!(remembered(&past, 3 * half), 2 * half - 1);
        let records = half / FINGERPRINTS_PER_RECORD;
        let written = past.poll_changed();
        assert_eq!(written.len(), 2 * records - 1);
        assert!(written.values().all(Option::is_some));
        forget(&mut past, 2 * half - 1..2 * half);
        assert_eq!(remembered(&past, 3 * half), half);
        assert!(past.contains(&half.to_string()) && !past.contains(&(half - 1).to_string()));
        let changed = past.poll_changed();
        let gone = changed.iter().filter(|(_, record)| record.is_none());
        let gone: Vec<u32> = gone.map(|(number, _)| *number).collect();
        assert_eq!(gone, (0..records as u32).collect::<Vec<_>>());
        assert_eq!(changed.len(), records + 1);
    }

    #[test]
    fn a_later_life_goes_on_from_what_was_stored() {
        let count = 3 * FINGERPRINTS_PER_RECORD;
        let mut past = PastSends::new(1);
        forget(&mut past, 0..count + 1);
        let mut next = PastSends::new(1);
        for (number, fingerprints) in past.poll_changed() {
            next.restore(number, fingerprints.expect("none is gone"));
        }
        assert_eq!(remembered(&next, 2 * count), count);
        assert!(next.poll_changed().is_empty());
        forget(&mut next, count..count + FINGERPRINTS_PER_RECORD);
        assert_eq!(next.poll_changed().into_keys().collect::<Vec<_>>(), [3]);
        // Beside a smaller log than theirs the oldest go at once.
        let mut smaller = PastSends::new(1);
        let records = (HALF_MIN / FINGERPRINTS_PER_RECORD) as u32;
        for number in 0..2 * records {
            let from = u64::from(number) * FINGERPRINTS_PER_RECORD as u64;
            smaller.restore(number, from..from + FINGERPRINTS_PER_RECORD as u64);
        }
        let gone = (0..records).map(|number| (number, None));
        assert_eq!(smaller.poll_changed(), gone.collect());
    }

    #[test]
    fn a_record_that_comes_and_goes_between_two_calls_is_never_stored() {
        let mut past = PastSends::new(1);
        forget(&mut past, 0..2 * HALF_MIN);
        let records = (HALF_MIN / FINGERPRINTS_PER_RECORD) as u32;
        let written: Vec<u32> = past.poll_changed().into_keys().collect();
        assert_eq!(written, (records..2 * records).collect::<Vec<_>>());
    }
}

//! What is answered for others, and when.

use std::collections::BTreeSet;

use super::rules::REPAIR_BUFFER_MAX;
use crate::maps::HashMap;
use crate::sds::name::Name;
use crate::wire::sds::HistoryEntry;

/// Requests cost little, and answers much: so many bytes leave in a millisecond on average, for
/// whomever, and as many as of this time at once.
const ANSWER_BYTES_PER_MS: usize = 1_024;
const ANSWER_BURST_MS: i64 = 8_192;

/// Entries by id, each with a moment; when full, the one with the latest moment goes.
#[derive(Debug, Default)]
pub struct AnswerBuffer {
    by_id: HashMap<Name, (i64, HistoryEntry)>,
    order: BTreeSet<(i64, Name)>,
    /// Until when the bytes that left take the pace; nothing leaves before.
    paced_until_ms: Option<i64>,
}

impl AnswerBuffer {
    /// Answers held.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether an answer is owed.
    pub fn contains(&self, message_id: &[u8]) -> bool {
        self.by_id.contains_key(message_id)
    }

    /// When an answer is due, and what was asked for.
    pub fn get(&self, message_id: &[u8]) -> Option<(i64, &HistoryEntry)> {
        let (at_ms, entry) = self.by_id.get(message_id)?;
        Some((*at_ms, entry))
    }

    /// What is answered, and when, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.order.iter().map(|(at_ms, name)| (name, *at_ms))
    }

    /// Adds `entry`, which is not owed yet. Gives what had to go.
    pub fn put(&mut self, entry: HistoryEntry, at_ms: i64) -> Option<Name> {
        let name = Name::new(&entry.message_id);
        self.order.insert((at_ms, name.clone()));
        self.by_id.insert(name, (at_ms, entry));
        if self.order.len() <= REPAIR_BUFFER_MAX {
            return None;
        }
        let (_, latest) = self.order.pop_last()?;
        self.by_id.remove(&latest);
        Some(latest)
    }

    /// Whether it was there.
    pub fn remove(&mut self, message_id: &Name) -> bool {
        let Some((at_ms, _)) = self.by_id.remove(message_id) else {
            return false;
        };
        self.order.remove(&(at_ms, message_id.clone()))
    }

    /// Each is where its moment puts it.
    #[cfg(any(test, debug_assertions))]
    pub fn audit(&self) {
        let places = self.by_id.iter();
        let places = places.map(|(name, (at_ms, _))| (*at_ms, name.clone()));
        assert_eq!(self.order, places.collect());
    }

    /// The moment of the first answer.
    pub fn next_ms(&self) -> Option<i64> {
        let (at_ms, _) = self.order.first()?;
        Some(
            self.paced_until_ms
                .map_or(*at_ms, |until_ms| until_ms.max(*at_ms)),
        )
    }

    /// The first answer, if its moment has come.
    pub fn due(&self, monotonic_ms: i64) -> Option<&Name> {
        let (_, name) = self.order.first()?;
        (self.next_ms()? <= monotonic_ms).then_some(name)
    }

    /// When one more may leave, if it is due.
    pub fn paced_ms(&self) -> i64 {
        self.paced_until_ms.unwrap_or(0)
    }

    /// An answer of so many bytes leaves.
    pub fn on_left(&mut self, size_bytes: usize, monotonic_ms: i64) {
        let idle_ms = monotonic_ms - ANSWER_BURST_MS;
        let from_ms = self
            .paced_until_ms
            .map_or(idle_ms, |until_ms| until_ms.max(idle_ms));
        self.paced_until_ms = Some(from_ms + size_bytes.div_ceil(ANSWER_BYTES_PER_MS) as i64);
    }
}

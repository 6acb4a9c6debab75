//! What is answered for others, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashlink::LinkedHashMap;

use super::rules::REPAIR_BUFFER_MAX;
use crate::maps::HashMap;
use crate::sds::name::Name;
use crate::wire::sds::HistoryEntry;

/// Requests cost little, and answers much: so many bytes leave in a millisecond on average, for
/// whomever, and as many as of this time at once.
const ANSWER_BYTES_PER_MS: usize = 1_024;
const ANSWER_BURST_MS: i64 = 8_192;

/// How many participants are looked at for the one that is owed most.
const SHARES_MAX: usize = 100;

/// One answer that is owed.
#[derive(Debug)]
struct Answer {
    at_ms: i64,
    entry: HistoryEntry,
    asked_by: Arc<str>,
}

/// Entries by id, each with a moment and who asked; when full, whoever is owed most loses the latest of
/// that, so that nobody asks for so much that what others are owed goes.
#[derive(Debug, Default)]
pub struct AnswerBuffer {
    by_id: HashMap<Name, Answer>,
    order: BTreeSet<(i64, Name)>,
    shares: LinkedHashMap<Arc<str>, BTreeSet<(i64, Name)>>,
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
        let answer = self.by_id.get(message_id)?;
        Some((answer.at_ms, &answer.entry))
    }

    /// What is answered, and when, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.order.iter().map(|(at_ms, name)| (name, *at_ms))
    }

    /// Adds `entry`, which is not owed yet. Gives what had to go.
    pub fn put(&mut self, entry: HistoryEntry, asked_by: &Arc<str>, at_ms: i64) -> Option<Name> {
        let name = Name::new(&entry.message_id);
        let answer = Answer {
            at_ms,
            entry,
            asked_by: Arc::clone(asked_by),
        };
        self.order.insert((at_ms, name.clone()));
        self.share(name, answer);
        if self.order.len() <= REPAIR_BUFFER_MAX {
            return None;
        }
        let latest = self.first_to_go(asked_by)?;
        self.remove(&latest);
        Some(latest)
    }

    /// What is owed is asked for again: it is in the share of whoever is owed less.
    pub fn on_asked_again(&mut self, message_id: &[u8], by: &Arc<str>) {
        let size = |name: &Arc<str>| self.shares.get(name).map_or(0, BTreeSet::len);
        let owed = self.by_id.get(message_id);
        if owed.is_none_or(|owed| size(by) >= size(&owed.asked_by)) {
            return;
        }
        let name = Name::from_wire(message_id);
        if let Some(answer) = self.unshare(&name) {
            let asked_by = Arc::clone(by);
            self.share(name, Answer { asked_by, ..answer });
        }
    }

    fn share(&mut self, name: Name, answer: Answer) {
        let asked_by = Arc::clone(&answer.asked_by);
        let share = self.shares.entry(asked_by).or_insert_with(BTreeSet::new);
        share.insert((answer.at_ms, name.clone()));
        self.by_id.insert(name, answer);
    }

    fn unshare(&mut self, name: &Name) -> Option<Answer> {
        let answer = self.by_id.remove(name)?;
        if let Some(share) = self.shares.get_mut(&answer.asked_by) {
            share.remove(&(answer.at_ms, name.clone()));
            if share.is_empty() {
                self.shares.remove(&answer.asked_by);
            }
        }
        Some(answer)
    }

    /// Of several that are owed as much `asked_by` loses, who asks for more.
    fn first_to_go(&self, asked_by: &Arc<str>) -> Option<Name> {
        let shares = self.shares.values().rev().take(SHARES_MAX);
        let shares = shares.chain(self.shares.get(asked_by));
        let (_, latest) = shares.max_by_key(|share| share.len())?.last()?;
        Some(latest.clone())
    }

    /// Whether it was there.
    pub fn remove(&mut self, message_id: &Name) -> bool {
        let Some(answer) = self.unshare(message_id) else {
            return false;
        };
        self.order.remove(&(answer.at_ms, message_id.clone()))
    }

    /// Each is where its moment puts it, and in the share of who asked.
    #[cfg(any(test, debug_assertions))]
    pub fn audit(&self) {
        let places = self.by_id.iter();
        let places = places.map(|(name, answer)| (answer.at_ms, name.clone()));
        assert_eq!(self.order, places.collect());
        for (asked_by, share) in &self.shares {
            let is_its = |(_, name): &(i64, Name)| self.by_id[name].asked_by == *asked_by;
            assert!(!share.is_empty() && share.iter().all(is_its));
        }
        let shared: usize = self.shares.values().map(BTreeSet::len).sum();
        assert_eq!(self.order.len(), shared);
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

//! Which payloads are complete: bounded, the oldest forgotten first.

use std::collections::{BTreeMap, VecDeque};

use super::set::Key;

/// The keys of completed payloads in the order of completion.
#[derive(Debug)]
pub(super) struct Completed {
    remembered_max: usize,
    /// Number of the completion, by key.
    numbers: BTreeMap<Key, u64>,
    order: VecDeque<Key>,
    /// Number of the next completion.
    next: u64,
    /// Completions below this number were given to `poll`.
    saved: u64,
    /// Saved completions that are forgotten.
    forgotten: Vec<Key>,
}

impl Completed {
    pub fn new(remembered_max: usize) -> Self {
        Completed {
            remembered_max,
            numbers: BTreeMap::new(),
            order: VecDeque::new(),
            next: 0,
            saved: 0,
            forgotten: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.numbers.contains_key(key)
    }

    /// Remembers a completion and forgets the oldest beyond the limit.
    pub fn insert(&mut self, key: Key) {
        if self.remembered_max == 0 || self.contains(&key) {
            return;
        }
        while self.order.len() >= self.remembered_max {
            let oldest = self.order.pop_front().expect("the limit is at least 1");
            let number = self.numbers.remove(&oldest);
            if number.is_some_and(|number| number < self.saved) {
                self.forgotten.push(oldest);
            }
        }
        self.numbers.insert(key, self.next);
        self.order.push_back(key);
        self.next += 1;
    }

    /// Takes back a saved completion; called in the order of the numbers.
    pub fn restore(&mut self, key: Key, number: u64) {
        self.next = self.next.max(number);
        self.insert(key);
        self.saved = self.next;
    }

    /// What was completed, with its number, and what was forgotten since the last call.
    pub fn poll(&mut self) -> (Vec<(Key, u64)>, Vec<Key>) {
        let numbered = self.order.iter().rev().map(|key| (*key, self.numbers[key]));
        let mut completed: Vec<_> = numbered
            .take_while(|(_, number)| *number >= self.saved)
            .collect();
        completed.reverse();
        self.saved = self.next;
        (completed, std::mem::take(&mut self.forgotten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_remembered_and_what_changed_is_told_once() {
        let key = |number: u8| [number; 16];
        let mut completed = Completed::new(2);
        for number in [0, 1, 1] {
            completed.insert(key(number));
        }
        assert_eq!(completed.poll(), (vec![(key(0), 0), (key(1), 1)], vec![]));
        for number in 2..5 {
            completed.insert(key(number));
        }
        // The third was never stored.
        let changed = (vec![(key(3), 3), (key(4), 4)], vec![key(0), key(1)]);
        assert_eq!(completed.poll(), changed);
        assert_eq!(completed.poll(), (vec![], vec![]));
        let held = (0..5).map(|number| completed.contains(&key(number)));
        assert!(held.eq([false, false, false, true, true]));
        assert_eq!(completed.len(), 2);

        let mut restored = Completed::new(2);
        restored.restore(key(3), 3);
        restored.restore(key(4), 7);
        restored.insert(key(5));
        assert_eq!(restored.poll(), (vec![(key(5), 8)], vec![key(3)]));
        let mut none = Completed::new(0);
        none.insert(key(0));
        assert_eq!((none.len(), none.poll()), (0, (vec![], vec![])));
    }
}

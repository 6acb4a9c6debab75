//! What of one send waits for its first dispatch.

use std::ops::Range;

/// Ordinals of one send, the next one first.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Ordinals before the range `rest`, the next one last.
    before: Vec<u32>,
    rest: Range<u32>,
}

impl Waiting {
    /// The first `count` ordinals.
    pub fn first(count: u32) -> Self {
        Waiting {
            before: Vec::new(),
            rest: 0..count,
        }
    }

    /// These, the next one first.
    pub fn of(ordinals: impl DoubleEndedIterator<Item = u32>) -> Self {
        Waiting {
            before: ordinals.rev().collect(),
            rest: 0..0,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.rest.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.before.len() + self.rest.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let before = self.before.iter().rev().copied();
        before.chain(self.rest.clone())
    }

    /// Takes one in that comes before all others.
    pub fn push_front(&mut self, ordinal: u32) {
        self.before.push(ordinal);
    }

    /// Takes the next one out.
    pub fn pop_front(&mut self) -> Option<u32> {
        self.before.pop().or_else(|| self.rest.next())
    }
}

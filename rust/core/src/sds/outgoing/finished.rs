//! Sends that are delivered or given up, for as long as they are remembered.

use std::collections::VecDeque;

use super::send::OutgoingRef;
use super::sends::Sends;

/// Contents of finished sends that still collect acknowledgements, so that it goes on growing who
/// has them.
pub const FINISHED_CONTENTS_MAX: usize = 4_096;

/// Finished sends, the oldest first, each with how many contents it has.
#[derive(Debug, Default)]
pub struct Finished {
    sends: VecDeque<(usize, OutgoingRef)>,
    contents: usize,
}

impl Finished {
    /// Contents of all of them.
    pub fn contents(&self) -> usize {
        self.contents
    }

    /// A send of `count` contents is finished.
    pub fn add(&mut self, handle: OutgoingRef, count: usize) {
        self.contents += count;
        self.sends.push_back((count, handle));
    }

    /// Takes out the oldest, where more are kept than may be. One of which contents still wait holds up
    /// those behind it.
    pub fn take_surplus(&mut self, sends: &Sends) -> Option<OutgoingRef> {
        let &(count, oldest) = self.sends.front()?;
        let waits = sends.get(oldest).is_some_and(|send| send.waits());
        if waits || self.contents <= FINISHED_CONTENTS_MAX {
            return None;
        }
        self.sends.pop_front();
        self.contents -= count;
        Some(oldest)
    }

    /// What is counted is what is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        let counts = self.sends.iter().map(|(count, _)| count);
        assert_eq!(self.contents, counts.sum::<usize>());
    }
}

//! Sends of this participant that have not left, or not wholly.

use std::collections::VecDeque;

use super::send::{ContentRef, OutgoingRef, OutgoingSend};
use crate::sds::slab::Slab;

/// Which content leaves next.
///
/// A send goes out whole while it is young, so that what follows it can name it; one that has been
/// under way for longer than the acknowledgement timeout shares its turns with sends that have not
/// begun: fresh small messages are not stuck behind a large one.
#[derive(Debug)]
pub struct DispatchQueue {
    young_ms: i64,
    fresh: VecDeque<OutgoingRef>,
    started: VecDeque<OutgoingRef>,
    fresh_turn: bool,
    contents: usize,
    bytes: usize,
}

impl DispatchQueue {
    /// An empty queue.
    pub fn new(acknowledgement_timeout_ms: i64) -> Self {
        DispatchQueue {
            young_ms: acknowledgement_timeout_ms,
            fresh: VecDeque::new(),
            started: VecDeque::new(),
            fresh_turn: false,
            contents: 0,
            bytes: 0,
        }
    }

    /// Contents that wait.
    pub fn contents(&self) -> usize {
        self.contents
    }

    /// Their bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sends that have not begun.
    pub fn fresh(&self, sends: &Slab<OutgoingSend>) -> usize {
        let waits = |send: &&OutgoingRef| sends.get(**send).is_some_and(OutgoingSend::waits);
        self.fresh.iter().filter(waits).count()
    }

    /// Contents of sends that have begun.
    pub fn started_contents(&self, sends: &Slab<OutgoingSend>) -> usize {
        let begun = self.started.iter().filter_map(|send| sends.get(*send));
        begun.map(|send| send.queue.len()).sum()
    }

    /// Queues all contents of a new send.
    pub fn add(&mut self, handle: OutgoingRef, send: &mut OutgoingSend) {
        self.contents += send.contents.len();
        self.bytes += send
            .contents
            .iter()
            .map(|content| content.size_bytes)
            .sum::<usize>();
        send.queue = (0..send.contents.len() as u32).collect();
        self.fresh.push_back(handle);
    }

    /// Restores the queued contents of a stored send.
    pub fn restore(&mut self, handle: OutgoingRef, send: &mut OutgoingSend, monotonic_ms: i64) {
        let queued = send
            .contents
            .iter()
            .enumerate()
            .filter(|(_, content)| content.queued);
        send.queue = queued.map(|(ordinal, _)| ordinal as u32).collect();
        for &ordinal in &send.queue {
            self.contents += 1;
            self.bytes += send.contents[ordinal as usize].size_bytes;
        }
        if send.waits() {
            send.first_ms = monotonic_ms;
            let queue = if send.dispatched > 0 {
                &mut self.started
            } else {
                &mut self.fresh
            };
            queue.push_back(handle);
        }
    }

    /// Takes the next content that may leave: a send's first one, a further one, or either.
    pub fn next(
        &mut self,
        first: bool,
        further: bool,
        sends: &mut Slab<OutgoingSend>,
        monotonic_ms: i64,
    ) -> Option<ContentRef> {
        let mut started = if further {
            head(&mut self.started, sends)
        } else {
            None
        };
        let mut fresh = if first {
            head(&mut self.fresh, sends)
        } else {
            None
        };
        let young_ms = self.young_ms;
        let is_young = |send: &OutgoingSend| monotonic_ms - send.first_ms < young_ms;
        if let (Some(begun), Some(_)) = (started, fresh) {
            let young = is_young(&sends[begun]);
            if young || !self.fresh_turn {
                fresh = None;
            } else {
                started = None;
            }
            self.fresh_turn = !young && started.is_some();
        }
        let (handle, ordinal) = if let Some(handle) = fresh {
            self.fresh.pop_front();
            let send = &mut sends[handle];
            send.first_ms = monotonic_ms;
            let ordinal = send.queue.pop_front()?;
            if send.waits() {
                self.started.push_back(handle);
            }
            (handle, ordinal)
        } else {
            let handle = started?;
            let send = &mut sends[handle];
            let ordinal = send.queue.pop_front()?;
            if !send.waits() {
                self.started.pop_front();
            } else if !is_young(send) {
                self.started.rotate_left(1);
            }
            (handle, ordinal)
        };
        self.leave(&mut sends[handle], ordinal);
        Some((handle, ordinal))
    }

    /// The send that begins next.
    pub fn next_fresh(&mut self, sends: &Slab<OutgoingSend>) -> Option<OutgoingRef> {
        head(&mut self.fresh, sends)
    }

    /// A first transmission failed: the content waits at the head of its send.
    pub fn put_back(&mut self, handle: OutgoingRef, send: &mut OutgoingSend, ordinal: u32) {
        let waited = send.waits();
        send.queue.push_front(ordinal);
        let content = &mut send.contents[ordinal as usize];
        content.queued = true;
        self.contents += 1;
        self.bytes += content.size_bytes;
        if !waited {
            self.started.push_front(handle);
        }
    }

    /// Drops what is queued of a send.
    pub fn clear(&mut self, send: &mut OutgoingSend) {
        for ordinal in std::mem::take(&mut send.queue) {
            self.leave(send, ordinal);
        }
    }

    fn leave(&mut self, send: &mut OutgoingSend, ordinal: u32) {
        let content = &mut send.contents[ordinal as usize];
        content.queued = false;
        self.contents -= 1;
        self.bytes -= content.size_bytes;
    }
}

fn head(queue: &mut VecDeque<OutgoingRef>, sends: &Slab<OutgoingSend>) -> Option<OutgoingRef> {
    while let Some(&first) = queue.front() {
        if sends.get(first).is_some_and(OutgoingSend::waits) {
            return Some(first);
        }
        queue.pop_front();
    }
    None
}

//! Sends of this participant that have not left, or not wholly.

use std::collections::VecDeque;

use super::send::{ContentRef, OutgoingRef, OutgoingSend};
use super::sends::Sends;
use super::waiting::Waiting;

/// Which content leaves next.
///
/// A send goes out whole while it is young, so that what follows it can name it; one that has been
/// under way for longer than the acknowledgement timeout shares its turns with sends that have not
/// begun: fresh small messages are not stuck behind a large one.
#[derive(Debug)]
pub struct DispatchQueue {
    young_ms: i64,
    /// Those that were dropped stay until they come to the front.
    fresh: VecDeque<OutgoingRef>,
    /// How many of them wait: counted, since it is asked in every step, and any number may wait.
    fresh_sends: usize,
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
            fresh_sends: 0,
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
    pub fn fresh(&self) -> usize {
        self.fresh_sends
    }

    /// Contents of sends that have begun.
    pub fn started_contents(&self, sends: &Sends) -> usize {
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
        send.queue = Waiting::first(send.contents.len() as u32);
        self.begin_fresh(handle, send);
    }

    /// Restores the queued contents of a stored send.
    pub fn restore(&mut self, handle: OutgoingRef, send: &mut OutgoingSend, monotonic_ms: i64) {
        let queued = send
            .contents
            .iter()
            .enumerate()
            .filter(|(_, content)| content.queued);
        let queued = queued.map(|(ordinal, _)| ordinal as u32);
        send.queue = Waiting::of(queued);
        for ordinal in send.queue.iter() {
            self.contents += 1;
            self.bytes += send.contents[ordinal as usize].size_bytes;
        }
        if send.waits() {
            send.first_ms = monotonic_ms;
            if send.dispatched > 0 {
                self.started.push_back(handle);
            } else {
                self.begin_fresh(handle, send);
            }
        }
    }

    /// Takes the next content that may leave: a send's first one, a further one, or either.
    pub fn next(
        &mut self,
        first: bool,
        further: bool,
        sends: &mut Sends,
        monotonic_ms: i64,
    ) -> Option<ContentRef> {
        let begun = head(&mut self.started, sends);
        let mut started = begun.filter(|_| further);
        let mut fresh = if first {
            head(&mut self.fresh, sends)
        } else {
            None
        };
        let young_ms = self.young_ms;
        let is_young = |send: &OutgoingSend| monotonic_ms - send.first_ms < young_ms;
        if begun.is_some_and(|begun| is_young(&sends[begun])) {
            // Though nothing further of it may leave now.
            fresh = None;
            self.fresh_turn = false;
        } else if started.is_some() && fresh.is_some() {
            if self.fresh_turn {
                started = None;
            } else {
                fresh = None;
            }
            self.fresh_turn = started.is_some();
        }
        let (handle, ordinal) = if let Some(handle) = fresh {
            self.fresh.pop_front();
            let send = &mut sends[handle];
            self.end_fresh(send);
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
    pub fn next_fresh(&mut self, sends: &Sends) -> Option<OutgoingRef> {
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
        self.end_fresh(send);
        for ordinal in std::mem::take(&mut send.queue).iter() {
            self.leave(send, ordinal);
        }
    }

    /// What is counted is what waits.
    #[cfg(debug_assertions)]
    pub fn audit(&self, sends: &Sends) {
        let queued = || {
            let contents = sends.iter().flat_map(|send| &send.contents);
            contents.filter(|content| content.queued)
        };
        assert_eq!(self.contents, queued().count());
        let waiting = sends.iter().map(|send| send.queue.len());
        assert_eq!(self.contents, waiting.sum::<usize>());
        let sizes = queued().map(|content| content.size_bytes);
        assert_eq!(self.bytes, sizes.sum::<usize>());
        let waits = |send: &&OutgoingRef| sends.get(**send).is_some_and(OutgoingSend::waits);
        assert_eq!(self.fresh_sends, self.fresh.iter().filter(waits).count());
    }

    fn begin_fresh(&mut self, handle: OutgoingRef, send: &mut OutgoingSend) {
        send.is_fresh = true;
        self.fresh_sends += 1;
        self.fresh.push_back(handle);
    }

    fn end_fresh(&mut self, send: &mut OutgoingSend) {
        self.fresh_sends -= usize::from(std::mem::take(&mut send.is_fresh));
    }

    fn leave(&mut self, send: &mut OutgoingSend, ordinal: u32) {
        let content = &mut send.contents[ordinal as usize];
        content.queued = false;
        self.contents -= 1;
        self.bytes -= content.size_bytes;
    }
}

fn head(queue: &mut VecDeque<OutgoingRef>, sends: &Sends) -> Option<OutgoingRef> {
    while let Some(&first) = queue.front() {
        if sends.get(first).is_some_and(OutgoingSend::waits) {
            return Some(first);
        }
        queue.pop_front();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::name::Name;
    use crate::sds::outgoing::OutgoingContent;

    const YOUNG_MS: i64 = 1_000;
    /// When the first of them begins.
    const START_MS: i64 = 10_000;

    struct Queue {
        queue: DispatchQueue,
        sends: Sends,
    }

    impl Queue {
        fn new() -> Self {
            Queue {
                queue: DispatchQueue::new(YOUNG_MS),
                sends: Sends::default(),
            }
        }

        /// Queues a send of `count` contents of three bytes.
        fn add(&mut self, count: usize) -> OutgoingRef {
            let mut send = OutgoingSend::new(Name::new("send"), 1, 1);
            let content = || OutgoingContent::new(Name::new("id"), vec![0; 3].into());
            send.contents.extend((0..count).map(|_| content()));
            let handle = self.sends.add(send);
            self.queue.add(handle, &mut self.sends[handle]);
            handle
        }

        fn next(&mut self, monotonic_ms: i64) -> Option<ContentRef> {
            let now_ms = START_MS + monotonic_ms;
            self.queue.next(true, true, &mut self.sends, now_ms)
        }
    }

    #[test]
    fn a_young_send_goes_whole_and_an_old_one_takes_turns_with_fresh_ones() {
        let mut queue = Queue::new();
        let large = queue.add(6);
        let small: Vec<_> = (0..3).map(|_| queue.add(1)).collect();
        // The first is young up to the last moment before a timeout has passed since it began.
        for (monotonic_ms, place) in [
            (0, (large, 0)),
            (1, (large, 1)),
            (YOUNG_MS - 1, (large, 2)),
            (YOUNG_MS, (large, 3)),
            (YOUNG_MS, (small[0], 0)),
            (YOUNG_MS, (large, 4)),
            (YOUNG_MS, (small[1], 0)),
            (YOUNG_MS, (large, 5)),
            (YOUNG_MS, (small[2], 0)),
        ] {
            assert_eq!(queue.next(monotonic_ms), Some(place), "at {monotonic_ms}");
        }
        assert_eq!(queue.next(YOUNG_MS), None);
        assert_eq!((queue.queue.contents(), queue.queue.bytes()), (0, 0));
    }

    #[test]
    fn sends_that_are_old_take_turns() {
        let mut queue = Queue::new();
        let (one, other) = (queue.add(3), queue.add(3));
        let first = [(0, one), (YOUNG_MS, one), (YOUNG_MS, other)];
        for (monotonic_ms, send) in first {
            assert_eq!(queue.next(monotonic_ms).unwrap().0, send);
        }
        assert_eq!(queue.queue.started_contents(&queue.sends), 3);
        let late = std::iter::from_fn(|| queue.next(3 * YOUNG_MS)).map(|(send, _)| send);
        assert_eq!(late.collect::<Vec<_>>(), [one, other, other]);
    }

    #[test]
    fn of_two_young_sends_the_first_goes_whole_before_the_other_goes_on() {
        let mut queue = Queue::new();
        let (one, other) = (queue.add(2), queue.add(2));
        let places = [(one, 0), (one, 1), (other, 0)];
        assert_eq!(places.map(|_| queue.next(0).unwrap()), places);
        queue.queue.put_back(one, &mut queue.sends[one], 1);
        let left: Vec<_> = std::iter::from_fn(|| queue.next(1)).collect();
        assert_eq!(left, [(one, 1), (other, 1)]);
    }

    #[test]
    fn nothing_begins_behind_a_young_send_of_which_nothing_may_leave() {
        let mut queue = Queue::new();
        let (large, small) = (queue.add(2), queue.add(1));
        assert_eq!(queue.next(0), Some((large, 0)));
        let mut first = |monotonic_ms| {
            let now_ms = START_MS + monotonic_ms;
            queue.queue.next(true, false, &mut queue.sends, now_ms)
        };
        assert_eq!(first(YOUNG_MS - 1), None);
        assert_eq!(first(YOUNG_MS), Some((small, 0)));
    }

    #[test]
    fn what_was_put_back_leaves_first_and_what_is_dropped_never() {
        let mut queue = Queue::new();
        let (one, other) = (queue.add(2), queue.add(2));
        assert_eq!(queue.queue.fresh(), 2);
        let place = queue.next(0).unwrap();
        queue.queue.put_back(one, &mut queue.sends[one], place.1);
        assert_eq!((queue.queue.contents(), queue.queue.bytes()), (4, 12));
        assert_eq!(queue.queue.started_contents(&queue.sends), 2);
        assert_eq!(queue.queue.fresh(), 1);
        queue.queue.clear(&mut queue.sends[other]);
        assert_eq!((queue.queue.contents(), queue.queue.bytes()), (2, 6));
        assert_eq!(queue.queue.fresh(), 0);
        let left: Vec<_> = std::iter::from_fn(|| queue.next(0)).collect();
        assert_eq!(left, [(one, 0), (one, 1)]);
    }

    #[test]
    fn a_send_that_has_begun_or_was_dropped_is_counted_among_the_fresh_no_more() {
        let mut queue = Queue::new();
        let (begun, dropped, _) = (queue.add(1), queue.add(1), queue.add(1));
        let place = queue.next(0).unwrap();
        queue
            .queue
            .put_back(begun, &mut queue.sends[begun], place.1);
        for send in [begun, dropped, dropped] {
            queue.queue.clear(&mut queue.sends[send]);
        }
        assert_eq!(queue.queue.fresh(), 1);
    }

    #[test]
    fn what_waited_before_a_restart_waits_after_it() {
        let mut queue = Queue::new();
        let (begun, fresh) = (queue.add(3), queue.add(1));
        queue.next(0);
        queue.sends[begun].dispatched = 1;
        let mut again = DispatchQueue::new(YOUNG_MS);
        for handle in [begun, fresh] {
            again.restore(handle, &mut queue.sends[handle], 5);
        }
        assert_eq!((again.contents(), again.bytes()), (3, 9));
        assert_eq!(
            (again.started_contents(&queue.sends), again.fresh()),
            (2, 1)
        );
    }
}

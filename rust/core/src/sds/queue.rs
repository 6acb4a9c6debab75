//! Queues that grow with the log.

use std::collections::VecDeque;

/// Room is made for so large a part of what is there: at doubling half of a long queue would lie idle.
const PART: usize = 8;
const ROOM_MIN: usize = 64;

/// Puts a value at the end.
pub fn push<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(queue.len() / PART + ROOM_MIN);
    }
    queue.push_back(value);
}

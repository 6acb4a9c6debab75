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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_of_a_long_queue_lies_idle() {
        let mut queue = VecDeque::new();
        for value in 0..100_000 {
            push(&mut queue, value);
            let idle = queue.capacity() - queue.len();
            assert!(idle <= queue.len() / PART + ROOM_MIN);
        }
        // What leaves at one end makes room at the other.
        let capacity = queue.capacity();
        for value in 0..200_000 {
            assert_eq!(queue.pop_front(), Some(value));
            push(&mut queue, 100_000 + value);
        }
        assert_eq!(queue.capacity(), capacity);
    }
}

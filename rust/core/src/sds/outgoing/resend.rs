//! When contents of ours are sent again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::send::{ContentRef, OutgoingContent};
use super::sends::Sends;

/// Timers that are out of date may take this much room beyond four times what is unacknowledged.
const STALE_MIN: usize = 64;

/// Contents by the moment at which each is due. One that is put off keeps its timer, which moves
/// itself when it goes off too early.
#[derive(Debug, Default)]
pub struct ResendTimers {
    heap: BinaryHeap<Reverse<(i64, u64, ContentRef)>>,
    count: u64,
}

impl ResendTimers {
    /// A content is due at `at_ms`; `held` contents are unacknowledged.
    pub fn set(&mut self, place: ContentRef, at_ms: i64, held: usize, sends: &mut Sends) {
        let Some(content) = content_mut(sends, place) else {
            return;
        };
        content.resend_ms = Some(at_ms);
        if content.timer_ms.is_some_and(|timer_ms| timer_ms <= at_ms) {
            return;
        }
        content.timer_ms = Some(at_ms);
        self.push(at_ms, place);
        if self.heap.len() > 4 * held + STALE_MIN {
            self.drop_stale(sends);
        }
    }

    /// When the next content is due; `None` for never.
    pub fn next_ms(&mut self, sends: &mut Sends) -> Option<i64> {
        loop {
            let Reverse((at_ms, _, place)) = *self.heap.peek()?;
            let mut moved = None;
            if let Some(content) = content_mut(sends, place) {
                if content.resend_ms == Some(at_ms) {
                    return Some(at_ms);
                }
                if content.timer_ms == Some(at_ms) {
                    content.timer_ms = content.resend_ms;
                    moved = content.resend_ms;
                }
            }
            self.heap.pop();
            if let Some(at_ms) = moved {
                self.push(at_ms, place);
            }
        }
    }

    /// Takes out a content that is due; `None` where none is.
    pub fn take(&mut self, monotonic_ms: i64, sends: &mut Sends) -> Option<ContentRef> {
        if self.next_ms(sends)? > monotonic_ms {
            return None;
        }
        let Reverse((_, _, place)) = self.heap.pop()?;
        if let Some(content) = content_mut(sends, place) {
            content.resend_ms = None;
            content.timer_ms = None;
        }
        Some(place)
    }

    fn push(&mut self, at_ms: i64, place: ContentRef) {
        self.count += 1;
        self.heap.push(Reverse((at_ms, self.count, place)));
    }

    fn drop_stale(&mut self, sends: &mut Sends) {
        self.heap.retain(|Reverse((at_ms, _, place))| {
            let Some(content) = content_mut(sends, *place) else {
                return false;
            };
            let current = content.timer_ms == Some(*at_ms);
            if current && content.resend_ms.is_none() {
                content.timer_ms = None;
            }
            current && content.resend_ms.is_some()
        });
    }
}

fn content_mut(sends: &mut Sends, (send, ordinal): ContentRef) -> Option<&mut OutgoingContent> {
    sends.get_mut(send)?.contents.get_mut(ordinal as usize)
}

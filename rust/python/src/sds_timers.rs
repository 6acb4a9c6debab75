//! When contents of ours are sent again: `_native.pyi`, "Scalable Data Sync".

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use pyo3::prelude::*;

use crate::sds_outgoing::{OutgoingContent, OutgoingSend};

/// Timers that are out of date may take this much room beyond four times what is unacknowledged.
const STALE_MIN: usize = 64;

struct Timer {
    at_ms: i64,
    number: u64,
    content: Py<OutgoingContent>,
}

impl Timer {
    fn key(&self) -> (i64, u64) {
        (self.at_ms, self.number)
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Timer {}

/// Contents by the moment at which each is due. One that is put off keeps its timer, which moves
/// itself when it goes off too early.
#[pyclass(module = "shardwire._native")]
pub struct ResendTimers {
    heap: BinaryHeap<Reverse<Timer>>,
    count: u64,
}

#[pymethods]
impl ResendTimers {
    #[new]
    fn new() -> Self {
        ResendTimers {
            heap: BinaryHeap::new(),
            count: 0,
        }
    }

    /// `content` is due at `at_ms`; `held` contents are unacknowledged.
    #[pyo3(signature = (content, at_ms, held, /))]
    pub fn set(&mut self, content: &Bound<'_, OutgoingContent>, at_ms: i64, held: usize) {
        let mut known = content.borrow_mut();
        known.resend_ms = Some(at_ms);
        if known.timer_ms.is_some_and(|timer_ms| timer_ms <= at_ms) {
            return;
        }
        known.timer_ms = Some(at_ms);
        drop(known);
        self.push(at_ms, content.clone().unbind());
        if self.heap.len() > 4 * held + STALE_MIN {
            self.drop_stale(content.py());
        }
    }

    /// When the next content is due; `None` for never.
    fn next_ms(&mut self, py: Python<'_>) -> Option<i64> {
        loop {
            let Reverse(first) = self.heap.peek()?;
            let at_ms = first.at_ms;
            let mut content = first.content.borrow_mut(py);
            if content.resend_ms == Some(at_ms) {
                return Some(at_ms);
            }
            let mut moved = None;
            if content.timer_ms == Some(at_ms) {
                content.timer_ms = content.resend_ms;
                moved = content.resend_ms;
            }
            drop(content);
            if let Some(Reverse(timer)) = self.heap.pop()
                && let Some(at_ms) = moved
            {
                self.push(at_ms, timer.content);
            }
        }
    }

    /// Takes out a content that is due; `None` where none is.
    #[pyo3(signature = (monotonic_ms, /))]
    fn take(&mut self, py: Python<'_>, monotonic_ms: i64) -> Option<Py<OutgoingContent>> {
        if self.next_ms(py)? > monotonic_ms {
            return None;
        }
        let Reverse(timer) = self.heap.pop()?;
        let mut content = timer.content.borrow_mut(py);
        content.resend_ms = None;
        content.timer_ms = None;
        drop(content);
        Some(timer.content)
    }
}

impl ResendTimers {
    fn push(&mut self, at_ms: i64, content: Py<OutgoingContent>) {
        self.count += 1;
        self.heap.push(Reverse(Timer {
            at_ms,
            number: self.count,
            content,
        }));
    }

    fn drop_stale(&mut self, py: Python<'_>) {
        self.heap.retain(|Reverse(timer)| {
            let mut content = timer.content.borrow_mut(py);
            let current = content.timer_ms == Some(timer.at_ms);
            if current && content.resend_ms.is_none() {
                content.timer_ms = None;
            }
            current && content.resend_ms.is_some()
        });
    }
}

/// Finished sends that still collect acknowledgements, the oldest first.
#[pyclass(module = "shardwire._native")]
pub struct FinishedSends {
    contents_max: usize,
    contents: usize,
    sends: VecDeque<(usize, Py<OutgoingSend>)>,
}

#[pymethods]
impl FinishedSends {
    #[new]
    #[pyo3(signature = (contents_max, /))]
    fn new(contents_max: usize) -> Self {
        FinishedSends {
            contents_max,
            contents: 0,
            sends: VecDeque::new(),
        }
    }

    /// Holds a restored send.
    #[pyo3(signature = (send, /))]
    fn take_back(&mut self, send: &Bound<'_, OutgoingSend>) {
        let count = send.borrow().contents.len(send.py());
        self.contents += count;
        self.sends.push_back((count, send.clone().unbind()));
    }

    /// Holds `send`; gives those that have to go for it. One of which contents still wait holds up
    /// those behind it.
    #[pyo3(signature = (send, /))]
    pub fn push<'py>(
        &mut self,
        send: &Bound<'py, OutgoingSend>,
    ) -> PyResult<Vec<Bound<'py, OutgoingSend>>> {
        let py = send.py();
        self.take_back(send);
        let mut gone = Vec::new();
        while self.contents > self.contents_max
            && let Some((count, oldest)) = self.sends.front()
        {
            let count = *count;
            let oldest = oldest.bind(py).clone();
            if oldest.borrow().waits(py)? {
                break;
            }
            self.sends.pop_front();
            self.contents -= count;
            gone.push(oldest);
        }
        Ok(gone)
    }
}

//! What leaves the local log of the SDS machine.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::prefetch::prefetch;
use crate::sds_log::{LocalLog, LogEntry};

/// What is forgotten was not touched for so long that it lies in no cache: it is asked for while
/// so many others are forgotten, and what it leads to while half as many are.
const PREFETCHED: usize = 16;

impl LocalLog {
    fn prefetch_oldest(&self, py: Python<'_>) {
        if let Some(next) = self.arrival.get(PREFETCHED) {
            prefetch(next, size_of::<LogEntry>() + 24);
        }
        if let Some(next) = self.arrival.get(PREFETCHED / 2) {
            let next = next.borrow(py);
            self.entries.borrow(py).prefetch(next.id_hash);
            prefetch(&next.message_id, 96);
            if let Some(data) = &next.original {
                prefetch(data, 16);
            }
        }
    }

    /// Forgets the entry that came first, unless its send still waits; gives its id.
    pub fn forget_oldest<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        for _ in 0..self.arrival.len() {
            let Some(oldest) = self.arrival.pop_front() else {
                break;
            };
            self.prefetch_oldest(py);
            let mut entry = oldest.borrow_mut(py);
            if entry.send.is_some() {
                drop(entry);
                self.arrival.push_back(oldest);
                continue;
            }
            let message_id = entry.message_id.bind(py).clone();
            self.entries
                .borrow_mut(py)
                .remove(&message_id, entry.id_hash)?;
            entry.let_go();
            let mut paired = false;
            if let Some(originals) = &self.originals {
                let mut originals = originals.borrow_mut(py);
                paired = originals.forget_of(&mut entry, &message_id)?;
            }
            drop(entry);
            self.forgotten.push((message_id.clone().unbind(), paired));
            while let Some(first) = self.ordered.front()
                && !first.borrow(py).held
            {
                self.ordered.pop_front();
            }
            return Ok(Some(message_id));
        }
        Ok(None)
    }
}

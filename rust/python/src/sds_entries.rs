//! The entries of the local log by id: `_native.pyi`, "Scalable Data Sync".

use std::hash::{BuildHasher, RandomState};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyString};

use crate::prefetch::prefetch_line;
use crate::sds_entry::LogEntry;

/// Slots of the first table.
const SLOTS_MIN: usize = 64;

struct Held {
    hash: u64,
    id: Py<PyString>,
    entry: Py<LogEntry>,
}

/// A mapping from ids to entries.
///
/// Open addressing, at most half full: to find an id, or to find that it is not here, mostly reads
/// one place of memory. A Python dictionary of texts reads the text of whatever it collides with.
/// Ids are looked up as they stand in a message, without an object being made of them.
#[pyclass(mapping, module = "shardwire._native")]
#[derive(Default)]
pub struct LogEntries {
    hashes: RandomState,
    slots: Vec<Option<Held>>,
    count: usize,
}

#[pymethods]
impl LogEntries {
    #[pyo3(signature = (message_id, /))]
    pub fn get<'py>(&self, message_id: &Bound<'py, PyString>) -> Option<Bound<'py, LogEntry>> {
        let text = message_id.to_str().ok()?;
        self.find(message_id.py(), text, self.hash_of(text))
    }

    pub fn __contains__(&self, message_id: &Bound<'_, PyString>) -> bool {
        self.get(message_id).is_some()
    }

    fn __getitem__<'py>(
        &self,
        message_id: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, LogEntry>> {
        let found = self.get(message_id);
        found.ok_or_else(|| PyKeyError::new_err(message_id.clone().unbind()))
    }

    pub fn __len__(&self) -> usize {
        self.count
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let entries = self.values(py).into_iter();
        let ids = entries.map(|entry| entry.borrow().message_id.clone_ref(py));
        PyList::new(py, ids.collect::<Vec<_>>())?.try_iter()
    }

    /// The entries in the order in which they came.
    fn values<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, LogEntry>> {
        let held = self.slots.iter().flatten();
        let mut entries: Vec<_> = held.map(|held| held.entry.bind(py).clone()).collect();
        entries.sort_by_key(|entry| entry.borrow().sequence);
        entries
    }
}

impl LogEntries {
    /// The hash of an id as it stands in a message.
    pub fn hash_of(&self, id: &str) -> u64 {
        self.hashes.hash_one(id)
    }

    /// Asks for the memory where an id of this hash is looked for.
    pub fn prefetch(&self, hash: u64) {
        if let Some(mask) = self.slots.len().checked_sub(1) {
            prefetch_line(&raw const self.slots[hash as usize & mask]);
        }
    }

    /// The entry of an id with its hash.
    pub fn find<'py>(&self, py: Python<'py>, id: &str, hash: u64) -> Option<Bound<'py, LogEntry>> {
        let position = self.position(py, id, hash)?;
        let held = self.slots[position].as_ref()?;
        Some(held.entry.bind(py).clone())
    }

    /// Holds an entry whose id is not held yet.
    pub fn insert(
        &mut self,
        message_id: &Bound<'_, PyString>,
        entry: &Bound<'_, LogEntry>,
        hash: u64,
    ) {
        if self.slots.len() < 2 * (self.count + 1) {
            let slots = (2 * self.slots.len()).max(SLOTS_MIN);
            let larger = std::iter::repeat_with(|| None).take(slots).collect();
            for held in std::mem::replace(&mut self.slots, larger)
                .into_iter()
                .flatten()
            {
                self.place(held);
            }
        }
        self.count += 1;
        entry.borrow_mut().id_hash = hash;
        self.place(Held {
            hash,
            id: message_id.clone().unbind(),
            entry: entry.clone().unbind(),
        });
    }

    /// Takes out an entry by its id and the hash that it was given; whether it was here.
    pub fn remove(&mut self, message_id: &Bound<'_, PyString>, hash: u64) -> PyResult<bool> {
        let position = self.position(message_id.py(), message_id.to_str()?, hash);
        let Some(mut hole) = position else {
            return Ok(false);
        };
        let mask = self.slots.len() - 1;
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let Some(held) = &self.slots[next] else {
                break;
            };
            // What lies further from its own place than from the hole moves there.
            let distance = next.wrapping_sub(held.hash as usize) & mask;
            if distance >= next.wrapping_sub(hole) & mask {
                self.slots.swap(hole, next);
                hole = next;
            }
        }
        self.slots[hole] = None;
        self.count -= 1;
        Ok(true)
    }

    fn place(&mut self, held: Held) {
        let mask = self.slots.len() - 1;
        let mut position = held.hash as usize & mask;
        while self.slots[position].is_some() {
            position = (position + 1) & mask;
        }
        self.slots[position] = Some(held);
    }

    fn position(&self, py: Python<'_>, id: &str, hash: u64) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut position = hash as usize & mask;
        while let Some(held) = &self.slots[position] {
            if held.hash == hash && held.id.to_str(py).is_ok_and(|known| known == id) {
                return Some(position);
            }
            position = (position + 1) & mask;
        }
        None
    }
}

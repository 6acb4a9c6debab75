//! The local log of the SDS machine: `_native.pyi`, "Scalable Data Sync".

use std::collections::VecDeque;

use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyString, PyTuple};

use crate::sds_entries::LogEntries;
pub use crate::sds_entry::LogEntry;
use crate::sds_originals::Originals;
use crate::sds_record::{record_key, record_name};
use crate::sds_send::IncomingSend;
use crate::untracked::untrack;

/// Positions of unknown ids, sends that wait, and entries to be said.
type Followed<'py> = (
    Vec<usize>,
    Vec<Bound<'py, IncomingSend>>,
    Vec<Bound<'py, LogEntry>>,
);

/// Entries that one that comes puts out at most.
const FORGOTTEN_AT_ONCE: usize = 2;

/// Room that the order may take beyond twice the log before what left the log is dropped from it.
const STALE_ORDER_MIN: usize = 64;

/// Entries by id, in the order in which they came, and the delivered sends in log order.
#[pyclass(module = "shardwire._native")]
pub struct LocalLog {
    entries_max: usize,
    on_forgotten: Py<PyAny>,
    pub originals: Option<Py<Originals>>,
    /// Other parts' containers that may name what is forgotten.
    naming: Vec<Py<PyDict>>,
    #[pyo3(get)]
    pub entries: Py<LogEntries>,
    /// Entries whose stored form changed.
    changed: Vec<Py<LogEntry>>,
    /// What is gone: the record of its message too where that went with its own.
    pub forgotten: Vec<(Py<PyString>, bool)>,
    #[pyo3(get)]
    sequence: u64,
    pub arrival: VecDeque<Py<LogEntry>>,
    pub ordered: VecDeque<Py<LogEntry>>,
    /// Histories composed so far.
    histories: u64,
}

#[pymethods]
impl LocalLog {
    #[new]
    #[pyo3(signature = (entries_max, on_forgotten, /))]
    fn new(py: Python<'_>, entries_max: usize, on_forgotten: Py<PyAny>) -> PyResult<Self> {
        Ok(LocalLog {
            entries_max,
            on_forgotten,
            originals: None,
            naming: Vec::new(),
            entries: Py::new(py, LogEntries::default())?,
            changed: Vec::new(),
            forgotten: Vec::new(),
            sequence: 0,
            arrival: VecDeque::new(),
            ordered: VecDeque::new(),
            histories: 0,
        })
    }

    /// Where what is forgotten is kept or named besides: only if one of `naming` has it is
    /// `on_forgotten` called.
    #[pyo3(signature = (originals, naming, /))]
    fn watch(&mut self, originals: Py<Originals>, naming: Vec<Py<PyDict>>) {
        self.originals = Some(originals);
        self.naming = naming;
    }

    /// Holds a new entry; the caller knows that the id is not held yet.
    #[pyo3(signature = (message_id, sender_id, lamport, retrieval_hint, ordinal, /))]
    pub fn add<'py>(
        slf: &Bound<'py, Self>,
        message_id: &Bound<'py, PyString>,
        sender_id: Py<PyString>,
        lamport: u64,
        retrieval_hint: Option<Py<PyBytes>>,
        ordinal: u32,
    ) -> PyResult<Bound<'py, LogEntry>> {
        let py = slf.py();
        let mut log = slf.borrow_mut();
        log.sequence += 1;
        let id = message_id.clone().unbind();
        let sequence = log.sequence;
        let mut entry = LogEntry::new(id, sender_id, lamport, retrieval_hint, sequence, ordinal);
        entry.held = true;
        entry.changed = true;
        let entry = Bound::new(py, entry)?;
        untrack(&entry);
        let mut entries = log.entries.borrow_mut(py);
        let hash = entries.hash_of(message_id.to_str()?);
        entries.insert(message_id, &entry, hash);
        let mut beyond = entries.__len__().saturating_sub(log.entries_max);
        drop(entries);
        log.changed.push(entry.clone().unbind());
        let mut gone = Vec::new();
        // More than one may be beyond the limit, where all waited that came before.
        while beyond > 0
            && gone.len() < FORGOTTEN_AT_ONCE
            && let Some(message_id) = log.forget_oldest(py)?
        {
            gone.push(message_id);
            beyond -= 1;
        }
        log.arrival.push_back(entry.clone().unbind());
        for message_id in gone {
            let mut named = false;
            for names in &log.naming {
                named |= names.bind(py).contains(&message_id)?;
            }
            if named {
                let on_forgotten = log.on_forgotten.clone_ref(py);
                drop(log);
                on_forgotten.call1(py, (message_id,))?;
                log = slf.borrow_mut();
            }
        }
        drop(log);
        Ok(entry)
    }

    /// Takes out the entry that was added last.
    #[pyo3(signature = (entry, /))]
    fn refuse(&mut self, entry: &Bound<'_, LogEntry>) -> PyResult<()> {
        let py = entry.py();
        let message_id = entry.borrow().message_id.clone_ref(py);
        let hash = entry.borrow().id_hash;
        let mut entries = self.entries.borrow_mut(py);
        if !entries.remove(message_id.bind(py), hash)? {
            return Err(PyKeyError::new_err(message_id));
        }
        drop(entries);
        let mut held = entry.borrow_mut();
        held.let_go();
        if let Some(originals) = &self.originals {
            let mut originals = originals.borrow_mut(py);
            originals.set_apart(&mut held, message_id.bind(py))?;
        }
        drop(held);
        if let Some(at) = self.arrival.iter().rposition(|held| held.is(entry)) {
            self.arrival.remove(at);
        }
        Ok(())
    }

    /// Takes out and gives the entry of a message of ours that never left.
    #[pyo3(signature = (message_id, /))]
    fn withdraw<'py>(
        &mut self,
        message_id: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, LogEntry>>> {
        let Some(entry) = self.held(message_id) else {
            return Ok(None);
        };
        self.refuse(&entry)?;
        self.forgotten.push((message_id.clone().unbind(), false));
        Ok(Some(entry))
    }

    /// Restores stored entries, given in the order of their sequence.
    #[pyo3(signature = (entries, /))]
    fn take_back<'py>(
        &mut self,
        py: Python<'py>,
        entries: Vec<Bound<'py, LogEntry>>,
    ) -> PyResult<()> {
        for entry in &entries {
            untrack(entry);
            let mut held = entry.borrow_mut();
            held.held = true;
            let message_id = held.message_id.bind(py).clone();
            self.sequence = self.sequence.max(held.sequence);
            drop(held);
            let mut entries = self.entries.borrow_mut(py);
            let hash = entries.hash_of(message_id.to_str()?);
            entries.insert(&message_id, entry, hash);
            self.arrival.push_back(entry.clone().unbind());
        }
        let ordered = entries.iter().filter(|entry| entry.borrow().ordered);
        let mut keyed = Vec::new();
        for entry in ordered {
            let held = entry.borrow();
            let key = (held.lamport, held.message_id.to_str(py)?.to_owned());
            keyed.push((key, entry.clone().unbind()));
        }
        keyed.sort_by(|one, other| one.0.cmp(&other.0));
        self.ordered = keyed.into_iter().map(|(_, entry)| entry).collect();
        Ok(())
    }

    /// Puts a delivered send, by its newest content, into the order: lamport, then message id.
    #[pyo3(signature = (entry, /))]
    pub fn deliver(&mut self, entry: &Bound<'_, LogEntry>) -> PyResult<()> {
        let py = entry.py();
        entry.borrow_mut().ordered = true;
        self.mark(entry);
        let new = entry.borrow();
        let follows = |held: &Py<LogEntry>| -> bool {
            let held = held.borrow(py);
            let text = |id: &Py<PyString>| id.to_str(py).map(str::to_owned).unwrap_or_default();
            held.lamport > new.lamport
                || (held.lamport == new.lamport && text(&held.message_id) > text(&new.message_id))
        };
        if self.ordered.back().is_some_and(follows) {
            let at = self.ordered.partition_point(|held| !follows(held));
            self.ordered.insert(at, entry.clone().unbind());
        } else {
            self.ordered.push_back(entry.clone().unbind());
        }
        drop(new);
        if self.ordered.len() > 2 * self.entries_max + STALE_ORDER_MIN {
            self.ordered.retain(|entry| entry.borrow(py).held);
        }
        Ok(())
    }

    /// The last `count` delivered sends' entries, oldest first.
    #[pyo3(signature = (count, /))]
    pub fn newest<'py>(&self, py: Python<'py>, count: usize) -> Vec<Bound<'py, LogEntry>> {
        let newest = self.ordered.iter().rev();
        let held = newest.filter(|entry| entry.borrow(py).held).take(count);
        let mut found: Vec<_> = held.map(|entry| entry.bind(py).clone()).collect();
        found.reverse();
        found
    }

    /// Ids of the delivered sends in log order.
    fn ordered_ids(&self, py: Python<'_>) -> Vec<Py<PyString>> {
        let entries = self.ordered.iter().map(|entry| entry.borrow(py));
        let held = entries.filter(|entry| entry.held);
        held.map(|entry| entry.message_id.clone_ref(py)).collect()
    }

    /// Up to `count` entries, the last one to come first.
    #[pyo3(signature = (count, /))]
    pub fn newest_arrivals<'py>(&self, py: Python<'py>, count: usize) -> Vec<Bound<'py, LogEntry>> {
        let newest = self.arrival.iter().rev().take(count);
        newest.map(|entry| entry.bind(py).clone()).collect()
    }

    /// Marks an entry whose stored form changed.
    #[pyo3(signature = (entry, /))]
    pub fn touch(&mut self, entry: &Bound<'_, LogEntry>) {
        if entry.borrow().held {
            self.mark(entry);
        }
    }

    /// What a history of `named_by` comes to: where unknown ids stand, the sends that entries wait
    /// in, and entries of others that were not said often enough.
    #[pyo3(signature = (message_ids, named_by, /))]
    fn follow<'py>(
        &self,
        py: Python<'py>,
        message_ids: &Bound<'py, PyTuple>,
        named_by: &str,
    ) -> PyResult<Followed<'py>> {
        let entries = self.entries.borrow(py);
        let (mut unknown, mut sends, mut unsaid) = (Vec::new(), Vec::new(), Vec::new());
        for (position, message_id) in message_ids.iter().enumerate() {
            let Some(entry) = entries.get(message_id.cast()?) else {
                unknown.push(position);
                continue;
            };
            let held = entry.borrow();
            if let Some(send) = &held.send {
                sends.push(send.bind(py).clone());
            }
            if (held.unsaid != 0 || held.repeats != 0) && held.sender_id.to_str(py)? != named_by {
                drop(held);
                unsaid.push(entry);
            }
        }
        Ok((unknown, sends, unsaid))
    }

    /// Adds to `out` the records of what changed since the last call, and the names of what was
    /// forgotten; with an entry its message, where that changed too and is still there.
    #[pyo3(signature = (version, out, /))]
    fn store(&mut self, version: u8, out: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = out.py();
        let kind = intern!(py, "sds.log");
        let message = intern!(py, "sds.message");
        let originals = self.originals.as_ref().map(|held| held.borrow(py));
        for (message_id, paired) in self.forgotten.drain(..) {
            let key = record_key(message_id.bind(py))?;
            out.set_item(record_name(kind, &key)?, py.None())?;
            if paired {
                out.set_item(record_name(message, &key)?, py.None())?;
            }
        }
        for entry in self.changed.drain(..) {
            let mut entry = entry.borrow_mut(py);
            if !std::mem::take(&mut entry.changed) {
                continue;
            }
            let record = entry.record(py, version)?;
            let message_id = entry.message_id.bind(py).clone();
            let key = record_key(&message_id)?;
            out.set_item(record_name(kind, &key)?, record)?;
            if std::mem::take(&mut entry.original_new) {
                out.set_item(record_name(message, &key)?, &entry.original)?;
            } else if let Some(originals) = &originals
                && let Some(data) = originals.take_changed(&entry, &message_id)?
            {
                out.set_item(record_name(message, &key)?, data)?;
            }
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.on_forgotten)
    }

    fn __clear__(&self) {}
}

impl LocalLog {
    fn mark(&mut self, entry: &Bound<'_, LogEntry>) {
        if !std::mem::replace(&mut entry.borrow_mut().changed, true) {
            self.changed.push(entry.clone().unbind());
        }
    }

    /// The number of the history that is composed now.
    pub fn next_history(&mut self) -> u64 {
        self.histories += 1;
        self.histories
    }

    /// The entry of an id.
    pub fn held<'py>(&self, message_id: &Bound<'py, PyString>) -> Option<Bound<'py, LogEntry>> {
        self.entries.borrow(message_id.py()).get(message_id)
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        Python::attach(|py| {
            for entry in &self.arrival {
                entry.borrow_mut(py).send = None;
            }
        });
    }
}

/// Removes a key that is mostly there.
pub fn remove(dict: &Bound<'_, PyDict>, key: &Bound<'_, PyString>) -> PyResult<()> {
    match dict.del_item(key) {
        Err(error) if !error.is_instance_of::<PyKeyError>(dict.py()) => Err(error),
        _ => Ok(()),
    }
}

/// Removes a key that may be absent.
pub fn discard(dict: &Bound<'_, PyDict>, key: &Bound<'_, PyString>) -> PyResult<()> {
    if dict.contains(key)? {
        dict.del_item(key)?;
    }
    Ok(())
}

/// The first key of a dictionary.
pub fn first_key<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, PyAny>>> {
    PyIterator::from_object(dict)?.next().transpose()
}

//! Messages kept as they came or left: `_native.pyi`, "Scalable Data Sync".

use std::collections::VecDeque;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::sds_entries::LogEntries;
use crate::sds_entry::LogEntry;
use crate::sds_record::{record_key, record_name};

/// What is gone from the middle of the order may take this much beyond what is held.
const STALE_MIN: usize = 64;

type Kept = (Py<PyString>, Py<PyBytes>);

/// Messages to answer repair requests with; beyond `bytes_max` the oldest go.
///
/// The message of a log entry lies in the entry: a table of its own would cost a look into
/// memory that is far away for each message that comes, and another for each that goes.
#[pyclass(module = "shardwire._native")]
pub struct Originals {
    bytes_max: usize,
    #[pyo3(get)]
    size_bytes: usize,
    /// The log's.
    entries: Py<LogEntries>,
    /// Of entries that were withdrawn.
    apart: Py<PyDict>,
    #[pyo3(get)]
    changed: Py<PyDict>,
    order: VecDeque<Kept>,
    /// How much of the order is not held any more.
    stale: usize,
}

#[pymethods]
impl Originals {
    #[new]
    #[pyo3(signature = (bytes_max, entries, /))]
    fn new(py: Python<'_>, bytes_max: usize, entries: Py<LogEntries>) -> Self {
        Originals {
            bytes_max,
            size_bytes: 0,
            entries,
            apart: PyDict::new(py).unbind(),
            changed: PyDict::new(py).unbind(),
            order: VecDeque::new(),
            stale: 0,
        }
    }

    #[pyo3(signature = (message_id, /))]
    fn get<'py>(&self, message_id: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = message_id.py();
        if let Some(entry) = self.entry(message_id)
            && let Some(data) = &entry.borrow().original
        {
            return Ok(Some(data.bind(py).clone()));
        }
        let apart = self.apart.bind(py);
        if apart.is_empty() {
            return Ok(None);
        }
        let data = apart.get_item(message_id)?;
        Ok(data.map(|data| data.cast_into()).transpose()?)
    }

    pub fn __contains__(&self, message_id: &Bound<'_, PyString>) -> PyResult<bool> {
        Ok(self.get(message_id)?.is_some())
    }

    /// Holds the message of an entry; `stored` tells that its record is written already.
    #[pyo3(signature = (message_id, data, stored = false))]
    pub fn keep(
        &mut self,
        message_id: &Bound<'_, PyString>,
        data: &Bound<'_, PyBytes>,
        stored: bool,
    ) -> PyResult<()> {
        if data.as_bytes().len() > self.bytes_max || self.__contains__(message_id)? {
            return Ok(());
        }
        let Some(entry) = self.entry(message_id) else {
            // Nobody is answered with what the log forgot.
            return self.mark(message_id);
        };
        entry.borrow_mut().original = Some(data.clone().unbind());
        if !stored {
            self.mark(message_id)?;
        }
        self.admit(message_id, data)
    }

    #[pyo3(signature = (message_id, /))]
    pub fn forget(&mut self, message_id: &Bound<'_, PyString>) -> PyResult<()> {
        if let Some(data) = self.take_out(message_id)? {
            self.mark(message_id)?;
            self.let_go(&data)?;
        }
        Ok(())
    }

    /// Adds to `out` the records of what changed since the last call.
    #[pyo3(signature = (out, /))]
    fn store(&self, out: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = out.py();
        let kind = intern!(py, "sds.message");
        let changed = self.changed.bind(py);
        for message_id in changed.keys() {
            let message_id = message_id.cast_into::<PyString>()?;
            let data = self.get(&message_id)?;
            let key = record_key(&message_id)?;
            out.set_item(record_name(kind, &key)?, data)?;
        }
        changed.clear();
        Ok(())
    }
}

impl Originals {
    /// Has the record of a message written anew, or deleted where it is not held.
    pub fn mark(&self, message_id: &Bound<'_, PyString>) -> PyResult<()> {
        let py = message_id.py();
        self.changed.bind(py).set_item(message_id, py.None())
    }

    /// Holds the message of an entry that was just added; its record goes with the entry's.
    pub fn hold(
        &mut self,
        entry: &Bound<'_, LogEntry>,
        message_id: &Bound<'_, PyString>,
        data: &Bound<'_, PyBytes>,
    ) -> PyResult<()> {
        let apart = self.apart.bind(entry.py());
        if data.as_bytes().len() > self.bytes_max
            || (!apart.is_empty() && apart.contains(message_id)?)
        {
            return Ok(());
        }
        let mut held = entry.borrow_mut();
        held.original = Some(data.clone().unbind());
        held.paired = true;
        held.original_new = true;
        drop(held);
        self.admit(message_id, data)
    }

    /// The log forgets `entry`: so is its message. Whether the log is to delete the record.
    pub fn forget_of(
        &mut self,
        entry: &mut LogEntry,
        message_id: &Bound<'_, PyString>,
    ) -> PyResult<bool> {
        let paired = entry.paired;
        let Some(data) = entry.take_original() else {
            if !self.apart.bind(message_id.py()).is_empty() {
                self.forget(message_id)?;
            }
            return Ok(false);
        };
        if !paired {
            self.mark(message_id)?;
        }
        self.let_go(data.bind(message_id.py()))?;
        Ok(paired)
    }

    /// The log holds `entry` no longer, but its message stays.
    pub fn set_apart(
        &mut self,
        entry: &mut LogEntry,
        message_id: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        let unwritten = entry.original_new;
        if let Some(data) = entry.take_original() {
            self.apart
                .bind(message_id.py())
                .set_item(message_id, data)?;
            if unwritten {
                self.mark(message_id)?;
            }
        }
        Ok(())
    }

    /// The message of an entry where it has to be stored, which it counts as from now on.
    pub fn take_changed<'py>(
        &self,
        entry: &LogEntry,
        message_id: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = message_id.py();
        let changed = self.changed.bind(py);
        let Some(data) = &entry.original else {
            return Ok(None);
        };
        if changed.is_empty() || !changed.contains(message_id)? {
            return Ok(None);
        }
        changed.del_item(message_id)?;
        Ok(Some(data.bind(py).clone()))
    }

    fn entry<'py>(&self, message_id: &Bound<'py, PyString>) -> Option<Bound<'py, LogEntry>> {
        self.entries.borrow(message_id.py()).get(message_id)
    }

    fn take_out<'py>(
        &self,
        message_id: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = message_id.py();
        if let Some(entry) = self.entry(message_id)
            && let Some(data) = entry.borrow_mut().take_original()
        {
            return Ok(Some(data.into_bound(py)));
        }
        let apart = self.apart.bind(py);
        if apart.is_empty() {
            return Ok(None);
        }
        let Some(data) = apart.get_item(message_id)? else {
            return Ok(None);
        };
        apart.del_item(message_id)?;
        Ok(Some(data.cast_into()?))
    }

    /// What is new is held: counts it, and lets the oldest go for it.
    fn admit(
        &mut self,
        message_id: &Bound<'_, PyString>,
        data: &Bound<'_, PyBytes>,
    ) -> PyResult<()> {
        let py = data.py();
        self.size_bytes += data.as_bytes().len();
        let kept = (message_id.clone().unbind(), data.clone().unbind());
        self.order.push_back(kept);
        while self.size_bytes > self.bytes_max
            && let Some((oldest, data)) = self.order.pop_front()
        {
            let oldest = oldest.bind(py);
            if self.is_held(oldest, &data)? {
                self.take_out(oldest)?;
                self.size_bytes -= data.as_bytes(py).len();
                self.mark(oldest)?;
            } else {
                self.stale = self.stale.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// What was held is gone: mostly it is the oldest.
    fn let_go(&mut self, data: &Bound<'_, PyBytes>) -> PyResult<()> {
        let py = data.py();
        self.size_bytes -= data.as_bytes().len();
        let oldest = self.order.front();
        if oldest.is_some_and(|(_, kept)| kept.is(data)) {
            self.order.pop_front();
        } else {
            self.stale += 1;
        }
        while self.stale > 0
            && let Some((id, data)) = self.order.front()
            && !self.is_held(id.bind(py), data)?
        {
            self.order.pop_front();
            self.stale -= 1;
        }
        if self.stale * 2 > self.order.len() + STALE_MIN {
            self.stale = 0;
            for (id, data) in std::mem::take(&mut self.order) {
                if self.is_held(id.bind(py), &data)? {
                    self.order.push_back((id, data));
                }
            }
        }
        Ok(())
    }

    fn is_held(&self, id: &Bound<'_, PyString>, data: &Py<PyBytes>) -> PyResult<bool> {
        Ok(self.get(id)?.is_some_and(|held| held.is(data)))
    }
}

//! Messages kept as they came or left: `_native.pyi`, "Scalable Data Sync".

use std::collections::VecDeque;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::sds_record::{record_key, record_name};

/// What is gone from the middle of the order may take this much beyond what is held.
const STALE_MIN: usize = 64;

type Kept = (Py<PyString>, Py<PyBytes>);

/// Messages to answer repair requests with; beyond `bytes_max` the oldest go.
#[pyclass(module = "shardwire._native")]
pub struct Originals {
    bytes_max: usize,
    bytes: usize,
    #[pyo3(get)]
    by_id: Py<PyDict>,
    #[pyo3(get)]
    changed: Py<PyDict>,
    order: VecDeque<Kept>,
}

#[pymethods]
impl Originals {
    #[new]
    #[pyo3(signature = (bytes_max, /))]
    fn new(py: Python<'_>, bytes_max: usize) -> Self {
        Originals {
            bytes_max,
            bytes: 0,
            by_id: PyDict::new(py).unbind(),
            changed: PyDict::new(py).unbind(),
            order: VecDeque::new(),
        }
    }

    /// Holds `data`; `stored` tells that its record is written already.
    #[pyo3(signature = (message_id, data, stored = false))]
    pub fn keep(
        &mut self,
        message_id: &Bound<'_, PyString>,
        data: &Bound<'_, PyBytes>,
        stored: bool,
    ) -> PyResult<()> {
        let py = message_id.py();
        let by_id = self.by_id.bind(py).clone();
        let length = data.as_bytes().len();
        if length > self.bytes_max || by_id.contains(message_id)? {
            return Ok(());
        }
        by_id.set_item(message_id, data)?;
        self.bytes += length;
        let kept = (message_id.clone().unbind(), data.clone().unbind());
        self.order.push_back(kept);
        if !stored {
            self.changed.bind(py).set_item(message_id, py.None())?;
        }
        while self.bytes > self.bytes_max
            && let Some((oldest, data)) = self.order.pop_front()
        {
            if is_held(&by_id, &oldest, &data)? {
                by_id.del_item(&oldest)?;
                self.bytes -= data.as_bytes(py).len();
                self.changed.bind(py).set_item(oldest, py.None())?;
            }
        }
        Ok(())
    }

    #[pyo3(signature = (message_id, /))]
    pub fn forget(&mut self, message_id: &Bound<'_, PyString>) -> PyResult<()> {
        let py = message_id.py();
        let by_id = self.by_id.bind(py).clone();
        let Some(data) = by_id.get_item(message_id)? else {
            return Ok(());
        };
        by_id.del_item(message_id)?;
        self.bytes -= data.cast::<PyBytes>()?.as_bytes().len();
        self.changed.bind(py).set_item(message_id, py.None())?;
        while let Some((id, data)) = self.order.front()
            && !is_held(&by_id, id, data)?
        {
            self.order.pop_front();
        }
        if self.order.len() > 2 * by_id.len() + STALE_MIN {
            let kept = std::mem::take(&mut self.order);
            for (id, data) in kept {
                if is_held(&by_id, &id, &data)? {
                    self.order.push_back((id, data));
                }
            }
        }
        Ok(())
    }

    /// Adds to `out` the records of what changed since the last call.
    #[pyo3(signature = (out, /))]
    fn store(&self, out: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = out.py();
        let kind = intern!(py, "sds.message");
        let changed = self.changed.bind(py);
        let by_id = self.by_id.bind(py);
        for message_id in changed.keys() {
            let data = by_id.get_item(&message_id)?;
            let key = record_key(message_id.cast()?)?;
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

    /// A message that is held and has to be stored, which it counts as from now on.
    pub fn take_changed<'py>(
        &self,
        message_id: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = message_id.py();
        let changed = self.changed.bind(py);
        if !changed.contains(message_id)? {
            return Ok(None);
        }
        let data = self.by_id.bind(py).get_item(message_id)?;
        if data.is_some() {
            changed.del_item(message_id)?;
        }
        Ok(data)
    }

    /// The messages by id.
    pub fn held<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.by_id.bind(py).clone()
    }
}

fn is_held(by_id: &Bound<'_, PyDict>, id: &Py<PyString>, data: &Py<PyBytes>) -> PyResult<bool> {
    Ok(by_id.get_item(id)?.is_some_and(|held| held.is(data)))
}

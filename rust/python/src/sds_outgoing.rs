//! Sends of this participant and their stored form: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple, PyType};

use crate::sds_few::Few;

/// So few names are compared one by one: to make two dictionaries takes longer.
const HOLDERS_MAX: usize = 8;

/// A group of contents that make one message.
///
/// Of one that `SdsOutlet` registers the garbage collector sees nothing: the ring of send and
/// contents is broken where the send is forgotten, or when the machine goes.
#[pyclass(module = "shardwire._native")]
pub struct OutgoingSend {
    #[pyo3(get)]
    pub send_id: Py<PyString>,
    #[pyo3(get)]
    pub number: u64,
    #[pyo3(get)]
    pub contents_needed: u32,
    pub contents: Few<OutgoingContent>,
    /// Made when it is looked at: most sends are one content that leaves at once.
    queue: Option<Py<PyAny>>,
    /// Who has the only content, until one of the next two is looked at or there are many.
    pub holders: Vec<Py<PyString>>,
    pub acknowledged: Option<Py<PyDict>>,
    complete: Option<Py<PyDict>>,
    #[pyo3(get, set)]
    pub history_ids: Option<Py<PyTuple>>,
    #[pyo3(get, set)]
    pub history_fields: Py<PyBytes>,
    #[pyo3(get, set)]
    pub bloom_filter: Option<Py<PyBytes>>,
    #[pyo3(get, set)]
    pub dispatched: u32,
    #[pyo3(get, set)]
    pub first_ms: i64,
    #[pyo3(get, set)]
    pub finished: bool,
    #[pyo3(get, set)]
    pub given_up: bool,
    #[pyo3(get, set)]
    pub header_left: i32,
}

#[pymethods]
impl OutgoingSend {
    #[new]
    #[pyo3(signature = (send_id, number, contents_needed, /))]
    pub fn new(py: Python<'_>, send_id: Py<PyString>, number: u64, contents_needed: u32) -> Self {
        OutgoingSend {
            send_id,
            number,
            contents_needed,
            contents: Few::None,
            queue: None,
            holders: Vec::new(),
            acknowledged: None,
            complete: None,
            history_ids: None,
            history_fields: PyBytes::new(py, b"").unbind(),
            bloom_filter: None,
            dispatched: 0,
            first_ms: 0,
            finished: false,
            given_up: false,
            header_left: 0,
        }
    }

    #[getter]
    fn contents<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.contents.list(py)
    }

    /// The contents that wait, in their order; what is put in or taken out stays so.
    #[getter]
    fn queue<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static DEQUE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        if let Some(queue) = &self.queue {
            return Ok(queue.bind(py).clone());
        }
        let mut waiting = Vec::new();
        for position in 0..self.contents.len(py) {
            let content = self.contents.get(py, position)?;
            if content.borrow().queued {
                waiting.push(content);
            }
        }
        let deque = DEQUE.import(py, "collections", "deque")?;
        let queue = deque.call1((waiting,))?;
        self.queue = Some(queue.clone().unbind());
        Ok(queue)
    }

    /// Whether contents wait.
    #[getter]
    pub fn waits(&self, py: Python<'_>) -> PyResult<bool> {
        if let Some(queue) = &self.queue {
            return Ok(queue.bind(py).len()? > 0);
        }
        for position in 0..self.contents.len(py) {
            if self.contents.get(py, position)?.borrow().queued {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[getter]
    pub fn acknowledged<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        Ok(self.known(py)?.0)
    }

    #[getter]
    pub fn complete<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        Ok(self.known(py)?.1)
    }
}

/// One content of a send of ours.
#[pyclass(module = "shardwire._native")]
pub struct OutgoingContent {
    #[pyo3(get)]
    pub send: Option<Py<OutgoingSend>>,
    #[pyo3(get)]
    pub ordinal: u32,
    #[pyo3(get)]
    pub message_id: Py<PyString>,
    #[pyo3(get, set)]
    pub content: Option<Py<PyBytes>>,
    #[pyo3(get, set)]
    size_bytes: usize,
    #[pyo3(get, set)]
    pub wire: Option<Py<PyBytes>>,
    #[pyo3(get, set)]
    pub queued: bool,
    #[pyo3(get, set)]
    pub lamport: u64,
    #[pyo3(get, set)]
    pub attempts: u32,
    /// Set by `ResendTimers`, as the next one is.
    #[pyo3(get, set)]
    pub resend_ms: Option<i64>,
    #[pyo3(get)]
    pub timer_ms: Option<i64>,
    #[pyo3(get, set)]
    pub possible: Option<Py<PySet>>,
    #[pyo3(get, set)]
    pub in_flight: u64,
}

#[pymethods]
impl OutgoingContent {
    #[new]
    #[pyo3(signature = (send, ordinal, message_id, content, /))]
    pub fn new(
        py: Python<'_>,
        send: Py<OutgoingSend>,
        ordinal: u32,
        message_id: Py<PyString>,
        content: Py<PyBytes>,
    ) -> Self {
        OutgoingContent {
            send: Some(send),
            ordinal,
            message_id,
            size_bytes: content.as_bytes(py).len(),
            content: Some(content),
            wire: None,
            queued: true,
            lamport: 0,
            attempts: 0,
            resend_ms: None,
            timer_ms: None,
            possible: None,
            in_flight: 0,
        }
    }
}

impl OutgoingSend {
    /// Who acknowledged what, and who can reconstruct the message.
    fn known<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        if let (Some(acknowledged), Some(complete)) = (&self.acknowledged, &self.complete) {
            return Ok((acknowledged.bind(py).clone(), complete.bind(py).clone()));
        }
        let (acknowledged, complete) = (PyDict::new(py), PyDict::new(py));
        for name in self.holders.drain(..) {
            acknowledged.set_item(&name, 1)?;
            complete.set_item(name, py.None())?;
        }
        self.acknowledged = Some(acknowledged.clone().unbind());
        self.complete = Some(complete.clone().unbind());
        Ok((acknowledged, complete))
    }

    /// Notes that `by` has the only content; gives how many have it now, or none where that was
    /// known or there are `participants_max` already.
    pub fn acknowledge_only(
        &mut self,
        by: &Bound<'_, PyString>,
        participants_max: usize,
    ) -> PyResult<Option<usize>> {
        let py = by.py();
        if self.acknowledged.is_none() && self.holders.len() < HOLDERS_MAX {
            let name = by.to_str()?;
            for holder in &self.holders {
                if holder.to_str(py)? == name {
                    return Ok(None);
                }
            }
            if self.holders.len() >= participants_max {
                return Ok(None);
            }
            self.holders.push(by.clone().unbind());
            return Ok(Some(self.holders.len()));
        }
        let (acknowledged, complete) = self.known(py)?;
        if acknowledged.len() >= participants_max || acknowledged.contains(by)? {
            return Ok(None);
        }
        acknowledged.set_item(by, 1)?;
        complete.set_item(by, py.None())?;
        Ok(Some(complete.len()))
    }

    /// The content that is the whole send and is named by it, whose state the send's record has.
    pub fn alone<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, OutgoingContent>>> {
        if self.contents.len(py) != 1 {
            return Ok(None);
        }
        let content = self.contents.get(py, 0)?;
        let message_id = content.borrow().message_id.clone_ref(py);
        let key = message_id.to_str(py)?.strip_suffix(".0");
        Ok((key == Some(self.send_id.to_str(py)?)).then_some(content))
    }

    /// Whether somebody looked at its queue, which holds what waits since then.
    pub fn is_opened(&self) -> bool {
        self.queue.is_some()
    }
}

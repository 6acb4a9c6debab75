//! One send of another participant, until it is delivered: `_native.pyi`, "Scalable Data Sync".

use std::collections::HashMap;
use std::sync::Mutex;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::sds_few::Few;
use crate::sds_log::LogEntry;

/// A send that is named only, incomplete, or waiting for the sends it follows.
#[pyclass(module = "shardwire._native")]
pub struct IncomingSend {
    #[pyo3(get)]
    pub key: Py<PyString>,
    #[pyo3(get, set)]
    pub send_id: Py<PyString>,
    #[pyo3(get, set)]
    pub sender_id: Py<PyString>,
    #[pyo3(get, set)]
    pub news_ms: i64,
    pub contents: Few<LogEntry>,
    #[pyo3(get, set)]
    pub history: Py<PyAny>,
    #[pyo3(get, set)]
    pub content_count: Option<u32>,
    #[pyo3(get, set)]
    pub contents_needed: Option<u32>,
    #[pyo3(get, set)]
    pub reconstructed: bool,
    #[pyo3(get, set)]
    pub waits_for: Option<Py<PyDict>>,
    #[pyo3(get, set)]
    pub dependents: Option<Py<PyList>>,
    #[pyo3(get, set)]
    pub missing: Option<Py<PyDict>>,
    #[pyo3(get, set)]
    pub lost: bool,
    #[pyo3(get, set)]
    pub from_before: bool,
    #[pyo3(get, set)]
    pub siblings_reported: bool,
    #[pyo3(get, set)]
    pub deadline_ms: Option<i64>,
}

#[pymethods]
impl IncomingSend {
    #[new]
    #[pyo3(signature = (key, send_id, sender_id, news_ms, /))]
    pub fn new(
        py: Python<'_>,
        key: Py<PyString>,
        send_id: Py<PyString>,
        sender_id: Py<PyString>,
        news_ms: i64,
    ) -> Self {
        IncomingSend {
            key,
            send_id,
            sender_id,
            news_ms,
            contents: Few::None,
            history: PyTuple::empty(py).into_any().unbind(),
            content_count: None,
            contents_needed: None,
            reconstructed: false,
            waits_for: None,
            dependents: None,
            missing: None,
            lost: false,
            from_before: false,
            siblings_reported: false,
            deadline_ms: None,
        }
    }

    #[getter]
    fn contents<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.contents.list(py)
    }

    #[setter]
    fn set_contents(&mut self, contents: Py<PyList>) {
        self.contents = Few::List(contents);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.contents.traverse(&visit)?;
        visit.call(&self.waits_for)?;
        visit.call(&self.dependents)
    }

    fn __clear__(&mut self) {
        self.waits_for = None;
        self.dependents = None;
    }
}

/// Sender ids are free to forge: so many are remembered, then all are read anew.
const SENDERS_MAX: usize = 1_000;

/// Ids of senders as text, which the entries of the log share.
#[derive(Default)]
pub struct SenderIds(Mutex<HashMap<Box<[u8]>, Py<PyString>>>);

impl SenderIds {
    /// The text of an id.
    pub fn text<'py>(&self, py: Python<'py>, id: &[u8]) -> Bound<'py, PyString> {
        let made = || PyString::new(py, &String::from_utf8_lossy(id));
        let Ok(mut known) = self.0.lock() else {
            return made();
        };
        if let Some(text) = known.get(id) {
            return text.bind(py).clone();
        }
        if known.len() >= SENDERS_MAX {
            known.clear();
        }
        let text = made();
        known.insert(id.into(), text.clone().unbind());
        text
    }
}

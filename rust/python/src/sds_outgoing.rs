//! Sends of this participant and their stored form: `_native.pyi`, "Scalable Data Sync".

use std::collections::BTreeSet;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple, PyType};
use shardwire_core::crc32::crc32;

use crate::sds_log::record_name;
use crate::sds_originals::Originals;

const FINISHED: u8 = 1;
const GIVEN_UP: u8 = 2;
const FIXED: u8 = 4;
const FILTER: u8 = 8;

/// A group of contents that make one message.
///
/// Of one that `SdsOutlet` registers the garbage collector sees nothing: the ring of send and
/// contents is broken where the send is forgotten, or when the machine goes.
#[pyclass(module = "shardwire._native")]
pub struct OutgoingSend {
    #[pyo3(get)]
    pub send_id: Py<PyString>,
    #[pyo3(get)]
    number: u64,
    #[pyo3(get)]
    contents_needed: u32,
    #[pyo3(get)]
    pub contents: Py<PyList>,
    /// Made when it is looked at: most sends are one content that leaves at once.
    queue: Option<Py<PyAny>>,
    /// These two are made by the first acknowledgement.
    acknowledged: Option<Py<PyDict>>,
    complete: Option<Py<PyDict>>,
    #[pyo3(get, set)]
    pub history_ids: Option<Py<PyTuple>>,
    #[pyo3(get, set)]
    history_fields: Py<PyBytes>,
    #[pyo3(get, set)]
    bloom_filter: Option<Py<PyBytes>>,
    #[pyo3(get, set)]
    pub dispatched: u32,
    #[pyo3(get, set)]
    pub first_ms: i64,
    #[pyo3(get, set)]
    pub finished: bool,
    #[pyo3(get, set)]
    given_up: bool,
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
            contents: PyList::empty(py).unbind(),
            queue: None,
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

    /// The contents that wait, in their order; what is put in or taken out stays so.
    #[getter]
    fn queue<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static DEQUE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        if let Some(queue) = &self.queue {
            return Ok(queue.bind(py).clone());
        }
        let mut waiting = Vec::new();
        for content in self.contents.bind(py) {
            if content.cast::<OutgoingContent>()?.borrow().queued {
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
        for content in self.contents.bind(py) {
            if content.cast::<OutgoingContent>()?.borrow().queued {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[getter]
    pub fn acknowledged<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyDict> {
        made(py, &mut self.acknowledged)
    }

    #[getter]
    pub fn complete<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyDict> {
        made(py, &mut self.complete)
    }
}

fn made<'py>(py: Python<'py>, dict: &mut Option<Py<PyDict>>) -> Bound<'py, PyDict> {
    let dict = dict.get_or_insert_with(|| PyDict::new(py).unbind());
    dict.bind(py).clone()
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

fn put_text(record: &mut Vec<u8>, text: &str) -> PyResult<()> {
    record.extend(u16::try_from(text.len())?.to_le_bytes());
    record.extend(text.as_bytes());
    Ok(())
}

fn put_length(record: &mut Vec<u8>, length: usize) -> PyResult<()> {
    record.extend(u32::try_from(length)?.to_le_bytes());
    Ok(())
}

fn sealed<'py>(py: Python<'py>, mut record: Vec<u8>) -> Bound<'py, PyBytes> {
    record.extend(crc32(&record).to_le_bytes());
    PyBytes::new(py, &record)
}

impl OutgoingSend {
    /// Whether somebody looked at its queue, which holds what waits since then.
    pub fn is_opened(&self) -> bool {
        self.queue.is_some()
    }

    fn record<'py>(&self, py: Python<'py>, version: u8) -> PyResult<Bound<'py, PyBytes>> {
        let count = self.contents.bind(py).len();
        let filter = self.bloom_filter.as_ref().map(|filter| filter.as_bytes(py));
        let fields = self.history_fields.as_bytes(py);
        // What is fixed at the first dispatch is wanted for the contents that follow it.
        let ids = self.history_ids.as_ref().filter(|_| !fields.is_empty());
        let ids = ids.map(|ids| ids.bind(py));
        let flags = u8::from(self.finished) * FINISHED
            + u8::from(self.given_up) * GIVEN_UP
            + u8::from(self.history_ids.is_some()) * FIXED
            + u8::from(filter.is_some()) * FILTER;
        let filter = filter.unwrap_or_default();
        let mut record = Vec::with_capacity(64 + filter.len() + fields.len());
        record.extend([version, flags]);
        record.extend(self.number.to_le_bytes());
        put_length(&mut record, count)?;
        record.extend(self.contents_needed.to_le_bytes());
        record.extend(self.header_left.to_le_bytes());
        put_length(&mut record, filter.len())?;
        put_length(&mut record, fields.len())?;
        put_length(&mut record, ids.map_or(0, |ids| ids.len()))?;
        record.extend(filter);
        record.extend(fields);
        for id in ids.into_iter().flatten() {
            put_text(&mut record, id.cast::<PyString>()?.to_str()?)?;
        }
        let width = count.div_ceil(8);
        let acknowledged = self.acknowledged.iter().flat_map(|dict| dict.bind(py));
        for (name, bits) in acknowledged {
            put_text(&mut record, name.cast::<PyString>()?.to_str()?)?;
            if width <= size_of::<u64>() {
                record.extend(&bits.extract::<u64>()?.to_le_bytes()[..width]);
            } else {
                let bytes = bits.call_method1(intern!(py, "to_bytes"), (width, "little"))?;
                record.extend(bytes.cast::<PyBytes>()?.as_bytes());
            }
        }
        Ok(sealed(py, record))
    }
}

impl OutgoingContent {
    fn record<'py>(&self, py: Python<'py>, version: u8) -> PyResult<Bound<'py, PyBytes>> {
        let send = self.send.as_ref().map(|send| send.borrow(py));
        let send_id = send
            .as_ref()
            .map_or(Ok(""), |send| send.send_id.to_str(py))?;
        let mut record = Vec::with_capacity(64);
        record.extend([version, u8::from(self.queued)]);
        record.extend(self.ordinal.to_le_bytes());
        record.extend(self.lamport.to_le_bytes());
        record.extend(self.attempts.to_le_bytes());
        put_text(&mut record, send_id)?;
        if let Some(possible) = &self.possible {
            let names = possible.bind(py).extract::<BTreeSet<String>>()?;
            for name in names {
                put_text(&mut record, &name)?;
            }
        }
        Ok(sealed(py, record))
    }
}

/// Adds to `out` the records of what changed in the outgoing buffer, and empties the lists of it.
#[pyfunction]
#[pyo3(signature = (
    version, sends, by_id, originals, changed_sends, changed_contents, new_contents, new_wires,
    out, /
))]
#[expect(clippy::too_many_arguments, reason = "one argument a container")]
pub fn store_outgoing<'py>(
    version: u8,
    sends: &Bound<'py, PyDict>,
    by_id: &Bound<'py, PyDict>,
    originals: &Bound<'py, Originals>,
    changed_sends: &Bound<'py, PyDict>,
    changed_contents: &Bound<'py, PyDict>,
    new_contents: &Bound<'py, PyDict>,
    new_wires: &Bound<'py, PyDict>,
    out: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let py = out.py();
    let put = |kind: &Bound<'py, PyString>, id: &Bound<'py, PyAny>, value: Bound<'py, PyAny>| {
        out.set_item(record_name(kind, id.cast()?)?, value)
    };
    let none = || py.None().into_bound(py);
    let message = intern!(py, "sds.message");
    let content = intern!(py, "sds.content");
    for (message_id, wire) in new_wires {
        put(message, &message_id, wire)?;
        if new_contents.contains(&message_id)? {
            new_contents.del_item(&message_id)?;
        } else {
            // Stored when it was queued; from now on the wire holds it.
            put(content, &message_id, none())?;
        }
    }
    new_wires.clear();
    for (message_id, data) in new_contents {
        put(content, &message_id, data)?;
    }
    new_contents.clear();
    for send_id in changed_sends.keys() {
        let record = match sends.get_item(&send_id)? {
            Some(send) => {
                let send = send.cast_into::<OutgoingSend>()?;
                send.borrow().record(py, version)?.into_any()
            }
            None => none(),
        };
        put(intern!(py, "sds.send"), &send_id, record)?;
    }
    changed_sends.clear();
    let outgoing = intern!(py, "sds.outgoing");
    let kept = originals.borrow().held(py);
    for (message_id, never_left) in changed_contents {
        if let Some(known) = by_id.get_item(&message_id)? {
            let known = known.cast_into::<OutgoingContent>()?;
            let record = known.borrow().record(py, version)?.into_any();
            put(outgoing, &message_id, record)?;
            continue;
        }
        put(outgoing, &message_id, none())?;
        if never_left.is_truthy()? {
            put(content, &message_id, none())?;
        }
        if !kept.contains(&message_id)? {
            put(message, &message_id, none())?;
        }
    }
    changed_contents.clear();
    Ok(())
}

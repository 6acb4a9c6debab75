//! Waku messages in JSON: `_native.pyi`, "Waku over REST".

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use shardwire_core::wire::waku_json::{self, ElementReader, JsonError, JsonMessage, StoreAnswer};
use shardwire_stub::documented;

use crate::buffer::{Buffer, detached};

fn unreadable(error: JsonError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Payload, content topic, timestamp, meta and whether it is ephemeral; `None` where it is no message.
fn message_tuple<'py>(
    py: Python<'py>,
    message: &JsonMessage<'_>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let (Some(payload), Some(meta)) = (message.payload(), message.meta()) else {
        return Ok(None);
    };
    (
        PyBytes::new(py, &payload),
        message.content_topic(),
        message.timestamp_ns(),
        PyBytes::new(py, &meta),
        message.ephemeral(),
    )
        .into_pyobject(py)
        .map(Some)
}

#[documented]
#[pyclass(module = "shardwire._native")]
pub struct WakuJsonReader {
    reader: ElementReader,
    #[pyo3(get)]
    echoes: usize,
    #[pyo3(get)]
    malformed: usize,
}

#[documented]
#[pymethods]
impl WakuJsonReader {
    #[new]
    #[pyo3(signature = (*, element_bytes_max))]
    fn new(element_bytes_max: usize) -> Self {
        WakuJsonReader {
            reader: ElementReader::new(element_bytes_max),
            echoes: 0,
            malformed: 0,
        }
    }

    #[pyo3(signature = (chunk, ours, /))]
    fn feed<'py>(
        &mut self,
        py: Python<'py>,
        chunk: Buffer<'py>,
        ours: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let found = PyList::empty(py);
        self.reader.push(chunk.as_bytes());
        while let Some(element) = self.reader.next_element().map_err(unreadable)? {
            let Some(message) = JsonMessage::parse(element) else {
                self.malformed += 1;
                continue;
            };
            if ours.contains((message.timestamp_ns(), message.content_topic()))? {
                self.echoes += 1;
            } else if let Some(values) = message_tuple(py, &message)? {
                found.append(values)?;
            } else {
                self.malformed += 1;
            }
        }
        Ok(found)
    }

    fn finish(&self) -> PyResult<()> {
        if self.reader.is_done() {
            Ok(())
        } else {
            Err(unreadable(JsonError::Truncated))
        }
    }
}

#[documented]
#[pyfunction]
#[pyo3(signature = (*, payload, content_topic, timestamp_ns, meta, ephemeral))]
pub fn encode_waku_json<'py>(
    py: Python<'py>,
    payload: Buffer<'py>,
    content_topic: &str,
    timestamp_ns: i64,
    meta: Buffer<'py>,
    ephemeral: bool,
) -> Bound<'py, PyBytes> {
    let (bytes, meta) = (payload.as_bytes(), meta.as_bytes());
    let json = detached(py, bytes.len(), || {
        waku_json::encode(bytes, content_topic, timestamp_ns, meta, ephemeral)
    });
    PyBytes::new(py, &json)
}

#[documented]
#[pyfunction]
#[pyo3(signature = (answer, /))]
pub fn decode_store_json<'py>(
    py: Python<'py>,
    answer: Buffer<'py>,
) -> PyResult<Bound<'py, PyTuple>> {
    let answer = StoreAnswer::parse(answer.as_bytes()).map_err(unreadable)?;
    let entries = PyList::empty(py);
    for entry in &answer.entries {
        let message = match &entry.message {
            None => None,
            Some(message) => {
                Some(message_tuple(py, message)?.ok_or_else(|| unreadable(JsonError::Store))?)
            }
        };
        entries.append((
            PyBytes::new(py, &entry.message_hash),
            entry.pubsub_topic.as_deref(),
            message,
        ))?;
    }
    let cursor = answer.cursor.map(|cursor| PyBytes::new(py, &cursor));
    (
        answer.status_code,
        answer.status_desc.as_deref(),
        entries,
        cursor,
    )
        .into_pyobject(py)
}

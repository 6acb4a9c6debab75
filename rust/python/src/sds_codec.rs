//! What the SDS machine calls once a message: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use shardwire_core::bloom;
use shardwire_core::wire::sds::{self, MessageView, WireFormat};

use crate::buffer::Buffer;
use crate::error::Error;
use crate::sds::{HistoryEntry, parse_sds_wire_format};

/// Encodes and decodes for one participant of one channel, each message in one call.
#[pyclass(frozen, module = "shardwire._native")]
pub struct SdsCodec {
    channel_id: String,
    sender_id: String,
    wire_format: WireFormat,
}

/// Ids are text; what a peer broke of it becomes U+FFFD.
fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    PyString::new(py, &String::from_utf8_lossy(bytes))
}

#[pymethods]
impl SdsCodec {
    #[new]
    #[pyo3(signature = (channel_id, sender_id, wire_format = "spec"))]
    fn new(channel_id: String, sender_id: String, wire_format: &str) -> Result<Self, Error> {
        Ok(SdsCodec {
            channel_id,
            sender_id,
            wire_format: parse_sds_wire_format(wire_format)?,
        })
    }

    /// The fields of a message; `()` for another channel, `None` for what is no message.
    #[pyo3(signature = (data, /))]
    fn decode<'py>(
        &self,
        py: Python<'py>,
        data: Buffer<'py>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let bytes = data.as_bytes();
        let Ok(message) = MessageView::decode(bytes, self.wire_format) else {
            return Ok(None);
        };
        if message.channel_id != self.channel_id.as_bytes() {
            return Ok(Some(PyTuple::empty(py)));
        }
        let history = message.causal_history.iter();
        let history_ids = PyTuple::new(py, history.map(|entry| text(py, entry.message_id)))?;
        let requests = message.repair_request.into_iter();
        let fields = (
            text(py, message.message_id),
            text(py, message.sender_id),
            message.lamport_timestamp,
            history_ids,
            message.bloom_filter.map(|filter| {
                let start = filter.as_ptr() as usize - bytes.as_ptr() as usize;
                (start, start + filter.len())
            }),
            PyTuple::new(py, requests.map(HistoryEntry::from_view))?,
            message.content.map(|content| PyBytes::new(py, content)),
        );
        fields.into_pyobject(py).map(Some)
    }

    /// A message of this participant.
    #[pyo3(signature = (
        message_id, lamport_timestamp, history_fields, bloom_filter, repair_request, content, /
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument a field, and the interpreter"
    )]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        message_id: &str,
        lamport_timestamp: Option<u64>,
        history_fields: &[u8],
        bloom_filter: Option<&[u8]>,
        repair_request: Vec<Py<HistoryEntry>>,
        content: Option<&[u8]>,
    ) -> Result<Bound<'py, PyBytes>, Error> {
        let requests = repair_request.iter().map(|entry| entry.get().inner());
        let encoded = self.encode_parts(
            message_id,
            lamport_timestamp,
            history_fields,
            bloom_filter,
            &requests.cloned().collect::<Vec<_>>(),
            content,
        )?;
        Ok(PyBytes::new(py, &encoded))
    }
}

impl SdsCodec {
    /// The wire that it writes.
    pub fn wire_format(&self) -> WireFormat {
        self.wire_format
    }

    /// A message of this participant.
    pub fn encode_parts(
        &self,
        message_id: &str,
        lamport_timestamp: Option<u64>,
        history_fields: &[u8],
        bloom_filter: Option<&[u8]>,
        repair_request: &[sds::HistoryEntry],
        content: Option<&[u8]>,
    ) -> Result<Vec<u8>, Error> {
        let parts = sds::Parts {
            sender_id: &self.sender_id,
            message_id,
            channel_id: &self.channel_id,
            lamport_timestamp,
            history_fields,
            bloom_filter,
            repair_request,
            content,
        };
        Ok(parts.encode(self.wire_format)?)
    }
}

/// Nim's `hash(string)`: FarmHash64 of the UTF-8 bytes, as the signed integer that Nim has.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub fn farmhash64(text: &str) -> i64 {
    bloom::farmhash64(text.as_bytes()) as i64
}

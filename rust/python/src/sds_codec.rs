//! What the SDS machine calls once a message: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use shardwire_core::bloom;
use shardwire_core::crc32::crc32;
use shardwire_core::wire::sds::{self, EntryView, MessageView, WireFormat};

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

    /// The causal history of a message, as `encode` takes it.
    #[pyo3(signature = (entries, /))]
    fn encode_history<'py>(
        &self,
        py: Python<'py>,
        entries: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let entries: Vec<Entry<'py>> = entries
            .iter()
            .map(|entry| entry.extract())
            .collect::<PyResult<_>>()?;
        let mut views = Vec::with_capacity(entries.len());
        for (message_id, retrieval_hint, sender_id) in &entries {
            let sender_id = sender_id.as_ref().map(|id| id.to_str()).transpose()?;
            views.push(EntryView {
                message_id: message_id.to_str()?.as_bytes(),
                retrieval_hint: retrieval_hint.as_ref().map(|hint| hint.as_bytes()),
                sender_id: sender_id.map(str::as_bytes),
            });
        }
        let fields = sds::encode_history(views, self.wire_format);
        Ok(PyBytes::new(py, &fields))
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
        let encoded = sds::Parts {
            sender_id: &self.sender_id,
            message_id,
            channel_id: &self.channel_id,
            lamport_timestamp,
            history_fields,
            bloom_filter,
            repair_request: &requests.cloned().collect::<Vec<_>>(),
            content,
        }
        .encode(self.wire_format)?;
        Ok(PyBytes::new(py, &encoded))
    }
}

/// Message id, retrieval hint, sender id.
type Entry<'py> = (
    Bound<'py, PyString>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyString>>,
);

/// Nim's `hash(string)`: FarmHash64 of the UTF-8 bytes, as the signed integer that Nim has.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub fn farmhash64(text: &str) -> i64 {
    bloom::farmhash64(text.as_bytes()) as i64
}

/// The stored form of a log entry: every number little-endian, then the texts, then a CRC-32.
#[pyfunction]
#[pyo3(signature = (
    head, lamport, sequence, unsaid, ordinal, sender_id, retrieval_hint, waits_in, /
))]
#[expect(
    clippy::too_many_arguments,
    reason = "one argument a field, and the interpreter"
)]
pub fn sds_log_record<'py>(
    py: Python<'py>,
    head: (u8, u8),
    lamport: u64,
    sequence: u64,
    unsaid: u64,
    ordinal: u16,
    sender_id: &str,
    retrieval_hint: Option<&[u8]>,
    waits_in: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let hint = retrieval_hint.unwrap_or_default();
    let mut record = Vec::with_capacity(40 + sender_id.len() + hint.len() + waits_in.len());
    record.extend([head.0, head.1]);
    for number in [lamport, sequence, unsaid] {
        record.extend(number.to_le_bytes());
    }
    record.extend(ordinal.to_le_bytes());
    for length in [sender_id.len(), hint.len(), waits_in.len()] {
        record.extend(u16::try_from(length)?.to_le_bytes());
    }
    record.extend(sender_id.as_bytes());
    record.extend(hint);
    record.extend(waits_in.as_bytes());
    record.extend(crc32(&record).to_le_bytes());
    Ok(PyBytes::new(py, &record))
}

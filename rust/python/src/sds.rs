//! Scalable Data Sync messages: `_native.pyi`, "Scalable Data Sync".

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyTuple};
use shardwire_core::wire::sds::{self, Kind, WireFormat};
use shardwire_stub::documented;

use crate::buffer::{Buffer, all_of};
use crate::error::Error;
use crate::record::{Field, Record, field};

/// The wire that `name` names.
pub fn parse_sds_wire_format(name: &str) -> Result<WireFormat, Error> {
    name.parse().map_err(|()| Error::Choice {
        field: "wire_format",
        value: name.to_owned(),
        choices: "'spec' or 'nim'",
    })
}

#[documented]
#[pyclass(frozen, eq, hash, module = "shardwire._native")]
#[derive(PartialEq, Eq, Hash, Clone)]
pub struct HistoryEntry(sds::HistoryEntry);

#[documented]
#[pymethods]
impl HistoryEntry {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("message_id", "retrieval_hint", "sender_id")
    }

    #[new]
    #[pyo3(signature = (message_id, retrieval_hint = None, sender_id = None))]
    fn new(
        message_id: String,
        retrieval_hint: Option<Buffer<'_>>,
        sender_id: Option<String>,
    ) -> Self {
        let retrieval_hint = retrieval_hint.map(|hint| hint.as_bytes().to_vec());
        HistoryEntry(sds::HistoryEntry {
            message_id,
            retrieval_hint,
            sender_id,
        })
    }

    #[getter]
    fn message_id(&self) -> &str {
        &self.0.message_id
    }

    #[getter]
    fn retrieval_hint<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0
            .retrieval_hint
            .as_deref()
            .map(|hint| PyBytes::new(py, hint))
    }

    #[getter]
    fn sender_id(&self) -> Option<&str> {
        self.0.sender_id.as_deref()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.fields(py)?.into_iter().map(|(_, value)| value))
    }
}

impl From<sds::HistoryEntry> for HistoryEntry {
    fn from(entry: sds::HistoryEntry) -> Self {
        HistoryEntry(entry)
    }
}

impl Record for HistoryEntry {
    const NAME: &'static str = "HistoryEntry";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "message_id", self.message_id())?,
            field(py, "retrieval_hint", self.retrieval_hint(py))?,
            field(py, "sender_id", self.sender_id())?,
        ])
    }
}

#[documented]
#[pyclass(frozen, eq, module = "shardwire._native")]
#[derive(PartialEq)]
pub struct SdsMessage(sds::Message);

#[documented]
#[pymethods]
impl SdsMessage {
    #[new]
    #[pyo3(signature = (
        *, sender_id, message_id, channel_id, lamport_timestamp = None,
        causal_history = None, bloom_filter = None, repair_request = None,
        content = None
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument a field, all by keyword"
    )]
    fn new(
        sender_id: String,
        message_id: String,
        channel_id: String,
        lamport_timestamp: Option<u64>,
        causal_history: Option<&Bound<'_, PyAny>>,
        bloom_filter: Option<Buffer<'_>>,
        repair_request: Option<&Bound<'_, PyAny>>,
        content: Option<Buffer<'_>>,
    ) -> PyResult<Self> {
        let entries = |entries: Option<&Bound<'_, PyAny>>, name| {
            let entries: Vec<Py<HistoryEntry>> =
                entries.map_or(Ok(Vec::new()), |entries| all_of(entries, name))?;
            PyResult::Ok(entries.iter().map(|entry| entry.get().0.clone()).collect())
        };
        let bytes = |buffer: Option<Buffer<'_>>| buffer.map(|bytes| bytes.as_bytes().to_vec());
        Ok(SdsMessage(sds::Message {
            sender_id,
            message_id,
            channel_id,
            lamport_timestamp,
            causal_history: entries(causal_history, "causal_history")?,
            bloom_filter: bytes(bloom_filter),
            repair_request: entries(repair_request, "repair_request")?,
            content: bytes(content),
        }))
    }

    #[getter]
    fn kind(&self) -> Option<&'static str> {
        self.0.kind().map(|kind| match kind {
            Kind::Content => "content",
            Kind::Sync => "sync",
            Kind::Ephemeral => "ephemeral",
        })
    }

    #[getter]
    fn sender_id(&self) -> &str {
        &self.0.sender_id
    }

    #[getter]
    fn message_id(&self) -> &str {
        &self.0.message_id
    }

    #[getter]
    fn channel_id(&self) -> &str {
        &self.0.channel_id
    }

    #[getter]
    fn lamport_timestamp(&self) -> Option<u64> {
        self.0.lamport_timestamp
    }

    #[getter]
    fn causal_history<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.causal_history.iter().cloned().map(HistoryEntry))
    }

    #[getter]
    fn bloom_filter<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0
            .bloom_filter
            .as_deref()
            .map(|bytes| PyBytes::new(py, bytes))
    }

    #[getter]
    fn repair_request<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.repair_request.iter().cloned().map(HistoryEntry))
    }

    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0
            .content
            .as_deref()
            .map(|bytes| PyBytes::new(py, bytes))
    }

    #[pyo3(signature = (wire_format = "spec"))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        wire_format: &str,
    ) -> Result<Bound<'py, PyBytes>, Error> {
        let encoded = self.0.encode(parse_sds_wire_format(wire_format)?)?;
        Ok(PyBytes::new(py, &encoded))
    }

    #[staticmethod]
    #[pyo3(signature = (data, wire_format = "spec"))]
    fn decode(data: Buffer<'_>, wire_format: &str) -> Result<Option<Self>, Error> {
        let wire_format = parse_sds_wire_format(wire_format)?;
        Ok(sds::Message::decode(data.as_bytes(), wire_format)
            .ok()
            .map(SdsMessage))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.0.sender_id, &self.0.message_id, &self.0.channel_id).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`.
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        Ok((PyTuple::empty(py), self.fields(py)?.into_py_dict(py)?))
    }
}

impl Record for SdsMessage {
    const NAME: &'static str = "SdsMessage";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "sender_id", self.sender_id())?,
            field(py, "message_id", self.message_id())?,
            field(py, "channel_id", self.channel_id())?,
            field(py, "lamport_timestamp", self.lamport_timestamp())?,
            field(py, "causal_history", self.causal_history(py)?)?,
            field(py, "bloom_filter", self.bloom_filter(py))?,
            field(py, "repair_request", self.repair_request(py)?)?,
            field(py, "content", self.content(py))?,
        ])
    }
}

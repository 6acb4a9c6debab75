//! Waku messages: `_native.pyi`, "Waku".

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardwire_core::wire::waku;
use shardwire_stub::documented;

use crate::buffer::{Buffer, detached};
use crate::error::Error;
use crate::record::{Field, Record, field};

#[documented]
#[pyclass(frozen, eq, module = "shardwire._native")]
#[derive(PartialEq)]
pub struct WakuMessage(waku::WakuMessage);

#[documented]
#[pymethods]
impl WakuMessage {
    #[new]
    #[pyo3(signature = (
        *, payload, content_topic, version = None, timestamp_ns = None, meta = None,
        rate_limit_proof = None, ephemeral = None
    ))]
    fn new(
        payload: Buffer<'_>,
        content_topic: String,
        version: Option<u32>,
        timestamp_ns: Option<i64>,
        meta: Option<Buffer<'_>>,
        rate_limit_proof: Option<Buffer<'_>>,
        ephemeral: Option<bool>,
    ) -> Self {
        let bytes = |buffer: Option<Buffer<'_>>| buffer.map(|bytes| bytes.as_bytes().to_vec());
        WakuMessage(waku::WakuMessage {
            payload: payload.as_bytes().to_vec(),
            content_topic,
            version,
            timestamp: timestamp_ns,
            meta: bytes(meta),
            rate_limit_proof: bytes(rate_limit_proof),
            ephemeral,
        })
    }

    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.payload)
    }

    #[getter]
    fn content_topic(&self) -> &str {
        &self.0.content_topic
    }

    #[getter]
    fn version(&self) -> Option<u32> {
        self.0.version
    }

    #[getter]
    fn timestamp_ns(&self) -> Option<i64> {
        self.0.timestamp
    }

    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.meta.as_deref().map(|bytes| PyBytes::new(py, bytes))
    }

    #[getter]
    fn rate_limit_proof<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0
            .rate_limit_proof
            .as_deref()
            .map(|bytes| PyBytes::new(py, bytes))
    }

    #[getter]
    fn ephemeral(&self) -> Option<bool> {
        self.0.ephemeral
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &waku::encode(&self.0))
    }

    #[staticmethod]
    #[pyo3(signature = (data, /))]
    fn decode(data: Buffer<'_>) -> Option<Self> {
        waku::decode(data.as_bytes()).ok().map(WakuMessage)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }
}

impl Record for WakuMessage {
    const NAME: &'static str = "WakuMessage";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "payload", self.payload(py))?,
            field(py, "content_topic", self.content_topic())?,
            field(py, "version", self.version())?,
            field(py, "timestamp_ns", self.timestamp_ns())?,
            field(py, "meta", self.meta(py))?,
            field(py, "rate_limit_proof", self.rate_limit_proof(py))?,
            field(py, "ephemeral", self.ephemeral())?,
        ])
    }
}

#[documented]
#[pyfunction]
#[pyo3(
    signature = (*, pubsub_topic, payload, content_topic, meta = None, timestamp_ns = Some(0)),
    text_signature = "(*, pubsub_topic, payload, content_topic, meta=None, timestamp_ns=0)"
)]
pub fn message_hash<'py>(
    py: Python<'py>,
    pubsub_topic: &str,
    payload: Buffer<'py>,
    content_topic: &str,
    meta: Option<Buffer<'py>>,
    timestamp_ns: Option<i64>,
) -> Bound<'py, PyBytes> {
    let bytes = payload.as_bytes();
    let meta = meta.as_ref().map_or(&[][..], Buffer::as_bytes);
    let hash = detached(py, bytes.len(), || {
        waku::message_hash(pubsub_topic, bytes, content_topic, meta, timestamp_ns)
    });
    PyBytes::new(py, &hash)
}

#[documented]
#[pyfunction]
pub fn shard_of(content_topic: &str, num_shards_in_cluster: u32) -> Result<u32, Error> {
    waku::shard_of(content_topic, num_shards_in_cluster).map_err(|source| Error::ContentTopic {
        topic: content_topic.to_owned(),
        source,
    })
}

//! One entry of the local log of the SDS machine: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use shardwire_core::crc32::crc32;

use crate::sds_send::IncomingSend;

/// One content that this participant holds, or can reconstruct.
///
/// The garbage collector does not see those of a log, since 100,000 would be walked time and
/// again: the log breaks the ring of an entry and the send that it waits in when it goes itself.
#[pyclass(module = "shardwire._native")]
pub struct LogEntry {
    #[pyo3(get)]
    pub message_id: Py<PyString>,
    #[pyo3(get)]
    pub sender_id: Py<PyString>,
    #[pyo3(get)]
    pub lamport: u64,
    #[pyo3(get, set)]
    pub retrieval_hint: Option<Py<PyBytes>>,
    #[pyo3(get)]
    pub sequence: u64,
    #[pyo3(get, set)]
    pub ordinal: u32,
    #[pyo3(get, set)]
    pub send: Option<Py<IncomingSend>>,
    #[pyo3(get, set)]
    pub spoken_ms: i64,
    #[pyo3(get, set)]
    pub unsaid: u64,
    #[pyo3(get, set)]
    pub repeats: u8,
    #[pyo3(get, set)]
    pub ordered: bool,
    /// Whether the log holds it, and whether its record is to be written.
    pub held: bool,
    pub changed: bool,
    /// The hash of its id in the log's table.
    pub id_hash: u64,
    /// The number of the last history of ours that named it.
    pub named_in: u64,
    /// Its message where that is kept, whether the record of it goes with the entry's, and whether
    /// that is still to be written.
    pub original: Option<Py<PyBytes>>,
    pub paired: bool,
    pub original_new: bool,
}

#[pymethods]
impl LogEntry {
    #[new]
    #[pyo3(signature = (message_id, sender_id, lamport, retrieval_hint, sequence, ordinal))]
    pub fn new(
        message_id: Py<PyString>,
        sender_id: Py<PyString>,
        lamport: u64,
        retrieval_hint: Option<Py<PyBytes>>,
        sequence: u64,
        ordinal: u32,
    ) -> Self {
        LogEntry {
            message_id,
            sender_id,
            lamport,
            retrieval_hint,
            sequence,
            ordinal,
            send: None,
            spoken_ms: 0,
            unsaid: 0,
            repeats: 0,
            ordered: false,
            held: false,
            changed: false,
            id_hash: 0,
            named_in: 0,
            original: None,
            paired: false,
            original_new: false,
        }
    }
}

impl LogEntry {
    /// The log holds it no longer: there is nothing to write.
    pub fn let_go(&mut self) {
        self.held = false;
        self.changed = false;
    }

    /// Gives its message away.
    pub fn take_original(&mut self) -> Option<Py<PyBytes>> {
        self.paired = false;
        self.original_new = false;
        self.original.take()
    }

    /// The stored form: every number little-endian, then the texts, then a CRC-32.
    pub fn record<'py>(&self, py: Python<'py>, version: u8) -> PyResult<Bound<'py, PyBytes>> {
        const ORDERED: u8 = 1;
        const HINT: u8 = 2;
        let sender_id = self.sender_id.to_str(py)?;
        let hint = self.retrieval_hint.as_ref().map(|hint| hint.as_bytes(py));
        let send = self.send.as_ref().map(|send| send.borrow(py));
        let waits_in = send.as_ref().map_or(Ok(""), |send| send.key.to_str(py))?;
        let flags = u8::from(self.ordered) * ORDERED + u8::from(hint.is_some()) * HINT;
        let hint = hint.unwrap_or_default();
        let mut record = Vec::with_capacity(40 + sender_id.len() + hint.len() + waits_in.len());
        record.extend_from_slice(&[version, flags]);
        for number in [self.lamport, self.sequence, self.unsaid] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        record.extend_from_slice(&u16::try_from(self.ordinal)?.to_le_bytes());
        for length in [sender_id.len(), hint.len(), waits_in.len()] {
            record.extend_from_slice(&u16::try_from(length)?.to_le_bytes());
        }
        for bytes in [sender_id.as_bytes(), hint, waits_in.as_bytes()] {
            record.extend_from_slice(bytes);
        }
        record.extend_from_slice(&crc32(&record).to_le_bytes());
        Ok(PyBytes::new(py, &record))
    }
}

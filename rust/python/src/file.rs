//! Messages of file transfers: `_native.pyi`, "Files".

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardwire_core::wire::file::{
    self, Chunk, Hash, Manifest, Message, Reason, Stamp, State, Status,
};
use shardwire_stub::documented;

use crate::buffer::Buffer;
use crate::error::{Error, config_error};
use crate::record::{Field, Record, field};

const STATES: [(State, &str); 6] = [
    (State::Requested, "requested"),
    (State::Held, "held"),
    (State::Received, "received"),
    (State::Refused, "refused"),
    (State::Unknown, "unknown"),
    (State::Withdrawn, "withdrawn"),
];

const REASONS: [(Reason, &str); 9] = [
    (Reason::Unspecified, ""),
    (Reason::Declined, "declined"),
    (Reason::TooLarge, "too_large"),
    (Reason::Name, "name"),
    (Reason::Exists, "exists"),
    (Reason::Busy, "busy"),
    (Reason::NoSpace, "no_space"),
    (Reason::Failed, "failed"),
    (Reason::Changed, "changed"),
];

fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: &T) -> &'static str {
    let found = names.iter().find(|(named, _)| named == value);
    found.map_or("", |(_, name)| name)
}

fn value_of<T: Copy>(
    names: &[(T, &'static str)],
    name: &str,
    field: &'static str,
    choices: &'static str,
) -> Result<T, Error> {
    let found = names.iter().find(|(_, known)| *known == name);
    found.map(|(value, _)| *value).ok_or_else(|| Error::Choice {
        field,
        value: name.to_owned(),
        choices,
    })
}

fn hash_of(bytes: &Buffer<'_>, field: &str) -> PyResult<Hash> {
    let bytes = bytes.as_bytes();
    bytes.try_into().map_err(|_| {
        let length = bytes.len();
        config_error(format!("{field} has {length} bytes: it must have 32"))
    })
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct FileManifest(Manifest, Hash, Stamp);

#[documented]
#[pymethods]
impl FileManifest {
    #[getter]
    fn transfer_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.1)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    #[getter]
    fn chunk_size_bytes(&self) -> u32 {
        self.0.chunk_size_bytes
    }

    #[getter]
    fn session(&self) -> u64 {
        self.2.session
    }

    #[getter]
    fn chain_hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.chain_hash)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }
}

impl Record for FileManifest {
    const NAME: &'static str = "FileManifest";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "name", self.name())?,
            field(py, "size_bytes", self.size_bytes())?,
            field(py, "chunk_size_bytes", self.chunk_size_bytes())?,
            field(py, "chain_hash", self.chain_hash(py))?,
        ])
    }
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct FileChunk {
    transfer_id: Hash,
    next_hash: Hash,
    #[pyo3(get)]
    session: u64,
    #[pyo3(get)]
    index: u64,
    #[pyo3(get)]
    data: Py<PyBytes>,
}

#[documented]
#[pymethods]
impl FileChunk {
    #[getter]
    fn transfer_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.transfer_id)
    }

    #[getter]
    fn next_hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.next_hash)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }
}

impl Record for FileChunk {
    const NAME: &'static str = "FileChunk";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "index", self.index)?,
            field(py, "next_hash", self.next_hash(py))?,
            field(py, "data", self.data.clone_ref(py))?,
        ])
    }
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct FileStatus(Status, Stamp);

#[documented]
#[pymethods]
impl FileStatus {
    #[getter]
    fn transfer_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.transfer_id)
    }

    #[getter]
    fn session(&self) -> u64 {
        self.1.session
    }

    #[getter]
    fn state(&self) -> &'static str {
        name_of(&STATES, &self.0.state)
    }

    #[getter]
    fn reason(&self) -> &'static str {
        name_of(&REASONS, &self.0.reason)
    }

    #[getter]
    fn next_index(&self) -> u64 {
        self.0.next_index
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }
}

impl Record for FileStatus {
    const NAME: &'static str = "FileStatus";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "state", self.state())?,
            field(py, "reason", self.reason())?,
            field(py, "next_index", self.next_index())?,
        ])
    }
}

#[documented]
#[pyfunction]
#[pyo3(signature = (message, /))]
pub fn is_file_message(message: Buffer<'_>) -> bool {
    let name = &file::MAGIC[..file::MAGIC.len() - 1];
    message.as_bytes().starts_with(name)
}

#[documented]
#[pyfunction]
#[pyo3(signature = (message, /))]
pub fn decode_file_message<'py>(
    py: Python<'py>,
    message: Buffer<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok((read, stamp)) = file::read(message.as_bytes()) else {
        return Ok(None);
    };
    let found = match read {
        Message::Manifest(manifest, transfer_id) => {
            Bound::new(py, FileManifest(manifest, transfer_id, stamp))?.into_any()
        }
        Message::Status(status) => Bound::new(py, FileStatus(status, stamp))?.into_any(),
        Message::Chunk(chunk) => {
            let chunk = FileChunk {
                transfer_id: chunk.transfer_id,
                next_hash: chunk.next_hash,
                session: stamp.session,
                index: chunk.index,
                data: PyBytes::new(py, &chunk.data).unbind(),
            };
            Bound::new(py, chunk)?.into_any()
        }
    };
    Ok(Some(found))
}

#[documented]
#[pyfunction]
#[pyo3(signature = (*, name, size_bytes, chunk_size_bytes, chain_hash, nonce, session))]
pub fn encode_file_manifest<'py>(
    py: Python<'py>,
    name: String,
    size_bytes: u64,
    chunk_size_bytes: u32,
    chain_hash: Buffer<'_>,
    nonce: u64,
    session: u64,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let manifest = Manifest {
        name,
        size_bytes,
        chunk_size_bytes,
        chain_hash: hash_of(&chain_hash, "chain_hash")?,
    };
    let (message, transfer_id) = file::encode_manifest(&manifest, Stamp { nonce, session })
        .map_err(|error| config_error(error.to_string()))?;
    Ok((PyBytes::new(py, &message), PyBytes::new(py, &transfer_id)))
}

#[documented]
#[pyfunction]
#[pyo3(signature = (*, transfer_id, index, next_hash, data, nonce, session))]
pub fn encode_file_chunk<'py>(
    py: Python<'py>,
    transfer_id: Buffer<'_>,
    index: u64,
    next_hash: Buffer<'_>,
    data: Buffer<'_>,
    nonce: u64,
    session: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let chunk = Chunk {
        transfer_id: hash_of(&transfer_id, "transfer_id")?,
        index,
        next_hash: hash_of(&next_hash, "next_hash")?,
        data: data.as_bytes().to_vec(),
    };
    Ok(PyBytes::new(
        py,
        &file::encode_chunk(chunk, Stamp { nonce, session }),
    ))
}

#[documented]
#[pyfunction]
#[pyo3(signature = (*, transfer_id, state, nonce, session, reason = "", next_index = 0))]
pub fn encode_file_status<'py>(
    py: Python<'py>,
    transfer_id: Buffer<'_>,
    state: &str,
    nonce: u64,
    session: u64,
    reason: &str,
    next_index: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let states = "requested, held, received, refused, unknown or withdrawn";
    let reasons = "empty, declined, too_large, name, exists, busy, no_space, failed or changed";
    let status = Status {
        transfer_id: hash_of(&transfer_id, "transfer_id")?,
        state: value_of(&STATES, state, "state", states)?,
        reason: value_of(&REASONS, reason, "reason", reasons)?,
        next_index,
    };
    Ok(PyBytes::new(
        py,
        &file::encode_status(&status, Stamp { nonce, session }),
    ))
}

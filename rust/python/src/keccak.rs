//! Keccak-256: `_native.pyi`, "Keccak-256".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray};
use arrow_buffer::Buffer as ArrowBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use shardwire_core::keccak;
use shardwire_stub::documented;

use crate::arrow::{BinaryColumn, map_arrow};
use crate::buffer::{Buffer, buffers_of, detached};

/// Bytes of a digest.
const DIGEST_LENGTH: i32 = 32;

#[documented]
#[pyfunction]
#[pyo3(signature = (data, /))]
pub fn keccak256<'py>(py: Python<'py>, data: Buffer<'py>) -> Bound<'py, PyBytes> {
    let bytes = data.as_bytes();
    PyBytes::new(py, &detached(py, bytes.len(), || keccak::keccak256(bytes)))
}

#[documented]
#[pyfunction]
#[pyo3(signature = (buffers, /))]
pub fn keccak256_many<'py>(
    py: Python<'py>,
    buffers: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let digests = map_arrow(buffers, |array| {
        let column = BinaryColumn::new(array, "buffers")?;
        PyResult::Ok(py.detach(|| digests_of(&column, array)))
    })?;
    if let Some(digests) = digests {
        return Ok(digests);
    }
    let buffers = buffers_of(buffers, "buffers")?;
    let slices: Vec<&[u8]> = buffers.iter().map(Buffer::as_bytes).collect();
    let mut digests = vec![[0; DIGEST_LENGTH as usize]; slices.len()];
    let bytes = slices.iter().map(|slice| slice.len()).sum();
    detached(py, bytes, || keccak::keccak256_many(&slices, &mut digests));
    let digests = digests.iter().map(|digest| PyBytes::new(py, digest));
    Ok(PyList::new(py, digests)?.into_any())
}

/// Null stays null.
fn digests_of(column: &BinaryColumn, array: &ArrayRef) -> ArrayRef {
    let slices: Vec<&[u8]> = column.iter().map(Option::unwrap_or_default).collect();
    let mut digests = vec![[0; DIGEST_LENGTH as usize]; slices.len()];
    keccak::keccak256_many(&slices, &mut digests);
    let values = ArrowBuffer::from_vec(digests.into_flattened());
    let nulls = array.logical_nulls();
    Arc::new(FixedSizeBinaryArray::new(DIGEST_LENGTH, values, nulls))
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct Keccak256(Mutex<keccak::Keccak256>);

impl Keccak256 {
    /// Whoever holds the lock needs no GIL to be done with it.
    fn lock(&self) -> MutexGuard<'_, keccak::Keccak256> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[documented]
#[pymethods]
impl Keccak256 {
    #[new]
    #[pyo3(signature = (data = None))]
    fn new(py: Python<'_>, data: Option<Buffer<'_>>) -> Self {
        let hash = Keccak256(Mutex::new(keccak::Keccak256::new()));
        if let Some(data) = data {
            hash.update(py, data);
        }
        hash
    }

    #[pyo3(signature = (data, /))]
    fn update(&self, py: Python<'_>, data: Buffer<'_>) {
        let bytes = data.as_bytes();
        detached(py, bytes.len(), || self.lock().update(bytes));
    }

    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().digest())
    }

    fn copy(&self) -> Self {
        Keccak256(Mutex::new(self.lock().clone()))
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    #[pyo3(signature = (memo, /))]
    fn __deepcopy__(&self, memo: &Bound<'_, PyAny>) -> Self {
        let _ = memo;
        self.copy()
    }
}

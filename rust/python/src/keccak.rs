//! Keccak-256: `_native.pyi`, "Keccak-256".

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray};
use arrow_buffer::Buffer as ArrowBuffer;
use arrow_schema::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3_arrow::PyArray;
use shardwire_core::keccak;

use crate::buffer::{Buffer, detached};

/// Bytes of a digest.
const DIGEST_LENGTH: i32 = 32;

/// Keccak-256 of one buffer.
#[pyfunction]
#[pyo3(signature = (data, /))]
pub fn keccak256<'py>(py: Python<'py>, data: Buffer<'py>) -> Bound<'py, PyBytes> {
    let bytes = data.as_bytes();
    PyBytes::new(py, &detached(py, bytes.len(), || keccak::keccak256(bytes)))
}

/// A list of 32-byte digests for an iterable of buffers; for an Arrow binary array, a fixed-size
/// binary array.
#[pyfunction]
#[pyo3(signature = (buffers, /))]
pub fn keccak256_many<'py>(
    py: Python<'py>,
    buffers: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if buffers.hasattr("__arrow_c_array__")? {
        let (array, _) = buffers.extract::<PyArray>()?.into_inner();
        let digests = py.detach(|| digests_of(&array))?;
        let digests = PyArray::from_array_ref(digests);
        let digests = digests.to_pyarrow(py)?.unbind();
        return Ok(digests.into_bound(py));
    }
    let buffers = buffers
        .try_iter()?
        .map(|item| item?.extract())
        .collect::<PyResult<Vec<_>>>()?;
    let slices: Vec<&[u8]> = buffers.iter().map(Buffer::as_bytes).collect();
    let mut digests = vec![[0; DIGEST_LENGTH as usize]; slices.len()];
    let bytes = slices.iter().map(|slice| slice.len()).sum();
    detached(py, bytes, || keccak::keccak256_many(&slices, &mut digests));
    let digests = digests.iter().map(|digest| PyBytes::new(py, digest));
    Ok(PyList::new(py, digests)?.into_any())
}

/// Null stays null.
fn digests_of(array: &ArrayRef) -> PyResult<ArrayRef> {
    let rows = 0..array.len();
    let slices: Vec<&[u8]> = match array.data_type() {
        DataType::Binary => rows
            .map(|row| array.as_binary::<i32>().value(row))
            .collect(),
        DataType::LargeBinary => rows
            .map(|row| array.as_binary::<i64>().value(row))
            .collect(),
        DataType::BinaryView => rows.map(|row| array.as_binary_view().value(row)).collect(),
        DataType::FixedSizeBinary(_) => rows
            .map(|row| array.as_fixed_size_binary().value(row))
            .collect(),
        other => {
            let message = format!("an Arrow binary array is required, not {other}");
            return Err(PyTypeError::new_err(message));
        }
    };
    let mut digests = vec![[0; DIGEST_LENGTH as usize]; slices.len()];
    keccak::keccak256_many(&slices, &mut digests);
    let values = ArrowBuffer::from_vec(digests.into_flattened());
    let nulls = array.logical_nulls();
    Ok(Arc::new(FixedSizeBinaryArray::new(
        DIGEST_LENGTH,
        values,
        nulls,
    )))
}

/// Keccak-256 of bytes that arrive in pieces.
#[pyclass(module = "shardwire._native")]
pub struct Keccak256(keccak::Keccak256);

#[pymethods]
impl Keccak256 {
    #[new]
    #[pyo3(signature = (data = None))]
    fn new(py: Python<'_>, data: Option<Buffer<'_>>) -> Self {
        let mut hash = Keccak256(keccak::Keccak256::new());
        if let Some(data) = data {
            hash.update(py, data);
        }
        hash
    }

    /// Absorbs `data`.
    #[pyo3(signature = (data, /))]
    fn update(&mut self, py: Python<'_>, data: Buffer<'_>) {
        let bytes = data.as_bytes();
        detached(py, bytes.len(), || self.0.update(bytes));
    }

    /// The digest of what was absorbed; more may follow.
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.digest())
    }

    /// An independent hash of what was absorbed.
    fn copy(&self) -> Self {
        Keccak256(self.0.clone())
    }
}

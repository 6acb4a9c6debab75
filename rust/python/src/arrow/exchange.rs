//! Arrays and batches as arguments and as results: anything with Arrow's protocol in, pyarrow's out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use shardwire_stub::documented;

use super::capsule::{array_of, arrays_of, capsules_of};

/// An argument that is an Arrow array.
pub struct ArrayArgument(pub ArrayRef);

/// An argument that is an Arrow record batch.
pub struct BatchArgument(pub RecordBatch);

/// An argument that is an Arrow array, chunked or not.
pub enum ArraysArgument {
    Whole(ArrayRef),
    Chunked(Vec<ArrayRef>, DataType),
}

impl<'py> FromPyObject<'_, 'py> for ArrayArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        described_array(&object).map(|(_, array)| ArrayArgument(array))
    }
}

impl<'py> FromPyObject<'_, 'py> for BatchArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (field, array) = described_array(&object)?;
        let DataType::Struct(fields) = field.data_type() else {
            return Err(PyTypeError::new_err(format!(
                "an Arrow record batch is required, not an array of type {}",
                field.data_type()
            )));
        };
        if array.null_count() > 0 {
            let message = "rows of a record batch are not null: fill them, or drop them";
            return Err(PyValueError::new_err(message));
        }
        let schema = Schema::new(fields.clone()).with_metadata(field.metadata().clone());
        let columns = array.as_struct().columns().to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
        RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
            .map(BatchArgument)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

impl ArraysArgument {
    /// The array or the chunks of `object`; `None` where it is neither.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        if object.hasattr(intern!(py, "__arrow_c_array__"))? {
            let (_, array) = described_array(object)?;
            return Ok(Some(ArraysArgument::Whole(array)));
        }
        if !object.hasattr(intern!(py, "__arrow_c_stream__"))? {
            return Ok(None);
        }
        let stream = object.call_method0(intern!(py, "__arrow_c_stream__"))?;
        let (field, chunks) = arrays_of(stream.cast::<PyCapsule>()?)?;
        let data_type = field.data_type().clone();
        Ok(Some(ArraysArgument::Chunked(chunks, data_type)))
    }
}

fn described_array(object: &Bound<'_, PyAny>) -> PyResult<(Field, ArrayRef)> {
    let method = intern!(object.py(), "__arrow_c_array__");
    if !object.hasattr(method)? {
        return Err(PyTypeError::new_err(format!(
            "an object with __arrow_c_array__ is required, such as a pyarrow array or record batch, \
             not {}",
            object.get_type().fully_qualified_name()?
        )));
    }
    let capsules = object.call_method0(method)?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
    array_of(&schema, &array)
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
struct ArrowResult {
    field: Field,
    array: ArrayData,
}

#[documented]
#[pymethods]
impl ArrowResult {
    /// The requested schema is a wish, which the protocol lets unfulfilled.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        capsules_of(py, &self.field, &self.array)
    }
}

/// Hands an array to pyarrow without a copy.
pub fn to_python<'py>(py: Python<'py>, array: ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let field = Field::new("", array.data_type().clone(), true);
    let array = array.to_data();
    py.import("pyarrow")?
        .getattr("array")?
        .call1((ArrowResult { field, array },))
}

/// Hands a record batch to pyarrow without a copy.
pub fn batch_to_python<'py>(py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyAny>> {
    let schema = batch.schema();
    let field = Field::new_struct("", schema.fields().clone(), false)
        .with_metadata(schema.metadata().clone());
    let array = StructArray::from(batch).to_data();
    py.import("pyarrow")?
        .getattr("record_batch")?
        .call1((ArrowResult { field, array },))
}

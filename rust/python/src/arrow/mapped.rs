//! Arguments that are an Arrow array or a chunked one, and the results that mirror them.

use arrow_array::{ArrayRef, new_empty_array};
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3_arrow::{PyArray, PyChunkedArray};

use super::to_python;

/// What `map` makes of an Arrow array, or of every chunk of a chunked one; `None` where `value` is
/// neither.
pub fn map_arrow<'py, E: From<PyErr>>(
    value: &Bound<'py, PyAny>,
    map: impl Fn(&ArrayRef) -> Result<ArrayRef, E>,
) -> Result<Option<Bound<'py, PyAny>>, E> {
    let py = value.py();
    if value.hasattr("__arrow_c_array__")? {
        let array = value.extract::<PyArray>()?;
        return Ok(Some(to_python(py, map(array.array())?)?));
    }
    if !value.hasattr("__arrow_c_stream__")? {
        return Ok(None);
    }
    let (mut chunks, field) = value.extract::<PyChunkedArray>()?.into_inner();
    if chunks.is_empty() {
        // The type of the result is that of the result of nothing.
        chunks.push(new_empty_array(field.data_type()));
    }
    let mapped = PyList::empty(py);
    for chunk in &chunks {
        mapped.append(to_python(py, map(chunk)?)?)?;
    }
    let chunked = py.import("pyarrow")?.getattr("chunked_array")?;
    Ok(Some(chunked.call1((mapped,))?))
}

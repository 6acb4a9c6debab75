//! Arguments that are an Arrow array or a chunked one, and the results that mirror them.

use arrow_array::{ArrayRef, new_empty_array};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::exchange::{ArraysArgument, to_python};

/// What `map` makes of an Arrow array, or of every chunk of a chunked one; `None` where `value` is
/// neither.
pub fn map_arrow<'py, E: From<PyErr>>(
    value: &Bound<'py, PyAny>,
    map: impl Fn(&ArrayRef) -> Result<ArrayRef, E>,
) -> Result<Option<Bound<'py, PyAny>>, E> {
    let py = value.py();
    let (mut chunks, data_type) = match ArraysArgument::of(value)? {
        None => return Ok(None),
        Some(ArraysArgument::Whole(array)) => return Ok(Some(to_python(py, map(&array)?)?)),
        Some(ArraysArgument::Chunked(chunks, data_type)) => (chunks, data_type),
    };
    if chunks.is_empty() {
        // The type of the result is that of the result of nothing.
        chunks.push(new_empty_array(&data_type));
    }
    let mapped = PyList::empty(py);
    for chunk in &chunks {
        mapped.append(to_python(py, map(chunk)?)?)?;
    }
    let chunked = py.import("pyarrow")?.getattr("chunked_array")?;
    Ok(Some(chunked.call1((mapped,))?))
}

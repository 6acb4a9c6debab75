//! Names of stored records.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::untracked::untrack;

/// The key of a record: its id in UTF-8.
pub fn record_key<'py>(id: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(id.py(), id.to_str()?.as_bytes()))
}

/// The name of a record. It holds nothing that could lead back to it, and there are so many of
/// them that the garbage collector need not find that out for each.
pub fn record_name<'py>(
    kind: &Bound<'py, PyString>,
    key: &Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, PyTuple>> {
    let name = (kind, key).into_pyobject(kind.py())?;
    untrack(&name);
    Ok(name)
}

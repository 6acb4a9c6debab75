//! Equality and `repr` of the frozen records that the boundary returns.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use shardwire_core::hex::hex;

/// A field's name and value.
pub type Field<'py> = (&'static str, Bound<'py, PyAny>);

/// A class whose value is its fields.
pub trait Record {
    /// The class's name.
    const NAME: &'static str;

    /// The fields in the order of the constructor or of `__match_args__`.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>>;

    /// Their values.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.fields(py)?.into_iter().map(|(_, value)| value))
    }

    /// Whether all fields are equal.
    fn equals(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.values(py)?.eq(other.values(py)?)
    }

    /// `Name(field=value, ...)`. Bytes beyond a hash are shown by their length: payloads appear in
    /// no log.
    fn repr(&self, py: Python<'_>) -> PyResult<String> {
        let mut parts = Vec::new();
        for (name, value) in self.fields(py)? {
            let shown = match value.cast::<PyBytes>() {
                Ok(bytes) if bytes.as_bytes().len() > 32 => {
                    format!("<{} bytes>", bytes.as_bytes().len())
                }
                Ok(bytes) if name.ends_with("hash") => hex(bytes.as_bytes()),
                Ok(bytes) => format!("<{} bytes>", bytes.as_bytes().len()),
                Err(_) => value.repr()?.to_string(),
            };
            parts.push(format!("{name}={shown}"));
        }
        Ok(format!("{}({})", Self::NAME, parts.join(", ")))
    }
}

/// A field of any value that converts.
pub fn field<'py, T>(py: Python<'py>, name: &'static str, value: T) -> PyResult<Field<'py>>
where
    T: IntoPyObjectExt<'py>,
{
    Ok((name, value.into_bound_py_any(py)?))
}

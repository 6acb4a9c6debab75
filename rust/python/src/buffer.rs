//! Buffers in: `bytes` is read in place, everything else is copied first.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// Work on fewer bytes than this keeps the GIL: letting go of it costs more than it gives.
pub const DETACH_BYTES_MIN: usize = 4096;

/// The bytes of any buffer. A mutable one could change under Rust, so it is copied.
#[derive(Debug, Clone)]
pub struct Buffer<'py>(Bound<'py, PyBytes>);

impl<'py> Buffer<'py> {
    /// The bytes, which stay as they are.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The object, where it is exactly a `bytes`.
    pub fn into_exact_bytes(self) -> Option<Bound<'py, PyBytes>> {
        self.0.is_exact_instance_of::<PyBytes>().then_some(self.0)
    }

    /// The bytes for code that runs without the GIL, and after the call.
    pub fn into_backed(self) -> PyBackedBytes {
        self.0.into()
    }

    /// A reference that outlives the call.
    pub fn unbind(self) -> Py<PyBytes> {
        self.0.unbind()
    }
}

impl<'py> FromPyObject<'_, 'py> for Buffer<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Buffer(bytes.to_owned()));
        }
        let view = PyMemoryView::from(&object).map_err(|_| {
            let kind = object.get_type();
            PyTypeError::new_err(format!("a bytes-like object is required, not '{kind}'"))
        })?;
        // `tobytes` takes a buffer that is not contiguous in its logical order.
        Ok(Buffer(view.call_method0("tobytes")?.cast_into()?))
    }
}

/// Runs `work`, without the GIL where it handles enough bytes.
pub fn detached<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes >= DETACH_BYTES_MIN {
        py.detach(work)
    } else {
        work()
    }
}

//! Time as the SDS machine is told it: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::PyInt;

/// One moment on both clocks. The numbers stay Python's own, which are read far more often there.
#[pyclass(frozen, get_all, module = "shardwire._native")]
pub struct Now {
    monotonic_ms: Py<PyInt>,
    epoch_ms: Py<PyInt>,
}

#[pymethods]
impl Now {
    #[new]
    fn new(monotonic_ms: Py<PyInt>, epoch_ms: Py<PyInt>) -> Self {
        Now {
            monotonic_ms,
            epoch_ms,
        }
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, Now>) -> PyResult<bool> {
        Ok(self.moment(py)? == other.get().moment(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.moment(py)?.into_pyobject(py)?.hash()
    }

    fn __repr__(&self) -> String {
        format!(
            "Now(monotonic_ms={}, epoch_ms={})",
            self.monotonic_ms, self.epoch_ms
        )
    }
}

impl Now {
    /// Monotonic and epoch milliseconds.
    pub fn moment(&self, py: Python<'_>) -> PyResult<(i64, i64)> {
        let (monotonic_ms, epoch_ms) = (self.monotonic_ms.bind(py), self.epoch_ms.bind(py));
        Ok((monotonic_ms.extract()?, epoch_ms.extract()?))
    }
}

/// Monotonic and epoch milliseconds of a `Now`.
pub fn moment(now: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
    now.cast::<Now>()?.get().moment(now.py())
}

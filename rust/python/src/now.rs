//! Time as the machines are told it: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use shardwire_core::sds;
use shardwire_stub::documented;

#[documented]
#[pyclass(frozen, eq, hash, get_all, module = "shardwire._native")]
#[derive(PartialEq, Eq, Hash, Clone, Copy)]
pub struct Now {
    monotonic_ms: i64,
    epoch_ms: i64,
}

#[documented]
#[pymethods]
impl Now {
    #[new]
    fn new(monotonic_ms: i64, epoch_ms: i64) -> Self {
        Now {
            monotonic_ms,
            epoch_ms,
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "Now(monotonic_ms={}, epoch_ms={})",
            self.monotonic_ms, self.epoch_ms
        )
    }
}

impl From<&Now> for sds::Now {
    fn from(now: &Now) -> Self {
        sds::Now {
            monotonic_ms: now.monotonic_ms,
            epoch_ms: now.epoch_ms,
        }
    }
}

//! Time as the machines are told it: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use shardwire_core::sds;
use shardwire_stub::documented;

use crate::arguments::{EpochMs, MonotonicMs, refused};

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
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("monotonic_ms", "epoch_ms")
    }

    #[new]
    fn new(monotonic_ms: MonotonicMs, epoch_ms: EpochMs) -> Self {
        Now {
            monotonic_ms: monotonic_ms.0,
            epoch_ms: epoch_ms.0,
        }
    }

    fn __getnewargs__(&self) -> (i64, i64) {
        (self.monotonic_ms, self.epoch_ms)
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

/// The argument `now`.
pub struct Moment(sds::Now);

impl FromPyObject<'_, '_> for Moment {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let now = object.cast::<Now>();
        now.map(|now| Moment(now.get().into()))
            .map_err(|_| refused("now", &object, "a Now"))
    }
}

impl From<Moment> for sds::Now {
    fn from(moment: Moment) -> Self {
        moment.0
    }
}

//! The Python module `shardwire._native`.

use pyo3::prelude::*;

#[pymodule]
mod _native {}

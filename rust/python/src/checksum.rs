//! Checksums: `_native.pyi`, "Checksums".

use pyo3::prelude::*;
use shardwire_core::crc32::crc32_after;
use shardwire_stub::documented;

use crate::buffer::Buffer;

/// Below this the GIL is kept: whoever lets go of it may wait for it 5 ms, and this takes 0.1 ms.
const DETACH_BYTES_MIN: usize = 1 << 20;

#[documented]
#[pyfunction]
#[pyo3(signature = (data, before = 0, /))]
pub fn crc32(py: Python<'_>, data: Buffer<'_>, before: u32) -> u32 {
    let bytes = data.as_bytes();
    if bytes.len() >= DETACH_BYTES_MIN {
        py.detach(|| crc32_after(before, bytes))
    } else {
        crc32_after(before, bytes)
    }
}

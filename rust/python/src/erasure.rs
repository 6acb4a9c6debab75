//! Reed-Solomon: `_native.pyi`, "Reed-Solomon".

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use shardwire_core::erasure::{self, ErasureCode};

use crate::buffer::{Buffer, detached};
use crate::error::Error;

/// The code that `name` names.
pub fn parse_code(name: &str) -> Result<ErasureCode, Error> {
    name.parse().map_err(|_| Error::Choice {
        field: "erasure_code",
        value: name.to_owned(),
        choices: "'leopard' or 'vandermonde'",
    })
}

/// The parity shards of data shards of equal length.
#[pyfunction]
pub fn erasure_encode<'py>(
    py: Python<'py>,
    data_shards: Vec<Buffer<'py>>,
    parity_count: usize,
    erasure_code: &str,
) -> Result<Bound<'py, PyList>, Error> {
    let code = parse_code(erasure_code)?;
    let shards: Vec<&[u8]> = data_shards.iter().map(Buffer::as_bytes).collect();
    let length = shards.first().map_or(0, |shard| shard.len());
    equal_lengths(&shards)?;
    let bytes = length * shards.len();
    let parity = detached(py, bytes, || {
        erasure::encode(code, &shards, parity_count, length)
    })?;
    Ok(PyList::new(
        py,
        parity.iter().map(|shard| PyBytes::new(py, shard)),
    )?)
}

/// All data shards, in order.
#[pyfunction]
pub fn erasure_reconstruct<'py>(
    py: Python<'py>,
    shards: Vec<Option<Buffer<'py>>>,
    data_count: usize,
    parity_count: usize,
    erasure_code: &str,
) -> Result<Bound<'py, PyList>, Error> {
    let code = parse_code(erasure_code)?;
    let slices: Vec<Option<&[u8]>> = shards
        .iter()
        .map(|shard| shard.as_ref().map(Buffer::as_bytes))
        .collect();
    let present: Vec<&[u8]> = slices.iter().flatten().copied().collect();
    equal_lengths(&present)?;
    let length = present.first().map_or(0, |shard| shard.len());
    let lost = detached(py, length * data_count.min(present.len()), || {
        erasure::reconstruct(code, &slices, data_count, parity_count, length)
    })?;
    let mut lost = lost.into_iter();
    let data = shards
        .into_iter()
        .take(data_count)
        .map(|shard| match shard {
            Some(shard) => shard.unbind().into_bound(py),
            None => {
                let (_, shard) = lost
                    .next()
                    .expect("every lost data shard was reconstructed");
                PyBytes::new(py, &shard)
            }
        });
    Ok(PyList::new(py, data.collect::<Vec<_>>())?)
}

fn equal_lengths(shards: &[&[u8]]) -> Result<(), erasure::ErasureError> {
    let shard_len = shards.first().map_or(0, |shard| shard.len());
    match shards.iter().position(|shard| shard.len() != shard_len) {
        Some(index) => {
            let len = shards[index].len();
            Err(erasure::ErasureError::UnequalShards {
                index,
                len,
                shard_len,
            })
        }
        None => Ok(()),
    }
}

//! Reed-Solomon: `_native.pyi`, "Reed-Solomon".

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use shardwire_core::erasure::{self, ErasureCode};
use shardwire_stub::documented;

use crate::buffer::{Buffer, items_of};
use crate::error::{Error, config_error};
use crate::fresh::{new_lost_shards, new_parity};

/// No code has places for more shards.
const SHARDS_MAX: usize = 1 << 16;

/// The code that `name` names.
pub fn parse_code(name: &str) -> Result<ErasureCode, Error> {
    name.parse().map_err(|_| Error::Choice {
        field: "erasure_code",
        value: name.to_owned(),
        choices: "'leopard' or 'vandermonde'",
    })
}

/// A number of shards; what is no such number is named with its value and the `limit`.
fn count(name: &str, value: &Bound<'_, PyAny>, limit: &str) -> Result<usize, Error> {
    value.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            let message = format!("{name} must be an integer: {}", error.value(value.py()));
            return Error::Python(PyTypeError::new_err(message));
        }
        let range = format!("it must be a number of shards, {limit}");
        Error::Python(match value.str() {
            Ok(value) => config_error(format!("{name} is {value}: {range}")),
            Err(_) => config_error(format!("{name} is too large: {range}")),
        })
    })
}

#[documented]
#[pyfunction]
pub fn erasure_encode<'py>(
    py: Python<'py>,
    data_shards: &Bound<'py, PyAny>,
    parity_count: &Bound<'py, PyAny>,
    erasure_code: &str,
) -> Result<Bound<'py, PyList>, Error> {
    let code = parse_code(erasure_code)?;
    let limit = match code {
        ErasureCode::Leopard => "from 0 to 128, at most as many as there are data shards",
        ErasureCode::Vandermonde => "from 0 to 255, with the data shards at most 256",
    };
    let parity_count = count("parity_count", parity_count, limit)?;
    let data_shards: Vec<Buffer<'py>> = items_of(data_shards, "data_shards", SHARDS_MAX, |item| {
        item.extract()
    })?;
    let shards: Vec<&[u8]> = data_shards.iter().map(Buffer::as_bytes).collect();
    let length = shards.first().map_or(0, |shard| shard.len());
    equal_lengths(shards.iter().copied().enumerate())?;
    let parity = new_parity(py, code, &shards, parity_count, length)?;
    Ok(PyList::new(py, parity)?)
}

#[documented]
#[pyfunction]
pub fn erasure_reconstruct<'py>(
    py: Python<'py>,
    shards: &Bound<'py, PyAny>,
    data_count: &Bound<'py, PyAny>,
    parity_count: &Bound<'py, PyAny>,
    erasure_code: &str,
) -> Result<Bound<'py, PyList>, Error> {
    let code = parse_code(erasure_code)?;
    // Leopard decodes more than it encodes: what its 16-bit field made elsewhere.
    let (data_limit, parity_limit) = match code {
        ErasureCode::Leopard => ("from 1 to 65536", "from 0 to 65535"),
        ErasureCode::Vandermonde => ("from 1 to 256", "from 0 to 255"),
    };
    let data_count = count("data_count", data_count, data_limit)?;
    let parity_count = count("parity_count", parity_count, parity_limit)?;
    let shards: Vec<Option<Buffer<'py>>> =
        items_of(shards, "shards", SHARDS_MAX, |item| item.extract())?;
    let slices: Vec<Option<&[u8]>> = shards
        .iter()
        .map(|shard| shard.as_ref().map(Buffer::as_bytes))
        .collect();
    let present = || {
        let shards = slices.iter().enumerate();
        shards.filter_map(|(index, shard)| Some((index, (*shard)?)))
    };
    equal_lengths(present())?;
    let length = present().next().map_or(0, |(_, shard)| shard.len());
    let counts = (data_count, parity_count);
    let mut lost = new_lost_shards(py, code, &slices, counts, length)?.into_iter();
    let data = shards
        .into_iter()
        .take(data_count)
        .map(|shard| match shard {
            Some(shard) => shard.unbind().into_bound(py),
            None => lost
                .next()
                .expect("every lost data shard was reconstructed"),
        });
    Ok(PyList::new(py, data.collect::<Vec<_>>())?)
}

/// `shards` with their places.
fn equal_lengths<'a>(
    mut shards: impl Iterator<Item = (usize, &'a [u8])>,
) -> Result<(), erasure::ErasureError> {
    let Some((_, first)) = shards.next() else {
        return Ok(());
    };
    let shard_len = first.len();
    match shards.find(|(_, shard)| shard.len() != shard_len) {
        Some((index, shard)) => Err(erasure::ErasureError::UnequalShards {
            index,
            len: shard.len(),
            shard_len,
        }),
        None => Ok(()),
    }
}

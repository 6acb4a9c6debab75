//! New `bytes` objects, allocated at their size, not zeroed, and written once without the GIL.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardwire_core::erasure::{self, ErasureCode};
use shardwire_core::sink::Sink;

use crate::buffer::detached;
use crate::error::Error;

/// The memory of an object that nobody else has seen yet.
pub struct Fresh<'a>(&'a mut [MaybeUninit<u8>]);

impl Sink for Fresh<'_> {
    /// # Panics
    /// If the object has no room for `bytes`.
    fn put(&mut self, bytes: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        // The compiler makes a memcpy of it.
        for (to, from) in to.iter_mut().zip(bytes) {
            to.write(*from);
        }
        self.0 = rest;
    }
}

/// One `bytes` for each of `lengths`, filled by `fill` with its position. What `fill` leaves is
/// zero.
pub fn new_bytes<'py>(
    py: Python<'py>,
    lengths: &[usize],
    fill: impl Fn(usize, &mut Fresh<'_>) + Sync,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let mut objects = allocate_all(py, lengths)?;
    let memories = memories_of(&mut objects, lengths);
    detached(py, lengths.iter().sum(), || {
        for (position, memory) in memories.into_iter().enumerate() {
            let mut fresh = Fresh(memory);
            fill(position, &mut fresh);
            fresh.0.fill(MaybeUninit::new(0));
        }
    });
    Ok(objects)
}

/// One `bytes` of all pieces, one after the other.
pub fn new_joined<'py>(py: Python<'py>, pieces: &[&[u8]]) -> PyResult<Bound<'py, PyBytes>> {
    let length = pieces.iter().map(|piece| piece.len()).sum();
    let mut object = [allocate(py, length)?];
    for memory in memories_of(&mut object, &[length]) {
        let mut fresh = Fresh(memory);
        for piece in pieces {
            fresh.put(piece);
        }
    }
    let [object] = object;
    Ok(object)
}

/// The parity of data shards, straight into the `bytes` that are returned.
pub fn new_parity<'py>(
    py: Python<'py>,
    code: ErasureCode,
    data: &[&[u8]],
    parity_count: usize,
    shard_len: usize,
) -> Result<Vec<Bound<'py, PyBytes>>, Error> {
    erasure::check_shards(code, data, parity_count, shard_len)?;
    let lengths = vec![shard_len; parity_count];
    let mut parity = allocate_all(py, &lengths)?;
    let mut memories = memories_of(&mut parity, &lengths);
    // On success it writes every byte; otherwise nobody sees the objects.
    detached(py, shard_len * data.len(), || {
        erasure::encode_uninit(code, data, shard_len, &mut memories)
    })?;
    Ok(parity)
}

/// The data shards that are missing, likewise.
pub fn new_lost_shards<'py>(
    py: Python<'py>,
    code: ErasureCode,
    shards: &[Option<&[u8]>],
    (data_count, parity_count): (usize, usize),
    shard_len: usize,
) -> Result<Vec<Bound<'py, PyBytes>>, Error> {
    let lost = erasure::lost_shards(code, shards, data_count, parity_count, shard_len)?;
    let lengths = vec![shard_len; lost.len()];
    let mut made = allocate_all(py, &lengths)?;
    let mut memories = memories_of(&mut made, &lengths);
    // On success it writes every byte; otherwise nobody sees the objects.
    detached(py, shard_len * data_count, || {
        erasure::reconstruct_uninit(
            code,
            shards,
            data_count,
            parity_count,
            shard_len,
            &mut memories,
        )
    })?;
    Ok(made)
}

fn allocate_all<'py>(py: Python<'py>, lengths: &[usize]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    lengths.iter().map(|length| allocate(py, *length)).collect()
}

/// Where the contents of new objects are written.
fn memories_of<'a>(
    objects: &'a mut [Bound<'_, PyBytes>],
    lengths: &[usize],
) -> Vec<&'a mut [MaybeUninit<u8>]> {
    objects
        .iter_mut()
        .zip(lengths)
        .map(|(object, length)| {
            // SAFETY: the object has `length` bytes, of which none is read before it is written. It
            // is borrowed until after the last use; but for the empty one, which has no byte to
            // write, it is new and nobody else knows of it.
            unsafe {
                let start = ffi::PyBytes_AsString(object.as_ptr()).cast::<MaybeUninit<u8>>();
                std::slice::from_raw_parts_mut(start, *length)
            }
        })
        .collect()
}

/// A `bytes` whose contents are not yet written.
fn allocate(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyBytes>> {
    let length = ffi::Py_ssize_t::try_from(length)?;
    // SAFETY: a null pointer asks for `length` bytes that are not initialised; the reference
    // returned is ours, or null with an exception set.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
        Ok(Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked())
    }
}

//! Bytes that Python and the core keep together.

use std::any::Any;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use shardwire_core::reassemble::{Lend, Lent};
use shardwire_core::sds::{Join, Octets};

use crate::buffer::Buffer;
use crate::fresh::new_joined;

/// Fewer bytes than this are copied: what surrounds a lent buffer would outweigh them.
const LENT_BYTES_MIN: usize = 4096;

/// The bytes of a buffer, in place where they are many.
pub fn octets(buffer: Buffer<'_>) -> Octets {
    if buffer.as_bytes().len() < LENT_BYTES_MIN {
        return Octets::from(buffer.as_bytes());
    }
    let lent: Lent = Arc::new(LentBytes(buffer.into_backed()));
    Octets::Lent(lent)
}

/// A `bytes` object that the core keeps.
pub struct LentBytes(pub PyBackedBytes);

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Lend for LentBytes {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Makes long messages that leave as `bytes`, which the machine keeps and the node is given.
pub struct IntoBytes;

impl Join for IntoBytes {
    fn join(&self, pieces: &[&[u8]]) -> Octets {
        let joined = Python::attach(|py| new_joined(py, pieces).map(PyBackedBytes::from));
        match joined {
            Ok(joined) => Octets::Lent(Arc::new(LentBytes(joined))),
            // Where there is no memory for it, whoever asks for the message is told.
            Err(_) => pieces.concat().into(),
        }
    }
}

/// Bytes of the core as an object: that which they came in, where there is one.
pub fn octets_object<'py>(py: Python<'py>, octets: &Octets) -> PyResult<Bound<'py, PyBytes>> {
    if let Octets::Lent(lent) = octets
        && let Some(LentBytes(backed)) = lent.as_any().downcast_ref()
    {
        return Ok(backed.into_bound_py_any(py)?.cast_into()?);
    }
    Ok(PyBytes::new(py, octets))
}

//! Changes of what is stored, as a dict.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::texts::Texts;

/// Records by kind and key, in the order in which they are put.
pub struct Records<'a, 'py> {
    dict: Bound<'py, PyDict>,
    /// Of more than one call: where words come and go with each, the table of Python that has them grows.
    kinds: &'a mut Texts,
    /// The key that was put last: records of one message come together, and its hash is known.
    last_key: Option<Bound<'py, PyBytes>>,
}

impl<'a, 'py> Records<'a, 'py> {
    /// None.
    pub fn new(py: Python<'py>, kinds: &'a mut Texts) -> Self {
        Records {
            dict: PyDict::new(py),
            kinds,
            last_key: None,
        }
    }

    /// Puts one record; None deletes.
    pub fn put(
        &mut self,
        kind: &'static str,
        key: &[u8],
        value: Option<Bound<'py, PyBytes>>,
    ) -> PyResult<()> {
        let py = self.dict.py();
        let key = match self.last_key.take() {
            Some(last) if last.as_bytes() == key => last,
            _ => PyBytes::new(py, key),
        };
        let kind = self.kinds.word(py, kind);
        self.dict.set_item((kind, &key), value)?;
        self.last_key = Some(key);
        Ok(())
    }

    /// All of them.
    pub fn into_dict(self) -> Bound<'py, PyDict> {
        self.dict
    }
}

//! The SDS bloom filter: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};
use shardwire_core::bloom;
use shardwire_stub::documented;

use crate::buffer::{Buffer, all_of};
use crate::error::Error;
use crate::sds::parse_sds_wire_format;

#[documented]
#[pyclass(module = "shardwire._native")]
pub struct BloomFilter(bloom::BloomFilter);

#[documented]
#[pymethods]
impl BloomFilter {
    #[new]
    #[pyo3(signature = (capacity = 10_000, error_rate = 0.001, wire_format = "spec"))]
    fn new(capacity: u64, error_rate: f64, wire_format: &str) -> Result<Self, Error> {
        let wire_format = parse_sds_wire_format(wire_format)?;
        Ok(BloomFilter(bloom::BloomFilter::new(
            capacity,
            error_rate,
            wire_format,
        )?))
    }

    #[getter]
    fn hash_count(&self) -> u64 {
        self.0.hash_count()
    }

    #[getter]
    fn bit_count(&self) -> u64 {
        self.0.bit_count()
    }

    #[getter]
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    #[pyo3(signature = (message_id, /))]
    fn insert(&mut self, message_id: &str) {
        self.0.insert(message_id.as_bytes());
    }

    #[pyo3(signature = (message_ids, /))]
    fn insert_many(slf: &Bound<'_, Self>, message_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        for message_id in message_ids.try_iter()? {
            // Borrowed for one at a time: what is iterated over may look at the filter.
            let message_id = message_id?;
            let message_id = message_id.cast::<PyString>()?.to_str()?;
            slf.try_borrow_mut()?.0.insert(message_id.as_bytes());
        }
        Ok(())
    }

    fn __contains__(&self, message_id: &str) -> bool {
        self.0.contains(message_id)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    #[pyo3(signature = (data, /))]
    fn load(&mut self, data: Buffer<'_>) -> bool {
        self.0.load(data.as_bytes())
    }

    #[pyo3(signature = (data, message_ids, /))]
    fn review(
        &self,
        data: Buffer<'_>,
        message_ids: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Vec<usize>>> {
        let message_ids: Vec<PyBackedStr> = all_of(message_ids, "message_ids")?;
        let message_ids = message_ids.iter().map(|message_id| &**message_id);
        Ok(self.0.review(data.as_bytes(), message_ids))
    }
}

//! The SDS bloom filter: `_native.pyi`, "Scalable Data Sync".

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyString};
use shardwire_core::bloom;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::sds::parse_sds_wire_format;
use crate::sds_log::{LocalLog, LogEntry};

/// The SDS bloom filter, byte-exact with @waku/sds ("spec") or nim-sds ("nim").
#[pyclass(module = "shardwire._native")]
pub struct BloomFilter(bloom::BloomFilter);

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

    /// Length of `to_bytes()`.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    #[pyo3(signature = (message_id, /))]
    fn insert(&mut self, message_id: &str) {
        self.0.insert(message_id);
    }

    #[pyo3(signature = (message_ids, /))]
    fn insert_many(&mut self, message_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        for message_id in message_ids.try_iter()? {
            self.0.insert(message_id?.cast::<PyString>()?.to_str()?);
        }
        Ok(())
    }

    /// Holds from now on the newest `count` entries of the log that came after the sequence
    /// number `after`, but for what `withholds` withholds; gives how many, and the sequence number
    /// of the oldest.
    #[pyo3(signature = (log, count, after, withholds, /))]
    fn refill(
        &mut self,
        log: &Bound<'_, LocalLog>,
        count: usize,
        after: u64,
        withholds: &Bound<'_, PyAny>,
    ) -> PyResult<(usize, Option<u64>)> {
        let py = log.py();
        self.0.clear();
        let (mut inserted, mut oldest) = (0, None);
        let newest = log.borrow().newest_arrivals(py, count);
        for entry in newest {
            let held = entry.borrow();
            if held.sequence <= after {
                continue;
            }
            oldest = Some(held.sequence);
            // Of what is delivered nothing is withheld.
            if held.send.is_some() && withholds.call1((&entry,))?.is_truthy()? {
                continue;
            }
            self.0.insert(held.message_id.to_str(py)?);
            inserted += 1;
        }
        Ok((inserted, oldest))
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

    /// Replaces the content; false, and unchanged, where the size is not this filter's.
    #[pyo3(signature = (data, /))]
    fn load(&mut self, data: Buffer<'_>) -> bool {
        self.0.load(data.as_bytes())
    }

    /// Positions in `message_ids` of those a peer's serialized filter holds.
    #[pyo3(signature = (data, message_ids, /))]
    fn review(&self, data: Buffer<'_>, message_ids: Vec<PyBackedStr>) -> Option<Vec<usize>> {
        self.0.review(
            data.as_bytes(),
            message_ids.iter().map(|message_id| &**message_id),
        )
    }

    /// Positions in `message_ids` of those that a filter of everything else in the log and in
    /// `message_ids` does not hold.
    #[pyo3(signature = (message_ids, log, /))]
    fn conclusive(
        &self,
        message_ids: Vec<PyBackedStr>,
        log: &Bound<'_, LocalLog>,
    ) -> PyResult<Vec<usize>> {
        let py = log.py();
        let ids: Vec<&str> = message_ids.iter().map(|id| &**id).collect();
        let asked: HashSet<&str> = ids.iter().copied().collect();
        let entries = log.borrow().newest_arrivals(py, usize::MAX);
        let held: Vec<Bound<'_, PyString>> = entries
            .iter()
            .map(|entry| entry.borrow().message_id.bind(py).clone())
            .collect();
        let texts: Vec<&str> = held.iter().map(|id| id.to_str()).collect::<PyResult<_>>()?;
        let others = texts.into_iter().filter(|id| !asked.contains(id));
        Ok(self.0.conclusive(&ids, others))
    }

    /// Which of the newest `count` entries of the log a peer's serialized filter lacks, of those
    /// that are delivered, came at the sequence number `settled` or before and are not of
    /// `sender_id`; none where the filter's size is unexpected, or it holds none of several.
    #[pyo3(signature = (data, log, count, settled, sender_id, /))]
    fn lacking<'py>(
        &self,
        data: Buffer<'_>,
        log: &Bound<'py, LocalLog>,
        count: usize,
        settled: u64,
        sender_id: &str,
    ) -> PyResult<Vec<Bound<'py, LogEntry>>> {
        let py = log.py();
        let newest = log.borrow().newest_arrivals(py, count);
        let (mut entries, mut ids) = (Vec::new(), Vec::new());
        for entry in newest {
            let held = entry.borrow();
            if held.sequence <= settled
                && held.send.is_none()
                && held.sender_id.to_str(py)? != sender_id
            {
                ids.push(held.message_id.bind(py).clone());
                drop(held);
                entries.push(entry);
            }
        }
        let texts: Vec<&str> = ids.iter().map(|id| id.to_str()).collect::<PyResult<_>>()?;
        let Some(held) = self.0.review(data.as_bytes(), texts) else {
            return Ok(Vec::new());
        };
        if held.is_empty() && entries.len() > 1 {
            return Ok(Vec::new());
        }
        let mut held = held.into_iter().peekable();
        let mut position = 0;
        entries.retain(|_| {
            position += 1;
            held.next_if_eq(&(position - 1)).is_none()
        });
        Ok(entries)
    }
}

//! `ReassemblerCore` of `_native.pyi`: arguments in, the machine run, records out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict};
use shardwire_core::reassemble::{
    Change, Discard, Drop, Lent, Limits, Reassembler, Receipt, Records, Stats,
};
use shardwire_core::sink::Sink;
use shardwire_stub::documented;

use crate::buffer::{Buffer, DETACH_BYTES_MIN, ITEMS_MAX, items_of};
use crate::fresh::new_bytes;
use crate::lent_bytes::LentBytes;
use crate::outcome::{self, SetDropped};
use crate::segmentation::SegmentationParameters;

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct ReassemblerCore(Mutex<Reassembler>);

impl ReassemblerCore {
    /// Nothing of Python runs while it is locked: whoever waits for it gets it.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Reassembler> {
        let locked = self.0.lock_py_attached(py);
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

#[documented]
#[pymethods]
impl ReassemblerCore {
    #[new]
    #[pyo3(signature = (
        parameters, *, sets_max, sets_per_sender_max, buffered_bytes_max,
        buffered_bytes_per_sender_max, unauthenticated_share, candidates_per_slot_max,
        completed_remembered_max, timeout_ms, work_budget
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument a limit, all by keyword"
    )]
    fn new(
        parameters: &SegmentationParameters,
        sets_max: u64,
        sets_per_sender_max: u64,
        buffered_bytes_max: u64,
        buffered_bytes_per_sender_max: u64,
        unauthenticated_share: f64,
        candidates_per_slot_max: usize,
        completed_remembered_max: usize,
        timeout_ms: i64,
        work_budget: u64,
    ) -> Self {
        let limits = Limits {
            sets_max,
            sets_per_sender_max,
            buffered_bytes_max,
            buffered_bytes_per_sender_max,
            unauthenticated_share,
            candidates_per_slot_max,
            completed_remembered_max,
            timeout_ms,
            work_budget,
        };
        ReassemblerCore(Mutex::new(Reassembler::new(parameters.inner, limits)))
    }

    #[pyo3(signature = (
        segment, *, now_ms, sender = None, authenticated = false, message_key = None
    ))]
    fn receive<'py>(
        &self,
        py: Python<'py>,
        segment: Buffer<'py>,
        now_ms: i64,
        sender: Option<PyBackedStr>,
        authenticated: bool,
        message_key: Option<Buffer<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let message_key = message_key.map(Buffer::into_backed);
        let length = segment.as_bytes().len();
        let segment: Lent = Arc::new(LentBytes(segment.into_backed()));
        let receipt = Receipt {
            now_ms,
            sender: sender.as_deref(),
            authenticated,
            message_key: message_key.as_deref(),
        };
        let outcome = if length < DETACH_BYTES_MIN {
            self.lock(py).receive_lent(&segment, &receipt)
        } else {
            // Locked without the GIL, which others need to be done.
            py.detach(|| {
                let mut core = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                core.receive_lent(&segment, &receipt)
            })
        };
        outcome::wrap(py, outcome)
    }

    fn expire(&self, py: Python<'_>, now_ms: i64) -> Vec<SetDropped> {
        let dropped = self.lock(py).expire(now_ms);
        dropped
            .into_iter()
            .map(|dropped| SetDropped::of(py, dropped))
            .collect()
    }

    fn poll_dropped(&self, py: Python<'_>) -> Vec<SetDropped> {
        let dropped = self.lock(py).poll_dropped();
        dropped
            .into_iter()
            .map(|dropped| SetDropped::of(py, dropped))
            .collect()
    }

    fn next_expiry_ms(&self, py: Python<'_>) -> Option<i64> {
        self.lock(py).next_expiry_ms()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.lock(py).stats();
        let counts = PyDict::new(py);
        set_stats(&counts, &stats)?;
        Ok(counts)
    }

    fn poll_persist<'py>(&self, py: Python<'py>) -> PyResult<Vec<Row<'py>>> {
        let mut rows = Rows::new(py);
        self.lock(py).poll_persist_into(&mut rows);
        rows.rows
    }

    fn restore(&self, py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = items_of(records, "records", ITEMS_MAX, |row| {
            row.extract::<(PyBackedStr, PyBackedBytes, PyBackedBytes)>()
                .map_err(|_| {
                    let name = row.get_type().name();
                    let name = name.map_or_else(|_| "this".to_owned(), |name| name.to_string());
                    let expected = "a tuple of a str and two bytes, as poll_persist gives";
                    PyTypeError::new_err(format!("it must be {expected}, not {name}"))
                })
        })?;
        let records = rows.iter().map(|(operation, key, value)| {
            let change = match &**operation {
                "put_segment" => Change::PutSegment,
                "put_completed" => Change::PutCompleted,
                "delete_set" => Change::DeleteSet,
                _ => Change::DeleteCompleted,
            };
            (change, &key[..], &value[..])
        });
        let records: Vec<_> = records.collect();
        py.detach(|| {
            let mut core = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            core.restore(records);
        });
        Ok(())
    }
}

/// Puts counts under the names that they have in the API.
pub fn set_stats(counts: &Bound<'_, PyDict>, stats: &Stats) -> PyResult<()> {
    for (name, count) in [
        ("received", stats.received),
        ("stored", stats.stored),
        ("reconstructed", stats.reconstructed),
        ("recovered", stats.recovered),
        ("bad_segments", stats.bad_segments),
        ("failed_reconstructions", stats.failed_reconstructions),
        ("displaced", stats.displaced),
        ("restore_ignored", stats.restore_ignored),
        ("sets_held", stats.sets_held),
        ("bytes_held", stats.bytes_held),
        ("senders_held", stats.senders_held),
        ("completed_remembered", stats.completed_remembered),
    ] {
        counts.set_item(name, count)?;
    }
    let discarded = Discard::ALL.map(Discard::name).into_iter();
    let dropped = Drop::ALL.map(Drop::name).into_iter();
    for (name, count) in discarded
        .zip(stats.discarded)
        .chain(dropped.zip(stats.dropped))
    {
        counts.set_item(name, count)?;
    }
    Ok(())
}

/// (op, key, value).
type Row<'py> = (&'static str, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Changes as Python takes them; the first failure to allocate stays.
struct Rows<'py> {
    py: Python<'py>,
    rows: PyResult<Vec<Row<'py>>>,
}

impl<'py> Rows<'py> {
    fn new(py: Python<'py>) -> Self {
        let rows = Ok(Vec::new());
        Rows { py, rows }
    }
}

impl Records for Rows<'_> {
    fn put(&mut self, change: Change, key: &[u8], parts: [&[u8]; 2]) {
        let Ok(rows) = &mut self.rows else { return };
        let length = parts.iter().map(|part| part.len()).sum();
        let value = new_bytes(self.py, &[length], |_, out| {
            parts.iter().for_each(|part| out.put(part));
        });
        match value {
            Ok(mut values) => {
                let value = values.pop().expect("one for one length");
                rows.push((change.name(), PyBytes::new(self.py, key), value));
            }
            Err(error) => self.rows = Err(error),
        }
    }
}

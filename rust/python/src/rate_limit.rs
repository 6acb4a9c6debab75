//! The rules of a rate limit: `_native.pyi`, "Rate limit".

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;
use shardwire_core::rate_limit::{self, Answer, Counts, Moment, Record, Terms};
use shardwire_core::sds::TransmitKind;
use shardwire_stub::documented;

use crate::allowance::Allowance;
use crate::sds_events::transmit_kinds;

type RecordTuple = (i64, i64, i64);

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct SharedQuota(Mutex<rate_limit::SharedQuota>);

impl SharedQuota {
    /// Nothing of Python runs while it is held.
    fn held(&self) -> MutexGuard<'_, rate_limit::SharedQuota> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn at(epoch_ms: i64, in_flight: i64) -> Moment {
    Moment {
        epoch_ms,
        in_flight,
    }
}

fn record_tuple(record: Record) -> RecordTuple {
    (record.epoch, record.epoch_size_ms, record.used)
}

fn kind_of(kind: &Bound<'_, PyAny>) -> PyResult<TransmitKind> {
    let mut members = TransmitKind::ALL
        .into_iter()
        .zip(transmit_kinds(kind.py())?);
    let found = members.find(|(_, member)| kind.is(*member));
    let wrong = || PyTypeError::new_err("a kind must be a member of TransmitKind");
    found.map(|(kind, _)| kind).ok_or_else(wrong)
}

#[documented]
#[pymethods]
impl SharedQuota {
    #[new]
    #[pyo3(signature = (*, epoch_size_ms, quota, counts, ack_reserve, ephemeral_max))]
    fn new(
        epoch_size_ms: i64,
        quota: i64,
        counts: &str,
        ack_reserve: i64,
        ephemeral_max: i64,
    ) -> PyResult<Self> {
        if epoch_size_ms < 1 || quota < 1 || ack_reserve < 0 {
            let text = "an epoch takes 1 ms and one place at least";
            return Err(PyValueError::new_err(text));
        }
        let counts = match counts {
            "message" => Counts::Message,
            "segment" => Counts::Segment,
            _ => {
                return Err(PyValueError::new_err(
                    "counts is \"message\" or \"segment\"",
                ));
            }
        };
        let terms = Terms {
            epoch_size_ms,
            quota,
            counts,
            ack_reserve,
            ephemeral_max,
        };
        Ok(SharedQuota(Mutex::new(rate_limit::SharedQuota::new(terms))))
    }

    fn add(&self, epoch: i64, epoch_size_ms: i64, used: i64) {
        self.held().add(Record {
            epoch,
            epoch_size_ms,
            used,
        });
    }

    fn close(&self, epoch_ms: i64, in_flight: i64) {
        self.held().close(at(epoch_ms, in_flight));
    }

    // --- members ---------------------------------------------------------------------------------

    fn join(&self, epoch_ms: i64, in_flight: i64) -> u64 {
        self.held().join(at(epoch_ms, in_flight))
    }

    fn leave(&self, member: u64) {
        self.held().leave(member);
    }

    // --- what may leave --------------------------------------------------------------------------

    #[getter]
    fn free_kinds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyFrozenSet>> {
        let free = self.held().free_kinds();
        let members = TransmitKind::ALL.into_iter().zip(transmit_kinds(py)?);
        PyFrozenSet::new(
            py,
            members
                .filter(|(kind, _)| free.has(*kind))
                .map(|(_, member)| member),
        )
    }

    fn enters(&self, epoch_ms: i64) -> bool {
        self.held().enters(epoch_ms)
    }

    fn allowance(&self, member: u64, epoch_ms: i64, in_flight: i64) -> Allowance {
        let now = at(epoch_ms, in_flight);
        self.held().allowance(member, now).into()
    }

    fn pass_over(&self, member: u64, epoch_ms: i64, in_flight: i64) {
        self.held().pass_over(member, at(epoch_ms, in_flight));
    }

    fn reopens_at_ms(&self, member: u64, kind: &Bound<'_, PyAny>, epoch_ms: i64) -> PyResult<i64> {
        let kind = kind_of(kind)?;
        Ok(self.held().reopens_at_ms(member, kind, epoch_ms))
    }

    #[getter]
    fn resets_at_ms(&self) -> i64 {
        self.held().resets_at_ms()
    }

    fn behind_ms(&self, epoch_ms: i64, in_flight: i64) -> i64 {
        self.held().behind_ms(at(epoch_ms, in_flight))
    }

    fn standing(&self, epoch_ms: i64, in_flight: i64) -> (i64, i64, i64) {
        let standing = self.held().standing(at(epoch_ms, in_flight));
        (standing.used, standing.total, standing.resets_at_ms)
    }

    fn is_open(&self, epoch: i64, epoch_ms: i64, in_flight: i64) -> bool {
        self.held().is_open(epoch, at(epoch_ms, in_flight))
    }

    fn give_back(&self, places: i64, epoch: i64) {
        self.held().give_back(places, epoch);
    }

    // --- counting --------------------------------------------------------------------------------

    fn request(&self, member: u64, kinds: Vec<Bound<'_, PyAny>>) -> PyResult<u64> {
        let kinds = kinds.iter().map(kind_of).collect::<PyResult<_>>()?;
        Ok(self.held().request(member, kinds))
    }

    fn asking(&self) -> Vec<u64> {
        self.held().asking().collect()
    }

    fn count_round(&self, epoch_ms: i64, in_flight: i64) -> bool {
        self.held().count_round(at(epoch_ms, in_flight))
    }

    fn handle_stored(&self) {
        self.held().handle_stored();
    }

    fn handle_store_failed(&self, epoch_ms: i64) -> bool {
        self.held().handle_store_failed(epoch_ms)
    }

    fn refuse_all(&self) {
        self.held().refuse_all();
    }

    fn poll_answers(&self) -> Vec<(u64, Vec<bool>, i64)> {
        let parts = |answer: Answer| (answer.request, answer.granted, answer.epoch);
        self.held().poll_answers().into_iter().map(parts).collect()
    }

    // --- what is stored --------------------------------------------------------------------------

    fn record(&self) -> RecordTuple {
        record_tuple(self.held().record())
    }

    fn poll_record(&self) -> Option<RecordTuple> {
        self.held().poll_record().map(record_tuple)
    }
}

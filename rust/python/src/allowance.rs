//! What a rate limit lets leave, as data: `_native.pyi`, "Channel".

use pyo3::prelude::*;
use shardwire_core::channel::{self, DropReason};
use shardwire_core::sds::TransmitKind;
use shardwire_stub::documented;

use crate::participant::kinds_of;
use crate::sds_events::transmit_kinds;

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct Allowance(channel::Allowance);

impl From<channel::Allowance> for Allowance {
    fn from(allowance: channel::Allowance) -> Self {
        Allowance(allowance)
    }
}

#[documented]
#[pymethods]
impl Allowance {
    #[new]
    #[pyo3(signature = (*, free, left, open_left, sync_left, ephemeral_left, repairs))]
    fn new(
        free: &Bound<'_, PyAny>,
        left: i64,
        open_left: i64,
        sync_left: i64,
        ephemeral_left: i64,
        repairs: bool,
    ) -> PyResult<Self> {
        Ok(Allowance(channel::Allowance {
            free: kinds_of(Some(free))?,
            left,
            open_left,
            sync_left,
            ephemeral_left,
            repairs,
        }))
    }

    #[pyo3(signature = (kind, taken = 0))]
    fn allows(&self, kind: &Bound<'_, PyAny>, taken: usize) -> PyResult<bool> {
        let members = TransmitKind::ALL
            .into_iter()
            .zip(transmit_kinds(kind.py())?);
        let found = members.into_iter().find(|(_, member)| kind.is(*member));
        Ok(found.is_some_and(|(kind, _)| self.0.kinds(taken).has(kind)))
    }

    #[pyo3(signature = (taken = 0))]
    fn ephemeral_drop_reason(&self, taken: usize) -> Option<&'static str> {
        self.0.drop_reason(taken).map(DropReason::name)
    }
}

/// What all limits of a channel let leave.
pub fn allowances_of(allowances: &[PyRef<'_, Allowance>]) -> Vec<channel::Allowance> {
    allowances.iter().map(|allowance| allowance.0).collect()
}

//! Sends of ours, as the machine of a channel has them: `_native.pyi`, "Channel".

use pyo3::prelude::*;
use pyo3::types::PyList;
use shardwire_core::channel::{OutcomeKind, OwnSend, OwnSends as Sends};
use shardwire_core::sds::Name;
use shardwire_stub::documented;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::participant::{Participant, with};
use crate::send_events::{announcement, send_event_object};

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct OwnSends {
    machine: Py<Participant>,
}

impl OwnSends {
    /// The sends of `machine`, which is a channel's.
    pub fn of(machine: Py<Participant>) -> Self {
        OwnSends { machine }
    }

    fn with<T>(&self, py: Python<'_>, act: impl FnOnce(&mut Sends) -> T) -> PyResult<T> {
        Ok(with(self.machine.get().lock_held(py)?, |channel| {
            act(channel.own_mut())
        }))
    }
}

#[documented]
#[pymethods]
impl OwnSends {
    // --- what is known ---------------------------------------------------------------------------

    fn of_request(&self, py: Python<'_>, request_id: &str) -> PyResult<Option<SendProgress>> {
        self.with(py, |sends| {
            let send_id = sends.send_id_of(request_id)?;
            sends.get(send_id).map(SendProgress::of)
        })
    }

    fn __contains__(&self, py: Python<'_>, send_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        match send_id.extract::<String>() {
            Ok(send_id) => self.with(py, |sends| sends.get(&send_id).is_some()),
            Err(_) => Ok(false),
        }
    }

    fn get(&self, py: Python<'_>, send_id: &str) -> PyResult<Option<SendProgress>> {
        self.with(py, |sends| sends.get(send_id).map(SendProgress::of))
    }

    fn pending(&self, py: Python<'_>) -> PyResult<Vec<SendProgress>> {
        self.with(py, |sends| sends.pending().map(SendProgress::of).collect())
    }

    fn pending_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |sends| sends.pending_count())
    }

    // --- what happens ----------------------------------------------------------------------------

    fn is_unannounced(
        &self,
        py: Python<'_>,
        send_id: &str,
        outcome: &str,
        request_id: &str,
    ) -> PyResult<bool> {
        self.with(py, |sends| {
            let kind = OutcomeKind::named(outcome);
            kind.is_some_and(|kind| sends.is_unannounced(send_id, kind, request_id))
        })
    }

    fn on_announced(
        &self,
        py: Python<'_>,
        send_id: &str,
        outcome: &str,
        request_id: &str,
    ) -> PyResult<()> {
        self.with(py, |sends| {
            if let Some(kind) = OutcomeKind::named(outcome) {
                sends.on_announced(send_id, kind, request_id);
            }
        })
    }

    // --- outputs ---------------------------------------------------------------------------------

    fn poll_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = self.with(py, Sends::poll_events)?;
        let objects = PyList::empty(py);
        for event in events {
            objects.append((send_event_object(py, &event)?, announcement(py, &event)))?;
        }
        Ok(objects)
    }
}

#[documented]
#[pyclass(frozen, get_all, module = "shardwire._native")]
pub struct SendProgress {
    request_ids: Vec<String>,
    message_id: String,
    data_count: u32,
    content_count: u32,
    dispatched_count: u32,
    propagated_count: u32,
    acknowledged_count: u32,
    delivered_to: Vec<String>,
    sent: bool,
    delivered: bool,
    is_stored: bool,
    error: String,
    error_stage: &'static str,
}

impl SendProgress {
    /// The progress of a send, as it is now.
    pub fn of(send: &OwnSend) -> Self {
        let (stage, error) = match &send.failure {
            Some((stage, error)) => (stage.name(), error.to_string()),
            None => ("", String::new()),
        };
        SendProgress {
            request_ids: send.request_ids.iter().map(Name::to_string).collect(),
            message_id: send.message_id.to_string(),
            data_count: send.data_count,
            content_count: send.content_count,
            dispatched_count: send.sending.count(),
            propagated_count: send.propagated.count(),
            acknowledged_count: send.acknowledged.count(),
            delivered_to: send.delivered_to.iter().map(ToString::to_string).collect(),
            sent: send.sent,
            delivered: send.delivered,
            is_stored: send.is_stored(),
            error,
            error_stage: stage,
        }
    }
}

#[documented]
#[pymethods]
impl SendProgress {
    #[staticmethod]
    fn decode(record: Buffer<'_>) -> Result<Self, Error> {
        Ok(SendProgress::of(&OwnSend::decode(record.as_bytes())?))
    }
}

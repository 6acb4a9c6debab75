//! Sends of ours, as the machine of a channel has them: `_native.pyi`, "Channel".

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFrozenSet, PyList, PyTuple};
use shardwire_core::channel::{
    Chunks, Kind, Outcome, OutcomeKind, OwnSend, OwnSends as Sends, Told,
};
use shardwire_core::sds::Name;
use shardwire_stub::documented;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::participant::{Participant, with};
use crate::texts::name;

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
        let told = self.with(py, Sends::poll_told)?;
        let events = PyList::empty(py);
        for told in told {
            events.append(event_object(py, told)?)?;
        }
        Ok(events)
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

/// The classes of events by their kind, that which names chunks, and that of what is not sent.
struct Classes {
    events: Vec<Py<PyAny>>,
    chunk_info: Py<PyAny>,
    dropped: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let module = py.import("shardwire.events")?;
        let mut events = Vec::new();
        for class in module.getattr("SEND_EVENTS")?.try_iter()? {
            events.push(class?.unbind());
        }
        Ok(Classes {
            events,
            chunk_info: module.getattr("ChunkInfo")?.unbind(),
            dropped: module.getattr("EphemeralDroppedEvent")?.unbind(),
        })
    })
}

fn event_object<'py>(py: Python<'py>, told: Told) -> PyResult<Bound<'py, PyTuple>> {
    let classes = classes(py)?;
    let class = |kind: Kind| classes.events[kind as usize].bind(py);
    match told {
        Told::Chunks {
            what,
            message_id,
            request_id,
            chunks,
            total,
        } => {
            let chunks = PyTuple::new(py, chunks)?;
            let info = classes.chunk_info.bind(py).call1((chunks, total))?;
            let (message_id, request_id) = (name(py, &message_id), name(py, &request_id));
            let event = match what {
                Chunks::Sending => class(Kind::ChunkSending).call1((message_id, request_id, info)),
                Chunks::Sent => class(Kind::ChunkSent).call1((message_id, request_id, info)),
                Chunks::PossiblyAcknowledged => {
                    let class = class(Kind::ChunkPossiblyAcknowledged);
                    class.call1((message_id, request_id, info))
                }
                Chunks::Acknowledged { by } => {
                    let class = class(Kind::ChunkAcknowledged);
                    class.call1((message_id, request_id, info, &*by))
                }
                Chunks::Failed { error } => {
                    class(Kind::ChunkError).call1((message_id, request_id, info, &*error))
                }
            };
            (event?, py.None()).into_pyobject(py)
        }
        Told::Dropped {
            message_id,
            request_id,
            reason,
        } => {
            let (message_id, request_id) = (name(py, &message_id), name(py, &request_id));
            let dropped = classes.dropped.bind(py);
            let event = dropped.call1((message_id, request_id, reason.name()))?;
            (event, py.None()).into_pyobject(py)
        }
        Told::Outcome {
            what,
            send_id,
            message_id,
            request_id,
        } => {
            let outcome = what.kind().name();
            let (request_id, message_id) = (name(py, &request_id), name(py, &message_id));
            let said = (request_id.clone_ref(py), message_id);
            let event = match what {
                Outcome::Sent => class(Kind::MessageSent).call1(said),
                Outcome::Delivered { to } => {
                    let to = PyFrozenSet::new(py, to.iter().map(|participant| &**participant))?;
                    class(Kind::MessageDelivered).call1((said.0, said.1, to))
                }
                Outcome::Failed { stage, error } => {
                    let class = class(Kind::MessageSendError);
                    class.call1((said.0, said.1, &*error, stage.name()))
                }
            };
            (event?, (name(py, &send_id), outcome, request_id)).into_pyobject(py)
        }
    }
}

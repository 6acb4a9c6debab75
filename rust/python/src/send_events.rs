//! The events of our sends as objects of `shardwire.events`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFrozenSet, PyString, PyTuple};
use shardwire_core::channel::{ChunkProgress, RequestIds, SendEvent, SendEventKind};
use shardwire_core::sds::Name;

use crate::arguments::refused;
use crate::texts::name;

/// The classes of `shardwire.events` that are made here.
struct Classes {
    chunk_info: Py<PyAny>,
    chunk_sending: Py<PyAny>,
    chunk_sent: Py<PyAny>,
    chunk_possibly_acknowledged: Py<PyAny>,
    chunk_acknowledged: Py<PyAny>,
    chunk_error: Py<PyAny>,
    message_sent: Py<PyAny>,
    message_delivered: Py<PyAny>,
    message_send_error: Py<PyAny>,
    ephemeral_dropped: Py<PyAny>,
}

fn classes(py: Python<'_>) -> PyResult<&'static Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let module = py.import("shardwire.events")?;
        let class = |name: &str| Ok::<_, PyErr>(module.getattr(name)?.unbind());
        Ok(Classes {
            chunk_info: class("ChunkInfo")?,
            chunk_sending: class("ChunkSendingEvent")?,
            chunk_sent: class("ChunkSentEvent")?,
            chunk_possibly_acknowledged: class("ChunkPossiblyAcknowledgedEvent")?,
            chunk_acknowledged: class("ChunkAcknowledgedEvent")?,
            chunk_error: class("ChunkErrorEvent")?,
            message_sent: class("MessageSentEvent")?,
            message_delivered: class("MessageDeliveredEvent")?,
            message_send_error: class("MessageSendErrorEvent")?,
            ephemeral_dropped: class("EphemeralDroppedEvent")?,
        })
    })
}

/// The kinds that have these names.
pub fn kinds_named(names: Vec<Bound<'_, PyString>>) -> PyResult<Vec<SendEventKind>> {
    let named = |name: Bound<'_, PyString>| {
        SendEventKind::named(&name.to_string_lossy())
            .ok_or_else(|| refused("events", &name, "names of events of sends"))
    };
    names.into_iter().map(named).collect()
}

/// An event of the core as an object.
pub fn send_event_object<'py>(py: Python<'py>, event: &SendEvent) -> PyResult<Bound<'py, PyAny>> {
    let classes = classes(py)?;
    // Events of 003 begin with the request, those of 004 with the message.
    let ids = |ids: &RequestIds| (name(py, &ids.request_id), name(py, &ids.message_id));
    let progress = |of: &ChunkProgress| {
        let chunks = PyTuple::new(py, &of.chunks)?;
        let info = classes.chunk_info.bind(py).call1((chunks, of.total))?;
        Ok::<_, PyErr>((name(py, &of.message_id), name(py, &of.request_id), info))
    };
    match event {
        SendEvent::ChunkSending(of) => classes.chunk_sending.bind(py).call1(progress(of)?),
        SendEvent::ChunkSent(of) => classes.chunk_sent.bind(py).call1(progress(of)?),
        SendEvent::ChunkPossiblyAcknowledged(of) => {
            let class = classes.chunk_possibly_acknowledged.bind(py);
            class.call1(progress(of)?)
        }
        SendEvent::ChunkAcknowledged { progress: of, by } => {
            let (message_id, request_id, info) = progress(of)?;
            let class = classes.chunk_acknowledged.bind(py);
            class.call1((message_id, request_id, info, &**by))
        }
        SendEvent::ChunkError {
            progress: of,
            error,
        } => {
            let (message_id, request_id, info) = progress(of)?;
            let class = classes.chunk_error.bind(py);
            class.call1((message_id, request_id, info, &**error))
        }
        SendEvent::MessageSent(of) => classes.message_sent.bind(py).call1(ids(of)),
        SendEvent::MessageDelivered { ids: of, to } => {
            let (request_id, message_id) = ids(of);
            let to = PyFrozenSet::new(py, to.iter().map(|participant| &**participant))?;
            let class = classes.message_delivered.bind(py);
            class.call1((request_id, message_id, to))
        }
        SendEvent::MessageSendError {
            ids: of,
            stage,
            error,
        } => {
            let (request_id, message_id) = ids(of);
            let class = classes.message_send_error.bind(py);
            class.call1((request_id, message_id, &**error, stage.name()))
        }
        SendEvent::EphemeralDropped {
            message_id,
            request_id,
            reason,
        } => {
            let (message_id, request_id) = (name(py, message_id), name(py, request_id));
            let class = classes.ephemeral_dropped.bind(py);
            class.call1((message_id, request_id, reason.name()))
        }
    }
}

/// Send, outcome and request, of which the machine is told that the event was announced; `None` where
/// it need not know.
pub fn announcement(
    py: Python<'_>,
    event: &SendEvent,
) -> Option<(Py<PyString>, &'static str, Py<PyString>)> {
    let named = |of: &Name| name(py, of);
    event
        .outcome()
        .map(|(kind, ids)| (named(&ids.send_id), kind.name(), named(&ids.request_id)))
}

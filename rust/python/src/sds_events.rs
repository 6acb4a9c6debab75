//! What leaves the SDS machine: `_native.pyi`, "Scalable Data Sync".

use pyo3::PyClassInitializer;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use shardwire_core::sds::{self, Event};
use shardwire_stub::documented;

use crate::lent_bytes::octets_object;
use crate::sds::HistoryEntry;
use crate::texts::{Texts, name};

#[documented]
#[pyclass(subclass, frozen, module = "shardwire._native")]
pub struct SdsEvent;

#[documented]
#[pymethods]
impl SdsEvent {
    #[new]
    #[pyo3(signature = (*_arguments, **_named))]
    fn new(_arguments: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Self {
        SdsEvent
    }
}

/// The comparison of two objects whose fields are `names`, as a dataclass does it.
pub fn compared(
    one: &Bound<'_, PyAny>,
    other: &Bound<'_, PyAny>,
    operation: CompareOp,
    names: &[&str],
) -> PyResult<Py<PyAny>> {
    let py = one.py();
    let wanted = match operation {
        CompareOp::Eq => true,
        CompareOp::Ne => false,
        _ => return Ok(py.NotImplemented()),
    };
    if !one.get_type().is(other.get_type()) {
        return Ok(py.NotImplemented());
    }
    let mut same = true;
    for name in names {
        same &= one.getattr(*name)?.eq(other.getattr(*name)?)?;
    }
    Ok((same == wanted)
        .into_pyobject(py)?
        .to_owned()
        .into_any()
        .unbind())
}

/// The fields of an object, in their order.
pub fn fields<'py>(object: &Bound<'py, PyAny>, names: &[&str]) -> PyResult<Bound<'py, PyTuple>> {
    let fields = names.iter().map(|name| object.getattr(*name));
    PyTuple::new(object.py(), fields.collect::<PyResult<Vec<_>>>()?)
}

/// The fields of an object but those of content.
pub fn shown(object: &Bound<'_, PyAny>, names: &[&str]) -> PyResult<String> {
    let mut fields = Vec::new();
    for name in names
        .iter()
        .filter(|name| !["content", "payload"].contains(name))
    {
        fields.push(format!("{name}={}", object.getattr(*name)?.repr()?));
    }
    let kind = object.get_type().name()?;
    Ok(format!("{kind}({})", fields.join(", ")))
}

macro_rules! output {
    (
        $name:ident { $($field:ident: $type:ty),+ $(,)? } ($($signature:tt)*)
        $(: $base:ident)?
    ) => {
        #[shardwire_stub::documented]
        #[pyclass(frozen, get_all, module = "shardwire._native" $(, extends = $base)?)]
        pub struct $name {
            $(pub $field: $type,)+
        }

        #[shardwire_stub::documented]
        #[pymethods]
        impl $name {
            #[classattr]
            fn __match_args__() -> ($(output!(@text $field),)+) {
                ($(stringify!($field),)+)
            }

            #[new]
            #[pyo3(signature = ($($signature)*))]
            #[allow(clippy::too_many_arguments)]
            fn new($($field: $type),+) -> output!(@made $name $($base)?) {
                output!(@make $($base)? ; $name { $($field),+ })
            }

            fn __richcmp__(
                slf: &Bound<'_, Self>,
                other: &Bound<'_, PyAny>,
                operation: CompareOp,
            ) -> PyResult<Py<PyAny>> {
                $crate::sds_events::compared(slf.as_any(), other, operation, &[$(stringify!($field)),+])
            }

            fn __hash__(slf: &Bound<'_, Self>) -> PyResult<isize> {
                let fields = $crate::sds_events::fields(slf.as_any(), &[$(stringify!($field)),+])?;
                (slf.get_type(), fields).into_pyobject(slf.py())?.hash()
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
                let fields = $crate::sds_events::fields(slf.as_any(), &[$(stringify!($field)),+])?;
                Ok((slf.get_type(), fields))
            }

            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                $crate::sds_events::shown(slf.as_any(), &[$(stringify!($field)),+])
            }
        }
    };
    (@text $field:ident) => { &'static str };
    (@made $name:ident) => { Self };
    (@made $name:ident $base:ident) => { PyClassInitializer<Self> };
    (@make ; $made:expr) => { $made };
    (@make $base:ident ; $made:expr) => {
        PyClassInitializer::from($base).add_subclass($made)
    };
}

pub(crate) use output;

output! {
    Transmit {
        transmit_id: u64,
        kind: Py<PyAny>,
        message_id: Py<PyString>,
        payload: Py<PyBytes>,
        send_id: Option<Py<PyString>>,
        ordinal: Option<u32>,
        attempt: u32,
    } (transmit_id, kind, message_id, payload, send_id = None, ordinal = None, attempt = 0)
}

output! {
    ContentReceived {
        message_id: Py<PyString>,
        sender_id: Py<PyString>,
        content: Py<PyBytes>,
        send_id: Option<Py<PyString>>,
        ordinal: Option<u32>,
    } (message_id, sender_id, content, send_id = None, ordinal = None)
    : SdsEvent
}

output! {
    SendReleased {
        sender_id: Py<PyString>,
        send_id: Py<PyString>,
        late: bool,
    } (sender_id, send_id, late = false)
    : SdsEvent
}

output! {
    ContentAcknowledged {
        send_id: Py<PyString>,
        ordinal: u32,
        message_id: Py<PyString>,
        by: Py<PyString>,
    } (send_id, ordinal, message_id, by)
    : SdsEvent
}

output! {
    SendAcknowledged {
        send_id: Py<PyString>,
        by: Py<PyString>,
    } (send_id, by)
    : SdsEvent
}

output! {
    MissingDetected {
        entries: Py<PyTuple>,
    } (entries)
    : SdsEvent
}

output! {
    EphemeralReceived {
        message_id: Py<PyString>,
        sender_id: Py<PyString>,
        content: Py<PyBytes>,
    } (message_id, sender_id, content)
    : SdsEvent
}

output! {
    ContentPossiblyAcknowledged {
        send_id: Py<PyString>,
        ordinal: u32,
        message_id: Py<PyString>,
        by: Py<PyString>,
        count: usize,
    } (send_id, ordinal, message_id, by, count)
    : SdsEvent
}

output! {
    ContentsWanted {
        send_id: Py<PyString>,
        count: u32,
    } (send_id, count)
    : SdsEvent
}

output! {
    SendGivenUp {
        send_id: Py<PyString>,
        unacknowledged: Py<PyTuple>,
    } (send_id, unacknowledged)
    : SdsEvent
}

output! {
    DependencyLost {
        entry: Py<HistoryEntry>,
    } (entry)
    : SdsEvent
}

output! {
    SyncReceived {
        sender_id: Py<PyString>,
    } (sender_id)
    : SdsEvent
}

output! {
    SenderIdConflict {
        message_id: Py<PyString>,
    } (message_id)
    : SdsEvent
}

output! {
    MessageDropped {
        reason: Py<PyString>,
    } (reason)
    : SdsEvent
}

pub fn text(py: Python<'_>, text: &str) -> Py<PyString> {
    PyString::new(py, text).unbind()
}

/// One event as an object.
pub fn made<'py, T>(py: Python<'py>, event: T) -> PyResult<Bound<'py, SdsEvent>>
where
    T: pyo3::PyClass<BaseType = SdsEvent>,
{
    let event = PyClassInitializer::from(SdsEvent).add_subclass(event);
    Ok(Bound::new(py, event)?.into_super())
}

/// An event of the core as an object.
pub fn event_object<'py>(
    py: Python<'py>,
    event: Event,
    texts: &mut Texts,
) -> PyResult<Bound<'py, SdsEvent>> {
    let entry = |entry| Py::new(py, HistoryEntry::from(entry));
    match event {
        Event::ContentReceived {
            message_id,
            sender_id,
            content,
            send_id,
            ordinal,
        } => made(
            py,
            ContentReceived {
                message_id: name(py, &message_id),
                sender_id: texts.sender(py, &sender_id),
                content: PyBytes::new(py, &content).unbind(),
                send_id: send_id.map(|send_id| texts.send(py, &send_id)),
                ordinal,
            },
        ),
        Event::EphemeralReceived {
            message_id,
            sender_id,
            content,
        }
        // Only where members make parity, and then the channel of the core takes it.
        | Event::ParityReceived {
            message_id,
            sender_id,
            content,
            ..
        } => made(
            py,
            EphemeralReceived {
                message_id: name(py, &message_id),
                sender_id: texts.sender(py, &sender_id),
                content: PyBytes::new(py, &content).unbind(),
            },
        ),
        Event::SendReleased {
            sender_id,
            send_id,
            late,
        } => made(
            py,
            SendReleased {
                sender_id: texts.sender(py, &sender_id),
                send_id: texts.send(py, &send_id),
                late,
            },
        ),
        Event::ContentAcknowledged {
            send_id,
            ordinal,
            message_id,
            by,
        } => made(
            py,
            ContentAcknowledged {
                send_id: texts.send(py, &send_id),
                ordinal,
                message_id: name(py, &message_id),
                by: texts.sender(py, &by),
            },
        ),
        Event::ContentPossiblyAcknowledged {
            send_id,
            ordinal,
            message_id,
            by,
            count,
        } => made(
            py,
            ContentPossiblyAcknowledged {
                send_id: texts.send(py, &send_id),
                ordinal,
                message_id: name(py, &message_id),
                by: texts.sender(py, &by),
                count,
            },
        ),
        Event::SendAcknowledged { send_id, by } => made(
            py,
            SendAcknowledged {
                send_id: texts.send(py, &send_id),
                by: texts.sender(py, &by),
            },
        ),
        // As above.
        Event::ContentsWanted { send_id, count } | Event::ParityWanted { send_id, count, .. } => made(
            py,
            ContentsWanted {
                send_id: texts.send(py, &send_id),
                count,
            },
        ),
        Event::SendGivenUp {
            send_id,
            unacknowledged,
        } => made(
            py,
            SendGivenUp {
                send_id: texts.send(py, &send_id),
                unacknowledged: PyTuple::new(py, unacknowledged)?.unbind(),
            },
        ),
        Event::MissingDetected(entries) => {
            let entries = entries.into_iter().map(HistoryEntry::from);
            let entries = PyTuple::new(py, entries.collect::<Vec<_>>())?.unbind();
            made(py, MissingDetected { entries })
        }
        Event::DependencyLost(lost) => made(
            py,
            DependencyLost {
                entry: entry(lost)?,
            },
        ),
        Event::SyncReceived { sender_id } => made(
            py,
            SyncReceived {
                sender_id: texts.sender(py, &sender_id),
            },
        ),
        Event::SenderIdConflict { message_id } => made(
            py,
            SenderIdConflict {
                message_id: name(py, &message_id),
            },
        ),
        Event::MessageDropped(reason) => made(
            py,
            MessageDropped {
                reason: texts.word(py, reason.name()),
            },
        ),
    }
}

/// The members of `TransmitKind`, in the order of the core's.
pub fn transmit_kinds(py: Python<'_>) -> PyResult<&'static [Py<PyAny>; 6]> {
    static KINDS: PyOnceLock<[Py<PyAny>; 6]> = PyOnceLock::new();
    KINDS.get_or_try_init(py, || {
        let class = py
            .import("shardwire.sds.outputs")?
            .getattr("TransmitKind")?;
        let mut members = Vec::with_capacity(6);
        for kind in sds::TransmitKind::ALL {
            members.push(class.call1((kind.name(),))?.unbind());
        }
        members
            .try_into()
            .map_err(|_| pyo3::exceptions::PyRuntimeError::new_err("six kinds"))
    })
}

/// A message to transmit as an object.
pub fn transmit_object(py: Python<'_>, transmit: sds::Transmit) -> PyResult<Transmit> {
    Ok(Transmit {
        transmit_id: transmit.transmit_id,
        kind: transmit_kinds(py)?[transmit.kind as usize].clone_ref(py),
        message_id: name(py, &transmit.message_id),
        payload: octets_object(py, &transmit.payload)?.unbind(),
        send_id: transmit.send_id.as_ref().map(|send_id| name(py, send_id)),
        ordinal: transmit.ordinal,
        attempt: transmit.attempt,
    })
}

//! What leaves the SDS machine: `_native.pyi`, "Scalable Data Sync".

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, PyClassInitializer};
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
    let same = fields(one, names)?.eq(fields(other, names)?)?;
    (same == wanted).into_py_any(py)
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

/// Classes of events, each with the event of the core that becomes it and what its fields are then; and the
/// function that makes their objects. What `else` says is made elsewhere.
macro_rules! events {
    (
        fn $object:ident($py:ident, $event:ty, $texts:ident) $(else $other:pat => $elsewhere:expr)?;
        $(
            $pattern:pat => $name:ident { $($field:ident: $type:ty = $made:expr),+ $(,)? }
            ($($signature:tt)*)
        )+
    ) => {
        $($crate::sds_events::output! { $name { $($field: $type),+ } ($($signature)*): SdsEvent })+

        /// An event of the core as an object.
        pub fn $object<'py>(
            $py: Python<'py>,
            event: $event,
            $texts: &mut Texts,
        ) -> PyResult<Bound<'py, SdsEvent>> {
            match event {
                $($pattern => $crate::sds_events::made($py, $name { $($field: $made),+ }),)+
                $($other => $elsewhere,)?
            }
        }
    };
}

pub(crate) use {events, output};

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

events! {
    fn event_object(py, Event, texts);

    Event::ContentReceived { message_id, sender_id, content, send_id, ordinal } => ContentReceived {
        message_id: Py<PyString> = name(py, &message_id),
        sender_id: Py<PyString> = texts.sender(py, &sender_id),
        content: Py<PyBytes> = PyBytes::new(py, &content).unbind(),
        send_id: Option<Py<PyString>> = send_id.map(|send_id| texts.send(py, &send_id)),
        ordinal: Option<u32> = ordinal,
    } (message_id, sender_id, content, send_id = None, ordinal = None)

    Event::SendReleased { sender_id, send_id, late } => SendReleased {
        sender_id: Py<PyString> = texts.sender(py, &sender_id),
        send_id: Py<PyString> = texts.send(py, &send_id),
        late: bool = late,
    } (sender_id, send_id, late = false)

    Event::ContentAcknowledged { send_id, ordinal, message_id, by } => ContentAcknowledged {
        send_id: Py<PyString> = texts.send(py, &send_id),
        ordinal: u32 = ordinal,
        message_id: Py<PyString> = name(py, &message_id),
        by: Py<PyString> = texts.sender(py, &by),
    } (send_id, ordinal, message_id, by)

    Event::SendAcknowledged { send_id, by } => SendAcknowledged {
        send_id: Py<PyString> = texts.send(py, &send_id),
        by: Py<PyString> = texts.sender(py, &by),
    } (send_id, by)

    Event::MissingDetected(missing) => MissingDetected {
        entries: Py<PyTuple> = PyTuple::new(py, missing.into_iter().map(HistoryEntry::from))?.unbind(),
    } (entries)

    Event::EphemeralReceived { message_id, sender_id, content }
    // Only where members make parity, and then the channel of the core takes it.
    | Event::ParityReceived { message_id, sender_id, content, .. } => EphemeralReceived {
        message_id: Py<PyString> = name(py, &message_id),
        sender_id: Py<PyString> = texts.sender(py, &sender_id),
        content: Py<PyBytes> = PyBytes::new(py, &content).unbind(),
    } (message_id, sender_id, content)

    Event::ContentPossiblyAcknowledged { send_id, ordinal, message_id, by, count }
    => ContentPossiblyAcknowledged {
        send_id: Py<PyString> = texts.send(py, &send_id),
        ordinal: u32 = ordinal,
        message_id: Py<PyString> = name(py, &message_id),
        by: Py<PyString> = texts.sender(py, &by),
        count: usize = count,
    } (send_id, ordinal, message_id, by, count)

    // As above.
    Event::ContentsWanted { send_id, count } | Event::ParityWanted { send_id, count, .. } => ContentsWanted {
        send_id: Py<PyString> = texts.send(py, &send_id),
        count: u32 = count,
    } (send_id, count)

    Event::SendGivenUp { send_id, unacknowledged } => SendGivenUp {
        send_id: Py<PyString> = texts.send(py, &send_id),
        unacknowledged: Py<PyTuple> = PyTuple::new(py, unacknowledged)?.unbind(),
    } (send_id, unacknowledged)

    Event::DependencyLost(entry) => DependencyLost {
        entry: Py<HistoryEntry> = Py::new(py, HistoryEntry::from(entry))?,
    } (entry)

    Event::SyncReceived { sender_id } => SyncReceived {
        sender_id: Py<PyString> = texts.sender(py, &sender_id),
    } (sender_id)

    Event::SenderIdConflict { message_id } => SenderIdConflict {
        message_id: Py<PyString> = name(py, &message_id),
    } (message_id)

    Event::MessageDropped(reason) => MessageDropped {
        reason: Py<PyString> = texts.word(py, reason.name()),
    } (reason)
}

/// The members of `TransmitKind`, in the order of the core's.
pub fn transmit_kinds(py: Python<'_>) -> PyResult<&'static Vec<Py<PyAny>>> {
    static KINDS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();
    KINDS.get_or_try_init(py, || {
        let class = py
            .import("shardwire.sds.outputs")?
            .getattr("TransmitKind")?;
        let member = |kind: sds::TransmitKind| Ok(class.call1((kind.name(),))?.unbind());
        sds::TransmitKind::ALL.into_iter().map(member).collect()
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

//! What leaves the SDS machine for every message, made in one allocation each: `_native.pyi`,
//! "Scalable Data Sync".

use std::collections::VecDeque;

use pyo3::PyClassInitializer;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};

use crate::untracked::untrack;

/// Base of what `poll_event` gives. Two events are equal where their class and all fields are.
#[pyclass(subclass, frozen, module = "shardwire._native")]
pub struct SdsEvent;

#[pymethods]
impl SdsEvent {
    #[new]
    #[pyo3(signature = (*_arguments, **_named))]
    fn new(_arguments: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Self {
        SdsEvent
    }
}

/// The comparison of two objects whose fields are `names`, as a dataclass does it.
fn compared(
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
fn fields<'py>(object: &Bound<'py, PyAny>, names: &[&str]) -> PyResult<Bound<'py, PyTuple>> {
    let fields = names.iter().map(|name| object.getattr(*name));
    PyTuple::new(object.py(), fields.collect::<PyResult<Vec<_>>>()?)
}

/// The fields of an object but those of content.
fn shown(object: &Bound<'_, PyAny>, names: &[&str]) -> PyResult<String> {
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
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $type:ty),+ $(,)? } ($($signature:tt)*)
        $(: $base:ident)?
    ) => {
        $(#[$doc])*
        #[pyclass(frozen, get_all, module = "shardwire._native" $(, extends = $base)?)]
        pub struct $name {
            $(pub $field: $type,)+
        }

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
                compared(slf.as_any(), other, operation, &[$(stringify!($field)),+])
            }

            fn __hash__(slf: &Bound<'_, Self>) -> PyResult<isize> {
                let fields = fields(slf.as_any(), &[$(stringify!($field)),+])?;
                (slf.get_type(), fields).into_pyobject(slf.py())?.hash()
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, PyType>, Bound<'py, PyTuple>)> {
                let fields = fields(slf.as_any(), &[$(stringify!($field)),+])?;
                Ok((slf.get_type(), fields))
            }

            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                shown(slf.as_any(), &[$(stringify!($field)),+])
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

output! {
    /// An encoded message that must leave, once everything polled by `poll_persist` after it is
    /// durable.
    ///
    /// The caller answers with `handle_transmitted` or `handle_transmit_failed`, naming
    /// `transmit_id`.
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
    /// A new content of another participant, on receipt: its dependencies may still be missing.
    ///
    /// The caller owes `handle_content_placed` (to which send it belongs) and, once the send's
    /// message can be reconstructed, `handle_send_reconstructed`. `send_id` and `ordinal` are what
    /// the id itself says under the "send" rule; None where it says nothing.
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
    /// A reconstructed send whose every dependency outside itself was delivered or declared lost:
    /// deliver it now.
    SendReleased {
        sender_id: Py<PyString>,
        send_id: Py<PyString>,
    } (sender_id, send_id)
    : SdsEvent
}

output! {
    /// `by` holds one content of a send of ours; once for each content and participant.
    ContentAcknowledged {
        send_id: Py<PyString>,
        ordinal: u32,
        message_id: Py<PyString>,
        by: Py<PyString>,
    } (send_id, ordinal, message_id, by)
    : SdsEvent
}

output! {
    /// `by` can reconstruct the send: it acknowledged `contents_needed` of its contents. Once a
    /// participant.
    SendAcknowledged {
        send_id: Py<PyString>,
        by: Py<PyString>,
    } (send_id, by)
    : SdsEvent
}

output! {
    /// Dependencies that are not here: fetch them, by `retrieval_hint` where there is one.
    MissingDetected {
        entries: Py<PyTuple>,
    } (entries)
    : SdsEvent
}

/// Events in the order in which they happened.
#[pyclass(module = "shardwire._native")]
pub struct EventQueue {
    events: VecDeque<Py<PyAny>>,
}

#[pymethods]
impl EventQueue {
    #[new]
    fn new() -> Self {
        EventQueue {
            events: VecDeque::new(),
        }
    }

    #[pyo3(signature = (event, /))]
    fn append(&mut self, event: Py<PyAny>) {
        self.events.push_back(event);
    }

    /// Takes out the oldest event.
    fn take(&mut self) -> Option<Py<PyAny>> {
        self.events.pop_front()
    }
}

impl EventQueue {
    /// Adds a native event.
    pub fn emit<T>(events: &Py<Self>, py: Python<'_>, event: T) -> PyResult<()>
    where
        T: PyClass<BaseType = SdsEvent>,
    {
        let event = PyClassInitializer::from(SdsEvent).add_subclass(event);
        let event = Bound::new(py, event)?;
        // It holds nothing that leads anywhere.
        untrack(&event);
        events
            .borrow_mut(py)
            .events
            .push_back(event.into_any().unbind());
        Ok(())
    }
}

//! What leaves the SDS machine for every message, made in one allocation each: `_native.pyi`,
//! "Scalable Data Sync".

use std::collections::VecDeque;

use pyo3::PyClassInitializer;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

/// Base of what `poll_event` gives.
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
    /// An encoded message that must leave, once everything polled by `poll_persist` is durable.
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
    /// A new content of another participant, on receipt.
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
    /// A reconstructed send whose every dependency was delivered or declared lost.
    SendReleased {
        sender_id: Py<PyString>,
        send_id: Py<PyString>,
    } (sender_id, send_id)
    : SdsEvent
}

output! {
    /// `by` holds one content of a send of ours.
    ContentAcknowledged {
        send_id: Py<PyString>,
        ordinal: u32,
        message_id: Py<PyString>,
        by: Py<PyString>,
    } (send_id, ordinal, message_id, by)
    : SdsEvent
}

output! {
    /// `by` can reconstruct the send.
    SendAcknowledged {
        send_id: Py<PyString>,
        by: Py<PyString>,
    } (send_id, by)
    : SdsEvent
}

output! {
    /// Dependencies that are not here.
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
        events
            .borrow_mut(py)
            .events
            .push_back(event.into_any().unbind());
        Ok(())
    }
}

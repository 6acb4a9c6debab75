//! What leaves the machine of a channel beside the events of SDS: `_native.pyi`, "Channel".

use pyo3::PyClassInitializer;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple, PyType};
use shardwire_core::channel::{self, Event, Fault, SegmentSeen as Seen};
use shardwire_core::hex::hex;
use shardwire_core::reassemble::Payload;

use crate::fresh::new_bytes;
use crate::sds::HistoryEntry;
use crate::sds_events::{SdsEvent, event_object, made, output, text, transmit_kinds};
use crate::texts::Texts;

output! {
    Delivery {
        sender_id: Py<PyString>,
        message_id: Py<PyString>,
        payload: Py<PyBytes>,
        send_id: Option<Py<PyString>>,
        redelivered: bool,
        released_ms: Option<i64>,
    } (sender_id, message_id, payload, send_id = None, redelivered = false, released_ms = None)
}

output! {
    MessageGivenUp {
        entry: Py<HistoryEntry>,
    } (entry)
    : SdsEvent
}

output! {
    SegmentSeen {
        stage: Py<PyString>,
        send_id: Py<PyString>,
        ordinal: u32,
        sender_id: Py<PyString>,
        data_count: Option<u32>,
        content_count: Option<u32>,
        message_id: Option<Py<PyString>>,
    } (stage, send_id, ordinal, sender_id, data_count = None, content_count = None, message_id = None)
    : SdsEvent
}

output! {
    MessageFault {
        kind: Py<PyString>,
        sender_id: Py<PyString>,
        name: Py<PyString>,
        detail: Py<PyString>,
    } (kind, sender_id, name, detail)
    : SdsEvent
}

output! {
    TransmitFailed {
        message_id: Py<PyString>,
        kind: Py<PyAny>,
        error: Py<PyString>,
        of_node: bool,
    } (message_id, kind, error, of_node)
    : SdsEvent
}

output! {
    NodeFailing {
        failures: u32,
        error: Py<PyString>,
    } (failures, error)
    : SdsEvent
}

output! {
    NodeRecovered {
        failures: u32,
        told: bool,
    } (failures, told)
    : SdsEvent
}

output! {
    NodeHolds {
        hold_ms: i64,
        error: Py<PyString>,
    } (hold_ms, error)
    : SdsEvent
}

/// An event of the core as an object.
pub fn channel_event_object<'py>(
    py: Python<'py>,
    event: Event,
    texts: &mut Texts,
) -> PyResult<Bound<'py, SdsEvent>> {
    match event {
        Event::Sds(event) => event_object(py, event, texts),
        Event::MessageGivenUp(entry) => {
            let entry = Py::new(py, HistoryEntry::from(entry))?;
            made(py, MessageGivenUp { entry })
        }
        Event::Segment(seen) => made(py, segment_seen(py, &seen, texts)),
        Event::Fault(fault) => made(py, message_fault(py, &fault, texts)),
        Event::TransmitFailed {
            message_id,
            kind,
            error,
            of_node,
        } => {
            let kind = transmit_kinds(py)?[kind as usize].clone_ref(py);
            let (message_id, error) = (text(py, &message_id), text(py, &error));
            let failed = TransmitFailed {
                message_id,
                kind,
                error,
                of_node,
            };
            made(py, failed)
        }
        Event::NodeFailing { failures, error } => {
            let error = text(py, &error);
            made(py, NodeFailing { failures, error })
        }
        Event::NodeRecovered { failures, told } => made(py, NodeRecovered { failures, told }),
        Event::NodeHolds { hold_ms, error } => {
            let error = text(py, &error);
            made(py, NodeHolds { hold_ms, error })
        }
    }
}

/// A message for the application as an object.
pub fn delivery_object(
    py: Python<'_>,
    delivery: &channel::Delivery,
    texts: &mut Texts,
) -> PyResult<Delivery> {
    let send_id = delivery.send_id.as_ref();
    Ok(Delivery {
        sender_id: texts.sender(py, &delivery.sender_id),
        message_id: text(py, &hex(&delivery.payload_hash)),
        payload: payload_object(py, &delivery.payload)?.unbind(),
        send_id: send_id.map(|send_id| texts.send(py, send_id)),
        redelivered: delivery.redelivered,
        released_ms: delivery.released_ms,
    })
}

fn segment_seen(py: Python<'_>, seen: &Seen, texts: &mut Texts) -> SegmentSeen {
    SegmentSeen {
        stage: texts.word(py, seen.stage.name()),
        send_id: texts.send(py, &seen.send_id),
        ordinal: seen.ordinal,
        sender_id: texts.sender(py, &seen.sender_id),
        data_count: seen.data_count,
        content_count: seen.content_count,
        message_id: seen.message_id.as_ref().map(|name| text(py, name)),
    }
}

fn message_fault(py: Python<'_>, fault: &Fault, texts: &mut Texts) -> MessageFault {
    MessageFault {
        kind: texts.word(py, fault.kind.name()),
        sender_id: texts.sender(py, &fault.sender_id),
        name: text(py, &fault.name),
        detail: text(py, &fault.detail),
    }
}

/// A payload in one object, copied once.
pub fn payload_object<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyBytes>> {
    let made = new_bytes(py, &[payload.len()], |_, out| payload.write_to(out))?;
    Ok(made.into_iter().next().expect("one for one length"))
}

//! What leaves the machine of a channel beside the events of SDS: `_native.pyi`, "Channel".

use pyo3::PyClassInitializer;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple, PyType};
use shardwire_core::channel::{self, Event};
use shardwire_core::hex::hex;
use shardwire_core::reassemble::Payload;

use crate::fresh::new_bytes;
use crate::sds::HistoryEntry;
use crate::sds_events::{SdsEvent, event_object, events, output, text, transmit_kinds};
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

events! {
    fn channel_event_object(py, Event, texts) else Event::Sds(event) => event_object(py, event, texts);

    Event::MessageGivenUp(entry) => MessageGivenUp {
        entry: Py<HistoryEntry> = Py::new(py, HistoryEntry::from(entry))?,
    } (entry)

    Event::Segment(seen) => SegmentSeen {
        stage: Py<PyString> = texts.word(py, seen.stage.name()),
        send_id: Py<PyString> = texts.send(py, &seen.send_id),
        ordinal: u32 = seen.ordinal,
        sender_id: Py<PyString> = texts.sender(py, &seen.sender_id),
        data_count: Option<u32> = seen.data_count,
        content_count: Option<u32> = seen.content_count,
        message_id: Option<Py<PyString>> = seen.message_id.as_ref().map(|name| text(py, name)),
    } (stage, send_id, ordinal, sender_id, data_count = None, content_count = None, message_id = None)

    Event::Fault(fault) => MessageFault {
        kind: Py<PyString> = texts.word(py, fault.kind.name()),
        sender_id: Py<PyString> = texts.sender(py, &fault.sender_id),
        name: Py<PyString> = text(py, &fault.name),
        detail: Py<PyString> = text(py, &fault.detail),
    } (kind, sender_id, name, detail)

    Event::TransmitFailed { message_id, kind, error, of_node } => TransmitFailed {
        message_id: Py<PyString> = text(py, &message_id),
        kind: Py<PyAny> = transmit_kinds(py)?[kind as usize].clone_ref(py),
        error: Py<PyString> = text(py, &error),
        of_node: bool = of_node,
    } (message_id, kind, error, of_node)

    Event::NodeFailing { failures, error } => NodeFailing {
        failures: u32 = failures,
        error: Py<PyString> = text(py, &error),
    } (failures, error)

    Event::NodeRecovered { failures, told } => NodeRecovered {
        failures: u32 = failures,
        told: bool = told,
    } (failures, told)

    Event::NodeHolds { hold_ms, error } => NodeHolds {
        hold_ms: i64 = hold_ms,
        error: Py<PyString> = text(py, &error),
    } (hold_ms, error)
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

/// A payload in one object, copied once.
pub fn payload_object<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyBytes>> {
    let made = new_bytes(py, &[payload.len()], |_, out| payload.write_to(out))?;
    Ok(made.into_iter().next().expect("one for one length"))
}

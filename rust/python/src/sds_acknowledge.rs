//! What an acknowledgement of a send of ours leads to: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::sds_log::discard;
use crate::sds_outgoing::{OutgoingContent, OutgoingSend};
use crate::sds_outlet::{Buffer, SdsOutlet};

/// Where acknowledgements are told.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Acknowledging {
    /// `Acknowledgements.said`.
    pub on_said: Py<PyAny>,
    /// The general way of one acknowledgement.
    pub on_acknowledged: Py<PyAny>,
    emit: Py<PyAny>,
    content_acknowledged: Py<PyAny>,
    send_acknowledged: Py<PyAny>,
}

impl Acknowledging {
    pub fn emit_content(
        &self,
        content: &Bound<'_, OutgoingContent>,
        send_id: &Py<PyString>,
        by: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        let py = by.py();
        let held = content.borrow();
        let arguments = (send_id, held.ordinal, &held.message_id, by);
        let event = self.content_acknowledged.bind(py).call1(arguments)?;
        self.emit.bind(py).call1((event,)).map(drop)
    }

    pub fn emit_send(
        &self,
        py: Python<'_>,
        send_id: &Py<PyString>,
        by: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        let event = self.send_acknowledged.bind(py).call1((send_id, by))?;
        self.emit.bind(py).call1((event,)).map(drop)
    }
}

impl SdsOutlet {
    /// As the outgoing buffer does it: SDS, Review ACK Status.
    pub fn acknowledge_one<'py>(
        &self,
        content: &Bound<'py, OutgoingContent>,
        by: &Bound<'py, PyString>,
    ) -> PyResult<()> {
        let py = by.py();
        let Some(send) = content
            .borrow()
            .send
            .as_ref()
            .map(|send| send.bind(py).clone())
        else {
            return Ok(());
        };
        let one = send.borrow().contents.bind(py).len() == 1;
        let (true, Some(quorum)) = (one, self.limits.quorum) else {
            let general = self.acknowledging.on_acknowledged.bind(py);
            return general.call1((content, by)).map(drop);
        };
        let acknowledged = send.borrow_mut().acknowledged(py);
        if acknowledged.len() >= self.limits.participants_max || acknowledged.contains(by)? {
            return Ok(());
        }
        let send_id = send.borrow().send_id.clone_ref(py);
        self.acknowledging.emit_content(content, &send_id, by)?;
        acknowledged.set_item(by, 1)?;
        let changed_sends = self.buffer.changed_sends.bind(py);
        changed_sends.set_item(&send_id, py.None())?;
        let complete = send.borrow_mut().complete(py);
        complete.set_item(by, py.None())?;
        self.acknowledging.emit_send(py, &send_id, by)?;
        if !send.borrow().finished && complete.len() >= quorum {
            self.finish(&send, content)?;
        }
        Ok(())
    }

    /// Resending of a send of one content stops.
    fn finish<'py>(
        &self,
        send: &Bound<'py, OutgoingSend>,
        content: &Bound<'py, OutgoingContent>,
    ) -> PyResult<()> {
        let py = send.py();
        send.borrow_mut().finished = true;
        let buffer = &self.buffer;
        let message_id = content.borrow().message_id.bind(py).clone();
        discard(buffer.unacknowledged.bind(py), &message_id)?;
        let mut known = content.borrow_mut();
        known.resend_ms = None;
        let wire = if known.in_flight == 0 {
            known.wire.take()
        } else {
            None
        };
        drop(known);
        if let Some(wire) = wire {
            let mut originals = self.originals.borrow_mut(py);
            if self.limits.repairs {
                let held = buffer.by_id.bind(py).get_item(&message_id)?;
                let stored = held.is_some_and(|held| held.is(content));
                originals.keep(&message_id, wire.bind(py), stored)?;
            } else {
                originals.mark(&message_id)?;
            }
        }
        let send_id = send.borrow().send_id.clone_ref(py);
        buffer.changed_sends.bind(py).set_item(send_id, py.None())?;
        let gone = buffer.finished.borrow_mut(py).push(send)?;
        gone.iter().try_for_each(|send| forget(buffer, send))
    }
}

/// Takes a send out of the outgoing buffer.
fn forget(buffer: &Buffer, send: &Bound<'_, OutgoingSend>) -> PyResult<()> {
    let py = send.py();
    let held = send.borrow();
    let send_id = held.send_id.bind(py);
    discard(buffer.sends.bind(py), send_id)?;
    buffer.changed_sends.bind(py).set_item(send_id, py.None())?;
    let by_id = buffer.by_id.bind(py);
    for content in held.contents.bind(py) {
        let content = content.cast_into::<OutgoingContent>()?;
        content.borrow_mut().resend_ms = None;
        let message_id = content.borrow().message_id.bind(py).clone();
        discard(buffer.unacknowledged.bind(py), &message_id)?;
        let known = by_id.get_item(&message_id)?;
        if known.is_some_and(|known| known.is(&content)) {
            by_id.del_item(&message_id)?;
        }
        let changed = buffer.changed_contents.bind(py);
        changed.set_item(&message_id, content.borrow().lamport == 0)?;
    }
    let contents = held.contents.bind(py);
    contents.del_slice(0, contents.len())
}

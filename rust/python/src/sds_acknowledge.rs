//! What an acknowledgement of a send of ours leads to: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::sds_events::{ContentAcknowledged, EventQueue, SendAcknowledged};
use crate::sds_few::Few;
use crate::sds_log::{discard, remove};
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
    pub events: Py<EventQueue>,
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
        let one = send.borrow().contents.len(py) == 1;
        let (true, Some(quorum)) = (one, self.limits.quorum) else {
            let general = self.acknowledging.on_acknowledged.bind(py);
            return general.call1((content, by)).map(drop);
        };
        let participants_max = self.limits.participants_max;
        let Some(holders) = send.borrow_mut().acknowledge_only(by, participants_max)? else {
            return Ok(());
        };
        let send_id = send.borrow().send_id.clone_ref(py);
        let events = &self.acknowledging.events;
        let held = content.borrow();
        let event = ContentAcknowledged {
            send_id: send_id.clone_ref(py),
            ordinal: held.ordinal,
            message_id: held.message_id.clone_ref(py),
            by: by.clone().unbind(),
        };
        drop(held);
        EventQueue::emit(events, py, event)?;
        let changed_sends = self.buffer.changed_sends.bind(py);
        changed_sends.set_item(&send_id, py.None())?;
        let by = by.clone().unbind();
        EventQueue::emit(events, py, SendAcknowledged { send_id, by })?;
        if !send.borrow().finished && holders >= quorum {
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
        remove(buffer.unacknowledged.bind(py), &message_id)?;
        discard(buffer.waiting_in_store.bind(py), &message_id)?;
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
    remove(buffer.sends.bind(py), send_id)?;
    buffer.changed_sends.bind(py).set_item(send_id, py.None())?;
    let by_id = buffer.by_id.bind(py);
    for position in 0..held.contents.len(py) {
        let content = held.contents.get(py, position)?;
        content.borrow_mut().resend_ms = None;
        let message_id = content.borrow().message_id.bind(py).clone();
        discard(buffer.unacknowledged.bind(py), &message_id)?;
        discard(buffer.waiting_in_store.bind(py), &message_id)?;
        let known = by_id.get_item(&message_id)?;
        if known.is_some_and(|known| known.is(&content)) {
            by_id.del_item(&message_id)?;
        }
        let changed = buffer.changed_contents.bind(py);
        changed.set_item(&message_id, content.borrow().lamport == 0)?;
    }
    drop(held);
    send.borrow_mut().contents = Few::None;
    Ok(())
}

//! Delivers sends, causes first: `_native.pyi`, "Scalable Data Sync".

use std::collections::VecDeque;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet, PyString};

use crate::sds_events::{EventQueue, SendReleased};
use crate::sds_heads::{SEND_ID_LENGTH, deliver_head, make_head};
use crate::sds_log::{LocalLog, LogEntry, discard};
use crate::sds_send::IncomingSend;
use crate::sds_waiting::Waiting;

/// Where delivered sends come from and go to.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Releasing {
    heads_max: usize,
    /// How long a send waits for its causes; none for ever.
    blocked_ms: Option<i64>,
    sends: Py<PyDict>,
    changed: Py<PyDict>,
    stored: Py<PySet>,
    blocked: Py<PyDict>,
    pub incomplete: Py<PyDict>,
    delivered: Py<PyDict>,
    heads: Py<PyDict>,
    events: Py<EventQueue>,
}

/// How many contents were delivered, and the newest timestamp among them.
pub type Released = (usize, u64);

impl Releasing {
    /// The channel has the message of `send`: delivers it, and what waited for it alone, or lets
    /// it wait.
    pub fn reconstructed(
        &self,
        log: &Py<LocalLog>,
        waiting: &Waiting,
        send: &Bound<'_, IncomingSend>,
        monotonic_ms: i64,
    ) -> PyResult<Released> {
        let py = send.py();
        send.borrow_mut().reconstructed = true;
        waiting.forget_missing(send)?;
        let waits_for = send
            .borrow()
            .waits_for
            .as_ref()
            .map(|dict| dict.clone_ref(py));
        if waits_for.is_some_and(|causes| !causes.bind(py).is_empty()) {
            let key = send.borrow().key.bind(py).clone();
            self.changed.bind(py).set_item(&key, py.None())?;
            self.blocked.bind(py).as_any().set_item(&key, send)?;
            send.borrow_mut().deadline_ms = self.blocked_ms.map(|wait_ms| monotonic_ms + wait_ms);
            return Ok((0, 0));
        }
        let mut ready = VecDeque::from([send.clone()]);
        let mut released = (0, 0);
        while let Some(send) = ready.pop_front() {
            let held = self.sends.bind(py).get_item(&send.borrow().key)?;
            if held.is_some_and(|held| held.is(&send)) {
                let (count, lamport) = self.release_one(log, &send)?;
                released = (released.0 + count, lamport.max(released.1));
                self.unblock(&send, &mut ready)?;
            }
        }
        Ok(released)
    }

    fn release_one(
        &self,
        log: &Py<LocalLog>,
        send: &Bound<'_, IncomingSend>,
    ) -> PyResult<Released> {
        let py = send.py();
        let held = send.borrow();
        let key = held.key.bind(py);
        self.sends.bind(py).del_item(key)?;
        let blocked = self.blocked.bind(py);
        if !blocked.is_empty() && blocked.contains(key)? {
            blocked.as_any().del_item(key)?;
        }
        let changed = self.changed.bind(py);
        if self.stored.bind(py).contains(key)? {
            changed.set_item(key, py.None())?;
        } else {
            discard(changed, key)?;
        }
        let contents = &held.contents;
        let count = contents.len(py);
        let mut newest: Option<Bound<'_, LogEntry>> = None;
        for position in 0..count {
            let entry = contents.get(py, position)?;
            entry.borrow_mut().send = None;
            if count > 1 {
                log.borrow_mut(py).touch(&entry);
            }
            newest = match newest {
                Some(known) if !follows(&entry, &known)? => Some(known),
                _ => Some(entry),
            };
        }
        let Some(newest) = newest else {
            return Ok((0, 0));
        };
        log.borrow_mut(py).deliver(&newest)?;
        let history = held.history.bind(py);
        let heads = self.heads.bind(py);
        if key.to_str()?.len() <= SEND_ID_LENGTH {
            make_head(heads, &newest, key, history, true, self.heads_max)?;
        } else {
            deliver_head(heads, &newest, history, true, self.heads_max)?;
        }
        let incomplete = self.incomplete.bind(py);
        for position in 0..count {
            if incomplete.is_empty() {
                break;
            }
            let entry = contents.get(py, position)?;
            let message_id = entry.borrow().message_id.clone_ref(py);
            if incomplete.contains(&message_id)? {
                incomplete.del_item(&message_id)?;
                self.delivered.bind(py).set_item(&message_id, &entry)?;
            }
        }
        let event = SendReleased {
            sender_id: held.sender_id.clone_ref(py),
            send_id: held.send_id.clone_ref(py),
        };
        EventQueue::emit(&self.events, py, event)?;
        let lamport = newest.borrow().lamport;
        Ok((count, lamport))
    }

    /// Nobody waits for `cause` any more; those that may go now are `ready`.
    fn unblock<'py>(
        &self,
        cause: &Bound<'py, IncomingSend>,
        ready: &mut VecDeque<Bound<'py, IncomingSend>>,
    ) -> PyResult<()> {
        let py = cause.py();
        let Some(dependents) = cause.borrow_mut().dependents.take() else {
            return Ok(());
        };
        let key = cause.borrow().key.bind(py).clone();
        for dependent in dependents.bind(py) {
            let dependent = dependent.cast_into::<IncomingSend>()?;
            let held = dependent.borrow();
            let Some(waits_for) = held.waits_for.as_ref().map(|dict| dict.bind(py)) else {
                continue;
            };
            if waits_for.contains(&key)? {
                waits_for.del_item(&key)?;
                self.changed.bind(py).set_item(&held.key, py.None())?;
                if waits_for.is_empty() && held.reconstructed {
                    ready.push_back(dependent.clone());
                }
            }
        }
        Ok(())
    }
}

/// Whether `one` comes after `other` in the log.
fn follows(one: &Bound<'_, LogEntry>, other: &Bound<'_, LogEntry>) -> PyResult<bool> {
    let py = one.py();
    let (one, other) = (one.borrow(), other.borrow());
    let id = |entry: &LogEntry| -> PyResult<String> {
        Ok(Bound::<PyString>::clone(entry.message_id.bind(py))
            .to_str()?
            .to_owned())
    };
    Ok(one.lamport > other.lamport || (one.lamport == other.lamport && id(&one)? > id(&other)?))
}

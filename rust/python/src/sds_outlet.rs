//! Registers, dispatches and acknowledges a send of one content, each in one call: `_native.pyi`,
//! "Scalable Data Sync".
//!
//! It works on the containers of the machine's parts, which stay the only state; whatever is not
//! common it leaves to the machine before it changes anything.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySequence, PyString};

use crate::now::moment;
use crate::sds_acknowledge::Acknowledging;
use crate::sds_codec::SdsCodec;
use crate::sds_compose::compose;
use crate::sds_counts::QueueCounts;
use crate::sds_entries::LogEntries;
use crate::sds_events::Transmit;
use crate::sds_heads::{SEND_ID_LENGTH, make_head};
use crate::sds_leaving::{Leaving, single, unsent};
use crate::sds_log::LocalLog;
use crate::sds_originals::Originals;
use crate::sds_outgoing::{OutgoingContent, OutgoingSend};
use crate::sds_timers::{FinishedSends, ResendTimers};
use crate::untracked::untrack;

/// Numbers that the outlet obeys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Limits {
    causal_history_size: usize,
    heads_max: usize,
    /// Bytes that history, filter and requests of one message may take.
    header_budget: usize,
    /// How long a content waits for its acknowledgement at first.
    first_period_ms: i64,
    /// Unacknowledged contents beyond which nothing new leaves.
    unacknowledged_max: usize,
    /// Whether message ids name their send.
    by_send: bool,
    pub participants_max: usize,
    /// How many participants must hold a send; none where they are named.
    pub quorum: Option<usize>,
    pub repairs: bool,
}

/// The containers of the outgoing buffer.
#[derive(FromPyObject)]
pub struct Buffer {
    pub sends: Py<PyDict>,
    pub by_id: Py<PyDict>,
    pub unacknowledged: Py<PyDict>,
    pub waiting_in_store: Py<PyDict>,
    pub changed_sends: Py<PyDict>,
    pub changed_contents: Py<PyDict>,
    new_contents: Py<PyDict>,
    new_wires: Py<PyDict>,
    timers: Py<ResendTimers>,
    pub finished: Py<FinishedSends>,
}

/// Those of the queue before dispatch.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Queue {
    fresh: Py<PySequence>,
    started: Py<PySequence>,
    counts: Py<QueueCounts>,
}

/// What stands beside the outgoing buffer.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Beside {
    sender_id: Py<PyString>,
    heads: Py<PyDict>,
    delivered: Py<PyDict>,
    incomplete: Py<PyDict>,
    bloom: Py<PyList>,
    /// Nothing is asked for while both are empty.
    upcoming: Py<PyDict>,
    requests: Py<PyDict>,
}

/// The short way out of one machine.
#[pyclass(frozen, module = "shardwire._native")]
pub struct SdsOutlet {
    codec: Py<SdsCodec>,
    log: Py<LocalLog>,
    entries: Py<LogEntries>,
    /// As in `limits` at first.
    header_budget: AtomicUsize,
    pub limits: Limits,
    pub buffer: Buffer,
    queue: Queue,
    beside: Beside,
    pub originals: Py<Originals>,
    pub acknowledging: Acknowledging,
    leaving: Leaving,
}

#[pymethods]
impl SdsOutlet {
    #[new]
    #[pyo3(signature = (
        codec, log, limits, buffer, queue, beside, originals, acknowledging, leaving, /
    ))]
    #[expect(clippy::too_many_arguments, reason = "one argument a part")]
    fn new(
        py: Python<'_>,
        codec: Py<SdsCodec>,
        log: Py<LocalLog>,
        limits: Limits,
        buffer: Buffer,
        queue: Queue,
        beside: Beside,
        originals: Py<Originals>,
        acknowledging: Acknowledging,
        leaving: Leaving,
    ) -> Self {
        let entries = log.borrow(py).entries.clone_ref(py);
        SdsOutlet {
            codec,
            log,
            entries,
            header_budget: AtomicUsize::new(limits.header_budget),
            limits,
            buffer,
            queue,
            beside,
            originals,
            acknowledging,
            leaving,
        }
    }

    /// History, filter and requests of later messages may take so many bytes.
    #[pyo3(signature = (header_budget, /))]
    fn limit_headers(&self, header_budget: usize) {
        self.header_budget.store(header_budget, Ordering::Relaxed);
    }

    /// Queues a send of one content; gives its message id. `None`, and nothing changed, where an
    /// argument is not what it must be or the send is known.
    #[pyo3(signature = (send_id, content, /))]
    fn register<'py>(
        &self,
        py: Python<'py>,
        send_id: &Bound<'py, PyAny>,
        content: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyString>>> {
        let (Ok(send_id), Ok(data)) = (
            send_id.cast_exact::<PyString>(),
            content.cast_exact::<PyBytes>(),
        ) else {
            return Ok(None);
        };
        let Ok(text) = send_id.to_str() else {
            return Ok(None);
        };
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let size_bytes = data.as_bytes().len();
        if !self.limits.by_send
            || size_bytes == 0
            || text.len() != SEND_ID_LENGTH
            || !text.bytes().all(hex)
        {
            return Ok(None);
        }
        let mut id = [0; SEND_ID_LENGTH + 2];
        id[..SEND_ID_LENGTH].copy_from_slice(text.as_bytes());
        id[SEND_ID_LENGTH..].copy_from_slice(b".0");
        let message_id = PyString::from_bytes(py, &id)?;
        let buffer = &self.buffer;
        let by_id = buffer.by_id.bind(py);
        let sends = buffer.sends.bind(py);
        if sends.contains(send_id)?
            || by_id.contains(&message_id)?
            || self.entries.borrow(py).__contains__(&message_id)
        {
            return Ok(None);
        }
        let number = self.leaving.next_send_number(py);
        let send = OutgoingSend::new(py, send_id.clone().unbind(), number, 1);
        let send = Bound::new(py, send)?;
        let shared = send.clone().unbind();
        let id = message_id.clone().unbind();
        let held = OutgoingContent::new(py, shared, 0, id, data.clone().unbind());
        let held = Bound::new(py, held)?;
        send.borrow_mut().contents.push(&held)?;
        untrack(&send);
        untrack(&held);
        by_id.set_item(&message_id, &held)?;
        sends.set_item(send_id, &send)?;
        buffer.new_contents.bind(py).set_item(&message_id, data)?;
        buffer.changed_sends.bind(py).set_item(send_id, py.None())?;
        let fresh = self.queue.fresh.bind(py);
        fresh.call_method1(intern!(py, "append"), (&send,))?;
        let mut counts = self.queue.counts.borrow_mut(py);
        counts.contents += 1;
        counts.bytes += size_bytes as i64;
        Ok(Some(message_id))
    }

    /// Encodes and takes out the next content where it is one send of its own, nothing is asked
    /// for, no filter is due and no other send is under way; `None`, and nothing changed, for any
    /// other.
    #[pyo3(signature = (now, /))]
    fn dispatch<'py>(
        &self,
        py: Python<'py>,
        now: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, Transmit>>> {
        let beside = &self.beside;
        let fresh = self.queue.fresh.bind(py);
        if !self.limits.by_send
            || self.buffer.unacknowledged.bind(py).len() >= self.limits.unacknowledged_max
            || !beside.upcoming.bind(py).is_empty()
            || !beside.requests.bind(py).is_empty()
            || self.queue.started.bind(py).len()? > 0
            || fresh.len()? == 0
        {
            return Ok(None);
        }
        let send = fresh.get_item(0)?.cast_into::<OutgoingSend>()?;
        let Some(content) = single(&send)? else {
            return Ok(None);
        };
        let Some(data) = unsent(&content, &send) else {
            return Ok(None);
        };
        if self.leaving.filter_is_due(now)? {
            return Ok(None);
        }
        let (monotonic_ms, epoch_ms) = moment(now)?;
        let lamport_timestamp = self.leaving.next_lamport(py, epoch_ms);
        let transmit_id = self.leaving.next_transmit_id(py);
        let message_id = content.borrow().message_id.bind(py).clone();
        let heads = beside.heads.bind(py);
        let delivered = beside.delivered.bind(py);
        let history = compose(
            self.log.bind(py),
            self.limits.causal_history_size,
            &[heads.clone().into_any(), delivered.clone().into_any()],
            Vec::new(),
            self.header_budget.load(Ordering::Relaxed),
        )?;
        let codec = self.codec.get();
        let wire = codec.encode_parts(
            message_id.to_str()?,
            Some(lamport_timestamp),
            &history.fields(py, codec)?,
            None,
            &[],
            Some(data.as_bytes(py)),
        )?;
        let wire = PyBytes::new(py, &wire);
        let ids = history.ids(py)?;
        if !delivered.is_empty() || !beside.incomplete.bind(py).is_empty() {
            let said = (history.said, now, false);
            self.acknowledging.on_said.bind(py).call1(said)?;
        }
        let sender_id = beside.sender_id.clone_ref(py);
        let log = self.log.bind(py);
        let entry = LocalLog::add(log, &message_id, sender_id, lamport_timestamp, None, 0)?;
        beside.bloom.bind(py).append(&message_id)?;
        log.borrow_mut().deliver(&entry)?;
        let send_id = send.borrow().send_id.bind(py).clone();
        let heads_max = self.limits.heads_max;
        make_head(heads, &entry, &send_id, ids.as_any(), true, heads_max)?;
        let mut leaving = send.borrow_mut();
        leaving.history_ids = Some(ids.unbind());
        leaving.header_left = i32::try_from(history.left)?;
        leaving.dispatched = 1;
        leaving.first_ms = monotonic_ms;
        drop(leaving);
        let mut leaving = content.borrow_mut();
        leaving.queued = false;
        leaving.lamport = lamport_timestamp;
        leaving.content = None;
        leaving.wire = Some(wire.clone().unbind());
        leaving.in_flight = transmit_id;
        drop(leaving);
        fresh.call_method0(intern!(py, "popleft"))?;
        let buffer = &self.buffer;
        buffer.new_wires.bind(py).set_item(&message_id, &wire)?;
        buffer
            .unacknowledged
            .bind(py)
            .set_item(&message_id, &content)?;
        buffer
            .changed_sends
            .bind(py)
            .set_item(&send_id, py.None())?;
        self.wait_for_acknowledgement(&content, monotonic_ms);
        let mut counts = self.queue.counts.borrow_mut(py);
        counts.contents -= 1;
        counts.bytes -= data.as_bytes(py).len() as i64;
        drop(counts);
        let all_said = delivered.is_empty() && beside.incomplete.bind(py).is_empty();
        let timestamp = (lamport_timestamp, monotonic_ms);
        let leaving = &self.leaving;
        leaving.left(&content, transmit_id, timestamp, all_said)?;
        let transmit = Transmit {
            transmit_id,
            kind: leaving.first(py),
            message_id: message_id.unbind(),
            payload: wire.unbind(),
            send_id: Some(send_id.unbind()),
            ordinal: Some(0),
            attempt: 0,
        };
        Bound::new(py, transmit).map(Some)
    }

    /// A transmission that `dispatch` gave is in the network; false, and nothing changed, for any
    /// other, and where the content was sent again or its send is finished.
    #[pyo3(signature = (transmit_id, retrieval_hint, now, /))]
    fn transmitted<'py>(
        &self,
        py: Python<'py>,
        transmit_id: u64,
        retrieval_hint: Option<Bound<'py, PyBytes>>,
        now: &Bound<'py, PyAny>,
    ) -> PyResult<bool> {
        let (monotonic_ms, _) = moment(now)?;
        let Some(content) = self.leaving.in_flight(py, transmit_id)? else {
            return Ok(false);
        };
        let mut known = content.borrow_mut();
        let finished = known
            .send
            .as_ref()
            .is_none_or(|send| send.borrow(py).finished);
        if finished || known.attempts > 0 || known.possible.is_some() {
            return Ok(false);
        }
        self.leaving.answered(py, transmit_id)?;
        if known.in_flight == transmit_id {
            known.in_flight = 0;
        }
        let message_id = known.message_id.bind(py).clone();
        drop(known);
        if self.buffer.unacknowledged.bind(py).contains(&message_id)? {
            self.wait_for_acknowledgement(&content, monotonic_ms);
        }
        if let Some(hint) = retrieval_hint {
            let mut log = self.log.bind(py).borrow_mut();
            if let Some(entry) = log.held(&message_id) {
                entry.borrow_mut().retrieval_hint = Some(hint.unbind());
                log.touch(&entry);
            }
        }
        Ok(true)
    }

    /// `by` names these: what of them is ours it has.
    #[pyo3(signature = (message_ids, by, /))]
    fn acknowledge<'py>(
        &self,
        message_ids: &Bound<'py, PyAny>,
        by: &Bound<'py, PyString>,
    ) -> PyResult<()> {
        let py = by.py();
        let by_id = self.buffer.by_id.bind(py).clone();
        for message_id in message_ids.try_iter()? {
            let Some(content) = by_id.get_item(message_id?)? else {
                continue;
            };
            let content = content.cast_into::<OutgoingContent>()?;
            self.acknowledge_one(&content, by)?;
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.log)?;
        visit.call(&self.acknowledging.on_said)?;
        visit.call(&self.acknowledging.on_acknowledged)?;
        self.leaving.traverse(&visit)
    }
}

impl Drop for SdsOutlet {
    fn drop(&mut self) {
        Python::attach(|py| {
            for content in self.buffer.by_id.bind(py).values() {
                if let Ok(content) = content.cast::<OutgoingContent>() {
                    content.borrow_mut().send = None;
                }
            }
        });
    }
}

impl SdsOutlet {
    fn wait_for_acknowledgement(&self, content: &Bound<'_, OutgoingContent>, monotonic_ms: i64) {
        let py = content.py();
        let held = self.buffer.unacknowledged.bind(py).len();
        let at_ms = monotonic_ms + self.limits.first_period_ms;
        self.buffer.timers.borrow_mut(py).set(content, at_ms, held);
    }
}

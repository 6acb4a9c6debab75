//! Takes in the common message in one call: `_native.pyi`, "Scalable Data Sync".
//!
//! It works on the containers of the machine's parts, which stay the only state; whatever is not
//! common it leaves to the machine before it changes anything.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use shardwire_core::wire::sds::{EntryView, MessageView, WireFormat};

use crate::error::Error;
use crate::now::moment;
use crate::sds::parse_sds_wire_format;
use crate::sds_entries::LogEntries;
use crate::sds_events::{ContentReceived, EventQueue};
use crate::sds_heads::SEND_ID_LENGTH;
use crate::sds_log::{LocalLog, LogEntry};
use crate::sds_originals::Originals;
use crate::sds_receiving::{Named, Receiving};
use crate::sds_release::Releasing;
use crate::sds_send::{IncomingSend, SenderIds};
use crate::sds_waiting::{Naming, Waiting};

/// Numbers that `take` obeys.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Limits {
    /// Longest message and sender id, in characters.
    id_length_max: usize,
    /// Ids that a waiting send keeps of a history.
    history_max: usize,
    /// A sender that was heard longer ago is to be noted again.
    heard_ms_max: i64,
    /// Milliseconds of one step of the Lamport clock.
    lamport_unit_ms: u64,
    /// How far a peer's clock may be ahead, in these steps.
    lamport_skew_max: u64,
    lamport_max: u64,
    /// Whether what became free is delivered at once, not in sweeps.
    at_once: bool,
    /// Whether message ids name their send.
    by_send: bool,
}

/// The short way of one machine.
#[pyclass(frozen, module = "shardwire._native")]
pub struct SdsIntake {
    channel_id: String,
    sender_id: String,
    wire_format: WireFormat,
    limits: Limits,
    log: Py<LocalLog>,
    entries: Py<LogEntries>,
    originals: Option<Py<Originals>>,
    answers: Py<PyDict>,
    heard_ms: Py<PyDict>,
    sent: Py<PyDict>,
    unacknowledged: Py<PyDict>,
    sends: Py<PyDict>,
    by_send_id: Py<PyDict>,
    changed: Py<PyDict>,
    bloom: Py<PyList>,
    waiting: Waiting,
    releasing: Releasing,
    receiving: Receiving,
    events: Py<EventQueue>,
    senders: SenderIds,
}

#[pymethods]
impl SdsIntake {
    #[new]
    #[pyo3(signature = (
        channel_id, sender_id, wire_format, limits, *, log, originals, answers, heard_ms, sent,
        unacknowledged, sends, by_send_id, changed, bloom, waiting, releasing, receiving, events
    ))]
    #[expect(clippy::too_many_arguments, reason = "one argument a container")]
    fn new(
        py: Python<'_>,
        channel_id: String,
        sender_id: String,
        wire_format: &str,
        limits: Limits,
        log: Py<LocalLog>,
        originals: Option<Py<Originals>>,
        answers: Py<PyDict>,
        heard_ms: Py<PyDict>,
        sent: Py<PyDict>,
        unacknowledged: Py<PyDict>,
        sends: Py<PyDict>,
        by_send_id: Py<PyDict>,
        changed: Py<PyDict>,
        bloom: Py<PyList>,
        waiting: Waiting,
        releasing: Releasing,
        receiving: Receiving,
        events: Py<EventQueue>,
    ) -> Result<Self, Error> {
        let entries = log.borrow(py).entries.clone_ref(py);
        Ok(SdsIntake {
            channel_id,
            sender_id,
            wire_format: parse_sds_wire_format(wire_format)?,
            limits,
            log,
            entries,
            originals,
            answers,
            heard_ms,
            sent,
            unacknowledged,
            sends,
            by_send_id,
            changed,
            bloom,
            waiting,
            releasing,
            receiving,
            events,
            senders: SenderIds::default(),
        })
    }

    /// Takes in a new content that is its whole send, and gives what is left to do, which is
    /// mostly nothing; `None`, and nothing changed, for any other.
    #[pyo3(signature = (data, now, retrieval_hint, /))]
    fn take<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        now: &Bound<'py, PyAny>,
        retrieval_hint: Option<Bound<'py, PyBytes>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = data.py();
        if !self.limits.by_send || !self.receiving.has_room(py) {
            return Ok(None);
        }
        let (monotonic_ms, epoch_ms) = moment(now)?;
        let Ok(data) = data.cast_exact::<PyBytes>() else {
            return Ok(None);
        };
        let bytes = data.as_bytes();
        let Ok(message) = MessageView::decode(bytes, self.wire_format) else {
            return Ok(None);
        };
        let (Some(content), Some(lamport)) = (message.content, message.lamport_timestamp) else {
            return Ok(None);
        };
        let hash = self.look_for(py, message.message_id);
        let Some((message_id, key)) = self.place(py, &message) else {
            return Ok(None);
        };
        let sender_id = self.senders.text(py, message.sender_id);
        if content.is_empty()
            || !message.repair_request.is_empty()
            || message.causal_history.len() > self.limits.history_max
            || !self.answers.bind(py).is_empty()
            || !self.heard_lately(&sender_id, monotonic_ms)?
            || self.holds(&message_id, hash)?
        {
            return Ok(None);
        }
        let limits = &self.limits;
        let here = epoch_ms.max(0) as u64 / limits.lamport_unit_ms;
        let lamport = lamport.min(here.saturating_add(limits.lamport_skew_max));
        let hint = retrieval_hint.filter(|hint| hint.as_bytes().len() <= limits.id_length_max);
        let entry = LocalLog::add(
            self.log.bind(py),
            &message_id,
            sender_id.clone().unbind(),
            lamport.min(limits.lamport_max),
            hint.map(Bound::unbind),
            0,
        )?;
        self.bloom.bind(py).append(&message_id)?;
        if let Some(originals) = &self.originals {
            originals.borrow_mut(py).hold(&entry, &message_id, data)?;
        }
        let event = ContentReceived {
            message_id: message_id.clone().unbind(),
            sender_id: sender_id.clone().unbind(),
            content: PyBytes::new(py, content).unbind(),
            send_id: Some(key.clone().unbind()),
            ordinal: Some(0),
        };
        EventQueue::emit(&self.events, py, event)?;
        let mut named = self.named(&message.causal_history, &entry, &sender_id)?;
        let send = match self.sends.bind(py).get_item(&key)? {
            Some(send) => {
                let by = Naming {
                    send: &send.cast_into()?,
                    named_by: &sender_id,
                    monotonic_ms,
                };
                self.waiting.adopt(&by, &entry, &named.ids)?
            }
            None => Some(self.new_send(&key, &sender_id, monotonic_ms, &entry, &named)?),
        };
        let filter = message.bloom_filter.map(|filter| {
            let start = filter.as_ptr() as usize - bytes.as_ptr() as usize;
            (start, start + filter.len())
        });
        // Events of acknowledgements come first, and those are the machine's.
        let acknowledges = !named.mine.is_empty()
            || (filter.is_some() && !self.unacknowledged.bind(py).is_empty());
        let mut news = false;
        if let Some(send) = &send
            && !acknowledges
            && self.waiting.is_plain(py, &named.unknown)
        {
            for cause in named.waits.drain(..) {
                self.waiting.wait(send, &cause)?;
            }
            let by = Naming {
                send,
                named_by: &sender_id,
                monotonic_ms,
            };
            news = self
                .waiting
                .on_unknown(&by, std::mem::take(&mut named.unknown))?;
        }
        let rare = named.rare(py, send.is_none())?;
        if rare.is_none() && !acknowledges {
            let when = (now, monotonic_ms);
            self.receiving
                .received(&entry, &self.releasing.incomplete, news, when)?;
            return Ok(Some(PyTuple::empty(py)));
        }
        // The received content, the key of its send, the send where it is new or was only named,
        // where the filter lies, and whether something is to be asked for.
        let taken = (entry, key, send, filter, news, rare);
        taken.into_pyobject(py).map(Some)
    }

    /// The channel has the message of a send whose only content was taken: delivers it and what
    /// waited for it alone, or lets it wait. False, and nothing changed, for any other.
    #[pyo3(signature = (sender_id, send_id, now, /))]
    fn release(
        &self,
        sender_id: &Bound<'_, PyString>,
        send_id: &Bound<'_, PyString>,
        now: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let py = send_id.py();
        if !self.limits.by_send || !self.by_send_id.bind(py).is_empty() {
            return Ok(false);
        }
        let Some(send) = self.sends.bind(py).get_item(send_id)? else {
            return Ok(false);
        };
        let send = send.cast_into::<IncomingSend>()?;
        let held = send.borrow();
        if held.reconstructed
            || !self.limits.at_once
            || held.contents.len(py) != 1
            || held.send_id.to_str(py)? != held.key.to_str(py)?
            || held.sender_id.to_str(py)? != sender_id.to_str()?
        {
            return Ok(false);
        }
        drop(held);
        let (monotonic_ms, _) = moment(now)?;
        let released =
            self.releasing
                .reconstructed(&self.log, &self.waiting, &send, monotonic_ms)?;
        self.receiving.released(py, released);
        Ok(true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.log)?;
        self.waiting.traverse(&visit)?;
        self.receiving.traverse(&visit)
    }
}

impl SdsIntake {
    /// The id of a content that is the first of its send, and the send's key, where the message is
    /// another participant's of this channel.
    fn place<'py>(
        &self,
        py: Python<'py>,
        message: &MessageView<'_>,
    ) -> Option<(Bound<'py, PyString>, Bound<'py, PyString>)> {
        let id = message.message_id;
        let place = id.len() == SEND_ID_LENGTH + 2 && id.ends_with(b".0") && id.is_ascii();
        let other = message.channel_id == self.channel_id.as_bytes()
            && message.sender_id != self.sender_id.as_bytes()
            && message.sender_id.len() <= self.limits.id_length_max;
        if !place || !other {
            return None;
        }
        let id = str::from_utf8(id).ok()?;
        let key = PyString::new(py, &id[..SEND_ID_LENGTH]);
        Some((PyString::new(py, id), key))
    }

    /// Asks for the memory where an id is looked for soon; gives its hash.
    fn look_for(&self, py: Python<'_>, id: &[u8]) -> u64 {
        let entries = self.entries.borrow(py);
        let hash = str::from_utf8(id).map_or(0, |id| entries.hash_of(id));
        entries.prefetch(hash);
        hash
    }

    fn holds(&self, message_id: &Bound<'_, PyString>, hash: u64) -> PyResult<bool> {
        let py = message_id.py();
        let entries = self.entries.borrow(py);
        Ok(entries.find(py, message_id.to_str()?, hash).is_some())
    }

    fn heard_lately(&self, sender_id: &Bound<'_, PyString>, monotonic_ms: i64) -> PyResult<bool> {
        let heard_ms = self.heard_ms.bind(sender_id.py()).get_item(sender_id)?;
        let Some(heard_ms) = heard_ms else {
            return Ok(false);
        };
        Ok(monotonic_ms - heard_ms.extract::<i64>()? < self.limits.heard_ms_max)
    }

    fn named<'a, 'py>(
        &self,
        history: &[EntryView<'a>],
        entry: &Bound<'py, LogEntry>,
        named_by: &Bound<'py, PyString>,
    ) -> PyResult<Named<'a, 'py>> {
        let py = entry.py();
        let entries = self.entries.borrow(py);
        let sent = self.sent.bind(py);
        let mut named = Named {
            ids: Vec::with_capacity(history.len()),
            mine: Vec::new(),
            heard: Vec::new(),
            waits: Vec::new(),
            unknown: Vec::new(),
        };
        for view in history {
            let text = String::from_utf8_lossy(view.message_id);
            let held = entries.find(py, &text, entries.hash_of(&text));
            let id = match &held {
                Some(held) => held.borrow().message_id.bind(py).clone(),
                None => PyString::new(py, &text),
            };
            if !sent.is_empty()
                && let Some(content) = sent.get_item(&id)?
            {
                named.mine.push(content);
            }
            match held {
                None => named.unknown.push((id.clone(), *view)),
                Some(held) if held.is(entry) => {}
                Some(held) => {
                    let known = held.borrow();
                    if let Some(send) = &known.send {
                        named.waits.push(send.bind(py).clone());
                    }
                    if (known.unsaid != 0 || known.repeats != 0)
                        && known.sender_id.to_str(py)? != named_by.to_str()?
                    {
                        named.heard.push(held.clone());
                    }
                }
            }
            named.ids.push(id);
        }
        Ok(named)
    }

    fn new_send<'py>(
        &self,
        key: &Bound<'py, PyString>,
        sender_id: &Bound<'py, PyString>,
        monotonic_ms: i64,
        entry: &Bound<'py, LogEntry>,
        named: &Named<'_, 'py>,
    ) -> PyResult<Bound<'py, IncomingSend>> {
        let py = key.py();
        let text = || key.clone().unbind();
        let sender_id = sender_id.clone().unbind();
        let mut send = IncomingSend::new(py, text(), text(), sender_id, monotonic_ms);
        send.contents.push(entry)?;
        if !named.ids.is_empty() {
            send.history = PyTuple::new(py, &named.ids)?.into_any().unbind();
        }
        let send = Bound::new(py, send)?;
        entry.borrow_mut().send = Some(send.clone().unbind());
        self.sends.bind(py).set_item(key, &send)?;
        self.changed.bind(py).set_item(key, py.None())?;
        Ok(send)
    }
}

//! Sends that are named and not here, and who waits for them: `_native.pyi`, "Scalable Data Sync".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use shardwire_core::wire::sds::EntryView;

use crate::sds::HistoryEntry;
use crate::sds_events::{EventQueue, MissingDetected};
use crate::sds_heads::SEND_ID_LENGTH;
use crate::sds_log::{LogEntry, discard};
use crate::sds_send::IncomingSend;

/// One message id that a history named and that is not here.
#[pyclass(module = "shardwire._native")]
pub struct MissingMessage {
    #[pyo3(get, set)]
    entry: Py<HistoryEntry>,
    #[pyo3(get)]
    send: Py<IncomingSend>,
    #[pyo3(get)]
    named_by: Py<PyString>,
}

#[pymethods]
impl MissingMessage {
    #[new]
    #[pyo3(signature = (entry, send, named_by, /))]
    fn new(entry: Py<HistoryEntry>, send: Py<IncomingSend>, named_by: Py<PyString>) -> Self {
        MissingMessage {
            entry,
            send,
            named_by,
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.send)
    }
}

/// The containers of the incoming buffer's gaps; those that give up their first entry are ordered
/// dictionaries.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Waiting {
    /// Longest id, hint and sender, in characters and bytes.
    id_length_max: usize,
    /// When a send that is only named is lost; 0 for never.
    lost_ms: i64,
    missing_max: usize,
    repairs: bool,
    sender_id: String,
    sends: Py<PyDict>,
    changed: Py<PyDict>,
    missing: Py<PyDict>,
    missing_changed: Py<PyDict>,
    shares: Py<PyDict>,
    named: Py<PyDict>,
    lost: Py<PyDict>,
    upcoming: Py<PyDict>,
    requests: Py<PyDict>,
    /// `Gaps.watch` and `RepairBuffer.remove`.
    watch: Py<PyAny>,
    remove_request: Py<PyAny>,
    events: Py<EventQueue>,
}

/// The id of an entry that the log lacks, and the entry.
pub type Unknown<'a, 'py> = (Bound<'py, PyString>, EntryView<'a>);

/// What names something: the message's send, its sender, and when.
pub struct Naming<'a, 'py> {
    pub send: &'a Bound<'py, IncomingSend>,
    pub named_by: &'a Bound<'py, PyString>,
    pub monotonic_ms: i64,
}

impl Waiting {
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.watch)
    }

    /// Whether all of `unknown` are first contents of others' sends and there is room for them.
    pub fn is_plain(&self, py: Python<'_>, unknown: &[Unknown<'_, '_>]) -> bool {
        let short = |bytes: Option<&[u8]>| bytes.is_none_or(|it| it.len() <= self.id_length_max);
        let plain = |(_, entry): &Unknown<'_, '_>| {
            entry.message_id.len() == SEND_ID_LENGTH + 2
                && entry.message_id.ends_with(b".0")
                && entry.message_id.is_ascii()
                && entry.sender_id != Some(self.sender_id.as_bytes())
                && entry.sender_id.is_none_or(|it| str::from_utf8(it).is_ok())
                && short(entry.sender_id)
                && short(entry.retrieval_hint)
        };
        // What was lost and is asked for again needs more than is done here.
        self.lost.bind(py).is_empty()
            && self.missing.bind(py).len() + unknown.len() <= self.missing_max
            && unknown.iter().all(plain)
    }

    /// `send` follows `cause`.
    pub fn wait(
        &self,
        send: &Bound<'_, IncomingSend>,
        cause: &Bound<'_, IncomingSend>,
    ) -> PyResult<()> {
        let py = send.py();
        if cause.is(send) || cause.borrow().lost || send.borrow().reconstructed {
            return Ok(());
        }
        let key = cause.borrow().key.bind(py).clone();
        let waits_for = {
            let mut held = send.borrow_mut();
            let made = held
                .waits_for
                .get_or_insert_with(|| PyDict::new(py).unbind());
            made.bind(py).clone()
        };
        if waits_for.contains(&key)? {
            return Ok(());
        }
        waits_for.set_item(&key, cause)?;
        let dependents = {
            let mut held = cause.borrow_mut();
            let made = held
                .dependents
                .get_or_insert_with(|| PyList::empty(py).unbind());
            made.bind(py).clone()
        };
        dependents.append(send)?;
        self.changed
            .bind(py)
            .set_item(&send.borrow().key, py.None())
    }

    /// A history names these and the log has none of them; true where something is to be asked for.
    pub fn on_unknown<'py>(
        &self,
        by: &Naming<'_, 'py>,
        unknown: Vec<Unknown<'_, 'py>>,
    ) -> PyResult<bool> {
        let py = by.send.py();
        let mut detected = Vec::new();
        let mut news = false;
        for named in unknown {
            if let Some(cause) = self.cause(by, &named, &mut detected, &mut news)? {
                self.wait(by.send, &cause)?;
            }
        }
        if !detected.is_empty() {
            let entries = PyTuple::new(py, detected)?.unbind();
            EventQueue::emit(&self.events, py, MissingDetected { entries })?;
        }
        Ok(news)
    }

    /// The undelivered send that `entry` stands for; `None` where nothing must wait for it.
    fn cause<'py>(
        &self,
        by: &Naming<'_, 'py>,
        (message_id, entry): &Unknown<'_, 'py>,
        detected: &mut Vec<Bound<'py, HistoryEntry>>,
        news: &mut bool,
    ) -> PyResult<Option<Bound<'py, IncomingSend>>> {
        let py = message_id.py();
        if let Some(known) = self.missing.bind(py).get_item(message_id)? {
            let known = known.cast_into::<MissingMessage>()?;
            self.learn(&known, message_id, *entry)?;
            let cause = known.borrow().send.bind(py).clone();
            return Ok(Some(cause));
        }
        let key = PyString::from_bytes(py, &entry.message_id[..SEND_ID_LENGTH])?;
        if key.as_any().eq(&by.send.borrow().key)? {
            return Ok(None);
        }
        let sends = self.sends.bind(py);
        let cause = match sends.get_item(&key)? {
            Some(cause) => {
                let cause = cause.cast_into::<IncomingSend>()?;
                let held = cause.borrow();
                if !held.contents.is_empty(py) {
                    let unwatched = held.deadline_ms.is_none() && !held.reconstructed;
                    drop(held);
                    if unwatched {
                        self.watch.bind(py).call1((&cause, by.monotonic_ms))?;
                    }
                    return Ok(Some(cause));
                }
                drop(held);
                cause
            }
            None => self.name(by, &key)?,
        };
        let entry = Bound::new(py, HistoryEntry::from_view(*entry))?;
        self.track(by, &cause, message_id, &entry, news)?;
        detected.push(entry);
        Ok(Some(cause))
    }

    /// A send that is known by name only, from now on.
    fn name<'py>(
        &self,
        by: &Naming<'_, 'py>,
        key: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, IncomingSend>> {
        let py = key.py();
        let text = || key.clone().unbind();
        let nobody = PyString::new(py, "").unbind();
        let mut named = IncomingSend::new(py, text(), text(), nobody, by.monotonic_ms);
        if self.lost_ms > 0 {
            named.deadline_ms = Some(by.monotonic_ms + self.lost_ms);
        }
        let named = Bound::new(py, named)?;
        self.sends.bind(py).set_item(key, &named)?;
        self.changed.bind(py).set_item(key, py.None())?;
        if self.lost_ms > 0 {
            self.named.bind(py).as_any().set_item(key, &named)?;
        }
        Ok(named)
    }

    /// Another history names it too: the newest hint stands, and a sender once known.
    fn learn<'py>(
        &self,
        known: &Bound<'py, MissingMessage>,
        message_id: &Bound<'py, PyString>,
        now: EntryView<'_>,
    ) -> PyResult<()> {
        let py = message_id.py();
        let before = known.borrow().entry.clone_ref(py);
        let before = before.get().inner();
        let known_hint = before.retrieval_hint.as_deref();
        let known_sender = before.sender_id.as_deref().map(str::as_bytes);
        let better = EntryView {
            message_id: before.message_id.as_bytes(),
            retrieval_hint: now
                .retrieval_hint
                .filter(|it| !it.is_empty())
                .or(known_hint),
            sender_id: known_sender.filter(|it| !it.is_empty()).or(now.sender_id),
        };
        if better.retrieval_hint == known_hint && better.sender_id == known_sender {
            return Ok(());
        }
        known.borrow_mut().entry = Py::new(py, HistoryEntry::from_view(better))?;
        self.missing_changed
            .bind(py)
            .set_item(message_id, py.None())
    }

    fn track<'py>(
        &self,
        by: &Naming<'_, 'py>,
        cause: &Bound<'py, IncomingSend>,
        message_id: &Bound<'py, PyString>,
        entry: &Bound<'py, HistoryEntry>,
        news: &mut bool,
    ) -> PyResult<()> {
        let py = entry.py();
        let message = MissingMessage {
            entry: entry.clone().unbind(),
            send: cause.clone().unbind(),
            named_by: by.named_by.clone().unbind(),
        };
        let missing = self.missing.bind(py).as_any();
        missing.set_item(message_id, Bound::new(py, message)?)?;
        let shares = self.shares.bind(py);
        let share = match shares.get_item(by.named_by)? {
            Some(share) => share,
            None => {
                let share = ordered(py)?;
                shares.set_item(by.named_by, &share)?;
                share
            }
        };
        share.set_item(message_id, py.None())?;
        self.missing_changed
            .bind(py)
            .set_item(message_id, py.None())?;
        let of_cause = {
            let mut held = cause.borrow_mut();
            let made = held.missing.get_or_insert_with(|| PyDict::new(py).unbind());
            made.bind(py).clone()
        };
        of_cause.set_item(message_id, py.None())?;
        if self.repairs && !self.requests.bind(py).contains(message_id)? {
            *news = true;
            let upcoming = self.upcoming.bind(py);
            if !upcoming.contains(message_id)? {
                upcoming
                    .as_any()
                    .set_item(message_id, (by.monotonic_ms, entry))?;
            }
        }
        Ok(())
    }

    /// The first content of a send that was only named, and the ids of its history; `None`, and
    /// nothing changed, where something of it is here.
    pub fn adopt<'py>(
        &self,
        by: &Naming<'_, 'py>,
        entry: &Bound<'py, LogEntry>,
        history: &[Bound<'py, PyString>],
    ) -> PyResult<Option<Bound<'py, IncomingSend>>> {
        let py = entry.py();
        let send = by.send;
        let held = send.borrow();
        if held.from_before || !held.contents.is_empty(py) {
            return Ok(None);
        }
        let key = held.key.bind(py).clone();
        drop(held);
        // Others of its contents that somebody named are asked for when their time comes.
        let message_id = entry.borrow().message_id.bind(py).clone();
        self.untrack(&message_id)?;
        let named = self.named.bind(py);
        if named.contains(&key)? {
            named.as_any().del_item(&key)?;
        }
        let mut held = send.borrow_mut();
        held.deadline_ms = None;
        held.sender_id = by.named_by.clone().unbind();
        held.news_ms = by.monotonic_ms;
        held.contents.push(entry)?;
        if history.len() > held.history.bind(py).len()? {
            held.history = PyTuple::new(py, history)?.into_any().unbind();
        }
        drop(held);
        self.changed.bind(py).set_item(&key, py.None())?;
        entry.borrow_mut().send = Some(send.clone().unbind());
        Ok(Some(send.clone()))
    }

    /// Nothing of `send` is asked for any more.
    pub fn forget_missing(&self, send: &Bound<'_, IncomingSend>) -> PyResult<()> {
        let py = send.py();
        let Some(ids) = send.borrow_mut().missing.take() else {
            return Ok(());
        };
        for message_id in ids.bind(py).keys() {
            self.untrack(message_id.cast()?)?;
        }
        Ok(())
    }

    /// `message_id` is asked for no more.
    fn untrack(&self, message_id: &Bound<'_, PyString>) -> PyResult<()> {
        let py = message_id.py();
        let missing = self.missing.bind(py);
        let Some(message) = missing.get_item(message_id)? else {
            return Ok(());
        };
        let message = message.cast_into::<MissingMessage>()?;
        let named_by = message.borrow().named_by.bind(py).clone();
        let of_send = {
            let message = message.borrow();
            let send = message.send.borrow(py);
            send.missing.as_ref().map(|ids| ids.bind(py).clone())
        };
        if let Some(ids) = of_send
            && ids.contains(message_id)?
        {
            ids.del_item(message_id)?;
        }
        missing.as_any().del_item(message_id)?;
        let shares = self.shares.bind(py);
        if let Some(share) = shares.get_item(&named_by)? {
            share.del_item(message_id)?;
            if share.len()? == 0 {
                discard(shares, &named_by)?;
            }
        }
        self.missing_changed
            .bind(py)
            .set_item(message_id, py.None())?;
        let upcoming = self.upcoming.bind(py);
        if upcoming.contains(message_id)? {
            upcoming.as_any().del_item(message_id)?;
        } else if self.requests.bind(py).contains(message_id)? {
            self.remove_request.bind(py).call1((message_id,))?;
        }
        Ok(())
    }
}

fn ordered(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static ORDERED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    ORDERED.import(py, "collections", "OrderedDict")?.call0()
}

//! What both machines of a channel have in common: `_native.pyi`, "Scalable Data Sync".

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyString, PyTuple};
use shardwire_core::channel::{self, Channel};
use shardwire_core::sds::{self, Kinds, Machine, TransmitKind};
use shardwire_stub::documented;

use crate::arguments::{
    ContentBytesMax, ContentsNeeded, Count, HeaderBytesMax, MessageId, Ordinal, Ordinals, Reserve,
    SendId, TransmitId, refused,
};
use crate::buffer::{Buffer, all_of, buffers_of};
use crate::erasure::parse_code;
use crate::error::Error;
use crate::lent_bytes::octets;
use crate::now::Moment;
use crate::sds::{HistoryEntry, parse_sds_wire_format};
use crate::sds_events::{Transmit, transmit_kinds, transmit_object};
use crate::segmentation::parse_wire_format;
use crate::texts::Texts;

/// The kinds that a container of `TransmitKind` has.
pub fn kinds_of(kinds: Option<&Bound<'_, PyAny>>) -> PyResult<Kinds> {
    let Some(kinds) = kinds else {
        return Ok(Kinds::ALL);
    };
    let mut allowed = Kinds::NONE;
    for (kind, member) in TransmitKind::ALL
        .into_iter()
        .zip(transmit_kinds(kinds.py())?)
    {
        let is_allowed = kinds.contains(member);
        if is_allowed
            .map_err(|_| refused("kinds", kinds, "a container of TransmitKind, or None"))?
        {
            allowed = allowed.with(kind);
        }
    }
    Ok(allowed)
}

fn entries<'py>(
    py: Python<'py>,
    entries: Vec<shardwire_core::wire::sds::HistoryEntry>,
) -> PyResult<Bound<'py, PyTuple>> {
    let entries: Vec<_> = entries.into_iter().map(HistoryEntry::from).collect();
    PyTuple::new(py, entries)
}

fn names<'py>(
    py: Python<'py>,
    names: impl ExactSizeIterator<Item = impl AsRef<str>>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, names.map(|name| PyString::new(py, name.as_ref())))
}

/// What is behind one participant's side of a channel.
pub enum Held {
    /// SDS alone.
    Sds(Box<Machine>),
    /// SDS joined with reassembly.
    Channel(Box<Channel>),
}

#[documented]
#[pyclass(subclass, frozen, module = "shardwire._native")]
pub struct Participant {
    held: Mutex<Held>,
    /// The thread that has it; 0 for none.
    owner: AtomicU64,
    texts: Mutex<Texts>,
}

/// A number for each thread, from 1 on.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// What is held, for as long as nobody else has it.
pub struct Locked<'a> {
    held: MutexGuard<'a, Held>,
    owner: &'a AtomicU64,
}

impl<'a> Locked<'a> {
    fn new(held: MutexGuard<'a, Held>, owner: &'a AtomicU64) -> Self {
        owner.store(this_thread(), Ordering::Relaxed);
        Locked { held, owner }
    }
}

impl std::ops::Drop for Locked<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl Deref for Locked<'_> {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Held {
        &mut self.held
    }
}

/// What is done with the channel that is held.
pub fn with<T>(mut held: Locked<'_>, act: impl FnOnce(&mut Channel) -> T) -> T {
    match &mut *held {
        Held::Channel(channel) => act(channel),
        Held::Sds(_) => unreachable!("who asks is made with a channel"),
    }
}

/// SDS, likewise.
pub struct LockedSds<'a>(Locked<'a>);

impl Deref for LockedSds<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        match &*self.0 {
            Held::Sds(machine) => machine,
            Held::Channel(channel) => channel.sds(),
        }
    }
}

impl DerefMut for LockedSds<'_> {
    fn deref_mut(&mut self) -> &mut Machine {
        match &mut *self.0 {
            Held::Sds(machine) => machine,
            Held::Channel(channel) => channel.sds_mut(),
        }
    }
}

impl Participant {
    /// What is held, as the base of either machine.
    pub fn holding(held: Held) -> PyClassInitializer<Self> {
        PyClassInitializer::from(Participant {
            held: Mutex::new(held),
            owner: AtomicU64::new(0),
            texts: Mutex::default(),
        })
    }

    /// What `make` gives, with texts that were made before. Where an object that is made has others
    /// collected, their code may come here again: then nothing is known.
    pub fn with_texts<T>(&self, make: impl FnOnce(&mut Texts) -> T) -> T {
        match self.texts.try_lock() {
            Ok(mut texts) => make(&mut texts),
            Err(_) => make(&mut Texts::default()),
        }
    }

    /// As [`Participant::lock_held`], SDS alone.
    pub fn lock(&self, py: Python<'_>) -> PyResult<LockedSds<'_>> {
        Ok(LockedSds(self.lock_held(py)?))
    }

    /// Whoever waits for it lets go of the GIL, which its source of randomness may need.
    pub fn lock_held(&self, py: Python<'_>) -> PyResult<Locked<'_>> {
        self.refuse_own_thread()?;
        let held = self.held.lock_py_attached(py);
        let held = held.unwrap_or_else(PoisonError::into_inner);
        Ok(Locked::new(held, &self.owner))
    }

    /// As [`Participant::lock_held`], where the GIL is let go of already.
    pub fn lock_detached(&self) -> PyResult<Locked<'_>> {
        self.refuse_own_thread()?;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Locked::new(held, &self.owner))
    }

    /// Python code runs while it is held: a source of randomness, and with that handlers of signals. It
    /// would wait for itself.
    fn refuse_own_thread(&self) -> PyResult<()> {
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            let message = "this machine is in the middle of a call on this thread: a signal handler or a \
                           source of randomness must not call it, leave it to the event loop";
            return Err(PyRuntimeError::new_err(message));
        }
        Ok(())
    }
}

#[documented]
#[pymethods]
impl Participant {
    // --- inputs: ours ----------------------------------------------------------------------------

    #[pyo3(
        signature = (send_id, contents, *, contents_needed, reserve = Reserve(0)),
        text_signature = "($self, send_id, contents, *, contents_needed, reserve=0)"
    )]
    fn send<'py>(
        &self,
        py: Python<'py>,
        send_id: SendId<'_>,
        contents: &Bound<'py, PyAny>,
        contents_needed: ContentsNeeded,
        reserve: Reserve,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let contents = buffers_of(contents, "contents")?;
        let contents = contents.into_iter().map(octets).collect();
        let ids = self
            .lock(py)?
            .send_on_demand(&send_id, contents, contents_needed.0, reserve.0)
            .map_err(Error::from)?;
        names(py, ids.iter())
    }

    fn make_parity(
        &self,
        py: Python<'_>,
        send_id: SendId<'_>,
        count: Count,
        wire_format: &str,
        erasure_code: &str,
        now: Moment,
    ) -> Result<usize, Error> {
        let form = (parse_wire_format(wire_format)?, parse_code(erasure_code)?);
        let now = now.into();
        Ok(channel::make_parity(
            &mut *self.lock(py)?,
            &send_id,
            count.0,
            form,
            now,
        ))
    }

    fn send_ephemeral(
        &self,
        py: Python<'_>,
        send_id: SendId<'_>,
        content: Buffer<'_>,
    ) -> PyResult<String> {
        let message_id = self
            .lock(py)?
            .send_ephemeral(&send_id, octets(content))
            .map_err(Error::from)?;
        Ok(message_id.to_string())
    }

    fn cancel(&self, py: Python<'_>, send_id: SendId<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.cancel(&send_id))
    }

    fn withdraw(&self, py: Python<'_>, send_id: SendId<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.withdraw(&send_id))
    }

    fn resume(
        &self,
        py: Python<'_>,
        send_id: SendId<'_>,
        ordinals: Ordinals,
        now: Moment,
    ) -> PyResult<Vec<u32>> {
        Ok(self.lock(py)?.resume(&send_id, &ordinals.0, now.into()))
    }

    fn stop(&self, py: Python<'_>, send_id: SendId<'_>) -> PyResult<()> {
        self.lock(py)?.stop(&send_id);
        Ok(())
    }

    fn leave_out(&self, py: Python<'_>, message_id: MessageId<'_>) -> PyResult<()> {
        self.lock(py)?.leave_out(&message_id);
        Ok(())
    }

    fn limit_headers(&self, py: Python<'_>, header_bytes_max: HeaderBytesMax) -> Result<(), Error> {
        Ok(self.lock(py)?.limit_headers(header_bytes_max.0)?)
    }

    fn handle_transmitted(
        &self,
        py: Python<'_>,
        transmit_id: TransmitId,
        retrieval_hint: Option<Buffer<'_>>,
        now: Moment,
    ) -> PyResult<()> {
        let hint = retrieval_hint.as_ref().map(Buffer::as_bytes);
        self.lock(py)?
            .handle_transmitted(transmit_id.0, hint, now.into());
        Ok(())
    }

    fn handle_transmit_failed(
        &self,
        py: Python<'_>,
        transmit_id: TransmitId,
        now: Moment,
    ) -> PyResult<()> {
        self.lock(py)?
            .handle_transmit_failed(transmit_id.0, now.into());
        Ok(())
    }

    // --- inputs: from the network ----------------------------------------------------------------

    fn handle_irretrievable(&self, py: Python<'_>, message_ids: &Bound<'_, PyAny>) -> PyResult<()> {
        let message_ids: Vec<String> = all_of(message_ids, "message_ids")?;
        self.lock(py)?
            .handle_irretrievable(message_ids.iter().map(String::as_str));
        Ok(())
    }

    fn handle_caught_up(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.handle_caught_up();
        Ok(())
    }

    fn handle_stored(
        &self,
        py: Python<'_>,
        send_id: SendId<'_>,
        ordinal: Ordinal,
        now: Moment,
    ) -> PyResult<()> {
        let now = now.into();
        match &mut *self.lock_held(py)? {
            Held::Sds(machine) => machine.handle_stored(&send_id, ordinal.0, now),
            Held::Channel(channel) => channel.handle_stored(&send_id, ordinal.0, now),
        }
        Ok(())
    }

    fn handle_timeout(&self, py: Python<'_>, now: Moment) -> PyResult<()> {
        self.lock(py)?.handle_timeout(now.into());
        Ok(())
    }

    // --- outputs ---------------------------------------------------------------------------------

    #[pyo3(signature = (now, kinds = None))]
    fn poll_transmit(
        &self,
        py: Python<'_>,
        now: Moment,
        kinds: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Transmit>> {
        // A container answers by Python code.
        let kinds = kinds_of(kinds)?;
        let now = now.into();
        let transmit = match &mut *self.lock_held(py)? {
            Held::Sds(machine) => machine.poll_transmit(now, kinds),
            Held::Channel(channel) => channel.poll_transmit(now, kinds),
        };
        transmit
            .map(|transmit| transmit_object(py, transmit))
            .transpose()
    }

    fn poll_timeout(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(self.lock(py)?.poll_timeout())
    }

    // --- views -----------------------------------------------------------------------------------

    #[getter]
    fn channel_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.lock(py)?.channel_id().to_owned())
    }

    #[getter]
    fn sender_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.lock(py)?.sender_id().to_owned())
    }

    #[getter]
    fn lamport_timestamp(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.lock(py)?.lamport_timestamp())
    }

    #[getter]
    fn queued_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.queued_bytes())
    }

    #[getter]
    fn acknowledgement_due_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        Ok(self.lock(py)?.acknowledgement_due_ms())
    }

    fn waiting<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = {
            let sds = self.lock(py)?;
            TransmitKind::ALL.map(|kind| (kind, sds.waiting(kind)))
        };
        let waiting = PyDict::new(py);
        for ((kind, count), member) in counts.into_iter().zip(transmit_kinds(py)?) {
            if kind != TransmitKind::Sync {
                waiting.set_item(member, count)?;
            }
        }
        Ok(waiting)
    }

    fn first_parity_millionths(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.lock(py)?.first_parity_millionths())
    }

    fn has_room(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.has_room())
    }

    fn oversized(
        &self,
        py: Python<'_>,
        content_bytes_max: ContentBytesMax,
    ) -> PyResult<Vec<(String, u32, usize)>> {
        let sds = self.lock(py)?;
        let oversized = sds.oversized(content_bytes_max.0);
        Ok(oversized
            .map(|(send_id, ordinal, size)| (send_id.to_string(), ordinal, size))
            .collect())
    }

    fn knows_send(&self, py: Python<'_>, send_id: SendId<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.knows_send(&send_id))
    }

    fn needs_message(&self, py: Python<'_>, message_id: MessageId<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.needs_message(&message_id))
    }

    fn holds(&self, py: Python<'_>, message_id: MessageId<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.holds(&message_id))
    }

    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let missing = self.lock(py)?.missing().cloned().collect();
        entries(py, missing)
    }

    fn is_missing(&self, py: Python<'_>, message_id: MessageId<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.missing_entry(&message_id).is_some())
    }

    fn participants_heard<'py>(
        &self,
        py: Python<'py>,
        now: Moment,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let heard = self.lock(py)?.participants_heard(now.into());
        names(py, heard.iter())
    }

    fn sends_in_store(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.lock(py)?.sends_in_store())
    }

    fn pending_sends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids: Vec<_> = self.lock(py)?.pending_sends().cloned().collect();
        names(py, ids.iter())
    }

    fn sends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids: Vec<_> = self.lock(py)?.sends().cloned().collect();
        names(py, ids.iter())
    }

    fn ordered_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids: Vec<_> = self.lock(py)?.ordered_ids().cloned().collect();
        names(py, ids.iter())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sizes = self.lock(py)?.stats();
        let stats = PyDict::new(py);
        for (name, size) in sizes {
            stats.set_item(name, size.into_bound_py_any(py)?)?;
        }
        Ok(stats)
    }

    fn inspect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = self.lock(py)?.inspect();
        let inspection = PyDict::new(py);
        let possible = held
            .unacknowledged
            .iter()
            .map(|content| (&content.message_id, content.possible));
        let acknowledged: PyResult<Vec<_>> = held
            .acknowledged
            .iter()
            .map(|(send, by)| Ok((send, by_name(py, by.iter().cloned())?)))
            .collect();
        inspection.set_item("log", names(py, held.log.iter())?)?;
        inspection.set_item("heads", names(py, held.heads.iter())?)?;
        inspection.set_item("incoming", names(py, held.incoming.iter())?)?;
        inspection.set_item("unacknowledged", by_name(py, possible)?)?;
        inspection.set_item("acknowledged", by_name(py, acknowledged?)?)?;
        inspection.set_item("repair_requests", by_name(py, held.repair_requests)?)?;
        inspection.set_item("repair_answers", by_name(py, held.repair_answers)?)?;
        inspection.set_item("originals", names(py, held.originals.iter())?)?;
        inspection.set_item("unsaid", names(py, held.unsaid.iter())?)?;
        inspection.set_item("bloom_filter", PyBytes::new(py, &held.bloom_filter))?;
        inspection.set_item("sync_due_ms", held.sync_due_ms)?;
        Ok(inspection)
    }
}

fn by_name<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    pairs: impl IntoIterator<Item = (impl AsRef<str>, T)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in pairs {
        dict.set_item(PyString::new(py, name.as_ref()), value)?;
    }
    Ok(dict)
}

#[documented]
#[pyfunction]
pub fn repair_times_without_store(members: usize) -> (i64, i64) {
    sds::repair_times_without_store(members)
}

#[documented]
#[pyfunction]
#[pyo3(signature = (participant, message_id, t_min_ms, t_max_ms, wire_format = "spec"))]
pub fn request_offset_ms(
    participant: &str,
    message_id: &str,
    t_min_ms: i64,
    t_max_ms: i64,
    wire_format: &str,
) -> Result<i64, Error> {
    let wire_format = parse_sds_wire_format(wire_format)?;
    Ok(sds::request_offset_ms(
        participant,
        message_id,
        t_min_ms,
        t_max_ms,
        wire_format,
    ))
}

#[documented]
#[pyfunction]
#[pyo3(signature = (participant, sender_id, message_id, t_max_ms, wire_format = "spec"))]
pub fn response_offset_ms(
    participant: &str,
    sender_id: &str,
    message_id: &str,
    t_max_ms: i64,
    wire_format: &str,
) -> Result<i64, Error> {
    let wire_format = parse_sds_wire_format(wire_format)?;
    Ok(sds::response_offset_ms(
        participant,
        sender_id,
        message_id,
        t_max_ms,
        wire_format,
    ))
}

#[documented]
#[pyfunction]
#[pyo3(signature = (participant, sender_id, message_id, groups, wire_format = "spec"))]
pub fn in_response_group(
    participant: &str,
    sender_id: &str,
    message_id: &str,
    groups: u64,
    wire_format: &str,
) -> Result<bool, Error> {
    let wire_format = parse_sds_wire_format(wire_format)?;
    Ok(sds::in_response_group(
        participant,
        sender_id,
        message_id,
        groups,
        wire_format,
    ))
}

#[documented]
#[pyfunction]
pub fn sds_limits(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    sds::LIMITS.into_py_dict(py)
}

#[documented]
#[pyfunction]
pub fn rival_name(message_id: &str, sender_id: &str, content: Buffer<'_>) -> String {
    sds::rival_name(message_id, sender_id, content.as_bytes()).to_string()
}

#[documented]
#[pyfunction]
pub fn is_rival(name: &str) -> bool {
    sds::rival_of(name).is_some()
}

#[documented]
#[pyfunction]
#[pyo3(signature = (text, /))]
pub fn farmhash64(text: &str) -> i64 {
    shardwire_core::bloom::farmhash64(text.as_bytes()) as i64
}

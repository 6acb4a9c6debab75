//! The SDS machine: `_native.pyi`, "Scalable Data Sync".

use std::collections::BTreeSet;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyString, PyTuple};
use shardwire_core::channel;
use shardwire_core::reassemble::Lent;
use shardwire_core::sds::{
    self, Config, DeliveredWhen, Kinds, Machine, MessageIdRule, Name, Octets, Place, Randomness,
    TransmitKind, Value,
};

use crate::buffer::{Buffer, all_of, buffers_of};
use crate::erasure::parse_code;
use crate::error::Error;
use crate::now::Now;
use crate::sds::{HistoryEntry, parse_sds_wire_format};
use crate::sds_events::{SdsEvent, Transmit, event_object, transmit_kinds, transmit_object};
use crate::segmentation::parse_wire_format;

/// Fewer bytes than this are copied: what surrounds a lent buffer would outweigh them.
const LENT_BYTES_MIN: usize = 4096;

/// The machine behind one participant's side of a channel.
#[pyclass(module = "shardwire._native")]
pub struct MessageChannel(Machine);

/// A `random.Random`.
struct PythonRandom(Py<PyAny>);

impl Randomness for PythonRandom {
    fn unit(&mut self) -> f64 {
        // Whatever a broken source gives, the machine goes on.
        Python::attach(|py| {
            let drawn = self.0.bind(py).call_method0(intern!(py, "random"));
            let drawn: f64 = drawn.and_then(|drawn| drawn.extract()).unwrap_or(0.5);
            if (0.0..1.0).contains(&drawn) {
                drawn
            } else {
                0.5
            }
        })
    }

    fn bits(&mut self) -> u64 {
        Python::attach(|py| {
            let drawn = self
                .0
                .bind(py)
                .call_method1(intern!(py, "getrandbits"), (64,));
            drawn.and_then(|drawn| drawn.extract()).unwrap_or(0)
        })
    }
}

/// The bytes of a buffer, in place where they are many.
pub fn octets(buffer: Buffer<'_>) -> Octets {
    if buffer.as_bytes().len() < LENT_BYTES_MIN {
        return Octets::from(buffer.as_bytes());
    }
    let lent: Lent = Arc::new(buffer.into_backed());
    Octets::Lent(lent)
}

/// What `SdsConfig`, `SyncConfig` and the arguments of the constructor come to.
pub fn config_of(
    sds: &Bound<'_, PyAny>,
    sync: &Bound<'_, PyAny>,
    header_bytes_max: usize,
    delivered_when: &Bound<'_, PyAny>,
) -> PyResult<Config> {
    let get = |name: &str| sds.getattr(name);
    let rule: String = get("message_id")?.extract()?;
    let lost_ms: Option<i64> = get("timeout_for_lost_messages_ms")?.extract()?;
    Ok(Config {
        wire_format: parse_sds_wire_format(&get("wire_format")?.extract::<String>()?)?,
        message_id: if rule == "send" {
            MessageIdRule::Send
        } else {
            MessageIdRule::ContentSha256
        },
        delivered_when: delivered_when_of(delivered_when)?,
        acknowledgement_timeout_ms: get("acknowledgement_timeout_ms")?.extract()?,
        max_retransmissions: get("max_retransmissions")?.extract()?,
        back_off_percent: get("back_off_percent")?.extract()?,
        causal_history_size: get("causal_history_size")?.extract()?,
        bloom_filter_capacity: get("bloom_filter_capacity")?.extract()?,
        bloom_filter_error_rate: get("bloom_filter_error_rate")?.extract()?,
        bloom_interval_ms: get("bloom_interval_ms")?.extract()?,
        possible_acks_threshold: get("possible_acks_threshold")?.extract()?,
        timeout_for_lost_messages_ms: lost_ms.unwrap_or(0),
        enable_repair: get("enable_repair")?.extract()?,
        repair_t_min_ms: get("repair_t_min_ms")?.extract()?,
        repair_t_max_ms: get("repair_t_max_ms")?.extract()?,
        repair_groups: get("repair_groups")?.extract()?,
        outgoing_buffer_messages_max: get("outgoing_buffer_messages_max")?.extract()?,
        incoming_buffer_messages_max: get("incoming_buffer_messages_max")?.extract()?,
        missing_messages_max: get("missing_messages_max")?.extract()?,
        log_messages_max: get("log_messages_max")?.extract()?,
        max_lamport_skew_ms: get("max_lamport_skew_ms")?.extract()?,
        replay_window_ms: get("replay_window_ms")?.extract()?,
        sync_min_interval_ms: sync.getattr("sync_min_interval_ms")?.extract()?,
        sweep_in_buf_interval_ms: sync.getattr("sweep_in_buf_interval_ms")?.extract()?,
        acknowledgement_sync: sync.getattr("acknowledgement_sync")?.extract()?,
        participant_ttl_ms: sync.getattr("participant_ttl_ms")?.extract()?,
        header_bytes_max,
    })
}

fn delivered_when_of(value: &Bound<'_, PyAny>) -> PyResult<DeliveredWhen> {
    if let Ok(text) = value.cast::<PyString>() {
        // The configuration knows one word alone.
        debug_assert!(text.to_str()? == "any");
        return Ok(DeliveredWhen::Any);
    }
    if let Ok(count) = value.extract() {
        return Ok(DeliveredWhen::Count(count));
    }
    let mut names = BTreeSet::new();
    for name in value.try_iter()? {
        names.insert(Arc::from(name?.extract::<String>()?));
    }
    Ok(DeliveredWhen::Named(names))
}

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
        if kinds.contains(member)? {
            allowed = allowed.with(kind);
        }
    }
    Ok(allowed)
}

fn entries<'py, 'a>(
    py: Python<'py>,
    entries: impl Iterator<Item = &'a shardwire_core::wire::sds::HistoryEntry>,
) -> PyResult<Bound<'py, PyTuple>> {
    let entries: Vec<_> = entries.cloned().map(HistoryEntry::from).collect();
    PyTuple::new(py, entries)
}

fn names<'py>(
    py: Python<'py>,
    names: impl Iterator<Item = impl AsRef<str>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let names: Vec<_> = names.map(|name| PyString::new(py, name.as_ref())).collect();
    PyTuple::new(py, names)
}

#[pymethods]
impl MessageChannel {
    #[new]
    #[pyo3(signature = (
        channel_id, sender_id, config, sync, *, now, rng, header_bytes_max = 24_000,
        delivered_when = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the constructor's")]
    fn new(
        channel_id: &str,
        sender_id: &str,
        config: &Bound<'_, PyAny>,
        sync: &Bound<'_, PyAny>,
        now: &Bound<'_, Now>,
        rng: Py<PyAny>,
        header_bytes_max: usize,
        delivered_when: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let any = PyString::new(config.py(), "any").into_any();
        let config = config_of(
            config,
            sync,
            header_bytes_max,
            delivered_when.unwrap_or(&any),
        )?;
        let rng = Box::new(PythonRandom(rng));
        let machine = Machine::new(channel_id, sender_id, config, now.get().into(), rng);
        Ok(MessageChannel(machine.map_err(Error::from)?))
    }

    /// The machine that stored records describe.
    #[staticmethod]
    #[pyo3(signature = (
        records, channel_id, sender_id, config, sync, *, now, rng, header_bytes_max = 24_000,
        delivered_when = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "the constructor's")]
    fn restore(
        records: &Bound<'_, PyAny>,
        channel_id: &str,
        sender_id: &str,
        config: &Bound<'_, PyAny>,
        sync: &Bound<'_, PyAny>,
        now: &Bound<'_, Now>,
        rng: Py<PyAny>,
        header_bytes_max: usize,
        delivered_when: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let any = PyString::new(config.py(), "any").into_any();
        let config = config_of(
            config,
            sync,
            header_bytes_max,
            delivered_when.unwrap_or(&any),
        )?;
        let mut read = Vec::new();
        for item in records
            .call_method0(intern!(records.py(), "items"))?
            .try_iter()?
        {
            let ((kind, key), value): ((String, Bound<'_, PyBytes>), Buffer<'_>) =
                item?.extract()?;
            read.push((kind, Name::from_wire(key.as_bytes()), octets(value)));
        }
        let rng = Box::new(PythonRandom(rng));
        let records = read
            .iter()
            .map(|(kind, key, value)| (kind.as_str(), key.clone(), value.clone()));
        let machine = Machine::restore(
            records,
            channel_id,
            sender_id,
            config,
            now.get().into(),
            rng,
        );
        Ok(MessageChannel(machine.map_err(Error::from)?))
    }

    // --- inputs: ours ---------------------------------------------------------------------------

    #[pyo3(signature = (send_id, contents, now, *, contents_needed, reserve = 0))]
    fn send<'py>(
        &mut self,
        py: Python<'py>,
        send_id: &str,
        contents: &Bound<'py, PyAny>,
        now: &Bound<'py, Now>,
        contents_needed: u32,
        reserve: u32,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = now;
        let contents = buffers_of(contents, "contents")?;
        let contents = contents.into_iter().map(octets).collect();
        let ids = self
            .0
            .send_on_demand(send_id, contents, contents_needed, reserve)
            .map_err(Error::from)?;
        names(py, ids.iter())
    }

    fn make_parity(
        &mut self,
        send_id: &str,
        count: u32,
        wire_format: &str,
        erasure_code: &str,
        now: &Bound<'_, Now>,
    ) -> Result<usize, Error> {
        let form = (parse_wire_format(wire_format)?, parse_code(erasure_code)?);
        let now = now.get().into();
        Ok(channel::make_parity(&mut self.0, send_id, count, form, now))
    }

    fn send_ephemeral(
        &mut self,
        send_id: &str,
        content: Buffer<'_>,
        now: &Bound<'_, Now>,
    ) -> PyResult<String> {
        let _ = now;
        let message_id = self
            .0
            .send_ephemeral(send_id, octets(content))
            .map_err(Error::from)?;
        Ok(message_id.to_string())
    }

    fn cancel(&mut self, send_id: &str, now: &Bound<'_, Now>) -> bool {
        let _ = now;
        self.0.cancel(send_id)
    }

    fn withdraw(&mut self, send_id: &str) -> bool {
        self.0.withdraw(send_id)
    }

    fn stop(&mut self, send_id: &str) {
        self.0.stop(send_id);
    }

    fn leave_out(&mut self, message_id: &str) {
        self.0.leave_out(message_id);
    }

    fn limit_headers(&mut self, header_bytes_max: usize) -> Result<(), Error> {
        Ok(self.0.limit_headers(header_bytes_max)?)
    }

    fn handle_transmitted(
        &mut self,
        transmit_id: u64,
        retrieval_hint: Option<Buffer<'_>>,
        now: &Bound<'_, Now>,
    ) {
        let hint = retrieval_hint.as_ref().map(Buffer::as_bytes);
        self.0
            .handle_transmitted(transmit_id, hint, now.get().into());
    }

    fn handle_transmit_failed(&mut self, transmit_id: u64, now: &Bound<'_, Now>) {
        self.0.handle_transmit_failed(transmit_id, now.get().into());
    }

    // --- inputs: from the network ---------------------------------------------------------------

    #[pyo3(signature = (data, now, retrieval_hint = None, *, from_store = false))]
    fn handle_message(
        &mut self,
        data: Buffer<'_>,
        now: &Bound<'_, Now>,
        retrieval_hint: Option<Buffer<'_>>,
        from_store: bool,
    ) {
        let hint = retrieval_hint.as_ref().map(Buffer::as_bytes);
        self.0
            .handle_message(&octets(data), hint, from_store, now.get().into());
    }

    // --- inputs: from the owner, about contents that it was handed -------------------------------

    #[expect(clippy::too_many_arguments, reason = "what a segment's header says")]
    #[pyo3(signature = (message_id, sender_id, send_id, ordinal, content_count, contents_needed, now))]
    fn handle_content_placed(
        &mut self,
        message_id: &str,
        sender_id: &str,
        send_id: &str,
        ordinal: Option<u32>,
        content_count: Option<u32>,
        contents_needed: Option<u32>,
        now: &Bound<'_, Now>,
    ) {
        let _ = sender_id;
        let place = Place {
            send_id,
            ordinal,
            content_count,
            contents_needed,
        };
        self.0
            .handle_content_placed(message_id, place, now.get().into());
    }

    #[pyo3(signature = (sender_id, send_id, content_count, now, *, inferred_message_ids = None))]
    fn handle_send_reconstructed(
        &mut self,
        sender_id: &str,
        send_id: &str,
        content_count: u32,
        now: &Bound<'_, Now>,
        inferred_message_ids: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let inferred = inferred_message_ids.map_or(Ok(Vec::new()), |ids| {
            all_of::<String>(ids, "inferred_message_ids")
        })?;
        let inferred: Vec<Name> = inferred.iter().map(|id| Name::new(id)).collect();
        let now = now.get().into();
        self.0
            .handle_send_reconstructed(sender_id, send_id, content_count, &inferred, now);
        Ok(())
    }

    #[pyo3(signature = (message_id, data, *, invalid = false))]
    fn handle_content_refused(&mut self, message_id: &str, data: Buffer<'_>, invalid: bool) {
        self.0
            .handle_content_refused(message_id, data.as_bytes(), invalid);
    }

    fn handle_content_surplus(&mut self, message_id: &str) {
        self.0.handle_content_surplus(message_id);
    }

    fn handle_content_doubted(&mut self, message_id: &str, sender_id: &str, send_id: &str) {
        self.0
            .handle_content_doubted(message_id, sender_id, send_id);
    }

    #[pyo3(signature = (sender_id, send_id, now, *, keep_messages = false))]
    fn handle_send_abandoned(
        &mut self,
        sender_id: &str,
        send_id: &str,
        now: &Bound<'_, Now>,
        keep_messages: bool,
    ) -> bool {
        self.0
            .handle_send_abandoned(sender_id, send_id, keep_messages, now.get().into())
    }

    fn handle_whole_content(
        &mut self,
        message_id: &str,
        sender_id: &str,
        content: Buffer<'_>,
        data: Buffer<'_>,
    ) {
        self.0
            .handle_whole_content(message_id, sender_id, content.as_bytes(), data.as_bytes());
    }

    fn handle_content_apart(
        &mut self,
        message_id: &str,
        sender_id: &str,
        content: Buffer<'_>,
        data: Buffer<'_>,
    ) -> String {
        let name =
            self.0
                .handle_content_apart(message_id, sender_id, content.as_bytes(), data.as_bytes());
        name.to_string()
    }

    fn handle_rival_refused(&mut self, name: &str) {
        self.0.handle_rival_refused(name);
    }

    fn was_rival(&self, message_id: &str, sender_id: &str, content: Buffer<'_>) -> bool {
        self.0.was_rival(message_id, sender_id, content.as_bytes())
    }

    fn handle_irretrievable(
        &mut self,
        message_ids: &Bound<'_, PyAny>,
        now: &Bound<'_, Now>,
    ) -> PyResult<()> {
        let _ = now;
        let message_ids: Vec<String> = all_of(message_ids, "message_ids")?;
        self.0
            .handle_irretrievable(message_ids.iter().map(String::as_str));
        Ok(())
    }

    fn handle_caught_up(&mut self, now: &Bound<'_, Now>) {
        let _ = now;
        self.0.handle_caught_up();
    }

    fn handle_stored(&mut self, send_id: &str, ordinal: u32, now: &Bound<'_, Now>) {
        self.0.handle_stored(send_id, ordinal, now.get().into());
    }

    fn handle_timeout(&mut self, now: &Bound<'_, Now>) {
        self.0.handle_timeout(now.get().into());
    }

    // --- outputs --------------------------------------------------------------------------------

    fn poll_event<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, SdsEvent>>> {
        self.0
            .poll_event()
            .map(|event| event_object(py, event))
            .transpose()
    }

    #[pyo3(signature = (now, kinds = None))]
    fn poll_transmit(
        &mut self,
        py: Python<'_>,
        now: &Bound<'_, Now>,
        kinds: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<Transmit>> {
        let transmit = self.0.poll_transmit(now.get().into(), kinds_of(kinds)?);
        transmit
            .map(|transmit| transmit_object(py, transmit))
            .transpose()
    }

    /// Records that changed since the last call; None deletes.
    fn poll_persist<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let records = PyDict::new(py);
        for record in self.0.poll_persist() {
            let key = PyBytes::new(py, record.key.as_bytes());
            let value = match &record.value {
                None => py.None().into_bound(py),
                Some(Value::Fields(bytes)) => PyBytes::new(py, bytes).into_any(),
                Some(Value::Shared(bytes)) => PyBytes::new(py, bytes).into_any(),
            };
            records.set_item((PyString::intern(py, record.kind), key), value)?;
        }
        Ok(records)
    }

    fn poll_reopened<'py>(
        &mut self,
        py: Python<'py>,
    ) -> Vec<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>)> {
        let reopened = self.0.poll_reopened().into_iter();
        let made = reopened.map(|(data, hint)| {
            (
                PyBytes::new(py, &data),
                hint.map(|hint| PyBytes::new(py, &hint)),
            )
        });
        made.collect()
    }

    fn poll_timeout(&mut self) -> Option<i64> {
        self.0.poll_timeout()
    }

    // --- views ----------------------------------------------------------------------------------

    #[getter]
    fn channel_id(&self) -> &str {
        self.0.channel_id()
    }

    #[getter]
    fn sender_id(&self) -> &str {
        self.0.sender_id()
    }

    #[getter]
    fn lamport_timestamp(&self) -> u64 {
        self.0.lamport_timestamp()
    }

    #[getter]
    fn queued_bytes(&self) -> usize {
        self.0.queued_bytes()
    }

    #[getter]
    fn acknowledgement_due_ms(&self) -> Option<i64> {
        self.0.acknowledgement_due_ms()
    }

    fn waiting<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let waiting = PyDict::new(py);
        for (kind, member) in TransmitKind::ALL.into_iter().zip(transmit_kinds(py)?) {
            if kind != TransmitKind::Sync {
                waiting.set_item(member, self.0.waiting(kind))?;
            }
        }
        Ok(waiting)
    }

    fn first_parity_millionths(&self) -> u32 {
        self.0.first_parity_millionths()
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn is_queued(&self, send_id: &str) -> bool {
        self.0.is_queued(send_id)
    }

    fn oversized(&self, content_bytes_max: usize) -> Vec<(String, u32, usize)> {
        let oversized = self.0.oversized(content_bytes_max);
        oversized
            .map(|(send_id, ordinal, size)| (send_id.to_string(), ordinal, size))
            .collect()
    }

    fn knows_send(&self, send_id: &str) -> bool {
        self.0.knows_send(send_id)
    }

    fn needs_message(&self, message_id: &str) -> bool {
        self.0.needs_message(message_id)
    }

    fn holds(&self, message_id: &str) -> bool {
        self.0.holds(message_id)
    }

    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        entries(py, self.0.missing())
    }

    /// The same by message id.
    fn missing_by_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let missing = PyDict::new(py);
        for entry in self.0.missing() {
            let name = PyString::new(py, &entry.message_id);
            missing.set_item(name, HistoryEntry::from(entry.clone()))?;
        }
        Ok(missing)
    }

    fn missing_version(&self) -> u64 {
        self.0.missing_version()
    }

    fn is_missing(&self, message_id: &str) -> bool {
        self.0.missing_entry(message_id).is_some()
    }

    fn participants_heard<'py>(
        &self,
        py: Python<'py>,
        now: &Bound<'py, Now>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        names(py, self.0.participants_heard(now.get().into()).iter())
    }

    fn sends_in_store(&self) -> usize {
        self.0.sends_in_store()
    }

    fn pending_sends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        names(py, self.0.pending_sends())
    }

    fn sends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        names(py, self.0.sends())
    }

    fn ordered_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        names(py, self.0.ordered_ids())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        for (name, size) in self.0.stats() {
            stats.set_item(name, size.into_bound_py_any(py)?)?;
        }
        Ok(stats)
    }

    fn inspect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = self.0.inspect();
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

/// T_req - now, in milliseconds (SDS-R).
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

/// T_resp - now, in milliseconds (SDS-R): 0 for the original sender.
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

/// Whether a participant answers for a message of a sender (SDS-R).
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

/// The limits of what a machine holds, by name.
#[pyfunction]
pub fn sds_limits(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    sds::LIMITS.into_py_dict(py)
}

/// What a content is called whose message id another content has: no two of one id are called alike.
#[pyfunction]
pub fn rival_name(message_id: &str, sender_id: &str, content: Buffer<'_>) -> String {
    sds::rival_name(message_id, sender_id, content.as_bytes()).to_string()
}

/// Whether `name` is that of a content whose message id another content has, and no message id.
#[pyfunction]
pub fn is_rival(name: &str) -> bool {
    sds::rival_of(name).is_some()
}

/// Nim's `hash(string)`: FarmHash64 of the UTF-8 bytes, as the signed integer that Nim has.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub fn farmhash64(text: &str) -> i64 {
    shardwire_core::bloom::farmhash64(text.as_bytes()) as i64
}

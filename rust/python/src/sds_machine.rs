//! SDS alone: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardwire_core::sds::{Machine, Name, Place};
use shardwire_stub::documented;

use crate::arguments::{
    ChannelId, ContentCount, ContentsNeeded, FromStore, HeaderBytesMax, Invalid, KeepMessages,
    MessageId, Ordinal, RivalName, Rng, SendId, SenderId,
};
use crate::buffer::{Buffer, all_of};
use crate::error::Error;
use crate::lent_bytes::{IntoBytes, octets};
use crate::now::Moment;
use crate::participant::{Held, Participant};
use crate::python_random::PythonRandom;
use crate::sds_config::config_of;
use crate::sds_events::{SdsEvent, event_object};
use crate::stored_records::{ChangedRecords, read_records};

/// A message to be taken in again, and its hint.
type Reopened<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

#[documented]
#[pyclass(extends = Participant, frozen, module = "shardwire._native")]
pub struct MessageChannel;

impl MessageChannel {
    fn holding(mut machine: Machine) -> PyClassInitializer<Self> {
        machine.join_by(Box::new(IntoBytes));
        Participant::holding(Held::Sds(Box::new(machine))).add_subclass(MessageChannel)
    }
}

#[documented]
#[pymethods]
impl MessageChannel {
    #[new]
    #[pyo3(signature = (
        channel_id, sender_id, config, sync, *, now, rng, header_bytes_max = HeaderBytesMax(24_000),
        delivered_when = None
    ),
        text_signature = "(channel_id, sender_id, config, sync, *, now, rng, header_bytes_max=24000, \
                          delivered_when=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "the constructor's")]
    fn new(
        channel_id: ChannelId<'_>,
        sender_id: SenderId<'_>,
        config: &Bound<'_, PyAny>,
        sync: &Bound<'_, PyAny>,
        now: Moment,
        rng: Rng,
        header_bytes_max: HeaderBytesMax,
        delivered_when: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let rng = Box::new(PythonRandom::new(config.py(), rng.0));
        let config = config_of(config, sync, header_bytes_max.0, delivered_when)?;
        let machine = Machine::new(&channel_id, &sender_id, config, now.into(), rng);
        Ok(MessageChannel::holding(machine.map_err(Error::from)?))
    }

    #[staticmethod]
    #[pyo3(signature = (
        records, channel_id, sender_id, config, sync, *, now, rng, header_bytes_max = HeaderBytesMax(24_000),
        delivered_when = None
    ),
        text_signature = "(records, channel_id, sender_id, config, sync, *, now, rng, \
                          header_bytes_max=24000, delivered_when=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "the constructor's")]
    fn restore(
        records: &Bound<'_, PyAny>,
        channel_id: ChannelId<'_>,
        sender_id: SenderId<'_>,
        config: &Bound<'_, PyAny>,
        sync: &Bound<'_, PyAny>,
        now: Moment,
        rng: Rng,
        header_bytes_max: HeaderBytesMax,
        delivered_when: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let py = records.py();
        let config = config_of(config, sync, header_bytes_max.0, delivered_when)?;
        let read = read_records(records)?;
        let records = read.iter().map(|(kind, key, value)| {
            let key = Name::from_wire(key.as_bytes());
            (&**kind, key, octets(value.clone()))
        });
        let rng = Box::new(PythonRandom::new(py, rng.0));
        let now = now.into();
        let machine =
            Machine::new(&channel_id, &sender_id, config, now, rng).map_err(Error::from)?;
        let restored = machine.restore(records, now).map_err(Error::from)?;
        Py::new(py, MessageChannel::holding(restored))
    }

    #[pyo3(
        signature = (data, now, retrieval_hint = None, *, from_store = FromStore(false)),
        text_signature = "($self, data, now, retrieval_hint=None, *, from_store=False)"
    )]
    fn handle_message(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        data: Buffer<'_>,
        now: Moment,
        retrieval_hint: Option<Buffer<'_>>,
        from_store: FromStore,
    ) -> PyResult<()> {
        let hint = retrieval_hint.as_ref().map(Buffer::as_bytes);
        slf.as_super()
            .lock(py)?
            .handle_message(&octets(data), hint, from_store.0, now.into());
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "what a segment's header says")]
    #[pyo3(signature = (message_id, send_id, ordinal, content_count, contents_needed, now))]
    fn handle_content_placed(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
        send_id: SendId<'_>,
        ordinal: Option<Ordinal>,
        content_count: Option<ContentCount>,
        contents_needed: Option<ContentsNeeded>,
        now: Moment,
    ) -> PyResult<()> {
        let place = Place {
            send_id: &send_id,
            ordinal: ordinal.map(|ordinal| ordinal.0),
            content_count: content_count.map(|count| count.0),
            contents_needed: contents_needed.map(|needed| needed.0),
        };
        slf.as_super()
            .lock(py)?
            .handle_content_placed(&message_id, place, now.into());
        Ok(())
    }

    #[pyo3(signature = (sender_id, send_id, content_count, now, *, inferred_message_ids = None))]
    fn handle_send_reconstructed(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        sender_id: SenderId<'_>,
        send_id: SendId<'_>,
        content_count: ContentCount,
        now: Moment,
        inferred_message_ids: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let inferred = inferred_message_ids.map_or(Ok(Vec::new()), |ids| {
            all_of::<String>(ids, "inferred_message_ids")
        })?;
        let inferred: Vec<Name> = inferred.iter().map(|id| Name::new(id)).collect();
        let now = now.into();
        slf.as_super().lock(py)?.handle_send_reconstructed(
            None,
            &sender_id,
            &send_id,
            content_count.0,
            &inferred,
            now,
        );
        Ok(())
    }

    #[pyo3(
        signature = (message_id, data, *, invalid = Invalid(false)),
        text_signature = "($self, message_id, data, *, invalid=False)"
    )]
    fn handle_content_refused(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
        data: Buffer<'_>,
        invalid: Invalid,
    ) -> PyResult<()> {
        slf.as_super()
            .lock(py)?
            .handle_content_refused(&message_id, data.as_bytes(), invalid.0);
        Ok(())
    }

    fn handle_content_surplus(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
    ) -> PyResult<()> {
        slf.as_super().lock(py)?.handle_content_surplus(&message_id);
        Ok(())
    }

    fn handle_content_doubted(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
        sender_id: SenderId<'_>,
        send_id: SendId<'_>,
    ) -> PyResult<()> {
        slf.as_super()
            .lock(py)?
            .handle_content_doubted(&message_id, &sender_id, &send_id);
        Ok(())
    }

    #[pyo3(
        signature = (sender_id, send_id, now, *, keep_messages = KeepMessages(false)),
        text_signature = "($self, sender_id, send_id, now, *, keep_messages=False)"
    )]
    fn handle_send_abandoned(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        sender_id: SenderId<'_>,
        send_id: SendId<'_>,
        now: Moment,
        keep_messages: KeepMessages,
    ) -> PyResult<bool> {
        Ok(slf.as_super().lock(py)?.handle_send_abandoned(
            None,
            &sender_id,
            &send_id,
            keep_messages.0,
            now.into(),
        ))
    }

    fn handle_whole_content(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
        sender_id: SenderId<'_>,
        content: Buffer<'_>,
        data: Buffer<'_>,
    ) -> PyResult<()> {
        slf.as_super().lock(py)?.handle_whole_content(
            &message_id,
            &sender_id,
            content.as_bytes(),
            data.as_bytes(),
        );
        Ok(())
    }

    fn handle_content_apart(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
        sender_id: SenderId<'_>,
        content: Buffer<'_>,
        data: Buffer<'_>,
    ) -> PyResult<String> {
        let name = slf.as_super().lock(py)?.handle_content_apart(
            &message_id,
            &sender_id,
            content.as_bytes(),
            data.as_bytes(),
        );
        Ok(name.to_string())
    }

    fn handle_rival_refused(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        name: RivalName<'_>,
        sender_id: SenderId<'_>,
    ) -> PyResult<()> {
        slf.as_super()
            .lock(py)?
            .handle_rival_refused(&name, &sender_id);
        Ok(())
    }

    fn was_rival(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        message_id: MessageId<'_>,
        sender_id: SenderId<'_>,
        content: Buffer<'_>,
    ) -> PyResult<bool> {
        Ok(slf
            .as_super()
            .lock(py)?
            .was_rival(&message_id, &sender_id, content.as_bytes()))
    }

    fn poll_event<'py>(
        slf: PyRef<'_, Self>,
        py: Python<'py>,
    ) -> PyResult<Option<Bound<'py, SdsEvent>>> {
        let participant: &Participant = slf.as_super();
        let event = participant.lock(py)?.poll_event();
        event
            .map(|event| participant.with_texts(|texts| event_object(py, event, texts)))
            .transpose()
    }

    fn poll_persist(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<ChangedRecords> {
        Ok(slf.as_super().lock(py)?.poll_persist().into())
    }

    fn poll_reopened<'py>(slf: PyRef<'_, Self>, py: Python<'py>) -> PyResult<Vec<Reopened<'py>>> {
        let reopened = slf.as_super().lock(py)?.poll_reopened().into_iter();
        let made = reopened.map(|(data, hint)| {
            (
                PyBytes::new(py, &data),
                hint.map(|hint| PyBytes::new(py, &hint)),
            )
        });
        Ok(made.collect())
    }
}

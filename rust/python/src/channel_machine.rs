//! The machine of a reliable channel: `_native.pyi`, "Channel".

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyList, PyString};
use shardwire_core::channel::{
    Arrival, Channel, ChannelConfig, Failure, Handover, Listened, QueueLimits, RetrievalConfig,
    Segmentation, StoredRecord, Submission, Taken,
};
use shardwire_core::reassemble::Limits;
use shardwire_core::sds::{Config, Kinds, TransmitKind};
use shardwire_stub::documented;

use crate::allowance::{Allowance, allowances_of};
use crate::buffer::{Buffer, DETACH_BYTES_MIN, buffers_of};
use crate::channel_events::{channel_event_object, delivery_object};
use crate::error::Error;
use crate::lent_bytes::{IntoBytes, octets};
use crate::now::Now;
use crate::own_sends::{OwnSends, SendProgress};
use crate::participant::{Held, Participant, with};
use crate::python_random::PythonRandom;
use crate::reassembler::set_stats;
use crate::sds_config::config_of;
use crate::sds_events::{Transmit, transmit_object};
use crate::segmentation::SegmentationParameters;
use crate::send_events::kinds_named;
use crate::store_questions::StoreQuestions;
use crate::stored_records::{ChangedRecords, read_records};

#[documented]
#[pyclass(extends = Participant, frozen, module = "shardwire._native")]
pub struct ChannelMachine {
    /// Beside the machine: it may be said at any time, in the middle of a call too.
    listened: Listened,
}

impl ChannelMachine {
    fn holding(channel: Channel) -> PyClassInitializer<Self> {
        let listened = channel.own().listened().clone();
        Participant::holding(Held::Channel(Box::new(channel)))
            .add_subclass(ChannelMachine { listened })
    }
}

/// The request of a message that waits no longer, and why it is refused, if it is.
type Registered = (String, Option<PyErr>);

fn registered(taken: Vec<Taken>) -> Vec<Registered> {
    let taken = taken.into_iter();
    taken
        .map(|(request_id, taken)| {
            let error = taken.err().map(|error| Error::from(error).into());
            (request_id.to_string(), error)
        })
        .collect()
}

/// Takes so many received bytes in: many without the GIL, which others may need to be done.
fn take_in<T: Send>(
    participant: &Participant,
    py: Python<'_>,
    length: usize,
    take: impl FnOnce(&mut Channel) -> T + Send,
) -> PyResult<T> {
    if length < DETACH_BYTES_MIN {
        Ok(with(participant.lock_held(py)?, take))
    } else {
        py.detach(|| Ok(with(participant.lock_detached()?, take)))
    }
}

/// What `ReassemblyLimits` comes to.
fn limits_of(limits: &Bound<'_, PyAny>) -> PyResult<Limits> {
    let get = |name: &str| limits.getattr(name);
    Ok(Limits {
        sets_max: get("sets_max")?.extract()?,
        sets_per_sender_max: get("sets_per_sender_max")?.extract()?,
        buffered_bytes_max: get("buffered_bytes_max")?.extract()?,
        buffered_bytes_per_sender_max: get("buffered_bytes_per_sender_max")?.extract()?,
        unauthenticated_share: get("unauthenticated_share")?.extract()?,
        candidates_per_slot_max: get("candidates_per_slot_max")?.extract()?,
        completed_remembered_max: get("completed_remembered_max")?.extract()?,
        timeout_ms: get("timeout_ms")?.extract()?,
        work_budget: get("work_budget")?.extract()?,
    })
}

/// How messages are handed over: a configuration's limits, and the promise that is called so.
fn handover_of(config: &Bound<'_, PyAny>, redelivery: &str) -> PyResult<Handover> {
    let choices = "'at-least-once' or 'at-most-once'";
    let promise = redelivery.parse().map_err(|()| Error::Choice {
        field: "redelivery",
        value: redelivery.to_owned(),
        choices,
    })?;
    Ok(Handover {
        redelivery: promise,
        messages_max: config.getattr("incoming_buffer_messages_max")?.extract()?,
        bytes_max: config.getattr("incoming_buffer_bytes_max")?.extract()?,
    })
}

/// The part of `SyncConfig` that says when a store is asked.
fn retrieval_of(sync: &Bound<'_, PyAny>) -> PyResult<RetrievalConfig> {
    Ok(RetrievalConfig {
        retrieve_frequency_ms: sync.getattr("retrieve_frequency_ms")?.extract()?,
        query_on_connect: sync.getattr("query_on_connect")?.extract()?,
        query_on_connect_interval_ms: sync.getattr("query_on_connect_interval_ms")?.extract()?,
    })
}

#[documented]
#[pymethods]
impl ChannelMachine {
    #[staticmethod]
    #[pyo3(signature = (
        records, channel_id, sender_id, config, sync, segmentation, limits, *, now, rng,
        redelivery = "at-least-once", header_bytes_max = 24_000, delivered_when = None,
        members_make_parity = false, queue_bytes_max = 268_435_456, is_limited = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "the constructor's")]
    fn restore<'py>(
        py: Python<'py>,
        records: &Bound<'py, PyAny>,
        channel_id: &str,
        sender_id: &str,
        config: &Bound<'py, PyAny>,
        sync: &Bound<'py, PyAny>,
        segmentation: &SegmentationParameters,
        limits: &Bound<'py, PyAny>,
        now: &Bound<'py, Now>,
        rng: Py<PyAny>,
        redelivery: &str,
        header_bytes_max: usize,
        delivered_when: Option<&Bound<'py, PyAny>>,
        members_make_parity: bool,
        queue_bytes_max: usize,
        is_limited: bool,
    ) -> PyResult<Py<Self>> {
        let handover = handover_of(config, redelivery)?;
        let config = ChannelConfig {
            sds: Config {
                members_make_parity,
                ..config_of(config, sync, header_bytes_max, delivered_when)?
            },
            segmentation: Segmentation {
                parameters: segmentation.inner,
                limits: limits_of(limits)?,
            },
            queue: QueueLimits {
                bytes_max: queue_bytes_max,
                is_limited,
            },
            handover,
            retrieval: retrieval_of(sync)?,
        };
        let read = read_records(records)?;
        let records = read.iter().map(|(kind, key, value)| -> StoredRecord<'_> {
            (&**kind, key.as_bytes(), octets(value.clone()))
        });
        let (now, rng) = (now.get().into(), Box::new(PythonRandom::new(py, rng)));
        let channel = Channel::new(channel_id, sender_id, config, now, rng);
        let mut channel = channel.map_err(Error::from)?;
        channel.sds_mut().join_by(Box::new(IntoBytes));
        let channel = channel.restore(records, now).map_err(Error::from)?;
        Py::new(py, ChannelMachine::holding(channel))
    }

    // --- inputs ---------------------------------------------------------------------------------

    #[pyo3(signature = (
        data, now, retrieval_hint = None, *, timestamp_ns = 0, authenticated_sender = None,
        from_store = false, observed = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "all that is known of an arrival")]
    fn handle_message(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        data: Buffer<'_>,
        now: &Bound<'_, Now>,
        retrieval_hint: Option<Buffer<'_>>,
        timestamp_ns: i64,
        authenticated_sender: Option<PyBackedStr>,
        from_store: bool,
        observed: bool,
    ) -> PyResult<bool> {
        let length = data.as_bytes().len();
        let (data, now) = (octets(data), now.get().into());
        let hint = retrieval_hint.map(Buffer::into_backed);
        let arrival = Arrival {
            data: &data,
            retrieval_hint: hint.as_deref(),
            timestamp_ns,
            authenticated_sender: authenticated_sender.as_deref(),
            from_store,
            observed,
        };
        let take = |channel: &mut Channel| channel.handle_message(&arrival, now);
        take_in(slf.as_super(), py, length, take)
    }

    #[pyo3(signature = (arrivals, now, *, observed = false))]
    fn handle_messages(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        arrivals: &Bound<'_, PyAny>,
        now: &Bound<'_, Now>,
        observed: bool,
    ) -> PyResult<Vec<bool>> {
        let now = now.get().into();
        let mut length = 0;
        let mut taken = Vec::new();
        for arrival in arrivals.try_iter()? {
            let arrival = arrival?;
            let data: Buffer<'_> = arrival.getattr(intern!(py, "data"))?.extract()?;
            let hint: Buffer<'_> = arrival.getattr(intern!(py, "message_hash"))?.extract()?;
            let sender: Option<PyBackedStr> = arrival
                .getattr(intern!(py, "authenticated_sender"))?
                .extract()?;
            let from_store: bool = arrival.getattr(intern!(py, "from_store"))?.extract()?;
            // A stranger may name any time.
            let timestamp_ns = arrival.getattr(intern!(py, "timestamp_ns"))?.extract();
            let timestamp_ns: i64 = timestamp_ns.unwrap_or(i64::MAX);
            length += data.as_bytes().len();
            taken.push((
                octets(data),
                hint.into_backed(),
                timestamp_ns,
                sender,
                from_store,
            ));
        }
        let take = |channel: &mut Channel| {
            let taken = taken
                .iter()
                .map(|(data, hint, timestamp_ns, sender, from_store)| {
                    let arrival = Arrival {
                        data,
                        retrieval_hint: Some(hint),
                        timestamp_ns: *timestamp_ns,
                        authenticated_sender: sender.as_deref(),
                        from_store: *from_store,
                        observed,
                    };
                    channel.handle_message(&arrival, now)
                });
            taken.collect()
        };
        take_in(slf.as_super(), py, length, take)
    }

    #[pyo3(signature = (
        send_id, request_id, message_id, contents, *, data_count, reserve = 0
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "what there is to know of a message"
    )]
    fn submit(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        send_id: &str,
        request_id: &str,
        message_id: &str,
        contents: &Bound<'_, PyAny>,
        data_count: u32,
        reserve: u32,
    ) -> PyResult<Vec<Registered>> {
        let contents = buffers_of(contents, "contents")?;
        let submission = Submission {
            send_id: send_id.into(),
            request_id: request_id.into(),
            message_id: message_id.into(),
            contents: contents.into_iter().map(octets).collect(),
            data_count,
            reserve,
        };
        Ok(registered(with(slf.as_super().lock_held(py)?, |channel| {
            channel.submit(submission)
        })))
    }

    fn register_waiting(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Vec<Registered>> {
        let held = slf.as_super().lock_held(py)?;
        Ok(registered(with(held, Channel::register_waiting)))
    }

    fn refuse(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        request_id: &str,
        message_id: &str,
        data_count: u32,
        error: &str,
    ) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.refuse(request_id, message_id, data_count, error);
        });
        Ok(())
    }

    fn cancel_request(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        request_id: &str,
    ) -> PyResult<Option<(bool, SendProgress)>> {
        let cancelled = with(slf.as_super().lock_held(py)?, |channel| {
            channel.cancel(request_id)
        });
        Ok(cancelled.map(|(stopped, send)| (stopped, SendProgress::of(&send))))
    }

    fn withdraw_request(slf: PyRef<'_, Self>, py: Python<'_>, request_id: &str) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.withdraw(request_id);
        });
        Ok(())
    }

    fn announce_withdrawal(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        request_id: &str,
        send_id: &str,
    ) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.announce_withdrawal(request_id, send_id);
        });
        Ok(())
    }

    fn begin_deliveries<'py>(
        slf: PyRef<'py, Self>,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let participant: &Participant = slf.as_super();
        let begun = with(participant.lock_held(py)?, |channel| {
            std::iter::from_fn(|| channel.begin_delivery()).collect::<Vec<_>>()
        });
        let deliveries = begun
            .iter()
            .map(|delivery| participant.with_texts(|texts| delivery_object(py, delivery, texts)));
        PyList::new(py, deliveries.collect::<PyResult<Vec<_>>>()?)
    }

    fn finish_delivery(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, Channel::finish_delivery);
        Ok(())
    }

    fn end_deliveries(slf: PyRef<'_, Self>, py: Python<'_>, given: usize) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.end_deliveries(given)
        });
        Ok(())
    }

    fn resume_in_store(slf: PyRef<'_, Self>, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.resume_in_store(now);
        });
        Ok(())
    }

    fn listen_for(&self, events: Vec<Bound<'_, PyString>>) -> PyResult<()> {
        self.listened.set(kinds_named(events)?);
        Ok(())
    }

    fn expire(slf: PyRef<'_, Self>, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.expire(now);
        });
        Ok(())
    }

    // --- the node -------------------------------------------------------------------------------

    fn submit_ephemeral(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        send_id: &str,
        request_id: &str,
        message_id: &str,
        content: Buffer<'_>,
        allowances: Vec<PyRef<'_, Allowance>>,
    ) -> PyResult<()> {
        let (ids, content) = ((request_id, message_id), octets(content));
        let allowances = allowances_of(&allowances);
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.submit_ephemeral(send_id, ids, content, &allowances);
        });
        Ok(())
    }

    fn refuse_ephemeral(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        request_id: &str,
        message_id: &str,
        error: &Bound<'_, PyString>,
    ) -> PyResult<()> {
        let error = error.to_string_lossy();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.refuse_ephemeral(request_id, message_id, &error);
        });
        Ok(())
    }

    fn handle_started(slf: PyRef<'_, Self>, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_started(now);
        });
        Ok(())
    }

    fn handle_connection(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        online: bool,
        is_full: bool,
        now: &Bound<'_, Now>,
    ) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_connection(online, is_full, now);
        });
        Ok(())
    }

    fn handle_missed(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        since_ns: &Bound<'_, PyAny>,
        now: &Bound<'_, Now>,
    ) -> PyResult<()> {
        // A node may name any time.
        let since_ns = since_ns.extract().unwrap_or(i64::MAX);
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_missed(since_ns, now);
        });
        Ok(())
    }

    fn may_try(slf: PyRef<'_, Self>, py: Python<'_>, monotonic_ms: i64) -> PyResult<bool> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.may_try(monotonic_ms)
        }))
    }

    fn is_handed_out(slf: PyRef<'_, Self>, py: Python<'_>, transmit_id: u64) -> PyResult<bool> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.is_handed_out(transmit_id)
        }))
    }

    fn leave(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        transmit_id: u64,
        monotonic_ms: i64,
    ) -> PyResult<bool> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.leave(transmit_id, monotonic_ms)
        }))
    }

    fn announce_late(slf: PyRef<'_, Self>, py: Python<'_>, transmit_id: u64) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.announce_late(transmit_id);
        });
        Ok(())
    }

    fn announce_failure(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, Channel::announce_failure);
        Ok(())
    }

    fn handle_propagated(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        transmit_id: u64,
        message_hash: Buffer<'_>,
        now: &Bound<'_, Now>,
    ) -> PyResult<bool> {
        let (hash, now) = (message_hash.as_bytes(), now.get().into());
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_propagated(transmit_id, hash, now)
        }))
    }

    fn handle_late(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        transmit_id: u64,
        now: &Bound<'_, Now>,
    ) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_late(transmit_id, now);
        });
        Ok(())
    }

    #[pyo3(signature = (
        transmit_id, error, now, *, permanent = false, unanswered = false, retry_after_ms = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "what a node may say of it")]
    fn handle_failed(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        transmit_id: u64,
        error: &Bound<'_, PyString>,
        now: &Bound<'_, Now>,
        permanent: bool,
        unanswered: bool,
        retry_after_ms: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let error = error.to_string_lossy();
        let failure = Failure {
            error: &error,
            permanent,
            unanswered,
            // A node may name any time.
            retry_after_ms: retry_after_ms.map(|hold_ms| hold_ms.extract().unwrap_or(i64::MAX)),
        };
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_failed(transmit_id, failure, now);
        });
        Ok(())
    }

    fn limit_messages(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        header_bytes_max: usize,
        content_bytes_max: usize,
        now: &Bound<'_, Now>,
    ) -> Result<(), Error> {
        let now = now.get().into();
        let limited = with(slf.as_super().lock_held(py)?, |channel| {
            channel.limit_messages(header_bytes_max, content_bytes_max, now)
        });
        Ok(limited?)
    }

    fn handle_commit_failed(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        transmit_ids: Vec<u64>,
        error: &Bound<'_, PyString>,
        now: &Bound<'_, Now>,
    ) -> PyResult<()> {
        let (error, now) = (error.to_string_lossy(), now.get().into());
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_commit_failed(&transmit_ids, &error, now);
        });
        Ok(())
    }

    fn handle_stopped(slf: PyRef<'_, Self>, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_stopped(now);
        });
        Ok(())
    }

    fn handle_time(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        now: &Bound<'_, Now>,
        is_active: bool,
    ) -> PyResult<()> {
        let now = now.get().into();
        with(slf.as_super().lock_held(py)?, |channel| {
            channel.handle_time(is_active, now);
        });
        Ok(())
    }

    // --- outputs --------------------------------------------------------------------------------

    fn poll_transmits(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        allowances: Vec<PyRef<'_, Allowance>>,
        now: &Bound<'_, Now>,
    ) -> PyResult<(Vec<Transmit>, bool, bool)> {
        let (allowances, now) = (allowances_of(&allowances), now.get().into());
        let (transmits, held) = with(slf.as_super().lock_held(py)?, |channel| {
            channel.poll_transmits(&allowances, now)
        });
        let transmits = transmits.into_iter();
        let objects: PyResult<_> = transmits
            .map(|transmit| transmit_object(py, transmit))
            .collect();
        let holds_contents = held.and(Kinds::CONTENTS) != Kinds::NONE;
        Ok((objects?, held != Kinds::NONE, holds_contents))
    }

    fn poll_events<'py>(
        slf: PyRef<'_, Self>,
        py: Python<'py>,
        now: &Bound<'_, Now>,
    ) -> PyResult<Bound<'py, PyList>> {
        let now = now.get().into();
        let participant: &Participant = slf.as_super();
        let events = with(participant.lock_held(py)?, |channel| {
            channel.poll_events(now)
        });
        participant.with_texts(|texts| {
            let objects = PyList::empty(py);
            for event in events {
                objects.append(channel_event_object(py, event, texts)?)?;
            }
            Ok(objects)
        })
    }

    #[pyo3(signature = (beside = None))]
    fn poll_persist(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        beside: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ChangedRecords> {
        let changed = with(slf.as_super().lock_held(py)?, Channel::poll_persist);
        ChangedRecords::of(changed, beside)
    }

    fn drop_changes(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        with(slf.as_super().lock_held(py)?, Channel::drop_changes);
        Ok(())
    }

    fn next_wake_ms(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        allowances: Vec<PyRef<'_, Allowance>>,
        reopens_ms: i64,
        now: &Bound<'_, Now>,
    ) -> PyResult<Option<i64>> {
        let (allowances, now) = (allowances_of(&allowances), now.get().into());
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.next_wake_ms(&allowances, reopens_ms, now)
        }))
    }

    // --- views ----------------------------------------------------------------------------------

    fn own_sends(slf: Bound<'_, Self>) -> OwnSends {
        OwnSends::of(slf.into_super().unbind())
    }

    fn store_questions(slf: Bound<'_, Self>) -> StoreQuestions {
        StoreQuestions::of(slf.into_super().unbind())
    }

    #[getter]
    fn dispatches_in_flight(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<usize> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.dispatches_in_flight()
        }))
    }

    fn queued(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<(usize, usize)> {
        let held = slf.as_super().lock_held(py)?;
        Ok(with(held, |channel| channel.queued()))
    }

    fn is_busy(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<bool> {
        let held = slf.as_super().lock_held(py)?;
        Ok(with(held, |channel| channel.is_busy()))
    }

    #[getter]
    fn unplaced(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<usize> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.unplaced()
        }))
    }

    fn counted_in_flight(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<usize> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.counted_in_flight()
        }))
    }

    fn node_state(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        now: &Bound<'_, Now>,
    ) -> PyResult<(bool, i64, u32)> {
        let now = now.get().into();
        let state = with(slf.as_super().lock_held(py)?, |channel| {
            channel.node_state(now)
        });
        Ok((state.online, state.held_ms, state.failures))
    }

    fn dispatch_stats<'py>(slf: PyRef<'_, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = slf.as_super().lock_held(py)?;
        let (sends, counts, in_flight) = with(held, |channel| {
            let in_flight = channel.dispatches_in_flight();
            (channel.sends(), channel.dispatch_counts(), in_flight)
        });
        let dict = PyDict::new(py);
        dict.set_item("sends", sends)?;
        for (kind, count) in TransmitKind::ALL.into_iter().zip(counts.dispatched) {
            dict.set_item(format!("dispatched_{}", kind.name()), count)?;
        }
        dict.set_item("dispatch_failures", counts.failures)?;
        dict.set_item("dispatches_held", counts.held)?;
        dict.set_item("parity_left_out", counts.parity_left_out)?;
        dict.set_item("dispatches_in_flight", in_flight)?;
        Ok(dict)
    }

    #[pyo3(signature = (behind_messages = 0, behind_bytes = 0))]
    fn has_delivery_room(
        slf: PyRef<'_, Self>,
        py: Python<'_>,
        behind_messages: usize,
        behind_bytes: usize,
    ) -> PyResult<bool> {
        Ok(with(slf.as_super().lock_held(py)?, |channel| {
            channel.has_delivery_room(behind_messages, behind_bytes)
        }))
    }

    fn receiving_stats<'py>(slf: PyRef<'_, Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = slf.as_super().lock_held(py)?;
        let ((counts, stats), waiting, parity_made, deliveries) = with(held, |channel| {
            let deliveries = channel.deliveries();
            let deliveries = (deliveries.len(), deliveries.size_bytes());
            let (counts, waiting) = (channel.counts(), channel.waiting());
            (counts, waiting, channel.parity_made(), deliveries)
        });
        let dict = PyDict::new(py);
        dict.set_item("segments_received", counts.segments_received)?;
        dict.set_item("segments_recovered", counts.segments_recovered)?;
        dict.set_item("segments_discarded", counts.segments_discarded)?;
        dict.set_item("messages", counts.messages)?;
        set_stats(&dict, &stats)?;
        dict.set_item("messages_waiting_for_causes", waiting.0)?;
        dict.set_item("messages_waiting_for_causes_bytes", waiting.1)?;
        dict.set_item("parity_on_demand", parity_made)?;
        dict.set_item("deliveries_waiting", deliveries.0)?;
        dict.set_item("deliveries_waiting_bytes", deliveries.1)?;
        Ok(dict)
    }
}

//! `SdsConfig` and `SyncConfig` as the core has them, and what they leave for a segment.

use std::collections::BTreeSet;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use shardwire_core::channel::divide;
use shardwire_core::sds::{Config, DeliveredWhen, MessageIdRule};
use shardwire_core::segment::Settings;
use shardwire_stub::documented;

use crate::arguments::refused;
use crate::error::{Error, config_error};
use crate::sds::parse_sds_wire_format;
use crate::segmentation::SegmentationParameters;

/// What `SdsConfig`, `SyncConfig` and the arguments of the constructor come to.
pub fn config_of(
    sds: &Bound<'_, PyAny>,
    sync: &Bound<'_, PyAny>,
    header_bytes_max: usize,
    delivered_when: Option<&Bound<'_, PyAny>>,
) -> PyResult<Config> {
    let get = |name: &str| member(sds, name, "config", "SdsConfig");
    let of_sync = |name: &str| member(sync, name, "sync", "SyncConfig");
    let rule: String = get("message_id")?.extract()?;
    let lost_ms: Option<i64> = get("timeout_for_lost_messages_ms")?.extract()?;
    Ok(Config {
        wire_format: parse_sds_wire_format(&get("wire_format")?.extract::<String>()?)?,
        message_id: if rule == "send" {
            MessageIdRule::Send
        } else {
            MessageIdRule::ContentSha256
        },
        delivered_when: delivered_when.map_or(Ok(DeliveredWhen::Any), delivered_when_of)?,
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
        log_bytes_max: get("log_bytes_max")?.extract()?,
        max_lamport_skew_ms: get("max_lamport_skew_ms")?.extract()?,
        replay_window_ms: get("replay_window_ms")?.extract()?,
        sync_min_interval_ms: of_sync("sync_min_interval_ms")?.extract()?,
        sweep_in_buf_interval_ms: of_sync("sweep_in_buf_interval_ms")?.extract()?,
        acknowledgement_sync: of_sync("acknowledgement_sync")?.extract()?,
        participant_ttl_ms: of_sync("participant_ttl_ms")?.extract()?,
        header_bytes_max,
        members_make_parity: false,
    })
}

/// A field of a configuration; `role` is the argument that should be a `kind`.
fn member<'py>(
    config: &Bound<'py, PyAny>,
    name: &str,
    role: &str,
    kind: &str,
) -> PyResult<Bound<'py, PyAny>> {
    config.getattr(name).or_else(|_| {
        let found = config.get_type().name()?;
        Err(config_error(format!(
            "{role} is a {found}: it must be a {kind}"
        )))
    })
}

fn refused_delivered_when(value: &Bound<'_, PyAny>) -> PyErr {
    let limit = "'any', an integer of at least 1 or a non-empty set of sender ids";
    refused("delivered_when", value, limit)
}

fn delivered_when_of(value: &Bound<'_, PyAny>) -> PyResult<DeliveredWhen> {
    if let Ok(text) = value.cast::<PyString>() {
        if text.to_str().is_ok_and(|text| text == "any") {
            return Ok(DeliveredWhen::Any);
        }
        return Err(refused_delivered_when(value));
    }
    if value.is_instance_of::<PyInt>() {
        let count = value.extract().ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| refused_delivered_when(value))?;
        return Ok(DeliveredWhen::Count(count));
    }
    let names: PyResult<BTreeSet<Arc<str>>> = value.try_iter().and_then(|names| {
        let names = names.map(|name| Ok(Arc::from(name?.extract::<String>()?)));
        names.collect()
    });
    match names {
        Ok(names) if !names.is_empty() => Ok(DeliveredWhen::Named(names)),
        _ => Err(refused_delivered_when(value)),
    }
}

#[documented]
#[pyfunction]
#[pyo3(signature = (
    message_bytes, around_bytes, channel_id, sender_id, config, sync, segmentation, *, has_parity
))]
#[expect(clippy::too_many_arguments, reason = "a channel's configuration")]
pub fn divide_message(
    message_bytes: usize,
    around_bytes: usize,
    channel_id: &str,
    sender_id: &str,
    config: &Bound<'_, PyAny>,
    sync: &Bound<'_, PyAny>,
    segmentation: &SegmentationParameters,
    has_parity: bool,
) -> Result<(usize, usize), Error> {
    let sds = config_of(config, sync, 0, None)?;
    let segmentation = Settings {
        enable_reed_solomon: has_parity,
        ..*segmentation.inner.settings()
    };
    let division = divide(
        message_bytes,
        around_bytes,
        &sds,
        channel_id,
        sender_id,
        &segmentation,
    )?;
    Ok((division.segment_size_bytes, division.content_bytes_max))
}

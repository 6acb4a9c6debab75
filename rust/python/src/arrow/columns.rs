//! Column functions: one Arrow array in, one out; a null stays null, and no peer's bytes raise.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Int32Builder, Int64Builder, StringBuilder,
};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{Field, Fields};
use pyo3::prelude::*;
use shardwire_core::keccak;
use shardwire_core::wire::segment::{self, Received, Slot};
use shardwire_core::wire::waku;
use shardwire_stub::documented;

use super::exchange::{ArrayArgument, to_python};
use super::input::{BinaryColumn, IntegerColumn, TextColumn};
use super::wire_format_named;

/// Digests of this many rows are computed in one call, so that the list of slices stays in cache.
const ROWS_PER_CALL: usize = 1024;

#[documented]
#[pyfunction]
pub fn arrow_keccak256<'py>(py: Python<'py>, data: ArrayArgument) -> PyResult<Bound<'py, PyAny>> {
    let column = BinaryColumn::new(&data.0, "data")?;
    let digests = py.detach(|| keccak256_column(&column));
    to_python(py, Arc::new(digests))
}

fn keccak256_column(column: &BinaryColumn) -> arrow_array::BinaryArray {
    let length = column.len();
    let mut out = BinaryBuilder::with_capacity(length, length * keccak::DIGEST_LEN);
    for start in (0..length).step_by(ROWS_PER_CALL) {
        let rows: Vec<Option<&[u8]>> = (start..length.min(start + ROWS_PER_CALL))
            .map(|row| column.get(row))
            .collect();
        let inputs: Vec<&[u8]> = rows.iter().flatten().copied().collect();
        let mut digests = vec![[0; keccak::DIGEST_LEN]; inputs.len()];
        keccak::keccak256_many(&inputs, &mut digests);
        let mut digest = digests.iter();
        for row in rows {
            out.append_option(row.and_then(|_| digest.next()));
        }
    }
    out.finish()
}

#[documented]
#[pyfunction]
#[pyo3(signature = (data, wire_format, max_total_segments, include_payload))]
pub fn arrow_decode_segment<'py>(
    py: Python<'py>,
    data: ArrayArgument,
    wire_format: &str,
    max_total_segments: u32,
    include_payload: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let column = BinaryColumn::new(&data.0, "data")?;
    let wire_format = wire_format_named(wire_format)?;
    let decoded = py.detach(|| {
        let mut out = SegmentColumns::default();
        for row in column.iter() {
            out.append(row, wire_format, max_total_segments, include_payload);
        }
        out.finish()
    });
    to_python(py, Arc::new(decoded))
}

#[derive(Default)]
struct SegmentColumns {
    valid: Vec<bool>,
    hash: BinaryBuilder,
    is_parity: BooleanBuilder,
    data_index: Int32Builder,
    data_count: Int32Builder,
    parity_index: Int32Builder,
    parity_count: Int32Builder,
    payload_length: Int64Builder,
    segment_payload_length: Int32Builder,
    segment_payload: BinaryBuilder,
    error: StringBuilder,
}

impl SegmentColumns {
    fn append(
        &mut self,
        row: Option<&[u8]>,
        wire_format: segment::WireFormat,
        max_total_segments: u32,
        include_payload: bool,
    ) {
        self.valid.push(row.is_some());
        let read = row.map(|bytes| segment::decode(bytes, wire_format, max_total_segments));
        let (header, payload, error) = match read {
            None => (None, None, None),
            Some(Ok(Received::Segment(found))) => (Some(found.header), Some(found.payload), None),
            Some(Ok(Received::WholeMessage(bytes))) => (None, Some(bytes), None),
            Some(Err(error)) => (None, None, Some(error.to_string())),
        };
        let slot = header.map(|header| header.slot);
        let data_index = match slot {
            Some(Slot::Data(index)) => Some(i32::from(index)),
            _ => None,
        };
        let parity_index = match slot {
            Some(Slot::Parity(index)) => Some(i32::from(index)),
            _ => None,
        };
        self.hash
            .append_option(header.as_ref().map(|header| &header.entire_message_hash));
        self.is_parity
            .append_option(slot.map(|slot| matches!(slot, Slot::Parity(_))));
        self.data_index.append_option(data_index);
        self.data_count
            .append_option(header.and_then(|h| h.data_segment_count).map(i32::from));
        self.parity_index.append_option(parity_index);
        self.parity_count
            .append_option(header.and_then(|h| h.parity_segment_count).map(i32::from));
        // A peer may claim any 64-bit length; Arrow and Spark count in signed ones.
        self.payload_length.append_option(
            header
                .and_then(|h| h.payload_length)
                .and_then(|length| i64::try_from(length).ok()),
        );
        self.segment_payload_length
            .append_option(payload.map(|payload| payload.len() as i32));
        self.segment_payload
            .append_option(payload.filter(|_| include_payload));
        self.error.append_option(error);
    }

    fn finish(mut self) -> StructArray {
        struct_array(
            &self.valid,
            vec![
                ("entire_message_hash", Arc::new(self.hash.finish())),
                ("is_parity", Arc::new(self.is_parity.finish())),
                ("data_segment_index", Arc::new(self.data_index.finish())),
                ("data_segment_count", Arc::new(self.data_count.finish())),
                ("parity_segment_index", Arc::new(self.parity_index.finish())),
                ("parity_segment_count", Arc::new(self.parity_count.finish())),
                ("payload_length", Arc::new(self.payload_length.finish())),
                (
                    "segment_payload_length",
                    Arc::new(self.segment_payload_length.finish()),
                ),
                ("segment_payload", Arc::new(self.segment_payload.finish())),
                ("error", Arc::new(self.error.finish())),
            ],
        )
    }
}

#[documented]
#[pyfunction]
pub fn arrow_decode_waku_message<'py>(
    py: Python<'py>,
    data: ArrayArgument,
) -> PyResult<Bound<'py, PyAny>> {
    let column = BinaryColumn::new(&data.0, "data")?;
    let decoded = py.detach(|| decode_waku_column(&column));
    to_python(py, Arc::new(decoded))
}

fn decode_waku_column(column: &BinaryColumn) -> StructArray {
    let mut valid = Vec::with_capacity(column.len());
    let mut payload = BinaryBuilder::new();
    let mut content_topic = StringBuilder::new();
    let mut version = Int64Builder::new();
    let mut timestamp = Int64Builder::new();
    let mut meta = BinaryBuilder::new();
    let mut rate_limit_proof = BinaryBuilder::new();
    let mut ephemeral = BooleanBuilder::new();
    let mut error = StringBuilder::new();
    for row in column.iter() {
        valid.push(row.is_some());
        let read = row.map(|bytes| waku::decode(bytes).ok());
        error.append_option(matches!(read, Some(None)).then_some(super::reasons::NO_WAKU_MESSAGE));
        let message = read.flatten();
        let message = message.as_ref();
        payload.append_option(message.map(|message| &message.payload));
        content_topic.append_option(message.map(|message| &message.content_topic));
        version.append_option(message.and_then(|message| message.version).map(i64::from));
        timestamp.append_option(message.and_then(|message| message.timestamp));
        meta.append_option(message.and_then(|message| message.meta.as_ref()));
        rate_limit_proof
            .append_option(message.and_then(|message| message.rate_limit_proof.as_ref()));
        ephemeral.append_option(message.and_then(|message| message.ephemeral));
    }
    struct_array(
        &valid,
        vec![
            ("payload", Arc::new(payload.finish())),
            ("content_topic", Arc::new(content_topic.finish())),
            ("version", Arc::new(version.finish())),
            ("timestamp", Arc::new(timestamp.finish())),
            ("meta", Arc::new(meta.finish())),
            ("rate_limit_proof", Arc::new(rate_limit_proof.finish())),
            ("ephemeral", Arc::new(ephemeral.finish())),
            ("error", Arc::new(error.finish())),
        ],
    )
}

#[documented]
#[pyfunction]
pub fn arrow_message_hash<'py>(
    py: Python<'py>,
    pubsub_topic: ArrayArgument,
    payload: ArrayArgument,
    content_topic: ArrayArgument,
    meta: ArrayArgument,
    timestamp_ns: ArrayArgument,
) -> PyResult<Bound<'py, PyAny>> {
    let pubsub_topic = TextColumn::new(&pubsub_topic.0, "pubsub_topic")?;
    let payload = BinaryColumn::new(&payload.0, "payload")?;
    let content_topic = TextColumn::new(&content_topic.0, "content_topic")?;
    let meta = BinaryColumn::new(&meta.0, "meta")?;
    let timestamp_ns = IntegerColumn::new(&timestamp_ns.0, "timestamp_ns")?;
    let lengths = [
        pubsub_topic.len(),
        content_topic.len(),
        meta.len(),
        timestamp_ns.len(),
    ];
    super::check_lengths(payload.len(), &lengths)?;
    let hashes = py.detach(|| {
        let mut out = BinaryBuilder::with_capacity(payload.len(), payload.len() * 32);
        for row in 0..payload.len() {
            let known = (
                pubsub_topic.get(row),
                payload.get(row),
                content_topic.get(row),
            );
            out.append_option(match known {
                (Some(pubsub_topic), Some(payload), Some(content_topic)) => {
                    Some(waku::message_hash(
                        pubsub_topic,
                        payload,
                        content_topic,
                        meta.get(row).unwrap_or_default(),
                        timestamp_ns.get(row).unwrap_or(0),
                    ))
                }
                _ => None,
            });
        }
        out.finish()
    });
    to_python(py, Arc::new(hashes))
}

#[documented]
#[pyfunction]
pub fn arrow_shard_of<'py>(
    py: Python<'py>,
    content_topic: ArrayArgument,
    num_shards_in_cluster: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let column = TextColumn::new(&content_topic.0, "content_topic")?;
    let shards: arrow_array::Int32Array = py.detach(|| {
        column
            .iter()
            .map(|topic| {
                let shard = waku::shard_of(topic?, num_shards_in_cluster).ok()?;
                i32::try_from(shard).ok()
            })
            .collect()
    });
    to_python(py, Arc::new(shards))
}

/// A struct of nullable `columns`; a row that is not valid is null.
pub(super) fn struct_array(valid: &[bool], columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    StructArray::new(Fields::from(fields), arrays, Some(NullBuffer::from(valid)))
}

//! Wire messages on their way to segments: each step takes one wrapping off a whole batch.
//!
//! The state of a batch is a record batch of five columns: `payload` (what is left), `timestamp`,
//! `sender`, `send_id` and `error`. A row with neither payload nor error carries no message of the
//! application and is dropped by the caller; a row with an error stays as it is from there on.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder, StringBuilder};
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shardwire_core::keccak;
use shardwire_core::wire::sds::{self, Kind};
use shardwire_core::wire::segment::{self, Received};
use shardwire_core::wire::waku;
use shardwire_stub::documented;

use super::exchange::{BatchArgument, batch_to_python};
use super::input::{BinaryColumn, IntegerColumn, TextColumn};
use super::reasons::{NO_SDS_KIND, NO_WAKU_MESSAGE, no_sds_message, no_segment};
use super::{sds_wire_format_named, send_of, wire_format_named};

struct State {
    payload: BinaryColumn,
    timestamp: IntegerColumn,
    sender: TextColumn,
    send_id: TextColumn,
    error: TextColumn,
}

impl State {
    fn new(batch: &RecordBatch) -> PyResult<Self> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| PyValueError::new_err(format!("the batch has no column {name}")))
        };
        Ok(State {
            payload: BinaryColumn::new(column("payload")?, "payload")?,
            timestamp: IntegerColumn::new(column("timestamp")?, "timestamp")?,
            sender: TextColumn::new(column("sender")?, "sender")?,
            send_id: TextColumn::new(column("send_id")?, "send_id")?,
            error: TextColumn::new(column("error")?, "error")?,
        })
    }
}

#[derive(Default)]
struct NextState {
    payload: BinaryBuilder,
    timestamp: Int64Builder,
    sender: StringBuilder,
    send_id: StringBuilder,
    error: StringBuilder,
}

impl NextState {
    fn append(
        &mut self,
        payload: Option<&[u8]>,
        timestamp: Option<i64>,
        sender: Option<&str>,
        send_id: Option<&str>,
        error: Option<&str>,
    ) {
        self.payload.append_option(payload);
        self.timestamp.append_option(timestamp);
        self.sender.append_option(sender);
        self.send_id.append_option(send_id);
        self.error.append_option(error);
    }

    fn columns(mut self) -> Vec<(&'static str, ArrayRef)> {
        vec![
            ("payload", Arc::new(self.payload.finish())),
            ("timestamp", Arc::new(self.timestamp.finish())),
            ("sender", Arc::new(self.sender.finish())),
            ("send_id", Arc::new(self.send_id.finish())),
            ("error", Arc::new(self.error.finish())),
        ]
    }
}

#[documented]
#[pyfunction]
pub fn arrow_unwrap_waku<'py>(
    py: Python<'py>,
    state: BatchArgument,
) -> PyResult<Bound<'py, PyAny>> {
    let state = State::new(&state.0)?;
    let next = py.detach(|| {
        let mut out = NextState::default();
        let mut content_topic = StringBuilder::new();
        for row in 0..state.payload.len() {
            let (timestamp, sender) = (state.timestamp.get(row), state.sender.get(row));
            let (send_id, error) = (state.send_id.get(row), state.error.get(row));
            let Some(bytes) = state.payload.get(row) else {
                out.append(None, timestamp, sender, send_id, error);
                content_topic.append_null();
                continue;
            };
            match waku::decode(bytes).ok() {
                Some(message) => {
                    let timestamp = message.timestamp.or(timestamp);
                    out.append(Some(&message.payload), timestamp, sender, send_id, None);
                    content_topic.append_value(&message.content_topic);
                }
                None => {
                    out.append(None, timestamp, sender, send_id, Some(NO_WAKU_MESSAGE));
                    content_topic.append_null();
                }
            }
        }
        let mut columns = out.columns();
        columns.push(("content_topic", Arc::new(content_topic.finish())));
        batch_of(columns)
    })?;
    batch_to_python(py, next)
}

#[documented]
#[pyfunction]
pub fn arrow_unwrap_sds<'py>(
    py: Python<'py>,
    state: BatchArgument,
    wire_format: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let state = State::new(&state.0)?;
    let wire_format = sds_wire_format_named(wire_format)?;
    let next = py.detach(|| {
        let mut out = NextState::default();
        for row in 0..state.payload.len() {
            let timestamp = state.timestamp.get(row);
            let Some(bytes) = state.payload.get(row) else {
                let (sender, send_id) = (state.sender.get(row), state.send_id.get(row));
                out.append(None, timestamp, sender, send_id, state.error.get(row));
                continue;
            };
            let message = match sds::Message::decode(bytes, wire_format) {
                Ok(message) => message,
                Err(error) => {
                    let error = Some(no_sds_message(&error));
                    out.append(None, timestamp, state.sender.get(row), None, error);
                    continue;
                }
            };
            let send_id = send_of(&message.message_id).map(|(send_id, _)| send_id);
            let sender = Some(&*message.sender_id);
            match message.kind() {
                Some(Kind::Content | Kind::Ephemeral) => {
                    out.append(message.content.as_deref(), timestamp, sender, send_id, None);
                }
                Some(Kind::Sync) => out.append(None, timestamp, sender, send_id, None),
                None => out.append(None, timestamp, sender, None, Some(NO_SDS_KIND)),
            }
        }
        batch_of(out.columns())
    })?;
    batch_to_python(py, next)
}

#[documented]
#[pyfunction]
pub fn arrow_unwrap_segment<'py>(
    py: Python<'py>,
    state: BatchArgument,
    wire_format: &str,
    max_total_segments: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let batch = state.0;
    let read = State::new(&batch)?;
    let wire_format = wire_format_named(wire_format)?;
    let (hash, error) = py.detach(|| {
        let mut hash = BinaryBuilder::with_capacity(read.payload.len(), read.payload.len() * 32);
        let mut error = StringBuilder::new();
        for row in 0..read.payload.len() {
            let Some(bytes) = read.payload.get(row) else {
                hash.append_null();
                error.append_option(read.error.get(row));
                continue;
            };
            match segment::decode(bytes, wire_format, max_total_segments) {
                Ok(Received::Segment(found)) => {
                    hash.append_value(found.header.entire_message_hash);
                    error.append_null();
                }
                Ok(Received::WholeMessage(bytes)) => {
                    hash.append_value(keccak::keccak256(bytes));
                    error.append_null();
                }
                Err(refused) => {
                    hash.append_null();
                    error.append_value(no_segment(
                        bytes,
                        &refused,
                        wire_format,
                        max_total_segments,
                    ));
                }
            }
        }
        (hash.finish(), error.finish())
    });
    let payload = without_unread(&batch, &read.payload, &hash);
    let send_id = without_invented(&batch, &read.send_id, &hash);
    let column = |name: &str| {
        Arc::clone(
            batch
                .column_by_name(name)
                .expect("State::new found every column"),
        )
    };
    let next = batch_of(vec![
        ("payload", payload),
        ("timestamp", column("timestamp")),
        ("sender", column("sender")),
        ("send_id", send_id),
        ("error", Arc::new(error)),
        ("entire_message_hash", Arc::new(hash)),
    ])?;
    batch_to_python(py, next)
}

/// The payload column, null where no segment was read: such bytes need not cross the network. The
/// column is taken over as it is where every row was read.
fn without_unread(batch: &RecordBatch, payload: &BinaryColumn, hash: &BinaryArray) -> ArrayRef {
    let column = batch
        .column_by_name("payload")
        .expect("State::new found every column");
    if hash.null_count() == column.null_count() {
        return Arc::clone(column);
    }
    let kept: BinaryArray = payload
        .iter()
        .enumerate()
        .map(|(row, bytes)| bytes.filter(|_| hash.is_valid(row)))
        .collect();
    Arc::new(kept)
}

/// The send ids, null where no segment was read.
fn without_invented(batch: &RecordBatch, send_id: &TextColumn, hash: &BinaryArray) -> ArrayRef {
    let invented = |row: usize| hash.is_null(row) && send_id.get(row).is_some();
    if !(0..send_id.len()).any(invented) {
        let column = batch.column_by_name("send_id");
        return Arc::clone(column.expect("State::new found every column"));
    }
    let kept: StringArray = send_id
        .iter()
        .enumerate()
        .map(|(row, id)| id.filter(|_| hash.is_valid(row)))
        .collect();
    Arc::new(kept)
}

pub fn batch_of(columns: Vec<(&str, ArrayRef)>) -> PyResult<RecordBatch> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

//! Messages from sorted segments: batches in, finished messages out, a bounded window between.
//!
//! Rows of one message stand next to each other; messages may span batches. A message is finished
//! when the next one begins. Finished ones wait in a window, so that their hashes are computed many
//! at once, and leave in order.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, Field};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;
use shardwire_core::erasure::ErasureCode;
use shardwire_core::keccak;
use shardwire_core::segment::Parameters;

use super::group::{Arrival, Group, GroupKey, GroupLimits};
use super::input::{BinaryColumn, IntegerColumn, TextColumn};
use super::leftovers::LeftoverColumns;
use super::output::{Outcome, OutputColumns};
use super::recover::{Recovery, recover};
use crate::segmentation::SegmentationParameters;

/// Finished messages that wait for their hashes.
const WINDOW_GROUPS: usize = 16;

/// Bytes of finished messages that wait.
const WINDOW_BYTES: usize = 64 << 20;

/// The columns that a batch ends with, after those of `by`.
const FIXED_COLUMNS: [&str; 6] = ["hash", "send_id", "payload", "timestamp", "sender", "error"];

/// Reconstructs messages from batches whose rows are sorted by message.
///
/// A batch has the `by` columns, then hash, send_id, payload, timestamp, sender and error. What
/// `push` and `finish` return are pyarrow record batches of finished messages, in the order in which
/// the messages end.
#[pyclass(module = "shardwire._native")]
pub struct ArrowReconstructor {
    parameters: Parameters,
    limits: GroupLimits,
    work_budget: u64,
    by_count: usize,
    by_fields: Vec<Field>,
    converter: Option<RowConverter>,
    open: Option<Group>,
    window: VecDeque<Group>,
    window_bytes: usize,
    out: OutputColumns,
    ready: Vec<RecordBatch>,
    /// Where segments go whose message is not whole; `None` where such messages are told of instead.
    leftovers: Option<LeftoverColumns>,
}

#[pymethods]
impl ArrowReconstructor {
    #[new]
    #[pyo3(signature = (
        parameters, *, by_count, include_payload, candidates_per_slot_max, held_bytes_max, work_budget,
        keep_leftovers = false
    ))]
    fn new(
        parameters: PyRef<'_, SegmentationParameters>,
        by_count: usize,
        include_payload: bool,
        candidates_per_slot_max: usize,
        held_bytes_max: usize,
        work_budget: u64,
        keep_leftovers: bool,
    ) -> Self {
        let parameters = parameters.inner;
        let limits = GroupLimits {
            candidates_per_slot_max,
            held_bytes_max,
            max_total_segments: parameters.settings().max_total_segments,
        };
        ArrowReconstructor {
            parameters,
            limits,
            work_budget,
            by_count,
            by_fields: Vec::new(),
            converter: None,
            open: None,
            window: VecDeque::new(),
            window_bytes: 0,
            out: OutputColumns::new(include_payload),
            ready: Vec::new(),
            leftovers: keep_leftovers.then(LeftoverColumns::default),
        }
    }

    /// Takes in one batch; returns the batches that became ready.
    fn push<'py>(
        &mut self,
        py: Python<'py>,
        batch: PyRecordBatch,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let batch = Batch::new(&batch.into_inner(), self.by_count)?;
        if self.by_fields.is_empty() {
            self.by_fields.clone_from(&batch.by_fields);
        }
        py.detach(|| self.take_in(&batch)).map_err(arrow_error)?;
        self.hand_over(py)
    }

    /// Ends the last message; returns what is left.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        py.detach(|| {
            self.close();
            self.drain_window()?;
            self.emit()
        })
        .map_err(arrow_error)?;
        self.hand_over(py)
    }

    /// The segments, since the last call, of messages that are not whole; `None` where there are
    /// none. Asked for with `keep_leftovers`; such messages then have no row.
    fn poll_leftovers<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(leftovers) = self
            .leftovers
            .as_mut()
            .filter(|leftovers| !leftovers.is_empty())
        else {
            return Ok(None);
        };
        let batch = leftovers
            .finish(&self.by_fields, self.converter.as_ref())
            .map_err(arrow_error)?;
        PyRecordBatch::new(batch).into_pyarrow(py).map(Some)
    }
}

impl ArrowReconstructor {
    fn take_in(&mut self, batch: &Batch) -> Result<(), ArrowError> {
        let by = self.encode_by(batch)?;
        for row in 0..batch.payload.len() {
            let hash = batch
                .hash
                .get(row)
                .and_then(|hash| <[u8; 32]>::try_from(hash).ok());
            let send_id = batch.send_id.get(row);
            let continues = self.open.as_ref().is_some_and(|group| {
                group.key.hash == hash
                    && group.key.send_id.as_deref() == send_id
                    && by.as_ref().is_none_or(|by| {
                        group
                            .key
                            .by
                            .as_ref()
                            .is_some_and(|known| known.row() == by.row(row))
                    })
            });
            if !continues {
                self.close();
                if self.window.len() >= WINDOW_GROUPS || self.window_bytes >= WINDOW_BYTES {
                    self.drain_window()?;
                }
            }
            let group = self.open.get_or_insert_with(|| {
                Group::new(GroupKey {
                    by: by.as_ref().map(|by| by.row(row).owned()),
                    hash,
                    send_id: send_id.map(Into::into),
                })
            });
            let arrival = Arrival {
                column: &batch.payload,
                row,
                timestamp: batch.timestamp.get(row),
                sender: batch.sender.get(row),
                error: batch.error.get(row),
            };
            group.receive(
                &arrival,
                self.parameters.settings().wire_format,
                self.limits,
            );
        }
        self.let_go_of(&batch.payload);
        Ok(())
    }

    fn encode_by(&mut self, batch: &Batch) -> Result<Option<Rows>, ArrowError> {
        if self.by_count == 0 {
            return Ok(None);
        }
        let converter = match &mut self.converter {
            Some(converter) => converter,
            None => {
                let fields = batch
                    .by
                    .iter()
                    .map(|c| SortField::new(c.data_type().clone()))
                    .collect();
                self.converter.insert(RowConverter::new(fields)?)
            }
        };
        converter.convert_columns(&batch.by).map(Some)
    }

    fn close(&mut self) {
        if let Some(group) = self.open.take() {
            self.window_bytes += group.held_bytes;
            self.window.push_back(group);
        }
    }

    /// Copies what is held out of a batch of which little is held: a flood of duplicates would
    /// otherwise keep whole batches alive for a few rows each.
    fn let_go_of(&mut self, column: &Arc<BinaryColumn>) {
        let groups = || self.window.iter().chain(&self.open);
        let held: usize = groups().map(|group| group.bytes_in(column)).sum();
        if held > 0 && held * 2 < column.value_bytes() {
            for group in self.window.iter_mut().chain(&mut self.open) {
                group.move_out_of(column);
            }
        }
    }

    fn drain_window(&mut self) -> Result<(), ArrowError> {
        self.window_bytes = 0;
        let groups: Vec<Group> = self.window.drain(..).collect();
        let pieces: Vec<Option<Vec<&[u8]>>> = groups.iter().map(Group::whole_pieces).collect();
        let messages: Vec<&[&[u8]]> = pieces.iter().flatten().map(|pieces| &pieces[..]).collect();
        let mut digests = vec![[0; keccak::DIGEST_LEN]; messages.len()];
        keccak::keccak256_many_pieces(&messages, &mut digests);
        let mut digest = digests.iter();
        for (group, pieces) in groups.iter().zip(pieces) {
            let hashes_right = pieces.is_some() && digest.next() == group.key.hash.as_ref();
            match pieces {
                Some(pieces) if hashes_right => {
                    self.out.append(group, &Outcome::Complete(pieces));
                }
                _ => self.append_repaired(group),
            }
            if self.out.is_full() {
                self.emit()?;
            }
        }
        Ok(())
    }

    fn append_repaired(&mut self, group: &Group) {
        match recover(group, &self.parameters, self.limits, self.work_budget) {
            Recovery::Payload(found) => {
                let pieces = found.payload.pieces().collect();
                let data_segments_recovered = found.data_segments_recovered.len();
                let outcome = if data_segments_recovered == 0 {
                    Outcome::Complete(pieces)
                } else {
                    let erasure_code = found.erasure_code.map(ErasureCode::as_str);
                    Outcome::Recovered {
                        pieces,
                        data_segments_recovered,
                        erasure_code,
                    }
                };
                self.out.append(group, &outcome);
            }
            Recovery::Incomplete => self.append_unfinished(group, &Outcome::Incomplete),
            Recovery::Invalid => self.append_unfinished(group, &Outcome::Invalid),
        }
    }

    fn append_unfinished(&mut self, group: &Group, outcome: &Outcome<'_>) {
        match &mut self.leftovers {
            // What could not be read is nothing that another partition could complete.
            Some(leftovers) if group.key.hash.is_some() => leftovers.append(group),
            _ => self.out.append(group, outcome),
        }
    }

    fn emit(&mut self) -> Result<(), ArrowError> {
        if !self.out.is_empty() {
            self.ready
                .push(self.out.finish(&self.by_fields, self.converter.as_ref())?);
        }
        Ok(())
    }

    fn hand_over<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.ready
            .drain(..)
            .map(|batch| PyRecordBatch::new(batch).into_pyarrow(py))
            .collect()
    }
}

/// One batch with its columns told apart.
struct Batch {
    by: Vec<arrow_array::ArrayRef>,
    by_fields: Vec<Field>,
    hash: BinaryColumn,
    send_id: TextColumn,
    payload: Arc<BinaryColumn>,
    timestamp: IntegerColumn,
    sender: TextColumn,
    error: TextColumn,
}

impl Batch {
    fn new(batch: &RecordBatch, by_count: usize) -> PyResult<Self> {
        if batch.num_columns() != by_count + FIXED_COLUMNS.len() {
            return Err(PyValueError::new_err(format!(
                "the batch has {} columns: {by_count} and {FIXED_COLUMNS:?} are needed",
                batch.num_columns()
            )));
        }
        let column = |position: usize| (batch.column(by_count + position), FIXED_COLUMNS[position]);
        let binary = |position| {
            let (array, name) = column(position);
            BinaryColumn::new(array, name)
        };
        let text = |position| {
            let (array, name) = column(position);
            TextColumn::new(array, name)
        };
        Ok(Batch {
            by: batch.columns()[..by_count].to_vec(),
            by_fields: batch.schema().fields()[..by_count]
                .iter()
                .map(|field| Field::clone(field).with_nullable(true))
                .collect(),
            hash: binary(0)?,
            send_id: text(1)?,
            payload: Arc::new(binary(2)?),
            timestamp: IntegerColumn::new(column(3).0, column(3).1)?,
            sender: text(4)?,
            error: text(5)?,
        })
    }
}

fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

//! Messages from sorted segments: batches in, finished messages out, a bounded window between.
//!
//! Rows of one message stand next to each other; messages may span batches. A message is finished
//! when the next one begins. Finished ones wait in a window, so that their hashes are computed many
//! at once, and leave in order.

use std::sync::Arc;

use arrow_schema::ArrowError;
use pyo3::prelude::*;
use shardwire_stub::documented;

use super::batch::Batch;
use super::exchange::BatchArgument;
use super::group::{Group, GroupKey, GroupLimits};
use super::input::BinaryColumn;
use super::settle::{Settlement, arrow_error};
use crate::segmentation::SegmentationParameters;

/// Finished messages that wait for their hashes.
const WINDOW_GROUPS: usize = 16;

/// Bytes of finished messages that wait.
const WINDOW_BYTES: usize = 64 << 20;

#[documented]
#[pyclass(module = "shardwire._native")]
pub struct ArrowReconstructor {
    settlement: Settlement,
    open: Option<Group>,
    window: Vec<Group>,
    window_bytes: usize,
}

#[documented]
#[pymethods]
impl ArrowReconstructor {
    #[new]
    #[pyo3(signature = (
        parameters, *, by_count, include_payload, candidates_per_slot_max, held_bytes_max, work_budget
    ))]
    fn new(
        parameters: PyRef<'_, SegmentationParameters>,
        by_count: usize,
        include_payload: bool,
        candidates_per_slot_max: usize,
        held_bytes_max: usize,
        work_budget: u64,
    ) -> Self {
        let parameters = parameters.inner;
        let limits = GroupLimits {
            candidates_per_slot_max,
            held_bytes_max,
            max_total_segments: parameters.settings().max_total_segments,
        };
        ArrowReconstructor {
            settlement: Settlement::new(
                parameters,
                limits,
                work_budget,
                by_count,
                include_payload,
                None,
            ),
            open: None,
            window: Vec::new(),
            window_bytes: 0,
        }
    }

    fn push<'py>(
        &mut self,
        py: Python<'py>,
        batch: BatchArgument,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let batch = self.settlement.read(batch)?;
        py.detach(|| self.take_in(&batch)).map_err(arrow_error)?;
        self.settlement.hand_over(py)
    }

    fn poll_corrections<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.settlement.take_leftovers(py)
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        py.detach(|| {
            self.close();
            self.drain_window()?;
            self.settlement.emit()
        })
        .map_err(arrow_error)?;
        self.settlement.hand_over(py)
    }
}

impl ArrowReconstructor {
    fn take_in(&mut self, batch: &Batch) -> Result<(), ArrowError> {
        let by = self.settlement.encode_by(batch)?;
        let wire_format = self.settlement.parameters.settings().wire_format;
        let limits = self.settlement.limits;
        for row in 0..batch.payload.len() {
            let hash = batch.hash_of(row);
            let send_id = batch.send_id.get(row);
            let reason = batch.reason_of(row, hash.as_ref());
            let continues = self.open.as_ref().is_some_and(|group| {
                group.key.hash == hash
                    && group.key.send_id.as_deref() == send_id
                    && group.key.reason.as_deref() == reason
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
                    reason: reason.map(Into::into),
                })
            });
            group.receive(&batch.arrival(row), wire_format, limits);
        }
        self.let_go_of(&batch.payload);
        Ok(())
    }

    fn close(&mut self) {
        if let Some(group) = self.open.take() {
            self.window_bytes += group.held_bytes;
            self.window.push(group);
        }
    }

    /// Copies what is held out of a batch of which little is held: a flood of duplicates would
    /// otherwise keep whole batches alive for a few rows each.
    fn let_go_of(&mut self, column: &Arc<BinaryColumn>) {
        let groups = || self.window.iter().chain(&self.open);
        let held: usize = groups().map(|group| group.bytes_in(column)).sum();
        if held > 0 && held * 2 < column.value_bytes() {
            for group in self.window.iter_mut().chain(&mut self.open) {
                group.move_out_of(|own| Arc::ptr_eq(own, column));
            }
        }
    }

    fn drain_window(&mut self) -> Result<(), ArrowError> {
        self.window_bytes = 0;
        self.settlement.settle(&self.window)?;
        self.window.clear();
        Ok(())
    }
}

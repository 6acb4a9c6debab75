//! Messages from segments in about the order of arrival: batches in, whole messages out, and the
//! segments of the others for another pass.
//!
//! Groups are open side by side within a bounded window. When it is full, those that went longest
//! without a segment are settled. A segment that comes later than that is dropped where its message
//! had it, and a leftover otherwise; nothing is lost by either.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_row::Rows;
use arrow_schema::ArrowError;
use pyo3::prelude::*;
use shardwire_core::wire::segment::{self, Received, Slot, WireFormat};
use shardwire_stub::documented;

use super::batch::Batch;
use super::exchange::BatchArgument;
use super::group::{Group, GroupKey, GroupLimits};
use super::input::BinaryColumn;
use super::settle::{Settled, Settlement, arrow_error};
use crate::segmentation::SegmentationParameters;

#[documented]
#[pyclass(module = "shardwire._native")]
pub struct ArrowLocalReconstructor {
    settlement: Settlement,
    window_bytes: usize,
    open: HashMap<GroupKey, Open>,
    open_bytes: usize,
    /// Rows so far.
    rows: u64,
    /// Messages that have their row, and the data segments that they lack.
    whole: HashMap<u128, Box<[u8]>>,
    hashers: [RandomState; 2],
}

struct Open {
    group: Group,
    /// The number of the row that came last.
    last_row: u64,
}

#[documented]
#[pymethods]
impl ArrowLocalReconstructor {
    #[new]
    #[pyo3(signature = (
        parameters, *, by_count, include_payload, candidates_per_slot_max, held_bytes_max, work_budget,
        window_bytes, partition
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        parameters: PyRef<'_, SegmentationParameters>,
        by_count: usize,
        include_payload: bool,
        candidates_per_slot_max: usize,
        held_bytes_max: usize,
        work_budget: u64,
        window_bytes: usize,
        partition: i64,
    ) -> Self {
        let parameters = parameters.inner;
        let limits = GroupLimits {
            candidates_per_slot_max,
            held_bytes_max,
            max_total_segments: parameters.settings().max_total_segments,
        };
        ArrowLocalReconstructor {
            settlement: Settlement::new(
                parameters,
                limits,
                work_budget,
                by_count,
                include_payload,
                Some(partition),
            ),
            window_bytes,
            open: HashMap::new(),
            open_bytes: 0,
            rows: 0,
            whole: HashMap::new(),
            hashers: [RandomState::new(), RandomState::new()],
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

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        py.detach(|| {
            self.settle_down_to(0)?;
            self.settlement.emit()
        })
        .map_err(arrow_error)?;
        self.settlement.hand_over(py)
    }

    fn poll_leftovers<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.settlement.take_leftovers(py)
    }
}

impl ArrowLocalReconstructor {
    fn take_in(&mut self, batch: &Batch) -> Result<(), ArrowError> {
        let by = self.settlement.encode_by(batch)?;
        let mut kept_bytes = 0;
        for row in 0..batch.payload.len() {
            kept_bytes += self.receive(batch, by.as_ref(), row);
            if self.open_bytes > self.window_bytes {
                // A quarter at a time: many groups are hashed at once, and sorted rarely.
                self.settle_down_to(self.window_bytes / 4 * 3)?;
                self.let_go_of_thin_batches();
            }
        }
        // Batches of which much was kept grow thin only when groups are settled.
        if kept_bytes * 2 < batch.payload.value_bytes() {
            self.let_go_of_thin_batches();
        }
        Ok(())
    }

    /// Takes in one row; returns how many bytes of it are kept.
    fn receive(&mut self, batch: &Batch, by: Option<&Rows>, row: usize) -> usize {
        let hash = batch.hash_of(row);
        let key = GroupKey {
            by: by.map(|by| by.row(row).owned()),
            hash,
            send_id: batch.send_id.get(row).map(Into::into),
            reason: batch.reason_of(row, hash.as_ref()).map(Into::into),
        };
        self.rows += 1;
        let open = match self.open.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let known = identity_of(&self.hashers, entry.key());
                if let Some(missing) = self.whole.get(&known) {
                    let wire_format = self.settlement.parameters.settings().wire_format;
                    let segments_max = self.settlement.limits.max_total_segments;
                    if let Some(bytes) = batch.payload.get(row)
                        && is_one_of(missing, bytes, wire_format, segments_max)
                    {
                        self.settlement.leftovers.append_segment(
                            entry.key(),
                            bytes,
                            batch.timestamp.get(row),
                            batch.sender.get(row),
                        );
                    }
                    return 0;
                }
                let group = Group::new(entry.key().clone());
                self.open_bytes += group.weight;
                entry.insert(Open { group, last_row: 0 })
            }
        };
        open.last_row = self.rows;
        let (weight, held_bytes) = (open.group.weight, open.group.held_bytes);
        let wire_format = self.settlement.parameters.settings().wire_format;
        open.group
            .receive(&batch.arrival(row), wire_format, self.settlement.limits);
        self.open_bytes += open.group.weight - weight;
        open.group.held_bytes - held_bytes
    }

    /// Settles the groups that went longest without a row until the others take at most so much.
    fn settle_down_to(&mut self, open_bytes_max: usize) -> Result<(), ArrowError> {
        let mut order: Vec<(u64, usize)> = self
            .open
            .values()
            .map(|open| (open.last_row, open.group.weight))
            .collect();
        order.sort_unstable();
        let mut last_settled = 0;
        let mut left = self.open_bytes;
        for (last_row, weight) in order {
            if left <= open_bytes_max {
                break;
            }
            left -= weight;
            last_settled = last_row;
        }
        self.open_bytes = left;
        let mut settled: Vec<Open> = self
            .open
            .extract_if(|_, open| open.last_row <= last_settled)
            .map(|(_, open)| open)
            .collect();
        settled.sort_unstable_by_key(|open| open.last_row);
        let groups: Vec<Group> = settled.into_iter().map(|open| open.group).collect();
        let found = self.settlement.settle(&groups)?;
        for (group, settled) in groups.iter().zip(found) {
            if let Settled::Whole(missing) = settled {
                let known = identity_of(&self.hashers, &group.key);
                self.whole.insert(known, missing);
            }
        }
        Ok(())
    }

    /// Copies what is held out of batches of which little is held: what few groups have left in
    /// them would otherwise keep whole batches alive.
    fn let_go_of_thin_batches(&mut self) {
        let mut held: HashMap<*const BinaryColumn, (Arc<BinaryColumn>, usize)> = HashMap::new();
        for candidate in self.open.values().flat_map(|open| open.group.candidates()) {
            if let Some(column) = candidate.column() {
                held.entry(Arc::as_ptr(column))
                    .or_insert_with(|| (Arc::clone(column), 0))
                    .1 += candidate.segment().len();
            }
        }
        held.retain(|_, (column, bytes)| *bytes * 2 < column.value_bytes());
        if held.is_empty() {
            return;
        }
        for open in self.open.values_mut() {
            open.group
                .move_out_of(|column| held.contains_key(&Arc::as_ptr(column)));
        }
    }
}

/// 128 bits of a key, which nobody can choose: a message is remembered to the end of its partition, and
/// may have no second row in it.
fn identity_of(hashers: &[RandomState; 2], key: &GroupKey) -> u128 {
    let [high, low] = hashers.each_ref().map(|hasher| hasher.hash_one(key));
    u128::from(high) << 64 | u128::from(low)
}

/// Whether these bytes are a data segment of one of these indices.
fn is_one_of(
    missing: &[u8],
    bytes: &[u8],
    wire_format: WireFormat,
    max_total_segments: u32,
) -> bool {
    if missing.is_empty() {
        return false;
    }
    match segment::decode(bytes, wire_format, max_total_segments) {
        Ok(Received::Segment(found)) => match found.header.slot {
            Slot::Data(index) => missing.contains(&index),
            Slot::Parity(_) => false,
        },
        _ => false,
    }
}

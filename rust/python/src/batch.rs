//! Many payloads in one call: lists of buffers, or Arrow arrays, which are read in place.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use shardwire_core::reassemble::{Joined, reassemble_many as join_many};
use shardwire_core::segment::{self, Parameters, SegmentationError, Segments};
use shardwire_core::sink::Sink;
use shardwire_stub::documented;

use crate::arrow::{BinaryColumn, map_arrow};
use crate::buffer::{Buffer, ITEMS_MAX, buffers_of, detached, items_of};
use crate::error::{Error, config_error};
use crate::fresh::new_bytes;
use crate::segmentation::{SegmentationParameters, messages};

/// Payloads are worked on in groups of about so many bytes: enough to hash side by side, few
/// enough that parity and recovered segments do not pile up.
const GROUP_BYTES: usize = 32 << 20;

/// Bytes that one Arrow binary array can hold: its offsets have 32 bits.
const ARROW_BYTES_MAX: usize = i32::MAX as usize;

/// Neighbours of about [`GROUP_BYTES`] together.
pub fn groups(lengths: &[usize]) -> Vec<Range<usize>> {
    let (mut groups, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (position, length) in lengths.iter().enumerate() {
        bytes += length;
        if bytes >= GROUP_BYTES || position + 1 == lengths.len() {
            groups.push(start..position + 1);
            (start, bytes) = (position + 1, 0);
        }
    }
    groups
}

/// Appends to the value that a builder is at; `append_value(b"")` ends it.
pub struct ValueSink<'a>(pub &'a mut BinaryBuilder);

impl Sink for ValueSink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        std::io::Write::write_all(self.0, bytes)
            .expect("writing into a builder's memory does not fail");
    }
}

#[documented]
#[pyfunction]
pub fn segment_many<'py>(
    py: Python<'py>,
    payloads: &Bound<'py, PyAny>,
    parameters: &SegmentationParameters,
) -> Result<Bound<'py, PyAny>, Error> {
    let parameters = parameters.inner;
    let lists = map_arrow(payloads, |array| {
        let column = BinaryColumn::new(array, "payloads")?;
        py.detach(|| {
            check_size(&column, &parameters)?;
            let (lists, error) = segment_lists(&column, &parameters);
            error.map_or(Ok(lists), |error| Err(Error::from(error)))
        })
    })?;
    if let Some(lists) = lists {
        return Ok(lists);
    }
    let payloads = buffers_of(payloads, "payloads")?;
    let slices: Vec<&[u8]> = payloads.iter().map(Buffer::as_bytes).collect();
    let lengths: Vec<usize> = slices.iter().map(|slice| slice.len()).collect();
    let lists = PyList::empty(py);
    for group in groups(&lengths) {
        let bytes = lengths[group.clone()].iter().sum();
        let slices = &slices[group.clone()];
        let prepared: Vec<Segments<'_>> = detached(py, bytes, || {
            let each = segment::segment_many(slices, &parameters);
            each.into_iter().collect::<Result<_, _>>()
        })?;
        for (segments, payload) in prepared.iter().zip(&payloads[group]) {
            lists.append(messages(py, segments, payload)?)?;
        }
    }
    Ok(lists.into_any())
}

/// Refuses a batch whose segments would not fit one array.
fn check_size(column: &BinaryColumn, parameters: &Parameters) -> PyResult<()> {
    let per_payload = |payload: &[u8]| match parameters.counts(payload.len()) {
        Ok(counts) => {
            let room = parameters.chunk_size_bytes() + segment::OVERHEAD_BYTES_MAX;
            (counts.data + counts.parity).max(1) * room
        }
        Err(_) => 0,
    };
    let total: usize = column.iter().flatten().map(per_payload).sum();
    if total > ARROW_BYTES_MAX {
        return Err(config_error(format!(
            "the segments of this batch take up to {total} bytes: an Arrow array holds \
             {ARROW_BYTES_MAX}; pass fewer payloads at once"
        )));
    }
    Ok(())
}

/// The segments of every payload, and what refuses the first that is refused; its row is null.
pub fn segment_lists(
    column: &BinaryColumn,
    parameters: &Parameters,
) -> (ArrayRef, Option<SegmentationError>) {
    let mut lists = ListBuilder::new(BinaryBuilder::with_capacity(
        column.len(),
        column.value_bytes(),
    ));
    let mut first_error = None;
    each_segmented(column, parameters, |_, segmented| match segmented {
        Some((_, Ok(segments))) => {
            for ordinal in 0..segments.count() {
                segments.write(ordinal, &mut ValueSink(lists.values()));
                lists.values().append_value(b"");
            }
            lists.append(true);
        }
        Some((_, Err(error))) => {
            first_error.get_or_insert(error);
            lists.append(false);
        }
        None => lists.append(false),
    });
    (Arc::new(lists.finish()), first_error)
}

/// Calls `take` with every row, its payload and its segments, in order; `None` for a null.
pub fn each_segmented<'a>(
    column: &'a BinaryColumn,
    parameters: &Parameters,
    mut take: impl FnMut(usize, Option<(&'a [u8], Result<Segments<'a>, SegmentationError>)>),
) {
    let lengths: Vec<usize> = column
        .iter()
        .map(|payload| payload.map_or(0, <[u8]>::len))
        .collect();
    for group in groups(&lengths) {
        let rows: Vec<Option<&[u8]>> = group.clone().map(|row| column.get(row)).collect();
        let payloads: Vec<&[u8]> = rows.iter().flatten().copied().collect();
        let mut segmented = segment::segment_many(&payloads, parameters).into_iter();
        for (row, payload) in group.zip(rows) {
            take(row, payload.zip(payload.and_then(|_| segmented.next())));
        }
    }
}

#[documented]
#[pyfunction]
pub fn reassemble_many<'py>(
    py: Python<'py>,
    batches: &Bound<'py, PyAny>,
    parameters: &SegmentationParameters,
    candidates_per_slot_max: usize,
    work_budget: u64,
) -> Result<Bound<'py, PyAny>, Error> {
    let join = Join {
        parameters: parameters.inner,
        candidates_per_slot_max,
        work_budget,
    };
    let payloads = map_arrow(batches, |array| {
        let (rows, column) = list_of_binary(array)?;
        py.detach(|| join.arrays(&rows, &column))
    })?;
    if let Some(payloads) = payloads {
        return Ok(payloads);
    }
    let batches = items_of(batches, "batches", ITEMS_MAX, |batch| {
        buffers_of(&batch, "batch")
    })?;
    let sets: Vec<Vec<&[u8]>> = batches
        .iter()
        .map(|batch| batch.iter().map(Buffer::as_bytes).collect())
        .collect();
    let payloads = PyList::empty(py);
    let lengths = lengths_of(&sets);
    for group in groups(&lengths) {
        let bytes = lengths[group.clone()].iter().sum();
        let joined = detached(py, bytes, || join.run(&sets[group]));
        for payload in joined {
            payloads.append(payload.map(|payload| to_bytes(py, &payload)).transpose()?)?;
        }
    }
    Ok(payloads.into_any())
}

fn to_bytes<'py>(py: Python<'py>, payload: &Joined<'_>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = new_bytes(py, &[payload.len()], |_, out| payload.write_to(out))?;
    Ok(bytes.into_iter().next().expect("one for one length"))
}

fn lengths_of(sets: &[Vec<&[u8]>]) -> Vec<usize> {
    let length = |set: &Vec<&[u8]>| set.iter().map(|segment| segment.len()).sum();
    sets.iter().map(length).collect()
}

struct Join {
    parameters: Parameters,
    candidates_per_slot_max: usize,
    work_budget: u64,
}

impl Join {
    fn run<'a>(&self, sets: &[Vec<&'a [u8]>]) -> Vec<Option<Joined<'a>>> {
        join_many(
            sets,
            &self.parameters,
            self.candidates_per_slot_max,
            self.work_budget,
        )
    }

    fn arrays(&self, rows: &[Option<Range<usize>>], column: &BinaryColumn) -> PyResult<ArrayRef> {
        let sets: Vec<Vec<&[u8]>> = rows
            .iter()
            .map(|row| {
                let segments = row.clone().unwrap_or_default();
                segments.filter_map(|row| column.get(row)).collect()
            })
            .collect();
        let lengths = lengths_of(&sets);
        let total = lengths.iter().sum::<usize>();
        if total > ARROW_BYTES_MAX {
            return Err(config_error(format!(
                "the segments of this batch have {total} bytes: the array of their payloads holds \
                 {ARROW_BYTES_MAX}; pass fewer sets at once"
            )));
        }
        let mut payloads = BinaryBuilder::with_capacity(sets.len(), total);
        for group in groups(&lengths) {
            for payload in self.run(&sets[group]) {
                match payload {
                    Some(payload) => {
                        payload.write_to(&mut ValueSink(&mut payloads));
                        payloads.append_value(b"");
                    }
                    None => payloads.append_null(),
                }
            }
        }
        Ok(Arc::new(payloads.finish()))
    }
}

/// Where each list's values lie in the column of all values; `None` for a null.
fn list_of_binary(array: &ArrayRef) -> PyResult<(Vec<Option<Range<usize>>>, BinaryColumn)> {
    let rows = 0..array.len();
    let range = |row: usize, bounds: Range<usize>| array.is_valid(row).then_some(bounds);
    match array.data_type() {
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            let bounds = |row| offsets[row] as usize..offsets[row + 1] as usize;
            let rows = rows.map(|row| range(row, bounds(row))).collect();
            Ok((rows, BinaryColumn::new(lists.values(), "batches")?))
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            let bounds = |row| offsets[row] as usize..offsets[row + 1] as usize;
            let rows = rows.map(|row| range(row, bounds(row))).collect();
            Ok((rows, BinaryColumn::new(lists.values(), "batches")?))
        }
        other => Err(PyTypeError::new_err(format!(
            "an Arrow list array of binary is required, not {other}"
        ))),
    }
}

//! Payloads to segments, a batch at a time.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use pyo3::prelude::*;
use shardwire_core::keccak;
use shardwire_core::segment::{Parameters, SegmentationError, Segments};
use shardwire_stub::documented;

use super::exchange::{ArrayArgument, batch_to_python, to_python};
use super::input::BinaryColumn;
use super::unwrap::batch_of;
use crate::batch::{ValueSink, each_segmented, segment_lists};
use crate::segmentation::SegmentationParameters;

#[documented]
#[pyfunction]
pub fn arrow_segment<'py>(
    py: Python<'py>,
    payload: ArrayArgument,
    parameters: PyRef<'_, SegmentationParameters>,
) -> PyResult<(Bound<'py, PyAny>, Option<String>)> {
    let column = BinaryColumn::new(&payload.0, "payload")?;
    let parameters = parameters.inner;
    let (lists, error) = py.detach(|| segment_lists(&column, &parameters));
    Ok((to_python(py, lists)?, error.map(|error| error.to_string())))
}

#[documented]
#[pyfunction]
pub fn arrow_segment_rows<'py>(
    py: Python<'py>,
    payload: ArrayArgument,
    parameters: PyRef<'_, SegmentationParameters>,
) -> PyResult<Bound<'py, PyAny>> {
    let column = BinaryColumn::new(&payload.0, "payload")?;
    let parameters = parameters.inner;
    let batch = py.detach(|| {
        let mut out = Rows::default();
        each_segmented(&column, &parameters, |row, segmented| match segmented {
            Some((payload, Ok(segments))) => out.append(row, payload, &segments, &parameters),
            Some((_, Err(error))) => out.append_error(row, &error),
            None => {}
        });
        out.finish()
    })?;
    batch_to_python(py, batch)
}

#[derive(Default)]
struct Rows {
    row: Int32Builder,
    hash: BinaryBuilder,
    segment: BinaryBuilder,
    segment_index: Int32Builder,
    is_parity: BooleanBuilder,
    data_segment_count: Int32Builder,
    parity_segment_count: Int32Builder,
    error: StringBuilder,
}

impl Rows {
    fn append(
        &mut self,
        row: usize,
        payload: &[u8],
        segments: &Segments<'_>,
        parameters: &Parameters,
    ) {
        let hash = match segments.unmodified() {
            Some(payload) => keccak::keccak256(payload),
            None => segments.entire_message_hash(),
        };
        let counts = parameters
            .counts(payload.len())
            .expect("segment() accepted this length");
        for ordinal in 0..segments.count() {
            self.row.append_value(row as i32);
            self.hash.append_value(hash);
            segments.write(ordinal, &mut ValueSink(&mut self.segment));
            self.segment.append_value(b"");
            self.segment_index.append_value(ordinal as i32);
            self.is_parity
                .append_value(counts.data > 0 && ordinal >= counts.data);
            self.data_segment_count.append_value(counts.data as i32);
            self.parity_segment_count.append_value(counts.parity as i32);
            self.error.append_null();
        }
    }

    fn append_error(&mut self, row: usize, error: &SegmentationError) {
        self.row.append_value(row as i32);
        self.hash.append_null();
        self.segment.append_null();
        self.segment_index.append_null();
        self.is_parity.append_null();
        self.data_segment_count.append_null();
        self.parity_segment_count.append_null();
        self.error.append_value(error.to_string());
    }

    fn finish(mut self) -> PyResult<RecordBatch> {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("row", Arc::new(self.row.finish())),
            ("entire_message_hash", Arc::new(self.hash.finish())),
            ("segment", Arc::new(self.segment.finish())),
            ("segment_index", Arc::new(self.segment_index.finish())),
            ("is_parity", Arc::new(self.is_parity.finish())),
            (
                "data_segment_count",
                Arc::new(self.data_segment_count.finish()),
            ),
            (
                "parity_segment_count",
                Arc::new(self.parity_segment_count.finish()),
            ),
            ("error", Arc::new(self.error.finish())),
        ];
        batch_of(columns)
    }
}

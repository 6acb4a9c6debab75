//! A batch of segments as Spark hands it over: the `by` columns, then those of a segment.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Field;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::group::Arrival;
use super::input::{BinaryColumn, IntegerColumn, TextColumn};

/// The columns that a batch ends with, after those of `by`.
const FIXED_COLUMNS: [&str; 6] = ["hash", "send_id", "payload", "timestamp", "sender", "error"];

/// One batch with its columns told apart.
pub struct Batch {
    pub by: Vec<arrow_array::ArrayRef>,
    pub by_fields: Vec<Field>,
    pub hash: BinaryColumn,
    pub send_id: TextColumn,
    pub payload: Arc<BinaryColumn>,
    pub timestamp: IntegerColumn,
    pub sender: TextColumn,
    pub error: TextColumn,
}

impl Batch {
    pub fn new(batch: &RecordBatch, by_count: usize) -> PyResult<Self> {
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

    /// Why a row of no hash is no segment.
    pub fn reason_of(&self, row: usize, hash: Option<&[u8; 32]>) -> Option<&str> {
        match hash {
            None => self.error.get(row),
            Some(_) => None,
        }
    }

    /// The row as a group takes it in.
    pub fn arrival(&self, row: usize) -> Arrival<'_> {
        Arrival {
            column: &self.payload,
            row,
            timestamp: self.timestamp.get(row),
            sender: self.sender.get(row),
            error: self.error.get(row),
        }
    }

    /// The hash of a row; `None` where it is null or no hash.
    pub fn hash_of(&self, row: usize) -> Option<[u8; 32]> {
        self.hash
            .get(row)
            .and_then(|hash| <[u8; 32]>::try_from(hash).ok())
    }
}

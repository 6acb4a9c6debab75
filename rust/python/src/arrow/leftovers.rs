//! Segments whose message is not whole in this partition: they go on to meet the others.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_row::{OwnedRow, RowConverter};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::group::Group;

/// Columns as the state machine takes them in.
#[derive(Default)]
pub struct LeftoverColumns {
    by: Vec<OwnedRow>,
    rows: usize,
    hash: BinaryBuilder,
    send_id: StringBuilder,
    payload: BinaryBuilder,
    timestamp: Int64Builder,
    sender: StringBuilder,
}

impl LeftoverColumns {
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds every segment that `group` holds; repeats of one were counted and are not held.
    pub fn append(&mut self, group: &Group) {
        for candidate in group.candidates() {
            self.rows += 1;
            self.by.extend(group.key.by.clone());
            self.hash.append_option(group.key.hash.as_ref());
            self.send_id.append_option(group.key.send_id.as_deref());
            self.payload.append_value(candidate.segment());
            self.timestamp.append_option(candidate.timestamp);
            self.sender.append_option(candidate.sender.as_deref());
        }
    }

    /// The rows so far as a batch; `by` are the fields of the columns that `converter` encoded.
    pub fn finish(
        &mut self,
        by: &[Field],
        converter: Option<&RowConverter>,
    ) -> Result<RecordBatch, ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let keys = std::mem::take(&mut self.by);
        let mut fields: Vec<Field> = by.to_vec();
        let mut arrays: Vec<ArrayRef> = match converter {
            Some(converter) => converter.convert_rows(keys.iter().map(OwnedRow::row))?,
            None => Vec::new(),
        };
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("hash", Arc::new(self.hash.finish())),
            ("send_id", Arc::new(self.send_id.finish())),
            ("payload", Arc::new(self.payload.finish())),
            ("timestamp", Arc::new(self.timestamp.finish())),
            ("sender", Arc::new(self.sender.finish())),
            ("error", new_null_array(&DataType::Utf8, rows)),
        ];
        for (name, array) in columns {
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}

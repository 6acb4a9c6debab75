//! What goes on from a partition to meet the others': segments of messages that are not whole in it,
//! and a row for each message that is; and what the others' rows then correct.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{OwnedRow, RowConverter};
use arrow_schema::{ArrowError, Field, Schema};

use super::group::{Group, GroupKey};
use super::said::Said;
use super::whole::Missing;

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
    error: StringBuilder,
}

impl LeftoverColumns {
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds every segment that `group` holds, with how often it came, and what of the group these do not tell.
    pub fn append(&mut self, group: &Group) {
        let mut times: Vec<i64> = Vec::new();
        let mut senders = group.senders.clone();
        for candidate in group.candidates() {
            self.append_row(
                &group.key,
                Some(candidate.segment()),
                candidate.timestamp,
                candidate.sender.as_deref(),
                Said::Times(candidate.times),
            );
            times.extend(candidate.timestamp);
            if let Some(sender) = &candidate.sender {
                senders.remove(sender);
            }
        }
        // Neither the time nor the sender of a repeat goes on with its segment.
        let ends = BTreeSet::from([group.first_timestamp, group.last_timestamp]);
        let mut untold = ends
            .into_iter()
            .flatten()
            .filter(|time| !times.contains(time));
        let mut senders = senders.iter();
        loop {
            let (time, sender) = (untold.next(), senders.next());
            if time.is_none() && sender.is_none() {
                break;
            }
            let sender = sender.map(AsRef::as_ref);
            self.append_row(&group.key, None, time, sender, Said::Seen);
        }
        if group.was_over_limit() {
            self.append_row(&group.key, None, None, None, Said::OverLimit);
        }
        if group.unreadable > 0 {
            self.append_row(
                &group.key,
                None,
                None,
                None,
                Said::Unread(group.error.as_deref()),
            );
        }
    }

    /// Adds one segment.
    pub fn append_segment(
        &mut self,
        key: &GroupKey,
        segment: &[u8],
        timestamp: Option<i64>,
        sender: Option<&str>,
    ) {
        self.append_row(key, Some(segment), timestamp, sender, Said::Times(1));
    }

    /// Says that a message is whole in `partition`, and which data segments it lacks there.
    pub fn append_whole(&mut self, key: &GroupKey, partition: i64, missing: &[Missing]) {
        let packed = Missing::pack(missing);
        self.append_row(key, Some(&packed), Some(partition), None, Said::Whole);
    }

    /// Says what the row of a message in `partition` should have been: `None`, no row, since another
    /// partition's stands for the message; otherwise how many data segments came in no partition.
    pub fn append_correction(&mut self, key: &GroupKey, partition: i64, recovered: Option<usize>) {
        let recovered = recovered.map(|count| count.to_string());
        self.append_row(
            key,
            None,
            Some(partition),
            None,
            Said::Unread(recovered.as_deref()),
        );
    }

    fn append_row(
        &mut self,
        key: &GroupKey,
        payload: Option<&[u8]>,
        timestamp: Option<i64>,
        sender: Option<&str>,
        said: Said<'_>,
    ) {
        self.rows += 1;
        self.by.extend(key.by.clone());
        self.hash.append_option(key.hash.as_ref());
        self.send_id.append_option(key.send_id.as_deref());
        self.payload.append_option(payload);
        self.timestamp.append_option(timestamp);
        self.sender.append_option(sender);
        self.error.append_option(said.text());
    }

    /// The rows so far as a batch; `by` are the fields of the columns that `converter` encoded.
    pub fn finish(
        &mut self,
        by: &[Field],
        converter: Option<&RowConverter>,
    ) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
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
            ("error", Arc::new(self.error.finish())),
        ];
        for (name, array) in columns {
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}

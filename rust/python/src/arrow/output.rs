//! The rows that reconstruction gives: one a message, whatever became of it.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{OwnedRow, RowConverter};
use arrow_schema::{ArrowError, Field, Schema};

use super::group::Group;

/// A batch is handed over when it holds this many bytes of payload.
const BATCH_BYTES: usize = 8 << 20;

/// A batch is handed over when it holds this many rows.
const BATCH_ROWS: usize = 8192;

/// What became of a message.
pub enum Outcome<'a> {
    /// The segments hash to what they claim.
    Complete(Vec<&'a [u8]>),
    /// Some came back through parity.
    Recovered {
        pieces: Vec<&'a [u8]>,
        data_segments_recovered: usize,
        erasure_code: Option<&'static str>,
    },
    /// Too few segments arrived.
    Incomplete,
    /// No choice among the segments hashes to what they claim, or nothing could be read.
    Invalid,
}

/// Columns of finished messages, in the order they finished.
pub struct OutputColumns {
    include_payload: bool,
    by: Vec<OwnedRow>,
    rows: usize,
    bytes: usize,
    hash: BinaryBuilder,
    payload: BinaryBuilder,
    payload_length: Int64Builder,
    status: StringBuilder,
    data_segment_count: Int32Builder,
    parity_segment_count: Int32Builder,
    segments_received: Int64Builder,
    duplicates: Int64Builder,
    conflicts: Int64Builder,
    first_timestamp: Int64Builder,
    last_timestamp: Int64Builder,
    senders: ListBuilder<StringBuilder>,
    erasure_code: StringBuilder,
    send_id: StringBuilder,
    copies: Int32Builder,
    data_segments_recovered: Int32Builder,
    error: StringBuilder,
}

impl OutputColumns {
    pub fn new(include_payload: bool) -> Self {
        OutputColumns {
            include_payload,
            by: Vec::new(),
            rows: 0,
            bytes: 0,
            hash: BinaryBuilder::new(),
            payload: BinaryBuilder::new(),
            payload_length: Int64Builder::new(),
            status: StringBuilder::new(),
            data_segment_count: Int32Builder::new(),
            parity_segment_count: Int32Builder::new(),
            segments_received: Int64Builder::new(),
            duplicates: Int64Builder::new(),
            conflicts: Int64Builder::new(),
            first_timestamp: Int64Builder::new(),
            last_timestamp: Int64Builder::new(),
            senders: ListBuilder::new(StringBuilder::new()),
            erasure_code: StringBuilder::new(),
            send_id: StringBuilder::new(),
            copies: Int32Builder::new(),
            data_segments_recovered: Int32Builder::new(),
            error: StringBuilder::new(),
        }
    }

    /// Whether a batch should be handed over.
    pub fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds the row of one finished group.
    pub fn append(&mut self, group: &Group, outcome: &Outcome<'_>) {
        self.rows += 1;
        self.by.extend(group.key.by.clone());
        self.hash.append_option(group.key.hash.as_ref());
        self.append_payload(outcome);
        let (status, recovered, erasure_code) = match outcome {
            Outcome::Complete(_) => ("complete", Some(0), None),
            Outcome::Recovered {
                data_segments_recovered,
                erasure_code,
                ..
            } => (
                "recovered",
                Some(*data_segments_recovered as i32),
                *erasure_code,
            ),
            Outcome::Incomplete => ("incomplete", None, None),
            Outcome::Invalid => ("invalid", None, None),
        };
        self.status.append_value(status);
        // A payload that went unsegmented counts as one data segment, as the Reassembler counts it.
        let (data, parity) = if group.is_unsegmented() {
            (Some(1), Some(0))
        } else {
            (group.data_segment_count(), group.parity_segment_count())
        };
        self.data_segment_count.append_option(data.map(i32::from));
        self.parity_segment_count
            .append_option(parity.map(i32::from));
        let is_read = group.key.hash.is_some();
        let received = if is_read {
            group.segments_received()
        } else {
            group.rows
        };
        self.segments_received.append_value(received as i64);
        self.duplicates.append_value(group.duplicates as i64);
        self.conflicts.append_value(group.conflicts as i64);
        self.first_timestamp.append_option(group.first_timestamp);
        self.last_timestamp.append_option(group.last_timestamp);
        for sender in &group.senders {
            self.senders.values().append_value(sender);
        }
        self.senders.append(true);
        self.erasure_code.append_option(erasure_code);
        self.send_id.append_option(group.key.send_id.as_deref());
        self.copies.append_value(group.copies() as i32);
        self.data_segments_recovered.append_option(recovered);
        self.error.append_option(reason(group, outcome));
    }

    fn append_payload(&mut self, outcome: &Outcome<'_>) {
        let pieces: &[&[u8]] = match outcome {
            Outcome::Complete(pieces) => pieces,
            Outcome::Recovered { pieces, .. } => pieces,
            Outcome::Incomplete | Outcome::Invalid => {
                self.payload.append_null();
                self.payload_length.append_null();
                return;
            }
        };
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.payload_length.append_value(length as i64);
        if !self.include_payload {
            self.payload.append_null();
            return;
        }
        self.bytes += length;
        for piece in pieces {
            std::io::Write::write_all(&mut self.payload, piece)
                .expect("writing into a builder's memory does not fail");
        }
        self.payload.append_value(b"");
    }

    /// The rows so far as a batch; `by` are the fields of the columns that `converter` encoded.
    pub fn finish(
        &mut self,
        by: &[Field],
        converter: Option<&RowConverter>,
    ) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        self.bytes = 0;
        let keys = std::mem::take(&mut self.by);
        let mut fields: Vec<Field> = by.to_vec();
        let mut arrays: Vec<ArrayRef> = match converter {
            Some(converter) => converter.convert_rows(keys.iter().map(OwnedRow::row))?,
            None => Vec::new(),
        };
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("entire_message_hash", Arc::new(self.hash.finish())),
            ("payload", Arc::new(self.payload.finish())),
            ("payload_length", Arc::new(self.payload_length.finish())),
            ("status", Arc::new(self.status.finish())),
            (
                "data_segment_count",
                Arc::new(self.data_segment_count.finish()),
            ),
            (
                "parity_segment_count",
                Arc::new(self.parity_segment_count.finish()),
            ),
            (
                "segments_received",
                Arc::new(self.segments_received.finish()),
            ),
            ("duplicates", Arc::new(self.duplicates.finish())),
            ("conflicts", Arc::new(self.conflicts.finish())),
            ("first_timestamp", Arc::new(self.first_timestamp.finish())),
            ("last_timestamp", Arc::new(self.last_timestamp.finish())),
            ("senders", Arc::new(self.senders.finish())),
            ("erasure_code", Arc::new(self.erasure_code.finish())),
            ("send_id", Arc::new(self.send_id.finish())),
            ("copies", Arc::new(self.copies.finish())),
            (
                "data_segments_recovered",
                Arc::new(self.data_segments_recovered.finish()),
            ),
            ("error", Arc::new(self.error.finish())),
        ];
        for (name, array) in columns {
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}

/// Why a message is not there; `None` where it is.
fn reason(group: &Group, outcome: &Outcome<'_>) -> Option<String> {
    match outcome {
        Outcome::Complete(_) | Outcome::Recovered { .. } => None,
        _ if group.was_over_limit() => {
            Some("the group reached what one message may hold; further segments were let go".into())
        }
        Outcome::Invalid if group.key.hash.is_some() && group.segments_received() > 0 => {
            Some("no choice among the segments hashes to entire_message_hash".into())
        }
        Outcome::Incomplete | Outcome::Invalid => group.error.clone(),
    }
}

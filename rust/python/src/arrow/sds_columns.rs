//! The column of SDS messages, taken apart.

use std::sync::Arc;

use arrow_array::StructArray;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Int32Builder, Int64Builder, ListBuilder, StringBuilder,
    StructBuilder,
};
use arrow_schema::{DataType, Field, Fields};
use pyo3::prelude::*;
use shardwire_core::wire::sds::{self, HistoryEntry, Kind};
use shardwire_stub::documented;

use super::columns::struct_array;
use super::exchange::{ArrayArgument, to_python};
use super::input::BinaryColumn;
use super::{sds_wire_format_named, send_of};

#[documented]
#[pyfunction]
pub fn arrow_decode_sds<'py>(
    py: Python<'py>,
    data: ArrayArgument,
    wire_format: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let column = BinaryColumn::new(&data.0, "data")?;
    let wire_format = sds_wire_format_named(wire_format)?;
    let decoded = py.detach(|| {
        let mut out = SdsColumns::new();
        for row in column.iter() {
            out.append(row, wire_format);
        }
        out.finish()
    });
    to_python(py, Arc::new(decoded))
}

struct SdsColumns {
    valid: Vec<bool>,
    sender_id: StringBuilder,
    message_id: StringBuilder,
    channel_id: StringBuilder,
    kind: StringBuilder,
    lamport_timestamp: Int64Builder,
    causal_history: ListBuilder<StructBuilder>,
    repair_request: ListBuilder<StructBuilder>,
    bloom_filter: BinaryBuilder,
    content: BinaryBuilder,
    send_id: StringBuilder,
    segment_ordinal: Int32Builder,
    error: StringBuilder,
}

impl SdsColumns {
    fn new() -> Self {
        SdsColumns {
            valid: Vec::new(),
            sender_id: StringBuilder::new(),
            message_id: StringBuilder::new(),
            channel_id: StringBuilder::new(),
            kind: StringBuilder::new(),
            lamport_timestamp: Int64Builder::new(),
            causal_history: ListBuilder::new(entry_builder()),
            repair_request: ListBuilder::new(entry_builder()),
            bloom_filter: BinaryBuilder::new(),
            content: BinaryBuilder::new(),
            send_id: StringBuilder::new(),
            segment_ordinal: Int32Builder::new(),
            error: StringBuilder::new(),
        }
    }

    fn append(&mut self, row: Option<&[u8]>, wire_format: sds::WireFormat) {
        self.valid.push(row.is_some());
        let read = row.map(|bytes| sds::Message::decode(bytes, wire_format));
        let (message, mut error) = match read {
            None => (None, None),
            Some(Ok(message)) => (Some(message), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        let message = message.as_ref();
        let kind = message.and_then(sds::Message::kind);
        if message.is_some() && kind.is_none() {
            error = Some("neither a lamport timestamp nor content is set".to_owned());
        }
        let lamport = message.and_then(|message| message.lamport_timestamp);
        let signed = lamport.and_then(|value| i64::try_from(value).ok());
        if lamport.is_some() && signed.is_none() {
            error = Some("the lamport timestamp exceeds 63 bits".to_owned());
        }
        let send = message.and_then(|message| send_of(&message.message_id));
        self.sender_id
            .append_option(message.map(|message| &message.sender_id));
        self.message_id
            .append_option(message.map(|message| &message.message_id));
        self.channel_id
            .append_option(message.map(|message| &message.channel_id));
        self.kind.append_option(kind.map(kind_name));
        self.lamport_timestamp.append_option(signed);
        append_entries(
            &mut self.causal_history,
            message.map(|message| &*message.causal_history),
        );
        append_entries(
            &mut self.repair_request,
            message.map(|message| &*message.repair_request),
        );
        self.bloom_filter
            .append_option(message.and_then(|message| message.bloom_filter.as_ref()));
        self.content
            .append_option(message.and_then(|message| message.content.as_ref()));
        self.send_id.append_option(send.map(|(send_id, _)| send_id));
        self.segment_ordinal
            .append_option(send.map(|(_, ordinal)| ordinal));
        self.error.append_option(error);
    }

    fn finish(mut self) -> StructArray {
        struct_array(
            &self.valid,
            vec![
                ("sender_id", Arc::new(self.sender_id.finish())),
                ("message_id", Arc::new(self.message_id.finish())),
                ("channel_id", Arc::new(self.channel_id.finish())),
                ("kind", Arc::new(self.kind.finish())),
                (
                    "lamport_timestamp",
                    Arc::new(self.lamport_timestamp.finish()),
                ),
                ("causal_history", Arc::new(self.causal_history.finish())),
                ("repair_request", Arc::new(self.repair_request.finish())),
                ("bloom_filter", Arc::new(self.bloom_filter.finish())),
                ("content", Arc::new(self.content.finish())),
                ("send_id", Arc::new(self.send_id.finish())),
                ("segment_ordinal", Arc::new(self.segment_ordinal.finish())),
                ("error", Arc::new(self.error.finish())),
            ],
        )
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Content => "content",
        Kind::Sync => "sync",
        Kind::Ephemeral => "ephemeral",
    }
}

fn entry_builder() -> StructBuilder {
    let fields = Fields::from(vec![
        Field::new("message_id", DataType::Utf8, true),
        Field::new("retrieval_hint", DataType::Binary, true),
        Field::new("sender_id", DataType::Utf8, true),
    ]);
    let builders: Vec<Box<dyn ArrayBuilder>> = vec![
        Box::new(StringBuilder::new()),
        Box::new(BinaryBuilder::new()),
        Box::new(StringBuilder::new()),
    ];
    StructBuilder::new(fields, builders)
}

fn append_entries(list: &mut ListBuilder<StructBuilder>, entries: Option<&[HistoryEntry]>) {
    let out = list.values();
    for entry in entries.unwrap_or_default() {
        let has_fields = "entry_builder gives these three builders";
        out.field_builder::<StringBuilder>(0)
            .expect(has_fields)
            .append_value(&entry.message_id);
        out.field_builder::<BinaryBuilder>(1)
            .expect(has_fields)
            .append_option(entry.retrieval_hint.as_ref());
        out.field_builder::<StringBuilder>(2)
            .expect(has_fields)
            .append_option(entry.sender_id.as_ref());
        out.append(true);
    }
    list.append(entries.is_some());
}

//! The SDS wire of nim-sds: every scalar is written, also when it is zero or empty.

use super::protobuf::{Fields, bytes_field_length, put_bytes_field, put_length, put_varint_field};
use super::sds_parts::{EntryView, MessageView, Parts, SdsDecodeError, SdsEncodeError};

const MESSAGE_ID: u32 = 1;
const LAMPORT_TIMESTAMP: u32 = 2;
const CAUSAL_HISTORY: u32 = 3;
const CHANNEL_ID: u32 = 4;
const CONTENT: u32 = 5;
const BLOOM_FILTER: u32 = 6;
const SENDER_ID: u32 = 7;
const REPAIR_REQUEST: u32 = 13;

const ENTRY_MESSAGE_ID: u32 = 1;
const ENTRY_RETRIEVAL_HINT: u32 = 2;
const ENTRY_SENDER_ID: u32 = 3;

/// Fields up to the bytes of the content.
pub(super) fn put_before_content(
    message: &Parts<'_>,
    out: &mut Vec<u8>,
) -> Result<(), SdsEncodeError> {
    let lamport = message
        .lamport_timestamp
        .ok_or(SdsEncodeError::NimEphemeral)?;
    put_bytes_field(out, MESSAGE_ID, message.message_id.as_bytes());
    put_varint_field(out, LAMPORT_TIMESTAMP, lamport);
    out.extend_from_slice(message.history_fields);
    put_bytes_field(out, CHANNEL_ID, message.channel_id.as_bytes());
    put_length(out, CONTENT, message.content.unwrap_or_default().len());
    Ok(())
}

/// Fields behind the content.
pub(super) fn put_behind_content(message: &Parts<'_>, out: &mut Vec<u8>) {
    let bloom_filter = message.bloom_filter.unwrap_or_default();
    put_bytes_field(out, BLOOM_FILTER, bloom_filter);
    if !message.sender_id.is_empty() {
        put_bytes_field(out, SENDER_ID, message.sender_id.as_bytes());
    }
    for entry in message.repair_request {
        put_entry(out, REPAIR_REQUEST, entry.view());
    }
}

/// What all but the content's bytes take, mostly no more.
pub(super) fn length_without_content(message: &Parts<'_>) -> usize {
    message.bloom_filter.unwrap_or_default().len() + message.history_fields.len() + 256
}

/// Appends one entry of a causal history.
pub(super) fn put_history_entry(out: &mut Vec<u8>, entry: EntryView<'_>) {
    put_entry(out, CAUSAL_HISTORY, entry);
}

/// Empty bytes stand for an absent field: this wire cannot tell them apart.
pub(super) fn decode(bytes: &[u8]) -> Result<MessageView<'_>, SdsDecodeError> {
    let mut message = MessageView::default();
    let mut history: Vec<&[u8]> = Vec::new();
    let (mut message_id, mut channel_id, mut content) = (None, None, None);
    let mut fields = Fields::new(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            MESSAGE_ID => message_id = Some(value.bytes(field)?),
            LAMPORT_TIMESTAMP => message.lamport_timestamp = Some(value.varint(field)?),
            CAUSAL_HISTORY => history.push(value.bytes(field)?),
            CHANNEL_ID => channel_id = Some(value.bytes(field)?),
            CONTENT => content = Some(value.bytes(field)?),
            BLOOM_FILTER => message.bloom_filter = non_empty(value.bytes(field)?),
            SENDER_ID => message.sender_id = value.bytes(field)?,
            REPAIR_REQUEST => message
                .repair_request
                .push(decode_entry(value.bytes(field)?)?),
            _ => {}
        }
    }
    let required = |value: Option<_>, field| value.ok_or(SdsDecodeError::MissingField { field });
    message.message_id = required(message_id, MESSAGE_ID)?;
    message.channel_id = required(channel_id, CHANNEL_ID)?;
    message.content = non_empty(required(content, CONTENT)?);
    if message.lamport_timestamp.is_none() {
        return Err(SdsDecodeError::MissingField {
            field: LAMPORT_TIMESTAMP,
        });
    }
    message.causal_history = decode_history(&history);
    Ok(message)
}

/// Earlier versions of nim-sds wrote plain ids: when one entry fails, all are read so.
fn decode_history<'a>(items: &[&'a [u8]]) -> Vec<EntryView<'a>> {
    let entries: Result<Vec<_>, _> = items.iter().map(|bytes| decode_entry(bytes)).collect();
    entries.unwrap_or_else(|_| {
        items
            .iter()
            .map(|bytes| EntryView {
                message_id: bytes,
                ..EntryView::default()
            })
            .collect()
    })
}

fn decode_entry(bytes: &[u8]) -> Result<EntryView<'_>, SdsDecodeError> {
    let mut message_id = None;
    let mut entry = EntryView::default();
    let mut fields = Fields::new(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            ENTRY_MESSAGE_ID => message_id = Some(value.bytes(field)?),
            ENTRY_RETRIEVAL_HINT => entry.retrieval_hint = non_empty(value.bytes(field)?),
            ENTRY_SENDER_ID => entry.sender_id = non_empty(value.bytes(field)?),
            _ => {}
        }
    }
    entry.message_id = message_id.ok_or(SdsDecodeError::MissingField {
        field: ENTRY_MESSAGE_ID,
    })?;
    Ok(entry)
}

fn non_empty(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

fn put_entry(out: &mut Vec<u8>, field: u32, entry: EntryView<'_>) {
    let hint = entry.retrieval_hint.and_then(non_empty);
    let sender_id = entry.sender_id.and_then(non_empty);
    let mut length = bytes_field_length(ENTRY_MESSAGE_ID, entry.message_id.len());
    length += hint.map_or(0, |hint| {
        bytes_field_length(ENTRY_RETRIEVAL_HINT, hint.len())
    });
    length += sender_id.map_or(0, |id| bytes_field_length(ENTRY_SENDER_ID, id.len()));
    put_length(out, field, length);
    put_bytes_field(out, ENTRY_MESSAGE_ID, entry.message_id);
    if let Some(hint) = hint {
        put_bytes_field(out, ENTRY_RETRIEVAL_HINT, hint);
    }
    if let Some(sender_id) = sender_id {
        put_bytes_field(out, ENTRY_SENDER_ID, sender_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::sds::nim as proto;
    use crate::wire::sds::{HistoryEntry, Message, WireFormat};

    fn encode(message: &Message) -> Result<Vec<u8>, SdsEncodeError> {
        message.encode(WireFormat::Nim)
    }
    use prost::Message as _;

    fn decode(bytes: &[u8]) -> Result<Message, SdsDecodeError> {
        super::decode(bytes).map(Message::from)
    }

    fn entry(id: &str, hint: Option<Vec<u8>>, sender: Option<&str>) -> HistoryEntry {
        HistoryEntry {
            message_id: id.into(),
            retrieval_hint: hint,
            sender_id: sender.map(str::to_owned),
        }
    }

    #[test]
    fn writes_every_scalar_as_prost_does() {
        let message = Message {
            message_id: "m".into(),
            lamport_timestamp: Some(0),
            causal_history: vec![
                entry("a", Some(vec![1, 2]), Some("s")),
                entry("b", None, None),
            ],
            repair_request: vec![entry("c", None, Some("t"))],
            ..Message::default()
        };
        let encode_entry = |entry: &HistoryEntry| {
            proto::HistoryEntry {
                message_id: Some(entry.message_id.clone().into_bytes()),
                retrieval_hint: entry.retrieval_hint.clone(),
                sender_id: entry.sender_id.clone().map(String::into_bytes),
            }
            .encode_to_vec()
        };
        let expected = proto::SdsMessage {
            message_id: Some(b"m".to_vec()),
            lamport_timestamp: Some(0),
            causal_history: message.causal_history.iter().map(encode_entry).collect(),
            channel_id: Some(vec![]),
            content: Some(vec![]),
            bloom_filter: Some(vec![]),
            sender_id: None,
            repair_request: message.repair_request.iter().map(encode_entry).collect(),
        };
        let encoded = encode(&message).unwrap();
        assert_eq!(encoded, expected.encode_to_vec());
        assert_eq!(decode(&encoded), Ok(message));
    }

    #[test]
    fn reads_plain_ids_where_entries_do_not_parse() {
        let mut out = Vec::new();
        put_bytes_field(&mut out, MESSAGE_ID, b"m");
        put_varint_field(&mut out, LAMPORT_TIMESTAMP, 7);
        put_bytes_field(&mut out, CAUSAL_HISTORY, b"ca22");
        put_bytes_field(&mut out, CHANNEL_ID, b"c");
        put_bytes_field(&mut out, CONTENT, b"x");
        let message = decode(&out).unwrap();
        assert_eq!(message.causal_history, vec![entry("ca22", None, None)]);
    }

    #[test]
    fn empty_parts_of_an_entry_are_absent() {
        let plain = entry("a", None, None);
        let with_empty = entry("a", Some(Vec::new()), Some(""));
        let of = |entry| Message {
            lamport_timestamp: Some(1),
            causal_history: vec![entry],
            ..Message::default()
        };
        assert_eq!(encode(&of(with_empty)), encode(&of(plain.clone())));
        let mut written = Vec::new();
        put_bytes_field(&mut written, ENTRY_MESSAGE_ID, b"a");
        put_bytes_field(&mut written, ENTRY_RETRIEVAL_HINT, b"");
        put_bytes_field(&mut written, ENTRY_SENDER_ID, b"");
        assert_eq!(decode_entry(&written).map(HistoryEntry::from), Ok(plain));
    }

    #[test]
    fn refuses_what_lacks_a_required_field() {
        for lacking in [MESSAGE_ID, LAMPORT_TIMESTAMP, CHANNEL_ID, CONTENT] {
            let mut out = Vec::new();
            for field in [MESSAGE_ID, LAMPORT_TIMESTAMP, CHANNEL_ID, CONTENT] {
                match field {
                    field if field == lacking => {}
                    LAMPORT_TIMESTAMP => put_varint_field(&mut out, field, 7),
                    field => put_bytes_field(&mut out, field, b""),
                }
            }
            let error = decode(&out).unwrap_err();
            assert_eq!(error, SdsDecodeError::MissingField { field: lacking });
        }
        assert_eq!(
            encode(&Message::default()),
            Err(SdsEncodeError::NimEphemeral)
        );
    }
}

//! The SDS wire of the specification (sds.md, Message and HistoryEntry) and of @waku/sds.

use super::protobuf::{
    Fields, ProtobufError, bytes_field_length, put_bytes_field, put_length, put_varint_field,
    varint_length,
};
use super::sds_parts::{EntryView, MessageView, Parts, SdsDecodeError};

const SENDER_ID: u32 = 1;
const MESSAGE_ID: u32 = 2;
const CHANNEL_ID: u32 = 3;
const LAMPORT_TIMESTAMP: u32 = 10;
const CAUSAL_HISTORY: u32 = 11;
const BLOOM_FILTER: u32 = 12;
const REPAIR_REQUEST: u32 = 13;
const CONTENT: u32 = 20;

const ENTRY_MESSAGE_ID: u32 = 1;
const ENTRY_RETRIEVAL_HINT: u32 = 2;
const ENTRY_SENDER_ID: u32 = 3;

/// Fields in ascending order up to the bytes of the content, which is the last; plain strings are left
/// out when empty, `optional` ones written whenever they are set.
pub(super) fn put_before_content(message: &Parts<'_>, out: &mut Vec<u8>) {
    for (field, text) in [
        (SENDER_ID, message.sender_id),
        (MESSAGE_ID, message.message_id),
        (CHANNEL_ID, message.channel_id),
    ] {
        if !text.is_empty() {
            put_bytes_field(out, field, text.as_bytes());
        }
    }
    if let Some(lamport) = message.lamport_timestamp {
        put_varint_field(out, LAMPORT_TIMESTAMP, lamport);
    }
    out.extend_from_slice(message.history_fields);
    if let Some(bloom_filter) = message.bloom_filter {
        put_bytes_field(out, BLOOM_FILTER, bloom_filter);
    }
    for entry in message.repair_request {
        put_entry(out, REPAIR_REQUEST, entry.view());
    }
    if let Some(content) = message.content {
        put_length(out, CONTENT, content.len());
    }
}

/// Appends one entry of a causal history.
pub(super) fn put_history_entry(out: &mut Vec<u8>, entry: EntryView<'_>) {
    put_entry(out, CAUSAL_HISTORY, entry);
}

pub(super) fn decode(bytes: &[u8]) -> Result<MessageView<'_>, SdsDecodeError> {
    let mut message = MessageView::default();
    let mut fields = Fields::new(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            SENDER_ID => message.sender_id = value.bytes(field)?,
            MESSAGE_ID => message.message_id = value.bytes(field)?,
            CHANNEL_ID => message.channel_id = value.bytes(field)?,
            LAMPORT_TIMESTAMP => message.lamport_timestamp = Some(value.varint(field)?),
            CAUSAL_HISTORY => message
                .causal_history
                .push(decode_entry(value.bytes(field)?)?),
            BLOOM_FILTER => message.bloom_filter = Some(value.bytes(field)?),
            REPAIR_REQUEST => message
                .repair_request
                .push(decode_entry(value.bytes(field)?)?),
            CONTENT => message.content = Some(value.bytes(field)?),
            _ => {}
        }
    }
    Ok(message)
}

#[inline]
fn decode_entry(bytes: &[u8]) -> Result<EntryView<'_>, ProtobufError> {
    let mut entry = EntryView::default();
    let mut fields = Fields::new(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            ENTRY_MESSAGE_ID => entry.message_id = value.bytes(field)?,
            ENTRY_RETRIEVAL_HINT => entry.retrieval_hint = Some(value.bytes(field)?),
            ENTRY_SENDER_ID => entry.sender_id = Some(value.bytes(field)?),
            _ => {}
        }
    }
    Ok(entry)
}

fn put_entry(out: &mut Vec<u8>, field: u32, entry: EntryView<'_>) {
    put_length(out, field, entry_length(entry));
    if !entry.message_id.is_empty() {
        put_bytes_field(out, ENTRY_MESSAGE_ID, entry.message_id);
    }
    if let Some(hint) = entry.retrieval_hint {
        put_bytes_field(out, ENTRY_RETRIEVAL_HINT, hint);
    }
    if let Some(sender_id) = entry.sender_id {
        put_bytes_field(out, ENTRY_SENDER_ID, sender_id);
    }
}

fn entry_length(entry: EntryView<'_>) -> usize {
    let mut length = 0;
    if !entry.message_id.is_empty() {
        length += bytes_field_length(ENTRY_MESSAGE_ID, entry.message_id.len());
    }
    if let Some(hint) = entry.retrieval_hint {
        length += bytes_field_length(ENTRY_RETRIEVAL_HINT, hint.len());
    }
    if let Some(sender_id) = entry.sender_id {
        length += bytes_field_length(ENTRY_SENDER_ID, sender_id.len());
    }
    length
}

/// What all but the content's bytes take, or a little more.
pub(super) fn length_without_content(message: &Parts<'_>) -> usize {
    let texts = [message.sender_id, message.message_id, message.channel_id];
    let mut length: usize = texts
        .iter()
        .map(|text| bytes_field_length(SENDER_ID, text.len()))
        .sum();
    if let Some(lamport) = message.lamport_timestamp {
        length += 1 + varint_length(lamport);
    }
    length += message.history_fields.len();
    for entry in message.repair_request {
        length += bytes_field_length(REPAIR_REQUEST, entry_length(entry.view()));
    }
    if let Some(bloom_filter) = message.bloom_filter {
        length += bytes_field_length(BLOOM_FILTER, bloom_filter.len());
    }
    if let Some(content) = message.content {
        length += bytes_field_length(CONTENT, content.len()) - content.len();
    }
    length
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::wire::proto::sds as proto;
    use crate::wire::sds::{HistoryEntry, Message, WireFormat};

    fn encode(message: &Message) -> Vec<u8> {
        message
            .encode(WireFormat::Spec)
            .expect("this wire has every kind")
    }

    fn decode(bytes: &[u8]) -> Result<Message, SdsDecodeError> {
        super::decode(bytes).map(Message::from)
    }

    fn entries() -> impl Strategy<Value = Vec<HistoryEntry>> {
        vec(
            (
                ".{0,6}",
                option::of(vec(any::<u8>(), 0..40)),
                option::of(".{0,6}"),
            ),
            0..4,
        )
        .prop_map(|rows| {
            rows.into_iter()
                .map(|(message_id, retrieval_hint, sender_id)| HistoryEntry {
                    message_id,
                    retrieval_hint,
                    sender_id,
                })
                .collect()
        })
    }

    prop_compose! {
        fn messages()(
            sender_id in ".{0,8}", message_id in ".{0,8}", channel_id in ".{0,8}",
            lamport_timestamp in option::of(any::<u64>()), causal_history in entries(),
            bloom_filter in option::of(vec(any::<u8>(), 0..300)), repair_request in entries(),
            content in option::of(vec(any::<u8>(), 0..300)),
        ) -> Message {
            Message {
                sender_id, message_id, channel_id, lamport_timestamp, causal_history,
                bloom_filter, repair_request, content,
            }
        }
    }

    fn by_prost(message: &Message) -> proto::Message {
        let entries = |entries: &[HistoryEntry]| {
            entries
                .iter()
                .map(|entry| proto::HistoryEntry {
                    message_id: entry.message_id.clone(),
                    retrieval_hint: entry.retrieval_hint.clone(),
                    sender_id: entry.sender_id.clone(),
                })
                .collect()
        };
        proto::Message {
            sender_id: message.sender_id.clone(),
            message_id: message.message_id.clone(),
            channel_id: message.channel_id.clone(),
            lamport_timestamp: message.lamport_timestamp,
            causal_history: entries(&message.causal_history),
            bloom_filter: message.bloom_filter.clone(),
            repair_request: entries(&message.repair_request),
            content: message.content.clone(),
        }
    }

    proptest! {
        #[test]
        fn encodes_as_prost_does(message in messages()) {
            let encoded = encode(&message);
            prop_assert_eq!(&encoded, &by_prost(&message).encode_to_vec());
            prop_assert!(encoded.capacity() <= encoded.len() + 8);
            prop_assert_eq!(decode(&encoded), Ok(message));
        }

        #[test]
        fn decodes_what_prost_decodes(
            mut bytes in messages().prop_map(|message| encode(&message)),
            flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            for (index, value) in flips {
                if !bytes.is_empty() {
                    let at = index.index(bytes.len());
                    bytes[at] = value;
                }
            }
            // prost refuses invalid UTF-8, which is decoded here; nothing else differs.
            if let Ok(expected) = proto::Message::decode(bytes.as_slice()) {
                let message = decode(&bytes).unwrap();
                prop_assert_eq!(by_prost(&message), expected);
            } else if let Ok(message) = decode(&bytes) {
                let mut texts = vec![&message.sender_id, &message.message_id, &message.channel_id];
                for entry in message.causal_history.iter().chain(&message.repair_request) {
                    texts.push(&entry.message_id);
                    texts.extend(&entry.sender_id);
                }
                // A later occurrence of the field may have replaced the text prost refused.
                let replaced = bytes.len() > encode(&message).len();
                let replacement = |text: &&String| text.contains(char::REPLACEMENT_CHARACTER);
                prop_assert!(replaced || texts.iter().any(replacement));
            }
        }
    }
}

//! Stored records with every byte back in its place: what is stored by reference is read through.

use std::collections::{BTreeMap, HashMap};

use hashlink::LinkedHashMap;

use super::records::{
    COMPLETED, DELIVERY, FRAME, HANDOVER, LAST_SEEN, PARTS, PAYLOAD, SEGMENT, SEND,
};
use super::references::{Part, PartsRecord, SegmentRecord};
use super::restore_error::{RestoreError, without_bytes};
use super::shared_bytes::SharedBytes;
use crate::keccak::keccak256;
use crate::sds::{CONTENT, MESSAGE, Name, Octets};
use crate::wire::sds::{MessageView, WireFormat as SdsWireFormat};
use crate::wire::segment::{self, HASH_LENGTH, Received, Slot, TOTAL_SEGMENTS_MAX, WireFormat};

/// A record as a persistence gives it: kind, key and value.
pub type StoredRecord<'a> = (&'a str, &'a [u8], Octets);

/// A segment of a partial message, to be received again.
pub(super) struct StoredSegment {
    /// Of its record.
    pub key: Box<[u8]>,
    pub record: SegmentRecord,
    pub content: Vec<u8>,
    /// The SDS message that brought it, where that is stored.
    pub wire: Option<Octets>,
}

/// What was stored, by who takes it back.
pub(super) struct Stored {
    pub sds: Vec<(String, Name, Octets)>,
    /// In the order of their arrival.
    pub segments: Vec<StoredSegment>,
    pub payloads: BTreeMap<Box<[u8]>, Vec<u8>>,
    pub completions: Vec<(Box<[u8]>, Vec<u8>)>,
    /// Sends of ours, by id.
    pub own: BTreeMap<Name, Octets>,
    /// Messages that wait to be handed over, in their order, and the one that the application had.
    pub deliveries: BTreeMap<Box<[u8]>, Octets>,
    pub handover: Option<Octets>,
    /// Up to when nothing was missed.
    pub last_seen: Option<Octets>,
}

impl Stored {
    /// Reads records; `shared` takes back which of them names which.
    pub fn read<'a>(
        records: impl IntoIterator<Item = StoredRecord<'a>>,
        shared: &mut SharedBytes,
    ) -> Result<Self, RestoreError> {
        let mut stored = Stored {
            sds: Vec::new(),
            segments: Vec::new(),
            payloads: BTreeMap::new(),
            completions: Vec::new(),
            own: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            handover: None,
            last_seen: None,
        };
        let mut messages: HashMap<Name, Octets> = HashMap::new();
        let mut contents: LinkedHashMap<Name, Octets> = LinkedHashMap::new();
        let (mut frames, mut segments, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, key, value) in records {
            match kind {
                MESSAGE => {
                    let message_id = Name::from_wire(key);
                    shared.restore_message(&message_id);
                    messages.insert(message_id.clone(), value.clone());
                    stored.sds.push((kind.to_owned(), message_id, value));
                }
                CONTENT => {
                    contents.insert(Name::from_wire(key), value);
                }
                FRAME => frames.push((key, value)),
                SEGMENT => segments.push((key, value)),
                PARTS => parts.push((key, value)),
                PAYLOAD => {
                    shared.restore_payload(key);
                    stored.payloads.insert(key.into(), value.to_vec());
                }
                SEND => {
                    stored.own.insert(Name::from_wire(key), value);
                }
                DELIVERY => {
                    stored.deliveries.insert(key.into(), value);
                }
                HANDOVER => stored.handover = Some(value),
                LAST_SEEN => stored.last_seen = Some(value),
                COMPLETED => stored.completions.push((key.into(), value.to_vec())),
                kind if kind.starts_with("sds.") => {
                    let record = (kind.to_owned(), Name::from_wire(key), value);
                    stored.sds.push(record);
                }
                // Of other parts of a channel.
                _ => {}
            }
        }
        frames.sort_unstable_by_key(|(key, _)| *key);
        for (key, frame) in frames {
            let message_id = Name::from_wire(key);
            let content = contents.remove(&message_id);
            let content = content.ok_or_else(|| without_bytes("a sent message", key))?;
            let wire = framed(&frame, &content).ok_or(RestoreError::Damaged("frame"))?;
            shared.restore_frame(&message_id);
            // What names the id has the message beside it; this one is that of SDS.
            stored.sds.push((MESSAGE.to_owned(), message_id, wire));
        }
        for (message_id, content) in contents {
            shared.restore_content(&message_id, &content);
            stored.sds.push((CONTENT.to_owned(), message_id, content));
        }
        segments.sort_unstable_by_key(|(key, _)| *key);
        for (key, value) in segments {
            let segment = read_segment(key, &value, &messages, shared)?;
            stored.segments.push(segment);
        }
        stored.segments.sort_by_key(|segment| segment.record.serial);
        for (key, value) in parts {
            let (record, own) = PartsRecord::decode(&value)?;
            shared.restore_parts(key, &record);
            let payload = joined(key, &record, own, &messages)?;
            stored.payloads.insert(key.into(), payload);
        }
        Ok(stored)
    }
}

/// The message that a frame makes of a content.
pub(super) fn framed(frame: &[u8], content: &[u8]) -> Option<Octets> {
    let (at, around) = frame.split_first_chunk()?;
    let (before, after) = around.split_at_checked(u32::from_be_bytes(*at) as usize)?;
    Some(Octets::from([before, content, after].concat()))
}

fn read_segment(
    key: &[u8],
    value: &[u8],
    messages: &HashMap<Name, Octets>,
    shared: &mut SharedBytes,
) -> Result<StoredSegment, RestoreError> {
    let (record, own) = SegmentRecord::decode(value)?;
    let content = match &record.message_id {
        None => own.to_vec(),
        Some(message_id) => content_of(message_id, record.wire_formats.sds, messages)?.to_vec(),
    };
    let (payload_hash, index) = match inspect(&content, record.wire_formats.segment)? {
        Received::WholeMessage(_) => ([0; HASH_LENGTH], None),
        Received::Segment(segment) => {
            let index = match segment.header.slot {
                Slot::Data(index) => Some(index),
                Slot::Parity(_) => None,
            };
            (segment.header.entire_message_hash, index)
        }
    };
    shared.restore_segment(key, &record, payload_hash, index);
    let message_id = record.message_id.as_ref();
    let wire = message_id
        .and_then(|message_id| messages.get(message_id))
        .cloned();
    Ok(StoredSegment {
        key: key.into(),
        record,
        content,
        wire,
    })
}

fn joined(
    key: &[u8],
    record: &PartsRecord,
    mut own: &[u8],
    messages: &HashMap<Name, Octets>,
) -> Result<Vec<u8>, RestoreError> {
    let mut payload = Vec::new();
    for part in &record.parts {
        let message_id = match part {
            Part::Own(length) => {
                let cut = own.split_at_checked(*length);
                let (piece, rest) = cut.ok_or(RestoreError::Damaged("PartsRecord"))?;
                payload.extend_from_slice(piece);
                own = rest;
                continue;
            }
            Part::In(message_id) => message_id,
        };
        let content = content_of(message_id, record.wire_formats.sds, messages)?;
        match inspect(content, record.wire_formats.segment)? {
            Received::WholeMessage(content) => payload.extend_from_slice(content),
            Received::Segment(segment) => payload.extend_from_slice(segment.payload),
        }
    }
    payload.truncate(record.length);
    if keccak256(&payload) != record.payload_hash {
        return Err(without_bytes("a received message", key));
    }
    Ok(payload)
}

fn content_of<'a>(
    message_id: &Name,
    wire_format: SdsWireFormat,
    messages: &'a HashMap<Name, Octets>,
) -> Result<&'a [u8], RestoreError> {
    let wire = messages.get(message_id);
    let message = wire.and_then(|wire| MessageView::decode(wire, wire_format).ok());
    message
        .and_then(|message| message.content)
        .ok_or_else(|| without_bytes("a received segment", message_id.as_bytes()))
}

fn inspect(content: &[u8], wire_format: WireFormat) -> Result<Received<'_>, RestoreError> {
    segment::decode(content, wire_format, TOTAL_SEGMENTS_MAX)
        .map_err(|error| RestoreError::Segment(error.to_string()))
}

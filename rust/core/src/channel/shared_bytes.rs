//! Every byte once: what SDS, reassembly and delivery each keep of the same message, as it is stored.
//!
//! SDS keeps the contents it sends and the messages it received, to repair others with; reassembly
//! keeps segments until their message is whole; delivery keeps the message until the application has
//! it. All of these hold the same bytes. Here one record has them and the others name it:
//!
//! - A received message is its `sds.message` record. Segments of a partial message ([`SEGMENT`]) and the
//!   parts of a whole one ([`PARTS`]) name it, and it stays for as long as one of them does.
//! - A message of ours whose content was stored while it waited to leave is what the wire puts around
//!   that content ([`FRAME`]), beside the `sds.content` record.

use std::collections::{HashMap, HashSet};

use hashlink::{LinkedHashMap, LinkedHashSet};
use memchr::memmem;

use super::hex;
use super::records::{
    FRAME, PARTS, PAYLOAD, PartsRecord, Records, SCHEMA_VERSION, SEGMENT, SegmentRecord, Value,
    encode, payload_key,
};
use crate::reassemble::Payload;
use crate::sds::{self, CONTENT, MESSAGE, Name, Octets};
use crate::wire::sds::WireFormat as SdsWireFormat;
use crate::wire::segment::{HASH_LENGTH, WireFormat};

/// Below this a name costs about as much as the bytes.
const SHARED_BYTES_MIN: usize = 512;
/// The start of a content, by which it is found in the message around it: no two contents of a channel
/// share theirs, which holds a hash and an index.
const HEAD_BYTES: usize = 64;

type Hash = [u8; HASH_LENGTH];

/// A received segment, and how it came.
pub(super) struct Kept<'a> {
    /// The SDS message that brought it, by its id.
    pub message_id: &'a Name,
    pub sender_id: &'a str,
    /// The send that it belongs to.
    pub send_id: &'a str,
    pub content: &'a [u8],
    /// The SDS message.
    pub wire: &'a Octets,
    pub payload_hash: Hash,
    /// Of a data segment; `None` for parity.
    pub index: Option<u8>,
    /// Whether its sender is proven.
    pub authenticated: bool,
}

/// How a message came to be whole.
pub(super) struct Completed<'a> {
    /// Data segments of it.
    pub data_count: usize,
    /// Those that parity brought back.
    pub recovered: &'a [usize],
    /// The segment that completed it: the SDS message that brought it, by its id.
    pub message_id: &'a Name,
    /// Of a data segment; `None` for parity.
    pub index: Option<u8>,
    /// The SDS message.
    pub wire: &'a Octets,
}

/// A stored segment of a partial message.
#[derive(Debug)]
struct Segment {
    key: Box<[u8]>,
    payload_hash: Hash,
    /// `None` where its bytes stand in its own record.
    message_id: Option<Name>,
    index: Option<u8>,
}

/// A content of ours: how it begins and how long it is.
type Outline = (Box<[u8]>, usize);

/// What is stored by reference, and how often each stored message is named.
#[derive(Debug)]
pub(super) struct SharedBytes {
    sds_wire_format: SdsWireFormat,
    segment_wire_format: WireFormat,
    /// Ids of whole messages that are stored.
    stored: HashSet<Name>,
    uses: HashMap<Name, u32>,
    /// No longer named: gone with the next commit unless SDS keeps them.
    released: LinkedHashSet<Name>,
    /// Named, and not stored yet.
    wires: LinkedHashMap<Name, Octets>,
    contents: HashMap<Name, Outline>,
    framed: HashSet<Name>,
    segments: HashMap<Box<[u8]>, Vec<Segment>>,
    parts: HashMap<Box<[u8]>, Vec<Name>>,
    written: HashSet<(&'static str, Box<[u8]>)>,
    changes: LinkedHashMap<(&'static str, Box<[u8]>), Option<Value>>,
    serial: u64,
    /// Contents that SDS deletes in the commit that is being made.
    deleted_contents: Vec<Name>,
}

impl SharedBytes {
    pub fn new(sds_wire_format: SdsWireFormat, segment_wire_format: WireFormat) -> Self {
        SharedBytes {
            sds_wire_format,
            segment_wire_format,
            stored: HashSet::new(),
            uses: HashMap::new(),
            released: LinkedHashSet::new(),
            wires: LinkedHashMap::new(),
            contents: HashMap::new(),
            framed: HashSet::new(),
            segments: HashMap::new(),
            parts: HashMap::new(),
            written: HashSet::new(),
            changes: LinkedHashMap::new(),
            serial: 0,
            deleted_contents: Vec::new(),
        }
    }

    // --- what is kept ---------------------------------------------------------------------------

    /// Keeps a segment of a partial message for as long as that is partial.
    pub fn keep_segment(&mut self, kept: &Kept<'_>) {
        self.serial = self.serial.saturating_add(1);
        let key_of_message = payload_key(kept.sender_id, kept.send_id);
        let key: Box<[u8]> = [&key_of_message[..], &self.serial.to_be_bytes()]
            .concat()
            .into();
        // A rival of the same id: one of the two is forged, and both are needed to find out which.
        let is_taken = self.is_kept(kept.message_id);
        let record = SegmentRecord {
            version: SCHEMA_VERSION,
            sender_id: kept.sender_id.to_owned(),
            send_id: kept.send_id.to_owned(),
            authenticated: kept.authenticated,
            sds_wire_format: self.sds_wire_format.name().to_owned(),
            segment_wire_format: self.segment_wire_format.name().to_owned(),
            message_id: if is_taken {
                String::new()
            } else {
                kept.message_id.to_string()
            },
            serial: self.serial,
        };
        let mut value = encode(&record);
        let message_id = if is_taken {
            value.push(0);
            value.extend_from_slice(kept.content);
            None
        } else {
            self.name(kept.message_id, Some(kept.wire));
            Some(kept.message_id.clone())
        };
        self.put(SEGMENT, key.clone(), Some(value.into()));
        let segment = Segment {
            key,
            payload_hash: kept.payload_hash,
            message_id,
            index: kept.index,
        };
        let segments = self.segments.entry(key_of_message).or_default();
        segments.push(segment);
    }

    /// Whether segments of any partial message are kept.
    pub fn has_segments(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Whether segments of a partial message are kept under `key`.
    pub fn keeps_segments(&self, key: &[u8]) -> bool {
        self.segments.contains_key(key)
    }

    /// Whether a whole message is kept under `key`.
    pub fn keeps_payload(&self, key: &[u8]) -> bool {
        if self.parts.contains_key(key) {
            return true;
        }
        let name = (PAYLOAD, Box::from(key));
        self.written.contains(&name) || self.changes.get(&name).is_some_and(Option::is_some)
    }

    /// A partial message was given up, or is whole; gives the ids of the messages that held its segments.
    pub fn drop_segments(&mut self, key: &[u8], payload_hash: &Hash) -> Vec<Name> {
        let mut dropped = Vec::new();
        let Some(segments) = self.segments.remove(key) else {
            return dropped;
        };
        let mut others = Vec::new();
        for segment in segments {
            if segment.payload_hash != *payload_hash {
                // Of another message that claims the same send.
                others.push(segment);
                continue;
            }
            self.put(SEGMENT, segment.key, None);
            if let Some(message_id) = segment.message_id {
                self.release(&message_id);
                dropped.push(message_id);
            }
        }
        if !others.is_empty() {
            self.segments.insert(key.into(), others);
        }
        dropped
    }

    /// A stored segment is refused: it is as if it had not come.
    pub fn forget_segment(&mut self, key: &[u8], serial: u64) {
        let own_key: Box<[u8]> = [key, &serial.to_be_bytes()].concat().into();
        let Some(segments) = self.segments.get_mut(key) else {
            return;
        };
        let Some(place) = segments.iter().position(|segment| segment.key == own_key) else {
            return;
        };
        let segment = segments.remove(place);
        if segments.is_empty() {
            self.segments.remove(key);
        }
        self.put(SEGMENT, segment.key, None);
        if let Some(message_id) = segment.message_id {
            self.release(&message_id);
        }
    }

    /// Keeps a whole message until its delivery ends; what was kept of its segments goes.
    ///
    /// It names the messages that brought its data segments, and has the others itself.
    pub fn keep_payload(
        &mut self,
        key: Box<[u8]>,
        payload: &Payload,
        payload_hash: Hash,
        completed: Option<&Completed<'_>>,
    ) {
        let is_large = payload.len() >= SHARED_BYTES_MIN;
        let completed = completed.filter(|_| is_large);
        let parts = completed.and_then(|completed| {
            let parts = self.find_parts(&key, &payload_hash, completed);
            let is_named = parts.iter().any(Option::is_some);
            (is_named && payload.pieces().count() == parts.len()).then_some((completed, parts))
        });
        match parts {
            None => self.put(PAYLOAD, key.clone(), Some(Value::Payload(payload.clone()))),
            Some((completed, parts)) => {
                let mut own = Vec::new();
                let mut own_lengths = Vec::new();
                for (part, piece) in parts.iter().zip(payload.pieces()) {
                    match part {
                        Some(message_id) => {
                            let is_last = message_id == completed.message_id;
                            self.name(message_id, is_last.then_some(completed.wire));
                        }
                        None => {
                            own.extend_from_slice(piece);
                            own_lengths.push(piece.len());
                        }
                    }
                }
                let id_of = |part: &Option<Name>| part.as_deref().unwrap_or_default().to_owned();
                let record = PartsRecord {
                    version: SCHEMA_VERSION,
                    message_ids: parts.iter().map(id_of).collect(),
                    length: payload.len(),
                    payload_hash: hex(&payload_hash),
                    sds_wire_format: self.sds_wire_format.name().to_owned(),
                    segment_wire_format: self.segment_wire_format.name().to_owned(),
                    own_lengths,
                };
                let mut value = encode(&record);
                value.push(0);
                value.extend_from_slice(&own);
                self.put(PARTS, key.clone(), Some(value.into()));
                let named = parts.into_iter().flatten().collect();
                self.parts.insert(key.clone(), named);
            }
        }
        self.drop_segments(&key, &payload_hash);
    }

    /// Ids of the messages that hold the data segments, in order; `None` where parity brought one back, or
    /// where two claim its place.
    fn find_parts(
        &self,
        key: &[u8],
        payload_hash: &Hash,
        completed: &Completed<'_>,
    ) -> Vec<Option<Name>> {
        let held = self.segments.get(key).into_iter().flatten();
        let held = held.filter(|segment| segment.payload_hash == *payload_hash);
        let held = held.filter_map(|segment| Some((segment.index?, segment.message_id.as_ref())));
        let is_rival = self.is_kept(completed.message_id);
        let last = (!is_rival).then_some(completed.message_id);
        let last = completed.index.map(|index| (index, last));
        let mut places: Vec<Option<Option<&Name>>> = vec![None; completed.data_count];
        for (index, message_id) in held.chain(last) {
            if let Some(place) = places.get_mut(usize::from(index)) {
                *place = Some(if place.is_none() { message_id } else { None });
            }
        }
        for recovered in completed.recovered {
            if let Some(place) = places.get_mut(*recovered) {
                *place = None;
            }
        }
        places.into_iter().map(|place| place?.cloned()).collect()
    }

    /// Whether the message of an id is stored, or will be.
    fn is_kept(&self, message_id: &Name) -> bool {
        self.stored.contains(message_id) || self.wires.contains_key(message_id)
    }

    fn name(&mut self, message_id: &Name, wire: Option<&Octets>) {
        if let Some(wire) = wire
            && !self.stored.contains(message_id)
        {
            self.wires.insert(message_id.clone(), wire.clone());
        }
        *self.uses.entry(message_id.clone()).or_default() += 1;
    }

    fn release(&mut self, message_id: &Name) {
        let Some(uses) = self.uses.get_mut(message_id) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(message_id);
            self.released.insert(message_id.clone());
        }
    }

    /// A record that comes and goes between two commits is never written.
    fn put(&mut self, kind: &'static str, key: Box<[u8]>, value: Option<Value>) {
        let name = (kind, key);
        if value.is_some() || self.written.contains(&name) {
            self.changes.insert(name, value);
        } else {
            self.changes.remove(&name);
        }
    }

    // --- what is stored -------------------------------------------------------------------------

    /// A record that SDS changes, in its stored form. [`SharedBytes::apply`] ends the commit.
    pub fn take(&mut self, record: sds::Record, records: &mut Records) {
        let sds::Record { kind, key, value } = record;
        match (kind, value) {
            (CONTENT, Some(content)) => {
                self.forget_wire(&key, records);
                let head = &content[..content.len().min(HEAD_BYTES)];
                self.contents
                    .insert(key.clone(), (head.into(), content.len()));
                records.put(CONTENT, key, Some(Value::Sds(content)));
            }
            (CONTENT, None) => {
                records.delete(CONTENT, key.clone());
                self.deleted_contents.push(key);
            }
            (MESSAGE, Some(wire)) => self.on_message_put(key, wire, records),
            (MESSAGE, None) => self.on_message_deleted(key, records),
            (kind, value) => records.put(kind, key, value.map(Value::Sds)),
        }
    }

    /// A content that has yet to leave: a message stored under its id is that of an equal one, which was
    /// cancelled in the same cycle.
    fn forget_wire(&mut self, message_id: &Name, records: &mut Records) {
        if self.framed.remove(message_id) {
            records.delete(FRAME, message_id.clone());
        } else if !self.uses.contains_key(message_id) && self.stored.remove(message_id) {
            records.delete(MESSAGE, message_id.clone());
        }
    }

    fn on_message_put(&mut self, message_id: Name, wire: sds::Value, records: &mut Records) {
        if let Some((head, length)) = self.contents.get(&message_id)
            && *length >= SHARED_BYTES_MIN
            && let Some(start) = memmem::find(&wire, head)
            && let Some(after) = wire.get(start + length..)
        {
            let at = u32::try_from(start).unwrap_or(u32::MAX).to_be_bytes();
            let frame = [&at, &wire[..start], after].concat();
            records.leave(MESSAGE, message_id.clone());
            records.put(FRAME, message_id.clone(), Some(frame));
            self.framed.insert(message_id);
            return;
        }
        if self.uses.contains_key(&message_id) && self.stored.contains(&message_id) {
            records.leave(MESSAGE, message_id);
        } else {
            // What is stored and not named may be another message of this id, which SDS forgot just now.
            records.put(MESSAGE, message_id.clone(), Some(Value::Sds(wire)));
            self.stored.insert(message_id);
        }
    }

    fn on_message_deleted(&mut self, message_id: Name, records: &mut Records) {
        if self.framed.remove(&message_id) {
            self.contents.remove(&message_id);
            records.delete(FRAME, message_id.clone());
            records.delete(CONTENT, message_id.clone());
            records.leave(MESSAGE, message_id);
        } else if self.uses.contains_key(&message_id) {
            // It goes when nothing names it any more.
            records.leave(MESSAGE, message_id);
        } else {
            self.stored.remove(&message_id);
            records.delete(MESSAGE, message_id);
        }
    }

    /// Ends a commit: what nothing names any more goes, unless SDS keeps it.
    pub fn apply(&mut self, is_needed: impl Fn(&str) -> bool, records: &mut Records) {
        for message_id in std::mem::take(&mut self.deleted_contents) {
            if self.framed.contains(&message_id) {
                // The rest of the message stands beside it.
                records.leave(CONTENT, message_id.clone());
            }
            self.contents.remove(&message_id);
        }
        for (message_id, wire) in std::mem::take(&mut self.wires) {
            if self.uses.contains_key(&message_id) {
                let wire = Value::Sds(sds::Value::Shared(wire));
                records.put(MESSAGE, message_id.clone(), Some(wire));
                self.stored.insert(message_id);
            }
        }
        for message_id in std::mem::take(&mut self.released) {
            let is_named = self.uses.contains_key(&message_id) || is_needed(&message_id);
            if !is_named && self.stored.remove(&message_id) {
                records.delete(MESSAGE, message_id);
            }
        }
        for ((kind, key), value) in std::mem::take(&mut self.changes) {
            if value.is_some() {
                self.written.insert((kind, key.clone()));
            } else {
                self.written.remove(&(kind, key.clone()));
            }
            records.put(kind, key, value);
        }
    }

    /// The message under `key` is done, from the commit on that comes next.
    pub fn on_delivered(&mut self, key: &[u8]) {
        match self.parts.remove(key) {
            Some(parts) => {
                for message_id in parts {
                    self.release(&message_id);
                }
                self.put(PARTS, key.into(), None);
            }
            None => self.put(PAYLOAD, key.into(), None),
        }
    }

    // --- after a restart ------------------------------------------------------------------------

    pub fn restore_message(&mut self, message_id: &Name) {
        self.stored.insert(message_id.clone());
        // SDS may not keep all of them: what it does not keep and nothing names goes with the first commit.
        self.released.insert(message_id.clone());
    }

    /// A content of ours that has not left.
    pub fn restore_content(&mut self, message_id: &Name, content: &[u8]) {
        let head = &content[..content.len().min(HEAD_BYTES)];
        self.contents
            .insert(message_id.clone(), (head.into(), content.len()));
    }

    pub fn restore_frame(&mut self, message_id: &Name) {
        self.framed.insert(message_id.clone());
    }

    pub fn restore_payload(&mut self, key: &[u8]) {
        self.written.insert((PAYLOAD, key.into()));
    }

    pub fn restore_parts(&mut self, key: &[u8], record: &PartsRecord) {
        let named = record.message_ids.iter().filter(|id| !id.is_empty());
        let parts: Vec<_> = named.map(|id| Name::new(id)).collect();
        for message_id in &parts {
            self.name(message_id, None);
        }
        self.written.insert((PARTS, key.into()));
        self.parts.insert(key.into(), parts);
    }

    pub fn restore_segment(
        &mut self,
        key: &[u8],
        record: &SegmentRecord,
        payload_hash: Hash,
        index: Option<u8>,
    ) {
        self.written.insert((SEGMENT, key.into()));
        self.serial = self.serial.max(record.serial);
        let message_id = (!record.message_id.is_empty()).then(|| Name::new(&record.message_id));
        if let Some(message_id) = &message_id {
            self.name(message_id, None);
        }
        let key_of_message = payload_key(&record.sender_id, &record.send_id);
        let segment = Segment {
            key: key.into(),
            payload_hash,
            message_id,
            index,
        };
        let segments = self.segments.entry(key_of_message).or_default();
        segments.push(segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(shared: &mut SharedBytes, changes: &[(&'static str, &str, &[u8])]) -> Vec<Vec<u8>> {
        let mut records = Records::default();
        for (kind, key, value) in changes {
            let value = Some(sds::Value::Fields(value.to_vec()));
            shared.take(
                sds::Record {
                    kind,
                    key: Name::new(key),
                    value,
                },
                &mut records,
            );
        }
        shared.apply(|_| false, &mut records);
        let values = records
            .into_vec()
            .into_iter()
            .filter_map(|record| record.value);
        let bytes = values.map(|value| match value {
            Value::Sds(value) => value.to_vec(),
            Value::Payload(payload) => payload.to_vec(),
        });
        bytes.collect()
    }

    #[test]
    fn another_message_takes_the_place_of_one_of_its_id_that_nothing_names() {
        let mut shared = SharedBytes::new(SdsWireFormat::Spec, WireFormat::Raw);
        for wire in [&b"forged"[..], b"real"] {
            assert_eq!(stored(&mut shared, &[(MESSAGE, "id", wire)]), [wire]);
        }
    }

    #[test]
    fn the_bytes_of_a_content_of_ours_stand_once() {
        let mut shared = SharedBytes::new(SdsWireFormat::Spec, WireFormat::Raw);
        let content: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let waiting = stored(&mut shared, &[(CONTENT, "id", &content)]);
        assert_eq!(waiting, [&content[..]]);
        let wire = [b"before", &content[..], b"after"].concat();
        let frame = [&6u32.to_be_bytes()[..], b"beforeafter"].concat();
        assert_eq!(stored(&mut shared, &[(MESSAGE, "id", &wire)]), [frame]);
    }
}

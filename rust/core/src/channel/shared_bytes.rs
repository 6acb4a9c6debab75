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
//!
//! Two messages may have one id, of which one is forged, or where ids are made of contents. What names an
//! id has the `sds.message` record. That is the message of SDS too, unless the id has a frame.

use std::ops::Range;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::records::{FRAME, PARTS, PAYLOAD, Records, SEGMENT, Value, payload_key};
use super::references::{Part, PartsRecord, SegmentRecord, WireFormats};
use crate::maps::{HashMap, HashSet};
use crate::reassemble::Payload;
use crate::sds::{self, CONTENT, MESSAGE, Name, Octets};
use crate::wire::sds::{MessageView, WireFormat as SdsWireFormat};
use crate::wire::segment::{HASH_LENGTH, WireFormat};

/// Below this a name costs about as much as the bytes.
const SHARED_BYTES_MIN: usize = 512;
/// The start of a content, by which it is told from another one of its id: no two contents of a channel share
/// theirs, which holds a hash and an index.
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
    /// The message that SDS keeps under the id, if any.
    pub kept_by_sds: Option<Octets>,
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
    /// The message that SDS keeps under the id, if any.
    pub kept_by_sds: Option<Octets>,
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
    wire_formats: WireFormats,
    /// Ids of whole messages that are stored.
    stored: HashSet<Name>,
    uses: HashMap<Name, u32>,
    /// No longer named: gone with the next commit unless SDS keeps them.
    released: LinkedHashSet<Name>,
    /// Named since the last commit, each by the message that it then is.
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
            wire_formats: WireFormats {
                sds: sds_wire_format,
                segment: segment_wire_format,
            },
            stored: HashSet::default(),
            uses: HashMap::default(),
            released: LinkedHashSet::new(),
            wires: LinkedHashMap::new(),
            contents: HashMap::default(),
            framed: HashSet::default(),
            segments: HashMap::default(),
            parts: HashMap::default(),
            written: HashSet::default(),
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
        let is_taken = !self.may_name(kept.message_id, kept.wire, kept.kept_by_sds.as_ref());
        let message_id = (!is_taken).then(|| kept.message_id.clone());
        let record = SegmentRecord {
            sender_id: kept.sender_id.to_owned(),
            send_id: Name::new(kept.send_id),
            authenticated: kept.authenticated,
            wire_formats: self.wire_formats,
            message_id: message_id.clone(),
            serial: self.serial,
        };
        let value = match &message_id {
            None => record.encode(kept.content),
            Some(message_id) => {
                self.name(message_id, Some(kept.wire));
                record.encode(&[])
            }
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

    /// Whether the segment of the record `own_key` is kept, of the partial message under `key`.
    pub fn keeps_segment(&self, key: &[u8], own_key: &[u8]) -> bool {
        let segments = self.segments.get(key);
        segments.is_some_and(|segments| segments.iter().any(|segment| *segment.key == *own_key))
    }

    /// A stored segment is refused: it is as if it had not come.
    pub fn forget_segment(&mut self, key: &[u8], own_key: &[u8]) {
        let Some(segments) = self.segments.get_mut(key) else {
            return;
        };
        let is_its_own = |segment: &Segment| *segment.key == *own_key;
        let Some(place) = segments.iter().position(is_its_own) else {
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
            // The pieces of the payload are its data segments.
            debug_assert_eq!(payload.pieces().count(), parts.len());
            let is_named = parts.iter().any(Option::is_some);
            is_named.then_some((completed, parts))
        });
        match parts {
            None => self.put(PAYLOAD, key.clone(), Some(Value::Payload(payload.clone()))),
            Some((completed, parts)) => {
                let mut own = Vec::new();
                let parts = parts.into_iter().zip(payload.pieces());
                let parts = parts.map(|(message_id, piece)| match message_id {
                    Some(message_id) => Part::In(message_id),
                    None => {
                        own.push(piece);
                        Part::Own(piece.len())
                    }
                });
                let record = PartsRecord {
                    parts: parts.collect(),
                    length: payload.len(),
                    payload_hash,
                    wire_formats: self.wire_formats,
                };
                for message_id in record.message_ids() {
                    let is_last = message_id == completed.message_id;
                    self.name(message_id, is_last.then_some(completed.wire));
                }
                self.put(PARTS, key.clone(), Some(record.encode(&own).into()));
                let named = record.message_ids().cloned().collect();
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
        let may_name = self.may_name(
            completed.message_id,
            completed.wire,
            completed.kept_by_sds.as_ref(),
        );
        let last = may_name.then_some(completed.message_id);
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

    /// Whether the record of an id has `wire`, or will have it with this commit: nothing names another
    /// message there, and SDS keeps none.
    fn may_name(&self, message_id: &Name, wire: &Octets, kept_by_sds: Option<&Octets>) -> bool {
        let is_same = |other: &Octets| are_same(other, wire);
        match (
            self.uses.contains_key(message_id),
            self.wires.get(message_id),
        ) {
            (true, Some(named)) => is_same(named),
            (true, None) => false,
            (false, _) => kept_by_sds.is_none_or(is_same),
        }
    }

    fn name(&mut self, message_id: &Name, wire: Option<&Octets>) {
        let uses = self.uses.entry(message_id.clone()).or_default();
        if let Some(wire) = wire
            && *uses == 0
        {
            // What is stored there may be another one, which SDS forgot just now.
            self.wires.insert(message_id.clone(), wire.clone());
        }
        *uses += 1;
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

    /// A record that SDS changes, in its stored form; `is_ours` tells whether a message is that of a content
    /// of ours. [`SharedBytes::apply`] ends the commit.
    pub fn take(
        &mut self,
        record: sds::Record,
        is_ours: impl Fn(&str, &[u8]) -> bool,
        records: &mut Records,
    ) {
        let sds::Record { kind, key, value } = record;
        match (kind, value) {
            (CONTENT, Some(content)) => {
                self.forget_wire(&key, records);
                let head = &content[..content.len().min(HEAD_BYTES)];
                self.contents
                    .insert(key.clone(), (head.into(), content.len()));
                records.put(CONTENT, key, Some(content));
            }
            (CONTENT, None) => self.deleted_contents.push(key),
            (MESSAGE, Some(wire)) => {
                let is_ours = is_ours(&key, &wire);
                self.on_message_put(key, wire, is_ours, records);
            }
            (MESSAGE, None) => {
                self.drop_frame(&key, records);
                self.drop_unnamed(&key, records);
            }
            (kind, value) => records.put(kind, key, value),
        }
    }

    /// A content that has yet to leave: a message stored under its id is that of an equal one, which was
    /// cancelled in the same cycle.
    fn forget_wire(&mut self, message_id: &Name, records: &mut Records) {
        if self.framed.remove(message_id) {
            records.delete(FRAME, message_id.clone());
        }
        self.drop_unnamed(message_id, records);
    }

    fn on_message_put(
        &mut self,
        message_id: Name,
        wire: Octets,
        is_ours: bool,
        records: &mut Records,
    ) {
        let is_named = self.uses.contains_key(&message_id);
        let named = self.wires.get(&message_id).filter(|_| is_named);
        // Named before this commit is what is stored, whatever that is.
        let is_other = is_named && named.is_none_or(|named| !are_same(named, &wire));
        if is_ours && let Some(place) = self.place_of_content(&message_id, &wire) {
            self.put_frame(message_id, &wire, place, records);
        } else if is_other
            && (is_ours || !self.contents.contains_key(&message_id))
            && let Some(place) = content_of(&wire, self.wire_formats.sds)
        {
            let content = Octets::from(&wire[place.clone()]);
            records.put(CONTENT, message_id.clone(), Some(content));
            self.put_frame(message_id, &wire, place, records);
        } else {
            self.drop_frame(&message_id, records);
            if is_ours && self.contents.remove(&message_id).is_some() {
                records.delete(CONTENT, message_id.clone());
            }
            if !is_other {
                records.put(MESSAGE, message_id.clone(), Some(wire));
                self.stored.insert(message_id);
            }
        }
    }

    /// Where the stored content of an id stands in a message. It is not searched for: a peer may have had its
    /// bytes put before it, in a hint of what is asked for.
    fn place_of_content(&self, message_id: &Name, wire: &[u8]) -> Option<Range<usize>> {
        let (head, length) = self.contents.get(message_id)?;
        if *length < SHARED_BYTES_MIN {
            return None;
        }
        let place = content_of(wire, self.wire_formats.sds)?;
        (place.len() == *length && wire[place.clone()].starts_with(head)).then_some(place)
    }

    /// Stores a message as what stands around its content.
    fn put_frame(
        &mut self,
        message_id: Name,
        wire: &[u8],
        content: Range<usize>,
        records: &mut Records,
    ) {
        let at = u32::try_from(content.start)
            .unwrap_or(u32::MAX)
            .to_be_bytes();
        let frame = [&at, &wire[..content.start], &wire[content.end..]].concat();
        records.put(FRAME, message_id.clone(), Some(frame));
        self.drop_unnamed(&message_id, records);
        self.framed.insert(message_id);
    }

    fn drop_frame(&mut self, message_id: &Name, records: &mut Records) {
        if self.framed.remove(message_id) {
            self.contents.remove(message_id);
            records.delete(FRAME, message_id.clone());
            records.delete(CONTENT, message_id.clone());
        }
    }

    /// What is stored of an id goes, or stays until nothing names it any more.
    fn drop_unnamed(&mut self, message_id: &Name, records: &mut Records) {
        if !self.uses.contains_key(message_id) && self.stored.remove(message_id) {
            records.delete(MESSAGE, message_id.clone());
        }
    }

    /// Ends a commit: what nothing names any more goes, unless SDS keeps it.
    pub fn apply(&mut self, is_needed: impl Fn(&str) -> bool, records: &mut Records) {
        for message_id in std::mem::take(&mut self.deleted_contents) {
            self.contents.remove(&message_id);
            // In a frame the rest of the message stands beside it.
            if !self.framed.contains(&message_id) {
                records.delete(CONTENT, message_id);
            }
        }
        for (message_id, wire) in std::mem::take(&mut self.wires) {
            if self.uses.contains_key(&message_id) {
                records.put(MESSAGE, message_id.clone(), Some(wire));
                self.stored.insert(message_id);
            }
        }
        for message_id in std::mem::take(&mut self.released) {
            let is_needed = is_needed(&message_id);
            if !is_needed {
                self.drop_frame(&message_id, records);
                if self.contents.remove(&message_id).is_some() {
                    records.delete(CONTENT, message_id.clone());
                }
            }
            if !is_needed || self.framed.contains(&message_id) {
                self.drop_unnamed(&message_id, records);
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

    /// In place of [`SharedBytes::apply`] where nothing is stored: no record names a message.
    pub fn drop_changes(&mut self) {
        self.wires.clear();
        self.released.clear();
        for ((kind, key), value) in self.changes.drain() {
            // Which messages wait for their delivery is still known by it.
            if value.is_some() {
                self.written.insert((kind, key));
            } else {
                self.written.remove(&(kind, key));
            }
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

    /// What is stored is held for something: SDS needs it, a message waits for its release or its delivery,
    /// or is partial. Looked at between two commits, by what those parts say.
    #[cfg(debug_assertions)]
    pub fn audit(
        &self,
        is_needed: impl Fn(&str) -> bool,
        waiting: &HashSet<Box<[u8]>>,
        is_partial: impl Fn(&[u8], &Hash) -> bool,
    ) {
        let segments = || {
            self.segments
                .iter()
                .flat_map(|(key, held)| held.iter().map(move |segment| (key, segment)))
        };
        let mut uses: HashMap<Name, u32> = HashMap::default();
        let of_segments = segments().filter_map(|(_, segment)| segment.message_id.as_ref());
        for name in of_segments.chain(self.parts.values().flatten()) {
            *uses.entry(name.clone()).or_default() += 1;
        }
        assert_eq!(self.uses, uses, "how often messages are named");
        for name in self.uses.keys() {
            assert!(
                self.stored.contains(name),
                "{name:?} is named and not stored"
            );
        }
        for name in self
            .stored
            .iter()
            .chain(&self.framed)
            .chain(self.contents.keys())
        {
            let is_held = uses.contains_key(name) || is_needed(name);
            assert!(is_held, "{name:?} is stored for nothing");
        }
        for (key, segment) in segments() {
            assert!(
                is_partial(key, &segment.payload_hash),
                "{:?} is stored for nothing",
                segment.key
            );
        }
        let of_partial: HashSet<_> = segments().map(|(_, segment)| &segment.key).collect();
        let is_kept = |kind, key: &[u8]| self.written.contains(&(kind, key.into()));
        for (kind, key) in &self.written {
            let is_held = match *kind {
                SEGMENT => of_partial.contains(key),
                _ => waiting.contains(key),
            };
            assert!(is_held, "{kind} {key:?} is stored for nothing");
        }
        for key in waiting {
            assert!(
                is_kept(PAYLOAD, key) || is_kept(PARTS, key),
                "{key:?} waits and is not stored"
            );
        }
        assert!(of_partial.iter().all(|key| is_kept(SEGMENT, key)));
    }

    // --- after a restart ------------------------------------------------------------------------

    // SDS may not keep all that is restored: what it does not keep and nothing names goes with the first
    // commit.

    pub fn restore_message(&mut self, message_id: &Name) {
        self.stored.insert(message_id.clone());
        self.released.insert(message_id.clone());
    }

    /// A content of ours that has not left.
    pub fn restore_content(&mut self, message_id: &Name, content: &[u8]) {
        let head = &content[..content.len().min(HEAD_BYTES)];
        self.contents
            .insert(message_id.clone(), (head.into(), content.len()));
        self.released.insert(message_id.clone());
    }

    pub fn restore_frame(&mut self, message_id: &Name) {
        self.framed.insert(message_id.clone());
        self.released.insert(message_id.clone());
    }

    pub fn restore_payload(&mut self, key: &[u8]) {
        self.written.insert((PAYLOAD, key.into()));
    }

    pub fn restore_parts(&mut self, key: &[u8], record: &PartsRecord) {
        let parts: Vec<_> = record.message_ids().cloned().collect();
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
        if let Some(message_id) = &record.message_id {
            self.name(message_id, None);
        }
        let segment = Segment {
            key: key.into(),
            payload_hash,
            message_id: record.message_id.clone(),
            index,
        };
        let segments = self.segments.entry(record.key_of_message()).or_default();
        segments.push(segment);
    }
}

/// Messages are mostly compared with themselves.
fn are_same(one: &[u8], other: &[u8]) -> bool {
    std::ptr::eq(one, other) || one == other
}

/// Where the content of a message stands in it.
fn content_of(wire: &[u8], wire_format: SdsWireFormat) -> Option<Range<usize>> {
    let content = MessageView::decode(wire, wire_format).ok()?.content?;
    let start = content.as_ptr().addr() - wire.as_ptr().addr();
    Some(start..start + content.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use memchr::memmem;

    use super::*;
    use crate::channel::restored::framed;
    use crate::wire::sds::{HistoryEntry, Message};

    const ID: &str = "id";

    /// What is stored, and by whom messages are kept.
    struct Store {
        shared: SharedBytes,
        records: BTreeMap<(&'static str, Vec<u8>), Vec<u8>>,
        /// Messages that SDS keeps.
        kept: Vec<&'static str>,
        is_ours: bool,
    }

    impl Store {
        fn new() -> Self {
            Store {
                shared: SharedBytes::new(SdsWireFormat::Spec, WireFormat::Raw),
                records: BTreeMap::new(),
                kept: vec![ID],
                is_ours: false,
            }
        }

        /// A commit with these changes of SDS, all of [`ID`]; how many records it changes.
        fn commit(&mut self, changes: &[(&'static str, Option<&Octets>)]) -> usize {
            let mut records = Records::default();
            for (kind, value) in changes {
                let record = sds::Record {
                    kind,
                    key: Name::new(ID),
                    value: value.cloned(),
                };
                self.shared.take(record, |_, _| self.is_ours, &mut records);
            }
            let is_needed = |message_id: &str| self.kept.contains(&message_id);
            self.shared.apply(is_needed, &mut records);
            let records = records.into_vec();
            let count = records.len();
            for record in records {
                let name = (record.kind, record.key.as_bytes().to_vec());
                match record.value {
                    None => drop(self.records.remove(&name)),
                    Some(Value::Bytes(value)) => drop(self.records.insert(name, value.to_vec())),
                    Some(Value::Payload(value)) => drop(self.records.insert(name, value.to_vec())),
                }
            }
            count
        }

        /// A segment of a partial message comes under [`ID`].
        fn keep_segment(&mut self, send_id: &str, wire: &Octets, kept_by_sds: Option<&Octets>) {
            self.keep_segment_of(send_id, wire, kept_by_sds, (ID, [0; HASH_LENGTH]));
        }

        /// The first segment of a partial message with this hash comes under this id.
        fn keep_segment_of(
            &mut self,
            send_id: &str,
            wire: &Octets,
            kept_by_sds: Option<&Octets>,
            (id, payload_hash): (&str, Hash),
        ) {
            let content = content_of(wire, SdsWireFormat::Spec).expect("it has a content");
            self.shared.keep_segment(&Kept {
                message_id: &Name::new(id),
                sender_id: "bob",
                send_id,
                content: &wire[content],
                wire,
                kept_by_sds: kept_by_sds.cloned(),
                payload_hash,
                index: Some(0),
                authenticated: false,
            });
        }

        fn drop_segments(&mut self, send_id: &str) {
            let key = payload_key("bob", send_id);
            self.shared.drop_segments(&key, &[0; HASH_LENGTH]);
        }

        /// The message of a send is whole, of two segments: the second comes under [`ID`] now.
        fn keep_payload(&mut self, segments: [u8; 2], wire: &Octets, kept_by_sds: Option<&Octets>) {
            let payload = Payload::from(segments.map(|seed| content(seed).to_vec()));
            let completed = Completed {
                data_count: 2,
                recovered: &[],
                message_id: &Name::new(ID),
                index: Some(1),
                wire,
                kept_by_sds: kept_by_sds.cloned(),
            };
            self.shared.keep_payload(
                payload_key("bob", "send"),
                &payload,
                [0; HASH_LENGTH],
                Some(&completed),
            );
        }

        /// As after a restart.
        fn restart(&mut self) {
            self.shared = SharedBytes::new(SdsWireFormat::Spec, WireFormat::Raw);
            for ((kind, key), value) in &self.records {
                match *kind {
                    FRAME => self.shared.restore_frame(&Name::from_wire(key)),
                    MESSAGE => self.shared.restore_message(&Name::from_wire(key)),
                    PAYLOAD => self.shared.restore_payload(key),
                    CONTENT if !self.records.contains_key(&(FRAME, key.clone())) => {
                        self.shared.restore_content(&Name::from_wire(key), value);
                    }
                    _ => {}
                }
            }
        }

        fn kinds(&self) -> Vec<&'static str> {
            self.records.keys().map(|(kind, _)| *kind).collect()
        }

        fn of(&self, kind: &'static str) -> &[u8] {
            &self.records[&(kind, ID.as_bytes().to_vec())]
        }

        /// How often bytes of the content that [`content`] makes of `seed` are stored.
        fn count(&self, seed: u8) -> usize {
            let part = &content(seed)[300..400];
            let values = self.records.values();
            values
                .map(|value| memmem::find_iter(value, part).count())
                .sum()
        }
    }

    /// No two parts of one are equal; contents of two seeds begin alike, but for seed 0.
    fn content(seed: u8) -> Octets {
        let number = |at: u16| match (seed, at) {
            (0, _) => at | 1 << 15,
            (_, 0..50) => at,
            _ => at | u16::from(seed) << 9,
        };
        Octets::from(
            (0..500)
                .flat_map(|at| number(at).to_be_bytes())
                .collect::<Vec<_>>(),
        )
    }

    fn message(sender_id: &str, seed: u8) -> Octets {
        message_of(sender_id, &content(seed))
    }

    fn message_of(sender_id: &str, content: &[u8]) -> Octets {
        let message = Message {
            sender_id: sender_id.to_owned(),
            message_id: ID.to_owned(),
            channel_id: "room".to_owned(),
            lamport_timestamp: Some(1),
            content: Some(content.to_vec()),
            ..Message::default()
        };
        let bytes = message.encode(SdsWireFormat::Spec);
        Octets::from(bytes.expect("a message of the wire"))
    }

    #[test]
    fn another_message_takes_the_place_of_one_of_its_id_that_nothing_names() {
        let mut store = Store::new();
        for seed in [1, 2] {
            let wire = message("bob", seed);
            store.commit(&[(MESSAGE, Some(&wire))]);
            assert_eq!((store.kinds(), store.of(MESSAGE)), (vec![MESSAGE], &*wire));
        }
    }

    #[test]
    fn the_bytes_of_a_content_of_ours_stand_once() {
        let mut store = Store::new();
        store.is_ours = true;
        store.commit(&[(CONTENT, Some(&content(1)))]);
        assert_eq!(store.of(CONTENT), &*content(1));
        let wire = message("alice", 1);
        store.commit(&[(MESSAGE, Some(&wire)), (CONTENT, None)]);
        assert_eq!(store.kinds(), [FRAME, CONTENT]);
        assert_eq!((store.of(CONTENT), store.count(1)), (&*content(1), 1));
        store.commit(&[(MESSAGE, None)]);
        assert_eq!(store.kinds(), [""; 0]);
    }

    #[test]
    fn a_cancelled_content_that_comes_from_another_participant_stands_once() {
        let mut store = Store::new();
        store.commit(&[(CONTENT, Some(&content(1)))]);
        let wire = message("bob", 1);
        store.keep_segment("send", &wire, Some(&wire));
        store.commit(&[(MESSAGE, Some(&wire)), (CONTENT, None)]);
        assert_eq!(store.kinds(), [SEGMENT, MESSAGE]);
        assert_eq!(store.count(1), 1);
    }

    #[test]
    fn a_message_that_begins_as_a_cancelled_content_does_keeps_its_own_bytes() {
        let mut store = Store::new();
        store.commit(&[(CONTENT, Some(&content(1)))]);
        let wire = message("bob", 2);
        store.commit(&[(MESSAGE, Some(&wire)), (CONTENT, None)]);
        assert_eq!((store.kinds(), store.of(MESSAGE)), (vec![MESSAGE], &*wire));
    }

    #[test]
    fn a_message_takes_the_place_of_a_frame_of_its_id() {
        let mut store = Store::new();
        store.is_ours = true;
        store.commit(&[(CONTENT, Some(&content(1)))]);
        store.commit(&[(MESSAGE, Some(&message("alice", 1))), (CONTENT, None)]);
        // Withdrawn, and forged at once.
        store.is_ours = false;
        let forged = message("mallory", 2);
        store.keep_segment("send", &forged, Some(&forged));
        store.commit(&[(MESSAGE, Some(&forged))]);
        assert_eq!(store.kinds(), [SEGMENT, MESSAGE]);
        assert_eq!(store.of(MESSAGE), &*forged);
    }

    #[test]
    fn segments_that_are_taken_in_again_name_the_message_that_is_kept_for_repair() {
        let mut store = Store::new();
        let wire = message("bob", 1);
        store.keep_segment("send", &wire, Some(&wire));
        store.commit(&[(MESSAGE, Some(&wire))]);
        store.drop_segments("send");
        store.commit(&[]);
        assert_eq!(store.kinds(), [MESSAGE]);
        store.keep_segment("send", &wire, Some(&wire));
        store.commit(&[]);
        assert_eq!(store.kinds(), [SEGMENT, MESSAGE]);
        assert_eq!(store.count(1), 1);
    }

    #[test]
    fn a_segment_of_another_message_of_its_id_has_its_own_bytes() {
        let (kept, other) = (message("bob", 1), message("mallory", 2));
        let mut store = Store::new();
        store.commit(&[(MESSAGE, Some(&kept))]);
        store.keep_segment("send", &other, Some(&kept));
        store.commit(&[]);
        assert_eq!((store.count(1), store.count(2)), (1, 1));
        assert_eq!(store.of(MESSAGE), &*kept);
        store.commit(&[(MESSAGE, None)]);
        assert_eq!((store.count(1), store.count(2)), (0, 1));
    }

    #[test]
    fn what_is_named_since_earlier_commits_is_not_taken_for_another_message_of_its_id() {
        let (kept, other) = (message("bob", 1), message("mallory", 2));
        let mut store = Store::new();
        store.keep_segment("send", &kept, Some(&kept));
        store.commit(&[(MESSAGE, Some(&kept))]);
        // SDS forgot the one that is stored, and holds the other one.
        store.keep_segment("other", &other, Some(&other));
        store.commit(&[(MESSAGE, Some(&other))]);
        // In the segment, and beside its frame.
        assert_eq!((store.count(1), store.count(2)), (1, 2));
        store.drop_segments("other");
        store.commit(&[]);
        assert_eq!(store.count(1), 1);
        store.drop_segments("send");
        store.kept.clear();
        store.commit(&[(MESSAGE, None)]);
        assert_eq!(store.kinds(), [""; 0]);
    }

    #[test]
    fn a_message_of_ours_is_stored_whole_after_what_stood_around_its_content_went() {
        let mut store = Store::new();
        store.is_ours = true;
        store.commit(&[(CONTENT, Some(&content(1)))]);
        let wire = message("alice", 1);
        store.commit(&[(MESSAGE, Some(&wire))]);
        assert_eq!(store.kinds(), [FRAME, CONTENT]);
        store.commit(&[(MESSAGE, None)]);
        // As when the same content is sent again under its id, and leaves before it is stored.
        store.commit(&[(MESSAGE, Some(&wire))]);
        assert_eq!((store.kinds(), store.of(MESSAGE)), (vec![MESSAGE], &*wire));
    }

    #[test]
    fn a_content_that_has_yet_to_leave_takes_the_place_of_a_message_of_its_id() {
        for is_framed in [false, true] {
            let mut store = Store::new();
            store.is_ours = true;
            if is_framed {
                store.commit(&[(CONTENT, Some(&content(1)))]);
            }
            store.commit(&[(MESSAGE, Some(&message("alice", 1)))]);
            // Withdrawn, and sent again.
            store.commit(&[(CONTENT, Some(&content(1)))]);
            assert_eq!((store.kinds(), store.count(1)), (vec![CONTENT], 1));
        }
    }

    #[test]
    fn a_content_of_ours_stays_whole_beside_others_of_its_id_until_it_leaves() {
        let (named, other) = (message("bob", 1), message("mallory", 2));
        let mut store = Store::new();
        store.commit(&[(CONTENT, Some(&content(0)))]);
        store.keep_segment("send", &named, Some(&named));
        store.commit(&[(MESSAGE, Some(&named))]);
        // SDS forgot the one that is named, and holds the other one.
        store.commit(&[(MESSAGE, Some(&other))]);
        assert_eq!(store.kinds(), [SEGMENT, CONTENT, MESSAGE]);
        assert_eq!(store.of(CONTENT), &*content(0));
        assert_eq!(store.of(MESSAGE), &*named);
        store.drop_segments("send");
        store.is_ours = true;
        store.commit(&[(MESSAGE, Some(&message("alice", 0))), (CONTENT, None)]);
        assert_eq!((store.kinds(), store.count(0)), (vec![FRAME, CONTENT], 1));
    }

    #[test]
    fn a_message_takes_the_place_of_one_that_sds_kept_before_a_content_of_ours_left() {
        let mut store = Store::new();
        store.commit(&[(CONTENT, Some(&content(1)))]);
        store.commit(&[(MESSAGE, Some(&message("bob", 2)))]);
        assert_eq!(store.kinds(), [CONTENT, MESSAGE]);
        store.is_ours = true;
        store.commit(&[(MESSAGE, Some(&message("alice", 1))), (CONTENT, None)]);
        assert_eq!(store.kinds(), [FRAME, CONTENT]);
    }

    #[test]
    fn a_message_of_ours_is_stored_whole_where_no_content_like_its_own_is() {
        let whole = message("alice", 1);
        let shorter = message_of("alice", &content(1)[..900]);
        for (is_cancelled, wire) in [(true, whole), (false, shorter)] {
            let mut store = Store::new();
            store.is_ours = true;
            store.commit(&[(CONTENT, Some(&content(1)))]);
            if is_cancelled {
                store.commit(&[(CONTENT, None)]);
                assert_eq!(store.kinds(), [""; 0]);
            }
            store.commit(&[(MESSAGE, Some(&wire))]);
            assert_eq!((store.kinds(), store.of(MESSAGE)), (vec![MESSAGE], &*wire));
        }
    }

    #[test]
    fn what_comes_and_goes_between_two_commits_changes_nothing() {
        let wire = message("bob", 1);
        for is_stored in [false, true] {
            let mut store = Store::new();
            if is_stored {
                store.commit(&[(MESSAGE, Some(&wire))]);
            }
            store.keep_segment("send", &wire, Some(&wire));
            store.drop_segments("send");
            assert_eq!(store.commit(&[]), 0);
        }
    }

    #[test]
    fn a_refused_segment_lets_go_of_the_message_that_brought_it() {
        let wire = message("bob", 1);
        let mut store = Store::new();
        store.keep_segment("send", &wire, Some(&wire));
        store.commit(&[(MESSAGE, Some(&wire))]);
        store.kept.clear();
        store.commit(&[(MESSAGE, None)]);
        assert_eq!(store.kinds(), [SEGMENT, MESSAGE]);
        let mut stored = store.records.keys();
        let (_, own_key) = stored.next().expect("the segment").clone();
        let key = payload_key("bob", "send");
        store.shared.forget_segment(&key, &own_key);
        store.commit(&[]);
        assert_eq!(store.kinds(), [""; 0]);
    }

    #[test]
    fn a_refused_segment_leaves_the_others_of_its_message_where_they_are() {
        let mut store = Store::new();
        store.kept.clear();
        for (id, seed) in [("first", 1), ("second", 2)] {
            let wire = message("bob", seed);
            store.keep_segment_of("send", &wire, None, (id, [0; HASH_LENGTH]));
        }
        store.commit(&[]);
        let key = payload_key("bob", "send");
        let mut stored = store.records.keys();
        let (_, first) = stored.next().expect("a segment").clone();
        store.shared.forget_segment(&key, &first);
        store.commit(&[]);
        assert_eq!(store.kinds(), [SEGMENT, MESSAGE]);
        assert_eq!((store.count(1), store.count(2)), (0, 1));
        assert!(!store.shared.keeps_segment(&key, &first));
        let (_, second) = store.records.keys().next().expect("the other").clone();
        assert!(store.shared.keeps_segment(&key, &second));
        store.drop_segments("send");
        store.commit(&[]);
        assert_eq!(store.kinds(), [""; 0]);
    }

    #[test]
    fn a_message_is_kept_whatever_it_is_stored_as_and_where_nothing_is_too() {
        for (is_large, is_stored) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut store = Store::new();
            let key = payload_key("bob", "send");
            if is_large {
                let first = message("bob", 1);
                store.keep_segment_of("send", &first, None, ("first", [0; HASH_LENGTH]));
                store.keep_payload([1, 2], &message("bob", 2), None);
            } else {
                let payload = Payload::from(b"small".to_vec());
                let shared = &mut store.shared;
                shared.keep_payload(key.clone(), &payload, [0; HASH_LENGTH], None);
            }
            assert!(store.shared.keeps_payload(&key));
            if is_stored {
                store.commit(&[]);
                let kind = if is_large { PARTS } else { PAYLOAD };
                assert!(store.kinds().contains(&kind));
            } else {
                store.shared.drop_changes();
            }
            assert!(store.shared.keeps_payload(&key));
            store.shared.on_delivered(&key);
            store.commit(&[]);
            assert!(!store.shared.keeps_payload(&key));
        }
    }

    #[test]
    fn a_segment_of_a_rival_of_a_message_takes_no_place_in_it() {
        let (first, last) = (message("bob", 1), message("bob", 2));
        let mut store = Store::new();
        store.kept.push("first");
        store.keep_segment_of("send", &first, None, ("first", [0; HASH_LENGTH]));
        let forged = message("mallory", 3);
        store.keep_segment_of("send", &forged, None, ("forged", [1; HASH_LENGTH]));
        store.commit(&[]);
        store.keep_payload([1, 2], &last, None);
        store.commit(&[]);
        assert_eq!((store.count(1), store.count(2)), (1, 1));
    }

    #[test]
    fn what_is_named_stays_where_a_rival_of_its_id_completes_the_message() {
        let (first, last) = (message("bob", 1), message("bob", 2));
        let mut store = Store::new();
        store.keep_segment("send", &first, Some(&first));
        store.commit(&[(MESSAGE, Some(&first))]);
        store.keep_payload([1, 2], &last, Some(&first));
        store.commit(&[]);
        assert_eq!(store.kinds(), [PARTS, MESSAGE]);
        assert_eq!(store.of(MESSAGE), &*first);
        assert_eq!((store.count(1), store.count(2)), (1, 1));
    }

    #[test]
    fn a_restored_message_that_is_delivered_goes() {
        let mut store = Store::new();
        let key = payload_key("bob", "send");
        let payload = Payload::from(b"small".to_vec());
        let shared = &mut store.shared;
        shared.keep_payload(key.clone(), &payload, [0; HASH_LENGTH], None);
        store.commit(&[]);
        store.restart();
        assert!(store.shared.keeps_payload(&key));
        store.shared.on_delivered(&key);
        store.commit(&[]);
        assert_eq!(store.kinds(), [""; 0]);
    }

    #[test]
    fn what_sds_keeps_and_another_one_of_its_id_are_both_stored_where_they_come_at_once() {
        let (kept, other) = (message("bob", 1), message("mallory", 2));
        let mut store = Store::new();
        store.keep_segment("send", &kept, Some(&kept));
        // SDS forgot that one meanwhile.
        store.commit(&[(MESSAGE, Some(&other))]);
        assert_eq!(store.kinds(), [FRAME, SEGMENT, CONTENT, MESSAGE]);
        assert_eq!(store.of(MESSAGE), &*kept);
        let stored = framed(store.of(FRAME), store.of(CONTENT));
        assert_eq!(stored.as_deref(), Some(&*other));
    }

    #[test]
    fn a_small_content_of_ours_is_stored_beside_a_named_message_of_its_id() {
        let mut store = Store::new();
        let theirs = message("bob", 1);
        store.keep_segment("send", &theirs, Some(&theirs));
        store.commit(&[(MESSAGE, Some(&theirs))]);
        store.is_ours = true;
        let small = Octets::from(b"small".to_vec());
        store.commit(&[(CONTENT, Some(&small))]);
        let ours = message_of("alice", &small);
        store.commit(&[(MESSAGE, Some(&ours)), (CONTENT, None)]);
        assert_eq!(store.of(MESSAGE), &*theirs);
        let stored = framed(store.of(FRAME), store.of(CONTENT));
        assert_eq!(stored.as_deref(), Some(&*ours));
    }

    #[test]
    fn around_a_content_that_costs_no_more_than_its_name_no_frame_is_stored() {
        for (length, kinds) in [
            (5, vec![MESSAGE]),
            (SHARED_BYTES_MIN - 1, vec![MESSAGE]),
            (SHARED_BYTES_MIN, vec![FRAME, CONTENT]),
        ] {
            let mut store = Store::new();
            store.is_ours = true;
            let small = Octets::from(content(1)[..length].to_vec());
            store.commit(&[(CONTENT, Some(&small))]);
            store.restart();
            let wire = message_of("alice", &small);
            store.commit(&[(MESSAGE, Some(&wire)), (CONTENT, None)]);
            assert_eq!(store.kinds(), kinds);
        }
    }

    #[test]
    fn where_nothing_is_stored_nothing_is_gathered() {
        let mut store = Store::new();
        for _ in 0..3 {
            let wire = message("bob", 1);
            store.keep_segment("send", &wire, Some(&wire));
            store.shared.drop_changes();
            store.drop_segments("send");
            store.shared.drop_changes();
        }
        let shared = &store.shared;
        assert!(shared.wires.is_empty() && shared.released.is_empty());
        assert!(shared.changes.is_empty() && shared.written.is_empty());
        assert!(shared.uses.is_empty() && shared.segments.is_empty());
    }

    #[test]
    fn a_message_of_ours_stands_beside_a_named_one_of_its_id() {
        for is_stored_first in [true, false] {
            let mut store = Store::new();
            let theirs = message("bob", 1);
            store.keep_segment("send", &theirs, Some(&theirs));
            store.commit(&[(MESSAGE, Some(&theirs))]);
            store.is_ours = true;
            if is_stored_first {
                store.commit(&[(CONTENT, Some(&content(1)))]);
            }
            let ours = message("alice", 1);
            store.commit(&[(MESSAGE, Some(&ours)), (CONTENT, None)]);
            assert_eq!(store.kinds(), [FRAME, SEGMENT, CONTENT, MESSAGE]);
            assert_eq!(store.of(MESSAGE), &*theirs);
            store.drop_segments("send");
            store.commit(&[]);
            assert_eq!(store.kinds(), [FRAME, CONTENT]);
            store.commit(&[(MESSAGE, None)]);
            assert_eq!(store.kinds(), [""; 0]);
        }
    }

    #[test]
    fn a_content_goes_that_was_cancelled_and_sent_again_at_once() {
        let mut store = Store::new();
        store.is_ours = true;
        store.commit(&[(CONTENT, Some(&content(1)))]);
        // SDS does not say that the content goes: it has one of its id that was never stored.
        let wire = message("alice", 0);
        store.commit(&[(MESSAGE, Some(&wire))]);
        assert_eq!((store.kinds(), store.of(MESSAGE)), (vec![MESSAGE], &*wire));
    }

    #[test]
    fn a_message_of_ours_is_read_back_whatever_stands_before_its_content() {
        let mut store = Store::new();
        store.is_ours = true;
        store.commit(&[(CONTENT, Some(&content(1)))]);
        // Who knows what is sent names something that is missing, with this hint.
        let message = Message {
            message_id: ID.to_owned(),
            lamport_timestamp: Some(1),
            repair_request: vec![HistoryEntry {
                message_id: "missing".to_owned(),
                retrieval_hint: Some(content(1)[..HEAD_BYTES].to_vec()),
                sender_id: None,
            }],
            content: Some(content(1).to_vec()),
            ..Message::default()
        };
        let wire = Octets::from(message.encode(SdsWireFormat::Spec).unwrap());
        store.commit(&[(MESSAGE, Some(&wire)), (CONTENT, None)]);
        assert_eq!(store.kinds(), [FRAME, CONTENT]);
        let stored = framed(store.of(FRAME), store.of(CONTENT));
        assert_eq!(stored.as_deref(), Some(&*wire));
    }

    #[test]
    fn what_nobody_takes_back_after_a_restart_goes() {
        let mut store = Store::new();
        store.is_ours = true;
        store.commit(&[(CONTENT, Some(&content(1)))]);
        store.restart();
        store.commit(&[]);
        assert_eq!(store.kinds(), [CONTENT]);
        store.commit(&[(MESSAGE, Some(&message("alice", 1))), (CONTENT, None)]);
        store.restart();
        store.commit(&[]);
        assert_eq!(store.kinds(), [FRAME, CONTENT]);
        store.kept.clear();
        store.restart();
        store.commit(&[]);
        assert_eq!(store.kinds(), [""; 0]);
        let wire = message("bob", 1);
        for stored in [(MESSAGE, Some(&wire)), (CONTENT, Some(&content(1)))] {
            store.commit(&[stored]);
            assert_eq!(store.kinds(), [stored.0]);
            store.restart();
            store.commit(&[]);
            assert_eq!(store.kinds(), [""; 0]);
        }
    }
}

//! Partial sets and completions as records that a caller stores.
//!
//! A segment's key is its set's key, 20 bytes, then its class, index and serial: what names a set
//! is a prefix of what names its segments. Values are opaque to the caller; storing one twice is
//! harmless.

use super::candidate::Candidate;
use super::receive::Arrival;
use super::set::{Geometry, Key, SEGMENTS_MAX, Set, SetId, key_of};
use super::{Reassembler, Receipt};
use crate::wire::segment::{HASH_LENGTH, Header, Slot};

/// The layout of values; another one is not read.
const VERSION: u8 = 1;

/// No receiver completes so many payloads: a stored number beyond it is damaged, and counting on
/// from there would end.
const COMPLETION_NUMBER_MAX: u64 = u64::MAX >> 1;

/// Bits of the flags byte.
const HAS_SENDER: u8 = 1;
const AUTHENTICATED: u8 = 2;
const HAS_MESSAGE_KEY: u8 = 4;
const HAS_DATA_COUNT: u8 = 8;
const HAS_PARITY_COUNT: u8 = 16;
const HAS_PAYLOAD_LENGTH: u8 = 32;
/// Its sender sent the first segment of the set.
const IS_FIRST_SENDERS: u8 = 64;

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Store a segment.
    PutSegment,
    /// Delete a set: every segment whose key begins with the record's.
    DeleteSet,
    /// Store a completion.
    PutCompleted,
    /// Delete a completion.
    DeleteCompleted,
}

impl Change {
    /// The change's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Change::PutSegment => "put_segment",
            Change::DeleteSet => "delete_set",
            Change::PutCompleted => "put_completed",
            Change::DeleteCompleted => "delete_completed",
        }
    }
}

/// One change to what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it does.
    pub change: Change,
    /// The stored record's key.
    pub key: Vec<u8>,
    /// Its value; empty where something is deleted.
    pub value: Vec<u8>,
}

/// Takes the changes that are polled, so that a segment is copied once: to where it is kept.
pub trait Records {
    /// One change; its value is what `parts` are together.
    fn put(&mut self, change: Change, key: &[u8], parts: [&[u8]; 2]);
}

impl Records for Vec<Record> {
    fn put(&mut self, change: Change, key: &[u8], parts: [&[u8]; 2]) {
        self.push(Record {
            change,
            key: key.to_vec(),
            value: parts.concat(),
        });
    }
}

impl Reassembler {
    /// What changed since the last call: deletions first, then what is new.
    pub fn poll_persist(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        self.poll_persist_into(&mut records);
        records
    }

    /// As [`Reassembler::poll_persist`], into the caller's own form.
    pub fn poll_persist_into(&mut self, records: &mut impl Records) {
        for id in std::mem::take(&mut self.deleted) {
            records.put(Change::DeleteSet, &set_key(id), [&[], &[]]);
        }
        for record in self.poll_completions() {
            records.put(record.change, &record.key, [&record.value, &[]]);
        }
        for id in std::mem::take(&mut self.unsaved) {
            let accounts = &self.accounts;
            let set = self.sets.get_mut(&id).expect("a set to save is held");
            for place in 0..set.candidates().len() {
                let candidate = &set.candidates()[place];
                if candidate.saved {
                    continue;
                }
                let sender = accounts.name(candidate.sender);
                let proven = candidate.sender.is_authenticated();
                let head = head_of(set, candidate, sender, proven);
                let key = segment_key(id, candidate);
                records.put(Change::PutSegment, &key, [&head, &candidate.payload]);
                set.candidates_mut()[place].saved = true;
                set.is_stored = true;
            }
        }
    }

    /// The completions among what changed since the last call, for a caller that stores segments
    /// in a form of its own and receives them again after a restart.
    pub fn poll_completions(&mut self) -> Vec<Record> {
        let (completed, forgotten) = self.completed.poll();
        let forgotten = forgotten.into_iter().map(|key| Record {
            change: Change::DeleteCompleted,
            key: key.to_vec(),
            value: Vec::new(),
        });
        let completed = completed.into_iter().map(|(key, number)| Record {
            change: Change::PutCompleted,
            key: key.to_vec(),
            value: number.to_be_bytes().to_vec(),
        });
        forgotten.chain(completed).collect()
    }

    /// Takes back what [`Reassembler::poll_persist`] gave, less what was deleted since, before
    /// anything is received. Records that cannot be read are counted and ignored.
    pub fn restore<'a>(&mut self, records: impl IntoIterator<Item = (Change, &'a [u8], &'a [u8])>) {
        let mut segments = Vec::new();
        let mut completed: Vec<(u64, Key)> = Vec::new();
        for (change, key, value) in records {
            let read = match change {
                Change::PutSegment => decode(key, value).map(|stored| segments.push(stored)),
                Change::PutCompleted => <[u8; 8]>::try_from(value)
                    .ok()
                    .zip(Key::try_from(key).ok())
                    .map(|(number, key)| (u64::from_be_bytes(number), key))
                    .filter(|(number, _)| *number <= COMPLETION_NUMBER_MAX)
                    .map(|stored| completed.push(stored)),
                Change::DeleteSet | Change::DeleteCompleted => None,
            };
            self.stats.restore_ignored += u64::from(read.is_none());
        }
        completed.sort_unstable();
        for (number, key) in completed {
            self.completed.restore(key, number);
        }
        // Sets return in the order of their updates, so that eviction and expiry go on as before,
        // and first of all what those sent who began them.
        segments.sort_by_key(|stored| (stored.receipt.now_ms, !stored.is_first_senders));
        for stored in segments {
            let arrival = Arrival {
                header: stored.header,
                payload: stored.payload,
                source: None,
                frame_bytes: stored.frame_bytes,
                saved: Some(stored.serial),
            };
            let is_open = !self.completed.contains(&stored.id.key);
            let kept = is_open && self.restore_segment(stored.id, arrival, &stored.receipt);
            self.stats.restore_ignored += u64::from(!kept);
        }
    }

    /// Puts a stored segment back in its set, within the limits. False where it does not fit.
    fn restore_segment(&mut self, id: SetId, arrival: Arrival<'_>, receipt: &Receipt<'_>) -> bool {
        let hash = arrival.header.entire_message_hash;
        let geometry = Geometry::of(&arrival.header);
        let set = self.sets.get(&id);
        let agrees = set.is_none_or(|set| set.geometry.merge(&geometry).is_some());
        let rivals = set.map_or(&[][..], |set| {
            &set.candidates()[set.range(arrival.header.slot)]
        });
        // Held already, as where the same records are restored twice: one segment is charged once.
        let held = rivals
            .iter()
            .any(|candidate| *candidate.payload == *arrival.payload);
        if key_of(receipt.message_key, &hash) != id.key
            || !agrees
            || held
            || rivals.len() >= self.limits.candidates_per_slot_max
        {
            return false;
        }
        let place = set.is_some().then_some(id);
        let sender = self.accounts.open(receipt.sender, receipt.authenticated);
        let frame_bytes = u32::try_from(arrival.frame_bytes).unwrap_or(u32::MAX);
        let charge = arrival.payload.len() as u64 + u64::from(frame_bytes);
        let fits = self.make_room(sender, charge, place).is_ok();
        if fits {
            if place.is_none() {
                let set = Set::new(hash, receipt.message_key, geometry);
                self.sets.insert(id, Box::new(set));
            }
            self.insert(id, &arrival, frame_bytes, sender, receipt.now_ms);
        }
        self.accounts.release(sender);
        fits
    }
}

/// What names a set.
pub(super) fn set_key(id: SetId) -> Vec<u8> {
    [&id.key[..], &id.number.to_be_bytes()].concat()
}

fn segment_key(id: SetId, candidate: &Candidate) -> Vec<u8> {
    let mut key = set_key(id);
    match candidate.slot {
        Slot::Data(index) => key.extend([0, index]),
        Slot::Parity(index) => key.extend([1, index]),
    }
    key.push(candidate.serial);
    key
}

/// A segment's value, but for its payload at the end.
fn head_of(set: &Set, candidate: &Candidate, sender: Option<&str>, proven: bool) -> Vec<u8> {
    let geometry = &set.geometry;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = flag(sender.is_some(), HAS_SENDER)
        | flag(proven, AUTHENTICATED)
        | flag(set.message_key.is_some(), HAS_MESSAGE_KEY)
        | flag(geometry.data.is_some(), HAS_DATA_COUNT)
        | flag(geometry.parity.is_some(), HAS_PARITY_COUNT)
        | flag(geometry.payload_length.is_some(), HAS_PAYLOAD_LENGTH)
        | flag(
            set.first_sender() == Some(candidate.sender),
            IS_FIRST_SENDERS,
        );
    let sender = sender.unwrap_or_default().as_bytes();
    let message_key = set.message_key.as_deref().unwrap_or_default();
    let mut out = Vec::with_capacity(70 + sender.len() + message_key.len());
    out.extend([VERSION, flags]);
    out.extend(set.hash);
    out.extend(set.updated_ms.to_be_bytes());
    out.extend(geometry.data.unwrap_or(0).to_be_bytes());
    out.extend(geometry.parity.unwrap_or(0).to_be_bytes());
    out.extend(geometry.payload_length.unwrap_or(0).to_be_bytes());
    out.extend(candidate.frame_bytes.to_be_bytes());
    for text in [sender, message_key] {
        out.extend((text.len() as u32).to_be_bytes());
        out.extend(text);
    }
    out
}

/// A stored segment, read in place.
struct Stored<'a> {
    id: SetId,
    serial: u8,
    header: Header,
    frame_bytes: usize,
    payload: &'a [u8],
    receipt: Receipt<'a>,
    is_first_senders: bool,
}

/// Takes fields off the front of a value.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_be_bytes(self.array()?);
        self.take(length as usize)
    }
}

fn decode<'a>(key: &[u8], value: &'a [u8]) -> Option<Stored<'a>> {
    let mut name = Cursor(key);
    let id = SetId {
        key: name.array()?,
        number: u32::from_be_bytes(name.array()?),
    };
    let [class, index, serial] = name.array()?;
    let slot = match class {
        0 => Slot::Data(index),
        1 => Slot::Parity(index),
        _ => return None,
    };
    let mut fields = Cursor(value);
    let [version, flags] = fields.array()?;
    if version != VERSION || !name.0.is_empty() {
        return None;
    }
    let has = |bit: u8| flags & bit != 0;
    let hash: [u8; HASH_LENGTH] = fields.array()?;
    let now_ms = i64::from_be_bytes(fields.array()?);
    let data = has(HAS_DATA_COUNT).then_some(u16::from_be_bytes(fields.array()?));
    let parity = has(HAS_PARITY_COUNT).then_some(u16::from_be_bytes(fields.array()?));
    let length = has(HAS_PAYLOAD_LENGTH).then_some(u64::from_be_bytes(fields.array()?));
    let frame_bytes = u32::from_be_bytes(fields.array()?) as usize;
    let sender = std::str::from_utf8(fields.text()?).ok()?;
    let message_key = fields.text()?;
    let within = |count: Option<u16>, index: u8| count.is_none_or(|c| u16::from(index) < c);
    let sound = match slot {
        Slot::Data(index) => within(data, index),
        Slot::Parity(index) => within(parity, index),
    };
    let total = data.unwrap_or(0).checked_add(parity.unwrap_or(0))?;
    if !sound || total > SEGMENTS_MAX {
        return None;
    }
    Some(Stored {
        id,
        serial,
        header: Header {
            entire_message_hash: hash,
            slot,
            data_segment_count: data,
            parity_segment_count: parity,
            payload_length: length,
        },
        frame_bytes,
        payload: fields.0,
        receipt: Receipt {
            now_ms,
            sender: has(HAS_SENDER).then_some(sender),
            authenticated: has(AUTHENTICATED),
            message_key: has(HAS_MESSAGE_KEY).then_some(message_key),
        },
        is_first_senders: has(IS_FIRST_SENDERS),
    })
}

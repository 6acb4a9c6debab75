//! The records of a channel: those of SDS, and what is stored of messages.
//!
//! | kind | key | value |
//! |---|---|---|
//! | `channel.segment` | key of the message and a number | what a segment of a partial message is received again with |
//! | `channel.parts` | key of the message | the messages that hold the data segments of a whole one, and those that none holds |
//! | `channel.payload` | key of the message | a whole message |
//! | `channel.frame` | message id | what the wire puts around a stored content of ours |
//! | `channel.send` | send id | how far a send of ours has come |
//! | `channel.delivery` | a number, 8 bytes | a message that waits to be handed to the application: its key and hash |
//! | `channel.handover` | - | the number of the one that the application has |
//! | `channel.last-seen` | - | the transport time up to which nothing was missed, in nanoseconds |
//! | `segmentation.completed` | key of the set | a payload that was put together |

use std::hash::{Hash, Hasher};

use crate::maps::HashSet;
use crate::reassemble::Payload;
use crate::sds::{Name, Octets};
use crate::sink::Sink;

pub(super) const SEGMENT: &str = "channel.segment";
pub(super) const PARTS: &str = "channel.parts";
pub(super) const PAYLOAD: &str = "channel.payload";
pub(super) const FRAME: &str = "channel.frame";
pub(super) const SEND: &str = "channel.send";
pub(super) const DELIVERY: &str = "channel.delivery";
pub(super) const HANDOVER: &str = "channel.handover";
pub(super) const LAST_SEEN: &str = "channel.last-seen";
pub(super) const COMPLETED: &str = "segmentation.completed";

/// Up to so many changes are compared with each other: a table of fewer costs more than it saves.
const COMPARED_MAX: usize = 16;

/// Up to which JSON objects of earlier releases are read. Version 1 has no parts of its own.
pub(super) const SCHEMA_VERSION: u32 = 2;

/// One change of what is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What it is.
    pub kind: &'static str,
    /// Which one.
    pub key: RecordKey,
    /// What is stored; `None` deletes.
    pub value: Option<Value>,
}

/// The key of a record, unique in its kind.
#[derive(Debug, Clone)]
pub enum RecordKey {
    /// Of a record of SDS.
    Name(Name),
    /// Of another.
    Bytes(Box<[u8]>),
}

impl RecordKey {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            RecordKey::Name(name) => name.as_bytes(),
            RecordKey::Bytes(bytes) => bytes,
        }
    }
}

impl From<Name> for RecordKey {
    fn from(name: Name) -> Self {
        RecordKey::Name(name)
    }
}

impl From<Box<[u8]>> for RecordKey {
    fn from(bytes: Box<[u8]>) -> Self {
        RecordKey::Bytes(bytes)
    }
}

impl From<Vec<u8>> for RecordKey {
    fn from(bytes: Vec<u8>) -> Self {
        RecordKey::Bytes(bytes.into())
    }
}

impl PartialEq for RecordKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RecordKey {}

impl Hash for RecordKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// The value of a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Bytes, which others may keep too.
    Bytes(Octets),
    /// A whole message.
    Payload(Payload),
}

impl Value {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match self {
            Value::Bytes(bytes) => bytes.len(),
            Value::Payload(payload) => payload.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes them into `out`.
    pub fn write_to(&self, out: &mut impl Sink) {
        match self {
            Value::Bytes(bytes) => out.put(bytes),
            Value::Payload(payload) => payload.write_to(out),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(bytes.into())
    }
}

impl From<Octets> for Value {
    fn from(bytes: Octets) -> Self {
        Value::Bytes(bytes)
    }
}

/// The changes of one transaction; a later one of a record stands over an earlier one.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Record>);

impl Records {
    pub fn put(
        &mut self,
        kind: &'static str,
        key: impl Into<RecordKey>,
        value: Option<impl Into<Value>>,
    ) {
        self.0.push(Record {
            kind,
            key: key.into(),
            value: value.map(Into::into),
        });
    }

    pub fn delete(&mut self, kind: &'static str, key: impl Into<RecordKey>) {
        self.put(kind, key, None::<Value>);
    }

    pub fn into_vec(self) -> Vec<Record> {
        last_of_each(self.0, |record| (record.kind, record.key.as_bytes()))
    }
}

/// Of all changes of a record the last one, in the order of these.
pub(super) fn last_of_each<T>(
    mut changes: Vec<T>,
    name: impl Fn(&T) -> (&'static str, &[u8]),
) -> Vec<T> {
    let is_last: Vec<bool> = if changes.len() <= COMPARED_MAX {
        let is_last = |at: usize| {
            let own = name(&changes[at]);
            changes[at + 1..].iter().all(|later| name(later) != own)
        };
        (0..changes.len()).map(is_last).collect()
    } else {
        let mut later = HashSet::default();
        later.reserve(changes.len());
        let from_the_end = changes
            .iter()
            .rev()
            .map(|change| later.insert(name(change)));
        let mut is_last: Vec<bool> = from_the_end.collect();
        is_last.reverse();
        is_last
    };
    let mut is_last = is_last.into_iter();
    changes.retain(|_| is_last.next().is_some_and(|is_last| is_last));
    changes
}

/// The key of a message: unambiguous, since it says how long the sender id is.
pub fn payload_key(sender_id: &str, send_id: &str) -> Box<[u8]> {
    let length = u32::try_from(sender_id.len()).unwrap_or(u32::MAX);
    let parts: [&[u8]; 3] = [
        &length.to_be_bytes(),
        sender_id.as_bytes(),
        send_id.as_bytes(),
    ];
    parts.concat().into()
}

/// The sender and the send that [`payload_key`] was given.
pub(super) fn split_payload_key(key: &[u8]) -> Option<(&str, &str)> {
    let (length, rest) = key.split_first_chunk()?;
    let (sender_id, send_id) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((
        str::from_utf8(sender_id).ok()?,
        str::from_utf8(send_id).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::{COMPARED_MAX, last_of_each};

    #[test]
    fn the_last_change_of_a_record_counts_in_its_place() {
        for others in [0, COMPARED_MAX] {
            let mut changes = vec![("kind", "a", 1), ("kind", "b", 2), ("other", "a", 3)];
            changes.extend([("kind", "c", 4), ("kind", "a", 5), ("other", "a", 6)]);
            let names: Vec<String> = (0..others).map(|number| number.to_string()).collect();
            changes.extend(names.iter().map(|name| ("kind", &**name, 7)));
            let kept = last_of_each(changes, |(kind, key, _)| (*kind, key.as_bytes()));
            let kept: Vec<_> = kept.iter().map(|(_, _, value)| *value).collect();
            assert_eq!(kept[..4], [2, 4, 5, 6]);
            assert_eq!(kept[4..], vec![7; others]);
        }
    }
}

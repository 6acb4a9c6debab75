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
//! | `segmentation.completed` | key of the set | a payload that was put together |

use std::hash::{Hash, Hasher};

use hashlink::LinkedHashMap;

use crate::reassemble::Payload;
use crate::sds::{self, Name};
use crate::sink::Sink;

pub(super) const SEGMENT: &str = "channel.segment";
pub(super) const PARTS: &str = "channel.parts";
pub(super) const PAYLOAD: &str = "channel.payload";
pub(super) const FRAME: &str = "channel.frame";
pub(super) const SEND: &str = "channel.send";
pub(super) const DELIVERY: &str = "channel.delivery";
pub(super) const HANDOVER: &str = "channel.handover";
pub(super) const COMPLETED: &str = "segmentation.completed";

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
    /// Of SDS, or bytes that others keep too.
    Sds(sds::Value),
    /// A whole message.
    Payload(Payload),
}

impl Value {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match self {
            Value::Sds(value) => value.len(),
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
            Value::Sds(value) => out.put(value),
            Value::Payload(payload) => payload.write_to(out),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Sds(sds::Value::Fields(bytes))
    }
}

/// The changes of one transaction; a later one of a record stands over an earlier one.
#[derive(Debug, Default)]
pub(super) struct Records(LinkedHashMap<(&'static str, RecordKey), Option<Value>>);

impl Records {
    pub fn put(
        &mut self,
        kind: &'static str,
        key: impl Into<RecordKey>,
        value: Option<impl Into<Value>>,
    ) {
        self.0.insert((kind, key.into()), value.map(Into::into));
    }

    pub fn delete(&mut self, kind: &'static str, key: impl Into<RecordKey>) {
        self.0.insert((kind, key.into()), None);
    }

    pub fn into_vec(self) -> Vec<Record> {
        let records = self.0.into_iter();
        records
            .map(|((kind, key), value)| Record { kind, key, value })
            .collect()
    }
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

//! The stored form of records whose bytes stand in others, and that of earlier releases, a JSON object.
//!
//! A segment of a partial message names the message that brought it, and a whole message those that brought
//! its data segments. Bytes that stand nowhere else follow such a record.

use serde::Deserialize;

use super::json_record::{decode, hash_of};
use super::records::payload_key;
use super::restore_error::RestoreError;
use crate::sds::fields::{Reader, Writer};
use crate::sds::{Name, Octets, VERSION};
use crate::wire::sds::WireFormat as SdsWireFormat;
use crate::wire::segment::{HASH_LENGTH, WireFormat};

const SEGMENT_CALLED: &str = "SegmentRecord";
const PARTS_CALLED: &str = "PartsRecord";

/// How a message and the segment in it are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireFormats {
    pub sds: SdsWireFormat,
    pub segment: WireFormat,
}

/// A segment of a partial message, with what it has to be received with again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRecord {
    pub sender_id: String,
    pub send_id: Name,
    /// Whether the identity of its sender is proven.
    pub authenticated: bool,
    pub wire_formats: WireFormats,
    /// The message that brought it; `None` where the bytes of the segment follow the record.
    pub message_id: Option<Name>,
    /// Its place in the order of arrival.
    pub serial: u64,
}

/// A whole message by the messages that brought its data segments, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsRecord {
    pub parts: Vec<Part>,
    /// Of the whole message, in bytes.
    pub length: usize,
    /// Keccak-256 of it.
    pub payload_hash: [u8; HASH_LENGTH],
    pub wire_formats: WireFormats,
}

/// Where a data segment of a whole message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// In the message of this id.
    In(Name),
    /// Among the bytes that follow the record, so many of them.
    Own(usize),
}

impl SegmentRecord {
    /// The key of its message.
    pub fn key_of_message(&self) -> Box<[u8]> {
        payload_key(&self.sender_id, &self.send_id)
    }

    /// What [`SegmentRecord::decode`] reads, before bytes that follow it.
    pub fn encode(&self, own: &[u8]) -> Octets {
        let mut record = Writer::new();
        record
            .bytes(self.sender_id.as_bytes())
            .bytes(self.send_id.as_bytes())
            .byte(u8::from(self.authenticated));
        self.wire_formats.write(&mut record);
        record
            .optional(self.message_id.as_ref().map(Name::as_bytes))
            .long(self.serial)
            .seal_before(&[own])
    }

    /// Reads a stored segment; gives the bytes that follow it too.
    ///
    /// # Errors
    /// [`RestoreError`] where it is damaged, or of a newer release.
    pub fn decode(value: &[u8]) -> Result<(Self, &[u8]), RestoreError> {
        read(value, SEGMENT_CALLED, Self::of_fields, Self::of_json)
    }

    fn of_fields(fields: &mut Reader<'_>) -> Option<Self> {
        Some(SegmentRecord {
            sender_id: fields.text()?.as_ref().to_owned(),
            send_id: fields.name()?,
            authenticated: fields.byte()? != 0,
            wire_formats: WireFormats::read(fields)?,
            message_id: fields.optional()?.map(Name::from_wire),
            serial: fields.long()?,
        })
    }

    fn of_json(record: JsonSegment) -> Option<Self> {
        Some(SegmentRecord {
            sender_id: record.sender_id,
            send_id: Name::new(&record.send_id),
            authenticated: record.authenticated,
            wire_formats: WireFormats::named(&record.sds_wire_format, &record.segment_wire_format)?,
            message_id: named(&record.message_id),
            serial: record.serial,
        })
    }
}

impl PartsRecord {
    /// The messages that hold parts of it.
    pub fn message_ids(&self) -> impl Iterator<Item = &Name> {
        self.parts.iter().filter_map(|part| match part {
            Part::In(message_id) => Some(message_id),
            Part::Own(_) => None,
        })
    }

    /// What [`PartsRecord::decode`] reads, before the bytes of the parts that no message holds.
    pub fn encode(&self, own: &[&[u8]]) -> Octets {
        let mut record = Writer::new();
        record.long(self.length as u64).bytes(&self.payload_hash);
        self.wire_formats.write(&mut record);
        record.int(self.parts.len() as u32);
        for part in &self.parts {
            match part {
                Part::In(message_id) => record.optional(Some(message_id.as_bytes())),
                Part::Own(length) => record.optional(None).long(*length as u64),
            };
        }
        record.seal_before(own)
    }

    /// Reads a stored message; gives the bytes that follow it too.
    ///
    /// # Errors
    /// [`RestoreError`] where it is damaged, or of a newer release.
    pub fn decode(value: &[u8]) -> Result<(Self, &[u8]), RestoreError> {
        read(value, PARTS_CALLED, Self::of_fields, Self::of_json)
    }

    fn of_fields(fields: &mut Reader<'_>) -> Option<Self> {
        let length = usize::try_from(fields.long()?).ok()?;
        let payload_hash = fields.bytes()?.try_into().ok()?;
        let wire_formats = WireFormats::read(fields)?;
        let count = fields.int()?;
        let parts = (0..count).map(|_| match fields.optional()? {
            Some(message_id) => Some(Part::In(Name::from_wire(message_id))),
            None => usize::try_from(fields.long()?).ok().map(Part::Own),
        });
        Some(PartsRecord {
            parts: parts.collect::<Option<_>>()?,
            length,
            payload_hash,
            wire_formats,
        })
    }

    fn of_json(record: JsonParts) -> Option<Self> {
        let mut own_lengths = record.own_lengths.into_iter();
        let parts = record.message_ids.iter().map(|message_id| {
            named(message_id).map_or_else(
                || Part::Own(own_lengths.next().unwrap_or_default()),
                Part::In,
            )
        });
        Some(PartsRecord {
            parts: parts.collect(),
            length: record.length,
            payload_hash: hash_of(&record.payload_hash)?,
            wire_formats: WireFormats::named(&record.sds_wire_format, &record.segment_wire_format)?,
        })
    }
}

impl WireFormats {
    fn write(self, record: &mut Writer) {
        record
            .bytes(self.sds.name().as_bytes())
            .bytes(self.segment.name().as_bytes());
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        Self::named(&fields.text()?, &fields.text()?)
    }

    fn named(sds: &str, segment: &str) -> Option<Self> {
        Some(WireFormats {
            sds: sds.parse().ok()?,
            segment: segment.parse().ok()?,
        })
    }
}

/// The id that a text is, where it is one.
fn named(message_id: &str) -> Option<Name> {
    (!message_id.is_empty()).then(|| Name::new(message_id))
}

fn read<'a, Record, Json: serde::de::DeserializeOwned>(
    value: &'a [u8],
    called: &'static str,
    of_fields: fn(&mut Reader<'a>) -> Option<Record>,
    of_json: fn(Json) -> Option<Record>,
) -> Result<(Record, &'a [u8]), RestoreError> {
    let found = match value.first() {
        Some(b'{') => {
            let (head, own) = parted(value);
            of_json(decode(head, called)?).map(|record| (record, own))
        }
        Some(&version) if version > VERSION => Err(crate::sds::RestoreError::Version(version))?,
        _ => Reader::ahead(value)
            .and_then(|(mut fields, own)| of_fields(&mut fields).map(|record| (record, own))),
    };
    found.ok_or(RestoreError::Damaged(called))
}

/// A JSON object and the bytes that follow it behind a zero, of which it holds none.
fn parted(value: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(0, value).unwrap_or(value.len());
    (&value[..end], value.get(end + 1..).unwrap_or_default())
}

#[derive(Deserialize)]
struct JsonSegment {
    sender_id: String,
    send_id: String,
    authenticated: bool,
    sds_wire_format: String,
    segment_wire_format: String,
    /// Empty for none.
    #[serde(default)]
    message_id: String,
    #[serde(default)]
    serial: u64,
}

#[derive(Deserialize)]
struct JsonParts {
    /// Empty for a data segment whose bytes follow.
    message_ids: Vec<String>,
    length: usize,
    payload_hash: String,
    sds_wire_format: String,
    segment_wire_format: String,
    #[serde(default)]
    own_lengths: Vec<usize>,
}

//! SegmentMessageProto on its three wires, read in place and written around the payload.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::protobuf::Fields;
pub use super::protobuf::ProtobufError;

/// Segments of one payload, data and parity: the field of both erasure codes has 256 elements.
pub const TOTAL_SEGMENTS_MAX: u32 = 256;

/// Bytes of a Keccak-256 hash.
pub const HASH_LENGTH: usize = 32;

/// What the longest header takes on any wire: 34 for the hash, 11 for a length, 3 for each of four
/// numbers below 2^14, 2 for the parity mark, 6 for the payload's key and length.
pub const OVERHEAD_BYTES_MAX: usize = 65;

/// Which layout a segment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFormat {
    /// Specification 002: every payload is wrapped, counts stand on every segment.
    Raw,
    /// Specifications 000 and 001: small payloads travel unwrapped, parity means no data count.
    Draft,
    /// LIP-243: the payload's length travels too.
    Lip243,
}

impl WireFormat {
    /// The name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            WireFormat::Raw => "raw",
            WireFormat::Draft => "draft",
            WireFormat::Lip243 => "lip243",
        }
    }
}

impl fmt::Display for WireFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for WireFormat {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "raw" => Ok(WireFormat::Raw),
            "draft" => Ok(WireFormat::Draft),
            "lip243" => Ok(WireFormat::Lip243),
            _ => Err(()),
        }
    }
}

/// The place of a segment among its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// A part of the payload.
    Data(u8),
    /// A parity shard.
    Parity(u8),
}

/// What a segment says of itself; `None` where its wire does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Keccak-256 of the entire payload.
    pub entire_message_hash: [u8; HASH_LENGTH],
    /// Its class and index.
    pub slot: Slot,
    /// Data segments of the payload; `None` on a draft parity segment.
    pub data_segment_count: Option<u16>,
    /// Parity segments of the payload; `None` on a draft data segment.
    pub parity_segment_count: Option<u16>,
    /// Length of the entire payload (lip243 only).
    pub payload_length: Option<u64>,
}

/// A validated segment that borrows its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The fields beside the payload.
    pub header: Header,
    /// One data or parity shard.
    pub payload: &'a [u8],
}

/// What received bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received<'a> {
    /// A segment.
    Segment(Segment<'a>),
    /// A payload that `draft` sent unmodified.
    WholeMessage(&'a [u8]),
}

/// Why bytes are no valid segment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// Not protobuf, or a field of another type.
    #[error("undecodable as a {wire_format} segment: {source}")]
    Undecodable {
        /// The wire it was read as.
        wire_format: WireFormat,
        /// What is wrong.
        source: ProtobufError,
    },
    /// The hash has another length.
    #[error("entire_message_hash has {length} bytes: it must have 32")]
    HashLength {
        /// Its length.
        length: usize,
    },
    /// There must be a data segment.
    #[error("the data segment count is {count}: it must be at least {minimum}")]
    DataCount {
        /// The count.
        count: u32,
        /// The least one allowed.
        minimum: u32,
    },
    /// More segments than one payload may have.
    #[error("{data} data and {parity} parity segments: together they must be at most {limit}")]
    TotalSegments {
        /// Data segments claimed.
        data: u32,
        /// Parity segments claimed.
        parity: u32,
        /// The most accepted.
        limit: u32,
    },
    /// The index lies outside its class.
    #[error("{class} segment index {index} is not below its count, {count}")]
    Index {
        /// "data" or "parity".
        class: &'static str,
        /// The index.
        index: u32,
        /// The count it must stay below.
        count: u32,
    },
    /// An index of the other class is set: no other combinations are permitted.
    #[error("a {class} segment carries {field} = {value}: it must be 0")]
    OtherClass {
        /// The class of the segment.
        class: &'static str,
        /// The field that must not be set.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

impl SegmentError {
    /// Whether the bytes could not even be read, as opposed to read and found invalid.
    pub fn is_undecodable(&self) -> bool {
        matches!(self, SegmentError::Undecodable { .. })
    }
}

/// The fields of all three layouts before validation, absent ones at their default.
#[derive(Default)]
struct RawFields<'a> {
    hash: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
    payload_length: u64,
    data_index: u32,
    data_count: u32,
    parity_index: u32,
    parity_count: u32,
    is_parity: bool,
}

/// Reads and validates one segment (specification 002, Validation; 001, Validation).
///
/// Counts up to `max_total_segments` inclusive are accepted: both readings of the limit are in use.
/// On `draft`, bytes that do not parse, that lack the hash or the payload, or whose hash does not
/// have 32 bytes, are a whole message.
///
/// # Errors
/// [`SegmentError`] with the value and the limit; no input panics.
pub fn decode(
    bytes: &[u8],
    wire_format: WireFormat,
    max_total_segments: u32,
) -> Result<Received<'_>, SegmentError> {
    let fields = match read_fields(bytes, wire_format) {
        Ok(fields) => fields,
        Err(_) if wire_format == WireFormat::Draft => return Ok(Received::WholeMessage(bytes)),
        Err(source) => {
            return Err(SegmentError::Undecodable {
                wire_format,
                source,
            });
        }
    };
    let hash = fields.hash.unwrap_or_default();
    let Ok(entire_message_hash) = <[u8; HASH_LENGTH]>::try_from(hash) else {
        if wire_format == WireFormat::Draft {
            return Ok(Received::WholeMessage(bytes));
        }
        return Err(SegmentError::HashLength { length: hash.len() });
    };
    if wire_format == WireFormat::Draft && fields.payload.is_none() {
        return Ok(Received::WholeMessage(bytes));
    }
    let header = validate(
        &fields,
        entire_message_hash,
        wire_format,
        max_total_segments,
    )?;
    Ok(Received::Segment(Segment {
        header,
        payload: fields.payload.unwrap_or_default(),
    }))
}

/// The hash that bytes carry which are no valid segment, for the log: field 1 on every wire.
pub fn claimed_hash(bytes: &[u8]) -> Option<[u8; HASH_LENGTH]> {
    let mut fields = Fields::new(bytes);
    while let Ok(Some((field, value))) = fields.next() {
        if field == 1 {
            return value.bytes(field).ok()?.try_into().ok();
        }
    }
    None
}

fn read_fields(bytes: &[u8], wire_format: WireFormat) -> Result<RawFields<'_>, ProtobufError> {
    let mut out = RawFields::default();
    let mut index = 0;
    let mut fields = Fields::new(bytes);
    while let Some((field, value)) = fields.next()? {
        match (wire_format, field) {
            (_, 1) => out.hash = Some(value.bytes(field)?),
            (WireFormat::Lip243, 2) => out.payload_length = value.varint(field)?,
            (WireFormat::Lip243, 3) => index = value.uint32(field)?,
            (WireFormat::Lip243, 4) => out.data_count = value.uint32(field)?,
            (WireFormat::Lip243, 5) => out.parity_count = value.uint32(field)?,
            (WireFormat::Lip243, 6) => out.is_parity = value.varint(field)? != 0,
            (WireFormat::Lip243, 7) => out.payload = Some(value.bytes(field)?),
            (WireFormat::Lip243, _) => {}
            (_, 2) => out.data_index = value.uint32(field)?,
            (_, 3) => out.data_count = value.uint32(field)?,
            (_, 4) => out.payload = Some(value.bytes(field)?),
            (_, 5) => out.parity_index = value.uint32(field)?,
            (_, 6) => out.parity_count = value.uint32(field)?,
            (WireFormat::Raw, 7) => out.is_parity = value.varint(field)? != 0,
            _ => {}
        }
    }
    match wire_format {
        WireFormat::Raw => {}
        WireFormat::Draft => out.is_parity = out.data_count == 0,
        WireFormat::Lip243 if out.is_parity => out.parity_index = index,
        WireFormat::Lip243 => out.data_index = index,
    }
    Ok(out)
}

fn validate(
    fields: &RawFields<'_>,
    entire_message_hash: [u8; HASH_LENGTH],
    wire_format: WireFormat,
    max_total_segments: u32,
) -> Result<Header, SegmentError> {
    let limit = max_total_segments.min(TOTAL_SEGMENTS_MAX);
    let (data, parity) = (fields.data_count, fields.parity_count);
    let draft = wire_format == WireFormat::Draft;
    // 001: segments_count >= 2 on data segments; 002: data_segment_count >= 1 on all.
    let minimum = if draft { 2 } else { 1 };
    if data < minimum && !(draft && fields.is_parity) {
        return Err(SegmentError::DataCount {
            count: data,
            minimum,
        });
    }
    if u64::from(data) + u64::from(parity) > u64::from(limit) {
        return Err(SegmentError::TotalSegments {
            data,
            parity,
            limit,
        });
    }
    let (class, index, count) = if fields.is_parity {
        ("parity", fields.parity_index, parity)
    } else {
        ("data", fields.data_index, data)
    };
    if index >= count {
        return Err(SegmentError::Index {
            class,
            index,
            count,
        });
    }
    let other = if fields.is_parity {
        ("data_segment_index", fields.data_index)
    } else if draft && parity != 0 {
        ("parity_segments_count", parity)
    } else {
        ("parity_segment_index", fields.parity_index)
    };
    if other.1 != 0 {
        return Err(SegmentError::OtherClass {
            class,
            field: other.0,
            value: other.1,
        });
    }
    // Every number is at most 256 and every index below its count from here on.
    Ok(Header {
        entire_message_hash,
        slot: if fields.is_parity {
            Slot::Parity(index as u8)
        } else {
            Slot::Data(index as u8)
        },
        data_segment_count: (data > 0).then_some(data as u16),
        parity_segment_count: (!draft || fields.is_parity).then_some(parity as u16),
        payload_length: (wire_format == WireFormat::Lip243).then_some(fields.payload_length),
    })
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;

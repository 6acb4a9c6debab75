//! Why a row carries no segment, in a fixed set of sentences: rows are counted by them, and nothing
//! that a peer writes may add to their number.

use shardwire_core::wire::sds::SdsDecodeError;
use shardwire_core::wire::segment::{self, Received, SegmentError, WireFormat};

/// What is said of bytes that are no Waku message.
pub const NO_WAKU_MESSAGE: &str = "no Waku message: not protobuf of 14/WAKU2-MESSAGE";

/// What is said of an SDS message that a receiver drops.
pub const NO_SDS_KIND: &str = "no SDS message: neither a lamport timestamp nor content is set";

/// What is said of bytes that are no SDS message.
pub fn no_sds_message(error: &SdsDecodeError) -> &'static str {
    match error {
        SdsDecodeError::Protobuf(_) => "no SDS message: not protobuf of one",
        SdsDecodeError::MissingField { .. } => {
            "no SDS message: a field that nim-sds always writes is absent"
        }
    }
}

/// What is said of bytes that are no segment: where they are one of another wire, of which.
pub fn no_segment(
    bytes: &[u8],
    error: &SegmentError,
    wire_format: WireFormat,
    max_total_segments: u32,
) -> &'static str {
    let other = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243]
        .into_iter()
        .filter(|other| *other != wire_format)
        .find(|other| {
            matches!(
                segment::decode(bytes, *other, max_total_segments),
                Ok(Received::Segment(_))
            )
        });
    match other {
        Some(WireFormat::Raw) => {
            "no segment of this wire, but one of raw: is the wire format right?"
        }
        Some(WireFormat::Draft) => {
            "no segment of this wire, but one of draft: is the wire format right?"
        }
        Some(WireFormat::Lip243) => {
            "no segment of this wire, but one of lip243: is the wire format right?"
        }
        None => match error {
            SegmentError::Undecodable { .. } => "no segment: not protobuf of one",
            SegmentError::HashLength { .. } => "no segment: entire_message_hash has not 32 bytes",
            SegmentError::DataCount { .. } => "no segment: it announces too few data segments",
            SegmentError::TotalSegments { .. } => "no segment: it announces too many segments",
            SegmentError::Index { .. } => "no segment: its index is not below its count",
            SegmentError::OtherClass { .. } => "no segment: an index of the other class is set",
        },
    }
}

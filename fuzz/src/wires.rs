//! Every decoder of a peer's bytes.

use prost::Message as _;
use shardwire_core::bloom::BloomFilter;
use shardwire_core::erasure::ErasureCode;
use shardwire_core::keccak::keccak256;
use shardwire_core::reassemble::{Change, Limits, Outcome, Reassembler, Receipt};
use shardwire_core::wire::proto::{segment_draft, segment_lip243, segment_raw};
use shardwire_core::wire::segment::{self, HASH_LENGTH, Received, Slot, WireFormat};
use shardwire_core::wire::{file, sds, waku, waku_json};

use crate::receiver::{receiver, settings};

const SEGMENT_WIRES: [WireFormat; 3] = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243];

/// Segments of the three wires: read as prost reads them, valid where they are accepted.
pub fn segment(bytes: &[u8]) {
    segment::claimed_hash(bytes);
    for wire_format in SEGMENT_WIRES {
        let readable = match wire_format {
            WireFormat::Raw => segment_raw::SegmentMessageProto::decode(bytes).is_ok(),
            WireFormat::Draft => segment_draft::SegmentMessageProto::decode(bytes).is_ok(),
            WireFormat::Lip243 => segment_lip243::SegmentMessageProto::decode(bytes).is_ok(),
        };
        match segment::decode(bytes, wire_format, 256) {
            Ok(Received::WholeMessage(payload)) => {
                assert_eq!((wire_format, payload), (WireFormat::Draft, bytes));
            }
            Err(error) => {
                assert_eq!(error.is_undecodable(), !readable, "{wire_format}: {error}");
                assert!(!error.is_undecodable() || wire_format != WireFormat::Draft);
            }
            Ok(Received::Segment(found)) => {
                assert!(readable, "{wire_format}: prost refuses it");
                check_valid(&found, wire_format);
                let again = found.header.encode(wire_format, found.payload);
                let decoded = segment::decode(&again, wire_format, 256);
                assert_eq!(decoded, Ok(Received::Segment(found)), "{wire_format}");
                let length = found
                    .header
                    .encoded_length(wire_format, found.payload.len());
                assert_eq!(length, again.len());
            }
        }
    }
}

fn check_valid(found: &segment::Segment<'_>, wire_format: WireFormat) {
    let header = &found.header;
    let data = header.data_segment_count.unwrap_or(0);
    let parity = header.parity_segment_count.unwrap_or(0);
    assert!(data + parity <= 256);
    match header.slot {
        Slot::Data(index) => assert!(u16::from(index) < data),
        Slot::Parity(index) => assert!(u16::from(index) < parity),
    }
    let length_told = header.payload_length.is_some();
    assert_eq!(length_told, wire_format == WireFormat::Lip243);
}

/// SDS messages of both wires: what is written of what was read reads the same.
pub fn sds(bytes: &[u8]) {
    for wire_format in [sds::WireFormat::Spec, sds::WireFormat::Nim] {
        let Ok(message) = sds::Message::decode(bytes, wire_format) else {
            continue;
        };
        message.kind();
        if let Ok(written) = message.encode(wire_format) {
            assert_eq!(sds::Message::decode(&written, wire_format), Ok(message));
        }
    }
}

/// Waku messages, their hash and the shard of their topic.
pub fn waku(bytes: &[u8]) {
    if let Ok(topic) = std::str::from_utf8(bytes) {
        let shards = u32::from(bytes.len() as u16 % 9);
        if let Ok(shard) = waku::shard_of(topic, shards) {
            assert!(shard < shards);
        }
    }
    let Ok(message) = waku::decode(bytes) else {
        return;
    };
    let written = waku::encode(&message);
    assert_eq!(waku::decode(&written), Ok(message.clone()));
    let _ = waku::shard_of(&message.content_topic, 8);
    let meta = message.meta.clone().unwrap_or_default();
    waku::message_hash(
        "/waku/2/rs/1/0",
        &message.payload,
        &message.content_topic,
        &meta,
        message.timestamp,
    );
}

/// Answers of REST interfaces: elements are found however they come in, and a message that is read
/// is read again as it was written.
pub fn waku_json(bytes: &[u8]) {
    let whole = elements(bytes, bytes.len().max(1));
    assert_eq!(elements(bytes, 1), whole);
    for element in whole.unwrap_or_default() {
        let Some(message) = waku_json::JsonMessage::parse(&element) else {
            continue;
        };
        let (Some(payload), Some(meta)) = (message.payload(), message.meta()) else {
            continue;
        };
        let (topic, timestamp_ns) = (message.content_topic(), message.timestamp_ns());
        let written = waku_json::encode(&payload, topic, timestamp_ns, &meta, message.ephemeral());
        let again = waku_json::JsonMessage::parse(&written).expect("what we write is a message");
        assert_eq!((again.payload(), again.meta()), (Some(payload), Some(meta)));
        assert_eq!(
            (again.content_topic(), again.timestamp_ns()),
            (topic, timestamp_ns)
        );
        assert_eq!(again.ephemeral(), message.ephemeral());
    }
    let _ = waku_json::StoreAnswer::parse(bytes);
}

/// Messages of file transfers: what is read is within its limits, and read again as it is written.
pub fn file(bytes: &[u8]) {
    // Cases need not begin with what all messages begin with.
    for message in [bytes.to_vec(), [&file::MAGIC, bytes].concat()] {
        let Ok((read, stamp)) = file::read(&message) else {
            continue;
        };
        let again = match &read {
            file::Message::Manifest(manifest, transfer_id) => {
                let (again, written_id) =
                    file::encode_manifest(manifest, stamp).expect("what is read is in its limits");
                // Another encoding of the same offer is another transfer.
                if written_id != *transfer_id {
                    continue;
                }
                again
            }
            file::Message::Chunk(chunk) => file::encode_chunk(chunk.clone(), stamp),
            file::Message::Status(status) => file::encode_status(status, stamp),
        };
        assert_eq!(file::read(&again), Ok((read, stamp)));
    }
}

fn elements(bytes: &[u8], chunk: usize) -> Result<Vec<Vec<u8>>, waku_json::JsonError> {
    let mut reader = waku_json::ElementReader::new(1 << 10);
    let mut found = Vec::new();
    for part in bytes.chunks(chunk) {
        reader.push(part);
        while let Some(element) = reader.next_element()? {
            found.push(element.to_vec());
        }
    }
    Ok(found)
}

/// Serialized bloom filters of both wires, sized by the input's first byte.
pub fn bloom(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else {
        return;
    };
    for wire_format in [sds::WireFormat::Spec, sds::WireFormat::Nim] {
        let capacity = 1 + u64::from(*size);
        let mut filter =
            BloomFilter::new(capacity, 0.01, wire_format).expect("the parameters are valid");
        let reviewed = filter.review(bytes, ["a", "b", ""]);
        if filter.load(bytes) {
            let held = ["a", "b", ""].map(|id| filter.contains(id));
            let held: Vec<usize> = (0..3).filter(|place| held[*place]).collect();
            assert_eq!(
                reviewed,
                Some(held),
                "what is loaded holds what was reviewed"
            );
            let written = filter.to_bytes();
            assert_eq!(written.len(), filter.size_bytes());
            assert!(filter.load(&written), "a filter reads itself");
        }
        filter.insert(b"a");
        assert!(filter.contains("a"));
    }
}

/// Stored records of any content: lengths and contents follow each other, a byte of length each.
pub fn restore(bytes: &[u8]) {
    let limits = Limits {
        sets_max: 3,
        sets_per_sender_max: 2,
        buffered_bytes_max: 2_000,
        buffered_bytes_per_sender_max: 1_000,
        unauthenticated_share: 0.5,
        candidates_per_slot_max: 2,
        completed_remembered_max: 2,
        timeout_ms: 1_000,
        work_budget: 2,
    };
    let mut reassembler = receiver(settings(WireFormat::Raw, ErasureCode::Leopard, 64), limits);
    let mut rest = bytes;
    let mut records = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<3>() {
        let change = match header[0] % 4 {
            0 => Change::PutCompleted,
            1 => Change::DeleteSet,
            _ => Change::PutSegment,
        };
        let (key, after) = after.split_at(usize::from(header[1]).min(after.len()));
        let (value, after) = after.split_at(usize::from(header[2]).min(after.len()));
        records.push((change, key, value));
        rest = after;
    }
    reassembler.restore(records.iter().copied());
    check_small(&reassembler, &limits);
    // Segments come for what was restored, and what is saved again comes back again.
    let mut hash = [0; HASH_LENGTH];
    for (_, _, value) in &records {
        if let Some(stored) = value.get(2..).and_then(<[u8]>::first_chunk) {
            hash = *stored;
        }
        let header = segment::Header {
            entire_message_hash: hash,
            slot: Slot::Data(1),
            data_segment_count: Some(2),
            parity_segment_count: Some(1),
            payload_length: None,
        };
        let bytes = header.encode(WireFormat::Raw, b"late");
        if let Outcome::Reconstructed(found) = reassembler.receive(&bytes, &Receipt::default()) {
            assert_eq!(
                keccak256(&found.payload.to_vec()),
                found.entire_message_hash
            );
        }
        check_small(&reassembler, &limits);
    }
    reassembler.poll_persist();
    reassembler.expire(i64::MAX);
    assert_eq!(reassembler.stats().bytes_held, 0);
}

fn check_small(reassembler: &Reassembler, limits: &Limits) {
    let stats = reassembler.stats();
    assert!(stats.sets_held <= limits.sets_max, "{stats:?}");
    assert!(stats.bytes_held <= limits.buffered_bytes_max, "{stats:?}");
    assert!(stats.completed_remembered <= limits.completed_remembered_max as u64);
}

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::wire::proto::{segment_draft, segment_lip243, segment_raw};
use crate::wire::protobuf::put_bytes_field;

const WIRES: [WireFormat; 3] = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243];

fn headers(wire_format: WireFormat) -> impl Strategy<Value = Header> {
    (
        any::<[u8; 32]>(),
        2u16..=200,
        1u16..=56,
        any::<bool>(),
        any::<u8>(),
        any::<u64>(),
    )
        .prop_map(
            move |(entire_message_hash, data, parity, is_parity, index, length)| {
                let index = |count: u16| (u16::from(index) % count) as u8;
                let draft = wire_format == WireFormat::Draft;
                Header {
                    entire_message_hash,
                    slot: if is_parity {
                        Slot::Parity(index(parity))
                    } else {
                        Slot::Data(index(data))
                    },
                    data_segment_count: (!(draft && is_parity)).then_some(data),
                    parity_segment_count: (!draft || is_parity).then_some(parity),
                    payload_length: (wire_format == WireFormat::Lip243).then_some(length),
                }
            },
        )
}

fn by_prost(header: &Header, wire_format: WireFormat, payload: &[u8]) -> Vec<u8> {
    let hash = header.entire_message_hash.to_vec();
    let data = u32::from(header.data_segment_count.unwrap_or(0));
    let parity = u32::from(header.parity_segment_count.unwrap_or(0));
    let (data_index, parity_index, is_parity) = match header.slot {
        Slot::Data(index) => (u32::from(index), 0, false),
        Slot::Parity(index) => (0, u32::from(index), true),
    };
    match wire_format {
        WireFormat::Raw => segment_raw::SegmentMessageProto {
            entire_message_hash: hash,
            data_segment_index: data_index,
            data_segment_count: data,
            payload: payload.to_vec(),
            parity_segment_index: parity_index,
            parity_segment_count: parity,
            is_parity,
        }
        .encode_to_vec(),
        WireFormat::Draft => segment_draft::SegmentMessageProto {
            entire_message_hash: hash,
            index: data_index,
            segments_count: data,
            payload: payload.to_vec(),
            parity_segment_index: parity_index,
            parity_segments_count: parity,
        }
        .encode_to_vec(),
        WireFormat::Lip243 => segment_lip243::SegmentMessageProto {
            original_payload_hash: hash,
            original_payload_length: header.payload_length.unwrap_or(0),
            index: data_index + parity_index,
            data_segment_count: data,
            parity_segment_count: parity,
            is_parity,
            segment_payload: payload.to_vec(),
        }
        .encode_to_vec(),
    }
}

proptest! {
    #[test]
    fn encodes_as_prost_does_and_decodes_in_place(
        (wire_format, header) in prop::sample::select(WIRES.to_vec())
            .prop_flat_map(|wire_format| (Just(wire_format), headers(wire_format))),
        payload in vec(any::<u8>(), 1..400),
    ) {
        let encoded = header.encode(wire_format, &payload);
        prop_assert_eq!(&encoded, &by_prost(&header, wire_format, &payload));
        prop_assert_eq!(encoded.len(), header.encoded_length(wire_format, payload.len()));
        prop_assert!(encoded.len() - payload.len() <= OVERHEAD_BYTES_MAX);
        let received = decode(&encoded, wire_format, 256).unwrap();
        prop_assert_eq!(received, Received::Segment(Segment { header, payload: &payload }));
    }

    #[test]
    fn accepts_and_refuses_what_prost_does(
        (wire_format, header) in prop::sample::select(WIRES.to_vec())
            .prop_flat_map(|wire_format| (Just(wire_format), headers(wire_format))),
        payload in vec(any::<u8>(), 0..60),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in any::<prop::sample::Index>(),
        keep in any::<bool>(),
    ) {
        let mut bytes = header.encode(wire_format, &payload);
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if !keep {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        let fields = read_fields(&bytes, wire_format);
        match wire_format {
            WireFormat::Raw => {
                let expected = segment_raw::SegmentMessageProto::decode(bytes.as_slice());
                prop_assert_eq!(fields.is_ok(), expected.is_ok());
                if let (Ok(fields), Ok(expected)) = (fields, expected) {
                    prop_assert_eq!(fields.payload.unwrap_or_default(), expected.payload);
                    prop_assert_eq!(fields.data_index, expected.data_segment_index);
                    prop_assert_eq!(fields.data_count, expected.data_segment_count);
                    prop_assert_eq!(fields.parity_index, expected.parity_segment_index);
                    prop_assert_eq!(fields.parity_count, expected.parity_segment_count);
                    prop_assert_eq!(fields.is_parity, expected.is_parity);
                }
            }
            WireFormat::Draft => {
                let expected = segment_draft::SegmentMessageProto::decode(bytes.as_slice());
                prop_assert_eq!(fields.is_ok(), expected.is_ok());
            }
            WireFormat::Lip243 => {
                let expected = segment_lip243::SegmentMessageProto::decode(bytes.as_slice());
                prop_assert_eq!(fields.is_ok(), expected.is_ok());
                if let (Ok(fields), Ok(expected)) = (fields, expected) {
                    prop_assert_eq!(fields.payload_length, expected.original_payload_length);
                }
            }
        }
    }

    #[test]
    fn never_panics(bytes in vec(any::<u8>(), 0..200)) {
        for wire_format in WIRES {
            let _ = decode(&bytes, wire_format, 256);
        }
    }
}

fn raw(data_index: u32, data: u32, parity_index: u32, parity: u32, is_parity: bool) -> Vec<u8> {
    segment_raw::SegmentMessageProto {
        entire_message_hash: vec![7; 32],
        data_segment_index: data_index,
        data_segment_count: data,
        payload: vec![1],
        parity_segment_index: parity_index,
        parity_segment_count: parity,
        is_parity,
    }
    .encode_to_vec()
}

fn draft(index: u32, data: u32, parity_index: u32, parity: u32) -> Vec<u8> {
    segment_draft::SegmentMessageProto {
        entire_message_hash: vec![7; 32],
        index,
        segments_count: data,
        payload: vec![1],
        parity_segment_index: parity_index,
        parity_segments_count: parity,
    }
    .encode_to_vec()
}

#[test]
fn raw_permits_no_other_combination() {
    let ok = |bytes: Vec<u8>| decode(&bytes, WireFormat::Raw, 256).map(|_| ());
    assert_eq!(ok(raw(0, 1, 0, 0, false)), Ok(()));
    assert_eq!(ok(raw(2, 3, 0, 1, false)), Ok(()));
    assert_eq!(ok(raw(0, 3, 0, 1, true)), Ok(()));
    assert_eq!(ok(raw(0, 200, 0, 56, false)), Ok(()));
    assert_eq!(
        ok(raw(0, 200, 0, 57, false)),
        Err(SegmentError::TotalSegments {
            data: 200,
            parity: 57,
            limit: 256
        })
    );
    assert_eq!(
        ok(raw(0, u32::MAX, 0, u32::MAX, false)),
        Err(SegmentError::TotalSegments {
            data: u32::MAX,
            parity: u32::MAX,
            limit: 256
        })
    );
    assert_eq!(
        ok(raw(0, 0, 0, 1, true)),
        Err(SegmentError::DataCount {
            count: 0,
            minimum: 1
        })
    );
    assert_eq!(
        ok(raw(3, 3, 0, 0, false)),
        Err(SegmentError::Index {
            class: "data",
            index: 3,
            count: 3
        })
    );
    assert_eq!(
        ok(raw(0, 3, 0, 0, true)),
        Err(SegmentError::Index {
            class: "parity",
            index: 0,
            count: 0
        })
    );
    let other = |class, field| {
        Err(SegmentError::OtherClass {
            class,
            field,
            value: 1,
        })
    };
    assert_eq!(
        ok(raw(0, 3, 1, 2, false)),
        other("data", "parity_segment_index")
    );
    assert_eq!(
        ok(raw(1, 3, 1, 2, true)),
        other("parity", "data_segment_index")
    );
}

#[test]
fn draft_permits_no_other_combination() {
    let ok = |bytes: Vec<u8>| decode(&bytes, WireFormat::Draft, 256).map(|_| ());
    assert_eq!(ok(draft(1, 2, 0, 0)), Ok(()));
    assert_eq!(ok(draft(0, 0, 1, 2)), Ok(()));
    assert_eq!(
        ok(draft(0, 1, 0, 0)),
        Err(SegmentError::DataCount {
            count: 1,
            minimum: 2
        })
    );
    let other = |class, field, value| {
        Err(SegmentError::OtherClass {
            class,
            field,
            value,
        })
    };
    assert_eq!(
        ok(draft(0, 2, 0, 3)),
        other("data", "parity_segments_count", 3)
    );
    assert_eq!(
        ok(draft(0, 2, 1, 0)),
        other("data", "parity_segment_index", 1)
    );
    assert_eq!(
        ok(draft(1, 0, 0, 2)),
        other("parity", "data_segment_index", 1)
    );
    assert_eq!(
        ok(draft(0, 0, 0, 0)),
        Err(SegmentError::Index {
            class: "parity",
            index: 0,
            count: 0
        })
    );
}

#[test]
fn draft_reads_other_bytes_as_whole_messages() {
    let mut lacks_payload = Vec::new();
    put_bytes_field(&mut lacks_payload, 1, &[7; 32]);
    let mut short_hash = lacks_payload[..20].to_vec();
    short_hash[1] = 18;
    let mut lacks_hash = Vec::new();
    put_bytes_field(&mut lacks_hash, 4, b"x");
    for bytes in [&b""[..], b"hello", &lacks_payload, &short_hash, &lacks_hash] {
        assert_eq!(
            decode(bytes, WireFormat::Draft, 256),
            Ok(Received::WholeMessage(bytes))
        );
        assert!(decode(bytes, WireFormat::Raw, 256).is_err());
    }
}

#[test]
fn an_empty_payload_is_a_segment() {
    let header = Header {
        entire_message_hash: [7; 32],
        slot: Slot::Data(0),
        data_segment_count: Some(1),
        parity_segment_count: Some(0),
        payload_length: None,
    };
    let encoded = header.encode(WireFormat::Raw, b"");
    let expected = Segment {
        header,
        payload: b"",
    };
    assert_eq!(
        decode(&encoded, WireFormat::Raw, 256),
        Ok(Received::Segment(expected))
    );
}

use super::*;
use crate::erasure::ErasureCode;

pub(super) fn settings() -> Settings {
    Settings {
        segment_size_bytes: 102_400,
        enable_reed_solomon: true,
        parity_rate: 0.125,
        parity_for_single_segment: false,
        erasure_code: ErasureCode::Leopard,
        wire_format: WireFormat::Raw,
        max_total_segments: 256,
        max_tail_candidates: 102_400,
    }
}

fn counts(settings: Settings, payload_length: usize) -> (usize, usize) {
    let counts = Parameters::new(settings)
        .unwrap()
        .counts(payload_length)
        .unwrap();
    (counts.data, counts.parity)
}

#[test]
fn counts_follow_the_wire() {
    let raw = settings();
    assert_eq!(counts(raw, 0), (1, 0));
    assert_eq!(counts(raw, 102_400), (1, 0));
    assert_eq!(counts(raw, 102_401), (2, 1));
    assert_eq!(counts(raw, 102_400 * 9), (9, 2));
    let single = Settings {
        parity_for_single_segment: true,
        ..raw
    };
    assert_eq!(counts(single, 1), (1, 1));
    let draft = Settings {
        wire_format: WireFormat::Draft,
        ..raw
    };
    assert_eq!(counts(draft, 102_400), (0, 0));
    assert_eq!(counts(draft, 102_401), (2, 0));
    assert_eq!(counts(draft, 102_400 * 9), (9, 1));
    let full = Settings {
        parity_rate: 1.0,
        ..raw
    };
    assert_eq!(counts(full, 102_400 * 9), (9, 9));
    let lip243 = Settings {
        wire_format: WireFormat::Lip243,
        ..full
    };
    assert_eq!(counts(lip243, 102_272 * 9), (9, 8));
}

#[test]
fn the_largest_payload_follows_from_both_bounds() {
    let limit = |settings| Parameters::new(settings).unwrap().max_payload_bytes();
    // (224, 28) is the last pair inside Leopard's field: 225 data need 29 parity.
    assert_eq!(limit(settings()), 224 * 102_400);
    let vandermonde = Settings {
        erasure_code: ErasureCode::Vandermonde,
        ..settings()
    };
    assert_eq!(limit(vandermonde), 226 * 102_400);
    let plain = Settings {
        enable_reed_solomon: false,
        ..settings()
    };
    assert_eq!(limit(plain), 255 * 102_400);
    let lip243 = Settings {
        wire_format: WireFormat::Lip243,
        ..settings()
    };
    assert_eq!(limit(lip243), 224 * 102_272);
    let parameters = Parameters::new(settings()).unwrap();
    let (payload_bytes, limit_bytes) = (224 * 102_400 + 1, 224 * 102_400);
    assert_eq!(
        parameters.counts(payload_bytes),
        Err(SegmentationError::PayloadTooLarge {
            payload_bytes,
            limit_bytes
        })
    );
}

#[test]
fn refuses_settings_out_of_range() {
    let error = |settings| Parameters::new(settings).unwrap_err().to_string();
    assert_eq!(
        error(Settings {
            segment_size_bytes: 1000,
            ..settings()
        }),
        "segment_size_bytes is 1000: it must be a multiple of 64 for leopard: the nearest is 1024"
    );
    assert!(
        error(Settings {
            segment_size_bytes: 10,
            ..settings()
        })
        .ends_with("the nearest is 64")
    );
    assert!(
        error(Settings {
            segment_size_bytes: 100,
            ..settings()
        })
        .ends_with("the nearest is 128")
    );
    let lip243 = Settings {
        wire_format: WireFormat::Lip243,
        ..settings()
    };
    assert!(
        error(Settings {
            segment_size_bytes: 191,
            ..lip243
        })
        .contains("from 192")
    );
    assert!(
        error(Settings {
            parity_rate: f64::NAN,
            ..settings()
        })
        .contains("parity_rate")
    );
    let two = Settings {
        max_total_segments: 2,
        ..settings()
    };
    assert_eq!(Parameters::new(two).unwrap().max_payload_bytes(), 102_400);
    let single = Settings {
        parity_for_single_segment: true,
        ..two
    };
    assert!(error(single).contains("max_total_segments is 2"));
    // draft sends a payload of one segment as it is, whatever the rate.
    let draft = Settings {
        wire_format: WireFormat::Draft,
        parity_rate: 1.0,
        ..single
    };
    assert_eq!(Parameters::new(draft).unwrap().max_payload_bytes(), 102_400);
}

#[test]
fn draft_refuses_a_small_payload_that_reads_as_a_segment() {
    let draft = Settings {
        wire_format: WireFormat::Draft,
        ..settings()
    };
    let parameters = Parameters::new(draft).unwrap();
    let large = vec![1; 102_401];
    let inner = segment(&large, &parameters)
        .unwrap()
        .to_vecs()
        .pop()
        .unwrap();
    assert!(matches!(
        segment(&inner, &parameters),
        Err(SegmentationError::ReadsAsSegment { .. })
    ));
    assert_eq!(
        segment(b"", &parameters).unwrap_err(),
        SegmentationError::Empty
    );
    assert_eq!(
        segment(b"hello", &parameters).unwrap().to_vecs(),
        [b"hello"]
    );
}

#[test]
fn parity_on_demand_announces_what_the_code_can_make() {
    let bound = |settings, data| Parameters::new(settings).unwrap().parity_bound(data);
    // Leopard's field has 256 points, and parity takes a power of two of them.
    for (data, parity) in [
        (1, 0),
        (2, 2),
        (64, 64),
        (127, 127),
        (128, 127),
        (130, 64),
        (160, 64),
        (200, 32),
        (224, 31),
        (254, 1),
        (255, 0),
    ] {
        assert_eq!(bound(settings(), data), parity, "{data}");
        assert!(
            parity == 0 || crate::erasure::check_encode(ErasureCode::Leopard, data, parity).is_ok()
        );
    }
    let vandermonde = Settings {
        erasure_code: ErasureCode::Vandermonde,
        ..settings()
    };
    assert_eq!(bound(vandermonde, 130), 125);
    let lip243 = Settings {
        wire_format: WireFormat::Lip243,
        ..settings()
    };
    assert_eq!(bound(lip243, 64), 63);
    let odd = Settings {
        enable_reed_solomon: false,
        segment_size_bytes: 100,
        ..settings()
    };
    assert_eq!(bound(odd, 64), 0);
}

#[test]
fn parity_made_later_is_that_made_at_once() {
    for code in [ErasureCode::Leopard, ErasureCode::Vandermonde] {
        for wire_format in [WireFormat::Raw, WireFormat::Lip243] {
            let on_demand = Parameters::new(Settings {
                segment_size_bytes: 192,
                erasure_code: code,
                wire_format,
                ..settings()
            })
            .unwrap();
            let chunk = on_demand.chunk_size_bytes();
            let payload: Vec<u8> = (0..9 * chunk + 5).map(|at| (at * 7 % 251) as u8).collect();
            let at_once = Parameters::new(Settings {
                parity_rate: 1.0,
                ..*on_demand.settings()
            })
            .unwrap();
            let all = segment(&payload, &at_once).unwrap().to_vecs();
            let first = segment_on_demand(&payload, &on_demand, 200_000).unwrap();
            assert_eq!(first.count(), 12);
            assert_eq!(first.to_vecs(), all[..12]);
            let data: Vec<&[u8]> = all[..10].iter().map(Vec::as_slice).collect();
            let announced = all.len() - 10;
            let later = further_parity(&data, wire_format, code, 2..announced).unwrap();
            assert_eq!(later, all[12..]);
            let refused = further_parity(&data, wire_format, code, 2..announced + 1);
            assert_eq!(refused, Err(SegmentationError::NotItsData));
            let refused = further_parity(&data[1..], wire_format, code, 2..3);
            assert_eq!(refused, Err(SegmentationError::NotItsData));
        }
    }
}

fn small() -> Settings {
    Settings {
        segment_size_bytes: 64,
        ..settings()
    }
}

#[test]
fn an_empty_payload_has_parity_where_a_single_segment_has() {
    let single = Parameters::new(Settings {
        parity_for_single_segment: true,
        ..small()
    });
    let segments = segment(b"", &single.unwrap()).unwrap();
    assert_eq!(segments.count(), 2);
    let lengths: Vec<usize> = segments
        .to_vecs()
        .iter()
        .map(|bytes| segment::decode(bytes, WireFormat::Raw, 256))
        .map(|read| match read {
            Ok(Received::Segment(read)) => read.payload.len(),
            _ => panic!("no segment"),
        })
        .collect();
    assert_eq!(lengths, [0, 64]);
}

#[test]
fn what_of_parity_on_demand_leaves_at_first_is_rounded_within_what_was_asked_and_announced() {
    let made = |settings, data: usize, millionths| {
        let parameters = Parameters::new(settings).unwrap();
        let payload = vec![1; data * parameters.chunk_size_bytes()];
        let segments = segment_on_demand(&payload, &parameters, millionths).unwrap();
        (segments.count() - data, segments.reserve())
    };
    let no_rate = Settings {
        parity_rate: 0.0,
        ..small()
    };
    assert_eq!(made(no_rate, 3, 200_000), (1, 2));
    assert_eq!(made(no_rate, 3, 160_000), (0, 3));
    // As many as the rate asks for, where that is more.
    assert_eq!(made(small(), 9, 0), (2, 7));
    // A single segment is not repaired with parity: what it is to have leaves with it.
    assert_eq!(made(small(), 1, 1_000_000), (0, 0));
    let paired = Settings {
        parity_for_single_segment: true,
        ..small()
    };
    assert_eq!(made(paired, 1, 0), (1, 0));
    // Under lip243 one fewer than data is announced.
    let lip243 = Settings {
        segment_size_bytes: 192,
        wire_format: WireFormat::Lip243,
        ..settings()
    };
    assert_eq!(made(lip243, 9, 1_000_000), (8, 0));
}

#[test]
fn parity_on_demand_takes_no_room_from_a_payload() {
    let parameters = Parameters::new(small()).unwrap();
    let largest = vec![1; 255 * 64];
    let segments = segment_on_demand(&largest, &parameters, 0).unwrap();
    assert_eq!((segments.count(), segments.reserve()), (255, 0));
    let refused = segment_on_demand(&[1; 255 * 64 + 1], &parameters, 0).unwrap_err();
    assert!(matches!(refused, SegmentationError::PayloadTooLarge { .. }));
}

#[test]
fn parity_is_made_of_all_data_segments_of_one_message_and_of_nothing_else() {
    let parameters = Parameters::new(small()).unwrap();
    let code = ErasureCode::Leopard;
    let make = |first: u8| {
        let payload: Vec<u8> = (0..9 * 64).map(|at| first.wrapping_add(at as u8)).collect();
        let segments = segment_on_demand(&payload, &parameters, 0).unwrap();
        segments.to_vecs()[..9].to_vec()
    };
    let (own, other) = (make(1), make(2));
    let mut data: Vec<&[u8]> = own.iter().map(Vec::as_slice).collect();
    let further = |data: &[&[u8]]| further_parity(data, WireFormat::Raw, code, 2..3);
    assert!(further(&data).is_ok());
    assert_eq!(further(&data[..8]), Err(SegmentationError::NotItsData));
    data[4] = &other[4];
    assert_eq!(further(&data), Err(SegmentationError::NotItsData));
    data[4] = &own[5];
    assert_eq!(further(&data), Err(SegmentationError::NotItsData));
}

#[test]
fn parity_of_a_payload_is_made_by_its_indexes() {
    let parameters = Parameters::new(small()).unwrap();
    let how = (WireFormat::Raw, ErasureCode::Leopard);
    let payload: Vec<u8> = (0..9 * 64 + 5).map(|at| at as u8).collect();
    let all = segment_on_demand(&payload, &parameters, 1_000_000)
        .unwrap()
        .to_vecs();
    let Ok(Received::Segment(first)) = segment::decode(&all[0], WireFormat::Raw, 256) else {
        panic!("no segment");
    };
    let of =
        |shard_len, indexes: &[u32]| parity_of(&payload, &first.header, shard_len, how, indexes);
    assert_eq!(of(64, &[9, 3]).unwrap(), [&all[19][..], &all[13]]);
    assert_eq!(of(64, &[]), Ok(Vec::new()));
    for (shard_len, index) in [(64, 10), (0, 3), (128, 3), (48, 3)] {
        assert_eq!(
            of(shard_len, &[index]),
            Err(SegmentationError::NotItsData),
            "{shard_len} {index}"
        );
    }
}

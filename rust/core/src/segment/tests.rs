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

//! Records whose bytes stand in others: their stored form, and that of earlier releases.

use proptest::prelude::*;

use super::references::{Part, PartsRecord, SegmentRecord, WireFormats};
use super::restore_error::RestoreError;
use crate::hex::hex;
use crate::keccak::keccak256;
use crate::sds::{self, Name};
use crate::wire::sds::WireFormat as SdsWireFormat;
use crate::wire::segment::WireFormat;

const OWN: &[u8] = b"\0own bytes {\0";

fn segment() -> SegmentRecord {
    SegmentRecord {
        sender_id: "älice \"\0".to_owned(),
        send_id: Name::new("send"),
        authenticated: true,
        wire_formats: WireFormats {
            sds: SdsWireFormat::Nim,
            segment: WireFormat::Lip243,
        },
        message_id: Some(Name::new("send.1")),
        serial: u64::MAX,
    }
}

fn parts() -> PartsRecord {
    PartsRecord {
        parts: vec![
            Part::In(Name::new("send.0")),
            Part::Own(4),
            Part::In(Name::new("send.2")),
            Part::Own(0),
        ],
        length: 1_000,
        payload_hash: keccak256(b"payload"),
        wire_formats: WireFormats {
            sds: SdsWireFormat::Spec,
            segment: WireFormat::Draft,
        },
    }
}

fn names() -> impl Strategy<Value = Name> {
    "\\PC{0,40}".prop_map(|text| Name::new(&text))
}

fn wire_formats() -> impl Strategy<Value = WireFormats> {
    let sds = prop::sample::select(vec![SdsWireFormat::Spec, SdsWireFormat::Nim]);
    let segment =
        prop::sample::select(vec![WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243]);
    (sds, segment).prop_map(|(sds, segment)| WireFormats { sds, segment })
}

proptest! {
    #[test]
    fn segments_are_read_as_they_were_written(
        sender_id: String,
        send_id in names(),
        authenticated: bool,
        wire_formats in wire_formats(),
        message_id in prop::option::of(names()),
        serial: u64,
        own: Vec<u8>,
    ) {
        let record =
            SegmentRecord { sender_id, send_id, authenticated, wire_formats, message_id, serial };
        let stored = record.encode(&own);
        prop_assert_eq!(SegmentRecord::decode(&stored), Ok((record, &own[..])));
    }

    #[test]
    fn parts_are_read_as_they_were_written(
        named in prop::collection::vec(prop::option::of(names()), 0..20),
        lengths in prop::collection::vec(0_usize..1 << 40, 20),
        length: usize,
        payload_hash: [u8; 32],
        wire_formats in wire_formats(),
        own: Vec<u8>,
    ) {
        let parts = named.into_iter().zip(lengths);
        let parts = parts.map(|(name, length)| name.map_or(Part::Own(length), Part::In)).collect();
        let record = PartsRecord { parts, length, payload_hash, wire_formats };
        let (one, other) = own.split_at(own.len() / 3);
        let stored = record.encode(&[one, other]);
        prop_assert_eq!(PartsRecord::decode(&stored), Ok((record, &own[..])));
    }

    #[test]
    fn no_bytes_are_too_odd(value: Vec<u8>) {
        let _ = SegmentRecord::decode(&value);
        let _ = PartsRecord::decode(&value);
    }
}

#[test]
fn what_earlier_releases_stored_is_read() {
    let json = r#"{"version":2,"sender_id":"älice \"\u0000","send_id":"send","authenticated":true,"sds_wire_format":"nim","segment_wire_format":"lip243","message_id":"send.1","serial":18446744073709551615}"#;
    assert_eq!(
        SegmentRecord::decode(json.as_bytes()),
        Ok((segment(), &b""[..]))
    );
    // Of version 1, whose bytes follow.
    let json = r#"{"version":1,"sender_id":"alice","send_id":"send","authenticated":false,"sds_wire_format":"spec","segment_wire_format":"raw"}"#;
    let stored = [json.as_bytes(), b"\0", OWN].concat();
    let (record, own) = SegmentRecord::decode(&stored).unwrap();
    assert_eq!((record.message_id, record.serial, own), (None, 0, OWN));

    let hash = hex(&parts().payload_hash);
    let json = format!(
        r#"{{"version":2,"message_ids":["send.0","","send.2",""],"length":1000,"payload_hash":"{hash}","sds_wire_format":"spec","segment_wire_format":"draft","own_lengths":[4,0]}}"#
    );
    let stored = [json.as_bytes(), b"\0", OWN].concat();
    assert_eq!(PartsRecord::decode(&stored), Ok((parts(), OWN)));
}

#[test]
fn damage_is_told_wherever_it_is() {
    let segment_head = segment().encode(&[]).len();
    let parts_head = parts().encode(&[]).len();
    for (head, stored) in [
        (segment_head, segment().encode(OWN)),
        (parts_head, parts().encode(&[OWN])),
    ] {
        for cut in 0..head {
            let is_damaged = |error| matches!(error, RestoreError::Damaged(_));
            assert!(SegmentRecord::decode(&stored[..cut]).is_err_and(is_damaged));
            assert!(PartsRecord::decode(&stored[..cut]).is_err_and(is_damaged));
        }
        for place in 0..head {
            let mut changed = stored.to_vec();
            changed[place] ^= 1;
            assert!(SegmentRecord::decode(&changed).is_err());
            assert!(PartsRecord::decode(&changed).is_err());
        }
    }
    // What is no object of this kind, or has no hash.
    for json in [
        r#"{"version":2}"#,
        r#"{"version":2,"message_ids":[],"length":0,"payload_hash":"ab","sds_wire_format":"spec","segment_wire_format":"draft"}"#,
    ] {
        let error = PartsRecord::decode(json.as_bytes()).unwrap_err();
        assert_eq!(error, RestoreError::Damaged("PartsRecord"));
        let error = SegmentRecord::decode(json.as_bytes()).unwrap_err();
        assert_eq!(error, RestoreError::Damaged("SegmentRecord"));
    }
}

#[test]
fn what_a_newer_release_stored_is_not_read() {
    let version = sds::VERSION + 1;
    let newer = RestoreError::from(sds::RestoreError::Version(version));
    assert_eq!(SegmentRecord::decode(&[version]), Err(newer.clone()));
    assert_eq!(PartsRecord::decode(&[version, 7]), Err(newer));
    let what = "SegmentRecord";
    assert_eq!(
        SegmentRecord::decode(br#"{"version":3}"#),
        Err(RestoreError::Newer { what, version: 3 })
    );
}

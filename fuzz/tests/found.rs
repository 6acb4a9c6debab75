//! Defects that were found once, each as the shortest story that shows it.

use shardwire_core::erasure::ErasureCode;
use shardwire_core::keccak::keccak256;
use shardwire_core::reassemble::{Change, Limits, Outcome, Reassembler, Receipt, Record};
use shardwire_core::wire::segment::{Header, WireFormat};
use shardwire_fuzz::{Message, Random, limits, settings};

fn receiver(wire_format: WireFormat, limits: Limits) -> Reassembler {
    shardwire_fuzz::receiver(settings(wire_format, ErasureCode::Leopard, 64), limits)
}

fn message(wire_format: WireFormat, k: usize, m: usize, seed: u64) -> Message {
    let payload = Random(seed).bytes(k * 64 - 5);
    let geometry = (k, m, 64);
    Message::of(
        payload,
        None,
        wire_format,
        ErasureCode::Leopard,
        geometry,
        false,
    )
}

fn wire(message: &Message, wire_format: WireFormat, ordinal: usize) -> Vec<u8> {
    let (header, part) = &message.segments[ordinal];
    header.encode(wire_format, part)
}

fn forged(message: &Message, wire_format: WireFormat, ordinal: usize, content: &[u8]) -> Vec<u8> {
    message.segments[ordinal].0.encode(wire_format, content)
}

fn by(sender: &str, now_ms: i64) -> Receipt<'_> {
    Receipt {
        now_ms,
        sender: Some(sender),
        ..Receipt::default()
    }
}

#[test]
fn a_sender_may_displace_the_only_set_it_holds() {
    for limits in [
        Limits {
            sets_per_sender_max: 1,
            ..limits()
        },
        Limits {
            buffered_bytes_per_sender_max: 150,
            ..limits()
        },
        Limits {
            sets_max: 1,
            ..limits()
        },
    ] {
        let mut reassembler = receiver(WireFormat::Raw, limits);
        for seed in 0..5 {
            let bytes = wire(&message(WireFormat::Raw, 3, 2, seed), WireFormat::Raw, 0);
            let outcome = reassembler.receive(&bytes, &by("alice", 0));
            assert!(matches!(outcome, Outcome::Stored { .. }), "{outcome:?}");
            let dropped = reassembler.poll_dropped();
            assert_eq!(dropped.len(), usize::from(seed > 0));
            assert!(
                dropped
                    .iter()
                    .all(|dropped| dropped.sender.as_deref() == Some("alice"))
            );
        }
        let stats = reassembler.stats();
        assert_eq!((stats.sets_held, stats.senders_held), (1, 1));
        reassembler.expire(i64::MAX);
        assert_eq!(reassembler.stats().senders_held, 0);
    }
}

#[test]
fn the_first_rival_of_a_wrong_segment_is_enough() {
    let message = message(WireFormat::Raw, 3, 2, 1);
    let mut random = Random(2);
    let mut reassembler = receiver(WireFormat::Raw, limits());
    let mut receive = |bytes: Vec<u8>| reassembler.receive(&bytes, &Receipt::default());
    receive(forged(&message, WireFormat::Raw, 1, &random.bytes(64)));
    for ordinal in [0, 2, 4] {
        let outcome = receive(wire(&message, WireFormat::Raw, ordinal));
        assert!(matches!(outcome, Outcome::Stored { .. }), "{outcome:?}");
    }
    // Three slots without a rival are genuine from now on.
    let outcome = receive(forged(&message, WireFormat::Raw, 1, &random.bytes(64)));
    let Outcome::Reconstructed(found) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(found.payload.to_vec(), message.payload);
    assert_eq!(found.bad_segments, [(1, None), (1, None)]);
}

#[test]
fn parity_of_the_other_code_accuses_nobody() {
    let leopard = message(WireFormat::Raw, 3, 2, 1);
    let geometry = (3, 2, 64);
    let payload = leopard.payload.clone();
    let code = ErasureCode::Vandermonde;
    let vandermonde = Message::of(payload, None, WireFormat::Raw, code, geometry, false);
    let mut reassembler = receiver(WireFormat::Raw, limits());
    let mut receive = |message: &Message, ordinal, sender| {
        reassembler.receive(&wire(message, WireFormat::Raw, ordinal), &by(sender, 0))
    };
    receive(&leopard, 0, "alice");
    receive(&leopard, 3, "alice");
    receive(&vandermonde, 4, "bob");
    let outcome = receive(&leopard, 1, "alice");
    let Outcome::Reconstructed(found) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(found.payload.to_vec(), leopard.payload);
    assert_eq!(found.bad_segments, []);
}

#[test]
fn parity_of_data_that_no_code_takes_accuses_nobody() {
    let geometry = message(WireFormat::Raw, 2, 1, 1);
    // The last data segment is longer than the first.
    let parts = [vec![1; 10], vec![2; 20], vec![3; 10]];
    let entire_message_hash = keccak256(&parts[..2].concat());
    let mut reassembler = receiver(WireFormat::Raw, limits());
    let mut receive = |ordinal: usize, sender| {
        let header = Header {
            entire_message_hash,
            ..geometry.segments[ordinal].0
        };
        let bytes = header.encode(WireFormat::Raw, &parts[ordinal]);
        reassembler.receive(&bytes, &by(sender, 0))
    };
    receive(0, "alice");
    receive(2, "bob");
    let Outcome::Reconstructed(found) = receive(1, "alice") else {
        panic!("data segments that have the hash are the payload")
    };
    assert_eq!(found.payload.to_vec(), parts[..2].concat());
    assert_eq!(found.bad_segments, []);
}

#[test]
fn draft_tries_what_it_holds_when_a_wrong_segment_tells_the_count() {
    let message = message(WireFormat::Draft, 3, 3, 1);
    let mut reassembler = receiver(WireFormat::Draft, limits());
    for ordinal in 3..6 {
        reassembler.receive(
            &wire(&message, WireFormat::Draft, ordinal),
            &Receipt::default(),
        );
    }
    let bytes = forged(&message, WireFormat::Draft, 1, b"of no shard's length");
    let outcome = reassembler.receive(&bytes, &Receipt::default());
    let Outcome::Reconstructed(found) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(found.payload.to_vec(), message.payload);
}

fn restarted(wire_format: WireFormat, limits: Limits, records: &[Record]) -> Reassembler {
    let mut reassembler = receiver(wire_format, limits);
    reassembler.restore(records.iter().map(|record| {
        (
            record.change,
            record.key.as_slice(),
            record.value.as_slice(),
        )
    }));
    reassembler
}

#[test]
fn a_restart_gives_sets_back_to_those_who_began_them() {
    let limits = Limits {
        sets_per_sender_max: 1,
        ..limits()
    };
    let mut reassembler = receiver(WireFormat::Raw, limits);
    let (first, second) = (
        message(WireFormat::Raw, 3, 2, 1),
        message(WireFormat::Raw, 3, 2, 2),
    );
    // Alice begins the first set, with a segment that sorts behind Bob's.
    reassembler.receive(&wire(&first, WireFormat::Raw, 2), &by("alice", 5));
    reassembler.receive(&wire(&first, WireFormat::Raw, 0), &by("bob", 5));
    reassembler.receive(&wire(&second, WireFormat::Raw, 0), &by("bob", 5));
    let records = reassembler.poll_persist();
    assert!(
        records
            .iter()
            .all(|record| record.change == Change::PutSegment)
    );
    let mut restarted = restarted(WireFormat::Raw, limits, &records);
    assert_eq!(restarted.poll_dropped(), []);
    assert_eq!(restarted.stats().sets_held, 2);
    assert_eq!(restarted.stats().restore_ignored, 0);
}

#[test]
fn a_restart_takes_back_what_was_held_though_it_would_be_refused_now() {
    let limits = Limits {
        buffered_bytes_max: 500,
        ..limits()
    };
    let mut reassembler = receiver(WireFormat::Draft, limits);
    let message = message(WireFormat::Draft, 8, 2, 1);
    // A parity segment of draft does not say how large the payload would be.
    let long = forged(&message, WireFormat::Draft, 8, &[1; 94]);
    reassembler.receive(&long, &by("alice", 0));
    let last = forged(&message, WireFormat::Draft, 7, &[1; 20]);
    reassembler.receive(&last, &by("alice", 0));
    assert_eq!(reassembler.stats().stored, 2);
    let restarted = restarted(WireFormat::Draft, limits, &reassembler.poll_persist());
    assert_eq!(restarted.stats().restore_ignored, 0);
    assert_eq!(restarted.stats().bytes_held, reassembler.stats().bytes_held);
}

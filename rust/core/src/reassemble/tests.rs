use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::erasure::ErasureCode;
use crate::keccak::keccak256;
use crate::segment::{Settings, segment};
use crate::wire::segment::{Header, Slot, WireFormat};

const WIRES: [WireFormat; 3] = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243];
pub(super) const CODES: [ErasureCode; 2] = [ErasureCode::Leopard, ErasureCode::Vandermonde];

fn parameters(wire_format: WireFormat, erasure_code: ErasureCode) -> Parameters {
    parameters_of(wire_format, erasure_code, 0.5)
}

pub(super) fn parameters_of(
    wire_format: WireFormat,
    erasure_code: ErasureCode,
    parity_rate: f64,
) -> Parameters {
    let reserve = if wire_format == WireFormat::Lip243 {
        128
    } else {
        0
    };
    Parameters::new(Settings {
        segment_size_bytes: 64 + reserve,
        enable_reed_solomon: true,
        parity_rate,
        parity_for_single_segment: false,
        erasure_code,
        wire_format,
        max_total_segments: 256,
        max_tail_candidates: 64,
    })
    .unwrap()
}

pub(super) fn limits() -> Limits {
    Limits {
        sets_max: 1_000,
        sets_per_sender_max: 100,
        buffered_bytes_max: 256 << 20,
        buffered_bytes_per_sender_max: 64 << 20,
        unauthenticated_share: 0.5,
        candidates_per_slot_max: 4,
        completed_remembered_max: 100_000,
        timeout_ms: 300_000,
        work_budget: 32,
    }
}

pub(super) fn reconstructed(outcome: &Outcome) -> Option<Vec<u8>> {
    match outcome {
        Outcome::Reconstructed(reconstructed) => Some(reconstructed.payload.to_vec()),
        _ => None,
    }
}

fn reason(outcome: &Outcome) -> Option<Discard> {
    match outcome {
        Outcome::Discarded { reason, .. } => Some(*reason),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_k_of_n_in_any_order_with_duplicates(
        wire_format in prop::sample::select(WIRES.to_vec()),
        sent_code in prop::sample::select(CODES.to_vec()),
        configured_code in prop::sample::select(CODES.to_vec()),
        mut payload in vec(any::<u8>(), 1..1500),
        zeros in 0usize..130,
        order in any::<u64>(),
    ) {
        payload.extend(vec![0; zeros]);
        let segments = segment(&payload, &parameters(wire_format, sent_code)).unwrap();
        let data = segments.count().div_ceil(2);
        let mut wire = segments.to_vecs();
        let counts = parameters(wire_format, sent_code).counts(payload.len()).unwrap();
        let mut state = order | 1;
        for position in (1..wire.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            wire.swap(position, (state >> 33) as usize % (position + 1));
        }
        // Under draft at least one data segment has to survive to tell k.
        wire.truncate(counts.data.max(1) + usize::from(wire_format == WireFormat::Draft));
        if wire_format == WireFormat::Draft {
            wire.extend(segments.to_vecs().into_iter().take(1));
        }
        prop_assume!(data > 0);
        let mut reassembler = Reassembler::new(parameters(wire_format, configured_code), limits());
        let mut found = Vec::new();
        for bytes in wire.iter().flat_map(|bytes| [bytes, bytes]) {
            let outcome = reassembler.receive(bytes, &Receipt::default());
            found.extend(reconstructed(&outcome));
        }
        prop_assert_eq!(found, vec![payload]);
        prop_assert_eq!(reassembler.stats().sets_held, 0);
        prop_assert_eq!(reassembler.stats().bytes_held, 0);
    }
}

#[test]
fn an_empty_payload_comes_back() {
    let parameters = parameters(WireFormat::Raw, ErasureCode::Leopard);
    let wire = segment(b"", &parameters).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(parameters, limits());
    let outcome = reassembler.receive(&wire[0], &Receipt::default());
    assert_eq!(reconstructed(&outcome), Some(vec![]));
    let outcome = reassembler.receive(&wire[0], &Receipt::default());
    assert_eq!(reason(&outcome), Some(Discard::AlreadyCompleted));
    let again = Receipt {
        message_key: Some(b"second"),
        ..Receipt::default()
    };
    assert_eq!(
        reconstructed(&reassembler.receive(&wire[0], &again)),
        Some(vec![])
    );
}

#[test]
fn forged_counts_do_not_shut_the_genuine_segments_out() {
    let genuine = parameters(WireFormat::Raw, ErasureCode::Leopard);
    let payload: Vec<u8> = (0..300u32).map(|i| i as u8).collect();
    let wire = segment(&payload, &genuine).unwrap().to_vecs();
    let header = crate::wire::segment::Header {
        entire_message_hash: keccak256(&payload),
        slot: crate::wire::segment::Slot::Data(3),
        data_segment_count: Some(200),
        parity_segment_count: Some(0),
        payload_length: None,
    };
    let forged = header.encode(WireFormat::Raw, b"forged");
    let mut reassembler = Reassembler::new(genuine, limits());
    reassembler.receive(&forged, &Receipt::default());
    let outcomes: Vec<_> = wire
        .iter()
        .map(|bytes| reassembler.receive(bytes, &Receipt::default()))
        .collect();
    assert_eq!(reason(&outcomes[0]), Some(Discard::CountMismatch));
    assert_eq!(outcomes.iter().find_map(reconstructed), Some(payload));
    assert_eq!(reassembler.stats().sets_held, 0);
}

#[test]
fn partial_sets_and_completions_survive_a_restart() {
    let parameters = parameters(WireFormat::Raw, ErasureCode::Leopard);
    let payload: Vec<u8> = (0..600u32).map(|i| (i * 7) as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    let done = segment(b"done", &parameters).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(parameters, limits());
    let receipt = Receipt {
        now_ms: 5,
        sender: Some("alice"),
        authenticated: true,
        message_key: Some(b"send"),
    };
    for bytes in wire[2..8].iter().chain(&done) {
        reassembler.receive(bytes, &receipt);
    }
    let records = reassembler.poll_persist();
    assert!(reassembler.poll_persist().is_empty());
    let stored = |change| {
        records
            .iter()
            .filter(|record| record.change == change)
            .count()
    };
    assert_eq!(
        (stored(Change::PutSegment), stored(Change::PutCompleted)),
        (6, 1)
    );

    let mut restored = Reassembler::new(parameters, limits());
    restored.restore(
        records
            .iter()
            .map(|r| (r.change, r.key.as_slice(), r.value.as_slice())),
    );
    assert_eq!(restored.next_expiry_ms(), Some(300_005));
    assert_eq!(
        reason(&restored.receive(&done[0], &receipt)),
        Some(Discard::AlreadyCompleted)
    );
    assert_eq!(
        reason(&restored.receive(&wire[3], &receipt)),
        Some(Discard::Duplicate)
    );
    restored.receive(&wire[8], &receipt);
    restored.receive(&wire[9], &receipt);
    restored.receive(&wire[10], &receipt);
    let outcome = restored.receive(&wire[11], &receipt);
    assert_eq!(reconstructed(&outcome), Some(payload));
    let changes: Vec<Change> = restored.poll_persist().iter().map(|r| r.change).collect();
    assert_eq!(changes, [Change::DeleteSet, Change::PutCompleted]);
}

#[test]
fn counts_that_no_set_can_have_together_make_two_sets_and_come_back() {
    let header = |slot, data, parity| Header {
        entire_message_hash: [7; 32],
        slot,
        data_segment_count: data,
        parity_segment_count: parity,
        payload_length: None,
    };
    let parameters = parameters(WireFormat::Draft, ErasureCode::Leopard);
    let mut before = Reassembler::new(parameters, limits());
    for header in [
        header(Slot::Data(0), Some(140), None),
        header(Slot::Parity(3), None, Some(117)),
    ] {
        before.receive(
            &header.encode(WireFormat::Draft, &[1; 64]),
            &Receipt::default(),
        );
    }
    assert_eq!(before.stats().sets_held, 2);
    let records = before.poll_persist();
    let mut after = Reassembler::new(parameters, limits());
    after.restore(records.iter().map(|r| (r.change, &r.key[..], &r.value[..])));
    assert_eq!(after.stats().restore_ignored, 0);
    assert_eq!(after.stats().bytes_held, before.stats().bytes_held);
}

#[test]
fn a_flood_of_identities_displaces_itself() {
    let parameters = parameters(WireFormat::Raw, ErasureCode::Leopard);
    let payload: Vec<u8> = (0..1200u32).map(|i| (i * 11) as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(parameters, limits());
    let honest = Receipt {
        sender: Some("honest"),
        ..Receipt::default()
    };
    reassembler.receive(&wire[0], &honest);
    reassembler.receive(&wire[1], &honest);
    let mut found = None;
    for id in 0..10_000u32 {
        let forged = segment(
            &[id.to_be_bytes().repeat(40), vec![1]].concat(),
            &parameters,
        )
        .unwrap()
        .to_vecs();
        let name = format!("forged-{id}");
        reassembler.receive(
            &forged[0],
            &Receipt {
                sender: Some(&name),
                ..Receipt::default()
            },
        );
        if id % 500 == 499 {
            let next = &wire[2 + id as usize / 500];
            found = found.or(reconstructed(&reassembler.receive(next, &honest)));
        }
    }
    assert_eq!(found, Some(payload));
    assert_eq!(reassembler.stats().sets_held, 500);
    // Of those that went so many of the last ones are told of, in the order in which they went.
    let told = reassembler.poll_dropped().into_iter();
    let told: Vec<_> = told.filter_map(|dropped| dropped.sender).collect();
    let last = 10_000 - 500;
    let first = last - limits().sets_max;
    let went: Vec<_> = (first..last).map(|id| format!("forged-{id}")).collect();
    assert_eq!(told, went);
}

#[test]
fn sets_expire_by_their_last_new_segment() {
    let parameters = parameters(WireFormat::Raw, ErasureCode::Leopard);
    let wire = segment(&[9; 500], &parameters).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(parameters, limits());
    let at = |now_ms| Receipt {
        now_ms,
        ..Receipt::default()
    };
    reassembler.receive(&wire[0], &at(0));
    reassembler.receive(&wire[7], &at(100));
    reassembler.receive(&wire[0], &at(200));
    assert_eq!(reassembler.next_expiry_ms(), Some(300_100));
    // That somebody repeats a segment is news once: names that prove nothing are without number.
    for (name, now_ms) in [("one", 100), ("two", 200)] {
        let sender = Some(name);
        reassembler.receive(
            &wire[0],
            &Receipt {
                sender,
                ..at(now_ms)
            },
        );
    }
    assert_eq!(reassembler.next_expiry_ms(), Some(300_100));
    assert_eq!(reassembler.expire(300_099), []);
    let dropped = reassembler.expire(300_100);
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].reason, Drop::Expired);
    assert_eq!(reassembler.stats().bytes_held, 0);
}

#[test]
fn a_long_name_and_a_long_key_are_charged() {
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.5);
    let wire = segment(&[7; 640], &parameters).unwrap().to_vecs();
    let held = |name: usize, key: usize| {
        let (name, key) = ("n".repeat(name), vec![0; key]);
        let receipt = Receipt {
            sender: Some(&name),
            message_key: Some(&key),
            ..Receipt::default()
        };
        let mut reassembler = Reassembler::new(parameters, limits());
        reassembler.receive(&wire[0], &receipt);
        reassembler.stats().bytes_held
    };
    assert_eq!(held(64, 64), held(1, 1));
    assert_eq!(held(100, 64), held(1, 1) + 36);
    assert_eq!(held(64, 100), held(1, 1) + 36);
}

#[test]
fn a_segment_counts_with_its_frame() {
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.5);
    let wire = segment(&[7; 640], &parameters).unwrap().to_vecs();
    let limits = Limits {
        buffered_bytes_max: wire[9].len() as u64 - 1,
        ..limits()
    };
    let outcome = Reassembler::new(parameters, limits).receive(&wire[9], &Receipt::default());
    let Outcome::Discarded { reason, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(reason, Discard::Oversized);
}

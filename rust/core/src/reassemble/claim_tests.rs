//! Senders that only claim to be somebody, and one that proves it: what claims hold, or hide, must not keep
//! its payload from coming out.

use proptest::prelude::*;

use super::poison_tests::{Random, followed_by, forged, miscounted};
use super::tests::{CODES, limits, parameters_of, reconstructed};
use super::*;
use crate::segment::segment;
use crate::wire::segment::WireFormat;

const PROVEN: Receipt<'static> = Receipt {
    now_ms: 0,
    sender: Some("alice"),
    authenticated: true,
    message_key: None,
};

fn claimed(name: &str) -> Receipt<'_> {
    Receipt {
        sender: Some(name),
        ..Receipt::default()
    }
}

/// As a caller that stopped and came back.
fn restarted(mut stopped: Reassembler, parameters: Parameters, limits: Limits) -> Reassembler {
    let records = stopped.poll_persist();
    let mut started = Reassembler::new(parameters, limits);
    let stored = records
        .iter()
        .map(|record| (record.change, &record.key[..], &record.value[..]));
    started.restore(stored);
    started
}

fn wire_of(k: usize, m: usize, seed: u64) -> (Parameters, Vec<u8>, Vec<Vec<u8>>, Random) {
    let mut random = Random(seed);
    let parameters = parameters_of(WireFormat::Raw, CODES[0], (m as f64 - 0.5) / k as f64);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    assert_eq!(wire.len(), k + m);
    (parameters, payload, wire, random)
}

/// A claimed sender alters the first 18 segments and repeats the others.
fn begin_falsely(reassembler: &mut Reassembler, wire: &[Vec<u8>], random: &mut Random) {
    for (number, bytes) in wire.iter().enumerate() {
        let altered = forged(bytes, WireFormat::Raw, random);
        let bytes = if number < 18 { &altered } else { bytes };
        reassembler.receive(bytes, &claimed("mallory"));
    }
}

#[test]
fn a_proven_sender_completes_what_a_claimed_one_began_with_what_is_held_already() {
    let (parameters, payload, wire, mut random) = wire_of(70, 10, 1);
    // So long that its beginning is hashed as it comes.
    let mut reassembler = Reassembler::new(parameters, limits());
    begin_falsely(&mut reassembler, &wire, &mut random);
    let outcomes: Vec<Outcome> = wire
        .iter()
        .map(|bytes| reassembler.receive(bytes, &PROVEN))
        .collect();
    let found: Vec<Vec<u8>> = outcomes.iter().filter_map(reconstructed).collect();
    assert!(found == [payload], "{:?}", reassembler.stats());
    // It is the 70th that completes it, though that was held.
    assert!(reconstructed(&outcomes[69]).is_some());
}

#[test]
fn a_claimed_sender_completes_what_another_claimed_one_began() {
    let (parameters, payload, wire, mut random) = wire_of(20, 10, 2);
    let mut reassembler = Reassembler::new(parameters, limits());
    begin_falsely(&mut reassembler, &wire, &mut random);
    let outcomes = wire
        .iter()
        .map(|bytes| reassembler.receive(bytes, &claimed("bob")));
    let found: Vec<Vec<u8>> = outcomes
        .filter_map(|outcome| reconstructed(&outcome))
        .collect();
    assert!(found == [payload], "{:?}", reassembler.stats());
}

#[test]
fn a_sender_of_rivals_gives_one_up_for_another_and_never_one_that_two_sent() {
    let (parameters, payload, wire, mut random) = wire_of(2, 1, 7);
    let limits = Limits {
        candidates_per_slot_max: 2,
        ..limits()
    };
    let mut rival = || forged(&wire[0], WireFormat::Raw, &mut random);
    let (one, other) = (rival(), rival());
    for (rivals, last) in [
        ([("mallory", &one), ("mallory", &other)], ("bob", &wire[0])),
        ([("mallory", &one), ("mallory", &wire[0])], ("eve", &other)),
    ] {
        let mut reassembler = Reassembler::new(parameters, limits);
        let shared = rivals.iter().map(|(_, bytes)| ("bob", *bytes));
        let shared = shared.filter(|(_, bytes)| *bytes == &wire[0]);
        let all = rivals.iter().copied().chain(shared).chain([last]);
        for (name, bytes) in all {
            reassembler.receive(bytes, &claimed(name));
        }
        let outcome = reassembler.receive(&wire[1], &claimed("bob"));
        assert_eq!(reconstructed(&outcome).as_ref(), Some(&payload));
    }
}

/// None of them has enough alone, and with the first of each slot it would be more mixtures than are tried.
#[test]
fn one_sender_of_rivals_is_left_out() {
    let (parameters, payload, wire, mut random) = wire_of(16, 1, 3);
    let mut reassembler = Reassembler::new(parameters, limits());
    for bytes in &wire[..10] {
        let rival = forged(bytes, WireFormat::Raw, &mut random);
        reassembler.receive(&rival, &claimed("mallory"));
    }
    let names = ["alice", "bob"].into_iter().cycle();
    let outcomes = wire[..16]
        .iter()
        .zip(names)
        .map(|(bytes, name)| reassembler.receive(bytes, &claimed(name)));
    let found: Vec<Vec<u8>> = outcomes
        .filter_map(|outcome| reconstructed(&outcome))
        .collect();
    assert!(found == [payload], "{:?}", reassembler.stats());
}

/// Whatever claimed senders had tried before, and however little a set may cost: a proven sender's
/// parity, of the code that is tried second, is enough.
#[test]
fn claims_leave_a_proven_sender_the_second_code() {
    let cases = CODES
        .into_iter()
        .flat_map(|code| (0..160).map(move |number| (code, number / 4, number % 4)));
    for (code, claims, seed) in cases {
        let mut random = Random(seed);
        let parameters = parameters_of(WireFormat::Raw, code, 1.0);
        let payload: Vec<u8> = (0..4 * 64).map(|_| random.next() as u8 | 1).collect();
        let wire = segment(&payload, &parameters).unwrap().to_vecs();
        let other = if code == CODES[0] { CODES[1] } else { CODES[0] };
        let limits = Limits {
            work_budget: 1,
            ..limits()
        };
        let mut reassembler = Reassembler::new(parameters_of(WireFormat::Raw, other, 1.0), limits);
        reassembler.receive(&wire[4], &PROVEN);
        for number in 0..claims {
            let bytes = forged(&wire[random.below(8)], WireFormat::Raw, &mut random);
            let name = format!("mallory {}", number % 3);
            let outcome = reassembler.receive(&bytes, &claimed(&name));
            assert!(
                !matches!(outcome, Outcome::Dropped(_)),
                "{outcome:?} by {number} of {claims}, {code} {seed}"
            );
        }
        let outcomes = wire[5..]
            .iter()
            .map(|bytes| reassembler.receive(bytes, &PROVEN));
        let found: Vec<Vec<u8>> = outcomes
            .filter_map(|outcome| reconstructed(&outcome))
            .collect();
        assert!(
            found == [payload.clone()],
            "{claims} claims {code} {seed}: {:?}",
            reassembler.stats()
        );
    }
}

#[test]
fn more_lengths_than_are_tried_do_not_hide_a_proven_senders() {
    let (parameters, payload, wire, _) = wire_of(4, 4, 3);
    let limits = Limits {
        candidates_per_slot_max: 8,
        ..limits()
    };
    let mut reassembler = Reassembler::new(parameters, limits);
    for more in 1..=6 {
        let name = format!("mallory {more}");
        for bytes in &wire {
            let bytes = followed_by(bytes, WireFormat::Raw, &vec![7; more]);
            reassembler.receive(&bytes, &claimed(&name));
        }
    }
    let outcomes = wire.iter().map(|bytes| reassembler.receive(bytes, &PROVEN));
    let found: Vec<Vec<u8>> = outcomes
        .filter_map(|outcome| reconstructed(&outcome))
        .collect();
    assert!(found == [payload], "{:?}", reassembler.stats());
}

#[test]
fn a_claimed_senders_frame_is_not_charged_to_who_proves_the_same_segment() {
    let (parameters, _, wire, _) = wire_of(20, 10, 4);
    let limits = Limits {
        buffered_bytes_per_sender_max: 10_000,
        ..limits()
    };
    let mut reassembler = Reassembler::new(parameters, limits);
    let long = "m".repeat(8_000);
    reassembler.receive(&wire[0], &claimed(&long));
    reassembler.receive(&wire[0], &PROVEN);
    assert!(
        reassembler.stats().bytes_held < 1_000,
        "{:?}",
        reassembler.stats()
    );
    assert_eq!(reassembler.stats().senders_held, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever claimed senders repeat, alter or lengthen, before, after or between, and over a restart:
    /// all segments of a proven sender deliver its payload, once.
    #[test]
    fn a_proven_senders_segments_deliver_once_among_any_claimed_ones(
        code in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(vec![WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243]),
        k in 2usize..=20, m in 1usize..=10, tail in 1usize..=64,
        claimers in 1usize..=6, truth in 0usize..=100, head_start in 0usize..=100,
        work_budget in 1u64..=32, candidates_per_slot_max in 2usize..=6,
        in_order: bool, restart: bool, seed: u64,
    ) {
        prop_assume!(m <= k - usize::from(wire_format == WireFormat::Lip243));
        let mut random = Random(seed);
        let rate = match wire_format {
            WireFormat::Draft => ((m as f64 + 0.001) / k as f64).min(1.0),
            _ => (m as f64 - 0.5) / k as f64,
        };
        let parameters = parameters_of(wire_format, code, rate);
        let limits = Limits { work_budget, candidates_per_slot_max, ..limits() };
        let payload: Vec<u8> = (0..(k - 1) * 64 + tail).map(|_| random.next() as u8).collect();
        let wire = segment(&payload, &parameters).unwrap().to_vecs();
        let mut proven = wire.clone();
        if !in_order {
            random.shuffle(&mut proven);
        }
        let names: Vec<String> = (0..claimers).map(|number| format!("mallory {number}")).collect();
        let mut claims = Vec::new();
        for name in &names {
            for bytes in &wire {
                let claim = match random.below(100) {
                    draw if draw < truth => bytes.clone(),
                    draw if draw % 8 == 0 => followed_by(bytes, wire_format, &vec![7; 1 + random.below(5)]),
                    draw if draw % 8 == 1 => {
                        miscounted(bytes, wire_format, [k as u16, m as u16], &mut random)
                    }
                    _ => forged(bytes, wire_format, &mut random),
                };
                claims.push((claim, claimed(name)));
            }
        }
        if !in_order {
            random.shuffle(&mut claims);
        }
        let (mut claims, mut proven) = (claims.into_iter().peekable(), proven.into_iter().peekable());
        let at = restart.then(|| random.below(wire.len() * (claimers + 1)));
        let mut reassembler = Reassembler::new(parameters, limits);
        let (mut delivered, mut number) = (Vec::new(), 0);
        while claims.peek().is_some() || proven.peek().is_some() {
            let is_claim = proven.peek().is_none() || random.below(100) < head_start;
            let claim = if is_claim { claims.next() } else { None };
            let (bytes, receipt) = match claim {
                Some(claim) => claim,
                None => match proven.next() {
                    Some(bytes) => (bytes, PROVEN),
                    None => continue,
                },
            };
            if at == Some(number) {
                reassembler = restarted(reassembler, parameters, limits);
            }
            delivered.extend(reconstructed(&reassembler.receive(&bytes, &receipt)));
            number += 1;
        }
        prop_assert!(delivered == [payload], "{:?}", reassembler.stats());
        let stats = reassembler.stats();
        prop_assert_eq!((stats.sets_held, stats.bytes_held, stats.senders_held), (0, 0, 0));
        prop_assert_eq!(reassembler.accounts.accounts_open(), 0);
    }
}

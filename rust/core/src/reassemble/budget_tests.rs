//! What the budget of a set must be enough for, and what it bounds.

use proptest::prelude::*;

use super::budget::{Budget, Turn};
use super::poison_tests::{Random, forged};
use super::tests::{CODES, limits, parameters_of, reconstructed};
use super::work::Work;
use super::*;
use crate::erasure::ErasureCode;
use crate::segment::segment;
use crate::wire::segment::{Received, WireFormat, decode};

const WIRES: [WireFormat; 3] = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243];

/// What makes k + m segments, a payload of k whole ones, and the segments.
fn message(
    wire_format: WireFormat,
    code: ErasureCode,
    (k, m): (usize, usize),
    random: &mut Random,
) -> (Parameters, Vec<u8>, Vec<Vec<u8>>) {
    // Parity is rounded down under draft, up elsewhere.
    let round = if wire_format == WireFormat::Draft {
        0.1
    } else {
        -0.1
    };
    let parameters = parameters_of(wire_format, code, (m as f64 + round) / k as f64);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8 | 1).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    assert_eq!(wire.len(), k + m);
    (parameters, payload, wire)
}

fn receive(
    reassembler: &mut Reassembler,
    arrivals: &[(Vec<u8>, Option<String>)],
) -> Option<Vec<u8>> {
    arrivals.iter().find_map(|(bytes, sender)| {
        let receipt = Receipt {
            sender: sender.as_deref(),
            ..Receipt::default()
        };
        reconstructed(&reassembler.receive(bytes, &receipt))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Nothing to spare and nobody's name: sixteen choices cost less than 32 reconstructions.
    #[test]
    fn four_rivals_of_exactly_k_segments_are_tried(
        code in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(WIRES.to_vec()),
        k in 4usize..=24, m in 1usize..=3, rivals in 1usize..=4, seed: u64,
    ) {
        let mut random = Random(seed);
        let (parameters, payload, mut wire) = message(wire_format, code, (k, m), &mut random);
        // Under draft data segments alone tell how many there are.
        wire[1..].rotate_left(random.below(k));
        wire.truncate(k);
        let bad: Vec<Vec<u8>> = wire[..rivals]
            .iter()
            .map(|bytes| forged(bytes, wire_format, &mut random))
            .collect();
        let mut arrivals: Vec<_> = wire.into_iter().chain(bad).map(|bytes| (bytes, None)).collect();
        random.shuffle(&mut arrivals);
        let mut reassembler = Reassembler::new(parameters, limits());
        let found = receive(&mut reassembler, &arrivals);
        prop_assert!(found == Some(payload), "{:?}", reassembler.stats());
    }

    /// Slots that hold nothing but wrong bytes, several each, before or after k others: those are
    /// enough, whatever was spent on the wrong ones.
    #[test]
    fn k_genuine_segments_without_rivals_are_enough(
        code in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(WIRES.to_vec()),
        k in 2usize..=64, m in 1usize..=8, per_slot in 2usize..=4, names in 0usize..=3, seed: u64,
    ) {
        prop_assume!(m < k);
        let mut random = Random(seed);
        let (parameters, payload, mut wire) = message(wire_format, code, (k, m), &mut random);
        wire.rotate_left(random.below(k + m));
        let mut arrivals: Vec<(Vec<u8>, Option<String>)> = Vec::new();
        for (number, bytes) in wire.iter().enumerate() {
            if number < k {
                arrivals.push((bytes.clone(), None));
                continue;
            }
            for _ in 0..per_slot {
                let name = (names > 0).then(|| format!("m{}", random.below(names)));
                arrivals.push((forged(bytes, wire_format, &mut random), name));
            }
        }
        random.shuffle(&mut arrivals);
        // The last genuine one comes last.
        let last = arrivals.iter().position(|(bytes, _)| bytes == &wire[0]).unwrap();
        let total = arrivals.len();
        arrivals.swap(last, total - 1);
        let mut reassembler = Reassembler::new(parameters, limits());
        let found = receive(&mut reassembler, &arrivals);
        prop_assert!(found == Some(payload), "{:?}", reassembler.stats());
    }

    /// Whole forged copies under other names, before and between: any k of one sender are enough.
    #[test]
    fn forged_copies_do_not_spend_what_one_sender_needs(
        code in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(WIRES.to_vec()),
        k in 2usize..=64, m in 1usize..=8, copies in 1usize..=3, comes_first: bool, seed: u64,
    ) {
        prop_assume!(m < k);
        let mut random = Random(seed);
        let (parameters, payload, wire) = message(wire_format, code, (k, m), &mut random);
        let mut arrivals: Vec<(Vec<u8>, Option<String>)> = Vec::new();
        for copy in 0..copies {
            let name = Some(format!("m{copy}"));
            arrivals.extend(wire.iter().map(|bytes| {
                (forged(bytes, wire_format, &mut random), name.clone())
            }));
        }
        let mut genuine: Vec<_> = wire[..k]
            .iter()
            .map(|bytes| (bytes.clone(), Some("alice".to_owned())))
            .collect();
        random.shuffle(&mut genuine);
        arrivals.append(&mut genuine);
        if !comes_first {
            random.shuffle(&mut arrivals);
        }
        let mut reassembler = Reassembler::new(parameters, limits());
        let found = receive(&mut reassembler, &arrivals);
        prop_assert!(found == Some(payload), "{:?}", reassembler.stats());
    }
}

/// A rival that makes zeros of the other data shard, whose end is searched for, must not spend what
/// the right choice needs.
#[test]
fn rivals_that_make_zeros_are_survived() {
    for (wire_format, code) in WIRES.into_iter().flat_map(|w| CODES.map(|c| (w, c))) {
        let mut random = Random(5);
        let (parameters, payload, wire) = message(wire_format, code, (2, 1), &mut random);
        let Ok(Received::Segment(first)) = decode(&wire[0], wire_format, 256) else {
            panic!("our own segment is one")
        };
        let Ok(Received::Segment(parity)) = decode(&wire[2], wire_format, 256) else {
            panic!("our own segment is one")
        };
        let rival = first.header.encode(wire_format, parity.payload);
        let orders = [[&rival, &wire[0], &wire[2]], [&wire[2], &rival, &wire[0]]];
        for order in orders {
            let arrivals = order.map(|bytes| (bytes.clone(), None));
            let mut reassembler = Reassembler::new(parameters, limits());
            assert_eq!(receive(&mut reassembler, &arrivals), Some(payload.clone()));
        }
    }
}

/// Whatever comes, a set takes no more than twice the price of so many reconstructions in either purse:
/// hashing and decoding it all, and three looks, each with a fixed part.
#[test]
fn work_is_bounded() {
    for (k, m) in [(2, 1), (16, 2), (48, 8)] {
        let mut random = Random(k as u64);
        let code = ErasureCode::Leopard;
        let (parameters, _, wire) = message(WireFormat::Raw, code, (k, m), &mut random);
        let mut reassembler = Reassembler::new(parameters, limits());
        let (mut hashing, mut looks, mut dropped) = (0, 0, 0);
        for number in 0..40 * (k + m) {
            let bytes = forged(&wire[random.below(k + m)], WireFormat::Raw, &mut random);
            let name = format!("m{}", random.below(1 + number % 7));
            let outcome = receive(&mut reassembler, &[(bytes, Some(name))]);
            assert_eq!(outcome, None);
            for set in reassembler.sets.values() {
                hashing = hashing.max(set.work().hashing);
                looks = looks.max(set.work().looks);
            }
            dropped += reassembler.stats().failed_reconstructions;
        }
        let hashed = (k + m) as u64 * 64 + 1024;
        // Each of k + m shards gives a look its 64 bytes and a coefficient for each of m.
        let looked = 3 * (3 * ((k + m) * (64 + m)) as u64 + 1024);
        // The last attempt may pass the limit by one trial.
        let most = 2 * 32 + 2;
        assert!(hashing <= most * hashed, "{hashing} of {hashed}");
        assert!(looks <= most * looked, "{looks} of {looked}");
        assert!(dropped > 0, "something was hashed");
    }
}

/// The same change of many segments names none of them: what guesses at it took is counted.
#[test]
fn guesses_are_paid_for() {
    let (k, m) = (24, 20);
    let mut random = Random(7);
    let (parameters, _, mut wire) = message(WireFormat::Raw, CODES[0], (k, m), &mut random);
    for bytes in &mut wire[..15] {
        let end = bytes.len() - 8;
        bytes[end] ^= 1;
    }
    let mut reassembler = Reassembler::new(parameters, limits());
    let price = 3 * locate::work_of((k, m), 64);
    let mut looks = 0;
    for (held, bytes) in (1..).zip(&wire) {
        reassembler.receive(bytes, &Receipt::default());
        let set = reassembler.sets.values().next();
        let set = set.expect("nothing names the wrong ones");
        // An eighth of what is left while more can come, then half; a guess may pass that by one look.
        let left = (32 * price).saturating_sub(looks);
        let share = if held < k + m { left / 8 } else { left / 2 };
        let taken = set.work().looks - looks;
        assert!(taken <= share + price, "{taken} of {share} with {held}");
        looks = set.work().looks;
    }
    // Half of what was left when all had come, where several more attempts had an eighth each.
    assert!(looks >= 32 / 2 * price, "{looks}");
}

#[test]
fn what_one_purse_has_left_buys_nothing_of_the_other() {
    let of = |before, counts| Budget::new(before, counts, [640, 64, 0], 32);
    let hashed = Work {
        hashing: u64::MAX,
        ..Work::default()
    };
    let looked = Work {
        looks: u64::MAX,
        ..Work::default()
    };
    let fresh = of(Work::default(), (10, 2));
    assert!(fresh.affords(true) && !fresh.is_spent());
    let budget = of(hashed, (10, 2));
    assert_eq!(budget.looks_left(), fresh.looks_left());
    assert!(!budget.affords(false) && budget.is_spent());
    let budget = of(looked, (10, 2));
    assert_eq!(budget.hashing_left(), fresh.hashing_left());
    assert!(budget.affords(false) && !budget.affords(true) && budget.is_spent());
    // Without parity nobody looks.
    let budget = of(Work::default(), (10, 0));
    assert!(budget.looks_left() == 0 && !budget.is_spent());
}

#[test]
fn each_turn_may_take_what_those_before_it_left_and_its_own_part() {
    let (counts, sizes) = ((10, 2), [640, 64, 0]);
    let of = |turn| {
        let mut budget = Budget::new(Work::default(), counts, sizes, 32);
        budget.turn = turn;
        budget
    };
    let (hashing, looks) = (
        of(Turn::Guesses).hashing_left(),
        of(Turn::Guesses).looks_left(),
    );
    for (turn, halves, prices) in [
        (Turn::Guesses, 2, 0),
        (Turn::Repeated, 3, 0),
        (Turn::Promised, 4, 0),
        (Turn::Proven, 6, 1),
    ] {
        let budget = of(turn);
        assert_eq!(
            budget.hashing_left(),
            hashing * halves / 2 + prices * hashing / 32
        );
        assert_eq!(
            budget.looks_left(),
            looks * halves / 2 + prices * looks / 32
        );
        assert_eq!(budget.left_to_locate(), budget.looks_left() / 4);
    }
}

/// A budget of reconstructions is one of bytes where those are large: a single call takes no seconds.
#[test]
fn large_sets_have_bytes_to_spend() {
    let budget_of = |counts: (usize, usize), shard_len: usize, reconstructions| {
        let sizes = [counts.0 * shard_len, shard_len, 0];
        let budget = Budget::new(Work::default(), counts, sizes, reconstructions);
        (budget.hashing_left(), budget.looks_left())
    };
    // As much again is promised to what needs no guess.
    for counts in [(192, 0), (170, 22), (128, 64), (96, 96)] {
        let whole = (counts.0 * 102_400) as u64;
        let (hashing, looks) = budget_of(counts, 102_400, 32);
        assert!(
            hashing + looks <= 2 * (256 << 20),
            "{hashing} and {looks} for {counts:?}"
        );
        assert!(hashing >= 2 * 4 * whole, "{hashing} for {counts:?}");
    }
    // Four are afforded however large they are.
    let whole = (192 * 102_400) as u64;
    assert!(budget_of((192, 0), 102_400, 4).0 >= 2 * 4 * whole);
    // Few reconstructions stay few; small ones all count.
    assert!(budget_of((128, 0), 102_400, 1).0 <= 2 * 14_000_000);
    assert!(budget_of((10, 2), 1024, 32).0 >= 2 * 32 * 10 * 1024);
}

#[test]
fn a_search_for_the_end_takes_half_of_what_is_left() {
    let mut budget = Budget::new(Work::default(), (4, 2), [256, 64, 100], 1);
    let ends_left = |budget: &Budget| [false, true].map(|borne_out| budget.ends_left(borne_out));
    assert_eq!(ends_left(&budget), [300, 600]);
    budget.turn = Turn::Guesses;
    assert_eq!(ends_left(&budget), [150, 150]);
}

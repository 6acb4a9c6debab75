//! Poisoned sets: rivals, replacements and losses together, as far as the specification promises.

use proptest::prelude::*;

use super::tests::{CODES, limits, parameters_of, reconstructed};
use super::work::Work;
use super::*;
use crate::erasure::ErasureCode;
use crate::segment::segment;
use crate::wire::segment::{Header, Received, Slot, WireFormat, decode};

pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for position in (1..items.len()).rev() {
            items.swap(position, self.below(position + 1));
        }
    }
}

/// The same header around other bytes of the same length.
pub(super) fn forged(bytes: &[u8], wire_format: WireFormat, random: &mut Random) -> Vec<u8> {
    let Ok(Received::Segment(segment)) = decode(bytes, wire_format, 256) else {
        panic!("our own segment is one")
    };
    let payload: Vec<u8> = segment
        .payload
        .iter()
        .map(|_| random.next() as u8)
        .collect();
    segment.header.encode(wire_format, &payload)
}

/// The same header around the same bytes and these.
pub(super) fn followed_by(bytes: &[u8], wire_format: WireFormat, more: &[u8]) -> Vec<u8> {
    let Ok(Received::Segment(segment)) = decode(bytes, wire_format, 256) else {
        panic!("our own segment is one")
    };
    let payload = [segment.payload, more].concat();
    segment.header.encode(wire_format, &payload)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, max_global_rejects: 20_000, ..ProptestConfig::default()
    })]

    /// r slots beyond k: up to r - 1 of them are replaced, others are lost, and rivals come for
    /// slots that stay out of the first k clean ones. Every order of arrival.
    #[test]
    fn the_payload_comes_out_of_losses_rivals_and_replacements(
        code in prop::sample::select(CODES.to_vec()),
        configured in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(vec![WireFormat::Raw, WireFormat::Lip243]),
        k in 9usize..=64, m in 2usize..=8, lost in 0usize..=6, bad in 0usize..=6,
        rivals in 0usize..=6, tail in 1usize..=64, seed: u64,
    ) {
        prop_assume!(lost + rivals + bad < m);
        let mut random = Random(seed);
        let rate = (m as f64 - 0.5) / k as f64;
        let sent = parameters_of(wire_format, code, rate);
        let receiving = parameters_of(wire_format, configured, rate);
        let payload: Vec<u8> = (0..(k - 1) * 64 + tail).map(|_| random.next() as u8).collect();
        let mut wire = segment(&payload, &sent).unwrap().to_vecs();
        prop_assert_eq!(wire.len(), k + m);
        random.shuffle(&mut wire);
        wire.truncate(k + m - lost);
        let mut arrivals = Vec::new();
        for (number, bytes) in wire.iter().enumerate() {
            if number >= bad {
                arrivals.push((bytes.clone(), false));
            }
            if number < bad + rivals {
                arrivals.push((forged(bytes, wire_format, &mut random), true));
            }
        }
        random.shuffle(&mut arrivals);
        let mut reassembler = Reassembler::new(receiving, limits());
        let (mut found, mut expected_bad) = (None, 0);
        for (bytes, is_bad) in &arrivals {
            expected_bad += usize::from(*is_bad && found.is_none());
            let outcome = reassembler.receive(bytes, &Receipt::default());
            if let Outcome::Reconstructed(reconstructed) = outcome {
                prop_assert!(found.is_none());
                prop_assert_eq!(reconstructed.bad_segments.len(), expected_bad);
                found = Some(reconstructed.payload.to_vec());
            }
        }
        prop_assert!(found == Some(payload), "{:?}", reassembler.stats());
    }
}

/// The header of `bytes` with counts beyond `counts`, those of data and parity, around other bytes.
pub(super) fn miscounted(
    bytes: &[u8],
    wire_format: WireFormat,
    counts: [u16; 2],
    random: &mut Random,
) -> Vec<u8> {
    let Ok(Received::Segment(segment)) = decode(bytes, wire_format, 256) else {
        panic!("our own segment is one")
    };
    let Header {
        mut data_segment_count,
        mut parity_segment_count,
        ..
    } = segment.header;
    let is_parity = random.below(2) == 0;
    for (count, genuine, is_told) in [
        (&mut data_segment_count, counts[0], !is_parity),
        (&mut parity_segment_count, counts[1], is_parity),
    ] {
        // Under draft a segment tells the count of its own class alone.
        let other = genuine + 1 + random.below(50) as u16;
        *count = (wire_format != WireFormat::Draft || is_told).then_some(other);
    }
    let index = random.below(2) as u8;
    let header = Header {
        slot: if is_parity {
            Slot::Parity(index)
        } else {
            Slot::Data(index)
        },
        data_segment_count,
        parity_segment_count,
        ..segment.header
    };
    let length = segment.payload.len();
    header.encode(wire_format, &vec![random.next() as u8; length])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any k genuine segments are enough, whatever counts others claim for the same hash.
    #[test]
    fn forged_counts_shut_no_payload_out(
        code in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(vec![
            WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243
        ]),
        k in 2usize..=40, m in 1usize..=8, lost in 0usize..=8,
        forgeries in 1usize..=14, is_named: bool, seed: u64,
    ) {
        prop_assume!(m <= k);
        let mut random = Random(seed);
        let parameters = parameters_of(wire_format, code, m as f64 / k as f64);
        let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
        let mut wire = segment(&payload, &parameters).unwrap().to_vecs();
        let total = wire.len();
        let lost = lost.min(total - k);
        let counts = [k as u16, (total - k) as u16];
        let forged: Vec<Vec<u8>> = (0..forgeries)
            .map(|_| miscounted(&wire[0], wire_format, counts, &mut random))
            .collect();
        // Under draft data segments alone tell how many there are.
        wire[1..].rotate_left(lost % k);
        wire.truncate(total - lost);
        let mut arrivals: Vec<(&[u8], &str)> = Vec::new();
        arrivals.extend(wire.iter().map(|bytes| (&bytes[..], "alice")));
        arrivals.extend(forged.iter().map(|bytes| (&bytes[..], "mallory")));
        random.shuffle(&mut arrivals);
        let mut reassembler = Reassembler::new(parameters, limits());
        let found = arrivals.iter().find_map(|(bytes, sender)| {
            let receipt = Receipt {
                sender: is_named.then_some(*sender),
                ..Receipt::default()
            };
            reconstructed(&reassembler.receive(bytes, &receipt))
        });
        prop_assert!(found == Some(payload.clone()), "{:?}", reassembler.stats());
        let sets = vec![arrivals.iter().map(|(bytes, _)| *bytes).collect()];
        let joined = reassemble_many(&sets, &parameters, 4, 32).remove(0).unwrap();
        let mut bytes = Vec::new();
        joined.write_to(&mut bytes);
        prop_assert_eq!(bytes, payload);
    }
}

/// Parity under `draft` as if there were `count` of it, around other bytes.
fn forged_parity(bytes: &[u8], index: u8, count: u16, random: &mut Random) -> Vec<u8> {
    let Ok(Received::Segment(segment)) = decode(bytes, WireFormat::Draft, 256) else {
        panic!("our own segment is one")
    };
    let header = Header {
        slot: Slot::Parity(index),
        data_segment_count: None,
        parity_segment_count: Some(count),
        ..segment.header
    };
    let payload: Vec<u8> = segment
        .payload
        .iter()
        .map(|_| random.next() as u8)
        .collect();
    header.encode(WireFormat::Draft, &payload)
}

#[test]
fn of_many_counts_those_are_tried_that_the_sender_told_most_often_then_those_of_most_segments() {
    let (k, m, lost) = (32, 20, 2);
    let parameters = parameters_of(WireFormat::Draft, ErasureCode::Leopard, 0.63);
    let mut random = Random(29);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    assert_eq!(wire.len(), k + m);
    // More counts than are tried, all of them below the genuine one; the data join the first.
    for (each, parity_sender) in [(1, "bob"), (2, "alice")] {
        let mut arrivals = Vec::new();
        for count in 3..m as u16 {
            for index in 0..if count == 3 { 3 } else { each } {
                let bytes = forged_parity(&wire[k], index, count, &mut random);
                arrivals.push((bytes, "mallory"));
            }
        }
        arrivals.extend(
            wire[k..k + lost]
                .iter()
                .map(|bytes| (bytes.clone(), parity_sender)),
        );
        arrivals.extend(wire[lost..k].iter().map(|bytes| (bytes.clone(), "alice")));
        let found = first_found(parameters, &arrivals);
        assert!(found.as_ref() == Some(&payload), "{each}");
    }
}

/// The first payload that these make, each of which came from a sender.
fn first_found(parameters: Parameters, arrivals: &[(Vec<u8>, &str)]) -> Option<Vec<u8>> {
    let mut reassembler = Reassembler::new(parameters, limits());
    arrivals.iter().find_map(|(bytes, sender)| {
        let receipt = Receipt {
            sender: Some(*sender),
            ..Receipt::default()
        };
        reconstructed(&reassembler.receive(bytes, &receipt))
    })
}

/// What lies in a set of other counts counts once, however often it came, and by whom it was repeated.
#[test]
fn copies_in_a_set_of_other_counts_are_no_rivals() {
    let (k, data) = (16, 10);
    let parameters = parameters_of(WireFormat::Draft, ErasureCode::Leopard, 1.0);
    let mut random = Random(37);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    let other = forged(&wire[k + 5], WireFormat::Draft, &mut random);
    // Either all but one of the first data segments are forged, and one sender's own the genuine ones, or one is and
    // two senders have a part each.
    for (copies, parity_sender) in [(0..1, "alice"), (1..data, "bob")] {
        let mut arrivals = vec![(forged_parity(&wire[k], 0, 2, &mut random), "mallory")];
        for (ordinal, bytes) in wire[..data].iter().enumerate() {
            let altered = forged(bytes, WireFormat::Draft, &mut random);
            let is_copy = copies.contains(&ordinal);
            arrivals.push((if is_copy { bytes.clone() } else { altered }, "mallory"));
        }
        // Of two sets that they fit, alice's data join the one that holds more.
        for index in 0..12 {
            let bytes = forged_parity(&wire[k], index, 13, &mut random);
            arrivals.push((bytes, "mallory"));
        }
        arrivals.extend(wire[..data].iter().map(|bytes| (bytes.clone(), "alice")));
        arrivals.push((other.clone(), "mallory"));
        arrivals.extend(
            wire[k..k + 6]
                .iter()
                .map(|bytes| (bytes.clone(), parity_sender)),
        );
        let found = first_found(parameters, &arrivals);
        assert!(found.as_ref() == Some(&payload), "{parity_sender}");
    }
}

#[test]
fn what_is_tried_across_sets_is_bounded_whatever_comes() {
    let k = 8;
    let parameters = parameters_of(WireFormat::Draft, ErasureCode::Leopard, 0.5);
    let mut random = Random(31);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    let limits = Limits {
        work_budget: 1,
        ..limits()
    };
    let mut reassembler = Reassembler::new(parameters, limits);
    // What the data come to lies in a set with another count of parity.
    let forged = |index, count, random: &mut Random| forged_parity(&wire[k], index, count, random);
    reassembler.receive(&forged(0, 4, &mut random), &Receipt::default());
    for bytes in &wire[1..k] {
        reassembler.receive(bytes, &Receipt::default());
    }
    for index in 0..100 {
        let bytes = forged(index, 100, &mut random);
        reassembler.receive(&bytes, &Receipt::default());
        let sets = reassembler.sets.values();
        let mut work = sets.filter_map(|set| set.work_across.as_deref());
        if work.any(Work::is_exhausted) {
            return;
        }
    }
    panic!("it is without end");
}

#[test]
fn bad_segments_and_their_senders_are_named() {
    for (code, configured) in CODES
        .into_iter()
        .flat_map(|code| CODES.map(|other| (code, other)))
    {
        let mut random = Random(7);
        let payload: Vec<u8> = (0..700).map(|_| random.next() as u8).collect();
        let sent = parameters_of(WireFormat::Raw, code, 0.5);
        let wire = segment(&payload, &sent).unwrap().to_vecs();
        let receiving = parameters_of(WireFormat::Raw, configured, 0.5);
        let mut reassembler = Reassembler::new(receiving, limits());
        let from = |sender| Receipt {
            sender: Some(sender),
            ..Receipt::default()
        };
        // Data segment 2 and parity segment 1 are replaced, data segment 5 and parity segment 3 have rivals.
        for (ordinal, sender) in [(2, "mallory"), (12, "mallory"), (5, "oscar"), (14, "oscar")] {
            let bytes = forged(&wire[ordinal], WireFormat::Raw, &mut random);
            reassembler.receive(&bytes, &from(sender));
        }
        // The last data segment alone may be padded, with zeros.
        for (ordinal, padding, sender) in [
            (10, &[0, 0, 0, 0], "bob"),
            (10, &[0, 0, 1, 0], "eve"),
            (3, &[0, 0, 0, 0], "eve"),
            (13, &[0, 0, 0, 0], "eve"),
        ] {
            let bytes = followed_by(&wire[ordinal], WireFormat::Raw, padding);
            reassembler.receive(&bytes, &from(sender));
        }
        // Genuine, and no part of what alice's own make.
        reassembler.receive(&wire[14], &from("bob"));
        let outcomes: Vec<Outcome> = (0..wire.len())
            .filter(|ordinal| ![2, 12].contains(ordinal))
            .map(|ordinal| reassembler.receive(&wire[ordinal], &from("alice")))
            .collect();
        let found = outcomes
            .iter()
            .find_map(|outcome| match outcome {
                Outcome::Reconstructed(found) => Some(found),
                _ => None,
            })
            .expect("alice's eleven segments suffice");
        assert_eq!(found.payload.to_vec(), payload);
        let mut bad = found.bad_segments.clone();
        bad.sort();
        let named = |(ordinal, sender): (usize, &str)| (ordinal, Some(sender.to_owned()));
        let expected = [
            (2, "mallory"),
            (3, "eve"),
            (5, "oscar"),
            (10, "eve"),
            (12, "mallory"),
            (13, "eve"),
            (14, "oscar"),
        ];
        assert_eq!(bad, expected.map(named), "{code:?} {configured:?}");
    }
}

/// Of whatever length rivals are, and whichever comes last, their slots count as lost where enough others stand;
/// where too few do, those whose rivals are of another length than all others count.
#[test]
fn a_slot_with_rivals_of_any_length_counts_as_lost() {
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.1);
    let mut random = Random(43);
    let payload: Vec<u8> = (0..9 * 64).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    assert_eq!(wire.len(), 10);
    let mut rival = |ordinal: usize, padding: &[u8]| {
        let bytes = forged(&wire[ordinal], WireFormat::Raw, &mut random);
        followed_by(&bytes, WireFormat::Raw, padding)
    };
    let (forged, longer) = (rival(0, &[]), rival(0, &[1]));
    for place in 0..=wire.len() {
        let mut arrivals = [std::slice::from_ref(&forged), &wire[1..]].concat();
        arrivals.insert(place, longer.clone());
        let arrivals: Vec<_> = arrivals.into_iter().map(|bytes| (bytes, "bob")).collect();
        let found = first_found(parameters, &arrivals);
        assert!(found.as_ref() == Some(&payload), "{place}");
    }
    let rivals = [rival(0, &[1]), rival(0, &[]), rival(1, &[1])];
    let arrivals = [&rivals[..], &wire[1..], &[rival(0, &[])]].concat();
    let arrivals: Vec<_> = arrivals.into_iter().map(|bytes| (bytes, "bob")).collect();
    assert_eq!(first_found(parameters, &arrivals), Some(payload));
}

/// A further rival of another length than all others changes nothing, and costs nothing.
#[test]
fn what_was_tried_before_is_not_tried_again_for_a_rival_that_fits_nowhere() {
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.1);
    let mut random = Random(47);
    let payload: Vec<u8> = (0..9 * 64).map(|_| random.next() as u8).collect();
    let mut wire = segment(&payload, &parameters).unwrap().to_vecs();
    for bytes in &mut wire[..2] {
        *bytes = forged(bytes, WireFormat::Raw, &mut random);
    }
    let longer = [&[1][..], &[1, 1]];
    wire.extend(longer.map(|padding| followed_by(&wire[0], WireFormat::Raw, padding)));
    let mut reassembler = Reassembler::new(parameters, limits());
    let looks = wire.iter().map(|bytes| {
        reassembler.receive(bytes, &Receipt::default());
        reassembler.sets.values().next().unwrap().work().looks
    });
    let looks: Vec<u64> = looks.skip(9).collect();
    assert!(looks[0] > 0);
    assert_eq!(looks[1], looks[2]);
}

/// Parity of something else behind the end, where lip243 hashes nothing, makes the payload all the same.
#[test]
fn parity_of_what_stands_behind_the_end_is_bad() {
    let sent = parameters_of(WireFormat::Lip243, ErasureCode::Leopard, 0.5);
    let mut random = Random(41);
    let payload: Vec<u8> = (0..4 * 64 - 10).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &sent).unwrap().to_vecs();
    let longer = [&payload[..], &[1; 10]].concat();
    let crafted = segment(&longer, &sent).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(sent, limits());
    let rival = forged(&wire[0], WireFormat::Lip243, &mut random);
    let parity = wire[4..].iter().zip(&crafted[4..]).map(|(genuine, other)| {
        let other = decode(other, WireFormat::Lip243, 256);
        let (Ok(Received::Segment(genuine)), Ok(Received::Segment(other))) =
            (decode(genuine, WireFormat::Lip243, 256), other)
        else {
            panic!("our own segments are some")
        };
        genuine.header.encode(WireFormat::Lip243, other.payload)
    });
    let arrivals: Vec<Vec<u8>> = [rival]
        .into_iter()
        .chain(parity)
        .chain(wire[..3].to_vec())
        .collect();
    let outcomes = arrivals
        .iter()
        .map(|bytes| reassembler.receive(bytes, &Receipt::default()));
    let bad = outcomes.filter_map(|outcome| match outcome {
        Outcome::Reconstructed(found) => Some(found.bad_segments),
        _ => None,
    });
    let bad: Vec<Vec<usize>> = bad
        .map(|bad| bad.into_iter().map(|(ordinal, _)| ordinal).collect())
        .collect();
    assert_eq!(bad, [[0, 4, 5]]);
}

#[test]
fn a_spent_budget_drops_the_set_and_a_later_send_starts_anew() {
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.5);
    let mut random = Random(3);
    let payload: Vec<u8> = (0..700).map(|_| random.next() as u8).collect();
    let wire = segment(&payload, &parameters).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(
        parameters,
        Limits {
            work_budget: 1,
            ..limits()
        },
    );
    let dropped = wire.iter().cycle().take(200).any(|bytes| {
        let bytes = forged(bytes, WireFormat::Raw, &mut random);
        let outcome = reassembler.receive(&bytes, &Receipt::default());
        matches!(
            outcome,
            Outcome::Dropped(Dropped {
                reason: Drop::HashMismatch,
                ..
            })
        )
    });
    assert!(dropped);
    reassembler.expire(i64::MAX);
    let outcomes = wire
        .iter()
        .map(|bytes| reassembler.receive(bytes, &Receipt::default()));
    assert_eq!(
        outcomes
            .filter_map(|outcome| reconstructed(&outcome))
            .collect::<Vec<_>>(),
        [payload]
    );
}

/// Segments of `payload` whose headers name another hash.
fn misnamed(payload: &[u8], parameters: &Parameters) -> Vec<Vec<u8>> {
    let wire = segment(payload, parameters).unwrap().to_vecs();
    let renamed = wire.iter().map(|bytes| {
        let Ok(Received::Segment(mut segment)) = decode(bytes, WireFormat::Raw, 256) else {
            panic!("our own segment is one")
        };
        segment.header.entire_message_hash = [7; 32];
        segment.header.encode(WireFormat::Raw, segment.payload)
    });
    renamed.collect()
}

#[test]
fn segments_that_agree_on_a_wrong_payload_are_hashed_once() {
    for code in CODES {
        let parameters = parameters_of(WireFormat::Raw, code, 0.5);
        let payload: Vec<u8> = (0..1270u32).map(|at| (at * 13) as u8 | 1).collect();
        let mut wire = misnamed(&payload, &parameters);
        for (lost, mismatches) in [(0, 1), (3, 1)] {
            let mut reassembler = Reassembler::new(parameters, limits());
            for bytes in &wire {
                let outcome = reassembler.receive(bytes, &Receipt::default());
                assert!(matches!(outcome, Outcome::Stored { .. }), "{outcome:?}");
            }
            let stats = reassembler.stats();
            assert_eq!(stats.failed_reconstructions, mismatches, "{lost} lost");
            wire.drain(..3);
        }
    }
}

#[test]
fn crafted_corruption_beyond_half_of_r_is_searched_for() {
    for code in CODES {
        let parameters = parameters_of(WireFormat::Raw, code, 8.0 / 24.0);
        let mut random = Random(11);
        let payload: Vec<u8> = (0..24 * 64).map(|_| random.next() as u8).collect();
        let mut wire = segment(&payload, &parameters).unwrap().to_vecs();
        assert_eq!(wire.len(), 32);
        // The payload starts behind at most 40 bytes of header: offset 50 lies in every shard.
        for ordinal in [2, 5, 11, 17, 29] {
            wire[ordinal][50] ^= ordinal as u8 | 64;
        }
        let mut reassembler = Reassembler::new(parameters, limits());
        let found = wire
            .iter()
            .find_map(|bytes| reconstructed(&reassembler.receive(bytes, &Receipt::default())));
        assert!(found == Some(payload), "{:?}", reassembler.stats());
    }
}

/// Data and parity of counts that Leopard codes in GF(2^16), as a peer sends them.
fn wide_segments(payload: &[u8], k: usize, m: usize) -> Vec<Vec<u8>> {
    let shards: Vec<&[u8]> = payload.chunks(64).collect();
    let parity = reed_solomon_simd::encode(k, m, &shards).unwrap();
    let header = |slot| Header {
        entire_message_hash: crate::keccak::keccak256(payload),
        slot,
        data_segment_count: Some(k as u16),
        parity_segment_count: Some(m as u16),
        payload_length: None,
    };
    let data = shards
        .iter()
        .enumerate()
        .map(|(index, shard)| header(Slot::Data(index as u8)).encode(WireFormat::Raw, shard));
    let parity = parity
        .iter()
        .enumerate()
        .map(|(index, shard)| header(Slot::Parity(index as u8)).encode(WireFormat::Raw, shard));
    data.chain(parity).collect()
}

#[test]
fn poison_where_nothing_can_be_located() {
    let (k, m) = (230, 26);
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.1);
    let mut random = Random(17);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
    let wire = wide_segments(&payload, k, m);
    let receive_all = |wire: &[Vec<u8>]| {
        let mut reassembler = Reassembler::new(parameters, limits());
        wire.iter().find_map(
            |bytes| match reassembler.receive(bytes, &Receipt::default()) {
                Outcome::Reconstructed(found) => Some((found.payload.to_vec(), found.bad_segments)),
                _ => None,
            },
        )
    };
    // Losses, and a rival for a slot that is not needed.
    let rival = forged(&wire[100], WireFormat::Raw, &mut random);
    let lossy = [&wire[5..100], &[rival], &wire[100..]].concat();
    let named = |ordinal| Some((payload.clone(), vec![(ordinal, None)]));
    assert_eq!(receive_all(&lossy), named(100));
    // One wrong segment in place of a genuine one, when all have come: no parity is accused, which nobody makes again.
    let mut replaced = wire.clone();
    replaced[3] = forged(&wire[3], WireFormat::Raw, &mut random);
    assert_eq!(receive_all(&replaced), named(3));
    // More than can be searched for: reported, bounded, nothing wrong delivered.
    for ordinal in (0..256).step_by(7) {
        replaced[ordinal] = forged(&wire[ordinal], WireFormat::Raw, &mut random);
    }
    assert_eq!(receive_all(&replaced), None);
}

/// Where counts cannot be checked against each other, hashing takes the place of a look.
#[test]
fn what_is_hashed_in_place_of_a_look_is_paid_for_as_one() {
    let (k, m) = (230, 26);
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.1);
    let mut random = Random(19);
    let payload: Vec<u8> = (0..k * 64).map(|_| random.next() as u8).collect();
    let mut wire = wide_segments(&payload, k, m);
    for ordinal in [100, 120] {
        wire[ordinal] = forged(&wire[ordinal], WireFormat::Raw, &mut random);
    }
    // What is taken by exactly k segments, and by one more.
    let work_of = |arrivals: &mut dyn Iterator<Item = &Vec<u8>>| {
        let mut reassembler = Reassembler::new(parameters, limits());
        let taken = arrivals.take(k + 1).map(|bytes| {
            reassembler.receive(bytes, &Receipt::default());
            reassembler.sets.values().next().unwrap().work()
        });
        taken.skip(k - 1).collect::<Vec<_>>()
    };
    // Only the first k count: behind them one more changes nothing, and before them they are others.
    let behind = work_of(&mut wire[1..].iter());
    let before = work_of(&mut wire.iter().rev());
    for work in [&behind, &before] {
        assert!(work[0].hashing > 0 && work[0].looks == 0);
        assert_eq!(work[1].hashing, work[0].hashing);
    }
    assert!(before[1].looks >= behind[1].looks + (k * 64) as u64);
}

#[test]
fn draft_takes_poison_as_the_others_do() {
    for code in CODES {
        let parameters = parameters_of(WireFormat::Draft, code, 0.5);
        let mut random = Random(23);
        let payload: Vec<u8> = (0..16 * 64).map(|_| random.next() as u8).collect();
        let mut wire = segment(&payload, &parameters).unwrap().to_vecs();
        for ordinal in [0, 7, 18] {
            wire[ordinal] = forged(&wire[ordinal], WireFormat::Draft, &mut random);
        }
        let rival = forged(&wire[4], WireFormat::Draft, &mut random);
        // Parity comes first: how many data segments there are is learnt late.
        wire.rotate_left(16);
        wire.insert(9, rival);
        let mut reassembler = Reassembler::new(parameters, limits());
        let found = wire
            .iter()
            .find_map(|bytes| reconstructed(&reassembler.receive(bytes, &Receipt::default())));
        assert!(found == Some(payload), "{:?}", reassembler.stats());
    }
}

//! Poisoned sets inside the bounds that are promised, and beyond them.
//!
//! Of r slots without rivals beyond k, fewer than r may be wrong at random, or half of r in any
//! way, and the payload comes out; rivals cost a slot each.

use proptest::prelude::*;
use shardwire_core::erasure::ErasureCode;
use shardwire_core::reassemble::{Limits, Outcome, Reassembler, Receipt, Reconstructed};
use shardwire_core::wire::segment::WireFormat;
use shardwire_fuzz::{Message, Random, limits, settings};

const WIRES: [WireFormat; 3] = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243];
const CODES: [ErasureCode; 2] = [ErasureCode::Leopard, ErasureCode::Vandermonde];
const PARITY: usize = 8;

fn receiver(wire_format: WireFormat, erasure_code: ErasureCode, work_budget: u64) -> Reassembler {
    let limits = Limits {
        work_budget,
        ..limits()
    };
    shardwire_fuzz::receiver(settings(wire_format, erasure_code, 256), limits)
}

/// What happens to a message of k + m segments on its way.
#[derive(Debug, Clone, Copy)]
struct Mix {
    lost: usize,
    /// Slots that hold random bytes beside the genuine ones.
    rivals: usize,
    /// Slots that hold random bytes only.
    replaced: usize,
}

struct Case {
    wire_format: WireFormat,
    message: Message,
    mix: Mix,
    seed: u64,
}

impl Case {
    /// Arrivals in a random order: bytes, and the ordinal where they are wrong.
    fn arrivals(&self) -> Vec<(Vec<u8>, Option<usize>)> {
        let mut random = Random(self.seed);
        let total = self.message.segments.len();
        let mut ordinals: Vec<usize> = (0..total).collect();
        random.shuffle(&mut ordinals);
        if self.wire_format == WireFormat::Draft
            && ordinals[self.mix.lost..]
                .iter()
                .all(|o| *o >= self.message.data_count)
        {
            // Without any data segment nobody learns k.
            let place = ordinals
                .iter()
                .position(|ordinal| *ordinal == 0)
                .unwrap_or(0);
            ordinals.swap(place, total - 1);
        }
        let Mix {
            lost,
            rivals,
            replaced,
        } = self.mix;
        let mut arrivals = Vec::new();
        for (number, ordinal) in ordinals[lost..].iter().enumerate() {
            let (header, part) = &self.message.segments[*ordinal];
            let genuine = header.encode(self.wire_format, part);
            let forged = header.encode(self.wire_format, &random.bytes(part.len()));
            if number >= replaced {
                arrivals.push((genuine, None));
            }
            if number < replaced + rivals {
                arrivals.push((forged, Some(*ordinal)));
            }
        }
        random.shuffle(&mut arrivals);
        arrivals
    }
}

fn message(
    code: ErasureCode,
    wire_format: WireFormat,
    (k, m, tail): (usize, usize, usize),
    seed: u64,
) -> Message {
    let m = if code == ErasureCode::Leopard {
        m.min(k)
    } else {
        m
    };
    let payload = Random(seed ^ 0xA5A5).bytes((k - 1) * 64 + tail);
    Message::of(payload, None, wire_format, code, (k, m, 64), false)
}

/// The payload comes out once, nothing else does, and whoever is named was wrong; everyone who was
/// wrong and came before is named.
fn check(case: &Case, configured: ErasureCode) -> Reconstructed {
    let mut reassembler = receiver(case.wire_format, configured, 32);
    let mut wrong = Vec::new();
    let mut found: Option<Reconstructed> = None;
    for (bytes, ordinal) in case.arrivals() {
        let sender = if ordinal.is_some() {
            "mallory"
        } else {
            "alice"
        };
        let receipt = Receipt {
            sender: Some(sender),
            ..Receipt::default()
        };
        let outcome = reassembler.receive(&bytes, &receipt);
        if found.is_none() {
            wrong.extend(ordinal);
        }
        match outcome {
            Outcome::Reconstructed(reconstructed) => {
                assert!(found.is_none(), "it came twice");
                found = Some(*reconstructed);
            }
            Outcome::Dropped(dropped) => panic!("{:?} {dropped:?}", case.mix),
            _ => {}
        }
    }
    let found = found.unwrap_or_else(|| {
        panic!(
            "{:?} of {} on {}: {:?}",
            case.mix,
            case.message,
            case.wire_format,
            reassembler.stats()
        )
    });
    assert_eq!(found.payload.to_vec(), case.message.payload);
    let mut named = found.bad_segments.clone();
    named.sort();
    wrong.sort_unstable();
    let wrong: Vec<_> = wrong
        .into_iter()
        .map(|ordinal| (ordinal, Some("mallory".to_owned())))
        .collect();
    assert_eq!(named, wrong, "{:?} of {}", case.mix, case.message);
    found
}

#[test]
fn every_mix_inside_the_bounds_with_8_parity_segments() {
    let mut mixes = 0;
    for lost in 0..PARITY {
        for rivals in 0..PARITY - lost {
            for replaced in 0..PARITY - lost - rivals {
                let mix = Mix {
                    lost,
                    rivals,
                    replaced,
                };
                for wire_format in WIRES {
                    for code in CODES {
                        let seed = mixes * 7_919 + lost as u64;
                        let mut random = Random(seed);
                        let k = 8 + random.below(57);
                        let tail = 1 + random.below(64);
                        let message = message(code, wire_format, (k, PARITY, tail), seed);
                        let configured = CODES[random.below(2)];
                        check(
                            &Case {
                                wire_format,
                                message,
                                mix,
                                seed,
                            },
                            configured,
                        );
                        mixes += 1;
                    }
                }
            }
        }
    }
    assert_eq!(mixes, 120 * 6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_global_rejects: 50_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn losses_rivals_and_replacements_inside_the_bounds(
        code in prop::sample::select(CODES.to_vec()),
        configured in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(WIRES.to_vec()),
        k in 2usize..=64, m in 1usize..=8, lost in 0usize..8, rivals in 0usize..8, replaced in 0usize..8,
        tail in 1usize..=64, seed: u64,
    ) {
        let message = message(code, wire_format, (k, m, tail), seed);
        prop_assume!(lost + rivals + replaced < message.parity_count.max(1));
        let mix = Mix { lost, rivals, replaced };
        check(&Case { wire_format, message, mix, seed }, configured);
    }

    /// The same flip at the same offset of several shards spans one dimension only.
    #[test]
    fn crafted_corruption_of_half_the_surplus(
        code in prop::sample::select(CODES.to_vec()),
        configured in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(WIRES.to_vec()),
        k in 2usize..=64, bad in 1usize..=4, offset in 0usize..64, flip in 1u8.., seed: u64,
    ) {
        let message = message(code, wire_format, (k, PARITY, 64), seed);
        let surplus = message.parity_count;
        prop_assume!(2 * bad <= surplus && bad < surplus);
        let mut random = Random(seed);
        let mut ordinals: Vec<usize> = (0..message.segments.len()).collect();
        random.shuffle(&mut ordinals);
        let mut reassembler = receiver(wire_format, configured, 32);
        let mut found = None;
        for (number, ordinal) in ordinals.iter().enumerate() {
            let (header, part) = &message.segments[*ordinal];
            let mut part = part.clone();
            part[offset] ^= if number < bad { flip } else { 0 };
            let bytes = header.encode(wire_format, &part);
            if let Outcome::Reconstructed(one) = reassembler.receive(&bytes, &Receipt::default()) {
                found = Some(one.payload.to_vec());
            }
        }
        prop_assert!(found == Some(message.payload.clone()), "{}: {:?}", message, reassembler.stats());
    }

    /// Beyond the bounds nothing is promised but this: nothing false comes out, the work ends, and
    /// genuine segments still lead to the payload.
    #[test]
    fn beyond_the_bounds_genuine_segments_reopen_the_attempt(
        code in prop::sample::select(CODES.to_vec()),
        wire_format in prop::sample::select(WIRES.to_vec()),
        k in 2usize..=32, crafted: bool, offset in 0usize..64, flip in 1u8.., seed: u64,
    ) {
        let message = message(code, wire_format, (k, PARITY, 64), seed);
        let mut random = Random(seed);
        let mut reassembler = receiver(wire_format, code, 32);
        let mut ordinals: Vec<usize> = (0..message.segments.len()).collect();
        random.shuffle(&mut ordinals);
        // One more wrong than could be told from what is held.
        for (number, ordinal) in ordinals.iter().enumerate() {
            let (header, part) = &message.segments[*ordinal];
            let wrong = number < message.parity_count;
            let part = match (wrong, crafted) {
                (false, _) => part.clone(),
                (true, false) => random.bytes(part.len()),
                (true, true) => {
                    let mut part = part.clone();
                    part[offset] ^= flip;
                    part
                }
            };
            let outcome = reassembler.receive(&header.encode(wire_format, &part), &Receipt::default());
            if let Outcome::Reconstructed(found) = outcome {
                // A search may find it all the same.
                prop_assert_eq!(found.payload.to_vec(), message.payload);
                return Ok(());
            }
        }
        let mut found = None;
        for _ in 0..2 {
            for ordinal in &ordinals {
                let (header, part) = &message.segments[*ordinal];
                let outcome = reassembler.receive(&header.encode(wire_format, part), &Receipt::default());
                if let Outcome::Reconstructed(one) = outcome {
                    found = Some(one.payload.to_vec());
                }
            }
        }
        prop_assert!(found == Some(message.payload.clone()), "{}: {:?}", message, reassembler.stats());
    }
}

/// More than one field of 256 elements: decoded, but nothing is located.
#[test]
fn leopards_larger_field_with_losses_and_with_poison() {
    for wire_format in WIRES {
        let (k, m) = (140, 70);
        let payload = Random(5).bytes((k - 1) * 64 + 9);
        let message = Message::of(
            payload,
            None,
            wire_format,
            ErasureCode::Leopard,
            (k, m, 64),
            false,
        );
        let encoded =
            |ordinal: usize, part: &[u8]| message.segments[ordinal].0.encode(wire_format, part);
        let genuine = |ordinal: usize| encoded(ordinal, &message.segments[ordinal].1);

        let mut lossy = receiver(wire_format, ErasureCode::Vandermonde, 32);
        let outcomes =
            (m..k + m).map(|ordinal| lossy.receive(&genuine(ordinal), &Receipt::default()));
        let found: Vec<_> = outcomes.filter_map(payload_of).collect();
        assert!(
            found == [message.payload.clone()],
            "{wire_format}: {:?}",
            lossy.stats()
        );

        let mut poisoned = receiver(wire_format, ErasureCode::Leopard, 32);
        let mut random = Random(6);
        let first: Vec<Outcome> = (3..k + m)
            .map(|ordinal| {
                let length = message.segments[ordinal].1.len();
                let bytes = match ordinal {
                    20 | 60 | 150 => encoded(ordinal, &random.bytes(length)),
                    _ => genuine(ordinal),
                };
                poisoned.receive(&bytes, &Receipt::default())
            })
            .collect();
        let told = first.iter().any(|outcome| {
            matches!(
                outcome,
                Outcome::Stored {
                    hash_mismatch: true,
                    ..
                } | Outcome::Dropped(_)
            )
        });
        let early = first.into_iter().filter_map(payload_of).collect::<Vec<_>>();
        assert!(early.iter().all(|payload| *payload == message.payload));
        assert!(
            told || !early.is_empty(),
            "{wire_format}: a mismatch is told"
        );
        if early.is_empty() {
            let outcomes =
                (0..k + m).map(|ordinal| poisoned.receive(&genuine(ordinal), &Receipt::default()));
            let found: Vec<_> = outcomes.filter_map(payload_of).collect();
            assert!(
                found == [message.payload.clone()],
                "{wire_format}: {:?}",
                poisoned.stats()
            );
        }
    }
}

fn payload_of(outcome: Outcome) -> Option<Vec<u8>> {
    match outcome {
        Outcome::Reconstructed(found) => Some(found.payload.to_vec()),
        _ => None,
    }
}

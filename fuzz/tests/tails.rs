//! The last data segment: lost, padded, short, and in payloads that themselves end in zeros.

use shardwire_core::erasure::ErasureCode;
use shardwire_core::reassemble::{Outcome, Receipt};
use shardwire_core::wire::segment::WireFormat;
use shardwire_fuzz::{Message, Random, limits, receiver, settings};

const CODES: [ErasureCode; 2] = [ErasureCode::Leopard, ErasureCode::Vandermonde];
const SHARD: usize = 192;
const DATA: usize = 3;

fn received(
    wire_format: WireFormat,
    configured: ErasureCode,
    segments: &[Vec<u8>],
) -> Option<(Vec<u8>, Vec<usize>)> {
    let mut reassembler = receiver(settings(wire_format, configured, SHARD), limits());
    segments.iter().find_map(
        |bytes| match reassembler.receive(bytes, &Receipt::default()) {
            Outcome::Reconstructed(found) => {
                Some((found.payload.to_vec(), found.data_segments_recovered))
            }
            _ => None,
        },
    )
}

/// Payloads whose last segment has `tail` bytes: of random bytes, ending in one zero, in half a
/// tail of zeros, in a whole one, and of nothing but zeros.
fn payloads(tail: usize) -> Vec<Vec<u8>> {
    let length = (DATA - 1) * SHARD + tail;
    let random = Random(tail as u64).bytes(length);
    [0, 1, tail.div_ceil(2), tail, tail + 7, length]
        .into_iter()
        .map(|zeros| {
            let mut payload = random.clone();
            payload[length - zeros..].fill(0);
            payload
        })
        .collect()
}

fn wires(message: &Message, wire_format: WireFormat) -> Vec<Vec<u8>> {
    let segments = message.segments.iter();
    segments
        .map(|(header, part)| header.encode(wire_format, part))
        .collect()
}

#[test]
fn a_lost_last_segment_of_every_length_comes_back() {
    for wire_format in [WireFormat::Raw, WireFormat::Draft] {
        for code in CODES {
            for tail in 1..=SHARD {
                for payload in payloads(tail) {
                    let message =
                        Message::of(payload, None, wire_format, code, (DATA, 2, SHARD), false);
                    let mut wire = wires(&message, wire_format);
                    // The last data segment never comes; parity stands for it.
                    wire.remove(DATA - 1);
                    for configured in CODES {
                        let found = received(wire_format, configured, &wire);
                        let expected = (message.payload.clone(), vec![DATA - 1]);
                        assert!(
                            found == Some(expected),
                            "{message} on {wire_format}, {configured:?} first"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_padded_last_segment_of_every_length_is_accepted() {
    for wire_format in [WireFormat::Raw, WireFormat::Draft] {
        for tail in 1..=SHARD {
            for payload in payloads(tail) {
                let message = Message::of(
                    payload,
                    None,
                    wire_format,
                    ErasureCode::Leopard,
                    (DATA, 2, SHARD),
                    true,
                );
                let wire = wires(&message, wire_format);
                assert_eq!(message.segments[DATA - 1].1.len(), SHARD);
                // All data segments, and, with another one lost, parity beside the padded one.
                for kept in [vec![0, 1, 2], vec![2, 0, 3]] {
                    let chosen: Vec<_> =
                        kept.iter().map(|ordinal| wire[*ordinal].clone()).collect();
                    let found = received(wire_format, ErasureCode::Leopard, &chosen);
                    let found = found.map(|(payload, _)| payload);
                    assert!(
                        found.as_ref() == Some(&message.payload),
                        "{message} on {wire_format}, {kept:?}"
                    );
                }
            }
        }
    }
}

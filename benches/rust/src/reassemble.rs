//! Reassembly: clean and poisoned, beside one Keccak-256 pass over the same payload.

use std::hint::black_box;
use std::sync::Arc;

use shardwire_core::erasure::ErasureCode;
use shardwire_core::keccak::keccak256;
use shardwire_core::reassemble::{Lent, Limits, Outcome, Reassembler, Receipt};
use shardwire_core::segment::{Parameters, Settings, segment};
use shardwire_core::wire::segment::WireFormat;

use crate::{Candidate, Case, noise};

const SEGMENT_BYTES: usize = 102_400;

/// Data segments of every case; at a rate of an eighth they have 8 parity segments.
const DATA_COUNT: usize = 64;

/// Every case of this file.
pub fn cases() -> Vec<Case> {
    [ErasureCode::Leopard, ErasureCode::Vandermonde]
        .into_iter()
        .flat_map(|code| [false, true].map(|shuffled| poisoned(code, shuffled)))
        .collect()
}

fn poisoned(code: ErasureCode, is_shuffled: bool) -> Case {
    let payload = noise(DATA_COUNT * SEGMENT_BYTES, 1);
    let parameters = parameters(code);
    let wire = segment(&payload, &parameters).expect("it fits").to_vecs();
    let case = |name: &'static str, bad: usize| {
        let mut wire = wire.clone();
        for number in 0..bad {
            // Every ninth place, so that data and parity are hit.
            let place = (number * 9 + 5) % wire.len();
            let end = wire[place].len() - 100;
            wire[place][100..end].copy_from_slice(&noise(end - 100, 77 + number as u64));
        }
        if is_shuffled {
            let stride = 29;
            wire = (0..wire.len())
                .map(|at| wire[at * stride % wire.len()].clone())
                .collect();
        }
        let wire: Vec<Lent> = wire
            .into_iter()
            .map(|bytes| Arc::new(bytes) as Lent)
            .collect();
        Candidate::new(name, move || {
            let mut reassembler = Reassembler::new(parameters, limits());
            let found = wire.iter().any(|bytes| {
                let outcome = reassembler.receive_lent(black_box(bytes), &Receipt::default());
                matches!(outcome, Outcome::Reconstructed(_))
            });
            assert!(found, "enough good segments are there");
        })
    };
    let order = if is_shuffled { "shuffled" } else { "in order" };
    let hashed = payload.clone();
    Case {
        name: format!("reassemble (64, 8) {code}, {order}"),
        bytes: payload.len(),
        messages: 0,
        candidates: vec![
            case("shardwire, clean", 0),
            case("shardwire, 1 bad", 1),
            case("shardwire, 4 bad", 4),
            case("shardwire, 7 bad", 7),
            Candidate::new("one Keccak pass", move || {
                black_box(keccak256(black_box(&hashed)));
            }),
        ],
    }
}

fn parameters(erasure_code: ErasureCode) -> Parameters {
    Parameters::new(Settings {
        segment_size_bytes: SEGMENT_BYTES,
        enable_reed_solomon: true,
        parity_rate: 0.125,
        parity_for_single_segment: false,
        erasure_code,
        wire_format: WireFormat::Raw,
        max_total_segments: 256,
        max_tail_candidates: SEGMENT_BYTES,
    })
    .expect("the settings are valid")
}

fn limits() -> Limits {
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

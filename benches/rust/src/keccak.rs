//! Keccak-256: one message, and many.

use std::hint::black_box;

use sha3::Digest;
use shardwire_core::keccak::{keccak256, keccak256_many};
use tiny_keccak::Hasher;

use crate::{Candidate, Case, noise};

/// Every case of this file.
pub fn cases() -> Vec<Case> {
    let equal = |count: usize, len: usize| (0..count).map(move |_| len).collect::<Vec<_>>();
    vec![
        one(32),
        one(1 << 10),
        one(1 << 20),
        many("64 messages of 100 KiB", &equal(64, 100 << 10)),
        many("10,000 messages of 32 B", &equal(10_000, 32)),
        many("1,000 messages of 1 KiB", &equal(1_000, 1 << 10)),
        many("1,000 messages of 32 B to 100 KiB", &log_uniform(1_000)),
    ]
}

/// Lengths between 32 B and 100 KiB whose logarithms are spread evenly, in a mixed order.
fn log_uniform(count: usize) -> Vec<usize> {
    let (least, most) = (32f64.ln(), (102_400f64).ln());
    let place = |index: usize| (index * 379 % count) as f64 / (count - 1) as f64;
    (0..count)
        .map(|index| (least + place(index) * (most - least)).exp() as usize)
        .collect()
}

fn one(len: usize) -> Case {
    let message = || noise(len, 1);
    let (ours, tiny, sha3, asm) = (message(), message(), message(), message());
    Case {
        name: format!("keccak256, one message of {len} B"),
        bytes: len,
        messages: 0,
        candidates: vec![
            Candidate::new("shardwire", move || {
                black_box(keccak256(black_box(&ours)));
            }),
            Candidate::new("tiny-keccak", move || {
                black_box(by_tiny_keccak(black_box(&tiny)));
            }),
            Candidate::new("sha3", move || {
                black_box(sha3::Keccak256::digest(black_box(&sha3)));
            }),
            Candidate::new("keccak-asm", move || {
                black_box(by_keccak_asm(black_box(&asm)));
            }),
        ],
    }
}

fn many(name: &str, lengths: &[usize]) -> Case {
    let messages = || -> Vec<Vec<u8>> {
        lengths
            .iter()
            .enumerate()
            .map(|(index, &len)| noise(len, index as u64))
            .collect()
    };
    let (ours, alone, tiny, asm) = (messages(), messages(), messages(), messages());
    let mut digests = vec![[0; 32]; lengths.len()];
    Case {
        name: format!("keccak256_many, {name}"),
        bytes: lengths.iter().sum(),
        messages: 0,
        candidates: vec![
            Candidate::new("shardwire", move || {
                let inputs: Vec<&[u8]> = ours.iter().map(Vec::as_slice).collect();
                keccak256_many(black_box(&inputs), &mut digests);
                black_box(&digests);
            }),
            Candidate::new("shardwire, one by one", move || {
                for message in &alone {
                    black_box(keccak256(black_box(message)));
                }
            }),
            Candidate::new("tiny-keccak", move || {
                for message in &tiny {
                    black_box(by_tiny_keccak(black_box(message)));
                }
            }),
            Candidate::new("keccak-asm", move || {
                for message in &asm {
                    black_box(by_keccak_asm(black_box(message)));
                }
            }),
        ],
    }
}

fn by_tiny_keccak(message: &[u8]) -> [u8; 32] {
    let mut hasher = tiny_keccak::Keccak::v256();
    hasher.update(message);
    let mut digest = [0; 32];
    hasher.finalize(&mut digest);
    digest
}

fn by_keccak_asm(message: &[u8]) -> [u8; 32] {
    keccak_asm::Keccak256::digest(message).into()
}

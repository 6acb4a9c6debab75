//! Reed-Solomon: encoding, and decoding of lost data shards.

use std::hint::black_box;

use reed_solomon_erasure::galois_8::ReedSolomon;
use shardwire_core::erasure::{ErasureCode, encode, encode_into, reconstruct};

use crate::{Candidate, Case, noise};

/// Bytes in a shard of every case.
const SHARD_LEN: usize = 102_400;

const GEOMETRIES: [(usize, usize); 7] = [
    (8, 1),
    (10, 2),
    (64, 8),
    (64, 32),
    (100, 13),
    (200, 25),
    (128, 128),
];

/// Every case of this file: encoding, then decoding of as many losses as can be and of one.
pub fn cases() -> Vec<Case> {
    let encoding = GEOMETRIES.into_iter().map(|(k, m)| encoding(k, m));
    let decoding = GEOMETRIES.into_iter().map(|(k, m)| decoding(k, m, m));
    encoding
        .chain(decoding)
        .chain([decoding_one(64, 8)])
        .collect()
}

fn decoding_one(k: usize, m: usize) -> Case {
    decoding(k, m, 1)
}

fn shards(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|index| noise(SHARD_LEN, index as u64))
        .collect()
}

fn slices(shards: &[Vec<u8>]) -> Vec<&[u8]> {
    shards.iter().map(Vec::as_slice).collect()
}

fn encoding(k: usize, m: usize) -> Case {
    let ours = |name: &'static str, code: ErasureCode| {
        let data = shards(k);
        let mut parity = vec![vec![0; SHARD_LEN]; m];
        Candidate::new(name, move || {
            let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            encode_into(code, black_box(&slices(&data)), SHARD_LEN, &mut parity)
                .expect("supported");
            black_box(&parity);
        })
    };
    let (data, mut parity) = (shards(k), vec![vec![0; SHARD_LEN]; m]);
    let peer = ReedSolomon::new(k, m).expect("supported");
    let simd_data = shards(k);
    Case {
        name: format!("encode ({k}, {m})"),
        bytes: k * SHARD_LEN,
        messages: 0,
        candidates: vec![
            ours("shardwire vandermonde", ErasureCode::Vandermonde),
            ours("shardwire leopard", ErasureCode::Leopard),
            Candidate::new("reed-solomon-erasure simd-accel", move || {
                peer.encode_sep(black_box(&data), &mut parity)
                    .expect("supported");
                black_box(&parity);
            }),
            Candidate::new("reed-solomon-simd", move || {
                black_box(
                    reed_solomon_simd::encode(k, m, black_box(&simd_data)).expect("supported"),
                );
            }),
        ],
    }
}

fn decoding(k: usize, m: usize, lost: usize) -> Case {
    let ours = |name: &'static str, code: ErasureCode| {
        let data = shards(k);
        let parity = encode(code, &slices(&data), m, SHARD_LEN).expect("supported");
        Candidate::new(name, move || {
            let codeword: Vec<Option<&[u8]>> = data
                .iter()
                .enumerate()
                .map(|(index, shard)| (index >= lost).then_some(&shard[..]))
                .chain(parity.iter().map(|shard| Some(&shard[..])))
                .collect();
            black_box(reconstruct(code, black_box(&codeword), k, m, SHARD_LEN).expect("enough"));
        })
    };
    let peer = ReedSolomon::new(k, m).expect("supported");
    let mut codeword: Vec<Vec<u8>> = shards(k);
    codeword.resize(k + m, vec![0; SHARD_LEN]);
    peer.encode(&mut codeword).expect("supported");
    let mut codeword: Vec<(Vec<u8>, bool)> =
        codeword.into_iter().map(|shard| (shard, true)).collect();

    let simd_data = shards(k);
    let simd_parity = reed_solomon_simd::encode(k, m, &simd_data).expect("supported");
    Case {
        name: format!("decode ({k}, {m}), {lost} lost"),
        bytes: k * SHARD_LEN,
        messages: 0,
        candidates: vec![
            ours("shardwire vandermonde", ErasureCode::Vandermonde),
            ours("shardwire leopard", ErasureCode::Leopard),
            Candidate::new("reed-solomon-erasure simd-accel", move || {
                for (_, present) in &mut codeword[..lost] {
                    *present = false;
                }
                peer.reconstruct_data(black_box(&mut codeword))
                    .expect("enough");
            }),
            Candidate::new("reed-solomon-simd", move || {
                let data = simd_data.iter().enumerate().skip(lost);
                let parity = simd_parity.iter().enumerate();
                black_box(reed_solomon_simd::decode(k, m, data, parity).expect("enough"));
            }),
        ],
    }
}

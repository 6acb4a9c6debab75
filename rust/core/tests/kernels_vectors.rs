//! Parity shards against the bytes of other implementations: see `tests/vectors/README.md`.

use std::fs;
use std::path::Path;

use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateEncoder, RateEncoder};
use serde_json::Value;
use sha2::{Digest, Sha256};
use shardwire_core::erasure::{ErasureCode, encode, reconstruct, supports};

struct Case {
    data: Vec<Vec<u8>>,
    parity_count: usize,
    shard_len: usize,
    parity_sha256: Vec<String>,
    parity_hex: Option<Vec<String>>,
}

/// The cases of a file whose `field`, where it has one, is among `fields`.
fn cases(file: &str, fields: &[&str]) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(file);
    let text = fs::read_to_string(path).expect("the vectors are part of the repository");
    let vectors: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    let cases = vectors["cases"].as_array().expect("a list of cases");
    cases
        .iter()
        .filter(|case| case.get("error").is_none())
        .filter(|case| {
            case["field"]
                .as_str()
                .is_none_or(|field| fields.contains(&field))
        })
        .map(case_of)
        .collect()
}

fn case_of(case: &Value) -> Case {
    let number = |name: &str| case[name].as_u64().expect("a number") as usize;
    let strings = |value: &Value| -> Option<Vec<String>> {
        value
            .as_array()?
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let shard_len = number("shard");
    Case {
        data: (0..number("k"))
            .map(|index| data_shard(index, shard_len))
            .collect(),
        parity_count: number("m"),
        shard_len,
        parity_sha256: strings(&case["parity_sha256"]).expect("a hash for each parity shard"),
        parity_hex: strings(&case["parity_hex"]),
    }
}

/// The generator that both files state.
fn data_shard(index: usize, shard_len: usize) -> Vec<u8> {
    (0..shard_len)
        .map(|i| (i * 31 + index * 17 + (i >> 8) * 7 + 11) as u8)
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn assert_parity(case: &Case, parity: &[Vec<u8>]) {
    let hashes: Vec<String> = parity
        .iter()
        .map(|shard| hex(&Sha256::digest(shard)))
        .collect();
    assert_eq!(
        hashes,
        case.parity_sha256,
        "k {} m {}",
        case.data.len(),
        case.parity_count
    );
    if let Some(expected) = &case.parity_hex {
        let shards: Vec<String> = parity.iter().map(|shard| hex(shard)).collect();
        assert_eq!(&shards, expected);
    }
}

/// Loses as much as parity can restore, from the front, and restores it.
fn assert_restored(code: ErasureCode, case: &Case, parity: &[Vec<u8>]) {
    let lost = case.parity_count.min(case.data.len());
    let data = case
        .data
        .iter()
        .enumerate()
        .map(|(i, shard)| (i >= lost).then_some(&shard[..]));
    let shards: Vec<Option<&[u8]>> = data
        .chain(parity.iter().map(|shard| Some(&shard[..])))
        .collect();
    let recovered = reconstruct(
        code,
        &shards,
        case.data.len(),
        case.parity_count,
        case.shard_len,
    )
    .unwrap();
    assert_eq!(recovered.len(), lost);
    for (index, shard) in recovered {
        assert_eq!(shard, case.data[index]);
    }
}

fn assert_code(code: ErasureCode, cases: &[Case]) {
    for case in cases {
        let data: Vec<&[u8]> = case.data.iter().map(Vec::as_slice).collect();
        let parity = encode(code, &data, case.parity_count, case.shard_len).unwrap();
        assert_parity(case, &parity);
        assert_restored(code, case, &parity);
    }
}

#[test]
fn vandermonde_equals_klauspost() {
    let cases = cases("vandermonde.json", &[]);
    assert_eq!(cases.len(), 29);
    assert_code(ErasureCode::Vandermonde, &cases);
}

#[test]
fn leopard_equals_catid_ff8() {
    let cases = cases("leopard_ff8.json", &["copy", "xor", "ff8"]);
    assert_eq!(cases.len(), 24);
    assert_code(ErasureCode::Leopard, &cases);
}

#[test]
fn leopard_decodes_what_catid_coded_in_ff16() {
    let cases = cases("leopard_ff8.json", &["ff16"]);
    assert_eq!(cases.len(), 4);
    for case in &cases {
        let counts = (case.data.len(), case.parity_count);
        assert!(!supports(ErasureCode::Leopard, counts.0, counts.1));
        let engine = DefaultEngine::new();
        let mut encoder =
            HighRateEncoder::new(counts.0, counts.1, case.shard_len, engine, None).unwrap();
        for shard in &case.data {
            encoder.add_original_shard(shard).unwrap();
        }
        let parity: Vec<Vec<u8>> = encoder
            .encode()
            .unwrap()
            .recovery_iter()
            .map(<[u8]>::to_vec)
            .collect();
        assert_parity(case, &parity);
        assert_restored(ErasureCode::Leopard, case, &parity);
    }
}

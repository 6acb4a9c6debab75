//! Erasure coding over random geometries, lengths and losses, against `reed-solomon-erasure`.

use proptest::collection::vec;
use proptest::prelude::*;
use reed_solomon_erasure::galois_8::ReedSolomon;
use shardwire_core::erasure::{ErasureCode, encode, encode_into, reconstruct, supports};

/// A payload cut into shards of which each may be short, and what happens to its codeword.
#[derive(Debug)]
struct Scenario {
    code: ErasureCode,
    shard_len: usize,
    data: Vec<Vec<u8>>,
    parity_count: usize,
    /// Larger is lost earlier; the first k + m count.
    fate: Vec<u32>,
    loss_count: usize,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let code = prop_oneof![Just(ErasureCode::Leopard), Just(ErasureCode::Vandermonde)];
    let geometry = (code, 1usize..40, 1usize..24, 1usize..400)
        .prop_map(|(code, k, m, len)| match code {
            ErasureCode::Leopard => (code, k, m.min(k), len.next_multiple_of(64)),
            ErasureCode::Vandermonde => (code, k, m, len),
        })
        .prop_filter("supported", |&(code, k, m, _)| supports(code, k, m));
    geometry.prop_flat_map(|(code, k, parity_count, shard_len)| {
        (
            vec(vec(any::<u8>(), 0..=shard_len), k),
            vec(any::<u32>(), k + parity_count),
            0..=k,
        )
            .prop_map(move |(data, fate, loss_count)| {
                let loss_count = loss_count.min(parity_count);
                Scenario {
                    code,
                    shard_len,
                    data,
                    parity_count,
                    fate,
                    loss_count,
                }
            })
    })
}

fn padded(shards: &[Vec<u8>], shard_len: usize) -> Vec<Vec<u8>> {
    let pad = |shard: &Vec<u8>| {
        let mut shard = shard.clone();
        shard.resize(shard_len, 0);
        shard
    };
    shards.iter().map(pad).collect()
}

fn slices(shards: &[Vec<u8>]) -> Vec<&[u8]> {
    shards.iter().map(Vec::as_slice).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_losses_up_to_the_parity_count_come_back(scenario in scenario()) {
        let Scenario { code, shard_len, data, parity_count, fate, loss_count } = scenario;
        let parity = encode(code, &slices(&data), parity_count, shard_len).unwrap();
        let mut order: Vec<usize> = (0..data.len() + parity_count).collect();
        order.sort_by_key(|&index| fate[index]);
        let lost = &order[..loss_count];
        let codeword: Vec<Option<&[u8]>> = data
            .iter()
            .chain(&parity)
            .enumerate()
            .map(|(index, shard)| (!lost.contains(&index)).then_some(&shard[..]))
            .collect();

        let recovered = reconstruct(code, &codeword, data.len(), parity_count, shard_len).unwrap();
        let whole = padded(&data, shard_len);
        let mut expected: Vec<usize> =
            lost.iter().copied().filter(|&index| index < data.len()).collect();
        expected.sort_unstable();
        prop_assert_eq!(recovered.iter().map(|(index, _)| *index).collect::<Vec<_>>(), expected);
        for (index, shard) in recovered {
            prop_assert_eq!(&shard, &whole[index]);
        }
    }

    #[test]
    fn short_shards_are_padded_ones(scenario in scenario()) {
        let Scenario { code, shard_len, data, parity_count, .. } = scenario;
        let whole = padded(&data, shard_len);
        let parity = encode(code, &slices(&data), parity_count, shard_len).unwrap();
        prop_assert_eq!(&parity, &encode(code, &slices(&whole), parity_count, shard_len).unwrap());
        let mut buffers = vec![vec![0xEE; shard_len]; parity_count];
        let mut targets: Vec<&mut [u8]> = buffers.iter_mut().map(|b| &mut b[..]).collect();
        encode_into(code, &slices(&data), shard_len, &mut targets).unwrap();
        prop_assert_eq!(parity, buffers);
    }

    #[test]
    fn vandermonde_equals_reed_solomon_erasure(
        (k, m) in (1usize..=100, 1usize..=64),
        shard_len in 1usize..150,
        seed in any::<u8>(),
    ) {
        let data: Vec<Vec<u8>> = (0..k)
            .map(|j| {
                let bytes = (0..shard_len).map(|i| i * 37 + j * 91 + j * i + usize::from(seed));
                bytes.map(|byte| byte as u8).collect()
            })
            .collect();
        let oracle = ReedSolomon::new(k, m).unwrap();
        let mut expected = vec![vec![0; shard_len]; m];
        oracle.encode_sep(&slices(&data), &mut expected).unwrap();
        prop_assert_eq!(
            encode(ErasureCode::Vandermonde, &slices(&data), m, shard_len).unwrap(),
            expected
        );
    }

    #[test]
    fn no_arguments_panic(
        leopard in any::<bool>(),
        lengths in vec(proptest::option::of(0usize..200), 0..40),
        k in prop_oneof![0usize..50, Just(usize::MAX)],
        m in prop_oneof![0usize..50, Just(usize::MAX)],
        shard_len in 0usize..200,
    ) {
        let code = if leopard { ErasureCode::Leopard } else { ErasureCode::Vandermonde };
        let bytes = [0x5A; 200];
        let shards: Vec<Option<&[u8]>> =
            lengths.iter().map(|length| length.map(|length| &bytes[..length])).collect();
        let present: Vec<&[u8]> = shards.iter().copied().flatten().collect();
        let _ = encode(code, &present, m.min(1 << 20), shard_len);
        let _ = reconstruct(code, &shards, k, m, shard_len);
        let _ = supports(code, k, m);
    }
}

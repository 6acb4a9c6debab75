//! `vandermonde` by the `reed-solomon-erasure` crate: the oracle of the kernels, and the path where
//! no vector instructions may be used. It takes equal shards only, so short ones are copied.

use reed_solomon_erasure::galois_8::ReedSolomon;

/// The parity shards of `data`. Counts and lengths have been checked.
pub(super) fn encode(data: &[&[u8]], parity_count: usize, shard_len: usize) -> Vec<Vec<u8>> {
    let data: Vec<Vec<u8>> = data.iter().map(|shard| padded(shard, shard_len)).collect();
    let mut parity = vec![vec![0; shard_len]; parity_count];
    code_of(data.len(), parity_count)
        .encode_sep(&data, &mut parity)
        .expect("the shards are as many as the code has and of one length");
    parity
}

/// The `lost` data shards, from at least k present ones. Counts and lengths have been checked.
pub(super) fn reconstruct(
    shards: &[Option<&[u8]>],
    data_count: usize,
    lost: &[usize],
    shard_len: usize,
) -> Vec<Vec<u8>> {
    let mut shards: Vec<Option<Vec<u8>>> = shards
        .iter()
        .map(|shard| shard.map(|shard| padded(shard, shard_len)))
        .collect();
    code_of(data_count, shards.len() - data_count)
        .reconstruct_data(&mut shards)
        .expect("k shards of one length are present");
    lost.iter()
        .filter_map(|&index| shards[index].take())
        .collect()
}

fn code_of(data_count: usize, parity_count: usize) -> ReedSolomon {
    ReedSolomon::new(data_count, parity_count).expect("neither count is 0 and the sum within 256")
}

fn padded(shard: &[u8], shard_len: usize) -> Vec<u8> {
    let mut copy = Vec::with_capacity(shard_len);
    copy.extend_from_slice(shard);
    copy.resize(shard_len, 0);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::erasure::{self, ErasureCode};

    #[test]
    fn equals_the_kernels() {
        let data: Vec<Vec<u8>> = (0..7u8)
            .map(|j| (0..90 + j).map(|i| i ^ j.wrapping_mul(41)).collect())
            .collect();
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let parity = encode(&slices, 3, 100);
        assert_eq!(
            parity,
            erasure::encode(ErasureCode::Vandermonde, &slices, 3, 100).unwrap()
        );

        let mut codeword: Vec<Option<&[u8]>> = slices
            .iter()
            .copied()
            .chain(parity.iter().map(Vec::as_slice))
            .map(Some)
            .collect();
        for lost in [1, 4, 8] {
            codeword[lost] = None;
        }
        let expected =
            erasure::reconstruct(ErasureCode::Vandermonde, &codeword, 7, 3, 100).unwrap();
        let made = reconstruct(&codeword, 7, &[1, 4], 100);
        assert!([1, 4].into_iter().zip(made).eq(expected));
    }
}

//! Leopard beyond one field of 256 elements, for receivers only.
//!
//! catid/leopard changes to GF(2^16) without a word when the shards outgrow GF(2^8). Our sender
//! stays inside, but a peer's need not. `reed-solomon-simd` computes the same code; short shards
//! are copied for it.

use std::borrow::Cow;

use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, RateDecoder};

use super::ErasureError;

/// GF(2^16) has points for this many shards.
pub(super) const SHARDS_MAX: usize = 1 << 16;

/// The `lost` data shards, ascending, from the first k present shards.
///
/// Counts, lengths and the number of shards present have been checked.
pub(super) fn reconstruct(
    shards: &[Option<&[u8]>],
    data_count: usize,
    lost: &[usize],
    shard_len: usize,
) -> Result<Vec<Vec<u8>>, ErasureError> {
    let parity_count = shards.len() - data_count;
    // What the crate refuses is a geometry that it has no points for.
    let refused = |_| ErasureError::TooManyShards {
        code: super::ErasureCode::Leopard,
        data_count,
        parity_count,
        total: shards.len(),
        limit: SHARDS_MAX,
    };
    let engine = DefaultEngine::new();
    let mut decoder =
        HighRateDecoder::new(data_count, parity_count, shard_len, engine, None).map_err(refused)?;
    let present = shards
        .iter()
        .enumerate()
        .filter_map(|(index, shard)| Some((index, (*shard)?)));
    for (index, shard) in present.take(data_count) {
        let shard = padded(shard, shard_len);
        match index.checked_sub(data_count) {
            None => decoder.add_original_shard(index, shard),
            Some(parity_index) => decoder.add_recovery_shard(parity_index, shard),
        }
        .map_err(refused)?;
    }
    let decoded = decoder.decode().map_err(refused)?;
    let recovered = lost
        .iter()
        .filter_map(|&index| decoded.restored_original(index).map(<[u8]>::to_vec));
    Ok(recovered.collect())
}

fn padded(shard: &[u8], shard_len: usize) -> Cow<'_, [u8]> {
    if shard.len() == shard_len {
        return Cow::Borrowed(shard);
    }
    let mut copy = vec![0; shard_len];
    copy[..shard.len()].copy_from_slice(shard);
    Cow::Owned(copy)
}

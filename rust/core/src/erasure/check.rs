//! What a code takes: how many shards, and of what lengths.

use super::{ErasureCode, ErasureError, LEOPARD_ALIGNMENT, SHARDS_MAX, leopard_ff16};

/// Whether [`super::encode`] takes these counts, shard lengths aside.
pub fn supports(code: ErasureCode, data_count: usize, parity_count: usize) -> bool {
    check_encode(code, data_count, parity_count).is_ok()
}

/// What keeps [`super::encode`] from taking these counts.
///
/// # Errors
/// `NoDataShards`; `TooManyShards` beyond one field of 256 elements; for Leopard
/// `ParityExceedsData`. No parity at all is always taken.
pub fn check_encode(
    code: ErasureCode,
    data_count: usize,
    parity_count: usize,
) -> Result<(), ErasureError> {
    check_counts(code, data_count, parity_count, SHARDS_MAX)
}

/// What keeps [`super::reconstruct`] from taking these counts.
///
/// It takes what [`super::encode`] takes and, for Leopard, what a peer codes in GF(2^16): counts where
/// nextpow2(nextpow2(m) + k) > 256.
///
/// # Errors
/// As [`check_encode`].
pub fn check_reconstruct(
    code: ErasureCode,
    data_count: usize,
    parity_count: usize,
) -> Result<(), ErasureError> {
    let limit = match code {
        ErasureCode::Leopard => leopard_ff16::SHARDS_MAX,
        ErasureCode::Vandermonde => SHARDS_MAX,
    };
    check_counts(code, data_count, parity_count, limit)
}

/// What the shards count as against a field's size: Leopard's parity points fill a power of two.
pub(super) fn total_of(code: ErasureCode, data_count: usize, parity_count: usize) -> usize {
    let parity = match code {
        ErasureCode::Vandermonde => parity_count,
        ErasureCode::Leopard => parity_count
            .checked_next_power_of_two()
            .unwrap_or(usize::MAX),
    };
    data_count.saturating_add(parity)
}

fn check_counts(
    code: ErasureCode,
    data_count: usize,
    parity_count: usize,
    limit: usize,
) -> Result<(), ErasureError> {
    if data_count == 0 {
        return Err(ErasureError::NoDataShards);
    }
    if parity_count == 0 {
        return Ok(());
    }
    if code == ErasureCode::Leopard && parity_count > data_count {
        return Err(ErasureError::ParityExceedsData {
            data_count,
            parity_count,
        });
    }
    let total = total_of(code, data_count, parity_count);
    if total > limit {
        return Err(ErasureError::TooManyShards {
            code,
            data_count,
            parity_count,
            total,
            limit,
        });
    }
    Ok(())
}

/// What keeps [`super::encode`] from taking these shards.
///
/// # Errors
/// As [`super::encode`].
pub fn check_shards(
    code: ErasureCode,
    data: &[&[u8]],
    parity_count: usize,
    shard_len: usize,
) -> Result<(), ErasureError> {
    check_encode(code, data.len(), parity_count)?;
    if parity_count == 0 {
        return Ok(());
    }
    check_shard_len(code, shard_len)?;
    check_lengths(data.iter().map(|shard| Some(shard.len())), shard_len)
}

pub(super) fn check_shard_len(code: ErasureCode, shard_len: usize) -> Result<(), ErasureError> {
    if shard_len == 0 {
        return Err(ErasureError::EmptyShards);
    }
    if code == ErasureCode::Leopard && !shard_len.is_multiple_of(LEOPARD_ALIGNMENT) {
        return Err(ErasureError::NotMultipleOf64 {
            len: shard_len,
            padded: shard_len
                .div_ceil(LEOPARD_ALIGNMENT)
                .saturating_mul(LEOPARD_ALIGNMENT),
        });
    }
    Ok(())
}

pub(super) fn check_lengths(
    lengths: impl Iterator<Item = Option<usize>>,
    shard_len: usize,
) -> Result<(), ErasureError> {
    for (index, len) in lengths.enumerate() {
        if let Some(len) = len.filter(|&len| len > shard_len) {
            return Err(ErasureError::UnequalShards {
                index,
                len,
                shard_len,
            });
        }
    }
    Ok(())
}

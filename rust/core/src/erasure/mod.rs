//! Reed-Solomon erasure coding of shards, byte for byte as deployed encoders do it.
//!
//! Owns the two codes, their matrices and the kernels that multiply shards by them. Which code made
//! a parity shard is on no wire: the caller names it. Nothing here is kept between calls.

mod error;
mod field;
mod geometry;
mod kernel;
mod leopard_ff16;
mod plan;
mod remake;
mod transform;
mod vandermonde_portable;

use std::fmt;
use std::str::FromStr;

use crate::cpu::InstructionSet;
pub use error::ErasureError;
use geometry::Geometry;
use plan::Method;
pub(crate) use remake::{coefficients, remake};

/// A field of 256 elements has points for this many shards.
const SHARDS_MAX: usize = 256;

/// Leopard codes shards in pieces of this many bytes.
const LEOPARD_ALIGNMENT: usize = 64;

/// How parity shards are made of data shards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErasureCode {
    /// catid/leopard FF8: shards of a multiple of 64 bytes, at most as many parity as data shards.
    Leopard,
    /// The systematic Vandermonde matrix of klauspost/reedsolomon and `reed-solomon-erasure`.
    Vandermonde,
}

impl ErasureCode {
    /// `"leopard"` or `"vandermonde"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leopard => "leopard",
            Self::Vandermonde => "vandermonde",
        }
    }
}

impl fmt::Display for ErasureCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A string that names no [`ErasureCode`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name:?} is no erasure code: \"leopard\" or \"vandermonde\"")]
pub struct ErasureCodeError {
    /// What was given.
    pub name: String,
}

impl FromStr for ErasureCode {
    type Err = ErasureCodeError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Leopard, Self::Vandermonde]
            .into_iter()
            .find(|code| code.as_str() == name)
            .ok_or_else(|| ErasureCodeError {
                name: name.to_owned(),
            })
    }
}

/// What the kernel in use is made of: the best that the machine has and [`crate::cpu`] allows.
pub fn instruction_set() -> InstructionSet {
    kernel::selected().set
}

/// Whether [`encode`] takes these counts, shard lengths aside.
pub fn supports(code: ErasureCode, data_count: usize, parity_count: usize) -> bool {
    check_encode(code, data_count, parity_count).is_ok()
}

/// What keeps [`encode`] from taking these counts.
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

/// What keeps [`reconstruct`] from taking these counts.
///
/// It takes what [`encode`] takes and, for Leopard, what a peer codes in GF(2^16): counts where
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

/// The parity shards of `data`: `parity_count` of them, `shard_len` bytes each.
///
/// A data shard may be shorter than `shard_len` and counts as padded with zeros.
///
/// # Errors
/// Those of [`check_encode`]; `EmptyShards`; `NotMultipleOf64` for Leopard; `UnequalShards` where a
/// data shard is longer than `shard_len`.
pub fn encode(
    code: ErasureCode,
    data: &[&[u8]],
    parity_count: usize,
    shard_len: usize,
) -> Result<Vec<Vec<u8>>, ErasureError> {
    check_encode(code, data.len(), parity_count)?;
    if parity_count == 0 {
        return Ok(Vec::new());
    }
    check_shard_len(code, shard_len)?;
    check_lengths(data.iter().map(|shard| Some(shard.len())), shard_len)?;
    Ok(
        match plan::encoding(code, data.len(), parity_count, kernel::selected().set) {
            Method::Matrix => {
                let matrix = Geometry::new(code, data.len(), parity_count).encoding_matrix();
                kernel::multiply(&matrix, data, shard_len)
            }
            Method::Transform(transform) => kernel::encode(&transform, data, shard_len),
            Method::Crate => vandermonde_portable::encode(data, parity_count, shard_len),
        },
    )
}

/// Writes the parity shards of `data` over `parity`, whose shards have `shard_len` bytes each.
///
/// # Errors
/// As [`encode`]; `UnequalShards` also where a parity shard does not have `shard_len` bytes.
pub fn encode_into(
    code: ErasureCode,
    data: &[&[u8]],
    shard_len: usize,
    parity: &mut [&mut [u8]],
) -> Result<(), ErasureError> {
    check_encode(code, data.len(), parity.len())?;
    if parity.is_empty() {
        return Ok(());
    }
    check_shard_len(code, shard_len)?;
    check_lengths(data.iter().map(|shard| Some(shard.len())), shard_len)?;
    for (index, shard) in parity.iter().enumerate() {
        let len = shard.len();
        if len != shard_len {
            let index = data.len() + index;
            return Err(ErasureError::UnequalShards {
                index,
                len,
                shard_len,
            });
        }
    }
    match plan::encoding(code, data.len(), parity.len(), kernel::selected().set) {
        Method::Matrix => {
            let matrix = Geometry::new(code, data.len(), parity.len()).encoding_matrix();
            kernel::multiply_into(&matrix, data, parity);
        }
        Method::Transform(transform) => kernel::encode_into(&transform, data, parity),
        Method::Crate => {
            let encoded = vandermonde_portable::encode(data, parity.len(), shard_len);
            for (shard, encoded) in parity.iter_mut().zip(encoded) {
                shard.copy_from_slice(&encoded);
            }
        }
    }
    Ok(())
}

/// The data shards that are missing from `shards`, with their indices, `shard_len` bytes each.
///
/// `shards` has a place for each data shard and then for each parity shard. A present shard may be
/// shorter than `shard_len` and counts as padded with zeros. Of more shards than needed, data
/// shards and then the first parity shards are used; no shard is checked against another.
///
/// # Errors
/// Those of [`check_reconstruct`]; `ShardCount`; `NotEnoughShards`; and, where anything is missing,
/// `EmptyShards`, `NotMultipleOf64` for Leopard, `UnequalShards` where a shard is longer than
/// `shard_len`.
pub fn reconstruct(
    code: ErasureCode,
    shards: &[Option<&[u8]>],
    data_count: usize,
    parity_count: usize,
    shard_len: usize,
) -> Result<Vec<(usize, Vec<u8>)>, ErasureError> {
    check_reconstruct(code, data_count, parity_count)?;
    let expected = data_count + parity_count;
    if shards.len() != expected {
        return Err(ErasureError::ShardCount {
            expected,
            given: shards.len(),
        });
    }
    let present = shards.iter().flatten().count();
    if present < data_count {
        return Err(ErasureError::NotEnoughShards {
            needed: data_count,
            present,
        });
    }
    let lost: Vec<usize> = (0..data_count)
        .filter(|&index| shards[index].is_none())
        .collect();
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    check_shard_len(code, shard_len)?;
    check_lengths(shards.iter().map(|shard| shard.map(<[u8]>::len)), shard_len)?;
    if total_of(code, data_count, parity_count) > SHARDS_MAX {
        return leopard_ff16::reconstruct(shards, data_count, &lost, shard_len);
    }
    let set = kernel::selected().set;
    let recovered = match plan::decoding(code, data_count, parity_count, lost.len(), set) {
        Method::Crate => {
            return Ok(vandermonde_portable::reconstruct(
                shards, data_count, &lost, shard_len,
            ));
        }
        method => {
            let (sources, bytes): (Vec<usize>, Vec<&[u8]>) = shards
                .iter()
                .enumerate()
                .filter_map(|(index, shard)| shard.map(|bytes| (index, bytes)))
                .take(data_count)
                .unzip();
            let matrix = Geometry::new(code, data_count, parity_count).matrix(&sources, &lost);
            match method {
                Method::Transform(transform) => {
                    // The lost shards alone would make what parity has beyond that of the rest.
                    let from = sources.partition_point(|&source| source < data_count);
                    let data: Vec<&[u8]> = (0..data_count)
                        .map(|index| shards[index].unwrap_or(&[]))
                        .collect();
                    let rows = sources[from..].iter().map(|&source| source - data_count);
                    let parity: Vec<(usize, &[u8])> =
                        rows.zip(bytes[from..].iter().copied()).collect();
                    let matrix = matrix.without_first(from);
                    kernel::decode(&transform, &matrix, &data, &parity, shard_len)
                }
                _ => kernel::multiply(&matrix, &bytes, shard_len),
            }
        }
    };
    Ok(lost.into_iter().zip(recovered).collect())
}

/// What the shards count as against a field's size: Leopard's parity points fill a power of two.
fn total_of(code: ErasureCode, data_count: usize, parity_count: usize) -> usize {
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

fn check_shard_len(code: ErasureCode, shard_len: usize) -> Result<(), ErasureError> {
    if shard_len == 0 {
        return Err(ErasureError::EmptyShards);
    }
    let past = shard_len % LEOPARD_ALIGNMENT;
    if code == ErasureCode::Leopard && past != 0 {
        let below = shard_len - past;
        let up = past > LEOPARD_ALIGNMENT / 2 || below == 0;
        let nearest = if up {
            below.saturating_add(LEOPARD_ALIGNMENT)
        } else {
            below
        };
        return Err(ErasureError::NotMultipleOf64 {
            len: shard_len,
            nearest,
        });
    }
    Ok(())
}

fn check_lengths(
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

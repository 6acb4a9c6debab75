//! Reed-Solomon erasure coding of shards, byte for byte as deployed encoders do it.
//!
//! Owns the two codes, their matrices and the kernels that multiply shards by them. Which code made
//! a parity shard is on no wire: the caller names it. Nothing here is kept between calls.

mod check;
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
use std::mem::MaybeUninit;
use std::str::FromStr;

use crate::cpu::InstructionSet;
pub use check::{check_encode, check_reconstruct, check_shards, supports};
use check::{check_lengths, check_shard_len, total_of};
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
    check_shards(code, data, parity_count, shard_len)?;
    kernel::fresh(parity_count, shard_len, |parity| {
        encode_uninit(code, data, shard_len, parity)
    })
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
    let mut parity: Vec<_> = parity
        .iter_mut()
        .map(|out| kernel::as_uninit(out))
        .collect();
    encode_uninit(code, data, shard_len, &mut parity)
}

/// As [`encode_into`], over memory that need not be initialised: on success all of it is.
///
/// # Errors
/// As [`encode_into`].
pub fn encode_uninit(
    code: ErasureCode,
    data: &[&[u8]],
    shard_len: usize,
    parity: &mut [&mut [MaybeUninit<u8>]],
) -> Result<(), ErasureError> {
    check_shards(code, data, parity.len(), shard_len)?;
    if parity.is_empty() {
        return Ok(());
    }
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
            copy_over(parity, encoded);
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
/// Those of [`lost_shards`].
pub fn reconstruct(
    code: ErasureCode,
    shards: &[Option<&[u8]>],
    data_count: usize,
    parity_count: usize,
    shard_len: usize,
) -> Result<Vec<(usize, Vec<u8>)>, ErasureError> {
    let lost = lost_shards(code, shards, data_count, parity_count, shard_len)?;
    let recovered = kernel::fresh(lost.len(), shard_len, |outputs| {
        recover(code, shards, (data_count, parity_count), &lost, outputs)
    })?;
    Ok(lost.into_iter().zip(recovered).collect())
}

/// Writes the data shards that are missing from `shards` over `outputs`, one for each in order.
///
/// `outputs` have `shard_len` bytes each and need not be initialised: on success all of them are.
/// Otherwise as [`reconstruct`].
///
/// # Errors
/// Those of [`lost_shards`]; `ShardCount` where there is not an output for each missing shard.
pub fn reconstruct_uninit(
    code: ErasureCode,
    shards: &[Option<&[u8]>],
    data_count: usize,
    parity_count: usize,
    shard_len: usize,
    outputs: &mut [&mut [MaybeUninit<u8>]],
) -> Result<(), ErasureError> {
    let lost = lost_shards(code, shards, data_count, parity_count, shard_len)?;
    let given = outputs.iter().filter(|output| output.len() == shard_len);
    let (expected, given) = (lost.len(), given.count());
    if given != expected || outputs.len() != expected {
        return Err(ErasureError::ShardCount { expected, given });
    }
    recover(code, shards, (data_count, parity_count), &lost, outputs)
}

/// The indices of the data shards that are missing from `shards`, which can be made again.
///
/// # Errors
/// Those of [`check_reconstruct`]; `ShardCount`; `NotEnoughShards`; and, where anything is missing,
/// `EmptyShards`, `NotMultipleOf64` for Leopard, `UnequalShards` where a shard is longer than
/// `shard_len`.
pub fn lost_shards(
    code: ErasureCode,
    shards: &[Option<&[u8]>],
    data_count: usize,
    parity_count: usize,
    shard_len: usize,
) -> Result<Vec<usize>, ErasureError> {
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
    if !lost.is_empty() {
        check_shard_len(code, shard_len)?;
        check_lengths(shards.iter().map(|shard| shard.map(<[u8]>::len)), shard_len)?;
    }
    Ok(lost)
}

/// The `lost` shards over `outputs`, one for each and of one length; the rest has been checked.
fn recover(
    code: ErasureCode,
    shards: &[Option<&[u8]>],
    (data_count, parity_count): (usize, usize),
    lost: &[usize],
    outputs: &mut [&mut [MaybeUninit<u8>]],
) -> Result<(), ErasureError> {
    let Some(shard_len) = outputs.first().map(|output| output.len()) else {
        return Ok(());
    };
    if total_of(code, data_count, parity_count) > SHARDS_MAX {
        let recovered = leopard_ff16::reconstruct(shards, data_count, lost, shard_len)?;
        copy_over(outputs, recovered);
        return Ok(());
    }
    let set = kernel::selected().set;
    let method = plan::decoding(code, data_count, parity_count, lost.len(), set);
    if let Method::Crate = method {
        let recovered = vandermonde_portable::reconstruct(shards, data_count, lost, shard_len);
        copy_over(outputs, recovered);
        return Ok(());
    }
    let (sources, bytes): (Vec<usize>, Vec<&[u8]>) = shards
        .iter()
        .enumerate()
        .filter_map(|(index, shard)| shard.map(|bytes| (index, bytes)))
        .take(data_count)
        .unzip();
    let matrix = Geometry::new(code, data_count, parity_count).matrix(&sources, lost);
    let Method::Transform(transform) = method else {
        kernel::multiply_into(&matrix, &bytes, outputs);
        return Ok(());
    };
    // The lost shards alone would make what parity has beyond that of the rest.
    let from = sources.partition_point(|&source| source < data_count);
    let data: Vec<&[u8]> = (0..data_count)
        .map(|index| shards[index].unwrap_or(&[]))
        .collect();
    let rows = sources[from..].iter().map(|&source| source - data_count);
    let parity: Vec<(usize, &[u8])> = rows.zip(bytes[from..].iter().copied()).collect();
    kernel::decode_into(
        &transform,
        &matrix.without_first(from),
        &data,
        &parity,
        outputs,
    );
    Ok(())
}

/// Shards that a crate allocated, one for each output and as long.
fn copy_over(outputs: &mut [&mut [MaybeUninit<u8>]], shards: Vec<Vec<u8>>) {
    assert_eq!(outputs.len(), shards.len());
    for (output, shard) in outputs.iter_mut().zip(shards) {
        assert_eq!(output.len(), shard.len());
        for (byte, made) in output.iter_mut().zip(shard) {
            byte.write(made);
        }
    }
}

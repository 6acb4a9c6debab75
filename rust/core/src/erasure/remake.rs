//! Shards made again from others: what a held shard must be if the ones it is made from are right.

use super::check::{check_lengths, check_shard_len};
use super::geometry::Geometry;
use super::{ErasureCode, ErasureError, check_encode, kernel};

/// The `targets`, data or parity, as k `sources` make them; both by shard index, and disjoint.
///
/// A source may be shorter than `shard_len` and counts as padded with zeros. The counts must be
/// ones that [`super::encode`] takes.
///
/// # Errors
/// As [`super::encode`]; `NotEnoughShards` where there are not k sources.
pub(crate) fn remake(
    code: ErasureCode,
    counts: (usize, usize),
    sources: &[(usize, &[u8])],
    targets: &[usize],
    shard_len: usize,
) -> Result<Vec<Vec<u8>>, ErasureError> {
    let (needed, parity_count) = counts;
    check_encode(code, needed, parity_count)?;
    if sources.len() != needed {
        let present = sources.len();
        return Err(ErasureError::NotEnoughShards { needed, present });
    }
    check_shard_len(code, shard_len)?;
    let (indices, bytes): (Vec<usize>, Vec<&[u8]>) = sources.iter().copied().unzip();
    check_lengths(bytes.iter().map(|shard| Some(shard.len())), shard_len)?;
    let matrix = Geometry::new(code, needed, parity_count).matrix(&indices, targets);
    Ok(kernel::multiply(&matrix, &bytes, shard_len))
}

/// How much of each of k `sources` is in each of the `targets`, one row a target. The counts must
/// be ones that [`super::encode`] takes.
pub(crate) fn coefficients(
    code: ErasureCode,
    (data_count, parity_count): (usize, usize),
    sources: &[usize],
    targets: &[usize],
) -> Vec<Vec<u8>> {
    let matrix = Geometry::new(code, data_count, parity_count).matrix(sources, targets);
    let row = |row| (0..matrix.columns).map(move |column| (row, column));
    (0..matrix.rows)
        .map(|index| {
            row(index)
                .map(|(row, column)| matrix.coefficient(row, column))
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    #[test]
    fn any_k_shards_make_the_others() {
        let (k, m, shard_len) = (9, 5, 64);
        for code in [ErasureCode::Leopard, ErasureCode::Vandermonde] {
            let data: Vec<Vec<u8>> = (0..k)
                .map(|index| {
                    (0..shard_len)
                        .map(|at| (index * 31 + at * 7) as u8)
                        .collect()
                })
                .collect();
            let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let parity = encode(code, &slices, m, shard_len).unwrap();
            let all: Vec<&[u8]> = data.iter().chain(&parity).map(Vec::as_slice).collect();
            for first in 0..m {
                let sources: Vec<_> = (first..first + k)
                    .map(|index| (index, all[index]))
                    .collect();
                let targets: Vec<usize> = (0..first).chain(first + k..k + m).collect();
                let made = remake(code, (k, m), &sources, &targets, shard_len).unwrap();
                assert!(
                    targets
                        .iter()
                        .zip(&made)
                        .all(|(index, made)| all[*index] == made)
                );
            }
        }
    }
}

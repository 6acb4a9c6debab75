//! Which way to code is fastest: one table, from measurement.

use super::ErasureCode;
use crate::cpu::InstructionSet;

/// A way to make shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// Multiply by the matrix.
    Matrix,
    /// Leopard's transforms.
    Transform,
    /// The `reed-solomon-erasure` crate.
    Crate,
}

/// The parity count from which Leopard's transforms beat its matrix, by instruction set.
const TRANSFORM_MIN: [(InstructionSet, usize); 6] = [
    (InstructionSet::Portable, 3),
    (InstructionSet::Neon, 3),
    (InstructionSet::Ssse3, 3),
    (InstructionSet::Avx2, 3),
    (InstructionSet::Gfni256, 11),
    (InstructionSet::Gfni512, 11),
];

/// How to encode.
pub(super) fn encoding(code: ErasureCode, parity_count: usize, set: InstructionSet) -> Method {
    let transform_min = TRANSFORM_MIN
        .iter()
        .find(|(listed, _)| *listed == set)
        .map_or(usize::MAX, |row| row.1);
    match code {
        ErasureCode::Leopard if parity_count >= transform_min => Method::Transform,
        ErasureCode::Vandermonde if set == InstructionSet::Portable => Method::Crate,
        _ => Method::Matrix,
    }
}

/// How to reconstruct: by the matrix, which has no more rows than there are losses.
pub(super) fn decoding(code: ErasureCode, set: InstructionSet) -> Method {
    match code {
        ErasureCode::Vandermonde if set == InstructionSet::Portable => Method::Crate,
        _ => Method::Matrix,
    }
}

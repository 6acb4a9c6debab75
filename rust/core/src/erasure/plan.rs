//! Which way to code is fastest: counted products, weighed by one table.

use super::ErasureCode;
use super::transform::Transform;
use crate::cpu::InstructionSet;

/// A way to make shards.
pub(super) enum Method {
    /// Multiply by the matrix.
    Matrix,
    /// Transform, and multiply the rest by a matrix.
    Transform(Transform),
    /// The `reed-solomon-erasure` crate.
    Crate,
}

/// When transforms beat the matrix.
struct Crossover {
    set: InstructionSet,
    /// With fewer rows the matrix wins: it reads every input once.
    rows_min: usize,
    /// What a product within the transforms costs: percents of one within the matrix.
    product_percents: usize,
    /// What the difference of a parity shard and the parity of what is present costs: products
    /// within the matrix.
    difference_products: usize,
}

/// Least instruction set first; see `docs/decisions` for what has been measured and what has not.
const CROSSOVERS: [Crossover; 6] = [
    Crossover {
        set: InstructionSet::Portable,
        rows_min: 3,
        product_percents: 100,
        difference_products: 0,
    },
    Crossover {
        set: InstructionSet::Neon,
        rows_min: 3,
        product_percents: 130,
        difference_products: 0,
    },
    Crossover {
        set: InstructionSet::Ssse3,
        rows_min: 3,
        product_percents: 130,
        difference_products: 0,
    },
    Crossover {
        set: InstructionSet::Avx2,
        rows_min: 3,
        product_percents: 130,
        difference_products: 0,
    },
    Crossover {
        set: InstructionSet::Gfni256,
        rows_min: 5,
        product_percents: 250,
        difference_products: 14,
    },
    Crossover {
        set: InstructionSet::Gfni512,
        rows_min: 5,
        product_percents: 250,
        difference_products: 28,
    },
];

/// How to encode. The counts have passed the code's check and there is parity.
pub(super) fn encoding(
    code: ErasureCode,
    data_count: usize,
    parity_count: usize,
    set: InstructionSet,
) -> Method {
    choose(code, data_count, parity_count, None, set)
}

/// How to reconstruct `lost_count` data shards, under the same conditions.
///
/// By transforms, the parity of what is present is taken from as many parity shards as were lost;
/// a matrix of as many columns does the rest.
pub(super) fn decoding(
    code: ErasureCode,
    data_count: usize,
    parity_count: usize,
    lost_count: usize,
    set: InstructionSet,
) -> Method {
    choose(code, data_count, parity_count, Some(lost_count), set)
}

/// Transforms, unless a matrix costs less.
fn choose(
    code: ErasureCode,
    data_count: usize,
    parity_count: usize,
    lost_count: Option<usize>,
    set: InstructionSet,
) -> Method {
    if code == ErasureCode::Vandermonde && set == InstructionSet::Portable {
        return Method::Crate;
    }
    let Some(crossover) = CROSSOVERS.iter().find(|crossover| crossover.set == set) else {
        return Method::Matrix;
    };
    // The parity that transforms make beyond the rows that count costs nothing by the matrix.
    let rows = lost_count.unwrap_or(parity_count);
    if rows < crossover.rows_min {
        return Method::Matrix;
    }
    let rest = lost_count.map_or(0, |lost| lost * (lost + crossover.difference_products));
    match Transform::new(code, data_count, parity_count) {
        Some(transform)
            if transform.products() * crossover.product_percents
                + (transform.inner_products() + rest) * 100
                < rows * data_count * 100 =>
        {
            Method::Transform(transform)
        }
        _ => Method::Matrix,
    }
}

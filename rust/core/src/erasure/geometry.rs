//! Both codes as generalised Reed-Solomon codes: their matrices in closed form.
//!
//! Shard i of a codeword is `v[i] * f(a[i])`, where f is the polynomial of degree below k that the
//! data shards fix, `a` are distinct points and `v` are multipliers. Any k shards give f, and f
//! gives any other shard: Lagrange's formula is the encoding and the decoding matrix alike.

use super::ErasureCode;
use super::field::{self, Field};

/// Coefficients that turn source shards into target shards, one row a target.
pub(crate) struct Matrix {
    pub field: &'static Field,
    pub rows: usize,
    pub columns: usize,
    coefficients: Vec<u8>,
}

impl Matrix {
    /// The coefficient by which source `column` enters target `row`.
    pub fn coefficient(&self, row: usize, column: usize) -> u8 {
        self.coefficients[row * self.columns + column]
    }

    /// The matrix of the columns from `count` on.
    pub fn without_first(&self, count: usize) -> Self {
        let rows = self.coefficients.chunks_exact(self.columns);
        Self {
            field: self.field,
            rows: self.rows,
            columns: self.columns - count,
            coefficients: rows.flat_map(|row| &row[count..]).copied().collect(),
        }
    }
}

/// A code at one geometry: the point and the multiplier of each shard, data shards first.
pub(crate) struct Geometry {
    field: &'static Field,
    data_count: usize,
    pub(super) points: Vec<u8>,
    /// Logarithms of the multipliers.
    multipliers: Vec<usize>,
}

impl Geometry {
    /// The geometry of `code`. The counts must have passed the code's check: fewer than 257 points.
    pub fn new(code: ErasureCode, data_count: usize, parity_count: usize) -> Self {
        match code {
            ErasureCode::Vandermonde => Self::vandermonde(data_count, parity_count),
            ErasureCode::Leopard => Self::leopard(data_count, parity_count),
        }
    }

    /// Shard i is f(i): the systematic form of the Vandermonde matrix with rows 0 .. k + m - 1.
    fn vandermonde(data_count: usize, parity_count: usize) -> Self {
        let points = points_of(ErasureCode::Vandermonde, data_count, parity_count);
        Self {
            field: field_of(ErasureCode::Vandermonde),
            data_count,
            multipliers: vec![0; points.len()],
            points,
        }
    }

    /// Leopard's parity r of data j has the coefficient `(x_j >> p) / (x_j + r)`, where P = 2^p is
    /// the parity count rounded up to a power of two and x_j = P + j: a Cauchy matrix with scaled
    /// columns. The multipliers that make Lagrange's formula give it follow from comparing the two.
    fn leopard(data_count: usize, parity_count: usize) -> Self {
        let field = field_of(ErasureCode::Leopard);
        let padded = parity_count.next_power_of_two();
        let points = points_of(ErasureCode::Leopard, data_count, parity_count);
        let (sources, targets) = points.split_at(data_count);

        let data_multipliers = (0..data_count).map(|index| {
            let scale = field.log(sources[index] >> padded.trailing_zeros());
            negated(log_of_product(field, sources, sources[index]) + scale)
        });
        let parity_multipliers = targets
            .iter()
            .map(|&point| negated(log_of_product(field, sources, point)));
        let multipliers = data_multipliers.chain(parity_multipliers).collect();
        Self {
            field,
            data_count,
            points,
            multipliers,
        }
    }

    /// The matrix that makes every parity shard of all data shards.
    pub fn encoding_matrix(&self) -> Matrix {
        let sources: Vec<usize> = (0..self.data_count).collect();
        let targets: Vec<usize> = (self.data_count..self.points.len()).collect();
        self.matrix(&sources, &targets)
    }

    /// The matrix that makes the `targets` of k `sources`, both by shard index and disjoint.
    pub fn matrix(&self, sources: &[usize], targets: &[usize]) -> Matrix {
        let field = self.field;
        let points: Vec<u8> = sources.iter().map(|&source| self.points[source]).collect();
        // v_s * prod_{i != s} (a_s - a_i), the part of a coefficient that its source alone fixes.
        let divisors: Vec<usize> = sources
            .iter()
            .zip(&points)
            .map(|(&source, &point)| {
                self.multipliers[source] + log_of_product(field, &points, point)
            })
            .collect();

        let mut coefficients = Vec::with_capacity(targets.len() * sources.len());
        for &target in targets {
            let point = self.points[target];
            let dividend = self.multipliers[target] + log_of_product(field, &points, point);
            coefficients.extend(points.iter().zip(&divisors).map(|(&source, &divisor)| {
                field.exp(dividend + negated(divisor + field.log(point ^ source)))
            }));
        }
        Matrix {
            field,
            rows: targets.len(),
            columns: sources.len(),
            coefficients,
        }
    }
}

/// The field that a code computes in.
pub(super) fn field_of(code: ErasureCode) -> &'static Field {
    match code {
        ErasureCode::Vandermonde => &field::VANDERMONDE,
        ErasureCode::Leopard => &field::LEOPARD,
    }
}

/// The point of each shard, data shards first. Leopard's parity has the first points, its data
/// those from the parity count on, rounded up to a power of two.
pub(super) fn points_of(code: ErasureCode, data_count: usize, parity_count: usize) -> Vec<u8> {
    let total = data_count + parity_count;
    let padded = parity_count.next_power_of_two();
    let point_of = |shard: usize| match code {
        ErasureCode::Vandermonde => shard as u8,
        ErasureCode::Leopard if shard < data_count => (padded + shard) as u8,
        ErasureCode::Leopard => (shard - data_count) as u8,
    };
    (0..total).map(point_of).collect()
}

/// The logarithm of the product of `point - p` over all `points` p other than `point` itself.
pub(super) fn log_of_product(field: &Field, points: &[u8], point: u8) -> usize {
    points
        .iter()
        .filter(|&&p| p != point)
        .map(|&p| field.log(point ^ p))
        .sum()
}

/// The logarithm of the inverse, given a logarithm that need not be reduced.
pub(super) fn negated(logarithm: usize) -> usize {
    255 - logarithm % 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leopard_equals_its_closed_form() {
        for (k, m) in [
            (1, 1),
            (2, 2),
            (3, 3),
            (5, 2),
            (10, 2),
            (100, 13),
            (128, 128),
            (254, 2),
        ] {
            let matrix = Geometry::new(ErasureCode::Leopard, k, m).encoding_matrix();
            let field = matrix.field;
            let padded = m.next_power_of_two();
            for row in 0..m {
                for column in 0..k {
                    let point = padded + column;
                    let dividend = (point >> padded.trailing_zeros()) as u8;
                    let product =
                        field.product(matrix.coefficient(row, column), (point ^ row) as u8);
                    assert_eq!(product, dividend, "({k}, {m}) row {row} column {column}");
                }
            }
        }
    }

    #[test]
    fn one_leopard_parity_is_the_sum_and_one_data_shard_is_copied() {
        let sum = Geometry::new(ErasureCode::Leopard, 255, 1).encoding_matrix();
        assert!((0..255).all(|column| sum.coefficient(0, column) == 1));
        let copies = Geometry::new(ErasureCode::Vandermonde, 1, 3).encoding_matrix();
        assert!((0..3).all(|row| copies.coefficient(row, 0) == 1));
    }
}

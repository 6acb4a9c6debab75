//! Which transforms, with which scales, make a code's parity.
//!
//! With s the polynomial that vanishes on P = 2^p points 0 .. P - 1, the transforms of
//! `kernel/fft.rs` add `d * s(y) / (c * (x + y))` to the value at x < P for a datum d at a point
//! y >= P; c is the product of 1 .. P - 1. The parity of a generalised Reed-Solomon code is
//! `w(x) * z(y) * d / (x + y)`, so each data shard is scaled before and each parity shard after.
//! Differences of points stay when one point is added to all: parity that lies in one aligned block
//! of P points is brought to 0 .. P - 1 so. Data in the same block goes by the matrix.

use super::ErasureCode;
use super::field::Field;
use super::geometry::{Geometry, Matrix, field_of, log_of_product, negated, points_of};

/// The transforms that make the parity of a code at one geometry.
pub(crate) struct Transform {
    pub field: &'static Field,
    /// p: the layers of a transform of P rows.
    pub layers: usize,
    /// The row of the first parity shard.
    pub first_row: usize,
    /// Parity shards.
    pub rows: usize,
    /// The data shards that are transformed: the first of all, P a chunk.
    pub columns: usize,
    /// The matrix of the data shards that are not, if there are any.
    pub inner: Option<Matrix>,
    /// The point that is added to all.
    origin: usize,
    /// What the transformed data shards and all P rows are multiplied by, where they are.
    scales: Option<(Vec<u8>, Vec<u8>)>,
    points: Vec<u8>,
}

impl Transform {
    /// The transforms of `code`, if it has parity and any data shard can be transformed. The counts
    /// must have passed the code's check.
    pub fn new(code: ErasureCode, data_count: usize, parity_count: usize) -> Option<Self> {
        let points = points_of(code, data_count, parity_count);
        let (data, parity) = points.split_at(data_count);
        let (&first, &last) = (parity.first()?, parity.last()?);
        let layers = 8 - (first ^ last).leading_zeros() as usize;
        let origin = usize::from(first) >> layers << layers;
        let same_block = |point: u8| usize::from(point) >> layers << layers == origin;
        let columns = data.iter().take_while(|&&point| !same_block(point)).count();
        if columns == 0 || layers == 0 {
            return None;
        }
        let mut transform = Self {
            field: field_of(code),
            layers,
            first_row: usize::from(first) - origin,
            rows: parity_count,
            columns,
            inner: None,
            origin,
            scales: None,
            points: data.to_vec(),
        };
        // Leopard is what the transforms are without scales, and its parity has a block of its own.
        if code == ErasureCode::Vandermonde {
            let geometry = Geometry::new(code, data_count, parity_count);
            transform.scales = Some(transform.scales_of(&geometry));
            if columns < data_count {
                transform.inner = Some(geometry.encoding_matrix().without_first(columns));
            }
        }
        Some(transform)
    }

    /// Data shards, transformed or not.
    pub fn data_count(&self) -> usize {
        self.points.len()
    }

    /// The first point of a chunk of data shards.
    pub fn shift(&self, chunk: usize) -> usize {
        let point = usize::from(self.points[chunk << self.layers]);
        (point ^ self.origin) >> self.layers << self.layers
    }

    /// What the data shards of a chunk are multiplied by.
    pub fn column_scales(&self, chunk: usize) -> Option<&[u8]> {
        let (scales, _) = self.scales.as_ref()?;
        Some(&scales[chunk << self.layers..])
    }

    /// What the rows of the result are multiplied by.
    pub fn row_scales(&self) -> Option<&[u8]> {
        self.scales.as_ref().map(|(_, scales)| &scales[..])
    }

    /// The products of a register and a constant within the transforms, for one register of each
    /// data shard.
    pub fn products(&self) -> usize {
        let chunk_len = 1 << self.layers;
        let chunks = self.columns.div_ceil(chunk_len);
        let butterflies = (chunks + 1) * chunk_len * self.layers / 2;
        let scaled = self.scales.as_ref().map_or(0, |_| self.columns + chunk_len);
        butterflies + scaled
    }

    /// The products by the matrix that the transforms leave, likewise.
    pub fn inner_products(&self) -> usize {
        (self.data_count() - self.columns) * self.rows
    }

    /// The scales of a code whose multipliers are 1.
    fn scales_of(&self, geometry: &Geometry) -> (Vec<u8>, Vec<u8>) {
        let field = self.field;
        let chunk_len = 1usize << self.layers;
        // Brought to 0, the block of the parity is a subspace: its products are the same everywhere.
        let subspace: Vec<u8> = (0..chunk_len).map(|point| point as u8).collect();
        let divisor = log_of_product(field, &subspace, 0);
        let columns = (0..self.columns).map(|column| {
            let shift = self.shift(column >> self.layers) as u8;
            let vanishing = log_of_product(field, &subspace, shift);
            let weight = log_of_product(field, &self.points, self.points[column]);
            field.exp(divisor + negated(vanishing + weight))
        });
        let rows = (0..chunk_len).map(|row| {
            let parity = row
                .checked_sub(self.first_row)
                .filter(|&row| row < self.rows);
            parity.map_or(0, |parity| {
                let point = geometry.points[self.points.len() + parity];
                field.exp(log_of_product(field, &self.points, point))
            })
        });
        (columns.collect(), rows.collect())
    }
}

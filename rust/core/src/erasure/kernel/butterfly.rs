//! The loop of the transforms: a few rows through a few layers, with the rows in registers.

use super::panel::Vector;
use crate::erasure::field::Field;

/// The most rows of a unit: three layers.
pub(crate) const UNIT_ROWS_MAX: usize = 8;

/// Two, four or eight rows and the layers that pair them.
///
/// Layer l pairs rows that are 2^l apart: `a += skew * b`, then `b += a`, farthest pairs first; or
/// backwards for the inverse.
pub(crate) struct Unit<'a> {
    pub field: &'a Field,
    /// 1, 2 or 3; there are 2 to that many rows.
    pub layers: usize,
    pub inverse: bool,
    /// Each with `len` bytes to read.
    pub sources: [*const u8; UNIT_ROWS_MAX],
    /// Each with `len` bytes to write; those of one unit are distinct but may be its sources.
    pub targets: [*mut u8; UNIT_ROWS_MAX],
    /// A layer of n blocks has its skews from `n - 1` on.
    pub skews: [u8; UNIT_ROWS_MAX - 1],
    /// Whether the result is added to what the targets hold.
    pub accumulate: bool,
    /// A multiple of 64.
    pub len: usize,
}

/// Transforms a unit of `ROWS` rows.
///
/// # Safety
/// The machine has `V`'s instruction set, and the unit's pointers are good for its `len`.
#[inline(always)]
pub(super) unsafe fn transform<V: Vector, const ROWS: usize, const INVERSE: bool>(unit: &Unit<'_>) {
    let constants = unit.skews.map(|skew| V::constant(unit.field, skew));
    let layers = ROWS.trailing_zeros();
    for start in (0..unit.len).step_by(V::LEN) {
        // SAFETY: `start + V::LEN <= len`, for which the caller vouches behind each pointer; and
        // for the instruction set.
        unsafe {
            let mut rows: [V; ROWS] =
                std::array::from_fn(|row| V::load(unit.sources[row].add(start)));
            for step in 0..layers {
                let layer = if INVERSE { step } else { layers - 1 - step };
                let distance = 1 << layer;
                let blocks = ROWS >> (layer + 1);
                for block in 0..blocks {
                    let skew = &constants[blocks - 1 + block];
                    for a in block * 2 * distance..(block * 2 + 1) * distance {
                        let b = a + distance;
                        if INVERSE {
                            rows[b] = rows[b].xor(rows[a]);
                            rows[a] = rows[a].add_product(rows[b].factor(), skew);
                        } else {
                            rows[a] = rows[a].add_product(rows[b].factor(), skew);
                            rows[b] = rows[b].xor(rows[a]);
                        }
                    }
                }
            }
            for (row, target) in rows.into_iter().zip(unit.targets) {
                let target = target.add(start);
                let sum = if unit.accumulate {
                    row.xor(V::load(target))
                } else {
                    row
                };
                sum.store(target);
            }
        }
    }
}

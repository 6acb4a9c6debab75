//! The loop of the transforms: a few rows through a few layers, with the rows in registers.

use super::panel::{Product, Register};
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
    /// What each row is multiplied by: as it is read for the inverse, else as it is written.
    pub scales: Option<[u8; UNIT_ROWS_MAX]>,
    /// Whether the result is added to what the targets hold.
    pub accumulate: bool,
    /// A multiple of 64.
    pub len: usize,
}

/// Transforms a unit.
///
/// # Safety
/// The machine has `P`'s instruction set, and the unit's pointers are good for its `len`.
#[inline(always)]
pub(super) unsafe fn transform<P: Product>(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit and the instruction set.
    unsafe {
        match unit.layers {
            1 => transform_rows::<P, 2>(unit),
            2 => transform_rows::<P, 4>(unit),
            3 => transform_rows::<P, 8>(unit),
            count => unreachable!("a unit of {count} layers"),
        }
    }
}

#[inline(always)]
unsafe fn transform_rows<P: Product, const ROWS: usize>(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit and the instruction set.
    unsafe {
        match (unit.inverse, unit.scales) {
            (false, None) => transform_all::<P, ROWS, false, false>(unit, [0; UNIT_ROWS_MAX]),
            (true, None) => transform_all::<P, ROWS, true, false>(unit, [0; UNIT_ROWS_MAX]),
            (false, Some(scales)) => transform_all::<P, ROWS, false, true>(unit, scales),
            (true, Some(scales)) => transform_all::<P, ROWS, true, true>(unit, scales),
        }
    }
}

#[inline(always)]
unsafe fn transform_all<P: Product, const ROWS: usize, const INVERSE: bool, const SCALED: bool>(
    unit: &Unit<'_>,
    scales: [u8; UNIT_ROWS_MAX],
) {
    let skews = unit.skews.map(|skew| P::constant(unit.field, skew));
    let scales = scales.map(|scale| P::constant(unit.field, scale));
    for start in (0..unit.len).step_by(P::Register::LEN) {
        // SAFETY: `start + LEN <= len`, for which the caller vouches behind each pointer; and for
        // the instruction set.
        unsafe {
            // No closures here: one that is not inlined lacks the instruction set.
            let mut rows = [P::Register::zero(); ROWS];
            for (index, row) in rows.iter_mut().enumerate() {
                *row = P::Register::load(unit.sources[index].add(start));
                if INVERSE && SCALED {
                    *row = P::add_to(P::Register::zero(), P::factor(*row), &scales[index]);
                }
            }
            butterflies::<P, ROWS, INVERSE>(&mut rows, &skews);
            for (index, row) in rows.into_iter().enumerate() {
                let target = unit.targets[index].add(start);
                let sum = if unit.accumulate {
                    P::Register::load(target)
                } else {
                    P::Register::zero()
                };
                let sum = if !INVERSE && SCALED {
                    P::add_to(sum, P::factor(row), &scales[index])
                } else {
                    sum.xor(row)
                };
                sum.store(target);
            }
        }
    }
}

/// All layers of a unit, on one register of each row.
///
/// # Safety
/// The machine has `P`'s instruction set.
#[inline(always)]
unsafe fn butterflies<P: Product, const ROWS: usize, const INVERSE: bool>(
    rows: &mut [P::Register; ROWS],
    skews: &[P::Constant; UNIT_ROWS_MAX - 1],
) {
    let layers = ROWS.trailing_zeros();
    for step in 0..layers {
        let layer = if INVERSE { step } else { layers - 1 - step };
        let distance = 1 << layer;
        let blocks = ROWS >> (layer + 1);
        for block in 0..blocks {
            let skew = &skews[blocks - 1 + block];
            for a in block * 2 * distance..(block * 2 + 1) * distance {
                let b = a + distance;
                // SAFETY: the caller vouches for the instruction set.
                unsafe {
                    if INVERSE {
                        rows[b] = rows[b].xor(rows[a]);
                        rows[a] = P::add_to(rows[a], P::factor(rows[b]), skew);
                    } else {
                        rows[a] = P::add_to(rows[a], P::factor(rows[b]), skew);
                        rows[b] = rows[b].xor(rows[a]);
                    }
                }
            }
        }
    }
}

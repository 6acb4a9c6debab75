//! The loop that every kernel shares: a panel of outputs, with the sums in registers.

use crate::erasure::field::Field;
use crate::erasure::geometry::Matrix;

/// The most sources of a panel.
pub(super) const GROUP_MAX: usize = 8;

/// A column of the matrix and the input bytes that it multiplies.
pub(super) struct Source {
    pub column: usize,
    pub bytes: *const u8,
}

/// Some rows of the matrix times some sources: `targets[i]` is row `first_row + i`.
pub(super) struct Panel<'a> {
    pub matrix: &'a Matrix,
    pub first_row: usize,
    /// At most `GROUP_MAX`, each with `len` bytes to read.
    pub sources: &'a [Source],
    /// Distinct, each with `len` bytes to write; these have been written where `accumulate` is set.
    pub targets: &'a [*mut u8],
    /// A multiple of the kernel's step.
    pub len: usize,
    /// Whether the product is added to what the targets hold.
    pub accumulate: bool,
}

/// A register of bytes that can be multiplied by a constant of a field.
///
/// # Safety
/// Every method needs the instruction set of its implementation, and `load` and `store` need
/// `LEN` bytes behind the pointer. All must be inlined into a function with that target feature.
pub(super) trait Vector: Copy {
    /// Bytes in the register.
    const LEN: usize;
    /// A constant as this instruction set multiplies by it.
    type Constant: Copy;
    /// A register made ready for products with several constants.
    type Factor: Copy;

    fn constant(field: &Field, constant: u8) -> Self::Constant;
    unsafe fn zero() -> Self;
    unsafe fn load(bytes: *const u8) -> Self;
    unsafe fn store(self, bytes: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn factor(self) -> Self::Factor;
    /// `self + constant * factor`.
    unsafe fn add_product(self, factor: Self::Factor, constant: &Self::Constant) -> Self;
}

/// Multiplies a panel of exactly `ROWS` targets in steps of `WIDTH` registers.
///
/// # Safety
/// The machine has `V`'s instruction set, the panel's pointers are good for its `len`, and `len` is
/// a multiple of `WIDTH * V::LEN`.
#[inline(always)]
pub(super) unsafe fn multiply<V: Vector, const ROWS: usize, const WIDTH: usize>(panel: &Panel<'_>) {
    let sources = &panel.sources[..panel.sources.len().min(GROUP_MAX)];
    let field = panel.matrix.field;
    let mut constants = [[V::constant(field, 0); ROWS]; GROUP_MAX];
    for (constants, source) in constants.iter_mut().zip(sources) {
        for (row, constant) in constants.iter_mut().enumerate() {
            let coefficient = panel
                .matrix
                .coefficient(panel.first_row + row, source.column);
            *constant = V::constant(field, coefficient);
        }
    }
    let targets: &[*mut u8; ROWS] = panel.targets.try_into().expect("the caller chose ROWS");

    for start in (0..panel.len).step_by(WIDTH * V::LEN) {
        // SAFETY: `start + WIDTH * V::LEN <= len`, for which the caller vouches behind each
        // pointer; and for the instruction set.
        unsafe {
            let mut sums = [[V::zero(); WIDTH]; ROWS];
            if panel.accumulate {
                for (sums, target) in sums.iter_mut().zip(targets) {
                    for (index, sum) in sums.iter_mut().enumerate() {
                        *sum = V::load(target.add(start + index * V::LEN));
                    }
                }
            }
            for (source, constants) in sources.iter().zip(&constants) {
                let factors: [V::Factor; WIDTH] = std::array::from_fn(|index| {
                    V::load(source.bytes.add(start + index * V::LEN)).factor()
                });
                for (sums, constant) in sums.iter_mut().zip(constants) {
                    for (sum, factor) in sums.iter_mut().zip(factors) {
                        *sum = sum.add_product(factor, constant);
                    }
                }
            }
            for (sums, target) in sums.iter().zip(targets) {
                for (index, sum) in sums.iter().enumerate() {
                    sum.store(target.add(start + index * V::LEN));
                }
            }
        }
    }
}

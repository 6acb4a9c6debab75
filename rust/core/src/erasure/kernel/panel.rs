//! The loop that every kernel shares: a panel of outputs, with the sums in registers.

use std::marker::PhantomData;

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

/// A register of bytes.
///
/// # Safety
/// Every method needs the instruction set of its implementation, and `load` and `store` need
/// `LEN` bytes behind the pointer. All must be inlined into a function with that target feature.
pub(super) trait Register: Copy {
    /// Bytes in the register.
    const LEN: usize;

    unsafe fn zero() -> Self;
    unsafe fn load(bytes: *const u8) -> Self;
    unsafe fn store(self, bytes: *mut u8);
    unsafe fn xor(self, other: Self) -> Self;
}

/// A way to multiply the bytes of a register by a constant of a field.
///
/// # Safety
/// As for [`Register`].
pub(super) trait Product {
    type Register: Register;
    /// A constant as this instruction set multiplies by it.
    type Constant: Copy;
    /// A register made ready for products with several constants.
    type Factor: Copy;

    fn constant(field: &Field, constant: u8) -> Self::Constant;
    unsafe fn factor(register: Self::Register) -> Self::Factor;
    /// `sum + constant * factor`.
    unsafe fn add_to(
        sum: Self::Register,
        factor: Self::Factor,
        constant: &Self::Constant,
    ) -> Self::Register;
}

/// Registers side by side for a row alone, whose sums leave room for them: the table of a constant is
/// then loaded once for all of them.
const WIDTH_OF_ONE_ROW: usize = 8;

/// Likewise for two rows. Measured with AVX2 at (10, 2): 1.1 (encoding) and 1.2 (decoding) times two
/// registers.
const WIDTH_OF_TWO_ROWS: usize = 4;

/// Multiplies a panel in steps of `WIDTH` registers; it has at most `ROWS_MAX` targets.
///
/// # Safety
/// The machine has `P`'s instruction set, the panel's pointers are good for its `len`, and `len` is
/// a multiple of `WIDTH` registers.
#[inline(always)]
pub(super) unsafe fn multiply<P: Product, const ROWS_MAX: usize, const WIDTH: usize>(
    panel: &Panel<'_>,
) {
    // SAFETY: the caller vouches for the panel and the instruction set.
    unsafe {
        match panel.targets.len() {
            1 if is_sum(panel) => multiply_rows::<Sum<P>, 1, WIDTH, WIDTH_OF_TWO_ROWS>(panel),
            1 => multiply_rows::<P, 1, WIDTH, WIDTH_OF_ONE_ROW>(panel),
            2 => multiply_rows::<P, 2, WIDTH, WIDTH_OF_TWO_ROWS>(panel),
            3 => multiply_rows::<P, 3, WIDTH, WIDTH>(panel),
            4 => multiply_rows::<P, 4, WIDTH, WIDTH>(panel),
            5 if ROWS_MAX >= 5 => multiply_rows::<P, 5, WIDTH, WIDTH>(panel),
            6 if ROWS_MAX >= 6 => multiply_rows::<P, 6, WIDTH, WIDTH>(panel),
            7 if ROWS_MAX >= 7 => multiply_rows::<P, 7, WIDTH, WIDTH>(panel),
            8 if ROWS_MAX >= 8 => multiply_rows::<P, 8, WIDTH, WIDTH>(panel),
            count => unreachable!("{count} rows in a panel of at most {ROWS_MAX}"),
        }
    }
}

/// Whether a panel's first row is the sum of its sources, as Leopard's only parity shard is.
fn is_sum(panel: &Panel<'_>) -> bool {
    let coefficient = |source: &Source| panel.matrix.coefficient(panel.first_row, source.column);
    panel.sources.iter().all(|source| coefficient(source) == 1)
}

/// Products by 1 alone.
struct Sum<P>(PhantomData<P>);

impl<P: Product> Product for Sum<P> {
    type Register = P::Register;
    type Constant = ();
    type Factor = P::Register;

    #[inline(always)]
    fn constant(_: &Field, _: u8) {}

    #[inline(always)]
    unsafe fn factor(register: P::Register) -> P::Register {
        register
    }

    #[inline(always)]
    unsafe fn add_to(sum: P::Register, factor: P::Register, _: &()) -> P::Register {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { sum.xor(factor) }
    }
}

/// [`multiply`] for exactly `ROWS` targets, in steps of `WIDE` registers while there are as many.
#[inline(always)]
unsafe fn multiply_rows<P: Product, const ROWS: usize, const WIDTH: usize, const WIDE: usize>(
    panel: &Panel<'_>,
) {
    let sources = &panel.sources[..panel.sources.len().min(GROUP_MAX)];
    let field = panel.matrix.field;
    let mut constants = [[P::constant(field, 0); ROWS]; GROUP_MAX];
    for (constants, source) in constants.iter_mut().zip(sources) {
        for (row, constant) in constants.iter_mut().enumerate() {
            let coefficient = panel
                .matrix
                .coefficient(panel.first_row + row, source.column);
            *constant = P::constant(field, coefficient);
        }
    }
    let targets: &[*mut u8; ROWS] = panel.targets.try_into().expect("the caller chose ROWS");

    let wide_len = WIDE * P::Register::LEN;
    let wide_end = panel.len - panel.len % wide_len;
    // SAFETY: each step ends within `len`, for which the caller vouches behind each pointer; and
    // for the instruction set.
    unsafe {
        for start in (0..wide_end).step_by(wide_len) {
            step::<P, ROWS, WIDE>(sources, &constants, targets, start, panel.accumulate);
        }
        for start in (wide_end..panel.len).step_by(WIDTH * P::Register::LEN) {
            step::<P, ROWS, WIDTH>(sources, &constants, targets, start, panel.accumulate);
        }
    }
}

/// `WIDTH` registers of each target from `start` on.
///
/// # Safety
/// As for [`multiply`]; the registers are within the panel's `len`.
#[inline(always)]
unsafe fn step<P: Product, const ROWS: usize, const WIDTH: usize>(
    sources: &[Source],
    constants: &[[P::Constant; ROWS]; GROUP_MAX],
    targets: &[*mut u8; ROWS],
    start: usize,
    accumulate: bool,
) {
    let place = |index: usize| start + index * P::Register::LEN;
    // SAFETY: the caller vouches for the pointers and the instruction set.
    unsafe {
        let mut sums = [[P::Register::zero(); WIDTH]; ROWS];
        if accumulate {
            for (sums, target) in sums.iter_mut().zip(targets) {
                for (index, sum) in sums.iter_mut().enumerate() {
                    *sum = P::Register::load(target.add(place(index)));
                }
            }
        }
        for (source, constants) in sources.iter().zip(constants) {
            if ROWS <= 2 {
                // Constants stay in registers, and factors come one by one.
                for index in 0..WIDTH {
                    let factor = P::factor(P::Register::load(source.bytes.add(place(index))));
                    for (sums, constant) in sums.iter_mut().zip(constants) {
                        sums[index] = P::add_to(sums[index], factor, constant);
                    }
                }
                continue;
            }
            // No closure that uses the instruction set: one that is not inlined lacks it.
            let mut factors = [P::factor(P::Register::zero()); WIDTH];
            for (index, factor) in factors.iter_mut().enumerate() {
                *factor = P::factor(P::Register::load(source.bytes.add(place(index))));
            }
            for (sums, constant) in sums.iter_mut().zip(constants) {
                for (sum, factor) in sums.iter_mut().zip(factors) {
                    *sum = P::add_to(*sum, factor, constant);
                }
            }
        }
        for (sums, target) in sums.iter().zip(targets) {
            for (index, sum) in sums.iter().enumerate() {
                sum.store(target.add(place(index)));
            }
        }
    }
}

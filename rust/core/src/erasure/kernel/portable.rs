//! Any machine: a product is a sum of constants, one for each bit of the factor.

use super::Kernel;
use super::butterfly::{self, Unit};
use super::panel::{self, Panel, Vector};
use crate::cpu::InstructionSet;
use crate::erasure::field::Field;

pub(super) const KERNEL: Kernel = Kernel {
    set: InstructionSet::Portable,
    step: Words::LEN,
    rows: 4,
    multiply,
    transform,
};

/// 32 bytes in four words, which compilers put into vector registers where there are any.
#[derive(Clone, Copy)]
struct Words([u64; 4]);

/// One bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

impl Vector for Words {
    const LEN: usize = 32;
    /// For each bit of a factor, the constant times that bit alone, in every byte of a word.
    type Constant = [u64; 8];
    /// For each bit, 0xFF in the bytes that have it.
    type Factor = [[u64; 4]; 8];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> [u64; 8] {
        std::array::from_fn(|bit| u64::from(field.product(constant, 1 << bit)) * ONES)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 4])
    }

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller vouches for `LEN` bytes; the read needs no alignment.
        Self(unsafe { bytes.cast::<[u64; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: *mut u8) {
        // SAFETY: the caller vouches for `LEN` bytes; the write needs no alignment.
        unsafe { bytes.cast::<[u64; 4]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] ^ other.0[index]))
    }

    #[inline(always)]
    unsafe fn factor(self) -> [[u64; 4]; 8] {
        std::array::from_fn(|bit| {
            self.0.map(|word| {
                let set = word >> bit & ONES;
                (set << 8).wrapping_sub(set)
            })
        })
    }

    #[inline(always)]
    unsafe fn add_product(self, factor: [[u64; 4]; 8], constant: &[u64; 8]) -> Self {
        let mut sum = self.0;
        for (masks, product) in factor.iter().zip(constant) {
            for (word, mask) in sum.iter_mut().zip(masks) {
                *word ^= mask & product;
            }
        }
        Self(sum)
    }
}

unsafe fn multiply(panel: &Panel<'_>) {
    // SAFETY: the caller vouches for the panel; no instruction set is needed.
    unsafe {
        match panel.targets.len() {
            1 => panel::multiply::<Words, 1, 1>(panel),
            2 => panel::multiply::<Words, 2, 1>(panel),
            3 => panel::multiply::<Words, 3, 1>(panel),
            _ => panel::multiply::<Words, 4, 1>(panel),
        }
    }
}

unsafe fn transform(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit; no instruction set is needed.
    unsafe {
        match (unit.layers, unit.inverse) {
            (1, false) => butterfly::transform::<Words, 2, false>(unit),
            (1, true) => butterfly::transform::<Words, 2, true>(unit),
            (2, false) => butterfly::transform::<Words, 4, false>(unit),
            (2, true) => butterfly::transform::<Words, 4, true>(unit),
            (_, false) => butterfly::transform::<Words, 8, false>(unit),
            (_, true) => butterfly::transform::<Words, 8, true>(unit),
        }
    }
}

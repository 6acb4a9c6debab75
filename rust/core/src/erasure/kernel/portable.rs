//! Any machine: a product is a sum of constants, one for each bit of the factor.

use super::panel::{Product, Register};
use crate::erasure::field::Field;

/// 32 bytes in four words, which compilers put into vector registers where there are any.
#[derive(Clone, Copy)]
pub(super) struct Words([u64; 4]);

/// One bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

impl Register for Words {
    const LEN: usize = 32;

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
}

/// Products bit by bit.
pub(super) struct Masks;

impl Product for Masks {
    type Register = Words;
    /// For each bit of a factor, the constant times that bit alone, in every byte of a word.
    type Constant = [u64; 8];
    /// For each bit, 0xFF in the bytes that have it.
    type Factor = [[u64; 4]; 8];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> [u64; 8] {
        std::array::from_fn(|bit| u64::from(field.product(constant, 1 << bit)) * ONES)
    }

    #[inline(always)]
    unsafe fn factor(register: Words) -> [[u64; 4]; 8] {
        std::array::from_fn(|bit| {
            register.0.map(|word| {
                let set = word >> bit & ONES;
                (set << 8).wrapping_sub(set)
            })
        })
    }

    #[inline(always)]
    unsafe fn add_to(sum: Words, factor: [[u64; 4]; 8], constant: &[u64; 8]) -> Words {
        let mut sum = sum.0;
        for (masks, product) in factor.iter().zip(constant) {
            for (word, mask) in sum.iter_mut().zip(masks) {
                *word ^= mask & product;
            }
        }
        Words(sum)
    }
}

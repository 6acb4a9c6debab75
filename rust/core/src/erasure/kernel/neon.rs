//! NEON (aarch64): a product is the sum of two table look-ups, one for each nibble.

use std::arch::aarch64::*;

use super::panel::{Product, Register};
use crate::erasure::field::{Field, Nibbles};

impl Register for uint8x16_t {
    const LEN: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is part of the target's baseline.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller vouches for `LEN` bytes; the load needs no alignment.
        unsafe { vld1q_u8(bytes) }
    }

    #[inline(always)]
    unsafe fn store(self, bytes: *mut u8) {
        // SAFETY: the caller vouches for `LEN` bytes; the store needs no alignment.
        unsafe { vst1q_u8(bytes, self) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: NEON is part of the target's baseline.
        unsafe { veorq_u8(self, other) }
    }
}

/// Look-ups in 16-byte registers.
pub(super) struct Lookup;

impl Product for Lookup {
    type Register = uint8x16_t;
    type Constant = Nibbles;
    /// The low nibble of each byte, then the high one.
    type Factor = [uint8x16_t; 2];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> Nibbles {
        *field.nibbles(constant)
    }

    #[inline(always)]
    unsafe fn factor(register: uint8x16_t) -> [uint8x16_t; 2] {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            [
                vandq_u8(register, vdupq_n_u8(15)),
                vshrq_n_u8::<4>(register),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_to(
        sum: uint8x16_t,
        [low, high]: [uint8x16_t; 2],
        constant: &Nibbles,
    ) -> uint8x16_t {
        // SAFETY: NEON is part of the target's baseline; the tables are 16 bytes each.
        unsafe {
            let low_products = vqtbl1q_u8(vld1q_u8(constant.low.as_ptr()), low);
            let high_products = vqtbl1q_u8(vld1q_u8(constant.high.as_ptr()), high);
            veorq_u8(veorq_u8(sum, low_products), high_products)
        }
    }
}

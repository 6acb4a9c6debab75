//! NEON (aarch64): a product is the sum of two table look-ups, one for each nibble.

use std::arch::aarch64::*;

use super::Kernel;
use super::butterfly::{self, Unit};
use super::panel::{self, Panel, Vector};
use crate::cpu::InstructionSet;
use crate::erasure::field::{Field, Nibbles};

/// NEON is part of every aarch64 target's baseline.
pub(super) const KERNEL: Kernel = Kernel {
    set: InstructionSet::Neon,
    step: 32,
    rows: 4,
    multiply,
    transform,
};

#[derive(Clone, Copy)]
struct Quad(uint8x16_t);

impl Vector for Quad {
    const LEN: usize = 16;
    type Constant = Nibbles;
    /// The low nibble of each byte, then the high one.
    type Factor = [uint8x16_t; 2];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> Nibbles {
        *field.nibbles(constant)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is part of the target's baseline.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller vouches for `LEN` bytes; the load needs no alignment.
        Self(unsafe { vld1q_u8(bytes) })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: *mut u8) {
        // SAFETY: the caller vouches for `LEN` bytes; the store needs no alignment.
        unsafe { vst1q_u8(bytes, self.0) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: NEON is part of the target's baseline.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(self) -> [uint8x16_t; 2] {
        // SAFETY: NEON is part of the target's baseline.
        unsafe { [vandq_u8(self.0, vdupq_n_u8(15)), vshrq_n_u8::<4>(self.0)] }
    }

    #[inline(always)]
    unsafe fn add_product(self, [low, high]: [uint8x16_t; 2], constant: &Nibbles) -> Self {
        // SAFETY: NEON is part of the target's baseline; the tables are 16 bytes each.
        unsafe {
            let low_products = vqtbl1q_u8(vld1q_u8(constant.low.as_ptr()), low);
            let high_products = vqtbl1q_u8(vld1q_u8(constant.high.as_ptr()), high);
            Self(veorq_u8(veorq_u8(self.0, low_products), high_products))
        }
    }
}

unsafe fn multiply(panel: &Panel<'_>) {
    // SAFETY: the caller vouches for the panel; NEON is part of the target's baseline.
    unsafe {
        match panel.targets.len() {
            1 => panel::multiply::<Quad, 1, 2>(panel),
            2 => panel::multiply::<Quad, 2, 2>(panel),
            3 => panel::multiply::<Quad, 3, 2>(panel),
            _ => panel::multiply::<Quad, 4, 2>(panel),
        }
    }
}

unsafe fn transform(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit; NEON is part of the target's baseline.
    unsafe {
        match (unit.layers, unit.inverse) {
            (1, false) => butterfly::transform::<Quad, 2, false>(unit),
            (1, true) => butterfly::transform::<Quad, 2, true>(unit),
            (2, false) => butterfly::transform::<Quad, 4, false>(unit),
            (2, true) => butterfly::transform::<Quad, 4, true>(unit),
            (_, false) => butterfly::transform::<Quad, 8, false>(unit),
            (_, true) => butterfly::transform::<Quad, 8, true>(unit),
        }
    }
}

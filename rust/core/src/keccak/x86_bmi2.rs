//! BMI1 and BMI2: one message in general registers, with and-not and rotate in one instruction.

use super::RATE;
use super::permutation::{self, Lane};

impl Lane for u64 {
    #[inline(always)]
    unsafe fn splat(word: u64) -> u64 {
        word
    }

    #[inline(always)]
    unsafe fn xor(self, other: u64) -> u64 {
        self ^ other
    }

    #[inline(always)]
    unsafe fn xor3(self, second: u64, third: u64) -> u64 {
        self ^ second ^ third
    }

    #[inline(always)]
    unsafe fn chi(self, second: u64, third: u64) -> u64 {
        self ^ (!second & third)
    }

    #[inline(always)]
    unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> u64 {
        self.rotate_left(LEFT as u32)
    }
}

/// Absorbs whole blocks.
///
/// # Safety
/// The machine has BMI1 and BMI2.
#[target_feature(enable = "bmi1,bmi2")]
pub(super) unsafe fn absorb(state: &mut [u64; 25], blocks: &[u8]) {
    for block in blocks.chunks_exact(RATE) {
        for (lane, bytes) in state.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane ^= u64::from_le_bytes(*bytes);
        }
        // SAFETY: scalar lanes need no instruction set of their own.
        unsafe { permutation::permute(state) };
    }
}

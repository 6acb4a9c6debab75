//! Registers of 16, 32 and 64 bytes, for the ways of multiplying on x86-64.

use std::arch::x86_64::*;

use super::panel::Register;

/// Implements [`Register`] by the intrinsics for zero, unaligned load, unaligned store and XOR.
macro_rules! register {
    ($type:ty, $len:literal, $zero:ident, $load:ident, $store:ident, $xor:ident) => {
        impl Register for $type {
            const LEN: usize = $len;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn load(bytes: *const u8) -> Self {
                // SAFETY: the caller vouches for the instruction set and `LEN` bytes; the load
                // needs no alignment.
                unsafe { $load(bytes.cast()) }
            }

            #[inline(always)]
            unsafe fn store(self, bytes: *mut u8) {
                // SAFETY: the caller vouches for the instruction set and `LEN` bytes; the store
                // needs no alignment.
                unsafe { $store(bytes.cast(), self) };
            }

            #[inline(always)]
            unsafe fn xor(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { $xor(self, other) }
            }
        }
    };
}

register!(
    __m128i,
    16,
    _mm_setzero_si128,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_xor_si128
);
register!(
    __m256i,
    32,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_xor_si256
);
register!(
    __m512i,
    64,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_xor_si512
);

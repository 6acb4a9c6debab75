//! SSSE3 and AVX2: a product is the sum of two table look-ups by shuffle, one for each nibble.

use std::arch::x86_64::*;

use super::Kernel;
use super::butterfly::{self, Unit};
use super::panel::{self, Panel, Vector};
use crate::cpu::InstructionSet;
use crate::erasure::field::{Field, Nibbles};

/// The kernels of this file that the machine can run, least first.
pub(super) fn supported() -> impl Iterator<Item = Kernel> {
    let ssse3 = Kernel {
        set: InstructionSet::Ssse3,
        step: 32,
        rows: 4,
        multiply: multiply_ssse3,
        transform: transform_ssse3,
    };
    let avx2 = Kernel {
        set: InstructionSet::Avx2,
        step: 64,
        rows: 4,
        multiply: multiply_avx2,
        transform: transform_avx2,
    };
    let ssse3 = is_x86_feature_detected!("ssse3").then_some(ssse3);
    ssse3
        .into_iter()
        .chain(is_x86_feature_detected!("avx2").then_some(avx2))
}

#[derive(Clone, Copy)]
struct Xmm(__m128i);

impl Vector for Xmm {
    const LEN: usize = 16;
    type Constant = Nibbles;
    /// The low nibble of each byte, then the high one.
    type Factor = [__m128i; 2];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> Nibbles {
        *field.nibbles(constant)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: SSE2 is part of the target's baseline.
        Self(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller vouches for `LEN` bytes; the load needs no alignment.
        Self(unsafe { _mm_loadu_si128(bytes.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: *mut u8) {
        // SAFETY: the caller vouches for `LEN` bytes; the store needs no alignment.
        unsafe { _mm_storeu_si128(bytes.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: SSE2 is part of the target's baseline.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(self) -> [__m128i; 2] {
        // SAFETY: SSE2 is part of the target's baseline.
        unsafe {
            let mask = _mm_set1_epi8(15);
            let high = _mm_srli_epi64::<4>(self.0);
            [_mm_and_si128(self.0, mask), _mm_and_si128(high, mask)]
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, [low, high]: [__m128i; 2], constant: &Nibbles) -> Self {
        // SAFETY: the caller vouches for SSSE3; the tables are 16 bytes each, aligned.
        unsafe {
            let low_products = _mm_load_si128(constant.low.as_ptr().cast());
            let high_products = _mm_load_si128(constant.high.as_ptr().cast());
            let sum = _mm_xor_si128(self.0, _mm_shuffle_epi8(low_products, low));
            Self(_mm_xor_si128(sum, _mm_shuffle_epi8(high_products, high)))
        }
    }
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

impl Vector for Ymm {
    const LEN: usize = 32;
    type Constant = Nibbles;
    /// The low nibble of each byte, then the high one.
    type Factor = [__m256i; 2];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> Nibbles {
        *field.nibbles(constant)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX2.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller vouches for AVX2 and `LEN` bytes; the load needs no alignment.
        Self(unsafe { _mm256_loadu_si256(bytes.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: *mut u8) {
        // SAFETY: the caller vouches for AVX2 and `LEN` bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(self) -> [__m256i; 2] {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let high = _mm256_srli_epi64::<4>(self.0);
            [_mm256_and_si256(self.0, mask), _mm256_and_si256(high, mask)]
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, [low, high]: [__m256i; 2], constant: &Nibbles) -> Self {
        // SAFETY: the caller vouches for AVX2; the tables are 16 bytes each, aligned.
        unsafe {
            let low_products = _mm_load_si128(constant.low.as_ptr().cast());
            let high_products = _mm_load_si128(constant.high.as_ptr().cast());
            let low_products = _mm256_broadcastsi128_si256(low_products);
            let high_products = _mm256_broadcastsi128_si256(high_products);
            let sum = _mm256_xor_si256(self.0, _mm256_shuffle_epi8(low_products, low));
            Self(_mm256_xor_si256(
                sum,
                _mm256_shuffle_epi8(high_products, high),
            ))
        }
    }
}

#[target_feature(enable = "ssse3")]
unsafe fn multiply_ssse3(panel: &Panel<'_>) {
    // SAFETY: the caller vouches for the panel and SSSE3.
    unsafe {
        match panel.targets.len() {
            1 => panel::multiply::<Xmm, 1, 2>(panel),
            2 => panel::multiply::<Xmm, 2, 2>(panel),
            3 => panel::multiply::<Xmm, 3, 2>(panel),
            _ => panel::multiply::<Xmm, 4, 2>(panel),
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn multiply_avx2(panel: &Panel<'_>) {
    // SAFETY: the caller vouches for the panel and AVX2.
    unsafe {
        match panel.targets.len() {
            1 => panel::multiply::<Ymm, 1, 2>(panel),
            2 => panel::multiply::<Ymm, 2, 2>(panel),
            3 => panel::multiply::<Ymm, 3, 2>(panel),
            _ => panel::multiply::<Ymm, 4, 2>(panel),
        }
    }
}

#[target_feature(enable = "ssse3")]
unsafe fn transform_ssse3(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit and SSSE3.
    unsafe {
        match (unit.layers, unit.inverse) {
            (1, false) => butterfly::transform::<Xmm, 2, false>(unit),
            (1, true) => butterfly::transform::<Xmm, 2, true>(unit),
            (2, false) => butterfly::transform::<Xmm, 4, false>(unit),
            (2, true) => butterfly::transform::<Xmm, 4, true>(unit),
            (_, false) => butterfly::transform::<Xmm, 8, false>(unit),
            (_, true) => butterfly::transform::<Xmm, 8, true>(unit),
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn transform_avx2(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit and AVX2.
    unsafe {
        match (unit.layers, unit.inverse) {
            (1, false) => butterfly::transform::<Ymm, 2, false>(unit),
            (1, true) => butterfly::transform::<Ymm, 2, true>(unit),
            (2, false) => butterfly::transform::<Ymm, 4, false>(unit),
            (2, true) => butterfly::transform::<Ymm, 4, true>(unit),
            (_, false) => butterfly::transform::<Ymm, 8, false>(unit),
            (_, true) => butterfly::transform::<Ymm, 8, true>(unit),
        }
    }
}

//! GFNI: a product is one affine transformation of each byte by an 8x8 matrix of bits.

use std::arch::x86_64::*;

use super::Kernel;
use super::butterfly::{self, Unit};
use super::panel::{self, Panel, Vector};
use crate::cpu::InstructionSet;
use crate::erasure::field::Field;

/// The kernels of this file that the machine can run, least first.
pub(super) fn supported() -> impl Iterator<Item = Kernel> {
    let narrow = Kernel {
        set: InstructionSet::Gfni256,
        step: 64,
        rows: 4,
        multiply: multiply_gfni256,
        transform: transform_gfni256,
    };
    let wide = Kernel {
        set: InstructionSet::Gfni512,
        step: 128,
        rows: 8,
        multiply: multiply_gfni512,
        transform: transform_gfni512,
    };
    let gfni = is_x86_feature_detected!("gfni");
    let has_narrow = gfni && is_x86_feature_detected!("avx2");
    let has_wide =
        gfni && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    has_narrow
        .then_some(narrow)
        .into_iter()
        .chain(has_wide.then_some(wide))
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

impl Vector for Ymm {
    const LEN: usize = 32;
    type Constant = u64;
    type Factor = __m256i;

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> u64 {
        field.bit_matrix(constant)
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
    unsafe fn factor(self) -> __m256i {
        self.0
    }

    #[inline(always)]
    unsafe fn add_product(self, factor: __m256i, constant: &u64) -> Self {
        // SAFETY: the caller vouches for AVX2 and GFNI.
        unsafe {
            let matrix = _mm256_set1_epi64x(*constant as i64);
            let product = _mm256_gf2p8affine_epi64_epi8::<0>(factor, matrix);
            Self(_mm256_xor_si256(self.0, product))
        }
    }
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Vector for Zmm {
    const LEN: usize = 64;
    type Constant = u64;
    type Factor = __m512i;

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> u64 {
        field.bit_matrix(constant)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(bytes: *const u8) -> Self {
        // SAFETY: the caller vouches for AVX-512F and `LEN` bytes; the load needs no alignment.
        Self(unsafe { _mm512_loadu_si512(bytes.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, bytes: *mut u8) {
        // SAFETY: the caller vouches for AVX-512F and `LEN` bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(bytes.cast(), self.0) };
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(self) -> __m512i {
        self.0
    }

    #[inline(always)]
    unsafe fn add_product(self, factor: __m512i, constant: &u64) -> Self {
        // SAFETY: the caller vouches for AVX-512F, AVX-512BW and GFNI.
        unsafe {
            let matrix = _mm512_set1_epi64(*constant as i64);
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(factor, matrix);
            Self(_mm512_xor_si512(self.0, product))
        }
    }
}

#[target_feature(enable = "avx2,gfni")]
unsafe fn multiply_gfni256(panel: &Panel<'_>) {
    // SAFETY: the caller vouches for the panel, AVX2 and GFNI.
    unsafe {
        match panel.targets.len() {
            1 => panel::multiply::<Ymm, 1, 2>(panel),
            2 => panel::multiply::<Ymm, 2, 2>(panel),
            3 => panel::multiply::<Ymm, 3, 2>(panel),
            _ => panel::multiply::<Ymm, 4, 2>(panel),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn multiply_gfni512(panel: &Panel<'_>) {
    // SAFETY: the caller vouches for the panel, AVX-512F, AVX-512BW and GFNI.
    unsafe {
        match panel.targets.len() {
            1 => panel::multiply::<Zmm, 1, 2>(panel),
            2 => panel::multiply::<Zmm, 2, 2>(panel),
            3 => panel::multiply::<Zmm, 3, 2>(panel),
            4 => panel::multiply::<Zmm, 4, 2>(panel),
            5 => panel::multiply::<Zmm, 5, 2>(panel),
            6 => panel::multiply::<Zmm, 6, 2>(panel),
            7 => panel::multiply::<Zmm, 7, 2>(panel),
            _ => panel::multiply::<Zmm, 8, 2>(panel),
        }
    }
}

#[target_feature(enable = "avx2,gfni")]
unsafe fn transform_gfni256(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit, AVX2 and GFNI.
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

#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn transform_gfni512(unit: &Unit<'_>) {
    // SAFETY: the caller vouches for the unit, AVX-512F, AVX-512BW and GFNI.
    unsafe {
        match (unit.layers, unit.inverse) {
            (1, false) => butterfly::transform::<Zmm, 2, false>(unit),
            (1, true) => butterfly::transform::<Zmm, 2, true>(unit),
            (2, false) => butterfly::transform::<Zmm, 4, false>(unit),
            (2, true) => butterfly::transform::<Zmm, 4, true>(unit),
            (_, false) => butterfly::transform::<Zmm, 8, false>(unit),
            (_, true) => butterfly::transform::<Zmm, 8, true>(unit),
        }
    }
}

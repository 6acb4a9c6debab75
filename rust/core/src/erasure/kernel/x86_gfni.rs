//! GFNI: a product is one affine transformation of each byte by an 8x8 matrix of bits.

use std::arch::x86_64::*;

use super::panel::Product;
use crate::erasure::field::Field;

/// Transformations of 32-byte registers, by AVX2 and GFNI.
pub(super) struct Affine256;

impl Product for Affine256 {
    type Register = __m256i;
    type Constant = u64;
    type Factor = __m256i;

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> u64 {
        field.bit_matrix(constant)
    }

    #[inline(always)]
    unsafe fn factor(register: __m256i) -> __m256i {
        register
    }

    #[inline(always)]
    unsafe fn add_to(sum: __m256i, factor: __m256i, constant: &u64) -> __m256i {
        // SAFETY: the caller vouches for AVX2 and GFNI.
        unsafe {
            let matrix = _mm256_set1_epi64x(*constant as i64);
            _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(factor, matrix))
        }
    }
}

/// Transformations of 64-byte registers, by AVX-512 and GFNI.
pub(super) struct Affine512;

impl Product for Affine512 {
    type Register = __m512i;
    type Constant = u64;
    type Factor = __m512i;

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> u64 {
        field.bit_matrix(constant)
    }

    #[inline(always)]
    unsafe fn factor(register: __m512i) -> __m512i {
        register
    }

    #[inline(always)]
    unsafe fn add_to(sum: __m512i, factor: __m512i, constant: &u64) -> __m512i {
        // SAFETY: the caller vouches for AVX-512F, AVX-512BW and GFNI.
        unsafe {
            let matrix = _mm512_set1_epi64(*constant as i64);
            _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(factor, matrix))
        }
    }
}

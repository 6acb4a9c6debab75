//! SSSE3 and AVX2: a product is the sum of two table look-ups by shuffle, one for each nibble.

use std::arch::x86_64::*;

use super::panel::Product;
use crate::erasure::field::{Field, Nibbles};

/// Look-ups in 16-byte registers, by SSSE3.
pub(super) struct Shuffle128;

impl Product for Shuffle128 {
    type Register = __m128i;
    type Constant = Nibbles;
    /// The low nibble of each byte, then the high one.
    type Factor = [__m128i; 2];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> Nibbles {
        *field.nibbles(constant)
    }

    #[inline(always)]
    unsafe fn factor(register: __m128i) -> [__m128i; 2] {
        // SAFETY: SSE2 is part of the target's baseline.
        unsafe {
            let mask = _mm_set1_epi8(15);
            let high = _mm_srli_epi64::<4>(register);
            [_mm_and_si128(register, mask), _mm_and_si128(high, mask)]
        }
    }

    #[inline(always)]
    unsafe fn add_to(sum: __m128i, [low, high]: [__m128i; 2], constant: &Nibbles) -> __m128i {
        // SAFETY: the caller vouches for SSSE3; the tables are 16 bytes each, aligned.
        unsafe {
            let low_products = _mm_load_si128(constant.low.as_ptr().cast());
            let high_products = _mm_load_si128(constant.high.as_ptr().cast());
            let sum = _mm_xor_si128(sum, _mm_shuffle_epi8(low_products, low));
            _mm_xor_si128(sum, _mm_shuffle_epi8(high_products, high))
        }
    }
}

/// Look-ups in 32-byte registers, by AVX2.
pub(super) struct Shuffle256;

impl Product for Shuffle256 {
    type Register = __m256i;
    type Constant = Nibbles;
    /// The low nibble of each byte, then the high one.
    type Factor = [__m256i; 2];

    #[inline(always)]
    fn constant(field: &Field, constant: u8) -> Nibbles {
        *field.nibbles(constant)
    }

    #[inline(always)]
    unsafe fn factor(register: __m256i) -> [__m256i; 2] {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let high = _mm256_srli_epi64::<4>(register);
            [
                _mm256_and_si256(register, mask),
                _mm256_and_si256(high, mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add_to(sum: __m256i, [low, high]: [__m256i; 2], constant: &Nibbles) -> __m256i {
        // SAFETY: the caller vouches for AVX2; the tables are 16 bytes each, aligned.
        unsafe {
            let low_products = _mm_load_si128(constant.low.as_ptr().cast());
            let high_products = _mm_load_si128(constant.high.as_ptr().cast());
            let low_products = _mm256_broadcastsi128_si256(low_products);
            let high_products = _mm256_broadcastsi128_si256(high_products);
            let sum = _mm256_xor_si256(sum, _mm256_shuffle_epi8(low_products, low));
            _mm256_xor_si256(sum, _mm256_shuffle_epi8(high_products, high))
        }
    }
}

//! AVX-512: three-operand logic and rotation in one instruction each, over 32 registers.
//!
//! One message keeps one lane in each 128-bit register; eight messages fill 512-bit registers.

use std::arch::x86_64::*;

use super::RATE;
use super::permutation::{self, Lane};
use super::state::Lanes;

// Logic on bits is the same for elements of any width; of VPTERNLOGD and VPTERNLOGQ, Miri knows the first.

/// VPTERNLOG's truth table of `a ^ b ^ c`.
const XOR3: i32 = 0x96;
/// VPTERNLOG's truth table of `a ^ (!b & c)`.
const CHI: i32 = 0xD2;

impl Lane for __m128i {
    #[inline(always)]
    unsafe fn splat(word: u64) -> Self {
        // SAFETY: SSE2 is part of the target's baseline.
        unsafe { _mm_cvtsi64_si128(word as i64) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: SSE2 is part of the target's baseline.
        unsafe { _mm_xor_si128(self, other) }
    }

    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512VL.
        unsafe { _mm_ternarylogic_epi32::<XOR3>(self, second, third) }
    }

    #[inline(always)]
    unsafe fn chi(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512VL.
        unsafe { _mm_ternarylogic_epi32::<CHI>(self, second, third) }
    }

    #[inline(always)]
    unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: the caller vouches for AVX-512VL.
        unsafe { _mm_rol_epi64::<LEFT>(self) }
    }
}

impl Lane for __m512i {
    #[inline(always)]
    unsafe fn splat(word: u64) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        unsafe { _mm512_set1_epi64(word as i64) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        unsafe { _mm512_xor_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        unsafe { _mm512_ternarylogic_epi32::<XOR3>(self, second, third) }
    }

    #[inline(always)]
    unsafe fn chi(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        unsafe { _mm512_ternarylogic_epi32::<CHI>(self, second, third) }
    }

    #[inline(always)]
    unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        unsafe { _mm512_rol_epi64::<LEFT>(self) }
    }
}

/// Absorbs whole blocks of one message.
///
/// # Safety
/// The machine has AVX-512F and AVX-512VL.
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) unsafe fn absorb_one(state: &mut [u64; 25], blocks: &[u8]) {
    // SAFETY: each load reads eight bytes of the state or of a block; the caller vouches for the
    // instruction sets.
    unsafe {
        // No closure that uses the instruction set: one that is not inlined lacks it.
        let mut lanes = [_mm_setzero_si128(); 25];
        for (lane, word) in lanes.iter_mut().zip(&*state) {
            *lane = _mm_cvtsi64_si128(*word as i64);
        }
        for block in blocks.chunks_exact(RATE) {
            for (lane, bytes) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
                *lane = lane.xor(_mm_loadl_epi64(bytes.as_ptr().cast()));
            }
            permutation::permute(&mut lanes);
        }
        for (word, lane) in state.iter_mut().zip(lanes) {
            *word = _mm_cvtsi128_si64(lane) as u64;
        }
    }
}

/// Absorbs `count` blocks from each of `blocks` on.
///
/// # Safety
/// The machine has AVX-512F, and there are `count * RATE` bytes behind each pointer.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn absorb_eight(lanes: &mut Lanes<8>, blocks: [*const u8; 8], count: usize) {
    let words: *mut __m512i = lanes.0.as_mut_ptr().cast();
    // SAFETY: `Lanes<8>` is 25 times eight words, aligned to 64 bytes; the caller vouches for the
    // blocks.
    unsafe {
        let mut state: [__m512i; 25] = words.cast::<[__m512i; 25]>().read();
        for block in 0..count {
            let bytes = blocks.map(|blocks| blocks.add(block * RATE));
            for first in [0, 8] {
                let columns = transpose(bytes.map(|bytes| bytes.add(8 * first)));
                for (lane, column) in state[first..first + 8].iter_mut().zip(columns) {
                    *lane = lane.xor(column);
                }
            }
            let last = bytes.map(|bytes| bytes.add(8 * 16).cast::<i64>().read_unaligned());
            state[16] = state[16].xor(_mm512_loadu_si512(last.as_ptr().cast()));
            permutation::permute(&mut state);
        }
        words.cast::<[__m512i; 25]>().write(state);
    }
}

/// Eight words of each of eight messages, as eight registers of one word of each message.
///
/// # Safety
/// The machine has AVX-512F, and there are 64 bytes behind each pointer.
#[inline(always)]
unsafe fn transpose(rows: [*const u8; 8]) -> [__m512i; 8] {
    // SAFETY: the caller vouches for the bytes and AVX-512F; the loads need no alignment.
    unsafe {
        // Pairs of messages: even words, then odd words, of each 128-bit quarter.
        let (mut even, mut odd) = ([_mm512_setzero_si512(); 4], [_mm512_setzero_si512(); 4]);
        for pair in 0..4 {
            let first = _mm512_loadu_si512(rows[2 * pair].cast());
            let second = _mm512_loadu_si512(rows[2 * pair + 1].cast());
            even[pair] = _mm512_unpacklo_epi64(first, second);
            odd[pair] = _mm512_unpackhi_epi64(first, second);
        }
        let [w0, w2, w4, w6] = transpose_quarters(even);
        let [w1, w3, w5, w7] = transpose_quarters(odd);
        [w0, w1, w2, w3, w4, w5, w6, w7]
    }
}

/// Transposes four rows of four 128-bit quarters.
///
/// # Safety
/// The machine has AVX-512F.
#[inline(always)]
unsafe fn transpose_quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller vouches for AVX-512F.
    unsafe {
        let ab_first = _mm512_shuffle_i64x2::<0x44>(a, b);
        let ab_last = _mm512_shuffle_i64x2::<0xEE>(a, b);
        let cd_first = _mm512_shuffle_i64x2::<0x44>(c, d);
        let cd_last = _mm512_shuffle_i64x2::<0xEE>(c, d);
        [
            _mm512_shuffle_i64x2::<0x88>(ab_first, cd_first),
            _mm512_shuffle_i64x2::<0xDD>(ab_first, cd_first),
            _mm512_shuffle_i64x2::<0x88>(ab_last, cd_last),
            _mm512_shuffle_i64x2::<0xDD>(ab_last, cd_last),
        ]
    }
}

//! AVX2: four messages at once, a lane of each in one register.

use std::arch::x86_64::*;

use super::RATE;
use super::permutation::{self, Lane};
use super::state::Lanes;

impl Lane for __m256i {
    #[inline(always)]
    unsafe fn splat(word: u64) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { _mm256_set1_epi64x(word as i64) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { _mm256_xor_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { _mm256_xor_si256(_mm256_xor_si256(self, second), third) }
    }

    #[inline(always)]
    unsafe fn chi(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe { _mm256_xor_si256(self, _mm256_andnot_si256(second, third)) }
    }

    #[inline(always)]
    unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            // A rotation by whole bytes is one shuffle instead of two shifts and an or.
            match LEFT {
                8 => _mm256_shuffle_epi8(self, byte_rotation(7)),
                56 => _mm256_shuffle_epi8(self, byte_rotation(1)),
                _ => _mm256_or_si256(
                    _mm256_slli_epi64::<LEFT>(self),
                    _mm256_srli_epi64::<RIGHT>(self),
                ),
            }
        }
    }
}

/// The shuffle that takes byte i of each lane from byte `i + first` modulo 8.
#[inline(always)]
unsafe fn byte_rotation(first: i64) -> __m256i {
    let lane = (0..8).fold(0, |lane, byte| lane | ((byte + first) % 8) << (8 * byte));
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        _mm256_set_epi64x(
            lane + 0x0808_0808_0808_0808,
            lane,
            lane + 0x0808_0808_0808_0808,
            lane,
        )
    }
}

/// Absorbs `count` blocks from each of `blocks` on.
///
/// # Safety
/// The machine has AVX2, and there are `count * RATE` bytes behind each pointer.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn absorb(lanes: &mut Lanes<4>, blocks: [*const u8; 4], count: usize) {
    let words: *mut __m256i = lanes.0.as_mut_ptr().cast();
    // SAFETY: `Lanes<4>` is 25 times four words, and aligned to more than 32 bytes; the caller
    // vouches for the blocks.
    unsafe {
        let mut state: [__m256i; 25] = words.cast::<[__m256i; 25]>().read();
        for block in 0..count {
            let bytes = blocks.map(|blocks| blocks.add(block * RATE));
            for first in (0..16).step_by(4) {
                let columns = transpose(bytes.map(|bytes| bytes.add(8 * first)));
                for (lane, column) in state[first..first + 4].iter_mut().zip(columns) {
                    *lane = lane.xor(column);
                }
            }
            let last = bytes.map(|bytes| bytes.add(8 * 16).cast::<i64>().read_unaligned());
            state[16] = state[16].xor(_mm256_set_epi64x(last[3], last[2], last[1], last[0]));
            permutation::permute(&mut state);
        }
        words.cast::<[__m256i; 25]>().write(state);
    }
}

/// Four words of each of four messages, as four registers of one word of each message.
///
/// # Safety
/// The machine has AVX2, and there are 32 bytes behind each pointer.
#[inline(always)]
unsafe fn transpose(rows: [*const u8; 4]) -> [__m256i; 4] {
    // SAFETY: the caller vouches for the bytes and AVX2; the loads need no alignment.
    unsafe {
        // No closure that uses the instruction set: one that is not inlined lacks it.
        let a = _mm256_loadu_si256(rows[0].cast());
        let b = _mm256_loadu_si256(rows[1].cast());
        let c = _mm256_loadu_si256(rows[2].cast());
        let d = _mm256_loadu_si256(rows[3].cast());
        let ab_even = _mm256_unpacklo_epi64(a, b);
        let ab_odd = _mm256_unpackhi_epi64(a, b);
        let cd_even = _mm256_unpacklo_epi64(c, d);
        let cd_odd = _mm256_unpackhi_epi64(c, d);
        [
            _mm256_permute2x128_si256::<0x20>(ab_even, cd_even),
            _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd),
            _mm256_permute2x128_si256::<0x31>(ab_even, cd_even),
            _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd),
        ]
    }
}

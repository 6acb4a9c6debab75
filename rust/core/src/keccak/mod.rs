//! Keccak-256: the original Keccak padding (0x01), not SHA3-256's.
//!
//! Owns the sponge and the choice of permutation. `tiny-keccak`'s permutation is the portable path
//! and the oracle of every other one; vector paths stand beside it and are chosen at run time.

mod kernel;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod many;
mod padding;
#[cfg(target_arch = "x86_64")]
mod permutation;
mod pieces;
mod sponge;
mod state;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_avx2;
#[cfg(target_arch = "x86_64")]
mod x86_avx512;
#[cfg(target_arch = "x86_64")]
mod x86_bmi2;

use crate::cpu::InstructionSet;
use kernel::{Kernel, Many};
use padding::padded;
use state::{absorb_one_with, squeeze};

pub use sponge::Keccak256;

/// Bytes in a digest.
pub const DIGEST_LEN: usize = 32;

/// Bytes absorbed per permutation: 1600 bits of state less twice the digest's 256.
const RATE: usize = 136;

/// What the kernel in use is made of: the best that the machine has and [`crate::cpu`] allows.
pub fn instruction_set() -> InstructionSet {
    kernel::selected().set
}

/// The Keccak-256 digest of `data`.
pub fn keccak256(data: &[u8]) -> [u8; DIGEST_LEN] {
    digest_of(kernel::selected(), data)
}

/// The Keccak-256 digests of many messages: `digests[i]` becomes the digest of `inputs[i]`.
///
/// Messages may differ in length. `digests` must be as long as `inputs`; of two unequal lengths the
/// shorter one counts and the rest is left as it was.
pub fn keccak256_many(inputs: &[&[u8]], digests: &mut [[u8; DIGEST_LEN]]) {
    debug_assert_eq!(inputs.len(), digests.len());
    let count = inputs.len().min(digests.len());
    digests_of(kernel::selected(), &inputs[..count], &mut digests[..count]);
}

/// As [`keccak256_many`], each message given as pieces that follow one another.
pub fn keccak256_many_pieces(inputs: &[&[&[u8]]], digests: &mut [[u8; DIGEST_LEN]]) {
    debug_assert_eq!(inputs.len(), digests.len());
    let count = inputs.len().min(digests.len());
    pieces::digests_of_pieces(kernel::selected(), &inputs[..count], &mut digests[..count]);
}

fn digest_of(kernel: &Kernel, data: &[u8]) -> [u8; DIGEST_LEN] {
    let (blocks, rest) = data.split_at(data.len() - data.len() % RATE);
    let mut state = [0; 25];
    absorb_one_with(kernel.absorb_one, &mut state, blocks);
    absorb_one_with(kernel.absorb_one, &mut state, &padded(rest));
    squeeze(&state)
}

fn digests_of(kernel: &Kernel, inputs: &[&[u8]], digests: &mut [[u8; DIGEST_LEN]]) {
    match &kernel.many {
        Many::InTurn => {
            for (input, digest) in inputs.iter().zip(digests) {
                *digest = digest_of(kernel, input);
            }
        }
        #[cfg(target_arch = "x86_64")]
        Many::Four(streams) => streams.run(inputs, digests),
        #[cfg(target_arch = "x86_64")]
        Many::Eight(streams) => streams.run(inputs, digests),
    }
}

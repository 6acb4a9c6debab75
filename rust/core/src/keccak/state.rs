//! States, what absorbs blocks into them, and the digest that one gives.

use super::{DIGEST_LEN, RATE};

/// N states side by side: word i of state j is `self.0[i][j]`.
#[repr(C, align(64))]
pub(super) struct Lanes<const N: usize>(pub [[u64; N]; 25]);

/// Absorbs whole blocks of one message.
///
/// # Safety
/// The machine has the function's instruction set.
pub(super) type AbsorbOne = unsafe fn(&mut [u64; 25], &[u8]);

/// Absorbs a number of blocks from each pointer on, one pointer a lane.
///
/// # Safety
/// The machine has the function's instruction set, and each pointer has that many blocks behind it.
pub(super) type AbsorbMany<const N: usize> = unsafe fn(&mut Lanes<N>, [*const u8; N], usize);

/// Absorbs whole blocks with a kernel that `kernel::supported` offered.
pub(super) fn absorb_one_with(absorb_one: AbsorbOne, state: &mut [u64; 25], blocks: &[u8]) {
    debug_assert!(blocks.len().is_multiple_of(RATE));
    // SAFETY: `kernel::supported` offers only what the machine has.
    unsafe { absorb_one(state, blocks) };
}

/// The digest that the first four lanes of a state give.
pub(super) fn squeeze(lanes: &[u64]) -> [u8; DIGEST_LEN] {
    let mut digest = [0; DIGEST_LEN];
    for (bytes, lane) in digest.chunks_exact_mut(8).zip(lanes) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    digest
}

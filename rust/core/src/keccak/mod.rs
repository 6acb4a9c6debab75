//! Keccak-256: the original Keccak padding (0x01), not SHA3-256's.
//!
//! Owns the sponge and the choice of permutation. `tiny-keccak`'s permutation is the portable path
//! and the oracle of every other one; vector paths stand beside it and are chosen at run time.

mod sponge;

pub use sponge::Keccak256;

/// Bytes in a digest.
pub const DIGEST_LEN: usize = 32;

/// Bytes absorbed per permutation: 1600 bits of state less twice the digest's 256.
const RATE: usize = 136;

/// The Keccak-256 digest of `data`.
pub fn keccak256(data: &[u8]) -> [u8; DIGEST_LEN] {
    let mut keccak = Keccak256::new();
    keccak.update(data);
    keccak.finalize()
}

/// The Keccak-256 digests of many messages: `digests[i]` becomes the digest of `inputs[i]`.
///
/// Messages may differ in length. `digests` must be as long as `inputs`; of two unequal lengths the
/// shorter one counts and the rest is left as it was.
pub fn keccak256_many(inputs: &[&[u8]], digests: &mut [[u8; DIGEST_LEN]]) {
    debug_assert_eq!(inputs.len(), digests.len());
    for (input, digest) in inputs.iter().zip(digests) {
        *digest = keccak256(input);
    }
}

//! The incremental sponge: one message, absorbed in any pieces.

use super::kernel::absorb;
use super::padding::padded;
use super::state::squeeze;
use super::{DIGEST_LEN, RATE};

/// Keccak-256 of a message that arrives in pieces.
///
/// A clone continues on its own, so a common prefix is absorbed once.
#[derive(Clone)]
pub struct Keccak256 {
    state: [u64; 25],
    /// The bytes of the block in progress; `pending_len` of them are filled, fewer than `RATE`.
    pending: [u8; RATE],
    pending_len: usize,
}

impl Keccak256 {
    /// The hash of nothing yet.
    pub fn new() -> Self {
        Self {
            state: [0; 25],
            pending: [0; RATE],
            pending_len: 0,
        }
    }

    /// Absorbs `data` after what was absorbed before.
    pub fn update(&mut self, mut data: &[u8]) {
        if self.pending_len > 0 {
            let taken = data.len().min(RATE - self.pending_len);
            let (head, rest) = data.split_at(taken);
            self.pending[self.pending_len..][..taken].copy_from_slice(head);
            self.pending_len += taken;
            data = rest;
            if self.pending_len < RATE {
                return;
            }
            absorb(&mut self.state, &self.pending);
            self.pending_len = 0;
        }
        let (blocks, rest) = data.split_at(data.len() - data.len() % RATE);
        absorb(&mut self.state, blocks);
        self.pending[..rest.len()].copy_from_slice(rest);
        self.pending_len = rest.len();
    }

    /// The digest of everything absorbed; `self` can absorb more afterwards.
    pub fn digest(&self) -> [u8; DIGEST_LEN] {
        self.clone().finalize()
    }

    /// The digest of everything absorbed.
    pub fn finalize(mut self) -> [u8; DIGEST_LEN] {
        absorb(&mut self.state, &padded(&self.pending[..self.pending_len]));
        squeeze(&self.state)
    }
}

impl Default for Keccak256 {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Keccak256 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Keccak256").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiny_keccak::Hasher;

    fn oracle(data: &[u8]) -> [u8; DIGEST_LEN] {
        let mut hasher = tiny_keccak::Keccak::v256();
        hasher.update(data);
        let mut digest = [0; DIGEST_LEN];
        hasher.finalize(&mut digest);
        digest
    }

    fn message(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn digest_of_nothing_is_the_published_one() {
        let hex: String = Keccak256::new()
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
        );
    }

    #[test]
    fn every_length_over_three_blocks_equals_the_oracle() {
        let data = message(3 * RATE + 2);
        for len in 0..=data.len() {
            assert_eq!(
                super::super::keccak256(&data[..len]),
                oracle(&data[..len]),
                "{len}"
            );
        }
    }

    #[test]
    fn any_split_in_two_equals_the_whole_and_a_clone_continues() {
        let data = message(2 * RATE + 9);
        let whole = oracle(&data);
        for split in 0..=data.len() {
            let mut keccak = Keccak256::new();
            keccak.update(&data[..split]);
            assert_eq!(keccak.digest(), oracle(&data[..split]));
            let mut clone = keccak.clone();
            clone.update(&data[split..]);
            assert_eq!(clone.finalize(), whole, "{split}");
        }
    }
}

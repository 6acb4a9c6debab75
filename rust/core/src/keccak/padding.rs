//! The last block of a message.

use super::RATE;

/// The last block of a message: what is left of it, 0x01, zeros, and 0x80 in the last byte.
///
/// `rest` is shorter than a block.
pub(super) fn padded(rest: &[u8]) -> [u8; RATE] {
    let mut block = [0; RATE];
    pad_into(&mut block, rest);
    block
}

/// Writes [`padded`] over a block.
pub(super) fn pad_into(block: &mut [u8; RATE], rest: &[u8]) {
    let (message, padding) = block.split_at_mut(rest.len());
    message.copy_from_slice(rest);
    padding.fill(0);
    padding[0] = 0x01;
    block[RATE - 1] |= 0x80;
}

//! A reconstructed payload in the pieces it arrived in, copied once by whoever needs it whole.

use super::bytes::{Bytes, Lent};
use crate::sink::Sink;

/// Pieces of a payload; the last may be longer than what counts.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    parts: Vec<Bytes>,
    length: usize,
}

impl Payload {
    /// The first `length` bytes of `parts` in order.
    pub(super) fn new(parts: Vec<Bytes>, length: usize) -> Self {
        debug_assert!(parts.iter().map(|part| part.len()).sum::<usize>() >= length);
        Payload { parts, length }
    }

    /// A payload in one piece, which is kept in place where it lies in `source` and is long.
    pub fn of(bytes: &[u8], source: Option<&Lent>) -> Self {
        Payload {
            parts: vec![Bytes::keep(bytes, source)],
            length: bytes.len(),
        }
    }

    /// Length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces, cut to the payload's length.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.length;
        self.parts.iter().map(move |part| {
            let piece = &part[..part.len().min(left)];
            left -= piece.len();
            piece
        })
    }

    /// Writes the payload into `out`.
    pub fn write_to(&self, out: &mut impl Sink) {
        self.pieces().for_each(|piece| out.put(piece));
    }

    /// The payload in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length);
        self.write_to(&mut out);
        out
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        Payload::new(vec![bytes.into()], length)
    }
}

#[cfg(test)]
impl<const COUNT: usize> From<[Vec<u8>; COUNT]> for Payload {
    fn from(pieces: [Vec<u8>; COUNT]) -> Self {
        let length = pieces.iter().map(Vec::len).sum();
        Payload::new(pieces.map(Bytes::from).into(), length)
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.to_vec() == other.to_vec()
    }
}

//! Where bytes are written that somebody else has allocated.

/// Takes bytes in order. A vector, a builder, or fresh memory that nobody zeroes.
pub trait Sink {
    /// Appends `bytes`.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

//! The bytes of messages, shared by whoever keeps them.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::reassemble::Lent;

/// Fewer bytes than this are copied next to their count.
const KEPT_BYTES_MIN: usize = 4096;

/// A message as it came or left.
#[derive(Clone)]
pub enum Octets {
    /// Bytes of our own.
    Own(Arc<[u8]>),
    /// Bytes that stay where they are: the caller's, or long ones.
    Lent(Lent),
}

impl Octets {
    /// Whether both are the same bytes in memory.
    pub fn is(&self, other: &Octets) -> bool {
        std::ptr::eq::<[u8]>(&**self, &**other)
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Octets::Own(bytes) => bytes,
            Octets::Lent(bytes) => (**bytes).as_ref(),
        }
    }
}

impl AsRef<[u8]> for Octets {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Octets {
    fn from(bytes: &[u8]) -> Self {
        Octets::Own(bytes.into())
    }
}

impl From<Vec<u8>> for Octets {
    /// Long ones stay where they are.
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.len() < KEPT_BYTES_MIN {
            return Octets::Own(bytes.into());
        }
        let lent: Lent = Arc::new(bytes);
        Octets::Lent(lent)
    }
}

impl PartialEq for Octets {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Octets {}

impl std::fmt::Debug for Octets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "<{} bytes>", self.len())
    }
}

/// A part of a message: its content, say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The message.
    pub whole: Octets,
    /// Where in it.
    pub range: Range<usize>,
}

impl Part {
    /// The part of `whole` that `bytes` are, which lie in it.
    pub fn of(whole: &Octets, bytes: &[u8]) -> Self {
        let start = bytes.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        let range = start..start.wrapping_add(bytes.len());
        debug_assert!(
            whole.get(range.clone()).is_some(),
            "a part lies in its whole"
        );
        Part {
            whole: whole.clone(),
            range,
        }
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }
}

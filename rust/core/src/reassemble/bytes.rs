//! The bytes of a held segment: copied, or part of what the caller lent.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// Received bytes that may be kept for as long as they are needed, without a copy.
pub type Lent = Arc<dyn Lend>;

/// A buffer of the caller's. What `as_ref` returns must not change.
pub trait Lend: AsRef<[u8]> + Send + Sync {
    /// Itself, for the caller to know it again when it comes back.
    fn as_any(&self) -> &dyn Any;
}

impl Lend for Vec<u8> {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Fewer bytes than this are copied: what surrounds a lent buffer would outweigh them.
const LENT_BYTES_MIN: usize = 4096;

/// A segment's payload.
#[derive(Clone)]
pub(super) enum Bytes {
    Copied(Box<[u8]>),
    /// A part of the transport message, which is kept as a whole.
    Lent {
        source: Lent,
        start: u32,
        length: u32,
    },
}

impl Bytes {
    /// Keeps `part`, which lies in `source` where there is one.
    pub fn keep(part: &[u8], source: Option<&Lent>) -> Self {
        let lent = source.filter(|_| part.len() >= LENT_BYTES_MIN);
        lent.and_then(|source| {
            let whole = (**source).as_ref();
            let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
            let is_inside = start.checked_add(part.len())? <= whole.len();
            let (start, length) = (u32::try_from(start).ok()?, u32::try_from(part.len()).ok()?);
            let source = Arc::clone(source);
            is_inside.then_some(Bytes::Lent {
                source,
                start,
                length,
            })
        })
        .unwrap_or_else(|| Bytes::Copied(part.into()))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Copied(bytes) => bytes,
            Bytes::Lent {
                source,
                start,
                length,
            } => {
                let (start, length) = (*start as usize, *length as usize);
                (**source)
                    .as_ref()
                    .get(start..start + length)
                    .unwrap_or_default()
            }
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::Copied(bytes.into_boxed_slice())
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "<{} bytes>", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_parts_of_a_lent_buffer_are_not_copied() {
        let source: Lent = Arc::new(vec![7u8; 2 * LENT_BYTES_MIN]);
        let whole = (*source).as_ref();
        let kept = Bytes::keep(&whole[9..9 + LENT_BYTES_MIN], Some(&source));
        assert!(std::ptr::eq(kept.as_ptr(), &raw const whole[9]));
        assert_eq!(kept.len(), LENT_BYTES_MIN);
        for (part, source) in [
            (&whole[..LENT_BYTES_MIN - 1], Some(&source)),
            (whole, None),
            (&vec![7; LENT_BYTES_MIN], Some(&source)),
        ] {
            let kept = Bytes::keep(part, source);
            assert!(matches!(kept, Bytes::Copied(_)));
            assert_eq!(*kept, *part);
        }
    }
}

//! Names: message ids, ids of sends, and what the machine makes of them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Ids of all known peers fit: hex of 32 bytes is 64 characters, ours has 34 to 37.
const INLINE_MAX: usize = 38;
/// Nearly all ids are as long as this or a little longer.
const USUAL_MIN: usize = 32;
/// More than the longest that lies in place has beyond that.
const END: usize = 8;
const _: () = assert!(INLINE_MAX - USUAL_MIN <= END && END <= USUAL_MIN);

/// A text that is compared, hashed and kept by the hundred thousand: short ones lie in place.
#[derive(Clone)]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; INLINE_MAX] },
    Shared(Arc<str>),
}

impl Name {
    /// The name of a text.
    pub fn new(text: &str) -> Self {
        if text.len() <= INLINE_MAX {
            return Name::inline(text.as_bytes());
        }
        Name(Repr::Shared(text.into()))
    }

    /// The name that bytes from the wire are; what is no UTF-8 in them becomes U+FFFD.
    pub fn from_wire(bytes: &[u8]) -> Self {
        // Nearly all ids are of this kind, and this is told in a few steps.
        if bytes.len() <= INLINE_MAX && bytes.is_ascii() {
            return Name::inline(bytes);
        }
        Name::new(&String::from_utf8_lossy(bytes))
    }

    /// Bytes that are the UTF-8 of a text and fit.
    fn inline(text: &[u8]) -> Self {
        let mut bytes = [0; INLINE_MAX];
        match (text.first_chunk::<USUAL_MIN>(), text.last_chunk::<END>()) {
            // At lengths that are known copying takes a few steps; what both have is copied twice.
            (Some(first), Some(last)) => {
                bytes[..USUAL_MIN].copy_from_slice(first);
                bytes[text.len() - END..text.len()].copy_from_slice(last);
            }
            _ => bytes[..text.len()].copy_from_slice(text),
        }
        Name(Repr::Inline {
            length: text.len() as u8,
            bytes,
        })
    }

    /// Its UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Shared(text) => text.as_bytes(),
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Inline { .. } => str::from_utf8(self.as_bytes()).expect("made of a text"),
            Repr::Shared(text) => text,
        }
    }

    /// Bytes of its UTF-8.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Inline { length, .. } => usize::from(*length),
            Repr::Shared(text) => text.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name::new(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name::new(&text)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order of code points, which that of UTF-8 is.
impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// As `[u8]` hashes, so that a map of names is asked for bytes of a message.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn short_and_long_texts_are_names_alike() {
        for length in (0..=INLINE_MAX + 1).chain([256]) {
            let text: String = "äb".chars().cycle().take(length).collect();
            let name = Name::new(&text);
            assert_eq!((&*name, name.len()), (&*text, text.len()));
            assert_eq!(name, Name::from_wire(text.as_bytes()));
            let names = HashSet::from([name]);
            assert!(names.contains(text.as_bytes()));
        }
        assert!(Name::new("b") > Name::new("ab"));
        assert_eq!(Name::from_wire(b"\xff").as_str(), "\u{fffd}");
    }
}

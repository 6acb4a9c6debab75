//! How a store finds a message.

/// Hints of the known networks are hashes of this length.
const USUAL_BYTES: usize = 32;

/// A retrieval hint, or none: it takes one word beside what it holds, and a usual one is in one piece.
#[derive(Debug, Default)]
pub struct Hint(Option<Box<Held>>);

#[derive(Debug)]
enum Held {
    Usual([u8; USUAL_BYTES]),
    Other(Box<[u8]>),
}

impl Hint {
    /// Its bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.0.as_deref().map(|held| match held {
            Held::Usual(hint) => &hint[..],
            Held::Other(hint) => hint,
        })
    }
}

impl From<Option<&[u8]>> for Hint {
    fn from(hint: Option<&[u8]>) -> Self {
        Hint(hint.map(|hint| {
            Box::new(match hint.try_into() {
                Ok(usual) => Held::Usual(usual),
                Err(_) => Held::Other(hint.into()),
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_of_any_length_are_kept_and_none_is_none() {
        for length in [0, 1, USUAL_BYTES - 1, USUAL_BYTES, USUAL_BYTES + 1, 256] {
            let bytes: Vec<u8> = (0..length).map(|number| number as u8).collect();
            assert_eq!(Hint::from(Some(&bytes[..])).as_bytes(), Some(&bytes[..]));
        }
        assert_eq!(Hint::from(None).as_bytes(), None);
        assert_eq!(size_of::<Hint>(), size_of::<usize>());
    }
}

//! The body of a row: what one commit changes.
//!
//! It is laid out as a head and the values. The head is the number of changes, the bytes of their names (4 bytes each), and
//! the names. A name is laid out as: what is done (1 byte), the lengths of kind (2), key (4) and value (4), kind, key; and
//! where the value lies apart, its first byte, its bytes as they are stored (8 each) and their checksum (4). All numbers
//! are big endian. Who seals values seals all of a body as one: only the head says what is where then.

const COUNTS_BYTES: usize = 8;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const ELSEWHERE: u8 = 2;
const APART: u8 = 3;

/// Where a value lies that is in no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its first byte.
    pub start: u64,
    /// Its bytes, as they are stored.
    pub size: u64,
    /// Of those.
    pub checksum: u32,
}

/// What is done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is given the next value of the body.
    Put,
    /// It is gone.
    Delete,
    /// Its value stands among the records already. Rows of earlier releases say so.
    Elsewhere,
    /// Its value lies there.
    Apart(Place),
}

/// A record and what is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// What the record is.
    pub kind: &'a str,
    /// Which one.
    pub key: &'a [u8],
    /// The bytes of its value, before they are sealed.
    pub value_bytes: u32,
    /// What is done.
    pub change: Change,
}

/// A body that is being made.
#[derive(Debug)]
pub struct Body {
    count: u32,
    head: Vec<u8>,
    values: Vec<u8>,
}

impl Default for Body {
    fn default() -> Self {
        Body {
            count: 0,
            head: vec![0; COUNTS_BYTES],
            values: Vec::new(),
        }
    }
}

impl Body {
    /// Gives a record the value of `value_bytes` that `write` appends. None where no body has a name or value so long.
    pub fn put(
        &mut self,
        kind: &str,
        key: &[u8],
        value_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<()> {
        self.name(PUT, kind, key, value_bytes)?;
        let end = self.values.len() + value_bytes;
        write(&mut self.values);
        debug_assert_eq!(
            self.values.len(),
            end,
            "a value is as long as it is said to be"
        );
        Some(())
    }

    /// Deletes a record.
    pub fn delete(&mut self, kind: &str, key: &[u8]) -> Option<()> {
        self.name(DELETE, kind, key, 0)
    }

    /// Gives a record the value that lies at `place`, `value_bytes` long before it was sealed.
    pub fn put_apart(
        &mut self,
        kind: &str,
        key: &[u8],
        place: Place,
        value_bytes: usize,
    ) -> Option<()> {
        self.name(APART, kind, key, value_bytes)?;
        self.head.extend_from_slice(&place.start.to_be_bytes());
        self.head.extend_from_slice(&place.size.to_be_bytes());
        self.head.extend_from_slice(&place.checksum.to_be_bytes());
        Some(())
    }

    /// The head and the values.
    pub fn finish(mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let names_bytes = u32::try_from(self.head.len() - COUNTS_BYTES).ok()?;
        self.head[..4].copy_from_slice(&self.count.to_be_bytes());
        self.head[4..COUNTS_BYTES].copy_from_slice(&names_bytes.to_be_bytes());
        Some((self.head, self.values))
    }

    fn name(&mut self, done: u8, kind: &str, key: &[u8], value_bytes: usize) -> Option<()> {
        let kind_bytes = u16::try_from(kind.len()).ok()?;
        let key_bytes = u32::try_from(key.len()).ok()?;
        let value_bytes = u32::try_from(value_bytes).ok()?;
        self.head.push(done);
        self.head.extend_from_slice(&kind_bytes.to_be_bytes());
        self.head.extend_from_slice(&key_bytes.to_be_bytes());
        self.head.extend_from_slice(&value_bytes.to_be_bytes());
        self.head.extend_from_slice(kind.as_bytes());
        self.head.extend_from_slice(key);
        self.count += 1;
        Some(())
    }
}

/// The head of a body and its values. None where it has no head.
pub fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let names_bytes = Reader(body.get(4..)?).int()?;
    body.split_at_checked(COUNTS_BYTES.checked_add(usize::try_from(names_bytes).ok()?)?)
}

/// The records that a head names, in order. None where it is no head.
pub fn names(head: &[u8]) -> Option<Vec<Named<'_>>> {
    let mut reader = Reader(head);
    let (count, names_bytes) = (reader.int()?, reader.int()?);
    if usize::try_from(names_bytes) != Ok(reader.0.len()) {
        return None;
    }
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(reader.name()?);
    }
    reader.0.is_empty().then_some(names)
}

/// What is left of a head.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn name(&mut self) -> Option<Named<'a>> {
        let [done] = self.array()?;
        let kind_bytes = u16::from_be_bytes(self.array()?);
        let (key_bytes, value_bytes) = (self.int()?, self.int()?);
        let kind = std::str::from_utf8(self.bytes(usize::from(kind_bytes))?).ok()?;
        let key = self.bytes(usize::try_from(key_bytes).ok()?)?;
        let change = match done {
            PUT => Change::Put,
            DELETE => Change::Delete,
            ELSEWHERE => Change::Elsewhere,
            APART => Change::Apart(Place {
                start: u64::from_be_bytes(self.array()?),
                size: u64::from_be_bytes(self.array()?),
                checksum: self.int()?,
            }),
            _ => return None,
        };
        Some(Named {
            kind,
            key,
            value_bytes,
            change,
        })
    }

    fn int(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Body, Change, Named, Place, names, split};

    fn body_of(head: &[u8], values: &[u8]) -> Vec<u8> {
        [head, values].concat()
    }

    #[test]
    fn a_body_is_laid_out_as_it_is_said_to_be() {
        let mut body = Body::default();
        let place = Place {
            start: 1,
            size: 2,
            checksum: 3,
        };
        body.put("ab", b"key", 5, |out| out.extend(b"value"))
            .unwrap();
        body.delete("c", b"").unwrap();
        body.put_apart("d", b"k", place, 9).unwrap();
        let (head, values) = body.finish().unwrap();
        let expected: [&[u8]; 5] = [
            &[0, 0, 0, 3, 0, 0, 0, 61],
            &[
                0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 5, b'a', b'b', b'k', b'e', b'y',
            ],
            &[1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'c'],
            &[
                3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, b'd', b'k', 0, 0, 0, 0, 0, 0, 0, 1,
            ],
            &[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3],
        ];
        assert_eq!(head, expected.concat());
        assert_eq!(values, b"value");
        let longer = [&[0, 0, 0, 3, 0, 0, 0, 62], &head[8..]].concat();
        assert_eq!(names(&longer), None);
    }

    #[test]
    fn a_row_of_an_earlier_release_may_say_that_a_value_is_elsewhere() {
        let head = [
            0, 0, 0, 1, 0, 0, 0, 13, 2, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, b'a', b'k',
        ];
        let expected = Named {
            kind: "a",
            key: b"k",
            value_bytes: 7,
            change: Change::Elsewhere,
        };
        assert_eq!(names(&head), Some(vec![expected]));
        let unknown = [
            0, 0, 0, 1, 0, 0, 0, 13, 4, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7, b'a', b'k',
        ];
        assert_eq!(names(&unknown), None);
    }

    #[test]
    fn no_name_is_longer_than_its_length_can_say() {
        let mut body = Body::default();
        let kind = "k".repeat(65_536);
        assert!(body.put(&kind, b"", 0, |_| ()).is_none());
        assert!(body.delete(&kind[1..], b"").is_some());
        assert_eq!(
            names(&body.finish().unwrap().0).map(|names| names.len()),
            Some(1)
        );
    }

    fn changes() -> impl Strategy<Value = Vec<(String, Vec<u8>, Vec<u8>, Change)>> {
        let change = prop_oneof![
            Just(Change::Put),
            Just(Change::Delete),
            any::<(u64, u64, u32)>().prop_map(|(start, size, checksum)| Change::Apart(Place {
                start,
                size,
                checksum
            })),
        ];
        let bytes = || prop::collection::vec(any::<u8>(), 0..12);
        prop::collection::vec(("[a-zé.]{0,6}", bytes(), bytes(), change), 0..6)
    }

    proptest! {
        #[test]
        fn what_was_put_is_read(changes in changes(), damage in any::<(prop::sample::Index, u8)>()) {
            let mut body = Body::default();
            let (mut expected, mut values) = (Vec::new(), Vec::new());
            for (kind, key, value, change) in &changes {
                let mut value_bytes = value.len() as u32;
                match change {
                    Change::Put => {
                        body.put(kind, key, value.len(), |out| out.extend(value)).unwrap();
                        values.extend_from_slice(value);
                    }
                    Change::Apart(place) => body.put_apart(kind, key, *place, value.len()).unwrap(),
                    _ => {
                        body.delete(kind, key).unwrap();
                        value_bytes = 0;
                    }
                }
                expected.push(Named { kind, key, value_bytes, change: *change });
            }
            let (head, made) = body.finish().unwrap();
            let whole = body_of(&head, &made);
            prop_assert_eq!(split(&whole), Some((&head[..], &values[..])));
            prop_assert_eq!(names(&head), Some(expected));

            // Damage is read to an end.
            let mut damaged = head.clone();
            damaged[damage.0.index(head.len())] ^= damage.1.max(1);
            names(&damaged);
            prop_assert_eq!(names(&head[..damage.0.index(head.len())]), None);
        }

        #[test]
        fn any_bytes_are_read_to_an_end(content in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some((head, values)) = split(&content) {
                prop_assert_eq!(body_of(head, values), content.clone());
                names(head);
            }
        }
    }
}

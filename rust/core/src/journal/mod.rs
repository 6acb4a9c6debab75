//! Rows of a journal: a file of whole commits, one behind the other, written over from its beginning again and again.
//!
//! A row is laid out as: the number of the commit (8 bytes), the bytes of its body (4), a checksum (4), the body, all
//! big endian. The checksum covers a token too, which is another one each time the file is begun anew. So what an earlier
//! use of the file left is no row, nor is one that was written in part; the first of these ends the journal. What stands
//! in a body: [`body`].

pub mod body;
pub mod table;

use crate::crc32::{crc32, crc32_after};

/// What a row has before its body.
pub const HEADER_BYTES: usize = 16;

const LENGTH: usize = 8;
const CHECKSUM: usize = 12;

/// Appends the row of the `number`-th commit to `row`. None, and nothing is appended, where no row has a body so long.
pub fn append_row(row: &mut Vec<u8>, token: &[u8], number: u64, body: &[u8]) -> Option<()> {
    let length = u32::try_from(body.len()).ok()?;
    let at = row.len();
    row.extend_from_slice(&number.to_be_bytes());
    row.extend_from_slice(&length.to_be_bytes());
    let checksum = checksum_of(token, &row[at..], body);
    row.extend_from_slice(&checksum.to_be_bytes());
    row.extend_from_slice(body);
    Some(())
}

/// The rows of a file that was begun with `token`, from its beginning.
pub fn rows<'a>(content: &'a [u8], token: &'a [u8], after: u64) -> Rows<'a> {
    Rows {
        content,
        token,
        number: after,
        end: 0,
    }
}

/// The rows behind the `after`-th commit, numbered without a gap.
pub struct Rows<'a> {
    content: &'a [u8],
    token: &'a [u8],
    number: u64,
    end: usize,
}

impl Rows<'_> {
    /// Where the last row that was given ends.
    pub fn end(&self) -> usize {
        self.end
    }
}

impl<'a> Iterator for Rows<'a> {
    /// The number of a commit and its body.
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.number.checked_add(1)?;
        let (header, rest) = self
            .content
            .get(self.end..)?
            .split_at_checked(HEADER_BYTES)?;
        let length = usize::try_from(u32::from_be_bytes(part(header, LENGTH))).ok()?;
        let body = rest.get(..length)?;
        let is_next = u64::from_be_bytes(part(header, 0)) == number;
        let checksum = u32::from_be_bytes(part(header, CHECKSUM));
        if !is_next || checksum != checksum_of(self.token, &header[..CHECKSUM], body) {
            return None;
        }
        self.number = number;
        self.end += HEADER_BYTES + length;
        Some((number, body))
    }
}

fn part<const BYTES: usize>(header: &[u8], at: usize) -> [u8; BYTES] {
    std::array::from_fn(|byte| header[at + byte])
}

fn checksum_of(token: &[u8], head: &[u8], body: &[u8]) -> u32 {
    crc32_after(crc32_after(crc32(token), head), body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEADER_BYTES, append_row, rows};

    const TOKEN: &[u8] = b"a token";

    fn file(token: &[u8], after: u64, bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut content = Vec::new();
        for (number, body) in (after + 1..).zip(bodies) {
            append_row(&mut content, token, number, body).unwrap();
        }
        content
    }

    fn read(content: &[u8], token: &[u8], after: u64) -> Vec<Vec<u8>> {
        let found: Vec<_> = rows(content, token, after).collect();
        for ((number, _), expected) in found.iter().zip(after + 1..) {
            assert_eq!(*number, expected);
        }
        found.into_iter().map(|(_, body)| body.to_vec()).collect()
    }

    #[test]
    fn a_row_is_laid_out_as_it_is_said_to_be() {
        let mut row = Vec::new();
        append_row(&mut row, b"", 258, b"body").unwrap();
        assert_eq!(&row[..12], &[0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 4]);
        // By zlib.crc32 of what stands before and behind it.
        assert_eq!(&row[12..16], &0x22e3_7a83_u32.to_be_bytes());
        assert_eq!(&row[16..], b"body");
    }

    #[test]
    fn rows_of_another_use_of_the_file_are_none() {
        let bodies = vec![b"one".to_vec(), b"two".to_vec(), b"six".to_vec()];
        let old = file(TOKEN, 4, &bodies);
        assert_eq!(read(&old, TOKEN, 4), bodies);
        assert!(read(&old, b"another", 4).is_empty());
        assert!(read(&old, TOKEN, 3).is_empty());
        assert!(read(&old, TOKEN, 5).is_empty());
        assert_eq!(rows(&old, TOKEN, u64::MAX).count(), 0);
        // Of the same lengths, so that a row of the old ones stands where the next would.
        let mut content = file(b"another", 7, &bodies[..1]);
        content.extend_from_slice(&old[content.len()..]);
        assert_eq!(read(&content, b"another", 7), bodies[..1]);
        let mut content = file(TOKEN, 7, &bodies[..1]);
        content.extend_from_slice(&old[content.len()..]);
        assert_eq!(read(&content, TOKEN, 7), bodies[..1]);
    }

    proptest! {
        #[test]
        fn what_was_appended_is_read_up_to_the_first_that_is_damaged(
            after in 0..1_u64 << 40,
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8),
            behind in prop::collection::vec(any::<u8>(), 0..40),
            damage in any::<(prop::sample::Index, u8)>(),
        ) {
            let whole = file(TOKEN, after, &bodies);
            let mut content = whole.clone();
            content.extend_from_slice(&behind);
            let mut read_rows = rows(&content, TOKEN, after);
            prop_assert_eq!(read_rows.by_ref().map(|(_, body)| body.to_vec()).collect::<Vec<_>>(), bodies.clone());
            prop_assert_eq!(read_rows.end(), whole.len());

            if !whole.is_empty() {
                let at = damage.0.index(whole.len());
                let mut end = 0;
                let before = bodies.iter().take_while(|body| {
                    end += HEADER_BYTES + body.len();
                    end <= at
                }).count();
                prop_assert_eq!(read(&whole[..at], TOKEN, after), &bodies[..before]);
                let mut damaged = whole;
                damaged[at] ^= damage.1.max(1);
                prop_assert_eq!(read(&damaged, TOKEN, after), &bodies[..before]);
            }
        }

        #[test]
        fn any_bytes_are_read_to_an_end(content in prop::collection::vec(any::<u8>(), 0..200), after in any::<u64>()) {
            prop_assert_eq!(rows(&content, TOKEN, after).count(), 0);
        }
    }
}

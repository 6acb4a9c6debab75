//! Bytes of many messages, one behind another.
//!
//! In memory of its own each message takes a count of its owners and what the allocator adds, and it holds
//! once more the id that its log entry has. Here it takes its other bytes alone.

use std::collections::VecDeque;

/// Longer messages are not worth a copy.
pub const PACKED_BYTES_MAX: usize = 4_096;
/// Bytes of a page: as many as all that is kept takes, so that who keeps little takes little. Where a message
/// lies in one fits 16 bits.
const PAGE_BYTES: usize = 1 << 16;
const PAGE_BYTES_MIN: usize = 2 * PACKED_BYTES_MAX;
/// Pages that lie idle beyond as many as are used, before what is held moves together.
const IDLE_PAGES_MAX: usize = 16;
/// An id that begins farther on in its message is not left out.
const ID_AT_MAX: usize = u8::MAX as usize;

/// Where a message lies.
#[derive(Debug, Clone, Copy)]
pub struct Packed {
    page: u32,
    start: u16,
    /// Its bytes, with the id.
    length: u16,
    /// Where its id is put in again, if it was left out.
    id_at: Option<u8>,
}

impl Packed {
    /// Bytes of the message.
    pub fn len(self) -> usize {
        usize::from(self.length)
    }

    /// What lies in the page of it.
    fn kept_bytes(self, id: &[u8]) -> usize {
        match self.id_at {
            None => self.len(),
            Some(_) => self.len() - id.len(),
        }
    }
}

#[derive(Debug)]
struct Page {
    bytes: Vec<u8>,
    messages: u32,
}

/// The messages, the oldest in the first pages: a page goes when all its messages are gone.
#[derive(Debug, Default)]
pub struct Pages {
    pages: VecDeque<Page>,
    /// The number of the first page.
    first: u32,
    kept_bytes: usize,
}

impl Pages {
    /// Keeps a message of at most [`PACKED_BYTES_MAX`] bytes; its `id` is given whenever it is asked for.
    pub fn put(&mut self, message: &[u8], id: &[u8]) -> Packed {
        let id_at = place_of_id(message, id);
        let (before, after) = message.split_at(id_at.map_or(0, usize::from));
        let left_out = if id_at.is_some() { id.len() } else { 0 };
        let (page, start) = self.append(before, &after[left_out..]);
        let length = u16::try_from(message.len()).expect("checked by who packs it");
        Packed {
            page,
            start,
            length,
            id_at,
        }
    }

    /// The message.
    pub fn get(&self, packed: Packed, id: &[u8]) -> Vec<u8> {
        let kept = self.kept(packed, id);
        let Some(at) = packed.id_at else {
            return kept.to_vec();
        };
        let (before, after) = kept.split_at(usize::from(at));
        [before, id, after].concat()
    }

    /// Forgets a message.
    pub fn remove(&mut self, packed: Packed, id: &[u8]) {
        self.kept_bytes -= packed.kept_bytes(id);
        let last = self.pages.len() - 1;
        let at = self.place_of(packed);
        let page = &mut self.pages[at];
        page.messages -= 1;
        if page.messages > 0 {
            return;
        }
        if at == last {
            page.bytes.clear();
            return;
        }
        page.bytes = Vec::new();
        while self.pages.len() > 1 && self.pages[0].messages == 0 {
            self.pages.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Takes a message over from other pages.
    pub fn take_over(&mut self, packed: Packed, id: &[u8], from: &Pages) -> Packed {
        let (page, start) = self.append(from.kept(packed, id), &[]);
        Packed {
            page,
            start,
            ..packed
        }
    }

    /// Whether more than half of a good many pages lies idle, since messages that stay hold the pages of
    /// others that went.
    pub fn is_sparse(&self) -> bool {
        self.pages.len() > 2 * (self.kept_bytes / PAGE_BYTES) + IDLE_PAGES_MAX
    }

    /// Bytes of all pages.
    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.pages.iter().map(|page| page.bytes.capacity()).sum()
    }

    /// Puts two parts one behind the other; gives the page and the place in it.
    fn append(&mut self, one: &[u8], other: &[u8]) -> (u32, u16) {
        let length = one.len() + other.len();
        let has_room = |page: &Page| page.bytes.len() + length < page.bytes.capacity();
        if !self.pages.back().is_some_and(has_room) {
            let capacity = self.kept_bytes.clamp(PAGE_BYTES_MIN, PAGE_BYTES);
            self.pages.push_back(Page {
                bytes: Vec::with_capacity(capacity),
                messages: 0,
            });
        }
        let last = self.pages.len() - 1;
        let page = &mut self.pages[last];
        let start = u16::try_from(page.bytes.len()).expect("a page is no longer than that");
        page.bytes.extend_from_slice(one);
        page.bytes.extend_from_slice(other);
        page.messages += 1;
        self.kept_bytes += length;
        (self.first.wrapping_add(last as u32), start)
    }

    fn kept(&self, packed: Packed, id: &[u8]) -> &[u8] {
        let start = usize::from(packed.start);
        &self.pages[self.place_of(packed)].bytes[start..start + packed.kept_bytes(id)]
    }

    fn place_of(&self, packed: Packed) -> usize {
        packed.page.wrapping_sub(self.first) as usize
    }
}

/// Where an id stands in its message, near its start.
fn place_of_id(message: &[u8], id: &[u8]) -> Option<u8> {
    let (first, rest) = id.split_first()?;
    let last = message.len().checked_sub(id.len())?.min(ID_AT_MAX);
    // Most bytes before it are told from it by its first one.
    let is_at = |at: &usize| message[*at] == *first && message[at + 1..].starts_with(rest);
    u8::try_from((0..=last).find(is_at)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_wherever_its_id_stands() {
        let mut pages = Pages::default();
        for (message, id, kept) in [
            (b"before id after".to_vec(), &b"id"[..], 13),
            (b"id".to_vec(), b"id", 0),
            (b"id id".to_vec(), b"id", 3),
            (b"other".to_vec(), b"id", 5),
            (b"message".to_vec(), b"", 7),
            (b"i".to_vec(), b"id", 1),
            ([&[b'x'; ID_AT_MAX][..], b"id"].concat(), b"id", ID_AT_MAX),
            (
                [&[b'x'; ID_AT_MAX + 1][..], b"id"].concat(),
                b"id",
                ID_AT_MAX + 3,
            ),
            (vec![0; PACKED_BYTES_MAX], b"id", PACKED_BYTES_MAX),
        ] {
            let before = pages.kept_bytes;
            let packed = pages.put(&message, id);
            assert_eq!(packed.len(), message.len());
            assert_eq!(pages.kept_bytes - before, kept);
            assert_eq!(pages.get(packed, id), message);
            let mut others = Pages::default();
            let moved = others.take_over(packed, id, &pages);
            assert_eq!(others.get(moved, id), message);
        }
    }

    #[test]
    fn a_page_goes_with_the_last_of_its_messages() {
        const COUNT: usize = 5_000;
        let message = |number: usize| vec![number as u8; 100 + number % 50];
        let id = |number: usize| number.to_string();
        let mut pages = Pages {
            first: u32::MAX - 2,
            ..Pages::default()
        };
        let packed: Vec<_> = (0..COUNT)
            .map(|number| pages.put(&message(number), id(number).as_bytes()))
            .collect();
        let full = pages.pages.len();
        assert!(pages.room() < pages.kept_bytes * 21 / 20 + PAGE_BYTES);
        // All but the first and the last one.
        for number in (1..COUNT - 1).rev() {
            pages.remove(packed[number], id(number).as_bytes());
        }
        assert!(pages.room() <= PAGE_BYTES_MIN + PAGE_BYTES);
        assert_eq!(pages.pages.len(), full);
        assert_eq!(pages.get(packed[0], b"0"), message(0));
        pages.remove(packed[0], b"0");
        assert_eq!(pages.pages.len(), 1);
        let last = COUNT - 1;
        assert_eq!(pages.get(packed[last], id(last).as_bytes()), message(last));
        pages.remove(packed[last], id(last).as_bytes());
        assert_eq!((pages.kept_bytes, pages.pages[0].bytes.len()), (0, 0));
    }
}

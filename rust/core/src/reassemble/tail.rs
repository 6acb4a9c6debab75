//! Hashing a payload of unknown length: the prefix while segments arrive, the end when all are
//! there.

use super::candidate::Candidate;
use super::work::{CANDIDATE_WORK, HASH_WORK, Work};
use crate::keccak::Keccak256;
use crate::wire::segment::{HASH_LENGTH, Slot};

/// A prefix shorter than this is hashed at the end: a forged set must not cost a sponge.
const PREFIX_BYTES_MIN: usize = 4096;

/// So many bytes lie between two sponges that are kept: they stay a hundredth of the bytes held.
const EARLIER_BYTES_MIN: u32 = 64 << 10;

/// The sponge over the first data segments, which advances as they arrive. The last data segment
/// is never in it: its true length may be unknown.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    sponge: Option<Box<Keccak256>>,
    slots: u16,
    /// Bytes absorbed since the last of `earlier`.
    bytes: u32,
    /// The sponge as it was after fewer data segments: where a wrong one was absorbed, what stood
    /// before it need not be hashed again.
    earlier: Vec<(u16, Keccak256)>,
}

impl Prefix {
    /// Absorbs the first candidate of each data slot that continues the prefix.
    pub fn advance(&mut self, candidates: &[Candidate], data: Option<u16>) {
        let Some(data) = data else { return };
        let mut position =
            candidates.partition_point(|candidate| candidate.slot < Slot::Data(self.slots as u8));
        let mut next = self.slots;
        let mut run = Vec::new();
        while next + 1 < data {
            let slot = Slot::Data(next as u8);
            let Some(candidate) = candidates.get(position).filter(|found| found.slot == slot)
            else {
                break;
            };
            run.push(&candidate.payload);
            position += candidates[position..]
                .iter()
                .take_while(|other| other.slot == slot)
                .count();
            next += 1;
        }
        let bytes: usize = run.iter().map(|payload| payload.len()).sum();
        if self.sponge.is_none() && bytes < PREFIX_BYTES_MIN {
            return;
        }
        for payload in run {
            self.absorb(payload);
        }
    }

    fn absorb(&mut self, payload: &[u8]) {
        let sponge = self.sponge.get_or_insert_default();
        if self.bytes >= EARLIER_BYTES_MIN {
            self.earlier.push((self.slots, Keccak256::clone(sponge)));
            self.bytes = 0;
        }
        sponge.update(payload);
        self.slots += 1;
        let absorbed = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.bytes = self.bytes.saturating_add(absorbed);
    }

    /// Takes back what was absorbed from data segment `slot` on.
    pub fn retreat(&mut self, slot: u16) {
        if slot >= self.slots {
            return;
        }
        self.earlier.retain(|(slots, _)| *slots <= slot);
        self.bytes = 0;
        match self.earlier.pop() {
            Some((slots, sponge)) => {
                self.slots = slots;
                self.sponge = Some(Box::new(sponge));
            }
            None => *self = Prefix::default(),
        }
    }

    /// The sponge over the most data segments that are at most `slots`, and their number.
    pub fn sponge(&self, slots: usize) -> Option<(&Keccak256, usize)> {
        let latest = self.sponge.as_deref().map(|sponge| (self.slots, sponge));
        let earlier = self
            .earlier
            .iter()
            .rev()
            .map(|(held, sponge)| (*held, sponge));
        latest
            .into_iter()
            .chain(earlier)
            .map(|(held, sponge)| (sponge, usize::from(held)))
            .find(|(_, held)| *held <= slots)
    }
}

/// What is known of where a payload ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At the end of the last part.
    Exact,
    /// After this many bytes (lip243).
    Known(u64),
    /// Zeros at the end of the last part may be padding: this many ends may be tried.
    Padded(usize),
}

impl End {
    /// The shortest end of the last part, `None` where the part cannot end so.
    fn first_bytes(self, last: &[u8], head_bytes: usize) -> Option<usize> {
        match self {
            End::Exact => Some(last.len()),
            End::Known(length) => {
                let length = usize::try_from(length).ok()?.checked_sub(head_bytes)?;
                (length <= last.len()).then_some(length)
            }
            End::Padded(_) => {
                let zeros = last.iter().rev().take_while(|byte| **byte == 0).count();
                // A payload of several segments has at least one byte in the last.
                Some((last.len() - zeros).max(usize::from(head_bytes > 0).min(last.len())))
            }
        }
    }
}

/// Finds the length at which the concatenated `parts` have the hash: the first of `ends` that does.
///
/// `absorbed` is a sponge that already holds the first parts, of which the last is none, and their
/// number. `work` grows by what that takes: what stands before the last part is hashed once for all
/// ends.
pub(super) fn find_length(
    parts: &[&[u8]],
    hash: &[u8; HASH_LENGTH],
    absorbed: Option<(&Keccak256, usize)>,
    ends: &[End],
    work: &mut Work,
) -> Option<usize> {
    let (last, head) = parts.split_last()?;
    let head_bytes: usize = head.iter().map(|part| part.len()).sum();
    if ends
        .iter()
        .all(|end| end.first_bytes(last, head_bytes).is_none())
    {
        return None;
    }
    let (mut sponge, done) = match absorbed {
        Some((sponge, count)) => (sponge.clone(), count),
        None => (Keccak256::new(), 0),
    };
    for part in &head[done..] {
        sponge.update(part);
        work.hashing += part.len() as u64;
    }
    work.hashing += HASH_WORK;
    let last_bytes = ends
        .iter()
        .find_map(|end| find_end(&sponge, last, head_bytes, hash, *end, work))?;
    Some(head_bytes + last_bytes)
}

/// How many bytes of the last part count, where `sponge` holds what stands before it.
fn find_end(
    sponge: &Keccak256,
    last: &[u8],
    head_bytes: usize,
    hash: &[u8; HASH_LENGTH],
    end: End,
    work: &mut Work,
) -> Option<usize> {
    let first = end.first_bytes(last, head_bytes)?;
    let mut sponge = sponge.clone();
    sponge.update(&last[..first]);
    work.hashing += first as u64;
    if sponge.digest() == *hash {
        return Some(first);
    }
    let End::Padded(candidates_max) = end else {
        return None;
    };
    let rest = last.len() - first;
    if rest > candidates_max.saturating_sub(1) {
        // The whole segment is a likely end that the search below will not reach.
        let mut whole = sponge.clone();
        whole.update(&last[first..]);
        work.hashing += rest as u64;
        if whole.finalize() == *hash {
            return Some(last.len());
        }
    }
    for length in first + 1..=first + rest.min(candidates_max.saturating_sub(1)) {
        sponge.update(&[0]);
        work.tails += CANDIDATE_WORK;
        if sponge.digest() == *hash {
            return Some(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::sender_accounts::SenderAccounts;
    use super::super::set::{Geometry, Set};
    use super::*;
    use crate::keccak::keccak256;

    /// A set of so many data segments that has none yet.
    fn set_of(data: u16) -> Set {
        let geometry = Geometry {
            data: Some(data),
            parity: None,
            payload_length: None,
        };
        Set::new([0; HASH_LENGTH], None, geometry)
    }

    fn arrive(set: &mut Set, slot: u8, payload: Vec<u8>) {
        let serial = set.serial_for(Slot::Data(slot), None);
        set.insert(Candidate {
            payload: payload.into(),
            frame_bytes: 0,
            sender: SenderAccounts::default().open(None, false),
            slot: Slot::Data(slot),
            serial,
            shared: false,
            sharer: None,
            saved: false,
        });
        set.advance_prefix();
    }

    /// How many of the first `slots` data segments are hashed: those that came first for them.
    fn hashed(set: &Set, slots: usize) -> usize {
        let Some((sponge, count)) = set.prefix.sponge(slots) else {
            return 0;
        };
        let first = |slot| &set.candidates()[set.range(Slot::Data(slot as u8)).start].payload;
        let bytes: Vec<u8> = (0..count).flat_map(|slot| first(slot).to_vec()).collect();
        assert_eq!(sponge.digest(), keccak256(&bytes));
        count
    }

    #[test]
    fn the_prefix_holds_what_came_first_for_each_slot() {
        let piece = |fill: u8| vec![fill; EARLIER_BYTES_MIN as usize / 2 + 1];
        let mut set = set_of(6);
        for (slot, fill) in [(3, 3), (3, 13), (2, 2), (2, 12), (1, 1)] {
            arrive(&mut set, slot, piece(fill));
        }
        assert_eq!(hashed(&set, 6), 0);
        arrive(&mut set, 0, piece(0));
        assert_eq!([6, 3, 2, 1].map(|slots| hashed(&set, slots)), [4, 2, 2, 0]);
        arrive(&mut set, 5, piece(5));
        arrive(&mut set, 4, piece(4));
        // The last data segment is in no prefix.
        assert_eq!([6, 4, 3].map(|slots| hashed(&set, slots)), [5, 4, 2]);

        // What goes took no part: the last data segment, a rival that came later.
        for (slot, rival) in [(5, 0), (3, 1)] {
            let place = set.range(Slot::Data(slot)).start + rival;
            set.remove(place);
            assert_eq!(hashed(&set, 6), 5);
        }
        arrive(&mut set, 3, piece(23));
        let place = set.range(Slot::Data(3)).start;
        set.remove(place);
        assert_eq!([6, 2, 1].map(|slots| hashed(&set, slots)), [2, 2, 0]);
        set.advance_prefix();
        assert_eq!([6, 4].map(|slots| hashed(&set, slots)), [5, 4]);
        set.remove(0);
        assert_eq!(hashed(&set, 6), 0);
    }

    #[test]
    fn the_prefix_begins_with_enough_bytes() {
        let mut set = set_of(4);
        arrive(&mut set, 0, vec![1; PREFIX_BYTES_MIN - 1]);
        assert_eq!(hashed(&set, 4), 0);
        arrive(&mut set, 1, vec![2]);
        assert_eq!(hashed(&set, 4), 2);
        arrive(&mut set, 2, vec![3]);
        assert_eq!(hashed(&set, 4), 3);
    }

    fn find(parts: &[&[u8]], payload: &[u8], end: End) -> Option<usize> {
        find_length(
            parts,
            &keccak256(payload),
            None,
            &[end],
            &mut Work::default(),
        )
    }

    #[test]
    fn finds_every_end_of_a_padded_tail() {
        for length in 1..=8 {
            let mut payload = b"head".to_vec();
            payload.extend(vec![0; length]);
            assert_eq!(
                find(&[b"head", &[0; 8]], &payload, End::Padded(8)),
                Some(4 + length)
            );
        }
        assert_eq!(
            find(&[b"head", b"tail\0\0"], b"headtail", End::Padded(1)),
            Some(8)
        );
        assert_eq!(find(&[b"\0\0\0"], b"", End::Padded(3)), Some(0));
        // Of several segments the last has a byte at least, and no payload ends behind it.
        assert_eq!(find(&[b"h", b"\0\0"], b"h", End::Padded(3)), None);
        assert_eq!(find(&[b"head", b""], b"head", End::Padded(3)), Some(4));
        assert_eq!(find(&[b"head", b"t\0"], b"headt\0\0", End::Padded(9)), None);
        assert_eq!(
            find(&[b"head", b"tail"], b"headtail", End::Padded(9)),
            Some(8)
        );
    }

    #[test]
    fn stops_at_the_limit_of_candidates_but_for_the_whole() {
        let payload = b"head\0\0\0";
        assert_eq!(find(&[b"head", &[0; 8]], payload, End::Padded(3)), Some(7));
        assert_eq!(find(&[b"head", &[0; 8]], payload, End::Padded(2)), None);
        for candidates_max in [1, 2] {
            let end = End::Padded(candidates_max);
            assert_eq!(find(&[b"head", &[0; 3]], payload, end), Some(7));
        }
    }

    #[test]
    fn a_search_is_charged_with_what_it_takes() {
        let work_of = |end| {
            let mut work = Work::default();
            let parts: [&[u8]; 2] = [b"head", b"tail\0\0\0"];
            find_length(&parts, &[0; HASH_LENGTH], None, &[end], &mut work);
            (work.hashing, work.tails)
        };
        assert_eq!(work_of(End::Padded(4)), (HASH_WORK + 8, 3 * CANDIDATE_WORK));
        // The whole is tried out of turn.
        let expected = (HASH_WORK + 8 + 3, 2 * CANDIDATE_WORK);
        assert_eq!(work_of(End::Padded(3)), expected);
        // Nothing is hashed where no end is possible.
        assert_eq!(work_of(End::Known(12)), (0, 0));
    }

    #[test]
    fn a_known_length_is_the_only_end() {
        assert_eq!(
            find(&[b"head", b"tail\0"], b"headtail", End::Known(8)),
            Some(8)
        );
        assert_eq!(find(&[b"head", b"tail"], b"headtail", End::Known(9)), None);
        assert_eq!(find(&[b"head", b"tail"], b"he", End::Known(2)), None);
        assert_eq!(find(&[b"head"], b"head", End::Known(u64::MAX)), None);
    }
}

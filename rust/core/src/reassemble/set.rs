//! One incomplete payload: its counts, and the segments held for each position.

use super::bytes::Bytes;
use super::candidate::Candidate;
use super::failed_attempts::FailedAttempts;
use super::sender_accounts::SenderId;
use super::tail::Prefix;
use super::work::Work;
use crate::keccak::keccak256;
use crate::wire::segment::{HASH_LENGTH, Header, Slot};

/// Digest of a message key and a payload's hash.
pub(super) type Key = [u8; 16];

/// A set's name: its key, and which of several sets with differing counts it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SetId {
    pub key: Key,
    pub number: u32,
}

impl SetId {
    /// The first id that sets of `key` can have.
    pub fn first(key: Key) -> Self {
        SetId { key, number: 0 }
    }

    /// The last id that sets of `key` can have.
    pub fn last(key: Key) -> Self {
        SetId {
            key,
            number: u32::MAX,
        }
    }
}

/// The key of sets that `hash` names under `message_key`. A digest, so that what is remembered of
/// a completed payload does not grow with a peer's key.
pub(super) fn key_of(message_key: Option<&[u8]>, hash: &[u8; HASH_LENGTH]) -> Key {
    let key = match message_key {
        None => [&[0], &hash[..]].concat(),
        Some(message_key) => [&[1], &hash[..], message_key].concat(),
    };
    *keccak256(&key)
        .first_chunk()
        .expect("a digest is longer than a key")
}

/// Segments of any set.
pub(super) const SEGMENTS_MAX: u16 = 256;

/// The counts that a set's segments agree on, as far as its wire has told them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub data: Option<u16>,
    pub parity: Option<u16>,
    pub payload_length: Option<u64>,
}

impl Geometry {
    pub fn of(header: &Header) -> Self {
        Geometry {
            data: header.data_segment_count,
            parity: header.parity_segment_count,
            payload_length: header.payload_length,
        }
    }

    /// Both together, or `None` where they disagree.
    pub fn merge(&self, other: &Geometry) -> Option<Geometry> {
        fn agree<T: PartialEq + Copy>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
            match (a, b) {
                (Some(a), Some(b)) if a != b => None,
                _ => Some(a.or(b)),
            }
        }
        let merged = Geometry {
            data: agree(self.data, other.data)?,
            parity: agree(self.parity, other.parity)?,
            payload_length: agree(self.payload_length, other.payload_length)?,
        };
        // Under draft each class tells its own count: no set has so many together.
        let total = merged.data.unwrap_or(0) + merged.parity.unwrap_or(0);
        (total <= SEGMENTS_MAX).then_some(merged)
    }
}

/// What one sender has in a set: it goes as one where room is needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub sender: SenderId,
    pub segments: u32,
    /// What its segments are charged with.
    pub bytes: u64,
}

/// What others than a payload's sender made of it.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// The key of the sets that hold it.
    pub key: Key,
    /// What attempts with it took in vain.
    pub work: Work,
}

/// An incomplete payload.
#[derive(Debug)]
pub(super) struct Set {
    pub hash: [u8; HASH_LENGTH],
    pub message_key: Option<Box<[u8]>>,
    pub geometry: Geometry,
    pub updated_ms: i64,
    /// Its place in the order of updates.
    pub tick: u64,
    /// What failed attempts took, where any did: most sets have none.
    work: Option<Box<Work>>,
    /// What those took where a segment of this set was tried with those of others.
    pub work_across: Option<Box<Work>>,
    /// What others than its sender made of it, where anybody did.
    pub guests: Option<Box<Guests>>,
    /// Whether it holds the guests of another one: nobody hears of its end.
    pub is_of_guests: bool,
    /// What those attempts found out.
    pub failed_attempts: FailedAttempts,
    pub prefix: Prefix,
    /// `poll_persist` has given any of its segments.
    pub is_stored: bool,
    /// Place of the candidate that came last.
    pub newest: usize,
    /// By slot; within a slot by arrival.
    candidates: Vec<Candidate>,
    /// By the arrival of each one's first segment.
    shares: Vec<Share>,
    /// The place of the largest share of a claimed identity.
    main_claimed: Option<u32>,
    slots_held: u16,
}

impl Set {
    pub fn new(hash: [u8; HASH_LENGTH], message_key: Option<&[u8]>, geometry: Geometry) -> Self {
        Set {
            hash,
            message_key: message_key.map(Box::from),
            geometry,
            updated_ms: 0,
            tick: u64::MAX,
            work: None,
            work_across: None,
            guests: None,
            is_of_guests: false,
            failed_attempts: FailedAttempts::default(),
            prefix: Prefix::default(),
            is_stored: false,
            newest: 0,
            candidates: Vec::new(),
            shares: Vec::new(),
            main_claimed: None,
            slots_held: 0,
        }
    }

    /// What failed attempts took.
    pub fn work(&self) -> Work {
        self.work.as_deref().copied().unwrap_or_default()
    }

    /// Counts what a failed attempt took.
    pub fn charge(&mut self, work: Work) {
        if !work.is_none() {
            self.work.get_or_insert_default().add(work);
        }
    }

    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    pub fn candidates_mut(&mut self) -> &mut [Candidate] {
        &mut self.candidates
    }

    pub fn into_candidates(self) -> Vec<Candidate> {
        self.candidates
    }

    /// What each sender has in it.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Whether `sender` has any segment in it.
    pub fn is_shared_by(&self, sender: SenderId) -> bool {
        self.shares.iter().any(|share| share.sender == sender)
    }

    /// Who sent the first segment, of those that have any in it.
    pub fn first_sender(&self) -> Option<SenderId> {
        self.shares.first().map(|share| share.sender)
    }

    /// The largest share of a claimed identity; of several the one that came first.
    pub fn main_claimed(&self) -> Option<&Share> {
        self.main_claimed.map(|place| &self.shares[place as usize])
    }

    /// Whether nothing that others make of it is tried any more.
    pub fn has_spent_on_guests(&self) -> bool {
        let guests = self.guests.as_ref();
        guests.is_some_and(|guests| guests.work.is_exhausted())
    }

    /// Positions of the set that are filled.
    pub fn slots_held(&self) -> usize {
        usize::from(self.slots_held)
    }

    /// The candidates of a slot, as a range of [`Set::candidates`].
    pub fn range(&self, slot: Slot) -> std::ops::Range<usize> {
        let start = self
            .candidates
            .partition_point(|candidate| candidate.slot < slot);
        let count = self.candidates[start..].partition_point(|candidate| candidate.slot == slot);
        start..start + count
    }

    /// The serial that a candidate is stored under, or else the least that none of the slot has.
    pub fn serial_for(&self, slot: Slot, stored: Option<u8>) -> u8 {
        let rivals = &self.candidates[self.range(slot)];
        let is_free = |serial: &u8| rivals.iter().all(|rival| rival.serial != *serial);
        // Under another serial than its own, what is stored later would take its record's place.
        let serial = stored
            .filter(is_free)
            .or_else(|| (0..=u8::MAX).find(is_free));
        serial.unwrap_or(u8::MAX)
    }

    /// Adds a candidate behind those of its slot.
    pub fn insert(&mut self, candidate: Candidate) {
        self.add_to_share(candidate.sender, candidate.charge());
        self.is_stored |= candidate.saved;
        let range = self.range(candidate.slot);
        if range.is_empty() {
            self.slots_held += 1;
        }
        if self.candidates.len() == self.candidates.capacity() {
            // Vectors grow to twice their size, from four: most forged sets hold one segment, and
            // what stays unused in large ones counts.
            self.candidates.reserve_exact(1 + self.candidates.len() / 8);
        }
        self.newest = range.end;
        self.candidates.insert(range.end, candidate);
    }

    /// Takes a candidate out.
    pub fn remove(&mut self, index: usize) -> Candidate {
        let is_first = index == self.range(self.candidates[index].slot).start;
        let candidate = self.candidates.remove(index);
        self.take_from_share(candidate.sender, candidate.charge());
        if let Slot::Data(slot) = candidate.slot
            && is_first
        {
            self.prefix.retreat(u16::from(slot));
        }
        self.failed_attempts.forget(candidate.name());
        if self.range(candidate.slot).is_empty() {
            self.slots_held -= 1;
        }
        candidate
    }

    /// Keeps the same bytes as they lie elsewhere, in another frame.
    pub fn replace(&mut self, index: usize, payload: Bytes, frame_bytes: u32) {
        let candidate = &mut self.candidates[index];
        let (sender, before) = (candidate.sender, candidate.charge());
        candidate.payload = payload;
        candidate.frame_bytes = frame_bytes;
        let charge = candidate.charge();
        let share = self.shares.iter_mut().find(|share| share.sender == sender);
        let share = share.expect("every candidate is in its sender's share");
        share.bytes = share.bytes - before + charge;
    }

    /// Whether a proven sender has any segment in it.
    pub fn has_proven(&self) -> bool {
        self.shares
            .iter()
            .any(|share| share.sender.is_authenticated())
    }

    /// Makes a candidate another sender's.
    pub fn pass(&mut self, index: usize, heir: SenderId) {
        let candidate = &mut self.candidates[index];
        let (before, charge) = (candidate.sender, candidate.charge());
        candidate.sender = heir;
        self.add_to_share(heir, charge);
        self.take_from_share(before, charge);
    }

    fn add_to_share(&mut self, sender: SenderId, charge: u64) {
        let place = self.shares.iter().position(|share| share.sender == sender);
        let place = place.unwrap_or_else(|| {
            // Most sets have one sender, and many senders' sets many: neither may cost room unused.
            if self.shares.len() == self.shares.capacity() {
                self.shares.reserve_exact(1 + self.shares.len() / 8);
            }
            self.shares.push(Share {
                sender,
                segments: 0,
                bytes: 0,
            });
            self.shares.len() - 1
        });
        let share = &mut self.shares[place];
        share.segments += 1;
        share.bytes += charge;
        let segments = share.segments;
        let main = self.main_claimed().map_or(0, |main| main.segments);
        if !sender.is_authenticated() && segments > main {
            self.main_claimed = u32::try_from(place).ok();
        }
    }

    fn take_from_share(&mut self, sender: SenderId, charge: u64) {
        let place = self.shares.iter().position(|share| share.sender == sender);
        let place = place.expect("every candidate is in its sender's share");
        let share = &mut self.shares[place];
        share.segments -= 1;
        share.bytes -= charge;
        if share.segments == 0 {
            self.shares.remove(place);
        }
        self.main_claimed = None;
        for (place, share) in (0..).zip(&self.shares) {
            let main = self.main_claimed().map_or(0, |main| main.segments);
            if !share.sender.is_authenticated() && share.segments > main {
                self.main_claimed = Some(place);
            }
        }
    }

    /// Absorbs the data segments that now continue the hashed prefix. After a failed attempt some of
    /// them are suspect: they wait until it is known which.
    pub fn advance_prefix(&mut self) {
        if self.work().is_none() {
            self.prefix.advance(&self.candidates, self.geometry.data);
        }
    }
}

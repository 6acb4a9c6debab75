//! What arrived of one message: its segments by place, and what was counted on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_row::OwnedRow;
use shardwire_core::keccak;
use shardwire_core::wire::segment::{self, Header, Received, Slot, WireFormat};

use super::candidate::{CANDIDATE_BYTES, Candidate, Held, range_within};
use super::input::BinaryColumn;
use super::said::Said;
use super::whole::{Missing, WholeCopy};

/// Senders that one row names; further ones are not told.
pub const SENDERS_MAX: usize = 64;

/// Longest reason kept of a row that could not be read.
pub const ERROR_LENGTH_MAX: usize = 300;

/// Why a row with a key is no segment of a message.
pub const NO_HASH: &str = "the key is no hash: entire_message_hash has 32 bytes";

/// What a group takes beside its segments, about.
const GROUP_BYTES: usize = 1024;

/// What one group may hold. Everything beyond is counted and let go.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// Different segments kept for one place.
    pub candidates_per_slot_max: usize,
    /// Bytes of segments kept.
    pub held_bytes_max: usize,
    /// Segments of one payload that a receiver accepts.
    pub max_total_segments: u32,
}

/// Names a group: neighbouring rows with equal keys belong to one message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The `by` columns, encoded; `None` where there are none.
    pub by: Option<OwnedRow>,
    /// Null for rows that could not be read as segments.
    pub hash: Option<[u8; 32]>,
    /// Where message ids tell sends apart.
    pub send_id: Option<Box<str>>,
    /// Of rows that could not be read as segments: why.
    pub reason: Option<Box<str>>,
}

/// One row on its way into a group.
pub struct Arrival<'a> {
    pub column: &'a Arc<BinaryColumn>,
    pub row: usize,
    pub timestamp: Option<i64>,
    pub sender: Option<&'a str>,
    pub error: Option<&'a str>,
}

/// Everything known of one message.
#[derive(Debug)]
pub struct Group {
    pub key: GroupKey,
    pub places: BTreeMap<Slot, Vec<Candidate>>,
    /// Rows whose bytes `draft` reads as a whole message with this hash.
    whole: Option<Candidate>,
    pub rows: u64,
    pub duplicates: u64,
    pub conflicts: u64,
    /// Rows whose bytes are no segment of this message.
    pub unreadable: u64,
    pub first_timestamp: Option<i64>,
    pub last_timestamp: Option<i64>,
    pub senders: BTreeSet<Arc<str>>,
    pub error: Option<String>,
    pub held_bytes: usize,
    /// About what the group takes in memory.
    pub weight: usize,
    over_limit: bool,
    /// Partitions that hold the message whole.
    pub whole_copies: Vec<WholeCopy>,
}

impl Group {
    pub fn new(key: GroupKey) -> Self {
        Group {
            key,
            places: BTreeMap::new(),
            whole: None,
            rows: 0,
            duplicates: 0,
            conflicts: 0,
            unreadable: 0,
            first_timestamp: None,
            last_timestamp: None,
            senders: BTreeSet::new(),
            error: None,
            held_bytes: 0,
            weight: GROUP_BYTES,
            over_limit: false,
            whole_copies: Vec::new(),
        }
    }

    /// Takes in one row. Bytes that are no segment of this message are counted, never refused.
    pub fn receive(&mut self, arrival: &Arrival<'_>, wire_format: WireFormat, limits: GroupLimits) {
        let bytes = arrival.column.get(arrival.row);
        let times = match (Said::of(arrival.error, bytes.is_some()), bytes) {
            (Said::Whole, Some(packed)) => {
                self.whole_copies
                    .extend(arrival.timestamp.map(|partition| WholeCopy {
                        partition,
                        missing: Missing::unpack(packed),
                    }));
                return;
            }
            (Said::Seen, _) => {
                self.see(arrival);
                return;
            }
            (Said::OverLimit, _) => {
                self.over_limit = true;
                return;
            }
            (Said::Times(times), _) => times,
            (Said::Unread(_) | Said::Whole, _) => 1,
        };
        self.rows += 1;
        let sender = self.see(arrival);
        let Some(bytes) = bytes else {
            self.unreadable += 1;
            self.note_error(arrival.error.unwrap_or("the payload is null"));
            return;
        };
        let Some(hash) = self.key.hash else {
            self.unreadable += 1;
            self.note_error(arrival.error.unwrap_or(NO_HASH));
            return;
        };
        let candidate = |header, payload| Candidate {
            header,
            sender,
            held: Held::Row(Arc::clone(arrival.column), arrival.row),
            payload,
            times,
            timestamp: arrival.timestamp,
        };
        match segment::decode(bytes, wire_format, limits.max_total_segments) {
            Ok(Received::Segment(found)) => {
                if found.header.entire_message_hash != hash {
                    self.unreadable += 1;
                    self.note_error("a segment of another message stands under this key");
                    return;
                }
                let payload = range_within(bytes, found.payload);
                self.keep(candidate(found.header, payload), limits);
            }
            Ok(Received::WholeMessage(_)) => {
                let header = Header {
                    entire_message_hash: hash,
                    slot: Slot::Data(0),
                    data_segment_count: None,
                    parity_segment_count: None,
                    payload_length: None,
                };
                self.keep_whole(candidate(header, 0..bytes.len()), limits);
            }
            Err(error) => {
                self.unreadable += 1;
                self.note_error(&error.to_string());
            }
        }
    }

    /// Notes when a row came, and from whom.
    fn see(&mut self, arrival: &Arrival<'_>) -> Option<Arc<str>> {
        if let Some(timestamp) = arrival.timestamp {
            self.first_timestamp = Some(
                self.first_timestamp
                    .map_or(timestamp, |first| first.min(timestamp)),
            );
            self.last_timestamp = Some(
                self.last_timestamp
                    .map_or(timestamp, |last| last.max(timestamp)),
            );
        }
        arrival.sender.and_then(|sender| self.known_sender(sender))
    }

    /// The pieces of the payload where nothing is missing and nothing contested; what they hash to
    /// is for the caller to compare.
    pub fn whole_pieces(&self) -> Option<Vec<&[u8]>> {
        if let Some(whole) = &self.whole {
            // Anybody can name its hash in a segment.
            return Some(vec![whole.segment()]);
        }
        let count = self.data_segment_count()?;
        let mut pieces = Vec::with_capacity(usize::from(count));
        for index in 0..count {
            let candidates = self.places.get(&Slot::Data(index as u8))?;
            let [only] = &candidates[..] else { return None };
            if only.header.data_segment_count != Some(count) {
                return None;
            }
            pieces.push(only.payload());
        }
        let claimed = self.any_header().and_then(|header| header.payload_length);
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        claimed
            .is_none_or(|claimed| claimed == length)
            .then_some(pieces)
    }

    /// Every shard that came as the data segment of this index.
    pub fn shards_at(&self, index: u8) -> impl Iterator<Item = &[u8]> {
        self.places
            .get(&Slot::Data(index))
            .into_iter()
            .flatten()
            .map(Candidate::payload)
    }

    /// Whether the data segment of this index came with this piece of the payload, padded or not.
    pub fn holds(&self, index: usize, piece: &[u8]) -> bool {
        u8::try_from(index).is_ok_and(|index| {
            self.shards_at(index).any(|shard| {
                shard
                    .strip_prefix(piece)
                    .is_some_and(|padding| padding.iter().all(|byte| *byte == 0))
            })
        })
    }

    /// Whether the message went unsegmented (`draft`).
    pub fn is_unsegmented(&self) -> bool {
        self.whole.is_some()
    }

    /// The count that most places state; the smaller one where two are as frequent.
    pub fn data_segment_count(&self) -> Option<u16> {
        most_frequent(
            self.headers()
                .filter_map(|header| header.data_segment_count),
        )
    }

    /// As `data_segment_count`, of parity segments.
    pub fn parity_segment_count(&self) -> Option<u16> {
        most_frequent(
            self.headers()
                .filter_map(|header| header.parity_segment_count),
        )
    }

    /// Places of which at least one segment came.
    pub fn segments_received(&self) -> u64 {
        self.places.len() as u64 + u64::from(self.whole.is_some())
    }

    /// How often the message seems to have been sent: the lower median, over the places that
    /// arrived, of how often they did. Single repeats and single losses leave it as it is.
    pub fn copies(&self) -> u32 {
        let mut times: Vec<u32> = self
            .places
            .values()
            .map(|candidates| candidates.iter().map(|one| one.times).max().unwrap_or(0))
            .chain(self.whole.as_ref().map(|whole| whole.times))
            .collect();
        times.sort_unstable();
        times
            .get(times.len().saturating_sub(1) / 2)
            .copied()
            .unwrap_or(0)
    }

    /// Whether segments were let go because the group held too much.
    pub fn was_over_limit(&self) -> bool {
        self.over_limit
    }

    /// Bytes held inside `column`.
    pub fn bytes_in(&self, column: &Arc<BinaryColumn>) -> usize {
        self.candidates()
            .filter(|one| one.column().is_some_and(|own| Arc::ptr_eq(own, column)))
            .map(|one| one.segment().len())
            .sum()
    }

    /// Moves what lies in such columns out of them, so that their batches can be freed.
    pub fn move_out_of(&mut self, is_left: impl Fn(&Arc<BinaryColumn>) -> bool) {
        let candidates = self
            .places
            .values_mut()
            .flatten()
            .chain(self.whole.as_mut());
        for candidate in candidates {
            if candidate.column().is_some_and(&is_left) {
                candidate.held = Held::Owned(candidate.segment().into());
            }
        }
    }

    /// Everything held, for another partition to complete.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.places.values().flatten().chain(self.whole.as_ref())
    }

    fn headers(&self) -> impl Iterator<Item = &Header> {
        self.places
            .values()
            .flatten()
            .map(|candidate| &candidate.header)
    }

    fn any_header(&self) -> Option<&Header> {
        self.headers().next()
    }

    fn keep(&mut self, candidate: Candidate, limits: GroupLimits) {
        let (slot, length) = (candidate.header.slot, candidate.segment().len());
        // Nearly every place has one segment: room for more would be most of what a group takes.
        let candidates = self
            .places
            .entry(slot)
            .or_insert_with(|| Vec::with_capacity(1));
        let known = candidates
            .iter_mut()
            .find(|one| one.header == candidate.header && one.payload() == candidate.payload());
        if let Some(known) = known {
            known.times = known.times.saturating_add(candidate.times);
            self.duplicates += u64::from(candidate.times);
            return;
        }
        if !candidates.is_empty() {
            self.conflicts += 1;
        }
        if candidates.len() >= limits.candidates_per_slot_max
            || self.held_bytes + length > limits.held_bytes_max
        {
            self.over_limit = true;
            if candidates.is_empty() {
                self.places.remove(&slot);
            }
            return;
        }
        self.held_bytes += length;
        self.weight += length + CANDIDATE_BYTES;
        self.duplicates += u64::from(candidate.times - 1);
        candidates.push(candidate);
    }

    fn keep_whole(&mut self, candidate: Candidate, limits: GroupLimits) {
        let length = candidate.segment().len();
        let Some(whole) = &mut self.whole else {
            if self.held_bytes + length > limits.held_bytes_max {
                self.over_limit = true;
                return;
            }
            self.held_bytes += length;
            self.weight += length + CANDIDATE_BYTES;
            self.duplicates += u64::from(candidate.times - 1);
            self.whole = Some(candidate);
            return;
        };
        if whole.segment() == candidate.segment() {
            whole.times = whole.times.saturating_add(candidate.times);
            self.duplicates += u64::from(candidate.times);
            return;
        }
        self.conflicts += 1;
        // A key is a claim: of others under it the one that it names counts.
        if self.key.hash == Some(keccak::keccak256(candidate.segment())) {
            let before = whole.segment().len();
            if self.held_bytes - before + length > limits.held_bytes_max {
                self.over_limit = true;
                return;
            }
            self.held_bytes = self.held_bytes - before + length;
            self.weight = self.weight - before + length;
            *whole = candidate;
        }
    }

    fn known_sender(&mut self, sender: &str) -> Option<Arc<str>> {
        if let Some(known) = self.senders.get(sender) {
            return Some(Arc::clone(known));
        }
        let known: Arc<str> = sender.into();
        self.weight += sender.len();
        if self.senders.len() < SENDERS_MAX {
            self.senders.insert(Arc::clone(&known));
        }
        Some(known)
    }

    /// Keeps the least of the reasons, so that the order of arrival does not matter.
    fn note_error(&mut self, error: &str) {
        let mut end = error.len().min(ERROR_LENGTH_MAX);
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        let error = &error[..end];
        if self.error.as_deref().is_none_or(|known| error < known) {
            self.error = Some(error.to_owned());
        }
    }
}

fn most_frequent(values: impl Iterator<Item = u16>) -> Option<u16> {
    let mut counted: BTreeMap<u16, usize> = BTreeMap::new();
    for value in values {
        *counted.entry(value).or_default() += 1;
    }
    counted
        .into_iter()
        .rev()
        .max_by_key(|(_, times)| *times)
        .map(|(value, _)| value)
}

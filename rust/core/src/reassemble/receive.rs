//! What happens to one received segment, from its bytes to its outcome.

use super::ledger::SenderId;
use super::set::{Candidate, Geometry, Key, Set, SetId, key_of};
use super::{Discard, Drop, Outcome, Reassembler, Receipt};
use crate::keccak::keccak256;
use crate::wire::segment::{self, HASH_LENGTH, Header, Received, Segment, Slot};

/// Names longer than this are charged: ids of a megabyte must not be free.
const NAME_BYTES_FREE: usize = 64;

/// A refusal, with the value and the limit.
type Refusal = (Discard, String);

/// A valid segment on its way into a set.
pub(super) struct Arrival<'a> {
    pub header: Header,
    pub payload: &'a [u8],
    /// Bytes beyond the payload that it is charged with.
    pub frame_bytes: usize,
    pub saved: bool,
}

impl Reassembler {
    /// Takes one segment as it came from the transport.
    ///
    /// Nothing a peer sends is an error: every outcome says what became of the bytes. What was
    /// evicted to make room is left to [`Reassembler::poll_dropped`].
    pub fn receive(&mut self, bytes: &[u8], receipt: &Receipt<'_>) -> Outcome {
        self.stats.received += 1;
        self.accept(bytes, receipt)
            .unwrap_or_else(|(reason, detail)| {
                self.stats.count_discard(reason);
                Outcome::Discarded { reason, detail }
            })
    }

    fn accept(&mut self, bytes: &[u8], receipt: &Receipt<'_>) -> Result<Outcome, Refusal> {
        let settings = *self.parameters.settings();
        let limit = settings.max_total_segments;
        let received = segment::decode(bytes, settings.wire_format, limit).map_err(|error| {
            let reason = if error.is_undecodable() {
                Discard::Undecodable
            } else {
                Discard::Invalid
            };
            let hash = segment::claimed_hash(bytes);
            let payload = hash.map_or(String::new(), |hash| {
                format!(" of payload {}", prefix_of(&hash))
            });
            (reason, format!("segment{payload}: {error}"))
        })?;
        match received {
            Received::WholeMessage(payload) => self.accept_whole(payload, receipt),
            Received::Segment(Segment { header, payload }) => {
                let arrival = Arrival {
                    header,
                    payload,
                    frame_bytes: bytes.len() - payload.len(),
                    saved: false,
                };
                self.accept_segment(arrival, receipt)
            }
        }
    }

    /// draft: a payload that travelled unmodified is complete at once.
    fn accept_whole(&mut self, payload: &[u8], receipt: &Receipt<'_>) -> Result<Outcome, Refusal> {
        let hash = keccak256(payload);
        let key = key_of(receipt.message_key, &hash);
        self.refuse_completed(&key, &hash)?;
        Ok(self.complete_single(key, hash, payload, 0))
    }

    fn accept_segment(
        &mut self,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
    ) -> Result<Outcome, Refusal> {
        let hash = arrival.header.entire_message_hash;
        let key = key_of(receipt.message_key, &hash);
        self.refuse_completed(&key, &hash)?;
        if arrival.header.data_segment_count == Some(1) && arrival.header.slot == Slot::Data(0) {
            let parity = usize::from(arrival.header.parity_segment_count.unwrap_or(0));
            if let Some(payload) = single_payload(&arrival, &hash) {
                return Ok(self.complete_single(key, hash, payload, parity));
            }
            if parity == 0 {
                self.stats.hash_mismatches += 1;
                self.stats.count_drop(Drop::HashMismatch);
                return Ok(Outcome::Dropped(super::Dropped {
                    entire_message_hash: hash,
                    message_key: receipt.message_key.map(<[u8]>::to_vec),
                    sender: receipt.sender.map(str::to_owned),
                    reason: Drop::HashMismatch,
                }));
            }
        }
        let (id, contested) = self.store(key, arrival, receipt)?;
        self.stats.stored += 1;
        Ok(self.attempt(id, contested))
    }

    fn refuse_completed(&self, key: &Key, hash: &[u8; HASH_LENGTH]) -> Result<(), Refusal> {
        if self.completed.contains(key) {
            let detail = format!("payload {} was already reconstructed", prefix_of(hash));
            return Err((Discard::AlreadyCompleted, detail));
        }
        Ok(())
    }

    /// Puts a segment in its set, which is made where there is none. Says, too, whether the
    /// segment's counts disagree with a set that holds as much.
    pub(super) fn store(
        &mut self,
        key: Key,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
    ) -> Result<(SetId, Option<String>), Refusal> {
        self.refuse_oversized(&arrival)?;
        let sender = self.ledger.open(receipt.sender, receipt.authenticated);
        let stored = self.store_from(key, arrival, receipt, sender);
        if stored.is_err() {
            self.ledger.close_if_unused(sender);
        }
        stored
    }

    fn store_from(
        &mut self,
        key: Key,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
        sender: SenderId,
    ) -> Result<(SetId, Option<String>), Refusal> {
        let geometry = Geometry::of(&arrival.header);
        let (place, rivals) = self.place(key, &geometry);
        let hash = arrival.header.entire_message_hash;
        let contested = rivals.map(|held| {
            let counts = counts_of(&geometry);
            format!(
                "{counts} disagree with {} of set {}",
                counts_of(&held),
                prefix_of(&hash)
            )
        });
        if let Some(id) = place {
            self.refuse_duplicate(id, &arrival, sender)?;
            self.admit_rival(id, &arrival, sender)?;
        }
        let mut frame_bytes = arrival.frame_bytes;
        frame_bytes += receipt
            .sender
            .map_or(0, str::len)
            .saturating_sub(NAME_BYTES_FREE);
        if place.is_none() {
            let key_bytes = receipt.message_key.map_or(0, <[u8]>::len);
            frame_bytes += key_bytes.saturating_sub(NAME_BYTES_FREE);
        }
        let frame_bytes = u32::try_from(frame_bytes).unwrap_or(u32::MAX);
        let charge = arrival.payload.len() as u64 + u64::from(frame_bytes);
        self.make_room(sender, charge, place)
            .map_err(|detail| (Discard::QuotaExceeded, detail))?;
        let id = match place {
            Some(id) => id,
            None => match self.open_set(key, hash, receipt, sender, geometry) {
                Some(id) => id,
                None => return Err((Discard::CountMismatch, contested.unwrap_or_default())),
            },
        };
        self.insert(id, &arrival, frame_bytes, sender, receipt.now_ms);
        let held = self.sets[&id].slots_held();
        let outnumbered = self
            .sets
            .range(SetId::first(key)..=SetId::last(key))
            .any(|(other, set)| *other != id && set.slots_held() >= held);
        Ok((id, contested.filter(|_| outnumbered)))
    }

    fn insert(
        &mut self,
        id: SetId,
        arrival: &Arrival<'_>,
        frame_bytes: u32,
        sender: SenderId,
        now_ms: i64,
    ) {
        let set = self.sets.get_mut(&id).expect("the set was found or made");
        let geometry = Geometry::of(&arrival.header);
        set.geometry = set
            .geometry
            .merge(&geometry)
            .expect("the set was chosen as compatible");
        let candidate = Candidate {
            payload: Box::from(arrival.payload),
            frame_bytes,
            sender,
            slot: arrival.header.slot,
            serial: set.free_serial(arrival.header.slot),
            shared: false,
            saved: arrival.saved,
        };
        self.ledger.charge(sender, candidate.charge());
        set.insert(candidate);
        set.advance_prefix();
        if !arrival.saved {
            self.unsaved.insert(id);
        }
        self.touch(id, now_ms);
    }

    /// Puts a stored segment back in its set, within the limits. False where it does not fit.
    pub(super) fn restore_segment(
        &mut self,
        id: SetId,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
    ) -> bool {
        let hash = arrival.header.entire_message_hash;
        let geometry = Geometry::of(&arrival.header);
        let set = self.sets.get(&id);
        let agrees = set.is_none_or(|set| set.geometry.merge(&geometry).is_some());
        let rivals = set.map_or(0, |set| set.range(arrival.header.slot).len());
        if key_of(receipt.message_key, &hash) != id.key
            || !agrees
            || rivals >= self.limits.candidates_per_slot_max
            || self.refuse_oversized(&arrival).is_err()
        {
            return false;
        }
        let place = set.is_some().then_some(id);
        let sender = self.ledger.open(receipt.sender, receipt.authenticated);
        let frame_bytes = u32::try_from(arrival.frame_bytes).unwrap_or(u32::MAX);
        let charge = arrival.payload.len() as u64 + u64::from(frame_bytes);
        if self.make_room(sender, charge, place).is_err() {
            self.ledger.close_if_unused(sender);
            return false;
        }
        if place.is_none() {
            let set = Set::new(hash, receipt.message_key, sender, geometry);
            self.sets.insert(id, Box::new(set));
            self.ledger.open_set(sender);
        }
        self.insert(id, &arrival, frame_bytes, sender, receipt.now_ms);
        true
    }

    /// The set that a segment of these counts belongs to, and the counts of one that disagrees.
    fn place(&self, key: Key, geometry: &Geometry) -> (Option<SetId>, Option<Geometry>) {
        let (mut place, mut rival): (Option<(SetId, usize)>, _) = (None, None);
        for (id, set) in self.sets.range(SetId::first(key)..=SetId::last(key)) {
            if set.geometry.merge(geometry).is_none() {
                rival = Some(set.geometry);
            } else if place.is_none_or(|(_, held)| held < set.slots_held()) {
                place = Some((*id, set.slots_held()));
            }
        }
        (place.map(|(id, _)| id), rival)
    }

    /// A new set beside those whose counts differ: a forged count must not shut the genuine
    /// segments out. Where there are too many, one that holds a single segment makes room.
    fn open_set(
        &mut self,
        key: Key,
        hash: [u8; HASH_LENGTH],
        receipt: &Receipt<'_>,
        owner: SenderId,
        geometry: Geometry,
    ) -> Option<SetId> {
        let siblings: Vec<_> = self
            .sets
            .range(SetId::first(key)..=SetId::last(key))
            .map(|(id, set)| (set.slots_held(), set.tick, *id))
            .collect();
        if siblings.len() >= self.limits.candidates_per_slot_max {
            let (held, _, id) = *siblings.iter().min()?;
            if held > 1 {
                return None;
            }
            self.evict(id);
        }
        let number = siblings
            .last()
            .map_or(0, |(_, _, id)| id.number.wrapping_add(1));
        let id = SetId { key, number };
        let set = Set::new(hash, receipt.message_key, owner, geometry);
        self.sets.insert(id, Box::new(set));
        self.ledger.open_set(owner);
        Some(id)
    }

    fn refuse_oversized(&self, arrival: &Arrival<'_>) -> Result<(), Refusal> {
        let oversized = |what: &str, bytes: u64, limit: u64| {
            Err((
                Discard::Oversized,
                format!("{what} has {bytes} bytes: at most {limit}"),
            ))
        };
        let bytes = (arrival.payload.len() + arrival.frame_bytes) as u64;
        let limits = &self.limits;
        let limit = limits
            .buffered_bytes_per_sender_max
            .min(limits.buffered_bytes_max);
        if bytes > limit {
            return oversized("the segment", bytes, limit);
        }
        let Some(data) = arrival.header.data_segment_count.map(u64::from) else {
            return Ok(());
        };
        let is_short = matches!(arrival.header.slot, Slot::Data(i) if u64::from(i) + 1 == data);
        let whole = (arrival.payload.len() as u64) * data;
        if !is_short && whole > limits.buffered_bytes_max {
            return oversized("the payload announced", whole, limits.buffered_bytes_max);
        }
        Ok(())
    }

    fn refuse_duplicate(
        &mut self,
        id: SetId,
        arrival: &Arrival<'_>,
        sender: SenderId,
    ) -> Result<(), Refusal> {
        let set = self.sets.get_mut(&id).expect("the set was found");
        let range = set.range(arrival.header.slot);
        let held = set.candidates_mut()[range]
            .iter_mut()
            .find(|candidate| *candidate.payload == *arrival.payload);
        match held {
            Some(candidate) => {
                candidate.shared |= candidate.sender != sender;
                let slot = slot_name(arrival.header.slot);
                Err((Discard::Duplicate, format!("{slot} is held")))
            }
            None => Ok(()),
        }
    }

    /// Bounds the candidates of a slot. A sender with several gives one up for a sender with none.
    fn admit_rival(
        &mut self,
        id: SetId,
        arrival: &Arrival<'_>,
        sender: SenderId,
    ) -> Result<(), Refusal> {
        let set = self.sets.get_mut(&id).expect("the set was found");
        let range = set.range(arrival.header.slot);
        let limit = self.limits.candidates_per_slot_max;
        if range.len() < limit {
            return Ok(());
        }
        let rivals = &set.candidates()[range.clone()];
        let count = |id: SenderId| rivals.iter().filter(|other| other.sender == id).count();
        let surplus = rivals
            .iter()
            .rposition(|other| count(other.sender) > 1 && !other.shared);
        match surplus.filter(|_| count(sender) == 0) {
            Some(position) => {
                let removed = set.remove(range.start + position);
                set.advance_prefix();
                self.ledger.refund(removed.sender, removed.charge());
                Ok(())
            }
            None => {
                let slot = slot_name(arrival.header.slot);
                Err((
                    Discard::QuotaExceeded,
                    format!("{slot} has {limit} candidates: at most"),
                ))
            }
        }
    }
}

/// The payload of a set of one data segment, where that segment has the hash.
fn single_payload<'a>(arrival: &Arrival<'a>, hash: &[u8; HASH_LENGTH]) -> Option<&'a [u8]> {
    let payload = match arrival.header.payload_length {
        // lip243: the payload is cut to its length before the hash check.
        Some(length) => arrival.payload.get(..usize::try_from(length).ok()?)?,
        None => arrival.payload,
    };
    (keccak256(payload) == *hash).then_some(payload)
}

fn counts_of(geometry: &Geometry) -> String {
    let show = |count: Option<u16>| count.map_or("?".to_owned(), |count| count.to_string());
    format!("counts {} + {}", show(geometry.data), show(geometry.parity))
}

fn slot_name(slot: Slot) -> String {
    match slot {
        Slot::Data(index) => format!("data segment {index}"),
        Slot::Parity(index) => format!("parity segment {index}"),
    }
}

/// The first bytes of a hash, as logs show it.
pub(super) fn prefix_of(hash: &[u8; HASH_LENGTH]) -> String {
    hash[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

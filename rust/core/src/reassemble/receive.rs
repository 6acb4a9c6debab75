//! What happens to one received segment, from its bytes to its outcome.

use super::bytes::{Bytes, Lent};
use super::candidate::Candidate;
use super::sender_accounts::{ACCOUNT_BYTES, SenderId};
use super::set::{Geometry, Key, SetId, key_of};
use super::tail::{End, find_length};
use super::work::Work;
use super::{Discard, Drop, Outcome, Reassembler, Receipt};
use crate::hex::hex;
use crate::keccak::keccak256;
use crate::wire::segment::{self, HASH_LENGTH, Header, Received, Segment, Slot};

/// Names longer than this are charged: ids of a megabyte must not be free.
const NAME_BYTES_FREE: usize = 64;

/// A refusal, with the value and the limit.
pub(super) type Refusal = (Discard, String);

/// A segment that is held already.
pub(super) struct Repeat {
    pub id: SetId,
    /// Where it lies, if another one sent it than those who are known to have.
    pub place: Option<usize>,
    pub refusal: Refusal,
}

/// What became of a segment on its way into a set.
pub(super) enum Stored {
    /// It lies in a set; its counts may disagree with one that holds as much.
    New(SetId, Option<String>),
    Repeated(Repeat),
}

/// A valid segment on its way into a set.
pub(super) struct Arrival<'a> {
    pub header: Header,
    pub payload: &'a [u8],
    /// What the payload lies in, where that was lent.
    pub source: Option<&'a Lent>,
    /// Bytes beyond the payload that it is charged with.
    pub frame_bytes: usize,
    /// The serial that it is stored under already.
    pub saved: Option<u8>,
}

impl Reassembler {
    /// Takes one segment as it came from the transport.
    ///
    /// Nothing a peer sends is an error: every outcome says what became of the bytes. What was
    /// evicted to make room is left to [`Reassembler::poll_dropped`].
    pub fn receive(&mut self, bytes: &[u8], receipt: &Receipt<'_>) -> Outcome {
        self.receive_from(bytes, None, receipt)
    }

    /// As [`Reassembler::receive`], keeping the bytes where they are for as long as they are
    /// needed: nothing is copied until the payload is whole.
    pub fn receive_lent(&mut self, bytes: &Lent, receipt: &Receipt<'_>) -> Outcome {
        self.receive_from((**bytes).as_ref(), Some(bytes), receipt)
    }

    /// As [`Reassembler::receive`], of a part of `source`, which is kept in its place.
    pub fn receive_part(
        &mut self,
        bytes: &[u8],
        source: Option<&Lent>,
        receipt: &Receipt<'_>,
    ) -> Outcome {
        self.receive_from(bytes, source, receipt)
    }

    fn receive_from(
        &mut self,
        bytes: &[u8],
        source: Option<&Lent>,
        receipt: &Receipt<'_>,
    ) -> Outcome {
        self.stats.received += 1;
        self.accept(bytes, source, receipt)
            .unwrap_or_else(|(reason, detail)| {
                self.stats.count_discard(reason);
                Outcome::Discarded { reason, detail }
            })
    }

    fn accept(
        &mut self,
        bytes: &[u8],
        source: Option<&Lent>,
        receipt: &Receipt<'_>,
    ) -> Result<Outcome, Refusal> {
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
            Received::WholeMessage(payload) => self.accept_whole(payload, source, receipt),
            Received::Segment(Segment { header, payload }) => {
                let arrival = Arrival {
                    header,
                    payload,
                    source,
                    frame_bytes: bytes.len() - payload.len(),
                    saved: None,
                };
                self.accept_segment(arrival, receipt)
            }
        }
    }

    /// draft: a payload that travelled unmodified is complete at once.
    fn accept_whole(
        &mut self,
        payload: &[u8],
        source: Option<&Lent>,
        receipt: &Receipt<'_>,
    ) -> Result<Outcome, Refusal> {
        let hash = keccak256(payload);
        let key = key_of(receipt.message_key, &hash);
        self.refuse_completed(&key, &hash)?;
        Ok(self.complete_single(key, hash, Bytes::keep(payload, source), 0))
    }

    fn accept_segment(
        &mut self,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
    ) -> Result<Outcome, Refusal> {
        let settings = self.parameters.settings();
        let hash = arrival.header.entire_message_hash;
        let key = key_of(receipt.message_key, &hash);
        self.refuse_completed(&key, &hash)?;
        if arrival.header.data_segment_count == Some(1) && arrival.header.slot == Slot::Data(0) {
            let parity = usize::from(arrival.header.parity_segment_count.unwrap_or(0));
            if let Some(payload) = single_payload(&arrival, &hash, settings.max_tail_candidates) {
                let payload = Bytes::keep(payload, arrival.source);
                return Ok(self.complete_single(key, hash, payload, parity));
            }
            if parity == 0 {
                self.stats.failed_reconstructions += 1;
                self.stats.count_drop(Drop::HashMismatch);
                return Ok(Outcome::Dropped(super::Dropped {
                    entire_message_hash: hash,
                    message_key: receipt.message_key.map(<[u8]>::to_vec),
                    sender: receipt.sender.map(str::to_owned),
                    reason: Drop::HashMismatch,
                }));
            }
        }
        match self.store(key, arrival, receipt)? {
            Stored::New(id, contested) => {
                self.stats.stored += 1;
                Ok(self.attempt(id, contested))
            }
            Stored::Repeated(repeat) => {
                if let Some(place) = repeat.place {
                    self.touch(repeat.id, receipt.now_ms);
                    if let Some(outcome) = self.attempt_repeated(repeat.id, place) {
                        return Ok(outcome);
                    }
                }
                Err(repeat.refusal)
            }
        }
    }

    fn refuse_completed(&self, key: &Key, hash: &[u8; HASH_LENGTH]) -> Result<(), Refusal> {
        if self.completed.contains(key) {
            let detail = format!("payload {} was already reconstructed", prefix_of(hash));
            return Err((Discard::AlreadyCompleted, detail));
        }
        Ok(())
    }

    /// Puts a segment in its set, which is made where there is none.
    pub(super) fn store(
        &mut self,
        key: Key,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
    ) -> Result<Stored, Refusal> {
        self.refuse_oversized(&arrival)?;
        let sender = self.accounts.open(receipt.sender, receipt.authenticated);
        let stored = self.store_from(key, arrival, receipt, sender);
        self.accounts.release(sender);
        stored
    }

    fn store_from(
        &mut self,
        key: Key,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
        sender: SenderId,
    ) -> Result<Stored, Refusal> {
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
        let name_bytes = receipt.sender.map_or(0, str::len);
        let mut frame_bytes = arrival.frame_bytes;
        frame_bytes += match place {
            Some(id) if self.sets[&id].first_sender() != Some(sender) => ACCOUNT_BYTES + name_bytes,
            _ => name_bytes.saturating_sub(NAME_BYTES_FREE),
        };
        if place.is_none() {
            let key_bytes = receipt.message_key.map_or(0, <[u8]>::len);
            frame_bytes += key_bytes.saturating_sub(NAME_BYTES_FREE);
        }
        let frame_bytes = u32::try_from(frame_bytes).unwrap_or(u32::MAX);
        let charge = arrival.payload.len() as u64 + u64::from(frame_bytes);
        let mut replaced = None;
        if let Some(id) = place {
            if let Some(repeat) = self.repeat(id, &arrival, frame_bytes, sender) {
                return Ok(Stored::Repeated(repeat));
            }
            let rival = self.rival_to_replace(id, &arrival, sender)?;
            replaced = rival.map(|rival| (id, rival));
        }
        self.make_room(sender, charge, place)
            .map_err(|detail| (Discard::QuotaExceeded, detail))?;
        if let Some((id, rival)) = replaced {
            self.take_out(id, rival);
        }
        let id = place.unwrap_or_else(|| self.open_set(key, hash, receipt, geometry));
        self.insert(id, &arrival, frame_bytes, sender, receipt.now_ms);
        let held = self.sets[&id].slots_held();
        let outnumbered = self
            .siblings(key)
            .any(|(other, set)| *other != id && set.slots_held() >= held);
        Ok(Stored::New(id, contested.filter(|_| outnumbered)))
    }

    pub(super) fn insert(
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
            payload: Bytes::keep(arrival.payload, arrival.source),
            frame_bytes,
            sender,
            slot: arrival.header.slot,
            serial: set.serial_for(arrival.header.slot, arrival.saved),
            shared: false,
            sharer: None,
            saved: arrival.saved.is_some(),
        };
        if !set.is_shared_by(sender) {
            self.accounts.open_share(sender);
        }
        self.accounts.charge(sender, candidate.charge());
        self.change(id, |set| {
            set.insert(candidate);
            set.advance_prefix();
        });
        if arrival.saved.is_none() {
            self.unsaved.insert(id);
        }
        self.touch(id, now_ms);
    }
}

/// The payload of a set of one data segment, where that segment has the hash. `tails_max` ends are
/// tried at most, as a sender that codes pads even where the rate gives no parity.
fn single_payload<'a>(
    arrival: &Arrival<'a>,
    hash: &[u8; HASH_LENGTH],
    tails_max: usize,
) -> Option<&'a [u8]> {
    let held = arrival.payload;
    let payload = match arrival.header.payload_length {
        // lip243: the payload is cut to its length before the hash check.
        Some(length) => held.get(..usize::try_from(length).ok()?)?,
        None => held,
    };
    if keccak256(payload) == *hash {
        return Some(payload);
    }
    // With parity this is left to the attempt at a set, which counts what the search costs.
    let may_be_padded = arrival.header.payload_length.is_none()
        && arrival.header.parity_segment_count == Some(0)
        && held.last() == Some(&0);
    if !may_be_padded {
        return None;
    }
    let ends = [End::Padded(tails_max)];
    let length = find_length(&[held], hash, None, &ends, &mut Work::default())?;
    Some(&held[..length])
}

fn counts_of(geometry: &Geometry) -> String {
    let show = |count: Option<u16>| count.map_or("?".to_owned(), |count| count.to_string());
    format!("counts {} + {}", show(geometry.data), show(geometry.parity))
}

/// The first bytes of a hash, as logs show it.
pub(super) fn prefix_of(hash: &[u8; HASH_LENGTH]) -> String {
    hex(&hash[..4])
}

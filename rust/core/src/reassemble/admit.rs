//! Where a valid segment belongs, and what keeps it out.

use super::candidate::Candidate;
use super::receive::{Arrival, Refusal, Repeat};
use super::sender_accounts::SenderId;
use super::set::{Geometry, Key, Set, SetId};
use super::{Discard, Reassembler, Receipt};
use crate::wire::segment::{HASH_LENGTH, Slot};

impl Reassembler {
    /// The set that a segment of these counts belongs to, and the counts of one that disagrees.
    pub(super) fn place(&self, key: Key, geometry: &Geometry) -> (Option<SetId>, Option<Geometry>) {
        let (mut place, mut rival): (Option<(SetId, usize)>, _) = (None, None);
        for (id, set) in self.siblings(key) {
            if set.geometry.merge(geometry).is_none() {
                rival = Some(set.geometry);
            } else if place.is_none_or(|(_, held)| held < set.slots_held()) {
                place = Some((*id, set.slots_held()));
            }
        }
        (place.map(|(id, _)| id), rival)
    }

    /// A new set beside those whose counts differ: a forged count must not shut the genuine
    /// segments out. Their number has no limit but those of all sets, under which a sender loses
    /// its own and a flood of claimed identities displaces itself.
    pub(super) fn open_set(
        &mut self,
        key: Key,
        hash: [u8; HASH_LENGTH],
        receipt: &Receipt<'_>,
        geometry: Geometry,
    ) -> SetId {
        let last = self.siblings(key).next_back();
        let number = last.map_or(0, |(id, _)| id.number.wrapping_add(1));
        let id = SetId { key, number };
        let set = Set::new(hash, receipt.message_key, geometry);
        self.sets.insert(id, Box::new(set));
        id
    }

    /// The sets of one payload: several where counts disagree.
    pub(super) fn siblings(
        &self,
        key: Key,
    ) -> impl DoubleEndedIterator<Item = (&SetId, &Box<Set>)> {
        self.sets.range(SetId::first(key)..=SetId::last(key))
    }

    pub(super) fn refuse_oversized(&self, arrival: &Arrival<'_>) -> Result<(), Refusal> {
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

    /// What a segment repeats that is held; `None` where it is none of those.
    pub(super) fn repeat(
        &mut self,
        id: SetId,
        arrival: &Arrival<'_>,
        frame_bytes: u32,
        sender: SenderId,
    ) -> Option<Repeat> {
        let set = self.sets.get_mut(&id).expect("the set was found");
        let range = set.range(arrival.header.slot);
        let mut places = range.filter(|place| {
            let candidate = &set.candidates()[*place];
            *candidate.payload == *arrival.payload
        });
        let place = places.next()?;
        let mut is_news = false;
        if set.candidates()[place].sender != sender {
            is_news = !std::mem::replace(&mut set.candidates_mut()[place].shared, true);
            is_news |= self.share(id, place, arrival, frame_bytes, sender);
        }
        let slot = slot_name(arrival.header.slot);
        Some(Repeat {
            id,
            place: is_news.then_some(place),
            refusal: (Discard::Duplicate, format!("{slot} is held")),
        })
    }

    /// Bounds the candidates of a slot: which one is to go, where any is. A sender with several gives
    /// one up for a sender with none; a claimed identity for a proven one, which names without
    /// number must not shut out.
    pub(super) fn rival_to_replace(
        &self,
        id: SetId,
        arrival: &Arrival<'_>,
        sender: SenderId,
    ) -> Result<Option<usize>, Refusal> {
        let set = &self.sets[&id];
        let range = set.range(arrival.header.slot);
        let limit = self.limits.candidates_per_slot_max;
        if range.len() < limit {
            return Ok(None);
        }
        let rivals = &set.candidates()[range.clone()];
        let count = |id: SenderId| rivals.iter().filter(|other| other.sender == id).count();
        let surplus = || {
            rivals
                .iter()
                .rposition(|other| count(other.sender) > 1 && !other.shared)
        };
        let claimed = || {
            let is_claimed = |other: &Candidate| !other.sender.is_authenticated();
            sender
                .is_authenticated()
                .then(|| rivals.iter().rposition(is_claimed))?
        };
        let has_none = count(sender) == 0;
        match has_none.then(|| surplus().or_else(claimed)).flatten() {
            Some(position) => Ok(Some(range.start + position)),
            None => {
                let slot = slot_name(arrival.header.slot);
                Err((
                    Discard::QuotaExceeded,
                    format!("{slot} has {} candidates: at most {limit}", rivals.len()),
                ))
            }
        }
    }
}

fn slot_name(slot: Slot) -> String {
    match slot {
        Slot::Data(index) => format!("data segment {index}"),
        Slot::Parity(index) => format!("parity segment {index}"),
    }
}

//! Parity that others than a payload's sender made of it.
//!
//! Guests lie in a set of their own, beside the one that they belong to: whoever forges them spends room
//! and work of theirs, and none of what the sender's own segments have. They begin nothing and displace
//! nothing. Where forged counts make several sets of a payload, each has its own.

use super::candidate::Candidate;
use super::persist::set_key;
use super::receive::{Arrival, Stored};
use super::sender_accounts::SenderId;
use super::set::{Geometry, Set, SetId, key_of};
use super::work::Work;
use super::{Outcome, Reassembler, Receipt, Reconstructed};
use crate::wire::segment::{self, Received, Slot};

/// Of so many guests' senders each is tried by itself, before all together.
const SENDERS_TRIED_MAX: usize = 4;

impl Reassembler {
    /// Takes parity that the sender of `receipt` made of a payload of another one, whose segments lie
    /// under the receipt's message key. `None` where it is of no use: nothing of that payload is here,
    /// its counts differ, its place is taken, or there is no room that is free. Of what is stored it tells
    /// the places that such parity alone fills.
    pub fn receive_guest(&mut self, bytes: &[u8], receipt: &Receipt<'_>) -> Option<Outcome> {
        self.stats.received += 1;
        let settings = *self.parameters.settings();
        let limit = settings.max_total_segments;
        let decoded = segment::decode(bytes, settings.wire_format, limit).ok()?;
        let Received::Segment(segment) = decoded else {
            return None;
        };
        let header = segment.header;
        let hash = header.entire_message_hash;
        let key = key_of(receipt.message_key, &hash);
        let is_counted = header.data_segment_count.is_some_and(|count| count > 1);
        if !matches!(header.slot, Slot::Parity(_)) || !is_counted {
            return None;
        }
        let id = self.place(key, &Geometry::of(&header)).0?;
        let host = &self.sets[&id];
        let is_taken = !host.range(header.slot).is_empty();
        if is_taken || host.has_spent_on_guests() {
            return None;
        }
        let arrival = Arrival {
            header,
            payload: segment.payload,
            source: None,
            frame_bytes: bytes.len() - segment.payload.len(),
            saved: None,
        };
        let guests = self.store_guest(id, arrival, receipt)?;
        self.sets.get_mut(&id)?.guests.get_or_insert_default().key = guests.key;
        self.stats.stored += 1;
        if let Some(found) = self.attempt_with_guests(id, Some(guests)) {
            return Some(Outcome::Reconstructed(Box::new(found)));
        }
        let host = &self.sets[&id];
        let needed = usize::from(host.geometry.data.unwrap_or(0));
        let guests = self.guests_of(id);
        let held = host.slots_held() + guests;
        Some(Outcome::Stored {
            entire_message_hash: hash,
            segments_held: guests,
            segments_needed: Some(needed.saturating_sub(held).max(1)),
            hash_mismatch: false,
        })
    }

    /// The sets that hold the guests of `host`: one, since each says what the counts of its payload are.
    fn guest_sets(&self, host: &Set) -> impl Iterator<Item = (&SetId, &Box<Set>)> {
        let key = host.guests.as_ref().map(|guests| guests.key);
        key.into_iter().flat_map(|key| self.siblings(key))
    }

    /// How many places of a set's payload guests alone fill.
    pub(super) fn guests_of(&self, id: SetId) -> usize {
        let host = &self.sets[&id];
        let guests = self.guest_sets(host);
        let mut slots: Vec<Slot> = guests
            .flat_map(|(_, set)| set.candidates())
            .map(|guest| guest.slot)
            .filter(|slot| host.range(*slot).is_empty())
            .collect();
        slots.dedup();
        slots.len()
    }

    /// Keeps a guest where that takes nothing from anybody.
    fn store_guest(
        &mut self,
        host: SetId,
        arrival: Arrival<'_>,
        receipt: &Receipt<'_>,
    ) -> Option<SetId> {
        let hash = arrival.header.entire_message_hash;
        let host = set_key(host);
        let key = key_of(Some(&host), &hash);
        let sender = self.accounts.open(receipt.sender, receipt.authenticated);
        let (place, _) = self.place(key, &Geometry::of(&arrival.header));
        let charge = (arrival.payload.len() + arrival.frame_bytes) as u64
            + receipt.sender.map_or(0, str::len) as u64
            + super::sender_accounts::ACCOUNT_BYTES as u64;
        let has_room = self.has_room(sender, charge, place);
        self.accounts.release(sender);
        if !has_room {
            return None;
        }
        let receipt = Receipt {
            message_key: Some(&host),
            ..*receipt
        };
        let Stored::New(id, _) = self.store(key, arrival, &receipt).ok()? else {
            return None;
        };
        self.sets.get_mut(&id)?.is_of_guests = true;
        Some(id)
    }

    /// Tries the segments of a set with those of its guests; `newest` is the set of the guest that came
    /// just now, if it was one. Of a forged one nothing stays but that it was in vain.
    pub(super) fn attempt_with_guests(
        &mut self,
        id: SetId,
        newest: Option<SetId>,
    ) -> Option<Reconstructed> {
        let host = &self.sets[&id];
        let data_count = usize::from(host.geometry.data?);
        if host.guests.is_none() || host.has_spent_on_guests() {
            return None;
        }
        if host.slots_held() + self.guests_of(id) < data_count {
            return None;
        }
        for sender in self.trials(id, newest) {
            let Some(joined) = self.join_guests(id, newest, sender) else {
                continue;
            };
            let (work, is_spent) = match self.attempt_joined(id.key, joined) {
                None => continue,
                Some(Ok(found)) => return Some(found),
                Some(Err(in_vain)) => in_vain,
            };
            self.stats.failed_reconstructions += 1;
            let guests = &mut self.sets.get_mut(&id)?.guests.as_deref_mut()?;
            guests.work.add(work);
            if is_spent {
                guests.work = Work::EXHAUSTED;
                let key = guests.key;
                self.forget_sets(key);
                return None;
            }
            if let Some(sender) = sender {
                // By itself it would have been enough, and is not what it says.
                self.dismiss(id, sender);
            }
        }
        None
    }

    /// Takes out what one sender made of a payload.
    fn dismiss(&mut self, id: SetId, sender: SenderId) {
        let theirs: Vec<SetId> = self
            .guest_sets(&self.sets[&id])
            .filter(|(_, set)| set.is_shared_by(sender))
            .map(|(guests, _)| *guests)
            .collect();
        for guests in theirs {
            self.displace(guests, sender);
        }
    }

    /// Whose guests are tried by themselves, whoever has the newest first; then all of them.
    fn trials(&self, id: SetId, newest: Option<SetId>) -> Vec<Option<SenderId>> {
        let newest = newest.map(|guests| &self.sets[&guests]);
        let newest = newest.map(|set| set.candidates()[set.newest].sender);
        let senders = self
            .guest_sets(&self.sets[&id])
            .flat_map(|(_, set)| set.shares())
            .map(|share| share.sender);
        let mut trials: Vec<Option<SenderId>> = Vec::new();
        for sender in newest.into_iter().chain(senders) {
            if trials.len() < SENDERS_TRIED_MAX && !trials.contains(&Some(sender)) {
                trials.push(Some(sender));
            }
        }
        match (newest, trials.len()) {
            // What another one's guests make was tried when they came.
            (Some(_), 2..) => trials.truncate(1),
            (_, 0 | 1) => return trials,
            (None, _) => {}
        }
        trials.push(None);
        trials
    }

    /// A set with the guests of one sender, or of all.
    fn join_guests(
        &self,
        id: SetId,
        newest: Option<SetId>,
        sender: Option<SenderId>,
    ) -> Option<Set> {
        let host = &self.sets[&id];
        let guests: Vec<&Candidate> = self
            .guest_sets(host)
            .flat_map(|(_, set)| set.candidates())
            .filter(|guest| sender.is_none_or(|sender| guest.sender == sender))
            .filter(|guest| host.range(guest.slot).is_empty())
            .collect();
        let mut slots: Vec<Slot> = guests.iter().map(|guest| guest.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let data_count = usize::from(host.geometry.data?);
        if guests.is_empty() || host.slots_held() + slots.len() < data_count {
            return None;
        }
        let mut joined = Set::new(host.hash, None, host.geometry);
        joined.charge(host.guests.as_ref()?.work);
        joined.is_of_guests = true;
        for member in host.candidates().iter().chain(guests) {
            let serial = joined.serial_for(member.slot, None);
            joined.insert(Candidate {
                payload: member.payload.clone(),
                serial,
                ..*member
            });
        }
        let newest = newest.and_then(|guests| self.sets.get(&guests));
        let newest = newest.unwrap_or(host);
        let newest = newest.candidates().get(newest.newest)?;
        joined.newest = joined
            .range(newest.slot)
            .find(|place| *joined.candidates()[*place].payload == *newest.payload)?;
        Some(joined)
    }
}

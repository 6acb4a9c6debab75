//! From a set that holds enough to the outcome: the attempt, and what a completion leaves behind.

use super::attempt::Attempt;
use super::bytes::Bytes;
use super::recover::{Found, Part};
use super::set::{Key, Set, SetId};
use super::work::Work;
use super::{Discard, Drop, Outcome, Payload, Reassembler, Reconstructed};
use crate::wire::segment::{HASH_LENGTH, Slot};

impl Reassembler {
    /// Tries to complete a set and says how far it is.
    pub(super) fn attempt(&mut self, id: SetId, contested: Option<String>) -> Outcome {
        let (tried, hash_mismatch) = match self.try_out(id, false) {
            Ok(tried) => tried,
            Err(outcome) => return outcome,
        };
        if let Some(detail) = contested {
            let reason = Discard::CountMismatch;
            self.stats.count_discard(reason);
            return Outcome::Discarded { reason, detail };
        }
        let set = &self.sets[&id];
        let segments_held = set.slots_held();
        let needed = set
            .geometry
            .data
            .map(|data| usize::from(data).saturating_sub(segments_held));
        Outcome::Stored {
            entire_message_hash: set.hash,
            segments_held,
            segments_needed: needed.map(|needed| needed.max(usize::from(tried))),
            hash_mismatch,
        }
    }

    /// Tries the candidate at `place` once more, of which another one has sent the same: with those that
    /// this one sent it may be enough. `None` where that changes nothing.
    pub(super) fn attempt_repeated(&mut self, id: SetId, place: usize) -> Option<Outcome> {
        let set = self.sets.get_mut(&id).expect("a set to complete is held");
        set.newest = place;
        self.try_out(id, true).err()
    }

    /// Tries to complete a set. Where it stays: whether it held enough to try, and whether a payload that
    /// came out did not have its hash. Else the outcome.
    fn try_out(&mut self, id: SetId, is_repeat: bool) -> Result<(bool, bool), Outcome> {
        let set = self.sets.get_mut(&id).expect("a set to complete is held");
        let mut failed_attempts = std::mem::take(&mut set.failed_attempts);
        let (mut spent, mut tried, mut hash_mismatch, mut found) = (false, false, false, None);
        let mut work = Work::default();
        let budget = self.limits.work_budget;
        if let Some(mut attempt) = Attempt::new(set, &mut failed_attempts, &self.parameters, budget)
        {
            found = match is_repeat {
                true => attempt.run_repeated(),
                false => attempt.run(),
            };
            spent = attempt.is_spent();
            work = attempt.budget.work;
            tried = true;
            hash_mismatch = found.is_none() && attempt.hashed;
            failed_attempts = attempt.failed_attempts;
        }
        if let Some(found) = found {
            return Err(Outcome::Reconstructed(Box::new(self.complete(id, found))));
        }
        let mut joined = self.attempt_across(id);
        if joined.is_none() && !is_repeat {
            joined = self.attempt_with_guests(id, None);
        }
        if let Some(reconstructed) = joined {
            return Err(Outcome::Reconstructed(Box::new(reconstructed)));
        }
        self.stats.failed_reconstructions += u64::from(hash_mismatch);
        if spent && let Some(dropped) = self.drop_set(id, Drop::HashMismatch) {
            return Err(Outcome::Dropped(dropped));
        }
        let set = self.sets.get_mut(&id).expect("the set is still held");
        set.charge(work);
        set.failed_attempts = failed_attempts;
        Ok((tried, hash_mismatch))
    }

    pub(super) fn complete_single(
        &mut self,
        key: Key,
        hash: [u8; HASH_LENGTH],
        payload: Bytes,
        parity_segment_count: usize,
    ) -> Outcome {
        let length = payload.len();
        self.forget_sets(key);
        self.completed.insert(key);
        self.stats.reconstructed += 1;
        Outcome::Reconstructed(Box::new(Reconstructed {
            entire_message_hash: hash,
            payload: Payload::new(vec![payload], length),
            data_segment_count: 1,
            parity_segment_count,
            data_segments_recovered: Vec::new(),
            erasure_code: None,
            bad_segments: Vec::new(),
        }))
    }

    fn complete(&mut self, id: SetId, found: Found) -> Reconstructed {
        let bad_segments = self.bad_segments(&self.sets[&id], &found);
        let set = self.remove_set(id).expect("the set is held");
        self.conclude(id.key, *set, found, bad_segments)
    }

    /// The ordinals of the segments that are not the payload's, and who sent them.
    pub(super) fn bad_segments(&self, set: &Set, found: &Found) -> Vec<(usize, Option<String>)> {
        let bad = found.bad.iter().map(|place| {
            let candidate = &set.candidates()[*place];
            let ordinal = match candidate.slot {
                Slot::Data(index) => usize::from(index),
                Slot::Parity(index) => found.parts.len() + usize::from(index),
            };
            let name = self.accounts.name(candidate.sender).map(str::to_owned);
            (ordinal, name)
        });
        bad.collect()
    }

    /// What is left of a payload that was found in `set`, which is none of ours any longer.
    pub(super) fn conclude(
        &mut self,
        key: Key,
        set: Set,
        found: Found,
        bad_segments: Vec<(usize, Option<String>)>,
    ) -> Reconstructed {
        self.forget_sets(key);
        self.completed.insert(key);
        let data_segment_count = found.parts.len();
        let hash = set.hash;
        let parity_segment_count = usize::from(set.geometry.parity.unwrap_or(0));
        let mut held: Vec<Option<Bytes>> = set
            .into_candidates()
            .into_iter()
            .map(|candidate| Some(candidate.payload))
            .collect();
        let mut data_segments_recovered = Vec::new();
        let parts = found
            .parts
            .into_iter()
            .enumerate()
            .map(|(ordinal, part)| match part {
                Part::Held(place) => held[place].take().expect("a place is used once"),
                Part::Recovered(shard) => {
                    data_segments_recovered.push(ordinal);
                    Bytes::from(shard)
                }
            })
            .collect();
        self.stats.reconstructed += 1;
        self.stats.recovered += u64::from(!data_segments_recovered.is_empty());
        self.stats.bad_segments += bad_segments.len() as u64;
        Reconstructed {
            entire_message_hash: hash,
            payload: Payload::new(parts, found.length),
            data_segment_count,
            parity_segment_count,
            data_segments_recovered,
            erasure_code: found.erasure_code,
            bad_segments,
        }
    }

    /// Removes what is left of a payload that is complete.
    pub(super) fn forget_sets(&mut self, key: Key) {
        let rest: Vec<SetId> = self.siblings(key).map(|(id, _)| *id).collect();
        for id in rest {
            self.remove_set(id);
        }
    }
}

//! Attempts across sets that differ in their counts. A `draft` segment tells only the count of its own class, data
//! or parity, so one forged count is enough to keep the data and the parity of a payload in different sets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::attempt::Attempt;
use super::candidate::Candidate;
use super::failed_attempts::FailedAttempts;
use super::set::{Geometry, Key, SEGMENTS_MAX, Set, SetId};
use super::work::Work;
use super::{Reassembler, Reconstructed};
use crate::wire::segment::{Slot, WireFormat};

/// Counts of the other class that a segment is tried with, those with most segments.
const COUNTS_MAX: usize = 16;

impl Reassembler {
    /// Tries the segment that came to a set last with what other sets hold of the other class, and
    /// of its own.
    pub(super) fn attempt_across(&mut self, id: SetId) -> Option<Reconstructed> {
        let is_draft = self.parameters.settings().wire_format == WireFormat::Draft;
        let work = self.sets[&id].work_across.as_deref();
        let is_spent = work.is_some_and(Work::is_exhausted);
        if !is_draft || is_spent || self.siblings(id.key).nth(1).is_none() {
            return None;
        }
        for geometry in self.geometries_across(id) {
            let Some(joined) = self.join_across(id, geometry) else {
                continue;
            };
            let (work, is_spent) = match self.attempt_joined(id.key, joined) {
                None => continue,
                Some(Ok(found)) => return Some(found),
                Some(Err(in_vain)) => in_vain,
            };
            let set = self.sets.get_mut(&id).expect("the set is held");
            set.work_across.get_or_insert_default().add(work);
            if is_spent {
                set.work_across = Some(Box::new(Work::EXHAUSTED));
                return None;
            }
        }
        None
    }

    /// Tries segments of several sets together; of an attempt in vain what it took, and whether that spent
    /// its budget. `None` where they cannot be enough.
    pub(super) fn attempt_joined(
        &mut self,
        key: Key,
        joined: Set,
    ) -> Option<Result<Reconstructed, (Work, bool)>> {
        let mut failed_attempts = FailedAttempts::default();
        let budget = self.limits.work_budget;
        let mut attempt = Attempt::new(&joined, &mut failed_attempts, &self.parameters, budget)?;
        let found = attempt.run();
        let in_vain = (attempt.budget.work, attempt.is_spent());
        let Some(found) = found else {
            return Some(Err(in_vain));
        };
        let bad_segments = self.bad_segments(&joined, &found);
        Some(Ok(self.conclude(key, joined, found, bad_segments)))
    }

    /// The count that the newest segment tells, with counts of the other class: first those that its
    /// sender told most often, then those with most segments.
    fn geometries_across(&self, id: SetId) -> Vec<Geometry> {
        let set = &self.sets[&id];
        let newest = &set.candidates()[set.newest];
        let told: fn(&Geometry) -> Option<u16> = match newest.slot {
            Slot::Data(_) => |geometry| geometry.parity,
            Slot::Parity(_) => |geometry| geometry.data,
        };
        let mut held: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
        for (_, sibling) in self.siblings(id.key) {
            let Some(count) = told(&sibling.geometry) else {
                continue;
            };
            let (by_sender, by_all) = held.entry(count).or_default();
            for member in sibling.candidates() {
                if is_data(member.slot) != is_data(newest.slot) {
                    *by_sender += usize::from(member.sender == newest.sender);
                    *by_all += 1;
                }
            }
        }
        let mut counts: Vec<(u16, (usize, usize))> = held.into_iter().collect();
        counts.sort_by_key(|(_, held)| Reverse(*held));
        let counts = counts.into_iter().take(COUNTS_MAX);
        let geometries = counts.map(|(count, _)| {
            let (data, parity) = match newest.slot {
                Slot::Data(_) => (set.geometry.data, Some(count)),
                Slot::Parity(_) => (Some(count), set.geometry.parity),
            };
            Geometry {
                data,
                parity,
                payload_length: None,
            }
        });
        geometries.collect()
    }

    /// All segments of these counts in one set; `None` where they are too few, or those of the set
    /// `id` alone.
    fn join_across(&self, id: SetId, geometry: Geometry) -> Option<Set> {
        let (data, parity) = (geometry.data?, geometry.parity?);
        if data + parity > SEGMENTS_MAX {
            return None;
        }
        let own = &self.sets[&id];
        // Those of the set itself come last: the newest of them is the newest of all.
        let others = self.siblings(id.key).filter(|(other, _)| **other != id);
        let sets = others.map(|(_, set)| &**set).chain([&**own]);
        let members: Vec<(&Set, &Candidate)> = sets
            .flat_map(|set| set.candidates().iter().map(move |member| (set, member)))
            .filter(|(set, member)| match member.slot {
                Slot::Data(_) => set.geometry.data == Some(data),
                Slot::Parity(_) => set.geometry.parity == Some(parity),
            })
            .collect();
        let slots: BTreeSet<Slot> = members.iter().map(|(_, member)| member.slot).collect();
        let has_others = members.iter().any(|(set, _)| !std::ptr::eq(*set, &**own));
        if slots.len() < usize::from(data) || !has_others {
            return None;
        }
        let mut joined = Set::new(own.hash, None, geometry);
        joined.charge(own.work_across.as_deref().copied().unwrap_or_default());
        for (_, member) in members {
            let mut rivals = joined.range(member.slot);
            let equal =
                rivals.find(|place| *joined.candidates()[*place].payload == *member.payload);
            if let Some(place) = equal {
                let held = &mut joined.candidates_mut()[place];
                held.shared |= held.sender != member.sender;
                if !held.sender.is_authenticated() && member.sender.is_authenticated() {
                    joined.pass(place, member.sender);
                }
            } else {
                let (payload, serial) =
                    (member.payload.clone(), joined.serial_for(member.slot, None));
                joined.insert(Candidate {
                    payload,
                    serial,
                    ..*member
                });
            }
        }
        let newest = &own.candidates()[own.newest];
        let rivals = joined.range(newest.slot);
        joined.newest = rivals
            .into_iter()
            .find(|place| *joined.candidates()[*place].payload == *newest.payload)?;
        Some(joined)
    }
}

fn is_data(slot: Slot) -> bool {
    matches!(slot, Slot::Data(_))
}

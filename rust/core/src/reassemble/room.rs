//! Who loses when room is needed: a sender its own sets, claimed identities each other's.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::ledger::SenderId;
use super::set::{Candidate, Set, SetId};
use super::{Drop, Reassembler};

/// What there is too much of.
#[derive(Clone, Copy)]
enum Pressure {
    Sets,
    Bytes,
}

impl Reassembler {
    /// Gives sets up until `bytes` and `sets` more fit every limit. The set at `place` stays.
    ///
    /// # Errors
    /// The limit that cannot be met.
    pub(super) fn make_room(
        &mut self,
        sender: SenderId,
        sets: u64,
        bytes: u64,
        place: Option<SetId>,
    ) -> Result<(), String> {
        while let Some((pressure, own, limit)) = self.exceeded(sender, sets, bytes) {
            let victim = match own {
                true => self.oldest_of(sender, place),
                false => self.largest_claimed(pressure, place),
            };
            match victim {
                Some(id) => self.give_up(id),
                None => return Err(limit),
            }
        }
        Ok(())
    }

    /// Takes a set from its owner: what others sent of it goes on as theirs, or else anybody could
    /// have a set evicted by being the first to send a segment of it.
    fn give_up(&mut self, id: SetId) {
        let set = &self.sets[&id];
        let owner = set.owner;
        let mut shares: BTreeMap<SenderId, usize> = BTreeMap::new();
        for candidate in set.candidates() {
            for sender in [Some(candidate.sender), candidate.sharer] {
                if let Some(sender) = sender.filter(|sender| *sender != owner) {
                    *shares.entry(sender).or_default() += 1;
                }
            }
        }
        let rank =
            |(sender, held): &(&SenderId, &usize)| (self.ledger.is_authenticated(**sender), **held);
        let Some(heir) = shares.iter().max_by_key(rank).map(|(sender, _)| *sender) else {
            return self.evict(id);
        };
        self.pass_set(id, heir);
        let set = self.sets.get_mut(&id).expect("the set is held");
        if set.is_saved() {
            // What is stored of it would come back with what is taken out here.
            self.deleted.push(id);
            let candidates = set.candidates_mut().iter_mut();
            candidates.for_each(|candidate| candidate.saved = false);
            self.unsaved.insert(id);
        }
        for place in (0..set.candidates().len()).rev() {
            let candidate = &mut set.candidates_mut()[place];
            if candidate.sender != owner {
                continue;
            }
            let charge = candidate.charge();
            match candidate.sharer.take() {
                Some(sharer) => {
                    candidate.sender = sharer;
                    self.ledger.charge(sharer, charge);
                    self.ledger.release(sharer);
                }
                None => drop(set.remove(place)),
            }
            self.ledger.refund(owner, charge);
        }
        set.advance_prefix();
    }

    /// Makes a set that of another sender.
    pub(super) fn pass_set(&mut self, id: SetId, heir: SenderId) {
        let set = self.sets.get_mut(&id).expect("the set is held");
        self.ledger.open_set(heir);
        self.ledger.close_set(set.owner);
        set.owner = heir;
    }

    /// Drops a set to make room.
    fn evict(&mut self, id: SetId) {
        if let Some(dropped) = self.drop_set(id, Drop::Evicted) {
            // Reports that nobody polls must not grow; `stats` keeps the count.
            if self.dropped.len() as u64 >= self.limits.sets_max {
                self.dropped.pop_front();
            }
            self.dropped.push_back(dropped);
        }
    }

    /// The first limit that would be exceeded, whether only the sender's own sets may go for it,
    /// and what it says.
    fn exceeded(
        &self,
        sender: SenderId,
        sets: u64,
        bytes: u64,
    ) -> Option<(Pressure, bool, String)> {
        let limits = &self.limits;
        let proven = self.ledger.is_authenticated(sender);
        let (total_sets, total_bytes) = self.ledger.totals();
        let own = (self.ledger.sets(sender), self.ledger.bytes(sender));
        let per_sender = (
            limits.sets_per_sender_max,
            limits.buffered_bytes_per_sender_max,
        );
        let whole = (limits.sets_max, limits.buffered_bytes_max);
        let mut checks = vec![("_per_sender_max", true, own, per_sender)];
        if !proven {
            let share = |limit: u64| ((limit as f64 * limits.unauthenticated_share) as u64).max(1);
            let shared = (share(whole.0), share(whole.1));
            checks.push((
                "_max x unauthenticated_share",
                false,
                self.ledger.claimed(),
                shared,
            ));
        }
        checks.push(("_max", proven, (total_sets, total_bytes), whole));
        checks.into_iter().find_map(|(name, own, held, limit)| {
            if sets > 0 && held.0 + sets > limit.0 {
                let text = format!("{} sets are held: sets{name} is {}", held.0, limit.0);
                Some((Pressure::Sets, own, text))
            } else if held.1 + bytes > limit.1 {
                let text = format!(
                    "{} bytes are held and {bytes} came: buffered_bytes{name} is {}",
                    held.1, limit.1
                );
                Some((Pressure::Bytes, own, text))
            } else {
                None
            }
        })
    }

    fn oldest_of(&self, sender: SenderId, keep: Option<SetId>) -> Option<SetId> {
        self.by_update
            .values()
            .find(|id| Some(**id) != keep && self.sets[id].owner == sender)
            .copied()
    }

    /// The set to give up among claimed identities: of the largest holder, then the one with the
    /// fewest segments, then with the fewest bytes, then the one longest without news. A flood of
    /// identities with one segment each thus displaces itself, not a sender that is making progress.
    ///
    /// Of bytes, identities that hold about as much count as one holder, or a flood of small ones
    /// would make whoever is further than they are the largest.
    fn largest_claimed(&self, pressure: Pressure, keep: Option<SetId>) -> Option<SetId> {
        let claimed: Vec<(u64, SetId, &Set)> = self
            .by_update
            .iter()
            .filter(|(_, id)| Some(**id) != keep)
            .map(|(tick, id)| (*tick, *id, &*self.sets[id]))
            .filter(|(_, _, set)| !self.ledger.is_authenticated(set.owner))
            .collect();
        let size_of = |set: &Set| self.ledger.bytes(set.owner).max(1).ilog2() as usize;
        let mut bytes_by_size = [0; u64::BITS as usize];
        for (_, _, set) in &claimed {
            // What an owner holds, spread over its sets.
            bytes_by_size[size_of(set)] +=
                self.ledger.bytes(set.owner) / self.ledger.sets(set.owner).max(1);
        }
        claimed
            .into_iter()
            .max_by_key(|(tick, _, set)| {
                let holding = match pressure {
                    Pressure::Sets => self.ledger.sets(set.owner),
                    Pressure::Bytes => bytes_by_size[size_of(set)],
                };
                let bytes: u64 = set.candidates().iter().map(Candidate::charge).sum();
                (
                    holding,
                    Reverse(set.slots_held()),
                    Reverse(bytes),
                    Reverse(*tick),
                )
            })
            .map(|(_, id, _)| id)
    }
}

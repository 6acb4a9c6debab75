//! Who loses when room is needed: a sender its own sets, claimed identities each other's.

use super::ledger::SenderId;
use super::set::{Set, SetId};
use super::{Drop, Reassembler};

/// What there is too much of.
#[derive(Clone, Copy)]
enum Pressure {
    Sets,
    Bytes,
}

impl Reassembler {
    /// Evicts until `bytes` more, and a set more where `place` is `None`, fit every limit. The set
    /// at `place` stays.
    ///
    /// # Errors
    /// The limit that cannot be met.
    pub(super) fn make_room(
        &mut self,
        sender: SenderId,
        bytes: u64,
        place: Option<SetId>,
    ) -> Result<(), String> {
        let sets = u64::from(place.is_none());
        while let Some((pressure, own, limit)) = self.exceeded(sender, sets, bytes) {
            let victim = match own {
                true => self.oldest_of(sender, place),
                false => self.largest_claimed(pressure, place),
            };
            match victim {
                Some(id) => self.evict(id),
                None => return Err(limit),
            }
        }
        Ok(())
    }

    /// Gives a set up to make room.
    pub(super) fn evict(&mut self, id: SetId) {
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
    /// fewest segments, then the one longest without news. A flood of identities with one segment
    /// each thus displaces itself, not a sender that is making progress.
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
                let (few, old) = (
                    std::cmp::Reverse(set.slots_held()),
                    std::cmp::Reverse(*tick),
                );
                (holding, few, old)
            })
            .map(|(_, id, _)| id)
    }
}

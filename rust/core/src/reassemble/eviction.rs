//! Who loses segments when a limit is reached: a sender its own shares of sets, claimed identities each other's.

use std::cmp::Reverse;

use super::bytes::Bytes;
use super::receive::Arrival;
use super::sender_accounts::SenderId;
use super::set::{Set, SetId, Share};
use super::{Drop, Reassembler};

/// What there is too much of.
#[derive(Clone, Copy)]
enum Pressure {
    Sets,
    Bytes,
}

/// What a segment needs.
#[derive(Clone, Copy)]
struct Need {
    /// A set that is not held yet.
    sets: u64,
    /// A share of a set that its sender does not have yet.
    shares: u64,
    /// A set that has no segment of a claimed identity yet: it gets one where the sender's is.
    claimed_sets: u64,
    bytes: u64,
}

impl Reassembler {
    /// Gives shares up until `bytes` more in the set at `place`, or in a new one where that is `None`,
    /// fit every limit. What is in the set at `place` stays.
    ///
    /// # Errors
    /// The limit that cannot be met.
    pub(super) fn make_room(
        &mut self,
        sender: SenderId,
        bytes: u64,
        place: Option<SetId>,
    ) -> Result<(), String> {
        let need = self.need(sender, bytes, place);
        while let Some((pressure, own, limit)) = self.exceeded(sender, need) {
            let victim = match own {
                true => self.oldest_of(sender, place).map(|id| (id, sender)),
                false => self.largest_claimed(pressure, place),
            };
            match victim {
                Some((id, loser)) => self.displace(id, loser),
                None => return Err(limit),
            }
        }
        Ok(())
    }

    /// Whether that much fits as it is.
    pub(super) fn has_room(&self, sender: SenderId, bytes: u64, place: Option<SetId>) -> bool {
        let need = self.need(sender, bytes, place);
        self.exceeded(sender, need).is_none()
    }

    fn need(&self, sender: SenderId, bytes: u64, place: Option<SetId>) -> Need {
        let set = place.map(|id| &self.sets[&id]);
        let has_share = set.is_some_and(|set| set.is_shared_by(sender));
        let is_claimed = set.is_some_and(|set| set.main_claimed().is_some());
        Need {
            sets: u64::from(set.is_none()),
            shares: u64::from(!has_share),
            claimed_sets: u64::from(!is_claimed),
            bytes,
        }
    }

    /// `sender` sent what another's candidate holds. A proven one gets it from a claimed one, as if
    /// that had not been; from another proven one when that loses its share. Claimed ones are not
    /// remembered: they are without number. Says whether anything changed.
    pub(super) fn share(
        &mut self,
        id: SetId,
        place: usize,
        arrival: &Arrival<'_>,
        frame_bytes: u32,
        sender: SenderId,
    ) -> bool {
        if !sender.is_authenticated() {
            return false;
        }
        let candidate = &self.sets[&id].candidates()[place];
        if !candidate.sender.is_authenticated() {
            return self.take_over(id, place, arrival, frame_bytes, sender);
        }
        if candidate.sharer.is_some() {
            return false;
        }
        self.accounts.keep(sender);
        let set = self.sets.get_mut(&id).expect("the set is held");
        set.candidates_mut()[place].sharer = Some(sender);
        true
    }

    /// Puts what `heir` sent in the place of another's equal segment: it is charged with its own frame, and
    /// loses what it would have lost without the other. False, and nothing changed in the set, where no
    /// room can be made.
    fn take_over(
        &mut self,
        id: SetId,
        place: usize,
        arrival: &Arrival<'_>,
        frame_bytes: u32,
        heir: SenderId,
    ) -> bool {
        let candidate = &self.sets[&id].candidates()[place];
        let (before, held) = (candidate.sender, candidate.charge());
        let charge = arrival.payload.len() as u64 + u64::from(frame_bytes);
        self.accounts.refund(before, held);
        let has_room = self.make_room(heir, charge, Some(id)).is_ok();
        self.accounts.charge(before, held);
        if !has_room {
            return false;
        }
        let payload = Bytes::keep(arrival.payload, arrival.source);
        self.change(id, |set| set.replace(place, payload, frame_bytes));
        self.accounts.charge(before, charge);
        self.accounts.refund(before, held);
        self.give_to(id, place, heir);
        true
    }

    /// Makes a candidate the segment of `heir`. False, and nothing done, where that may not hold more.
    fn pass(&mut self, id: SetId, place: usize, heir: SenderId) -> bool {
        let set = self.sets.get_mut(&id).expect("the set is held");
        let candidate = &set.candidates()[place];
        let charge = candidate.charge();
        let opens = !set.is_shared_by(heir);
        let shares = self.accounts.shares(heir) + u64::from(opens);
        let bytes = self.accounts.bytes(heir) + charge;
        if shares > self.limits.sets_per_sender_max
            || bytes > self.limits.buffered_bytes_per_sender_max
        {
            return false;
        }
        self.give_to(id, place, heir);
        true
    }

    /// Makes a candidate, and its charge, those of `heir`.
    fn give_to(&mut self, id: SetId, place: usize, heir: SenderId) {
        let set = self.sets.get_mut(&id).expect("the set is held");
        let candidate = &set.candidates()[place];
        let (before, charge) = (candidate.sender, candidate.charge());
        let opens = !set.is_shared_by(heir);
        // Its record names its sender.
        set.candidates_mut()[place].saved = false;
        self.unsaved.insert(id);
        self.change(id, |set| set.pass(place, heir));
        if opens {
            self.accounts.open_share(heir);
        }
        self.accounts.charge(heir, charge);
        self.give_back(id, before, charge);
    }

    /// Changes what a set holds, and counts whether claimed identities have any of it.
    pub(super) fn change<T>(&mut self, id: SetId, change: impl FnOnce(&mut Set) -> T) -> T {
        let set = self.sets.get_mut(&id).expect("the set is held");
        let had_claimed = set.main_claimed().is_some();
        let made = change(set);
        self.accounts
            .count_claimed(had_claimed, set.main_claimed().is_some());
        made
    }

    /// Takes a candidate that keeps no sharer's account out of a set that holds others.
    pub(super) fn take_out(&mut self, id: SetId, place: usize) {
        let removed = self.change(id, |set| set.remove(place));
        debug_assert!(removed.sharer.is_none());
        self.give_back(id, removed.sender, removed.charge());
    }

    /// A candidate of `sender` left a set, or went to another.
    fn give_back(&mut self, id: SetId, sender: SenderId, charge: u64) {
        self.accounts.refund(sender, charge);
        if !self.sets[&id].is_shared_by(sender) {
            self.accounts.close_share(sender);
        }
    }

    /// Takes from a set what `loser` alone sent of it: what others sent stays, or else anybody could
    /// have a set evicted by sending a segment of it first.
    pub(super) fn displace(&mut self, id: SetId, loser: SenderId) {
        let set = self.sets.get_mut(&id).expect("the set is held");
        let others_have_any =
            set.shares().len() > 1 || set.candidates().iter().any(|held| held.sharer.is_some());
        if !others_have_any {
            return self.evict(id);
        }
        if std::mem::take(&mut set.is_stored) {
            // What is stored of it would come back with what is taken out here.
            self.deleted.push(id);
            self.unsaved.insert(id);
        }
        for place in (0..self.sets[&id].candidates().len()).rev() {
            let set = self.sets.get_mut(&id).expect("the set is held");
            let candidate = &mut set.candidates_mut()[place];
            candidate.saved = false;
            if candidate.sender != loser {
                continue;
            }
            if let Some(sharer) = candidate.sharer.take() {
                let inherits = self.pass(id, place, sharer);
                self.accounts.release(sharer);
                if inherits {
                    continue;
                }
            }
            self.take_out(id, place);
            self.stats.displaced += 1;
        }
        let set = self.sets.get_mut(&id).expect("the set is held");
        if set.candidates().is_empty() {
            return self.evict(id);
        }
        set.advance_prefix();
    }

    /// Gives a set up to make room.
    fn evict(&mut self, id: SetId) {
        if let Some(dropped) = self.drop_set(id, Drop::Evicted) {
            // Reports that nobody polls must not grow; `stats` keeps the count.
            if self.dropped.len() as u64 >= self.limits.sets_max {
                self.dropped.pop_front();
            }
            self.dropped.push_back(dropped);
        }
    }

    /// The first limit that would be exceeded, whether only the sender's own shares may go for it,
    /// and what it says.
    fn exceeded(&self, sender: SenderId, need: Need) -> Option<(Pressure, bool, String)> {
        let limits = &self.limits;
        let proven = sender.is_authenticated();
        let total = (self.sets.len() as u64, self.accounts.total_bytes());
        let own = (self.accounts.shares(sender), self.accounts.bytes(sender));
        let per_sender = (
            limits.sets_per_sender_max,
            limits.buffered_bytes_per_sender_max,
        );
        let whole = (limits.sets_max, limits.buffered_bytes_max);
        let claimed = (!proven).then(|| {
            let share = |limit: u64| ((limit as f64 * limits.unauthenticated_share) as u64).max(1);
            let shared = (share(whole.0), share(whole.1));
            (
                "_max x unauthenticated_share",
                false,
                self.accounts.claimed(),
                need.claimed_sets,
                shared,
            )
        });
        let checks = [
            Some(("_per_sender_max", true, own, need.shares, per_sender)),
            claimed,
            Some(("_max", proven, total, need.sets, whole)),
        ];
        let bytes = need.bytes;
        checks
            .into_iter()
            .flatten()
            .find_map(|(name, own, held, sets, limit)| {
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
            .find(|id| Some(**id) != keep && self.sets[id].is_shared_by(sender))
            .copied()
    }

    /// The share to give up among claimed identities. A set is judged by the claimed sender of most
    /// of it, and that one loses: of the largest holder, then in the set with the fewest segments,
    /// then with the fewest bytes, then of the set longest without news. A flood of identities with
    /// one segment each thus displaces itself, not a sender that is making progress.
    ///
    /// Of bytes, identities that hold about as much count as one holder, or a flood of small ones
    /// would make whoever is further than they are the largest.
    fn largest_claimed(
        &self,
        pressure: Pressure,
        keep: Option<SetId>,
    ) -> Option<(SetId, SenderId)> {
        let others = self.by_update.iter().filter(|(_, id)| Some(**id) != keep);
        let claimed: Vec<(u64, SetId, usize, &Share)> = others
            .filter_map(|(tick, id)| {
                let set = &self.sets[id];
                Some((*tick, *id, set.slots_held(), set.main_claimed()?))
            })
            .collect();
        let size_of = |share: &Share| self.accounts.bytes(share.sender).max(1).ilog2() as usize;
        let mut bytes_by_size = [0; u64::BITS as usize];
        for (_, _, _, share) in &claimed {
            // What a sender holds, spread over its sets.
            bytes_by_size[size_of(share)] +=
                self.accounts.bytes(share.sender) / self.accounts.shares(share.sender);
        }
        claimed
            .into_iter()
            .max_by_key(|(tick, _, slots_held, share)| {
                let holding = match pressure {
                    Pressure::Sets => self.accounts.shares(share.sender),
                    Pressure::Bytes => bytes_by_size[size_of(share)],
                };
                (
                    holding,
                    Reverse(*slots_held),
                    Reverse(share.bytes),
                    Reverse(*tick),
                )
            })
            .map(|(_, id, _, share)| (id, share.sender))
    }
}

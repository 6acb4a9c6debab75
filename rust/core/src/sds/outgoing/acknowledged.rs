//! Who acknowledged what of one send of ours.

use std::sync::Arc;

use super::ordinals::Ordinals;
use crate::maps::HashMap;

/// Participants whose acknowledgements one send keeps.
pub const PARTICIPANTS_PER_SEND_MAX: usize = 1_000;
/// So many are found by looking at each.
const FEW: usize = 8;

/// What each participant acknowledged of a send, and who can reconstruct it.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// In the order in which they spoke first.
    shares: Vec<Share>,
    /// The place of each, once they are many: most sends have none, and so no room for one.
    places: Option<Box<HashMap<Arc<str>, usize>>>,
    complete: usize,
}

#[derive(Debug)]
struct Share {
    name: Arc<str>,
    held: Ordinals,
    /// Whether it holds all contents, without having received each.
    is_complete: bool,
}

impl Acknowledged {
    /// What each participant acknowledged, in the order in which they spoke first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Ordinals)> {
        self.shares.iter().map(|share| (&share.name, &share.held))
    }

    /// Who acknowledged anything.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shares.iter().map(|share| &share.name)
    }

    /// How many did.
    pub fn len(&self) -> usize {
        self.shares.len()
    }

    /// Whether `name` acknowledged a content.
    pub fn holds(&self, name: &Arc<str>, ordinal: u32) -> bool {
        let share = self.share(name);
        share.is_some_and(|share| share.held.contains(ordinal))
    }

    /// How many contents `name` acknowledged.
    pub fn count(&self, name: &Arc<str>) -> u32 {
        self.share(name).map_or(0, |share| share.held.count())
    }

    /// All that anybody acknowledged.
    pub fn by_anybody(&self) -> Ordinals {
        let mut all = Ordinals::NONE;
        self.iter().for_each(|(_, held)| all.extend(held));
        all
    }

    /// How many can reconstruct the send.
    pub fn complete(&self) -> usize {
        self.complete
    }

    /// Whether `name` can.
    pub fn is_complete(&self, name: &Arc<str>) -> bool {
        self.share(name).is_some_and(|share| share.is_complete)
    }

    /// Whether there is room for what `by` acknowledges, which has its place in any case where it
    /// `is_named`: those who must have it are few.
    pub fn has_room(&self, by: &Arc<str>, is_named: bool) -> bool {
        let is_full = self.shares.len() >= PARTICIPANTS_PER_SEND_MAX;
        !is_full || is_named || self.place(by).is_some()
    }

    /// `by` acknowledges a content; how many it has now, `None` where it had this one.
    pub fn add(&mut self, by: &Arc<str>, ordinal: u32) -> Option<u32> {
        let held = &mut self.share_of(by).held;
        if held.contains(ordinal) {
            return None;
        }
        held.insert(ordinal);
        Some(held.count())
    }

    /// `by` can reconstruct the send of `count` contents; what it had acknowledged before, `None` where
    /// it could already.
    pub fn on_complete(&mut self, by: &Arc<str>, count: u32) -> Option<Ordinals> {
        let share = self.share_of(by);
        if std::mem::replace(&mut share.is_complete, true) {
            return None;
        }
        let before = std::mem::replace(&mut share.held, Ordinals::all(count));
        self.complete += 1;
        Some(before)
    }

    /// The send has `count` contents now: who can reconstruct it needs none of the new ones.
    pub fn extend(&mut self, count: u32) {
        let complete = self.shares.iter_mut().filter(|share| share.is_complete);
        complete.for_each(|share| share.held = Ordinals::all(count));
    }

    /// The send has no more than `count` contents.
    pub fn truncate(&mut self, count: u32) {
        let shares = self.shares.iter_mut();
        shares.for_each(|share| share.held.truncate(count));
    }

    /// Restores what one participant acknowledged.
    pub fn restore(&mut self, name: &Arc<str>, held: Ordinals) {
        self.share_of(name).held = held;
    }

    /// Restores who can reconstruct the send of `count` contents: those who have all of them.
    pub fn restore_complete(&mut self, count: u32) {
        let all = Ordinals::all(count);
        for share in &mut self.shares {
            share.is_complete = share.held == all;
            self.complete += usize::from(share.is_complete);
        }
    }

    fn place(&self, name: &Arc<str>) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(name).copied(),
            None => self.names().position(|known| known == name),
        }
    }

    fn share(&self, name: &Arc<str>) -> Option<&Share> {
        self.place(name).map(|place| &self.shares[place])
    }

    /// The share of `name`, new where it has none.
    fn share_of(&mut self, name: &Arc<str>) -> &mut Share {
        let place = self.place(name).unwrap_or_else(|| {
            let place = self.shares.len();
            if place == 0 {
                // Most sends are for one or two.
                self.shares.reserve_exact(1);
            }
            self.shares.push(Share {
                name: Arc::clone(name),
                held: Ordinals::NONE,
                is_complete: false,
            });
            if place == FEW {
                let names = self.names().cloned().zip(0..).collect();
                self.places = Some(Box::new(names));
            } else if let Some(places) = &mut self.places {
                places.insert(Arc::clone(name), place);
            }
            place
        });
        &mut self.shares[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_number_of_participants_are_found_in_the_order_of_their_first() {
        let mut acknowledged = Acknowledged::default();
        let names: Vec<Arc<str>> = (0..PARTICIPANTS_PER_SEND_MAX)
            .map(|number| number.to_string().into())
            .collect();
        for (number, name) in names.iter().enumerate() {
            assert!(acknowledged.has_room(name, false));
            assert_eq!(acknowledged.add(name, 2), Some(1));
            assert_eq!(acknowledged.add(&names[number / 2], 2), None);
            assert_eq!(
                (acknowledged.count(name), acknowledged.len()),
                (1, number + 1)
            );
            assert!(acknowledged.holds(name, 2) && !acknowledged.holds(name, 1));
        }
        assert!(acknowledged.names().eq(&names));
        let other: Arc<str> = "other".into();
        assert!(!acknowledged.has_room(&other, false) && acknowledged.has_room(&other, true));
        assert!(acknowledged.has_room(&names[500], false));
        assert!(!acknowledged.holds(&other, 2) && !acknowledged.is_complete(&other));
        let mut named = Ordinals::NONE;
        named.insert(2);
        assert_eq!(acknowledged.on_complete(&names[9], 3), Some(named.clone()));
        assert_eq!(acknowledged.on_complete(&names[9], 3), None);
        assert_eq!(acknowledged.on_complete(&other, 3), Some(Ordinals::NONE));
        assert_eq!((acknowledged.complete(), acknowledged.len()), (2, 1_001));
        acknowledged.extend(5);
        assert_eq!(acknowledged.count(&other), 5);
        acknowledged.truncate(1);
        assert_eq!(
            (acknowledged.count(&other), acknowledged.count(&names[0])),
            (1, 0)
        );
        assert_eq!(acknowledged.by_anybody(), Ordinals::all(1));
    }
}

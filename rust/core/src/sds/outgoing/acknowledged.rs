//! Who acknowledged what of one send of ours.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashlink::LinkedHashMap;

use super::ordinals::Ordinals;

/// Participants whose acknowledgements one send keeps.
pub const PARTICIPANTS_PER_SEND_MAX: usize = 1_000;

/// What each participant acknowledged of a send, and who can reconstruct it.
#[derive(Debug, Default)]
pub struct Acknowledged {
    held: LinkedHashMap<Arc<str>, Ordinals>,
    /// They hold all contents, without having received each.
    complete: BTreeSet<Arc<str>>,
}

impl Acknowledged {
    /// What each participant acknowledged, in the order in which they spoke first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Ordinals)> {
        self.held.iter()
    }

    /// Who acknowledged anything.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.keys()
    }

    /// How many did.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether `name` acknowledged a content.
    pub fn holds(&self, name: &Arc<str>, ordinal: u32) -> bool {
        let held = self.held.get(name);
        held.is_some_and(|held| held.contains(ordinal))
    }

    /// How many contents `name` acknowledged.
    pub fn count(&self, name: &Arc<str>) -> u32 {
        self.held.get(name).map_or(0, Ordinals::count)
    }

    /// All that anybody acknowledged.
    pub fn by_anybody(&self) -> Ordinals {
        let mut all = Ordinals::NONE;
        self.held.values().for_each(|held| all.extend(held));
        all
    }

    /// Who can reconstruct the send.
    pub fn complete(&self) -> &BTreeSet<Arc<str>> {
        &self.complete
    }

    /// Whether `name` can.
    pub fn is_complete(&self, name: &Arc<str>) -> bool {
        self.complete.contains(name)
    }

    /// Whether there is room for what `by` acknowledges, which has its place in any case where it
    /// `is_named`: those who must have it are few.
    pub fn has_room(&self, by: &Arc<str>, is_named: bool) -> bool {
        let is_full = self.held.len() >= PARTICIPANTS_PER_SEND_MAX;
        !is_full || is_named || self.held.contains_key(by)
    }

    /// `by` acknowledges a content; how many it has now, `None` where it had this one.
    pub fn add(&mut self, by: &Arc<str>, ordinal: u32) -> Option<u32> {
        if let Some(held) = self.held.get_mut(by) {
            return (!held.contains(ordinal)).then(|| {
                held.insert(ordinal);
                held.count()
            });
        }
        let mut held = Ordinals::NONE;
        held.insert(ordinal);
        self.held.insert(Arc::clone(by), held);
        Some(1)
    }

    /// `by` can reconstruct the send of `count` contents; what it had acknowledged before, `None` where
    /// it could already.
    pub fn on_complete(&mut self, by: &Arc<str>, count: u32) -> Option<Ordinals> {
        if !self.complete.insert(Arc::clone(by)) {
            return None;
        }
        let before = self.held.replace(Arc::clone(by), Ordinals::all(count));
        Some(before.unwrap_or(Ordinals::NONE))
    }

    /// The send has `count` contents now: who can reconstruct it needs none of the new ones.
    pub fn extend(&mut self, count: u32) {
        let all = Ordinals::all(count);
        for name in &self.complete {
            self.held.replace(Arc::clone(name), all.clone());
        }
    }

    /// The send has no more than `count` contents.
    pub fn truncate(&mut self, count: u32) {
        self.held.values_mut().for_each(|held| held.truncate(count));
    }

    /// Restores what one participant acknowledged.
    pub fn restore(&mut self, name: Arc<str>, held: Ordinals) {
        self.held.insert(name, held);
    }

    /// Restores who can reconstruct the send of `count` contents: those who have all of them.
    pub fn restore_complete(&mut self, count: u32) {
        let all = Ordinals::all(count);
        let complete = self.held.iter().filter(|(_, held)| **held == all);
        self.complete = complete.map(|(name, _)| Arc::clone(name)).collect();
    }
}

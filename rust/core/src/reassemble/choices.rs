//! Which candidate to believe in each slot: the choices that an attempt goes through.

use std::collections::BTreeSet;

use super::recover::{Attempt, Selection};
use super::set::Candidate;

/// Choices of one kind that an attempt looks at.
const CHOICES_MAX: usize = 64;

/// What is tried for one length of shards.
pub(super) struct Plan {
    pub shard_len: usize,
    /// The candidates of that length, by ordinal.
    pub slots: Vec<Vec<usize>>,
    /// Choices without rivals.
    pub clean: Vec<Selection>,
    /// Choices by who sent what.
    pub by_sender: Vec<Selection>,
}

impl Plan {
    pub fn new(attempt: &Attempt<'_>, shard_len: usize) -> Self {
        let last = attempt.data_count - 1;
        let slots: Vec<Vec<usize>> = attempt
            .ordinals()
            .map(|ordinal| {
                let fits = |place: &usize| match attempt.bytes(*place).len() {
                    length if ordinal == last => length <= shard_len,
                    length => length == shard_len,
                };
                attempt
                    .set
                    .range(attempt.slot(ordinal))
                    .filter(fits)
                    .collect()
            })
            .collect();
        let mut choices = Choices::new(attempt);
        choices.add_clean(&slots);
        let clean_count = choices.selections.len();
        choices.add_by_sender(&slots);
        let by_sender = choices.selections.split_off(clean_count);
        Plan {
            shard_len,
            clean: choices.selections,
            by_sender,
            slots,
        }
    }
}

/// Choices in the order they are to be tried, none of them twice.
pub(super) struct Choices<'a> {
    pub selections: Vec<Selection>,
    candidates: &'a [Candidate],
    data_count: usize,
    newest: usize,
    /// Choices without the newest may be new: it is the first rival of another, or there was no
    /// attempt before it.
    all_new: bool,
}

impl<'a> Choices<'a> {
    pub fn new(attempt: &Attempt<'a>) -> Self {
        let candidates = attempt.set.candidates();
        let newest = attempt.newest;
        Choices {
            selections: Vec::new(),
            candidates,
            data_count: attempt.data_count,
            newest,
            all_new: attempt.set.work == 0 || attempt.set.range(candidates[newest].slot).len() == 2,
        }
    }

    fn add(&mut self, selection: Selection) {
        let held = selection.iter().flatten().count();
        // With no segment to spare, what lacks the newest was tried before that came.
        let lacks_newest = !selection.contains(&Some(self.newest));
        let tried = held == self.data_count && lacks_newest && !self.all_new;
        if held >= self.data_count && !tried && !self.selections.contains(&selection) {
            self.selections.push(selection);
        }
    }

    /// Slots without rivals; the others count as lost. Rivals are those of a shard's length, then
    /// those of any.
    pub fn add_clean(&mut self, slots: &[Vec<usize>]) {
        let single = |rivals: &Vec<usize>| (rivals.len() == 1).then(|| rivals[0]);
        let clean: Selection = slots.iter().map(single).collect();
        let candidates = self.candidates;
        let is_alone = |place: &usize| {
            let slot = candidates[*place].slot;
            let neighbours = [place.checked_sub(1), place.checked_add(1)];
            let others = neighbours.into_iter().flatten();
            others
                .filter_map(|other| candidates.get(other))
                .all(|other| other.slot != slot)
        };
        let alone = clean.iter().map(|place| place.filter(is_alone)).collect();
        self.add(clean);
        self.add(alone);
    }

    /// One sender's segments together, then all but one sender's.
    pub fn add_by_sender(&mut self, slots: &[Vec<usize>]) {
        let candidates = self.candidates;
        let senders: BTreeSet<_> = candidates
            .iter()
            .map(|candidate| candidate.sender)
            .collect();
        if senders.len() < 2 {
            return;
        }
        for sender in senders.iter().take(CHOICES_MAX) {
            let theirs = |place: &&usize| candidates[**place].sender == *sender;
            let shared = |place: &&usize| candidates[**place].shared;
            let pick = |rivals: &Vec<usize>| {
                rivals
                    .iter()
                    .find(theirs)
                    .or_else(|| rivals.iter().find(shared))
                    .copied()
            };
            self.add(slots.iter().map(pick).collect());
        }
        for sender in senders.iter().take(CHOICES_MAX) {
            let others = |place: &&usize| candidates[**place].sender != *sender;
            self.add(
                slots
                    .iter()
                    .map(|rivals| rivals.iter().find(others).copied())
                    .collect(),
            );
        }
    }

    /// Counts through the rivals as through the digits of a number, the last slot fastest.
    pub fn add_mixtures(&mut self, slots: &[Vec<usize>]) {
        if slots.iter().all(|rivals| rivals.len() < 2) {
            return;
        }
        for choice in 0..CHOICES_MAX {
            let mut rest = choice;
            let mut selection: Selection = slots
                .iter()
                .rev()
                .map(|rivals| {
                    let digit = rest % rivals.len().max(1);
                    rest /= rivals.len().max(1);
                    rivals.get(digit).copied()
                })
                .collect();
            if rest > 0 {
                break;
            }
            selection.reverse();
            self.add(selection);
        }
    }

    /// One segment after another left out.
    pub fn add_without_one(&mut self, selection: &Selection) {
        for ordinal in 0..selection.len() {
            if selection[ordinal].is_some() {
                let mut rest = selection.clone();
                rest[ordinal] = None;
                self.add(rest);
            }
        }
    }
}

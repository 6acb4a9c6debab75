//! Selections: which candidate an attempt believes in each slot, in the order in which they are tried.

use std::cmp::Reverse;

use super::attempt::{Attempt, Selection};
use super::candidate::Candidate;
use super::sender_accounts::SenderId;
use super::set::Share;

/// Mixtures of rivals that an attempt looks at.
const MIXTURES_MAX: usize = 256;

/// Senders whose segments an attempt leaves out, one after another.
const SENDERS_MAX: usize = 64;

/// What is tried for one length of shards. No list has a selection that an earlier attempt tried.
pub(super) struct Plan {
    pub shard_len: usize,
    /// The candidates of that length, by ordinal.
    pub slots: Vec<Vec<usize>>,
    /// Selections without rivals.
    pub clean: Vec<Selection>,
    /// One proven sender's own segments together.
    pub by_proven: Vec<Selection>,
    /// One claimed sender's.
    pub by_claimed: Vec<Selection>,
    /// One sender's, with those of others that somebody repeated.
    pub repeated: Vec<Selection>,
    /// All but one sender's.
    pub without_sender: Vec<Selection>,
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
        let mut selections = Selections::new(attempt);
        selections.add_clean(&slots);
        let clean = std::mem::take(&mut selections.listed);
        selections.add_by_sender(&slots, true);
        let by_proven = std::mem::take(&mut selections.listed);
        selections.add_by_sender(&slots, false);
        let by_claimed = std::mem::take(&mut selections.listed);
        selections.add_repeated(&slots);
        let repeated = std::mem::take(&mut selections.listed);
        selections.add_without_sender(&slots);
        Plan {
            shard_len,
            clean,
            by_proven,
            by_claimed,
            repeated,
            without_sender: selections.listed,
            slots,
        }
    }

    /// Slots without rivals of this length.
    pub fn slots_alone(&self) -> usize {
        self.slots.iter().filter(|rivals| rivals.len() == 1).count()
    }
}

/// Selections in the order in which they are tried, none of them twice.
pub(super) struct Selections<'a> {
    pub listed: Vec<Selection>,
    candidates: &'a [Candidate],
    shares: &'a [Share],
    data_count: usize,
    newest: usize,
    /// There was no attempt before this one.
    all_new: bool,
}

impl<'a> Selections<'a> {
    pub fn new(attempt: &Attempt<'a>) -> Self {
        Selections {
            listed: Vec::new(),
            candidates: attempt.set.candidates(),
            shares: attempt.set.shares(),
            data_count: attempt.data_count,
            newest: attempt.newest,
            all_new: attempt.set.work().is_none(),
        }
    }

    fn add(&mut self, selection: Selection) {
        // What lacks the newest was tried before that came.
        if self.all_new || selection.contains(&Some(self.newest)) {
            self.add_again(selection);
        }
    }

    fn add_again(&mut self, selection: Selection) {
        let held = selection.iter().flatten().count();
        if held >= self.data_count && !self.listed.contains(&selection) {
            self.listed.push(selection);
        }
    }

    /// Slots without rivals; the others count as lost. Rivals are those of a shard's length, then
    /// those of any.
    fn add_clean(&mut self, slots: &[Vec<usize>]) {
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
        let newest = candidates[self.newest].slot;
        let rivals = candidates.iter().filter(|other| other.slot == newest);
        let fitting = slots.iter().find(|rivals| rivals.contains(&self.newest));
        // The first rival of a candidate takes that candidate out of the selection.
        if rivals.count() == 2 || fitting.is_some_and(|rivals| rivals.len() == 2) {
            self.add_again(clean);
            self.add_again(alone);
        } else {
            self.add(clean);
            self.add(alone);
        }
    }

    /// Senders in the order of the segments they sent, the newest segment's first.
    fn senders(&self) -> Vec<(SenderId, usize)> {
        let newest = self.candidates[self.newest].sender;
        let held = self.shares.iter();
        let mut senders: Vec<(SenderId, usize)> = held
            .map(|share| (share.sender, share.segments as usize))
            .collect();
        senders.sort_by_key(|(sender, held)| (*sender != newest, Reverse(*held)));
        senders
    }

    fn add_by_sender(&mut self, slots: &[Vec<usize>], proven: bool) {
        if self.shares.len() < 2 {
            return;
        }
        let senders = self.senders();
        let data_count = self.data_count;
        let may_do = senders
            .iter()
            .filter(|(sender, held)| *held >= data_count && sender.is_authenticated() == proven);
        for (sender, _) in may_do {
            self.add(self.pick(slots, |candidate| candidate.sender == *sender));
        }
    }

    fn add_repeated(&mut self, slots: &[Vec<usize>]) {
        let (data_count, candidates) = (self.data_count, self.candidates);
        let shared = candidates.iter().filter(|held| held.shared).count();
        if self.shares.len() < 2 || shared == 0 {
            return;
        }
        let senders = self.senders();
        let may_do = senders
            .iter()
            .filter(|(_, held)| held + shared >= data_count);
        for (sender, _) in may_do.take(SENDERS_MAX) {
            let own = self.pick(slots, |candidate| candidate.sender == *sender);
            let repeated = self.pick(slots, |candidate| candidate.shared);
            self.add(
                own.into_iter()
                    .zip(repeated)
                    .map(|(own, repeated)| own.or(repeated))
                    .collect(),
            );
        }
    }

    fn add_without_sender(&mut self, slots: &[Vec<usize>]) {
        for (sender, _) in self.senders().iter().take(SENDERS_MAX) {
            self.add(self.pick(slots, |candidate| candidate.sender != *sender));
        }
    }

    /// Of each slot the first candidate that `is_chosen`.
    fn pick(&self, slots: &[Vec<usize>], is_chosen: impl Fn(&Candidate) -> bool) -> Selection {
        let is_chosen = |place: &&usize| is_chosen(&self.candidates[**place]);
        slots
            .iter()
            .map(|rivals| rivals.iter().find(is_chosen).copied())
            .collect()
    }

    /// Mixtures of rivals, counted through as the digits of a number, the last slot fastest. None
    /// of them was tried before, none comes twice.
    pub fn mixtures(&self, slots: &[Vec<usize>]) -> impl Iterator<Item = Selection> {
        let newest = self.newest;
        let is_new = self.all_new || slots.iter().any(|rivals| rivals.contains(&newest));
        let digits: Vec<Vec<usize>> = slots
            .iter()
            .map(|rivals| match rivals.contains(&newest) {
                true if !self.all_new => vec![newest],
                _ => rivals.clone(),
            })
            .collect();
        let counts = slots.iter().map(Vec::len);
        let (held, rivals) = counts.fold((0, 0), |(held, rivals), count| {
            (held + usize::from(count > 0), rivals.max(count))
        });
        let mixtures = if is_new && rivals > 1 && held >= self.data_count {
            MIXTURES_MAX
        } else {
            0
        };
        (0..mixtures).map_while(move |mixture| {
            let mut rest = mixture;
            let mut selection = vec![None; digits.len()];
            for (place, rivals) in selection.iter_mut().zip(&digits).rev() {
                let count = rivals.len().max(1);
                *place = rivals.get(rest % count).copied();
                rest /= count;
            }
            (rest == 0).then_some(selection)
        })
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

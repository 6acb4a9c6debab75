//! One attempt at a set: which segments to believe, and which code made the parity.

use super::attempt::{Attempt, Selection};
use super::budget::Turn;
use super::failed_attempts::Name;
use super::locate::{Located, Search};
use super::selections::{Plan, Selections};
use super::word::Word;
use super::work::products_work;
use crate::erasure::{self, ErasureCode};

/// Guesses at what was crafted to hide take this part of the budget that is left: while positions
/// are open, and when all are filled. More segments, or rivals, may settle it at no cost.
const GUESS_SHARES: [u64; 2] = [8, 2];

/// One data shard of a candidate payload.
#[derive(Debug)]
pub(super) enum Part {
    /// The candidate at this place of the set.
    Held(usize),
    /// Made from parity.
    Recovered(Vec<u8>),
}

/// A payload that has the hash.
#[derive(Debug)]
pub(super) struct Found {
    pub parts: Vec<Part>,
    pub length: usize,
    pub erasure_code: Option<ErasureCode>,
    /// Places of candidates that are not what the payload's segments are.
    pub bad: Vec<usize>,
}

impl<'a> Attempt<'a> {
    /// Looks for a payload that has the hash until one is found, the budget is spent, or what
    /// could be told from these segments is told.
    pub fn run(&mut self) -> Option<Found> {
        let ranges: Vec<_> = self
            .ordinals()
            .map(|o| self.set.range(self.slot(o)))
            .collect();
        let data = &ranges[..self.data_count];
        // Whole data segments need no parity, nor lengths that a code could take.
        let whole: Option<Selection> = data
            .iter()
            .map(|range| (range.len() == 1).then_some(Some(range.start)))
            .collect();
        let has_surplus = self.set.slots_held() > self.data_count;
        if !has_surplus && let Some(whole) = &whole {
            return self.decode_whole(whole);
        }
        let plans = self.plans();
        // Another sender may still be right all by itself, and open slots may be filled.
        let is_full = self.set.slots_held() == self.data_count + self.parity_count;
        self.is_last_resort = is_full
            && self.set.shares().len() == 1
            && plans
                .iter()
                .all(|plan| plan.slots_alone() < self.data_count);
        // With a segment to spare, what contradicts the others is seen without a hash. Data that
        // nothing contradicts but parity may still be right: parity may be forged, or no code's.
        self.resolve_each(&plans, Turn::Promised, |plan| &plan.clean)
            .or_else(|| whole.and_then(|whole| self.decode_whole(&whole)))
            .or_else(|| self.resolve_each(&plans, Turn::Proven, |plan| &plan.by_proven))
            .or_else(|| self.resolve_each(&plans, Turn::Promised, |plan| &plan.by_claimed))
            .or_else(|| self.resolve_each(&plans, Turn::Repeated, |plan| &plan.repeated))
            .or_else(|| self.resolve_each(&plans, Turn::Guesses, |plan| &plan.without_sender))
            .or_else(|| plans.iter().find_map(|plan| self.speculate(plan)))
    }

    /// One for each length that is tried.
    fn plans(&self) -> Vec<Plan> {
        let lengths = self.shard_lengths().into_iter();
        lengths.map(|length| Plan::new(self, length)).collect()
    }

    /// As [`Attempt::run`], where no segment is new and only who sent one is: what that cannot change was
    /// tried before.
    pub fn run_repeated(&mut self) -> Option<Found> {
        let plans = self.plans();
        self.resolve_each(&plans, Turn::Proven, |plan| &plan.by_proven)
            .or_else(|| self.resolve_each(&plans, Turn::Promised, |plan| &plan.by_claimed))
            .or_else(|| self.resolve_each(&plans, Turn::Repeated, |plan| &plan.repeated))
    }

    fn decode_whole(&mut self, selection: &Selection) -> Option<Found> {
        self.decode(selection, self.parameters.settings().erasure_code, 0)
    }

    fn resolve_each(
        &mut self,
        plans: &[Plan],
        turn: Turn,
        selections: impl Fn(&Plan) -> &[Selection],
    ) -> Option<Found> {
        self.budget.turn = turn;
        for plan in plans {
            for selection in selections(plan) {
                for code in self.codes() {
                    if let Some(found) = self.resolve(selection, code, plan.shard_len) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// The configured code, then the other.
    fn codes(&self) -> [ErasureCode; 2] {
        match self.parameters.settings().erasure_code {
            ErasureCode::Leopard => [ErasureCode::Leopard, ErasureCode::Vandermonde],
            ErasureCode::Vandermonde => [ErasureCode::Vandermonde, ErasureCode::Leopard],
        }
    }

    /// One choice under one code, while that can be afforded: without a segment to spare it is
    /// decoded and hashed; with some, the wrong ones among them are located first.
    fn resolve(
        &mut self,
        selection: &Selection,
        code: ErasureCode,
        shard_len: usize,
    ) -> Option<Found> {
        let held = selection.iter().flatten().count();
        let (k, m) = (self.data_count, self.parity_count);
        let needs_no_code = held == k && selection[..k].iter().all(Option::is_some);
        if needs_no_code && code != self.codes()[0] {
            return None;
        }
        let has_spare = held > k;
        if !self.budget.affords(has_spare) {
            return None;
        }
        if !has_spare {
            return self.decode(selection, code, shard_len);
        }
        if !erasure::supports(code, k, m) {
            return self.look_by_hash(selection, code, shard_len);
        }
        self.locate_and_decode(selection, code, shard_len, 0)
    }

    /// Counts that encoding does not take cannot be checked against each other: to decode and hash some of
    /// them is what takes the place of a look, and is paid for as one.
    fn look_by_hash(
        &mut self,
        selection: &Selection,
        code: ErasureCode,
        shard_len: usize,
    ) -> Option<Found> {
        let hashing = self.budget.work.hashing;
        let found = self.decode(selection, code, shard_len);
        let work = &mut self.budget.work;
        work.looks += work.hashing - hashing;
        work.hashing = hashing;
        found
    }

    /// Decodes without those that are located as bad, where any can be.
    fn locate_and_decode(
        &mut self,
        selection: &Selection,
        code: ErasureCode,
        shard_len: usize,
        guess_work_max: u64,
    ) -> Option<Found> {
        let suspects = self
            .failed_attempts
            .suspects()
            .iter()
            .map(|offset| *offset as usize);
        let mut search = Search {
            suspects: suspects.collect(),
            guess_work_max,
            work_max: self.budget.left_to_locate(),
            ..Search::default()
        };
        let located = self.word(selection, code, shard_len).locate(&mut search);
        self.budget.work.looks += search.work;
        self.failed_attempts.suspect(search.found);
        let Located::Bad(bad) = located else {
            return None;
        };
        let mut selection = selection.clone();
        bad.iter().for_each(|ordinal| selection[*ordinal] = None);
        self.decode(&selection, code, shard_len)
    }

    /// A bounded search where nothing could be located: mixtures of rivals, then guesses at what
    /// was crafted to hide.
    fn speculate(&mut self, plan: &Plan) -> Option<Found> {
        self.budget.turn = Turn::Guesses;
        let (slots, shard_len) = (&plan.slots, plan.shard_len);
        let (k, m) = (self.data_count, self.parity_count);
        let is_full = self.set.slots_held() == k + m;
        let codes = self.codes();
        let can_locate = |code: &ErasureCode| erasure::supports(*code, k, m);
        let first: Selection = slots.iter().map(|rivals| rivals.first().copied()).collect();
        let held = first.iter().flatten().count();
        let (spare, locates_all) = (held > k, codes.iter().all(can_locate));
        // Selections without one segment need no look where one is to spare.
        if !self.budget.affords(held > k + 1 || spare && locates_all) {
            return None;
        }
        let mut selections = Selections::new(self);
        if is_full && !locates_all {
            // While more segments can come, each of them makes another wrong one harmless.
            selections.add_without_one(&first);
        }
        // All of them under the configured code first: the other one is seldom right.
        let found = codes.iter().find_map(|code| {
            let mut tried = selections.mixtures(slots).chain(selections.listed.clone());
            tried.find_map(|selection| self.resolve(&selection, *code, shard_len))
        });
        let is_new = self.set.work().is_none() || first.contains(&Some(self.newest));
        if found.is_some() || !spare || !is_new {
            return found;
        }
        let share = self.budget.looks_left() / GUESS_SHARES[usize::from(is_full)];
        let stop = self.budget.work.looks + share;
        codes.into_iter().filter(can_locate).find_map(|code| {
            let guess_work_max = stop.saturating_sub(self.budget.work.looks);
            (guess_work_max > 0)
                .then(|| self.locate_and_decode(&first, code, shard_len, guess_work_max))
                .flatten()
        })
    }

    fn word(&self, selection: &Selection, code: ErasureCode, shard_len: usize) -> Word<'a> {
        let shards = selection
            .iter()
            .map(|place| place.map(|place| self.bytes(place)))
            .collect();
        let (data_count, parity_count) = (self.data_count, self.parity_count);
        Word {
            code,
            shards,
            data_count,
            parity_count,
            shard_len,
        }
    }

    /// Makes the lost data shards from what is chosen, whose members agree with each other, and
    /// hashes, unless that was done before.
    fn decode(
        &mut self,
        selection: &Selection,
        code: ErasureCode,
        shard_len: usize,
    ) -> Option<Found> {
        let k = self.data_count;
        let name = |place: usize| self.set.candidates()[place].name();
        let used = selection.iter().flatten();
        let is_whole = selection[..k].iter().all(Option::is_some);
        let locates = erasure::supports(code, k, self.parity_count);
        // What nothing can be checked against is not known to agree: only the first k count.
        let members: Vec<Name> = used
            .take(if locates { usize::MAX } else { k })
            .map(|place| name(*place))
            .collect();
        let last = selection[k - 1].map(name);
        if self.failed_attempts.has_failed(code, &members, k, last) {
            return None;
        }
        let mut recovered = if is_whole {
            Vec::new().into_iter()
        } else {
            let Word { shards, .. } = self.word(selection, code, shard_len);
            let recovered =
                erasure::reconstruct(code, &shards, k, self.parity_count, shard_len).ok()?;
            let lost = selection[..k]
                .iter()
                .filter(|place| place.is_none())
                .count();
            self.budget.work.hashing += products_work(k, lost, shard_len);
            recovered.into_iter()
        };
        let parts = selection[..k].iter().map(|place| match place {
            Some(place) => Part::Held(*place),
            None => {
                let (_, shard) = recovered.next().expect("each lost data shard was made");
                Part::Recovered(shard)
            }
        });
        let parts = parts.collect();
        let parity_code = (members.len() > k || !is_whole).then_some(code);
        let sound = match parity_code {
            Some(_) => members.as_slice(),
            None => &[],
        };
        let found = self.verify(parts, (!is_whole).then_some(code), parity_code, sound);
        if found.is_none() && !self.is_cut_short {
            if is_whole {
                self.failed_attempts.remember(None, members[..k].to_vec());
            }
            if members.len() > k || !is_whole {
                self.failed_attempts.remember(Some(code), members);
            }
        }
        found
    }
}

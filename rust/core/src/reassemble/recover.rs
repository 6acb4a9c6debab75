//! One attempt at a set: which segments to believe, and which code made the parity.

use super::choices::{Choices, Plan};
use super::lessons::{Lessons, Name};
use super::locate::{Located, Search, Word};
use super::set::Set;
use super::tail::CANDIDATE_WORK;
use crate::erasure::{self, ErasureCode};
use crate::segment::Parameters;
use crate::wire::segment::Slot;

/// Decoding, or locating wrong shards, costs this part of hashing the shards.
const DECODE_WORK_SHARE: u64 = 16;

/// Different shard lengths that one attempt looks at: forged segments may have any length.
const LENGTHS_MAX: usize = 4;

/// A search without a guarantee takes this part of the budget that is left: while positions are
/// open, and when all are filled. More segments, or rivals, may settle it at no cost.
const SPECULATION_SHARES: [u64; 2] = [8, 2];

/// Guesses of bad shards are this much of hashing each.
const GUESS_WORK: u64 = 1024;

/// Searches for the end of a last segment of zeros that are added to the budget: one takes at most
/// half of what is left, and that must be enough for the second code after the first.
const TAIL_SEARCHES: u64 = 3;

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

/// A candidate's place by ordinal: data segments first, then parity segments.
pub(super) type Selection = Vec<Option<usize>>;

/// The state of one attempt.
pub(super) struct Attempt<'a> {
    pub set: &'a Set,
    /// What earlier attempts found out, and this one.
    pub lessons: Lessons,
    pub parameters: &'a Parameters,
    pub data_count: usize,
    pub parity_count: usize,
    /// The candidate that came last: what does not use it was tried before.
    pub newest: usize,
    /// Bytes hashed and decoded by this attempt.
    pub work: u64,
    pub work_max: u64,
    /// Whether a hash was compared.
    pub hashed: bool,
}

impl<'a> Attempt<'a> {
    /// `None` while the number of data segments is unknown or more segments are needed.
    ///
    /// The set's lessons are `lessons`: they change while it is read.
    pub fn new(
        set: &'a Set,
        lessons: &mut Lessons,
        parameters: &'a Parameters,
        work_budget: u64,
    ) -> Option<Self> {
        let data_count = usize::from(set.geometry.data?);
        let parity_count = usize::from(set.geometry.parity.unwrap_or(0));
        if set.slots_held() < data_count {
            return None;
        }
        let longest = set
            .candidates()
            .iter()
            .map(|candidate| candidate.payload.len())
            .max()
            .unwrap_or(0);
        let whole = (longest * data_count) as u64;
        let price = whole + whole / DECODE_WORK_SHARE + 1024;
        // lip243 tells its length; what is not recovered has no padding to find but zeros.
        let last = set.range(Slot::Data(data_count.saturating_sub(1) as u8));
        let mut tails = set.candidates()[last].iter();
        let may_be_padded = set.geometry.parity != Some(0)
            || tails.any(|candidate| candidate.payload.last() == Some(&0));
        let is_open = set.geometry.payload_length.is_none() && may_be_padded;
        let ends_max = longest.min(parameters.settings().max_tail_candidates) as u64;
        let tails = u64::from(is_open) * ends_max * CANDIDATE_WORK * TAIL_SEARCHES;
        let work_max = price.saturating_mul(work_budget).saturating_add(tails);
        let work_max = work_max.saturating_sub(set.work);
        let newest = set.newest;
        Some(Attempt {
            set,
            lessons: std::mem::take(lessons),
            parameters,
            data_count,
            parity_count,
            newest,
            work: 0,
            work_max,
            hashed: false,
        })
    }

    /// Whether the set's budget is spent.
    pub fn is_spent(&self) -> bool {
        self.work >= self.work_max
    }

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
        let plans: Vec<Plan> = self
            .shard_lengths()
            .into_iter()
            .map(|length| Plan::new(self, length))
            .collect();
        // With a segment to spare, what contradicts the others is seen without a hash. Data that
        // nothing contradicts but parity may still be right: parity may be forged, or no code's.
        self.resolve_each(&plans, |plan| &plan.clean)
            .or_else(|| whole.and_then(|whole| self.decode_whole(&whole)))
            .or_else(|| self.resolve_each(&plans, |plan| &plan.by_sender))
            .or_else(|| plans.iter().find_map(|plan| self.speculate(plan)))
    }

    fn decode_whole(&mut self, selection: &Selection) -> Option<Found> {
        self.decode(selection, self.parameters.settings().erasure_code, 0)
    }

    pub(super) fn slot(&self, ordinal: usize) -> Slot {
        if ordinal < self.data_count {
            Slot::Data(ordinal as u8)
        } else {
            Slot::Parity((ordinal - self.data_count) as u8)
        }
    }

    pub(super) fn ordinals(&self) -> std::ops::Range<usize> {
        0..self.data_count + self.parity_count
    }

    pub(super) fn bytes(&self, place: usize) -> &'a [u8] {
        &self.set.candidates()[place].payload
    }

    /// Lengths that enough segments could have as shards, those of most slots first. All but the
    /// last data segment have the full length.
    fn shard_lengths(&self) -> Vec<usize> {
        let mut slots: Vec<(usize, Slot)> = self
            .set
            .candidates()
            .iter()
            .filter(|candidate| candidate.slot != self.slot(self.data_count - 1))
            .map(|candidate| (candidate.payload.len(), candidate.slot))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        let mut lengths: Vec<(usize, usize)> = slots
            .chunk_by(|a, b| a.0 == b.0)
            .map(|slots| (slots.len(), slots[0].0))
            .filter(|(count, _)| count + 1 >= self.data_count)
            .collect();
        lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
        if self.data_count == 1 && lengths.is_empty() {
            let longest = self
                .set
                .candidates()
                .iter()
                .map(|candidate| candidate.payload.len());
            lengths.extend(longest.max().map(|length| (1, length)));
        }
        lengths
            .into_iter()
            .take(LENGTHS_MAX)
            .map(|(_, length)| length)
            .collect()
    }

    fn resolve_each(
        &mut self,
        plans: &[Plan],
        choices: impl Fn(&Plan) -> &[Selection],
    ) -> Option<Found> {
        for plan in plans {
            for selection in choices(plan) {
                if self.is_spent() {
                    return None;
                }
                if let Some(found) = self.resolve(selection, plan.shard_len) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// One choice: without a segment to spare it is decoded and hashed; with some, the wrong ones
    /// among them are located first.
    fn resolve(&mut self, selection: &Selection, shard_len: usize) -> Option<Found> {
        let held = selection.iter().flatten().count();
        let configured = self.parameters.settings().erasure_code;
        if held == self.data_count && selection[..held].iter().all(Option::is_some) {
            return self.decode(selection, configured, shard_len);
        }
        let other = match configured {
            ErasureCode::Leopard => ErasureCode::Vandermonde,
            ErasureCode::Vandermonde => ErasureCode::Leopard,
        };
        [configured, other].into_iter().find_map(|code| {
            // Counts that encoding does not take cannot be checked against each other.
            let locates = erasure::supports(code, self.data_count, self.parity_count);
            if held == self.data_count || !locates {
                return self.decode(selection, code, shard_len);
            }
            self.locate_and_decode(selection, code, shard_len, 0)
        })
    }

    /// Decodes without those that are located as bad, where any can be.
    fn locate_and_decode(
        &mut self,
        selection: &Selection,
        code: ErasureCode,
        shard_len: usize,
        guesses_max: usize,
    ) -> Option<Found> {
        let suspects = self
            .lessons
            .suspects()
            .iter()
            .map(|offset| *offset as usize);
        let mut search = Search {
            suspects: suspects.collect(),
            guesses_max,
            ..Search::default()
        };
        let located = self.word(selection, code, shard_len).locate(&mut search);
        self.work += search.work / DECODE_WORK_SHARE;
        self.lessons.suspect(search.found);
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
        let (slots, shard_len) = (&plan.slots, plan.shard_len);
        let left = self.work_max.saturating_sub(self.work);
        let is_full = self.set.slots_held() == self.data_count + self.parity_count;
        let stop = self.work + left / SPECULATION_SHARES[usize::from(is_full)];
        let mut choices = Choices::new(self);
        choices.add_mixtures(slots);
        let first: Selection = slots.iter().map(|rivals| rivals.first().copied()).collect();
        let can_locate = |code| erasure::supports(code, self.data_count, self.parity_count);
        let codes = [ErasureCode::Leopard, ErasureCode::Vandermonde];
        if is_full && !codes.into_iter().all(can_locate) {
            // While more segments can come, each of them makes another wrong one harmless.
            choices.add_without_one(&first);
        }
        for selection in std::mem::take(&mut choices.selections) {
            if self.work >= stop {
                return None;
            }
            if let Some(found) = self.resolve(&selection, shard_len) {
                return Some(found);
            }
        }
        codes.into_iter().find_map(|code| {
            let guesses_max = stop.saturating_sub(self.work) / GUESS_WORK;
            let spare = first.iter().flatten().count() > self.data_count;
            let locates = erasure::supports(code, self.data_count, self.parity_count);
            let found = (spare && locates && guesses_max > 0)
                .then(|| self.locate_and_decode(&first, code, shard_len, guesses_max as usize));
            found.flatten()
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
        if self.lessons.has_failed(code, &members, k, last) {
            return None;
        }
        let mut recovered = if is_whole {
            Vec::new().into_iter()
        } else {
            let Word { shards, .. } = self.word(selection, code, shard_len);
            let recovered =
                erasure::reconstruct(code, &shards, k, self.parity_count, shard_len).ok()?;
            self.work += (shard_len * k) as u64 / DECODE_WORK_SHARE;
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
        if found.is_none() {
            if is_whole {
                self.lessons.failed(None, members[..k].to_vec());
            }
            if members.len() > k || !is_whole {
                self.lessons.failed(Some(code), members);
            }
        }
        found
    }
}

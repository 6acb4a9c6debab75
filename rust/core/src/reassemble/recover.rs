//! One attempt at a set: which segments to believe, and which code made the parity.

use super::choices::Choices;
use super::locate::{Located, Word};
use super::set::Set;
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
    pub fn new(set: &'a Set, parameters: &'a Parameters, work_budget: u64) -> Option<Self> {
        let data_count = usize::from(set.geometry.data?);
        let parity_count = usize::from(set.geometry.parity.unwrap_or(0));
        if set.slots_held() < data_count {
            return None;
        }
        let longest = set
            .candidates()
            .iter()
            .map(|candidate| candidate.payload.len())
            .max();
        let whole = (longest.unwrap_or(0) * data_count) as u64;
        let price = whole + whole / DECODE_WORK_SHARE + 1024;
        let work_max = price.saturating_mul(work_budget).saturating_sub(set.work);
        let newest = set.newest;
        Some(Attempt {
            set,
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
        if data.iter().all(|range| range.len() == 1) && self.is_new_data() {
            // Whole data segments need no parity, nor lengths that a code could take.
            let parts = data.iter().map(|range| Part::Held(range.start)).collect();
            if let Some(found) = self.verify(parts, None) {
                return Some(found);
            }
            if self.set.slots_held() == self.data_count {
                return None;
            }
        }
        self.shard_lengths()
            .into_iter()
            .find_map(|shard_len| self.run_length(shard_len))
    }

    /// Whether the newest segment is data, or there was no attempt before it.
    fn is_new_data(&self) -> bool {
        let newest = &self.set.candidates()[self.newest];
        self.set.work == 0 || matches!(newest.slot, Slot::Data(_))
    }

    pub(super) fn slot(&self, ordinal: usize) -> Slot {
        if ordinal < self.data_count {
            Slot::Data(ordinal as u8)
        } else {
            Slot::Parity((ordinal - self.data_count) as u8)
        }
    }

    fn ordinals(&self) -> std::ops::Range<usize> {
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

    fn run_length(&mut self, shard_len: usize) -> Option<Found> {
        let last = self.data_count - 1;
        let slots: Vec<Vec<usize>> = self
            .ordinals()
            .map(|ordinal| {
                let fits = |place: &usize| match self.bytes(*place).len() {
                    length if ordinal == last => length <= shard_len,
                    length => length == shard_len,
                };
                self.set.range(self.slot(ordinal)).filter(fits).collect()
            })
            .collect();
        let mut choices = Choices::new(self);
        choices.add_clean(&slots);
        choices.add_by_sender(&slots);
        for selection in std::mem::take(&mut choices.selections) {
            if self.is_spent() {
                return None;
            }
            if let Some(found) = self.resolve(&selection, shard_len) {
                return Some(found);
            }
        }
        self.speculate(&slots, shard_len)
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
            match self.word(selection, code, shard_len).locate() {
                Located::Unknown => {
                    self.work += (shard_len * self.data_count) as u64 / DECODE_WORK_SHARE;
                    None
                }
                Located::Bad(bad) => {
                    self.work += (shard_len * self.data_count) as u64 / DECODE_WORK_SHARE;
                    let mut selection = selection.clone();
                    bad.iter().for_each(|ordinal| selection[*ordinal] = None);
                    self.decode(&selection, code, shard_len)
                }
            }
        })
    }

    /// A bounded search where nothing could be located: mixtures of rivals, then one segment after
    /// another left out.
    fn speculate(&mut self, slots: &[Vec<usize>], shard_len: usize) -> Option<Found> {
        let left = self.work_max.saturating_sub(self.work);
        let is_full = self.set.slots_held() == self.data_count + self.parity_count;
        let stop = self.work + left / SPECULATION_SHARES[usize::from(is_full)];
        let mut choices = Choices::new(self);
        choices.add_mixtures(slots);
        let first: Selection = slots.iter().map(|rivals| rivals.first().copied()).collect();
        if is_full {
            // While more segments can come, each of them makes one more wrong one locatable.
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
        None
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

    /// Makes the lost data shards from what is chosen, and hashes.
    fn decode(
        &mut self,
        selection: &Selection,
        code: ErasureCode,
        shard_len: usize,
    ) -> Option<Found> {
        let Word { shards, .. } = self.word(selection, code, shard_len);
        let (k, m) = (self.data_count, self.parity_count);
        let recovered = erasure::reconstruct(code, &shards, k, m, shard_len).ok()?;
        self.work += (shard_len * k) as u64 / DECODE_WORK_SHARE;
        let is_whole = recovered.is_empty();
        let mut recovered = recovered.into_iter();
        let parts = selection[..k].iter().map(|place| match place {
            Some(place) => Part::Held(*place),
            None => {
                let (_, shard) = recovered.next().expect("each lost data shard was made");
                Part::Recovered(shard)
            }
        });
        let parts = parts.collect();
        self.verify(parts, (!is_whole).then_some(code))
    }
}

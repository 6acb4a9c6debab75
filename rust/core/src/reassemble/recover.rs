//! One attempt at a set: which segments to believe, which code made the parity, where it ends.

use super::set::{Candidate, Set};
use super::tail::{End, find_length};
use crate::erasure::{self, ErasureCode};
use crate::segment::Parameters;
use crate::wire::segment::Slot;

/// A decoded shard costs this fraction of hashing the shards it is made of.
const DECODE_WORK_SHARE: u64 = 8;

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

/// A candidate by ordinal: data segments first, then parity segments.
type Selection = Vec<Option<usize>>;

/// The state of one attempt.
pub(super) struct Attempt<'a> {
    set: &'a Set,
    parameters: &'a Parameters,
    data_count: usize,
    parity_count: usize,
    /// Bytes hashed and decoded by this attempt.
    pub work: u64,
    work_max: u64,
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
        Some(Attempt {
            set,
            parameters,
            data_count,
            parity_count,
            work: 0,
            work_max,
        })
    }

    /// Whether the set's budget is spent.
    pub fn is_spent(&self) -> bool {
        self.work >= self.work_max
    }

    /// Looks for a payload that has the hash until one is found or the budget is spent.
    pub fn run(&mut self) -> Option<Found> {
        for selection in self.selections() {
            if self.is_spent() {
                return None;
            }
            if let Some(found) = self.try_selection(&selection) {
                return Some(found);
            }
        }
        None
    }

    fn slot(&self, ordinal: usize) -> Slot {
        if ordinal < self.data_count {
            Slot::Data(ordinal as u8)
        } else {
            Slot::Parity((ordinal - self.data_count) as u8)
        }
    }

    fn ordinals(&self) -> std::ops::Range<usize> {
        0..self.data_count + self.parity_count
    }

    /// The choices to try: slots without rivals first, then one sender's segments together.
    fn selections(&self) -> Vec<Selection> {
        let ranges: Vec<_> = self
            .ordinals()
            .map(|ordinal| self.set.range(self.slot(ordinal)))
            .collect();
        let mut selections = Vec::new();
        let mut add = |selection: Selection| {
            let enough = selection.iter().flatten().count() >= self.data_count;
            if enough && !selections.contains(&selection) {
                selections.push(selection);
            }
        };
        add(ranges
            .iter()
            .map(|range| (range.len() == 1).then_some(range.start))
            .collect());
        let mut senders: Vec<_> = self
            .set
            .candidates()
            .iter()
            .map(|candidate| candidate.sender)
            .collect();
        senders.sort_unstable();
        senders.dedup();
        for sender in senders {
            let theirs = |candidate: &&usize| {
                let candidate: &Candidate = &self.set.candidates()[**candidate];
                candidate.sender == sender || candidate.shared
            };
            add(ranges
                .iter()
                .map(|range| {
                    let places: Vec<usize> = range.clone().collect();
                    places.iter().find(theirs).copied()
                })
                .collect());
        }
        add(ranges
            .iter()
            .map(|range| (!range.is_empty()).then_some(range.start))
            .collect());
        selections
    }

    fn try_selection(&mut self, selection: &Selection) -> Option<Found> {
        let data = &selection[..self.data_count];
        if data.iter().all(Option::is_some) {
            let parts = data
                .iter()
                .flatten()
                .map(|place| Part::Held(*place))
                .collect();
            return self.verify(parts, None);
        }
        let configured = self.parameters.settings().erasure_code;
        let other = match configured {
            ErasureCode::Leopard => ErasureCode::Vandermonde,
            ErasureCode::Vandermonde => ErasureCode::Leopard,
        };
        [configured, other]
            .into_iter()
            .find_map(|code| self.decode(selection, code))
    }

    fn bytes(&self, place: usize) -> &'a [u8] {
        &self.set.candidates()[place].payload
    }

    fn decode(&mut self, selection: &Selection, code: ErasureCode) -> Option<Found> {
        let set = self.set;
        let shards: Vec<Option<&[u8]>> = selection
            .iter()
            .map(|place| place.map(|place| &*set.candidates()[place].payload))
            .collect();
        let shard_len = shards.iter().flatten().map(|shard| shard.len()).max()?;
        let recovered =
            erasure::reconstruct(code, &shards, self.data_count, self.parity_count, shard_len);
        let recovered = recovered.ok()?;
        self.work += (shard_len * self.data_count) as u64 / DECODE_WORK_SHARE;
        let mut recovered = recovered.into_iter().peekable();
        let parts = selection[..self.data_count]
            .iter()
            .enumerate()
            .map(|(ordinal, place)| match place {
                Some(place) => Some(Part::Held(*place)),
                None => recovered
                    .next_if(|(index, _)| *index == ordinal)
                    .map(|r| Part::Recovered(r.1)),
            })
            .collect::<Option<Vec<_>>>()?;
        self.verify(parts, Some(code))
    }

    fn verify(&mut self, parts: Vec<Part>, erasure_code: Option<ErasureCode>) -> Option<Found> {
        let slices: Vec<&[u8]> = parts
            .iter()
            .map(|part| match part {
                Part::Held(place) => self.bytes(*place),
                Part::Recovered(shard) => shard.as_slice(),
            })
            .collect();
        let absorbed = self.set.prefix.sponge().filter(|(_, count)| {
            parts[..*count]
                .iter()
                .enumerate()
                .all(|(ordinal, part)| match part {
                    Part::Held(place) => *place == self.set.range(self.slot(ordinal)).start,
                    Part::Recovered(_) => false,
                })
        });
        let candidates_max = self.parameters.settings().max_tail_candidates;
        let mut ends = Vec::with_capacity(2);
        match (self.set.geometry.payload_length, parts.last()?) {
            (Some(length), _) => ends.push(End::Known(length)),
            (None, Part::Recovered(_)) => ends.push(End::Padded(candidates_max)),
            (None, Part::Held(place)) => {
                ends.push(End::Exact);
                // Only a sender that makes parity pads, and only a whole shard can be padded.
                let padded = self.bytes(*place).last() == Some(&0);
                if padded && self.set.geometry.parity != Some(0) {
                    let affordable = self.work_max.saturating_sub(self.work) / 256;
                    ends.push(End::Padded(candidates_max.min(affordable as usize)));
                }
            }
        }
        let length = ends
            .into_iter()
            .find_map(|end| find_length(&slices, &self.set.hash, absorbed, end, &mut self.work))?;
        let bad = self.bad_candidates(&slices, length, erasure_code);
        Some(Found {
            parts,
            length,
            erasure_code,
            bad,
        })
    }

    /// Candidates that differ from the verified payload's segments. Parity is only checked where
    /// there was reason for doubt.
    fn bad_candidates(
        &self,
        parts: &[&[u8]],
        length: usize,
        erasure_code: Option<ErasureCode>,
    ) -> Vec<usize> {
        let doubtful = self.set.work > 0 || self.set.candidates().len() > self.set.slots_held();
        if !doubtful {
            return Vec::new();
        }
        let head: usize = parts[..self.data_count - 1]
            .iter()
            .map(|part| part.len())
            .sum();
        let last = &parts[self.data_count - 1][..length - head];
        let differs = |truth: &[u8], held: &[u8], may_be_padded: bool| {
            let padding = held.get(truth.len()..).unwrap_or_default();
            held.get(..truth.len()) != Some(truth)
                || !(padding.is_empty() || may_be_padded && padding.iter().all(|byte| *byte == 0))
        };
        let mut bad = Vec::new();
        for (ordinal, part) in parts.iter().enumerate() {
            let is_last = ordinal + 1 == self.data_count;
            let truth = if is_last { last } else { part };
            let places = self.set.range(self.slot(ordinal));
            bad.extend(places.filter(|place| differs(truth, self.bytes(*place), is_last)));
        }
        bad.extend(self.bad_parity(
            &[&parts[..self.data_count - 1], &[last]].concat(),
            erasure_code,
        ));
        bad
    }

    fn bad_parity(&self, data: &[&[u8]], erasure_code: Option<ErasureCode>) -> Vec<usize> {
        let places = self.set.range(Slot::Parity(0)).start..self.set.candidates().len();
        let Some(shard_len) = places.clone().map(|place| self.bytes(place).len()).max() else {
            return Vec::new();
        };
        let codes = match erasure_code {
            Some(code) => vec![code],
            None => vec![ErasureCode::Leopard, ErasureCode::Vandermonde],
        };
        // Genuine parity has the length of a full data shard; which one the longest may not be.
        let shard_len = if data.len() > 1 {
            data[0].len()
        } else {
            shard_len
        };
        let parities: Vec<Vec<Vec<u8>>> = codes
            .into_iter()
            .filter_map(|code| erasure::encode(code, data, self.parity_count, shard_len).ok())
            .collect();
        if parities.is_empty() {
            return Vec::new();
        }
        places
            .filter(|place| {
                let Slot::Parity(index) = self.set.candidates()[*place].slot else {
                    return false;
                };
                !parities
                    .iter()
                    .any(|parity| parity[usize::from(index)] == self.bytes(*place))
            })
            .collect()
    }
}

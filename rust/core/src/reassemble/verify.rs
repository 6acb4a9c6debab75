//! From chosen segments to a payload that has the hash, and which segments differ from it.

use super::attempt::Attempt;
use super::failed_attempts::Name;
use super::recover::{Found, Part};
use super::tail::{End, find_length};
use crate::erasure::{self, ErasureCode};
use crate::wire::segment::Slot;

impl Attempt<'_> {
    /// Concatenates, finds the end, compares the hash. Keccak-256 has the last word on everything.
    ///
    /// `erasure_code` decoded, where any did; `parity_code` made the parity, where that is known.
    /// `sound` are the candidates that are right if the payload is.
    pub(super) fn verify(
        &mut self,
        parts: Vec<Part>,
        erasure_code: Option<ErasureCode>,
        parity_code: Option<ErasureCode>,
        sound: &[Name],
    ) -> Option<Found> {
        let slices: Vec<&[u8]> = parts
            .iter()
            .map(|part| match part {
                Part::Held(place) => self.bytes(*place),
                Part::Recovered(shard) => shard.as_slice(),
            })
            .collect();
        let is_first = |(ordinal, part): &(usize, &Part)| match part {
            Part::Held(place) => *place == self.set.range(self.slot(*ordinal)).start,
            Part::Recovered(_) => false,
        };
        let unchanged = parts.iter().enumerate().take_while(is_first).count();
        let absorbed = self.set.prefix.sponge(unchanged);
        self.hashed = true;
        let candidates_max = self.parameters.settings().max_tail_candidates;
        let ends_left = self.budget.ends_left(sound.len() > self.data_count);
        let padded = End::Padded(candidates_max.min(ends_left));
        let zeros = |last: &[u8]| last.iter().rev().take_while(|byte| **byte == 0).count();
        let mut ends = Vec::with_capacity(2);
        match (self.set.geometry.payload_length, parts.last()?) {
            (Some(length), _) => ends.push(End::Known(length)),
            (None, Part::Recovered(_)) => ends.push(padded),
            (None, Part::Held(place)) => {
                ends.push(End::Exact);
                // A sender that codes pads even where the rate gives no parity.
                if self.bytes(*place).last() == Some(&0) {
                    ends.push(padded);
                }
            }
        }
        self.is_cut_short = ends.contains(&padded)
            && ends_left < candidates_max
            && slices.last().is_some_and(|last| zeros(last) >= ends_left);
        let work = &mut self.budget.work;
        let length = find_length(&slices, &self.set.hash, absorbed, &ends, work)?;
        let bad = self.bad_candidates(&slices, length, parity_code, sound);
        Some(Found {
            parts,
            length,
            erasure_code,
            bad,
        })
    }

    /// Candidates that differ from the verified payload's segments: where none is to spare, each of
    /// them made it.
    fn bad_candidates(
        &self,
        parts: &[&[u8]],
        length: usize,
        parity_code: Option<ErasureCode>,
        sound: &[Name],
    ) -> Vec<usize> {
        if self.set.candidates().len() == self.data_count {
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
        // What stands behind the end is not hashed: parity is only right with zeros there.
        let padding = &parts[self.data_count - 1][length - head..];
        let is_padded = padding.iter().all(|byte| *byte == 0);
        let sound = if is_padded { sound } else { &[] };
        let data = [&parts[..self.data_count - 1], &[last]].concat();
        bad.extend(self.bad_parity(&data, parity_code, sound));
        bad
    }

    /// Parity that the data do not make, by either code: two senders of a payload may use one each.
    /// What is `sound` need not be made again.
    fn bad_parity(
        &self,
        data: &[&[u8]],
        parity_code: Option<ErasureCode>,
        sound: &[Name],
    ) -> Vec<usize> {
        let candidates = self.set.candidates();
        let places = self.set.range(Slot::Parity(0)).start..candidates.len();
        let mut bad: Vec<(usize, usize)> = places
            .filter(|place| !sound.contains(&candidates[*place].name()))
            .filter_map(|place| match candidates[place].slot {
                Slot::Parity(index) => Some((place, self.data_count + usize::from(index))),
                Slot::Data(_) => None,
            })
            .collect();
        let longest = bad.iter().map(|(place, _)| self.bytes(*place).len());
        let Some(longest) = longest.max() else {
            return Vec::new();
        };
        // Genuine parity has the length of a full data shard; which one the longest may not be.
        let shard_len = if data.len() > 1 {
            data[0].len()
        } else {
            longest
        };
        let sources: Vec<(usize, &[u8])> = data.iter().copied().enumerate().collect();
        let (k, m) = (self.data_count, self.parity_count);
        let mut codes = [ErasureCode::Leopard, ErasureCode::Vandermonde];
        if parity_code == Some(ErasureCode::Vandermonde) {
            codes.reverse();
        }
        let mut is_checked = false;
        for code in codes {
            if bad.is_empty() {
                break;
            }
            let only_decodes =
                !erasure::supports(code, k, m) && erasure::check_reconstruct(code, k, m).is_ok();
            if only_decodes && parity_code.is_none_or(|known| known == code) {
                // What cannot be made again accuses nobody.
                return Vec::new();
            }
            let mut ordinals: Vec<usize> = bad.iter().map(|(_, ordinal)| *ordinal).collect();
            ordinals.dedup();
            if let Ok(made) = erasure::remake(code, (k, m), &sources, &ordinals, shard_len) {
                is_checked = true;
                bad.retain(|(place, ordinal)| {
                    let row = ordinals.binary_search(ordinal).expect("it was asked for");
                    made[row] != self.bytes(*place)
                });
            }
        }
        if !is_checked {
            // Neither does what no code takes: data segments of lengths that shards do not have.
            return Vec::new();
        }
        bad.into_iter().map(|(place, _)| place).collect()
    }
}

//! From chosen segments to a payload that has the hash, and which segments differ from it.

use super::recover::{Attempt, Found, Part};
use super::tail::{End, find_length};
use crate::erasure::{self, ErasureCode};
use crate::wire::segment::Slot;

impl Attempt<'_> {
    /// Concatenates, finds the end, compares the hash. Keccak-256 has the last word on everything.
    ///
    /// `erasure_code` decoded, where any did; `parity_code` made the parity, where that is known.
    pub(super) fn verify(
        &mut self,
        parts: Vec<Part>,
        erasure_code: Option<ErasureCode>,
        parity_code: Option<ErasureCode>,
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
        let bad = self.bad_candidates(&slices, length, parity_code);
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
        parity_code: Option<ErasureCode>,
    ) -> Vec<usize> {
        let doubtful = self.set.work > 0 || self.set.candidates().len() > self.data_count;
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
            parity_code,
        ));
        bad
    }

    fn bad_parity(&self, data: &[&[u8]], parity_code: Option<ErasureCode>) -> Vec<usize> {
        let places = self.set.range(Slot::Parity(0)).start..self.set.candidates().len();
        let Some(shard_len) = places.clone().map(|place| self.bytes(place).len()).max() else {
            return Vec::new();
        };
        let codes = match parity_code {
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

//! Which of more than k shards are wrong, by linear algebra on the bytes at equal offsets.
//!
//! The shards at one offset are a word of a Reed-Solomon code; r shards beyond k give r
//! differences that are zero for a codeword. Over many offsets (an interleaved code) the
//! differences of e bad shards span a space of dimension e when they are corrupted independently,
//! and the shards whose own column lies in that space are the bad ones: up to r - 1 of them. What
//! was crafted to span less is decoded offset by offset, up to r / 2.

use super::field::{Span, element, inverse, product};
use crate::erasure::{self, ErasureCode};

/// Offsets sampled for each difference: a chance coincidence needs all of them.
const SAMPLES_PER_DIFFERENCE: usize = 4;

/// Shards of one code, some lost, more than k held.
pub(super) struct Word<'a> {
    pub code: ErasureCode,
    pub shards: Vec<Option<&'a [u8]>>,
    pub data_count: usize,
    pub parity_count: usize,
    pub shard_len: usize,
}

/// What the held shards say of each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Located {
    /// The bad shards by ordinal; none where all are consistent.
    Bad(Vec<usize>),
    /// They are not this code's, or too many are bad.
    Unknown,
}

impl Word<'_> {
    /// Names the bad shards. Where it names any, what is left is consistent and more than k.
    pub fn locate(&self) -> Located {
        let Some(differences) = self.differences() else {
            return Located::Unknown;
        };
        let surplus = differences.len();
        let held: Vec<usize> = (0..self.shards.len())
            .filter(|ordinal| self.shards[*ordinal].is_some())
            .collect();
        let columns = self.columns(&held);
        let mut offsets = sample(&differences, SAMPLES_PER_DIFFERENCE * surplus);
        // Every round that fails adds an offset whose difference the last answer left out, so the
        // span grows; it has at most `surplus` dimensions.
        for _ in 0..=surplus {
            let vectors: Vec<Vec<u8>> = offsets
                .iter()
                .map(|offset| self.vector(&differences, *offset))
                .collect();
            let Some(bad) = self.explain(&vectors, &held, &columns, &offsets) else {
                return Located::Unknown;
            };
            if bad.len() >= surplus {
                return Located::Unknown;
            }
            let Some(rest) = self.without(&bad).differences() else {
                return Located::Unknown;
            };
            let more = sample(&rest, SAMPLES_PER_DIFFERENCE);
            if more.is_empty() {
                return Located::Bad(bad);
            }
            offsets.extend(more);
        }
        Located::Unknown
    }

    /// The shards without those in `bad`.
    fn without(&self, bad: &[usize]) -> Word<'_> {
        let mut shards = self.shards.clone();
        bad.iter().for_each(|ordinal| shards[*ordinal] = None);
        Word { shards, ..*self }
    }

    /// For each parity shard that decoding does not need: itself plus what the others make of it.
    fn differences(&self) -> Option<Vec<Vec<u8>>> {
        let (k, m) = (self.data_count, self.parity_count);
        let recovered = erasure::reconstruct(self.code, &self.shards, k, m, self.shard_len).ok()?;
        let used = recovered.len();
        let mut data: Vec<&[u8]> = self.shards[..k]
            .iter()
            .map(|shard| shard.unwrap_or_default())
            .collect();
        for (ordinal, shard) in &recovered {
            data[*ordinal] = shard;
        }
        let mut parity = erasure::encode(self.code, &data, m, self.shard_len).ok()?;
        let surplus = (0..m)
            .filter(|index| self.shards[k + index].is_some())
            .skip(used);
        let differences: Vec<Vec<u8>> = surplus
            .map(|index| {
                let mut difference = std::mem::take(&mut parity[index]);
                let held = self.shards[k + index].unwrap_or_default();
                difference
                    .iter_mut()
                    .zip(held)
                    .for_each(|(byte, held)| *byte ^= held);
                difference
            })
            .collect();
        (!differences.is_empty()).then_some(differences)
    }

    fn vector(&self, differences: &[Vec<u8>], offset: usize) -> Vec<u8> {
        differences
            .iter()
            .map(|difference| element(self.code, difference[offset]))
            .collect()
    }

    /// What an error of one in each held shard does to the differences: the parity-check columns.
    /// They come from the code itself, applied to shards that hold a single one each.
    fn columns(&self, held: &[usize]) -> Vec<Vec<u8>> {
        let shard_len = held.len().next_multiple_of(64);
        let units: Vec<Vec<u8>> = (0..held.len())
            .map(|place| {
                let mut unit = vec![0; shard_len];
                unit[place] = 1;
                unit
            })
            .collect();
        let mut shards = vec![None; self.shards.len()];
        for (ordinal, unit) in held.iter().zip(&units) {
            shards[*ordinal] = Some(unit.as_slice());
        }
        let differences = Word {
            shards,
            shard_len,
            ..*self
        }
        .differences()
        .unwrap_or_default();
        (0..held.len())
            .map(|place| self.vector(&differences, place))
            .collect()
    }

    /// The fewest shards that explain the differences at the sampled offsets.
    fn explain(
        &self,
        vectors: &[Vec<u8>],
        held: &[usize],
        columns: &[Vec<u8>],
        offsets: &[usize],
    ) -> Option<Vec<usize>> {
        let mut span = Span::default();
        vectors.iter().for_each(|vector| {
            span.add(vector);
        });
        if span.dimension() == 0 {
            return Some(Vec::new());
        }
        let inside = |column: &&Vec<u8>| span.contains(column);
        let bad: Vec<usize> = held
            .iter()
            .zip(columns)
            .filter(|(_, column)| inside(column))
            .map(|(ordinal, _)| *ordinal)
            .collect();
        if bad.len() == span.dimension() {
            return Some(bad);
        }
        self.explain_each(held, offsets)
    }

    /// Bounded-distance decoding of single words, whose bad places are then taken together.
    fn explain_each(&self, held: &[usize], offsets: &[usize]) -> Option<Vec<usize>> {
        let points = Points::of(self, held)?;
        let mut bad = std::collections::BTreeSet::new();
        for offset in offsets {
            let word: Vec<u8> = held
                .iter()
                .map(|ordinal| {
                    let shard = self.shards[*ordinal].unwrap_or_default();
                    element(self.code, shard.get(*offset).copied().unwrap_or(0))
                })
                .collect();
            bad.extend(points.errors(&word, held.len() - self.data_count)?);
        }
        Some(bad.into_iter().map(|place| held[place]).collect())
    }
}

/// Up to `count` offsets at which any difference is not zero, spread evenly.
fn sample(differences: &[Vec<u8>], count: usize) -> Vec<usize> {
    let mut any = differences.first().cloned().unwrap_or_default();
    for difference in differences.iter().skip(1) {
        any.iter_mut()
            .zip(difference)
            .for_each(|(byte, other)| *byte |= other);
    }
    let wrong = any.iter().filter(|byte| **byte != 0).count();
    let step = wrong.div_ceil(count.max(1)).max(1);
    let offsets = any
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte != 0)
        .map(|(offset, _)| offset);
    offsets.step_by(step).collect()
}

/// The held shards as a generalised Reed-Solomon code: evaluation points, and the multipliers that
/// make its parity checks powers of the points.
struct Points {
    points: Vec<u8>,
    multipliers: Vec<u8>,
}

impl Points {
    /// `None` where the code is not of that form (a single data shard) or fills the whole field.
    fn of(word: &Word<'_>, held: &[usize]) -> Option<Self> {
        let (k, m) = (word.data_count, word.parity_count);
        if k < 2 || m < 2 {
            return None;
        }
        let rows = m.next_power_of_two();
        // Leopard: P + j for data shard j, i for parity shard i; vandermonde: 0 .. n - 1.
        let raw_point = |ordinal: usize| match word.code {
            ErasureCode::Vandermonde => ordinal,
            ErasureCode::Leopard if ordinal < k => rows + ordinal,
            ErasureCode::Leopard => ordinal - k,
        };
        let point = |ordinal: usize| {
            u8::try_from(raw_point(ordinal))
                .ok()
                .map(|byte| element(word.code, byte))
        };
        let all: Vec<u8> = (0..k + m).map(point).collect::<Option<_>>()?;
        // Moving all points by a constant changes nothing but keeps zero out of them.
        let shift = (0..=255).find(|shift| held.iter().all(|ordinal| all[*ordinal] != *shift))?;
        let over = |from: u8, others: &mut dyn Iterator<Item = usize>| {
            others.fold(1, |product_so_far, other| {
                product(product_so_far, from ^ all[other])
            })
        };
        let multipliers = held
            .iter()
            .map(|ordinal| {
                let own = all[*ordinal];
                let mut held_others = held.iter().copied().filter(|other| other != ordinal);
                let held_product = over(own, &mut held_others);
                inverse(product(
                    weight(word, *ordinal, own, rows, &over),
                    held_product,
                ))
            })
            .collect();
        let points = held.iter().map(|ordinal| all[*ordinal] ^ shift).collect();
        Some(Points {
            points,
            multipliers,
        })
    }

    /// Places of the errors in one word, at most half of `checks` of them.
    fn errors(&self, word: &[u8], checks: usize) -> Option<Vec<usize>> {
        let mut terms: Vec<u8> = word
            .iter()
            .zip(&self.multipliers)
            .map(|(byte, by)| product(*byte, *by))
            .collect();
        let mut syndromes = Vec::with_capacity(checks);
        for _ in 0..checks {
            syndromes.push(terms.iter().fold(0, |sum, term| sum ^ term));
            for (term, point) in terms.iter_mut().zip(&self.points) {
                *term = product(*term, *point);
            }
        }
        if syndromes.iter().all(|syndrome| *syndrome == 0) {
            return Some(Vec::new());
        }
        let (locator, length) = shortest_recurrence(&syndromes);
        let roots: Vec<usize> = (0..self.points.len())
            .filter(|place| {
                let at = inverse(self.points[*place]);
                locator
                    .iter()
                    .rev()
                    .fold(0, |sum, term| product(sum, at) ^ term)
                    == 0
            })
            .collect();
        (roots.len() == length && 2 * length <= checks).then_some(roots)
    }
}

/// The factor between a shard and the value of the message polynomial at its point.
fn weight(
    word: &Word<'_>,
    ordinal: usize,
    own: u8,
    rows: usize,
    over: &dyn Fn(u8, &mut dyn Iterator<Item = usize>) -> u8,
) -> u8 {
    let k = word.data_count;
    match word.code {
        ErasureCode::Vandermonde => 1,
        // Parity row i is the sum over j of ((P + j) >> log2 P) / (P + j + i) x shard j.
        ErasureCode::Leopard if ordinal < k => {
            let numerator = ((rows + ordinal) >> rows.trailing_zeros()) as u8;
            let scale = element(word.code, numerator);
            inverse(product(
                scale,
                over(own, &mut (0..k).filter(|other| *other != ordinal)),
            ))
        }
        ErasureCode::Leopard => inverse(over(own, &mut (0..k))),
    }
}

/// Berlekamp-Massey: the error locator of the syndromes, and its length.
fn shortest_recurrence(syndromes: &[u8]) -> (Vec<u8>, usize) {
    let (mut current, mut previous) = (vec![1u8], vec![1u8]);
    let (mut length, mut gap, mut scale) = (0, 1, 1u8);
    for (step, syndrome) in syndromes.iter().enumerate() {
        let discrepancy = (1..current.len().min(step + 1)).fold(*syndrome, |sum, i| {
            sum ^ product(current[i], syndromes[step - i])
        });
        if discrepancy == 0 {
            gap += 1;
            continue;
        }
        let factor = product(discrepancy, inverse(scale));
        let before = current.clone();
        current.resize(current.len().max(previous.len() + gap), 0);
        for (i, term) in previous.iter().enumerate() {
            current[i + gap] ^= product(factor, *term);
        }
        if 2 * length <= step {
            length = step + 1 - length;
            (previous, scale, gap) = (before, discrepancy, 1);
        } else {
            gap += 1;
        }
    }
    (current, length)
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;

//! Which of more than k shards are wrong, by linear algebra on the bytes at equal offsets.
//!
//! The shards at one offset are a word of a Reed-Solomon code; r shards beyond k give r
//! differences that are zero for a codeword. Over many offsets (an interleaved code) the
//! differences of e bad shards span a space of dimension e when they are corrupted independently,
//! and the shards whose own column lies in that space are the bad ones: up to r - 1 of them. What
//! was crafted to span less is decoded offset by offset, up to r / 2, and then by a bounded search.
//!
//! A few offsets are looked at first: that costs nothing beside a hash, and tells most often
//! whether the shards are this code's at all and which are bad. What is left is then checked in
//! full, which costs one row of a product for each shard that is still to spare.

use super::field::{Span, element};
use super::syndrome_decoder::{Explained, SyndromeDecoder, word_work};
use super::word::Word;
use super::work::products_work;
use crate::erasure;

/// Stretches of neighbouring offsets that are sampled, spread over the shard.
const STRETCHES_MIN: usize = 16;

/// Offsets in a stretch: a cache line is fetched for all of them.
const STRETCH: usize = 8;

/// Offsets added by a full check that finds a contradiction, and one more for every so many shards to
/// spare: those make a check dear.
const SUSPECTS_PER_CHECK: usize = 4;
const SURPLUS_PER_SUSPECT: usize = 4;

/// A column must be a multiple of this long for Leopard.
const ALIGNMENT: usize = 64;

/// A look at shards costs this beside what grows with them, in bytes of hashing.
const LOOK_WORK: u64 = 1024;

/// Gathering a byte, or making an element, costs the hash of so many: it lies in a cache line of its own.
const GATHER_WORK: u64 = 2;

/// What a search may use, and what it found out on its way.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Offsets where shards contradicted each other before.
    pub suspects: Vec<usize>,
    /// What guesses of bad shards may take where nothing else explains the differences.
    pub guess_work_max: u64,
    /// No check of whole shards begins once so much was taken, but the first.
    pub work_max: u64,
    /// Offsets found by this search.
    pub found: Vec<usize>,
    /// What was taken, in bytes of hashing.
    pub work: u64,
}

/// What the held shards say of each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Located {
    /// The bad shards by ordinal; none where all are consistent.
    Bad(Vec<usize>),
    /// They are not this code's, or too many are bad.
    Unknown,
}

/// What one look at k + m shards takes, all of which are there, in bytes of hashing; without parity there is
/// nothing to look at.
pub(super) fn work_of((k, m): (usize, usize), shard_len: usize) -> u64 {
    if m == 0 {
        return 0;
    }
    let offsets = shard_len.min(stretches_of(m) * STRETCH);
    let words = m.min(offsets) as u64 * word_work(k + m, m);
    let span = m.pow(3) as u64 / 2;
    look_work((k, m), offsets) + span + words + products_work(k, m, shard_len)
}

/// What it takes to gather so many offsets of k + m held shards, and the coefficients of m of them.
fn look_work((k, m): (usize, usize), offsets: usize) -> u64 {
    let gathered = (k + m) * (m + offsets.next_multiple_of(ALIGNMENT));
    LOOK_WORK + gathered as u64 * GATHER_WORK + products_work(k, m, offsets)
}

/// Stretches that are sampled: four offsets at least for every difference.
fn stretches_of(surplus: usize) -> usize {
    STRETCHES_MIN.max(surplus.div_ceil(2))
}

impl Word<'_> {
    /// Names the bad shards. What is left is consistent at every offset and more than k.
    pub fn locate(&self, search: &mut Search) -> Located {
        self.try_locate(search)
            .map_or(Located::Unknown, Located::Bad)
    }

    fn try_locate(&self, search: &mut Search) -> Option<Vec<usize>> {
        let held = self.held();
        let surplus = held.len().checked_sub(self.data_count).filter(|s| *s > 0)?;
        let columns = self.columns(&held);
        let mut offsets = self.spread(surplus);
        let known = search.suspects.iter().copied();
        offsets.extend(known.filter(|offset| *offset < self.shard_len));
        let sampled = offsets.len();
        // A check that fails adds offsets that the last answer did not explain. Where corruption is
        // independent the span grows with each, and it has at most `surplus` dimensions.
        for _ in 0..=surplus {
            let gathered = self.gather(&offsets);
            search.work += look_work((self.data_count, surplus), offsets.len());
            let bad = self
                .at(&gathered)
                .explain(&held, &columns, sampled, search)?;
            if bad.len() >= surplus {
                return None;
            }
            search.work += products_work(self.data_count, surplus - bad.len(), self.shard_len);
            let suspects = SUSPECTS_PER_CHECK + surplus / SURPLUS_PER_SUSPECT;
            let contradicting = sample(&self.without(&bad).differences()?, suspects);
            if contradicting.is_empty() {
                return Some(bad);
            }
            search.found.extend(&contradicting);
            offsets.extend(contradicting);
            if search.work >= search.work_max {
                break;
            }
        }
        None
    }

    /// Offsets in stretches over the whole shard.
    fn spread(&self, surplus: usize) -> Vec<usize> {
        let stretches = stretches_of(surplus);
        if self.shard_len <= stretches * STRETCH {
            return (0..self.shard_len).collect();
        }
        let between = (self.shard_len - STRETCH) / (stretches - 1);
        (0..stretches)
            .flat_map(|stretch| stretch * between..stretch * between + STRETCH)
            .collect()
    }

    /// The bytes of each held shard at `offsets`.
    fn gather(&self, offsets: &[usize]) -> Vec<Option<Vec<u8>>> {
        let length = offsets.len().next_multiple_of(ALIGNMENT);
        let gather = |shard: &&[u8]| {
            let bytes = offsets.iter().map(|offset| shard.get(*offset).copied());
            let mut bytes: Vec<u8> = bytes.map(Option::unwrap_or_default).collect();
            bytes.resize(length, 0);
            bytes
        };
        self.shards
            .iter()
            .map(|shard| shard.as_ref().map(gather))
            .collect()
    }

    /// The word that `gathered` is.
    fn at<'a>(&self, gathered: &'a [Option<Vec<u8>>]) -> Word<'a> {
        let shards: Vec<Option<&[u8]>> = gathered.iter().map(Option::as_deref).collect();
        let shard_len = shards.iter().flatten().map(|shard| shard.len()).max();
        Word {
            shards,
            shard_len: shard_len.unwrap_or(0),
            ..*self
        }
    }

    /// The shards without those in `bad`.
    fn without(&self, bad: &[usize]) -> Word<'_> {
        let mut shards = self.shards.clone();
        bad.iter().for_each(|ordinal| shards[*ordinal] = None);
        Word { shards, ..*self }
    }

    /// For each shard beyond the first k: itself plus what those make of it.
    fn differences(&self) -> Option<Vec<Vec<u8>>> {
        let held = self.held();
        let (sources, targets) = held.split_at_checked(self.data_count)?;
        let bytes = |ordinal: &usize| self.shards[*ordinal].unwrap_or_default();
        let sources: Vec<(usize, &[u8])> = sources.iter().map(|o| (*o, bytes(o))).collect();
        let counts = (self.data_count, self.parity_count);
        let mut made =
            erasure::remake(self.code, counts, &sources, targets, self.shard_len).ok()?;
        for (difference, ordinal) in made.iter_mut().zip(targets) {
            let held = bytes(ordinal);
            let pairs = difference.iter_mut().zip(held);
            pairs.for_each(|(byte, held)| *byte ^= held);
        }
        Some(made)
    }

    /// What an error of one in each held shard does to the differences: the parity-check columns.
    fn columns(&self, held: &[usize]) -> Vec<Vec<u8>> {
        let (sources, targets) = held.split_at(self.data_count);
        let counts = (self.data_count, self.parity_count);
        let rows = erasure::coefficients(self.code, counts, sources, targets);
        let of_source = |place| {
            let entries = rows.iter().map(move |row: &Vec<u8>| row[place]);
            entries.map(|byte| element(self.code, byte)).collect()
        };
        let of_target = |place| (0..rows.len()).map(|row| u8::from(row == place)).collect();
        (0..sources.len())
            .map(of_source)
            .chain((0..targets.len()).map(of_target))
            .collect()
    }

    /// The fewest shards that explain the differences at every offset of a gathered word. Offsets
    /// from `sampled` on are each looked at where the span as a whole tells nothing.
    fn explain(
        &self,
        held: &[usize],
        columns: &[Vec<u8>],
        sampled: usize,
        search: &mut Search,
    ) -> Option<Vec<usize>> {
        let differences = self.differences()?;
        let (mut span, mut telling) = (Span::default(), Vec::new());
        for offset in 0..self.shard_len {
            if differences.iter().all(|difference| difference[offset] == 0) {
                continue;
            }
            let bytes = differences.iter().map(|difference| difference[offset]);
            let vector: Vec<u8> = bytes.map(|byte| element(self.code, byte)).collect();
            if span.add(&vector) || offset >= sampled {
                telling.push(offset);
            }
            if span.dimension() >= differences.len() {
                search.work += span.products();
                return None;
            }
        }
        let inside = held
            .iter()
            .zip(columns)
            .filter(|(_, column)| span.contains(column));
        let bad: Vec<usize> = inside.map(|(ordinal, _)| *ordinal).collect();
        search.work += span.products();
        if bad.len() == span.dimension() {
            return Some(bad);
        }
        self.explain_each(held, &telling, search)
    }

    /// Decoding of single words, whose bad places are then taken together.
    fn explain_each(
        &self,
        held: &[usize],
        offsets: &[usize],
        search: &mut Search,
    ) -> Option<Vec<usize>> {
        let decoder = SyndromeDecoder::of(self, held)?;
        let word_at = |offset: usize| -> Vec<u8> {
            let bytes = held.iter().map(|ordinal| self.shards[*ordinal]);
            bytes
                .map(|shard| element(self.code, shard.map_or(0, |shard| shard[offset])))
                .collect()
        };
        let checks = held.len() - self.data_count;
        let mut bad = std::collections::BTreeSet::new();
        for offset in offsets {
            search.work += word_work(held.len(), checks);
            match decoder.errors(&word_at(*offset), checks) {
                Some(errors) => bad.extend(errors),
                None => return self.guess(held, &decoder, &word_at(*offset), search),
            }
        }
        Some(bad.into_iter().map(|place| held[place]).collect())
    }

    /// Takes some shards for bad, so that the rest of the errors is few enough to be decoded.
    fn guess(
        &self,
        held: &[usize],
        decoder: &SyndromeDecoder,
        word: &[u8],
        search: &mut Search,
    ) -> Option<Vec<usize>> {
        let checks = held.len() - self.data_count;
        let explains = |places: &[usize]| {
            let bad: Vec<usize> = places.iter().map(|place| held[*place]).collect();
            let rest = (bad.len() < checks).then(|| self.without(&bad).differences());
            let differences = rest.flatten()?;
            let is_word = differences.iter().flatten().all(|byte| *byte == 0);
            is_word.then_some(bad)
        };
        let explain_work = look_work((self.data_count, checks), self.shard_len);
        let Explained { answer, work } = decoder.errors_beyond(
            word,
            checks,
            [search.guess_work_max, explain_work],
            explains,
        );
        search.work += work;
        answer
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

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;

//! Syndrome decoding of single words, of either code: it finds up to half as many errors as there are spare
//! shards, and one more for every two that are guessed.

use super::field::{element, inverse, product, product_of_all, products_of};
use super::word::Word;
use crate::erasure::ErasureCode;

/// Decoding one word costs as much as hashing this many bytes, and what its length makes of it.
const DECODE_WORK: usize = 64;

/// What a search by guesses gave and cost.
pub(super) struct Explained {
    pub answer: Option<Vec<usize>>,
    pub work: u64,
}

/// The held shards as a generalised Reed-Solomon code: evaluation points, and the multipliers that
/// make its parity checks powers of the points.
pub(super) struct SyndromeDecoder {
    points: Vec<u8>,
    multipliers: Vec<u8>,
}

/// What decoding a word of so many shards takes, `checks` of them to spare, in bytes of hashing.
pub(super) fn word_work(shards: usize, checks: usize) -> u64 {
    (DECODE_WORK + checks * (checks + shards) / 2) as u64
}

impl SyndromeDecoder {
    /// `None` where the code is not of that form (a single data shard) or fills the whole field.
    pub fn of(word: &Word<'_>, held: &[usize]) -> Option<Self> {
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
        let multipliers = held
            .iter()
            .map(|ordinal| {
                let others = held.iter().filter(|other| *other != ordinal);
                let apart = others.map(|other| all[*ordinal] ^ all[*other]);
                let weight = weight(word, *ordinal, &all, rows);
                inverse(product(weight, product_of_all(apart)))
            })
            .collect();
        let points = held.iter().map(|ordinal| all[*ordinal] ^ shift).collect();
        Some(SyndromeDecoder {
            points,
            multipliers,
        })
    }

    /// Places of the errors in one word, at most half of `checks` of them.
    pub fn errors(&self, word: &[u8], checks: usize) -> Option<Vec<usize>> {
        self.roots(&self.syndromes(word, checks))
    }

    /// Places of more errors in one word: of each choice of some places that would make the rest
    /// few enough, the errors, as long as `explains` does not take them and less than `work_max` was
    /// taken. To ask that costs `explain_work`.
    pub fn errors_beyond(
        &self,
        word: &[u8],
        checks: usize,
        [work_max, explain_work]: [u64; 2],
        explains: impl Fn(&[usize]) -> Option<Vec<usize>>,
    ) -> Explained {
        let syndromes = self.syndromes(word, checks);
        let guess_work = word_work(self.points.len(), checks);
        let (mut work, mut answer) = (0, None);
        // A guess takes a check away: only every second one leaves fewer errors than it costs.
        for count in (2 - checks % 2..checks).step_by(2) {
            let mut chosen: Vec<usize> = (0..count).collect();
            while answer.is_none() && work < work_max {
                work += guess_work;
                if let Some(places) = self.errors_besides(&syndromes, &chosen) {
                    work += explain_work;
                    answer = explains(&places);
                }
                if !next_choice(&mut chosen, self.points.len()) {
                    break;
                }
            }
        }
        Explained { answer, work }
    }

    /// Places of the errors where those at `chosen` are among them.
    fn errors_besides(&self, syndromes: &[u8], chosen: &[usize]) -> Option<Vec<usize>> {
        let mut rest = syndromes.to_vec();
        for place in chosen {
            // Takes the term of this place out of every syndrome, at the price of the last one.
            for index in 1..rest.len() {
                rest[index - 1] = rest[index] ^ product(rest[index - 1], self.points[*place]);
            }
            rest.pop();
        }
        let mut places = self.roots(&rest)?;
        places.extend(chosen);
        places.sort_unstable();
        places.dedup();
        Some(places)
    }

    fn syndromes(&self, word: &[u8], checks: usize) -> Vec<u8> {
        let pairs = word.iter().zip(&self.multipliers);
        let mut terms: Vec<u8> = pairs.map(|(byte, by)| product(*byte, *by)).collect();
        let mut syndromes = Vec::with_capacity(checks);
        for _ in 0..checks {
            syndromes.push(terms.iter().fold(0, |sum, term| sum ^ term));
            for (term, point) in terms.iter_mut().zip(&self.points) {
                *term = product(*term, *point);
            }
        }
        syndromes
    }

    /// The places whose errors give these syndromes, at most half as many.
    fn roots(&self, syndromes: &[u8]) -> Option<Vec<usize>> {
        if syndromes.iter().all(|syndrome| *syndrome == 0) {
            return Some(Vec::new());
        }
        let (locator, length) = shortest_recurrence(syndromes);
        if 2 * length > syndromes.len() {
            return None;
        }
        let roots: Vec<usize> = (0..self.points.len())
            .filter(|place| {
                let at = inverse(self.points[*place]);
                let products = products_of(at);
                let terms = locator.iter().rev();
                terms.fold(0, |sum, term| products[usize::from(sum)] ^ term) == 0
            })
            .collect();
        (roots.len() == length).then_some(roots)
    }
}

/// The next of all choices of as many of `count` places, in order; false after the last.
fn next_choice(chosen: &mut [usize], count: usize) -> bool {
    let size = chosen.len();
    let movable = (0..size)
        .rev()
        .find(|place| chosen[*place] < count - size + place);
    let Some(place) = movable else { return false };
    chosen[place] += 1;
    for following in place + 1..size {
        chosen[following] = chosen[following - 1] + 1;
    }
    true
}

/// The factor between a shard and the value of the message polynomial at its point; `all` are the points.
fn weight(word: &Word<'_>, ordinal: usize, all: &[u8], rows: usize) -> u8 {
    let k = word.data_count;
    let own = all[ordinal];
    match word.code {
        ErasureCode::Vandermonde => 1,
        // Parity row i is the sum over j of ((P + j) >> log2 P) / (P + j + i) x shard j.
        ErasureCode::Leopard if ordinal < k => {
            let numerator = ((rows + ordinal) >> rows.trailing_zeros()) as u8;
            let others = (0..k).filter(|other| *other != ordinal);
            let apart = product_of_all(others.map(|other| own ^ all[other]));
            inverse(product(element(word.code, numerator), apart))
        }
        ErasureCode::Leopard => inverse(product_of_all((0..k).map(|other| own ^ all[other]))),
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
        let products = products_of(factor);
        for (i, term) in previous.iter().enumerate() {
            current[i + gap] ^= products[usize::from(*term)];
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

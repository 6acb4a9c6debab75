//! Places of contents in their send, as bits.

/// A set of ordinals: one participant's share of a send, say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordinals {
    /// The first 64, which most sends do not exceed.
    low: u64,
    high: Vec<u64>,
}

const WORD_BITS: u32 = u64::BITS;

impl Ordinals {
    /// None of them.
    pub const NONE: Ordinals = Ordinals {
        low: 0,
        high: Vec::new(),
    };

    /// All below `count`.
    pub fn all(count: u32) -> Self {
        let mask = |bits: u32| match bits {
            WORD_BITS.. => u64::MAX,
            _ => (1 << bits) - 1,
        };
        let words = count.div_ceil(WORD_BITS);
        let high = (1..words).map(|word| mask(count - word * WORD_BITS));
        Ordinals {
            low: mask(count),
            high: high.collect(),
        }
    }

    /// Whether `ordinal` is in it.
    pub fn contains(&self, ordinal: u32) -> bool {
        match ordinal.checked_sub(WORD_BITS) {
            None => self.low >> ordinal & 1 == 1,
            Some(rest) => {
                let word = self.high.get((rest / WORD_BITS) as usize);
                word.is_some_and(|word| word >> (rest % WORD_BITS) & 1 == 1)
            }
        }
    }

    /// Adds `ordinal`.
    pub fn insert(&mut self, ordinal: u32) {
        match ordinal.checked_sub(WORD_BITS) {
            None => self.low |= 1 << ordinal,
            Some(rest) => {
                let at = (rest / WORD_BITS) as usize;
                if self.high.len() <= at {
                    self.high.resize(at + 1, 0);
                }
                self.high[at] |= 1 << (rest % WORD_BITS);
            }
        }
    }

    /// Takes `ordinal` out.
    pub fn remove(&mut self, ordinal: u32) {
        let (at, bit) = (ordinal / WORD_BITS, ordinal % WORD_BITS);
        let word = match at.checked_sub(1) {
            None => Some(&mut self.low),
            Some(at) => self.high.get_mut(at as usize),
        };
        if let Some(word) = word {
            *word &= !(1 << bit);
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Ordinals) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        for (word, more) in self.high.iter_mut().zip(&other.high) {
            *word |= more;
        }
    }

    /// Leaves those below `count`.
    pub fn truncate(&mut self, count: u32) {
        let kept = Ordinals::all(count);
        self.low &= kept.low;
        self.high.truncate(kept.high.len());
        for (word, mask) in self.high.iter_mut().zip(&kept.high) {
            *word &= mask;
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.low.count_ones() + self.high.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    /// The first `width` bytes of the bits, the lowest first.
    pub fn bytes(&self, width: usize) -> impl Iterator<Item = u8> {
        let words = std::iter::once(self.low).chain(self.high.iter().copied());
        let bytes = words.flat_map(u64::to_le_bytes).chain(std::iter::repeat(0));
        bytes.take(width)
    }

    /// What [`Ordinals::bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut ordinals = Ordinals::NONE;
        for (at, byte) in bytes.iter().enumerate() {
            for bit in (0..u8::BITS).filter(|bit| byte >> bit & 1 == 1) {
                ordinals.insert(at as u32 * u8::BITS + bit);
            }
        }
        ordinals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_of_any_size_are_counted_and_stored() {
        for count in [0, 1, 63, 64, 65, 128, 129, 300] {
            let all = Ordinals::all(count);
            assert_eq!((all.count(), all.contains(count)), (count, false));
            let width = (count as usize).div_ceil(8);
            assert_eq!(
                Ordinals::from_bytes(&all.bytes(width).collect::<Vec<_>>()),
                all
            );
            let mut union = Ordinals::NONE;
            union.extend(&all);
            union.insert(count);
            // What is there stays there.
            union.insert(count);
            union.extend(&all);
            assert_eq!(union, Ordinals::all(count + 1));
            union.truncate(count);
            assert_eq!(union, all);
            union.insert(count);
            union.remove(count);
            union.remove(count + 300);
            assert_eq!((union.count(), union.contains(count)), (count, false));
        }
    }
}

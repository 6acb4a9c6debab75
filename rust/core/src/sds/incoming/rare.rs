//! Sets that most sends have no use for.

use std::borrow::Borrow;
use std::hash::Hash;

use hashlink::LinkedHashSet;

/// A set in the order of insertion that takes one word before something is put into it.
#[derive(Debug)]
pub struct RareSet<T>(Option<Box<LinkedHashSet<T>>>);

impl<T> Default for RareSet<T> {
    fn default() -> Self {
        RareSet(None)
    }
}

impl<T: Eq + Hash> RareSet<T> {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|set| set.is_empty())
    }

    /// How much is in it.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |set| set.len())
    }

    /// Whether something is in it.
    pub fn contains<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.as_ref().is_some_and(|set| set.contains(value))
    }

    /// What was put in first.
    pub fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    /// All of it, what was put in first coming first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|set| set.iter())
    }

    /// Puts a value at the end.
    pub fn insert(&mut self, value: T) {
        self.set().insert(value);
    }

    /// Puts a value in; one that is in it stays where it is.
    pub fn replace(&mut self, value: T) {
        self.set().replace(value);
    }

    /// Takes a value out; false where it was not in it.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.as_mut().is_some_and(|set| set.remove(value))
    }

    fn set(&mut self) -> &mut LinkedHashSet<T> {
        self.0.get_or_insert_with(|| Box::new(LinkedHashSet::new()))
    }
}

impl<T: Eq + Hash> IntoIterator for RareSet<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::option::IntoIter<LinkedHashSet<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|set| *set).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_insertion_and_is_empty_before_and_after() {
        let mut set = RareSet::default();
        assert!(set.is_empty() && set.front().is_none() && !set.remove(&1));
        for value in [3, 1, 2] {
            set.insert(value);
        }
        set.replace(3);
        assert_eq!(set.iter().copied().collect::<Vec<_>>(), [3, 1, 2]);
        set.insert(3);
        assert_eq!((set.front(), set.len()), (Some(&1), 3));
        assert!(set.remove(&1) && !set.contains(&1) && set.contains(&2));
        assert_eq!(set.into_iter().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(RareSet::<u8>::default().into_iter().count(), 0);
    }
}

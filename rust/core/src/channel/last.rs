//! Values by name, of which the last one counts.

use std::collections::HashMap;
use std::hash::Hash;

/// So many are searched one by one, which takes less than a table of them.
const SEARCHED_MAX: usize = 24;

/// The last value of each name, in the order in which those were put.
#[derive(Debug)]
pub(super) struct Last<K, V> {
    /// None where a later one stands.
    entries: Vec<Option<(K, V)>>,
    /// Where they are, once they are too many to search.
    places: HashMap<K, usize>,
}

impl<K, V> Default for Last<K, V> {
    fn default() -> Self {
        Last {
            entries: Vec::with_capacity(SEARCHED_MAX),
            places: HashMap::new(),
        }
    }
}

impl<K: Clone + Hash + Eq, V> Last<K, V> {
    /// Puts a value in the place of an earlier one.
    pub fn put(&mut self, name: K, value: V) {
        let next = self.entries.len();
        let earlier = if next <= SEARCHED_MAX {
            let is_it =
                |entry: &Option<(K, V)>| entry.as_ref().is_some_and(|(known, _)| *known == name);
            self.entries.iter().position(is_it)
        } else {
            if self.places.is_empty() {
                let entries = self.entries.iter().enumerate();
                self.places = entries
                    .filter_map(|(at, entry)| entry.as_ref().map(|(name, _)| (name.clone(), at)))
                    .collect();
            }
            self.places.insert(name.clone(), next)
        };
        if let Some(entry) = earlier.and_then(|at| self.entries.get_mut(at)) {
            *entry = None;
        }
        self.entries.push(Some((name, value)));
    }

    /// All of them.
    pub fn into_values(self) -> impl Iterator<Item = (K, V)> {
        self.entries.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use hashlink::LinkedHashMap;
    use proptest::prelude::*;

    use super::{Last, SEARCHED_MAX};

    proptest! {
        #[test]
        fn the_last_value_of_each_name_counts_and_stands_where_it_was_put(
            puts in prop::collection::vec((0..40_u8, any::<u8>()), 0..4 * SEARCHED_MAX),
        ) {
            let (mut last, mut expected) = (Last::default(), LinkedHashMap::new());
            for (name, value) in puts {
                last.put(name, value);
                expected.insert(name, value);
            }
            prop_assert_eq!(last.into_values().collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        }
    }
}

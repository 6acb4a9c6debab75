//! What changes amount to, one after the other.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use hashbrown::hash_table::{AbsentEntry, OccupiedEntry};
use hashlink::DefaultHashBuilder;

use super::body::{Change, Named};
use crate::maps::hash_of_tag;

/// Gaps that are left in any case before the records behind them move up.
const GAPS_MIN: usize = 64;

/// A part of the hash of a name, which tells most apart, and where its record lies.
type Place = (u32, u32);

/// Records by name, in the order in which they were put.
#[derive(Debug)]
pub struct Table<K, V> {
    hasher: DefaultHashBuilder,
    /// It grows by the parts of hashes alone: no record is touched.
    places: HashTable<Place>,
    /// One that is put anew or deleted leaves a gap.
    records: Vec<Option<(K, Option<V>)>>,
    keeps_deleted: bool,
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// An empty one: of all records there are, or of what changed of others where deleted ones are kept too.
    pub fn new(keeps_deleted: bool) -> Self {
        Table {
            hasher: DefaultHashBuilder::default(),
            places: HashTable::new(),
            records: Vec::new(),
            keeps_deleted,
        }
    }

    /// Puts a record; `None` deletes it.
    pub fn change(&mut self, name: K, value: Option<V>) {
        if value.is_none() && !self.keeps_deleted {
            return self.remove(&name);
        }
        let place = self.records.len() as u32;
        match self.entry(&name) {
            (_, Ok(mut held)) => {
                let old = std::mem::replace(&mut held.get_mut().1, place);
                self.records[old as usize] = None;
            }
            (tag, Err(vacant)) => {
                let rehash = |(tag, _): &Place| hash_of_tag(*tag);
                let table = vacant.into_table();
                table.insert_unique(hash_of_tag(tag), (tag, place), rehash);
            }
        }
        self.records.push(Some((name, value)));
        self.close_gaps();
    }

    fn remove(&mut self, name: &K) {
        if let (_, Ok(held)) = self.entry(name) {
            let ((_, old), _) = held.remove();
            self.records[old as usize] = None;
            self.close_gaps();
        }
    }

    /// The tag of a name, and its place where it has one.
    fn entry(
        &mut self,
        name: &K,
    ) -> (
        u32,
        Result<OccupiedEntry<'_, Place>, AbsentEntry<'_, Place>>,
    ) {
        let tag = self.hasher.hash_one(name) as u32;
        let records = &self.records;
        let is_it = |&(other, place): &Place| {
            let record = records[place as usize].as_ref();
            other == tag && record.is_some_and(|(held, _)| held == name)
        };
        (tag, self.places.find_entry(hash_of_tag(tag), is_it))
    }

    /// Moves records up where more than half of the places are gaps, so that each is moved once for each put at most.
    fn close_gaps(&mut self) {
        if self.records.len() - self.places.len() <= self.places.len() + GAPS_MIN {
            return;
        }
        let mut held = 0;
        let mut moved = Vec::with_capacity(self.records.len());
        for record in &self.records {
            moved.push(held);
            held += u32::from(record.is_some());
        }
        for (_, place) in &mut self.places {
            *place = moved[*place as usize];
        }
        self.records.retain(Option::is_some);
        self.records.shrink_to(2 * self.records.len() + GAPS_MIN);
    }

    /// Applies the changes of one row: all of them, or none and false where `value` has none for one that is put.
    #[must_use]
    pub fn apply<'a>(
        &mut self,
        names: &[Named<'a>],
        name: impl Fn(&Named<'a>) -> K,
        mut value: impl FnMut(&Named<'a>) -> Option<V>,
    ) -> bool {
        let mut values = Vec::with_capacity(names.len());
        for named in names {
            values.push(match named.change {
                Change::Put | Change::Apart(_) => match value(named) {
                    None => return false,
                    value => value,
                },
                Change::Delete | Change::Elsewhere => None,
            });
        }
        for (named, value) in names.iter().zip(values) {
            if named.change == Change::Elsewhere {
                // It stands where this table has nothing.
                self.remove(&name(named));
            } else {
                self.change(name(named), value);
            }
        }
        true
    }

    /// Deletes the records of which `is_meant`.
    pub fn delete(&mut self, is_meant: impl Fn(&K) -> bool) {
        let records = &mut self.records;
        self.places.retain(|(_, place)| {
            let record = &mut records[*place as usize];
            let stays = record.as_ref().is_some_and(|(name, _)| !is_meant(name));
            if !stays {
                *record = None;
            }
            stays
        });
        self.close_gaps();
    }

    /// What it holds, and `None` for what is deleted.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.records
            .iter()
            .flatten()
            .map(|(name, value)| (name, value.as_ref()))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl<K, V> IntoIterator for Table<K, V> {
    type Item = (K, Option<V>);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Option<(K, Option<V>)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GAPS_MIN, Table};
    use crate::journal::body::{Change, Named, Place};

    const PLACE: Place = Place {
        start: 0,
        size: 1,
        checksum: 2,
    };

    fn named(key: &'static [u8], change: Change) -> Named<'static> {
        Named {
            kind: "kind",
            key,
            value_bytes: 0,
            change,
        }
    }

    fn held<'a>(table: &'a Table<&'static [u8], u8>) -> Vec<(&'a [u8], Option<u8>)> {
        table
            .iter()
            .map(|(name, value)| (*name, value.copied()))
            .collect()
    }

    #[test]
    fn what_is_deleted_is_kept_or_not() {
        for (keeps_deleted, expected) in [(true, vec![(&b"a"[..], None)]), (false, vec![])] {
            let mut table = Table::new(keeps_deleted);
            table.change(&b"a"[..], Some(1));
            assert_eq!(held(&table), [(&b"a"[..], Some(1))]);
            table.change(b"a", None);
            assert_eq!(held(&table), expected);
            assert_eq!(
                (table.len(), table.is_empty()),
                (expected.len(), expected.is_empty())
            );
        }
    }

    #[test]
    fn a_row_is_applied_whole_or_not_at_all() {
        let mut table = Table::new(true);
        for key in [&b"a"[..], b"b", b"c", b"d"] {
            table.change(key, Some(0));
        }
        let row = [
            named(b"a", Change::Put),
            named(b"b", Change::Delete),
            named(b"c", Change::Elsewhere),
            named(b"e", Change::Apart(PLACE)),
        ];
        let before = held(&table).len();
        assert!(!table.apply(
            &row,
            |named| named.key,
            |named| (named.key != b"e").then_some(7)
        ));
        assert_eq!(
            held(&table),
            [&b"a"[..], b"b", b"c", b"d"].map(|key| (key, Some(0)))
        );
        assert!(table.apply(&row, |named| named.key, |_| Some(7)));
        let expected: [(&[u8], _); 4] = [
            (b"d", Some(0)),
            (b"a", Some(7)),
            (b"b", None),
            (b"e", Some(7)),
        ];
        assert_eq!((held(&table).as_slice(), before), (&expected[..], 4));
    }

    #[test]
    fn those_that_are_meant_are_deleted() {
        let mut table = Table::new(false);
        table.change(&b"ab"[..], Some(1));
        table.change(b"b", Some(2));
        table.delete(|name| name.starts_with(b"a"));
        assert_eq!(held(&table), [(&b"b"[..], Some(2))]);
    }

    proptest! {
        #[test]
        fn records_stay_in_the_order_in_which_they_were_put(
            keeps_deleted in any::<bool>(),
            changes in prop::collection::vec((0..100_u16, any::<Option<u8>>()), 0..1_000),
            deleted in 0..20_u16,
        ) {
            let mut table = Table::new(keeps_deleted);
            let mut expected: Vec<(u16, Option<u8>)> = Vec::new();
            for (name, value) in changes {
                table.change(name, value);
                expected.retain(|(held, _)| *held != name);
                if keeps_deleted || value.is_some() {
                    expected.push((name, value));
                }
                prop_assert_eq!(table.len(), expected.len());
                prop_assert!(table.records.len() <= 2 * table.len() + GAPS_MIN);
            }
            table.delete(|name| *name < deleted);
            expected.retain(|(name, _)| *name >= deleted);
            prop_assert_eq!(table.len(), expected.len());
            let held: Vec<_> = table.iter().map(|(name, value)| (*name, value.copied())).collect();
            prop_assert_eq!(&held, &expected);
            prop_assert_eq!(table.into_iter().collect::<Vec<_>>(), expected);
        }
    }
}

//! What changes amount to, one after the other.

use std::hash::Hash;

use hashlink::LinkedHashMap;

use super::body::{Change, Named};

/// Records by name, in the order in which they were put.
#[derive(Debug)]
pub struct Table<K, V> {
    records: LinkedHashMap<K, Option<V>>,
    keeps_deleted: bool,
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// An empty one: of all records there are, or of what changed of others where deleted ones are kept too.
    pub fn new(keeps_deleted: bool) -> Self {
        Table {
            records: LinkedHashMap::new(),
            keeps_deleted,
        }
    }

    /// Puts a record; `None` deletes it.
    pub fn change(&mut self, name: K, value: Option<V>) {
        if value.is_some() || self.keeps_deleted {
            self.records.insert(name, value);
        } else {
            self.records.remove(&name);
        }
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
                self.records.remove(&name(named));
            } else {
                self.change(name(named), value);
            }
        }
        true
    }

    /// Deletes the records of which `is_meant`.
    pub fn delete(&mut self, is_meant: impl Fn(&K) -> bool) {
        self.records.retain(|name, _| !is_meant(name));
    }

    /// What it holds, and `None` for what is deleted.
    pub fn iter(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.records
            .iter()
            .map(|(name, value)| (name, value.as_ref()))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl<K, V> IntoIterator for Table<K, V> {
    type Item = (K, Option<V>);
    type IntoIter = hashlink::linked_hash_map::IntoIter<K, Option<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
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
}

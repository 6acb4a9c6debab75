//! Values of a slab by name.

use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;

use hashbrown::HashTable;
use hashlink::DefaultHashBuilder;

use super::slab::{Handle, Slab};
use crate::maps::hash_of_tag;

/// What an [`Index`] finds by its name, which stays the same.
pub trait Named {
    /// Its name in UTF-8.
    fn name(&self) -> &[u8];
}

/// A table of slots: the names lie in the values alone.
#[derive(Debug)]
pub struct Index<T> {
    /// Keyed at random, as those of all maps of names: no peer knows which names collide.
    hasher: DefaultHashBuilder,
    /// With a part of the hash: it tells most names apart, and the table grows by it alone.
    table: HashTable<(u32, u32)>,
    of: PhantomData<fn() -> T>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index {
            hasher: DefaultHashBuilder::default(),
            table: HashTable::new(),
            of: PhantomData,
        }
    }
}

impl<T: Named> Index<T> {
    /// The value of a name.
    pub fn find(&self, name: &[u8], values: &Slab<T>) -> Option<Handle<T>> {
        let wanted = self.tag_of(name);
        let is_it = |&(tag, slot): &(u32, u32)| {
            let value = || values.at(slot).map(|(_, value)| value.name());
            tag == wanted && value() == Some(name)
        };
        let (_, slot) = self.table.find(hash_of_tag(wanted), is_it)?;
        values.at(*slot).map(|(handle, _)| handle)
    }

    /// Names held.
    #[cfg(debug_assertions)]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Holds a value whose name is not held yet.
    pub fn insert(&mut self, handle: Handle<T>, values: &Slab<T>) {
        let tag = self.tag_of(values[handle].name());
        let rehash = |(tag, _): &(u32, u32)| hash_of_tag(*tag);
        self.table
            .insert_unique(hash_of_tag(tag), (tag, handle.slot()), rehash);
    }

    /// Takes out the value that has, or had, a name.
    pub fn remove(&mut self, name: &[u8], handle: Handle<T>) {
        let hash = hash_of_tag(self.tag_of(name));
        let found = self
            .table
            .find_entry(hash, |(_, slot)| *slot == handle.slot());
        if let Ok(found) = found {
            found.remove();
        }
    }

    fn tag_of(&self, name: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name);
        hasher.finish() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Word(String);

    impl Named for Word {
        fn name(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }

    #[test]
    fn names_are_found_while_their_values_are_there() {
        const COUNT: usize = 3_000;
        let (mut words, mut index) = (Slab::default(), Index::default());
        let mut handles = Vec::new();
        for number in 0..COUNT {
            let handle = words.insert(Word(number.to_string()));
            index.insert(handle, &words);
            handles.push(handle);
        }
        for number in (0..COUNT).step_by(2) {
            let name = number.to_string();
            words.remove(handles[number]);
            index.remove(name.as_bytes(), handles[number]);
            assert_eq!(index.find(name.as_bytes(), &words), None);
            // Another value has its slot.
            let other = words.insert(Word(format!("{number}, later")));
            index.insert(other, &words);
            assert_eq!(other.slot(), handles[number].slot());
            handles[number] = other;
        }
        for (number, handle) in handles.iter().enumerate() {
            let later = if number % 2 == 0 { ", later" } else { "" };
            let name = format!("{number}{later}");
            assert_eq!(index.find(name.as_bytes(), &words), Some(*handle));
        }
        assert_eq!(index.table.len(), COUNT);
    }
}

//! Entries by id.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashlink::DefaultHashBuilder;

use super::entry::{Entry, EntryRef};
use crate::sds::slab::Slab;

/// A table of handles: the ids lie in the entries alone.
#[derive(Debug, Default)]
pub struct Index {
    /// Keyed at random, as those of all maps of names: no peer knows which ids collide.
    hasher: DefaultHashBuilder,
    table: HashTable<(u32, EntryRef)>,
}

impl Index {
    /// The entry of an id.
    pub fn find(&self, message_id: &[u8], entries: &Slab<Entry>) -> Option<EntryRef> {
        let hash = self.hasher.hash_one(message_id);
        let is_it = |&(tag, entry): &(u32, EntryRef)| {
            tag == hash as u32 && entries[entry].message_id.as_bytes() == message_id
        };
        self.table.find(hash, is_it).map(|(_, entry)| *entry)
    }

    /// Holds an entry whose id is not held yet.
    pub fn insert(&mut self, entry: EntryRef, entries: &Slab<Entry>) {
        let hash = self.hash_of(entry, entries);
        let rehash = |(_, entry): &(u32, EntryRef)| {
            self.hasher.hash_one(entries[*entry].message_id.as_bytes())
        };
        self.table.insert_unique(hash, (hash as u32, entry), rehash);
    }

    /// Takes an entry out, which the slab still holds.
    pub fn remove(&mut self, entry: EntryRef, entries: &Slab<Entry>) {
        let hash = self.hash_of(entry, entries);
        if let Ok(found) = self.table.find_entry(hash, |(_, held)| *held == entry) {
            found.remove();
        }
    }

    fn hash_of(&self, entry: EntryRef, entries: &Slab<Entry>) -> u64 {
        self.hasher.hash_one(entries[entry].message_id.as_bytes())
    }
}

//! Entries by id.

use std::hash::{BuildHasher, Hasher};

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
        let wanted = self.tag_of(message_id);
        let is_it = |&(tag, entry): &(u32, EntryRef)| {
            tag == wanted && entries[entry].message_id.as_bytes() == message_id
        };
        let found = self.table.find(hash_of(wanted), is_it);
        found.map(|(_, entry)| *entry)
    }

    /// Holds an entry whose id is not held yet.
    pub fn insert(&mut self, entry: EntryRef, entries: &Slab<Entry>) {
        let tag = self.tag_of(entries[entry].message_id.as_bytes());
        let rehash = |(tag, _): &(u32, EntryRef)| hash_of(*tag);
        self.table.insert_unique(hash_of(tag), (tag, entry), rehash);
    }

    /// Takes an entry out, which the slab still holds.
    pub fn remove(&mut self, entry: EntryRef, entries: &Slab<Entry>) {
        let tag = self.tag_of(entries[entry].message_id.as_bytes());
        let hash = hash_of(tag);
        if let Ok(found) = self.table.find_entry(hash, |(_, held)| *held == entry) {
            found.remove();
        }
    }

    fn tag_of(&self, message_id: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(message_id);
        hasher.finish() as u32
    }
}

/// The table takes an entry's place from the low bits and a mark of its own from the top ones: it
/// grows by the tags alone, without a look at the ids.
fn hash_of(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}

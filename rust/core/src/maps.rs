//! Maps and sets of names: keyed at random, so that no peer knows which names collide, with a quicker hash
//! than that of the standard library.

use hashlink::DefaultHashBuilder;

pub type HashMap<K, V> = std::collections::HashMap<K, V, DefaultHashBuilder>;
pub type HashSet<T> = std::collections::HashSet<T, DefaultHashBuilder>;

/// The hash that a `HashTable` is given of what has a tag of its hash beside it: it takes a place from the low bits, and
/// a mark of its own from the top ones.
pub fn hash_of_tag(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}

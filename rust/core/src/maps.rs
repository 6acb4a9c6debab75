//! Maps and sets of names: keyed at random, so that no peer knows which names collide, with a quicker hash
//! than that of the standard library.

use hashlink::DefaultHashBuilder;

pub type HashMap<K, V> = std::collections::HashMap<K, V, DefaultHashBuilder>;
pub type HashSet<T> = std::collections::HashSet<T, DefaultHashBuilder>;

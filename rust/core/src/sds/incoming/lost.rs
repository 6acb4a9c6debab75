//! Sends that nothing waits for, though something names them.

use hashlink::{LinkedHashMap, LinkedHashSet};

use crate::sds::name::Name;

/// Keys of sends; beyond a limit the oldest is forgotten.
#[derive(Debug)]
pub struct LostKeys {
    keys_max: usize,
    /// With whether it is asked for all the same when it is named: others may hold it.
    keys: LinkedHashMap<Name, bool>,
    /// For `poll_persist`.
    changed: LinkedHashSet<Name>,
}

impl LostKeys {
    /// None.
    pub fn new(keys_max: usize) -> Self {
        LostKeys {
            keys_max,
            keys: LinkedHashMap::new(),
            changed: LinkedHashSet::new(),
        }
    }

    /// Keys remembered.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing waits for `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether `key` is neither waited for nor asked for.
    pub fn is_settled(&self, key: &[u8]) -> bool {
        self.keys.get(key) == Some(&false)
    }

    /// Nothing waits for `key` again; with `askable` it is asked for when it is named.
    pub fn remember(&mut self, key: Name, askable: bool) {
        self.changed.replace(key.clone());
        match self.keys.get_mut(&key) {
            Some(known) => *known |= askable,
            None => {
                self.keys.insert(key, askable);
            }
        }
        if self.keys.len() > self.keys_max
            && let Some((forgotten, _)) = self.keys.pop_front()
        {
            self.changed.replace(forgotten);
        }
    }

    /// `key` is as if it had never been settled.
    pub fn forget(&mut self, key: &Name) {
        if self.keys.remove(key).is_some() {
            self.changed.replace(key.clone());
        }
    }

    /// Keys whose record changed since the last call, with whether each is askable where it is still
    /// remembered.
    pub fn poll_changed(&mut self) -> Vec<(Name, Option<bool>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|key| (key.clone(), self.keys.get(&key).copied()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_all_the_same_stays_so_and_the_oldest_is_forgotten() {
        let mut lost = LostKeys::new(2);
        for (key, askable, settled) in [
            ("a", false, true),
            ("a", true, false),
            ("a", false, false),
            ("b", true, false),
            ("b", true, false),
        ] {
            lost.remember(Name::new(key), askable);
            assert!(lost.contains(key.as_bytes()));
            assert_eq!(lost.is_settled(key.as_bytes()), settled, "{key}");
        }
        assert_eq!(lost.len(), 2);
        lost.poll_changed();
        lost.remember(Name::new("c"), false);
        assert_eq!(lost.len(), 2);
        assert!(!lost.contains(b"a") && !lost.is_settled(b"a"));
        lost.forget(&Name::new("b"));
        lost.forget(&Name::new("unknown"));
        let changed = [("c", Some(false)), ("a", None), ("b", None)];
        assert_eq!(
            lost.poll_changed(),
            changed.map(|(key, askable)| (Name::new(key), askable))
        );
    }
}

//! The delivered sends that no delivered send follows yet.

use std::hash::BuildHasher;

use hashlink::DefaultHashBuilder;

use super::{EntryRef, Log};
use crate::sds::ids::SEND_ID_BYTES;
use crate::sds::name::Name;

/// As many participants speaking at once keep exact causal order; beyond, the oldest heads are left
/// to the history.
pub const HEADS_MAX: usize = 256;
/// So few heads are compared one by one: to hash what a history names takes longer.
const COMPARED_MAX: usize = 4;

/// What a message must name so that, through it, everything delivered here before comes first
/// everywhere: the configured causal history alone misses what lies further back in the log and
/// nothing else names.
#[derive(Debug)]
pub struct Heads {
    by_send: bool,
    hasher: DefaultHashBuilder,
    /// The send, or the message where ids name no send, and the entry that stands for it: the oldest
    /// first.
    heads: Vec<(Name, EntryRef)>,
    /// Hashes of what the heads are called, in the same order; none while heads are compared.
    tags: Vec<u64>,
}

impl Heads {
    /// None; `by_send` tells whether message ids name their sends.
    pub fn new(by_send: bool) -> Self {
        Heads {
            by_send,
            hasher: DefaultHashBuilder::default(),
            heads: Vec::new(),
            tags: Vec::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Entries that stand for the heads, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef> {
        self.heads.iter().map(|(_, entry)| *entry)
    }

    /// `entry` stands for a send delivered now, which follows everything its `history` names.
    pub fn deliver(&mut self, log: &Log, entry: EntryRef, history: &[Name]) {
        let Some(delivered) = log.get(entry) else {
            return;
        };
        for named in history {
            if let Some(at) = self.find(self.key_of(named.as_bytes())) {
                self.remove(at);
            }
        }
        let key = self.key_of(delivered.message_id.as_bytes());
        if let Some(at) = self.find(key) {
            self.heads[at].1 = entry;
        } else {
            self.heads.push((Name::from_wire(key), entry));
            if self.heads.len() > COMPARED_MAX {
                let untagged = &self.heads[self.tags.len()..];
                let tags = untagged
                    .iter()
                    .map(|(name, _)| self.hasher.hash_one(name.as_bytes()));
                self.tags.extend(tags);
            }
        }
        if self.heads.len() > HEADS_MAX {
            self.remove(0);
        }
    }

    /// Which head is called so.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let is_it = |(name, _): &(Name, EntryRef)| name.as_bytes() == key;
        if self.heads.len() <= COMPARED_MAX {
            return self.heads.iter().position(is_it);
        }
        let hash = self.hasher.hash_one(key);
        let mut tagged = self.tags.iter().zip(&self.heads);
        tagged.position(|(tag, head)| *tag == hash && is_it(head))
    }

    fn remove(&mut self, at: usize) {
        self.heads.remove(at);
        if self.heads.len() <= COMPARED_MAX {
            self.tags.clear();
        } else {
            self.tags.remove(at);
        }
    }

    /// These were encoded and will never be heard: a history that named one would make receivers
    /// wait in vain. What they followed, as their `history` says, is followed by nothing again.
    pub fn withdraw(&mut self, log: &mut Log, message_ids: &[Name], history: &[Name]) {
        for message_id in message_ids {
            let entry = log.withdraw(message_id.as_bytes());
            if let Some((entry, _)) = entry
                && let Some(at) = self.standing(message_id, entry)
            {
                self.remove(at);
                for named in history {
                    if let Some(named) = log.find(named.as_bytes()) {
                        self.deliver(log, named, &[]);
                    }
                }
            }
        }
    }

    /// What stands for these is held and no longer named: who lacks it would wait in vain. What they
    /// followed, as their `history` says, is followed by nothing again.
    pub fn leave_out(&mut self, log: &mut Log, message_ids: &[Name], history: &[Name]) {
        for message_id in message_ids {
            let Some(entry) = log.find(message_id.as_bytes()) else {
                continue;
            };
            log.leave_out(entry);
            if let Some(at) = self.standing(message_id, entry) {
                self.remove(at);
                for named in history {
                    if let Some(named) = log.find(named.as_bytes()) {
                        self.deliver(log, named, &[]);
                    }
                }
            }
        }
    }

    /// Which head `entry` stands for.
    fn standing(&self, message_id: &Name, entry: EntryRef) -> Option<usize> {
        let at = self.find(self.key_of(message_id.as_bytes()))?;
        (self.heads[at].1 == entry).then_some(at)
    }

    /// The send that a message id names, or the id itself.
    fn key_of<'a>(&self, message_id: &'a [u8]) -> &'a [u8] {
        match self.by_send {
            true => message_id.get(..SEND_ID_BYTES).unwrap_or(message_id),
            false => message_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::ids::content_id;

    #[test]
    fn heads_are_found_however_many_there_are() {
        let mut log = Log::of(1_000);
        let mut heads = Heads::new(false);
        let mut expected: Vec<String> = Vec::new();
        for number in 0..3 * COMPARED_MAX {
            let name = format!("{number}");
            let (entry, _) = log.add(Name::new(&name), "alice".into(), 1, None, 0);
            heads.deliver(&log, entry, &[]);
            heads.deliver(&log, entry, &[]);
            expected.push(name);
        }
        for round in 0..2 * COMPARED_MAX {
            let followed = expected.remove(round * 5 % expected.len());
            let name = format!("{followed} and what follows it");
            let (entry, _) = log.add(Name::new(&name), "alice".into(), 2, None, 0);
            heads.deliver(&log, entry, &[Name::new(&followed), Name::new("unknown")]);
            if round % 2 == 0 {
                heads.withdraw(&mut log, &[Name::new(&name)], &[]);
            } else {
                expected.push(name);
            }
            let held: Vec<_> = heads
                .entries()
                .map(|entry| log.get(entry).unwrap().message_id.to_string())
                .collect();
            assert_eq!(held, expected, "round {round}");
        }
    }

    const SEND: &str = "11111111111111111111111111111111";

    fn held(log: &mut Log, message_id: Name) -> EntryRef {
        log.add(message_id, "alice".into(), 1, None, 0).0
    }

    #[test]
    fn a_send_is_one_head_whichever_of_its_contents_stands_for_it() {
        let mut log = Log::of(10);
        let mut heads = Heads::new(true);
        let ids = [0, 1].map(|ordinal| content_id(SEND, ordinal));
        let [first, second] = ids.clone().map(|id| held(&mut log, id));
        for entry in [first, second] {
            log.deliver(entry);
            heads.deliver(&log, entry, &[]);
            assert_eq!(heads.entries().collect::<Vec<_>>(), [entry]);
        }
        // The first stands for it no longer.
        heads.leave_out(&mut log, &ids[..1], &[]);
        assert_eq!(heads.entries().collect::<Vec<_>>(), [second]);
        assert_eq!(log.ordered_ids().collect::<Vec<_>>(), [&ids[1]]);
        heads.leave_out(&mut log, &ids[1..], &[]);
        assert_eq!((heads.len(), log.ordered_ids().count()), (0, 0));
    }

    #[test]
    fn whoever_names_a_content_follows_its_send() {
        let mut log = Log::of(10);
        let mut heads = Heads::new(true);
        let entry = held(&mut log, content_id(SEND, 1));
        heads.deliver(&log, entry, &[]);
        let after = held(&mut log, Name::new("after"));
        heads.deliver(&log, after, &[content_id(SEND, 0)]);
        assert_eq!(heads.entries().collect::<Vec<_>>(), [after]);
    }

    #[test]
    fn beyond_the_limit_the_oldest_head_goes() {
        let mut log = Log::of(2 * HEADS_MAX);
        let mut heads = Heads::new(false);
        let ids = (0..=HEADS_MAX).map(|number| Name::new(&number.to_string()));
        let entries: Vec<_> = ids.map(|id| held(&mut log, id)).collect();
        for entry in &entries {
            heads.deliver(&log, *entry, &[]);
        }
        assert_eq!(heads.entries().collect::<Vec<_>>(), entries[1..]);
    }
}

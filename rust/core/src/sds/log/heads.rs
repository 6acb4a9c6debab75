//! The delivered sends that no delivered send follows yet.

use hashlink::LinkedHashMap;

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
    /// By the send, or the message where ids name no send.
    by_key: LinkedHashMap<Name, EntryRef>,
}

impl Heads {
    /// None; `by_send` tells whether message ids name their sends.
    pub fn new(by_send: bool) -> Self {
        Heads {
            by_send,
            by_key: LinkedHashMap::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Entries that stand for the heads, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef> {
        self.by_key.values().copied()
    }

    /// `entry` stands for a send delivered now, which follows everything its `history` names.
    pub fn deliver(&mut self, log: &Log, entry: EntryRef, history: &[Name]) {
        let Some(delivered) = log.get(entry) else {
            return;
        };
        for named in history {
            let key = self.key_of(named.as_bytes());
            if self.by_key.len() > COMPARED_MAX {
                self.by_key.remove(key);
            } else if let Some(known) = self.by_key.keys().find(|known| known.as_bytes() == key) {
                let known = known.clone();
                self.by_key.remove(&known);
            }
        }
        let key = self.key_of(delivered.message_id.as_bytes());
        let key = Name::from_wire(key);
        if let Some(known) = self.by_key.get_mut(&key) {
            *known = entry;
        } else {
            self.by_key.insert(key, entry);
        }
        if self.by_key.len() > HEADS_MAX {
            self.by_key.pop_front();
        }
    }

    /// These were encoded and will never be heard: a history that named one would make receivers
    /// wait in vain. What they followed, as their `history` says, is followed by nothing again.
    pub fn withdraw(&mut self, log: &mut Log, message_ids: &[Name], history: &[Name]) {
        for message_id in message_ids {
            let entry = log.withdraw(message_id.as_bytes());
            let key = Name::from_wire(self.key_of(message_id.as_bytes()));
            if let Some((entry, _)) = entry
                && self.by_key.get(&key) == Some(&entry)
            {
                self.by_key.remove(&key);
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
            let key = Name::from_wire(self.key_of(message_id.as_bytes()));
            if self.by_key.get(&key) == Some(&entry) {
                self.by_key.remove(&key);
                for named in history {
                    if let Some(named) = log.find(named.as_bytes()) {
                        self.deliver(log, named, &[]);
                    }
                }
            }
        }
    }

    /// The send that a message id names, or the id itself.
    fn key_of<'a>(&self, message_id: &'a [u8]) -> &'a [u8] {
        match self.by_send {
            true => message_id.get(..SEND_ID_BYTES).unwrap_or(message_id),
            false => message_id,
        }
    }
}

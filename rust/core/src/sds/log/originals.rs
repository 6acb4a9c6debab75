//! Messages kept as they came or left, to answer repair requests with.

use std::collections::{HashMap, VecDeque};

use hashlink::LinkedHashSet;

use super::entry::{Entry, EntryRef};
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::queue;
use crate::sds::slab::Slab;

/// Bytes kept, over all messages; beyond them the oldest go.
pub const ORIGINAL_BYTES_MAX: usize = 32 << 20;
/// What is gone from the order may take this much room beyond what is kept.
const STALE_MIN: usize = 64;

/// Which messages are kept. That of a log entry lies in the entry.
#[derive(Default)]
pub struct Originals {
    size_bytes: usize,
    count: usize,
    next_serial: u32,
    /// Of entries that were refused or withdrawn.
    apart: HashMap<Name, (u32, Octets)>,
    apart_by_serial: HashMap<u32, Name>,
    /// The oldest first, with what is gone since.
    order: VecDeque<(u32, EntryRef)>,
    /// Ids whose record is to be written, or deleted.
    changed: LinkedHashSet<Name>,
}

impl std::fmt::Debug for Originals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} messages of {} bytes",
            self.count, self.size_bytes
        )
    }
}

impl Originals {
    /// The message of an id whose entry the log does not hold.
    pub fn apart(&self, message_id: &[u8]) -> Option<&Octets> {
        if self.apart.is_empty() {
            return None;
        }
        self.apart.get(message_id).map(|(_, message)| message)
    }

    /// Ids of messages whose entry the log does not hold.
    pub fn names_apart(&self) -> impl Iterator<Item = &Name> {
        self.apart.keys()
    }

    /// Bytes kept, over all messages.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Keeps the message of an entry, with which it is stored if it is `new`; false where it is too
    /// large, or one of its id is kept.
    pub fn keep(
        &mut self,
        entries: &mut Slab<Entry>,
        entry: EntryRef,
        message: Octets,
        new: bool,
    ) -> bool {
        let held = &mut entries[entry];
        let known = held.original.is_some() || self.apart(held.message_id.as_bytes()).is_some();
        if message.len() > ORIGINAL_BYTES_MAX || known {
            return false;
        }
        self.next_serial = self.next_serial.wrapping_add(1);
        self.size_bytes += message.len();
        self.count += 1;
        held.keep_original(message, self.next_serial, new);
        queue::push(&mut self.order, (self.next_serial, entry));
        while self.size_bytes > ORIGINAL_BYTES_MAX
            && let Some((serial, oldest)) = self.order.pop_front()
        {
            self.drop_surplus(entries, serial, oldest);
        }
        true
    }

    fn drop_surplus(&mut self, entries: &mut Slab<Entry>, serial: u32, oldest: EntryRef) {
        let held = entries
            .get_mut(oldest)
            .filter(|held| held.original_serial == serial);
        let gone = match held {
            Some(held) => held
                .take_original()
                .map(|(_, message)| (held.message_id.clone(), message)),
            None => self.apart_by_serial.remove(&serial).and_then(|message_id| {
                let (_, message) = self.apart.remove(&message_id)?;
                Some((message_id, message))
            }),
        };
        if let Some((message_id, message)) = gone {
            self.uncount(&message);
            self.mark(message_id);
        }
    }

    /// Forgets a message; `held` is its entry, if the log holds that.
    pub fn forget(&mut self, message_id: &Name, entries: &mut Slab<Entry>, held: Option<EntryRef>) {
        let taken = held.and_then(|entry| entries[entry].take_original());
        let taken = taken.or_else(|| self.apart.remove(message_id));
        if let Some((serial, message)) = taken {
            self.apart_by_serial.remove(&serial);
            self.mark(message_id.clone());
            self.let_go(serial, &message, entries);
        }
    }

    /// The log forgot an entry: so is its message. Whether the record of that goes with the entry's.
    pub fn on_forgotten(&mut self, entry: &mut Entry, entries: &mut Slab<Entry>) -> bool {
        let paired = entry.original_paired;
        let Some((serial, message)) = entry.take_original() else {
            if !self.apart.is_empty() {
                self.forget(&entry.message_id, entries, None);
            }
            return false;
        };
        if !paired {
            self.mark(entry.message_id.clone());
        }
        self.let_go(serial, &message, entries);
        paired
    }

    /// The log holds an entry no longer, but its message stays.
    pub fn set_apart(&mut self, entry: &mut Entry) {
        let unwritten = entry.original_new;
        if let Some((serial, message)) = entry.take_original() {
            if unwritten {
                self.mark(entry.message_id.clone());
            }
            self.apart_by_serial
                .insert(serial, entry.message_id.clone());
            self.apart
                .insert(entry.message_id.clone(), (serial, message));
        }
    }

    /// Has the record of a message written anew, or deleted where it is not kept.
    pub fn mark(&mut self, message_id: Name) {
        self.changed.replace(message_id);
    }

    /// Ids whose record is to be written or deleted, since the last call.
    pub fn poll_changed(&mut self) -> LinkedHashSet<Name> {
        std::mem::take(&mut self.changed)
    }

    fn uncount(&mut self, message: &Octets) {
        self.size_bytes -= message.len();
        self.count -= 1;
    }

    /// What was kept is gone: mostly it is the oldest.
    fn let_go(&mut self, serial: u32, message: &Octets, entries: &Slab<Entry>) {
        self.uncount(message);
        if self
            .order
            .front()
            .is_some_and(|(oldest, _)| *oldest == serial)
        {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.count + STALE_MIN {
            let apart = &self.apart_by_serial;
            self.order.retain(|(serial, entry)| {
                let held = entries
                    .get(*entry)
                    .filter(|held| held.original_serial == *serial);
                held.is_some_and(|held| held.original.is_some()) || apart.contains_key(serial)
            });
        }
    }
}

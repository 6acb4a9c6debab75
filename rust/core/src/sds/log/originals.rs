//! Messages kept as they came or left, to answer repair requests with.

use std::collections::VecDeque;

use hashlink::LinkedHashSet;

use super::entry::{Entry, EntryRef};
use super::kept::Kept;
use super::packed::{PACKED_BYTES_MAX, Pages};
use crate::maps::HashMap;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::queue;
use crate::sds::slab::Slab;

/// What is gone from the order may take this much room beyond what is kept.
const STALE_MIN: usize = 64;

/// Which messages are kept. Where that of a log entry is stands in the entry.
pub struct Originals {
    /// Bytes kept at most, over all messages; beyond them the oldest go.
    bytes_max: usize,
    size_bytes: usize,
    count: usize,
    next_serial: u32,
    whole: Slab<Octets>,
    packed: Pages,
    /// Of entries that were refused or withdrawn.
    apart: HashMap<Name, (u32, Octets)>,
    apart_by_serial: HashMap<u32, Name>,
    /// The slots of their entries, the oldest first, with what is gone since: no other entry of a slot has the
    /// serial number.
    order: VecDeque<(u32, u32)>,
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
    /// None, of which so many bytes are kept at most.
    pub fn new(bytes_max: usize) -> Self {
        Originals {
            bytes_max,
            size_bytes: 0,
            count: 0,
            next_serial: 0,
            whole: Slab::default(),
            packed: Pages::default(),
            apart: HashMap::default(),
            apart_by_serial: HashMap::default(),
            order: VecDeque::new(),
            changed: LinkedHashSet::new(),
        }
    }

    /// The message of an id whose entry the log does not hold.
    pub fn apart(&self, message_id: &[u8]) -> Option<&Octets> {
        if self.apart.is_empty() {
            return None;
        }
        self.apart.get(message_id).map(|(_, message)| message)
    }

    /// The message of an entry.
    pub fn of(&self, entry: &Entry) -> Option<Octets> {
        Some(match entry.original? {
            Kept::Whole(handle) => self.whole[handle].clone(),
            Kept::Packed(packed) => self.packed.get(packed, entry.message_id.as_bytes()).into(),
        })
    }

    /// The record of an entry's message is written, which was to share it: it lies with others from now on.
    pub fn pack(&mut self, entry: &mut Entry) {
        let Some(Kept::Whole(handle)) = entry.original else {
            return;
        };
        if self.whole[handle].len() <= PACKED_BYTES_MAX
            && let Some(message) = self.whole.remove(handle)
        {
            let packed = self.packed.put(&message, entry.message_id.as_bytes());
            entry.original = Some(Kept::Packed(packed));
        }
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
        if message.len() > self.bytes_max || known {
            return false;
        }
        self.next_serial = self.next_serial.wrapping_add(1);
        self.size_bytes += message.len();
        self.count += 1;
        held.original = Some(Kept::Whole(self.whole.insert(message)));
        held.original_serial = self.next_serial;
        held.original_paired = new;
        held.original_new = new;
        queue::push(&mut self.order, (self.next_serial, entry.slot()));
        while self.size_bytes > self.bytes_max
            && let Some((serial, slot)) = self.order.pop_front()
        {
            self.drop_surplus(entries, serial, slot);
        }
        true
    }

    fn drop_surplus(&mut self, entries: &mut Slab<Entry>, serial: u32, slot: u32) {
        let held = entries
            .at_mut(slot)
            .filter(|held| held.original_serial == serial);
        let gone = match held {
            Some(held) => {
                let taken = self.take_out(held);
                taken.map(|(_, length)| (held.message_id.clone(), length))
            }
            None => self.apart_by_serial.remove(&serial).and_then(|message_id| {
                let (_, message) = self.apart.remove(&message_id)?;
                Some((message_id, message.len()))
            }),
        };
        if let Some((message_id, length)) = gone {
            self.uncount(length);
            self.mark(message_id);
            self.tidy(entries);
        }
    }

    /// Forgets a message; `held` is its entry, if the log holds that.
    pub fn forget(&mut self, message_id: &Name, entries: &mut Slab<Entry>, held: Option<EntryRef>) {
        let taken = held.and_then(|entry| self.take_out(&mut entries[entry]));
        let taken = taken.or_else(|| {
            let apart = self.apart.remove(message_id);
            apart.map(|(serial, message)| (serial, message.len()))
        });
        if let Some((serial, length)) = taken {
            self.apart_by_serial.remove(&serial);
            self.mark(message_id.clone());
            self.let_go(serial, length, entries);
        }
    }

    /// The log forgot an entry: so is its message. Whether the record of that goes with the entry's.
    pub fn on_forgotten(&mut self, entry: &mut Entry, entries: &mut Slab<Entry>) -> bool {
        let paired = entry.original_paired;
        let Some((serial, length)) = self.take_out(entry) else {
            if !self.apart.is_empty() {
                self.forget(&entry.message_id, entries, None);
            }
            return false;
        };
        if !paired {
            self.mark(entry.message_id.clone());
        }
        self.let_go(serial, length, entries);
        paired
    }

    /// The log holds an entry no longer, but its message stays.
    pub fn set_apart(&mut self, entry: &mut Entry) {
        let unwritten = entry.original_new;
        let message = self.of(entry);
        if let (Some(message), Some((serial, _))) = (message, self.take_out(entry)) {
            if unwritten {
                self.mark(entry.message_id.clone());
            }
            self.apart_by_serial
                .insert(serial, entry.message_id.clone());
            self.apart
                .insert(entry.message_id.clone(), (serial, message));
        }
    }

    /// Bytes of the pages that messages lie in.
    #[cfg(test)]
    pub fn packed_room(&self) -> usize {
        self.packed.room()
    }

    /// Has the record of a message written anew, or deleted where it is not kept.
    pub fn mark(&mut self, message_id: Name) {
        self.changed.replace(message_id);
    }

    /// Ids whose record is to be written or deleted, since the last call.
    pub fn poll_changed(&mut self) -> LinkedHashSet<Name> {
        std::mem::take(&mut self.changed)
    }

    /// Takes the message of an entry out: gives its place among all that are kept, and its length.
    fn take_out(&mut self, entry: &mut Entry) -> Option<(u32, usize)> {
        entry.original_paired = false;
        entry.original_new = false;
        let length = match entry.original.take()? {
            Kept::Whole(handle) => self.whole.remove(handle)?.len(),
            Kept::Packed(packed) => {
                self.packed.remove(packed, entry.message_id.as_bytes());
                packed.len()
            }
        };
        Some((entry.original_serial, length))
    }

    fn uncount(&mut self, length: usize) {
        self.size_bytes -= length;
        self.count -= 1;
    }

    /// What was kept is gone: mostly it is the oldest.
    fn let_go(&mut self, serial: u32, length: usize, entries: &mut Slab<Entry>) {
        self.uncount(length);
        if self
            .order
            .front()
            .is_some_and(|(oldest, _)| *oldest == serial)
        {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.count + STALE_MIN {
            let apart = &self.apart_by_serial;
            self.order.retain(|(serial, slot)| {
                let held = entries
                    .at(*slot)
                    .filter(|(_, held)| held.original_serial == *serial);
                held.is_some_and(|(_, held)| held.original.is_some()) || apart.contains_key(serial)
            });
        }
        self.tidy(entries);
    }

    /// Moves what is packed together where it lies too far apart.
    fn tidy(&mut self, entries: &mut Slab<Entry>) {
        if !self.packed.is_sparse() {
            return;
        }
        let before = std::mem::take(&mut self.packed);
        for (serial, slot) in &self.order {
            let held = entries.at_mut(*slot);
            if let Some(held) = held.filter(|held| held.original_serial == *serial)
                && let Some(Kept::Packed(packed)) = held.original
            {
                let id = held.message_id.as_bytes();
                let moved = self.packed.take_over(packed, id, &before);
                held.original = Some(Kept::Packed(moved));
            }
        }
    }
}

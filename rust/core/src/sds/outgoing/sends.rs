//! Sends of this participant by their ids, and their contents by theirs.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;
use hashlink::DefaultHashBuilder;

use super::send::{ContentRef, OutgoingContent, OutgoingRef, OutgoingSend};
use crate::maps::HashMap;
use crate::sds::ids::split_content_bytes;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::slab::Slab;

/// Sends from when they are registered until they are forgotten.
#[derive(Debug, Default)]
pub struct Sends {
    sends: Slab<OutgoingSend>,
    /// What was forgotten stays until it comes to the front.
    order: VecDeque<OutgoingRef>,
    /// Keyed at random: no peer knows which ids collide.
    hasher: DefaultHashBuilder,
    by_send_id: HashTable<(u32, OutgoingRef)>,
    /// Contents whose ids do not name their send and place.
    by_id: HashMap<Name, ContentRef>,
}

/// Room that the order may take beyond twice the sends before what was forgotten is dropped.
const STALE_ORDER_MIN: usize = 64;

impl Sends {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sends.len() == 0
    }

    /// Sends, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &OutgoingSend> {
        let held = self.order.iter();
        held.filter_map(|send| self.sends.get(*send))
    }

    /// A send by its id.
    pub fn find(&self, send_id: &str) -> Option<OutgoingRef> {
        self.find_by_wire(send_id.as_bytes())
    }

    fn find_by_wire(&self, send_id: &[u8]) -> Option<OutgoingRef> {
        let hash = self.hasher.hash_one(send_id);
        let is_it = |&(tag, send): &(u32, OutgoingRef)| {
            tag == hash as u32 && self.sends[send].send_id.as_bytes() == send_id
        };
        self.by_send_id.find(hash, is_it).map(|(_, send)| *send)
    }

    /// A send; `None` where it is forgotten.
    pub fn get(&self, send: OutgoingRef) -> Option<&OutgoingSend> {
        self.sends.get(send)
    }

    /// A send to change.
    pub fn get_mut(&mut self, send: OutgoingRef) -> Option<&mut OutgoingSend> {
        self.sends.get_mut(send)
    }

    /// A content by its message id.
    pub fn find_content(&self, message_id: &[u8]) -> Option<ContentRef> {
        let named = split_content_bytes(message_id)
            .and_then(|(send_id, ordinal)| Some((self.find_by_wire(send_id)?, ordinal)));
        let is_its = |place: &ContentRef| {
            let content = self.content(*place);
            content.is_some_and(|content| content.message_id.as_bytes() == message_id)
        };
        let other = || self.by_id.get(message_id).copied();
        named.filter(is_its).or_else(other)
    }

    /// A content.
    pub fn content(&self, (send, ordinal): ContentRef) -> Option<&OutgoingContent> {
        self.sends.get(send)?.contents.get(ordinal as usize)
    }

    /// A content to change.
    pub fn content_mut(&mut self, (send, ordinal): ContentRef) -> Option<&mut OutgoingContent> {
        self.sends.get_mut(send)?.contents.get_mut(ordinal as usize)
    }

    /// The message of a content that keeps its bytes itself.
    pub fn wire(&self, message_id: &[u8]) -> Option<&Octets> {
        self.content(self.find_content(message_id)?)?.wire.as_ref()
    }

    /// As [`Self::wire`], for contents that are stored: not for made parity.
    pub fn stored_wire(&self, message_id: &[u8]) -> Option<&Octets> {
        let content = self.content(self.find_content(message_id)?)?;
        content.wire.as_ref().filter(|_| !content.made)
    }

    /// Whether an id is one that a content of ours has, or will have.
    pub fn is_own_id(&self, message_id: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let Some((send_id, ordinal)) = split_content_bytes(message_id) else {
            return self.by_id.contains_key(message_id);
        };
        let will_have = self.find_by_wire(send_id).is_some_and(|send| {
            let send = &self.sends[send];
            let reserve = send.demand.as_ref().map_or(0, |demand| demand.reserve);
            (ordinal as usize) < send.contents.len() + reserve as usize
        });
        will_have || self.by_id.contains_key(message_id)
    }

    /// Holds a send, whose ids are new.
    pub fn add(&mut self, send: OutgoingSend) -> OutgoingRef {
        let handle = self.sends.insert(send);
        let send = &self.sends[handle];
        for (ordinal, content) in (0..).zip(&send.contents) {
            if !is_named(send, ordinal, content) {
                self.by_id
                    .insert(content.message_id.clone(), (handle, ordinal));
            }
        }
        let hash = self.hasher.hash_one(send.send_id.as_bytes());
        let rehash = |(_, send): &(u32, OutgoingRef)| {
            self.hasher.hash_one(self.sends[*send].send_id.as_bytes())
        };
        self.by_send_id
            .insert_unique(hash, (hash as u32, handle), rehash);
        self.order.push_back(handle);
        if self.order.len() > 2 * self.sends.len() + STALE_ORDER_MIN {
            self.order.retain(|send| self.sends.get(*send).is_some());
        }
        handle
    }

    /// Holds a further content of a send.
    pub fn add_content(&mut self, handle: OutgoingRef, content: OutgoingContent) -> ContentRef {
        let send = &mut self.sends[handle];
        let place = (handle, send.contents.len() as u32);
        if !is_named(send, place.1, &content) {
            self.by_id.insert(content.message_id.clone(), place);
        }
        send.contents.push(content);
        place
    }

    /// Takes a send out.
    pub fn remove(&mut self, handle: OutgoingRef) -> Option<OutgoingSend> {
        let send = self.sends.get(handle)?;
        let hash = self.hasher.hash_one(send.send_id.as_bytes());
        let found = self
            .by_send_id
            .find_entry(hash, |(_, held)| *held == handle);
        if let Ok(found) = found {
            found.remove();
        }
        let send = self.sends.remove(handle)?;
        while let Some(first) = self.order.front()
            && self.sends.get(*first).is_none()
        {
            self.order.pop_front();
        }
        for (ordinal, content) in (0..).zip(&send.contents) {
            if !self.by_id.is_empty()
                && self.by_id.get(&content.message_id) == Some(&(handle, ordinal))
            {
                self.by_id.remove(&content.message_id);
            }
        }
        Some(send)
    }

    /// What ids name is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        assert_eq!(self.sends.len(), self.by_send_id.len());
        assert_eq!(self.sends.len(), self.iter().count());
        let mut places = self.by_id.values();
        assert!(places.all(|place| self.content(*place).is_some()));
    }
}

/// Whether the id of a content names its send and place.
fn is_named(send: &OutgoingSend, ordinal: u32, content: &OutgoingContent) -> bool {
    let names = split_content_bytes(content.message_id.as_bytes());
    names == Some((send.send_id.as_bytes(), ordinal))
}

/// The send must be there: its owner names it by a handle that it takes back before it goes.
impl Index<OutgoingRef> for Sends {
    type Output = OutgoingSend;

    fn index(&self, handle: OutgoingRef) -> &OutgoingSend {
        &self.sends[handle]
    }
}

impl IndexMut<OutgoingRef> for Sends {
    fn index_mut(&mut self, handle: OutgoingRef) -> &mut OutgoingSend {
        &mut self.sends[handle]
    }
}

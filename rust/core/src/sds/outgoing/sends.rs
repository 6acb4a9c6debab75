//! Sends of this participant by their ids, and their contents by theirs.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use hashlink::LinkedHashMap;

use super::send::{ContentRef, OutgoingContent, OutgoingRef, OutgoingSend};
use crate::sds::ids::split_content_bytes;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::slab::Slab;

/// Sends from when they are registered until they are forgotten.
#[derive(Debug, Default)]
pub struct Sends {
    sends: Slab<OutgoingSend>,
    by_send_id: LinkedHashMap<Name, OutgoingRef>,
    by_id: HashMap<Name, ContentRef>,
}

impl Sends {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Sends, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &OutgoingSend> {
        self.by_send_id.values().map(|send| &self.sends[*send])
    }

    /// A send by its id.
    pub fn find(&self, send_id: &str) -> Option<OutgoingRef> {
        self.by_send_id.get(send_id.as_bytes()).copied()
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
        self.by_id.get(message_id).copied()
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

    /// The same where it is stored.
    pub fn stored_wire(&self, message_id: &[u8]) -> Option<&Octets> {
        let content = self.content(self.find_content(message_id)?)?;
        content.wire.as_ref().filter(|_| !content.made)
    }

    /// Whether an id is one that a content of ours has, or will have.
    pub fn is_own_id(&self, message_id: &[u8]) -> bool {
        if self.by_id.contains_key(message_id) {
            return true;
        }
        if self.by_send_id.is_empty() {
            return false;
        }
        let send = split_content_bytes(message_id).and_then(|(send_id, ordinal)| {
            let send = self.by_send_id.get(send_id)?;
            Some((self.get(*send)?, ordinal))
        });
        send.is_some_and(|(send, ordinal)| {
            let reserve = send.demand.as_ref().map_or(0, |demand| demand.reserve);
            (ordinal as usize) < send.contents.len() + reserve as usize
        })
    }

    /// Holds a send, whose ids are new.
    pub fn add(&mut self, send: OutgoingSend) -> OutgoingRef {
        let handle = self.sends.insert(send);
        let send = &self.sends[handle];
        for (ordinal, content) in (0..).zip(&send.contents) {
            self.by_id
                .insert(content.message_id.clone(), (handle, ordinal));
        }
        self.by_send_id.insert(send.send_id.clone(), handle);
        handle
    }

    /// Holds a further content of a send.
    pub fn add_content(&mut self, handle: OutgoingRef, content: OutgoingContent) -> ContentRef {
        let contents = &mut self.sends[handle].contents;
        let place = (handle, contents.len() as u32);
        self.by_id.insert(content.message_id.clone(), place);
        contents.push(content);
        place
    }

    /// Takes a send out.
    pub fn remove(&mut self, handle: OutgoingRef) -> Option<OutgoingSend> {
        let send = self.sends.remove(handle)?;
        self.by_send_id.remove(&send.send_id);
        for (ordinal, content) in (0..).zip(&send.contents) {
            if self.by_id.get(&content.message_id) == Some(&(handle, ordinal)) {
                self.by_id.remove(&content.message_id);
            }
        }
        Some(send)
    }

    /// What ids name is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        assert_eq!(self.sends.len(), self.by_send_id.len());
        let mut places = self.by_id.values();
        assert!(places.all(|place| self.content(*place).is_some()));
    }
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

//! What is to be stored of the sends of this participant, since it was last asked for.

use std::collections::HashSet;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::send::OutgoingSend;
use super::sends::Sends;
use crate::sds::log::Log;
use crate::sds::name::Name;
use crate::sds::octets::Octets;

/// One change of what is stored of the sends.
pub enum Stored<'a> {
    /// The message of a content, which holds its bytes from now on.
    Wire(&'a Name, Option<&'a Octets>),
    /// The bytes of a content that waits.
    Content(&'a Name, Option<&'a Octets>),
    /// The state of one content of several.
    State(&'a Name, Option<(&'a OutgoingSend, u32)>),
    /// A send.
    Send(&'a Name, Option<&'a OutgoingSend>),
}

/// Sends and contents whose records are to be written, and contents that have a record of their own.
#[derive(Debug, Default)]
pub struct Changes {
    sends: LinkedHashSet<Name>,
    /// By message id; of a content that is forgotten, whether it never left.
    contents: LinkedHashMap<Name, bool>,
    new_contents: LinkedHashMap<Name, Octets>,
    /// `None` for one whose bytes are stored no more.
    new_wires: LinkedHashMap<Name, Option<Octets>>,
    /// Contents that have a record of their own.
    stored: HashSet<Name>,
}

impl Changes {
    /// A send changed, or is gone.
    pub fn on_send(&mut self, send_id: Name) {
        self.sends.replace(send_id);
    }

    /// The state of a content changed.
    pub fn on_content(&mut self, message_id: Name) {
        self.contents.replace(message_id, false);
    }

    /// A content is to be sent, which has no message yet.
    pub fn on_queued(&mut self, message_id: Name, content: Octets) {
        self.on_content(message_id.clone());
        self.new_contents.replace(message_id, content);
    }

    /// A content has a message, which is stored in its place; `None` where neither is.
    pub fn on_encoded(&mut self, message_id: Name, wire: Option<Octets>) {
        self.new_wires.replace(message_id, wire);
    }

    /// A content is gone, which `never_left` or has a message.
    pub fn on_forgotten(&mut self, message_id: Name, never_left: bool) {
        self.contents.replace(message_id, never_left);
    }

    /// What was restored is stored as it is.
    pub fn on_restored(&mut self) {
        self.contents.clear();
    }

    /// Restores which contents have a record of their own.
    pub fn restore_stored(&mut self, stored: impl IntoIterator<Item = Name>) {
        self.stored.extend(stored);
    }

    /// Gives `put` what changed since the last call.
    pub fn poll(&mut self, sends: &Sends, log: &Log, mut put: impl FnMut(Stored<'_>)) {
        let content = |message_id: &Name| {
            let (send, ordinal) = sends.find_content(message_id.as_bytes())?;
            Some((&sends[send], ordinal))
        };
        let mut changes = std::mem::take(self);
        for (message_id, wire) in &changes.new_wires {
            if let Some(wire) = wire {
                put(Stored::Wire(message_id, Some(wire)));
            }
            if changes.new_contents.remove(message_id).is_none() {
                // Stored when it was queued; from now on the wire holds it.
                put(Stored::Content(message_id, None));
            }
        }
        for (message_id, content) in &changes.new_contents {
            put(Stored::Content(message_id, Some(content)));
        }
        for (message_id, never_left) in &changes.contents {
            let had_record = match content(message_id) {
                Some((send, _)) if send.is_alone() => {
                    changes.sends.replace(send.send_id.clone());
                    changes.stored.remove(message_id)
                }
                Some(known) => {
                    put(Stored::State(message_id, Some(known)));
                    changes.stored.insert(message_id.clone());
                    false
                }
                None => {
                    if *never_left {
                        put(Stored::Content(message_id, None));
                    }
                    if log.original(message_id.as_bytes()).is_none() {
                        put(Stored::Wire(message_id, None));
                    }
                    changes.stored.remove(message_id)
                }
            };
            if had_record {
                put(Stored::State(message_id, None));
            }
        }
        for send_id in &changes.sends {
            let send = sends.find(send_id);
            put(Stored::Send(send_id, send.and_then(|send| sends.get(send))));
        }
        self.stored = changes.stored;
    }
}

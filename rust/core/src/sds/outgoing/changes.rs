//! What is to be stored of the sends of this participant, since it was last asked for.

use super::mark::Mark;
use super::send::{ContentRef, OutgoingContent, OutgoingRef, OutgoingSend};
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

/// Sends and contents whose records are to be written, in the order in which they changed first. Each has
/// a mark of its own, so that it stands here once.
#[derive(Debug, Default)]
pub struct Changes {
    sends: Vec<Changed<OutgoingRef, Name>>,
    contents: Vec<Changed<ContentRef, Gone>>,
    /// `None` for one that was encoded since, or is gone.
    new_contents: Vec<Option<(Name, Octets)>>,
    new_wires: Vec<NewWire>,
    polls: u32,
}

#[derive(Debug)]
enum Changed<H, G> {
    /// It is there; or is gone since, and stands here once more.
    Held(H),
    Gone(G),
}

/// A content that was forgotten.
#[derive(Debug)]
struct Gone {
    message_id: Name,
    never_left: bool,
    has_record: bool,
}

/// A content that has a message from now on.
#[derive(Debug)]
struct NewWire {
    message_id: Name,
    /// `None` for one whose bytes are stored no more.
    wire: Option<Octets>,
    /// Whether its bytes were stored before.
    was_stored: bool,
}

impl Changes {
    /// A send changed.
    pub fn on_send(&mut self, handle: OutgoingRef, send: &mut OutgoingSend) {
        if !std::mem::replace(&mut send.is_changed, true) {
            self.sends.push(Changed::Held(handle));
        }
    }

    /// The state of a content changed.
    pub fn on_content(&mut self, place: ContentRef, content: &mut OutgoingContent) {
        if !std::mem::replace(&mut content.mark.is_changed, true) {
            self.contents.push(Changed::Held(place));
        }
    }

    /// A content is to be sent, which has no message yet.
    pub fn on_queued(&mut self, place: ContentRef, content: &mut OutgoingContent) {
        self.on_content(place, content);
        if let Some(bytes) = &content.content {
            content.mark.new_content = Some((self.polls, self.new_contents.len() as u32));
            let new = (content.message_id.clone(), bytes.clone());
            self.new_contents.push(Some(new));
        }
    }

    /// A content has a message, which is stored in its place; `None` where neither is.
    pub fn on_encoded(&mut self, content: &mut OutgoingContent, wire: Option<Octets>) {
        let is_new = self.drop_new(&mut content.mark);
        self.new_wires.push(NewWire {
            message_id: content.message_id.clone(),
            wire,
            was_stored: !is_new,
        });
    }

    /// A content has another message than before.
    pub fn on_encoded_again(&mut self, message_id: Name, wire: Option<Octets>) {
        self.new_wires.push(NewWire {
            message_id,
            wire,
            was_stored: false,
        });
    }

    /// The bytes of a content are to be stored no more; whether they have yet to be.
    fn drop_new(&mut self, mark: &mut Mark) -> bool {
        let new = mark.new_content.take();
        let new = new.filter(|(polls, _)| *polls == self.polls);
        if let Some((_, place)) = new {
            self.new_contents[place as usize] = None;
        }
        new.is_some()
    }

    /// A send is gone, with its contents.
    pub fn on_forgotten(&mut self, send: OutgoingSend) {
        self.sends.push(Changed::Gone(send.send_id));
        for mut content in send.contents {
            // Another one may take its id before they are stored.
            self.drop_new(&mut content.mark);
            self.contents.push(Changed::Gone(Gone {
                message_id: content.message_id,
                never_left: content.lamport == 0,
                has_record: content.mark.has_record,
            }));
        }
    }

    /// Contents of a restored send are to be made again: their records go.
    pub fn on_unmade(&mut self, ids: Vec<Name>) {
        self.contents.extend(ids.into_iter().map(|message_id| {
            Changed::Gone(Gone {
                message_id,
                never_left: false,
                has_record: true,
            })
        }));
    }

    /// What was restored is stored as it is.
    pub fn on_restored(&mut self, sends: &mut Sends) {
        for changed in self.contents.drain(..) {
            if let Changed::Held(place) = changed
                && let Some(content) = sends.content_mut(place)
            {
                content.mark.is_changed = false;
            }
        }
    }

    /// Gives `put` what changed since the last call.
    pub fn poll(&mut self, sends: &mut Sends, log: &Log, mut put: impl FnMut(Stored<'_>)) {
        self.polls = self.polls.wrapping_add(1);
        for new in self.new_wires.drain(..) {
            if let Some(wire) = &new.wire {
                put(Stored::Wire(&new.message_id, Some(wire)));
            }
            if new.was_stored {
                // From now on the wire holds it.
                put(Stored::Content(&new.message_id, None));
            }
        }
        for (message_id, content) in self.new_contents.drain(..).flatten() {
            put(Stored::Content(&message_id, Some(&content)));
        }
        let contents = std::mem::take(&mut self.contents);
        for changed in &contents {
            match changed {
                Changed::Held(place) => self.put_content(*place, sends, &mut put),
                Changed::Gone(gone) => put_gone(gone, sends, log, &mut put),
            }
        }
        self.contents = contents;
        self.contents.clear();
        for changed in self.sends.drain(..) {
            match changed {
                Changed::Held(handle) => {
                    if let Some(send) = sends.get_mut(handle) {
                        send.is_changed = false;
                        put(Stored::Send(&send.send_id, Some(send)));
                    }
                }
                Changed::Gone(send_id) => {
                    // Another one may have its id since.
                    if sends.find(&send_id).is_none() {
                        put(Stored::Send(&send_id, None));
                    }
                }
            }
        }
    }

    fn put_content(
        &mut self,
        (handle, ordinal): ContentRef,
        sends: &mut Sends,
        put: &mut impl FnMut(Stored<'_>),
    ) {
        let Some(send) = sends.get_mut(handle) else {
            return;
        };
        let is_alone = send.is_alone();
        let content = &mut send.contents[ordinal as usize];
        content.mark.is_changed = false;
        let had_record = std::mem::replace(&mut content.mark.has_record, !is_alone);
        if !is_alone {
            let message_id = &send.contents[ordinal as usize].message_id;
            put(Stored::State(message_id, Some((send, ordinal))));
            return;
        }
        if had_record {
            put(Stored::State(&content.message_id, None));
        }
        self.on_send(handle, send);
    }
}

fn put_gone(gone: &Gone, sends: &mut Sends, log: &Log, put: &mut impl FnMut(Stored<'_>)) {
    let message_id = &gone.message_id;
    if let Some(place) = sends.find_content(message_id.as_bytes()) {
        // Another one has its id since, and its record.
        if let Some(content) = sends.content_mut(place) {
            content.mark.has_record |= gone.has_record;
        }
        return;
    }
    if gone.never_left {
        put(Stored::Content(message_id, None));
    }
    if !log.has_original(message_id.as_bytes()) {
        put(Stored::Wire(message_id, None));
    }
    if gone.has_record {
        put(Stored::State(message_id, None));
    }
}

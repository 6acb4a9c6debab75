//! Contents that come under a message id which another content has.
//!
//! SDS wants ids unique, but nothing binds one to its sender or its content: whoever repeats an id
//! first would make the message that it belongs to a duplicate, acknowledged and never delivered. So
//! every content under an id is taken, the later ones beside the log: they are handed up, and
//! released as soon as their message is whole.

use hashlink::LinkedHashSet;

use crate::maps::HashMap;
use crate::sds::config::Config;
use crate::sds::ids::{rival_name, rival_of};
use crate::sds::log::{EntryRef, Log};
use crate::sds::name::Name;
use crate::wire::sds::{MessageView, WireFormat};

/// Tells rivals from repetitions, and hands each up once.
#[derive(Debug)]
pub struct Rivals {
    by_send: bool,
    repairs: bool,
    wire_format: WireFormat,
    names_max: usize,
    /// Names of those that were handed up and not refused, the longest known first.
    taken: LinkedHashSet<Name>,
    /// How many of them each id has, so that nothing is hashed for the sake of another id.
    by_id: HashMap<Name, u32>,
    /// For `poll_persist`.
    changed: LinkedHashSet<Name>,
}

/// A content to be handed up beside another one of its id.
pub struct Rival {
    /// What it is called.
    pub name: Name,
    /// Whether the other one was recovered and never seen, so that this may be that one.
    pub unseen: bool,
}

impl Rivals {
    /// None.
    pub fn new(config: &Config) -> Self {
        Rivals {
            by_send: config.by_send(),
            repairs: config.enable_repair,
            wire_format: config.wire_format,
            names_max: config.missing_messages_max,
            taken: LinkedHashSet::new(),
            by_id: HashMap::default(),
            changed: LinkedHashSet::new(),
        }
    }

    /// How many were handed up.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether `message` brought another content than `known`, under its id; `None` for what is the
    /// same, or was handed up before. `is_open` tells whether the send of `known` is not whole yet.
    pub fn find(
        &self,
        known: EntryRef,
        is_open: bool,
        sender_id: &str,
        content: &[u8],
        message: &[u8],
        log: &Log,
    ) -> Option<Rival> {
        let held = log.get(known)?;
        let original = log.original(held.message_id.as_bytes());
        let other = *held.sender_id != *sender_id;
        // Nobody saw the content of one that was recovered: the owner knows whether this one belongs
        // to its message.
        let recovered = self.repairs && held.lamport == 0 && original.is_none();
        // Under ids made of contents two senders of one content share its id, and the first whole
        // message is delivered.
        let elsewhere = other && (self.by_send || is_open);
        if !recovered
            && !elsewhere
            && !original.is_some_and(|kept| self.differs(&kept, content, message))
        {
            return None;
        }
        let name = rival_name(&held.message_id, sender_id, content);
        (!self.taken.contains(&name)).then_some(Rival {
            name,
            unseen: recovered,
        })
    }

    /// A rival is handed up.
    pub fn take(&mut self, rival: &Rival) {
        self.remember(rival.name.clone());
    }

    /// Whether a content that comes first under its id now was a rival of another one that was given
    /// up since.
    pub fn has_taken(&self, message_id: &str, sender_id: &str, content: &[u8]) -> bool {
        self.by_id.contains_key(message_id.as_bytes())
            && self
                .taken
                .contains(&rival_name(message_id, sender_id, content))
    }

    /// A message in one content came, by `message`: where the message kept under its id is another,
    /// it is a rival.
    pub fn on_whole(
        &mut self,
        message_id: &str,
        sender_id: &str,
        content: &[u8],
        message: &[u8],
        log: &Log,
    ) {
        let original = log.original(message_id.as_bytes());
        if original.is_some_and(|original| *original != *message) {
            self.remember(rival_name(message_id, sender_id, content));
        }
    }

    /// A message that is no part of the send whose id it came under: what it is called.
    pub fn set_apart(&mut self, message_id: &str, sender_id: &str, content: &[u8]) -> Name {
        let name = rival_name(message_id, sender_id, content);
        self.remember(name.clone());
        name
    }

    /// There was no room for a rival, or it was of no use: it may come again.
    pub fn refuse(&mut self, name: &Name) {
        if !self.taken.remove(name) {
            return;
        }
        self.changed.replace(name.clone());
        let message_id = Name::new(rival_of(name).unwrap_or_default());
        if let Some(count) = self.by_id.get_mut(&message_id) {
            *count -= 1;
            if *count == 0 {
                self.by_id.remove(&message_id);
            }
        }
    }

    /// Restores a stored name.
    pub fn restore(&mut self, name: Name) {
        let message_id = Name::new(rival_of(&name).unwrap_or_default());
        if self.taken.insert(name) {
            *self.by_id.entry(message_id).or_default() += 1;
        }
    }

    /// Names whose record changed since the last call, and whether each is still known.
    pub fn poll_changed(&mut self) -> Vec<(Name, bool)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|name| (name.clone(), self.taken.contains(&name)))
            .collect()
    }

    fn remember(&mut self, name: Name) {
        if !self.taken.contains(&name) {
            self.changed.replace(name.clone());
            self.restore(name);
        }
        if self.taken.len() > self.names_max
            && let Some(oldest) = self.taken.front().cloned()
        {
            self.refuse(&oldest);
        }
    }

    /// Whether a message brings another content than the one that is kept.
    pub fn differs(&self, kept: &[u8], content: &[u8], message: &[u8]) -> bool {
        if *kept == *message {
            return false;
        }
        let kept = MessageView::decode(kept, self.wire_format).ok();
        kept.and_then(|kept| kept.content) != Some(content)
    }

    /// What is counted is what is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        assert_eq!(
            self.taken.len(),
            self.by_id
                .values()
                .map(|count| *count as usize)
                .sum::<usize>()
        );
        assert!(self.by_id.values().all(|count| *count > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::config::MessageIdRule;
    use crate::sds::octets::Octets;
    use crate::wire::sds::Message;

    const ID: &str = "shared";

    fn message(sender_id: &str, content: &[u8]) -> Octets {
        let message = Message {
            sender_id: sender_id.into(),
            message_id: ID.into(),
            lamport_timestamp: Some(1),
            content: Some(content.to_vec()),
            ..Message::default()
        };
        message.encode(WireFormat::Spec).unwrap().into()
    }

    /// Alice's content "one" is held.
    fn holding(lamport: u64, is_kept: bool) -> (Log, EntryRef) {
        let mut log = Log::of(10);
        let (held, _) = log.add(Name::new(ID), "alice".into(), lamport, None, 0);
        if is_kept {
            log.keep_original(held, message("alice", b"one"));
        }
        (log, held)
    }

    fn rivals(message_id: MessageIdRule, enable_repair: bool) -> Rivals {
        Rivals::new(&Config {
            message_id,
            enable_repair,
            missing_messages_max: 2,
            ..Config::example()
        })
    }

    #[test]
    fn what_came_under_an_id_is_a_rival_where_it_is_another_message() {
        let (by_send, by_content) = (MessageIdRule::Send, MessageIdRule::ContentSha256);
        for (rule, repairs, (lamport, is_kept), is_open, (sender_id, content), is_unseen) in [
            (by_send, true, (5, true), false, ("alice", b"one"), None),
            (
                by_send,
                true,
                (5, true),
                false,
                ("alice", b"two"),
                Some(false),
            ),
            (
                by_send,
                true,
                (5, true),
                false,
                ("mallory", b"one"),
                Some(false),
            ),
            // Of two who send one content under its id the first whole message is enough.
            (
                by_content,
                true,
                (5, true),
                true,
                ("mallory", b"one"),
                Some(false),
            ),
            (
                by_content,
                true,
                (5, true),
                false,
                ("mallory", b"one"),
                None,
            ),
            // What was recovered nobody saw, where messages are kept.
            (
                by_send,
                true,
                (0, false),
                false,
                ("alice", b"one"),
                Some(true),
            ),
            (by_send, false, (0, false), false, ("alice", b"one"), None),
            (by_send, true, (5, false), false, ("alice", b"one"), None),
            (by_send, true, (0, true), false, ("alice", b"one"), None),
        ] {
            let (log, held) = holding(lamport, is_kept);
            let came = message(sender_id, content);
            let found = rivals(rule, repairs).find(held, is_open, sender_id, content, &came, &log);
            let case = (rule, repairs, lamport, is_kept, is_open, sender_id);
            assert_eq!(found.map(|rival| rival.unseen), is_unseen, "{case:?}");
        }
    }

    #[test]
    fn so_many_are_remembered_and_what_changes_is_stored() {
        let mut rivals = rivals(MessageIdRule::Send, true);
        let names = [b"a", b"b", b"c"].map(|content| rival_name(ID, "alice", content));
        let mut take = |name: &Name| {
            let name = name.clone();
            rivals.take(&Rival {
                name,
                unseen: false,
            });
            rivals.poll_changed()
        };
        assert_eq!(take(&names[0]), [(names[0].clone(), true)]);
        assert_eq!(take(&names[1]), [(names[1].clone(), true)]);
        // The one that is known longest makes room.
        assert_eq!(
            take(&names[2]),
            [(names[2].clone(), true), (names[0].clone(), false)]
        );
        assert_eq!(rivals.len(), 2);
        rivals.refuse(&names[1]);
        assert_eq!(rivals.poll_changed(), [(names[1].clone(), false)]);
        let known = [b"a", b"b", b"c"].map(|content| rivals.has_taken(ID, "alice", content));
        assert_eq!(known, [false, false, true]);
    }

    #[test]
    fn a_message_in_one_content_is_a_rival_where_another_is_kept_under_its_id() {
        for (content, count) in [(b"one", 0), (b"two", 1)] {
            let (log, _) = holding(5, true);
            let mut rivals = rivals(MessageIdRule::Send, true);
            let came = message("alice", content);
            rivals.on_whole(ID, "alice", content, &came, &log);
            assert_eq!(rivals.len(), count);
        }
    }
}

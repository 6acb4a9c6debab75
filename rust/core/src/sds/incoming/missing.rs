//! Dependencies that are named and not here.

use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::send::{IncomingSend, SendRef};
use crate::sds::name::Name;
use crate::sds::slab::Slab;
use crate::wire::sds::HistoryEntry;

/// How many of the oldest entries of a full table are looked at for one that may go at little loss.
const OLDEST_MAX: usize = 100;
/// How many participants are looked at for the one that named most.
const SHARES_MAX: usize = 100;
/// Whose else one id is said to be, at most. With so many it is asked for whatever comes: who names
/// senders and sends in their names ends nothing.
const OTHERS_MAX: usize = 4;

/// One message id that a history named and that is not here.
#[derive(Debug, Clone)]
pub struct MissingMessage {
    /// As the newest history named it.
    pub entry: HistoryEntry,
    /// The send that it belongs to.
    pub send: SendRef,
    /// In whose share it is: who named it first, or later and less in all.
    pub named_by: Arc<str>,
    /// Whose else histories say it is: anybody may name a sender first.
    others: Vec<String>,
}

impl MissingMessage {
    /// Whether histories say that it is another participant's than `sender_id`.
    pub fn is_anothers(&self, sender_id: &str) -> bool {
        let named = self.entry.sender_id.as_deref().unwrap_or_default();
        !named.is_empty() && (*named != *sender_id || !self.others.is_empty())
    }

    /// Whether a history says that it is `sender_id`'s.
    pub fn may_be_of(&self, sender_id: &str) -> bool {
        let named = self.entry.sender_id.iter().chain(&self.others);
        named.into_iter().any(|named| *named == *sender_id)
    }
}

/// A bounded table. When it is full, the participant that named most of it loses its oldest entry,
/// so that nobody's inventions displace what the others name. Among the oldest, one of a send that
/// nothing waits for goes first, then one of a send of which something is held: what waits for a
/// send that is only named would go on without it.
#[derive(Debug)]
pub struct MissingMessages {
    messages_max: usize,
    by_id: LinkedHashMap<Name, MissingMessage>,
    by_participant: LinkedHashMap<Arc<str>, LinkedHashSet<Name>>,
    /// Counts changes of which messages are missing, and of what is known of them.
    version: u64,
    /// For `poll_persist`: ids whose stored form changed.
    changed: LinkedHashSet<Name>,
}

impl MissingMessages {
    /// An empty table for `messages_max` entries.
    pub fn new(messages_max: usize) -> Self {
        MissingMessages {
            messages_max,
            by_id: LinkedHashMap::new(),
            by_participant: LinkedHashMap::new(),
            version: 0,
            changed: LinkedHashSet::new(),
        }
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Entries held.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// A number that differs once another message is missing, or more is known of one.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether an id is missing.
    pub fn contains(&self, message_id: &[u8]) -> bool {
        self.by_id.contains_key(message_id)
    }

    /// A missing message.
    pub fn get(&self, message_id: &[u8]) -> Option<&MissingMessage> {
        self.by_id.get(message_id)
    }

    /// Whether what `named_by` names next takes no place from itself.
    pub fn has_room_for(&self, named_by: &Arc<str>) -> bool {
        let own = self.by_participant.get(named_by);
        let Some(own) = own.filter(|_| self.by_id.len() >= self.messages_max) else {
            return true;
        };
        let shares = self.by_participant.values().take(SHARES_MAX);
        shares.into_iter().any(|share| share.len() > own.len())
    }

    /// Every missing message, the longest known first.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &MissingMessage)> {
        self.by_id.iter()
    }

    /// Tracks `entry`, which is not tracked yet; gives the message that had to go for it, if any.
    pub fn add(
        &mut self,
        entry: HistoryEntry,
        send: SendRef,
        named_by: &Arc<str>,
        sends: &Slab<IncomingSend>,
    ) -> Option<(Name, MissingMessage)> {
        let full = self.by_id.len() >= self.messages_max;
        let evicted = if full {
            self.make_room(named_by, sends)
        } else {
            None
        };
        let message_id = Name::new(&entry.message_id);
        let share = self
            .by_participant
            .entry(Arc::clone(named_by))
            .or_insert_with(LinkedHashSet::new);
        share.replace(message_id.clone());
        let named_by = Arc::clone(named_by);
        self.version += 1;
        self.changed.replace(message_id.clone());
        self.by_id.insert(
            message_id,
            MissingMessage {
                entry,
                send,
                named_by,
                others: Vec::new(),
            },
        );
        evicted
    }

    /// Another history names it too: the newest hint stands, and a sender once known. It is in the
    /// share of whoever named less; gives who that is.
    pub fn learn(
        &mut self,
        message_id: &[u8],
        entry: &HistoryEntry,
        named_by: &Arc<str>,
    ) -> Arc<str> {
        let size = |by: &Arc<str>| self.by_participant.get(by).map_or(0, LinkedHashSet::len);
        let Some(message) = self.by_id.get_mut(message_id) else {
            return Arc::clone(named_by);
        };
        if size(named_by) < size(&message.named_by) {
            let name = Name::from_wire(message_id);
            if let Some(share) = self.by_participant.get_mut(&message.named_by) {
                share.remove(&name);
                if share.is_empty() {
                    self.by_participant.remove(&message.named_by);
                }
            }
            message.named_by = Arc::clone(named_by);
            let share = self
                .by_participant
                .entry(Arc::clone(named_by))
                .or_insert_with(LinkedHashSet::new);
            share.replace(name.clone());
            self.changed.replace(name);
        }
        let named_by = Arc::clone(&message.named_by);
        let is_set = |text: &&String| !text.is_empty();
        if let Some(other) = entry.sender_id.as_ref().filter(is_set)
            && message.is_anothers(other)
            && message.others.len() < OTHERS_MAX
            && !message.may_be_of(other)
        {
            message.others.push(other.clone());
        }
        let known = &mut message.entry;
        let hint = entry
            .retrieval_hint
            .as_ref()
            .filter(|hint| !hint.is_empty());
        let sender = known
            .sender_id
            .as_ref()
            .filter(is_set)
            .or(entry.sender_id.as_ref());
        let differs = hint.is_some_and(|hint| known.retrieval_hint.as_ref() != Some(hint))
            || sender != known.sender_id.as_ref();
        if differs {
            let sender = sender.cloned();
            known.retrieval_hint = hint.cloned().or_else(|| known.retrieval_hint.take());
            known.sender_id = sender;
            self.version += 1;
            self.changed.replace(Name::from_wire(message_id));
        }
        named_by
    }

    /// What histories say is `sender_id`'s came; whether another one's is asked for still.
    pub fn came(&mut self, message_id: &[u8], sender_id: &str) -> bool {
        let Some(message) = self.by_id.get_mut(message_id) else {
            return false;
        };
        let is_anothers = message.is_anothers(sender_id);
        let others = &mut message.others;
        if is_anothers && others.len() < OTHERS_MAX {
            if message.entry.sender_id.as_deref() != Some(sender_id) {
                others.retain(|other| *other != *sender_id);
            } else {
                message.entry.sender_id = Some(others.remove(0));
                self.changed.replace(Name::from_wire(message_id));
                self.version += 1;
            }
        }
        is_anothers
    }

    /// The stored form of one that is missing changed.
    pub fn note_changed(&mut self, message_id: &str) {
        if self.by_id.contains_key(message_id.as_bytes()) {
            self.changed.replace(Name::new(message_id));
        }
    }

    /// It came, or is no longer waited for.
    pub fn remove(&mut self, message_id: &[u8]) -> Option<(Name, MissingMessage)> {
        let (name, message) = self.by_id.remove_entry(message_id)?;
        if let Some(share) = self.by_participant.get_mut(&message.named_by) {
            share.remove(message_id);
            if share.is_empty() {
                self.by_participant.remove(&message.named_by);
            }
        }
        self.version += 1;
        self.changed.replace(name.clone());
        Some((name, message))
    }

    /// Ids whose stored form changed since the last call.
    pub fn poll_changed(&mut self) -> LinkedHashSet<Name> {
        std::mem::take(&mut self.changed)
    }

    fn make_room(
        &mut self,
        named_by: &Arc<str>,
        sends: &Slab<IncomingSend>,
    ) -> Option<(Name, MissingMessage)> {
        // Where several named as much, whoever names more now loses.
        let mut largest = self.by_participant.get(named_by);
        for share in self.by_participant.values().take(SHARES_MAX) {
            if largest.is_none_or(|largest| share.len() > largest.len()) {
                largest = Some(share);
            }
        }
        let first = self.first_to_go(largest?, sends)?.clone();
        self.remove(first.as_bytes())
    }

    /// Looked for no further than to the first: a flood has this called for each of what it names.
    fn first_to_go<'a>(
        &self,
        ids: &'a LinkedHashSet<Name>,
        sends: &Slab<IncomingSend>,
    ) -> Option<&'a Name> {
        let send_of = |id: &Name| sends.get(self.by_id.get(id)?.send);
        let oldest = || ids.iter().take(OLDEST_MAX);
        let free = oldest().find(|id| send_of(id).is_none_or(|send| send.dependents.is_empty()));
        let partial =
            || oldest().find(|id| send_of(id).is_some_and(|send| !send.contents.is_empty()));
        free.or_else(partial).or_else(|| ids.front())
    }

    /// Each is in the share of one participant.
    #[cfg(any(test, debug_assertions))]
    pub fn audit(&self) {
        assert!(self.by_participant.values().all(|share| !share.is_empty()));
        let shares = self.by_participant.values().map(LinkedHashSet::len);
        assert_eq!(self.by_id.len(), shares.sum::<usize>());
        for (id, missing) in &self.by_id {
            assert!(self.by_participant[&missing.named_by].contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table {
        table: MissingMessages,
        sends: Slab<IncomingSend>,
    }

    impl Table {
        fn new(messages_max: usize) -> Self {
            Table {
                table: MissingMessages::new(messages_max),
                sends: Slab::default(),
            }
        }

        /// A send of which something is held or not, that something waits for or not.
        fn send(&mut self, held: bool, waited_for: bool) -> SendRef {
            let named = |key| IncomingSend::new(Name::new(key), Name::new(key), "".into(), 0);
            let mut send = named("send");
            if waited_for {
                send.dependents.insert(self.sends.insert(named("after")));
            }
            if held {
                let mut log = crate::sds::log::Log::of(1);
                send.contents
                    .push(log.add(Name::new("held"), "alice".into(), 0, None, 0).0);
            }
            self.sends.insert(send)
        }

        fn add(&mut self, id: &str, send: SendRef, by: &str) -> Option<String> {
            let entry = HistoryEntry {
                message_id: id.to_owned(),
                ..HistoryEntry::default()
            };
            let gone = self.table.add(entry, send, &by.into(), &self.sends);
            gone.map(|(name, _)| name.to_string())
        }
    }

    #[test]
    fn what_others_wait_for_goes_last() {
        let mut table = Table::new(4);
        let (named, partial) = (table.send(false, true), table.send(true, true));
        let alone = table.send(false, false);
        for (id, send) in [
            ("named", named),
            ("partial 1", partial),
            ("partial 2", partial),
            ("alone", alone),
        ] {
            assert_eq!(table.add(id, send, "bob"), None);
        }
        let gone =
            (0..4).map(|number| table.add(&format!("later {number}"), named, "bob").unwrap());
        assert_eq!(
            gone.collect::<Vec<_>>(),
            ["alone", "partial 1", "partial 2", "named"]
        );
    }

    #[test]
    fn a_participant_beyond_its_share_pays_for_itself() {
        let mut table = Table::new(4);
        let (named, partial) = (table.send(false, true), table.send(true, true));
        table.add("honest", partial, "alice");
        for number in 0..3 {
            table.add(&format!("flood {number}"), named, "mallory");
        }
        assert_eq!(
            table.add("flood 3", named, "mallory").as_deref(),
            Some("flood 0")
        );
        assert!(table.table.contains(b"honest"));
    }

    #[test]
    fn who_named_most_gives_way_to_whoever_names_more() {
        let mut table = Table::new(10);
        let (honest, invented) = (table.send(false, true), table.send(false, true));
        for number in 0..6 {
            table.add(&format!("invented {number}"), invented, "mallory");
        }
        for number in 0..4 {
            table.add(&format!("honest {number}"), honest, "alice");
        }
        // Alice has more than an equal share of the table too, and bob has nothing in it yet.
        assert_eq!(
            table.add("more 0", honest, "alice").as_deref(),
            Some("invented 0")
        );
        assert_eq!(
            table.add("more 1", honest, "bob").as_deref(),
            Some("invented 1")
        );
    }

    #[test]
    fn the_newest_hint_stands_and_a_sender_once_known() {
        let mut table = Table::new(4);
        let send = table.send(false, false);
        table.add("id", send, "bob");
        let mut version = table.table.version();
        let entry = |hint: Option<&[u8]>, sender: Option<&str>| HistoryEntry {
            message_id: "id".to_owned(),
            retrieval_hint: hint.map(Vec::from),
            sender_id: sender.map(str::to_owned),
        };
        // What is named, what is known from then on, and whether that is news.
        for (hint, sender, known_hint, known_sender, news) in [
            (None, None, None, None, false),
            (None, Some("alice"), None, Some("alice"), true),
            (Some(&b"1"[..]), None, Some(&b"1"[..]), Some("alice"), true),
            (Some(b"1"), Some("alice"), Some(b"1"), Some("alice"), false),
            (Some(b""), Some("mallory"), Some(b"1"), Some("alice"), false),
            (Some(b"2"), None, Some(b"2"), Some("alice"), true),
            (None, None, Some(b"2"), Some("alice"), false),
        ] {
            table.table.poll_changed();
            table
                .table
                .learn(b"id", &entry(hint, sender), &"bob".into());
            let known = &table.table.get(b"id").unwrap().entry;
            assert_eq!(*known, entry(known_hint, known_sender));
            assert_eq!(table.table.version() != version, news);
            assert_eq!(table.table.poll_changed().contains(&Name::new("id")), news);
            version = table.table.version();
        }
        table.table.remove(b"id");
        assert_ne!(table.table.version(), version);
        table.add("id", send, "bob");
        assert_ne!(table.table.version(), version);
    }

    #[test]
    fn what_two_participants_name_is_in_the_share_of_who_named_less() {
        let mut table = Table::new(4);
        let send = table.send(false, false);
        for id in ["one", "two", "three"] {
            table.add(id, send, "mallory");
        }
        table.add("own", send, "alice");
        let entry = table.table.get(b"one").unwrap().entry.clone();
        let mut learn = |by: &str| table.table.learn(b"one", &entry, &by.into()).to_string();
        assert_eq!(learn("alice"), "alice");
        // Both have two now: it stays where it is.
        assert_eq!(learn("mallory"), "alice");
        assert_eq!(learn("bob"), "bob");
        table.table.audit();
    }

    #[test]
    fn who_named_most_of_a_full_table_has_no_room_there() {
        let mut table = Table::new(4);
        let send = table.send(false, false);
        let has_room = |table: &Table, by: &str| table.table.has_room_for(&by.into());
        for id in ["one", "two", "three"] {
            table.add(id, send, "mallory");
            assert!(has_room(&table, "mallory"));
        }
        table.add("own", send, "alice");
        assert!(!has_room(&table, "mallory"));
        assert!(has_room(&table, "alice") && has_room(&table, "bob"));
        // Both named as much.
        table.table.remove(b"three");
        table.add("another", send, "alice");
        assert!(!has_room(&table, "alice"));
    }

    #[test]
    fn each_that_is_missing_and_none_that_is_no_longer_is_news_and_stored() {
        let mut table = Table::new(4);
        let send = table.send(false, false);
        let mut version = table.table.version();
        let mut is_news = |table: &mut Table| {
            let former = std::mem::replace(&mut version, table.table.version());
            let changed: Vec<_> = table.table.poll_changed().into_iter().collect();
            former != version && changed == [Name::new("id")]
        };
        table.add("id", send, "mallory");
        assert!(is_news(&mut table));
        table.add("more", send, "mallory");
        table.table.poll_changed();
        let entry = table.table.get(b"id").unwrap().entry.clone();
        // Whose share it is in is stored with it.
        table.table.learn(b"id", &entry, &"alice".into());
        let changed = table.table.poll_changed();
        assert!(changed.contains(&Name::new("id")));
        is_news(&mut table);
        table.table.remove(b"id");
        assert!(is_news(&mut table));
    }

    #[test]
    fn what_a_history_does_not_say_whose_it_is_may_be_anybodys() {
        for (named, is_anothers) in [(None, false), (Some("alice"), false), (Some("bob"), true)] {
            let mut table = Table::new(4);
            let entry = HistoryEntry {
                message_id: "id".to_owned(),
                retrieval_hint: None,
                sender_id: named.map(str::to_owned),
            };
            let send = table.send(false, false);
            table.table.add(entry, send, &"carol".into(), &table.sends);
            let missing = table.table.get(b"id").unwrap();
            assert_eq!(missing.is_anothers("alice"), is_anothers);
        }
    }
}

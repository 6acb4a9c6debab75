//! Sends of which something was received and acknowledged, and that were given up before they were
//! whole.
//!
//! Acknowledgements cannot be taken back: a sender adds up what it was told. So whoever gave up a
//! send says nothing more of it, in histories or filters, until it holds again all that it ever said
//! it holds, or the message itself.

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::buffer::{Incoming, Surroundings};
use super::send::{IncomingSend, SendRef};
use crate::maps::HashSet;
use crate::sds::config::{Config, Now};
use crate::sds::ids::{claimed_key, is_joined};
use crate::sds::log::{EntryRef, Log};
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::sync::anti_entropy::AntiEntropy;
use crate::sds::sync::filter::FilterSchedule;
use crate::wire::sds::HistoryEntry;

/// A message to be taken in again, with its hint.
pub type Reopened = (Octets, Option<Vec<u8>>);

/// The contents of a send that may have been acknowledged.
#[derive(Debug, Default)]
struct Former {
    contents: Vec<HistoryEntry>,
    /// Whether there were others, which are not known (any more): that withholds until the message is
    /// whole.
    are_some_unknown: bool,
}

/// Knows these sends, withholds what must not be said of them, and asks for their contents when more
/// of them comes.
#[derive(Debug)]
pub struct GivenUp {
    by_send: bool,
    sends_max: usize,
    /// By send and sender.
    sends: LinkedHashMap<Name, Former>,
    former_count: usize,
    reopened: Vec<Reopened>,
    /// For `poll_persist`.
    changed: LinkedHashSet<Name>,
}

/// What says what is held, beside the acknowledgements.
pub struct Voice<'a> {
    /// The filter.
    pub filter: &'a mut FilterSchedule,
    /// What others lack.
    pub anti_entropy: &'a mut AntiEntropy,
}

impl GivenUp {
    /// None.
    pub fn new(config: &Config) -> Self {
        GivenUp {
            by_send: config.by_send(),
            sends_max: config.missing_messages_max,
            sends: LinkedHashMap::new(),
            former_count: 0,
            reopened: Vec::new(),
            changed: LinkedHashSet::new(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sends.len()
    }

    /// Whether the send that the owner calls so is withheld.
    pub fn knows(&self, sender_id: &str, send_id: &str) -> bool {
        !self.sends.is_empty() && self.sends.contains_key(&claimed_key(send_id, sender_id))
    }

    /// Whether a content of `send` must not be said.
    pub fn withholds(&self, send: Option<&IncomingSend>) -> bool {
        send.is_some_and(|send| self.knows(&send.sender_id, &send.send_id))
    }

    // --- giving up ------------------------------------------------------------------------------

    /// Forgets the contents of a send; whether it is given up for the first time.
    ///
    /// With `keep_messages` those that are kept for repair stay, so that the send can be taken up
    /// again from them, and what it lacks is still asked for.
    pub fn give_up(
        &mut self,
        handle: SendRef,
        keep_messages: bool,
        monotonic_ms: i64,
        incoming: &mut Incoming,
        voice: &mut Voice<'_>,
        around: &mut Surroundings<'_>,
    ) -> bool {
        let Some(send) = incoming.get(handle) else {
            return true;
        };
        let contents = send.contents.clone();
        let ids = contents.iter().filter_map(|entry| around.log.get(*entry));
        let ids: Vec<_> = ids.map(|entry| entry.message_id.clone()).collect();
        // What histories call it by.
        let keys: Vec<_> = if self.by_send && !is_joined(&send.key) {
            vec![send.key.clone()]
        } else {
            ids.iter().map(|id| incoming.key_of_id(id)).collect()
        };
        let lost = |key: &Name| incoming.lost().contains(key.as_bytes());
        let known = keys.iter().any(lost);
        let name = claimed_key(&send.send_id, &send.sender_id);
        let lacking = if keep_messages {
            incoming.lacking(handle, around.log)
        } else {
            Vec::new()
        };
        incoming.abandon(handle, around);
        let mut former: LinkedHashMap<String, HistoryEntry> = LinkedHashMap::new();
        let before = self.sends.get(&name);
        let are_some_unknown = before.is_some_and(|before| before.are_some_unknown);
        for entry in before.into_iter().flat_map(|before| &before.contents) {
            former.insert(entry.message_id.clone(), entry.clone());
        }
        for (entry, message_id) in contents.into_iter().zip(ids) {
            unsay(entry, voice, around);
            if let Some((_, withdrawn)) = around.log.withdraw(message_id.as_bytes()) {
                let history_entry = HistoryEntry {
                    message_id: message_id.to_string(),
                    retrieval_hint: withdrawn.retrieval_hint.as_bytes().map(<[u8]>::to_vec),
                    sender_id: Some(withdrawn.sender_id.to_string()),
                };
                former.replace(message_id.to_string(), history_entry);
            }
            if !keep_messages {
                around.log.forget_original(&message_id);
            }
        }
        for key in keys {
            incoming.restore_lost(key, true);
        }
        let former = Former {
            contents: former.into_iter().map(|(_, entry)| entry).collect(),
            are_some_unknown,
        };
        self.put(name, former, around.log);
        incoming.go_on_asking(lacking, monotonic_ms, around);
        !known
    }

    /// There is enough of the content's send, and its message is not whole: it must not be said.
    /// `message_id` is that of the content, or the one that it shares as a rival.
    pub fn doubt(
        &mut self,
        message_id: &str,
        handle: SendRef,
        incoming: &Incoming,
        voice: &mut Voice<'_>,
        around: &mut Surroundings<'_>,
    ) {
        let Some(send) = incoming.get(handle).filter(|send| send.is_partial()) else {
            return;
        };
        let name = claimed_key(&send.send_id, &send.sender_id);
        if !self.sends.contains_key(&name) {
            self.put(name, Former::default(), around.log);
        }
        let entry = around.log.find(message_id.as_bytes());
        if let Some(entry) = entry
            && around
                .log
                .get(entry)
                .is_some_and(|held| held.send == Some(handle))
        {
            unsay(entry, voice, around);
        }
    }

    fn put(&mut self, name: Name, former: Former, log: &mut Log) {
        let before = self.sends.remove(&name).unwrap_or_default();
        self.former_count = self.former_count + former.contents.len() - before.contents.len();
        self.sends.insert(name.clone(), former);
        self.changed.replace(name.clone());
        if self.sends.len() > self.sends_max
            && let Some((oldest, _)) = self.sends.front()
        {
            let oldest = oldest.clone();
            self.forget(&oldest, log);
        }
        if self.former_count > self.sends_max {
            let first = self
                .sends
                .iter_mut()
                .find(|(known, former)| **known != name && !former.contents.is_empty());
            if let Some((_, former)) = first {
                former.are_some_unknown = true;
                let contents = std::mem::take(&mut former.contents);
                self.former_count -= contents.len();
                forget_messages(&contents, log);
            }
        }
    }

    fn forget(&mut self, name: &Name, log: &mut Log) {
        if let Some(former) = self.sends.remove(name) {
            self.changed.replace(name.clone());
            self.former_count -= former.contents.len();
            forget_messages(&former.contents, log);
        }
    }

    // --- what comes again -----------------------------------------------------------------------

    /// A content came and its send is known. True where with it all is held again that was ever
    /// acknowledged.
    pub fn on_placed(
        &mut self,
        entry: EntryRef,
        now: Now,
        incoming: &mut Incoming,
        voice: &mut Voice<'_>,
        around: &mut Surroundings<'_>,
    ) -> Option<SendRef> {
        let handle = around.log.get(entry)?.send?;
        let send = incoming.get(handle).filter(|send| !send.reconstructed)?;
        let name = claimed_key(&send.send_id, &send.sender_id);
        let Former {
            contents: former,
            are_some_unknown,
        } = self.sends.get(&name)?;
        let is_first = send.contents.len() == 1;
        if former.is_empty() || (!is_first && send.contents.len() < former.len()) {
            // So few cannot be all of them: nothing is compared for each that comes.
            unsay(entry, voice, around);
            return None;
        }
        let contents = send.contents.iter();
        let held = contents.filter_map(|content| around.log.get(*content));
        let held: HashSet<&str> = held.map(|content| content.message_id.as_str()).collect();
        let absent = former
            .iter()
            .filter(|known| !held.contains(known.message_id.as_str()));
        let absent: Vec<_> = absent.cloned().collect();
        if absent.is_empty() && !are_some_unknown {
            return Some(handle);
        }
        unsay(entry, voice, around);
        if is_first {
            self.reopen(handle, absent, now, incoming, around);
        }
        None
    }

    /// The first content came again: the others are taken from what is kept here, or asked for.
    fn reopen(
        &mut self,
        handle: SendRef,
        absent: Vec<HistoryEntry>,
        now: Now,
        incoming: &mut Incoming,
        around: &mut Surroundings<'_>,
    ) {
        // What follows it went on without it before.
        incoming.go_on_without(handle, around);
        let mut wanted = Vec::new();
        for entry in absent {
            match around.log.original(entry.message_id.as_bytes()) {
                None => wanted.push(entry),
                Some(message) => self.reopened.push((message, entry.retrieval_hint)),
            }
        }
        incoming.ask_for(handle, wanted, now.monotonic_ms, around);
    }

    /// All that was said of a send is true again: it is withheld no longer. Whether it was.
    pub fn on_whole(&mut self, send: &IncomingSend, log: &mut Log) -> bool {
        let known = self.knows(&send.sender_id, &send.send_id);
        if known {
            self.forget(&claimed_key(&send.send_id, &send.sender_id), log);
        }
        known
    }

    /// Messages to be taken in again since the last call.
    pub fn poll_reopened(&mut self) -> Vec<Reopened> {
        std::mem::take(&mut self.reopened)
    }

    // --- stored form ----------------------------------------------------------------------------

    /// Names whose record changed since the last call, and whether each is still known.
    pub fn poll_changed(&mut self) -> Vec<(Name, bool)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|name| (name.clone(), self.sends.contains_key(&name)))
            .collect()
    }

    /// Restores a stored name.
    pub fn restore(&mut self, name: Name) {
        let former = Former {
            are_some_unknown: true,
            ..Former::default()
        };
        self.sends.insert(name, former);
    }

    /// What is counted is what is there.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        assert_eq!(
            self.former_count,
            (self.sends.values().map(|former| former.contents.len())).sum::<usize>()
        );
    }
}

/// `entry` is said by nothing that leaves from now on.
pub fn unsay(entry: EntryRef, voice: &mut Voice<'_>, around: &mut Surroundings<'_>) {
    let Some(held) = around.log.get_mut(entry) else {
        return;
    };
    around.acknowledgements.forget(entry, held);
    let message_id = held.message_id.clone();
    voice.anti_entropy.forget(entry);
    voice.filter.refuse(&message_id);
}

/// Messages that the log does not hold are kept no longer.
fn forget_messages(former: &[HistoryEntry], log: &mut Log) {
    for entry in former {
        if !log.contains(entry.message_id.as_bytes()) {
            log.forget_original(&Name::new(&entry.message_id));
        }
    }
}

//! What this participant says of sends whose sender counts what is lacking, instead of naming what
//! came.

use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};
use sha2::{Digest, Sha256};

use crate::sds::ids::lacking_id;
use crate::sds::log::EntryRef;
use crate::sds::name::Name;
use crate::sds::outgoing::Asked;
use crate::wire::sds::HistoryEntry;

/// Sender ids are free to forge; who asked first is forgotten first.
pub const ASKERS_MAX: usize = 1_000;
/// Sends of which one message says what is lacking: no more of its requests are looked at.
pub const STATEMENTS_MAX: usize = 100;
/// An inquiry that only so few are to answer names them, by the first bytes of the SHA-256 of each.
const ASKED_BY_NAME_MAX: usize = 16;
const MARK_BYTES: usize = 4;
/// How the hint of a number begins that anybody may answer who has the send; a byte follows, which says how
/// many contents are here that others made. No inquiry has such a hint: a mark is longer.
const ANYBODY: u8 = b'*';

/// Who counts, and of which sends it wants to know.
///
/// A sender that makes contents on demand says so by asking; from then on a number takes the place of
/// the ids of all that came of its sends.
#[derive(Debug, Default)]
pub struct Lacking {
    askers: LinkedHashSet<Arc<str>>,
    owed: LinkedHashSet<(Arc<str>, Name)>,
    /// Sends of which anybody is asked once more how much they lack, and when.
    again: LinkedHashMap<(Arc<str>, Name), i64>,
}

/// What one message says, and the entries that it thereby acknowledges.
#[derive(Debug, Default)]
pub struct Statements {
    /// As they stand among the requests.
    pub requests: Vec<HistoryEntry>,
    /// What need not be named.
    pub said: Vec<EntryRef>,
}

impl Lacking {
    /// A sender asks, and so it counts.
    pub fn on_asked(&mut self, sender_id: &Arc<str>) {
        self.askers.replace(Arc::clone(sender_id));
        if self.askers.len() > ASKERS_MAX {
            self.askers.pop_front();
        }
    }

    /// Whether a sender counts.
    pub fn counts(&self, sender_id: &Arc<str>) -> bool {
        !self.askers.is_empty() && self.askers.contains(sender_id)
    }

    /// The next message says what is lacking of a send, even if nothing new came of it.
    pub fn owe(&mut self, sender_id: &Arc<str>, send_id: Name) {
        self.owed.replace((Arc::clone(sender_id), send_id));
        if self.owed.len() > STATEMENTS_MAX {
            self.owed.pop_front();
        }
    }

    /// What came of a send on request is not enough: others are asked again at `at_ms` for what is lacking then, or
    /// earlier where that was due before.
    pub fn ask_again(&mut self, sender_id: &Arc<str>, send_id: Name, at_ms: i64) {
        let send = (Arc::clone(sender_id), send_id);
        self.again.entry(send).or_insert(at_ms);
        if self.again.len() > STATEMENTS_MAX {
            self.again.pop_front();
        }
    }

    /// Nobody is asked again for what is lacking of a send.
    pub fn ask_no_more(&mut self, sender_id: &Arc<str>, send_id: &Name) {
        if !self.again.is_empty() {
            self.again.remove(&(Arc::clone(sender_id), send_id.clone()));
        }
    }

    /// When anybody is asked again.
    pub fn again_ms(&self) -> Option<i64> {
        self.again.values().copied().min()
    }

    /// The sends of which anybody is asked now.
    pub fn take_again(&mut self, monotonic_ms: i64) -> Vec<(Arc<str>, Name)> {
        let due: Vec<_> = self
            .again
            .iter()
            .filter(|(_, at_ms)| **at_ms <= monotonic_ms)
            .map(|(send, _)| send.clone())
            .collect();
        for send in &due {
            self.again.remove(send);
        }
        due
    }

    /// Whether the next message answers an inquiry.
    pub fn is_asked(&self) -> bool {
        !self.owed.is_empty()
    }

    /// What is to be said of these sends and of those that were asked about; `lacking_of` counts.
    pub fn take(
        &mut self,
        mut sends: LinkedHashMap<(Arc<str>, Name), Vec<EntryRef>>,
        lacking_of: impl Fn(&str, &str) -> Option<u32>,
    ) -> Statements {
        for owed in std::mem::take(&mut self.owed) {
            sends.entry(owed).or_insert_with(Vec::new);
        }
        let mut statements = Statements::default();
        for ((sender_id, send_id), entries) in sends {
            if statements.requests.len() == STATEMENTS_MAX {
                break;
            }
            let Some(lacking) = lacking_of(&sender_id, &send_id) else {
                continue;
            };
            statements
                .requests
                .push(statement(&send_id, lacking, &sender_id));
            statements.said.extend(entries);
        }
        statements
    }
}

/// Says how many contents are lacking of a send.
pub fn statement(send_id: &str, lacking: u32, sender_id: &str) -> HistoryEntry {
    HistoryEntry {
        message_id: lacking_id(send_id, lacking).to_string(),
        retrieval_hint: None,
        sender_id: Some(sender_id.to_owned()),
    }
}

/// Asks anybody who has a send for contents of it, whichever those are: so many as are lacking, less those
/// that are `made` by others and here. For the send's own sender it is a statement as any other, in which
/// what others made does not count: it may be false.
pub fn request(send_id: &str, lacking: u32, made: u32, sender_id: &str) -> HistoryEntry {
    let made = u8::try_from(made).unwrap_or(u8::MAX);
    HistoryEntry {
        retrieval_hint: Some(vec![ANYBODY, made]),
        ..statement(send_id, lacking, sender_id)
    }
}

/// How many a number with this hint asks of anybody, where `lacking` stands in it.
pub fn asked_of_anybody(retrieval_hint: Option<&[u8]>, lacking: u32) -> Option<u32> {
    match retrieval_hint {
        Some([ANYBODY, made]) if lacking > 0 => {
            Some(lacking.saturating_sub(u32::from(*made)).max(1))
        }
        _ => None,
    }
}

/// Asks what is lacking of a send: these, or with none of them whoever has some of it. The number of a
/// sender's own send says how it is to be answered: 0 by a number, any other by what came.
pub fn inquiry(asked: &Asked, sender_id: &str) -> HistoryEntry {
    let marks = asked.names.iter().flat_map(|name| mark_of(name));
    let is_short = (1..=ASKED_BY_NAME_MAX).contains(&asked.names.len());
    HistoryEntry {
        retrieval_hint: is_short.then(|| marks.collect()),
        ..statement(&asked.send_id, u32::from(!asked.by_number), sender_id)
    }
}

/// Whether an inquiry with this hint asks `name`.
pub fn asks(retrieval_hint: Option<&[u8]>, name: &str) -> bool {
    let mark = mark_of(name);
    retrieval_hint.is_none_or(|hint| hint.chunks(MARK_BYTES).any(|asked| *asked == mark))
}

fn mark_of(name: &str) -> [u8; MARK_BYTES] {
    *Sha256::digest(name)
        .first_chunk()
        .expect("a digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inquiry_asks_those_whom_it_names_or_everybody() {
        let send_id = "0123456789abcdef0123456789abcdef";
        let names: Vec<Arc<str>> = (0..=ASKED_BY_NAME_MAX)
            .map(|number| Arc::from(format!("member-{number}")))
            .collect();
        let asks = |names: &[Arc<str>], name: &str| {
            let asked = Asked {
                send_id: Name::new(send_id),
                names: names.to_vec(),
                by_number: true,
            };
            let entry = inquiry(&asked, "alice");
            asks(entry.retrieval_hint.as_deref(), name)
        };
        assert!(asks(&names[..2], "member-1"));
        assert!(!asks(&names[..2], "member-2"));
        assert!(asks(&[], "member-2"));
        assert!(asks(&names, "anybody"));
        assert!(!super::asks(Some(&[1, 2, 3]), "member-1"));
    }

    #[test]
    fn who_asked_last_counts_and_what_was_asked_last_is_said_once() {
        let mut lacking = Lacking::default();
        let name = |number: usize| Arc::from(format!("member-{number}"));
        for number in 0..ASKERS_MAX {
            lacking.on_asked(&name(number));
        }
        assert!(lacking.counts(&name(0)));
        lacking.on_asked(&name(ASKERS_MAX));
        assert!(!lacking.counts(&name(0)));
        assert!(lacking.counts(&name(1)) && lacking.counts(&name(ASKERS_MAX)));
        let send = |number: usize| Name::new(&format!("{number:032x}"));
        for number in 0..=STATEMENTS_MAX {
            lacking.owe(&name(1), send(number));
        }
        assert!(lacking.is_asked());
        let statements = lacking.take(LinkedHashMap::new(), |_, _| Some(3));
        let said: Vec<_> = (1..=STATEMENTS_MAX)
            .map(|number| statement(&send(number), 3, "member-1"))
            .collect();
        assert_eq!(statements.requests, said);
        assert!(!lacking.is_asked());
    }
}

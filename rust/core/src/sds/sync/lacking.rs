//! What this participant says of sends whose sender counts what is lacking, instead of naming what
//! came.

use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use crate::sds::ids::lacking_id;
use crate::sds::log::EntryRef;
use crate::sds::name::Name;
use crate::wire::sds::HistoryEntry;

/// Sender ids are free to forge; who asked first is forgotten first.
pub const ASKERS_MAX: usize = 1_000;
/// Sends of which one message says what is lacking: no more of its requests are looked at.
pub const STATEMENTS_MAX: usize = 100;

/// Who counts, and of which sends it wants to know.
///
/// A sender that makes contents on demand says so by asking; from then on a number takes the place of
/// the ids of all that came of its sends.
#[derive(Debug, Default)]
pub struct Lacking {
    askers: LinkedHashSet<Arc<str>>,
    owed: LinkedHashSet<(Arc<str>, Name)>,
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
        self.askers.contains(sender_id)
    }

    /// The next message says what is lacking of a send, even if nothing new came of it.
    pub fn owe(&mut self, sender_id: &Arc<str>, send_id: Name) {
        self.owed.replace((Arc::clone(sender_id), send_id));
        if self.owed.len() > STATEMENTS_MAX {
            self.owed.pop_front();
        }
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

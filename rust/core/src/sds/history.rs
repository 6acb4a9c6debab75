//! What a message of ours names.

use super::ids::ENTRY_FRAME_BYTES;
use super::log::{Entry, EntryRef, Log};
use super::name::Name;
use crate::wire::sds::{EntryView, WireFormat, encode_history};

/// A causal history, before it is encoded.
#[derive(Debug, Default)]
pub struct History {
    /// The entries, in the order of the message, each with whether hint and sender go along.
    items: Vec<(EntryRef, bool)>,
    /// The entries that count as acknowledged.
    pub said: Vec<EntryRef>,
    /// Bytes left of the budget.
    pub left: usize,
    /// Room for what is found on the way.
    sources: Vec<EntryRef>,
    causal: Vec<EntryRef>,
}

impl History {
    /// Names nothing any more, and keeps its room.
    pub fn cleared(mut self) -> Self {
        self.items.clear();
        self.said.clear();
        self.sources.clear();
        self.causal.clear();
        self
    }

    /// Room to gather sources in.
    pub fn take_sources(&mut self) -> Vec<EntryRef> {
        std::mem::take(&mut self.sources)
    }

    /// As [`History::compose`], of sources that were gathered in [`History::take_sources`].
    pub fn compose_of(
        self,
        log: &mut Log,
        causal_size: usize,
        sources: Vec<EntryRef>,
        budget: usize,
    ) -> Self {
        let owed = std::iter::empty();
        let gathered = sources.iter().copied();
        let mut history = self.compose(log, causal_size, gathered, owed, budget, None);
        history.sources = sources;
        history
    }

    /// A history of at most `budget` bytes, which names nothing yet.
    ///
    /// The newest `causal_size` delivered sends come first in claim and last in place. `sources`
    /// follow as ids alone until one has no room, then those of `owed` that have, with hints. Where it
    /// `acknowledges`, both have up to so much of what the newest one leaves, half of it for 2 and all for 1: what
    /// nothing acknowledges is sent again, and fails at last, and what is owed is due until it is named.
    pub fn compose(
        mut self,
        log: &mut Log,
        causal_size: usize,
        sources: impl Iterator<Item = EntryRef> + Clone,
        owed: impl Iterator<Item = EntryRef> + Clone,
        budget: usize,
        acknowledges: Option<usize>,
    ) -> Self {
        let history = &mut self;
        history.left = budget;
        let mut kept = 0;
        let number = log.next_history();
        let mut causal = std::mem::take(&mut history.causal);
        causal.extend(log.newest(causal_size));
        let mut fitting = 0;
        for &entry in &causal {
            if let Some(part) = acknowledges.filter(|_| fitting == 1) {
                let named = sources.clone().map(|entry| (entry, false));
                let named = named.chain(owed.clone().map(|entry| (entry, true)));
                kept = room_for(log, named, history.left / part);
                history.left -= kept;
            }
            if !history.claim(log, entry, true, number) {
                break;
            }
            history.said.push(entry);
            fitting += 1;
        }
        causal.truncate(fitting);
        history.left += kept;
        for entry in sources {
            let Some(held) = log.get(entry).filter(|held| held.named_in != number) else {
                continue;
            };
            if size_of(held, false) > history.left {
                break;
            }
            history.claim(log, entry, false, number);
            history.said.push(entry);
            history.items.push((entry, false));
        }
        for entry in owed {
            let unnamed = log.get(entry).is_some_and(|held| held.named_in != number);
            if unnamed && history.claim(log, entry, true, number) {
                history.items.push((entry, true));
            }
        }
        history
            .items
            .extend(causal.iter().rev().map(|entry| (*entry, true)));
        history.causal = causal;
        self
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The entries that it names.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef> {
        self.items.iter().map(|(entry, _)| *entry)
    }

    /// The ids that it names.
    pub fn ids(&self, log: &Log) -> Vec<Name> {
        let held = self.items.iter().filter_map(|(entry, _)| log.get(*entry));
        held.map(|held| held.message_id.clone()).collect()
    }

    /// Its fields as they stand in a message, written into `out`, which is empty.
    pub fn encode(&self, log: &Log, wire_format: WireFormat, out: Vec<u8>) -> Vec<u8> {
        let held = self
            .items
            .iter()
            .filter_map(|(entry, whole)| Some((log.get(*entry)?, *whole)));
        let views = held.map(|(held, whole)| EntryView {
            message_id: held.message_id.as_bytes(),
            retrieval_hint: held.retrieval_hint.as_bytes().filter(|_| whole),
            sender_id: whole.then(|| held.sender_id.as_bytes()),
        });
        encode_history(views, wire_format, out)
    }

    /// Takes room for an entry, and marks it as named; false, and nothing changed, where there is
    /// none.
    fn claim(&mut self, log: &mut Log, entry: EntryRef, whole: bool, number: u32) -> bool {
        let Some(held) = log.get_mut(entry) else {
            return false;
        };
        let Some(left) = self.left.checked_sub(size_of(held, whole)) else {
            return false;
        };
        self.left = left;
        held.named_in = number;
        true
    }
}

/// What these take, each with or without hint and sender, up to `bytes_max`.
fn room_for(log: &Log, entries: impl Iterator<Item = (EntryRef, bool)>, bytes_max: usize) -> usize {
    let mut bytes = 0;
    for (entry, whole) in entries {
        bytes += log.get(entry).map_or(0, |held| size_of(held, whole));
        if bytes >= bytes_max {
            return bytes_max;
        }
    }
    bytes
}

fn size_of(entry: &Entry, whole: bool) -> usize {
    let mut size = ENTRY_FRAME_BYTES + entry.message_id.len();
    if whole {
        size += entry.sender_id.len() + entry.retrieval_hint.as_bytes().map_or(0, <[u8]>::len);
    }
    size
}

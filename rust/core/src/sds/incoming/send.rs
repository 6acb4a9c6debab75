//! One send of another participant, until it is delivered.

use std::sync::Arc;

use super::rare::RareSet;
use crate::sds::index::Named;
use crate::sds::log::EntryRef;
use crate::sds::name::Name;
use crate::sds::slab::Handle;

/// To which send a content belongs, and how large that is; `None` where the wire does not say.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The send.
    pub send_id: &'a str,
    /// The content's place in it.
    pub ordinal: Option<u32>,
    /// How many contents the send has.
    pub content_count: Option<u32>,
    /// How many of them make it whole.
    pub contents_needed: Option<u32>,
}

/// Names a send of another participant.
pub type SendRef = Handle<IncomingSend>;

/// A send that is named only, incomplete, or waiting for the sends that it follows.
#[derive(Debug)]
pub struct IncomingSend {
    /// What the incoming buffer calls it: its id, unless another sender claimed that first.
    pub key: Name,
    /// What the owner calls it.
    pub send_id: Name,
    /// Who sent it; empty while nothing of it came.
    pub sender_id: Arc<str>,
    /// When something of it came last, or it was named first.
    pub last_progress_ms: i64,
    /// Distances between contents of it that came one after the other: their sum, and how many.
    distances_ms: (i64, i64),
    /// What came of it, or was recovered with it.
    pub contents: Vec<EntryRef>,
    /// Ids that its contents say it follows.
    pub history: Vec<Name>,
    /// How many contents it has, where its wire says so.
    pub content_count: Option<u32>,
    /// How many of them make it whole.
    pub contents_needed: Option<u32>,
    /// Whether the owner has its message.
    pub reconstructed: bool,
    /// Whether nothing waits for it any more.
    pub lost: bool,
    /// Whether it may be older than this participant's first receipt.
    pub may_predate_us: bool,
    /// Whether its sender repeats contents: then it wants to know which came.
    pub is_repeated: bool,
    /// Contents that others made of it and that are here, and how often anybody was asked for more.
    pub by_members: u32,
    pub asked_again: u32,
    /// Whether what it lacks was told.
    pub siblings_reported: bool,
    /// How many of what it lacks were told since something of it came.
    pub siblings_told: u32,
    /// The sends that it follows and that are not delivered, and those that follow it.
    pub waits_for: RareSet<SendRef>,
    pub(super) dependents: RareSet<SendRef>,
    /// Ids of it that are asked for.
    pub missing: RareSet<Name>,
    /// When it is looked at next.
    pub deadline_ms: Option<i64>,
    /// The number of the last change of its record; 0 where none is to be written.
    pub(super) changed: u64,
}

impl Named for IncomingSend {
    fn name(&self) -> &[u8] {
        self.key.as_bytes()
    }
}

impl IncomingSend {
    /// A send of which nothing came yet.
    pub fn new(key: Name, send_id: Name, sender_id: Arc<str>, monotonic_ms: i64) -> Self {
        IncomingSend {
            key,
            send_id,
            sender_id,
            last_progress_ms: monotonic_ms,
            distances_ms: (0, 0),
            contents: Vec::new(),
            history: Vec::new(),
            content_count: None,
            contents_needed: None,
            reconstructed: false,
            lost: false,
            may_predate_us: false,
            is_repeated: false,
            by_members: 0,
            asked_again: 0,
            siblings_reported: false,
            siblings_told: 0,
            waits_for: RareSet::default(),
            dependents: RareSet::default(),
            missing: RareSet::default(),
            deadline_ms: None,
            changed: 0,
        }
    }

    /// Something of it came. After a pause it says nothing of how far apart contents come.
    pub fn on_progress(&mut self, pause_ms: i64, monotonic_ms: i64) {
        let distance_ms = monotonic_ms - self.last_progress_ms;
        if !self.contents.is_empty() && distance_ms < pause_ms {
            let (sum_ms, count) = self.distances_ms;
            self.distances_ms = (sum_ms + distance_ms, count + 1);
        }
        (self.last_progress_ms, self.siblings_told) = (monotonic_ms, 0);
    }

    /// How far apart its contents come on average; `None` before the second.
    pub fn pace_ms(&self) -> Option<i64> {
        let (sum_ms, count) = self.distances_ms;
        sum_ms.checked_div(count)
    }

    /// Whether nothing of it came, and nothing is asked for.
    pub fn is_idle(&self) -> bool {
        self.contents.is_empty() && self.missing.is_empty()
    }

    /// Whether something of it came and its message is not whole.
    pub fn is_partial(&self) -> bool {
        !self.contents.is_empty() && !self.reconstructed
    }
}

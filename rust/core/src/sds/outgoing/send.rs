//! One send of this participant.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::acknowledged::{Acknowledged, PARTICIPANTS_PER_SEND_MAX};
use super::demand::Demand;
use super::inquiry::Inquiry;
use super::mark::Mark;
use super::waiting::Waiting;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::slab::Handle;

/// Names a send of ours.
pub type OutgoingRef = Handle<OutgoingSend>;
/// Names one content of it.
pub type ContentRef = (OutgoingRef, u32);

/// A group of contents that make one message.
#[derive(Debug)]
pub struct OutgoingSend {
    /// Its id.
    pub send_id: Name,
    /// Its place in the order of sends.
    pub number: u64,
    /// How many contents make it whole.
    pub contents_needed: u32,
    /// What it is made of, by ordinal.
    pub contents: Vec<OutgoingContent>,
    /// Ordinals of contents that wait for their first dispatch, the next one first.
    pub queue: Waiting,
    /// Whether nothing of it was taken from there, and it is counted among those.
    pub(super) is_fresh: bool,
    /// Who acknowledged what, and who can reconstruct it.
    pub acknowledged: Acknowledged,
    /// What all its contents name and carry, from when the first one leaves.
    pub history: Option<FixedHistory>,
    /// Contents that were encoded.
    pub dispatched: u32,
    /// When the first one was.
    pub first_ms: i64,
    /// Whether resending stopped, and whether that was for want of answers.
    pub finished: bool,
    pub given_up: bool,
    /// What is known of what its receivers lack.
    pub(super) inquiry: Inquiry,
    /// What its receivers need, while further contents of it can be made.
    pub demand: Option<Demand>,
    /// Contents of an earlier life that are not known to have left, until they are due.
    pub(super) unconfirmed: Vec<u32>,
    /// Whether its record is to be written.
    pub(super) is_changed: bool,
}

/// The part of a message that the contents of one send share.
#[derive(Debug, Clone, Default)]
pub struct FixedHistory {
    /// Ids that it names.
    pub ids: Vec<Name>,
    /// The causal history as encoded; empty once the last content left.
    pub fields: Vec<u8>,
    /// The filter, until the last content left.
    pub bloom_filter: Option<Vec<u8>>,
    /// Bytes that are left of the header.
    pub header_left: usize,
}

/// One content of a send of ours.
#[derive(Debug)]
pub struct OutgoingContent {
    /// Its message id.
    pub message_id: Name,
    /// Its bytes, until it is encoded.
    pub content: Option<Octets>,
    /// Bytes of the content.
    pub size_bytes: usize,
    /// Its message, from when it is encoded until its send is finished.
    pub wire: Option<Octets>,
    /// Whether it waits for its first dispatch.
    pub queued: bool,
    /// Whether it stands among those that go as soon as anything may leave.
    pub(super) is_due: bool,
    /// Whether it is parity of a send on demand: once it left its bytes are not stored, since others
    /// like it can be made.
    pub made: bool,
    /// Its Lamport timestamp; 0 before it is encoded.
    pub lamport: u64,
    /// How often it was sent again.
    pub attempts: u32,
    /// When it is due again, and the timer that is set for it.
    pub(super) resend_ms: Option<i64>,
    pub(super) timer_ms: Option<i64>,
    /// When a store had it.
    pub(super) stored_ms: Option<i64>,
    /// When it left last.
    pub(super) left_ms: i64,
    /// Whether it is due, or in flight, since an earlier life may have ended before it left.
    pub(super) unconfirmed: bool,
    /// Until when it waits for an answer to others of its send, if it does.
    pub(super) put_off_ms: Option<i64>,
    /// Whose filters hold it.
    pub possible: BTreeMap<Arc<str>, FilterHits>,
    /// The transmission that has no answer yet; 0 for none.
    pub in_flight: u64,
    /// What is known of its record.
    pub(in crate::sds) mark: Mark,
}

/// Filters of one participant that hold a content.
#[derive(Debug, Clone, Default)]
pub struct FilterHits {
    /// How many.
    pub count: u32,
    /// The message that brought the last one, which repeats nothing new when it comes again.
    pub(super) last: Option<Name>,
}

impl OutgoingContent {
    /// Whether it has bytes, and so may leave: parity on demand that left has none after a restart.
    pub fn has_bytes(&self) -> bool {
        self.content.is_some() || self.wire.is_some()
    }

    /// Whether it is on its way out: a slow node may have it for long.
    pub fn is_leaving(&self) -> bool {
        self.queued || self.in_flight != 0
    }

    /// A filter of `by` holds it, which came with `message_id`; false where that is nothing new.
    pub(super) fn on_filter(&mut self, by: &Arc<str>, message_id: &Name) -> bool {
        let is_full = self.possible.len() >= PARTICIPANTS_PER_SEND_MAX;
        let known = self.possible.get(by).map(|hits| hits.last.as_ref());
        if known.map_or(is_full, |last| last == Some(message_id)) {
            return false;
        }
        let hits = self.possible.entry(Arc::clone(by)).or_default();
        hits.count = hits.count.saturating_add(1);
        hits.last = Some(message_id.clone());
        true
    }

    /// How many filters hold it.
    pub fn filter_hits(&self) -> usize {
        self.possible.values().map(|hits| hits.count as usize).sum()
    }

    /// A content that waits.
    pub fn new(message_id: Name, content: Octets) -> Self {
        OutgoingContent {
            message_id,
            size_bytes: content.len(),
            content: Some(content),
            wire: None,
            queued: true,
            is_due: false,
            made: false,
            lamport: 0,
            attempts: 0,
            resend_ms: None,
            timer_ms: None,
            stored_ms: None,
            left_ms: 0,
            unconfirmed: false,
            put_off_ms: None,
            possible: BTreeMap::new(),
            in_flight: 0,
            mark: Mark::default(),
        }
    }
}

impl OutgoingSend {
    /// A send of which nothing has left.
    pub fn new(send_id: Name, number: u64, contents_needed: u32) -> Self {
        OutgoingSend {
            send_id,
            number,
            contents_needed,
            contents: Vec::new(),
            queue: Waiting::default(),
            acknowledged: Acknowledged::default(),
            history: None,
            is_fresh: false,
            dispatched: 0,
            first_ms: 0,
            finished: false,
            given_up: false,
            inquiry: Inquiry::default(),
            demand: None,
            unconfirmed: Vec::new(),
            is_changed: false,
        }
    }

    /// Whether contents wait for their first dispatch.
    pub fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether another participant can reconstruct it, as far as was heard.
    pub fn is_heard(&self) -> bool {
        self.acknowledged.complete() > 0
    }

    /// Whether `name` said nothing since `gap_ms` after some content left that it is not known to have.
    pub(super) fn is_silent(&self, name: &Arc<str>, gap_ms: i64) -> bool {
        (0..).zip(&self.contents).any(|(ordinal, content)| {
            content.lamport != 0
                && !self.acknowledged.holds(name, ordinal)
                && !self.inquiry.is_heard_since(name, content.left_ms + gap_ms)
        })
    }

    /// The message id of the last content that is no parity.
    pub fn last_data(&self) -> Option<&Name> {
        let place = self.contents_needed.checked_sub(1)?;
        Some(&self.contents.get(place as usize)?.message_id)
    }

    /// Contents that left, or are to leave, without being asked for.
    pub fn scheduled(&self) -> usize {
        let on_demand = self.demand.as_ref();
        on_demand.map_or(self.contents.len(), |demand| demand.scheduled as usize)
    }

    /// A content of it leaves.
    pub(super) fn on_left(&mut self, ordinal: u32, monotonic_ms: i64) {
        self.contents[ordinal as usize].left_ms = monotonic_ms;
        if let Some(demand) = &mut self.demand {
            demand.on_left(monotonic_ms);
        }
    }

    /// How many contents `name` lacks of it on demand, as it said since the last one left.
    pub(super) fn known_to_lack(&self, name: &Arc<str>) -> Option<u32> {
        let demand = self.demand.as_ref()?;
        let held = self.acknowledged.count(name);
        // Whoever says only what came says it in full: a few names are no more than a mention.
        let in_full = demand.is_named_by(name) && 2 * held >= self.contents_needed;
        let by_names = in_full.then(|| self.contents_needed.saturating_sub(held));
        demand.stated(name).or(by_names)
    }

    /// Contents of a stored send that were made on demand and never left go back to what can be made;
    /// the ids whose records are to be deleted.
    pub fn unmake(&mut self) -> Vec<Name> {
        let before = self.contents.len() as u32;
        let mut ids = Vec::new();
        while !self.finished
            && let Some(last) = self
                .contents
                .pop_if(|last| last.made && last.lamport == 0 && !last.queued)
        {
            ids.push(last.message_id);
        }
        let count = self.contents.len() as u32;
        if let Some(demand) = &mut self.demand {
            demand.reserve += before - count;
        }
        self.acknowledged.truncate(count);
        ids
    }

    /// Whether its only content is named by it: then its record has that content's state.
    pub fn is_alone(&self) -> bool {
        let [only] = self.contents.as_slice() else {
            return false;
        };
        only.message_id.as_bytes().strip_suffix(b".0") == Some(self.send_id.as_bytes())
    }
}

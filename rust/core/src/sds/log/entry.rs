//! One content that this participant holds, or can reconstruct.

use std::sync::Arc;

use super::hint::Hint;
use super::kept::Kept;
use crate::sds::incoming::SendRef;
use crate::sds::index::Named;
use crate::sds::name::Name;
use crate::sds::slab::Handle;

/// Names an entry of the log.
pub type EntryRef = Handle<Entry>;

/// An entry of the log.
#[derive(Debug)]
pub struct Entry {
    /// Its id.
    pub message_id: Name,
    /// Who sent it.
    pub sender_id: Arc<str>,
    /// Its Lamport timestamp; 0 of one that was recovered and never came.
    pub lamport: u64,
    /// How a store finds it.
    pub retrieval_hint: Hint,
    /// Its place in the order of arrival.
    pub sequence: u64,
    /// Its place in its send.
    pub ordinal: u32,
    /// The send that it waits in; none once that is delivered.
    pub send: Option<SendRef>,
    /// When a message of ours named it last; 0 for never.
    pub spoken_ms: i64,
    /// The number that it has while we have not acknowledged it; 0 once we have.
    pub unacknowledged: u64,
    /// How many further syncs name it again.
    pub repeats: u8,
    /// Whether it stands for a delivered send in the causal order.
    pub ordered: bool,
    /// Whether its send can do without it: not everybody gets it, and nobody misses it.
    pub spare: bool,
    /// Whether it is the first content of its send, is not acknowledged, and nobody has spoken of it.
    pub unspoken: bool,
    /// Whether its record is to be written.
    pub changed: bool,
    /// The number of the last history of ours that named it; 0 for none.
    pub named_in: u32,
    /// Where its message is, if that is kept: its place among all that are, whether its record goes with
    /// the entry's, and whether it is still to be written.
    pub(super) original: Option<Kept>,
    pub(super) original_serial: u32,
    pub(super) original_paired: bool,
    pub(super) original_new: bool,
}

impl Named for Entry {
    fn name(&self) -> &[u8] {
        self.message_id.as_bytes()
    }
}

impl Entry {
    /// An entry that just came.
    pub fn new(
        message_id: Name,
        sender_id: Arc<str>,
        lamport: u64,
        sequence: u64,
        ordinal: u32,
    ) -> Self {
        Entry {
            message_id,
            sender_id,
            lamport,
            retrieval_hint: Hint::default(),
            sequence,
            ordinal,
            send: None,
            spoken_ms: 0,
            unacknowledged: 0,
            repeats: 0,
            ordered: false,
            spare: false,
            unspoken: false,
            changed: false,
            named_in: 0,
            original: None,
            original_serial: 0,
            original_paired: false,
            original_new: false,
        }
    }
}

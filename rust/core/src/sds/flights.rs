//! Messages on their way: what ephemeral ones wait, what has no answer, and which ids come next.

use std::collections::VecDeque;

use super::config::{Config, MessageIdRule, Randomness};
use super::events::{Transmit, TransmitKind};
use super::history::History;
use super::ids::{ENTRY_FRAME_BYTES, MESSAGE_ID_BYTES_MAX};
use super::log::EntryRef;
use super::name::Name;
use super::octets::Octets;
use super::outgoing::ContentRef;
use crate::maps::HashMap;

/// Tags, lengths and scalars of one message, at most.
const MESSAGE_FRAME_BYTES: usize = 48;
/// A transmission that has no answer yet, with what its failure must undo.
#[derive(Debug)]
pub(super) enum Flight {
    /// A content of ours, its id and its message.
    Content(TransmitKind, ContentRef, Name, Octets),
    /// A sync that acknowledged these.
    Sync(Vec<EntryRef>),
    /// Anything else.
    Other,
}

/// Counts what leaves, and what has no answer.
#[derive(Debug)]
pub struct Transmission {
    base_bytes: usize,
    pub(super) header_budget: usize,
    /// Send, message id and content of ephemeral messages that wait.
    pub ephemerals: VecDeque<(Name, Name, Octets)>,
    pub(super) in_flight: HashMap<u64, Flight>,
    transmit_count: u64,
    /// Whether the last content to leave had left before.
    pub(super) again_left: bool,
    /// Room that the last history took.
    pub(super) spare_history: History,
    pub(super) spare_fields: Vec<u8>,
    pub(super) spare_wire: Vec<u8>,
    /// Ids of our syncs begin with it, so that an echo is known as ours.
    pub nonce: u64,
    /// Counted on over a restart.
    pub sync_count: u64,
}

/// What a message must leave room for beside its causal history, at least.
fn base_bytes(rule: MessageIdRule, channel_id: &str, sender_id: &str) -> usize {
    let id_bytes = if rule == MessageIdRule::ContentSha256 {
        64
    } else {
        38
    };
    MESSAGE_FRAME_BYTES + sender_id.len() + channel_id.len() + id_bytes
}

/// The least `header_bytes_max` for these ids: room for one history entry.
pub fn header_bytes_min(rule: MessageIdRule, channel_id: &str, sender_id: &str) -> usize {
    base_bytes(rule, channel_id, sender_id) + ENTRY_FRAME_BYTES + 4 * MESSAGE_ID_BYTES_MAX
}

impl Transmission {
    /// Nothing has left.
    pub fn new(
        config: &Config,
        channel_id: &str,
        sender_id: &str,
        rng: &mut dyn Randomness,
    ) -> Self {
        let base_bytes = base_bytes(config.message_id, channel_id, sender_id);
        Transmission {
            base_bytes,
            header_budget: config.header_bytes_max.saturating_sub(base_bytes),
            ephemerals: VecDeque::new(),
            in_flight: HashMap::default(),
            transmit_count: 0,
            again_left: false,
            spare_history: History::default(),
            spare_fields: Vec::new(),
            spare_wire: Vec::new(),
            nonce: rng.bits(),
            sync_count: 0,
        }
    }

    /// From now on a message is at most this much longer than its content.
    pub fn limit_headers(&mut self, header_bytes_max: usize) {
        self.header_budget = header_bytes_max.saturating_sub(self.base_bytes);
    }

    /// Whether an id is that of a sync of ours.
    pub fn is_own_sync(&self, message_id: &str) -> bool {
        message_id.starts_with(&format!("sync-{:016x}-", self.nonce))
    }

    /// Takes back an ephemeral message that has not left.
    pub fn cancel_ephemeral(&mut self, send_id: &str) -> bool {
        let at = self
            .ephemerals
            .iter()
            .position(|(known, ..)| **known == *send_id);
        at.and_then(|at| self.ephemerals.remove(at)).is_some()
    }

    /// The id of a message that brings what was made of another participant's send.
    pub fn new_parity_id(&mut self) -> Name {
        self.sync_count += 1;
        Name::from(format!("parity-{:016x}-{:x}", self.nonce, self.sync_count))
    }

    /// The id of our next sync.
    pub(super) fn new_sync_id(&mut self) -> Name {
        self.sync_count += 1;
        Name::from(format!("sync-{:016x}-{:x}", self.nonce, self.sync_count))
    }

    /// A message leaves.
    pub(super) fn leave(
        &mut self,
        kind: TransmitKind,
        message_id: Name,
        payload: Octets,
        flight: Flight,
    ) -> Transmit {
        self.transmit_count += 1;
        self.in_flight.insert(self.transmit_count, flight);
        Transmit {
            transmit_id: self.transmit_count,
            kind,
            message_id,
            payload,
            send_id: None,
            ordinal: None,
            attempt: 0,
        }
    }
}

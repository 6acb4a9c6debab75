//! The events of our sends (003 MessageEvents, 004 Event lifecycle), and to which of them somebody listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::send::{FailureStage, OutcomeKind};
use crate::channel::dispatch::DropReason;
use crate::sds::Name;

/// One event. A send of several requests has one for each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendEvent {
    /// Chunks were handed to the node: 004 `sending-message`.
    ChunkSending(ChunkProgress),
    /// The network took them: 004 `message-sent`.
    ChunkSent(ChunkProgress),
    /// A bloom filter holds them: 004 `message-possibly-acknowledged`.
    ChunkPossiblyAcknowledged(ChunkProgress),
    /// A participant holds them: 004 `message-acknowledged`.
    ChunkAcknowledged {
        /// Which.
        progress: ChunkProgress,
        /// Who.
        by: Arc<str>,
    },
    /// They can never be sent: 004 `sending-message-irrecoverable-error`.
    ChunkError {
        /// Which.
        progress: ChunkProgress,
        /// Why.
        error: Arc<str>,
    },
    /// The network has all of a message: 003 `reliable:message:sent`.
    MessageSent(RequestIds),
    /// The participants that must have it have it: 003 `reliable:message:delivered`.
    MessageDelivered {
        /// Whose message.
        ids: RequestIds,
        /// Who has it.
        to: Vec<Arc<str>>,
    },
    /// It failed: 003 `reliable:message:send-error`.
    MessageSendError {
        /// Whose message.
        ids: RequestIds,
        /// Where.
        stage: FailureStage,
        /// Why.
        error: Arc<str>,
    },
    /// An ephemeral message was not sent: 004 `ephemeral-message-dropped`.
    EphemeralDropped {
        /// Hex Keccak-256 of the payload.
        message_id: Name,
        /// What `send_ephemeral` returned.
        request_id: Name,
        /// Why.
        reason: DropReason,
    },
}

/// The data segments of a message for which an event holds so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkProgress {
    /// Hex Keccak-256 of the payload.
    pub message_id: Name,
    /// What `send` returned.
    pub request_id: Name,
    /// Their indexes.
    pub chunks: Vec<u32>,
    /// Data segments of the message.
    pub total: u32,
}

/// Which request of which send an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIds {
    /// The send.
    pub send_id: Name,
    /// Hex Keccak-256 of the payload.
    pub message_id: Name,
    /// What `send` returned.
    pub request_id: Name,
}

impl SendEvent {
    /// What a message has come to, and for whom. It counts as unannounced until
    /// [`super::OwnSends::on_announced`].
    pub const fn outcome(&self) -> Option<(OutcomeKind, &RequestIds)> {
        match self {
            SendEvent::MessageSent(ids) => Some((OutcomeKind::Sent, ids)),
            SendEvent::MessageDelivered { ids, .. } => Some((OutcomeKind::Delivered, ids)),
            SendEvent::MessageSendError { ids, .. } => Some((OutcomeKind::Failed, ids)),
            _ => None,
        }
    }
}

/// The events that somebody may listen to or not. That an ephemeral message was dropped is always told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendEventKind {
    /// [`SendEvent::ChunkSending`].
    ChunkSending,
    /// [`SendEvent::ChunkSent`].
    ChunkSent,
    /// [`SendEvent::ChunkPossiblyAcknowledged`].
    ChunkPossiblyAcknowledged,
    /// [`SendEvent::ChunkAcknowledged`].
    ChunkAcknowledged,
    /// [`SendEvent::ChunkError`].
    ChunkError,
    /// [`SendEvent::MessageSent`].
    MessageSent,
    /// [`SendEvent::MessageDelivered`].
    MessageDelivered,
    /// [`SendEvent::MessageSendError`].
    MessageSendError,
}

impl SendEventKind {
    /// All of them.
    pub const ALL: [SendEventKind; 8] = [
        SendEventKind::ChunkSending,
        SendEventKind::ChunkSent,
        SendEventKind::ChunkPossiblyAcknowledged,
        SendEventKind::ChunkAcknowledged,
        SendEventKind::ChunkError,
        SendEventKind::MessageSent,
        SendEventKind::MessageDelivered,
        SendEventKind::MessageSendError,
    ];

    /// What 003 and 004 call it.
    pub const fn name(self) -> &'static str {
        match self {
            SendEventKind::ChunkSending => "sending-message",
            SendEventKind::ChunkSent => "message-sent",
            SendEventKind::ChunkPossiblyAcknowledged => "message-possibly-acknowledged",
            SendEventKind::ChunkAcknowledged => "message-acknowledged",
            SendEventKind::ChunkError => "sending-message-irrecoverable-error",
            SendEventKind::MessageSent => "reliable:message:sent",
            SendEventKind::MessageDelivered => "reliable:message:delivered",
            SendEventKind::MessageSendError => "reliable:message:send-error",
        }
    }

    /// The one that 003 or 004 calls so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// To which events somebody listens; shared with whoever says so, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Listened(Arc<AtomicU16>);

impl Listened {
    /// Somebody listens to these and to no others.
    pub fn set(&self, kinds: impl IntoIterator<Item = SendEventKind>) {
        let bits = kinds.into_iter().fold(0, |bits, kind| bits | bit(kind));
        self.0.store(bits, Ordering::Relaxed);
    }

    /// Whether somebody listens to these.
    pub fn has(&self, kind: SendEventKind) -> bool {
        self.0.load(Ordering::Relaxed) & bit(kind) != 0
    }
}

const fn bit(kind: SendEventKind) -> u16 {
    1 << kind as u16
}

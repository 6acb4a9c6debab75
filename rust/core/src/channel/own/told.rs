//! What the application is told of sends of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::send::{FailureStage, OutcomeKind};
use crate::channel::dispatch::DropReason;
use crate::sds::Name;

/// The kinds of events, in the order of `shardwire.events.SEND_EVENTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 004 `sending-message`.
    ChunkSending,
    /// 004 `message-sent`.
    ChunkSent,
    /// 004 `message-possibly-acknowledged`.
    ChunkPossiblyAcknowledged,
    /// 004 `message-acknowledged`.
    ChunkAcknowledged,
    /// 004 `sending-message-irrecoverable-error`.
    ChunkError,
    /// 003 `reliable:message:sent`.
    MessageSent,
    /// 003 `reliable:message:delivered`.
    MessageDelivered,
    /// 003 `reliable:message:send-error`.
    MessageSendError,
}

/// Which kinds somebody listens to; shared with whoever says so, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Listened(Arc<AtomicU16>);

impl Listened {
    /// Somebody listens to these kinds, bit by bit, and to no others.
    pub fn set(&self, kinds: u16) {
        self.0.store(kinds, Ordering::Relaxed);
    }

    /// Whether somebody listens to a kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.0.load(Ordering::Relaxed) >> kind as u16 & 1 == 1
    }
}

/// One event: there is one for each request of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Something happened to segments.
    Chunks {
        /// What.
        what: Chunks,
        /// Hex Keccak-256 of the payload.
        message_id: Name,
        /// What `send` returned.
        request_id: Name,
        /// The data segments of which it is true so far.
        chunks: Vec<u32>,
        /// Data segments of the message.
        total: u32,
    },
    /// A message has come to something. It counts as untold until [`super::OwnSends::on_announced`].
    Outcome {
        /// What.
        what: Outcome,
        /// The send.
        send_id: Name,
        /// Hex Keccak-256 of the payload.
        message_id: Name,
        /// What `send` returned.
        request_id: Name,
    },
    /// An ephemeral message was not sent.
    Dropped {
        /// Hex Keccak-256 of the payload.
        message_id: Name,
        /// What `send_ephemeral` returned.
        request_id: Name,
        /// Why.
        reason: DropReason,
    },
}

/// What happened to segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunks {
    /// They were handed to the node.
    Sending,
    /// The network took them.
    Sent,
    /// A bloom filter holds them.
    PossiblyAcknowledged,
    /// A participant holds them.
    Acknowledged {
        /// Who.
        by: Arc<str>,
    },
    /// They can never be sent.
    Failed {
        /// Why.
        error: Arc<str>,
    },
}

/// What a message has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The network has all of it.
    Sent,
    /// The participants that must have it have it.
    Delivered {
        /// Who has it.
        to: Vec<Arc<str>>,
    },
    /// It failed.
    Failed {
        /// Where.
        stage: FailureStage,
        /// Why.
        error: Arc<str>,
    },
}

impl Outcome {
    /// Without what there is to say of it.
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Outcome::Sent => OutcomeKind::Sent,
            Outcome::Delivered { .. } => OutcomeKind::Delivered,
            Outcome::Failed { .. } => OutcomeKind::Failed,
        }
    }
}

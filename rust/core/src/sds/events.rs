//! What the machine tells its owner.

use std::sync::Arc;

use super::name::Name;
use super::octets::Part;
use crate::wire::sds::HistoryEntry;

/// Something that happened; polled in the order in which it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A content of another participant came, for the first time. The owner answers with what it is
    /// part of: `handle_content_placed` or one of its kind.
    ContentReceived {
        /// Its id, or the name of a rival of that id.
        message_id: Name,
        /// Who sent it, as it says.
        sender_id: Arc<str>,
        /// The content.
        content: Part,
        /// The send that its id names.
        send_id: Option<Name>,
        /// Its place in that send.
        ordinal: Option<u32>,
    },
    /// An ephemeral message: no order, no acknowledgement.
    EphemeralReceived {
        /// Its id.
        message_id: Name,
        /// Who sent it, as it says.
        sender_id: Arc<str>,
        /// The content.
        content: Part,
    },
    /// A send of another participant is delivered: everything that it follows was, or is lost.
    SendReleased {
        /// Who sent it.
        sender_id: Arc<str>,
        /// The send.
        send_id: Name,
        /// Whether what follows it may have gone before: it had counted as lost.
        late: bool,
    },
    /// `by` holds one content of a send of ours.
    ContentAcknowledged {
        /// The send.
        send_id: Name,
        /// The content's place in it.
        ordinal: u32,
        /// The content's id.
        message_id: Name,
        /// Who holds it.
        by: Arc<str>,
    },
    /// `by`'s filter holds one content of a send of ours; `count` filters do so far.
    ContentPossiblyAcknowledged {
        /// The send.
        send_id: Name,
        /// The content's place in it.
        ordinal: u32,
        /// The content's id.
        message_id: Name,
        /// Whose filter.
        by: Arc<str>,
        /// How many so far.
        count: usize,
    },
    /// `by` can reconstruct a send of ours.
    SendAcknowledged {
        /// The send.
        send_id: Name,
        /// Who can.
        by: Arc<str>,
    },
    /// Receivers of a send of ours need so many contents more. The owner answers with
    /// `handle_contents_made`, with none where it cannot make any.
    ContentsWanted {
        /// The send.
        send_id: Name,
        /// How many.
        count: u32,
    },
    /// A participant sent a content that it made of a send of another one. The owner answers with
    /// `handle_parity_heard`, and `handle_parity_taken` where it is of use.
    ParityReceived {
        /// The ephemeral message that brought it.
        message_id: Name,
        /// Who made it, as it says.
        sender_id: Arc<str>,
        /// Who sent the send.
        send_sender_id: Arc<str>,
        /// The send.
        send_id: Name,
        /// The content.
        content: Part,
    },
    /// Others lack contents of a send that is whole here, and its sender does not answer. The owner answers
    /// with `handle_parity_made`, with none where it cannot make any.
    ParityWanted {
        /// Who sent the send.
        sender_id: Arc<str>,
        /// The send.
        send_id: Name,
        /// How many.
        count: u32,
    },
    /// `max_retransmissions` passed for some content and nobody is waited for any longer.
    SendGivenUp {
        /// The send.
        send_id: Name,
        /// Places of the contents that nobody acknowledged.
        unacknowledged: Vec<u32>,
    },
    /// Histories name these and they are not here.
    MissingDetected(Vec<HistoryEntry>),
    /// A dependency stayed missing for `timeout_for_lost_messages_ms`; its dependents go on without
    /// it, and it is asked for all the same.
    DependencyLost(HistoryEntry),
    /// A sync message of another participant.
    SyncReceived {
        /// Who sent it.
        sender_id: Arc<str>,
    },
    /// A message under our sender id that we never sent.
    SenderIdConflict {
        /// Its id.
        message_id: Name,
    },
    /// A received message that is not processed.
    MessageDropped(Dropped),
}

/// Why a received message is not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// It is no SDS message.
    Undecodable,
    /// It belongs to another channel.
    OtherChannel,
    /// It is ours.
    Own,
    /// It is known.
    Duplicate,
    /// An id is too long, or there is no room.
    OverLimit,
    /// It is older than what was delivered and forgotten of its sender, or than the replay window, and
    /// nobody asked for it.
    Replayed,
}

impl Dropped {
    /// The reason's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Dropped::Undecodable => "undecodable",
            Dropped::OtherChannel => "other-channel",
            Dropped::Own => "own",
            Dropped::Duplicate => "duplicate",
            Dropped::OverLimit => "over-limit",
            Dropped::Replayed => "replayed",
        }
    }
}

/// Why a message leaves; a rate limit treats each kind in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransmitKind {
    /// The first content of a send to be dispatched.
    First,
    /// Any other content of a send, for the first time.
    Further,
    /// A content of ours once more.
    Retransmission,
    /// A sync.
    Sync,
    /// An ephemeral message.
    Ephemeral,
    /// An answer to a repair request.
    Repair,
}

impl TransmitKind {
    /// Every kind.
    pub const ALL: [TransmitKind; 6] = [
        TransmitKind::First,
        TransmitKind::Further,
        TransmitKind::Retransmission,
        TransmitKind::Sync,
        TransmitKind::Ephemeral,
        TransmitKind::Repair,
    ];

    /// The kind's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            TransmitKind::First => "first",
            TransmitKind::Further => "further",
            TransmitKind::Retransmission => "retransmission",
            TransmitKind::Sync => "sync",
            TransmitKind::Ephemeral => "ephemeral",
            TransmitKind::Repair => "repair",
        }
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// Every kind.
    pub const ALL: Kinds = Kinds(0b11_1111);
    /// No kind.
    pub const NONE: Kinds = Kinds(0);
    /// Contents of ours, whether for the first time or once more.
    pub const CONTENTS: Kinds = Kinds::NONE
        .with(TransmitKind::First)
        .with(TransmitKind::Further)
        .with(TransmitKind::Retransmission);

    /// This set and `kind`.
    pub const fn with(self, kind: TransmitKind) -> Kinds {
        Kinds(self.0 | 1 << kind as u8)
    }

    /// This set but for `kind`.
    pub const fn without(self, kind: TransmitKind) -> Kinds {
        Kinds(self.0 & !(1 << kind as u8))
    }

    /// What is in both sets.
    pub const fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// Whether `kind` is in it.
    pub const fn has(self, kind: TransmitKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }
}

/// A message to hand to the network, once everything that it speaks of is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// What `handle_transmitted` and `handle_transmit_failed` call it.
    pub transmit_id: u64,
    /// Why it leaves.
    pub kind: TransmitKind,
    /// Its message id.
    pub message_id: Name,
    /// The SDS message.
    pub payload: super::octets::Octets,
    /// The send of ours that it is part of.
    pub send_id: Option<Name>,
    /// Its place in that send.
    pub ordinal: Option<u32>,
    /// 0 the first time a content leaves, then the number of the retransmission.
    pub attempt: u32,
}

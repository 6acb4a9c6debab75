//! What a channel tells its owner.

use std::sync::Arc;

use crate::sds;
use crate::sds::{Name, TransmitKind};
use crate::wire::sds::HistoryEntry;

/// Something that happened; polled in the order in which it did.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Of SDS alone: what became of our sends, and what is missing.
    Sds(sds::Event),
    /// A partial message was given up; it is named by its hash (004, irretrievable-message).
    MessageGivenUp(HistoryEntry),
    /// Something happened to one segment, where that is observed.
    Segment(SegmentSeen),
    /// Something is wrong with what a peer sent.
    Fault(Fault),
    /// A message did not leave.
    TransmitFailed {
        /// Its SDS message id.
        message_id: Name,
        /// What it was.
        kind: TransmitKind,
        /// Why, as the node says.
        error: Arc<str>,
        /// Whether that is no news: the node fails.
        of_node: bool,
    },
    /// The node failed so many times in a row that the application is told.
    NodeFailing {
        /// How many times.
        failures: u32,
        /// How, the last time.
        error: Arc<str>,
    },
    /// It takes messages again.
    NodeRecovered {
        /// After so many failures in a row.
        failures: u32,
        /// Whether the application was told of those.
        told: bool,
    },
    /// It refuses everything until a time that it named.
    NodeHolds {
        /// How long that is heeded.
        hold_ms: i64,
        /// Why, as it says.
        error: Arc<str>,
    },
}

/// How a segment came to be here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentStage {
    /// It arrived.
    Received,
    /// Parity brought it back.
    Recovered,
}

impl SegmentStage {
    /// The stage's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            SegmentStage::Received => "received",
            SegmentStage::Recovered => "recovered",
        }
    }
}

/// One segment that is here now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSeen {
    /// How.
    pub stage: SegmentStage,
    /// The send that it belongs to.
    pub send_id: Name,
    /// Its place: data first.
    pub ordinal: u32,
    /// Who sent it, as it says.
    pub sender_id: Arc<str>,
    /// Data segments of its message; `None` where the wire does not say.
    pub data_count: Option<u32>,
    /// All segments of it; `None` where the wire does not say.
    pub content_count: Option<u32>,
    /// The SDS message that brought it.
    pub message_id: Option<Name>,
}

/// What is wrong with what a peer sent, for a log. Names and texts may be a peer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// Of whom, as it says.
    pub sender_id: Arc<str>,
    /// Which message, segment or send.
    pub name: String,
    /// Why, or how many.
    pub detail: String,
}

/// The kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A segment that is none of the channel's wire, or breaks a rule of it.
    SegmentInvalid,
    /// A segment of no use.
    SegmentDiscarded,
    /// What is here of a message does not have its hash.
    HashMismatch,
    /// A message is whole without false segments that were among its own.
    FalseSegments,
    /// A partial message was dropped.
    MessageDropped,
    /// A message was due and is not held.
    MessageNotHeld,
}

impl FaultKind {
    /// The kind's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::SegmentInvalid => "segment-invalid",
            FaultKind::SegmentDiscarded => "segment-discarded",
            FaultKind::HashMismatch => "hash-mismatch",
            FaultKind::FalseSegments => "false-segments",
            FaultKind::MessageDropped => "message-dropped",
            FaultKind::MessageNotHeld => "message-not-held",
        }
    }
}

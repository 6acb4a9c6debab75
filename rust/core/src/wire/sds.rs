//! Scalable Data Sync messages on both wires.
//!
//! `spec` is the wire of the specification and of @waku/sds. `nim` is the layout of nim-sds; it was
//! derived from that implementation's source and has been checked against no live peer.

use std::str::FromStr;

use thiserror::Error;

pub use super::protobuf::ProtobufError;
use super::{sds_nim, sds_spec};

/// Which layout an SDS message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFormat {
    /// Fields 1, 2, 3, 10, 11, 12, 13, 20.
    Spec,
    /// Fields 1 to 7 and 13.
    Nim,
}

impl FromStr for WireFormat {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "spec" => Ok(WireFormat::Spec),
            "nim" => Ok(WireFormat::Nim),
            _ => Err(()),
        }
    }
}

/// One entry of a causal history or of a repair request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HistoryEntry {
    /// The message that the entry names.
    pub message_id: String,
    /// How a store finds the message: on Waku its deterministic message hash.
    pub retrieval_hint: Option<Vec<u8>>,
    /// The participant that sent it.
    pub sender_id: Option<String>,
}

/// What an SDS message is, told by the presence of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A Lamport timestamp and content.
    Content,
    /// A Lamport timestamp and no content.
    Sync,
    /// Content and no Lamport timestamp.
    Ephemeral,
}

/// One SDS message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The participant that sent it.
    pub sender_id: String,
    /// Its id, opaque.
    pub message_id: String,
    /// The channel it belongs to.
    pub channel_id: String,
    /// Absent on ephemeral messages.
    pub lamport_timestamp: Option<u64>,
    /// The messages it depends on, oldest first.
    pub causal_history: Vec<HistoryEntry>,
    /// The sender's serialized bloom filter.
    pub bloom_filter: Option<Vec<u8>>,
    /// The messages the sender asks for (SDS-R).
    pub repair_request: Vec<HistoryEntry>,
    /// The application's bytes.
    pub content: Option<Vec<u8>>,
}

/// Why a message cannot be written on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SdsEncodeError {
    /// nim-sds requires a Lamport timestamp on every message.
    #[error("the nim wire has no ephemeral messages: lamport_timestamp must be set")]
    NimEphemeral,
}

/// Why bytes are no SDS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SdsDecodeError {
    /// Not protobuf, or a field of another type.
    #[error(transparent)]
    Protobuf(#[from] ProtobufError),
    /// A field that the nim wire always writes is absent.
    #[error("field {field}, which nim-sds always writes, is absent")]
    MissingField {
        /// The field's number.
        field: u32,
    },
}

impl Message {
    /// The kind, or `None` where neither a Lamport timestamp nor content is there: a receiver
    /// drops such a message.
    pub fn kind(&self) -> Option<Kind> {
        let content = self
            .content
            .as_ref()
            .is_some_and(|content| !content.is_empty());
        match (self.lamport_timestamp.is_some(), content) {
            (true, true) => Some(Kind::Content),
            (true, false) => Some(Kind::Sync),
            (false, true) => Some(Kind::Ephemeral),
            (false, false) => None,
        }
    }

    /// The message on `wire_format`.
    ///
    /// # Errors
    /// [`SdsEncodeError::NimEphemeral`] for an ephemeral message on the nim wire.
    pub fn encode(&self, wire_format: WireFormat) -> Result<Vec<u8>, SdsEncodeError> {
        match wire_format {
            WireFormat::Spec => Ok(sds_spec::encode(self)),
            WireFormat::Nim => sds_nim::encode(self),
        }
    }

    /// The message that `bytes` are on `wire_format`. Unknown fields are skipped, the last of a
    /// repeated scalar wins, invalid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// [`SdsDecodeError`] where the bytes are no such message.
    pub fn decode(bytes: &[u8], wire_format: WireFormat) -> Result<Self, SdsDecodeError> {
        match wire_format {
            WireFormat::Spec => sds_spec::decode(bytes),
            WireFormat::Nim => sds_nim::decode(bytes),
        }
    }
}

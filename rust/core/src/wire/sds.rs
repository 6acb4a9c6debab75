//! Scalable Data Sync messages on both wires.
//!
//! `spec` is the wire of the specification and of @waku/sds. `nim` is the layout of nim-sds; it was
//! derived from that implementation's source and has been checked against no live peer.

use std::str::FromStr;

pub use super::protobuf::ProtobufError;
use super::protobuf::lossy;
pub use super::sds_parts::{
    EntryView, HistoryEntry, MessageView, Parts, SdsDecodeError, SdsEncodeError,
};
use super::{sds_nim, sds_spec};

/// Which layout an SDS message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFormat {
    /// Fields 1, 2, 3, 10, 11, 12, 13, 20.
    Spec,
    /// Fields 1 to 7 and 13.
    Nim,
}

impl WireFormat {
    /// The name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            WireFormat::Spec => "spec",
            WireFormat::Nim => "nim",
        }
    }
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

impl<'a> MessageView<'a> {
    /// The message that `bytes` are on `wire_format`: see [`Message::decode`].
    ///
    /// # Errors
    /// [`SdsDecodeError`] where the bytes are no such message.
    pub fn decode(bytes: &'a [u8], wire_format: WireFormat) -> Result<Self, SdsDecodeError> {
        match wire_format {
            WireFormat::Spec => sds_spec::decode(bytes),
            WireFormat::Nim => sds_nim::decode(bytes),
        }
    }
}

impl From<MessageView<'_>> for Message {
    fn from(view: MessageView<'_>) -> Self {
        let owned = |entries: Vec<EntryView<'_>>| entries.into_iter().map(Into::into).collect();
        Message {
            sender_id: lossy(view.sender_id),
            message_id: lossy(view.message_id),
            channel_id: lossy(view.channel_id),
            lamport_timestamp: view.lamport_timestamp,
            causal_history: owned(view.causal_history),
            bloom_filter: view.bloom_filter.map(<[u8]>::to_vec),
            repair_request: owned(view.repair_request),
            content: view.content.map(<[u8]>::to_vec),
        }
    }
}

impl Parts<'_> {
    /// The message on `wire_format`.
    ///
    /// # Errors
    /// As [`Message::encode`].
    pub fn encode(&self, wire_format: WireFormat) -> Result<Vec<u8>, SdsEncodeError> {
        let mut out = Vec::new();
        self.encode_into(&mut out, wire_format)?;
        Ok(out)
    }

    /// As [`Parts::encode`], behind what `out` has.
    ///
    /// # Errors
    /// As [`Message::encode`].
    pub fn encode_into(
        &self,
        out: &mut Vec<u8>,
        wire_format: WireFormat,
    ) -> Result<(), SdsEncodeError> {
        let content = self.content.unwrap_or_default();
        out.reserve(self.length_around(wire_format) + content.len());
        self.put_before_content(wire_format, out)?;
        out.extend_from_slice(content);
        self.put_behind_content(wire_format, out);
        Ok(())
    }

    /// What stands before the bytes of the content on `wire_format`, and what behind them.
    ///
    /// # Errors
    /// As [`Message::encode`].
    pub fn encode_around(
        &self,
        wire_format: WireFormat,
    ) -> Result<(Vec<u8>, Vec<u8>), SdsEncodeError> {
        let mut before = Vec::with_capacity(self.length_around(wire_format));
        self.put_before_content(wire_format, &mut before)?;
        let mut behind = Vec::new();
        self.put_behind_content(wire_format, &mut behind);
        Ok((before, behind))
    }

    fn length_around(&self, wire_format: WireFormat) -> usize {
        match wire_format {
            WireFormat::Spec => sds_spec::length_without_content(self),
            WireFormat::Nim => sds_nim::length_without_content(self),
        }
    }

    fn put_before_content(
        &self,
        wire_format: WireFormat,
        out: &mut Vec<u8>,
    ) -> Result<(), SdsEncodeError> {
        match wire_format {
            WireFormat::Spec => sds_spec::put_before_content(self, out),
            WireFormat::Nim => sds_nim::put_before_content(self, out)?,
        }
        Ok(())
    }

    fn put_behind_content(&self, wire_format: WireFormat, out: &mut Vec<u8>) {
        match wire_format {
            // The content is the last field.
            WireFormat::Spec => {}
            WireFormat::Nim => sds_nim::put_behind_content(self, out),
        }
    }
}

/// The fields of a causal history on `wire_format`, one after the other, written into `out`, which
/// is empty.
pub fn encode_history<'a>(
    entries: impl IntoIterator<Item = EntryView<'a>, IntoIter: Clone>,
    wire_format: WireFormat,
    mut out: Vec<u8>,
) -> Vec<u8> {
    let entries = entries.into_iter();
    let sizes = entries.clone().map(|entry| entry.size_bytes());
    out.reserve(sizes.sum());
    for entry in entries {
        match wire_format {
            WireFormat::Spec => sds_spec::put_history_entry(&mut out, entry),
            WireFormat::Nim => sds_nim::put_history_entry(&mut out, entry),
        }
    }
    out
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
        Parts {
            sender_id: &self.sender_id,
            message_id: &self.message_id,
            channel_id: &self.channel_id,
            lamport_timestamp: self.lamport_timestamp,
            history_fields: &encode_history(
                self.causal_history.iter().map(HistoryEntry::view),
                wire_format,
                Vec::new(),
            ),
            bloom_filter: self.bloom_filter.as_deref(),
            repair_request: &self.repair_request,
            content: self.content.as_deref(),
        }
        .encode(wire_format)
    }

    /// The message that `bytes` are on `wire_format`. Unknown fields are skipped, the last of a
    /// repeated scalar wins, invalid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// [`SdsDecodeError`] where the bytes are no such message.
    pub fn decode(bytes: &[u8], wire_format: WireFormat) -> Result<Self, SdsDecodeError> {
        MessageView::decode(bytes, wire_format).map(Message::from)
    }
}

//! What both wires of Scalable Data Sync share: the parts of a message, and why it cannot be read or written.

use thiserror::Error;

use super::protobuf::{ProtobufError, lossy};

/// A tag and a length, as most are.
const FRAME_BYTES: usize = 2;

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

/// A [`HistoryEntry`] that lies in the bytes of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryView<'a> {
    /// The message that the entry names, in UTF-8 unless a peer broke it.
    pub message_id: &'a [u8],
    /// How a store finds the message.
    pub retrieval_hint: Option<&'a [u8]>,
    /// The participant that sent it.
    pub sender_id: Option<&'a [u8]>,
}

impl EntryView<'_> {
    /// Nearly what it takes in a message, so that most are written without further room.
    pub(super) fn size_bytes(&self) -> usize {
        let texts = [Some(self.message_id), self.retrieval_hint, self.sender_id];
        let sizes = texts.iter().flatten().map(|text| FRAME_BYTES + text.len());
        FRAME_BYTES + sizes.sum::<usize>()
    }
}

impl HistoryEntry {
    /// The entry, borrowed.
    pub fn view(&self) -> EntryView<'_> {
        EntryView {
            message_id: self.message_id.as_bytes(),
            retrieval_hint: self.retrieval_hint.as_deref(),
            sender_id: self.sender_id.as_deref().map(str::as_bytes),
        }
    }
}

impl From<EntryView<'_>> for HistoryEntry {
    fn from(view: EntryView<'_>) -> Self {
        HistoryEntry {
            message_id: lossy(view.message_id),
            retrieval_hint: view.retrieval_hint.map(<[u8]>::to_vec),
            sender_id: view.sender_id.map(lossy),
        }
    }
}

/// A message whose parts lie in the bytes it was read from: nothing is copied but the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MessageView<'a> {
    /// The participant that sent it.
    pub sender_id: &'a [u8],
    /// Its id, opaque.
    pub message_id: &'a [u8],
    /// The channel it belongs to.
    pub channel_id: &'a [u8],
    /// Absent on ephemeral messages.
    pub lamport_timestamp: Option<u64>,
    /// The messages it depends on, oldest first.
    pub causal_history: Vec<EntryView<'a>>,
    /// The sender's serialized bloom filter.
    pub bloom_filter: Option<&'a [u8]>,
    /// The messages the sender asks for (SDS-R).
    pub repair_request: Vec<EntryView<'a>>,
    /// The application's bytes.
    pub content: Option<&'a [u8]>,
}

/// A message to encode whose causal history is encoded already: the contents of one send share it.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// The participant that sends it.
    pub sender_id: &'a str,
    /// Its id, opaque.
    pub message_id: &'a str,
    /// The channel it belongs to.
    pub channel_id: &'a str,
    /// Absent on ephemeral messages.
    pub lamport_timestamp: Option<u64>,
    /// What [`super::sds::encode_history`] gave for the same wire.
    pub history_fields: &'a [u8],
    /// The serialized bloom filter.
    pub bloom_filter: Option<&'a [u8]>,
    /// The messages asked for (SDS-R).
    pub repair_request: &'a [HistoryEntry],
    /// The application's bytes.
    pub content: Option<&'a [u8]>,
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

//! What a receiver says of each segment and of each set it gives up.

use super::payload::Payload;
use crate::erasure::ErasureCode;
use crate::wire::segment::HASH_LENGTH;

/// What became of one received segment.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Kept; the payload is not complete.
    Stored {
        /// Names the payload.
        entire_message_hash: [u8; HASH_LENGTH],
        /// Positions of the set that are filled.
        segments_held: usize,
        /// Positions still missing, at least 1 after a failed attempt; `None` while draft has not
        /// told the number of data segments.
        segments_needed: Option<usize>,
        /// Whether what is held was tried and did not have the hash.
        hash_mismatch: bool,
    },
    /// The payload is complete and has the hash.
    Reconstructed(Box<Reconstructed>),
    /// Not kept.
    Discarded {
        /// The kind of reason.
        reason: Discard,
        /// The value and the limit.
        detail: String,
    },
    /// The segment ended a set that cannot be completed.
    Dropped(Dropped),
}

/// A verified payload and how it came together.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconstructed {
    /// Keccak-256 of the payload.
    pub entire_message_hash: [u8; HASH_LENGTH],
    /// The payload in the pieces it arrived in.
    pub payload: Payload,
    /// Data segments of the set; 1 for a whole message under draft.
    pub data_segment_count: usize,
    /// Parity segments of the set, as far as told.
    pub parity_segment_count: usize,
    /// Data segments that came back through parity.
    pub data_segments_recovered: Vec<usize>,
    /// The code that decoded; `None` where no parity was needed.
    pub erasure_code: Option<ErasureCode>,
    /// Segments found wrong and who sent them. The ordinal is the data index, or the data count
    /// plus the parity index.
    pub bad_segments: Vec<(usize, Option<String>)>,
}

/// Why a segment was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Discard {
    /// The bytes are not protobuf of a segment.
    Undecodable,
    /// The fields are no valid combination.
    Invalid,
    /// It, or the payload it announces, exceeds the budget as a whole.
    Oversized,
    /// The same segment is held.
    Duplicate,
    /// Its counts disagree with those of the set.
    CountMismatch,
    /// There is no room and nothing that may be evicted.
    QuotaExceeded,
    /// The payload was already reconstructed.
    AlreadyCompleted,
}

impl Discard {
    /// Every reason, in the order of [`Stats::discarded`].
    pub const ALL: [Discard; 7] = [
        Discard::Undecodable,
        Discard::Invalid,
        Discard::Oversized,
        Discard::Duplicate,
        Discard::CountMismatch,
        Discard::QuotaExceeded,
        Discard::AlreadyCompleted,
    ];

    /// The reason's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Discard::Undecodable => "Undecodable",
            Discard::Invalid => "Invalid",
            Discard::Oversized => "Oversized",
            Discard::Duplicate => "Duplicate",
            Discard::CountMismatch => "CountMismatch",
            Discard::QuotaExceeded => "QuotaExceeded",
            Discard::AlreadyCompleted => "AlreadyCompleted",
        }
    }
}

/// A set that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Names the payload.
    pub entire_message_hash: [u8; HASH_LENGTH],
    /// The key it was received under.
    pub message_key: Option<Vec<u8>>,
    /// Who sent its first segment, of those that are held.
    pub sender: Option<String>,
    /// Why.
    pub reason: Drop,
}

/// Why a set was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drop {
    /// No new segment came in time.
    Expired,
    /// Room was needed.
    Evicted,
    /// The work budget was spent without a payload that has the hash.
    HashMismatch,
}

impl Drop {
    /// Every reason, in the order of [`Stats::dropped`].
    pub const ALL: [Drop; 3] = [Drop::Expired, Drop::Evicted, Drop::HashMismatch];

    /// The reason's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Drop::Expired => "Expired",
            Drop::Evicted => "Evicted",
            Drop::HashMismatch => "HashMismatch",
        }
    }
}

/// Counts since the start, and what is held now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Segments handed to `receive`.
    pub received: u64,
    /// Segments kept.
    pub stored: u64,
    /// Payloads completed.
    pub reconstructed: u64,
    /// Payloads completed through parity.
    pub recovered: u64,
    /// Segments found wrong in completed payloads.
    pub bad_segments: u64,
    /// Attempts whose result did not have the hash.
    pub failed_reconstructions: u64,
    /// Segments that went for room while others' segments of their sets stayed.
    pub displaced: u64,
    /// Records that `restore` could not read.
    pub restore_ignored: u64,
    /// Segments not kept, by [`Discard`].
    pub discarded: [u64; 7],
    /// Sets given up, by [`Drop`].
    pub dropped: [u64; 3],
    /// Incomplete sets held.
    pub sets_held: u64,
    /// Wire bytes held.
    pub bytes_held: u64,
    /// Senders that hold anything.
    pub senders_held: u64,
    /// Completed payloads remembered.
    pub completed_remembered: u64,
}

impl Stats {
    pub(super) fn count_discard(&mut self, reason: Discard) {
        self.discarded[reason as usize] += 1;
    }

    pub(super) fn count_drop(&mut self, reason: Drop) {
        self.dropped[reason as usize] += 1;
    }
}

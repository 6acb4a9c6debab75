//! One segment held of an incomplete payload.

use super::bytes::Bytes;
use super::failed_attempts::Name;
use super::sender_accounts::SenderId;
use crate::wire::segment::Slot;

/// One segment held.
#[derive(Debug)]
pub(super) struct Candidate {
    pub payload: Bytes,
    /// What it is charged with beyond its payload: the rest of its wire bytes.
    pub frame_bytes: u32,
    pub sender: SenderId,
    pub slot: Slot,
    /// Tells it from the other candidates of its slot, in its stored key.
    pub serial: u8,
    /// Other senders sent the same bytes.
    pub shared: bool,
    /// A proven one among them, whose account it keeps: its own from when the sender loses its share.
    pub sharer: Option<SenderId>,
    /// `poll_persist` has given it as it is.
    pub saved: bool,
}

impl Candidate {
    /// What names it in its set.
    pub fn name(&self) -> Name {
        (self.slot, self.serial)
    }

    pub fn charge(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.frame_bytes)
    }
}

//! Messages for which there was no place in the epoch: first in the next.

use std::collections::VecDeque;

use crate::maps::HashSet;
use crate::sds::{Kinds, Name, Transmit, TransmitKind};

/// In the order in which they came back; nothing of a send leaves before its first content.
#[derive(Debug, Default)]
pub(super) struct Late {
    transmits: VecDeque<Transmit>,
    /// Sends whose first content is among them.
    firsts: HashSet<Name>,
}

impl Late {
    pub fn len(&self) -> usize {
        self.transmits.len()
    }

    pub fn contains(&self, transmit_id: u64) -> bool {
        let mut ids = self.transmits.iter().map(|late| late.transmit_id);
        ids.any(|id| id == transmit_id)
    }

    #[cfg(debug_assertions)]
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.transmits.iter().map(|late| late.transmit_id)
    }

    pub fn push(&mut self, transmit: Transmit) {
        if let Some(send_id) = first_of(&transmit) {
            self.firsts.insert(send_id.clone());
        }
        self.transmits.push_back(transmit);
    }

    /// The oldest that may leave now.
    pub fn take(&mut self, kinds: Kinds) -> Option<Transmit> {
        let may_leave = |late: &Transmit| kinds.has(late.kind) && !self.is_behind(late);
        let found = self.transmits.iter().position(may_leave)?;
        let found = self.transmits.remove(found)?;
        if let Some(send_id) = first_of(&found) {
            self.firsts.remove(send_id);
        }
        Some(found)
    }

    /// Whether a content has to wait for the first of its send, which is among these.
    pub fn is_behind(&self, transmit: &Transmit) -> bool {
        let send_id = transmit.send_id.as_ref();
        matches!(
            transmit.kind,
            TransmitKind::Further | TransmitKind::Retransmission
        ) && send_id.is_some_and(|send_id| self.firsts.contains(send_id))
    }

    pub fn has_kind(&self, kind: TransmitKind) -> bool {
        self.transmits.iter().any(|late| late.kind == kind)
    }

    /// Takes out the messages of a send, which do not leave.
    pub fn take_send(&mut self, send_id: &str) -> VecDeque<Transmit> {
        self.firsts.remove(send_id.as_bytes());
        let is_of_send = |late: &Transmit| late.send_id.as_deref() == Some(send_id);
        let late = std::mem::take(&mut self.transmits).into_iter();
        let (taken, kept) = late.partition(is_of_send);
        self.transmits = kept;
        taken
    }

    pub fn clear(&mut self) -> VecDeque<Transmit> {
        self.firsts.clear();
        std::mem::take(&mut self.transmits)
    }
}

/// The send whose first content it is.
fn first_of(transmit: &Transmit) -> Option<&Name> {
    let send_id = transmit.send_id.as_ref();
    send_id.filter(|_| transmit.kind == TransmitKind::First)
}

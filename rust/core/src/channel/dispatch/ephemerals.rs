//! Ephemeral messages of ours (004, Ephemeral messages): tried once, never stored, never acknowledged.

use hashlink::LinkedHashMap;

use super::allowance::DropReason;
use crate::channel::own::{ChunkProgress, OwnSends, SendEvent};
use crate::sds::Name;

/// Ephemeral messages on their way out, by send: request, and hex Keccak-256 of the payload.
#[derive(Debug, Default)]
pub(super) struct Ephemerals(LinkedHashMap<Name, (Name, Name)>);

impl Ephemerals {
    /// How many still wait for their event.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn register(&mut self, send_id: Name, request_id: Name, message_id: Name) {
        self.0.insert(send_id, (request_id, message_id));
    }

    pub fn waiting(&self) -> Vec<Name> {
        self.0.keys().cloned().collect()
    }

    pub fn on_propagated(&mut self, send_id: &str, own: &mut OwnSends) {
        self.end(send_id, own, |request_id, message_id| {
            SendEvent::ChunkSent(only_chunk(request_id, message_id))
        });
    }

    pub fn on_failed(&mut self, send_id: &str, error: &str, own: &mut OwnSends) {
        self.end(send_id, own, |request_id, message_id| {
            failed(request_id, message_id, error)
        });
    }

    pub fn on_dropped(&mut self, send_id: &str, reason: DropReason, own: &mut OwnSends) {
        self.end(send_id, own, |request_id, message_id| {
            SendEvent::EphemeralDropped {
                message_id,
                request_id,
                reason,
            }
        });
    }

    fn end(
        &mut self,
        send_id: &str,
        own: &mut OwnSends,
        event: impl FnOnce(Name, Name) -> SendEvent,
    ) {
        if let Some((request_id, message_id)) = self.0.remove(send_id.as_bytes()) {
            own.add_event(event(request_id, message_id));
        }
    }
}

/// One that can never be sent (004, Irrecoverable errors).
pub(super) fn failed(request_id: Name, message_id: Name, error: &str) -> SendEvent {
    SendEvent::ChunkError {
        progress: only_chunk(request_id, message_id),
        error: error.into(),
    }
}

/// An ephemeral message is one chunk.
fn only_chunk(request_id: Name, message_id: Name) -> ChunkProgress {
    ChunkProgress {
        message_id,
        request_id,
        chunks: vec![0],
        total: 1,
    }
}

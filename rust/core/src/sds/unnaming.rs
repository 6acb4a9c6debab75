//! What was taken back is named no more by messages of ours that have yet to leave: who hears them would
//! wait for what never comes.

use super::machine::Machine;
use super::members::fitting;
use super::name::Name;
use super::outgoing::{ContentRef, OutgoingRef};
use crate::wire::sds::{EntryView, HistoryEntry, MessageView, encode_history};

/// A send that was taken back, and what it followed.
pub(super) struct TakenBack {
    pub message_ids: Vec<Name>,
    pub followed: Vec<Name>,
}

impl Machine {
    /// Gives the sends that name it no more. `is_held` knows transmissions that were handed out and have
    /// not left: their messages are others now.
    pub(super) fn unname(
        &mut self,
        taken_back: &TakenBack,
        is_held: &dyn Fn(u64) -> bool,
    ) -> Vec<Name> {
        let naming = self
            .outgoing
            .unsent_naming(&taken_back.message_ids, is_held);
        let mut changed = Vec::new();
        for handle in naming {
            self.compose_without(handle, taken_back);
            let send = self.outgoing.get(handle);
            changed.extend(send.map(|send| send.send_id.clone()));
        }
        changed
    }

    fn compose_without(&mut self, handle: OutgoingRef, taken_back: &TakenBack) {
        let Some(send) = self.outgoing.get_mut(handle) else {
            return;
        };
        let Some(mut fixed) = send.history.take() else {
            return;
        };
        let encoded = (0..).zip(&send.contents);
        let encoded = encoded.filter(|(_, content)| content.wire.is_some());
        let places: Vec<ContentRef> = encoded.map(|(ordinal, _)| (handle, ordinal)).collect();
        let mut followed = taken_back.followed.clone();
        followed.retain(|id| !fixed.ids.contains(id));
        // They stand where the first of those stood that are named no more.
        let at = fixed
            .ids
            .iter()
            .position(|id| taken_back.message_ids.contains(id));
        fixed.ids.retain(|id| !taken_back.message_ids.contains(id));
        let mut named = None;
        for place in places {
            let content = self.outgoing.content(place).expect("it was just found");
            let (lamport, message_id) = (content.lamport, content.message_id.clone());
            let Some(wire) = content.wire.clone() else {
                continue;
            };
            let Ok(view) = MessageView::decode(&wire, self.config.wire_format) else {
                continue;
            };
            let (fields, grown) = named.get_or_insert_with(|| {
                self.fields_without(&view, taken_back, &mut followed, fixed.header_left)
            });
            let left = fixed.header_left.saturating_sub(*grown);
            let requests = view.repair_request.into_iter().map(HistoryEntry::from);
            let requests = fitting(requests.collect(), left);
            let again = self.encode(
                &message_id,
                Some(lamport),
                fields,
                view.bloom_filter,
                &requests,
                view.content,
            );
            if let Some(again) = again {
                self.outgoing.on_encoded_again(place, again);
            }
        }
        if let Some((fields, grown)) = named {
            fixed.header_left = fixed.header_left.saturating_sub(grown);
            if !fixed.fields.is_empty() {
                fixed.fields = fields;
            }
        }
        let at = at.unwrap_or(0).min(fixed.ids.len());
        fixed.ids.splice(at..at, followed);
        if let Some(send) = self.outgoing.get_mut(handle) {
            send.history = Some(fixed);
            if send.contents.len() > 1 {
                self.outgoing.touch(handle);
            }
        }
    }

    /// The fields of a causal history that names what was followed, as far as there is room, instead of what
    /// was taken back; and by how many bytes they are more.
    fn fields_without(
        &self,
        message: &MessageView<'_>,
        taken_back: &TakenBack,
        followed: &mut Vec<Name>,
        room: usize,
    ) -> (Vec<u8>, usize) {
        let encode = |entries: &[EntryView<'_>]| {
            encode_history(entries.iter().copied(), self.config.wire_format, Vec::new())
        };
        let before = encode(&message.causal_history).len();
        let is_taken_back = |entry: &EntryView<'_>| {
            let mut ids = taken_back.message_ids.iter();
            ids.any(|id| id.as_bytes() == entry.message_id)
        };
        let at = message.causal_history.iter().position(is_taken_back);
        let kept = message.causal_history.iter().copied();
        let kept: Vec<_> = kept.filter(|entry| !is_taken_back(entry)).collect();
        let at = at.unwrap_or(0).min(kept.len());
        loop {
            let of_followed = followed.iter().map(|id| EntryView {
                message_id: id.as_bytes(),
                retrieval_hint: None,
                sender_id: None,
            });
            let mut entries = kept.clone();
            entries.splice(at..at, of_followed);
            let fields = encode(&entries);
            if fields.len() <= before + room || followed.pop().is_none() {
                let grown = fields.len().saturating_sub(before);
                return (fields, grown);
            }
        }
    }
}

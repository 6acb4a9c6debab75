//! What was taken back is named no more by messages of ours that have yet to leave: who hears them would
//! wait for what never comes.

use super::machine::{Machine, TakenBack};
use super::name::Name;
use super::outgoing::{ContentRef, FixedHistory, OutgoingRef};
use super::repair::fitting;
use crate::wire::sds::{EntryView, HistoryEntry, MessageView, encode_history};

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
        let mut again = None;
        for place in places {
            let content = self.outgoing.content(place).expect("it was just found");
            let (lamport, message_id) = (content.lamport, content.message_id.clone());
            let Some(wire) = content.wire.clone() else {
                continue;
            };
            let Ok(view) = MessageView::decode(&wire, self.config.wire_format) else {
                continue;
            };
            let history = again
                .get_or_insert_with(|| self.history_without(&view, taken_back, fixed.header_left));
            let requests = view.repair_request.into_iter().map(HistoryEntry::from);
            let requests = fitting(requests.collect(), history.header_left);
            let wire = self.encode(
                &message_id,
                Some(lamport),
                &history.fields,
                view.bloom_filter,
                &requests,
                view.content,
            );
            if let Some(wire) = wire {
                self.outgoing.on_encoded_again(place, wire);
            }
        }
        if let Some(again) = again {
            fixed.ids = again.ids;
            fixed.header_left = again.header_left;
            // They are gone once the last content was encoded.
            if !fixed.fields.is_empty() {
                fixed.fields = again.fields;
            }
        }
        if let Some(send) = self.outgoing.get_mut(handle) {
            send.history = Some(fixed);
            if send.contents.len() > 1 {
                self.outgoing.touch(handle);
            }
        }
    }

    /// What a message names, where what was taken back gives its place to what that followed, as far as there
    /// is room.
    fn history_without(
        &self,
        message: &MessageView<'_>,
        taken_back: &TakenBack,
        header_left: usize,
    ) -> FixedHistory {
        let encode = |entries: &[EntryView<'_>]| {
            encode_history(entries.iter().copied(), self.config.wire_format, Vec::new())
        };
        let history = &message.causal_history;
        let room = encode(history).len() + header_left;
        let is_taken_back = |entry: &EntryView<'_>| {
            let mut ids = taken_back.message_ids.iter();
            ids.any(|id| id.as_bytes() == entry.message_id)
        };
        let at = history.iter().position(is_taken_back).unwrap_or(0);
        let kept = history.iter().filter(|entry| !is_taken_back(entry));
        let kept: Vec<_> = kept.copied().collect();
        let followed = taken_back.followed.iter().map(|id| EntryView {
            message_id: id.as_bytes(),
            retrieval_hint: None,
            sender_id: None,
        });
        let is_new = |entry: &EntryView<'_>| {
            let mut kept = kept.iter();
            kept.all(|kept| kept.message_id != entry.message_id)
        };
        let mut followed: Vec<_> = followed.filter(is_new).collect();
        loop {
            let mut entries = kept.clone();
            entries.splice(at..at, followed.iter().copied());
            let fields = encode(&entries);
            if fields.len() <= room || followed.pop().is_none() {
                let ids = entries.iter();
                return FixedHistory {
                    ids: ids.map(|entry| Name::from_wire(entry.message_id)).collect(),
                    header_left: room.saturating_sub(fields.len()),
                    fields,
                    bloom_filter: None,
                };
            }
        }
    }
}

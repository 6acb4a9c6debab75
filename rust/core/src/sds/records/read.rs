//! A machine from its stored records.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hashlink::LinkedHashMap;
use thiserror::Error;

use super::fields::{Reader, Writer};
use super::write::{
    ALONE, FINISHED, FIXED, GIVEN_UP_SEND, LOST_SEND, MADE, MAY_PREDATE_US, ON_DEMAND, ORDERED,
    QUEUED, RECONSTRUCTED, SPARE,
};
use super::{
    ANSWER, CONTENT, GIVEN_UP, INCOMING, LOG, LOST, MESSAGE, MISSING, OUTGOING, PARTICIPANT, PAST,
    RIVAL, SEND, STATE, VERSION,
};
use crate::sds::config::Now;
use crate::sds::ids::{content_id, id_in};
use crate::sds::incoming::{IncomingSend, SendRef};
use crate::sds::log::{Entry, EntryRef};
use crate::sds::machine::Machine;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::outgoing::{Demand, FixedHistory, Ordinals, OutgoingContent, OutgoingSend};

/// Why a stored state cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// Another release wrote it.
    #[error(
        "the stored state has version {0} and this release reads version {VERSION}: let the release that \
         wrote it deliver what it holds, or begin with a new database"
    )]
    Version(u8),
}

/// Records by kind, in the order in which they were given.
#[derive(Default)]
struct Kinds(HashMap<String, LinkedHashMap<Name, Octets>>);

impl Kinds {
    fn take(&mut self, kind: &str) -> LinkedHashMap<Name, Octets> {
        self.0.remove(kind).unwrap_or_default()
    }

    fn take_sorted(&mut self, kind: &str) -> BTreeMap<Name, Octets> {
        self.take(kind).into_iter().collect()
    }
}

impl Machine {
    /// This machine, which is new, as `records` describe it: all that [`Machine::poll_persist`] of an
    /// earlier life ever gave, later over earlier.
    ///
    /// Lamport goes on above everything sent; timers restart from `now`. A record that cannot be read
    /// is counted and passed over.
    ///
    /// # Errors
    /// [`RestoreError`] where another release wrote them.
    pub fn restore<'a>(
        mut self,
        records: impl IntoIterator<Item = (&'a str, Name, Octets)>,
        now: Now,
    ) -> Result<Self, RestoreError> {
        let mut kinds = Kinds::default();
        for (kind, key, value) in records {
            kinds
                .0
                .entry(kind.to_owned())
                .or_default()
                .insert(key, value);
        }
        let state = kinds.0.get(STATE).and_then(|state| state.values().next());
        if let Some(&version) = state.and_then(|state| state.first())
            && version != VERSION
        {
            return Err(RestoreError::Version(version));
        }
        for kind in [INCOMING, MISSING, LOST, GIVEN_UP, RIVAL, ANSWER] {
            let keys = kinds.0.get(kind).into_iter().flat_map(LinkedHashMap::keys);
            self.records
                .stored
                .extend(keys.map(|key| (kind, key.clone())));
        }
        let messages = kinds.take(MESSAGE);
        let waits = self.restore_log(&mut kinds, &messages);
        let order_acknowledged = self.restore_state(&mut kinds, now);
        self.restore_incoming(&mut kinds, waits, now);
        let members = self.participants.len();
        let (log, rng) = (&mut self.log, &mut *self.rng);
        self.acknowledgements
            .restore(log, order_acknowledged, now, members, rng);
        self.restore_outgoing(&mut kinds, &messages, now);
        for (name, record) in kinds.take_sorted(PARTICIPANT) {
            // Of whom nothing left the log there is no more than the name.
            let horizon = match record.len() {
                1 => Some(0),
                _ => self.read(&record, |fields| fields.long()),
            };
            self.participants.restore(
                &Arc::from(name.as_str()),
                horizon.unwrap_or(0),
                now.monotonic_ms,
            );
        }
        self.restore_answers(&mut kinds, now);
        self.records.state = Some(self.encode_state(&mut Writer::new()));
        Ok(self)
    }

    fn read<T>(
        &mut self,
        record: &[u8],
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Option<T> {
        let value = Reader::new(record).and_then(|mut reader| read(&mut reader));
        if value.is_none() {
            self.records.unreadable += 1;
        }
        value
    }

    /// Entries by the key of the send that they wait in.
    fn restore_log(
        &mut self,
        kinds: &mut Kinds,
        messages: &LinkedHashMap<Name, Octets>,
    ) -> LinkedHashMap<Name, Vec<EntryRef>> {
        let mut stored = Vec::new();
        for (message_id, record) in kinds.take(LOG) {
            stored.extend(self.read(&record, |fields| read_entry(message_id, fields)));
        }
        stored.sort_by_key(|(entry, _)| entry.sequence);
        let (entries, keys): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
        self.log.restore(entries);
        let mut waits: LinkedHashMap<Name, Vec<EntryRef>> = LinkedHashMap::new();
        let handles: Vec<_> = self.log.arrivals().map(|(entry, _)| entry).collect();
        for (entry, key) in handles.into_iter().zip(keys) {
            let Some(message_id) = self.log.get(entry).map(|held| held.message_id.clone()) else {
                continue;
            };
            if let Some(message) = messages.get(&message_id) {
                self.log
                    .restore_original(message_id.as_bytes(), message.clone());
            }
            if !key.is_empty() {
                waits.entry(key).or_insert_with(Vec::new).push(entry);
            }
        }
        waits
    }

    /// Gives up to which number all was acknowledged.
    fn restore_state(&mut self, kinds: &mut Kinds, now: Now) -> u64 {
        let (mut base_sequence, mut order_acknowledged) = (0, 0);
        for (_, record) in kinds.take(STATE) {
            let state = self.read(&record, |fields| {
                let numbers: Option<Vec<u64>> = (0..7).map(|_| fields.long()).collect();
                let numbers = <[u64; 7]>::try_from(numbers?).ok()?;
                // A record that was written before there was first parity ends here.
                Some((numbers, fields.names()?, fields.int().unwrap_or(0)))
            });
            let Some((numbers, heads, first_parity)) = state else {
                continue;
            };
            let [lamport, base, nonce, syncs, sends, first_ms, order] = numbers;
            (base_sequence, order_acknowledged) = (base, order);
            self.lamport.restore(lamport);
            self.transmission.nonce = nonce;
            self.transmission.sync_count = syncs;
            self.outgoing.restore_count(sends);
            self.outgoing.restore_first_parity(first_parity);
            self.participants.set_first_epoch_ms(first_ms as i64);
            self.incoming.set_returned(first_ms as i64 > 0);
            for head in heads {
                if let Some(entry) = self.log.find(head.as_bytes()) {
                    self.heads.deliver(&self.log, entry, &[]);
                }
            }
        }
        // Whoever was away for an interval says what it has at once: the others name what it lacks.
        let away_ms = self.lamport.behind_ms(now);
        self.rebuild_filter(base_sequence, now.monotonic_ms.saturating_sub(away_ms));
        order_acknowledged
    }

    fn restore_incoming(
        &mut self,
        kinds: &mut Kinds,
        mut waits: LinkedHashMap<Name, Vec<EntryRef>>,
        now: Now,
    ) {
        let mut causes: Vec<(SendRef, Vec<Name>)> = Vec::new();
        let mut stored = Vec::new();
        for (key, record) in kinds.take(INCOMING) {
            let contents = waits.remove(&key).unwrap_or_default();
            let read = self.read(&record, |fields| {
                read_incoming(key.clone(), fields, now.monotonic_ms)
            });
            match read {
                Some((send, names)) => stored.push((send, names, contents)),
                None => drop(waits.insert(key, contents)),
            }
        }
        for (key, contents) in waits {
            let sender_id = contents.first().and_then(|entry| self.log.get(*entry));
            let sender_id = sender_id.map_or_else(|| "".into(), |held| Arc::clone(&held.sender_id));
            let send_id = Name::new(id_in(&key));
            let send = IncomingSend::new(key, send_id, sender_id, now.monotonic_ms);
            stored.push((send, Vec::new(), contents));
        }
        for (mut send, names, contents) in stored {
            if send.reconstructed && contents.is_empty() {
                continue;
            }
            send.contents = contents;
            let handle = self.incoming.restore_send(send, &mut self.log);
            causes.push((handle, names));
        }
        for (_, record) in kinds.take_sorted(MISSING) {
            let missing = self.read(&record, |fields| {
                let missing = (fields.entry()?, fields.name()?, fields.text()?);
                // Earlier releases did not store how often it was asked for.
                let asked = fields.int().zip(fields.int()).unwrap_or_default();
                Some((missing, asked))
            });
            if let Some(((entry, key, named_by), asked)) = missing {
                self.asking.restore_asked(&entry.message_id, asked);
                let send = self.incoming.restored(&key, now.monotonic_ms);
                let (incoming, mut around) = self.around();
                incoming.restore_missing(entry, send, &named_by, now.monotonic_ms, &mut around);
            }
        }
        for (key, record) in kinds.take(LOST) {
            if let Some(askable) = self.read(&record, |fields| fields.byte()) {
                self.incoming.restore_lost(key, askable != 0);
            }
        }
        for (number, record) in kinds.take_sorted(PAST) {
            let read = self.read(&record, |fields| {
                let number = u32::from_str_radix(&number, 16).ok()?;
                let fingerprints: Vec<u64> = std::iter::from_fn(|| fields.long()).collect();
                Some((number, fingerprints))
            });
            if let Some((number, fingerprints)) = read {
                self.incoming.restore_past(number, fingerprints);
            }
        }
        for (name, _) in kinds.take_sorted(GIVEN_UP) {
            self.given_up.restore(name);
            self.filter.mark_stale();
        }
        for (name, _) in kinds.take_sorted(RIVAL) {
            self.rivals.restore(name);
        }
        // Last, since a send that need not wait goes at once, and its record with it.
        let (incoming, mut around) = self.around();
        incoming.resume(&causes, now.monotonic_ms, &mut around);
    }

    fn restore_outgoing(
        &mut self,
        kinds: &mut Kinds,
        messages: &LinkedHashMap<Name, Octets>,
        now: Now,
    ) {
        let bodies = kinds.take(CONTENT);
        let mut sends: BTreeMap<Name, (OutgoingSend, BTreeMap<u32, OutgoingContent>, u32)> =
            BTreeMap::new();
        for (send_id, record) in kinds.take(SEND) {
            let read = self.read(&record, |fields| read_send(send_id.clone(), fields));
            if let Some((send, count, alone)) = read {
                let alone = alone.into_iter().map(|content| (0, content)).collect();
                sends.insert(send_id, (send, alone, count));
            }
        }
        for (message_id, record) in kinds.take(OUTGOING) {
            let read = self.read(&record, |fields| read_content(message_id, fields));
            if let Some((send_id, ordinal, content)) = read
                && let Some((_, contents, _)) = sends.get_mut(&send_id)
            {
                contents.insert(ordinal, content);
            }
        }
        let mut sends: Vec<_> = sends.into_values().collect();
        sends.sort_by_key(|(send, ..)| send.number);
        let mut unmade = Vec::new();
        for (mut send, contents, count) in sends {
            let whole = contents.len() == count as usize && contents.keys().copied().eq(0..count);
            send.contents.reserve_exact(contents.len());
            for mut content in contents.into_values() {
                if content.lamport == 0 {
                    content.content = bodies.get(&content.message_id).cloned();
                } else {
                    send.dispatched += 1;
                    if !send.finished || content.queued {
                        content.wire = messages.get(&content.message_id).cloned();
                    }
                }
                // What failed to leave was put back, and counts as lost where its bytes are not stored.
                let is_spare = content.made || send.finished;
                content.queued &= !is_spare || content.has_bytes();
                let bytes = content.content.as_ref().or(content.wire.as_ref());
                content.size_bytes = bytes.map_or(0, |bytes| bytes.len());
                send.contents.push(content);
            }
            // Whether what a content still needs was stored.
            let is_kept = |content: &OutgoingContent| {
                let done = send.finished && !content.queued;
                done || content.made || content.has_bytes()
            };
            if !whole || !send.contents.iter().all(is_kept) {
                self.records.unreadable += 1;
                continue;
            }
            for content in &send.contents {
                if content.wire.is_some() {
                    // It keeps its bytes itself until its send is finished.
                    self.log.forget_original(&content.message_id);
                }
            }
            unmade.push((send.send_id.clone(), send.unmake()));
            self.outgoing.restore(send, now.monotonic_ms);
        }
        // Last, since a send that is restored counts as unchanged.
        for (send_id, ids) in unmade {
            self.outgoing.restore_unmade(&send_id, ids);
        }
        self.log.settle_originals();
    }

    fn restore_answers(&mut self, kinds: &mut Kinds, now: Now) {
        for (_, record) in kinds.take_sorted(ANSWER) {
            if let Some(entry) = self.read(&record, |fields| fields.entry()) {
                let is_own = || self.outgoing.wire(entry.message_id.as_bytes()).is_some();
                self.answering
                    .restore_answer(&entry, &self.log, is_own, now.monotonic_ms);
            }
        }
    }
}

fn read_entry(message_id: Name, fields: &mut Reader<'_>) -> Option<(Entry, Name)> {
    let flags = fields.byte()?;
    let (lamport, sequence, unacknowledged) = (fields.long()?, fields.long()?, fields.long()?);
    let ordinal = fields.int()?;
    let mut entry = Entry::new(message_id, fields.text()?, lamport, sequence, ordinal);
    entry.retrieval_hint = fields.optional()?.into();
    entry.unacknowledged = unacknowledged;
    entry.ordered = flags & ORDERED != 0;
    entry.spare = flags & SPARE != 0;
    Some((entry, fields.name()?))
}

fn read_incoming(
    key: Name,
    fields: &mut Reader<'_>,
    monotonic_ms: i64,
) -> Option<(IncomingSend, Vec<Name>)> {
    let flags = fields.byte()?;
    let (send_id, sender_id) = (fields.name()?, fields.text()?);
    let mut send = IncomingSend::new(key, send_id, sender_id, monotonic_ms);
    send.content_count = Some(fields.int()?).filter(|count| *count > 0);
    send.contents_needed = Some(fields.int()?).filter(|count| *count > 0);
    let causes = fields.names()?;
    send.history = fields.names()?;
    send.reconstructed = flags & RECONSTRUCTED != 0;
    send.lost = flags & LOST_SEND != 0;
    send.may_predate_us = flags & MAY_PREDATE_US != 0;
    Some((send, causes))
}

/// The send without its contents, how many it has, and the only one where its state is here.
fn read_send(
    send_id: Name,
    fields: &mut Reader<'_>,
) -> Option<(OutgoingSend, u32, Option<OutgoingContent>)> {
    let flags = fields.byte()?;
    let (number, count, needed) = (fields.long()?, fields.int()?, fields.int()?);
    let only = content_id(&send_id, 0);
    let mut send = OutgoingSend::new(send_id, number, needed);
    send.finished = flags & FINISHED != 0;
    send.given_up = flags & GIVEN_UP_SEND != 0;
    if flags & FIXED != 0 {
        send.history = Some(FixedHistory {
            header_left: fields.int()? as usize,
            fields: fields.bytes()?.to_vec(),
            bloom_filter: fields.optional()?.map(<[u8]>::to_vec),
            ids: fields.names()?,
        });
    }
    if flags & ON_DEMAND != 0 {
        send.demand = Some(Demand::new(fields.int()?, fields.int()?));
    }
    let alone = if flags & ALONE != 0 {
        Some(read_state(only, fields)?)
    } else {
        None
    };
    while !fields.is_empty() {
        let name = fields.text()?;
        send.acknowledged
            .restore(&name, Ordinals::from_bytes(fields.bytes()?));
    }
    Some((send, count, alone))
}

fn read_state(message_id: Name, fields: &mut Reader<'_>) -> Option<OutgoingContent> {
    let mut content = OutgoingContent::new(message_id, Octets::from(&[][..]));
    content.content = None;
    let flags = fields.byte()?;
    content.queued = flags & QUEUED != 0;
    content.made = flags & MADE != 0;
    content.lamport = fields.long()?;
    content.attempts = fields.int()?;
    for _ in 0..fields.int()? {
        let (name, count) = (fields.text()?, fields.int()?);
        content.possible.entry(name).or_default().count = count;
    }
    Some(content)
}

/// The send that a content belongs to, its place there, and the content without its bytes.
fn read_content(message_id: Name, fields: &mut Reader<'_>) -> Option<(Name, u32, OutgoingContent)> {
    let (send_id, ordinal) = (fields.name()?, fields.int()?);
    let mut content = read_state(message_id, fields)?;
    content.mark.has_record = true;
    Some((send_id, ordinal, content))
}

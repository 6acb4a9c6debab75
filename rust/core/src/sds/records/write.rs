//! Records as they change.

use super::fields::Writer;
use super::{
    ANSWER, CONTENT, GIVEN_UP, INCOMING, LOG, LOST, MESSAGE, MISSING, OUTGOING, PARTICIPANT, PAST,
    RIVAL, Record, SEND, STATE, VERSION,
};
use crate::sds::incoming::{Incoming, IncomingSend};
use crate::sds::log::{Change, Entry};
use crate::sds::machine::Machine;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::outgoing::{OutgoingContent, OutgoingSend, Stored};

/// Room is made for as many records as there were last time, up to this.
const RECORDS_USUAL_MAX: usize = 1_024;

/// Flags of `sds.log`.
pub const ORDERED: u8 = 1;
pub const SPARE: u8 = 2;
/// Flags of `sds.send`.
pub const FINISHED: u8 = 1;
pub const GIVEN_UP_SEND: u8 = 2;
pub const FIXED: u8 = 4;
pub const ALONE: u8 = 8;
pub const ON_DEMAND: u8 = 16;
/// Flags of the state of a content.
pub const QUEUED: u8 = 1;
pub const MADE: u8 = 2;
/// Flags of `sds.incoming`.
pub const RECONSTRUCTED: u8 = 1;
pub const LOST_SEND: u8 = 2;
pub const MAY_PREDATE_US: u8 = 4;

impl Machine {
    /// Records that changed since the last call, to be stored in their order.
    pub fn poll_persist(&mut self) -> Vec<Record> {
        #[cfg(debug_assertions)]
        self.audit();
        let mut out = Vec::with_capacity(self.records.usual);
        self.settle_filter();
        let mut writer = Writer::new();
        self.put_state(&mut writer, &mut out);
        let (incoming, outgoing) = (&self.incoming, &self.outgoing);
        self.log.poll_persist(|change| {
            out.push(match change {
                Change::Entry(entry) => record(
                    LOG,
                    &entry.message_id,
                    Some(log_entry(&mut writer, entry, incoming)),
                ),
                Change::Forgotten(message_id) => record(LOG, message_id, None),
                Change::Message(message_id, message) => {
                    // A content of ours that is not acknowledged keeps its bytes, whoever had used its id.
                    let own = outgoing.stored_wire(message_id.as_bytes()).cloned();
                    record(MESSAGE, message_id, own.or(message))
                }
            });
        });
        self.outgoing.poll_persist(&self.log, |change| {
            out.push(match change {
                Stored::Wire(message_id, wire) => record(MESSAGE, message_id, wire.cloned()),
                Stored::Content(message_id, content) => {
                    record(CONTENT, message_id, content.cloned())
                }
                Stored::State(message_id, state) => {
                    let fields =
                        state.map(|(send, ordinal)| content_state(&mut writer, send, ordinal));
                    record(OUTGOING, message_id, fields)
                }
                Stored::Send(send_id, send) => {
                    let fields = send.map(|send| outgoing_send(&mut writer, send));
                    record(SEND, send_id, fields)
                }
            });
        });
        let outgoing = &self.outgoing;
        self.log.poll_originals(|message_id, message| {
            let own = outgoing.stored_wire(message_id.as_bytes()).cloned();
            out.push(record(MESSAGE, message_id, own.or(message)));
        });
        self.put_incoming(&mut writer, &mut out);
        let records = &mut self.records;
        for (message_id, owed) in self.answering.poll_changed() {
            let fields = owed.map(|entry| writer.entry(entry).seal());
            records.put(&mut out, ANSWER, message_id, fields);
        }
        for (sender_id, horizon) in self.participants.poll_changed() {
            let fields = horizon.map(|horizon| match horizon {
                0 => version_alone(),
                _ => writer.long(horizon).seal(),
            });
            out.push(record(PARTICIPANT, &Name::new(&sender_id), fields));
        }
        self.records.usual = out.len().min(RECORDS_USUAL_MAX);
        out
    }

    /// In place of [`Machine::poll_persist`] where nothing is stored: forgets what changed, and makes no
    /// record of it.
    pub fn drop_changes(&mut self) {
        #[cfg(debug_assertions)]
        self.audit();
        self.settle_filter();
        self.log.poll_persist(|_| {});
        self.outgoing.poll_persist(&self.log, |_| {});
        self.log.poll_originals(|_, _| {});
        self.incoming.poll_changed(false);
        self.incoming.poll_changed_missing();
        self.incoming.poll_changed_lost();
        self.incoming.poll_past();
        self.given_up.poll_changed();
        self.rivals.poll_changed();
        self.answering.poll_changed();
        self.participants.poll_changed();
    }

    fn put_state(&mut self, writer: &mut Writer, out: &mut Vec<Record>) {
        let state = Some(self.encode_state(writer));
        if state != self.records.state {
            self.records.state.clone_from(&state);
            out.push(record(STATE, &Name::new(""), state));
        }
    }

    pub(super) fn encode_state(&self, writer: &mut Writer) -> Octets {
        let heads = self.heads.entries().filter_map(|entry| self.log.get(entry));
        writer
            .long(self.lamport.timestamp())
            .long(self.filter.base_sequence())
            .long(self.transmission.nonce)
            .long(self.transmission.sync_count)
            .long(self.outgoing.sends_so_far())
            .long(self.participants.first_epoch_ms() as u64)
            .long(self.acknowledgements.order_acknowledged())
            .names(heads.map(|entry| &entry.message_id))
            .int(self.outgoing.first_parity().millionths())
            .seal()
    }

    fn put_incoming(&mut self, writer: &mut Writer, out: &mut Vec<Record>) {
        let records = &mut self.records;
        let may_be_stored = !records.stored.is_empty();
        for (key, send) in self.incoming.poll_changed(may_be_stored) {
            let send = send.and_then(|send| self.incoming.get(send));
            let fields = send.map(|send| incoming_send(writer, send, &self.incoming));
            records.put(out, INCOMING, key, fields);
        }
        for message_id in self.incoming.poll_changed_missing() {
            let missing = self.incoming.missing().get(message_id.as_bytes());
            let fields = missing.map(|message| {
                let key = self.incoming.get(message.send).map_or("", |send| &send.key);
                writer.entry(&message.entry).bytes(key.as_bytes());
                let (ours, all) = self.asking.asked_for(&message_id);
                writer.bytes(message.named_by.as_bytes());
                writer.int(ours).int(all).seal()
            });
            records.put(out, MISSING, message_id, fields);
        }
        for (key, askable) in self.incoming.poll_changed_lost() {
            let fields = askable.map(|askable| writer.byte(u8::from(askable)).seal());
            records.put(out, LOST, key, fields);
        }
        for (number, fingerprints) in self.incoming.poll_past() {
            let fields = fingerprints.map(|fingerprints| {
                for fingerprint in fingerprints {
                    writer.long(fingerprint);
                }
                writer.seal()
            });
            out.push(record(PAST, &Name::new(&format!("{number:08x}")), fields));
        }
        for (name, known) in self.given_up.poll_changed() {
            records.put(out, GIVEN_UP, name, known.then(version_alone));
        }
        for (name, known) in self.rivals.poll_changed() {
            records.put(out, RIVAL, name, known.then(version_alone));
        }
    }
}

/// The value of a record that says no more than that it is there.
fn version_alone() -> Octets {
    [VERSION].as_slice().into()
}

fn record(kind: &'static str, key: &Name, value: Option<Octets>) -> Record {
    Record {
        kind,
        key: key.clone(),
        value,
    }
}

fn log_entry(writer: &mut Writer, entry: &Entry, incoming: &Incoming) -> Octets {
    let waits_in = entry
        .send
        .and_then(|send| incoming.get(send))
        .map_or("", |send| &send.key);
    writer
        .byte(if entry.ordered { ORDERED } else { 0 } | if entry.spare { SPARE } else { 0 })
        .long(entry.lamport)
        .long(entry.sequence)
        .long(entry.unacknowledged)
        .int(entry.ordinal)
        .bytes(entry.sender_id.as_bytes())
        .optional(entry.retrieval_hint.as_bytes())
        .bytes(waits_in.as_bytes())
        .seal()
}

fn outgoing_send(writer: &mut Writer, send: &OutgoingSend) -> Octets {
    let alone = send.is_alone();
    let flags = [
        (send.finished, FINISHED),
        (send.given_up, GIVEN_UP_SEND),
        (send.history.is_some(), FIXED),
        (alone, ALONE),
        (send.demand.is_some(), ON_DEMAND),
    ];
    writer
        .byte(
            flags
                .iter()
                .filter(|(is_set, _)| *is_set)
                .map(|(_, flag)| flag)
                .sum(),
        )
        .long(send.number)
        .int(send.contents.len() as u32)
        .int(send.contents_needed);
    if let Some(history) = &send.history {
        // What is fixed at the first dispatch is wanted for the contents that follow it.
        let wanted = !history.fields.is_empty();
        writer
            .int(history.header_left as u32)
            .bytes(&history.fields)
            .optional(history.bloom_filter.as_deref())
            .names(history.ids.iter().filter(|_| wanted));
    }
    if let Some(demand) = &send.demand {
        writer.int(demand.reserve).int(demand.scheduled);
    }
    if alone && let Some(content) = send.contents.first() {
        put_state(writer, content);
    }
    let width = send.contents.len().div_ceil(8);
    for (name, held) in send.acknowledged.iter() {
        writer.bytes(name.as_bytes()).ordinals(held, width);
    }
    writer.seal()
}

/// What changes of a content: whether it waits, its timestamp, attempts, and who may have it.
fn put_state(writer: &mut Writer, content: &OutgoingContent) {
    writer
        .byte(if content.queued { QUEUED } else { 0 } | if content.made { MADE } else { 0 })
        .long(content.lamport)
        .int(content.attempts)
        .int(content.possible.len() as u32);
    for (name, hits) in &content.possible {
        writer.bytes(name.as_bytes()).int(hits.count);
    }
}

fn content_state(writer: &mut Writer, send: &OutgoingSend, ordinal: u32) -> Octets {
    writer.bytes(send.send_id.as_bytes()).int(ordinal);
    put_state(writer, &send.contents[ordinal as usize]);
    writer.seal()
}

fn incoming_send(writer: &mut Writer, send: &IncomingSend, incoming: &Incoming) -> Octets {
    let flags = [
        (send.reconstructed, RECONSTRUCTED),
        (send.lost, LOST_SEND),
        (send.may_predate_us, MAY_PREDATE_US),
    ];
    // Zero stands for what the wire does not say: no send has no contents.
    writer
        .byte(
            flags
                .iter()
                .filter(|(is_set, _)| *is_set)
                .map(|(_, flag)| flag)
                .sum(),
        )
        .bytes(send.send_id.as_bytes())
        .bytes(send.sender_id.as_bytes())
        .int(send.content_count.unwrap_or(0))
        .int(send.contents_needed.unwrap_or(0))
        .names(incoming.causes_of(send))
        .names(&send.history)
        .seal()
}

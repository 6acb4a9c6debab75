//! Messages released to the application: which waits, which is being handed over, which is done.
//!
//! At least once: the record of a message goes when its hand-over is done, so a crash repeats the one in
//! progress and no other. At most once: it goes before the hand-over begins, so a crash can cost that one
//! and repeats none.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;

use super::json_record::{decode, hash_of};
use super::records::{DELIVERY, HANDOVER, Records, payload_key};
use super::restore_error::{RestoreError, without_bytes};
use crate::reassemble::Payload;
use crate::sds::fields::{Reader, Writer};
use crate::sds::{Name, Octets, VERSION};
use crate::wire::segment::HASH_LENGTH;

/// What errors call its record.
const CALLED: &str = "DeliveryRecord";

type Hash = [u8; HASH_LENGTH];

/// What a crash during a hand-over means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redelivery {
    /// The message comes again.
    AtLeastOnce,
    /// It does not.
    AtMostOnce,
}

impl FromStr for Redelivery {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "at-least-once" => Ok(Redelivery::AtLeastOnce),
            "at-most-once" => Ok(Redelivery::AtMostOnce),
            _ => Err(()),
        }
    }
}

/// How messages are handed to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// What a crash means.
    pub redelivery: Redelivery,
    /// So many waiting messages leave no room for more ([`Deliveries::is_full`]).
    pub messages_max: usize,
    /// So many bytes of them do neither.
    pub bytes_max: usize,
}

/// One message for the application.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Who sent it, as it says.
    pub sender_id: Arc<str>,
    /// The send that it is stored under; `None` for an ephemeral message, which is never stored.
    pub send_id: Option<Name>,
    /// Keccak-256 of the payload.
    pub payload_hash: Hash,
    /// The message.
    pub payload: Payload,
    /// Whether a crash interrupted an earlier hand-over.
    pub redelivered: bool,
    /// Monotonic milliseconds at which it was released; `None` for an ephemeral message, and for one of
    /// an earlier life.
    pub released_ms: Option<i64>,
}

/// What is stored of a message that waits, beside its bytes.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    sender_id: Arc<str>,
    send_id: Name,
    payload_hash: Hash,
}

impl Stored {
    fn key(&self) -> Box<[u8]> {
        payload_key(&self.sender_id, &self.send_id)
    }

    fn encode(&self) -> Octets {
        let mut record = Writer::new();
        record
            .bytes(self.sender_id.as_bytes())
            .bytes(self.send_id.as_bytes())
            .bytes(&self.payload_hash)
            .seal()
    }

    fn decode(record: &[u8]) -> Result<Self, RestoreError> {
        match record.first() {
            Some(b'{') => Stored::of_json(record),
            Some(&version) if version > VERSION => Err(crate::sds::RestoreError::Version(version))?,
            _ => Stored::of_fields(record).ok_or(RestoreError::Damaged(CALLED)),
        }
    }

    fn of_fields(record: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(record)?;
        Some(Stored {
            sender_id: fields.text()?,
            send_id: fields.name()?,
            payload_hash: fields.bytes()?.try_into().ok()?,
        })
    }

    /// As earlier releases wrote it.
    fn of_json(record: &[u8]) -> Result<Self, RestoreError> {
        let record: Json = decode(record, CALLED)?;
        let hash = hash_of(&record.message_id).ok_or(RestoreError::Damaged(CALLED))?;
        Ok(Stored {
            sender_id: record.sender_id.into(),
            send_id: Name::new(&record.send_id),
            payload_hash: hash,
        })
    }
}

#[derive(Deserialize)]
struct Json {
    sender_id: String,
    send_id: String,
    message_id: String,
}

/// The message that the application has.
#[derive(Debug)]
struct InProgress {
    sequence: u64,
    /// Of a stored one, where its record goes when the hand-over is done.
    key: Option<Box<[u8]>>,
    size_bytes: usize,
}

/// The queue of deliveries, in order, and the one in progress.
#[derive(Debug)]
pub struct Deliveries {
    handover: Handover,
    queue: VecDeque<(u64, Delivery)>,
    in_progress: Option<InProgress>,
    /// Of all of them.
    size_bytes: usize,
    next_sequence: u64,
    /// By their place in the order; `None` for one that is done.
    changed: BTreeMap<u64, Option<Stored>>,
    /// The one in progress, where that changed.
    changed_handover: Option<Option<u64>>,
    /// Keys of the messages whose bytes are needed no more.
    done: Vec<Box<[u8]>>,
}

impl Deliveries {
    pub(super) fn new(handover: Handover) -> Self {
        Deliveries {
            handover,
            queue: VecDeque::new(),
            in_progress: None,
            size_bytes: 0,
            next_sequence: 0,
            changed: BTreeMap::new(),
            changed_handover: None,
            done: Vec::new(),
        }
    }

    /// Whether the channel should take in no more until the application has caught up.
    ///
    /// `held_bytes` are complete messages that wait for their causes: alone they fill nothing, since their
    /// causes must come. `coming` messages are about to be queued.
    pub fn is_full(&self, held_bytes: usize, coming: usize) -> bool {
        if self.len() == 0 && coming == 0 {
            return false;
        }
        self.len() + coming >= self.handover.messages_max
            || self.size_bytes + held_bytes >= self.handover.bytes_max
    }

    /// Messages that wait, the oldest first; without the one in progress.
    pub fn waiting(&self) -> impl Iterator<Item = &Delivery> {
        self.queue.iter().map(|(_, delivery)| delivery)
    }

    /// Messages not handed over, the one in progress included.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.queue.len() + usize::from(self.in_progress.is_some())
    }

    /// Their bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Queues a released message; its bytes are stored already, or with the same commit.
    pub(super) fn push(&mut self, delivery: Delivery) {
        let sequence = self.next_sequence;
        if let Some(send_id) = &delivery.send_id {
            let stored = Stored {
                sender_id: delivery.sender_id.clone(),
                send_id: send_id.clone(),
                payload_hash: delivery.payload_hash,
            };
            self.changed.insert(sequence, Some(stored));
        }
        self.insert(sequence, delivery);
    }

    fn insert(&mut self, sequence: u64, delivery: Delivery) {
        self.next_sequence = sequence + 1;
        self.size_bytes += delivery.payload.len();
        self.queue.push_back((sequence, delivery));
    }

    /// The next delivery, now in progress: to be handed over once [`Deliveries::poll_persist`] is durable.
    /// `None` where none waits, or another is in progress.
    pub(super) fn begin(&mut self) -> Option<Delivery> {
        if self.in_progress.is_some() {
            return None;
        }
        let (sequence, delivery) = self.queue.pop_front()?;
        let send_id = delivery.send_id.as_ref();
        let mut key = send_id.map(|send_id| payload_key(&delivery.sender_id, send_id));
        match self.handover.redelivery {
            Redelivery::AtMostOnce => {
                self.delete(sequence, key.take());
                if delivery.redelivered {
                    // Nothing else rewrites what a life of the other kind left.
                    self.changed_handover = Some(None);
                }
            }
            Redelivery::AtLeastOnce if key.is_some() => {
                self.changed_handover = Some(Some(sequence));
            }
            Redelivery::AtLeastOnce => {}
        }
        self.in_progress = Some(InProgress {
            sequence,
            key,
            size_bytes: delivery.payload.len(),
        });
        Some(delivery)
    }

    /// The delivery in progress is done, if there is one.
    pub(super) fn finish(&mut self) {
        let Some(done) = self.in_progress.take() else {
            return;
        };
        self.size_bytes -= done.size_bytes;
        if done.key.is_some() {
            self.changed_handover = Some(None);
            self.delete(done.sequence, done.key);
        }
    }

    fn delete(&mut self, sequence: u64, key: Option<Box<[u8]>>) {
        if let Some(key) = key {
            self.changed.insert(sequence, None);
            self.done.push(key);
        }
    }

    /// Keys of the messages whose bytes are needed no more, once what [`Deliveries::poll_persist`] gives
    /// is durable.
    pub(super) fn poll_done(&mut self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut self.done)
    }

    /// Keys of the messages whose bytes are stored for them.
    #[cfg(debug_assertions)]
    pub(super) fn stored(&self) -> impl Iterator<Item = Box<[u8]>> {
        let waiting = self.queue.iter().filter_map(|(_, delivery)| {
            let send_id = delivery.send_id.as_ref()?;
            Some(payload_key(&delivery.sender_id, send_id))
        });
        let in_progress = self.in_progress.as_ref().and_then(|held| held.key.clone());
        waiting.chain(in_progress)
    }

    /// What changed since the last call.
    pub(super) fn poll_persist(&mut self, records: &mut Records) {
        for (sequence, stored) in std::mem::take(&mut self.changed) {
            let record = stored.map(|stored| stored.encode());
            records.put(DELIVERY, sequence.to_be_bytes().to_vec(), record);
        }
        if let Some(handover) = self.changed_handover.take() {
            let key = handover.map(|sequence| sequence.to_be_bytes().to_vec());
            records.put(HANDOVER, Vec::new(), key);
        }
    }

    /// In place of [`Deliveries::poll_persist`] where nothing is stored.
    pub(super) fn drop_changes(&mut self) {
        self.changed.clear();
        self.changed_handover = None;
    }

    /// Takes back the records of kind [`DELIVERY`], in the order of their keys, and the [`HANDOVER`] one;
    /// of `payloads`, which are whole messages by key, those that wait are taken away.
    pub(super) fn restore(
        &mut self,
        deliveries: &BTreeMap<Box<[u8]>, Octets>,
        handover: Option<&[u8]>,
        payloads: &mut BTreeMap<Box<[u8]>, Vec<u8>>,
    ) -> Result<(), RestoreError> {
        if handover.is_some_and(|key| !deliveries.contains_key(key)) {
            // Places in the order begin anew where none waits: another message would have this one.
            self.changed_handover = Some(None);
        }
        for (key, record) in deliveries {
            let sequence = <[u8; 8]>::try_from(&**key);
            let sequence = sequence.map_err(|_| RestoreError::Damaged(CALLED))?;
            let stored = Stored::decode(record)?;
            let payload = payloads.remove(&stored.key()).ok_or_else(|| {
                without_bytes("a message that waits for its delivery", &stored.key())
            })?;
            let delivery = Delivery {
                sender_id: stored.sender_id,
                send_id: Some(stored.send_id),
                payload_hash: stored.payload_hash,
                payload: payload.into(),
                redelivered: handover == Some(key),
                released_ms: None,
            };
            self.insert(u64::from_be_bytes(sequence), delivery);
        }
        Ok(())
    }
}

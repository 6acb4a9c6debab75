//! Messages released to the application: which waits, which is being handed over, which is done.
//!
//! At least once: the record of a message goes when its hand-over is done, so a crash repeats those in
//! progress and no other. One commit covers several beginnings, or each message would wait for a disk. At
//! most once: the record goes before the hand-over begins, so a crash can cost that one and repeats none.

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

/// So many messages are in progress at most.
const BEGUN_MAX: usize = 64;

/// One of so many that wait begins: a crash flags few of a few, and who has many to catch up with waits for
/// few commits.
const BEGUN_SHARE: usize = 4;

/// A further one begins while those in progress have no more bytes than this: a crash repeats little, and
/// what is large is held once.
const BEGUN_BYTES_MAX: usize = 1 << 20;

type Hash = [u8; HASH_LENGTH];

/// What a crash during a hand-over means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redelivery {
    /// The messages in progress come again.
    AtLeastOnce,
    /// None does.
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
    /// Whether a crash came after a hand-over had begun, so that the application may know it.
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

/// A message that the application has, or gets next.
#[derive(Debug)]
struct InProgress {
    sequence: u64,
    /// Of a stored one, where its record goes when the hand-over is done.
    key: Option<Box<[u8]>>,
    size_bytes: usize,
}

/// The queue of deliveries, in order, and those in progress.
#[derive(Debug)]
pub struct Deliveries {
    handover: Handover,
    queue: VecDeque<(u64, Delivery)>,
    in_progress: VecDeque<InProgress>,
    /// The last of those in progress that the application never gets.
    kept_back: usize,
    /// How many were done since the last commit: a measure of how many the next one is worth.
    finished: usize,
    /// Of all of them.
    size_bytes: usize,
    next_sequence: u64,
    /// By their place in the order; `None` for one that is done.
    changed: BTreeMap<u64, Option<Stored>>,
    /// Up to here an earlier life began them; `None` once these are done.
    interrupted: Option<u64>,
    /// Up to where they are begun, as it is stored.
    stored_handover: Option<u64>,
    /// Keys of the messages whose bytes are needed no more.
    done: Vec<Box<[u8]>>,
}

impl Deliveries {
    pub(super) fn new(handover: Handover) -> Self {
        Deliveries {
            handover,
            queue: VecDeque::new(),
            in_progress: VecDeque::new(),
            kept_back: 0,
            finished: 0,
            size_bytes: 0,
            next_sequence: 0,
            changed: BTreeMap::new(),
            interrupted: None,
            stored_handover: None,
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

    /// Messages that wait, the oldest first; without those in progress.
    pub fn waiting(&self) -> impl Iterator<Item = &Delivery> {
        self.queue.iter().map(|(_, delivery)| delivery)
    }

    /// Messages not handed over, those in progress included.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.queue.len() + self.in_progress.len()
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

    /// The next delivery, now in progress: to be handed over once [`Deliveries::poll_persist`] is durable,
    /// after those before it. `None` where none waits, or enough are in progress.
    ///
    /// More than one are where many wait, and the application is done with as many before a commit is
    /// through: one that is slow gets one ahead.
    pub(super) fn begin(&mut self) -> Option<Delivery> {
        let worth = (2 * self.finished).min(self.len() / BEGUN_SHARE);
        let most = match self.handover.redelivery {
            Redelivery::AtLeastOnce => worth.clamp(1, BEGUN_MAX),
            Redelivery::AtMostOnce => 1,
        };
        let begun_bytes = self.in_progress.iter().map(|begun| begun.size_bytes);
        let (_, next) = self.queue.front()?;
        let is_first = self.in_progress.is_empty();
        if self.in_progress.len() >= most
            || !is_first && begun_bytes.sum::<usize>() + next.payload.len() > BEGUN_BYTES_MAX
        {
            return None;
        }
        let (sequence, delivery) = self.queue.pop_front()?;
        let send_id = delivery.send_id.as_ref();
        let mut key = send_id.map(|send_id| payload_key(&delivery.sender_id, send_id));
        if self.handover.redelivery == Redelivery::AtMostOnce {
            self.delete(sequence, key.take());
            self.forget_interrupted(sequence);
        }
        self.in_progress.push_back(InProgress {
            sequence,
            key,
            size_bytes: delivery.payload.len(),
        });
        Some(delivery)
    }

    /// The oldest delivery in progress is done, if there is one.
    pub(super) fn finish(&mut self) {
        let Some(done) = self.in_progress.pop_front() else {
            return;
        };
        self.finished += 1;
        self.size_bytes -= done.size_bytes;
        self.delete(done.sequence, done.key);
        self.forget_interrupted(done.sequence);
    }

    /// The channel ends: of the deliveries in progress the application was given the first `given`, and the
    /// next life hands over the others as if they had not begun.
    pub(super) fn end(&mut self, given: usize) {
        self.kept_back = self.in_progress.len().saturating_sub(given);
    }

    /// All up to this place that an earlier life began are done.
    fn forget_interrupted(&mut self, sequence: u64) {
        self.interrupted.take_if(|last| *last <= sequence);
    }

    /// Up to where they are begun: so far a crash from now on flags those that it repeats.
    fn handover(&self) -> Option<u64> {
        let given = self.in_progress.len() - self.kept_back;
        let stored = |begun: &&InProgress| begun.key.is_some();
        let last = self.in_progress.iter().take(given).rev().find(stored);
        last.map(|begun| begun.sequence).max(self.interrupted)
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
        let in_progress = self.in_progress.iter();
        waiting.chain(in_progress.filter_map(|begun| begun.key.clone()))
    }

    /// What changed since the last call.
    pub(super) fn poll_persist(&mut self, records: &mut Records) {
        for (sequence, stored) in std::mem::take(&mut self.changed) {
            let record = stored.map(|stored| stored.encode());
            records.put(DELIVERY, sequence.to_be_bytes().to_vec(), record);
        }
        let handover = self.handover();
        if handover != self.stored_handover {
            let key = handover.map(|sequence| sequence.to_be_bytes().to_vec());
            records.put(HANDOVER, Vec::new(), key);
        }
        self.on_polled(handover);
    }

    fn on_polled(&mut self, handover: Option<u64>) {
        self.stored_handover = handover;
        self.finished = 0;
    }

    /// In place of [`Deliveries::poll_persist`] where nothing is stored.
    pub(super) fn drop_changes(&mut self) {
        self.changed.clear();
        self.on_polled(self.handover());
    }

    /// Takes back the records of kind [`DELIVERY`], in the order of their keys, and the [`HANDOVER`] one;
    /// of `payloads`, which are whole messages by key, those that wait are taken away.
    pub(super) fn restore(
        &mut self,
        deliveries: &BTreeMap<Box<[u8]>, Octets>,
        handover: Option<&[u8]>,
        payloads: &mut BTreeMap<Box<[u8]>, Vec<u8>>,
    ) -> Result<(), RestoreError> {
        let place = |key: &[u8]| match <[u8; 8]>::try_from(key) {
            Ok(sequence) => Ok(u64::from_be_bytes(sequence)),
            Err(_) => Err(RestoreError::Damaged(CALLED)),
        };
        self.stored_handover = handover.map(place).transpose()?;
        // Places in the order begin anew where none waits: another message would have this one.
        let still_waits = handover.is_some_and(|key| deliveries.contains_key(key));
        self.interrupted = self.stored_handover.filter(|_| still_waits);
        for (key, record) in deliveries {
            let sequence = place(key)?;
            let stored = Stored::decode(record)?;
            let payload = payloads.remove(&stored.key()).ok_or_else(|| {
                without_bytes("a message that waits for its delivery", &stored.key())
            })?;
            let delivery = Delivery {
                sender_id: stored.sender_id,
                send_id: Some(stored.send_id),
                payload_hash: stored.payload_hash,
                payload: payload.into(),
                redelivered: self.interrupted.is_some_and(|last| sequence <= last),
                released_ms: None,
            };
            self.insert(sequence, delivery);
        }
        Ok(())
    }
}

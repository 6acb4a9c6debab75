//! What becomes of contents that are forged, refused or here already; `bob` hears all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::erasure::ErasureCode;
use crate::keccak::keccak256;
use crate::sds::{Drawn, MessageIdRule, Octets, content_id, sha256_id};
use crate::segment::{Settings, segment};
use crate::wire::sds::{HistoryEntry, Message};
use crate::wire::segment::{Header, Slot, WireFormat};

pub(super) const SEGMENT_BYTES: usize = 640;
pub(super) const EPOCH_MS: i64 = 1_760_000_000_000;
/// A partial message is kept for so long.
pub(super) const TIMEOUT_MS: i64 = 300_000;
pub(super) const QUEUE: QueueLimits = QueueLimits {
    bytes_max: usize::MAX,
    is_limited: false,
};
pub(super) const HANDOVER: Handover = Handover {
    redelivery: Redelivery::AtLeastOnce,
    messages_max: 100,
    bytes_max: 1 << 20,
};
pub(super) const RETRIEVAL: RetrievalConfig = RetrievalConfig {
    retrieve_frequency_ms: 5_000,
    query_on_connect: true,
    query_on_connect_interval_ms: 300_000,
};
/// Sends.
pub(super) const ONE: &str = "11111111111111111111111111111111";
pub(super) const OTHER: &str = "22222222222222222222222222222222";

pub(super) fn at(ms: i64) -> Now {
    Now {
        monotonic_ms: ms,
        epoch_ms: EPOCH_MS + ms,
    }
}

pub(super) fn config() -> Config {
    Config {
        bloom_filter_capacity: 100,
        timeout_for_lost_messages_ms: 0,
        outgoing_buffer_messages_max: 100,
        incoming_buffer_messages_max: 100,
        missing_messages_max: 100,
        log_messages_max: 100,
        sync_min_interval_ms: 0,
        participant_ttl_ms: 3_600_000,
        header_bytes_max: 2_000,
        ..Config::example()
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        sets_max: 100,
        sets_per_sender_max: 100,
        buffered_bytes_max: 1 << 20,
        buffered_bytes_per_sender_max: 1 << 20,
        unauthenticated_share: 0.5,
        candidates_per_slot_max: 4,
        completed_remembered_max: 100,
        timeout_ms: TIMEOUT_MS,
        work_budget: 32,
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        segment_size_bytes: SEGMENT_BYTES,
        enable_reed_solomon: true,
        parity_rate: 1.0,
        parity_for_single_segment: false,
        erasure_code: ErasureCode::Leopard,
        wire_format: WireFormat::Raw,
        max_total_segments: 256,
        max_tail_candidates: 1_000,
    }
}

/// Bytes of which no two parts are equal; none is zero.
pub(super) fn payload(seed: u8, length: usize) -> Vec<u8> {
    let bytes = (0..length as u64).map(|at| {
        let mixed = (at << 8 | u64::from(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as u8 | 1
    });
    bytes.collect()
}

/// The segments of a payload: as much parity as data.
pub(super) fn segments(payload: &[u8]) -> Vec<Vec<u8>> {
    let parameters = Parameters::new(settings()).unwrap();
    segment(payload, &parameters).unwrap().to_vecs()
}

/// A payload that is said to have `hash`, in data segments alone.
pub(super) fn data_segments(hash: [u8; 32], payload: &[u8]) -> Vec<Vec<u8>> {
    let parts = payload.chunks(SEGMENT_BYTES);
    let mut header = Header {
        entire_message_hash: hash,
        slot: Slot::Data(0),
        data_segment_count: Some(parts.len() as u16),
        parity_segment_count: Some(0),
        payload_length: None,
    };
    let contents = parts.enumerate().map(|(index, part)| {
        header.slot = Slot::Data(index as u8);
        header.encode(WireFormat::Raw, part)
    });
    contents.collect()
}

/// A message in one segment that does not have its hash.
fn false_single() -> Vec<u8> {
    data_segments([9; 32], b"false").remove(0)
}

/// An SDS message, whose time is that at which it is heard.
pub(super) fn message(sender_id: &str, message_id: &str, content: &[u8]) -> Message {
    Message {
        sender_id: sender_id.to_owned(),
        message_id: message_id.to_owned(),
        channel_id: "room".to_owned(),
        lamport_timestamp: Some(0),
        content: Some(content.to_vec()),
        ..Message::default()
    }
}

pub(super) fn named(message_id: &str, sender_id: Option<&str>) -> HistoryEntry {
    HistoryEntry {
        message_id: message_id.to_owned(),
        retrieval_hint: None,
        sender_id: sender_id.map(str::to_owned),
    }
}

pub(super) fn follows(message: Message, message_id: &str) -> Message {
    Message {
        causal_history: vec![named(message_id, None)],
        ..message
    }
}

/// The id of a content under the rule "send".
/// What the network brings; nothing of it is proven.
pub(super) fn heard(data: &Octets) -> Arrival<'_> {
    Arrival {
        data,
        retrieval_hint: None,
        timestamp_ns: 0,
        authenticated_sender: None,
        from_store: false,
        observed: false,
    }
}

pub(super) fn id(send_id: &str, ordinal: u32) -> String {
    content_id(send_id, ordinal).to_string()
}

/// A participant, what it stored and what it was told.
pub(super) struct Bob {
    pub config: Config,
    pub segmentation: Segmentation,
    pub channel: Channel,
    pub records: BTreeMap<(String, Vec<u8>), Octets>,
    /// What was released. Nothing of it is handed over.
    pub released: Vec<Vec<u8>>,
    seen: usize,
    pub events: Vec<Event>,
    pub now_ms: i64,
    heard: u64,
    /// Whether what is heard is what a store has.
    pub from_store: bool,
}

impl Bob {
    pub fn new() -> Self {
        Bob::of(config(), settings(), limits())
    }

    pub fn of(config: Config, settings: Settings, limits: Limits) -> Self {
        let segmentation = Segmentation {
            parameters: Parameters::new(settings).unwrap(),
            limits,
        };
        Bob {
            channel: channel(&config, segmentation, 0),
            config,
            segmentation,
            records: BTreeMap::new(),
            released: Vec::new(),
            seen: 0,
            events: Vec::new(),
            now_ms: 0,
            heard: 0,
            from_store: false,
        }
    }

    pub fn hear(&mut self, message: Message) -> bool {
        self.hear_of(message, false)
    }

    /// `is_proven` tells whether the sender's identity is.
    pub fn hear_of(&mut self, mut message: Message, is_proven: bool) -> bool {
        self.heard += 1;
        message.lamport_timestamp = Some(at(self.now_ms).epoch_ms as u64 + self.heard);
        let data = Octets::from(message.encode(self.config.wire_format).unwrap());
        let arrival = Arrival {
            authenticated_sender: is_proven.then_some(&message.sender_id),
            from_store: self.from_store,
            ..heard(&data)
        };
        let kept = self.channel.handle_message(&arrival, at(self.now_ms));
        self.take_events();
        kept
    }

    pub fn take_events(&mut self) {
        self.events
            .extend(self.channel.poll_events(at(self.now_ms)));
        let released = self.channel.deliveries().waiting().skip(self.seen);
        self.released
            .extend(released.map(|delivery| delivery.payload.to_vec()));
        self.seen = self.channel.deliveries().len();
    }

    /// Nothing comes until what is partial is given up.
    pub fn wait_for_expiry(&mut self) {
        self.now_ms += TIMEOUT_MS;
        self.channel.expire(at(self.now_ms));
        self.take_events();
    }

    pub fn faults(&self, kind: FaultKind) -> usize {
        let is_of_kind =
            |event: &&Event| matches!(event, Event::Fault(fault) if fault.kind == kind);
        self.events.iter().filter(is_of_kind).count()
    }

    pub fn given_up(&self) -> usize {
        let is_given_up = |event: &&Event| matches!(event, Event::MessageGivenUp(_));
        self.events.iter().filter(is_given_up).count()
    }

    pub fn stat(&self, name: &str) -> usize {
        let stats = self.channel.sds().stats();
        let mut stats = stats.into_iter();
        stats.find(|(known, _)| *known == name).unwrap().1
    }

    pub fn holds(&self, message_id: &str) -> bool {
        self.channel.sds().holds(message_id)
    }

    pub fn missing(&self) -> BTreeSet<&str> {
        let missing = self.channel.sds().missing();
        missing.map(|entry| &*entry.message_id).collect()
    }

    pub fn commit(&mut self) {
        for record in self.channel.poll_persist() {
            let name = (record.kind.to_owned(), record.key.as_bytes().to_vec());
            match record.value {
                Some(Value::Bytes(value)) => self.records.insert(name, value.to_vec().into()),
                Some(Value::Payload(value)) => self.records.insert(name, value.to_vec().into()),
                None => self.records.remove(&name),
            };
        }
    }

    /// Changes what was stored, by kind, key and value.
    pub fn rewrite(&mut self, change: impl Fn(&str, &mut Vec<u8>, &mut Octets)) {
        let records = std::mem::take(&mut self.records).into_iter();
        self.records = records
            .map(|((kind, mut key), mut value)| {
                change(&kind, &mut key, &mut value);
                ((kind, key), value)
            })
            .collect();
    }

    pub fn stored(&self, kind: &str) -> usize {
        let names = self.records.keys();
        names.filter(|(known, _)| known == kind).count()
    }

    /// Stores everything and begins again, with other limits or settings; gives what was released and
    /// not delivered.
    pub fn restart_as(
        &mut self,
        settings: Settings,
        limits: Limits,
    ) -> Result<Vec<Vec<u8>>, RestoreError> {
        self.commit();
        self.segmentation = Segmentation {
            parameters: Parameters::new(settings).unwrap(),
            limits,
        };
        let records = self.records.iter();
        let records = records.map(|((kind, key), value)| (kind.as_str(), &key[..], value.clone()));
        let channel = channel(&self.config, self.segmentation, self.now_ms);
        self.channel = channel.restore(records, at(self.now_ms))?;
        let count = std::mem::take(&mut self.seen);
        let waiting = self.channel.deliveries().waiting().take(count);
        let waiting: Vec<_> = waiting.map(|delivery| delivery.payload.to_vec()).collect();
        self.seen = waiting.len();
        self.take_events();
        Ok(waiting)
    }

    pub fn restart(&mut self) -> Result<Vec<Vec<u8>>, RestoreError> {
        let parameters = self.segmentation.parameters;
        self.restart_as(*parameters.settings(), self.segmentation.limits)
    }
}

pub(super) fn channel(config: &Config, segmentation: Segmentation, now_ms: i64) -> Channel {
    let rng = Box::new(Drawn::from([]));
    let config = ChannelConfig {
        sds: config.clone(),
        segmentation,
        queue: QUEUE,
        handover: HANDOVER,
        retrieval: RETRIEVAL,
    };
    Channel::new("room", "bob", config, at(now_ms), rng).unwrap()
}

// --- rivals that are refused ----------------------------------------------------------------------

#[test]
fn a_rival_of_a_message_that_is_here_is_looked_at_each_time() {
    let mut bob = Bob::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    for ordinal in [1, 2] {
        bob.hear(message(
            "alice",
            &id(ONE, ordinal),
            &contents[ordinal as usize],
        ));
    }
    assert_eq!(bob.released.len(), 2);
    for times in 1..=2 {
        bob.hear(message("alice", &id(ONE, 0), &contents[0]));
        let (counts, _) = bob.channel.counts();
        assert_eq!(counts.segments_discarded, times);
        assert_eq!(bob.stat("rivals"), 0);
    }
}

#[test]
fn a_false_rival_is_looked_at_each_time() {
    let mut bob = Bob::new();
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    for times in 1..=2 {
        bob.hear(message("alice", &id(ONE, 0), &false_single()));
        assert_eq!(bob.faults(FaultKind::HashMismatch), times);
        assert_eq!(bob.stat("rivals"), 0);
    }
}

#[test]
fn rivals_of_a_partial_message_that_was_given_up_may_come_again() {
    let mut bob = Bob::new();
    let real = payload(1, 2 * SEGMENT_BYTES);
    let contents = segments(&real);
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    bob.hear(message("alice", &id(ONE, 0), &contents[0]));
    assert_eq!(bob.stat("rivals"), 1);
    bob.wait_for_expiry();
    assert_eq!(bob.stat("rivals"), 0);
    assert!(!bob.channel.has_partial());
    for ordinal in [0, 1] {
        bob.hear(message(
            "alice",
            &id(ONE, ordinal),
            &contents[ordinal as usize],
        ));
    }
    assert_eq!(bob.released, [b"of mallory".to_vec(), real]);
}

#[test]
fn a_rival_for_which_there_was_no_room_is_asked_for_once_it_is_named() {
    let limits = Limits {
        unauthenticated_share: 0.0,
        ..limits()
    };
    let mut bob = Bob::of(config(), settings(), limits);
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    for _ in 0..2 {
        assert!(!bob.hear(message("alice", &id(ONE, 0), &contents[0])));
        assert_eq!(bob.stat("rivals"), 0);
    }
    name_of_alice(&mut bob);
    assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0)]));
}

/// Carol's history says that the first content of the send is alice's.
fn name_of_alice(bob: &mut Bob) {
    bob.hear(Message {
        content: None,
        causal_history: vec![named(&id(ONE, 0), Some("alice"))],
        ..message("carol", "sync", b"")
    });
}

#[test]
fn a_rival_whose_message_was_given_up_is_asked_for_once_it_is_named() {
    let mut bob = Bob::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    bob.hear(message("alice", &id(ONE, 0), &contents[0]));
    name_of_alice(&mut bob);
    assert!(bob.missing().is_empty());
    bob.wait_for_expiry();
    name_of_alice(&mut bob);
    assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0)]));
}

#[test]
fn a_false_rival_does_not_end_the_asking_for_the_true_one() {
    let mut bob = Bob::new();
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    bob.hear(message("alice", &id(ONE, 0), &false_single()));
    name_of_alice(&mut bob);
    assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0)]));
}

#[test]
fn a_rival_of_a_false_set_is_asked_for_once_it_is_named() {
    let limits = Limits {
        work_budget: 1,
        ..limits()
    };
    let mut bob = Bob::of(config(), settings(), limits);
    let hash = keccak256(&payload(1, 2 * SEGMENT_BYTES));
    let forged = [2, 3].map(|seed| data_segments(hash, &payload(seed, 2 * SEGMENT_BYTES)));
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    for (ordinal, content) in forged.iter().flatten().enumerate().take(3) {
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.given_up(), 1);
    name_of_alice(&mut bob);
    assert!(bob.missing().contains(&*id(ONE, 0)));
}

#[test]
fn a_rival_of_a_message_that_is_here_is_not_asked_for() {
    let mut bob = Bob::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
    for ordinal in [1, 2, 0] {
        bob.hear(message(
            "alice",
            &id(ONE, ordinal),
            &contents[ordinal as usize],
        ));
    }
    name_of_alice(&mut bob);
    assert!(bob.missing().is_empty());
}

/// It comes first under its id then, and was a rival before.
#[test]
fn a_rival_that_comes_again_after_the_other_one_was_given_up_is_released_once() {
    let mut bob = Bob::new();
    let others = segments(&payload(1, 2 * SEGMENT_BYTES));
    bob.hear(message("mallory", &id(ONE, 0), &others[0]));
    let content = &segments(b"real")[0];
    bob.hear(message("alice", &id(ONE, 0), content));
    bob.wait_for_expiry();
    bob.hear(message("alice", &id(ONE, 0), content));
    assert!(bob.holds(&id(ONE, 0)));
    assert_eq!(bob.released, [b"real"]);
    assert_eq!(bob.stat("incoming_contents"), 0);
}

/// How often alice's message is released that comes again once the log forgot it. Mallory has its id:
/// from the beginning, so that it is a rival, or since. A store may have it.
fn released_of_alice(mut bob: Bob, is_rival: bool, in_store: bool) -> usize {
    let parameters = bob.segmentation.parameters;
    let single = |payload: &[u8]| segment(payload, &parameters).unwrap().to_vecs().remove(0);
    let of_mallory = message("mallory", &id(ONE, 0), &single(b"of mallory"));
    if is_rival {
        bob.hear(of_mallory.clone());
    }
    let of_alice = message("alice", &id(ONE, 0), &single(b"real"));
    bob.hear(of_alice.clone());
    let heard = bob.heard;
    for number in 3..9 {
        for sender in ["carol", "dave"] {
            let payload = format!("{number} of {sender}");
            let shared = id(&format!("{number:032x}"), 0);
            bob.hear(message(sender, &shared, &single(payload.as_bytes())));
        }
    }
    assert!(!bob.holds(&id(ONE, 0)));
    if !is_rival {
        bob.hear(of_mallory);
    }
    // With the time that it had.
    bob.heard = heard - 1;
    bob.from_store = in_store;
    bob.hear(of_alice);
    let of_alice = bob.released.iter().filter(|payload| **payload == b"real");
    of_alice.count()
}

/// Remembers four messages, and so many rivals and completed messages.
fn forgetful(wire_format: WireFormat, rivals: usize, completed: usize) -> Bob {
    let config = Config {
        log_messages_max: 4,
        missing_messages_max: rivals,
        ..config()
    };
    let settings = Settings {
        wire_format,
        ..settings()
    };
    let limits = Limits {
        completed_remembered_max: completed,
        ..limits()
    };
    Bob::of(config, settings, limits)
}

#[test]
fn a_message_that_the_log_forgot_is_released_once_though_another_has_its_id_since() {
    for wire_format in [WireFormat::Raw, WireFormat::Draft] {
        let bob = forgetful(wire_format, 1, 1);
        assert_eq!(released_of_alice(bob, false, false), 1, "{wire_format:?}");
    }
}

#[test]
fn a_rival_is_released_once_while_it_is_remembered_or_its_message_is() {
    for (rivals, completed) in [(1, 100), (100, 1)] {
        let bob = forgetful(WireFormat::Raw, rivals, completed);
        assert_eq!(
            released_of_alice(bob, true, false),
            1,
            "{rivals} {completed}"
        );
    }
    // Where messages of one content do not go to reassembly.
    let bob = forgetful(WireFormat::Draft, 100, 1);
    assert_eq!(released_of_alice(bob, true, true), 1);
}

#[test]
fn a_message_that_a_store_repeats_is_released_once_while_it_is_remembered() {
    for message_id in [MessageIdRule::Send, MessageIdRule::ContentSha256] {
        for wire_format in [WireFormat::Raw, WireFormat::Draft] {
            for is_rival in [false, true] {
                let mut bob = forgetful(wire_format, 1, 100);
                bob.config.message_id = message_id;
                bob.restart().unwrap();
                assert_eq!(
                    released_of_alice(bob, is_rival, true),
                    1,
                    "{message_id:?} {wire_format:?} {is_rival}"
                );
            }
        }
    }
}

/// Ids that are hashes of contents do not say which segments have not come yet.
#[test]
fn late_segments_of_a_message_that_the_log_has_do_not_bring_it_again() {
    let mut config = config();
    config.message_id = MessageIdRule::ContentSha256;
    let limits = Limits {
        completed_remembered_max: 0,
        ..limits()
    };
    let mut bob = Bob::of(config, settings(), limits);
    let real = payload(1, 2 * SEGMENT_BYTES);
    for content in segments(&real) {
        bob.hear(message("alice", &sha256_id(&content), &content));
    }
    assert_eq!(bob.released, [real]);
}

#[test]
fn a_message_that_a_store_repeats_after_a_restart_is_released_once_too() {
    for wire_format in [WireFormat::Raw, WireFormat::Draft] {
        let mut bob = forgetful(wire_format, 1, 100);
        let hear = |bob: &mut Bob, number: u32| {
            let parameters = bob.segmentation.parameters;
            let real = number.to_be_bytes();
            let content = segment(&real, &parameters).unwrap();
            let content_id = id(&format!("{number:032x}"), 0);
            bob.hear(message("alice", &content_id, &content.to_vecs()[0]));
        };
        for number in 1..8 {
            hear(&mut bob, number);
        }
        while bob.channel.begin_delivery().is_some() {
            bob.channel.finish_delivery();
        }
        assert!(bob.restart().unwrap().is_empty());
        assert!(!bob.holds(&id(&format!("{:032x}", 1), 0)));
        bob.released.clear();
        (bob.heard, bob.from_store) = (0, true);
        hear(&mut bob, 1);
        assert!(bob.released.is_empty(), "{wire_format:?}");
    }
}

// --- what turns out false, and what comes again ----------------------------------------------------

#[test]
fn messages_of_a_false_set_do_not_stay_in_the_way_of_the_true_one() {
    let mut limits = limits();
    limits.work_budget = 1;
    let mut bob = Bob::of(config(), settings(), limits);
    let real = payload(1, 2 * SEGMENT_BYTES);
    let hash = keccak256(&real);
    let forged = [2, 3].map(|seed| data_segments(hash, &payload(seed, 2 * SEGMENT_BYTES)));
    for (ordinal, content) in forged.iter().flatten().enumerate().take(3) {
        assert_eq!(bob.given_up(), 0);
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.given_up(), 1);
    for (ordinal, content) in data_segments(hash, &real).iter().enumerate() {
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.released, [real]);
}

#[test]
fn what_follows_a_message_that_came_false_waits_for_another_copy_of_it() {
    for is_named_first in [false, true] {
        let mut bob = Bob::new();
        if is_named_first {
            name_of_alice(&mut bob);
        }
        bob.hear(message("alice", &id(ONE, 0), &false_single()));
        assert_eq!(bob.faults(FaultKind::HashMismatch), 1);
        let after = message("alice", &id(OTHER, 0), &segments(b"after")[0]);
        bob.hear(follows(after, &id(ONE, 0)));
        assert_eq!((bob.given_up(), bob.released.len()), (0, 0));
        assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0)]));
        bob.restart().unwrap();
        bob.hear(message("alice", &id(ONE, 0), &segments(b"true")[0]));
        assert_eq!(bob.released, [b"true".to_vec(), b"after".to_vec()]);
    }
}

/// What is kept of it is older than what is taken from the network.
#[test]
fn what_is_kept_of_a_message_that_goes_on_is_taken_in_however_old_it_is() {
    let mut config = config();
    config.message_id = MessageIdRule::ContentSha256;
    config.replay_window_ms = TIMEOUT_MS / 2;
    let mut bob = Bob::of(config, settings(), limits());
    let real = payload(1, 3 * SEGMENT_BYTES);
    let contents = segments(&real);
    let hear = |bob: &mut Bob, ordinal: usize| {
        let content = &contents[ordinal];
        bob.hear(message("alice", &sha256_id(content), content));
    };
    hear(&mut bob, 0);
    hear(&mut bob, 1);
    bob.wait_for_expiry();
    assert_eq!(bob.given_up(), 1);
    hear(&mut bob, 2);
    assert_eq!(bob.released, [real]);
}

// --- what is here already --------------------------------------------------------------------------

#[test]
fn a_segment_of_a_message_that_was_released_is_waited_for_by_nobody() {
    let mut bob = Bob::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    for (ordinal, content) in contents.iter().enumerate() {
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.released.len(), 1);
    assert!(bob.holds(&id(ONE, 3)));
    assert_eq!(bob.stat("incoming_contents"), 0);
}

/// Two messages come under one id, the second after the log forgot the first; it comes again when nothing
/// remembers it but what waits for its delivery.
fn hear_again_what_waits(wire_format: WireFormat) {
    let mut config = config();
    config.log_messages_max = 2;
    let settings = Settings {
        wire_format,
        ..settings()
    };
    let limits = Limits {
        completed_remembered_max: 1,
        ..limits()
    };
    let mut bob = Bob::of(config, settings, limits);
    let single = |payload: &[u8]| {
        let parameters = Parameters::new(settings).unwrap();
        segment(payload, &parameters).unwrap().to_vecs().remove(0)
    };
    let hear = |bob: &mut Bob, send_id: &str, payload: &[u8]| {
        bob.hear(message("alice", &id(send_id, 0), &single(payload)));
    };
    for payload in [b"one", b"two"] {
        hear(&mut bob, ONE, payload);
        for number in 3..7 {
            hear(&mut bob, &format!("{number:032x}"), b"more");
        }
        assert!(!bob.holds(&id(ONE, 0)));
    }
    bob.released.clear();
    hear(&mut bob, ONE, b"two");
    assert!(bob.holds(&id(ONE, 0)));
    assert_eq!((bob.released.len(), bob.stat("incoming_contents")), (0, 0));
    let after = message("alice", &id(OTHER, 0), &single(b"after"));
    bob.hear(follows(after, &id(ONE, 0)));
    assert_eq!(bob.released, [b"after"]);
}

#[test]
fn a_segment_that_comes_again_while_its_message_waits_for_its_delivery_is_waited_for_by_nobody() {
    hear_again_what_waits(WireFormat::Raw);
}

#[test]
fn a_payload_that_comes_again_while_it_waits_for_its_delivery_is_waited_for_by_nobody() {
    hear_again_what_waits(WireFormat::Draft);
}

// --- two of one send -------------------------------------------------------------------------------

/// Its wire does not say how many there are, so what histories name of it is asked for.
#[test]
fn what_follows_a_send_that_is_begun_waits_for_that_and_not_for_another_of_its_id() {
    let (real, forged) = (payload(1, 2 * SEGMENT_BYTES), payload(2, 2 * SEGMENT_BYTES));
    let draft = Settings {
        wire_format: WireFormat::Draft,
        ..settings()
    };
    let parts = |payload: &[u8]| {
        let parameters = Parameters::new(draft).unwrap();
        segment(payload, &parameters).unwrap().to_vecs()
    };
    let (contents, others) = (parts(&real), parts(&forged));
    let mut bob = Bob::of(config(), draft, limits());
    bob.hear(message("mallory", &id(ONE, 5), &others[0]));
    bob.hear(message("alice", &id(ONE, 0), &contents[0]));
    let after = message("carol", &id(OTHER, 0), b"after");
    bob.hear(follows(after, &id(ONE, 1)));
    bob.hear(message("alice", &id(ONE, 1), &contents[1]));
    assert_eq!(bob.released, [&*real]);
    bob.hear(message("mallory", &id(ONE, 6), &others[1]));
    assert_eq!(bob.released, [real, forged, b"after".to_vec()]);
}

#[test]
fn what_follows_a_send_whose_id_another_had_waits_for_what_came_of_it() {
    let (real, forged) = (payload(1, 4 * SEGMENT_BYTES), payload(2, 2 * SEGMENT_BYTES));
    let (contents, others) = (segments(&real), data_segments(keccak256(&forged), &forged));
    let mut bob = Bob::new();
    bob.hear(message("mallory", &id(ONE, 10), &others[0]));
    for place in [1, 3] {
        bob.hear(message("alice", &id(ONE, place as u32), &contents[place]));
    }
    bob.hear(message("mallory", &id(ONE, 11), &others[1]));
    assert_eq!(bob.released, [&*forged]);
    let after = message("carol", &id(OTHER, 0), &segments(b"after")[0]);
    bob.hear(follows(after, &id(ONE, 2)));
    for place in [2, 0] {
        assert_eq!(bob.released.len(), 1);
        bob.hear(message("alice", &id(ONE, place as u32), &contents[place]));
    }
    assert_eq!(bob.released, [forged, real, b"after".to_vec()]);
    assert_eq!((bob.stat("incoming_contents"), bob.stat("missing")), (0, 0));
}

/// Histories say that the others are dave's, who is still asked for them.
#[test]
fn what_is_named_as_anothers_is_asked_for_though_a_send_that_is_begun_has_its_id() {
    let mut bob = Bob::new();
    let real = payload(1, 3 * SEGMENT_BYTES);
    let of_dave = [0, 2].map(|ordinal| named(&id(ONE, ordinal), Some("dave")));
    bob.hear(Message {
        content: None,
        causal_history: of_dave.into(),
        ..message("carol", "sync", b"")
    });
    for (ordinal, content) in segments(&real).iter().enumerate().take(3) {
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.released, [real]);
    assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0), &*id(ONE, 2)]));
}

// --- ids that name no send, spelled like a send --------------------------------------------------

/// A message of two segments under ids that name no send; the second one is spelled like the send `ONE`.
fn spelled_like_a_send() -> (Vec<u8>, [Message; 2]) {
    let spelled = payload(3, 2 * SEGMENT_BYTES);
    let contents = data_segments(keccak256(&spelled), &spelled);
    let messages = [("another", 0), (ONE, 1)];
    let messages = messages.map(|(id, place)| message("alice", id, &contents[place]));
    (spelled, messages)
}

#[test]
fn what_is_spelled_like_a_send_that_waits_leaves_that_waiting() {
    for is_last in [true, false] {
        let mut bob = Bob::new();
        let waits = message("alice", &id(ONE, 0), &segments(b"waits")[0]);
        bob.hear(follows(waits, &id(OTHER, 0)));
        let (spelled, mut messages) = spelled_like_a_send();
        if !is_last {
            messages.reverse();
        }
        let [first, second] = messages;
        bob.hear(first);
        bob.hear(second);
        assert_eq!(bob.released, [&*spelled], "{is_last}");
        bob.channel.sds.poll_timeout();
        bob.restart().unwrap();
        bob.hear(message("carol", &id(OTHER, 0), &segments(b"cause")[0]));
        let released = [spelled, b"cause".to_vec(), b"waits".to_vec()];
        assert_eq!(bob.released, released, "{is_last}");
        assert_eq!(bob.stat("incoming_contents"), 0);
    }
}

#[test]
fn what_is_spelled_like_a_send_that_is_partial_leaves_that_whole() {
    for before in 0..=2 {
        let mut bob = Bob::new();
        let (spelled, [first, second]) = spelled_like_a_send();
        let real = payload(1, 2 * SEGMENT_BYTES);
        let mut second = Some(second);
        for (ordinal, content) in data_segments(keccak256(&real), &real).iter().enumerate() {
            if ordinal == before {
                bob.hear(second.take().unwrap());
                bob.restart().unwrap();
            }
            bob.hear(message("alice", &id(ONE, ordinal as u32), content));
        }
        bob.restart().unwrap();
        assert_eq!(bob.released, [&*real], "{before}");
        if let Some(second) = second {
            bob.hear(second);
        }
        bob.hear(first);
        assert_eq!(bob.released, [real, spelled], "{before}");
        assert_eq!(bob.stat("incoming_contents"), 0);
    }
}

/// A segment that comes late is one of a message that is here, whatever waits under its name.
#[test]
fn what_is_spelled_like_a_send_keeps_nothing_of_that_when_it_is_whole_or_given_up() {
    for count in 1..=3 {
        let mut bob = Bob::new();
        let settings = *bob.segmentation.parameters.settings();
        let real = payload(1, 2 * SEGMENT_BYTES);
        let contents = segment(&real, &bob.segmentation.parameters)
            .unwrap()
            .to_vecs();
        assert_eq!((contents.len(), settings.wire_format), (4, WireFormat::Raw));
        let spelled = follows(message("alice", ONE, &segments(b"waits")[0]), "awaited");
        bob.hear(spelled);
        for (ordinal, content) in (0..).zip(&contents).take(count) {
            bob.hear(message("alice", &id(ONE, ordinal), content));
        }
        bob.wait_for_expiry();
        assert_eq!(bob.stat("incoming_contents"), 1, "{count}");
        bob.commit();
    }
}

/// What is kept of the send has the name of a rival, since another participant had used the id.
#[test]
fn what_is_spelled_like_a_send_is_not_given_up_in_its_place() {
    let mut bob = Bob::new();
    let of = |seed| segments(&payload(seed, 2 * SEGMENT_BYTES)).remove(0);
    let spelled = follows(message("alice", ONE, &segments(b"waits")[0]), "awaited");
    bob.hear(spelled);
    bob.hear(message("mallory", &id(ONE, 0), &of(1)));
    bob.now_ms += TIMEOUT_MS / 2;
    let content = message("alice", &id(ONE, 0), &of(2));
    bob.hear(content.clone());
    bob.now_ms += TIMEOUT_MS / 2;
    bob.channel.expire(at(bob.now_ms));
    // It is the only one of its id now.
    bob.hear(content);
    assert_eq!(bob.stat("incoming_contents"), 2);
    bob.wait_for_expiry();
    assert_eq!(bob.stat("incoming_contents"), 1);
    bob.hear(message("carol", "awaited", &segments(b"cause")[0]));
    assert_eq!(bob.released, [&b"cause"[..], b"waits"]);
}

/// One of its contents has the name of a rival, since another participant had used the id; and where it
/// was doubted, all that came of it is said again.
#[test]
fn what_is_spelled_like_a_send_leaves_nothing_of_that_when_it_is_whole_with_a_rival() {
    for is_doubted in [false, true] {
        let mut bob = Bob::new();
        let spelled = follows(message("alice", ONE, &segments(b"waits")[0]), "awaited");
        bob.hear(spelled);
        bob.hear(message("mallory", &id(ONE, 0), &segments(b"of mallory")[0]));
        let real = payload(1, 2 * SEGMENT_BYTES);
        let of_hash = |payload| data_segments(keccak256(&real), payload);
        let contents =
            [0, 1].map(|at| message("alice", &id(ONE, at), &of_hash(&real)[at as usize]));
        let [first, second] = contents;
        if is_doubted {
            let forged = &of_hash(&payload(2, 2 * SEGMENT_BYTES))[1];
            bob.hear(message("alice", &id(ONE, 2), forged));
            bob.hear(first);
            assert_eq!(bob.stat("given_up_sends"), 1);
            bob.hear(second);
        } else {
            bob.hear(second);
            bob.hear(first);
        }
        assert_eq!(bob.released, [b"of mallory".to_vec(), real.clone()]);
        let held = ["incoming_contents", "given_up_sends"].map(|name| bob.stat(name));
        assert_eq!(held, [1, 0], "{is_doubted}");
    }
}

#[test]
fn what_is_spelled_like_a_send_that_waits_and_says_the_same_is_not_waited_for() {
    let content = &segments(b"once")[0];
    let of_send = follows(message("alice", &id(ONE, 0), content), "awaited");
    let spelled = follows(message("alice", ONE, content), "awaited");
    for messages in [[of_send.clone(), spelled.clone()], [spelled, of_send]] {
        let mut bob = Bob::new();
        for message in messages {
            bob.hear(message);
        }
        assert_eq!(bob.stat("incoming_contents"), 1);
        bob.commit();
        bob.hear(message("carol", "awaited", &segments(b"cause")[0]));
        assert_eq!(bob.released, [&b"cause"[..], b"once"]);
    }
}

#[test]
fn a_rival_of_what_is_spelled_like_a_send_leaves_that_partial() {
    let mut bob = Bob::new();
    let spelled = |sender, text: &[u8]| message(sender, ONE, &segments(text)[0]);
    bob.hear(follows(spelled("mallory", b"waits"), "awaited"));
    let real = payload(1, 2 * SEGMENT_BYTES);
    for (at, content) in (0..).zip(data_segments(keccak256(&real), &real)) {
        bob.hear(message("alice", &id(ONE, at), &content));
        if at == 0 {
            bob.hear(spelled("alice", b"rival"));
            assert_eq!(bob.stat("incoming_contents"), 2);
        }
    }
    assert_eq!(bob.released, [b"rival".to_vec(), real]);
}

#[test]
fn a_message_that_is_spelled_like_a_send_is_one_beside_it() {
    for before in 0..=2 {
        let mut bob = Bob::new();
        let real = payload(1, 2 * SEGMENT_BYTES);
        let single = || message("alice", ONE, &segments(b"single")[0]);
        for (ordinal, content) in data_segments(keccak256(&real), &real).iter().enumerate() {
            if ordinal == before {
                bob.hear(single());
            }
            bob.hear(message("alice", &id(ONE, ordinal as u32), content));
        }
        if before == 2 {
            bob.hear(single());
        }
        let mut released = bob.released.clone();
        released.sort_by_key(Vec::len);
        assert_eq!(released, [b"single".to_vec(), real], "{before}");
        assert_eq!(bob.stat("incoming_contents"), 0);
    }
}

#[test]
fn a_message_whose_content_comes_again_as_anothers_is_called_anew() {
    for is_begun in [false, true] {
        let mut bob = Bob::new();
        let [first, second] = [1, 2].map(|seed| payload(seed, 2 * SEGMENT_BYTES));
        let [of_first, of_second] = [&first, &second].map(|of| data_segments(keccak256(of), of));
        let waits = message("mallory", "waits", &segments(b"waits")[0]);
        bob.hear(follows(waits, "another"));
        bob.hear(message("mallory", "another", &of_first[0]));
        bob.wait_for_expiry();
        if is_begun {
            bob.hear(message("mallory", "second", &of_second[1]));
        }
        bob.hear(message("mallory", "another", &of_second[0]));
        bob.hear(message("mallory", "again", &of_first[0]));
        bob.hear(message("mallory", "the rest", &of_first[1]));
        bob.hear(message("mallory", "second", &of_second[1]));
        let mut released = bob.released.clone();
        released.sort_by_key(|released| (released.len(), released[0]));
        assert_eq!(released.len(), 3, "{is_begun}");
        bob.restart().unwrap();
        assert_eq!(bob.stat("incoming_contents"), 0, "{is_begun}");
    }
}

#[test]
fn a_message_that_others_began_as_theirs_is_released_all_the_same() {
    for rule in [MessageIdRule::Send, MessageIdRule::ContentSha256] {
        for is_first_copied in [false, true] {
            let config = Config {
                message_id: rule,
                ..config()
            };
            let mut bob = Bob::of(config, settings(), limits());
            let real = payload(1, 2 * SEGMENT_BYTES);
            let contents = data_segments(keccak256(&real), &real);
            let copied = &contents[usize::from(!is_first_copied)];
            bob.hear(message("mallory", "copied", copied));
            bob.restart().unwrap();
            let cause = payload(2, 10);
            let cause_id = sha256_id(&segments(&cause)[0]);
            for content in &contents {
                let own = message("alice", &sha256_id(content), content);
                bob.hear(follows(own, &cause_id));
            }
            assert!(bob.released.is_empty(), "{rule:?} {is_first_copied}");
            bob.restart().unwrap();
            bob.hear(message("carol", &cause_id, &segments(&cause)[0]));
            assert_eq!(bob.released, [cause, real], "{rule:?} {is_first_copied}");
        }
    }
}

#[test]
fn a_send_that_is_behind_its_spelling_and_anothers_claim_is_released() {
    for with_cause in [false, true] {
        let mut bob = Bob::new();
        let (real, spelled) = (payload(1, 2 * SEGMENT_BYTES), payload(3, 2 * SEGMENT_BYTES));
        let [of_real, of_spelled] = [&real, &spelled].map(|of| data_segments(keccak256(of), of));
        bob.hear(message("mallory", &id(ONE, 0), &of_real[0]));
        let first = message("alice", ONE, &of_spelled[0]);
        bob.hear(if with_cause {
            follows(first, &id(OTHER, 0))
        } else {
            first
        });
        bob.hear(message("alice", &id(ONE, 0), &of_real[0]));
        bob.restart().unwrap();
        bob.hear(message("alice", &id(ONE, 1), &of_real[1]));
        bob.hear(message("alice", "another", &of_spelled[1]));
        if with_cause {
            bob.hear(message("carol", &id(OTHER, 0), &segments(b"cause")[0]));
        }
        let mut released = bob.released.clone();
        released.retain(|released| released.len() > 10);
        released.sort();
        let mut expected = [real, spelled];
        expected.sort();
        assert_eq!(released, expected, "{with_cause}");
        assert_eq!(bob.channel.waiting().0, 0);
    }
}

/// Whatever a participant calls itself, it takes nothing of another's that was set apart.
#[test]
fn a_sender_with_nul_has_no_part_of_what_is_set_apart() {
    let mut bob = Bob::new();
    let payloads = [1, 2, 3].map(|seed| payload(seed, 2 * SEGMENT_BYTES));
    let contents = payloads
        .each_ref()
        .map(|payload| data_segments(keccak256(payload), payload));
    let [real, spelled, odd] = &contents;
    bob.hear(message("alice", &id(ONE, 0), &real[0]));
    bob.hear(message("alice", ONE, &spelled[0]));
    for (ordinal, content) in odd.iter().enumerate() {
        bob.hear(message("alice\0", &id(ONE, ordinal as u32), content));
    }
    bob.restart().unwrap();
    bob.hear(message("alice", "another", &spelled[1]));
    bob.hear(message("alice", &id(ONE, 1), &real[1]));
    let mut released = bob.released.clone();
    released.sort();
    let mut expected = payloads.to_vec();
    expected.sort();
    assert_eq!(released, expected);
    assert_eq!(bob.stat("incoming_contents"), 0);
}

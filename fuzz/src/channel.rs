//! Whole channels under any sequence of operations: participants that send payloads in segments, a network
//! that loses, repeats, reorders and damages, forged segments, timeouts, deliveries and restarts. Nothing
//! panics, limits hold, every payload has its hash, what is stored is what is waited for and stands once,
//! and a restart reads all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shardwire_core::channel::{
    Arrival, Channel, ChannelConfig, Event, Handover, QueueLimits, RecordKey, Redelivery,
    RetrievalConfig, Segmentation, StoredRecord, Value, payload_key,
};
use shardwire_core::erasure::ErasureCode;
use shardwire_core::keccak::keccak256;
use shardwire_core::reassemble::{Lent, Limits};
use shardwire_core::sds::{self, Config, Kinds, MessageIdRule, Now, Octets};
use shardwire_core::segment::{Parameters, segment};
use shardwire_core::wire::sds::{HistoryEntry, Message, MessageView};
use shardwire_core::wire::segment::{Header, Slot, WireFormat};

use crate::draws::Draws;
use crate::parties::{NAMES, at, config};
use crate::spelled::Spellings;
use crate::{limits, settings};

/// Of a data segment: where segments are large they are stored by reference.
const SEGMENT_BYTES: usize = 64;
const LARGE_SEGMENT_BYTES: usize = 600;
/// Segments in bytes that may be held.
const SEGMENTS_HELD_MAX: usize = 125;
const PAYLOADS: &[&str] = &["channel.payload", "channel.parts"];
/// More than all that is sent.
const LARGE_LOG_MAX: usize = 10_000;
/// Every so often a large payload has this, and a number of its own.
const MARK: &[u8; 8] = b"\xf5a mark:";
const MARK_EVERY: usize = 100;
/// A restart is tried after so many commits.
const COMMITS_PER_TRIAL: u64 = 4;

const QUEUE: QueueLimits = QueueLimits {
    bytes_max: usize::MAX,
    is_limited: false,
};

/// Who takes too little is sent no less here.
const HANDOVER: Handover = Handover {
    redelivery: Redelivery::AtLeastOnce,
    messages_max: usize::MAX,
    bytes_max: usize::MAX,
};

const RETRIEVAL: RetrievalConfig = RetrievalConfig {
    retrieve_frequency_ms: 500,
    query_on_connect: true,
    query_on_connect_interval_ms: 20_000,
};

type Records = BTreeMap<(String, Vec<u8>), Octets>;

struct Party {
    name: &'static str,
    config: Config,
    segmentation: Segmentation,
    channel: Channel,
    records: Records,
    sends: u64,
    seed: u64,
    /// Messages that wait to be handed over, by key, as the last commit has them.
    stored: BTreeMap<Box<[u8]>, Vec<u8>>,
    commits: u64,
}

/// A participant of the room, whose randomness comes of a seed.
pub(crate) fn member(
    name: &str,
    config: Config,
    segmentation: Segmentation,
    now: Now,
    seed: u64,
) -> Channel {
    let rng = Box::new(Draws::from_seed(seed));
    let config = ChannelConfig {
        sds: config,
        segmentation,
        queue: QUEUE,
        handover: HANDOVER,
        retrieval: RETRIEVAL,
    };
    let channel = Channel::new("room", name, config, now, rng);
    channel.expect("a legal configuration")
}

impl Party {
    fn new(name: &'static str, config: Config, segmentation: Segmentation, seed: u64) -> Self {
        let channel = member(name, config.clone(), segmentation, at(0), seed);
        Party {
            name,
            config,
            segmentation,
            channel,
            records: Records::new(),
            sends: 0,
            seed,
            stored: BTreeMap::new(),
            commits: 0,
        }
    }

    /// One commit; what is stored of whole messages is what waits, for its causes or for its delivery.
    fn store(&mut self) {
        for record in self.channel.poll_persist() {
            let key = match record.key {
                RecordKey::Name(name) => name.as_bytes().to_vec(),
                RecordKey::Bytes(bytes) => bytes.into(),
            };
            let name = (record.kind.to_owned(), key);
            match record.value {
                Some(Value::Bytes(bytes)) => self.records.insert(name, bytes),
                Some(Value::Payload(payload)) => self.records.insert(name, payload.to_vec().into()),
                None => self.records.remove(&name),
            };
        }
        self.stored = released(&self.channel);
        let of_kinds = |kinds: &[&str]| {
            let names = self.records.keys();
            names.filter(|(kind, _)| kinds.contains(&&**kind)).count()
        };
        let (waiting, _) = self.channel.waiting();
        assert_eq!(
            of_kinds(PAYLOADS),
            waiting + self.stored.len(),
            "{} stores other messages than those that wait",
            self.name
        );
        if !self.channel.has_partial() {
            assert_eq!(
                of_kinds(&["channel.segment"]),
                0,
                "{} has leftovers",
                self.name
            );
        }
        self.check_needed();
        self.commits += 1;
    }

    /// The application takes all that waits for it.
    fn hand_over(&mut self) {
        while self.channel.begin_delivery().is_some() {
            // All that one commit would cover.
            let mut begun = 1;
            while self.channel.begin_delivery().is_some() {
                begun += 1;
            }
            (0..begun).for_each(|_| self.channel.finish_delivery());
        }
    }

    /// Every stored message and content is one that is needed, or named.
    fn check_needed(&self) {
        let named = |message_id: &str| {
            // As a record of references has it.
            let length = (message_id.len() as u32).to_le_bytes();
            let id = [&length[..], message_id.as_bytes()].concat();
            let mut names = self.records.iter().filter(|((kind, _), _)| {
                ["channel.segment", "channel.parts"].contains(&kind.as_str())
            });
            names.any(|(_, value)| contains(value, &id))
        };
        let sds = self.channel.sds();
        for (kind, key) in self.records.keys() {
            let message_id = String::from_utf8_lossy(key);
            let is_needed = match kind.as_str() {
                "sds.message" => {
                    let is_held = sds.message(&message_id).is_some();
                    is_held || sds.needs_message(&message_id) || named(&message_id)
                }
                "sds.content" | "channel.frame" => sds.needs_message(&message_id),
                _ => true,
            };
            assert!(
                is_needed,
                "{} keeps {kind} {message_id:?} for nobody",
                self.name
            );
        }
    }

    /// No bytes of a large payload stand twice in what one sender sent under one id; where all are honest,
    /// nowhere.
    fn check_once(&self, all_honest: bool) {
        let anywhere = all_honest && !self.by_content();
        let mut seen: HashMap<(String, u64), &str> = HashMap::new();
        for ((kind, key), value) in &self.records {
            let origin = match kind.as_str() {
                _ if anywhere => String::new(),
                "sds.message" => self.origin(key, value),
                "sds.content" => {
                    let beside = |kind: &str| self.records.get(&(kind.to_owned(), key.clone()));
                    match (beside("channel.frame"), beside("sds.message")) {
                        // Of what was forgotten and came again nothing tells that it is the same.
                        (Some(_), Some(_)) if !all_honest => continue,
                        (Some(frame), _) => self.origin(key, &unframed(frame, value)),
                        (None, _) => format!("{} {}", self.name, String::from_utf8_lossy(key)),
                    }
                }
                _ => continue,
            };
            // A damaged message may hold a content twice by itself.
            for mark in marks(value).collect::<BTreeSet<_>>() {
                let former = seen.insert((origin.clone(), mark), kind);
                assert!(
                    former.is_none(),
                    "{} stores bytes twice: in {} and in {kind} {:?}",
                    self.name,
                    former.unwrap_or_default(),
                    String::from_utf8_lossy(key)
                );
            }
        }
    }

    fn is_own(&self, message: &[u8]) -> bool {
        let message = MessageView::decode(message, self.config.wire_format);
        message.is_ok_and(|message| *message.sender_id == *self.name.as_bytes())
    }

    /// Who sent a stored message, and its id.
    fn origin(&self, key: &[u8], message: &[u8]) -> String {
        let message = MessageView::decode(message, self.config.wire_format);
        let sender_id = message.expect("it came or left").sender_id;
        let (sender_id, key) = (
            String::from_utf8_lossy(sender_id),
            String::from_utf8_lossy(key),
        );
        format!("{sender_id} {key}")
    }

    /// Whether equal contents have one id.
    fn by_content(&self) -> bool {
        self.config.message_id == MessageIdRule::ContentSha256
    }

    /// What a restart would go on from is what is held: every message as it came or left.
    fn check_restorable(&self, now: Now) {
        let channel = self.restored(now);
        let (held, restored) = (self.channel.sds(), channel.sds());
        for send_id in held.pending_sends() {
            let contents = restored.contents_of(send_id);
            assert!(
                held.contents_of(send_id).eq(contents),
                "{} loses contents of {send_id}",
                self.name
            );
        }
        for (kind, key) in self.records.keys() {
            let message_id = String::from_utf8_lossy(key);
            if kind != "sds.message" && kind != "channel.frame" {
                continue;
            }
            assert_eq!(
                held.own_message(&message_id),
                restored.own_message(&message_id),
                "{} {message_id}",
                self.name
            );
            // What is not held is stored since something names it. One of ours is stored in the place of
            // one that had used its id.
            let messages = held.message(&message_id).zip(restored.message(&message_id));
            if let Some((held, restored)) = messages
                && !self.is_own(&restored)
            {
                assert_eq!(held, restored, "{} {message_id}", self.name);
            }
        }
    }

    fn restored(&self, now: Now) -> Channel {
        let records = self.records.iter();
        let records = records.map(|((kind, key), value)| -> StoredRecord<'_> {
            (kind.as_str(), &key[..], value.clone())
        });
        let channel = member(
            self.name,
            self.config.clone(),
            self.segmentation,
            now,
            self.seed,
        );
        let restored = channel.restore(records, now);
        restored.expect("what was stored is whole")
    }

    /// Goes on from what the last commit stored.
    fn restart(&mut self, now: Now) {
        self.seed += 1;
        self.channel = self.restored(now);
        let released = released(&self.channel);
        assert_eq!(
            // The next life may put together what this one could not.
            self.stored
                .iter()
                .find(|(key, payload)| released.get(*key) != Some(payload)),
            None,
            "{} lost what it released",
            self.name
        );
    }
}

/// Messages that wait to be handed over, by key.
fn released(channel: &Channel) -> BTreeMap<Box<[u8]>, Vec<u8>> {
    let mut released = BTreeMap::new();
    for delivery in channel.deliveries().waiting() {
        let payload = delivery.payload.to_vec();
        assert_eq!(keccak256(&payload), delivery.payload_hash);
        // Ephemeral messages are stored by nobody.
        let Some(send_id) = &delivery.send_id else {
            continue;
        };
        let key = payload_key(&delivery.sender_id, send_id);
        let former = released.insert(key, payload);
        assert!(former.is_none(), "a message is released twice");
    }
    released
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The message that stands in a frame and a content.
fn unframed(frame: &[u8], content: &[u8]) -> Vec<u8> {
    let (at, around) = frame.split_first_chunk().expect("it begins with a place");
    let (before, after) = around.split_at(u32::from_be_bytes(*at) as usize);
    [before, content, after].concat()
}

/// The numbers of the marks in some bytes.
fn marks(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let starts = bytes
        .windows(MARK.len() + 8)
        .filter(|window| window.starts_with(MARK));
    starts.map(|window| {
        let number = window[MARK.len()..].first_chunk();
        u64::from_be_bytes(*number.expect("eight bytes follow"))
    })
}

/// Participants of one channel and what is between them.
pub struct Chat {
    draws: Draws,
    now_ms: i64,
    parties: Vec<Party>,
    /// Everything that was ever on the wire, the newest last.
    wire: Vec<Octets>,
    segment_bytes: usize,
    /// Whether nothing is damaged or forged.
    all_honest: bool,
    /// Large ones that were sent, and how many marks they have.
    payloads: Vec<Vec<u8>>,
    marks: u64,
    /// What forged messages are spelled like, where they are.
    spellings: Option<Spellings>,
    /// Whether stores are asked, which have what was on the wire.
    asks_stores: bool,
}

impl Chat {
    /// The chat of a seed, in which stores are asked for what is missing and for what passed by.
    pub fn asking(seed: u64) -> Self {
        Chat {
            asks_stores: true,
            ..Chat::from_seed(seed)
        }
    }

    /// The chat of a seed, with forged messages that are spelled like others.
    pub fn spelled(seed: u64) -> Self {
        Chat {
            spellings: Some(Spellings::default()),
            ..Chat::from_seed(seed)
        }
    }

    /// The chat of a seed.
    pub fn from_seed(seed: u64) -> Self {
        Chat::new(Draws::from_seed(seed))
    }

    /// The chat that bytes describe.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Chat {
            asks_stores: true,
            ..Chat::new(Draws::from_bytes(bytes))
        }
    }

    /// Whether bytes are left to describe what happens next.
    pub fn goes_on(&self) -> bool {
        self.draws.goes_on()
    }

    fn new(mut draws: Draws) -> Self {
        let mut config = config(&mut draws);
        let (wire_format, segment_bytes, size) = match draws.below(5) {
            0 => (WireFormat::Draft, SEGMENT_BYTES, SEGMENT_BYTES),
            1 => (WireFormat::Lip243, SEGMENT_BYTES, 128 + SEGMENT_BYTES),
            2 => (WireFormat::Raw, SEGMENT_BYTES, SEGMENT_BYTES),
            _ => (WireFormat::Raw, LARGE_SEGMENT_BYTES, LARGE_SEGMENT_BYTES),
        };
        let is_large = segment_bytes == LARGE_SEGMENT_BYTES;
        let all_honest = is_large && draws.chance(50);
        if all_honest {
            // What is forgotten and comes again may be another message: both are stored.
            config.log_messages_max = LARGE_LOG_MAX;
        }
        let mut settings = settings(wire_format, ErasureCode::Leopard, size);
        // What parity brought back and what came of it late are bytes that stand twice.
        settings.enable_reed_solomon &= !is_large;
        let segmentation = Segmentation {
            parameters: Parameters::new(settings).expect("the settings are valid"),
            limits: Limits {
                buffered_bytes_max: (SEGMENTS_HELD_MAX * segment_bytes) as u64,
                timeout_ms: 20_000,
                ..limits()
            },
        };
        let parties = NAMES
            .iter()
            .map(|name| Party::new(name, config.clone(), segmentation, draws.next()));
        let parties = parties.collect();
        Chat {
            draws,
            now_ms: 0,
            parties,
            wire: Vec::new(),
            segment_bytes,
            all_honest,
            payloads: Vec::new(),
            marks: 0,
            spellings: None,
            asks_stores: false,
        }
    }

    /// One of them does something, or something happens to it.
    pub fn step(&mut self) {
        let which = self.draws.below(self.parties.len());
        match self.draws.below(100) {
            0..12 => self.send(which),
            12..45 => self.deliver(which),
            45..55 => self.deliver_most(which),
            55..63 if self.all_honest => self.deliver_most(which),
            55..63 => self.forge(which),
            63..75 => {
                self.now_ms += [10, 500, 3_000, 25_000][self.draws.below(4)];
                let now = at(self.now_ms);
                for party in &mut self.parties {
                    party.channel.sds_mut().handle_timeout(now);
                    if party
                        .channel
                        .next_expiry_ms()
                        .is_some_and(|due_ms| due_ms <= self.now_ms)
                    {
                        party.channel.expire(now);
                    }
                }
            }
            75..80 => self.restart(which),
            80..84 => self.take_back(which),
            84..90 if self.asks_stores => self.ask_store(which),
            _ => self.settle(which),
        }
        self.take_events(which);
        let (_, stats) = self.parties[which].channel.counts();
        assert!(stats.bytes_held <= (SEGMENTS_HELD_MAX * self.segment_bytes) as u64);
    }

    /// Everybody goes on from what is stored, and all that can be given up is: nothing is left behind.
    pub fn end(&mut self) {
        for which in 0..self.parties.len() {
            self.take_events(which);
            self.store(which);
            self.restart(which);
            self.take_events(which);
            self.now_ms += 1_000_000;
            let now = at(self.now_ms);
            self.parties[which].channel.expire(now);
            self.take_events(which);
            self.parties[which].hand_over();
            self.store(which);
            assert!(!self.parties[which].channel.has_partial());
        }
    }

    fn store(&mut self, which: usize) {
        let party = &mut self.parties[which];
        party.store();
        // What is sent again under other names stands twice.
        if self.segment_bytes == LARGE_SEGMENT_BYTES && self.spellings.is_none() {
            party.check_once(self.all_honest);
        }
        if party.commits.is_multiple_of(COMMITS_PER_TRIAL) {
            party.check_restorable(at(self.now_ms));
        }
    }

    fn payload(&mut self, which: usize) -> Vec<u8> {
        if self.segment_bytes == SEGMENT_BYTES {
            let length = self.draws.below(20) * self.draws.below(64);
            return (0..length).map(|_| self.draws.next() as u8).collect();
        }
        // Equal contents have ids of their own but where those are made of contents.
        if self.parties[which].by_content() && !self.payloads.is_empty() && self.draws.chance(50) {
            let newest = self.payloads.len().min(4);
            return self.payloads[self.payloads.len() - 1 - self.draws.below(newest)].clone();
        }
        // The last segment is as long as the others: below a limit bytes do stand twice.
        let mut payload = vec![0; (1 + self.draws.below(4)) * LARGE_SEGMENT_BYTES];
        for place in payload.chunks_exact_mut(MARK_EVERY) {
            self.marks += 1;
            place[..MARK.len()].copy_from_slice(MARK);
            place[MARK.len()..MARK.len() + 8].copy_from_slice(&self.marks.to_be_bytes());
        }
        self.payloads.push(payload.clone());
        payload
    }

    /// Somebody takes a send of theirs back, at any time.
    fn take_back(&mut self, which: usize) {
        let sends: Vec<_> = self.parties[which].channel.sds().sends().cloned().collect();
        if sends.is_empty() {
            return;
        }
        let newest = sends.len().min(3);
        let send_id = &sends[sends.len() - 1 - self.draws.below(newest)];
        let machine = self.parties[which].channel.sds_mut();
        if self.draws.chance(50) {
            machine.cancel(send_id);
        } else {
            machine.withdraw(send_id);
        }
    }

    fn send(&mut self, which: usize) {
        let payload = self.payload(which);
        let party = &mut self.parties[which];
        party.sends += 1;
        let send_id = format!("{:032x}", 1_000 + party.sends * 3 + which as u64);
        let parameters = party.segmentation.parameters;
        let Ok(segments) = segment(&payload, &parameters) else {
            // `draft` has no form for an empty payload.
            return;
        };
        let count = segments.count();
        let has_parity = parameters.settings().enable_reed_solomon;
        let needed = match count {
            2.. if has_parity => count - count / 3,
            _ => count,
        };
        let contents = segments.to_vecs().into_iter().map(Octets::from).collect();
        if party.channel.sds().has_room() {
            // Refused where a stranger was first with one of its ids.
            let _ = party
                .channel
                .sds_mut()
                .send(&send_id, contents, needed as u32);
        }
        if self.draws.chance(10) {
            let _ = self.parties[which].channel.sds_mut().withdraw(&send_id);
        }
        if self.draws.chance(10) {
            let _ = self.parties[which].channel.sds_mut().cancel(&send_id);
        }
    }

    /// Something that was on the wire comes, perhaps again, perhaps damaged.
    fn deliver(&mut self, which: usize) {
        if self.wire.is_empty() {
            return;
        }
        let newest = self.wire.len().min(if self.draws.chance(80) {
            10
        } else {
            usize::MAX
        });
        let place = self.wire.len() - 1 - self.draws.below(newest);
        let mut bytes = self.wire[place].to_vec();
        if self.draws.chance(5) && !self.all_honest {
            let place = self.draws.below(bytes.len());
            bytes[place] ^= 1 << self.draws.below(8);
        }
        self.hand(which, bytes);
    }

    /// The newest messages come, but for some that are lost.
    fn deliver_most(&mut self, which: usize) {
        let first = self.wire.len().saturating_sub(30);
        for place in first..self.wire.len() {
            if self.draws.chance(85) {
                let bytes = self.wire[place].to_vec();
                self.hand(which, bytes);
            }
        }
    }

    fn hand(&mut self, which: usize, bytes: Vec<u8>) {
        let data = if self.draws.chance(50) {
            let lent: Lent = std::sync::Arc::new(bytes);
            Octets::Lent(lent)
        } else {
            Octets::from(bytes)
        };
        let sender = NAMES[self.draws.below(NAMES.len())];
        let arrival = Arrival {
            data: &data,
            retrieval_hint: Some(&[7; 32]),
            timestamp_ns: 0,
            authenticated_sender: self.draws.chance(30).then_some(sender),
            from_store: self.draws.chance(20),
            observed: self.draws.chance(50),
        };
        self.parties[which]
            .channel
            .handle_message(&arrival, at(self.now_ms));
    }

    /// A well-formed segment of a hash, counts and a place that somebody may or may not have used, under any
    /// id of anybody.
    fn forge(&mut self, which: usize) {
        if self.spellings.is_some() {
            return self.forge_spelled(which);
        }
        let payload = vec![self.draws.below(3) as u8; self.draws.below(3 * SEGMENT_BYTES)];
        let data_count = 1 + self.draws.below(4) as u16;
        let is_parity = self.draws.chance(30);
        let parity_count = u16::from(is_parity) + self.draws.below(2) as u16;
        let wire_format = self.parties[which]
            .segmentation
            .parameters
            .settings()
            .wire_format;
        let header = Header {
            entire_message_hash: if self.draws.chance(50) {
                keccak256(&payload)
            } else {
                [self.draws.below(2) as u8; 32]
            },
            slot: if is_parity {
                Slot::Parity(0)
            } else {
                Slot::Data(self.draws.below(usize::from(data_count)) as u8)
            },
            data_segment_count: Some(data_count),
            parity_segment_count: Some(parity_count),
            payload_length: (wire_format == WireFormat::Lip243).then_some(payload.len() as u64),
        };
        let content = if self.draws.chance(20) {
            payload.clone()
        } else {
            header.encode(wire_format, &payload)
        };
        let number = 1_000 + self.draws.below(12) as u64 * 3 + self.draws.below(3) as u64;
        let message_id = match self.draws.below(4) {
            0 => format!("made-up-{}", self.draws.below(20)),
            _ => format!("{number:032x}.{}", self.draws.below(5)),
        };
        let history = self.draws.chance(30).then(|| HistoryEntry {
            message_id: format!("{:032x}.0", number + 3),
            retrieval_hint: None,
            sender_id: None,
        });
        // It may say that it is parity of somebody's send, or ask anybody for such.
        let made = self.draws.below(3) as u8;
        let repaired = self.draws.chance(40).then(|| HistoryEntry {
            message_id: format!("{number:032x}.{}", 9_999 - self.draws.below(3)),
            retrieval_hint: self.draws.chance(50).then(|| vec![b'*', made]),
            sender_id: Some(NAMES[self.draws.below(NAMES.len())].to_owned()),
        });
        let message = Message {
            sender_id: [NAMES[0], NAMES[1], NAMES[2], "mallory"][self.draws.below(4)].to_owned(),
            message_id,
            channel_id: "room".to_owned(),
            lamport_timestamp: self
                .draws
                .chance(70)
                .then(|| at(self.now_ms).epoch_ms as u64 + self.draws.next() % 1_000),
            causal_history: history.into_iter().collect(),
            bloom_filter: None,
            repair_request: repaired.into_iter().collect(),
            content: Some(content),
        };
        if let Ok(bytes) = message.encode(self.parties[which].config.wire_format) {
            self.hand(which, bytes);
        }
    }

    /// Messages that are spelled like others, or what was on the wire under another name.
    fn forge_spelled(&mut self, which: usize) {
        let parameters = self.parties[which].segmentation.parameters;
        for _ in 0..1 + self.draws.below(4) {
            let Some(spellings) = &self.spellings else {
                return;
            };
            let (draws, config) = (&mut self.draws, &self.parties[which].config);
            let bytes = if self.wire.is_empty() || draws.chance(70) {
                // Whole messages of few payloads, so that all segments of one may come.
                let length = (1 + draws.below(2 * self.segment_bytes)) / 60 * 60;
                let payload = vec![draws.below(3) as u8; length];
                let segments = segment(&payload, &parameters).map(|segments| segments.to_vecs());
                let content = match segments {
                    Ok(mut segments) if draws.chance(70) => {
                        segments.swap_remove(draws.below(segments.len()))
                    }
                    _ => spellings.content(draws),
                };
                let lamport = at(self.now_ms).epoch_ms as u64 + draws.next() % 1_000;
                let content = draws.chance(85).then_some(content);
                spellings.message(content, lamport, config, draws)
            } else {
                let place = draws.below(self.wire.len());
                spellings.signed_anew(&self.wire[place], config, draws)
            };
            if let Some(bytes) = bytes {
                // It may come again, to others too.
                self.wire.push(bytes.clone().into());
                self.hand(which, bytes);
                self.take_events(which);
            }
        }
    }

    fn restart(&mut self, which: usize) {
        if self.draws.chance(50) {
            self.take_events(which);
            self.store(which);
        }
        self.parties[which].restart(at(self.now_ms));
    }

    /// A connection comes or goes, and a store is asked, or ends what it was asked before.
    fn ask_store(&mut self, which: usize) {
        let now = at(self.now_ms);
        let (wire, draws) = (&self.wire, &mut self.draws);
        let channel = &mut self.parties[which].channel;
        match draws.below(8) {
            0 => channel.handle_started(now),
            1 => channel.handle_connection(draws.chance(70), draws.chance(50), now),
            2 => channel.handle_missed(draws.next() as i64, now),
            3 => channel.handle_no_answer(now),
            4 => channel.withdraw_question(),
            5 => channel.handle_answered(draws.chance(70), now),
            _ => {
                if channel.poll_question(now).is_none() {
                    let due_ms = channel.next_question_ms(now);
                    assert!(due_ms.is_none_or(|due_ms| due_ms > self.now_ms));
                }
                for _ in 0..draws.below(20).min(wire.len()) {
                    let data = &wire[draws.below(wire.len())];
                    let hash = [draws.below(8) as u8; 32];
                    channel.handle_stored_message(&hash, draws.chance(80).then_some(&**data));
                    let until_ns = draws
                        .chance(80)
                        .then(|| self.now_ms * 1_000_000 - draws.below(1 << 30) as i64);
                    let (news, all_kept) = (draws.chance(50), draws.chance(80));
                    channel.handle_page(news, all_kept, until_ns, now);
                }
            }
        }
    }

    fn take_events(&mut self, which: usize) {
        let party = &mut self.parties[which];
        for event in party.channel.poll_events(at(self.now_ms)) {
            match event {
                Event::Sds(event) => assert!(!matches!(
                    event,
                    sds::Event::ContentReceived { .. } | sds::Event::SendReleased { .. }
                )),
                // Here no node says anything.
                Event::TransmitFailed { .. }
                | Event::NodeFailing { .. }
                | Event::NodeRecovered { .. }
                | Event::NodeHolds { .. } => unreachable!(),
                Event::MessageGivenUp(_) | Event::Segment(_) | Event::Fault(_) => {}
            }
        }
    }

    /// What is due leaves, a commit, and now and then the application takes what waits for it.
    fn settle(&mut self, which: usize) {
        let now = at(self.now_ms);
        let party = &mut self.parties[which];
        party.channel.sds_mut().handle_timeout(now);
        for _ in 0..100 {
            let Some(transmit) = party.channel.sds_mut().poll_transmit(now, Kinds::ALL) else {
                break;
            };
            self.wire.push(transmit.payload.clone());
            if let Some(spellings) = &mut self.spellings {
                spellings.see(&transmit.payload, &party.config);
            }
            let id = transmit.transmit_id;
            party
                .channel
                .sds_mut()
                .handle_transmitted(id, Some(&[3; 32]), now);
        }
        self.take_events(which);
        let party = &mut self.parties[which];
        if self.draws.chance(50) {
            party.hand_over();
        }
        self.store(which);
    }
}

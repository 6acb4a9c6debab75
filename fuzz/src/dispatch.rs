//! A channel and its node under any sequence of operations: messages that are sent, cancelled and refused,
//! ephemeral ones, limits that open and close, a node that takes, fails, refuses, says nothing or answers late,
//! commits that fail, stops. Nothing panics; no more is handed out than there are places; nothing of a message
//! leaves before its first segment; each ephemeral message ends with one event; and where the node is good in the
//! end, each message is sent or is said to have failed, woken by nothing but the moments that the channel names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shardwire_core::channel::{
    Allowance, Channel, ChunkProgress, DISPATCHES_MAX, Event, Failure, Segmentation, SendEvent,
    SendEventKind, Submission,
};
use shardwire_core::erasure::ErasureCode;
use shardwire_core::sds::{Config, Kinds, MessageIdRule, Octets, Transmit, TransmitKind};
use shardwire_core::segment::{Parameters, segment};
use shardwire_core::wire::sds::WireFormat as SdsWireFormat;
use shardwire_core::wire::segment::WireFormat;

use crate::channel::member;
use crate::draws::Draws;
use crate::parties::{at, config};
use crate::{limits, settings};

const SEGMENT_BYTES: usize = 64;
const ERRORS: &[&str] = &["down", "no proof", ""];
/// More wakes than any life needs to end.
const WAKES_MAX: usize = 3_000;

/// A participant whom nobody hears, and what it was told.
pub struct Sender {
    draws: Draws,
    channel: Channel,
    segmentation: Segmentation,
    now_ms: i64,
    numbers: u64,
    allowances: Vec<Allowance>,
    is_active: bool,
    /// What was handed out: a node may answer for it more than once, and late.
    handed: BTreeSet<u64>,
    /// What waits to be handed to the node, and sends whose first segment found no place.
    queue: VecDeque<Transmit>,
    unplaced: BTreeSet<String>,
    /// Requests that are not cancelled, by send.
    requests: BTreeMap<String, String>,
    /// Sends whose first segment came back, since it had no place.
    late: BTreeSet<String>,
    /// Requests that were said to be sent, and that were said to have failed.
    sent: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// Ephemeral messages by request: how often an end was told.
    ephemerals: BTreeMap<String, usize>,
}

impl Sender {
    /// Drawn from a seed.
    pub fn from_seed(seed: u64) -> Self {
        Sender::new(Draws::from_seed(seed))
    }

    /// Drawn from bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Sender::new(Draws::from_bytes(bytes))
    }

    fn new(mut draws: Draws) -> Self {
        let settings = settings(WireFormat::Raw, ErasureCode::Leopard, SEGMENT_BYTES);
        let segmentation = Segmentation {
            parameters: Parameters::new(settings).expect("the settings are valid"),
            limits: limits(),
        };
        let config = Config {
            max_retransmissions: draws.below(4) as u32,
            acknowledgement_timeout_ms: [500, 5_000][draws.below(2)],
            outgoing_buffer_messages_max: [4, 100][draws.below(2)],
            message_id: MessageIdRule::Send,
            wire_format: SdsWireFormat::Spec,
            ..config(&mut draws)
        };
        let channel = member("alice", config, segmentation, at(0), draws.next());
        channel.own().listened().set(SendEventKind::ALL);
        Sender {
            draws,
            channel,
            segmentation,
            now_ms: 0,
            numbers: 0,
            allowances: Vec::new(),
            is_active: true,
            handed: BTreeSet::new(),
            queue: VecDeque::new(),
            unplaced: BTreeSet::new(),
            requests: BTreeMap::new(),
            late: BTreeSet::new(),
            sent: BTreeSet::new(),
            failed: BTreeSet::new(),
            ephemerals: BTreeMap::new(),
        }
    }

    /// Whether bytes are left.
    pub fn goes_on(&self) -> bool {
        self.draws.goes_on()
    }

    /// One operation, and a cycle of its owner.
    pub fn step(&mut self) {
        match self.draws.below(100) {
            0..20 => self.submit(),
            20..30 => self.submit_ephemeral(),
            30..35 => self.cancel(),
            35..70 => self.answer(),
            70..76 => self.limit(),
            76..80 => {
                let online = self.draws.chance(60);
                self.channel
                    .handle_connection(online, online, at(self.now_ms));
            }
            80..83 => self.stop(),
            _ => self.now_ms += [1, 400, 5_000, 61_000][self.draws.below(4)],
        }
        self.cycle();
    }

    // --- what happens ---------------------------------------------------------------------------

    fn new_id(&mut self) -> String {
        self.numbers += 1;
        format!("{:032x}", self.numbers)
    }

    fn submit(&mut self) {
        if !self.channel.sds().has_room() {
            return;
        }
        let send_id = self.new_id();
        let length = 1 + self.draws.below(6 * SEGMENT_BYTES);
        let payload: Vec<u8> = (0..length)
            .map(|at| at as u8 ^ self.numbers as u8)
            .collect();
        let segments = segment(&payload, &self.segmentation.parameters).expect("it fits");
        let contents: Vec<Octets> = segments.to_vecs().into_iter().map(Octets::from).collect();
        let data_count = (length.div_ceil(SEGMENT_BYTES)).min(contents.len());
        let submission = Submission {
            send_id: send_id.as_str().into(),
            request_id: send_id.as_str().into(),
            message_id: "m".into(),
            contents,
            data_count: data_count as u32,
            reserve: 0,
        };
        let taken = self.channel.submit(submission);
        assert!(taken[0].1.is_ok(), "it is new");
        self.requests.insert(send_id.clone(), send_id);
    }

    fn submit_ephemeral(&mut self) {
        let send_id = self.new_id();
        let content = Octets::from(vec![1; 1 + self.draws.below(SEGMENT_BYTES)]);
        self.ephemerals.insert(send_id.clone(), 0);
        if self.draws.chance(10) {
            self.channel.refuse_ephemeral(&send_id, "m", "too large");
            return;
        }
        let allowances = self.allowances.clone();
        self.channel
            .submit_ephemeral(&send_id, (&send_id, "m"), content, &allowances);
    }

    fn cancel(&mut self) {
        let place = self.draws.below(self.requests.len());
        let Some(request_id) = self.requests.keys().nth(place).cloned() else {
            return;
        };
        if self.draws.chance(50) {
            let cancelled = self.channel.cancel(&request_id);
            if cancelled.is_some_and(|(stopped, _)| stopped) {
                self.requests.remove(&request_id);
            }
        } else {
            let error = "too large";
            let now = at(self.now_ms);
            let ordinal = self.draws.below(4) as u32;
            self.channel
                .fail_oversized(&request_id, ordinal, error, now);
        }
    }

    /// The node says something of a message that it has, or had.
    fn answer(&mut self) {
        let place = self.draws.below(self.handed.len());
        // Mostly of the latest.
        let handed = self.handed.iter().rev();
        let Some(id) = handed.copied().nth(place / (1 + self.draws.below(4))) else {
            return;
        };
        let now = at(self.now_ms);
        if self.draws.chance(50) {
            self.channel.handle_propagated(id, &[3; 32], now);
            self.forget_queued(id);
        } else if self.draws.chance(20) {
            self.channel.handle_late(id, now);
        } else {
            let failure = Failure {
                error: ERRORS[self.draws.below(ERRORS.len())],
                permanent: self.draws.chance(25),
                unanswered: self.draws.chance(25),
                retry_after_ms: self
                    .draws
                    .chance(20)
                    .then(|| [0, 1_000, 30_000, 200_000][self.draws.below(4)]),
            };
            self.channel.announce_failure();
            assert!(!self.channel.may_try(self.now_ms));
            self.channel.handle_failed(id, failure, now);
            self.forget_queued(id);
        }
        if self.draws.chance(90) {
            self.handed.remove(&id);
        }
    }

    /// What was late and is answered all the same leaves no more.
    fn forget_queued(&mut self, id: u64) {
        self.queue.retain(|transmit| transmit.transmit_id != id);
    }

    fn limit(&mut self) {
        let count = self.draws.below(3);
        self.allowances = (0..count).map(|_| self.new_allowance()).collect();
    }

    fn new_allowance(&mut self) -> Allowance {
        let left = self.draws.below(6) as i64;
        let reserve = self.draws.below(3) as i64;
        let messages = Kinds::NONE
            .with(TransmitKind::Further)
            .with(TransmitKind::Retransmission);
        Allowance {
            free: [Kinds::NONE, messages][self.draws.below(2)],
            left,
            open_left: (left - reserve).max(0),
            sync_left: left,
            ephemeral_left: self.draws.below(6) as i64,
            repairs: self.draws.chance(50),
        }
    }

    fn stop(&mut self) {
        self.is_active = !self.is_active;
        if !self.is_active {
            self.channel.handle_stopped(at(self.now_ms));
            self.queue.clear();
            self.unplaced.clear();
            self.late.clear();
            assert_eq!(self.channel.dispatches_in_flight(), 0);
        }
    }

    // --- a cycle --------------------------------------------------------------------------------

    fn cycle(&mut self) {
        let now = at(self.now_ms);
        self.channel.handle_time(self.is_active, now);
        if self.is_active {
            self.poll();
        }
        self.take_events();
        self.channel.poll_persist();
        assert!(self.channel.unplaced() <= self.channel.dispatches_in_flight());
        assert!(self.channel.counted_in_flight() <= DISPATCHES_MAX);
        assert!(self.ephemerals.values().all(|ends| *ends <= 1));
    }

    fn poll(&mut self) {
        let now = at(self.now_ms);
        let free = |kind| self.allowances.iter().all(|limit| limit.free.has(kind));
        let before = self.channel.unplaced() as i64;
        let (transmits, _) = self.channel.poll_transmits(&self.allowances, now);
        if !transmits.is_empty() {
            assert!(self.channel.node_state(now).online);
            assert_eq!(self.channel.node_state(now).held_ms, 0);
        }
        for transmit in &transmits {
            let send_id = transmit.send_id.as_deref().unwrap_or_default();
            match transmit.kind {
                TransmitKind::First => drop(self.late.remove(send_id)),
                TransmitKind::Further => assert!(!self.late.contains(send_id), "before its first"),
                _ => {}
            }
        }
        let counted = transmits.iter().filter(|transmit| !free(transmit.kind));
        let unplaced = before + counted.count() as i64;
        assert_eq!(self.channel.unplaced() as i64, unplaced);
        for limit in &self.allowances {
            let is_counted = |transmit: &&Transmit| !limit.free.has(transmit.kind);
            let counted = transmits.iter().filter(is_counted).count() as i64;
            let is_kept = counted == 0 || before + counted <= limit.left;
            assert!(is_kept, "more than there are places");
        }
        let fails = self.draws.chance(10);
        if fails {
            let ids: Vec<u64> = transmits
                .iter()
                .map(|transmit| transmit.transmit_id)
                .collect();
            self.channel.handle_commit_failed(&ids, "disk full", now);
            assert!(ids.iter().all(|id| !self.channel.leave(*id, self.now_ms)));
            return;
        }
        self.queue.extend(transmits);
        let count = self.draws.below(2 * self.queue.len() + 1);
        for transmit in self
            .queue
            .drain(..count.min(self.queue.len()))
            .collect::<Vec<_>>()
        {
            self.hand_over(transmit);
        }
    }

    /// In turn; where somebody else took a place, nothing of that send goes before its first.
    fn hand_over(&mut self, transmit: Transmit) {
        let now = at(self.now_ms);
        let send_id = transmit.send_id.as_deref().unwrap_or_default();
        let is_late = self.draws.chance(10) && !self.allowances.is_empty();
        if transmit.kind == TransmitKind::First {
            if is_late {
                self.unplaced.insert(send_id.to_owned());
            } else {
                self.unplaced.remove(send_id);
            }
        }
        let id = transmit.transmit_id;
        // One that was taken back meanwhile has been handed out anew, or will be.
        let is_awaited = self.channel.is_handed_out(id);
        if is_late || self.unplaced.contains(send_id) || !self.channel.leave(id, self.now_ms) {
            if transmit.kind == TransmitKind::First && is_awaited {
                self.late.insert(send_id.to_owned());
            }
            self.channel.handle_late(id, now);
            return;
        }
        self.handed.insert(id);
    }

    fn take_events(&mut self) {
        for event in self.channel.poll_events(at(self.now_ms)) {
            if let Event::NodeHolds { hold_ms, .. } = event {
                assert!(hold_ms > 0);
            }
        }
        for event in self.channel.own_mut().poll_events() {
            match event {
                SendEvent::EphemeralDropped { request_id, .. }
                | SendEvent::ChunkSent(ChunkProgress { request_id, .. })
                | SendEvent::ChunkError {
                    progress: ChunkProgress { request_id, .. },
                    ..
                } => self.end_ephemeral(&request_id),
                SendEvent::MessageSent(ids) => {
                    assert!(
                        self.sent.insert(ids.request_id.to_string()),
                        "it was told twice"
                    );
                }
                SendEvent::MessageSendError { ids, .. } => {
                    assert!(
                        self.failed.insert(ids.request_id.to_string()),
                        "it was told twice"
                    );
                }
                SendEvent::MessageDelivered { .. } => panic!("nobody hears it"),
                SendEvent::ChunkSending(_)
                | SendEvent::ChunkPossiblyAcknowledged(_)
                | SendEvent::ChunkAcknowledged { .. } => {}
            }
        }
    }

    fn end_ephemeral(&mut self, request_id: &str) {
        if let Some(ends) = self.ephemerals.get_mut(request_id) {
            *ends += 1;
        }
    }

    // --- the end --------------------------------------------------------------------------------

    /// From now on the node is good, and nothing comes but the moments that the channel names.
    ///
    /// # Panics
    ///
    /// Where a message is neither sent nor said to have failed, or the channel asks for no moment, or for too many.
    pub fn end(&mut self) {
        self.is_active = true;
        self.allowances.clear();
        self.channel.handle_connection(true, true, at(self.now_ms));
        for transmit in std::mem::take(&mut self.queue) {
            self.hand_over(transmit);
        }
        for _ in 0..WAKES_MAX {
            let now = at(self.now_ms);
            self.channel.handle_time(true, now);
            let (transmits, held) = self.channel.poll_transmits(&[], now);
            assert_eq!(held, Kinds::NONE, "there is no limit");
            for transmit in transmits {
                assert!(self.channel.leave(transmit.transmit_id, self.now_ms));
                let id = transmit.transmit_id;
                assert!(self.channel.handle_propagated(id, &[3; 32], now));
            }
            self.take_events();
            if self.is_done() {
                break;
            }
            let wake_ms = self.channel.next_wake_ms(&[], 0, now);
            let wake_ms = wake_ms.expect("something is to be done");
            assert!(wake_ms > self.now_ms, "it is woken for nothing");
            self.now_ms = wake_ms;
        }
        let is_open =
            |request: &&String| !self.sent.contains(*request) && !self.failed.contains(*request);
        let open: Vec<&String> = self.requests.keys().filter(is_open).collect();
        let ephemerals = self.ephemerals.iter().filter(|(_, ends)| **ends != 1);
        let ephemerals: Vec<_> = ephemerals.collect();
        let in_flight = self.channel.dispatches_in_flight();
        assert!(
            self.is_done(),
            "forgotten: {open:?}, {ephemerals:?}, {in_flight} in flight"
        );
        assert_eq!(self.channel.unplaced(), 0);
    }

    fn is_done(&self) -> bool {
        let has_ended =
            |request: &String| self.sent.contains(request) || self.failed.contains(request);
        self.requests.keys().all(has_ended)
            && self.ephemerals.values().all(|ends| *ends == 1)
            && self.channel.dispatches_in_flight() == 0
    }
}

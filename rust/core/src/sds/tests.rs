//! When a machine has work, seen from outside: `bob` hears others, and time passes.

use super::ids::content_id;
use super::sync::acknowledgements::TOGETHER_MAX;
use super::sync::lacking::{request, statement};
use super::*;
use crate::wire::sds::{HistoryEntry, Message};

/// Sends.
pub(super) const ONE: &str = "11111111111111111111111111111111";
pub(super) const OTHER: &str = "22222222222222222222222222222222";

pub(super) const T_MIN_MS: i64 = 1_000;
pub(super) const T_MAX_MS: i64 = 2_000;
/// A quarter of the acknowledgement timeout.
pub(super) const WINDOW_MS: i64 = 100;
/// The sender of a send is left so long to answer.
pub(super) const SENDER_FIRST_MS: i64 = 3 * WINDOW_MS;

pub(super) fn at(ms: i64) -> Now {
    Now {
        monotonic_ms: ms,
        epoch_ms: 1_760_000_000_000 + ms,
    }
}

/// Nothing leaves but what the test asks for.
pub(super) fn config() -> Config {
    Config {
        acknowledgement_timeout_ms: 4 * WINDOW_MS,
        acknowledgement_sync: false,
        sync_min_interval_ms: 0,
        timeout_for_lost_messages_ms: 0,
        repair_t_min_ms: T_MIN_MS,
        repair_t_max_ms: T_MAX_MS,
        ..Config::example()
    }
}

/// The id of a content.
pub(super) fn id(send_id: &str, ordinal: u32) -> String {
    content_id(send_id, ordinal).to_string()
}

/// An SDS message without a content, whose time is that at which it is heard.
pub(super) fn sync(sender_id: &str) -> Message {
    Message {
        sender_id: sender_id.into(),
        channel_id: "room".into(),
        lamport_timestamp: Some(0),
        ..Message::default()
    }
}

pub(super) fn message(sender_id: &str, message_id: &str, content: &[u8]) -> Message {
    Message {
        message_id: message_id.into(),
        content: Some(content.to_vec()),
        ..sync(sender_id)
    }
}

/// Names these.
pub(super) fn names(sender_id: &str, message_ids: &[String]) -> Message {
    Message {
        causal_history: message_ids.iter().map(|id| named(id)).collect(),
        ..sync(sender_id)
    }
}

/// Asks for this by its name.
pub(super) fn asks_for(sender_id: &str, message_id: &str) -> Message {
    Message {
        repair_request: vec![named(message_id)],
        ..sync(sender_id)
    }
}

/// Asks anybody for so many contents of a send of alice.
pub(super) fn asks_anybody(sender_id: &str, send_id: &str, lacking: u32) -> Message {
    asks_anybody_of("alice", sender_id, send_id, lacking)
}

pub(super) fn asks_anybody_of(
    sent_by: &str,
    sender_id: &str,
    send_id: &str,
    lacking: u32,
) -> Message {
    Message {
        repair_request: vec![request(send_id, lacking, 0, sent_by)],
        ..sync(sender_id)
    }
}

/// Says how many contents of a send of bob it lacks.
pub(super) fn lacks(sender_id: &str, send_id: &str, lacking: u32) -> Message {
    Message {
        repair_request: vec![statement(send_id, lacking, "bob")],
        ..sync(sender_id)
    }
}

pub(super) fn named(message_id: &str) -> HistoryEntry {
    HistoryEntry {
        message_id: message_id.into(),
        ..HistoryEntry::default()
    }
}

/// When `bob` first asks for what is missing since 0.
pub(super) fn asked_ms(message_id: &str) -> i64 {
    request_offset_ms("bob", message_id, T_MIN_MS, T_MAX_MS, config().wire_format)
}

/// A participant, and what it does.
pub(super) struct Bob {
    pub machine: Machine,
    config: Config,
    pub now_ms: i64,
    heard: u64,
}

impl Bob {
    pub fn new() -> Self {
        Bob::of(config())
    }

    pub fn of(config: Config) -> Self {
        let rng = Box::new(Drawn::from([]));
        Bob {
            machine: Machine::new("room", "bob", config.clone(), at(0), rng).unwrap(),
            config,
            now_ms: 0,
            heard: 0,
        }
    }

    /// One whose sends these are to have.
    pub fn to(names: &[&str], config: Config) -> Self {
        let names = names.iter().map(|name| (*name).into());
        Bob::of(Config {
            delivered_when: DeliveredWhen::Named(names.collect()),
            ..config
        })
    }

    /// What comes of hearing it.
    pub fn hear(&mut self, message: Message) -> Vec<Event> {
        let lamport_timestamp = Some(at(self.now_ms).epoch_ms as u64);
        self.hear_of(
            Message {
                lamport_timestamp,
                ..message
            },
            false,
        )
    }

    /// As [`Bob::hear`], of a message that keeps its time.
    pub fn hear_of(&mut self, mut message: Message, from_store: bool) -> Vec<Event> {
        self.heard += 1;
        if message.message_id.is_empty() {
            message.message_id = format!("sync {}", self.heard);
        }
        let data = Octets::from(message.encode(self.config.wire_format).unwrap());
        let now = at(self.now_ms);
        self.machine.handle_message(&data, None, from_store, now);
        self.events()
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.machine.poll_event()).collect()
    }

    /// A content of a send of alice, `data` of which make it whole.
    pub fn hear_content(&mut self, send_id: &str, ordinal: u32, [data, parity]: [u32; 2]) {
        let content = format!("{ordinal} of {send_id}");
        self.hear(message("alice", &id(send_id, ordinal), content.as_bytes()));
        let place = Place {
            send_id,
            ordinal: Some(ordinal),
            content_count: Some(data + parity),
            contents_needed: Some(data),
        };
        let now = at(self.now_ms);
        self.machine
            .handle_content_placed(&id(send_id, ordinal), place, now);
    }

    /// All of a send of alice that has two contents, and parity.
    pub fn hear_whole(&mut self, send_id: &str) {
        (0..2).for_each(|ordinal| self.hear_content(send_id, ordinal, [2, 2]));
        let now = at(self.now_ms);
        self.machine
            .handle_send_reconstructed(None, "alice", send_id, 2, &[], now);
        self.events();
    }

    /// What leaves now; the network takes it.
    pub fn leaving(&mut self) -> Vec<Transmit> {
        self.leaving_of(Kinds::ALL)
    }

    pub fn leaving_of(&mut self, kinds: Kinds) -> Vec<Transmit> {
        let now = at(self.now_ms);
        let mut left = Vec::new();
        while let Some(transmit) = self.machine.poll_transmit(now, kinds) {
            self.machine
                .handle_transmitted(transmit.transmit_id, None, now);
            left.push(transmit);
        }
        left
    }

    /// Time passes until it happens.
    pub fn wait_for(&mut self, is_it: impl Fn(&Event) -> bool) {
        while !self.events().iter().any(&is_it) {
            let next_ms = self.machine.poll_timeout().expect("it happens");
            self.wait_until(next_ms.max(self.now_ms + 1));
        }
    }

    /// Time passes up to then, as the machine says when it has work. Gives what left, and when.
    pub fn wait_until(&mut self, until_ms: i64) -> Vec<(i64, Transmit)> {
        let mut left = Vec::new();
        loop {
            let now_ms = self.now_ms;
            left.extend(
                self.leaving()
                    .into_iter()
                    .map(|transmit| (now_ms, transmit)),
            );
            let next_ms = self.machine.poll_timeout().unwrap_or(i64::MAX);
            assert!(
                next_ms > now_ms,
                "nothing is done at {now_ms}, for {next_ms}"
            );
            if next_ms > until_ms {
                self.now_ms = until_ms;
                return left;
            }
            self.now_ms = next_ms;
            self.machine.handle_timeout(at(next_ms));
        }
    }

    /// As [`Bob::wait_until`]: what is asked for, and when.
    pub fn requests_until(&mut self, until_ms: i64) -> Vec<(i64, String)> {
        let wire_format = self.config.wire_format;
        let left = self.wait_until(until_ms).into_iter();
        let requests = left.flat_map(|(at_ms, transmit)| {
            let message = Message::decode(&transmit.payload, wire_format).unwrap();
            let requests = message.repair_request.into_iter();
            requests.map(move |request| (at_ms, request.message_id))
        });
        requests.collect()
    }
}

#[test]
fn a_machine_says_when_it_asks_for_what_is_missing() {
    let mut bob = Bob::new();
    bob.hear(names("carol", &["missing".into()]));
    let at_ms = asked_ms("missing");
    // As soon as it has been missing for T_min, whether or not anything may leave.
    assert_eq!(bob.requests_until(T_MIN_MS - 1), []);
    bob.machine.handle_timeout(at(T_MIN_MS));
    assert_eq!(bob.machine.poll_timeout(), Some(at_ms));
    assert_eq!(bob.requests_until(at_ms), [(at_ms, "missing".into())]);
}

#[test]
fn a_machine_says_when_it_answers() {
    let mut bob = Bob::new();
    bob.hear(message("alice", "held", b"content"));
    bob.hear(asks_for("carol", "held"));
    let at_ms = response_offset_ms("bob", "alice", "held", T_MAX_MS, config().wire_format);
    let left = bob.wait_until(T_MAX_MS).into_iter();
    let left: Vec<_> = left
        .map(|(at_ms, transmit)| (at_ms, transmit.kind))
        .collect();
    assert_eq!(left, [(at_ms, TransmitKind::Repair)]);
}

#[test]
fn a_machine_says_when_a_sync_is_due() {
    let bob = |sync_min_interval_ms, acknowledgement_sync| {
        Bob::of(Config {
            sync_min_interval_ms,
            acknowledgement_sync,
            ..config()
        })
    };
    // Half of the interval is drawn.
    assert_eq!(bob(0, true).machine.poll_timeout(), None);
    assert_eq!(bob(30_000, true).machine.poll_timeout(), Some(15_000));
    // Who sent a content is told soon that it came.
    for is_prompt in [false, true] {
        let mut bob = bob(0, is_prompt);
        bob.hear(message("alice", "held", b"content"));
        assert_eq!(!bob.wait_until(10 * WINDOW_MS).is_empty(), is_prompt);
    }
}

#[test]
fn who_acknowledges_by_the_schedule_speaks_though_others_speak_more_often() {
    let mut bob = Bob::of(Config {
        sync_min_interval_ms: 60_000,
        ..config()
    });
    bob.hear(message("alice", "held", b"content"));
    let mut left = Vec::new();
    for number in 0..10 {
        left.extend(bob.wait_until(10_000 + number * 30_000));
        bob.hear(sync("alice"));
    }
    let said: Vec<_> = left
        .iter()
        .map(|(_, sync)| Message::decode(&sync.payload, config().wire_format).unwrap())
        .flat_map(|message| message.causal_history)
        .map(|entry| entry.message_id)
        .collect();
    assert_eq!(said, ["held"]);
}

#[test]
fn who_acknowledges_by_the_schedule_speaks_soon_in_a_burst() {
    for (messages, sync_min_interval_ms, is_soon) in [
        (TOGETHER_MAX - 1, 60_000, false),
        (TOGETHER_MAX, 60_000, true),
        (TOGETHER_MAX, 0, false),
    ] {
        let mut bob = Bob::of(Config {
            sync_min_interval_ms,
            ..config()
        });
        for number in 0..messages {
            bob.hear(message("alice", &number.to_string(), b"content"));
        }
        let left = bob.wait_until(WINDOW_MS);
        assert_eq!(
            !left.is_empty(),
            is_soon,
            "{messages} {sync_min_interval_ms}"
        );
    }
}

#[test]
fn somebodys_sync_puts_ours_off_where_it_named_what_we_owe_and_not_elsewhere() {
    for (sync, is_put_off) in [
        (sync("alice"), false),
        (names("carol", &["held".into()]), true),
    ] {
        let mut bob = Bob::of(Config {
            sync_min_interval_ms: 60_000,
            ..config()
        });
        bob.hear(message("alice", "held", b"content"));
        bob.wait_until(1_000);
        bob.hear(sync);
        // Half of the interval is drawn.
        assert_eq!(bob.wait_until(60_000).is_empty(), is_put_off);
    }
}

#[test]
fn syncs_that_only_ask_keep_a_distance() {
    // Of so many ids two come up within half of T_min.
    let ids = (0..100).map(|number| format!("missing {number}"));
    let mut ids: Vec<String> = ids.collect();
    ids.sort_by_key(|id| asked_ms(id));
    let close =
        |pair: &&[String]| (1..T_MIN_MS / 2).contains(&(asked_ms(&pair[1]) - asked_ms(&pair[0])));
    let pair = ids.windows(2).find(close).expect("some are close");
    let mut bob = Bob::new();
    bob.hear(names("carol", pair));
    let first_ms = asked_ms(&pair[0]);
    let requests = bob.requests_until(first_ms + T_MIN_MS);
    let moments = [first_ms, first_ms + T_MIN_MS];
    assert_eq!(
        requests,
        moments
            .into_iter()
            .zip(pair.iter().cloned())
            .collect::<Vec<_>>()
    );
}

#[test]
fn answers_leave_at_their_pace() {
    let mut bob = Bob::new();
    let ids = ["a", "b", "c"];
    for id in ids {
        bob.hear(message("alice", id, &vec![7; 5 << 20]));
        bob.hear(asks_for("carol", id));
    }
    bob.now_ms = T_MAX_MS;
    let at_once = bob.leaving();
    assert_eq!(at_once.len(), 2);
    let left = bob.wait_until(T_MAX_MS + 10_000);
    let answer_ms = at_once[0].payload.len().div_ceil(1_024) as i64;
    let moments: Vec<_> = left.iter().map(|(at_ms, _)| at_ms - T_MAX_MS).collect();
    assert_eq!(moments, [2 * answer_ms - 8_192]);
}

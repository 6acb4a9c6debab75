//! The machine of Scalable Data Sync: messages received and sent, with all their records.

use std::collections::HashMap;
use std::hint::black_box;

use shardwire_core::sds::{
    Config, Event, Kinds, Machine, Name, Now, Octets, Randomness, TransmitKind,
};
use shardwire_core::wire::sds::{HistoryEntry, Message, WireFormat};

use crate::{Candidate, Case};

const MESSAGES: usize = 2_000;
const CONTENT_BYTES: usize = 100;
const EPOCH_MS: i64 = 1_760_000_000_000;
/// Records are taken after so many messages.
const GROUP: usize = 20;

/// Every case of this file.
pub fn cases() -> Vec<Case> {
    let wire = messages();
    let send_ids: Vec<String> = (0..MESSAGES).map(send_id).collect();
    let case = |name: &str, candidate: Candidate| Case {
        name: format!("SDS, {MESSAGES} messages of {CONTENT_BYTES} B {name}"),
        bytes: MESSAGES * CONTENT_BYTES,
        messages: MESSAGES,
        candidates: vec![candidate],
    };
    vec![
        case(
            "received in order",
            Candidate::new("shardwire", move || receive(&wire)),
        ),
        case(
            "sent, buffer at its limit",
            Candidate::new("shardwire", move || send(&send_ids)),
        ),
    ]
}

/// What a participant says who sends nothing else, each message after the two before.
fn messages() -> Vec<Octets> {
    let entry = |number: usize| HistoryEntry {
        message_id: message_id(number),
        retrieval_hint: Some(vec![0; 32]),
        sender_id: Some("alice".to_owned()),
    };
    let wire = (0..MESSAGES).map(|number| {
        let message = Message {
            sender_id: "alice".to_owned(),
            message_id: message_id(number),
            channel_id: "rooms".to_owned(),
            lamport_timestamp: Some(EPOCH_MS as u64 + number as u64),
            causal_history: (number.saturating_sub(2)..number).map(entry).collect(),
            content: Some(vec![b'x'; CONTENT_BYTES]),
            ..Message::default()
        };
        let bytes = message.encode(WireFormat::Spec);
        bytes.expect("a message of this wire").into()
    });
    wire.collect()
}

fn receive(wire: &[Octets]) {
    let mut machine = machine("bobby");
    let mut released = 0;
    for (number, data) in wire.iter().enumerate() {
        let now = at(number as i64 * 10);
        machine.handle_message(black_box(data), None, false, now);
        while let Some(event) = machine.poll_event() {
            match event {
                Event::ContentReceived {
                    sender_id,
                    send_id,
                    message_id,
                    ..
                } => {
                    let send_id = send_id.unwrap_or(message_id);
                    machine.handle_send_reconstructed(&sender_id, &send_id, 1, &[], now);
                }
                Event::SendReleased { .. } => released += 1,
                _ => {}
            }
        }
        if number % GROUP == GROUP - 1 {
            while let Some(transmit) = machine.poll_transmit(now, Kinds::ALL) {
                machine.handle_transmitted(transmit.transmit_id, None, now);
            }
            black_box(machine.poll_persist());
        }
    }
    assert_eq!(released, wire.len());
}

fn send(send_ids: &[String]) {
    let mut machine = machine("alice");
    let content: Octets = vec![b'x'; CONTENT_BYTES].into();
    let now = at(0);
    let (mut sent, mut heard) = (0, 0);
    while sent < MESSAGES {
        let mut waiting = Vec::new();
        while sent < MESSAGES && machine.has_room() {
            let ids = machine.send(&send_ids[sent], vec![content.clone()], 1);
            waiting.extend(ids.expect("there is room"));
            let transmit = machine.poll_transmit(now, Kinds::ALL);
            let transmit = black_box(transmit.expect("it may leave"));
            assert_eq!(transmit.kind, TransmitKind::First);
            machine.handle_transmitted(transmit.transmit_id, Some(&[0; 32]), now);
            sent += 1;
            if sent % GROUP == 0 {
                black_box(machine.poll_persist());
            }
        }
        heard += 1;
        let sync: Octets = acknowledgement(heard, &waiting).into();
        machine.handle_message(&sync, None, false, now);
        while machine.poll_event().is_some() {}
    }
    let held: HashMap<_, _> = machine.stats().into_iter().collect();
    assert_eq!(held["outgoing_unacknowledged"], 0);
}

fn acknowledgement(number: usize, named: &[Name]) -> Vec<u8> {
    let entry = |name: &Name| HistoryEntry {
        message_id: name.to_string(),
        ..HistoryEntry::default()
    };
    let message = Message {
        sender_id: "bobby".to_owned(),
        message_id: format!("sync-{number}"),
        channel_id: "rooms".to_owned(),
        lamport_timestamp: Some(EPOCH_MS as u64),
        causal_history: named.iter().map(entry).collect(),
        ..Message::default()
    };
    let bytes = message.encode(WireFormat::Spec);
    bytes.expect("a message of this wire")
}

fn send_id(number: usize) -> String {
    format!("{:032x}", number + 1)
}

fn message_id(number: usize) -> String {
    format!("{}.0", send_id(number))
}

fn at(monotonic_ms: i64) -> Now {
    Now {
        monotonic_ms,
        epoch_ms: EPOCH_MS + monotonic_ms,
    }
}

/// As `ChannelConfig.logos()` sets it up.
fn machine(name: &str) -> Machine {
    let config = Config::example();
    let machine = Machine::new("rooms", name, config, at(0), Box::new(Draws(1)));
    machine.expect("a legal configuration")
}

/// SplitMix64.
struct Draws(u64);

impl Randomness for Draws {
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

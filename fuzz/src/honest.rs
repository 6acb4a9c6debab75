//! What a hostile peer cannot do: whatever it spells like what an honest sender sends, what that sends is
//! delivered once.

use std::collections::HashMap;

use shardwire_core::channel::{Arrival, Channel, Segmentation};
use shardwire_core::erasure::ErasureCode;
use shardwire_core::reassemble::Limits;
use shardwire_core::sds::{Config, Kinds, MessageIdRule, Octets};
use shardwire_core::segment::{Parameters, segment};
use shardwire_core::wire::sds::{HistoryEntry, Message};
use shardwire_core::wire::segment::WireFormat;

use crate::channel::member;
use crate::draws::Draws;
use crate::parties::{at, config};
use crate::spelled::Spellings;
use crate::{limits, settings};

const SEGMENT_BYTES: usize = 64;
/// More than what one case holds.
const MANY: usize = 10_000;
/// In these the last is delivered whatever histories name.
const END_MS: i64 = 100_000_000;

/// Plays a case; what `alice` sends reaches `bob` without a loss, and `mallory` says anything between.
///
/// # Panics
///
/// Where a message of alice is not delivered, or is twice.
pub fn delivers_once(seed: u64) {
    let mut draws = Draws::from_seed(seed);
    let config = Config {
        log_messages_max: MANY,
        incoming_buffer_messages_max: MANY,
        missing_messages_max: MANY,
        outgoing_buffer_messages_max: MANY,
        replay_window_ms: 0,
        // Only what is kept for repair tells another content under an id from the same one.
        enable_repair: true,
        ..config(&mut draws)
    };
    let wire_format = [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243][draws.below(3)];
    let size = SEGMENT_BYTES
        + if wire_format == WireFormat::Lip243 {
            128
        } else {
            0
        };
    let parameters = Parameters::new(settings(wire_format, ErasureCode::Leopard, size));
    let segmentation = Segmentation {
        parameters: parameters.expect("the settings are valid"),
        limits: Limits {
            sets_max: MANY as u64,
            sets_per_sender_max: MANY as u64,
            completed_remembered_max: MANY,
            candidates_per_slot_max: MANY,
            timeout_ms: 1_000_000,
            work_budget: 10_000,
            ..limits()
        },
    };
    let mut alice = member("alice", config.clone(), segmentation, at(0), draws.next());
    let mut bob = member("bob", config.clone(), segmentation, at(0), draws.next());
    let mut spellings = Spellings::default();
    let mut sent = Vec::new();
    let mut now_ms = 0;
    for number in 0..1 + draws.below(12) {
        let length = 8 + draws.below(3 * SEGMENT_BYTES);
        let mut payload = vec![b'h'; length];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        payload[7] = 0xf0 | number as u8;
        for (place, byte) in payload[8..].iter_mut().enumerate() {
            *byte = (place / 7) as u8 ^ number as u8 | 1;
        }
        let segments = segment(&payload, &segmentation.parameters).expect("it is not empty");
        let needed = payload.len().div_ceil(SEGMENT_BYTES) as u32;
        let contents: Vec<Octets> = segments.to_vecs().into_iter().map(Octets::from).collect();
        let needed = needed.min(contents.len() as u32);
        let send_id = format!("{:032x}", 1_003 + number * 3);
        let accepted = alice.sds_mut().send(&send_id, contents, needed);
        if accepted.is_ok() {
            sent.push(payload);
        }
        let mut left = Vec::new();
        while let Some(transmit) = alice.sds_mut().poll_transmit(at(now_ms), Kinds::ALL) {
            spellings.see(&transmit.payload, &config);
            left.push(transmit.payload.clone());
            let id = transmit.transmit_id;
            alice
                .sds_mut()
                .handle_transmitted(id, Some(&[3; 32]), at(now_ms));
            if left.len() > 100 {
                break;
            }
        }
        for bytes in left {
            for _ in 0..draws.below(4) {
                let hostile = hostile(
                    &spellings,
                    &bytes,
                    now_ms,
                    &config,
                    &segmentation,
                    &mut draws,
                );
                if let Some(bytes) = hostile {
                    hand(&mut bob, bytes.into(), now_ms);
                }
            }
            hand(&mut bob, bytes.clone(), now_ms);
            if draws.chance(20) {
                hand(&mut bob, bytes, now_ms);
            }
        }
        now_ms += draws.below(1_000) as i64;
    }
    for _ in 0..20 {
        now_ms += END_MS / 20;
        bob.sds_mut().handle_timeout(at(now_ms));
        bob.poll_events(at(now_ms));
    }
    let by_content = config.message_id == MessageIdRule::ContentSha256;
    let mut delivered: HashMap<Vec<u8>, usize> = HashMap::new();
    for delivery in bob.deliveries().waiting() {
        // Where ids are made of contents the first of those that send one is delivered.
        if by_content || *delivery.sender_id == *"alice" {
            *delivered.entry(delivery.payload.to_vec()).or_default() += 1;
        }
    }
    for payload in &sent {
        let times = delivered.get(payload).copied().unwrap_or(0);
        assert!(
            times == 1 || by_content && times > 1,
            "{times} times came a message of {} bytes",
            payload.len()
        );
    }
}

/// Of a hostile peer, in any name but that of alice.
fn hostile(
    spellings: &Spellings,
    of_alice: &Octets,
    now_ms: i64,
    config: &Config,
    segmentation: &Segmentation,
    draws: &mut Draws,
) -> Option<Vec<u8>> {
    let lamport = at(now_ms).epoch_ms as u64 + draws.next() % 1_000;
    let sender = |draws: &mut Draws| loop {
        let sender_id = spellings.sender(draws);
        if sender_id != "alice" {
            break sender_id;
        }
    };
    if draws.chance(40) {
        let mut message = Message::decode(of_alice, config.wire_format).ok()?;
        message.sender_id = sender(draws);
        if draws.chance(50) {
            message.message_id = spellings.id(draws);
        }
        return message.encode(config.wire_format).ok();
    }
    let payload = vec![1 + draws.below(3) as u8; 1 + draws.below(2) * 60 + 60];
    let mut segments = segment(&payload, &segmentation.parameters).ok()?.to_vecs();
    let content = segments.swap_remove(draws.below(segments.len()));
    let history = draws.chance(30).then(|| HistoryEntry {
        message_id: spellings.id(draws),
        retrieval_hint: None,
        sender_id: draws.chance(50).then(|| spellings.sender(draws)),
    });
    let message = Message {
        sender_id: sender(draws),
        message_id: spellings.id(draws),
        channel_id: "room".to_owned(),
        lamport_timestamp: Some(lamport),
        causal_history: history.into_iter().collect(),
        bloom_filter: None,
        repair_request: Vec::new(),
        content: Some(content),
    };
    message.encode(config.wire_format).ok()
}

fn hand(bob: &mut Channel, data: Octets, now_ms: i64) {
    let arrival = Arrival {
        data: &data,
        retrieval_hint: None,
        timestamp_ns: 0,
        authenticated_sender: None,
        from_store: false,
        observed: false,
    };
    bob.handle_message(&arrival, at(now_ms));
    bob.poll_events(at(now_ms));
}

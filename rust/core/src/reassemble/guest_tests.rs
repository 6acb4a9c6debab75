//! Parity of others: it completes what is here in part, and nothing else comes of it.

use super::poison_tests::{Random, forged};
use super::tests::{limits, parameters_of, reconstructed};
use super::*;
use crate::erasure::ErasureCode;
use crate::segment::segment;
use crate::wire::segment::WireFormat;

const RAW: WireFormat = WireFormat::Raw;
const KEY: &[u8] = b"alice's first";
const DATA: usize = 8;

struct Receiver {
    reassembler: Reassembler,
    payload: Vec<u8>,
    /// Eight segments of data, eight of parity.
    segments: Vec<Vec<u8>>,
    random: Random,
}

fn receiver_of(limits: Limits) -> Receiver {
    let parameters = parameters_of(RAW, ErasureCode::Leopard, 1.0);
    let payload: Vec<u8> = (0..DATA * 64).map(|at| (at * at / 7) as u8).collect();
    let segments = segment(&payload, &parameters).unwrap().to_vecs();
    assert_eq!(segments.len(), 2 * DATA);
    Receiver {
        reassembler: Reassembler::new(parameters, limits),
        payload,
        segments,
        random: Random(7),
    }
}

fn receiver() -> Receiver {
    receiver_of(limits())
}

fn receipt(sender: &str) -> Receipt<'_> {
    Receipt {
        now_ms: 0,
        sender: Some(sender),
        authenticated: sender != "claimed",
        message_key: Some(KEY),
    }
}

impl Receiver {
    /// Alice's own segment comes.
    fn own(&mut self, ordinal: usize) -> Outcome {
        self.reassembler
            .receive(&self.segments[ordinal], &receipt("alice"))
    }

    /// A member's parity comes, of this index.
    fn guest(&mut self, by: &str, index: usize) -> Option<Outcome> {
        let content = &self.segments[DATA + index];
        self.reassembler.receive_guest(content, &receipt(by))
    }

    fn forged_guest(&mut self, by: &str, index: usize) -> Option<Outcome> {
        let content = forged(&self.segments[DATA + index], RAW, &mut self.random);
        self.reassembler.receive_guest(&content, &receipt(by))
    }

    fn is_payload(&self, outcome: Option<Outcome>) -> bool {
        let payload = outcome.as_ref().and_then(reconstructed);
        payload.as_ref() == Some(&self.payload)
    }

    fn assert_empty(&self) {
        let stats = self.reassembler.stats();
        let held = (stats.sets_held, stats.bytes_held, stats.senders_held);
        assert_eq!(held, (0, 0, 0));
        assert_eq!(self.reassembler.ledger.accounts_open(), 0);
    }
}

#[test]
fn parity_of_several_members_completes_what_is_here_in_part() {
    let mut receiver = receiver();
    (0..DATA - 3).for_each(|ordinal| drop(receiver.own(ordinal)));
    let stored = receiver.guest("bob", 0);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(2),
            ..
        })
    ));
    assert!(receiver.guest("bob", 0).is_none_or(|outcome| matches!(
        outcome,
        Outcome::Stored {
            segments_held: 1,
            ..
        }
    )));
    receiver.guest("carol", 4);
    let last = receiver.guest("bob", 7);
    assert!(receiver.is_payload(last));
    receiver.assert_empty();
    assert!(receiver.guest("bob", 5).is_none());
}

#[test]
fn the_senders_own_segment_may_be_the_last_one_that_was_lacking() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 3);
    let last = receiver.own(DATA + 1);
    assert!(receiver.is_payload(Some(last)));
    receiver.assert_empty();
}

#[test]
fn of_a_payload_of_which_nothing_is_here_nothing_is_kept() {
    let mut receiver = receiver();
    for index in 0..DATA {
        assert!(receiver.guest("bob", index).is_none());
    }
    receiver.assert_empty();
    receiver.own(0);
    let data = receiver.segments[1].clone();
    let bob = receipt("bob");
    assert!(receiver.reassembler.receive_guest(&data, &bob).is_none());
    assert!(
        receiver
            .reassembler
            .receive_guest(b"no segment", &bob)
            .is_none()
    );
    let elsewhere = Receipt {
        message_key: Some(b"alice's second"),
        ..bob
    };
    let parity = receiver.segments[DATA].clone();
    assert!(
        receiver
            .reassembler
            .receive_guest(&parity, &elsewhere)
            .is_none()
    );
    assert_eq!(receiver.reassembler.stats().sets_held, 1);
}

#[test]
fn forged_parity_harms_nobody_but_itself() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    for index in 0..DATA - 1 {
        let outcome = receiver.forged_guest("mallory", index);
        assert!(!matches!(outcome, Some(Outcome::Reconstructed(_))));
    }
    // One who makes all that is lacking is believed before many.
    receiver.guest("bob", 7);
    let last = receiver.guest("bob", 0);
    assert!(receiver.is_payload(last));
    receiver.assert_empty();
}

#[test]
fn the_senders_own_segments_never_wait_for_forged_parity() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    for index in 0..DATA {
        receiver.forged_guest("mallory", index);
    }
    receiver.own(DATA - 2);
    let last = receiver.own(DATA - 1);
    assert!(receiver.is_payload(Some(last)));
    receiver.assert_empty();
}

#[test]
fn what_forged_parity_may_cost_is_bounded_and_no_part_of_what_the_sender_may() {
    let mut receiver = receiver();
    (0..DATA - 1).for_each(|ordinal| drop(receiver.own(ordinal)));
    let names: Vec<String> = (0..500).map(|number| format!("mallory-{number}")).collect();
    for name in &names {
        for index in 0..DATA {
            receiver.forged_guest(name, index);
        }
    }
    let failed = receiver.reassembler.stats().failed_reconstructions;
    assert!((1..200).contains(&failed), "{failed} attempts");
    // What is spent is spent: not even genuine parity is tried any more.
    assert!(receiver.guest("bob", 0).is_none());
    let stats = receiver.reassembler.stats();
    assert_eq!((stats.sets_held, stats.dropped), (1, [0, 0, 0]));
    let last = receiver.own(DATA - 1);
    assert!(receiver.is_payload(Some(last)));
    receiver.assert_empty();
}

#[test]
fn parity_of_others_displaces_nothing() {
    let mut receiver = receiver_of(Limits {
        sets_max: 4,
        sets_per_sender_max: 2,
        ..limits()
    });
    receiver.own(0);
    let mut payload = receiver.payload.clone();
    // Nobody proved who sent two of these: they would make room for a segment of somebody who does.
    for (number, sender) in ["dave", "erin", "frank"].into_iter().enumerate() {
        payload[0] = 100 + number as u8;
        let parameters = receiver.reassembler.parameters;
        let other = segment(&payload, &parameters).unwrap().to_vecs();
        let receipt = Receipt {
            message_key: Some(sender.as_bytes()),
            authenticated: sender == "dave",
            ..receipt(sender)
        };
        receiver.reassembler.receive(&other[0], &receipt);
    }
    assert_eq!(receiver.reassembler.stats().sets_held, 4);
    assert!(receiver.guest("bob", 0).is_none());
    assert!(receiver.guest("claimed", 0).is_none());
    assert_eq!(receiver.reassembler.stats().sets_held, 4);
    assert!(receiver.reassembler.poll_dropped().is_empty());
}

#[test]
fn parity_of_others_displaces_nothing_of_who_made_it() {
    let mut receiver = receiver_of(Limits {
        sets_per_sender_max: 2,
        ..limits()
    });
    receiver.own(0);
    for number in 0..2 {
        let mut payload = receiver.payload.clone();
        payload[0] = 100 + number;
        let parameters = receiver.reassembler.parameters;
        let other = segment(&payload, &parameters).unwrap().to_vecs();
        let receipt = Receipt {
            message_key: Some(&[number]),
            ..receipt("bob")
        };
        receiver.reassembler.receive(&other[0], &receipt);
    }
    assert!(receiver.guest("bob", 0).is_none());
    assert_eq!(receiver.reassembler.stats().sets_held, 3);
    assert!(receiver.reassembler.poll_dropped().is_empty());
}

#[test]
fn nobody_hears_of_the_end_of_what_others_made() {
    let mut receiver = receiver();
    receiver.own(0);
    receiver.guest("bob", 0);
    receiver.guest("claimed", 1);
    let dropped = receiver.reassembler.expire(limits().timeout_ms);
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].message_key.as_deref(), Some(KEY));
    receiver.assert_empty();
}

#[test]
fn what_others_made_is_counted_and_charged_as_it_came() {
    let mut receiver = receiver();
    receiver.own(0);
    let before = receiver.reassembler.stats();
    receiver.guest("bob", 0);
    let after = receiver.reassembler.stats();
    assert_eq!(
        (after.received, after.stored),
        (before.received + 1, before.stored + 1)
    );
    let length = receiver.segments[DATA].len() as u64;
    assert_eq!(after.bytes_held, before.bytes_held + length);
}

#[test]
fn parity_of_a_place_that_its_senders_own_fills_is_of_no_use() {
    let mut receiver = receiver();
    receiver.own(0);
    receiver.own(DATA + 3);
    assert!(receiver.guest("bob", 3).is_none());
    assert_eq!(receiver.reassembler.stats().sets_held, 1);
    // As it is once the sender's own comes after it.
    receiver.guest("bob", 4);
    receiver.own(DATA + 4);
    let stored = receiver.guest("bob", 5);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(4),
            ..
        })
    ));
}

#[test]
fn several_contents_of_one_place_fill_one() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 0);
    let stored = receiver.forged_guest("mallory", 0);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(1),
            ..
        })
    ));
    assert_eq!(receiver.reassembler.stats().failed_reconstructions, 0);
    let last = receiver.guest("bob", 1);
    assert!(receiver.is_payload(last));
}

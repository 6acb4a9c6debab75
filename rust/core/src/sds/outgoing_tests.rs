//! What leaves of sends of ours, and when it goes again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, lacks, message, names};
use super::*;
use crate::wire::sds::Message;

/// Carol is to have all that bob sends.
fn bob() -> Bob {
    let carol: Arc<str> = "carol".into();
    Bob::of(Config {
        delivered_when: DeliveredWhen::Named(BTreeSet::from([carol])),
        ..config()
    })
}

fn contents<const COUNT: usize>(contents: [&str; COUNT]) -> Vec<Octets> {
    let contents = contents.map(|content| Octets::from(content.as_bytes()));
    contents.into()
}

/// Two contents left, and carol lacks so many, which are wanted.
fn lacking(count: u32) -> Bob {
    let mut bob = bob();
    let sent = contents(["one", "two"]);
    bob.machine.send_on_demand(ONE, sent, 2, 3).unwrap();
    assert_eq!(bob.leaving().len(), 2);
    bob.hear(lacks("carol", ONE, count));
    bob.wait_for(|event| matches!(event, Event::ContentsWanted { .. }));
    bob
}

fn make(bob: &mut Bob, contents: Vec<Octets>) {
    let now = at(bob.now_ms);
    bob.machine.handle_contents_made(ONE, contents, now);
}

fn ordinals(left: Vec<Transmit>) -> Vec<u32> {
    left.into_iter()
        .filter_map(|transmit| transmit.ordinal)
        .collect()
}

#[test]
fn what_never_left_leaves_whoever_says_that_they_have_it() {
    let mut bob = lacking(1);
    make(&mut bob, contents(["three"]));
    bob.hear(names("carol", &[id(ONE, 2)]));
    assert_eq!(ordinals(bob.leaving()), [2]);
}

#[test]
fn what_is_due_and_is_acknowledged_before_it_leaves_stays() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    assert_eq!(ordinals(bob.leaving()), [0, 1]);
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    bob.hear(names("carol", &[id(ONE, 1)]));
    assert_eq!(ordinals(bob.leaving()), [0]);
}

/// The parity that was made leaves after the next message, which names the one that it is of.
#[test]
fn a_message_stands_once_in_the_order_though_no_more_is_made_before_what_was_made_has_left() {
    let mut bob = lacking(2);
    make(&mut bob, contents(["three", "four"]));
    make(&mut bob, Vec::new());
    bob.machine.send(OTHER, contents(["after"]), 1).unwrap();
    let first = Kinds::NONE.with(TransmitKind::First);
    assert_eq!(bob.leaving_of(first).len(), 1);
    assert_eq!(ordinals(bob.leaving()), [2, 3]);
    let sent = [&*id(ONE, 1), &*id(OTHER, 0)];
    let ordered: Vec<_> = bob.machine.ordered_ids().map(|id| &**id).collect();
    assert_eq!(ordered, sent);
    assert_eq!(bob.machine.inspect().heads, [Name::new(sent[1])]);
}

#[test]
fn what_goes_again_and_what_is_new_leave_in_turn() {
    let mut bob = bob();
    let send = |bob: &mut Bob, number: u32| {
        let send_id = format!("{number:032x}");
        bob.machine
            .send(&send_id, contents(["content"]), 1)
            .unwrap();
    };
    (0..3).for_each(|number| send(&mut bob, number));
    bob.leaving();
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    (3..6).for_each(|number| send(&mut bob, number));
    let kinds: Vec<_> = bob.leaving().iter().map(|left| left.kind).collect();
    let turn = [TransmitKind::Retransmission, TransmitKind::First];
    assert_eq!(kinds, [turn, turn, turn].concat());
}

/// Those of the contents whose messages `have` it.
fn those_that(bob: &mut Bob, have: impl Fn(&Message) -> bool) -> Vec<u32> {
    let left = bob.leaving().into_iter().filter(|transmit| {
        let wire_format = config().wire_format;
        have(&Message::decode(&transmit.payload, wire_format).unwrap())
    });
    ordinals(left.collect())
}

#[test]
fn a_send_on_demand_asks_with_its_first_its_middle_and_its_last_content() {
    let six = ["a", "b", "c", "d", "e", "f"];
    for (reserve, asking) in [(0, &[][..]), (3, &[0, 3, 5])] {
        let mut bob = bob();
        bob.machine
            .send_on_demand(ONE, contents(six), 6, reserve)
            .unwrap();
        let asks = those_that(&mut bob, |message| !message.repair_request.is_empty());
        assert_eq!(asks, asking);
    }
}

#[test]
fn a_filter_rides_on_the_last_content_of_a_send_or_on_each() {
    for (bloom_interval_ms, riding) in [(30_000, &[2][..]), (0, &[0, 1, 2])] {
        let mut bob = Bob::of(Config {
            bloom_interval_ms,
            ..config()
        });
        bob.hear(message("alice", "held", b"content"));
        bob.machine.send(ONE, contents(["a", "b", "c"]), 3).unwrap();
        let rides = those_that(&mut bob, |message| message.bloom_filter.is_some());
        assert_eq!(rides, riding, "{bloom_interval_ms}");
    }
}

#[test]
fn a_content_that_the_network_did_not_take_leaves_again() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one"]), 1).unwrap();
    for kind in [TransmitKind::First, TransmitKind::Further] {
        let left = bob.machine.poll_transmit(at(0), Kinds::ALL).unwrap();
        assert_eq!((left.kind, left.attempt), (kind, 0));
        assert_eq!(bob.machine.poll_transmit(at(0), Kinds::ALL), None);
        bob.machine.handle_transmit_failed(left.transmit_id, at(0));
    }
}

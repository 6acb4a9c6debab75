//! What leaves of sends of ours, and when it goes again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, lacks, names};
use super::*;

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

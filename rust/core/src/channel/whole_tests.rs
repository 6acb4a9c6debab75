//! Messages of one participant under one send: each is released once.

use super::tests::{
    Bob, HANDOVER, ONE, OTHER, SEGMENT_BYTES, config, follows, id, limits, message, payload,
    segments, settings,
};
use std::collections::BTreeSet;

use super::*;
use crate::segment::Settings;
use crate::wire::segment::WireFormat;

/// All data of a message of alice under [`ONE`], in two contents, which follow what is missing if it
/// `waits`.
fn hear(bob: &mut Bob, payload: &[u8], waits: bool) {
    for (ordinal, content) in segments(payload).iter().enumerate().take(2) {
        let came = message("alice", &id(ONE, ordinal as u32), content);
        bob.hear(if waits {
            follows(came, &id(OTHER, 0))
        } else {
            came
        });
    }
}

/// What is missing comes.
fn hear_cause(bob: &mut Bob) {
    bob.hear(message("carol", &id(OTHER, 0), &segments(b"before")[0]));
}

#[test]
fn a_second_message_of_a_send_does_not_take_the_place_of_one_that_waits() {
    let mut bob = Bob::new();
    let [first, second] = [1, 2].map(|seed| payload(seed, 2 * SEGMENT_BYTES));
    hear(&mut bob, &first, true);
    hear(&mut bob, &second, false);
    assert_eq!(bob.released, [&*second]);
    assert_eq!(bob.channel.waiting(), (1, first.len()));
    // Nothing of either is partial any more.
    assert!(!bob.channel.has_partial());
    hear_cause(&mut bob);
    assert_eq!(bob.released, [&*second, b"before", &*first]);
    assert_eq!(bob.channel.waiting(), (0, 0));
}

/// The one that waits is stored under a name of its own, since another one of its send was here, and that one
/// is done with.
#[test]
fn a_message_waits_on_though_another_of_its_send_was_delivered_and_one_more_comes() {
    let config = Config {
        log_messages_max: 2,
        ..config()
    };
    let mut bob = Bob::of(config, settings(), limits());
    let [second, third] = [2, 3].map(|seed| payload(seed, 2 * SEGMENT_BYTES));
    bob.hear(message("alice", &id(ONE, 0), &segments(b"first")[0]));
    bob.channel.begin_delivery().unwrap();
    for number in 3..7 {
        let message_id = id(&format!("{number:032x}"), 0);
        bob.hear(message("carol", &message_id, &segments(b"more")[0]));
    }
    assert!(!bob.holds(&id(ONE, 0)));
    hear(&mut bob, &second, true);
    bob.channel.finish_delivery();
    bob.commit();
    hear(&mut bob, &third, false);
    hear_cause(&mut bob);
    while bob.channel.begin_delivery().is_some() {
        bob.channel.finish_delivery();
    }
    for payload in [&second, &third] {
        let times = bob.released.iter().filter(|released| *released == payload);
        assert_eq!(times.count(), 1);
    }
    bob.commit();
    assert_eq!(
        bob.stored("channel.parts") + bob.stored("channel.payload"),
        0
    );
}

/// The log has forgotten what brought the first, which waits for its delivery.
#[test]
fn a_second_large_message_of_a_send_is_stored_beside_the_first() {
    for is_stored in [true, false] {
        let config = Config {
            log_messages_max: 2,
            ..config()
        };
        let mut bob = Bob::of(config, settings(), limits());
        let [first, second] = [1, 2].map(|seed| payload(seed, 2 * SEGMENT_BYTES));
        hear(&mut bob, &first, false);
        if !is_stored {
            bob.channel.drop_changes();
        }
        for number in 3..7 {
            let message_id = id(&format!("{number:032x}"), 0);
            bob.hear(message("carol", &message_id, &segments(b"more")[0]));
        }
        assert!(!bob.holds(&id(ONE, 0)));
        hear(&mut bob, &second, false);
        let waiting = bob.channel.deliveries().waiting();
        let called = waiting.filter(|delivery| *delivery.sender_id == *"alice");
        let called: BTreeSet<_> = called.map(|delivery| delivery.send_id.clone()).collect();
        assert_eq!(called.len(), 2);
        if is_stored {
            let restored = bob.restart().unwrap();
            assert!(restored.contains(&first) && restored.contains(&second));
        }
    }
}

#[test]
fn what_is_taken_in_has_room_beside_what_waits_and_what_is_behind_it() {
    let mut bob = Bob::new();
    let held = payload(1, 2 * SEGMENT_BYTES);
    assert!(bob.channel.has_delivery_room(0, usize::MAX >> 1));
    hear(&mut bob, &held, true);
    bob.hear(message("carol", "a byte", &segments(b"x")[0]));
    let left = HANDOVER.bytes_max - held.len() - 1;
    for (messages, bytes, has_room) in [
        (0, left - 1, true),
        (0, left, false),
        (98, 0, true),
        (99, 0, false),
    ] {
        assert_eq!(
            bob.channel.has_delivery_room(messages, bytes),
            has_room,
            "{messages} {bytes}"
        );
    }
}

/// A rival is known by its content for as long as so many others are not.
#[test]
fn a_rival_that_waits_for_its_delivery_is_not_delivered_again() {
    let config = Config {
        missing_messages_max: 1,
        ..config()
    };
    let settings = Settings {
        wire_format: WireFormat::Draft,
        ..settings()
    };
    let mut bob = Bob::of(config, settings, limits());
    bob.hear(message("alice", "shared", b"of alice"));
    for rival in [&b"one"[..], b"two", b"one"] {
        bob.hear(message("mallory", "shared", rival));
    }
    assert_eq!(bob.released, [&b"of alice"[..], b"one", b"two"]);
}

#[test]
fn a_message_is_called_by_its_send_once_another_one_of_that_is_done() {
    for is_stored in [true, false] {
        let config = Config {
            log_messages_max: 2,
            ..config()
        };
        let mut bob = Bob::of(config, settings(), limits());
        let settle = |bob: &mut Bob| match is_stored {
            true => bob.commit(),
            false => bob.channel.drop_changes(),
        };
        let deliver = |bob: &mut Bob| {
            settle(bob);
            let delivery = bob.channel.begin_delivery();
            bob.channel.finish_delivery();
            settle(bob);
            delivery.and_then(|delivery| delivery.send_id)
        };
        for (number, payload) in [(3, &b"first"[..]), (4, b"second")] {
            bob.hear(message("alice", &id(ONE, 0), &segments(payload)[0]));
            assert_eq!(deliver(&mut bob).as_deref(), Some(ONE), "{is_stored}");
            for further in 0..4 {
                let message_id = id(&format!("{number:x}{further:031x}"), 0);
                bob.hear(message("carol", &message_id, &segments(b"more")[0]));
                deliver(&mut bob);
            }
            assert!(!bob.holds(&id(ONE, 0)));
        }
    }
}

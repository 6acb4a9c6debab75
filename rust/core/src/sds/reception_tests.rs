//! What becomes of messages that came before, or ask for something.

use super::outgoing::FINISHED_CONTENTS_MAX;
use super::sync::lacking::statement;
use super::tests::{
    Bob, ONE, OTHER, T_MAX_MS, asked_ms, asks_for, at, config, id, message, named, names, sync,
};
use super::*;
use crate::wire::sds::Message;

const WINDOW_MS: i64 = 10_000;

/// What is older than the window is replayed.
fn with_window() -> Bob {
    Bob::of(Config {
        replay_window_ms: WINDOW_MS,
        ..config()
    })
}

/// As old as what was made at the beginning.
fn old(message: Message) -> Message {
    Message {
        lamport_timestamp: Some(at(0).epoch_ms as u64),
        ..message
    }
}

fn is_content(event: &Event) -> bool {
    matches!(event, Event::ContentReceived { .. })
}

#[test]
fn an_old_content_under_the_id_of_another_is_replayed_unless_a_store_has_it() {
    for (from_store, reason) in [(false, Dropped::Replayed), (true, Dropped::Duplicate)] {
        let mut bob = with_window();
        bob.hear(message("alice", "shared", b"of alice"));
        bob.wait_until(2 * WINDOW_MS);
        let events = bob.hear_of(old(message("mallory", "shared", b"of mallory")), from_store);
        assert_eq!(events.iter().any(is_content), from_store);
        let is_dropped = events.contains(&Event::MessageDropped(reason));
        assert_eq!(is_dropped, !from_store);
    }
}

#[test]
fn what_was_recovered_and_comes_late_is_looked_at_however_old_it_is() {
    let mut bob = with_window();
    bob.hear_content(ONE, 0, [2, 1]);
    bob.machine
        .handle_send_reconstructed(None, "alice", ONE, 2, &[], at(0));
    bob.events();
    bob.wait_until(2 * WINDOW_MS);
    let came = old(message("alice", &id(ONE, 1), b"the other"));
    let events = bob.hear_of(came, false);
    assert!(events.iter().any(is_content), "{events:?}");
}

#[test]
fn a_content_beside_another_of_its_id_is_handed_up_once() {
    let mut bob = Bob::new();
    bob.hear(message("alice", "shared", b"of alice"));
    for is_new in [true, false] {
        let events = bob.hear(message("mallory", "shared", b"of mallory"));
        assert_eq!(events.iter().any(is_content), is_new);
    }
}

#[test]
fn who_asks_for_what_is_missing_here_too_puts_that_off() {
    let mut bob = Bob::new();
    bob.hear(names("carol", &["missing".into()]));
    let at_ms = asked_ms("missing") - 1;
    assert_eq!(bob.requests_until(at_ms), []);
    bob.hear(asks_for("carol", "missing"));
    let at_ms = at_ms + T_MAX_MS + asked_ms("missing");
    assert_eq!(bob.requests_until(at_ms), [(at_ms, "missing".into())]);
}

/// How often counts for how soon it is asked for again.
#[test]
fn what_one_message_asks_for_many_times_was_asked_for_once() {
    let mut bob = Bob::new();
    bob.hear(names("carol", &["missing".into()]));
    let mut request = asks_for("carol", "missing");
    request.repair_request = vec![named("missing"); 50];
    bob.hear(request);
    assert_eq!(bob.machine.asking.asked_for("missing"), (0, 1));
}

#[test]
fn requests_are_heeded_once_and_not_out_of_a_store() {
    for (times, from_store, count) in [(1, false, 1), (2, false, 1), (1, true, 0)] {
        let mut bob = Bob::new();
        bob.hear(message("alice", "held", b"content"));
        let request = Message {
            message_id: "one request".into(),
            ..asks_for("carol", "held")
        };
        let mut answers = 0;
        for _ in 0..times {
            bob.hear_of(old(request.clone()), from_store);
            answers += bob.wait_until(bob.now_ms + 10 * T_MAX_MS).len();
        }
        assert_eq!(answers, count, "{times} {from_store}");
    }
}

#[test]
fn so_many_requests_of_one_message_are_heard() {
    let mut bob = Bob::new();
    bob.hear(message("alice", "held", b"content"));
    for (before, is_heard) in [(reception::REQUESTS_HEARD_MAX, false), (99, true)] {
        let mut request = sync("carol");
        let others = (0..before).map(|number| named(&format!("unknown {number}")));
        request.repair_request = others.chain([named("held")]).collect();
        bob.hear(request);
        let left = bob.wait_until(bob.now_ms + T_MAX_MS);
        assert_eq!(!left.is_empty(), is_heard, "{before}");
    }
}

#[test]
fn a_message_of_another_channel_or_without_an_id_is_dropped() {
    let long = |bytes: usize| "x".repeat(bytes);
    for (channel_id, message_id, sender_id, reason) in [
        ("rooms", "x", "alice".into(), Some(Dropped::OtherChannel)),
        ("room", "x\0", "alice".into(), Some(Dropped::Undecodable)),
        ("room", "x", long(257), Some(Dropped::OverLimit)),
        (
            "room",
            &*long(257),
            "alice".into(),
            Some(Dropped::OverLimit),
        ),
        ("room", &*long(256), long(256), None),
    ] {
        let mut bob = Bob::new();
        let came = Message {
            channel_id: channel_id.into(),
            ..message(&sender_id, message_id, b"content")
        };
        let events = bob.hear(came);
        let dropped = events.iter().find_map(|event| match event {
            Event::MessageDropped(reason) => Some(*reason),
            _ => None,
        });
        assert_eq!(dropped, reason, "{channel_id} {message_id} {sender_id}");
        assert_eq!(events.iter().any(is_content), reason.is_none());
    }
}

#[test]
fn a_message_under_our_name_is_a_conflict_unless_it_is_of_an_earlier_life() {
    let before = at(-1).epoch_ms as u64;
    for (lamport, from_store, is_conflict) in [
        (before + 1, false, true),
        (before, false, false),
        (before + 1, true, false),
    ] {
        let mut bob = Bob::new();
        let came = Message {
            lamport_timestamp: Some(lamport),
            ..message("bob", &id(OTHER, 0), b"content")
        };
        let events = bob.hear_of(came, from_store);
        let is_told = |event: &Event| matches!(event, Event::SenderIdConflict { .. });
        assert_eq!(
            events.iter().any(is_told),
            is_conflict,
            "{lamport} {from_store}"
        );
    }
}

#[test]
fn an_old_content_is_taken_in_where_it_is_wanted_or_a_store_has_it() {
    for (window_ms, is_named, is_begun, from_store, is_taken) in [
        (0, false, false, false, true),
        (WINDOW_MS, false, false, false, false),
        (WINDOW_MS, true, false, false, true),
        (WINDOW_MS, false, true, false, true),
        (WINDOW_MS, false, false, true, true),
    ] {
        let mut bob = Bob::of(Config {
            replay_window_ms: window_ms,
            ..config()
        });
        if is_begun {
            bob.hear_content(ONE, 0, [3, 0]);
        }
        bob.now_ms = 2 * WINDOW_MS;
        if is_named {
            bob.hear(names("carol", &[id(ONE, 1)]));
        }
        let events = bob.hear_of(old(message("alice", &id(ONE, 1), b"content")), from_store);
        let case = (window_ms, is_named, is_begun, from_store);
        assert_eq!(events.iter().any(is_content), is_taken, "{case:?}");
    }
}

#[test]
fn what_comes_again_is_said_again_where_its_sender_may_not_have_heard_it() {
    const TIMEOUT_MS: i64 = 400;
    for (waits_ms, is_asked_for, from_store, is_said) in [
        (TIMEOUT_MS, false, false, true),
        (10, false, false, false),
        (TIMEOUT_MS, false, true, false),
        (TIMEOUT_MS, true, false, false),
    ] {
        let mut bob = Bob::of(Config {
            acknowledgement_sync: true,
            ..config()
        });
        let held = message("alice", "held", b"content");
        bob.hear(held.clone());
        bob.machine
            .handle_send_reconstructed(None, "alice", "held", 1, &[], at(0));
        let said = bob.wait_until(10 * TIMEOUT_MS);
        let (said_ms, _) = said.last().expect("it is said");
        bob.now_ms = said_ms + waits_ms;
        if is_asked_for {
            bob.hear(asks_for("carol", "held"));
        }
        bob.hear_of(old(held), from_store);
        let left = bob.wait_until(bob.now_ms + TIMEOUT_MS);
        let case = (waits_ms, is_asked_for, from_store);
        assert_eq!(!left.is_empty(), is_said, "{case:?}");
    }
}

#[test]
fn what_one_scheduled_sync_cannot_name_follows_however_long_the_causal_history_is() {
    const INTERVAL_MS: i64 = 30_000;
    let mut bob = Bob::of(Config {
        causal_history_size: 200,
        bloom_interval_ms: 0,
        sync_min_interval_ms: INTERVAL_MS,
        header_bytes_max: 1_500,
        ..config()
    });
    let came: Vec<String> = (0..200).map(|number| format!("content {number}")).collect();
    for message_id in &came {
        bob.hear(message("alice", message_id, b"content"));
        bob.machine
            .handle_send_reconstructed(None, "alice", message_id, 1, &[], at(0));
    }
    // The schedule alone has one sync in this time.
    let left = bob.wait_until(INTERVAL_MS);
    let mut said = std::collections::HashSet::new();
    for (_, sync) in &left {
        assert!(sync.payload.len() <= 1_500);
        let sync = Message::decode(&sync.payload, config().wire_format).unwrap();
        assert_eq!(sync.bloom_filter, None);
        said.extend(
            sync.causal_history
                .into_iter()
                .map(|entry| entry.message_id),
        );
    }
    let unsaid: Vec<_> = came.iter().filter(|id| !said.contains(*id)).collect();
    assert_eq!(unsaid, Vec::<&String>::new());
    // Half of a header names some twenty, and all that was said is said twice more.
    assert!(left.len() <= 40, "{}", left.len());
}

#[test]
fn an_echo_of_ours_is_ours_and_anything_else_under_our_name_a_conflict() {
    let mut bob = Bob::new();
    let content = Octets::from(&b"typing"[..]);
    bob.machine.send_ephemeral(OTHER, content).unwrap();
    bob.machine
        .send(ONE, vec![Octets::from(&b"one"[..])], 1)
        .unwrap();
    bob.hear(names("carol", &["missing".into()]));
    let left = bob.wait_until(T_MAX_MS);
    let kinds = [
        TransmitKind::Ephemeral,
        TransmitKind::First,
        TransmitKind::Sync,
    ];
    for kind in kinds {
        let echo = left.iter().find(|(_, transmit)| transmit.kind == kind);
        let echo = &echo.expect("it left").1.payload;
        bob.machine.handle_message(echo, None, false, at(T_MAX_MS));
        assert_eq!(
            bob.events(),
            [Event::MessageDropped(Dropped::Own)],
            "{kind:?}"
        );
    }
    for message_id in ["sync-1", "another"] {
        let came = Message {
            message_id: message_id.into(),
            ..sync("bob")
        };
        let events = bob.hear(came);
        assert!(
            matches!(events[..], [Event::SenderIdConflict { .. }]),
            "{message_id}"
        );
    }
}

#[test]
fn what_is_repeated_of_ours_after_it_left_the_log_is_no_conflict() {
    let mut bob = Bob::of(Config {
        log_messages_max: FINISHED_CONTENTS_MAX,
        ..config()
    });
    let mut wires = Vec::new();
    // More finished sends than are remembered.
    for number in 0..FINISHED_CONTENTS_MAX + 2 {
        let content = Octets::from(number.to_string().into_bytes());
        let send_id = format!("{number:032x}");
        bob.machine.send(&send_id, vec![content], 1).unwrap();
        wires.extend(bob.leaving().into_iter().map(|transmit| transmit.payload));
        bob.hear(names("alice", &[id(&send_id, 0)]));
        bob.events();
    }
    let first = id(&format!("{:032x}", 0), 0);
    assert!(!bob.machine.holds(&first));
    assert!(
        bob.machine
            .outgoing
            .find_content(first.as_bytes())
            .is_none()
    );
    let now = at(bob.now_ms);
    bob.machine.handle_message(&wires[0], None, false, now);
    assert_eq!(bob.events(), [Event::MessageDropped(Dropped::Own)]);
}

#[test]
fn nothing_is_taken_in_under_the_id_of_a_content_of_ours_that_has_yet_to_leave() {
    let mut bob = Bob::new();
    bob.machine
        .send(ONE, vec![Octets::from(&b"one"[..])], 1)
        .unwrap();
    let events = bob.hear(message("mallory", &id(ONE, 0), b"forged"));
    assert_eq!(events, [Event::MessageDropped(Dropped::Duplicate)]);
}

#[test]
fn an_ephemeral_message_is_told_once_and_is_parity_only_where_members_make_it() {
    for members_make_parity in [true, false] {
        let mut bob = Bob::of(Config {
            members_make_parity,
            ..config()
        });
        let came = Message {
            lamport_timestamp: None,
            repair_request: vec![statement(ONE, 0, "alice")],
            ..message("carol", "typing", b"content")
        };
        let data = Octets::from(came.encode(config().wire_format).unwrap());
        bob.machine.handle_message(&data, None, false, at(0));
        let event = bob.events().remove(0);
        let is_parity = matches!(event, Event::ParityReceived { .. });
        assert_eq!(is_parity, members_make_parity);
        assert_eq!(matches!(event, Event::EphemeralReceived { .. }), !is_parity);
        bob.machine.handle_message(&data, None, false, at(0));
        assert_eq!(bob.events(), [Event::MessageDropped(Dropped::Duplicate)]);
    }
}

#[test]
fn what_there_is_no_room_for_was_never_received() {
    let mut bob = Bob::of(Config {
        incoming_buffer_messages_max: 1,
        ..config()
    });
    bob.hear_content(ONE, 0, [2, 0]);
    let events = bob.hear(message("alice", &id(OTHER, 0), b"content"));
    assert_eq!(events, [Event::MessageDropped(Dropped::OverLimit)]);
    assert!(!bob.machine.holds(&id(OTHER, 0)));
}

#[test]
fn no_peer_moves_our_time_further_than_the_skew() {
    let mut bob = Bob::new();
    let came = Message {
        lamport_timestamp: Some(u64::MAX),
        ..message("mallory", "ahead", b"content")
    };
    bob.hear_of(came, false);
    bob.machine
        .handle_send_reconstructed(None, "mallory", "ahead", 1, &[], at(0));
    let skew_ms = config().max_lamport_skew_ms;
    assert_eq!(bob.machine.lamport_timestamp(), at(skew_ms).epoch_ms as u64);
}

/// Of a content that another participant sent under the same send id nothing becomes whole.
#[test]
fn a_message_becomes_whole_with_its_own_contents_whichever_other_has_its_name() {
    let mut bob = Bob::new();
    for (sender, ordinal) in [("mallory", 0), ("alice", 1)] {
        bob.hear(message(sender, &id(ONE, ordinal), sender.as_bytes()));
    }
    let names = [id(ONE, 0), id(ONE, 1), "unknown".to_owned()];
    for (before, named) in names.iter().enumerate() {
        let machine = &mut bob.machine;
        let is_first = machine.handle_send_abandoned(Some(named), "dave", ONE, false, at(0));
        assert_eq!(is_first, before == 0);
    }
    bob.machine
        .handle_send_reconstructed(Some(&id(ONE, 0)), "alice", ONE, 1, &[], at(0));
    let released = bob.events();
    let is_of = |event: &Event, of: &str| matches!(event, Event::SendReleased { sender_id, .. } if **sender_id == *of);
    assert!(released.iter().any(|event| is_of(event, "alice")));
    assert!(!released.iter().any(|event| is_of(event, "mallory")));
    assert!(bob.machine.holds(&id(ONE, 0)));
    let stats = bob.machine.stats();
    let mut stats = stats.into_iter();
    let held = stats.find(|(name, _)| *name == "incoming_contents");
    assert_eq!(held.map(|(_, count)| count), Some(1));
}

#[test]
fn a_hint_that_is_too_long_to_be_one_is_not_kept() {
    for (length, is_kept) in [(256, true), (257, false)] {
        let mut bob = Bob::new();
        let hint = vec![1; length];
        let came = message("alice", &id(ONE, 0), b"content");
        let data = Octets::from(came.encode(config().wire_format).unwrap());
        bob.machine.handle_message(&data, Some(&hint), false, at(0));
        let held = bob.machine.log.find(id(ONE, 0).as_bytes());
        let held = held.and_then(|held| bob.machine.log.get(held)).unwrap();
        let kept = held.retrieval_hint.as_bytes();
        assert_eq!(kept, is_kept.then_some(&*hint), "{length}");
    }
}

#[test]
fn a_message_that_waits_stays_what_it_was_read_as() {
    let mut bob = Bob::new();
    bob.hear(Message {
        causal_history: vec![named("cause")],
        ..message("alice", "waits", b"content")
    });
    let place = |bob: &mut Bob, send_id: &str| {
        let place = Place {
            send_id,
            ordinal: Some(0),
            content_count: Some(1),
            contents_needed: Some(1),
        };
        bob.machine.handle_content_placed("waits", place, at(0));
    };
    bob.hear(message("alice", "other", b"content"));
    let other = Place {
        send_id: "elsewhere",
        ordinal: Some(0),
        content_count: Some(2),
        contents_needed: Some(2),
    };
    bob.machine.handle_content_placed("other", other, at(0));
    place(&mut bob, "waits");
    bob.machine
        .handle_send_reconstructed(Some("waits"), "alice", "waits", 1, &[], at(0));
    place(&mut bob, "elsewhere");
    bob.events();
    bob.now_ms = 1 << 40;
    bob.machine.handle_timeout(at(bob.now_ms));
    let is_released = |event: &Event| matches!(event, Event::SendReleased { send_id, .. } if **send_id == *"waits");
    assert!(bob.events().iter().any(is_released));
}

// --- answers --------------------------------------------------------------------------------------

fn answers_held(bob: &Bob) -> usize {
    bob.machine.answering.answers_held()
}

/// Bob sent a content; gives its message.
fn having_sent() -> (Bob, Octets) {
    let mut bob = Bob::new();
    let content = Octets::from(&b"one"[..]);
    bob.machine.send(ONE, vec![content], 1).unwrap();
    let left = bob.leaving().remove(0);
    (bob, left.payload)
}

#[test]
fn what_others_send_of_ours_answers_who_asked_unless_a_store_has_it() {
    for (from_store, left) in [(false, 0), (true, 1)] {
        let (mut bob, sent) = having_sent();
        bob.hear(asks_for("carol", &id(ONE, 0)));
        assert_eq!(answers_held(&bob), 1);
        bob.machine.handle_message(&sent, None, from_store, at(0));
        assert_eq!(answers_held(&bob), left, "{from_store}");
    }
}

#[test]
fn what_is_held_is_sent_again_where_another_content_is_heard_under_its_id() {
    for (from_store, count) in [(false, 1), (true, 0)] {
        let (mut bob, _) = having_sent();
        bob.hear_of(message("bob", &id(ONE, 0), b"another"), from_store);
        assert_eq!(answers_held(&bob), count, "ours {from_store}");
        let mut bob = Bob::new();
        bob.hear(message("alice", "held", b"content"));
        bob.hear_of(message("mallory", "held", b"another"), from_store);
        assert_eq!(answers_held(&bob), count, "of alice {from_store}");
    }
}

#[test]
fn another_content_under_its_id_answers_nobody() {
    let mut bob = Bob::new();
    bob.hear(message("alice", "held", b"content"));
    bob.hear(asks_for("carol", "held"));
    bob.hear(message("alice", "held", b"another"));
    assert_eq!(answers_held(&bob), 1);
    bob.hear(message("alice", "held", b"content"));
    // It is stood by still.
    let left = bob.wait_until(10 * T_MAX_MS);
    assert!(!left.is_empty());
}

#[test]
fn a_number_asks_for_nothing_by_its_name() {
    let mut bob = Bob::new();
    let number = statement(ONE, 1, "alice");
    bob.hear(message("mallory", &number.message_id, b"content"));
    bob.hear(Message {
        repair_request: vec![number],
        ..sync("carol")
    });
    assert_eq!(answers_held(&bob), 0);
}

// --- acknowledgements of what comes again -----------------------------------------------------------

/// As short as in [`config`].
const TIMEOUT_MS: i64 = 400;

/// Acknowledges in a time of its own.
fn prompt() -> Bob {
    Bob::of(Config {
        acknowledgement_sync: true,
        ..config()
    })
}

/// What the syncs of a while name.
fn named_within(bob: &mut Bob, duration_ms: i64) -> Vec<String> {
    let left = bob.wait_until(bob.now_ms + duration_ms).into_iter();
    let histories = left.map(|(_, transmit)| {
        let sync = Message::decode(&transmit.payload, config().wire_format).unwrap();
        sync.causal_history
    });
    histories.flatten().map(|entry| entry.message_id).collect()
}

/// Bob has a content of alice that parity brought back, and said so.
fn recovered() -> Bob {
    let mut bob = prompt();
    bob.hear_content(ONE, 0, [2, 1]);
    bob.machine
        .handle_send_reconstructed(None, "alice", ONE, 2, &[], at(0));
    assert!(named_within(&mut bob, TIMEOUT_MS).contains(&id(ONE, 1)));
    bob.now_ms += TIMEOUT_MS;
    bob
}

#[test]
fn what_was_recovered_is_said_again_when_its_sender_sends_it() {
    let mut bob = recovered();
    let events = bob.hear(message("alice", &id(ONE, 1), b"the other"));
    assert!(events.iter().any(is_content));
    assert!(named_within(&mut bob, TIMEOUT_MS).contains(&id(ONE, 1)));
}

#[test]
fn what_another_one_sends_under_the_id_of_what_was_recovered_is_no_request() {
    let mut bob = recovered();
    bob.hear(message("mallory", &id(ONE, 1), b"forged"));
    bob.wait_until(bob.now_ms + TIMEOUT_MS);
    bob.hear(message("alice", &id(ONE, 1), b"the other"));
    assert!(named_within(&mut bob, TIMEOUT_MS).contains(&id(ONE, 1)));
}

#[test]
fn what_must_not_be_said_is_not_said_however_often_it_comes() {
    for is_doubted in [false, true] {
        let mut bob = prompt();
        bob.hear_content(ONE, 0, [3, 1]);
        if is_doubted {
            let message_id = id(ONE, 0);
            bob.machine
                .handle_content_doubted(&message_id, "alice", ONE);
        }
        let content = format!("0 of {ONE}");
        bob.hear(message("alice", &id(ONE, 0), content.as_bytes()));
        let is_said = named_within(&mut bob, TIMEOUT_MS).contains(&id(ONE, 0));
        assert_eq!(is_said, !is_doubted);
    }
}

#[test]
fn nobody_acknowledges_a_content_of_its_own() {
    let (mut bob, _) = having_sent();
    for _ in 0..2 {
        bob.hear(message("mallory", &id(ONE, 0), b"one"));
        assert_eq!(bob.machine.acknowledgements.len(), 0);
    }
}

#[test]
fn a_content_that_comes_twice_before_it_is_said_has_no_sibling_said_again() {
    let mut bob = prompt();
    bob.hear_content(ONE, 0, [3, 1]);
    assert_eq!(named_within(&mut bob, TIMEOUT_MS), [id(ONE, 0)]);
    // Later than syncs repeat what they said.
    bob.wait_until(4 * TIMEOUT_MS);
    for _ in 0..2 {
        bob.hear_content(ONE, 1, [3, 1]);
    }
    assert_eq!(named_within(&mut bob, TIMEOUT_MS / 4), [id(ONE, 1)]);
}

// --- filters --------------------------------------------------------------------------------------

/// A filter of carol comes with it; gives whether bob's leaves then, and what is named beside it.
fn answer_to_filter(came: Message, from_store: bool, bits: u8) -> (bool, Vec<String>) {
    let mut bob = Bob::new();
    bob.hear(message("alice", "held", b"content"));
    bob.machine
        .handle_send_reconstructed(None, "alice", "held", 1, &[], at(0));
    bob.leaving();
    bob.now_ms = 4 * TIMEOUT_MS;
    let filter = vec![bits; bob.machine.filter.size_bytes()];
    let came = Message {
        bloom_filter: Some(filter),
        ..came
    };
    bob.hear_of(came, from_store);
    let (mut has_left, mut named) = (false, Vec::new());
    for (_, transmit) in bob.wait_until(10 * T_MAX_MS) {
        let sync = Message::decode(&transmit.payload, config().wire_format).unwrap();
        has_left |= sync.bloom_filter.is_some();
        named.extend(
            sync.causal_history
                .into_iter()
                .map(|entry| entry.message_id),
        );
    }
    (has_left, named)
}

#[test]
fn a_filter_that_a_sync_brings_and_holds_more_than_ours_is_answered_by_that() {
    let content = || message("carol", "other", b"content");
    for (came, from_store, is_answered) in [
        (sync("carol"), false, true),
        (sync("carol"), true, false),
        (content(), false, false),
    ] {
        let (has_left, _) = answer_to_filter(came, from_store, u8::MAX);
        assert_eq!(has_left, is_answered, "{from_store}");
    }
}

#[test]
fn what_a_filter_lacks_that_a_sync_brings_is_named_in_time() {
    let (_, named) = answer_to_filter(sync("carol"), false, 0);
    assert_eq!(named, ["held"]);
}

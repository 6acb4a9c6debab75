//! What is waited for, asked for, and given up of what others sent.

use super::outgoing_tests::Stored;
use super::tests::{Bob, ONE, OTHER, T_MAX_MS, WINDOW_MS, at, config, id, message, named, names};
use super::*;
use crate::wire::sds::{HistoryEntry, Message};

pub(super) const TIMEOUT_MS: i64 = 4 * WINDOW_MS;
pub(super) const LOST_MS: i64 = 10_000;

pub(super) fn stat(bob: &Bob, name: &str) -> usize {
    let stats = bob.machine.stats();
    let mut stats = stats.into_iter();
    stats.find(|(known, _)| *known == name).unwrap().1
}

pub(super) fn missing(bob: &Bob) -> Vec<String> {
    let missing = bob.machine.missing();
    missing.map(|entry| entry.message_id.clone()).collect()
}

/// A message of `sender_id` in one content, which follows these.
pub(super) fn follows(sender_id: &str, message_id: &str, causes: &[&str]) -> Message {
    Message {
        causal_history: causes.iter().map(|cause| named(cause)).collect(),
        ..message(sender_id, message_id, b"content")
    }
}

/// Hears a message in one content, which is whole with it. Gives what is released.
pub(super) fn hear_whole(bob: &mut Bob, message: Message) -> Vec<String> {
    let (sender_id, message_id) = (message.sender_id.clone(), message.message_id.clone());
    let mut events = bob.hear(message);
    let now = at(bob.now_ms);
    bob.machine
        .handle_send_reconstructed(None, &sender_id, &message_id, 1, &[], now);
    events.extend(bob.events());
    released(events)
}

pub(super) fn released(events: Vec<Event>) -> Vec<String> {
    let released = events.into_iter().filter_map(|event| match event {
        Event::SendReleased { send_id, .. } => Some(send_id.to_string()),
        _ => None,
    });
    released.collect()
}

/// Nobody answers, and what is missing for long is lost. Bob has heard alice and carol before.
pub(super) fn losing() -> Bob {
    let mut bob = Bob::of(Config {
        timeout_for_lost_messages_ms: LOST_MS,
        enable_repair: false,
        ..config()
    });
    // What who is heard first speaks of may be older.
    for sender_id in ["alice", "carol"] {
        hear_whole(
            &mut bob,
            follows(sender_id, &format!("of {sender_id}"), &[]),
        );
    }
    bob
}

/// The name of a message that is said to be somebody's.
pub(super) fn named_of(message_id: &str, sender_id: &str) -> HistoryEntry {
    HistoryEntry {
        sender_id: Some(sender_id.into()),
        ..named(message_id)
    }
}

/// Carol names this and sends nothing.
pub(super) fn hear_named(bob: &mut Bob, entry: HistoryEntry) -> Vec<Event> {
    bob.hear(Message {
        causal_history: vec![entry],
        ..names("carol", &[])
    })
}

/// The owner has all of a send of alice. Gives what is released.
pub(super) fn make_whole(
    bob: &mut Bob,
    send_id: &str,
    count: u32,
    inferred: &[Name],
) -> Vec<String> {
    let now = at(bob.now_ms);
    bob.machine
        .handle_send_reconstructed(None, "alice", send_id, count, inferred, now);
    released(bob.events())
}

/// Time is `at_ms`. Gives what happens then.
pub(super) fn happens_at(bob: &mut Bob, at_ms: i64) -> Vec<Event> {
    bob.now_ms = at_ms;
    bob.machine.handle_timeout(at(at_ms));
    bob.events()
}

/// The owner gives up a send of alice. Gives whether that was news.
pub(super) fn abandon(bob: &mut Bob, send_id: &str, keeps_messages: bool) -> bool {
    let now = at(bob.now_ms);
    let is_news = bob
        .machine
        .handle_send_abandoned(None, "alice", send_id, keeps_messages, now);
    // Checks what is counted.
    bob.machine.poll_persist();
    is_news
}

// --- waiting --------------------------------------------------------------------------------------

#[test]
fn a_message_waits_for_all_that_it_follows() {
    let mut bob = Bob::new();
    assert!(hear_whole(&mut bob, follows("alice", "after", &["one", "two"])).is_empty());
    assert_eq!(hear_whole(&mut bob, follows("bert", "one", &[])), ["one"]);
    let released = hear_whole(&mut bob, follows("carol", "two", &[]));
    assert_eq!(released, ["two", "after"]);
    assert_eq!(
        (stat(&bob, "incoming_pairs"), stat(&bob, "incoming_sends")),
        (0, 0)
    );
}

#[test]
fn a_message_goes_when_what_it_follows_is_lost_or_it_waited_long_enough() {
    for timeout_for_lost_messages_ms in [10_000, 0] {
        let mut bob = Bob::of(Config {
            timeout_for_lost_messages_ms,
            enable_repair: false,
            ..config()
        });
        // What who is heard first speaks of may be older.
        hear_whole(&mut bob, follows("alice", "before", &[]));
        hear_whole(&mut bob, follows("alice", "after", &["missing"]));
        let due_ms = bob.machine.poll_timeout().expect("it waits");
        if timeout_for_lost_messages_ms > 0 {
            assert_eq!(due_ms, timeout_for_lost_messages_ms);
        }
        bob.machine.handle_timeout(at(due_ms - 1));
        assert!(released(bob.events()).is_empty());
        bob.machine.handle_timeout(at(due_ms));
        assert_eq!(released(bob.events()), ["after"]);
    }
}

/// Of three contents one is here: the others are lost when nothing came for so long.
#[test]
fn what_follows_a_message_that_is_partly_here_goes_on_when_that_is_lost() {
    let mut bob = losing();
    bob.hear_content(ONE, 0, [3, 0]);
    assert!(hear_whole(&mut bob, follows("carol", "after", &[&id(ONE, 0)])).is_empty());
    for (at_ms, expected) in [(LOST_MS - 1, &[][..]), (LOST_MS, &["after"])] {
        bob.machine.handle_timeout(at(at_ms));
        assert_eq!(released(bob.events()), expected);
    }
}

#[test]
fn where_there_is_no_room_who_waits_longest_goes_first() {
    let mut bob = Bob::of(Config {
        incoming_buffer_messages_max: 2,
        ..config()
    });
    for message_id in ["one", "two"] {
        assert!(hear_whole(&mut bob, follows("alice", message_id, &["missing"])).is_empty());
    }
    let released = hear_whole(&mut bob, follows("alice", "three", &["missing"]));
    assert_eq!(released, ["one"]);
    assert_eq!(stat(&bob, "incoming_contents"), 2);
}

// --- what is missing ------------------------------------------------------------------------------

#[test]
fn a_content_does_not_wait_for_its_siblings() {
    let mut bob = Bob::new();
    bob.hear(follows("alice", &id(ONE, 0), &[&id(ONE, 1)]));
    assert!(missing(&bob).is_empty());
}

#[test]
fn what_is_too_long_to_be_a_hint_or_a_sender_is_not_kept() {
    for (bytes, is_kept) in [(256, true), (257, false)] {
        let hint = HistoryEntry {
            message_id: "hint".into(),
            retrieval_hint: Some(vec![1; bytes]),
            sender_id: None,
        };
        let sender = HistoryEntry {
            message_id: "sender".into(),
            retrieval_hint: None,
            sender_id: Some("x".repeat(bytes)),
        };
        let mut bob = Bob::new();
        bob.hear(Message {
            causal_history: vec![hint, sender],
            ..names("carol", &[])
        });
        let kept = |name: &str| bob.machine.missing_entry(name).unwrap().0.clone();
        assert_eq!(kept("hint").retrieval_hint.is_some(), is_kept);
        assert_eq!(kept("sender").sender_id.is_some(), is_kept);
    }
}

/// Its header announces more than is asked for at once.
#[test]
fn of_what_is_only_announced_twice_as_many_as_came_and_some_are_asked_for_in_each_round() {
    const AT_ONCE: usize = 8 + 2;
    let mut bob = Bob::new();
    bob.hear_content(ONE, 0, [100, 0]);
    for (round, count) in [(1, AT_ONCE), (2, 2 * AT_ONCE)] {
        bob.machine.handle_timeout(at(round * TIMEOUT_MS - 1));
        assert_eq!(missing(&bob).len(), count - AT_ONCE);
        bob.machine.handle_timeout(at(round * TIMEOUT_MS));
        let asked: Vec<_> = (1..=count as u32).map(|ordinal| id(ONE, ordinal)).collect();
        assert_eq!(missing(&bob), asked);
    }
}

#[test]
fn what_came_or_is_of_no_more_use_is_asked_for_no_more() {
    let ends: [&dyn Fn(&mut Bob); 3] = [
        &|bob| {
            for ordinal in 1..3 {
                bob.hear_content(ONE, ordinal, [3, 1]);
            }
        },
        &|bob| {
            let now = at(bob.now_ms);
            bob.machine
                .handle_send_reconstructed(None, "alice", ONE, 4, &[], now);
        },
        &|bob| {
            let now = at(bob.now_ms);
            bob.machine
                .handle_send_abandoned(None, "alice", ONE, false, now);
        },
    ];
    for end in ends {
        let mut bob = Bob::new();
        bob.hear_content(ONE, 0, [3, 1]);
        bob.now_ms = TIMEOUT_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
        assert_eq!(stat(&bob, "repair_requests"), 2);
        end(&mut bob);
        assert_eq!((stat(&bob, "repair_requests"), missing(&bob).len()), (0, 0));
    }
}

#[test]
fn what_gives_way_to_others_that_are_missing_is_asked_for_no_more() {
    let mut bob = Bob::of(Config {
        missing_messages_max: 2,
        ..config()
    });
    for message_id in ["one", "two", "three"] {
        bob.hear(names("carol", &[message_id.to_owned()]));
    }
    assert_eq!(missing(&bob), ["two", "three"]);
    assert_eq!(stat(&bob, "repair_requests"), 2);
    assert_eq!(stat(&bob, "incoming_sends"), 2);
}

// --- given up -------------------------------------------------------------------------------------

/// Two of three contents of a send came, and it is given up. Gives whether that was news.
pub(super) fn give_up(bob: &mut Bob, send_id: &str, keeps_messages: bool) -> bool {
    for ordinal in 0..2 {
        bob.hear_content(send_id, ordinal, [3, 1]);
    }
    abandon(bob, send_id, keeps_messages)
}

#[test]
fn a_send_that_is_given_up_is_news_once_and_its_contents_are_held_no_more() {
    let mut bob = Bob::new();
    for is_news in [true, false] {
        assert_eq!(give_up(&mut bob, ONE, true), is_news);
        assert_eq!(stat(&bob, "given_up_sends"), 1);
        assert!(!bob.machine.holds(&id(ONE, 0)));
        bob.machine.settle_filter();
        assert!(!bob.machine.filter.filter().contains(&id(ONE, 0)));
        assert_eq!(stat(&bob, "unsaid_acknowledgements"), 0);
    }
}

#[test]
fn what_is_lacking_of_a_send_that_is_given_up_is_asked_for_where_its_messages_are_kept() {
    for (keeps_messages, asked) in [(true, vec![id(ONE, 2)]), (false, vec![])] {
        let mut bob = Bob::new();
        give_up(&mut bob, ONE, keeps_messages);
        assert_eq!(missing(&bob), asked);
        assert_eq!(stat(&bob, "original_bytes") > 0, keeps_messages);
        // Nothing waits for it.
        let after = follows("carol", "after", &[&id(ONE, 2)]);
        assert_eq!(hear_whole(&mut bob, after), ["after"]);
    }
}

#[test]
fn what_is_lacking_of_a_send_that_is_given_up_is_no_reason_for_a_sync() {
    for is_given_up in [true, false] {
        let mut bob = Bob::of(Config {
            sync_min_interval_ms: 1_000 * T_MAX_MS,
            ..config()
        });
        if is_given_up {
            give_up(&mut bob, ONE, true);
        } else {
            hear_named(&mut bob, named(&id(ONE, 2)));
        }
        let requests = bob.requests_until(2 * T_MAX_MS);
        assert_eq!(requests.is_empty(), is_given_up);
    }
}

#[test]
fn so_many_sends_that_are_given_up_are_remembered_with_so_many_messages() {
    let mut bob = Bob::of(Config {
        missing_messages_max: 2,
        ..config()
    });
    let mut bytes = Vec::new();
    for number in 1..=3 {
        give_up(&mut bob, &format!("{number:032x}"), true);
        assert_eq!(stat(&bob, "given_up_sends"), number.min(2));
        bytes.push(stat(&bob, "original_bytes"));
    }
    // Of the last one alone.
    assert_eq!(bytes[1..], [bytes[0], bytes[0]]);
}

#[test]
fn the_messages_of_a_send_that_is_remembered_no_more_go_and_those_of_the_last_one_stay() {
    // How many contents of each send came.
    for counts in [&[1, 1, 1][..], &[3]] {
        let mut bob = Bob::of(Config {
            missing_messages_max: 2,
            ..config()
        });
        let mut bytes = Vec::new();
        for (number, count) in counts.iter().enumerate() {
            let send_id = format!("{number:032x}");
            for ordinal in 0..*count {
                bob.hear_content(&send_id, ordinal, [5, 0]);
            }
            bytes.push(stat(&bob, "original_bytes"));
            abandon(&mut bob, &send_id, true);
        }
        let kept = if counts.len() == 1 {
            bytes[0]
        } else {
            2 * bytes[0]
        };
        assert_eq!(stat(&bob, "original_bytes"), kept, "{counts:?}");
    }
}

#[test]
fn what_follows_a_send_that_is_given_up_goes_on_and_that_waits_for_nothing() {
    let mut bob = Bob::new();
    bob.hear(follows("alice", &id(ONE, 0), &["cause"]));
    assert!(abandon(&mut bob, ONE, false));
    assert_eq!(stat(&bob, "incoming_pairs"), 0);
    // The first that comes again brings back none of the waiting.
    give_up(&mut bob, OTHER, false);
    bob.hear_content(OTHER, 0, [3, 1]);
    let after = follows("carol", "after", &[&id(OTHER, 0)]);
    assert_eq!(hear_whole(&mut bob, after), ["after"]);
}

#[test]
fn a_send_that_is_given_up_twice_is_said_once_all_is_held_that_was_said_at_any_time() {
    for ends in [abandoned_again, doubted] {
        let mut bob = Bob::of(Config {
            acknowledgement_sync: true,
            ..config()
        });
        give_up(&mut bob, ONE, false);
        bob.hear_content(ONE, 0, [3, 1]);
        let is_again = ends(&mut bob);
        for (ordinal, unsaid) in [(0, 0), (1, 2)] {
            if ordinal > 0 || is_again {
                bob.hear_content(ONE, ordinal, [3, 1]);
            }
            assert_eq!(stat(&bob, "unsaid_acknowledgements"), unsaid, "{ordinal}");
        }
        assert_eq!(stat(&bob, "given_up_sends"), 0);
    }
}

/// Gives whether the contents must come again.
fn abandoned_again(bob: &mut Bob) -> bool {
    abandon(bob, ONE, false);
    true
}

fn doubted(bob: &mut Bob) -> bool {
    bob.machine
        .handle_content_doubted(&id(ONE, 0), "alice", ONE);
    false
}

#[test]
fn what_is_said_again_is_kept_for_others_and_given_up_no_more() {
    let mut stored = Stored::default();
    let mut bob = Bob::new();
    give_up(&mut bob, ONE, false);
    stored.take(&mut bob);
    for ordinal in 0..2 {
        bob.hear_content(ONE, ordinal, [3, 1]);
        assert!(stat(&bob, "original_bytes") > 0);
    }
    let held = stat(&bob, "original_bytes");
    stored.take(&mut bob);
    assert_eq!(stat(&bob, "original_bytes"), held);
    let bob = stored.restart_as(Bob::new(), bob);
    assert_eq!(stat(&bob, "given_up_sends"), 0);
}

#[test]
fn a_message_that_is_whole_and_waits_is_not_to_be_doubted() {
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("alice", "whole", &["cause"]));
    bob.machine
        .handle_content_doubted("whole", "alice", "whole");
    assert_eq!(stat(&bob, "given_up_sends"), 0);
}

#[test]
fn nothing_is_said_of_what_comes_of_a_send_that_is_doubted() {
    let mut bob = Bob::of(Config {
        acknowledgement_sync: true,
        ..config()
    });
    bob.hear_content(ONE, 0, [3, 1]);
    bob.machine
        .handle_content_doubted(&id(ONE, 0), "alice", ONE);
    bob.hear_content(ONE, 1, [3, 1]);
    assert_eq!(stat(&bob, "unsaid_acknowledgements"), 0);
    // What others hold of it is not to be doubted.
    hear_whole(&mut bob, message("alice", "other", b"content"));
    assert_eq!(stat(&bob, "unsaid_acknowledgements"), 1);
    bob.machine.handle_content_doubted("other", "alice", ONE);
    assert_eq!(stat(&bob, "unsaid_acknowledgements"), 1);
}

#[test]
fn a_send_that_is_given_up_is_said_again_once_all_is_held_that_was_said() {
    let mut bob = Bob::of(Config {
        acknowledgement_sync: true,
        ..config()
    });
    give_up(&mut bob, ONE, false);
    give_up(&mut bob, ONE, false);
    for (ordinal, unsaid) in [(0, 0), (1, 2)] {
        bob.hear_content(ONE, ordinal, [3, 1]);
        assert_eq!(stat(&bob, "unsaid_acknowledgements"), unsaid, "{ordinal}");
    }
    assert_eq!(stat(&bob, "given_up_sends"), 0);
    bob.wait_until(T_MAX_MS);
    assert_eq!(stat(&bob, "unsaid_acknowledgements"), 0);
}

#[test]
fn what_was_said_in_an_earlier_life_stays_unknown_where_a_send_is_given_up_again() {
    let new = || {
        Bob::of(Config {
            acknowledgement_sync: true,
            ..config()
        })
    };
    let mut bob = new();
    bob.hear_content(ONE, 1, [3, 1]);
    let now = at(bob.now_ms);
    bob.machine
        .handle_send_abandoned(None, "alice", ONE, false, now);
    let mut bob = Stored::default().restart_as(new(), bob);
    for time in 0..2 {
        bob.hear_content(ONE, 0, [3, 1]);
        let unsaid = stat(&bob, "unsaid_acknowledgements");
        assert_eq!((unsaid, stat(&bob, "given_up_sends")), (0, 1), "{time}");
        abandon(&mut bob, ONE, false);
    }
}

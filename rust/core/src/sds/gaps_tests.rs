//! What is asked for and for how long, where others name it again, use its id, or do not have it.

use super::incoming_tests::{
    LOST_MS, TIMEOUT_MS, abandon, follows, happens_at, hear_named, hear_whole, losing, make_whole,
    missing, named_of, released, stat,
};
use super::outgoing_tests::Stored;
use super::tests::{Bob, ONE, T_MAX_MS, T_MIN_MS, at, config, id, message, named, names};
use super::*;
use crate::wire::sds::Message;

fn is_loss(event: &Event) -> bool {
    matches!(event, Event::DependencyLost(_))
}

/// A message in one content of carol, which follows this.
fn after(message_id: &str, cause: crate::wire::sds::HistoryEntry) -> Message {
    Message {
        causal_history: vec![cause],
        ..message("carol", message_id, b"content")
    }
}

/// `message` as it comes now.
fn data_of(bob: &Bob, message: Message) -> Octets {
    let came = Message {
        lamport_timestamp: Some(at(bob.now_ms).epoch_ms as u64),
        ..message
    };
    Octets::from(came.encode(config().wire_format).unwrap())
}

/// The content of this came, and is refused. Gives what is told of it.
fn refuse(bob: &mut Bob, message: Message, invalid: bool) -> Vec<Event> {
    let message_id = message.message_id.clone();
    let data = data_of(bob, message.clone());
    bob.hear(message);
    bob.machine
        .handle_content_refused(&message_id, &data, invalid);
    bob.events()
}

/// Ids of what is said to be missing.
fn told(events: &[Event]) -> Vec<&str> {
    let told = events.iter().filter_map(|event| match event {
        Event::MissingDetected(told) => Some(told),
        _ => None,
    });
    told.flatten()
        .map(|entry| entry.message_id.as_str())
        .collect()
}

// --- gaps of what is partly here ------------------------------------------------------------------

#[test]
fn gaps_are_told_once_each_though_something_was_named_before_all_of_it() {
    let mut bob = losing();
    hear_named(&mut bob, named(&id(ONE, 1)));
    bob.hear_content(ONE, 0, [3, 1]);
    assert_eq!(missing(&bob), [id(ONE, 1)]);
    let told = happens_at(&mut bob, TIMEOUT_MS);
    assert_eq!(missing(&bob), [id(ONE, 1), id(ONE, 2)]);
    assert_eq!(self::told(&told), [id(ONE, 2)]);
}

#[test]
fn what_is_named_of_a_message_whose_size_is_known_or_that_is_whole_is_left_to_parity() {
    for is_whole in [false, true] {
        let mut bob = Bob::new();
        if is_whole {
            bob.hear(follows("alice", &id(ONE, 0), &["cause"]));
            assert!(make_whole(&mut bob, ONE, 1, &[]).is_empty());
        } else {
            bob.hear_content(ONE, 0, [3, 0]);
        }
        let before = missing(&bob);
        hear_named(&mut bob, named(&id(ONE, 1)));
        assert_eq!(missing(&bob), before, "{is_whole}");
    }
}

#[test]
fn a_sender_who_fills_the_table_has_no_room_for_gaps_of_his_and_what_has_none_is_let_alone() {
    for (ids_name_sends, looked_at_again) in [(true, true), (false, false)] {
        let mut bob = Bob::of(Config {
            missing_messages_max: 1,
            enable_repair: false,
            ..config()
        });
        hear_whole(&mut bob, follows("alice", "before", &[]));
        bob.hear(names("alice", &["missing".into()]));
        let first = if ids_name_sends {
            id(ONE, 0)
        } else {
            "part".into()
        };
        bob.hear(message("alice", &first, b"content"));
        let place = Place {
            send_id: ONE,
            ordinal: Some(0),
            content_count: Some(2),
            contents_needed: Some(2),
        };
        bob.machine.handle_content_placed(&first, place, at(0));
        happens_at(&mut bob, TIMEOUT_MS);
        assert_eq!(missing(&bob), ["missing"]);
        assert_eq!(bob.machine.poll_timeout().is_some(), looked_at_again);
    }
}

#[test]
fn what_comes_of_a_message_that_is_lost_has_all_of_its_gaps_told_in_time() {
    let mut bob = Bob::of(Config {
        timeout_for_lost_messages_ms: TIMEOUT_MS,
        ..config()
    });
    bob.hear_content(ONE, 0, [100, 0]);
    happens_at(&mut bob, TIMEOUT_MS);
    bob.hear_content(ONE, 1, [100, 0]);
    // Twice as many as came and eight in each round, of twice the time between the two.
    for (round, last) in [(3, 13), (5, 25)] {
        happens_at(&mut bob, round * TIMEOUT_MS);
        let asked: Vec<_> = (2..=last).map(|ordinal| id(ONE, ordinal)).collect();
        assert_eq!(missing(&bob), asked);
    }
}

#[test]
fn the_rest_of_a_message_is_told_once_nothing_came_for_twice_the_time_between_its_contents() {
    for (members_make_parity, distance_ms, quiet_ms) in [
        // Soon, where a number brings what is lacking, and else not before its sender repeats it.
        (true, 1, TIMEOUT_MS / 2),
        (false, 1, TIMEOUT_MS),
        (true, TIMEOUT_MS, 2 * TIMEOUT_MS),
        (true, 5 * TIMEOUT_MS, 6 * TIMEOUT_MS),
        // After a pause nothing tells how they come.
        (true, 6 * TIMEOUT_MS, TIMEOUT_MS),
    ] {
        let mut bob = Bob::of(Config {
            members_make_parity,
            ..config()
        });
        for ordinal in 0..3 {
            bob.now_ms = i64::from(ordinal) * distance_ms;
            bob.hear_content(ONE, ordinal, [5, 0]);
        }
        let quiet_at_ms = 2 * distance_ms + quiet_ms;
        happens_at(&mut bob, quiet_at_ms - 1);
        assert_eq!(missing(&bob), [""; 0], "{distance_ms}");
        happens_at(&mut bob, quiet_at_ms);
        assert_eq!(missing(&bob), [id(ONE, 3), id(ONE, 4)], "{distance_ms}");
    }
}

#[test]
fn a_timeout_of_a_millisecond_lets_a_step_end() {
    let mut bob = Bob::of(Config {
        acknowledgement_timeout_ms: 1,
        missing_messages_max: 1,
        members_make_parity: true,
        ..config()
    });
    bob.hear(names("alice", &["missing".into()]));
    for ordinal in 0..2 {
        bob.hear_content(ONE, ordinal, [5, 0]);
    }
    happens_at(&mut bob, 10);
    assert_eq!(missing(&bob), ["missing"]);
}

#[test]
fn all_that_a_message_lacks_is_asked_for_however_late_somebody_looks() {
    for late in 1..=8 {
        let mut bob = Bob::new();
        bob.hear_content(ONE, 10, [11, 0]);
        happens_at(&mut bob, late * TIMEOUT_MS);
        let lacking: Vec<_> = (0..10).map(|ordinal| id(ONE, ordinal)).collect();
        assert_eq!(missing(&bob), lacking, "{late}");
    }
}

#[test]
fn what_stands_before_a_content_that_says_no_number_is_asked_for() {
    let mut bob = Bob::new();
    bob.hear(message("alice", &id(ONE, 2), b"parity"));
    let place = Place {
        send_id: ONE,
        ordinal: Some(2),
        content_count: None,
        contents_needed: None,
    };
    let now = at(bob.now_ms);
    bob.machine.handle_content_placed(&id(ONE, 2), place, now);
    happens_at(&mut bob, TIMEOUT_MS);
    assert_eq!(missing(&bob), [id(ONE, 0), id(ONE, 1)]);
}

#[test]
fn a_gap_that_gave_way_is_told_again_once_there_is_room() {
    let mut bob = Bob::of(Config {
        missing_messages_max: 2,
        ..config()
    });
    bob.hear_content(ONE, 0, [3, 0]);
    happens_at(&mut bob, TIMEOUT_MS);
    assert_eq!(missing(&bob), [id(ONE, 1), id(ONE, 2)]);
    hear_named(&mut bob, named("missing"));
    assert_eq!(missing(&bob), [id(ONE, 2), "missing".into()]);
    hear_whole(&mut bob, follows("carol", "missing", &[]));
    happens_at(&mut bob, 2 * TIMEOUT_MS);
    assert_eq!(missing(&bob), [id(ONE, 2), id(ONE, 1)]);
}

#[test]
fn what_gave_way_is_waited_for_again_when_it_is_named_again() {
    let mut bob = Bob::of(Config {
        missing_messages_max: 1,
        ..config()
    });
    for message_id in ["one", "two"] {
        hear_named(&mut bob, named(message_id));
    }
    assert_eq!(missing(&bob), ["two"]);
    assert!(hear_whole(&mut bob, follows("carol", "after", &["one"])).is_empty());
}

#[test]
fn a_message_that_was_lost_and_asked_for_no_more_is_news_when_it_is_given_up() {
    let mut bob = losing();
    bob.hear_content(ONE, 0, [3, 0]);
    for at_ms in [TIMEOUT_MS, LOST_MS] {
        happens_at(&mut bob, at_ms);
    }
    assert!(missing(&bob).is_empty());
    assert!(abandon(&mut bob, ONE, false));
}

// --- what is lost ---------------------------------------------------------------------------------

#[test]
fn what_is_lost_is_told_once_in_all_lives() {
    let again = || {
        Bob::of(Config {
            timeout_for_lost_messages_ms: LOST_MS,
            ..config()
        })
    };
    let mut stored = Stored::default();
    let mut bob = again();
    hear_named(&mut bob, named("missing"));
    let lost = happens_at(&mut bob, LOST_MS);
    assert!(lost.iter().any(is_loss));
    let mut bob = stored.restart_as(again(), bob);
    let later = happens_at(&mut bob, 3 * LOST_MS);
    assert!(!later.iter().any(is_loss));
    assert_eq!(missing(&bob), ["missing"]);
}

#[test]
fn what_is_older_and_a_store_does_not_have_is_lost_and_asked_for_still() {
    let mut bob = Bob::of(Config {
        timeout_for_lost_messages_ms: LOST_MS,
        ..config()
    });
    hear_named(&mut bob, named("older"));
    bob.machine.handle_irretrievable(["older"]);
    assert!(bob.events().iter().any(is_loss));
    assert_eq!((stat(&bob, "lost"), missing(&bob).len()), (1, 1));
    // It is looked at no more.
    bob.wait_until(T_MIN_MS - 1);
}

/// Where nothing counts as lost but what may be older than bob.
#[test]
fn what_somebody_heard_first_speaks_of_is_waited_for_while_a_sender_sends_it_again() {
    let resending_ms = config().resending_ms();
    for is_first in [true, false] {
        let mut bob = Bob::new();
        if !is_first {
            hear_whole(&mut bob, follows("carol", "before", &[]));
        }
        hear_whole(&mut bob, follows("carol", "after", &["missing"]));
        assert!(happens_at(&mut bob, resending_ms - 1).is_empty());
        let events = happens_at(&mut bob, resending_ms);
        assert_eq!(events.iter().any(is_loss), is_first);
        assert_eq!(!released(events).is_empty(), is_first);
    }
}

/// What a newcomer lacks is repaired from the newest to the oldest; from a store it comes with all before it.
#[test]
fn what_is_new_waits_for_the_past_that_others_repair_no_longer_than_for_what_it_names() {
    let resending_ms = config().resending_ms();
    for (from_store, sender) in [(false, "alice"), (true, "alice"), (true, "carol")] {
        let mut bob = Bob::new();
        hear_whole(&mut bob, follows("alice", "new", &["old 4"]));
        hear_whole(&mut bob, follows("alice", "newer", &["new"]));
        for age in (1..5).rev() {
            bob.now_ms += resending_ms / 5;
            let (old, older) = (format!("old {age}"), format!("old {}", age - 1));
            bob.hear_of(follows(sender, &old, &[&older]), from_store);
            let now = at(bob.now_ms);
            bob.machine
                .handle_send_reconstructed(None, sender, &old, 1, &[], now);
            assert!(released(bob.events()).is_empty());
        }
        assert!(happens_at(&mut bob, resending_ms - 1).is_empty());
        let new = ["new", "newer"];
        let (soon, last) = new.split_at(if from_store { 0 } else { 2 });
        assert_eq!(released(happens_at(&mut bob, resending_ms)), soon);
        assert!(released(happens_at(&mut bob, resending_ms + 1)).is_empty());
        bob.machine.poll_persist();
        // The past waits for its own.
        let old = ["old 0", "old 1", "old 2", "old 3", "old 4"];
        let released = hear_whole(&mut bob, follows("alice", "old 0", &[]));
        assert_eq!(released, [&old, last].concat());
    }
}

#[test]
fn whoever_has_a_state_waits_for_what_it_missed_as_for_anything_else() {
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("alice", "new", &["old 1"]));
    hear_whole(&mut bob, follows("alice", "old 1", &["old 0"]));
    let mut bob = Stored::default().restart_as(Bob::new(), bob);
    hear_whole(&mut bob, follows("alice", "newer", &["new"]));
    assert!(released(happens_at(&mut bob, config().resending_ms())).is_empty());
    let released = hear_whole(&mut bob, follows("alice", "old 0", &[]));
    assert_eq!(released, ["old 0", "old 1", "new", "newer"]);
}

#[test]
fn what_nobody_answered_for_long_is_asked_for_no_more_and_holds_up_nobody() {
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("carol", "before", &[]));
    hear_named(&mut bob, named("missing"));
    bob.wait_until(1 << 34);
    assert!(missing(&bob).is_empty());
    let after = follows("carol", "after", &["missing"]);
    assert_eq!(hear_whole(&mut bob, after), ["after"]);
    assert_eq!(missing(&bob), ["missing"]);
}

#[test]
fn what_is_asked_for_sooner_since_an_answer_came_is_so_in_the_next_life() {
    let mut bob = Bob::new();
    hear_named(&mut bob, named("in vain"));
    bob.wait_until(1 << 20);
    let (often, _) = bob.machine.asking.asked_for("in vain");
    let mut stored = Stored::default();
    stored.take(&mut bob);
    hear_named(&mut bob, named("answered"));
    let heard_ms = bob.now_ms;
    bob.wait_until(heard_ms + T_MAX_MS);
    hear_whole(&mut bob, follows("alice", "answered", &[]));
    let (ours, all) = bob.machine.asking.asked_for("in vain");
    assert!(ours < often && all >= often);
    let bob = stored.restart_as(Bob::new(), bob);
    assert_eq!(bob.machine.asking.asked_for("in vain"), (ours, all));
}

#[test]
fn what_was_lost_and_is_named_again_is_asked_for_however_long_that_takes() {
    let mut bob = losing();
    hear_named(&mut bob, named("missing"));
    happens_at(&mut bob, LOST_MS);
    assert!(missing(&bob).is_empty());
    hear_named(&mut bob, named("missing"));
    happens_at(&mut bob, 3 * LOST_MS);
    assert_eq!(missing(&bob), ["missing"]);
}

#[test]
fn what_came_and_is_no_such_content_is_asked_for_again_and_holds_up_nobody() {
    let mut bob = Bob::new();
    hear_named(&mut bob, named("missing"));
    refuse(&mut bob, follows("alice", "missing", &[]), true);
    assert_eq!((missing(&bob).len(), stat(&bob, "lost")), (1, 1));
}

#[test]
fn what_came_and_found_no_room_is_missing_as_before_and_is_no_news() {
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("carol", "after", &["missing"]));
    for _ in 0..2 {
        let events = refuse(&mut bob, follows("alice", "missing", &["cause"]), false);
        assert_eq!(events, []);
        assert_eq!(missing(&bob), ["cause", "missing"]);
        // It waits for nothing while it is not here, and no sync leaves to ask for it alone.
        assert_eq!(stat(&bob, "incoming_pairs"), 1);
        assert_eq!(bob.machine.asking.asked_for("missing"), (0, 3));
        // Whoever named it has it on its share, and its sender has not.
        let missing = bob.machine.incoming.missing().get(b"missing").unwrap();
        assert_eq!(&*missing.named_by, "carol");
    }
    hear_whole(&mut bob, follows("bert", "cause", &[]));
    let released = hear_whole(&mut bob, follows("alice", "missing", &["cause"]));
    assert_eq!(released, ["missing", "after"]);
}

/// The message of the one before is kept: its send may go on.
#[test]
fn what_is_refused_under_the_id_of_what_was_given_up_is_as_if_it_had_not_come() {
    for invalid in [false, true] {
        let mut bob = Bob::new();
        bob.hear_content(ONE, 0, [3, 0]);
        abandon(&mut bob, ONE, true);
        let kept = bob.machine.message(&id(ONE, 0));
        assert!(kept.is_some());
        let others = message("mallory", &id(ONE, 0), b"another");
        for _ in 0..2 {
            let told = bob.hear(others.clone());
            let is_received = |event: &Event| matches!(event, Event::ContentReceived { .. });
            assert!(told.iter().any(is_received), "{invalid}");
            let came = data_of(&bob, others.clone());
            bob.machine
                .handle_content_refused(&id(ONE, 0), &came, invalid);
            assert!(!bob.machine.holds(&id(ONE, 0)));
            assert_eq!(stat(&bob, "incoming_contents"), 0);
            assert_eq!(stat(&bob, "unsaid_acknowledgements"), 0);
        }
        assert_eq!(bob.machine.message(&id(ONE, 0)), kept);
    }
}

/// It came with an earlier life, which had room for it.
#[test]
fn what_a_refused_content_said_of_its_message_is_forgotten_with_it() {
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("carol", "after", &[&id(ONE, 0)]));
    bob.hear_content(ONE, 0, [5, 0]);
    let came = message("alice", &id(ONE, 0), format!("0 of {ONE}").as_bytes());
    let came = data_of(&bob, came);
    bob.machine.handle_content_refused(&id(ONE, 0), &came, true);
    // Of this one the wire does not say how many there are.
    bob.hear(message("alice", &id(ONE, 7), b"content"));
    let place = Place {
        send_id: ONE,
        ordinal: Some(7),
        content_count: None,
        contents_needed: None,
    };
    bob.machine.handle_content_placed(&id(ONE, 7), place, at(0));
    happens_at(&mut bob, TIMEOUT_MS);
    let before: Vec<_> = (0..7).map(|ordinal| id(ONE, ordinal)).collect();
    assert_eq!(missing(&bob), before);
}

#[test]
fn what_found_no_room_is_asked_for_though_nothing_waits_for_it() {
    for [named_first, is_lost] in [[true, false], [true, true], [false, false]] {
        let mut bob = Bob::of(Config {
            timeout_for_lost_messages_ms: LOST_MS,
            ..config()
        });
        hear_whole(&mut bob, follows("carol", "before", &[]));
        if named_first {
            hear_named(&mut bob, named("missing"));
        }
        if is_lost {
            happens_at(&mut bob, LOST_MS);
        }
        refuse(&mut bob, follows("alice", "missing", &[]), false);
        let is_missing: &[&str] = if named_first { &["missing"] } else { &[] };
        assert_eq!(missing(&bob), is_missing);
        assert_eq!(stat(&bob, "incoming_sends"), is_missing.len());
        let asked = bob.requests_until(1 << 24);
        assert_eq!(!asked.is_empty(), named_first, "{is_lost}");
    }
}

#[test]
fn what_found_no_room_after_others_named_it_is_missing() {
    let mut bob = Bob::new();
    let cause = follows("alice", "cause", &[]);
    bob.hear(cause.clone());
    hear_whole(&mut bob, follows("carol", "after", &["cause"]));
    let data = data_of(&bob, cause.clone());
    bob.machine.handle_content_refused("cause", &data, false);
    assert_eq!(missing(&bob), ["cause"]);
    assert_eq!(hear_whole(&mut bob, cause), ["cause", "after"]);
}

#[test]
fn a_part_that_found_no_room_is_asked_for_as_its_siblings_are() {
    let mut bob = Bob::new();
    bob.hear_content(ONE, 0, [3, 0]);
    happens_at(&mut bob, TIMEOUT_MS);
    assert_eq!(missing(&bob), [id(ONE, 1), id(ONE, 2)]);
    refuse(&mut bob, message("alice", &id(ONE, 1), b"content"), false);
    assert_eq!(missing(&bob), [id(ONE, 2), id(ONE, 1)]);
}

// --- ids that several use -------------------------------------------------------------------------

#[test]
fn what_another_sent_under_an_id_that_is_here_is_asked_for_until_it_came() {
    let mut bob = Bob::new();
    bob.hear(message("alice", "shared", b"of alice"));
    // What came under the id is enough for what follows it.
    bob.hear(after("after", named_of("shared", "bert")));
    assert_eq!(missing(&bob), ["shared"]);
    let released = released({
        bob.machine
            .handle_send_reconstructed(None, "carol", "after", 1, &[], at(0));
        bob.events()
    });
    assert_eq!(released, ["after"]);
    bob.hear(message("bert", "shared", b"of bert"));
    assert_eq!((missing(&bob).len(), stat(&bob, "repair_requests")), (0, 0));
    // Now it is known that it came.
    hear_named(&mut bob, named_of("shared", "bert"));
    assert!(missing(&bob).is_empty());
}

#[test]
fn what_others_answer_with_what_is_here_is_asked_for_more_seldom() {
    let until_ms = 200 * T_MAX_MS;
    let mut asked_times = Vec::new();
    for is_answered in [false, true] {
        let mut bob = Bob::new();
        bob.hear(message("alice", "shared", b"of alice"));
        hear_named(&mut bob, named_of("shared", "nobody"));
        let mut times = 0;
        while bob.now_ms < until_ms {
            let asked = bob.requests_until(bob.now_ms + T_MIN_MS);
            times += asked.len();
            if is_answered && !asked.is_empty() {
                bob.hear(message("alice", "shared", b"of alice"));
            }
        }
        assert_eq!(missing(&bob), ["shared"]);
        // What it asks for comes still.
        bob.hear(message("nobody", "shared", b"of nobody"));
        assert!(missing(&bob).is_empty());
        asked_times.push(times);
    }
    assert_eq!(asked_times, [15, 4]);
}

#[test]
fn what_is_ours_or_said_to_be_is_never_asked_for() {
    let mut bob = Bob::new();
    bob.machine
        .send(ONE, vec![Octets::from(&b"one"[..])], 1)
        .unwrap();
    bob.leaving();
    hear_named(&mut bob, named_of(&id(ONE, 0), "alice"));
    assert!(missing(&bob).is_empty());
    // Others wait for what came under an id that is said to be ours.
    bob.hear(follows("alice", "shared", &["cause"]));
    assert!(hear_whole(&mut bob, after("after", named_of("shared", "bob"))).is_empty());
    assert_eq!(missing(&bob), ["cause"]);
}

#[test]
fn of_a_message_that_came_whole_under_the_id_of_another_nothing_is_asked_for_again() {
    let mut bob = Bob::new();
    hear_named(&mut bob, named_of(&id(ONE, 1), "bert"));
    assert_eq!(missing(&bob), [id(ONE, 1)]);
    bob.machine
        .handle_send_reconstructed(None, "bert", ONE, 2, &[], at(0));
    assert!(missing(&bob).is_empty());
    hear_named(&mut bob, named_of(&id(ONE, 1), "bert"));
    assert!(missing(&bob).is_empty());
    // Another participant may use the id.
    hear_named(&mut bob, named_of(&id(ONE, 1), "alice"));
    assert_eq!(missing(&bob), [id(ONE, 1)]);
}

#[test]
fn of_what_is_refused_under_an_id_of_others_theirs_is_asked_for_and_nothing_else_is_held() {
    for invalid in [true, false] {
        let mut bob = Bob::new();
        hear_named(&mut bob, named("shared"));
        refuse(
            &mut bob,
            Message {
                causal_history: vec![named_of("shared", "bert")],
                ..message("alice", "shared", b"content")
            },
            invalid,
        );
        assert_eq!(missing(&bob), ["shared"]);
        assert_eq!(stat(&bob, "incoming_sends"), 1, "{invalid}");
    }
}

#[test]
fn what_is_lacking_of_a_send_that_is_given_up_is_not_asked_for_twice() {
    let mut bob = Bob::new();
    for ordinal in 0..2 {
        bob.hear_content(ONE, ordinal, [3, 0]);
    }
    hear_named(&mut bob, named_of(&id(ONE, 2), "bert"));
    abandon(&mut bob, ONE, true);
    assert_eq!(missing(&bob), [id(ONE, 2)]);
    assert_eq!(stat(&bob, "incoming_sends"), 1);
}

// --- what left the log ----------------------------------------------------------------------------

/// Messages of alice in one content each, whose send ids are numbers.
fn hear_many(bob: &mut Bob, numbers: std::ops::Range<usize>) {
    for number in numbers {
        // Nothing is as old as what left the log.
        bob.now_ms += 1;
        bob.hear_content(&format!("{number:032x}"), 0, [1, 0]);
        make_whole(bob, &format!("{number:032x}"), 1, &[]);
    }
}

const LOG: usize = 10;
/// One record tells of so many that left the log.
const RECORDED: usize = 64;

fn with_small_log() -> Bob {
    Bob::of(Config {
        log_messages_max: LOG,
        enable_repair: false,
        timeout_for_lost_messages_ms: LOST_MS,
        ..config()
    })
}

#[test]
fn nothing_waits_for_a_message_that_was_delivered_and_left_the_log() {
    let mut bob = with_small_log();
    hear_many(&mut bob, 0..LOG + 1);
    let content = |number: usize, ordinal| id(&format!("{number:032x}"), ordinal);
    assert!(!bob.machine.holds(&content(0, 0)) && bob.machine.holds(&content(1, 0)));
    // Any content stands for its send.
    for named_id in [content(0, 0), content(0, 1), content(1, 1)] {
        hear_named(&mut bob, named(&named_id));
        let gone = hear_whole(
            &mut bob,
            after(&format!("after {named_id}"), named(&named_id)),
        );
        assert_eq!(gone.len(), 1, "{named_id}");
    }
    assert!(missing(&bob).is_empty());
    hear_named(&mut bob, named(&content(LOG + 1, 0)));
    assert_eq!(missing(&bob), [content(LOG + 1, 0)]);
}

#[test]
fn what_left_the_log_in_an_earlier_life_is_waited_for_as_little() {
    let mut stored = Stored::default();
    let mut bob = with_small_log();
    hear_many(&mut bob, 0..LOG + RECORDED);
    // In the first life after it, and the second.
    for _ in 0..2 {
        bob = stored.restart_as(with_small_log(), bob);
        for number in [0, RECORDED - 1] {
            let named_id = id(&format!("{number:032x}"), 0);
            hear_whole(&mut bob, after("after", named(&named_id)));
            assert!(missing(&bob).is_empty(), "{number}");
        }
    }
}

#[test]
fn without_send_ids_a_later_message_may_have_the_id_of_one_that_left_the_log() {
    let mut bob = Bob::of(Config {
        log_messages_max: 1,
        message_id: MessageIdRule::ContentSha256,
        ..config()
    });
    let id = id(ONE, 0);
    hear_whole(&mut bob, message("alice", &id, b"content"));
    hear_whole(&mut bob, message("alice", "other", b"content"));
    hear_named(&mut bob, named(&id));
    assert_eq!(missing(&bob), [id]);
}

#[test]
fn of_a_send_nothing_is_held_once_what_was_asked_for_of_it_came_under_another_name() {
    let mut bob = Bob::new();
    // Of three who use one send id, bert is said to have sent what came of alice.
    bob.hear(Message {
        causal_history: vec![named_of(&id(ONE, 0), "bert")],
        ..message("alice", &id(ONE, 0), b"of alice")
    });
    for ordinal in [5, 9] {
        hear_named(&mut bob, named(&id(ONE, ordinal)));
    }
    refuse(&mut bob, message("bert", &id(ONE, 9), b"invalid"), true);
    bob.hear(message("bert", &id(ONE, 0), b"of bert"));
    bob.hear(message("alice", &id(ONE, 9), b"of alice"));
    assert_eq!(missing(&bob), [id(ONE, 5)]);
    // Checks what is counted.
    bob.machine.poll_persist();
    assert_eq!(stat(&bob, "incoming_sends"), 1);
}

#[test]
fn what_came_of_whom_histories_name_is_asked_for_no_more_though_another_began_its_send() {
    // What mallory sends under the id is none of alice's.
    for senders in [&["alice"][..], &["mallory", "alice"]] {
        let mut bob = Bob::new();
        hear_named(&mut bob, named_of(&id(ONE, 1), "alice"));
        bob.hear(message("mallory", &id(ONE, 0), b"of mallory"));
        for sender_id in senders {
            assert_eq!(missing(&bob), [id(ONE, 1)], "{senders:?}");
            bob.hear(message(sender_id, &id(ONE, 1), b"content"));
        }
        assert!(missing(&bob).is_empty(), "{senders:?}");
        assert_eq!(bob.requests_until(1 << 24), []);
    }
}

#[test]
fn under_ids_made_of_contents_what_came_is_asked_for_no_more_whoever_sent_it() {
    let mut bob = Bob::of(Config {
        message_id: MessageIdRule::ContentSha256,
        ..config()
    });
    hear_named(&mut bob, named_of("hash", "alice"));
    bob.hear(message("carol", "hash", b"content"));
    assert!(missing(&bob).is_empty());
}

#[test]
fn what_came_so_and_found_no_room_is_missing_as_before() {
    let mut bob = Bob::new();
    hear_named(&mut bob, named_of(&id(ONE, 1), "alice"));
    bob.hear(message("mallory", &id(ONE, 0), b"of mallory"));
    refuse(&mut bob, message("alice", &id(ONE, 1), b"content"), false);
    assert_eq!(missing(&bob), [id(ONE, 1)]);
}

/// Whose it is nobody said: it may be of the one who began the send.
#[test]
fn what_nobody_says_whose_it_is_is_asked_for_until_it_is_answered() {
    let mut bob = Bob::new();
    hear_named(&mut bob, named(&id(ONE, 1)));
    bob.hear(message("mallory", &id(ONE, 0), b"of mallory"));
    let came = message("alice", &id(ONE, 1), b"content");
    bob.hear(came.clone());
    assert_eq!(missing(&bob), [id(ONE, 1)]);
    assert!(!bob.requests_until(10 * T_MAX_MS).is_empty());
    bob.hear(came);
    assert!(missing(&bob).is_empty());
}

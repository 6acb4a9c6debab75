//! When anybody is asked for parity of a send, and when it is made.

use super::ids::lacking_id;
use super::sync::lacking::statement;
use super::tests::{
    Bob, ONE, OTHER, SENDER_FIRST_MS, T_MAX_MS, T_MIN_MS, WINDOW_MS, asked_ms, asks_anybody,
    asks_anybody_of, asks_for, at, config, id, message, names, sync,
};
use super::*;
use crate::wire::sds::Message;

/// What is on its way has so long to come before it is asked for by name.
const PUT_OFF_MS: i64 = SENDER_FIRST_MS + T_MIN_MS + WINDOW_MS;

/// The first send of which two names are asked for in the first half of the time, or later.
fn send_of(is_early: bool) -> String {
    let half_ms = i64::midpoint(T_MIN_MS, T_MAX_MS);
    let fits = |id: &String| (asked_ms(id) <= half_ms) == is_early;
    let mut sends = (0..).map(|number| format!("{number:032x}"));
    let send_id = sends.find(|send_id| [1, 2].map(|ordinal| id(send_id, ordinal)).iter().all(fits));
    send_id.expect("one does")
}

/// Bob has one of three contents, and after a quiet acknowledgement timeout the others are missing. Gives
/// when he would first ask, and for which.
fn lacking_two(send_id: &str) -> (Bob, (i64, String), String) {
    lacking_two_with(send_id, 1)
}

/// As [`lacking_two`], of a send that has so much parity.
fn lacking_two_with(send_id: &str, parity: u32) -> (Bob, (i64, String), String) {
    let mut bob = Bob::new();
    bob.hear_content(send_id, 0, [3, parity]);
    let mut lacking = [id(send_id, 1), id(send_id, 2)];
    lacking.sort_by_key(|name| asked_ms(name));
    let [first, second] = lacking;
    let first_ms = 4 * WINDOW_MS + asked_ms(&first);
    (bob, (first_ms, first), second)
}

#[test]
fn a_number_asks_early_for_all_of_a_send_and_names_follow_where_nobody_answers() {
    let send_id = send_of(true);
    let (mut bob, (at_ms, first), second) = lacking_two(&send_id);
    let number = lacking_id(&send_id, 2).to_string();
    let mut names = [first, second];
    names.sort();
    let requests = [(at_ms, number)].into_iter();
    let requests = requests.chain(names.map(|name| (at_ms + PUT_OFF_MS, name)));
    let requests: Vec<_> = requests.collect();
    assert_eq!(bob.requests_until(at_ms + PUT_OFF_MS), requests);
}

#[test]
fn names_ask_at_once_where_it_is_late_or_there_is_no_parity() {
    for (is_early, parity) in [(false, 1), (true, 0)] {
        let (mut bob, first, _) = lacking_two_with(&send_of(is_early), parity);
        assert_eq!(bob.requests_until(first.0), [first]);
    }
}

#[test]
fn who_asks_anybody_for_as_much_asks_for_others_too_once() {
    let send_id = send_of(true);
    for (lacking, questions, puts_off) in [(1, 1, false), (2, 1, true), (3, 1, true), (2, 3, true)]
    {
        let (mut bob, (at_ms, _), _) = lacking_two(&send_id);
        for question in 0..questions {
            assert_eq!(bob.requests_until(at_ms - 10 + question), []);
            bob.hear(asks_anybody("carol", &send_id, lacking));
        }
        let at_ms = if puts_off {
            at_ms - 10 + PUT_OFF_MS
        } else {
            at_ms
        };
        let requests = bob.requests_until(at_ms);
        let moments: Vec<_> = requests.iter().map(|(at_ms, _)| *at_ms).collect();
        assert_eq!(moments, [at_ms], "{lacking} {questions}");
    }
}

#[test]
fn what_is_asked_of_anybody_again_is_asked_for_by_name_only_later() {
    let send_id = send_of(true);
    let (mut bob, (first_ms, _), _) = lacking_two(&send_id);
    let came_ms = first_ms - 2 * WINDOW_MS;
    assert_eq!(bob.requests_until(came_ms), []);
    bob.machine
        .handle_parity_taken("alice", &send_id, 1, at(came_ms));
    let again_ms = came_ms + WINDOW_MS;
    let requests = bob.requests_until(again_ms + PUT_OFF_MS - 1);
    assert_eq!(requests, [(again_ms, lacking_id(&send_id, 2).to_string())]);
    let by_name = bob.requests_until(again_ms + PUT_OFF_MS);
    assert!(
        by_name
            .iter()
            .all(|(at_ms, _)| *at_ms == again_ms + PUT_OFF_MS)
    );
    assert_eq!(by_name.len(), 2);
}

/// What was made by others counts for bob, too.
#[test]
fn who_has_made_contents_here_lacks_fewer_and_leaves_it_to_who_asks_for_as_many() {
    let send_id = send_of(true);
    for (made, is_asked_again) in [(0, true), (1, false)] {
        let (mut bob, (first_ms, _), _) = lacking_two(&send_id);
        let came_ms = first_ms - 2 * WINDOW_MS;
        assert_eq!(bob.requests_until(came_ms), []);
        bob.machine
            .handle_parity_taken("alice", &send_id, made, at(came_ms));
        bob.hear(asks_anybody("carol", &send_id, 1));
        let requests = bob.requests_until(came_ms + WINDOW_MS);
        assert_eq!(!requests.is_empty(), is_asked_again, "{made}");
    }
}

// --- answering ------------------------------------------------------------------------------------

/// Time passes until parity is wanted, which is made of so many bytes. Gives when it is.
fn make(bob: &mut Bob, send_id: &str, contents: &[Octets], size_bytes: usize) -> i64 {
    bob.wait_for(|event| matches!(event, Event::ParityWanted { .. }));
    let contents = (0..).zip(contents.iter().cloned()).collect();
    let now = at(bob.now_ms);
    bob.machine
        .handle_parity_made(&"alice".into(), send_id, contents, size_bytes, now);
    bob.now_ms
}

#[test]
fn who_answered_with_parity_often_rests() {
    const ANSWERED_FREELY: usize = 4;
    for (pause_ms, is_answered) in [
        (0, false),
        (2 * WINDOW_MS - 1, false),
        (2 * WINDOW_MS, true),
    ] {
        let mut bob = Bob::new();
        bob.hear_whole(ONE);
        for _ in 0..ANSWERED_FREELY {
            bob.hear(asks_anybody("carol", ONE, 1));
            make(&mut bob, ONE, &[], 0);
        }
        bob.wait_until(bob.now_ms + pause_ms);
        bob.hear(asks_anybody("carol", ONE, 1));
        assert_eq!(
            bob.machine.poll_timeout().is_some(),
            is_answered,
            "{pause_ms}"
        );
    }
}

#[test]
fn what_was_made_is_work_after_which_nothing_is_made_for_a_while() {
    const WORK_MS: i64 = 5_000;
    let mut bob = Bob::new();
    bob.hear_whole(ONE);
    bob.hear_whole(OTHER);
    bob.hear(asks_anybody("carol", ONE, 1));
    // An eighth of it counts as if it had left, and as much as leaves in 8 s may at once.
    let size_bytes = 8 * 1_024 * (8_192 + WORK_MS as usize);
    let made_ms = make(&mut bob, ONE, &[], size_bytes);
    bob.hear(asks_anybody("carol", OTHER, 1));
    bob.machine.handle_timeout(at(made_ms + WORK_MS - 1));
    assert_eq!(bob.events(), []);
    assert_eq!(make(&mut bob, OTHER, &[], 0), made_ms + WORK_MS);
}

#[test]
fn parity_leaves_at_the_pace_of_answers() {
    let mut bob = Bob::new();
    bob.hear_whole(ONE);
    bob.hear(asks_anybody("carol", ONE, 3));
    let content = Octets::from(vec![7; 5 << 20]);
    let contents = [&content, &content, &content].map(Octets::clone);
    let made_ms = make(&mut bob, ONE, &contents, 0);
    let left = bob.wait_until(made_ms + 10_000);
    let answer_ms = left[0].1.payload.len().div_ceil(1_024) as i64;
    let moments: Vec<_> = left.iter().map(|(at_ms, _)| at_ms - made_ms).collect();
    assert_eq!(moments, [0, 0, 2 * answer_ms - 8_192]);
}

/// When parity is wanted after a question that is heard now.
fn wanted_ms(bob: &mut Bob, send_id: &str) -> i64 {
    let asked_ms = bob.now_ms;
    make(bob, send_id, &[], 0) - asked_ms
}

#[test]
fn parity_is_made_once_others_had_time_to_answer() {
    let mut bob = Bob::new();
    bob.hear_whole(ONE);
    bob.hear(asks_anybody("carol", ONE, 1));
    let wire_format = config().wire_format;
    let offset_ms = response_offset_ms("bob", "alice", ONE, T_MIN_MS, wire_format);
    assert_eq!(wanted_ms(&mut bob, ONE), SENDER_FIRST_MS + offset_ms);
    // Whoever answered lately is first to.
    bob.hear(asks_anybody("carol", ONE, 1));
    let content = Octets::from(vec![7; 10]);
    make(&mut bob, ONE, &[content], 0);
    assert_eq!(bob.leaving().len(), 1);
    bob.hear(asks_anybody("carol", ONE, 1));
    assert_eq!(wanted_ms(&mut bob, ONE), 2 * WINDOW_MS + WINDOW_MS / 2);
}

#[test]
fn of_its_own_message_a_participant_makes_parity_before_others_do() {
    let mut bob = Bob::new();
    let contents = [&b"one"[..], b"two"].map(Octets::from).into();
    bob.machine.send(ONE, contents, 2).unwrap();
    bob.leaving();
    bob.hear(names("carol", &[id(ONE, 0), id(ONE, 1)]));
    bob.hear(asks_anybody_of("bob", "dave", ONE, 1));
    assert_eq!(wanted_ms(&mut bob, ONE), 2 * WINDOW_MS);
}

#[test]
fn only_who_has_all_of_a_send_and_answers_for_its_sender_makes_parity() {
    let groups = [(1, true), (1 << 40, false)];
    for (repair_groups, is_in_group) in groups {
        for is_whole in [true, false] {
            let mut bob = Bob::of(Config {
                repair_groups,
                ..config()
            });
            if is_whole {
                bob.hear_whole(ONE);
            }
            bob.hear(asks_anybody("carol", ONE, 1));
            let answers = bob.machine.poll_timeout().is_some();
            assert_eq!(
                answers,
                is_whole && is_in_group,
                "{repair_groups} {is_whole}"
            );
        }
    }
}

#[test]
fn nothing_is_made_while_what_was_made_waits_to_leave() {
    let mut bob = Bob::new();
    bob.hear_whole(ONE);
    bob.hear_whole(OTHER);
    bob.hear(asks_anybody("carol", ONE, 1));
    make(&mut bob, ONE, &[Octets::from(vec![7; 10])], 0);
    bob.hear(asks_anybody("carol", OTHER, 1));
    bob.now_ms += 10_000;
    bob.machine.handle_timeout(at(bob.now_ms));
    assert_eq!(bob.events(), []);
    assert_eq!(bob.leaving().len(), 1);
    bob.machine.handle_timeout(at(bob.now_ms));
    assert_eq!(bob.events().len(), 1);
}

#[test]
fn parity_is_made_that_nobody_was_heard_to_send_from_where_each_begins() {
    let mut bob = Bob::new();
    let unheard = |bob: &mut Bob, count| bob.machine.unheard_parity(ONE, 2, 4, count);
    bob.hear_whole(ONE);
    assert_eq!(unheard(&mut bob, 4), [2, 3, 0, 1]);
    assert_eq!(unheard(&mut bob, 3), [2, 3, 0]);
    for (is_lacked, unheard_now) in [(false, &[2, 3, 0, 1][..]), (true, &[2, 3, 1])] {
        if is_lacked {
            bob.hear(asks_anybody("carol", ONE, 1));
        }
        bob.machine.handle_parity_heard(ONE, 0);
        assert_eq!(unheard(&mut bob, 4), unheard_now);
    }
    bob.hear_content(ONE, 2 + 3, [2, 4]);
    assert_eq!(unheard(&mut bob, 4), [2, 1]);
    assert!(bob.machine.unheard_parity(ONE, 2, 0, 1).is_empty());
}

#[test]
fn an_echo_of_parity_that_left_here_is_ours() {
    let mut bob = Bob::new();
    bob.hear_whole(ONE);
    bob.hear(asks_anybody("carol", ONE, 1));
    make(&mut bob, ONE, &[Octets::from(vec![7; 10])], 0);
    let left = bob.leaving().remove(0);
    let now = at(bob.now_ms);
    bob.machine.handle_message(&left.payload, None, false, now);
    assert_eq!(bob.events(), [Event::MessageDropped(Dropped::Own)]);
}

#[test]
fn what_says_that_nothing_is_lacking_of_a_send_brings_parity_of_it() {
    for (lacking, is_parity) in [(0, true), (1, false)] {
        let mut bob = Bob::new();
        let data = Message {
            lamport_timestamp: None,
            repair_request: vec![statement(ONE, lacking, "alice")],
            ..message("carol", "parity", b"content")
        };
        let data = Octets::from(data.encode(config().wire_format).unwrap());
        bob.machine.handle_message(&data, None, false, at(0));
        let came = bob.events().remove(0);
        assert_eq!(matches!(came, Event::ParityReceived { .. }), is_parity);
        assert_eq!(matches!(came, Event::EphemeralReceived { .. }), !is_parity);
    }
}

/// Whether parity is wanted of what is whole here, within a while.
fn is_wanted(bob: &mut Bob) -> bool {
    bob.wait_until(bob.now_ms + 10 * T_MAX_MS);
    let events = bob.events();
    let is_parity = |event: &Event| matches!(event, Event::ParityWanted { .. });
    events.iter().any(is_parity)
}

#[test]
fn what_is_heard_of_a_send_is_made_no_more_unless_a_store_has_it() {
    for (from_store, is_made) in [(false, false), (true, true)] {
        let mut bob = Bob::new();
        bob.hear_whole(ONE);
        bob.hear(asks_anybody("carol", ONE, 1));
        let content = format!("0 of {ONE}");
        bob.hear_of(
            message("alice", &id(ONE, 0), content.as_bytes()),
            from_store,
        );
        assert_eq!(is_wanted(&mut bob), is_made, "{from_store}");
    }
}

#[test]
fn what_leaves_for_who_asks_by_name_is_made_no_more() {
    for is_named in [true, false] {
        let mut bob = Bob::new();
        bob.hear_whole(ONE);
        if is_named {
            bob.hear(asks_for("dave", &id(ONE, 0)));
            let answer_ms = bob.machine.poll_timeout().unwrap();
            bob.wait_until(answer_ms - 1);
        }
        bob.hear(asks_anybody("carol", ONE, 1));
        assert_eq!(is_wanted(&mut bob), !is_named);
    }
}

#[test]
fn a_sender_that_is_heard_is_left_to_answer_unless_a_store_has_what_is_heard() {
    for (from_store, is_put_off) in [(false, true), (true, false)] {
        let mut bob = Bob::new();
        bob.hear_whole(ONE);
        bob.hear(asks_anybody("carol", ONE, 1));
        let wanted_ms = bob.machine.poll_timeout().unwrap();
        bob.wait_until(wanted_ms - 1);
        bob.hear_of(message("alice", "another", b"content"), from_store);
        bob.wait_until(wanted_ms);
        assert_eq!(bob.events().is_empty(), is_put_off, "{from_store}");
    }
}

#[test]
fn who_sent_a_message_does_not_ask_others_for_it() {
    for (asking, is_answered) in [("carol", true), ("alice", false)] {
        let mut bob = Bob::new();
        bob.hear_whole(ONE);
        bob.hear(asks_anybody(asking, ONE, 1));
        assert_eq!(is_wanted(&mut bob), is_answered, "{asking}");
    }
}

#[test]
fn who_says_that_it_lacks_nothing_is_waited_for_no_more() {
    for (lacking, is_made) in [(0, false), (1, true)] {
        let mut bob = Bob::new();
        bob.hear_whole(ONE);
        bob.hear(asks_anybody("carol", ONE, 2));
        bob.hear(Message {
            repair_request: vec![statement(ONE, lacking, "alice")],
            ..sync("carol")
        });
        assert_eq!(is_wanted(&mut bob), is_made, "{lacking}");
    }
}

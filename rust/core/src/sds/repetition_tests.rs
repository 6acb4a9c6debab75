//! When contents that cannot be replaced by others go again, and who is asked before.

use super::incoming_tests::stat;
use super::outgoing_tests::{Stored, leave};
use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, lacks, names, sync};
use super::*;
use crate::wire::sds::Message;

const TIMEOUT_MS: i64 = 4 * WINDOW_MS;
/// So many contents of one send and one more: it is asked what is missing before all of it goes again.
const LARGE: u32 = 9;

fn bob_of(config: Config) -> Bob {
    Bob::to(&["carol"], config)
}

fn to_both() -> Bob {
    Bob::to(&["carol", "dave"], config())
}

fn queue(bob: &mut Bob, send_id: &str, count: u32) {
    let contents = (0..count).map(|number| format!("{number} of {send_id}"));
    let contents = contents.map(|content| Octets::from(content.as_bytes()));
    let machine = &mut bob.machine;
    machine.send(send_id, contents.collect(), count).unwrap();
}

fn send(bob: &mut Bob, send_id: &str, count: u32) {
    queue(bob, send_id, count);
    assert_eq!(bob.leaving().len(), count as usize);
}

fn first(ordinals: impl IntoIterator<Item = u32>) -> Vec<String> {
    let ordinals = ordinals.into_iter();
    ordinals.map(|ordinal| id(ONE, ordinal)).collect()
}

/// What leaves up to then, and when: the ordinal of a content, or `None` for a sync.
fn leaves_until(bob: &mut Bob, until_ms: i64) -> Vec<(i64, Option<u32>)> {
    let left = bob.wait_until(until_ms).into_iter();
    left.map(|(at_ms, left)| (at_ms, left.ordinal)).collect()
}

fn all_at(at_ms: i64, ordinals: impl IntoIterator<Item = u32>) -> Vec<(i64, Option<u32>)> {
    let ordinals = ordinals.into_iter();
    ordinals.map(|ordinal| (at_ms, Some(ordinal))).collect()
}

/// Which contents left, and how often each was sent again.
fn attempts(left: Vec<(i64, Transmit)>) -> Vec<(Option<u32>, u32)> {
    let left = left.into_iter();
    left.map(|(_, left)| (left.ordinal, left.attempt)).collect()
}

fn given_up(bob: &mut Bob) -> Vec<(String, Vec<u32>)> {
    let events = bob.events().into_iter().filter_map(|event| match event {
        Event::SendGivenUp {
            send_id,
            unacknowledged,
        } => Some((send_id.to_string(), unacknowledged)),
        _ => None,
    });
    events.collect()
}

#[test]
fn a_small_send_goes_again_so_often_and_is_given_up_with_what_nobody_has() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 3);
    bob.now_ms = 10;
    bob.hear(names("carol", &[id(ONE, 1)]));
    let rounds = (1..=config().max_retransmissions).map(i64::from);
    let expected: Vec<_> = rounds
        .flat_map(|round| all_at(round * TIMEOUT_MS, [0, 2]))
        .collect();
    assert_eq!(leaves_until(&mut bob, 60_000), expected);
    assert_eq!(given_up(&mut bob), [(ONE.to_owned(), vec![0, 2])]);
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
}

#[test]
fn who_is_silent_about_a_large_send_is_asked_by_syncs_and_then_by_a_few_contents() {
    let mut bob = bob_of(Config {
        acknowledgement_sync: true,
        ..config()
    });
    send(&mut bob, ONE, LARGE);
    let expected = [
        vec![(400, None), (533, None), (666, None)],
        all_at(800, [1, 2, 3]),
    ];
    assert_eq!(leaves_until(&mut bob, 1_000), expected.concat());
    // Once it is known what is missing that goes, when all who answer had time to.
    bob.hear(names("carol", &[id(ONE, 3), id(ONE, 8)]));
    assert_eq!(
        leaves_until(&mut bob, 1_199),
        all_at(1_000 + WINDOW_MS, [0, 4, 5, 6, 7])
    );
}

/// What went again is looked at later, and all else as ever.
#[test]
fn an_answer_is_waited_for_as_long_however_often_a_content_went_again() {
    let mut bob = bob_of(Config {
        back_off_percent: 50,
        ..config()
    });
    send(&mut bob, ONE, LARGE);
    let expected = [
        all_at(400, [0, 1, 2]),
        all_at(800, [3, 4, 5]),
        all_at(1_200, [6, 7, 8, 0, 1, 2]),
        all_at(1_700, [3, 4, 5]),
    ];
    assert_eq!(leaves_until(&mut bob, 1_700), expected.concat());
}

#[test]
fn a_large_send_goes_again_after_two_inquiries_that_nobody_answered() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, LARGE);
    let expected = [
        all_at(400, [0, 1, 2]),
        all_at(800, [3, 4, 5]),
        all_at(1_200, [6, 7, 8, 0, 1, 2, 3, 4, 5]),
    ];
    assert_eq!(leaves_until(&mut bob, 1_200), expected.concat());
}

#[test]
fn a_send_is_stopped_once() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 2);
    bob.hear(names("carol", &[id(ONE, 1)]));
    let mut stored = Stored::default();
    stored.take(&mut bob);
    bob.machine.stop(ONE);
    bob.machine.stop(ONE);
    bob.machine.stop(OTHER);
    assert_eq!(given_up(&mut bob), [(ONE.to_owned(), vec![0])]);
    bob = stored.restart_as(bob_of(config()), bob);
    assert_eq!(bob.machine.pending_sends().count(), 0);
    assert_eq!(leaves_until(&mut bob, 60_000), []);
    // Who has it is told all the same, and then nobody lacks it.
    let is_told = |event: &Event| matches!(event, Event::SendAcknowledged { .. });
    assert!(bob.hear(lacks("carol", ONE, 0)).iter().any(is_told));
    bob.machine.stop(ONE);
    assert_eq!(bob.events(), []);
}

#[test]
fn what_is_left_out_goes_no_more_and_the_rest_does() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 2);
    bob.machine.leave_out(&id(ONE, 1));
    bob.machine.leave_out(&id(OTHER, 1));
    assert_eq!(leaves_until(&mut bob, TIMEOUT_MS), all_at(TIMEOUT_MS, [0]));
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 1);
}

#[test]
fn a_send_that_is_withdrawn_is_gone_unless_it_is_finished() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 2);
    send(&mut bob, OTHER, 1);
    bob.hear(names("carol", &[id(OTHER, 0)]));
    assert!(bob.machine.withdraw(ONE));
    assert!(!bob.machine.withdraw(OTHER));
    let sends: Vec<_> = bob.machine.sends().map(|name| name.to_string()).collect();
    assert_eq!(sends, [OTHER]);
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
    assert_eq!(leaves_until(&mut bob, 60_000), []);
    let again = Stored::default().restart_as(bob_of(config()), bob);
    let sends: Vec<_> = again.machine.sends().map(|name| name.to_string()).collect();
    assert_eq!(sends, [OTHER]);
}

#[test]
fn what_a_store_has_is_sent_to_whoever_is_there_once_the_store_did_not_help() {
    for back_off_percent in [0, 50] {
        let mut bob = bob_of(Config {
            back_off_percent,
            ..config()
        });
        send(&mut bob, ONE, 2);
        let now = at(0);
        (0..2).for_each(|ordinal| bob.machine.handle_stored(ONE, ordinal, now));
        // One content probes, as often as one would go again.
        let probes: Vec<_> = (1..=5).map(|round| (round * TIMEOUT_MS, Some(0))).collect();
        let left = bob.wait_until(2_100);
        assert!(
            left.iter().all(|(_, left)| left.attempt == 0),
            "it is no attempt"
        );
        let left: Vec<_> = left
            .iter()
            .map(|(at_ms, left)| (*at_ms, left.ordinal))
            .collect();
        assert_eq!(left, probes);
        assert_eq!(stat(&bob, "outgoing_in_store"), 2);
        assert_eq!(bob.machine.sends_in_store(), 1);
        bob.hear(sync("carol"));
        let expected = all_at(3_200, [0, 1]);
        assert_eq!(leaves_until(&mut bob, 3_300), expected);
        assert_eq!(stat(&bob, "outgoing_in_store"), 0);
        assert_eq!(given_up(&mut bob), []);
    }
}

#[test]
fn of_a_large_send_that_a_store_did_not_help_with_a_few_contents_ask_and_the_rest_is_waited_for() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, LARGE);
    (0..LARGE).for_each(|ordinal| bob.machine.handle_stored(ONE, ordinal, at(0)));
    bob.wait_until(410);
    bob.hear(sync("carol"));
    assert_eq!(leaves_until(&mut bob, 1_700), all_at(1_600, [0, 1, 2]));
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), LARGE as usize);
    bob.hear(names("carol", &first([0, 1, 2])));
    assert_eq!(leaves_until(&mut bob, 1_800), all_at(1_800, 3..LARGE));
}

#[test]
fn where_more_waits_in_a_store_than_may_what_waits_longest_is_given_up() {
    const WAITING_CONTENTS_MAX: u32 = 2_048;
    let mut bob = bob_of(Config {
        outgoing_buffer_messages_max: 4_096,
        ..config()
    });
    let ids = (0..=WAITING_CONTENTS_MAX).map(|number| format!("{number:032x}"));
    let ids: Vec<String> = ids.collect();
    for send_id in &ids {
        send(&mut bob, send_id, 1);
        bob.machine.handle_stored(send_id, 0, at(0));
    }
    bob.now_ms = TIMEOUT_MS;
    bob.machine.handle_timeout(at(TIMEOUT_MS));
    assert_eq!(given_up(&mut bob), [(ids[0].clone(), vec![0])]);
    let waiting = WAITING_CONTENTS_MAX as usize;
    assert_eq!(stat(&bob, "outgoing_in_store"), waiting);
}

#[test]
fn a_content_that_is_acknowledged_while_the_node_has_it_leaves_once_more_where_that_fails() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 1);
    bob.now_ms = TIMEOUT_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    let now = at(bob.now_ms);
    let again = bob.machine.poll_transmit(now, Kinds::ALL).unwrap();
    assert_eq!((again.ordinal, again.attempt), (Some(0), 1));
    bob.machine.handle_transmit_failed(again.transmit_id, now);
    let again = bob.machine.poll_transmit(now, Kinds::ALL).unwrap();
    assert_eq!(
        (again.ordinal, again.attempt),
        (Some(0), 1),
        "it was no attempt"
    );
    bob.hear(names("carol", &[id(ONE, 0)]));
    bob.machine.handle_transmit_failed(again.transmit_id, now);
    assert_eq!(leaves_until(&mut bob, 60_000), []);
}

#[test]
fn what_the_node_did_not_take_again_is_no_attempt_however_often_it_went() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 1);
    bob.wait_until(TIMEOUT_MS);
    let fails_at = |bob: &mut Bob, at_ms: i64| {
        bob.wait_until(at_ms - 1);
        bob.now_ms = at_ms;
        bob.machine.handle_timeout(at(at_ms));
        let again = leave(bob);
        bob.machine
            .handle_transmit_failed(again.transmit_id, at(at_ms));
        again.attempt
    };
    assert_eq!(fails_at(&mut bob, 2 * TIMEOUT_MS), 2);
    assert_eq!(attempts(bob.wait_until(2 * TIMEOUT_MS)), [(Some(0), 2)]);
    // As a probe whether anybody is there it counts neither way.
    bob.machine.handle_stored(ONE, 0, at(bob.now_ms));
    assert_eq!(fails_at(&mut bob, 3 * TIMEOUT_MS), 2);
    assert_eq!(attempts(bob.wait_until(3 * TIMEOUT_MS)), [(Some(0), 2)]);
}

// --- when it goes ---------------------------------------------------------------------------------

#[test]
fn a_content_is_waited_for_since_the_network_took_it() {
    for is_left_out in [false, true] {
        let mut bob = bob_of(config());
        queue(&mut bob, ONE, 1);
        let left = leave(&mut bob);
        bob.now_ms = 100;
        if is_left_out {
            bob.machine.leave_out(&id(ONE, 0));
        }
        bob.machine
            .handle_transmitted(left.transmit_id, None, at(100));
        let expected = if is_left_out {
            vec![]
        } else {
            all_at(500, [0])
        };
        assert_eq!(leaves_until(&mut bob, 500), expected);
    }
}

#[test]
fn what_may_not_have_left_goes_in_its_time_where_each_content_has_its_own() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 2);
    let mut again = Stored::default().restart_as(bob_of(config()), bob);
    assert!(again.machine.resume(ONE, &[0, 1], at(0)).is_empty());
    assert_eq!(leaves_until(&mut again, 400), all_at(400, [0, 1]));
}

#[test]
fn a_send_begins_where_there_is_room_for_it_beside_what_has_yet_to_leave_of_others() {
    for (count, begun) in [(1, 2), (2, 1)] {
        let mut bob = bob_of(Config {
            outgoing_buffer_messages_max: 4,
            ..config()
        });
        queue(&mut bob, ONE, 3);
        queue(&mut bob, OTHER, count);
        let first = Kinds::NONE.with(TransmitKind::First);
        assert_eq!(bob.leaving_of(first).len(), 1);
        bob.now_ms = TIMEOUT_MS;
        assert_eq!(1 + bob.leaving_of(first).len(), begun);
    }
}

#[test]
fn a_send_is_not_given_up_before_all_of_it_has_left() {
    let mut bob = bob_of(config());
    queue(&mut bob, ONE, 2);
    let rest = Kinds::NONE.with(TransmitKind::First);
    let rest = rest.with(TransmitKind::Retransmission);
    let mut again = Vec::new();
    for round in 0..20 {
        bob.now_ms = round * TIMEOUT_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
        again.extend(bob.leaving_of(rest).into_iter().map(|left| left.ordinal));
    }
    assert_eq!(again, [Some(0); 6]);
    assert_eq!(given_up(&mut bob), []);
    // It was waited for long enough once the rest has left.
    let now_ms = bob.now_ms;
    assert_eq!(leaves_until(&mut bob, 60_000), all_at(now_ms, [1]));
    assert_eq!(given_up(&mut bob), [(ONE.to_owned(), vec![0, 1])]);
}

#[test]
fn what_the_node_has_yet_to_answer_for_does_not_go_again() {
    let mut bob = bob_of(config());
    queue(&mut bob, ONE, 1);
    let left = leave(&mut bob);
    for round in 1..=8 {
        bob.now_ms = round * TIMEOUT_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
        assert_eq!(bob.leaving(), []);
    }
    assert_eq!(given_up(&mut bob), []);
    let now_ms = bob.now_ms + 50;
    bob.now_ms = now_ms;
    bob.machine
        .handle_transmitted(left.transmit_id, None, at(now_ms));
    assert_eq!(
        leaves_until(&mut bob, now_ms + TIMEOUT_MS),
        all_at(now_ms + TIMEOUT_MS, [0])
    );
}

#[test]
fn what_those_have_that_are_nearest_goes_once_others_are_nearer_that_lack_it() {
    // Named before its time, or when that has come and nothing could leave.
    for named_ms in [10, 400] {
        let mut bob = Bob::new();
        send(&mut bob, ONE, 3);
        bob.now_ms = named_ms;
        bob.machine.handle_timeout(at(named_ms));
        bob.hear(names("carol", &first([0])));
        assert_eq!(leaves_until(&mut bob, 410), all_at(400, [1, 2]));
        bob.hear(names("dave", &first([1, 2])));
        assert_eq!(leaves_until(&mut bob, 810), all_at(800, [0]));
    }
}

#[test]
fn a_send_does_not_end_for_a_content_that_was_acknowledged_at_last() {
    let mut bob = bob_of(config());
    queue(&mut bob, ONE, 2);
    let rest = Kinds::NONE.with(TransmitKind::First);
    let rest = rest.with(TransmitKind::Retransmission);
    let retransmissions = i64::from(config().max_retransmissions);
    for round in 0..=retransmissions {
        bob.now_ms = round * TIMEOUT_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
        assert_eq!(bob.leaving_of(rest).len(), 1);
    }
    assert_eq!(bob.leaving().len(), 1);
    bob.now_ms += 10;
    bob.hear(names("carol", &first([0])));
    let rounds = (1..=retransmissions).map(|round| (retransmissions + round) * TIMEOUT_MS);
    let expected: Vec<_> = rounds.map(|at_ms| (at_ms, Some(1))).collect();
    assert_eq!(leaves_until(&mut bob, 60_000), expected);
    assert_eq!(given_up(&mut bob), [(ONE.to_owned(), vec![1])]);
}

#[test]
fn what_is_due_and_is_left_out_before_it_leaves_stays() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 2);
    bob.now_ms = TIMEOUT_MS;
    bob.machine.handle_timeout(at(TIMEOUT_MS));
    bob.machine.leave_out(&id(ONE, 0));
    assert_eq!(leaves_until(&mut bob, 700), all_at(TIMEOUT_MS, [1]));
}

#[test]
fn what_a_filter_holds_goes_again_half_as_often() {
    let mut bob = bob_of(Config {
        possible_acks_threshold: 9,
        ..config()
    });
    send(&mut bob, ONE, 1);
    bob.now_ms = 10;
    let message = filter(&mut bob, "carol");
    bob.hear(message);
    let expected: Vec<_> = [800, 1_600, 2_400].map(|at_ms| (at_ms, Some(0))).into();
    assert_eq!(leaves_until(&mut bob, 2_800), expected);
}

// --- who answers ----------------------------------------------------------------------------------

#[test]
fn who_has_a_large_send_says_nothing_of_one_who_is_silent_unless_it_answers() {
    let waiting = || all_at(1_200, [6, 7, 8]);
    let all = || all_at(1_200, [6, 7, 8, 0, 1, 2, 3, 4, 5]);
    for (before, after, expected) in [
        (
            Some(lacks("carol", ONE, 0)),
            names("carol", &first([0])),
            all(),
        ),
        (None, lacks("carol", ONE, 0), waiting()),
        (None, lacks("carol", ONE, 5), all()),
    ] {
        let mut bob = to_both();
        send(&mut bob, ONE, LARGE);
        bob.now_ms = 10;
        if let Some(before) = before {
            bob.hear(before);
        }
        leaves_until(&mut bob, 700);
        let told = format!("{after:?}");
        bob.hear(after);
        leaves_until(&mut bob, 1_199);
        assert_eq!(leaves_until(&mut bob, 1_200), expected, "{told}");
    }
}

/// Named in the middle of a burst is what came until then.
#[test]
fn what_is_known_to_be_missing_goes_at_once_and_the_rest_waits_for_an_answer() {
    for (named_ms, expected) in [(5, vec![1, 2, 3]), (20, (1..LARGE).collect())] {
        let mut bob = to_both();
        send(&mut bob, ONE, LARGE);
        bob.now_ms = named_ms;
        bob.hear(names("carol", &first([0])));
        let mut left = leaves_until(&mut bob, TIMEOUT_MS);
        left.retain(|(_, ordinal)| *ordinal != Some(0));
        let mut expected = all_at(TIMEOUT_MS, expected);
        expected.truncate(left.len().max(2));
        assert_eq!(left, expected, "{named_ms}");
    }
}

#[test]
fn one_that_answers_gets_what_it_lacks_though_another_one_is_silent() {
    let mut bob = to_both();
    send(&mut bob, ONE, LARGE);
    assert_eq!(leaves_until(&mut bob, 500), all_at(400, [0, 1, 2]));
    bob.hear(names("carol", &first(0..8)));
    assert_eq!(leaves_until(&mut bob, 799), all_at(600, [8]));
}

#[test]
fn what_waited_for_an_answer_in_vain_counts_as_sent_and_not_what_got_one_or_is_looked_at_before() {
    for (acknowledgement_sync, heard_ms, expected) in [
        // Answered before its time, and in time.
        (false, 500, (600, 1)),
        (false, 790, (800, 1)),
        // As from syncs, which ask three times until then.
        (true, 500, (600, 1)),
        (true, 790, (800, 1)),
        (true, 900, (1_000, 2)),
    ] {
        let mut bob = bob_of(Config {
            acknowledgement_sync,
            ..config()
        });
        send(&mut bob, ONE, LARGE);
        bob.wait_until(heard_ms);
        bob.hear(names("carol", &first(0..8)));
        let mut left = bob.wait_until(expected.0);
        left.retain(|(at_ms, left)| *at_ms >= heard_ms && left.ordinal.is_some());
        let last_ms = left.last().map(|(at_ms, _)| *at_ms);
        assert_eq!(last_ms, Some(expected.0), "{heard_ms}");
        assert_eq!(attempts(left), [(Some(8), expected.1)], "{heard_ms}");
    }
}

#[test]
fn one_that_is_silent_is_asked_as_often_though_another_one_answers() {
    let mut bob = Bob::to(
        &["carol", "dave"],
        Config {
            acknowledgement_sync: true,
            ..config()
        },
    );
    send(&mut bob, ONE, LARGE);
    bob.wait_until(540);
    bob.hear(names("carol", &first(0..8)));
    let expected = [(640, Some(8)), (666, None)];
    assert_eq!(leaves_until(&mut bob, 799), expected);
}

/// Which of them the sync that leaves now asks, and how it is to be answered.
fn asked(bob: &mut Bob) -> Option<(Vec<&'static str>, u32)> {
    let sync = bob
        .leaving()
        .into_iter()
        .find(|left| left.kind == TransmitKind::Sync)?;
    let sync = Message::decode(&sync.payload, config().wire_format).unwrap();
    let request = sync.repair_request.first()?;
    let is_asked =
        |name: &&str| super::sync::lacking::asks(request.retrieval_hint.as_deref(), name);
    let asked = ["carol", "dave", "erin"]
        .into_iter()
        .filter(is_asked)
        .collect();
    let number = (0..2).find(|number| request.message_id == *super::ids::lacking_id(ONE, *number));
    Some((asked, number.expect("a number")))
}

#[test]
fn those_are_asked_that_are_to_have_it_and_say_nothing_of_what_they_lack() {
    let asking = || Config {
        acknowledgement_sync: true,
        ..config()
    };
    let heard = [
        None,
        Some(names("dave", &first([0]))),
        Some(lacks("dave", ONE, 0)),
    ];
    // A number is enough where more can be made.
    for (reserve, expected) in [
        (0, [Some((vec!["dave"], 1)), None, None]),
        (9, [Some((vec!["dave"], 0)), Some((vec!["dave"], 0)), None]),
    ] {
        for (heard, expected) in heard.iter().zip(expected) {
            let mut bob = Bob::to(&["carol", "dave"], asking());
            let sent = (0..LARGE).map(|number| Octets::from(number.to_string().as_bytes()));
            bob.machine
                .send_on_demand(ONE, sent.collect(), LARGE, reserve)
                .unwrap();
            bob.leaving();
            bob.hear(lacks("carol", ONE, 0));
            bob.now_ms = TIMEOUT_MS;
            bob.machine.handle_timeout(at(TIMEOUT_MS));
            if let Some(heard) = heard {
                bob.hear(heard.clone());
            }
            assert_eq!(asked(&mut bob), expected, "{reserve} {heard:?}");
        }
    }
}

#[test]
fn everybody_is_asked_where_any_is_to_have_it_and_nobody_once_one_has() {
    let all = vec!["carol", "dave", "erin"];
    for (heard, expected) in [(None, Some((all, 1))), (Some(lacks("carol", ONE, 0)), None)] {
        let mut bob = Bob::of(Config {
            acknowledgement_sync: true,
            ..config()
        });
        send(&mut bob, ONE, LARGE);
        bob.now_ms = TIMEOUT_MS;
        bob.machine.handle_timeout(at(TIMEOUT_MS));
        if let Some(heard) = heard {
            bob.hear(heard);
        }
        assert_eq!(asked(&mut bob), expected);
    }
}

/// Dave names all but the last one.
#[test]
fn who_names_what_came_until_the_last_content_just_left_is_asked_all_the_same() {
    for (last_ms, expected) in [(388, Some((vec!["dave"], 1))), (387, None)] {
        let mut bob = Bob::to(
            &["dave"],
            Config {
                acknowledgement_sync: true,
                ..config()
            },
        );
        queue(&mut bob, ONE, LARGE);
        for ordinal in 0..LARGE {
            bob.now_ms = if ordinal + 1 < LARGE { 0 } else { last_ms };
            let (left, now) = (leave(&mut bob), at(bob.now_ms));
            bob.machine.handle_transmitted(left.transmit_id, None, now);
        }
        bob.now_ms = TIMEOUT_MS;
        bob.machine.handle_timeout(at(TIMEOUT_MS));
        bob.hear(names("dave", &first(0..LARGE - 1)));
        assert_eq!(asked(&mut bob), expected, "{last_ms}");
    }
}

#[test]
fn who_acknowledged_what_is_told_in_that_order() {
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 4);
    let told = |events: Vec<Event>| -> Vec<Option<u32>> {
        let told = events.into_iter().filter_map(|event| match event {
            Event::ContentAcknowledged { ordinal, .. } => Some(Some(ordinal)),
            Event::SendAcknowledged { .. } => Some(None),
            _ => None,
        });
        told.collect()
    };
    assert_eq!(
        told(bob.hear(names("carol", &first([3, 1])))),
        [Some(3), Some(1)]
    );
    assert_eq!(
        told(bob.hear(lacks("carol", ONE, 0))),
        [Some(0), Some(2), None]
    );
}

#[test]
fn a_send_is_finished_once_however_many_have_it() {
    let mut bob = Bob::new();
    send(&mut bob, ONE, 2);
    for sender_id in ["carol", "dave"] {
        bob.hear(lacks(sender_id, ONE, 0));
        assert_eq!(stat(&bob, "outgoing_finished_contents"), 2);
    }
}

#[test]
fn of_sends_that_are_finished_the_oldest_are_forgotten() {
    let (count, limit) = (1_024, super::outgoing::FINISHED_CONTENTS_MAX);
    let mut bob = bob_of(config());
    for number in 0..=limit as u32 / count {
        let send_id = format!("{number:032x}");
        send(&mut bob, &send_id, count);
        bob.hear(lacks("carol", &send_id, 0));
    }
    assert_eq!(stat(&bob, "outgoing_finished_contents"), limit);
    let sends: Vec<_> = bob.machine.sends().map(|name| name.to_string()).collect();
    assert_eq!((sends.len(), &*sends[0]), (4, &*format!("{:032x}", 1)));
}

// --- filters --------------------------------------------------------------------------------------

/// A sync with a filter that holds all that bob has sent.
fn filter(bob: &mut Bob, sender_id: &str) -> Message {
    bob.machine.settle_filter();
    Message {
        bloom_filter: Some(bob.machine.filter.filter().to_bytes()),
        ..sync(sender_id)
    }
}

/// How many filters hold which content, and who acknowledged it, as it is told.
fn told_of_filters(events: Vec<Event>) -> Vec<(u32, Result<usize, String>)> {
    let told = events.into_iter().filter_map(|event| match event {
        Event::ContentPossiblyAcknowledged { ordinal, count, .. } => Some((ordinal, Ok(count))),
        Event::ContentAcknowledged { ordinal, by, .. } => Some((ordinal, Err(by.to_string()))),
        _ => None,
    });
    told.collect()
}

#[test]
fn so_many_filters_of_those_that_have_not_acknowledged_a_content_do() {
    let mut bob = to_both();
    send(&mut bob, ONE, 2);
    let carol = || Err("carol".to_owned());
    for expected in [
        vec![(0, Ok(1)), (1, Ok(1))],
        vec![(0, Ok(2)), (1, Ok(2)), (0, carol()), (1, carol())],
        vec![],
    ] {
        let message = filter(&mut bob, "carol");
        assert_eq!(told_of_filters(bob.hear(message)), expected);
    }
}

#[test]
fn the_filter_of_one_that_acknowledged_a_content_says_nothing_for_another_one() {
    let mut bob = to_both();
    send(&mut bob, ONE, 1);
    let message = filter(&mut bob, "dave");
    assert_eq!(told_of_filters(bob.hear(message)), [(0, Ok(1))]);
    let message = names("carol", &first([0]));
    assert_eq!(
        told_of_filters(bob.hear(message)),
        [(0, Err("carol".to_owned()))]
    );
    let message = filter(&mut bob, "carol");
    assert_eq!(told_of_filters(bob.hear(message)), []);
}

/// Of so many messages a small filter holds whatever is asked.
#[test]
fn filters_that_prove_nothing_are_told_until_they_are_enough_and_count_once_they_prove_it() {
    const OTHERS: u32 = 200;
    let mut bob = Bob::to(
        &["carol", "dave"],
        Config {
            bloom_filter_capacity: 10,
            ..config()
        },
    );
    send(&mut bob, ONE, 1);
    let (of_carol, of_dave) = (filter(&mut bob, "carol"), filter(&mut bob, "dave"));
    let others: Vec<String> = (1..=OTHERS).map(|ordinal| id(OTHER, ordinal)).collect();
    for message_id in &others {
        bob.hear(super::tests::message("alice", message_id, b"content"));
    }
    for (message, expected) in [
        (&of_carol, &[(0, Ok(1))][..]),
        (&of_carol, &[(0, Ok(2))]),
        (&of_carol, &[]),
        (&of_dave, &[(0, Ok(4))]),
        (&of_dave, &[]),
    ] {
        assert_eq!(told_of_filters(bob.hear(message.clone())), expected);
    }
    // Of parity that is of no use no filter tells.
    for message_id in &others {
        bob.machine.handle_content_surplus(message_id);
    }
    let acknowledged = ["carol", "dave"].map(|name| (0, Err(name.to_owned())));
    assert_eq!(told_of_filters(bob.hear(of_carol)), acknowledged);
}

#[test]
fn what_filters_show_to_be_missing_goes_once_all_who_answer_had_time_to() {
    let mut bob = to_both();
    queue(&mut bob, ONE, LARGE);
    (1..LARGE).for_each(|_| {
        let left = leave(&mut bob);
        bob.machine
            .handle_transmitted(left.transmit_id, None, at(0));
    });
    let message = filter(&mut bob, "carol");
    assert_eq!(leaves_until(&mut bob, 0), all_at(0, [8]));
    bob.wait_until(500);
    (0..2).for_each(|_| drop(bob.hear(message.clone())));
    assert_eq!(leaves_until(&mut bob, 799), all_at(600, [8]));
}

/// It has more contents than are remembered of all that are finished.
fn forgotten_once_it_is_delivered() -> Bob {
    let count = super::outgoing::FINISHED_CONTENTS_MAX as u32 + 1;
    let mut bob = Bob::new();
    let content = |number: u32| Octets::from(number.to_string().as_bytes());
    let sent = (0..count).map(content).collect();
    bob.machine.send(ONE, sent, 1).unwrap();
    bob.leaving();
    bob
}

#[test]
fn filters_of_two_acknowledge_a_send_that_is_forgotten_with_the_first() {
    let mut bob = forgotten_once_it_is_delivered();
    for sender_id in ["carol", "dave"] {
        assert!(bob.machine.knows_send(ONE));
        let message = filter(&mut bob, sender_id);
        bob.hear(message);
    }
    assert!(!bob.machine.knows_send(ONE));
}

#[test]
fn who_answers_may_be_the_one_with_whom_a_send_is_forgotten() {
    let mut bob = forgotten_once_it_is_delivered();
    bob.wait_until(TIMEOUT_MS);
    assert!(bob.machine.knows_send(ONE));
    bob.hear(names("carol", &first([0])));
    assert!(!bob.machine.knows_send(ONE));
}

// --- what is stored -------------------------------------------------------------------------------

#[test]
fn sends_keep_their_order_over_several_lives() {
    let mut bob = bob_of(config());
    let mut stored = Stored::default();
    let ids: Vec<String> = (0..6)
        .map(|number| format!("{:032x}", 9 - number))
        .collect();
    for of_one_life in ids.chunks(2) {
        for send_id in of_one_life {
            send(&mut bob, send_id, 2);
        }
        bob = stored.restart_as(bob_of(config()), bob);
    }
    let sends: Vec<_> = bob.machine.sends().map(|name| name.to_string()).collect();
    assert_eq!(sends, ids);
}

#[test]
fn what_has_not_begun_leaves_in_the_next_life_and_what_has_does_not() {
    for begins in [false, true] {
        let mut bob = bob_of(config());
        let mut stored = Stored::default();
        queue(&mut bob, ONE, 2);
        stored.take(&mut bob);
        if begins {
            bob.leaving();
        }
        let mut bob = stored.restart_as(bob_of(config()), bob);
        let left = if begins { vec![] } else { all_at(0, [0, 1]) };
        assert_eq!(leaves_until(&mut bob, 0), left);
        assert_eq!(stat(&bob, "outgoing_unacknowledged"), 2);
    }
}

#[test]
fn what_one_acknowledged_is_known_in_the_next_life() {
    let mut bob = to_both();
    let mut stored = Stored::default();
    send(&mut bob, ONE, 3);
    stored.take(&mut bob);
    bob.hear(names("carol", &first([1])));
    bob.hear(names("dave", &first([1])));
    bob = stored.restart_as(to_both(), bob);
    assert_eq!(leaves_until(&mut bob, 400), all_at(400, [0, 2]));
    bob.hear(lacks("carol", ONE, 0));
    bob = stored.restart_as(to_both(), bob);
    bob.hear(lacks("dave", ONE, 0));
    assert_eq!(bob.machine.pending_sends().count(), 0);
}

#[test]
fn filters_count_over_several_lives() {
    let mut bob = bob_of(config());
    let mut stored = Stored::default();
    send(&mut bob, ONE, 1);
    stored.take(&mut bob);
    for expected in [1, 2] {
        let message = filter(&mut bob, "carol");
        let told = told_of_filters(bob.hear(message));
        assert_eq!(told.first(), Some(&(0, Ok(expected))));
        bob = stored.restart_as(bob_of(config()), bob);
    }
    assert_eq!(bob.machine.pending_sends().count(), 0);
}

#[test]
fn how_often_a_content_was_sent_again_or_waited_in_vain_is_known_in_the_next_life() {
    // A retransmission that the node did not take is none.
    let mut bob = bob_of(config());
    let mut stored = Stored::default();
    send(&mut bob, ONE, 1);
    bob.now_ms = TIMEOUT_MS;
    bob.machine.handle_timeout(at(TIMEOUT_MS));
    let left = leave(&mut bob);
    stored.take(&mut bob);
    let now = at(TIMEOUT_MS);
    bob.machine.handle_transmit_failed(left.transmit_id, now);
    bob = stored.restart_as(bob_of(config()), bob);
    let left = bob.wait_until(2 * TIMEOUT_MS);
    assert_eq!(attempts(left), [(Some(0), 1)]);
    // Waiting for an answer in vain is as good as one.
    let mut bob = bob_of(config());
    let mut stored = Stored::default();
    send(&mut bob, ONE, LARGE);
    leaves_until(&mut bob, 700);
    stored.take(&mut bob);
    leaves_until(&mut bob, 850);
    bob = stored.restart_as(bob_of(config()), bob);
    bob.now_ms = 900;
    bob.hear(names("carol", &first(0..8)));
    let left = bob.wait_until(1_300);
    assert_eq!(attempts(left), [(Some(8), 2)]);
}

#[test]
fn the_message_of_what_is_acknowledged_is_kept_for_repair_as_it_is_stored_or_not_at_all() {
    for enable_repair in [true, false] {
        let config = || Config {
            enable_repair,
            ..config()
        };
        let mut bob = bob_of(config());
        let mut stored = Stored::default();
        send(&mut bob, ONE, 2);
        assert_eq!(bob.machine.contents_of(ONE).flatten().count(), 2);
        stored.take(&mut bob);
        bob.hear(lacks("carol", ONE, 0));
        assert_eq!(bob.machine.contents_of(ONE).flatten().count(), 0);
        let records = bob.machine.poll_persist().into_iter();
        let messages = records.filter(|record| record.kind == MESSAGE);
        let mut written: Vec<_> = messages.map(|record| record.value.is_some()).collect();
        written.sort_unstable();
        // Stored already, or deleted now.
        assert_eq!(
            written,
            if enable_repair {
                vec![]
            } else {
                vec![false; 2]
            }
        );
        assert_eq!(bob.machine.message(&id(ONE, 0)).is_some(), enable_repair);
    }
}

#[test]
fn what_the_node_does_not_take_of_a_send_that_is_delivered_meanwhile_leaves_once_more() {
    let mut bob = bob_of(config());
    let content = |content: &str| Octets::from(content.as_bytes());
    let sent = vec![content("one"), content("two")];
    bob.machine.send(ONE, sent, 1).unwrap();
    let left = [leave(&mut bob), leave(&mut bob)];
    bob.machine
        .handle_transmitted(left[0].transmit_id, None, at(0));
    bob.hear(names("carol", &first([0])));
    bob.machine
        .handle_transmit_failed(left[1].transmit_id, at(0));
    let again = leave(&mut bob);
    assert_eq!(again.payload, left[1].payload);
}

#[test]
fn what_is_left_of_a_send_that_is_delivered_names_what_the_rest_did() {
    let mut bob = bob_of(config());
    bob.hear(super::tests::message("alice", "held", b"content"));
    bob.machine
        .handle_send_reconstructed(None, "alice", "held", 1, &[], at(0));
    bob.events();
    let sent = ["one", "two", "three"].map(|content| Octets::from(content.as_bytes()));
    bob.machine.send_on_demand(ONE, sent.into(), 1, 3).unwrap();
    let left = leave(&mut bob);
    bob.machine
        .handle_transmitted(left.transmit_id, None, at(0));
    bob.hear(names("carol", &first([0])));
    let named = |left: &Transmit| {
        let message = Message::decode(&left.payload, config().wire_format).unwrap();
        message.causal_history
    };
    let rest = bob.leaving();
    assert_eq!((rest.len(), named(&left).len()), (2, 1));
    assert!(rest.iter().all(|rest| named(rest) == named(&left)));
}

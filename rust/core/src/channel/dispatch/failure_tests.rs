//! What becomes of messages, and of the node, when that fails, refuses or says nothing.

use super::tests::{Alice, FAILED, MESSAGE, READY, REFUSED, THIRD};
use super::{Failure, NodeState, PROPAGATION_TIMEOUT_MS};
use crate::channel::Submission;
use crate::channel::tests::{ONE, OTHER, SEGMENT_BYTES, at, id, message, named, payload, segments};
use crate::sds::{Octets, TransmitKind};
use crate::wire::sds::Message;

#[test]
fn a_node_that_failed_is_left_alone_the_longer_the_more_often() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let pauses_ms = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    for (number, pause_ms) in (1..).zip(pauses_ms) {
        // Each failure counts for the send once in an acknowledgement timeout.
        let left = alice.leave();
        if left.is_empty() {
            break;
        }
        alice.failed(left[0], FAILED);
        assert_eq!(alice.state().failures, number);
        assert!(!alice.may_try());
        assert_eq!(alice.poll(), []);
        assert!(!alice.is_limited);
        alice.wait(pause_ms - 1);
        assert!(!alice.may_try(), "after {number}");
        assert_eq!(alice.wake_in_ms(), Some(1));
        alice.wait(1);
        assert!(alice.may_try());
    }
    let counts = alice.channel.dispatch_counts();
    assert!(counts.failures > 3);
}

#[test]
fn that_the_node_fails_is_told_once_and_that_it_does_no_longer() {
    let mut alice = Alice::retrying(100);
    alice.submit(ONE, 1, 0);
    let mut told = Vec::new();
    for _ in 0..5 {
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        told.extend(alice.events());
        alice.wait(30_000);
    }
    // Its place is taken since the first time.
    let known = "further failed, known true";
    assert_eq!(
        told,
        [
            "first failed, known false",
            known,
            known,
            "failing 3 down",
            known,
            known
        ]
    );
    let left = alice.leave();
    alice.propagated(left[0]);
    assert_eq!(alice.events(), ["recovered 5, told true"]);
    assert_eq!(alice.state(), READY);
    // The next failure is a first one again.
    alice.submit(OTHER, 2, 0);
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    alice.wait(500);
    assert!(alice.may_try());
    alice.propagated(left[1]);
    assert_eq!(
        alice.events(),
        ["first failed, known false", "recovered 1, told false"]
    );
}

#[test]
fn that_the_node_recovered_is_told_as_news_where_its_failing_was() {
    for (failures, is_news) in [(2, false), (3, true)] {
        let mut alice = Alice::new();
        alice.submit(ONE, 1, 0);
        for _ in 0..failures {
            let left = alice.leave();
            alice.failed(left[0], FAILED);
            alice.wait(2_000);
        }
        alice.events();
        let left = alice.leave();
        alice.propagated(left[0]);
        let expected = format!("recovered {failures}, told {is_news}");
        assert_eq!(alice.events(), [expected]);
    }
}

#[test]
fn each_failure_is_told_in_its_turn_and_whether_it_is_one_of_the_node() {
    let mut alice = Alice::new();
    for number in 1..=6 {
        alice.submit(&number.to_string().repeat(32), 1, 0);
    }
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    alice.failed(left[1], FAILED);
    alice.propagated(left[2]);
    // It left before the node failed.
    alice.failed(left[3], FAILED);
    alice.failed(left[4], REFUSED);
    let held = Failure {
        retry_after_ms: Some(20_000),
        ..FAILED
    };
    alice.failed(left[5], held);
    let expected = [
        "first failed, known false",
        "first failed, known true",
        "recovered 1, told false",
        "first failed, known true",
        "first failed, known false",
        "holds 20000",
    ];
    assert_eq!(alice.events(), expected);
    let counts = alice.channel.dispatch_counts();
    assert_eq!((counts.failures, counts.held), (4, 1));
    assert_eq!(alice.state().failures, 0);
}

#[test]
fn a_node_that_takes_what_left_after_its_failure_is_tried_at_once() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let prepared = alice.poll();
    let [first, second] = [0, 1].map(|place: usize| prepared[place].transmit_id);
    alice.channel.leave(first, 0);
    alice.failed(first, FAILED);
    alice.now_ms = 10;
    // It was on its way.
    alice.channel.leave(second, 10);
    alice.propagated(second);
    assert!(alice.may_try());
}

#[test]
fn a_refusal_says_nothing_of_the_node_where_others_asked_for_the_message() {
    for (kind, failure, failures) in [
        (TransmitKind::Repair, REFUSED, 0),
        (TransmitKind::Repair, FAILED, 1),
        (TransmitKind::Sync, REFUSED, 1),
    ] {
        let mut alice = Alice::new();
        let content = &segments(&payload(1, 100))[0];
        alice.hear(message("carol", &id(OTHER, 0), content));
        alice.hear(Message {
            content: None,
            repair_request: vec![named(&id(OTHER, 0), Some("carol"))],
            ..message("dave", "asks", b"")
        });
        let left = alice.leave_next(kind);
        alice.failed(left, failure);
        assert_eq!(alice.state().failures, failures, "{kind:?} {failure:?}");
    }
}

#[test]
fn what_left_before_a_failure_says_nothing_new_of_the_node() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let left = alice.leave();
    alice.now_ms = 10;
    alice.failed(left[0], FAILED);
    alice.failed(left[1], FAILED);
    assert_eq!(alice.state().failures, 1);
    // It answers for what it took before: it is there, and tried again soon.
    alice.propagated(left[2]);
    assert_eq!(alice.state().failures, 0);
    alice.now_ms = 59;
    assert!(!alice.may_try());
    alice.now_ms = 60;
    assert!(alice.may_try());
    assert_eq!(alice.leave().len(), 2);
}

#[test]
fn a_hold_is_no_failure_and_told_once() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let held = |retry_after_ms| Failure {
        retry_after_ms: Some(retry_after_ms),
        ..FAILED
    };
    let left = alice.leave();
    alice.failed(left[0], held(20_000));
    assert_eq!(alice.events(), ["holds 20000"]);
    alice.failed(left[1], held(30_000));
    assert_eq!(alice.events(), [""; 0]);
    assert_eq!(
        alice.state(),
        NodeState {
            held_ms: 30_000,
            ..READY
        }
    );
    // A shorter one changes nothing.
    alice.failed(left[2], held(0));
    assert_eq!(alice.state().held_ms, 30_000);
    let counts = alice.channel.dispatch_counts();
    assert_eq!((counts.held, counts.failures), (3, 0));
    alice.wait(29_999);
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    let left = alice.leave();
    assert_eq!(left.len(), 3);
    // Longer than ten seconds after what was told: news.
    alice.failed(left[0], held(20_000));
    assert_eq!(alice.events(), ["holds 20000"]);
    // No node names more than a day.
    alice.failed(left[1], held(i64::MAX));
    assert_eq!(alice.state().held_ms, 24 * 3_600_000);
    // While it refuses everything it may keep what it has.
    alice.wait(PROPAGATION_TIMEOUT_MS);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    alice.propagated(left[2]);
    assert_eq!(alice.outcomes().len(), 1);
}

#[test]
fn a_hold_is_news_again_once_something_was_taken_after_the_last() {
    let held = Failure {
        retry_after_ms: Some(5_000),
        ..FAILED
    };
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let left = alice.leave();
    alice.failed(left[0], held);
    assert_eq!(alice.events(), ["holds 5000"]);
    // What it took before the hold says nothing of the hold.
    alice.propagated(left[1]);
    alice.failed(left[2], held);
    assert_eq!(alice.events(), [""; 0]);
    alice.wait(5_000);
    let left = alice.leave();
    alice.propagated(left[0]);
    alice.failed(left[1], held);
    assert_eq!(alice.events(), ["holds 5000"]);
}

#[test]
fn a_node_that_promises_a_short_time_again_and_again_is_asked_less_and_less_often() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    for hold_ms in [500, 1_000, 2_000, 4_000] {
        let failure = Failure {
            retry_after_ms: Some(0),
            ..FAILED
        };
        // However many it refuses at a time.
        for left in alice.leave() {
            alice.failed(left, failure);
        }
        assert_eq!(alice.state().held_ms, hold_ms);
        alice.wait(hold_ms);
    }
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_hold_that_can_never_end_is_a_refusal() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    let failure = Failure {
        retry_after_ms: Some(1_000),
        ..REFUSED
    };
    alice.failed(left[0], failure);
    assert_eq!(alice.state(), READY);
    let error = ["r1 failed [0] no proof", "r1 error dispatch no proof"];
    assert_eq!(alice.outcomes(), error);
}

#[test]
fn a_send_that_waits_for_a_failing_node_too_long_is_given_up_with_what_waits_beside_it() {
    let mut alice = Alice::retrying(2);
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    for number in 0..3 {
        let left = alice.leave();
        assert_eq!(left.len(), 2);
        assert_eq!(alice.outcomes(), [""; 0], "{number}");
        alice.failed(left[0], FAILED);
        // One failure of the node, however many messages it hits and however soon the next follows.
        alice.wait(4_999);
        if let Some(again) = alice.leave().first() {
            alice.failed(*again, FAILED);
        }
        alice.failed(left[1], FAILED);
        alice.wait(30_000);
    }
    let outcomes = alice.outcomes();
    for request in ["r1", "r2"] {
        assert!(
            outcomes.contains(&format!("{request} error dispatch down")),
            "{outcomes:?}"
        );
    }
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
}

#[test]
fn failures_of_the_node_count_for_a_send_once_in_an_acknowledgement_timeout() {
    for (wait_ms, is_given_up) in [(4_999, false), (5_000, true)] {
        let mut alice = Alice::retrying(1);
        alice.now_ms = 100_000;
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        assert_eq!(alice.outcomes(), [""; 0]);
        alice.wait(wait_ms);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        assert_eq!(!alice.outcomes().is_empty(), is_given_up, "{wait_ms}");
    }
}

#[test]
fn failures_of_the_node_count_anew_for_a_send_that_propagated_or_begins_anew() {
    let mut alice = Alice::retrying(1);
    alice.submit(OTHER, 2, 0);
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    alice.propagated(left[1]);
    alice.wait(5_000);
    for id in alice.leave() {
        alice.failed(id, FAILED);
    }
    assert_eq!(alice.outcomes(), [""; 0]);

    let mut alice = Alice::retrying(1);
    alice.submit(ONE, 1, 0);
    for outcomes in [0, 2] {
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        assert_eq!(alice.outcomes().len(), outcomes);
        alice.wait(5_000);
    }
    alice.announced();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_failure_of_the_node_counts_for_no_send_that_a_store_has() {
    for is_stored in [false, true] {
        let mut alice = Alice::retrying(0);
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        if is_stored {
            alice.channel.handle_stored(ONE, 0, at(0));
        }
        alice.failed(left[0], FAILED);
        assert_eq!(alice.outcomes().is_empty(), is_stored);
    }
}

#[test]
fn what_goes_again_to_a_failing_node_in_vain_ends_as_what_nobody_acknowledged() {
    let mut alice = Alice::retrying(1);
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    for _ in 0..2 {
        alice.wait(5_000);
        assert_eq!(alice.outcomes(), [""; 0]);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
    }
    alice.events();
    let error = "1 of 1 segments were not acknowledged after the last retransmission";
    assert_eq!(alice.outcomes(), [format!("r1 error delivery {error}")]);
}

#[test]
fn what_can_never_be_sent_again_ends_its_message() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    let left = alice.leave_next(TransmitKind::Retransmission);
    alice.failed(left, REFUSED);
    let told = [
        "r1 sent",
        "r1 failed [0] no proof",
        "r1 error delivery no proof",
    ];
    assert_eq!(alice.outcomes(), told);
    for _ in 0..60 {
        alice.wait(1_000);
        assert_eq!(alice.poll(), []);
    }
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn what_can_never_be_sent_takes_no_other_send_with_it() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let left = alice.leave();
    alice.failed(left[0], REFUSED);
    assert!(alice.propagated(left[1]));
    assert!(alice.outcomes().contains(&"r2 sent".to_owned()));
}

#[test]
fn what_can_never_be_sent_ends_its_message_and_nothing_more_of_it_leaves() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    let prepared = alice.poll();
    alice.channel.leave(prepared[0].transmit_id, 0);
    alice.failed(prepared[0].transmit_id, REFUSED);
    let error = ["r1 failed [0] no proof", "r1 error dispatch no proof"];
    assert_eq!(alice.outcomes(), error);
    for transmit in &prepared[1..] {
        assert!(!alice.channel.leave(transmit.transmit_id, 0));
    }
    assert_eq!(alice.poll(), []);
    // The node is as good as before.
    assert_eq!(alice.state(), READY);
    assert_eq!(alice.events(), ["first failed, known false"]);
}

#[test]
fn parity_that_can_never_be_sent_is_done_without() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 1);
    let left = alice.leave();
    alice.failed(left[2], REFUSED);
    alice.propagated(left[0]);
    alice.propagated(left[1]);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    assert_eq!(alice.channel.dispatch_counts().parity_left_out, 1);
    alice.wait(60_000);
    assert!(
        alice
            .poll()
            .iter()
            .all(|transmit| transmit.ordinal != Some(2))
    );
}

#[test]
fn parity_that_a_failing_node_did_not_take_leaves_again() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 1);
    let left = alice.leave();
    alice.propagated(left[0]);
    alice.propagated(left[1]);
    alice.failed(left[2], FAILED);
    assert_eq!(alice.channel.dispatch_counts().parity_left_out, 0);
    alice.wait(500);
    let again: Vec<_> = alice.poll().iter().map(|again| again.ordinal).collect();
    assert_eq!(again, [Some(2)]);
}

#[test]
fn a_send_of_which_more_parity_can_be_made_ends_without_parity_that_can_never_be_sent() {
    let mut alice = Alice::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES)).into_iter().take(3);
    let submission = Submission {
        send_id: ONE.into(),
        request_id: "r1".into(),
        message_id: MESSAGE.into(),
        contents: contents.map(Octets::from).collect(),
        data_count: 2,
        reserve: 4,
    };
    assert!(alice.channel.submit(submission)[0].1.is_ok());
    let left = alice.leave();
    alice.propagated(left[0]);
    alice.propagated(left[1]);
    alice.failed(left[2], REFUSED);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    let mut told = Vec::new();
    for _ in 0..300 {
        alice.wait(1_000);
        for id in alice.leave() {
            alice.propagated(id);
        }
        told.extend(alice.outcomes());
    }
    let [error] = &told[..] else {
        panic!("it ends once, not {told:?}")
    };
    assert!(error.starts_with("r1 error delivery"), "{error}");
}

#[test]
fn a_segment_that_fits_no_longer_ends_its_message_unless_it_is_parity_or_has_left() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 1);
    alice.submit(OTHER, 1, 0);
    let now = at(0);
    alice.channel.fail_oversized(ONE, 2, "too large", now);
    assert_eq!(alice.outcomes(), [""; 0]);
    alice.channel.fail_oversized(ONE, 1, "too large", now);
    let error = ["r1 failed [1] too large", "r1 error dispatch too large"];
    assert_eq!(alice.outcomes(), error);
    assert_eq!(alice.leave().len(), 1);
    alice.channel.fail_oversized(OTHER, 0, "too large", now);
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_node_that_says_nothing_is_waited_for_so_long() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.wait(PROPAGATION_TIMEOUT_MS - 1);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    assert_eq!(alice.state().failures, 1);
    // What it says afterwards comes too late.
    assert!(!alice.propagated(left[0]));
}

#[test]
fn each_message_that_the_node_says_nothing_of_is_given_up_in_its_time() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
        assert_eq!(alice.leave().len(), 1);
        alice.wait(20_000);
    }
    assert_eq!(alice.now_ms, PROPAGATION_TIMEOUT_MS);
    assert_eq!(alice.channel.dispatches_in_flight(), 2);
    // The node is tried again before it is looked at once more.
    assert_eq!(alice.wake_in_ms(), Some(500));
    alice.wait(19_999);
    assert_eq!(alice.channel.dispatches_in_flight(), 2);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    // However late it is looked at.
    alice.wait(25_000);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
}

#[test]
fn a_slow_node_that_answers_in_turn_is_not_silent() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let left = alice.leave();
    for id in left {
        alice.wait(PROPAGATION_TIMEOUT_MS - 1);
        assert!(alice.propagated(id));
    }
    assert_eq!(alice.state(), READY);
}

#[test]
fn a_node_that_answers_for_later_ones_lost_the_earlier() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let lost = alice.leave()[0];
    alice.wait(1_000);
    alice.submit(OTHER, 1, 0);
    let later = alice.leave()[0];
    alice.wait(50_000);
    alice.propagated(later);
    alice.wait(8_999);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    alice.wait(1);
    assert!(!alice.channel.leave(lost, alice.now_ms));
}

#[test]
fn what_waits_to_be_handed_over_is_not_given_up() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let prepared = alice.poll();
    for _ in 0..3 {
        alice.wait(PROPAGATION_TIMEOUT_MS);
    }
    let id = prepared[0].transmit_id;
    assert!(alice.channel.leave(id, alice.now_ms));
    alice.wait(PROPAGATION_TIMEOUT_MS - 1);
    assert!(alice.propagated(id));
}

#[test]
fn an_announced_failure_holds_back_everything_until_it_is_applied() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.channel.announce_failure();
    alice.channel.announce_failure();
    alice.channel.handle_failed(left[0], REFUSED, at(0));
    assert!(!alice.may_try());
    // Of one that nobody waits for any longer too.
    alice.channel.handle_failed(left[0], REFUSED, at(0));
    assert!(alice.may_try());
    alice
        .channel
        .handle_connection(false, false, at(alice.now_ms));
    assert!(!alice.may_try());
    assert!(!alice.state().online);
}

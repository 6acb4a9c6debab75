//! What is taken back before the node has it: by a failed commit, a stop, the limit or the application.

use super::tests::{Alice, FAILED, MESSAGE, REFUSED, SILENT, THIRD, messages, places};
use super::{DISPATCHES_MAX, PROPAGATION_TIMEOUT_MS};
use crate::channel::tests::{
    Bob, ONE, OTHER, SEGMENT_BYTES, at, config, id, limits, payload, segments, settings,
};
use crate::channel::{OutcomeKind, OwnSend, Submission};
use crate::sds::{Config, Kinds, Octets, Transmit, TransmitKind};
use crate::wire::sds::{Message, WireFormat};

#[test]
fn what_was_not_stored_or_not_answered_leaves_again() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    let ids = |transmits: Vec<Transmit>| -> Vec<u64> {
        transmits
            .iter()
            .map(|transmit| transmit.transmit_id)
            .collect()
    };
    let unstored = ids(alice.poll());
    alice
        .channel
        .handle_commit_failed(&unstored, "disk full", at(0));
    assert!(!alice.channel.leave(unstored[0], 0));
    let stopped = alice.leave();
    assert_eq!(stopped.len(), 2);
    alice.allowances = vec![messages(1)];
    alice.channel.handle_stopped(at(0));
    let late = ids(alice.poll());
    alice.channel.handle_late(late[0], at(0));
    alice.channel.handle_stopped(at(0));
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    assert_eq!(alice.outcomes(), [""; 0]);
    for id in alice.leave() {
        assert!(alice.propagated(id));
    }
    assert_eq!(alice.outcomes(), ["r1 sent"]);
}

#[test]
fn what_was_taken_back_before_it_left_takes_a_place_when_it_leaves() {
    type Act = fn(&mut Alice, &[Transmit]);
    let unstored: Act = |alice, prepared| {
        let ids: Vec<u64> = prepared
            .iter()
            .map(|transmit| transmit.transmit_id)
            .collect();
        alice.channel.handle_commit_failed(&ids, "disk full", at(0));
    };
    let stopped: Act = |alice, _| alice.channel.handle_stopped(at(0));
    let late: Act = |alice, prepared| {
        for transmit in prepared {
            alice.channel.handle_late(transmit.transmit_id, at(0));
        }
        alice.channel.handle_stopped(at(0));
    };
    let acts = [unstored, stopped, late].into_iter();
    for (act, waits) in acts.flat_map(|act| [(act, false), (act, true)]) {
        let mut alice = Alice::new();
        alice.submit(ONE, 2, 0);
        alice.allowances = vec![messages(1)];
        let prepared = alice.poll();
        act(&mut alice, &prepared);
        if waits {
            alice.allowances = vec![messages(0)];
            assert_eq!(alice.poll(), []);
            assert!(alice.is_limited);
        }
        alice.allowances = vec![messages(1)];
        let kinds = alice.poll().into_iter().map(|transmit| transmit.kind);
        let kinds: Vec<TransmitKind> = kinds.collect();
        assert_eq!(kinds, [TransmitKind::First, TransmitKind::Further]);
        assert_eq!(alice.channel.unplaced(), 1);
    }
    // What has left has its place.
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.leave();
    alice.channel.handle_stopped(at(0));
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll().len(), 1);
}

#[test]
fn each_send_that_was_taken_back_before_it_left_takes_a_place() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let ids: Vec<u64> = alice.poll().iter().map(|it| it.transmit_id).collect();
    alice.channel.handle_commit_failed(&ids, "disk full", at(0));
    for (left, count) in [(0, 0), (1, 1), (0, 0), (1, 1)] {
        alice.allowances = vec![messages(left)];
        let prepared = alice.poll();
        assert_eq!(prepared.len(), count);
        for transmit in prepared {
            assert_eq!(transmit.kind, TransmitKind::First);
            assert!(alice.channel.leave(transmit.transmit_id, 0));
        }
    }
}

#[test]
fn what_is_not_known_to_have_left_before_a_restart_takes_a_place_after_it() {
    let mut bob = Bob::of(config(), settings(), limits());
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES)).into_iter().take(2);
    let contents: Vec<Octets> = contents.map(Octets::from).collect();
    for send_id in [ONE, OTHER] {
        let submission = Submission {
            send_id: send_id.into(),
            request_id: send_id.into(),
            message_id: send_id.into(),
            contents: contents.clone(),
            data_count: 2,
            reserve: 0,
        };
        assert!(bob.channel.submit(submission)[0].1.is_ok());
    }
    let (transmits, _) = bob.channel.poll_transmits(&[messages(2)], at(0));
    for transmit in transmits {
        assert!(bob.channel.leave(transmit.transmit_id, 0));
        if *transmit.message_id == *id(OTHER, 0) {
            let id = transmit.transmit_id;
            bob.channel.handle_propagated(id, b"hash", at(0));
        }
    }
    bob.restart().unwrap();
    let mut leave_again = |places| {
        bob.now_ms += 60_000;
        let now = at(bob.now_ms);
        bob.channel.handle_time(true, now);
        let (transmits, _) = bob.channel.poll_transmits(&[messages(places)], now);
        let left = transmits.into_iter();
        let left = left.map(|transmit| (transmit.message_id.to_string(), transmit.kind));
        left.collect::<Vec<_>>()
    };
    let is_of_one = |(id, _): &(String, TransmitKind)| id.starts_with(ONE);
    let left = leave_again(0);
    assert!(!left.is_empty() && !left.iter().any(is_of_one), "{left:?}");
    let left = leave_again(1).into_iter().filter(is_of_one);
    let kinds: Vec<_> = left.map(|(_, kind)| kind).collect();
    let again = TransmitKind::Retransmission;
    assert_eq!(kinds, [TransmitKind::First, again]);
}

#[test]
fn the_rest_of_a_send_that_was_taken_back_takes_no_second_place() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    alice.allowances = vec![messages(1)];
    let prepared = alice.poll();
    assert!(alice.channel.leave(prepared[0].transmit_id, 0));
    let rest = [prepared[1].transmit_id];
    alice
        .channel
        .handle_commit_failed(&rest, "disk full", at(0));
    alice.allowances = vec![messages(0)];
    let kinds: Vec<_> = alice.poll().iter().map(|again| again.kind).collect();
    assert_eq!(kinds, [TransmitKind::Further]);
}

#[test]
fn a_node_that_was_silent_may_have_sent_it_until_it_says_otherwise() {
    let says: [fn(&mut Alice, u64); 2] = [
        |alice, _| alice.wait(PROPAGATION_TIMEOUT_MS),
        |alice, id| alice.failed(id, SILENT),
    ];
    for (say, count) in says.into_iter().flat_map(|say| [(say, 1), (say, 2)]) {
        let mut alice = Alice::retrying(0);
        alice.submit(ONE, count, 0);
        let left = alice.leave();
        say(&mut alice, left[0]);
        alice.announced();
        for id in left {
            assert!(!alice.channel.own().never_left(ONE));
            alice.failed(id, REFUSED);
        }
        assert!(alice.begins_anew());
    }
}

#[test]
fn of_more_than_the_node_may_have_to_answer_for_the_oldest_counts_as_sent() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let prepared = alice.poll();
    let (dispatch, own) = (&mut alice.channel.dispatch, &mut alice.channel.own);
    dispatch.unanswered.add(&prepared[0], own);
    for transmit_id in 1_000..1_000 + DISPATCHES_MAX as u64 {
        let transmit = Transmit {
            transmit_id,
            ..prepared[1].clone()
        };
        dispatch.unanswered.add(&transmit, own);
    }
    for transmit_id in [prepared[0].transmit_id, 1_000] {
        dispatch.unanswered.on_answer(transmit_id, true, own);
    }
    let unanswered = |send_id| own.get(send_id).unwrap().unanswered;
    let expected = (1, DISPATCHES_MAX as u32 - 1);
    assert_eq!((unanswered(ONE), unanswered(OTHER)), expected);
}

#[test]
fn nothing_of_a_send_left_once_the_node_has_refused_all_that_it_was_handed() {
    for (answered, is_told) in (0..3).flat_map(|answered| [(answered, false), (answered, true)]) {
        let mut alice = Alice::new();
        alice.submit(ONE, 3, 0);
        let left = alice.leave();
        // The node has yet to answer for two when the third fails for good.
        alice.failed(left[2], REFUSED);
        for &id in &left[..answered] {
            // Of one that was refused before nothing more is known.
            alice.failed(id, REFUSED);
            alice.failed(id, REFUSED);
        }
        if is_told {
            let own = alice.channel.own_mut();
            own.on_announced(ONE, OutcomeKind::Failed, "r1");
        }
        let expected = is_told && answered == 2;
        assert_eq!(alice.begins_anew(), expected, "{answered} {is_told}");
    }
}

#[test]
fn something_may_have_left_where_the_node_says_anything_else() {
    let says: [fn(&mut Alice, u64); 3] = [
        |alice, id| assert!(!alice.propagated(id)),
        |alice, id| alice.failed(id, SILENT),
        |alice, id| alice.channel.handle_late(id, at(0)),
    ];
    for say in says {
        let mut alice = Alice::new();
        alice.submit(ONE, 2, 0);
        let left = alice.leave();
        alice.failed(left[1], REFUSED);
        say(&mut alice, left[0]);
        // It has said what it has to say.
        alice.failed(left[0], REFUSED);
        let own = alice.channel.own_mut();
        own.on_announced(ONE, OutcomeKind::Failed, "r1");
        assert!(!alice.begins_anew());
    }
}

#[test]
fn what_was_handed_over_for_another_send_of_the_same_id_counts_for_none() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let prepared = alice.poll();
    let id = prepared[0].transmit_id;
    alice.channel.handle_stopped(at(0));
    // Handed over all the same, say by what an earlier life left behind.
    let (dispatch, own) = (&mut alice.channel.dispatch, &mut alice.channel.own);
    dispatch.unanswered.add(&prepared[0], own);
    alice.channel.withdraw("r1");
    assert!(alice.channel.own().get(ONE).is_none());
    let own = &mut alice.channel.own;
    let send = OwnSend::new("r1".into(), MESSAGE.into(), 1, 1, "");
    own.register(ONE, send);
    own.on_unanswered(ONE);
    own.on_irrecoverable(ONE, 0, "no proof");
    own.on_announced(ONE, OutcomeKind::Failed, "r1");
    alice.failed(id, REFUSED);
    assert!(!alice.channel.own().never_left(ONE));
}

#[test]
fn a_late_message_of_a_send_that_is_given_up_does_not_leave() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    let left = alice.leave();
    alice.channel.handle_late(left[1], at(0));
    alice.failed(left[0], REFUSED);
    let own = alice.channel.own_mut();
    own.on_announced(ONE, OutcomeKind::Failed, "r1");
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    // The node has yet to say that it did not take the third.
    assert!(!alice.channel.own().never_left(ONE));
    alice.failed(left[2], REFUSED);
    assert!(alice.channel.own().never_left(ONE));
}

#[test]
fn a_send_whose_late_first_was_taken_back_begins_anew() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    let left = alice.leave();
    alice.channel.handle_late(left[0], at(0));
    alice.failed(left[1], REFUSED);
    let own = alice.channel.own_mut();
    own.on_announced(ONE, OutcomeKind::Failed, "r1");
    alice.submit(ONE, 2, 0);
    // The second waits behind no first of the send before, and takes no place in its stead.
    let kinds: Vec<_> = alice.poll().iter().map(|transmit| transmit.kind).collect();
    assert_eq!(kinds, [TransmitKind::First, TransmitKind::Further]);
}

#[test]
fn nothing_of_a_cancelled_send_leaves_that_the_node_does_not_have() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    alice.submit(OTHER, 1, 0);
    alice.allowances = vec![places(4, 0, Kinds::NONE)];
    let prepared: Vec<u64> = alice.poll().iter().map(|it| it.transmit_id).collect();
    assert!(alice.channel.leave(prepared[0], 0));
    alice.channel.handle_late(prepared[1], at(0));
    let (cancelled, send) = alice.channel.cancel("r1").unwrap();
    assert!(cancelled);
    // One is with the node. Another's named it, and leaves anew.
    assert_eq!((send.sending.count(), send.sending.contains(0)), (1, true));
    let handed_out = prepared.iter().map(|id| alice.channel.is_handed_out(*id));
    assert_eq!(handed_out.collect::<Vec<_>>(), [true, false, false, false]);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    assert_eq!(alice.channel.sds.transmissions_in_flight().count(), 1);
    assert_eq!(alice.channel.unplaced(), 0);
    assert!(!alice.channel.leave(prepared[2], 0));
    // Its owner says that it is late.
    alice.channel.handle_late(prepared[2], at(0));
    let again = alice.poll();
    let sends = again.iter().map(|it| it.send_id.as_deref());
    assert_eq!(sends.collect::<Vec<_>>(), [Some(OTHER)]);
    assert!(alice.channel.leave(again[0].transmit_id, 0));
    assert!(alice.propagated(prepared[0]));
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn what_was_to_leave_again_of_a_cancelled_send_has_left() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    let due_in_ms = alice.wake_in_ms().expect("it is sent again");
    alice.wait(due_in_ms);
    let again = alice.poll();
    assert_eq!((again.len(), again[0].attempt), (1, 1));
    let (cancelled, send) = alice.channel.cancel("r1").unwrap();
    assert_eq!((cancelled, send.sending.contains(0)), (true, true));
}

#[test]
fn a_send_begun_anew_after_it_was_cancelled_has_failed_no_node() {
    let mut alice = Alice::retrying(1);
    for _ in 0..2 {
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        alice.wait(5_000);
        assert!(alice.channel.cancel("r1").unwrap().0);
    }
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn what_is_late_of_one_send_outlives_another() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 2, 0);
    let left = alice.leave();
    for &id in &left[1..] {
        alice.channel.handle_late(id, at(0));
    }
    alice.failed(left[0], REFUSED);
    let kinds: Vec<TransmitKind> = alice
        .poll()
        .into_iter()
        .map(|transmit| transmit.kind)
        .collect();
    assert_eq!(kinds, [TransmitKind::First, TransmitKind::Further]);
}

/// The sends that a message names.
fn named_by(transmit: &Transmit) -> Vec<String> {
    let message = Message::decode(&transmit.payload, WireFormat::Spec).unwrap();
    let history = message.causal_history.into_iter();
    history
        .map(|entry| entry.message_id[..ONE.len()].into())
        .collect()
}

/// Whose messages name the last one before them alone.
fn naming_one() -> Config {
    Config {
        causal_history_size: 1,
        ..config()
    }
}

/// Where all that is handed out of two sends is, whose messages name the first.
type Held = fn(&mut Alice, &[Transmit]);

#[test]
fn what_names_a_cancelled_send_and_has_not_left_leaves_without_it() {
    let prepared: Held = |_, _| {};
    let late: Held = |alice, prepared| {
        for transmit in prepared {
            alice.channel.handle_late(transmit.transmit_id, at(0));
        }
    };
    let unstored: Held = |alice, prepared| {
        let ids: Vec<u64> = prepared.iter().map(|it| it.transmit_id).collect();
        alice.channel.handle_commit_failed(&ids, "disk full", at(0));
    };
    for hold in [prepared, late, unstored] {
        let mut alice = Alice::of(naming_one());
        let before = alice.send_before();
        alice.submit(ONE, 1, 0);
        alice.submit(OTHER, 2, 0);
        let held = alice.poll();
        let rest = held
            .iter()
            .filter(|it| it.send_id.as_deref() == Some(OTHER));
        let rest: Vec<_> = rest.cloned().collect();
        assert!(rest.len() == 2 && rest.iter().all(|it| named_by(it).contains(&ONE.into())));
        hold(&mut alice, &held);
        assert!(alice.channel.cancel("r1").unwrap().0);
        for transmit in &held {
            assert!(!alice.channel.leave(transmit.transmit_id, 0));
        }
        let again = alice.poll();
        let again: Vec<_> = again
            .iter()
            .map(|it| (it.kind, it.ordinal, named_by(it)))
            .collect();
        // It follows what the cancelled one followed.
        let named = vec![before];
        let expected = [TransmitKind::First, TransmitKind::Further]
            .into_iter()
            .zip([0, 1]);
        let expected = expected.map(|(kind, ordinal)| (kind, Some(ordinal), named.clone()));
        assert_eq!(again, expected.collect::<Vec<_>>());
    }
}

#[test]
fn what_is_yet_to_be_made_of_a_send_names_no_cancelled_one_in_the_next_life_either() {
    for restarts in [false, true] {
        let mut bob = Bob::of(naming_one(), settings(), limits());
        for (send_id, count) in [(THIRD, 1), (ONE, 1), (OTHER, 2)] {
            let contents = segments(&payload(1, 2 * SEGMENT_BYTES)).into_iter();
            let submission = Submission {
                send_id: send_id.into(),
                request_id: send_id.into(),
                message_id: send_id.into(),
                contents: contents.take(count).map(Octets::from).collect(),
                data_count: count as u32,
                reserve: 0,
            };
            assert!(bob.channel.submit(submission)[0].1.is_ok());
        }
        let three = [places(3, 0, Kinds::NONE)];
        let (prepared, _) = bob.channel.poll_transmits(&three, at(0));
        assert_eq!(named_by(&prepared[2]), [ONE]);
        assert!(bob.channel.leave(prepared[0].transmit_id, 0));
        bob.commit();
        assert!(bob.channel.cancel(ONE).unwrap().0);
        if restarts {
            bob.restart().unwrap();
        }
        let (left, _) = bob.channel.poll_transmits(&[], at(0));
        let other = left
            .iter()
            .filter(|it| it.send_id.as_deref() == Some(OTHER));
        let named: Vec<_> = other.map(named_by).collect();
        assert_eq!(named, [[THIRD], [THIRD]]);
    }
}

/// Of two sends the later one, of so many contents, begins to leave first.
fn where_the_other_leaves(count: u32) -> (Alice, Vec<Transmit>) {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, count, 0);
    let held = alice.poll();
    assert!(alice.channel.leave(held[1].transmit_id, 0));
    (alice, held)
}

#[test]
fn what_has_left_and_is_repeated_names_a_cancelled_send_still() {
    let (mut alice, held) = where_the_other_leaves(1);
    alice.propagated(held[1].transmit_id);
    let due_in_ms = alice.wake_in_ms().expect("it is sent again");
    alice.wait(due_in_ms);
    let again = alice.poll();
    let again = again
        .iter()
        .find(|it| it.kind == TransmitKind::Retransmission);
    let again = again.expect("the other is sent again");
    assert!(alice.channel.cancel("r1").unwrap().0);
    assert!(alice.channel.leave(again.transmit_id, alice.now_ms));
}

#[test]
fn what_has_left_in_part_names_a_cancelled_send_still() {
    let (mut alice, held) = where_the_other_leaves(2);
    assert!(alice.channel.cancel("r1").unwrap().0);
    assert!(alice.channel.leave(held[2].transmit_id, 0));
    assert_eq!(alice.poll(), []);
}

#[test]
fn what_is_repeated_waits_for_the_withdrawal_of_its_own_send_alone() {
    for (withdrawn, leaves) in [(ONE, false), (OTHER, true)] {
        let mut alice = Alice::new();
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        alice.propagated(left[0]);
        let due_in_ms = alice.wake_in_ms().expect("it is sent again");
        alice.wait(due_in_ms);
        let again = alice.poll();
        assert_eq!(again[0].kind, TransmitKind::Retransmission);
        alice.channel.announce_withdrawal("r", withdrawn);
        let (id, now_ms) = (again[0].transmit_id, alice.now_ms);
        assert_eq!(alice.channel.leave(id, now_ms), leaves);
    }
}

//! Messages on their way in: in their order, and no more than there is room for.

use super::submissions::QUEUED_CONTENTS_MAX;
use super::tests::{HANDOVER, RETRIEVAL, at, config, limits, settings};
use super::*;
use crate::sds::{Config, Drawn, TransmitKind};

const BYTES_MAX: usize = 1_000;
/// What a content of one of these messages has.
const CONTENT_BYTES: usize = 400;

fn alice(is_limited: bool) -> Channel {
    alice_of(config(), is_limited)
}

fn alice_of(sds: Config, is_limited: bool) -> Channel {
    alice_with(sds, BYTES_MAX, is_limited)
}

fn alice_with(sds: Config, bytes_max: usize, is_limited: bool) -> Channel {
    let config = ChannelConfig {
        sds,
        segmentation: Segmentation {
            parameters: Parameters::new(settings()).unwrap(),
            limits: limits(),
        },
        queue: QueueLimits {
            bytes_max,
            is_limited,
        },
        handover: HANDOVER,
        retrieval: RETRIEVAL,
    };
    let rng = Box::new(Drawn::from([]));
    Channel::new("room", "alice", config, at(0), rng).unwrap()
}

fn send_id(number: u32) -> String {
    format!("{number:032x}")
}

/// Submits a message of one content; the requests that wait no longer, and whether they were taken in.
fn submit(alice: &mut Channel, number: u32, size_bytes: usize) -> Vec<(String, bool)> {
    told(alice.submit(submission(number, size_bytes)))
}

fn submission(number: u32, size_bytes: usize) -> Submission {
    let send_id = send_id(number);
    Submission {
        send_id: send_id.as_str().into(),
        request_id: send_id.as_str().into(),
        message_id: "m".into(),
        contents: vec![Octets::from(vec![1; size_bytes])],
        data_count: 1,
        reserve: 0,
    }
}

fn told(taken: Vec<Taken>) -> Vec<(String, bool)> {
    let taken = taken.into_iter();
    taken
        .map(|(request_id, taken)| (request_id.to_string(), taken.is_ok()))
        .collect()
}

fn leave(alice: &mut Channel) -> Vec<Transmit> {
    alice.poll_transmits(&[], at(0)).0
}

#[test]
fn what_has_no_room_waits_in_its_order_and_is_registered_as_there_is_some() {
    let mut alice = alice(false);
    assert_eq!(submit(&mut alice, 1, CONTENT_BYTES), [(send_id(1), true)]);
    assert_eq!(submit(&mut alice, 2, CONTENT_BYTES), [(send_id(2), true)]);
    assert_eq!(submit(&mut alice, 3, CONTENT_BYTES), []);
    // A small one does not go before it.
    assert_eq!(submit(&mut alice, 4, 1), []);
    assert_eq!(alice.queued(), (4, 3 * CONTENT_BYTES + 1));
    assert_eq!((alice.sends(), alice.is_busy()), (2, true));
    assert_eq!(told(alice.register_waiting()), []);
    assert_eq!(leave(&mut alice).len(), 2);
    let registered = told(alice.register_waiting());
    assert_eq!(registered, [(send_id(3), true), (send_id(4), true)]);
    assert_eq!(alice.sends(), 4);
}

#[test]
fn no_more_segments_wait_than_may_however_small_they_are() {
    let part = QUEUED_CONTENTS_MAX as u32 / 2;
    let of_many = |number| Submission {
        contents: vec![Octets::from(vec![1]); part as usize],
        data_count: part,
        ..submission(number, 1)
    };
    for is_limited in [false, true] {
        let mut alice = alice_with(config(), usize::MAX, is_limited);
        for number in [1, 2] {
            assert_eq!(
                told(alice.submit(of_many(number))),
                [(send_id(number), true)]
            );
        }
        let beyond = alice.submit(submission(3, 1));
        if is_limited {
            let contents_max = QUEUED_CONTENTS_MAX;
            let error = SubmitError::TooMany { contents_max };
            assert_eq!(beyond, [(send_id(3).as_str().into(), Err(error))]);
        } else {
            assert_eq!(beyond, []);
            assert!(!leave(&mut alice).is_empty());
            assert_eq!(told(alice.register_waiting()), [(send_id(3), true)]);
        }
    }
}

#[test]
fn what_follows_waits_while_the_outgoing_buffer_is_full() {
    let full = Config {
        outgoing_buffer_messages_max: 1,
        ..config()
    };
    let mut alice = alice_of(full, false);
    assert_eq!(submit(&mut alice, 1, 1).len(), 1);
    leave(&mut alice);
    assert_eq!(submit(&mut alice, 2, 1), []);
}

#[test]
fn under_a_rate_limit_what_has_no_room_is_refused() {
    let mut alice = alice(true);
    submit(&mut alice, 1, CONTENT_BYTES);
    submit(&mut alice, 2, CONTENT_BYTES);
    assert_eq!(submit(&mut alice, 3, CONTENT_BYTES), [(send_id(3), false)]);
    assert_eq!(alice.queued().0, 2);
}

#[test]
fn what_never_has_room_is_refused_with_a_rate_limit_or_without() {
    for is_limited in [false, true] {
        let mut alice = alice(is_limited);
        let refused = alice.submit(submission(1, BYTES_MAX + 1)).remove(0);
        assert!(matches!(refused.1, Err(SubmitError::TooLarge { .. })));
        assert!(!alice.is_busy());
    }
}

#[test]
fn what_is_taken_back_while_it_waits_leaves_its_room_to_the_next() {
    for withdraws in [false, true] {
        let mut alice = alice(false);
        submit(&mut alice, 1, CONTENT_BYTES);
        submit(&mut alice, 2, BYTES_MAX);
        submit(&mut alice, 3, 1);
        if withdraws {
            alice.withdraw(&send_id(2));
        } else {
            let (stopped, send) = alice.cancel(&send_id(2)).unwrap();
            assert!(stopped && send.sending.count() == 0);
        }
        let registered = told(alice.register_waiting());
        assert_eq!(registered, [(send_id(3), true)]);
        assert!(alice.own().get(&send_id(2)).is_none());
    }
}

#[test]
fn what_waited_and_is_too_large_by_then_fails() {
    let mut alice = alice(false);
    submit(&mut alice, 1, BYTES_MAX);
    submit(&mut alice, 2, CONTENT_BYTES);
    leave(&mut alice);
    alice
        .limit_messages(24_000, CONTENT_BYTES - 1, at(0))
        .unwrap();
    assert_eq!(told(alice.register_waiting()), [(send_id(2), true)]);
    let send = alice.own().get(&send_id(2)).unwrap();
    let (stage, error) = send.failure.clone().unwrap();
    assert_eq!((stage, alice.sends()), (FailureStage::Dispatch, 1));
    assert_eq!(&*error, "it is too large: 400 bytes, the node carries 399");
}

#[test]
fn what_was_registered_and_is_too_large_by_then_fails() {
    let mut alice = alice(false);
    submit(&mut alice, 1, CONTENT_BYTES);
    alice
        .limit_messages(24_000, CONTENT_BYTES - 1, at(0))
        .unwrap();
    assert!(alice.own().get(&send_id(1)).unwrap().failure.is_some());
    assert_eq!(leave(&mut alice), []);
}

#[test]
fn nothing_of_a_send_leaves_once_its_withdrawal_is_announced_nor_what_may_name_it() {
    let mut alice = alice(false);
    submit(&mut alice, 1, CONTENT_BYTES);
    submit(&mut alice, 2, CONTENT_BYTES);
    let [first, second] = &leave(&mut alice)[..] else {
        panic!("two leave");
    };
    assert_eq!(second.kind, TransmitKind::First);
    alice.announce_withdrawal(&send_id(1), &send_id(1));
    assert!(!alice.leave(first.transmit_id, 0));
    assert!(!alice.leave(second.transmit_id, 0));
    alice.withdraw(&send_id(1));
    // It is encoded again first: it may name the other.
    assert!(!alice.leave(second.transmit_id, 0));
    let again = leave(&mut alice);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].send_id.as_deref(), Some(&*send_id(2)));
    assert!(alice.leave(again[0].transmit_id, 0));
}

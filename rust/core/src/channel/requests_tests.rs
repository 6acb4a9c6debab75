//! Requests of ours: what they share, and what becomes of one that is taken back.

use super::tests::{HANDOVER, ONE, QUEUE, RETRIEVAL, at, config, limits, settings};
use super::*;
use crate::sds::{Drawn, MessageIdRule};

const REQUEST: &str = "request";
const AGAIN: &str = "again";

fn alice(message_id: MessageIdRule) -> Channel {
    let config = ChannelConfig {
        sds: Config {
            message_id,
            ..config()
        },
        segmentation: Segmentation {
            parameters: Parameters::new(settings()).unwrap(),
            limits: limits(),
        },
        queue: QUEUE,
        handover: HANDOVER,
        retrieval: RETRIEVAL,
    };
    let rng = Box::new(Drawn::from([]));
    let mut alice = Channel::new("room", "alice", config, at(0), rng).unwrap();
    alice.own_mut().listened().set(SendEventKind::ALL);
    submit(&mut alice, REQUEST).unwrap();
    alice
}

fn submit(alice: &mut Channel, request_id: &str) -> Result<(), SubmitError> {
    let mut taken = alice.submit(Submission {
        send_id: ONE.into(),
        request_id: request_id.into(),
        message_id: "m".into(),
        contents: [&b"one"[..], b"two"].map(Octets::from).into(),
        data_count: 2,
        reserve: 0,
    });
    taken.remove(0).1
}

/// One content leaves, and the network takes it.
fn leave(alice: &mut Channel) {
    let transmit = alice.poll_transmit(at(0), Kinds::ALL).unwrap();
    alice
        .own_mut()
        .on_propagated(ONE, transmit.ordinal.unwrap());
    let id = transmit.transmit_id;
    alice.sds_mut().handle_transmitted(id, None, at(0));
}

/// What still waits to leave.
fn waiting(alice: &Channel) -> usize {
    alice.sds().contents_of(ONE).count()
}

#[test]
fn a_cancelled_request_leaves_nothing_behind() {
    let mut alice = alice(MessageIdRule::Send);
    let (cancelled, send) = alice.cancel(REQUEST).unwrap();
    assert!(cancelled);
    assert_eq!((send.content_count, send.sending.count()), (2, 0));
    assert_eq!(waiting(&alice), 0);
    assert!(alice.own().get(ONE).is_none());
    assert!(alice.cancel(REQUEST).is_none());
    assert!(alice.poll_transmit(at(0), Kinds::ALL).is_none());
}

#[test]
fn a_request_that_has_ended_is_not_cancelled() {
    let mut alice = alice(MessageIdRule::Send);
    alice.own_mut().on_irrecoverable(ONE, 0, "no proof");
    assert!(!alice.cancel(REQUEST).unwrap().0);
    assert!(alice.own().get(ONE).is_some());
}

#[test]
fn a_request_of_a_delivered_send_is_not_cancelled_though_it_is_anothers_too() {
    let mut alice = alice(MessageIdRule::ContentSha256);
    submit(&mut alice, AGAIN).unwrap();
    leave(&mut alice);
    leave(&mut alice);
    alice.own_mut().on_reconstructible(ONE, &"bob".into());
    let (cancelled, send) = alice.cancel(REQUEST).unwrap();
    assert!(send.delivered && !cancelled);
    assert!(alice.own().send_id_of(REQUEST).is_some());
}

#[test]
fn a_send_of_two_requests_goes_on_for_the_one_that_is_left() {
    let mut alice = alice(MessageIdRule::ContentSha256);
    submit(&mut alice, AGAIN).unwrap();
    assert_eq!(waiting(&alice), 2, "it is one send");
    assert!(alice.cancel(REQUEST).unwrap().0);
    assert_eq!(waiting(&alice), 2);
    alice.withdraw(AGAIN);
    assert_eq!(waiting(&alice), 0);
    assert!(alice.own().get(ONE).is_none());
}

#[test]
fn a_withdrawn_request_is_forgotten_where_its_send_is_anothers_too() {
    let mut alice = alice(MessageIdRule::ContentSha256);
    submit(&mut alice, AGAIN).unwrap();
    alice.own_mut().on_irrecoverable(ONE, 0, "no proof");
    alice.withdraw(REQUEST);
    assert!(alice.own().send_id_of(REQUEST).is_none());
    assert!(alice.own().send_id_of(AGAIN).is_some());
}

#[test]
fn what_becomes_of_a_withdrawn_request_is_told_where_sds_goes_on_with_its_send() {
    let mut alice = alice(MessageIdRule::Send);
    leave(&mut alice);
    alice.own_mut().on_irrecoverable(ONE, 1, "no proof");
    alice.withdraw(REQUEST);
    assert!(alice.own().send_id_of(REQUEST).is_some());
    alice.sds_mut().cancel(ONE);
    alice.withdraw(REQUEST);
    assert!(alice.own().send_id_of(REQUEST).is_none());
}

#[test]
fn a_failed_send_is_begun_anew_where_nothing_of_it_left_and_its_end_was_told() {
    for (leaves, told) in [(false, true), (false, false), (true, true)] {
        let mut alice = alice(MessageIdRule::ContentSha256);
        if leaves {
            leave(&mut alice);
        }
        alice.own_mut().on_irrecoverable(ONE, 1, "no proof");
        alice.sds_mut().withdraw(ONE);
        if told {
            let own = alice.own_mut();
            own.on_announced(ONE, OutcomeKind::Failed, REQUEST);
        }
        submit(&mut alice, AGAIN).unwrap();
        let requests = &alice.own().get(ONE).unwrap().request_ids;
        let is_anew = requests.iter().all(|request_id| **request_id == *AGAIN);
        assert_eq!(is_anew, told && !leaves, "{leaves} {told}");
    }
}

#[test]
fn a_message_that_sds_refuses_begins_nothing() {
    let mut alice = alice(MessageIdRule::Send);
    let refused = alice.submit(Submission {
        send_id: "no send".into(),
        request_id: AGAIN.into(),
        message_id: "m".into(),
        contents: vec![Octets::from(&b"one"[..])],
        data_count: 1,
        reserve: 0,
    });
    assert!(matches!(refused[0].1, Err(SubmitError::Refused(_))));
    assert!(alice.own().send_id_of(AGAIN).is_none());
}

#[test]
fn a_message_that_can_never_be_sent_is_a_send_of_its_own_that_failed() {
    let mut alice = alice(MessageIdRule::Send);
    alice.refuse(AGAIN, "m", 3, "too large");
    let send = alice.own().get(AGAIN).unwrap();
    assert!(send.failure.is_some() && !send.is_pending());
    assert_eq!((send.data_count, send.content_count), (3, 1));
}

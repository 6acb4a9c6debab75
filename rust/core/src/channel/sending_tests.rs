//! What becomes of sends of ours by what others say of them, and in the next life.

use super::tests::{
    Bob, ONE, OTHER, SEGMENT_BYTES, at, config, heard, id, limits, message, named, payload,
    segments, settings,
};
use super::*;
use crate::bloom::BloomFilter;
use crate::wire::sds::Message;

/// Bob, who retries nothing.
fn bob() -> Bob {
    let config = Config {
        max_retransmissions: 0,
        ..config()
    };
    Bob::of(config, settings(), limits())
}

/// Two segments, and as much parity as can be made where it is wanted.
fn send(bob: &mut Bob, send_id: &str, reserve: u32) {
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES)).into_iter().take(2);
    let contents = contents.map(Octets::from).collect();
    let sds = bob.channel.sds_mut();
    sds.send_on_demand(send_id, contents, 2, reserve).unwrap();
    register(bob, send_id, 2, "raw leopard");
    leave(bob);
}

fn register(bob: &mut Bob, send_id: &str, content_count: u32, form: &str) {
    let request_id = format!("request {send_id}").into();
    let send = OwnSend::new(request_id, "m".into(), 2, content_count, form);
    bob.channel.own_mut().register(send_id, send);
}

/// The network takes all that is to leave.
fn leave(bob: &mut Bob) {
    let now = at(bob.now_ms);
    while let Some(transmit) = bob.channel.poll_transmit(now, Kinds::ALL) {
        let sds = bob.channel.sds_mut();
        sds.handle_transmitted(transmit.transmit_id, None, now);
        if let (Some(send_id), Some(ordinal)) = (&transmit.send_id, transmit.ordinal) {
            bob.channel.own_mut().on_propagated(send_id, ordinal);
        }
    }
}

/// Time passes until nothing more is due of what was sent.
fn wait(bob: &mut Bob) {
    for _ in 0..40 {
        bob.now_ms += 1_000;
        bob.channel.sds_mut().handle_timeout(at(bob.now_ms));
        bob.take_events();
        leave(bob);
    }
}

fn own<'a>(bob: &'a Bob, send_id: &str) -> &'a OwnSend {
    bob.channel.own().get(send_id).expect("it is remembered")
}

/// Says something without a content.
fn sync(sender_id: &str, number: u32) -> Message {
    Message {
        content: None,
        ..message(sender_id, &format!("sync {number}"), b"")
    }
}

fn names(number: u32, message_id: &str) -> Message {
    Message {
        causal_history: vec![named(message_id, Some("bob"))],
        ..sync("alice", number)
    }
}

#[test]
fn what_leaves_and_what_others_name_is_progress() {
    let mut bob = bob();
    send(&mut bob, ONE, 0);
    assert_eq!(
        (own(&bob, ONE).sending.count(), own(&bob, ONE).sent),
        (2, true)
    );
    bob.hear(names(1, &id(ONE, 1)));
    let acknowledged = |bob: &Bob| own(bob, ONE).chunks(&own(bob, ONE).acknowledged);
    assert_eq!(
        (acknowledged(&bob), own(&bob, ONE).delivered),
        (vec![1], false)
    );
    bob.hear(names(2, &id(ONE, 0)));
    assert_eq!(
        (acknowledged(&bob), own(&bob, ONE).delivered),
        (vec![0, 1], true)
    );
    assert_eq!(own(&bob, ONE).delivered_to, ["alice".into()]);
}

#[test]
fn an_acknowledgement_is_told_apart_where_somebody_watches() {
    for observed in [false, true] {
        let mut bob = bob();
        send(&mut bob, ONE, 0);
        let said = Message {
            lamport_timestamp: Some(at(0).epoch_ms as u64 + 1),
            ..names(1, &id(ONE, 1))
        };
        let data = Octets::from(said.encode(bob.config.wire_format).unwrap());
        let arrival = Arrival {
            observed,
            ..heard(&data)
        };
        bob.channel.handle_message(&arrival, at(0));
        bob.take_events();
        let is_told = |event: &Event| {
            matches!(
                event,
                Event::Sds(sds::Event::ContentAcknowledged { ordinal: 1, .. })
            )
        };
        assert_eq!(bob.events.iter().any(is_told), observed);
        assert!(own(&bob, ONE).acknowledged.contains(1));
    }
}

#[test]
fn what_filters_hold_is_possibly_acknowledged() {
    let mut bob = bob();
    send(&mut bob, ONE, 0);
    let config = &bob.config;
    let (capacity, rate) = (config.bloom_filter_capacity, config.bloom_filter_error_rate);
    let mut filter = BloomFilter::new(capacity, rate, config.wire_format).unwrap();
    for number in 1..4 {
        filter.insert(id(ONE, 1).as_bytes());
        bob.hear(Message {
            bloom_filter: Some(filter.to_bytes()),
            ..sync("alice", number)
        });
        filter.insert(number.to_string().as_bytes());
    }
    let send = own(&bob, ONE);
    assert_eq!(send.chunks(&send.possibly_acknowledged), [1]);
}

#[test]
fn what_nobody_acknowledges_fails_unless_a_store_has_it() {
    for (is_stored, restarts) in [(false, false), (true, false), (true, true)] {
        let mut bob = bob();
        send(&mut bob, ONE, 0);
        if is_stored {
            (0..2).for_each(|ordinal| bob.channel.handle_stored(ONE, ordinal, at(0)));
        }
        if restarts {
            bob.restart().unwrap();
            bob.channel.resume_in_store(at(0));
        }
        wait(&mut bob);
        let failure = own(&bob, ONE).failure.as_ref().map(|(stage, _)| *stage);
        let expected = (!is_stored).then_some(FailureStage::Delivery);
        assert_eq!((own(&bob, ONE).is_stored(), failure), (is_stored, expected));
    }
}

#[test]
fn sends_are_taken_back_in_their_order_and_those_that_sds_is_done_with_first() {
    let mut bob = bob();
    send(&mut bob, OTHER, 0);
    send(&mut bob, ONE, 0);
    register(&mut bob, "done with", 2, "");
    bob.restart().unwrap();
    let pending = bob.channel.own().pending();
    let requests: Vec<_> = pending
        .map(|send| send.request_ids[0].to_string())
        .collect();
    assert_eq!(
        requests,
        ["done with", OTHER, ONE].map(|id| format!("request {id}"))
    );
}

#[test]
fn first_parity_that_was_not_stored_is_done_without() {
    let mut bob = bob();
    send(&mut bob, ONE, 0);
    register(&mut bob, ONE, 3, "raw leopard");
    bob.channel.own_mut().on_propagated(ONE, 0);
    bob.channel.own_mut().on_propagated(ONE, 1);
    bob.restart().unwrap();
    let send = own(&bob, ONE);
    assert_eq!((send.left_out.contains(2), send.sent), (true, true));
}

#[test]
fn where_nothing_is_stored_no_change_of_a_send_is_kept_for_it() {
    let mut bob = bob();
    send(&mut bob, ONE, 0);
    bob.channel.drop_changes();
    assert_eq!(bob.channel.own_mut().poll_persist().count(), 0);
}

#[test]
fn parity_is_made_as_a_send_was_segmented_where_that_is_known() {
    for (form, made) in [("raw leopard", 2), ("", 0), ("raw", 0), ("raw unknown", 0)] {
        let mut bob = Bob::new();
        send(&mut bob, ONE, 2);
        register(&mut bob, ONE, 2, form);
        bob.hear(Message {
            repair_request: vec![named(&id(ONE, 9_999 - 1), Some("bob"))],
            ..sync("alice", 1)
        });
        wait(&mut bob);
        assert_eq!(bob.channel.parity_made(), made, "{form}");
    }
}

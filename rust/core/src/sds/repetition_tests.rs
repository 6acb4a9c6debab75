//! When contents that cannot be replaced by others go again, and who is asked before.

use std::collections::BTreeSet;

use super::outgoing_tests::Stored;
use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, lacks, names, sync};
use super::*;

const TIMEOUT_MS: i64 = 4 * WINDOW_MS;
/// So many contents of one send and one more: it is asked what is missing before all of it goes again.
const LARGE: u32 = 9;

fn bob_of(config: Config) -> Bob {
    Bob::of(Config {
        delivered_when: DeliveredWhen::Named(BTreeSet::from(["carol".into()])),
        ..config
    })
}

fn send(bob: &mut Bob, send_id: &str, count: u32) {
    let contents = (0..count).map(|number| format!("{number} of {send_id}"));
    let contents = contents.map(|content| Octets::from(content.as_bytes()));
    let machine = &mut bob.machine;
    machine.send(send_id, contents.collect(), count).unwrap();
    assert_eq!(bob.leaving().len(), count as usize);
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

fn stat(bob: &Bob, name: &str) -> usize {
    let stats = bob.machine.stats();
    let mut stats = stats.into_iter();
    stats.find(|(known, _)| *known == name).unwrap().1
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
    bob.events();
    bob.machine.stop(ONE);
    bob.machine.stop(ONE);
    bob.machine.stop(OTHER);
    assert_eq!(given_up(&mut bob), [(ONE.to_owned(), vec![0])]);
    assert_eq!(leaves_until(&mut bob, 60_000), []);
    // Who has it is told all the same.
    let is_told = |event: &Event| matches!(event, Event::SendAcknowledged { .. });
    assert!(bob.hear(lacks("carol", ONE, 0)).iter().any(is_told));
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
    let mut bob = bob_of(config());
    send(&mut bob, ONE, 2);
    let now = at(0);
    (0..2).for_each(|ordinal| bob.machine.handle_stored(ONE, ordinal, now));
    // One content probes, as often as one would go again.
    let probes: Vec<_> = (1..=5).map(|round| (round * TIMEOUT_MS, Some(0))).collect();
    assert_eq!(leaves_until(&mut bob, 2_100), probes);
    assert_eq!(stat(&bob, "outgoing_in_store"), 2);
    assert_eq!(bob.machine.sends_in_store(), 1);
    bob.hear(sync("carol"));
    let expected = all_at(3_200, [0, 1]);
    assert_eq!(leaves_until(&mut bob, 3_300), expected);
    assert_eq!(stat(&bob, "outgoing_in_store"), 0);
    assert_eq!(given_up(&mut bob), []);
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

//! What leaves of sends of ours, and when it goes again.

use std::collections::{BTreeMap, BTreeSet};

use super::incoming_tests::stat;
use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, lacks, message, names};
use super::*;
use crate::wire::sds::Message;

/// Carol is to have all that bob sends.
fn bob() -> Bob {
    Bob::to(&["carol"], config())
}

fn contents<const COUNT: usize>(contents: [&str; COUNT]) -> Vec<Octets> {
    let contents = contents.map(|content| Octets::from(content.as_bytes()));
    contents.into()
}

/// Two contents left, and carol lacks so many, which are wanted.
fn lacking(count: u32) -> Bob {
    let mut bob = bob();
    let sent = contents(["one", "two"]);
    bob.machine.send_on_demand(ONE, sent, 2, 3).unwrap();
    assert_eq!(bob.leaving().len(), 2);
    bob.hear(lacks("carol", ONE, count));
    bob.wait_for(|event| matches!(event, Event::ContentsWanted { .. }));
    bob
}

fn make(bob: &mut Bob, contents: Vec<Octets>) {
    let now = at(bob.now_ms);
    bob.machine.handle_contents_made(ONE, contents, now);
}

fn ordinals(left: Vec<Transmit>) -> Vec<u32> {
    left.into_iter()
        .filter_map(|transmit| transmit.ordinal)
        .collect()
}

#[test]
fn what_never_left_leaves_whoever_says_that_they_have_it() {
    let mut bob = lacking(1);
    make(&mut bob, contents(["three"]));
    bob.hear(names("carol", &[id(ONE, 2)]));
    assert_eq!(ordinals(bob.leaving()), [2]);
}

#[test]
fn what_is_due_and_is_acknowledged_before_it_leaves_stays() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    assert_eq!(ordinals(bob.leaving()), [0, 1]);
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    bob.hear(names("carol", &[id(ONE, 1)]));
    assert_eq!(ordinals(bob.leaving()), [0]);
}

/// The parity that was made leaves after the next message, which names the one that it is of.
#[test]
fn a_message_stands_once_in_the_order_though_no_more_is_made_before_what_was_made_has_left() {
    let mut bob = lacking(2);
    make(&mut bob, contents(["three", "four"]));
    make(&mut bob, Vec::new());
    bob.machine.send(OTHER, contents(["after"]), 1).unwrap();
    let first = Kinds::NONE.with(TransmitKind::First);
    assert_eq!(bob.leaving_of(first).len(), 1);
    assert_eq!(ordinals(bob.leaving()), [2, 3]);
    let sent = [&*id(ONE, 1), &*id(OTHER, 0)];
    let ordered: Vec<_> = bob.machine.ordered_ids().map(|id| &**id).collect();
    assert_eq!(ordered, sent);
    assert_eq!(bob.machine.inspect().heads, [Name::new(sent[1])]);
}

#[test]
fn what_goes_again_and_what_is_new_leave_in_turn() {
    let mut bob = bob();
    let send = |bob: &mut Bob, number: u32| {
        let send_id = format!("{number:032x}");
        bob.machine
            .send(&send_id, contents(["content"]), 1)
            .unwrap();
    };
    (0..3).for_each(|number| send(&mut bob, number));
    bob.leaving();
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    (3..6).for_each(|number| send(&mut bob, number));
    let kinds: Vec<_> = bob.leaving().iter().map(|left| left.kind).collect();
    let turn = [TransmitKind::Retransmission, TransmitKind::First];
    assert_eq!(kinds, [turn, turn, turn].concat());
}

/// Those of the contents whose messages `have` it.
fn those_that(bob: &mut Bob, have: impl Fn(&Message) -> bool) -> Vec<u32> {
    let left = bob.leaving().into_iter().filter(|transmit| {
        let wire_format = config().wire_format;
        have(&Message::decode(&transmit.payload, wire_format).unwrap())
    });
    ordinals(left.collect())
}

#[test]
fn a_send_on_demand_asks_with_its_first_its_middle_and_its_last_content() {
    let six = ["a", "b", "c", "d", "e", "f"];
    for (reserve, asking) in [(0, &[][..]), (3, &[0, 3, 5])] {
        let mut bob = bob();
        bob.machine
            .send_on_demand(ONE, contents(six), 6, reserve)
            .unwrap();
        let asks = those_that(&mut bob, |message| !message.repair_request.is_empty());
        assert_eq!(asks, asking);
    }
}

#[test]
fn a_filter_rides_on_the_last_content_of_a_send_or_on_each() {
    for (bloom_interval_ms, riding) in [(30_000, &[2][..]), (0, &[0, 1, 2])] {
        let mut bob = Bob::of(Config {
            bloom_interval_ms,
            ..config()
        });
        bob.hear(message("alice", "held", b"content"));
        bob.machine.send(ONE, contents(["a", "b", "c"]), 3).unwrap();
        let rides = those_that(&mut bob, |message| message.bloom_filter.is_some());
        assert_eq!(rides, riding, "{bloom_interval_ms}");
    }
}

#[test]
fn a_content_that_the_network_did_not_take_leaves_again() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one"]), 1).unwrap();
    for kind in [TransmitKind::First, TransmitKind::Further] {
        let left = bob.machine.poll_transmit(at(0), Kinds::ALL).unwrap();
        assert_eq!((left.kind, left.attempt), (kind, 0));
        assert_eq!(bob.machine.poll_transmit(at(0), Kinds::ALL), None);
        bob.machine.handle_transmit_failed(left.transmit_id, at(0));
    }
}

/// Takes one message that leaves, and leaves open what becomes of it.
pub(super) fn leave(bob: &mut Bob) -> Transmit {
    let now = at(bob.now_ms);
    let left = bob.machine.poll_transmit(now, Kinds::ALL);
    left.expect("it leaves")
}

#[test]
fn a_number_that_a_store_has_says_nothing_of_what_is_lacking_now() {
    for (from_store, is_wanted) in [(false, true), (true, false)] {
        let mut bob = bob();
        bob.machine
            .send_on_demand(ONE, contents(["one", "two"]), 2, 3)
            .unwrap();
        bob.leaving();
        bob.now_ms = 1;
        bob.hear_of(lacks("carol", ONE, 1), from_store);
        bob.wait_until(4 * WINDOW_MS);
        let is_told = |event: &Event| matches!(event, Event::ContentsWanted { .. });
        assert_eq!(bob.events().iter().any(is_told), is_wanted, "{from_store}");
    }
}

#[test]
fn what_is_to_be_asked_is_work_at_once() {
    let mut bob = bob();
    bob.machine
        .send_on_demand(ONE, contents(["one", "two"]), 2, 3)
        .unwrap();
    bob.leaving();
    let due_ms = loop {
        let due_ms = bob.machine.poll_timeout().expect("it asks");
        bob.machine.handle_timeout(at(due_ms));
        if bob.machine.poll_timeout() == Some(due_ms) {
            break due_ms;
        }
    };
    bob.now_ms = due_ms;
    assert_eq!(leave(&mut bob).kind, TransmitKind::Sync);
}

#[test]
fn the_message_of_a_content_that_may_be_sent_again_is_needed() {
    for enable_repair in [true, false] {
        let mut bob = Bob::of(Config {
            enable_repair,
            ..config()
        });
        bob.machine.send(ONE, contents(["one"]), 1).unwrap();
        bob.leaving();
        assert!(bob.machine.needs_message(&id(ONE, 0)));
        assert!(!bob.machine.needs_message(&id(ONE, 1)));
    }
}

#[test]
fn what_the_network_took_of_a_send_that_was_cancelled_meanwhile_is_kept_for_repair() {
    for enable_repair in [true, false] {
        let mut bob = Bob::of(Config {
            enable_repair,
            ..config()
        });
        bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
        let left = leave(&mut bob);
        assert!(bob.machine.cancel(ONE));
        bob.machine
            .handle_transmitted(left.transmit_id, None, at(0));
        let kept = bob.machine.message(&id(ONE, 0));
        assert_eq!(kept, enable_repair.then_some(left.payload));
    }
}

#[test]
fn how_a_store_finds_a_content_of_ours_is_stored() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one"]), 1).unwrap();
    let left = leave(&mut bob);
    let mut stored = Stored::default();
    stored.take(&mut bob);
    bob.machine
        .handle_transmitted(left.transmit_id, Some(b"hint"), at(0));
    let again = stored.restart(bob).machine;
    let held = again.log.find(id(ONE, 0).as_bytes()).unwrap();
    let hint = &again.log.get(held).unwrap().retrieval_hint;
    assert_eq!(hint.as_bytes(), Some(&b"hint"[..]));
}

#[test]
fn what_a_sync_said_that_the_network_did_not_take_is_said_by_another() {
    let mut bob = Bob::of(Config {
        acknowledgement_sync: true,
        ..config()
    });
    bob.hear(message("alice", "held", b"content"));
    for _ in 0..2 {
        bob.now_ms = bob
            .machine
            .acknowledgement_due_ms()
            .expect("it is to be said");
        let sync = leave(&mut bob);
        assert_eq!(sync.kind, TransmitKind::Sync);
        bob.machine
            .handle_transmit_failed(sync.transmit_id, at(bob.now_ms));
    }
}

#[test]
fn a_content_that_did_not_leave_again_is_kept_for_repair_alone_once_it_is_acknowledged() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one"]), 1).unwrap();
    bob.leaving();
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    let again = leave(&mut bob);
    assert_eq!(again.kind, TransmitKind::Retransmission);
    bob.machine
        .handle_transmit_failed(again.transmit_id, at(bob.now_ms));
    bob.hear(names("carol", &[id(ONE, 0)]));
    assert_eq!(bob.machine.own_message(&id(ONE, 0)), None);
    assert_eq!(bob.machine.message(&id(ONE, 0)), Some(again.payload));
}

#[test]
fn no_filter_holds_what_a_send_can_do_without() {
    let mut bob = bob();
    bob.machine
        .send(ONE, contents(["one", "two", "parity"]), 2)
        .unwrap();
    bob.leaving();
    bob.machine.settle_filter();
    let filter = bob.machine.filter.filter();
    let held: Vec<_> = (0..3)
        .filter(|ordinal| filter.contains(&id(ONE, *ordinal)))
        .collect();
    assert_eq!(held, [0, 1]);
}

#[test]
fn what_waits_to_leave_again_leaves_once_and_is_no_round_without_an_answer() {
    let mut bob = bob();
    bob.machine
        .send_on_demand(ONE, contents(["one", "two"]), 2, 1)
        .unwrap();
    bob.leaving();
    bob.now_ms = 1;
    bob.hear(lacks("carol", ONE, 2));
    bob.wait_for(|event| matches!(event, Event::ContentsWanted { .. }));
    make(&mut bob, contents(["three"]));
    assert_eq!(ordinals(bob.leaving()), [2]);
    bob.now_ms += 1;
    bob.hear(lacks("carol", ONE, 1));
    let mut happened = Vec::new();
    for _ in 0..=2 * config().max_retransmissions {
        bob.now_ms = bob.machine.poll_timeout().expect("it is looked at again");
        bob.machine.handle_timeout(at(bob.now_ms));
        happened.extend(bob.events());
    }
    assert_eq!(happened, []);
    assert_eq!(ordinals(bob.leaving()).len(), 1);
}

#[test]
fn what_is_made_leaves_once_though_its_time_comes_before() {
    let mut bob = lacking(2);
    make(&mut bob, contents(["three", "four"]));
    make(&mut bob, Vec::new());
    bob.machine.handle_timeout(at(bob.now_ms));
    let left = ordinals(bob.leaving());
    let once: BTreeSet<u32> = left.iter().copied().collect();
    assert!(once.contains(&2) && once.contains(&3));
    assert_eq!(left.len(), once.len());
}

// --- what is stored -------------------------------------------------------------------------------

/// The records of a participant, when every change is applied.
#[derive(Default)]
pub(super) struct Stored(BTreeMap<(&'static str, Name), Octets>);

impl Stored {
    pub fn take(&mut self, bob: &mut Bob) {
        for Record { kind, key, value } in bob.machine.poll_persist() {
            match value {
                Some(value) => drop(self.0.insert((kind, key), Octets::from(value.to_vec()))),
                None => drop(self.0.remove(&(kind, key))),
            }
        }
    }

    /// The next life of bob.
    fn restart(&mut self, bob: Bob) -> Bob {
        self.restart_as(self::bob(), bob)
    }

    /// As [`Stored::restart`], where a new participant is `again`.
    pub fn restart_as(&mut self, mut again: Bob, mut bob: Bob) -> Bob {
        self.take(&mut bob);
        let records = self.0.iter();
        let records = records.map(|((kind, key), value)| (*kind, key.clone(), value.clone()));
        let new = std::mem::replace(&mut again.machine, Bob::new().machine);
        again.machine = new.restore(records, at(bob.now_ms)).unwrap();
        again.now_ms = bob.now_ms;
        again
    }

    /// A store that damaged what it had.
    pub fn lose(&mut self, kind: &'static str, key: &str) {
        let lost = self.0.remove(&(kind, Name::new(key)));
        assert!(lost.is_some());
    }

    /// Records of our sends and of their contents.
    fn own(&self) -> usize {
        let kinds = ["sds.send", "sds.content", "sds.outgoing", "sds.message"];
        let names = self.0.keys();
        names.filter(|(kind, _)| kinds.contains(kind)).count()
    }
}

#[test]
fn what_the_network_did_not_take_waits_for_its_first_dispatch_in_the_next_life_too() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    let left = leave(&mut bob);
    let mut stored = Stored::default();
    stored.take(&mut bob);
    bob.machine
        .handle_transmit_failed(left.transmit_id, at(bob.now_ms));
    let mut again = stored.restart(bob);
    assert_eq!(stat(&again, "outgoing_unacknowledged"), 0);
    assert_eq!(ordinals(again.leaving()), [0, 1]);
}

#[test]
fn of_parity_that_can_be_made_again_no_bytes_are_stored_once_it_left() {
    let mut bob = bob();
    let sent = contents(["one", "two", "three"]);
    bob.machine.send_on_demand(ONE, sent, 2, 3).unwrap();
    assert_eq!(bob.leaving().len(), 3);
    let of = |bob: &Bob, ordinal| bob.machine.own_message(&id(ONE, ordinal)).is_some();
    assert_eq!(
        [0, 1, 2].map(|ordinal| of(&bob, ordinal)),
        [true, true, false]
    );
    let mut stored = Stored::default();
    stored.take(&mut bob);
    let messages = stored.0.keys().filter(|(kind, _)| *kind == MESSAGE).count();
    assert_eq!(messages, 2);
    bob.now_ms = 1;
    bob.hear(lacks("carol", ONE, 0));
    let kept = [0, 1, 2].map(|ordinal| bob.machine.message(&id(ONE, ordinal)).is_some());
    assert_eq!(kept, [true, true, false]);
}

#[test]
fn a_send_that_is_cancelled_leaves_nothing_behind() {
    let mut bob = bob();
    let mut stored = Stored::default();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    stored.take(&mut bob);
    assert!(bob.machine.cancel(ONE));
    stored.take(&mut bob);
    assert_eq!(stored.own(), 0);
    assert_eq!((bob.machine.queued_bytes(), bob.leaving().len()), (0, 0));
    bob.machine
        .send(OTHER, contents(["one", "two"]), 2)
        .unwrap();
    leave(&mut bob);
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 1);
    assert!(bob.machine.cancel(OTHER));
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
}

#[test]
fn what_is_acknowledged_is_remembered_and_waited_for_no_more_in_the_next_life_either() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    bob.leaving();
    bob.hear(names("carol", &[id(ONE, 0), id(ONE, 1)]));
    let mut stored = Stored::default();
    stored.take(&mut bob);
    for _ in 0..2 {
        assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
        assert_eq!(stat(&bob, "outgoing_finished_contents"), 2);
        bob = stored.restart(bob);
    }
}

#[test]
fn who_has_a_message_needs_no_more_of_what_is_made_in_the_next_life_either() {
    let both = || {
        Bob::of(Config {
            delivered_when: DeliveredWhen::Named(BTreeSet::from(["carol".into(), "dave".into()])),
            ..config()
        })
    };
    let mut bob = both();
    let sent = contents(["one", "two"]);
    bob.machine.send_on_demand(ONE, sent, 2, 3).unwrap();
    bob.leaving();
    bob.hear(lacks("carol", ONE, 0));
    bob.hear(lacks("dave", ONE, 1));
    bob.wait_for(|event| matches!(event, Event::ContentsWanted { .. }));
    make(&mut bob, contents(["three"]));
    assert_eq!(ordinals(bob.leaving()), [2]);
    let mut again = Stored::default().restart_as(both(), bob);
    again.now_ms += 1;
    again.hear(lacks("dave", ONE, 0));
    assert_eq!(stat(&again, "outgoing_finished_contents"), 3);
}

// --- room, and what is left over ------------------------------------------------------------------

#[test]
fn a_send_begins_where_there_is_room_for_all_of_it_or_nothing_else_waits() {
    let bob = || {
        Bob::of(Config {
            outgoing_buffer_messages_max: 2,
            ..config()
        })
    };
    let mut one_each = bob();
    for number in 0..3 {
        let send_id = format!("{number:032x}");
        let sent = contents(["content"]);
        one_each.machine.send(&send_id, sent, 1).unwrap();
    }
    assert_eq!(one_each.leaving().len(), 2);
    let mut large = bob();
    let sent = contents(["one", "two", "three"]);
    large.machine.send(ONE, sent, 3).unwrap();
    assert_eq!(large.leaving().len(), 3);
}

/// One of two contents is enough, and carol has the first.
#[test]
fn what_is_left_of_a_send_that_is_delivered_leaves_once_more_and_is_not_waited_for() {
    for is_taken in [true, false] {
        let mut bob = bob();
        bob.machine.send(ONE, contents(["one", "two"]), 1).unwrap();
        let first = leave(&mut bob);
        bob.machine
            .handle_transmitted(first.transmit_id, None, at(0));
        if !is_taken {
            let second = leave(&mut bob);
            bob.machine
                .handle_transmit_failed(second.transmit_id, at(0));
        }
        bob.hear(names("carol", &[id(ONE, 0)]));
        assert_eq!(ordinals(bob.leaving()), [1], "{is_taken}");
        assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
    }
}

#[test]
fn of_what_a_store_has_no_content_goes_again_while_the_node_has_yet_to_answer_for_it() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    bob.leaving();
    for ordinal in 0..2 {
        bob.machine.handle_stored(ONE, ordinal, at(0));
    }
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    assert_eq!(leave(&mut bob).ordinal, Some(0));
    bob.now_ms *= 2;
    bob.machine.handle_timeout(at(bob.now_ms));
    assert_eq!(bob.machine.waiting(TransmitKind::Retransmission), 0);
}

#[test]
fn of_what_has_yet_to_leave_no_store_has_anything() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    for ordinal in 0..2 {
        bob.machine.handle_stored(ONE, ordinal, at(0));
    }
    assert_eq!(ordinals(bob.leaving()), [0, 1]);
    bob.now_ms = 4 * WINDOW_MS;
    bob.machine.handle_timeout(at(bob.now_ms));
    assert_eq!(ordinals(bob.leaving()), [0, 1]);
}

// --- acknowledged ---------------------------------------------------------------------------------

#[test]
fn who_lacks_nothing_acknowledges_what_it_has_not_named() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one", "two"]), 2).unwrap();
    bob.leaving();
    let acknowledged = |events: Vec<Event>| -> Vec<u32> {
        let ordinals = events.into_iter().filter_map(|event| match event {
            Event::ContentAcknowledged { ordinal, .. } => Some(ordinal),
            _ => None,
        });
        ordinals.collect()
    };
    assert_eq!(acknowledged(bob.hear(names("carol", &[id(ONE, 1)]))), [1]);
    assert_eq!(acknowledged(bob.hear(lacks("carol", ONE, 0))), [0]);
}

#[test]
fn nobody_lacks_more_of_a_send_than_makes_it_whole() {
    let mut bob = bob();
    bob.machine
        .send_on_demand(ONE, contents(["one", "two"]), 2, 30)
        .unwrap();
    bob.leaving();
    bob.now_ms = 1;
    bob.hear(lacks("carol", ONE, 900));
    bob.wait_until(4 * WINDOW_MS);
    let wanted = bob.events().into_iter().find_map(|event| match event {
        Event::ContentsWanted { count, .. } => Some(count),
        _ => None,
    });
    assert_eq!(wanted, Some(2));
}

#[test]
fn so_many_filters_acknowledge_a_content_and_fewer_put_it_off_once() {
    for (possible_acks_threshold, is_delivered) in [(2, true), (3, false)] {
        let mut bob = Bob::of(Config {
            possible_acks_threshold,
            ..config()
        });
        bob.machine.send(ONE, contents(["one"]), 1).unwrap();
        bob.leaving();
        bob.machine.settle_filter();
        let filter = bob.machine.filter.filter().to_bytes();
        let mut counts = Vec::new();
        let mut delivered = false;
        for _ in 0..2 {
            let came = Message {
                bloom_filter: Some(filter.clone()),
                ..super::tests::sync("carol")
            };
            for event in bob.hear(came) {
                match event {
                    Event::ContentPossiblyAcknowledged { count, .. } => counts.push(count),
                    Event::SendAcknowledged { .. } => delivered = true,
                    _ => {}
                }
            }
        }
        assert_eq!((counts, delivered), (vec![1, 2], is_delivered));
        if !is_delivered {
            assert_eq!(bob.machine.poll_timeout(), Some(2 * 4 * WINDOW_MS));
        }
    }
}

#[test]
fn a_filter_that_holds_nearly_everything_acknowledges_nothing() {
    let mut bob = bob();
    bob.machine.send(ONE, contents(["one"]), 1).unwrap();
    bob.leaving();
    let full = vec![u8::MAX; bob.machine.filter.size_bytes()];
    for _ in 0..3 {
        let came = Message {
            bloom_filter: Some(full.clone()),
            ..super::tests::sync("carol")
        };
        let events = bob.hear(came);
        let is_of_ours = |event: &Event| !matches!(event, Event::SyncReceived { .. });
        assert!(!events.iter().any(is_of_ours), "{events:?}");
    }
}

// --- on demand ------------------------------------------------------------------------------------

#[test]
fn nothing_more_is_wanted_while_a_content_has_yet_to_leave() {
    let mut bob = bob();
    bob.machine
        .send_on_demand(ONE, contents(["one", "two"]), 2, 3)
        .unwrap();
    assert_eq!(leave(&mut bob).ordinal, Some(0));
    bob.now_ms = 1;
    bob.hear(lacks("carol", ONE, 1));
    for _ in 0..3 {
        bob.now_ms += 4 * WINDOW_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
    }
    assert_eq!(bob.events(), []);
}

#[test]
fn where_nothing_is_made_what_is_missing_goes_again() {
    // The owner says so, or does not answer in a round.
    for says_so in [true, false] {
        let mut bob = lacking(1);
        if says_so {
            make(&mut bob, Vec::new());
            bob.machine.handle_timeout(at(bob.now_ms));
        }
        let left = bob.wait_until(bob.now_ms + 5 * 4 * WINDOW_MS);
        let mut left = ordinals(left.into_iter().map(|(_, left)| left).collect());
        left.sort_unstable();
        left.dedup();
        assert_eq!(left, [0, 1], "{says_so}");
        let is_wanted = |event: &Event| matches!(event, Event::ContentsWanted { .. });
        assert!(!bob.events().iter().any(is_wanted));
    }
}

#[test]
fn nothing_is_made_under_an_id_that_another_content_has() {
    let mut bob = bob();
    bob.hear(message("mallory", &id(ONE, 2), b"forged"));
    bob.machine
        .send_on_demand(ONE, contents(["one", "two"]), 2, 3)
        .unwrap();
    bob.leaving();
    bob.now_ms = 1;
    bob.hear(lacks("carol", ONE, 1));
    bob.wait_for(|event| matches!(event, Event::ContentsWanted { .. }));
    make(&mut bob, contents(["three"]));
    assert_eq!(bob.machine.size_of(ONE), Some((2, 2)));
}

/// Takes back a send; of what was handed out and has not left, that leaves anew which named it.
fn take_back(bob: &mut Bob, send_id: &str, held: &mut Vec<Transmit>) {
    let changed = bob.machine.withdraw_among(send_id, &|_| true);
    let changed = changed.expect("it was sent");
    let is_changed = |transmit: &mut Transmit| {
        let mut send_ids = transmit.send_id.iter();
        send_ids.any(|send_id| changed.contains(send_id))
    };
    let void: Vec<_> = held.extract_if(.., is_changed).collect();
    assert!(!void.is_empty());
    for transmit in void {
        bob.machine.handle_transmit_void(transmit.transmit_id);
    }
    held.retain(|transmit| transmit.send_id.as_deref() != Some(send_id));
    let now = at(bob.now_ms);
    held.extend(std::iter::from_fn(|| {
        bob.machine.poll_transmit(now, Kinds::ALL)
    }));
}

fn named_by(transmit: &Transmit) -> Vec<String> {
    let read = Message::decode(&transmit.payload, config().wire_format).unwrap();
    let entries = read.causal_history.into_iter();
    entries.map(|entry| entry.message_id).collect()
}

#[test]
fn sends_that_were_taken_back_one_after_the_other_are_named_no_more() {
    let (third, last) = ("33".repeat(16), "44".repeat(16));
    for causal_history_size in [1, 2, 10] {
        let mut bob = Bob::to(
            &["carol"],
            Config {
                causal_history_size,
                ..config()
            },
        );
        for send_id in [ONE, OTHER, &third, &last] {
            let sent = contents(["one", "two"]);
            bob.machine.send(send_id, sent, 2).unwrap();
        }
        let mut held: Vec<_> = (0..8).map(|_| leave(&mut bob)).collect();
        for send_id in [ONE, OTHER] {
            let names_it = |transmit: &Transmit| named_by(transmit).contains(&id(send_id, 1));
            assert!(held.iter().any(names_it));
            take_back(&mut bob, send_id, &mut held);
        }
        // Nobody waits for what never comes.
        assert_eq!(held.len(), 4);
        let named: Vec<_> = held.iter().flat_map(named_by).collect();
        let is_gone = |id: &String| id.starts_with(ONE) || id.starts_with(OTHER);
        assert!(!named.iter().any(is_gone));
    }
}

//! When a send of which more can be made asks, wants more, goes again and is given up.

use std::collections::BTreeSet;

use super::incoming_tests::stat;
use super::outgoing_tests::{Stored, leave};
use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, lacks, message, names, sync};
use super::*;

const TIMEOUT_MS: i64 = 4 * WINDOW_MS;

/// What is seen of a send of bob.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// A content leaves.
    Leaves(u32),
    /// A sync does.
    Asks,
    /// So many further contents are to be made.
    Wants(u32),
    /// Nobody answers; these were acknowledged by nobody.
    GivesUp(Vec<u32>),
}
use What::{Asks, GivesUp, Leaves, Wants};

/// These are to have all that bob sends. Somebody else is there, and says nothing of it.
fn bob_for(names: &[&str]) -> Bob {
    let mut bob = Bob::to(names, config());
    bob.hear(sync("mallory"));
    bob
}

fn contents(count: u32, of: &str) -> Vec<Octets> {
    let contents = (0..count).map(|number| format!("{number} of {of}"));
    contents
        .map(|content| Octets::from(content.as_bytes()))
        .collect()
}

fn send(bob: &mut Bob, count: u32, needed: u32, reserve: u32) {
    let sent = contents(count, ONE);
    let machine = &mut bob.machine;
    machine
        .send_on_demand(ONE, sent, needed, reserve)
        .expect("it is sent");
}

/// All of a send of so many contents, `needed` of which make it whole, has left at 0.
fn sent(names: &[&str], count: u32, needed: u32, reserve: u32) -> Bob {
    let mut bob = bob_for(names);
    send(&mut bob, count, needed, reserve);
    assert_eq!(bob.leaving().len(), count as usize);
    bob
}

fn make(bob: &mut Bob, count: u32) {
    let (made, now) = (contents(count, "parity"), at(bob.now_ms));
    bob.machine.handle_contents_made(ONE, made, now);
}

fn store(bob: &mut Bob, ordinals: impl IntoIterator<Item = u32>) {
    let now = at(bob.now_ms);
    for ordinal in ordinals {
        bob.machine.handle_stored(ONE, ordinal, now);
    }
}

fn hear_at(bob: &mut Bob, at_ms: i64, message: crate::wire::sds::Message) {
    bob.now_ms = at_ms;
    bob.hear(message);
}

fn first(ordinals: impl IntoIterator<Item = u32>) -> Vec<String> {
    let ordinals = ordinals.into_iter();
    ordinals.map(|ordinal| id(ONE, ordinal)).collect()
}

fn all_at(at_ms: i64, ordinals: impl IntoIterator<Item = u32>) -> Vec<(i64, What)> {
    let ordinals = ordinals.into_iter();
    ordinals.map(|ordinal| (at_ms, Leaves(ordinal))).collect()
}

/// What is seen up to then, and when. What is wanted is made, or nothing is said of it.
fn seen_until(bob: &mut Bob, until_ms: i64, is_made: bool) -> Vec<(i64, What)> {
    let mut seen = Vec::new();
    loop {
        let now_ms = bob.now_ms;
        bob.machine.handle_timeout(at(now_ms));
        let events = bob.events().into_iter().filter_map(|event| match event {
            Event::ContentsWanted { count, .. } => Some(Wants(count)),
            Event::SendGivenUp { unacknowledged, .. } => Some(GivesUp(unacknowledged)),
            _ => None,
        });
        let events: Vec<What> = events.collect();
        for what in events {
            if let Wants(count) = what
                && is_made
            {
                make(bob, count);
                bob.machine.handle_timeout(at(now_ms));
            }
            seen.push((now_ms, what));
        }
        let left = bob.leaving().into_iter().map(|left| match left.ordinal {
            Some(ordinal) => Leaves(ordinal),
            None => Asks,
        });
        seen.extend(left.map(|what| (now_ms, what)));
        let next_ms = bob.machine.poll_timeout().unwrap_or(i64::MAX);
        assert!(next_ms > now_ms, "nothing is done at {now_ms}");
        if next_ms > until_ms {
            bob.now_ms = until_ms;
            return seen;
        }
        bob.now_ms = next_ms;
    }
}

// --- silence --------------------------------------------------------------------------------------

#[test]
fn who_is_silent_is_asked_twice_a_round_and_then_sent_more_each_time_until_it_is_given_up() {
    let mut bob = sent(&["carol"], 4, 4, 3);
    // Who need not have it says nothing of who is silent.
    hear_at(&mut bob, 10, names("mallory", &first([1])));
    let expected = [
        vec![(400, Asks), (600, Asks), (800, Wants(1)), (800, Leaves(4))],
        vec![(1_200, Asks), (1_400, Asks), (1_600, Wants(2))],
        all_at(1_600, [5, 6]),
        // No more can be made: what left longest ago goes again.
        vec![(2_000, Asks), (2_200, Asks)],
        all_at(2_400, [0, 1, 2, 3]),
        vec![(2_800, Asks), (3_000, Asks)],
        all_at(3_200, [4, 5, 6, 0, 1, 2, 3]),
        vec![(3_600, Asks), (3_800, Asks)],
        all_at(4_000, [0, 1, 2, 3, 4, 5, 6]),
        vec![(4_400, GivesUp(vec![0, 2, 3, 4, 5, 6]))],
    ];
    assert_eq!(seen_until(&mut bob, 60_000, true), expected.concat());
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
}

#[test]
fn a_round_takes_longer_each_time_that_nobody_says_anything_new() {
    let mut bob = Bob::to(
        &["carol"],
        Config {
            back_off_percent: 50,
            ..config()
        },
    );
    send(&mut bob, 4, 4, 9);
    let expected = [
        all_at(0, [0, 1, 2, 3]),
        vec![(400, Asks), (600, Asks), (800, Wants(1)), (800, Leaves(4))],
        // One half longer, and half of that to the next time.
        vec![(1_400, Asks), (1_700, Asks), (2_000, Wants(2))],
        all_at(2_000, [5, 6]),
    ];
    assert_eq!(seen_until(&mut bob, 2_010, true), expected.concat());
    hear_at(&mut bob, 2_020, names("carol", &first([0])));
    let next = seen_until(&mut bob, 4_000, true);
    assert_eq!(next.first(), Some(&(2_900, Asks)));
    assert_eq!(next.get(1), Some(&(3_100, Asks)));
}

// --- when what is lacking goes --------------------------------------------------------------------

#[test]
fn what_is_lacking_goes_as_soon_as_all_who_answer_had_time_to() {
    let half = || names("carol", &first([0, 1, 2]));
    let part = |ordinal| names("carol", &first([ordinal]));
    let number = |lacking| lacks("carol", ONE, lacking);
    let of_dave = |lacking| lacks("dave", ONE, lacking);
    let (to_one, to_both) = (&["carol"][..], &["carol", "dave"][..]);
    let cases = [
        // Who names half of it names all that came: within a window it had time to name it all.
        (to_one, vec![(10, half())], (110, Wants(3))),
        (to_one, vec![(290, half())], (390, Wants(3))),
        // Its time comes before that.
        (to_one, vec![(310, half())], (400, Wants(3))),
        // Less is a mention.
        (to_one, vec![(10, part(0)), (30, part(1))], (400, Asks)),
        (
            to_one,
            vec![(10, part(0)), (30, part(1)), (50, part(2))],
            (150, Wants(3)),
        ),
        // Dave is waited for.
        (to_both, vec![(10, half())], (400, Wants(3))),
        (
            to_both,
            vec![(10, half()), (60, names("dave", &first(0..4)))],
            (160, Wants(3)),
        ),
        // Who lacks no more than another one said may be silent.
        (to_one, vec![(10, number(2))], (200, Wants(2))),
        (to_one, vec![(250, number(2))], (250, Wants(2))),
        (to_one, vec![(399, number(2))], (399, Wants(2))),
        (to_both, vec![(10, number(2))], (200, Wants(2))),
        (
            to_both,
            vec![(10, number(1)), (20, of_dave(2))],
            (200, Wants(2)),
        ),
        // What goes sooner is not put off.
        (to_one, vec![(10, half()), (20, number(2))], (110, Wants(2))),
        // After an inquiry as long as after a content.
        (to_one, vec![(410, number(2))], (600, Wants(2))),
        (to_one, vec![(650, number(2))], (800, Wants(2))),
        (to_one, vec![(510, half())], (600, Wants(3))),
    ];
    for (to, heard, expected) in cases {
        let mut bob = sent(to, 6, 6, 3);
        let mut seen = Vec::new();
        let told = format!("{to:?} {heard:?}");
        let last_ms = heard.last().map_or(0, |(at_ms, _)| *at_ms);
        for (at_ms, message) in heard {
            seen.extend(seen_until(&mut bob, at_ms, false));
            bob.hear(message);
        }
        seen.extend(seen_until(&mut bob, 1_000, false));
        let next = seen
            .into_iter()
            .find(|(at_ms, what)| *at_ms >= last_ms && (last_ms < TIMEOUT_MS || *what != Asks));
        assert_eq!(next, Some(expected), "{told}");
    }
}

#[test]
fn what_is_lacking_after_a_content_of_those_who_named_more_before_goes_as_soon() {
    let mut bob = sent(&["carol"], 6, 6, 3);
    hear_at(&mut bob, 10, names("carol", &first([0, 1, 2])));
    let expected = [
        (110, Wants(3)),
        (110, Leaves(6)),
        (110, Leaves(7)),
        (110, Leaves(8)),
    ];
    assert_eq!(seen_until(&mut bob, 110, true), expected);
    hear_at(&mut bob, 130, names("carol", &first([6])));
    assert_eq!(seen_until(&mut bob, 299, true), all_at(230, [3, 4]));
}

/// Nobody is asked in three rounds, and nothing ends.
fn nothing_comes_of_it(bob: &mut Bob) {
    for round in 1..=3 {
        bob.now_ms = round * TIMEOUT_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
        assert!(bob.machine.poll_timeout() > Some(bob.now_ms));
    }
    assert_eq!(bob.events(), []);
}

#[test]
fn nobody_is_asked_and_nothing_is_wanted_before_all_of_it_has_left() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 2, 2, 3);
    let left = leave(&mut bob);
    bob.machine
        .handle_transmitted(left.transmit_id, None, at(0));
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    nothing_comes_of_it(&mut bob);
}

#[test]
fn nobody_is_asked_and_nothing_is_wanted_before_what_the_node_did_not_take_has_left() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 2, 2, 3);
    let left = [leave(&mut bob), leave(&mut bob)];
    bob.machine
        .handle_transmitted(left[0].transmit_id, None, at(0));
    bob.machine
        .handle_transmit_failed(left[1].transmit_id, at(0));
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    nothing_comes_of_it(&mut bob);
}

#[test]
fn what_was_said_before_the_network_took_a_content_is_no_longer_known() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 2, 2, 3);
    let left = [leave(&mut bob), leave(&mut bob)];
    hear_at(&mut bob, 50, lacks("carol", ONE, 1));
    bob.now_ms = 100;
    for left in left {
        let now = at(bob.now_ms);
        bob.machine.handle_transmitted(left.transmit_id, None, now);
    }
    assert_eq!(seen_until(&mut bob, 500, true), [(500, Asks)]);
}

#[test]
fn nobody_is_asked_about_what_the_node_has_yet_to_answer_for() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 2, 2, 3);
    assert_eq!(leave(&mut bob).ordinal, Some(0));
    let last = leave(&mut bob);
    for round in 1..=3 {
        bob.now_ms = round * TIMEOUT_MS;
        bob.machine.handle_timeout(at(bob.now_ms));
        assert!(bob.machine.poll_timeout() > Some(bob.now_ms));
    }
    for transmit_id in [last.transmit_id - 1, last.transmit_id] {
        let now = at(bob.now_ms + 50);
        bob.machine.handle_transmitted(transmit_id, None, now);
    }
    // It is in the network since now.
    bob.now_ms += 50;
    let asked_ms = bob.now_ms + TIMEOUT_MS;
    assert_eq!(seen_until(&mut bob, asked_ms, true), [(asked_ms, Asks)]);
}

#[test]
fn what_is_wanted_or_given_up_is_told_in_the_order_of_the_sends() {
    let mut bob = bob_for(&["carol"]);
    let both = [ONE, OTHER];
    for send_id in both {
        let sent = contents(2, send_id);
        bob.machine.send_on_demand(send_id, sent, 2, 9).unwrap();
    }
    bob.leaving();
    bob.now_ms = 10;
    for send_id in both {
        bob.hear(lacks("carol", send_id, 1));
    }
    let (mut wanted, mut given_up) = (Vec::new(), Vec::new());
    while given_up.len() < 2 {
        let next_ms = bob.machine.poll_timeout().expect("it ends");
        bob.now_ms = next_ms;
        bob.machine.handle_timeout(at(next_ms));
        bob.leaving();
        for event in bob.events() {
            match event {
                Event::ContentsWanted { send_id, .. } => wanted.push(send_id.to_string()),
                Event::SendGivenUp { send_id, .. } => given_up.push(send_id.to_string()),
                _ => {}
            }
        }
    }
    assert_eq!(
        (&wanted[..], &given_up[..]),
        (&both.map(String::from)[..], &both.map(String::from)[..])
    );
}

#[test]
fn what_is_lacking_goes_after_half_the_time_where_all_members_have_spoken() {
    let number = |name, lacking| lacks(name, ONE, lacking);
    let (to_one, to_both) = (&["carol"][..], &["carol", "dave"][..]);
    let cases = [
        (to_one, vec![(10, number("carol", 2))], 100),
        (to_one, vec![(150, number("carol", 2))], 150),
        // Who has it has spoken, too; who only speaks of something else has not.
        (
            to_one,
            vec![(10, number("carol", 2)), (20, number("erin", 0))],
            100,
        ),
        (
            to_one,
            vec![(5, sync("erin")), (10, number("carol", 2))],
            200,
        ),
        // One that is waited for is a member, though nothing was heard of it.
        (to_both, vec![(10, number("carol", 2))], 200),
        (
            to_both,
            vec![(10, number("carol", 2)), (30, number("dave", 1))],
            100,
        ),
    ];
    for (names, heard, expected_ms) in cases {
        let mut bob = Bob::to(names, config());
        send(&mut bob, 6, 6, 3);
        bob.leaving();
        for (at_ms, message) in heard.clone() {
            hear_at(&mut bob, at_ms, message);
        }
        let seen = seen_until(&mut bob, 500, false);
        assert_eq!(seen.first(), Some(&(expected_ms, Wants(2))), "{heard:?}");
    }
}

#[test]
fn where_so_many_are_to_have_it_those_that_lack_least_count() {
    let number = |name, lacking| lacks(name, ONE, lacking);
    let half = |name| names(name, &first([0, 1, 2]));
    for (count, heard, expected) in [
        (
            1,
            vec![number("carol", 3), number("dave", 1)],
            (100, Wants(1)),
        ),
        (
            2,
            vec![number("carol", 3), number("dave", 1)],
            (100, Wants(3)),
        ),
        (1, vec![half("carol")], (110, Wants(3))),
        // Of another one nothing is known.
        (2, vec![half("carol")], (400, Wants(3))),
        (2, vec![half("carol"), half("dave")], (110, Wants(3))),
    ] {
        let mut bob = Bob::of(Config {
            delivered_when: DeliveredWhen::Count(count),
            ..config()
        });
        send(&mut bob, 6, 6, 3);
        bob.leaving();
        bob.now_ms = 10;
        for message in heard {
            bob.hear(message);
        }
        let seen = seen_until(&mut bob, 500, false);
        assert_eq!(seen.first(), Some(&expected), "{count}");
    }
}

/// Those who must have it are few, and have their place in any case.
#[test]
fn so_many_are_told_of_and_those_who_are_to_have_it() {
    let mut bob = sent(&["carol"], 4, 4, 3);
    bob.now_ms = 1;
    let is_told = |event: &Event| matches!(event, Event::ContentAcknowledged { .. });
    let strangers = super::outgoing::PARTICIPANTS_PER_SEND_MAX;
    for number in 0..strangers + 2 {
        let events = bob.hear(names(&format!("peer {number}"), &first([0])));
        assert_eq!(events.iter().any(is_told), number < strangers);
    }
    assert!(bob.hear(names("carol", &first([0]))).iter().any(is_told));
}

/// So many as one send keeps the acknowledgements of, and one more, which says that it lacks nothing.
#[test]
fn a_send_ends_though_who_has_it_finds_no_room_to_be_told_of() {
    let mut bob = Bob::of(Config {
        delivered_when: DeliveredWhen::Any,
        ..config()
    });
    send(&mut bob, 4, 4, 3);
    bob.leaving();
    bob.now_ms = 1;
    let is_told = |event: &Event| matches!(event, Event::ContentAcknowledged { .. });
    for number in 0..=super::outgoing::PARTICIPANTS_PER_SEND_MAX {
        let events = bob.hear(names(&format!("peer {number}"), &first([0])));
        let has_room = number < super::outgoing::PARTICIPANTS_PER_SEND_MAX;
        assert_eq!(events.iter().any(is_told), has_room);
    }
    assert_eq!(bob.hear(lacks("dave", ONE, 0)).len(), 1);
    let seen = seen_until(&mut bob, 60_000, true);
    assert!(matches!(seen.last(), Some((_, GivesUp(_)))), "{seen:?}");
}

#[test]
fn what_is_wanted_of_an_owner_that_does_not_answer_goes_again_from_the_next_round_on() {
    let mut bob = sent(&["carol"], 4, 4, 3);
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    hear_at(&mut bob, 20, names("carol", &first([0, 2])));
    let mut expected = vec![(120, Wants(1))];
    expected.extend(all_at(520, [1, 3]));
    assert_eq!(seen_until(&mut bob, 919, false), expected);
}

// --- what is made ---------------------------------------------------------------------------------

#[test]
fn so_many_as_were_announced_are_made_and_no_more() {
    for (made, size, left) in [(3, 7, vec![4, 5, 6]), (4, 4, vec![0, 1, 2, 3])] {
        let mut bob = sent(&["carol"], 4, 4, 3);
        hear_at(&mut bob, 10, lacks("carol", ONE, 4));
        assert_eq!(seen_until(&mut bob, 200, false), [(200, Wants(3))]);
        make(&mut bob, made);
        assert_eq!(bob.machine.size_of(ONE), Some((4, size)));
        assert_eq!(seen_until(&mut bob, 200, false), all_at(200, left));
    }
}

#[test]
fn of_what_is_made_no_bytes_are_stored_once_it_left_and_before_that_it_is_made_again() {
    for has_left in [false, true] {
        let mut bob = sent(&["carol"], 2, 2, 3);
        hear_at(&mut bob, 10, lacks("carol", ONE, 1));
        assert_eq!(seen_until(&mut bob, 200, false), [(200, Wants(1))]);
        let mut stored = Stored::default();
        stored.take(&mut bob);
        make(&mut bob, 1);
        if has_left {
            assert_eq!(seen_until(&mut bob, 200, false), [(200, Leaves(2))]);
        }
        assert_eq!(bob.machine.own_message(&id(ONE, 2)), None);
        let mut again = stored.restart_as(bob_for(&["carol"]), bob);
        let next = if has_left { 3 } else { 2 };
        assert_eq!(again.machine.size_of(ONE), Some((2, next as usize)));
        hear_at(&mut again, 210, lacks("carol", ONE, 3));
        let expected = [
            (400, Wants(2)),
            (400, Leaves(next)),
            (400, Leaves(next + 1)),
        ];
        assert_eq!(seen_until(&mut again, 400, true), expected);
    }
}

#[test]
fn a_send_of_which_no_more_is_made_is_sent_again_by_content_in_the_next_life_too() {
    let mut bob = sent(&["carol"], 2, 2, 3);
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    assert_eq!(seen_until(&mut bob, 200, false), [(200, Wants(1))]);
    let mut stored = Stored::default();
    stored.take(&mut bob);
    make(&mut bob, 0);
    let mut again = stored.restart_as(bob_for(&["carol"]), bob);
    hear_at(&mut again, 210, lacks("carol", ONE, 1));
    assert_eq!(seen_until(&mut again, 600, true), all_at(600, [0, 1]));
}

#[test]
fn what_was_wanted_of_a_send_that_is_delivered_meanwhile_is_of_no_use() {
    let mut bob = sent(&["carol"], 2, 2, 3);
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    assert_eq!(seen_until(&mut bob, 200, false), [(200, Wants(1))]);
    bob.hear(lacks("carol", ONE, 0));
    make(&mut bob, 1);
    assert_eq!(bob.machine.size_of(ONE), Some((2, 2)));
    assert_eq!(seen_until(&mut bob, 60_000, true), []);
}

#[test]
fn where_one_of_what_is_made_has_the_id_of_another_content_none_is() {
    let mut bob = bob_for(&["carol"]);
    bob.hear(message("mallory", &id(ONE, 3), b"forged"));
    send(&mut bob, 2, 2, 3);
    bob.leaving();
    hear_at(&mut bob, 10, lacks("carol", ONE, 2));
    assert_eq!(seen_until(&mut bob, 200, true)[0], (200, Wants(2)));
    assert_eq!(bob.machine.size_of(ONE), Some((2, 2)));
}

#[test]
fn what_is_left_out_does_not_go_by_content_either() {
    let mut bob = sent(&["carol"], 3, 2, 3);
    bob.machine.leave_out(&id(ONE, 2));
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    assert_eq!(seen_until(&mut bob, 200, false), [(200, Wants(1))]);
    make(&mut bob, 0);
    assert_eq!(seen_until(&mut bob, 200, false), all_at(200, [0, 1]));
}

#[test]
fn a_send_whose_first_content_is_left_out_is_asked_about_in_time() {
    let mut bob = sent(&["carol"], 3, 2, 3);
    bob.machine.leave_out(&id(ONE, 0));
    assert_eq!(seen_until(&mut bob, 400, true), [(400, Asks)]);
}

#[test]
fn parity_keeps_its_bytes_where_no_more_can_be_made() {
    for (reserve, is_kept) in [(0, true), (1, false)] {
        let bob = sent(&["carol"], 3, 2, reserve);
        assert_eq!(bob.machine.own_message(&id(ONE, 2)).is_some(), is_kept);
    }
}

/// What is stored when it leaves, of [`ONE`]: kinds, ordinals and whether a record is deleted.
#[test]
fn of_what_is_made_nothing_is_stored_that_has_to_be_deleted() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 3, 2, 3);
    let written = |bob: &mut Bob| -> Vec<(&'static str, String, bool)> {
        let records = bob.machine.poll_persist().into_iter();
        let of_bytes = records.filter(|record| [CONTENT, MESSAGE].contains(&record.kind));
        let of_bytes =
            of_bytes.map(|record| (record.kind, record.key.to_string(), record.value.is_some()));
        of_bytes.collect()
    };
    let all_of = |kind, is_kept, ordinals: std::ops::Range<u32>| -> Vec<_> {
        ordinals
            .map(|ordinal| (kind, id(ONE, ordinal), is_kept))
            .collect()
    };
    assert_eq!(written(&mut bob), all_of(CONTENT, true, 0..3));
    bob.leaving();
    let mut left = written(&mut bob);
    left.sort();
    let mut expected = all_of(CONTENT, false, 0..3);
    expected.extend(all_of(MESSAGE, true, 0..2));
    expected.sort();
    assert_eq!(left, expected);
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    let seen = [(200, Wants(1)), (200, Leaves(3))];
    assert_eq!(seen_until(&mut bob, 200, true), seen);
    assert_eq!(written(&mut bob), []);
}

#[test]
fn a_send_is_stored_with_what_it_follows_while_more_of_it_may_leave() {
    let follows = |bob: &mut Bob| -> bool {
        let records = bob.machine.poll_persist();
        let of_it = |record: &&Record| record.kind == records::SEND && *record.key == *ONE;
        let record = records.iter().rfind(of_it).expect("it changed");
        let value = record.value.as_ref().expect("it is there").to_vec();
        value.windows(4).any(|window| window == b"held")
    };
    let mut bob = bob_for(&["carol"]);
    bob.hear(message("alice", "held", b"content"));
    bob.machine
        .handle_send_reconstructed(None, "alice", "held", 1, &[], at(0));
    send(&mut bob, 2, 2, 3);
    bob.leaving();
    assert!(follows(&mut bob));
    bob.now_ms = 10;
    bob.hear(lacks("carol", ONE, 0));
    assert!(!follows(&mut bob));
}

// --- where no more can be made --------------------------------------------------------------------

/// Three contents and the only parity left, that one at 200.
fn used_up(to: &[&str]) -> Bob {
    let mut bob = sent(to, 3, 3, 1);
    hear_at(&mut bob, 10, lacks("carol", ONE, 2));
    let expected = [(200, Wants(1)), (200, Leaves(3))];
    assert_eq!(seen_until(&mut bob, 200, true), expected);
    bob
}

#[test]
fn what_most_lack_goes_again_first_and_then_what_left_longest_ago() {
    let mut bob = used_up(&["carol", "dave", "erin"]);
    hear_at(&mut bob, 210, names("carol", &first([0, 3])));
    hear_at(&mut bob, 210, names("dave", &first([0, 1])));
    // Of these nothing is learnt: one need not have it, the other lacks nothing.
    hear_at(&mut bob, 210, names("mallory", &first([2])));
    hear_at(&mut bob, 210, lacks("erin", ONE, 0));
    hear_at(&mut bob, 220, lacks("carol", ONE, 2));
    // Carol lacks 1 and 2, dave 2 and 3.
    assert_eq!(seen_until(&mut bob, 400, true), all_at(400, [2, 1]));
    hear_at(&mut bob, 410, lacks("carol", ONE, 2));
    assert_eq!(seen_until(&mut bob, 600, true), all_at(600, [2, 3]));
    hear_at(&mut bob, 610, lacks("carol", ONE, 2));
    assert_eq!(seen_until(&mut bob, 800, true), all_at(800, [2, 1]));
}

#[test]
fn parity_that_the_node_refuses_for_good_does_not_go_in_place_of_what_is_lacking() {
    let mut bob = used_up(&["carol"]);
    bob.machine.leave_out(&id(ONE, 3));
    for heard_ms in [210, 320] {
        hear_at(&mut bob, heard_ms, names("carol", &first([0, 2])));
        let (goes_ms, seen) = (heard_ms + WINDOW_MS, all_at(heard_ms + WINDOW_MS, [1]));
        assert_eq!(seen_until(&mut bob, goes_ms, true), seen);
    }
}

#[test]
fn parity_of_an_earlier_life_has_no_bytes_to_go_again() {
    let mut bob = used_up(&["carol"]);
    bob.now_ms = 300;
    let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
    hear_at(&mut again, 310, lacks("carol", ONE, 3));
    assert_eq!(stat(&again, "outgoing_unacknowledged"), 3);
    assert_eq!(seen_until(&mut again, 500, true), all_at(500, [0, 1, 2]));
}

// --- a store --------------------------------------------------------------------------------------

#[test]
fn what_a_store_has_all_of_waits_there_and_one_content_probes_whether_anybody_is_there() {
    let mut bob = sent(&["carol", "dave"], 2, 2, 3);
    store(&mut bob, [0, 1]);
    // Dave has it, and carol was heard before it was stored.
    hear_at(&mut bob, 10, lacks("dave", ONE, 0));
    let probes = (1..=5).map(|round| round * TIMEOUT_MS);
    let expected: Vec<_> = probes
        .flat_map(|at_ms| [(at_ms, Asks), (at_ms, Leaves(0))])
        .collect();
    assert_eq!(seen_until(&mut bob, 2_500, true), expected);
    assert_eq!(stat(&bob, "outgoing_in_store"), 2);
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 0);
    assert_eq!(bob.machine.sends_in_store(), 1);
    // Carol is there: the store has two timeouts to help her.
    hear_at(&mut bob, 2_510, sync("carol"));
    assert_eq!(seen_until(&mut bob, 3_599, true), []);
    assert_eq!(stat(&bob, "outgoing_in_store"), 2);
    // One that says numbers is asked more often.
    let asks = (0..5).map(|number| (3_600 + number * TIMEOUT_MS / 2, Asks));
    let expected: Vec<_> = asks.chain([(4_600, Wants(1))]).collect();
    assert_eq!(seen_until(&mut bob, 4_600, false), expected);
    assert_eq!(stat(&bob, "outgoing_in_store"), 0);
    assert_eq!(stat(&bob, "outgoing_unacknowledged"), 2);
}

#[test]
fn who_said_what_it_lacks_before_a_store_had_it_is_asked_with_a_probe_too() {
    let mut bob = sent(&["carol"], 2, 2, 3);
    hear_at(&mut bob, 10, lacks("carol", ONE, 1));
    bob.now_ms = 20;
    store(&mut bob, [0, 1]);
    let expected = [(200, Asks), (200, Leaves(0))];
    assert_eq!(seen_until(&mut bob, 399, true), expected);
}

#[test]
fn a_store_helps_nobody_who_was_heard_since_nor_with_what_it_lacks() {
    // When each content was stored, when carol is heard, and whether it waits.
    for (stored, heard_ms, waits) in [
        (vec![(0, 0), (0, 1)], 10, false),
        (vec![(0, 0), (10, 1)], 10, true),
        (vec![(20, 0), (0, 1)], 10, true),
        (vec![(20, 0)], 10, false),
        (vec![(20, 1)], 10, false),
        (vec![(20, 0), (30, 1)], 20, true),
        (vec![], 10, false),
    ] {
        let mut bob = sent(&["carol"], 2, 2, 3);
        let told = format!("{stored:?}");
        for (at_ms, ordinal) in stored {
            bob.now_ms = at_ms;
            store(&mut bob, [ordinal]);
        }
        hear_at(&mut bob, heard_ms, sync("carol"));
        seen_until(&mut bob, TIMEOUT_MS, true);
        let in_store = if waits { 2 } else { 0 };
        assert_eq!(stat(&bob, "outgoing_in_store"), in_store, "{told}");
    }
}

#[test]
fn a_store_need_not_have_what_is_left_out() {
    let mut bob = sent(&["carol"], 3, 2, 3);
    bob.machine.leave_out(&id(ONE, 2));
    store(&mut bob, [0, 1]);
    seen_until(&mut bob, TIMEOUT_MS, true);
    assert_eq!(stat(&bob, "outgoing_in_store"), 2);
}

/// More than may wait there by two.
#[test]
fn as_many_sends_are_given_up_as_make_room_in_a_store() {
    const WAITING_CONTENTS_MAX: u32 = 2_048;
    let mut bob = Bob::to(
        &["carol"],
        Config {
            outgoing_buffer_messages_max: 4_096,
            ..config()
        },
    );
    let ids: Vec<String> = (0..2).map(|number| format!("{number:032x}")).collect();
    for send_id in &ids {
        let sent = contents(1, send_id);
        bob.machine.send(send_id, sent, 1).unwrap();
        bob.leaving();
        bob.machine.handle_stored(send_id, 0, at(0));
    }
    send(&mut bob, WAITING_CONTENTS_MAX, WAITING_CONTENTS_MAX, 3);
    bob.leaving();
    store(&mut bob, 0..WAITING_CONTENTS_MAX);
    bob.now_ms = TIMEOUT_MS;
    bob.machine.handle_timeout(at(TIMEOUT_MS));
    let given_up = bob.events().into_iter().filter_map(|event| match event {
        Event::SendGivenUp { send_id, .. } => Some(send_id.to_string()),
        _ => None,
    });
    assert_eq!(given_up.collect::<Vec<_>>(), ids);
}

// --- what one message teaches the next ------------------------------------------------------------

#[test]
fn what_is_lacking_at_first_is_what_later_messages_leave_with() {
    // Of four data contents, and parity that leaves with them.
    for (count, lacking, millionths) in [(4, 1, 15_625), (4, 2, 31_250), (5, 1, 31_250)] {
        let mut bob = sent(&["carol"], count, 4, 9);
        assert_eq!(bob.machine.first_parity_millionths(), 0);
        hear_at(&mut bob, 10, lacks("carol", ONE, lacking));
        seen_until(&mut bob, 250, true);
        assert_eq!(bob.machine.first_parity_millionths(), millionths);
        // It counts once.
        hear_at(&mut bob, 260, lacks("carol", ONE, 1));
        seen_until(&mut bob, 500, true);
        hear_at(&mut bob, 510, lacks("carol", ONE, 0));
        assert_eq!(bob.machine.first_parity_millionths(), millionths);
        let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
        assert_eq!(again.machine.first_parity_millionths(), millionths);
        // One that lacks nothing lowers it, if all of it had left.
        for (leaves, send_id) in [(false, OTHER), (true, "33333333333333333333333333333333")] {
            let sent = contents(4, send_id);
            let machine = &mut again.machine;
            machine.send_on_demand(send_id, sent, 4, 9).unwrap();
            if leaves {
                again.leaving();
            } else {
                let now = at(again.now_ms);
                let left = again.machine.poll_transmit(now, Kinds::ALL).unwrap();
                again
                    .machine
                    .handle_transmitted(left.transmit_id, None, now);
            }
            hear_at(&mut again, 600, lacks("carol", send_id, 0));
            again.leaving();
            let is_lower = again.machine.first_parity_millionths() < millionths;
            assert_eq!(is_lower, leaves);
        }
    }
}

#[test]
fn silence_says_nothing_of_what_is_lacking_at_first() {
    let mut bob = sent(&["carol"], 4, 4, 9);
    seen_until(&mut bob, 450, true);
    hear_at(&mut bob, 460, lacks("carol", ONE, 2));
    seen_until(&mut bob, 700, true);
    assert_eq!(bob.machine.first_parity_millionths(), 31_250);
}

#[test]
fn of_a_send_that_is_given_up_nobody_knows_what_was_lacking() {
    let mut bob = sent(&["carol"], 4, 4, 9);
    hear_at(&mut bob, 10, lacks("carol", ONE, 2));
    seen_until(&mut bob, 250, true);
    let millionths = bob.machine.first_parity_millionths();
    bob.machine
        .send_on_demand(OTHER, contents(4, OTHER), 4, 9)
        .unwrap();
    bob.leaving();
    bob.machine.stop(OTHER);
    assert_eq!(bob.machine.first_parity_millionths(), millionths);
    let given_up: BTreeSet<_> = bob
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::SendGivenUp { send_id, .. } => Some(send_id.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(given_up, BTreeSet::from([OTHER.to_owned()]));
    bob.machine.stop(OTHER);
    assert_eq!(bob.events(), []);
}

// --- after a restart ------------------------------------------------------------------------------

#[test]
fn what_is_not_known_to_have_left_goes_once_more_after_two_periods() {
    let mut bob = sent(&["carol"], 4, 3, 3);
    bob.now_ms = 100;
    let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
    // Parity that left has no bytes.
    let now = at(again.now_ms);
    assert_eq!(again.machine.resume(ONE, &[0, 1, 2, 3, 4], now), [3, 4]);
    assert!(again.machine.resume(OTHER, &[0], now).is_empty());
    again.machine.leave_out(&id(ONE, 2));
    assert_eq!(seen_until(&mut again, 899, true), []);
    again.now_ms = 900;
    again.machine.handle_timeout(at(900));
    assert_eq!(again.machine.waiting(TransmitKind::Retransmission), 2);
    let left = again.leaving().into_iter();
    let left: Vec<_> = left.map(|left| (left.ordinal, left.attempt)).collect();
    assert_eq!(left, [(Some(0), 0), (Some(1), 0)], "it is no attempt");
    assert_eq!(seen_until(&mut again, 1_300, true), [(1_300, Asks)]);
    hear_at(&mut again, 1_310, lacks("carol", ONE, 0));
    assert!(again.machine.resume(ONE, &[2], at(1_310)).is_empty());
}

#[test]
fn what_waited_before_a_restart_leaves_after_it_and_once() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 3, 3, 3);
    leave(&mut bob);
    let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
    assert!(again.machine.resume(ONE, &[0, 1, 2], at(0)).is_empty());
    assert_eq!(seen_until(&mut again, 0, true), all_at(0, [1, 2]));
    hear_at(&mut again, 10, lacks("carol", ONE, 1));
    // What may not have left goes before more is made.
    let seen = seen_until(&mut again, 700, true);
    assert_eq!(seen.first(), Some(&(200, Leaves(0))));
    assert!(
        !seen[1..]
            .iter()
            .any(|(_, what)| matches!(what, Leaves(0..3))),
        "{seen:?}"
    );
}

#[test]
fn what_the_node_did_not_take_before_a_restart_leaves_once_after_it() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 2, 2, 3);
    let left = leave(&mut bob);
    bob.machine.handle_transmit_failed(left.transmit_id, at(0));
    let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
    assert!(again.machine.resume(ONE, &[0, 1], at(0)).is_empty());
    let expected = [all_at(0, [0, 1]), vec![(400, Asks)]].concat();
    assert_eq!(seen_until(&mut again, 400, true), expected);
}

#[test]
fn what_may_not_have_left_and_need_not_any_more_holds_up_nothing() {
    for is_left_out in [false, true] {
        let bob = sent(&["carol"], 2, 2, 3);
        let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
        assert!(again.machine.resume(ONE, &[1], at(0)).is_empty());
        again.now_ms = 800;
        again.machine.handle_timeout(at(800));
        if is_left_out {
            again.machine.leave_out(&id(ONE, 1));
        } else {
            again.hear(names("carol", &first([1])));
        }
        let seen = seen_until(&mut again, 1_300, false);
        let (_, what) = seen.first().expect("it is looked at");
        let expected = if is_left_out { Asks } else { Wants(1) };
        assert_eq!(*what, expected);
    }
}

#[test]
fn what_a_damaged_store_lost_of_parity_holds_up_nothing() {
    let mut bob = bob_for(&["carol"]);
    send(&mut bob, 4, 2, 3);
    let mut stored = Stored::default();
    stored.take(&mut bob);
    stored.lose(CONTENT, &id(ONE, 2));
    let mut again = stored.restart_as(bob_for(&["carol"]), bob);
    let expected = [all_at(0, [0, 1, 3]), vec![(400, Asks)]].concat();
    assert_eq!(seen_until(&mut again, 400, true), expected);
}

#[test]
fn a_send_that_is_restored_is_stored_as_it_is_but_for_what_is_made_again() {
    for is_made in [false, true] {
        let mut bob = sent(&["carol"], 2, 2, 3);
        hear_at(&mut bob, 10, lacks("carol", ONE, 1));
        assert_eq!(seen_until(&mut bob, 200, false), [(200, Wants(1))]);
        if is_made {
            make(&mut bob, 1);
        }
        let mut again = Stored::default().restart_as(bob_for(&["carol"]), bob);
        let records = again.machine.poll_persist().into_iter();
        let own = records.filter(|record| record.key.starts_with(ONE));
        let own: Vec<_> = own
            .map(|record| (record.key.to_string(), record.value.is_some()))
            .collect();
        let mut expected = Vec::new();
        if is_made {
            expected.extend([(id(ONE, 2), false), (ONE.to_owned(), true)]);
        }
        let own: BTreeSet<_> = own.into_iter().collect();
        assert_eq!(own, expected.into_iter().collect());
    }
}

// --- who says that it lacks much, and who need not have it -----------------------------------------

#[test]
fn whoever_says_that_one_came_of_all_that_went_has_no_more_sent_than_some_for_each() {
    const NEEDED: u32 = 100;
    let by_number = |lacking| lacks("carol", ONE, lacking);
    let by_names = |lacking| names("carol", &first(0..NEEDED - lacking));
    let ways: [&dyn Fn(u32) -> crate::wire::sds::Message; 2] = [&by_number, &by_names];
    for says in ways {
        // With parity, and where no more of it can be made.
        let mut bob = sent(&["carol"], NEEDED, NEEDED, 60);
        let mut left = 0;
        for lacking in (1..NEEDED).rev() {
            let now_ms = bob.now_ms + 10;
            hear_at(&mut bob, now_ms, says(lacking));
            let seen = seen_until(&mut bob, now_ms + 2 * WINDOW_MS, true);
            let leaves = |(_, what): &&(i64, What)| matches!(what, Leaves(_));
            left += seen.iter().filter(leaves).count();
        }
        assert!(left <= 8 * NEEDED as usize, "{left}");
    }
}

#[test]
fn who_is_to_have_it_is_heard_however_many_strangers_spoke_before() {
    for (says, expected) in [
        (lacks("carol", ONE, 2), (200, Wants(2))),
        (names("carol", &first([0, 1])), (110, Wants(2))),
    ] {
        let mut bob = sent(&["carol"], 4, 4, 3);
        bob.now_ms = 1;
        for number in 0..super::outgoing::PARTICIPANTS_PER_SEND_MAX {
            let name = format!("stranger {number}");
            bob.hear(names(&name, &first([0])));
            bob.hear(lacks(&name, ONE, 4));
        }
        hear_at(&mut bob, 10, says);
        assert_eq!(seen_until(&mut bob, 200, false), [expected]);
    }
}

/// What is seen of a send that nobody answers who is to have it.
fn seen_beside(strangers: bool, sends: impl Fn(&mut Bob)) -> Vec<(i64, What)> {
    let mut bob = bob_for(&["carol"]);
    sends(&mut bob);
    bob.leaving();
    let mut seen = Vec::new();
    for number in 0..200 {
        seen.extend(seen_until(&mut bob, number * 50, true));
        let name = format!("stranger {number}");
        if strangers {
            bob.hear(match number % 2 {
                0 => names(&name, &first([0])),
                _ => lacks(&name, ONE, 2),
            });
        }
    }
    for (_, what) in &mut seen {
        if let GivesUp(unacknowledged) = what {
            unacknowledged.retain(|ordinal| *ordinal != 0);
        }
    }
    seen
}

#[test]
fn a_send_that_nobody_answers_who_is_to_have_it_goes_on_alike_whatever_strangers_say() {
    let on_demand = |bob: &mut Bob| send(bob, 4, 4, 300);
    let by_content = |bob: &mut Bob| drop(bob.machine.send(ONE, contents(12, ONE), 12).unwrap());
    let ways: [&dyn Fn(&mut Bob); 2] = [&on_demand, &by_content];
    for sends in ways {
        let alone = seen_beside(false, sends);
        assert!(matches!(alone.last(), Some((_, GivesUp(_)))), "{alone:?}");
        assert_eq!(seen_beside(true, sends), alone);
    }
}

//! Who waits for whom where ids do not name their sends, others use them, or much is freed at once;
//! and what of it is stored.

use super::ids::rival_name;
use super::incoming_tests::{
    LOST_MS, TIMEOUT_MS, follows, happens_at, hear_named, hear_whole, losing, make_whole, missing,
    named_of, released, stat,
};
use super::outgoing_tests::Stored;
use super::tests::{Bob, ONE, OTHER, at, config, id, message, named};
use super::*;

/// A send that the ids of its contents do not name.
const LETTER: &str = "letter";

fn place(bob: &mut Bob, message_id: &str, send_id: &str, content_count: u32) {
    let place = Place {
        send_id,
        ordinal: None,
        content_count: Some(content_count),
        contents_needed: Some(content_count),
    };
    let now = at(bob.now_ms);
    bob.machine.handle_content_placed(message_id, place, now);
}

/// One of three contents of a send of alice. Gives what is released.
fn hear_part(bob: &mut Bob, send_id: &str, message_id: &str, causes: &[&str]) -> Vec<String> {
    let mut events = bob.hear(follows("alice", message_id, causes));
    place(bob, message_id, send_id, 3);
    events.extend(bob.events());
    released(events)
}

// --- ids that name no send ------------------------------------------------------------------------

#[test]
fn a_message_waits_for_what_any_of_its_parts_follows() {
    let mut bob = Bob::new();
    hear_part(&mut bob, LETTER, "part 1", &[]);
    hear_part(&mut bob, LETTER, "part 2", &["cause"]);
    assert!(make_whole(&mut bob, LETTER, 3, &[]).is_empty());
    let released = hear_whole(&mut bob, follows("carol", "cause", &[]));
    assert_eq!(released, ["cause", LETTER]);
}

#[test]
fn what_follows_a_part_that_is_recovered_goes_with_the_message() {
    let mut bob = Bob::new();
    hear_part(&mut bob, LETTER, "part 1", &[]);
    let after = follows("carol", "after", &["part 2"]);
    assert!(hear_whole(&mut bob, after).is_empty());
    assert_eq!(missing(&bob), ["part 2"]);
    let released = make_whole(&mut bob, LETTER, 3, &[Name::new("part 2")]);
    assert_eq!(released, [LETTER, "after"]);
    assert_eq!((stat(&bob, "repair_requests"), missing(&bob).len()), (0, 0));
    // Checks what is counted.
    bob.machine.poll_persist();
    assert_eq!(stat(&bob, "incoming_sends"), 0);
}

#[test]
fn what_follows_a_part_of_a_message_that_is_lost_goes_on_when_the_part_comes() {
    let mut bob = losing();
    hear_part(&mut bob, LETTER, "part 1", &[]);
    happens_at(&mut bob, TIMEOUT_MS);
    happens_at(&mut bob, LOST_MS);
    let after = follows("carol", "after", &["part 2"]);
    assert!(hear_whole(&mut bob, after).is_empty());
    assert_eq!(hear_part(&mut bob, LETTER, "part 2", &[]), ["after"]);
}

#[test]
fn a_message_is_quiet_since_what_came_of_it_last() {
    let named = [id(ONE, 0), id(ONE, 1)];
    let joined = ["part 1", "part 2"].map(str::to_owned);
    for (send_id, parts) in [(ONE, named), (LETTER, joined)] {
        let mut bob = losing();
        hear_part(&mut bob, send_id, &parts[0], &[]);
        let after = follows("carol", "after", &[&parts[0]]);
        assert!(hear_whole(&mut bob, after).is_empty());
        happens_at(&mut bob, TIMEOUT_MS);
        bob.now_ms = LOST_MS - 1;
        hear_part(&mut bob, send_id, &parts[1], &[]);
        for (at_ms, expected) in [
            (LOST_MS, &[][..]),
            (2 * LOST_MS - 2, &[]),
            (2 * LOST_MS - 1, &["after"]),
        ] {
            let released = released(happens_at(&mut bob, at_ms));
            assert_eq!(released, expected, "{send_id} {at_ms}");
        }
    }
}

// --- what others wait for, and have --------------------------------------------------------------

#[test]
fn of_two_histories_that_are_as_long_the_first_stays() {
    let mut bob = Bob::new();
    for message_id in ["one", "two"] {
        hear_whole(&mut bob, follows("bert", message_id, &[]));
    }
    bob.hear(follows("alice", &id(ONE, 0), &["one"]));
    bob.hear(follows("alice", &id(ONE, 1), &["two"]));
    assert_eq!(make_whole(&mut bob, ONE, 2, &[]), [ONE]);
    let heads = bob.machine.inspect().heads;
    assert!(heads.contains(&Name::new("two")) && !heads.contains(&Name::new("one")));
}

#[test]
fn what_came_under_its_id_is_enough_for_what_follows_another_one_that_is_asked_for_still() {
    let mut bob = losing();
    hear_named(&mut bob, named_of(&id(ONE, 0), "alice"));
    bob.hear(message("mallory", &id(ONE, 0), b"of mallory"));
    assert_eq!(stat(&bob, "lost"), 1);
    // It was not waited for since, so it is not lost in time.
    happens_at(&mut bob, 2 * LOST_MS);
    assert_eq!(missing(&bob), [id(ONE, 0)]);
}

#[test]
fn what_is_waited_for_no_more_is_never_looked_at() {
    let mut bob = losing();
    let before_ms = bob.machine.poll_timeout();
    hear_named(&mut bob, named("ours"));
    assert_ne!(bob.machine.poll_timeout(), before_ms);
    bob.hear(message("bob", "ours", b"of an earlier life"));
    assert_eq!(bob.machine.poll_timeout(), before_ms);
}

#[test]
fn what_is_lacking_of_a_message_that_is_whole_is_asked_for_no_more() {
    let whole: [&dyn Fn(&mut Bob); 2] = [
        &|bob| drop(make_whole(bob, ONE, 4, &[])),
        // By the name of a rival it goes at once.
        &|bob| {
            let name = rival_name(ONE, "alice", b"content");
            let (first, now) = (id(ONE, 0), at(bob.now_ms));
            let machine = &mut bob.machine;
            machine.handle_send_reconstructed(Some(&first), "alice", &name, 4, &[], now);
        },
    ];
    for (make_whole, left) in whole.into_iter().zip([&["cause"][..], &["cause"]]) {
        let mut bob = Bob::new();
        hear_part(&mut bob, ONE, &id(ONE, 0), &["cause"]);
        happens_at(&mut bob, TIMEOUT_MS);
        assert_eq!(missing(&bob), ["cause".into(), id(ONE, 1), id(ONE, 2)]);
        make_whole(&mut bob);
        assert_eq!(missing(&bob), left);
        // Checks what is counted.
        bob.machine.poll_persist();
    }
}

#[test]
fn how_many_contents_a_send_has_is_believed_within_bounds() {
    for (count, is_believed) in [(0, false), (2, true), (65_536, true), (65_537, false)] {
        let mut bob = Bob::new();
        bob.hear(message("alice", &id(ONE, 0), b"content"));
        place(&mut bob, &id(ONE, 0), ONE, count);
        hear_named(&mut bob, named(&id(ONE, 1)));
        // Parity may close the gaps of one whose size is known.
        assert_eq!(missing(&bob).is_empty(), is_believed, "{count}");
    }
}

#[test]
fn the_gaps_of_a_message_that_was_lost_are_told_again_when_more_of_it_comes() {
    let mut bob = losing();
    bob.hear_content(ONE, 0, [3, 0]);
    for (at_ms, asked) in [(TIMEOUT_MS, 2), (LOST_MS, 0)] {
        happens_at(&mut bob, at_ms);
        assert_eq!(missing(&bob).len(), asked);
    }
    bob.hear_content(ONE, 1, [3, 0]);
    happens_at(&mut bob, LOST_MS + TIMEOUT_MS);
    assert_eq!(missing(&bob), [id(ONE, 2)]);
}

// --- room, and much at once ----------------------------------------------------------------------

#[test]
fn what_was_recovered_takes_room_too() {
    let mut bob = Bob::of(Config {
        incoming_buffer_messages_max: 2,
        ..config()
    });
    hear_whole(&mut bob, follows("alice", "one", &["missing"]));
    bob.hear(follows("alice", &id(ONE, 0), &["missing"]));
    assert!(make_whole(&mut bob, ONE, 4, &[]).is_empty());
    // One message goes for it, and there is no room all the same.
    let events = bob.hear(message("alice", "two", b"content"));
    assert!(events.contains(&Event::MessageDropped(Dropped::OverLimit)));
    assert_eq!(released(events), ["one"]);
}

#[test]
fn where_there_is_no_room_the_eldest_send_has_more_and_others_under_its_id_have_not() {
    let narrow = || {
        Bob::of(Config {
            incoming_buffer_messages_max: 2,
            ..config()
        })
    };
    let mut bob = narrow();
    let of_bert = |ordinal| message("bert", &id(ONE, ordinal), b"content");
    let is_full = [Event::MessageDropped(Dropped::OverLimit)];
    for ordinal in 0..3 {
        bob.hear_content(ONE, ordinal, [4, 0]);
    }
    assert_eq!(stat(&bob, "incoming_contents"), 3);
    assert_eq!(bob.hear(of_bert(3)), is_full);
    // That of bert is the eldest once that of alice is whole.
    let mut bob = narrow();
    bob.hear_content(ONE, 0, [4, 0]);
    bob.hear(of_bert(1));
    assert_eq!(make_whole(&mut bob, ONE, 1, &[]), [ONE]);
    bob.hear_content(OTHER, 0, [4, 0]);
    assert_ne!(bob.hear(of_bert(2)), is_full);
    assert_eq!(stat(&bob, "incoming_contents"), 3);
}

/// More than one step releases.
#[test]
fn who_waited_long_enough_goes_after_what_is_free_already() {
    const COUNT: usize = 600;
    const PATIENCE_MS: i64 = 600_000;
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("alice", "last", &["599"]));
    for number in 0..COUNT {
        hear_whole(&mut bob, follows("alice", &number.to_string(), &["cause"]));
    }
    bob.now_ms = PATIENCE_MS - 1;
    let mut order = hear_whole(&mut bob, follows("carol", "cause", &[]));
    assert!(order.len() < COUNT);
    order.extend(released(happens_at(&mut bob, PATIENCE_MS)));
    assert_eq!(order.len(), COUNT + 2);
    assert_eq!(order.last().map(String::as_str), Some("last"));
}

/// What each step releases from `at_ms` on, until nothing more goes.
fn steps(bob: &mut Bob, at_ms: i64) -> Vec<usize> {
    let steps = std::iter::repeat_with(|| released(happens_at(bob, at_ms)).len());
    steps.take_while(|count| *count > 0).collect()
}

#[test]
fn what_many_held_up_that_are_lost_at_once_goes_in_steps() {
    const CAUSES: usize = 100;
    const EACH: usize = 10;
    let mut bob = losing();
    for number in 0..CAUSES * EACH {
        let cause = format!("cause {}", number % CAUSES);
        let name = number.to_string();
        hear_whole(&mut bob, follows("alice", &name, &[&cause]));
    }
    assert_eq!(steps(&mut bob, LOST_MS), [512, CAUSES * EACH - 512]);
    assert_eq!(stat(&bob, "incoming_sends"), 0);
}

#[test]
fn what_has_to_make_room_frees_others_in_steps() {
    const EACH: usize = 10;
    let mut bob = Bob::of(Config {
        missing_messages_max: 100,
        ..config()
    });
    for number in 0..100 * EACH {
        let cause = format!("cause {}", number % 100);
        let name = number.to_string();
        hear_whole(&mut bob, follows("alice", &name, &[&cause]));
    }
    let ids: Vec<String> = (0..100).map(|number| format!("other {number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let freed = hear_whole(&mut bob, follows("alice", "after", &ids)).len();
    assert_eq!(freed, 512);
    assert_eq!(steps(&mut bob, 1), [100 * EACH - 512]);
}

#[test]
fn what_a_great_many_wait_for_is_lost_in_steps() {
    const WAITING: usize = 1_000;
    let mut bob = losing();
    let causes: Vec<String> = (0..50).map(|number| format!("cause {number}")).collect();
    let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
    for number in 0..WAITING {
        hear_whole(&mut bob, follows("alice", &number.to_string(), &causes));
    }
    let before = stat(&bob, "incoming_pairs");
    happens_at(&mut bob, LOST_MS);
    let untied = before - stat(&bob, "incoming_pairs");
    assert!((16_384..16_384 + WAITING).contains(&untied), "{untied}");
}

// --- what is stored -------------------------------------------------------------------------------

#[test]
fn a_message_that_became_whole_goes_in_the_next_life_after_what_it_follows() {
    let mut stored = Stored::default();
    let mut bob = Bob::new();
    bob.hear(follows("alice", "after", &["cause"]));
    stored.take(&mut bob);
    assert!(make_whole(&mut bob, "after", 1, &[]).is_empty());
    let mut bob = stored.restart_as(Bob::new(), bob);
    let released = hear_whole(&mut bob, follows("carol", "cause", &[]));
    assert_eq!(released, ["cause", "after"]);
}

#[test]
fn what_was_read_into_a_message_is_part_of_it_in_the_next_life() {
    let mut stored = Stored::default();
    let mut bob = Bob::new();
    hear_part(&mut bob, LETTER, "part 1", &[]);
    bob.hear(follows("alice", "part 2", &[]));
    stored.take(&mut bob);
    place(&mut bob, "part 2", LETTER, 3);
    let bob = stored.restart_as(Bob::new(), bob);
    let held = (
        stat(&bob, "incoming_sends"),
        stat(&bob, "incoming_contents"),
    );
    assert_eq!(held, (1, 2));
}

#[test]
fn what_is_part_of_a_message_that_is_here_waits_in_no_life() {
    let mut stored = Stored::default();
    let mut bob = Bob::new();
    bob.hear(message("alice", &id(ONE, 0), b"content"));
    stored.take(&mut bob);
    bob.machine.handle_content_surplus(&id(ONE, 0));
    assert_eq!(bob.machine.inspect().incoming, []);
    let bob = stored.restart_as(Bob::new(), bob);
    assert!(bob.machine.holds(&id(ONE, 0)));
    assert_eq!(bob.machine.inspect().incoming, []);
    assert_eq!(stat(&bob, "incoming_sends"), 0);
}

#[test]
fn what_is_held_for_nothing_holds_up_nobody_in_the_next_life() {
    let mut stored = Stored::default();
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("alice", "after", &["cause"]));
    stored.take(&mut bob);
    stored.lose("sds.missing", "cause");
    let mut bob = stored.restart_as(Bob::new(), bob);
    assert_eq!(released(bob.events()), ["after"]);
    assert_eq!(stat(&bob, "incoming_sends"), 0);
}

#[test]
fn a_message_is_stored_with_what_it_waits_for_still() {
    let mut bob = Bob::new();
    hear_whole(&mut bob, follows("alice", "after", &["one", "two"]));
    bob.machine.poll_persist();
    hear_whole(&mut bob, follows("bert", "one", &[]));
    let records = bob.machine.poll_persist();
    let of_it = |record: &Record| record.kind == records::INCOMING && *record.key == *"after";
    assert!(records.iter().any(of_it));
    assert_eq!(stat(&bob, "incoming_pairs"), 1);
}

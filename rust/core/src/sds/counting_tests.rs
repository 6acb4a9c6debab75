//! Where a sender counts what others lack of its sends: a number is said in place of what came.

use super::ids::lacking_id;
use super::sync::lacking::statement;
use super::tests::{Bob, ONE, OTHER, WINDOW_MS, at, config, id, message, sync};
use super::*;
use crate::wire::sds::Message;

const TIMEOUT_MS: i64 = 4 * WINDOW_MS;

/// Alice asks what others lack of a send of hers, if she `counts`.
fn bob(counts: bool) -> Bob {
    let mut bob = Bob::of(Config {
        acknowledgement_sync: true,
        ..config()
    });
    if counts {
        bob.hear(Message {
            repair_request: vec![statement(OTHER, 0, "alice")],
            ..sync("alice")
        });
    }
    bob
}

/// What is said of [`ONE`] by the messages of a while: when, the number, and what is named.
fn said_within(bob: &mut Bob, duration_ms: i64) -> Vec<(i64, Vec<String>, Vec<String>)> {
    let names = |entries: Vec<crate::wire::sds::HistoryEntry>| {
        let names = entries.into_iter().map(|entry| entry.message_id);
        names.filter(|name| name.starts_with(ONE)).collect()
    };
    let left = bob.wait_until(bob.now_ms + duration_ms).into_iter();
    left.map(|(at_ms, transmit)| {
        let sync = Message::decode(&transmit.payload, config().wire_format).unwrap();
        (
            at_ms,
            names(sync.repair_request),
            names(sync.causal_history),
        )
    })
    .collect()
}

fn number(lacking: u32) -> Vec<String> {
    vec![lacking_id(ONE, lacking).to_string()]
}

#[test]
fn who_was_told_that_nothing_is_lacking_is_told_again_only_after_a_while() {
    for (waits_ms, is_said) in [(TIMEOUT_MS, false), (4 * TIMEOUT_MS, true)] {
        // What comes again, and what the message can do without.
        for ordinal in [0, 2] {
            let mut bob = bob(true);
            bob.hear_whole(ONE);
            let said = said_within(&mut bob, TIMEOUT_MS);
            let said_ms = said[0].0;
            assert_eq!(said, [(said_ms, number(0), vec![])]);
            bob.wait_until(said_ms + waits_ms);
            bob.hear_content(ONE, ordinal, [2, 2]);
            bob.machine.handle_content_surplus(&id(ONE, ordinal));
            let said = said_within(&mut bob, TIMEOUT_MS);
            assert_eq!(!said.is_empty(), is_said, "{waits_ms} {ordinal}");
        }
    }
}

#[test]
fn of_a_send_that_is_repeated_what_came_is_named() {
    let mut bob = bob(true);
    bob.hear_content(ONE, 0, [3, 1]);
    let said = said_within(&mut bob, TIMEOUT_MS / 2);
    assert_eq!(said, [(said[0].0, number(2), vec![])]);
    bob.wait_until(said[0].0 + TIMEOUT_MS / 2);
    bob.hear_content(ONE, 0, [3, 1]);
    let said = said_within(&mut bob, WINDOW_MS);
    assert_eq!(said, [(said[0].0, vec![], vec![id(ONE, 0)])]);
}

#[test]
fn a_message_that_leaves_in_a_burst_says_no_number_of_what_is_coming() {
    let mut bob = bob(true);
    bob.hear(message("carol", "other", b"content"));
    bob.machine
        .handle_send_reconstructed(None, "carol", "other", 1, &[], at(0));
    let due_ms = bob.machine.acknowledgement_due_ms().unwrap();
    bob.wait_until(due_ms - 1);
    bob.hear_content(ONE, 0, [3, 1]);
    let said = said_within(&mut bob, TIMEOUT_MS / 2);
    let (later_ms, _, _) = said[1];
    assert!(later_ms > due_ms);
    assert_eq!(
        said,
        [(due_ms, vec![], vec![]), (later_ms, number(2), vec![])]
    );
}

#[test]
fn a_content_of_ours_names_what_came_before_it_of_a_sender_that_counts_once() {
    for (counts, named) in [(true, 1), (false, 2)] {
        let mut bob = bob(counts);
        bob.hear_whole(ONE);
        let content = Octets::from(&b"after"[..]);
        bob.machine.send(OTHER, vec![content], 1).unwrap();
        let left = bob
            .leaving_of(Kinds::NONE.with(TransmitKind::First))
            .remove(0);
        let left = Message::decode(&left.payload, config().wire_format).unwrap();
        assert_eq!(left.causal_history.len(), named, "{counts}");
    }
}

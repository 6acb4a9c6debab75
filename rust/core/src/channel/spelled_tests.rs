//! Messages whose ids name no send, beside others that they are spelled like.

use std::collections::BTreeSet;

use super::tests::*;
use super::*;
use crate::crc32::crc32;
use crate::hex::hex;
use crate::keccak::keccak256;
use crate::sds::{MessageIdRule, Octets};
use crate::wire::sds::Message;

const RULES: [MessageIdRule; 2] = [MessageIdRule::Send, MessageIdRule::ContentSha256];

fn bob_of(rule: MessageIdRule) -> Bob {
    let config = Config {
        message_id: rule,
        ..config()
    };
    Bob::of(config, settings(), limits())
}

fn in_two(seed: u8) -> (Vec<u8>, Vec<Vec<u8>>) {
    let real = payload(seed, 2 * SEGMENT_BYTES);
    let contents = data_segments(keccak256(&real), &real);
    (real, contents)
}

fn single(text: &[u8]) -> Vec<u8> {
    segments(text).remove(0)
}

#[test]
fn nothing_stays_of_a_false_message_whose_ids_name_no_send() {
    for rule in RULES {
        let mut bob = bob_of(rule);
        bob.segmentation.limits.work_budget = 1;
        bob.restart().unwrap();
        let hash = keccak256(&payload(1, 2 * SEGMENT_BYTES));
        let forged = [2, 3].map(|seed| data_segments(hash, &payload(seed, 2 * SEGMENT_BYTES)));
        for (number, content) in forged.iter().flatten().enumerate().take(3) {
            assert_eq!(bob.given_up(), 0);
            bob.hear(message("alice", &format!("content {number}"), content));
        }
        assert_eq!((bob.given_up(), bob.stat("incoming_contents")), (1, 0));
    }
}

/// Of two messages that the owner calls alike the first waits for a cause; the second goes at once.
#[test]
fn a_message_that_is_called_like_one_that_waits_leaves_nothing_behind() {
    let (real, contents) = in_two(1);
    let hash = hex(&keccak256(&real));
    for (rule, ids, shared) in [
        (RULES[0], ["one".into(), "two".into()], &*hash),
        (RULES[1], ["one".into(), "two".into()], &*hash),
        (RULES[0], [id(ONE, 0), id(ONE, 1)], ONE),
    ] {
        for is_single_first in [true, false] {
            let mut bob = bob_of(rule);
            let alone = message("alice", shared, &single(b"single"));
            let parts = [0, 1].map(|at| message("alice", &ids[at], &contents[at]));
            let mut groups = [vec![alone], parts.to_vec()];
            if !is_single_first {
                groups.reverse();
            }
            let [first, second] = groups;
            for message in first {
                bob.hear(follows(message, "cause"));
            }
            assert!(bob.released.is_empty());
            for message in second {
                bob.hear(message);
            }
            let (one, other): (&[u8], &[u8]) = (b"single", &real);
            let (waits, goes) = if is_single_first {
                (one, other)
            } else {
                (other, one)
            };
            assert_eq!(bob.released, [goes], "{rule:?} {is_single_first}");
            bob.restart().unwrap();
            bob.hear(message("carol", "cause", &single(b"cause")));
            assert_eq!(
                bob.released,
                [goes, b"cause", waits],
                "{rule:?} {is_single_first}"
            );
            assert_eq!(
                bob.stat("incoming_contents"),
                0,
                "{rule:?} {is_single_first}"
            );
        }
    }
}

#[test]
fn a_send_goes_on_beside_a_message_that_is_spelled_like_it() {
    let (real, contents) = in_two(1);
    let false_single = data_segments([9; 32], b"false").remove(0);
    for spelled in [single(b"single"), false_single] {
        let mut bob = Bob::new();
        bob.hear(message("alice", &id(ONE, 0), &contents[0]));
        bob.hear(message("alice", ONE, &spelled));
        assert_eq!((bob.given_up(), bob.stat("incoming_contents")), (0, 1));
        let after = message("carol", &id(OTHER, 0), &single(b"after"));
        bob.hear(follows(after, &id(ONE, 0)));
        bob.released.clear();
        bob.hear(message("alice", &id(ONE, 1), &contents[1]));
        assert_eq!(bob.released, [real.clone(), b"after".to_vec()]);
        assert_eq!(bob.stat("incoming_contents"), 0);
    }
}

#[test]
fn a_hash_that_is_an_id_too_brings_no_content_into_another_message() {
    let (real, contents) = in_two(1);
    for rule in RULES {
        for at in 0..2 {
            let mut bob = bob_of(rule);
            let hash = hex(&keccak256(&real));
            bob.hear(message("alice", &hash, &contents[at]));
            bob.hear(message("alice", "other", &contents[1 - at]));
            assert_eq!(bob.released, [&*real]);
            assert_eq!(bob.stat("incoming_contents"), 0, "{rule:?} {at}");
        }
    }
}

#[test]
fn histories_that_name_what_is_spelled_like_a_send_do_not_name_that() {
    let mut bob = Bob::new();
    let of_carol = |send_id: &str, text: &[u8]| message("carol", &id(send_id, 0), &single(text));
    bob.hear(follows(
        of_carol(&"a".repeat(32), b"follows the send"),
        &id(ONE, 0),
    ));
    bob.hear(follows(
        of_carol(&"b".repeat(32), b"follows the other"),
        ONE,
    ));
    assert_eq!(bob.missing(), BTreeSet::from([ONE, &*id(ONE, 0)]));
    bob.restart().unwrap();
    bob.hear(message("alice", ONE, &single(b"spelled")));
    assert_eq!(bob.released, [&b"spelled"[..], b"follows the other"]);
    assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0)]));
    bob.hear(message("alice", &id(ONE, 0), &single(b"send")));
    assert_eq!(bob.released[2..], [&b"send"[..], b"follows the send"]);
}

#[test]
fn a_rival_that_is_spelled_like_a_send_leaves_that_asked_for() {
    let mut bob = Bob::new();
    for sender in ["mallory", "alice"] {
        bob.hear(message(sender, ONE, &single(sender.as_bytes())));
    }
    bob.hear(Message {
        content: None,
        causal_history: vec![named(&id(ONE, 0), Some("alice"))],
        ..message("carol", "sync", b"")
    });
    assert_eq!(bob.missing(), BTreeSet::from([&*id(ONE, 0)]));
}

/// Of a message whose ids name no send it is not known what the others are called.
#[test]
fn nothing_is_asked_for_of_a_message_whose_ids_name_no_send() {
    for (ids, count) in [
        (["one".into(), "two".into()], 0),
        ([id(ONE, 0), id(ONE, 1)], 1),
    ] {
        let mut bob = Bob::new();
        bob.hear(message("alice", &ids[0], &in_two(1).1[0]));
        bob.now_ms += 2 * bob.config.acknowledgement_timeout_ms;
        bob.channel.sds.handle_timeout(at(bob.now_ms));
        assert_eq!(bob.missing().len(), count);
    }
}

#[test]
fn nothing_waits_for_a_message_whose_ids_name_no_send_once_it_was_given_up() {
    for rule in RULES {
        let mut bob = bob_of(rule);
        let real = payload(1, 3 * SEGMENT_BYTES);
        let contents = data_segments(keccak256(&real), &real);
        bob.hear(message("alice", "one", &contents[0]));
        bob.hear(message("alice", "two", &contents[1]));
        bob.wait_for_expiry();
        for named in ["one", "two"] {
            let after = message(
                "carol",
                &format!("after {named}"),
                &single(named.as_bytes()),
            );
            bob.hear(follows(after, named));
        }
        assert_eq!(bob.released, [b"one", b"two"], "{rule:?}");
        assert_eq!(bob.missing(), BTreeSet::from(["one", "two"]), "{rule:?}");
        assert_eq!(bob.given_up(), 1);
    }
}

#[test]
fn what_follows_a_content_waits_for_its_message_in_the_next_life_too() {
    for rule in RULES {
        let mut bob = bob_of(rule);
        let (real, contents) = in_two(1);
        let after = message("carol", "after", &single(b"after"));
        bob.hear(follows(after, "one"));
        bob.commit();
        bob.hear(message("alice", "one", &contents[0]));
        bob.restart().unwrap();
        assert!(bob.released.is_empty());
        bob.hear(message("alice", "two", &contents[1]));
        assert_eq!(bob.released, [real, b"after".to_vec()], "{rule:?}");
        bob.commit();
        assert_eq!(bob.stored("sds.incoming"), 0, "{rule:?}");
    }
}

/// Every length-prefixed `new` in a record is `old`.
fn renamed(record: &[u8], new: &[u8], old: &[u8]) -> Vec<u8> {
    let with_length = |name: &[u8]| [&(name.len() as u32).to_le_bytes(), name].concat();
    let (new, old) = (with_length(new), with_length(old));
    let mut body = record[..record.len() - 4].to_vec();
    while let Some(at) = body.windows(new.len()).position(|part| *part == *new) {
        body.splice(at..at + new.len(), old.iter().copied());
    }
    body.extend(crc32(&body).to_le_bytes());
    body
}

/// Earlier releases called a send that no id names by the id of what came of it first, also where that is
/// spelled like a send.
#[test]
fn what_earlier_releases_stored_of_messages_whose_ids_name_no_send_goes_on() {
    let lives = |bob: &mut Bob, renames: &[(String, &str)]| {
        bob.commit();
        bob.rewrite(|kind, key, value| {
            for (new, old) in renames {
                if key == new.as_bytes() && ["sds.incoming", "sds.lost"].contains(&kind) {
                    *key = old.as_bytes().to_vec();
                }
                if ["sds.incoming", "sds.log", "sds.missing"].contains(&kind) {
                    *value = renamed(value, new.as_bytes(), old.as_bytes()).into();
                }
            }
        });
        // Read once, written anew, and read again.
        for _ in 0..2 {
            bob.restart().unwrap();
        }
    };
    for rule in RULES {
        let mut bob = bob_of(rule);
        let (real, contents) = in_two(1);
        bob.hear(message("alice", "one", &contents[0]));
        let after = message("carol", "after", &single(b"after"));
        bob.hear(follows(after, "one"));
        let waits = message("alice", ONE, &single(b"waits"));
        bob.hear(follows(waits, OTHER));
        assert!(bob.released.is_empty());
        let hash = hex(&keccak256(&real));
        let renames = [
            (format!("\0\0{hash}\0alice"), "one"),
            (format!("\0{ONE}"), ONE),
            (format!("\0{OTHER}"), OTHER),
        ];
        lives(&mut bob, &renames);
        assert_eq!(bob.missing(), BTreeSet::from([OTHER]));
        if rule == MessageIdRule::Send {
            for send_id in [ONE, OTHER] {
                bob.hear(message("alice", &id(send_id, 0), &single(b"beside")));
            }
            assert_eq!(bob.released, [b"beside"; 2]);
            bob.released.clear();
        }
        bob.hear(message("dave", OTHER, &single(b"cause")));
        assert_eq!(bob.released, [b"cause", b"waits"], "{rule:?}");
        bob.released.clear();
        bob.hear(message("alice", "two", &contents[1]));
        assert_eq!(bob.released, [real, b"after".to_vec()], "{rule:?}");
        assert_eq!(bob.stat("incoming_contents"), 0);
        bob.commit();
        assert_eq!(
            (bob.stored("sds.incoming"), bob.stored("sds.missing")),
            (0, 0)
        );
    }
}

#[test]
fn contents_without_the_record_of_their_message_are_part_of_it_still() {
    for rule in RULES {
        let mut bob = bob_of(rule);
        let (real, contents) = in_two(1);
        bob.hear(message("alice", "one", &contents[0]));
        bob.commit();
        bob.rewrite(|kind, _, value| {
            if kind == "sds.incoming" {
                *value = Octets::from(b"damaged".to_vec());
            }
        });
        bob.restart().unwrap();
        bob.hear(message("alice", "two", &contents[1]));
        assert_eq!(bob.released, [&*real], "{rule:?}");
        assert_eq!(bob.stat("incoming_contents"), 0, "{rule:?}");
    }
}

/// What had no room was forgotten while it was read.
#[test]
fn a_life_with_room_for_less_that_is_missing_begins_all_the_same() {
    for rule in RULES {
        let mut bob = bob_of(rule);
        for named in ["one", "two", ONE, OTHER] {
            let after = message(
                "carol",
                &format!("after {named}"),
                &single(named.as_bytes()),
            );
            bob.hear(follows(after, named));
        }
        bob.config.missing_messages_max = 1;
        bob.restart().unwrap();
        assert_eq!(bob.missing().len(), 1);
        assert_eq!(bob.released.len(), 3, "{rule:?}");
    }
}

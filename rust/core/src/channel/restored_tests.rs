//! What is stored of a message, and what becomes of it in the next life.

use super::tests::{
    Bob, ONE, OTHER, SEGMENT_BYTES, at, config, data_segments, follows, id, limits, message, named,
    payload, segments, settings,
};
use super::*;
use crate::hex::hex;
use crate::keccak::keccak256;
use crate::segment::{Settings, segment};
use crate::wire::sds::Message;
use crate::wire::segment::WireFormat;

#[test]
fn a_message_that_is_shorter_than_its_segments_is_restored_at_its_length() {
    let mut bob = Bob::new();
    let real = payload(1, 2 * SEGMENT_BYTES + 100);
    let mut padded = real.clone();
    padded.resize(3 * SEGMENT_BYTES, 0);
    for (ordinal, content) in data_segments(keccak256(&real), &padded).iter().enumerate() {
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.released, [&*real]);
    assert_eq!(bob.restart(), Ok(vec![real]));
    assert_eq!(bob.stored("channel.parts"), 1);
}

/// A message waits for its delivery, and the log has forgotten what brought it: its id is used again.
#[test]
fn the_last_part_of_a_message_is_stored_with_it_where_its_id_stands_for_another() {
    let mut config = config();
    config.log_messages_max = 2;
    let mut bob = Bob::of(config, settings(), limits());
    let (first, second) = (payload(1, SEGMENT_BYTES), payload(2, 2 * SEGMENT_BYTES));
    bob.hear(message("alice", "used twice", &segments(&first)[0]));
    for number in 3..7 {
        let message_id = format!("{number:032x}.0");
        bob.hear(message("carol", &message_id, &segments(b"small")[0]));
    }
    bob.commit();
    assert!(!bob.holds("used twice"));
    let contents = segments(&second);
    for (message_id, content) in ["used once", "used twice"].iter().zip(&contents) {
        bob.hear(message("alice", message_id, content));
    }
    assert_eq!(bob.released.last(), Some(&second));
    let mut restored = bob.restart().unwrap();
    assert_eq!(bob.stored("channel.parts"), 2);
    restored.sort_by_key(Vec::len);
    assert_eq!(restored[4..], [first, second]);
}

#[test]
fn each_segment_that_parity_brought_back_is_restored_with_its_own_bytes() {
    let mut bob = Bob::new();
    let real = payload(1, 3 * SEGMENT_BYTES);
    let contents = segments(&real);
    for ordinal in [0, 3, 4] {
        bob.hear(message(
            "alice",
            &id(ONE, ordinal),
            &contents[ordinal as usize],
        ));
    }
    assert_eq!(bob.released, [&*real]);
    assert_eq!(bob.restart(), Ok(vec![real]));
    assert_eq!(bob.stored("channel.parts"), 1);
}

#[test]
fn a_message_whose_bytes_are_others_than_were_stored_is_not_restored() {
    let mut bob = Bob::new();
    deliver(&mut bob, ONE, 1);
    bob.commit();
    let part = payload(1, 2 * SEGMENT_BYTES)[100..200].to_vec();
    bob.rewrite(|kind, _, value| {
        if kind == "sds.message"
            && let Some(at) = memchr::memmem::find(value, &part)
        {
            let mut changed = value.to_vec();
            changed[at] ^= 1;
            *value = changed.into();
        }
    });
    let error = bob.restart().unwrap_err();
    assert!(
        matches!(error, RestoreError::WithoutBytes { .. }),
        "{error}"
    );
}

#[test]
fn a_message_that_waits_under_a_damaged_key_is_not_restored() {
    let mut bob = Bob::new();
    let waits = message("alice", &id(ONE, 0), &segments(b"waits")[0]);
    bob.hear(follows(waits, &id(OTHER, 0)));
    assert_eq!(bob.channel.waiting().0, 1);
    bob.commit();
    bob.rewrite(|kind, key, _| {
        if kind == "channel.payload" {
            *key = vec![0, 0];
        }
    });
    let damaged = RestoreError::Damaged("key of a message");
    assert_eq!(bob.restart(), Err(damaged));
}

#[test]
fn a_hash_that_an_earlier_release_wrote_is_one_or_is_damaged() {
    let hash = hex(&keccak256(b"small"));
    for (digits, is_one) in [
        (hash.clone(), true),
        (hash.to_uppercase(), true),
        (hash[2..].to_owned(), false),
        (format!("+1{}", &hash[2..]), false),
        (format!("x1{}", &hash[2..]), false),
        (format!("aéa{}", &hash[4..]), false),
        ("z".repeat(64), false),
    ] {
        let mut bob = Bob::new();
        bob.hear(message("alice", &id(ONE, 0), &segments(b"small")[0]));
        bob.commit();
        bob.rewrite(|kind, _, value| {
            if kind == "channel.delivery" {
                let record =
                    format!(r#"{{"sender_id":"alice","send_id":"{ONE}","message_id":"{digits}"}}"#);
                *value = record.into_bytes().into();
            }
        });
        let expected = match is_one {
            true => Ok(vec![b"small".to_vec()]),
            false => Err(RestoreError::Damaged("DeliveryRecord")),
        };
        assert_eq!(bob.restart(), expected, "{digits}");
    }
}

#[test]
fn what_is_handed_over_in_the_next_life_is_stored_no_longer() {
    for bytes in [100, 2 * SEGMENT_BYTES] {
        let mut bob = Bob::of(without_repair(), settings(), limits());
        let data = segments(&payload(1, bytes))
            .into_iter()
            .take(bytes.div_ceil(SEGMENT_BYTES));
        for (content, ordinal) in data.zip(0..) {
            bob.hear(message("alice", &id(ONE, ordinal), &content));
        }
        assert_eq!(bob.restart().unwrap().len(), 1);
        let stored = |bob: &Bob| {
            let kinds = [
                "channel.payload",
                "channel.parts",
                "channel.delivery",
                "sds.message",
            ];
            kinds.map(|kind| bob.stored(kind)).iter().sum::<usize>()
        };
        assert!(stored(&bob) > 0);
        bob.channel.begin_delivery().expect("it waits");
        bob.channel.finish_delivery();
        bob.commit();
        assert_eq!(stored(&bob), 0, "{bytes}");
    }
}

/// It is stored apart from the first message under its send id, which waits for its delivery.
#[test]
fn a_second_message_of_a_send_is_released_in_the_next_life() {
    let config = Config {
        log_messages_max: 2,
        ..config()
    };
    let mut bob = Bob::of(config, settings(), limits());
    bob.hear(message("alice", &id(ONE, 0), &segments(b"first")[0]));
    for number in 3..7 {
        let message_id = id(&format!("{number:032x}"), 0);
        bob.hear(message("carol", &message_id, &segments(b"more")[0]));
    }
    assert!(!bob.holds(&id(ONE, 0)));
    let second = message("alice", &id(ONE, 0), &segments(b"second")[0]);
    bob.hear(follows(second, &id(OTHER, 0)));
    assert_eq!(bob.channel.waiting().0, 1);
    bob.restart().unwrap();
    bob.released.clear();
    bob.hear(message("carol", &id(OTHER, 0), &segments(b"before")[0]));
    assert_eq!(bob.released, [&b"before"[..], b"second"]);
    assert_eq!(bob.faults(FaultKind::MessageNotHeld), 0);
}

// --- segments of a partial message ------------------------------------------------------------------

/// So few ends are tried that a message is not found whose last segment parity brings back.
fn with_few_ends() -> Settings {
    Settings {
        max_tail_candidates: 1,
        ..settings()
    }
}

const PARTS: u32 = 3;

/// Three data segments, the last of which ends in many zeros, and so much parity.
fn three_parts(parity: u8) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut payload = payload(1, 2 * SEGMENT_BYTES + 100);
    payload.extend([0; 200]);
    let parameters = Parameters::new(Settings {
        parity_rate: f64::from(parity) / f64::from(PARTS),
        ..settings()
    });
    let contents = segment(&payload, &parameters.unwrap()).unwrap().to_vecs();
    (payload, contents)
}

/// Has the first two of them and all parity, in which the message is not found.
fn with_enough_of_a_message(parity: u8, follows_other: bool) -> (Bob, Vec<u8>) {
    let (payload, contents) = three_parts(parity);
    let mut bob = Bob::of(config(), with_few_ends(), limits());
    for ordinal in (0..PARTS + u32::from(parity)).filter(|ordinal| *ordinal != 2) {
        let message = message("alice", &id(ONE, ordinal), &contents[ordinal as usize]);
        bob.hear(match follows_other {
            true => follows(message, &id(OTHER, 0)),
            false => message,
        });
    }
    assert!(bob.channel.has_partial());
    assert_eq!(bob.released, [""; 0].map(Vec::from));
    (bob, payload)
}

#[test]
fn a_message_that_the_next_life_can_put_together_is_released_there() {
    let (mut bob, payload) = with_enough_of_a_message(1, false);
    bob.restart_as(settings(), limits()).unwrap();
    assert_eq!(bob.released, [payload]);
    let (counts, _) = bob.channel.counts();
    assert_eq!(counts.messages, 1);
    assert!(!bob.channel.has_partial());
    // Its last data segment never came, and is known to be here.
    assert!(bob.holds(&id(ONE, 2)));
    bob.commit();
    assert_eq!(bob.stored("channel.segment"), 0);
}

#[test]
fn what_came_of_a_message_beyond_what_it_took_stays_received_in_the_next_life() {
    let (mut bob, payload) = with_enough_of_a_message(2, true);
    bob.restart_as(settings(), limits()).unwrap();
    assert_eq!(bob.channel.waiting().0, 1);
    assert!(bob.holds(&id(ONE, PARTS + 1)));
    bob.commit();
    assert_eq!(bob.stored("channel.segment"), 0);
    bob.hear(message("carol", &id(OTHER, 0), &segments(b"before")[0]));
    assert_eq!(bob.released, [b"before".to_vec(), payload]);
}

#[test]
fn a_false_message_that_the_next_life_spends_no_work_on_is_dropped_there_with_all_that_came() {
    let hash = keccak256(b"real");
    let mut bob = Bob::new();
    let forged = [1, 2, 3].map(|seed| data_segments(hash, &payload(seed, 2 * SEGMENT_BYTES)));
    for (ordinal, content) in forged.iter().flatten().enumerate() {
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
    }
    assert_eq!(bob.given_up(), 0);
    assert!(bob.channel.has_partial());
    let limits = Limits {
        work_budget: 1,
        ..limits()
    };
    bob.restart_as(settings(), limits).unwrap();
    assert_eq!(bob.given_up(), 1);
    assert!(!bob.channel.has_partial());
    let (_, stats) = bob.channel.counts();
    assert_eq!(stats.sets_held, 0);
    assert_eq!(bob.stat("incoming_contents"), 0);
    bob.commit();
    assert_eq!(
        (bob.stored("channel.segment"), bob.stored("sds.message")),
        (0, 0)
    );
}

#[test]
fn a_message_for_which_the_next_life_has_no_room_is_given_up_there() {
    let mut bob = Bob::new();
    for (send_id, seed) in [(ONE, 1), (OTHER, 2), (ONE, 1)] {
        let contents = segments(&payload(seed, 3 * SEGMENT_BYTES));
        let ordinal = usize::from(bob.holds(&id(send_id, 0)));
        let message_id = id(send_id, ordinal as u32);
        bob.hear(message("alice", &message_id, &contents[ordinal]));
    }
    let limits = Limits {
        sets_per_sender_max: 1,
        ..limits()
    };
    bob.restart_as(settings(), limits).unwrap();
    assert_eq!(bob.given_up(), 1);
    let (_, stats) = bob.channel.counts();
    assert_eq!((stats.sets_held, bob.stat("incoming_contents")), (1, 1));
    assert!(bob.holds(&id(OTHER, 0)) && !bob.holds(&id(ONE, 1)));
    bob.commit();
    assert_eq!(bob.stored("channel.segment"), 1);
}

#[test]
fn where_the_next_life_has_less_room_what_came_last_has_it() {
    for order in [[ONE, OTHER], [OTHER, ONE]] {
        let mut bob = Bob::new();
        for (seed, send_id) in (1..).zip(order) {
            let contents = segments(&payload(seed, 3 * SEGMENT_BYTES));
            bob.hear(message("alice", &id(send_id, 0), &contents[0]));
        }
        let limits = Limits {
            sets_per_sender_max: 1,
            ..limits()
        };
        bob.restart_as(settings(), limits).unwrap();
        let held = order.map(|send_id| bob.holds(&id(send_id, 0)));
        assert_eq!(held, [false, true]);
    }
}

/// Whether what follows a segment is released after a restart with `change`.
fn is_released_without_what_it_follows(change: impl Fn(&mut Settings, &mut Limits)) -> bool {
    let mut bob = Bob::new();
    let (_, contents) = three_parts(3);
    bob.hear(message("alice", &id(ONE, 0), &contents[0]));
    let after = message("carol", &id(OTHER, 0), &segments(b"after")[0]);
    bob.hear(follows(after, &id(ONE, 0)));
    assert_eq!(bob.channel.waiting().0, 1);
    let (mut settings, mut limits) = (settings(), limits());
    change(&mut settings, &mut limits);
    bob.restart_as(settings, limits).unwrap();
    let is_released = !bob.released.is_empty();
    for _ in 0..2 {
        assert!(!bob.holds(&id(ONE, 0)));
        assert!(!bob.channel.has_partial());
        bob.commit();
        assert_eq!(bob.stored("channel.segment"), 0);
        bob.restart().unwrap();
    }
    is_released
}

#[test]
fn what_follows_a_segment_waits_where_the_next_life_has_no_room_for_that() {
    assert!(!is_released_without_what_it_follows(|_, limits| {
        // The segment fits, but not what claims an identity.
        limits.unauthenticated_share = 0.0;
    }));
}

#[test]
fn what_follows_a_segment_goes_on_where_the_next_life_cannot_read_that() {
    assert!(is_released_without_what_it_follows(|settings, _| {
        settings.wire_format = WireFormat::Lip243;
    }));
}

/// It was displaced by others of its sender, and came again under another id.
#[test]
fn a_segment_that_is_stored_twice_stays_received_in_the_next_life() {
    let mut limits = limits();
    limits.sets_per_sender_max = 1;
    let mut bob = Bob::of(config(), settings(), limits);
    let (_, contents) = three_parts(3);
    bob.hear(message("alice", &id(ONE, 0), &contents[0]));
    bob.hear_of(message("alice", &id(ONE, 1), &contents[1]), true);
    bob.hear(message(
        "alice",
        &id(OTHER, 0),
        &segments(&payload(2, 2 * SEGMENT_BYTES))[0],
    ));
    bob.hear(message("alice", &id(ONE, 9), &contents[0]));
    bob.commit();
    assert_eq!(bob.stored("channel.segment"), 3);
    bob.restart().unwrap();
    assert!(bob.holds(&id(ONE, 0)) && bob.holds(&id(ONE, 9)));
    bob.commit();
    assert_eq!(bob.stored("channel.segment"), 3);
}

// --- what is stored, and for how long -----------------------------------------------------------------

/// Hears a message in two segments and hands it over.
fn deliver(bob: &mut Bob, send_id: &str, seed: u8) {
    let contents = segments(&payload(seed, 2 * SEGMENT_BYTES));
    for (ordinal, content) in contents.iter().enumerate().take(2) {
        bob.hear(message("alice", &id(send_id, ordinal as u32), content));
    }
    bob.channel.begin_delivery().expect("it is released");
}

#[test]
fn the_messages_of_one_that_was_delivered_are_stored_on_where_others_may_ask_for_them() {
    for enable_repair in [false, true] {
        let config = Config {
            enable_repair,
            ..config()
        };
        let mut bob = Bob::of(config, settings(), limits());
        deliver(&mut bob, ONE, 1);
        bob.commit();
        assert_eq!(
            (bob.stored("sds.message"), bob.stored("channel.parts")),
            (2, 1)
        );
        bob.channel.finish_delivery();
        bob.commit();
        let messages = if enable_repair { 2 } else { 0 };
        assert_eq!(bob.stored("sds.message"), messages);
        assert_eq!(bob.stored("channel.parts"), 0);
        bob.commit();
        assert_eq!(bob.stored("sds.message"), messages);
    }
}

#[test]
fn as_many_completed_messages_are_stored_as_are_remembered() {
    let config = Config {
        log_messages_max: 1,
        ..config()
    };
    let limits = Limits {
        completed_remembered_max: 1,
        ..limits()
    };
    let mut bob = Bob::of(config, settings(), limits);
    for (send_id, seed) in [(ONE, 1), (OTHER, 2)] {
        deliver(&mut bob, send_id, seed);
        bob.channel.finish_delivery();
        bob.commit();
        assert_eq!(bob.stored("segmentation.completed"), 1);
    }
}

#[test]
fn a_message_of_ours_is_stored_as_what_stands_around_its_content() {
    let mut bob = Bob::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    let contents = contents.into_iter().take(2).map(Octets::from).collect();
    bob.channel.sds_mut().send(ONE, contents, 2).unwrap();
    bob.commit();
    assert_eq!(bob.stored("sds.content"), 2);
    while bob.channel.poll_transmit(at(0), Kinds::ALL).is_some() {}
    bob.commit();
    let stored = ["sds.content", "channel.frame", "sds.message"].map(|kind| bob.stored(kind));
    assert_eq!(stored, [2, 2, 0]);
}

#[test]
fn a_message_of_ours_goes_on_in_the_next_life_and_is_stored_no_longer_than_it_needs() {
    // It has left, or waits for that.
    for has_left in [false, true] {
        let mut bob = Bob::of(without_repair(), settings(), limits());
        let data = segments(&payload(1, 2 * SEGMENT_BYTES)).into_iter().take(2);
        let data = data.map(Octets::from).collect();
        bob.channel.sds_mut().send(ONE, data, 2).unwrap();
        bob.commit();
        let mut left = Vec::new();
        if has_left {
            left = leave(&mut bob);
            assert_eq!(left.len(), 2);
        }
        bob.restart().unwrap();
        if has_left {
            // Nobody acknowledged it.
            bob.now_ms = 1_000_000;
            bob.channel.sds_mut().handle_timeout(at(bob.now_ms));
            assert_eq!(leave(&mut bob), left);
        } else {
            assert_eq!(leave(&mut bob).len(), 2);
        }
        let stored = |bob: &Bob| {
            ["sds.content", "channel.frame", "sds.message"].map(|kind| bob.stored(kind))
        };
        bob.commit();
        assert_eq!(stored(&bob), [2, 2, 0], "{has_left}");
        for ordinal in 0..2 {
            bob.hear(Message {
                content: None,
                causal_history: vec![named(&id(ONE, ordinal), Some("bob"))],
                ..message("alice", &format!("sync {ordinal}"), b"")
            });
        }
        bob.commit();
        assert_eq!(stored(&bob), [0, 0, 0], "{has_left}");
    }
}

/// The contents that leave now, with what is around them, in their order.
fn leave(bob: &mut Bob) -> Vec<Vec<u8>> {
    let now = at(bob.now_ms);
    let mut left = Vec::new();
    while let Some(transmit) = bob.channel.poll_transmit(now, Kinds::ALL) {
        let id = transmit.transmit_id;
        bob.channel.sds_mut().handle_transmitted(id, None, now);
        if transmit.send_id.is_some() {
            left.push(transmit.payload.to_vec());
        }
    }
    left.sort();
    left
}

#[test]
fn where_nothing_is_stored_what_changed_is_forgotten() {
    let mut bob = Bob::new();
    deliver(&mut bob, ONE, 1);
    let (_, contents) = three_parts(3);
    bob.hear(message("alice", &id(OTHER, 0), &contents[0]));
    let changed = |bob: &mut Bob| {
        bob.channel.drop_changes();
        let records = bob.channel.take_changes().into_iter();
        records.map(|record| record.kind).collect::<Vec<_>>()
    };
    // SDS stores its state whenever that is another one than it stored last.
    assert_eq!(changed(&mut bob), ["sds.state"]);
    bob.channel.finish_delivery();
    assert_eq!(changed(&mut bob), [""; 0]);
}

/// Nothing remembers it but what waits for its delivery.
#[test]
fn what_was_delivered_may_come_again_whether_or_not_it_is_stored() {
    for is_stored in [false, true] {
        let config = Config {
            log_messages_max: 2,
            ..config()
        };
        let limits = Limits {
            completed_remembered_max: 1,
            ..limits()
        };
        let mut bob = Bob::of(config, settings(), limits);
        let settle = |bob: &mut Bob| match is_stored {
            true => bob.commit(),
            false => bob.channel.drop_changes(),
        };
        let single = message("alice", &id(ONE, 0), &segments(b"again")[0]);
        bob.hear(single.clone());
        bob.channel.begin_delivery().unwrap();
        settle(&mut bob);
        bob.channel.finish_delivery();
        settle(&mut bob);
        for number in 3..7 {
            let message_id = id(&format!("{number:032x}"), 0);
            bob.hear(message("carol", &message_id, &segments(b"more")[0]));
        }
        bob.hear(single);
        assert_eq!(bob.released.last().unwrap(), b"again", "{is_stored}");
    }
}

// --- which bytes a record names -------------------------------------------------------------------

/// SDS keeps no message to repair others with.
fn without_repair() -> Config {
    Config {
        enable_repair: false,
        ..config()
    }
}

/// A content with other bytes of its message.
fn forged(content: &[u8]) -> Vec<u8> {
    let mut forged = content.to_vec();
    forged[content.len() / 2] ^= 1;
    forged
}

#[test]
fn a_message_is_read_back_without_the_false_contents_that_came_of_it() {
    let real = payload(1, 2 * SEGMENT_BYTES);
    let contents = segments(&real);
    let false_one = forged(&contents[1]);
    // Parity brings back what was false, or what is real comes beside that.
    let parity = [2, 3].map(|ordinal| (ordinal as u32, &contents[ordinal]));
    let false_and_parity = [&[(1, &false_one), (0, &contents[0])][..], &parity].concat();
    let false_beside_real = vec![(1, &contents[1]), (1, &false_one), (0, &contents[0])];
    for order in [false_and_parity, false_beside_real] {
        let mut bob = Bob::new();
        for (ordinal, content) in order {
            bob.hear(message("alice", &id(ONE, ordinal), content));
        }
        assert_eq!(bob.released, [&*real]);
        assert_eq!(bob.restart(), Ok(vec![real.clone()]));
    }
}

#[test]
fn a_message_is_stored_by_name_where_what_brought_it_is_and_a_name_is_shorter() {
    let single = |bytes| (payload(1, bytes), vec![0]);
    let (named, alone) = (["channel.parts", "channel.payload"], [(1, 0), (0, 1)]);
    for ((payload, ordinals), stored) in [
        (single(512), alone[0]),
        (single(511), alone[1]),
        // All of it is made of parity.
        ((payload(1, 2 * SEGMENT_BYTES), vec![2, 3]), alone[1]),
    ] {
        let mut bob = Bob::new();
        let contents = segments(&payload);
        for ordinal in ordinals {
            let content = &contents[ordinal as usize];
            bob.hear(message("alice", &id(ONE, ordinal), content));
        }
        assert_eq!(bob.released, [&*payload]);
        bob.commit();
        assert_eq!(named.map(|kind| bob.stored(kind)), [stored.0, stored.1]);
    }
}

#[test]
fn a_partial_message_stays_stored_when_another_one_of_its_send_is_whole() {
    let mut bob = Bob::new();
    let [partial, whole] = [1, 2].map(|seed| segments(&payload(seed, 2 * SEGMENT_BYTES)));
    bob.hear(message("alice", &id(ONE, 0), &partial[0]));
    for ordinal in 0..2 {
        bob.hear(message(
            "alice",
            &id(ONE, ordinal),
            &whole[ordinal as usize],
        ));
    }
    assert_eq!(bob.released.len(), 1);
    bob.commit();
    assert!(bob.channel.has_partial());
    assert_eq!(bob.stored("channel.segment"), 1);
}

/// Each content comes in another life.
#[test]
fn a_message_becomes_whole_over_several_lives_and_waits_in_more() {
    let mut bob = Bob::of(without_repair(), settings(), limits());
    let real = payload(1, 3 * SEGMENT_BYTES);
    let contents = segments(&real);
    for (ordinal, content) in contents.iter().enumerate().take(3) {
        assert_eq!(bob.stored("channel.segment"), ordinal);
        bob.hear(message("alice", &id(ONE, ordinal as u32), content));
        let waiting = bob.restart().unwrap();
        assert_eq!(waiting.len(), usize::from(ordinal == 2));
    }
    for _ in 0..2 {
        assert_eq!(bob.restart(), Ok(vec![real.clone()]));
        assert_eq!(bob.stored("channel.parts"), 1);
    }
    bob.channel.begin_delivery().unwrap();
    bob.channel.finish_delivery();
    bob.commit();
    assert_eq!(
        (bob.stored("channel.parts"), bob.stored("sds.message")),
        (0, 0)
    );
}

#[test]
fn of_what_comes_and_is_delivered_between_two_commits_nothing_is_stored() {
    let mut bob = Bob::of(without_repair(), settings(), limits());
    deliver(&mut bob, ONE, 1);
    bob.channel.finish_delivery();
    bob.commit();
    for kind in ["sds.message", "channel.parts", "channel.segment"] {
        assert_eq!(bob.stored(kind), 0, "{kind}");
    }
}

//! Which message a content is part of, and what becomes of it.

use std::sync::Arc;

use super::tests::{
    Bob, ONE, OTHER, SEGMENT_BYTES, at, config, data_segments, follows, heard, id, limits, message,
    named, payload, segments, settings,
};
use super::*;
use crate::reassemble::{Drop, Lent};
use crate::sds::{MessageIdRule, TransmitKind, rival_name, sha256_id};
use crate::segment::{Settings, segment};
use crate::wire::sds::Message;
use crate::wire::segment::{Header, Slot, WireFormat};

fn with_wire(wire_format: WireFormat) -> Bob {
    let settings = Settings {
        wire_format,
        ..settings()
    };
    Bob::of(config(), settings, limits())
}

fn parts(settings: Settings, payload: &[u8]) -> Vec<Vec<u8>> {
    let parameters = Parameters::new(settings).unwrap();
    segment(payload, &parameters).unwrap().to_vecs()
}

/// As it is, without a time of its own.
fn hear_as_it_is(bob: &mut Bob, message: &Message) {
    observe(bob, message);
    bob.take_events();
}

fn observe(bob: &mut Bob, message: &Message) {
    let data = Octets::from(message.encode(bob.config.wire_format).unwrap());
    let arrival = Arrival {
        observed: true,
        ..heard(&data)
    };
    bob.channel.handle_message(&arrival, at(bob.now_ms));
}

/// The segments that were told, each by how it came, its place and the counts of its message.
fn seen(bob: &Bob) -> Vec<(SegmentStage, u32, Option<u32>, Option<u32>)> {
    let seen = bob.events.iter().filter_map(|event| match event {
        Event::Segment(seen) => Some((
            seen.stage,
            seen.ordinal,
            seen.data_count,
            seen.content_count,
        )),
        _ => None,
    });
    seen.collect()
}

fn hear_data(bob: &mut Bob, contents: &[Vec<u8>], ordinals: &[u32]) {
    for &ordinal in ordinals {
        bob.hear(message(
            "alice",
            &id(ONE, ordinal),
            &contents[ordinal as usize],
        ));
    }
}

// --- ephemeral messages -----------------------------------------------------------------------------

#[test]
fn an_ephemeral_message_is_one_whole_segment_or_under_draft_what_it_is() {
    let hash = crate::keccak::keccak256(b"typing");
    let whole = data_segments(hash, b"typing").remove(0);
    let falsely = data_segments(hash, b"false").remove(0);
    // What its hash is that of is one of two.
    let large = payload(1, 2 * SEGMENT_BYTES);
    let of_two = data_segments(crate::keccak::keccak256(&large[..SEGMENT_BYTES]), &large).remove(0);
    for (wire_format, content, payload, told) in [
        (WireFormat::Raw, &whole[..], Some(&b"typing"[..]), None),
        (
            WireFormat::Raw,
            &falsely,
            None,
            Some(FaultKind::SegmentInvalid),
        ),
        (
            WireFormat::Raw,
            &of_two,
            None,
            Some(FaultKind::SegmentDiscarded),
        ),
        (
            WireFormat::Raw,
            b"typing",
            None,
            Some(FaultKind::SegmentInvalid),
        ),
        (WireFormat::Draft, b"typing", Some(b"typing"), None),
        // What is no message of one segment there is none of several.
        (WireFormat::Draft, &whole, Some(&whole), None),
    ] {
        let mut bob = with_wire(wire_format);
        let came = Message {
            lamport_timestamp: None,
            ..message("carol", "typing", content)
        };
        hear_as_it_is(&mut bob, &came);
        assert_eq!(bob.released.first().map(|released| &**released), payload);
        let mut waiting = bob.channel.deliveries().waiting();
        assert!(waiting.all(|delivery| delivery.released_ms.is_none() && !delivery.redelivered));
        let (counts, _) = bob.channel.counts();
        assert_eq!(counts.segments_discarded, u64::from(told.is_some()));
        assert_eq!(told.map_or(0, |kind| bob.faults(kind)), bob.events.len());
    }
}

#[test]
fn a_delivery_tells_when_it_was_released() {
    let mut bob = Bob::new();
    bob.now_ms = 5;
    bob.hear(message("alice", &id(ONE, 0), &segments(b"one")[0]));
    let delivery = bob.channel.begin_delivery().unwrap();
    assert_eq!(
        (delivery.released_ms, delivery.redelivered),
        (Some(5), false)
    );
}

// --- parity of others -------------------------------------------------------------------------------

/// Parity that carol made of the message of alice, by its index.
fn parity_of(contents: &[Vec<u8>], index: usize) -> Message {
    let says_whole = named(&id(ONE, 9_999), Some("alice"));
    Message {
        lamport_timestamp: None,
        repair_request: vec![says_whole],
        ..message(
            "carol",
            &format!("parity {index}"),
            &contents[contents.len() / 2 + index],
        )
    }
}

#[test]
fn parity_of_others_makes_a_message_whole_that_stays_its_senders() {
    let mut bob = Bob::new();
    let real = payload(1, 3 * SEGMENT_BYTES);
    let contents = segments(&real);
    // Nothing of it is here.
    hear_as_it_is(&mut bob, &parity_of(&contents, 0));
    assert_eq!(bob.channel.counts().0, Counts::default());
    hear_data(&mut bob, &contents, &[0]);
    hear_as_it_is(&mut bob, &parity_of(&contents, 1));
    assert!(bob.released.is_empty());
    hear_as_it_is(
        &mut bob,
        &Message {
            message_id: "again".to_owned(),
            ..parity_of(&contents, 1)
        },
    );
    // One is lacking still, which anybody is asked for: the number says that one was made.
    let request = (0..10_000).find_map(|now_ms| {
        let kinds = Kinds::NONE.with(TransmitKind::Sync);
        let sync = bob.channel.poll_transmit(at(now_ms), kinds)?;
        let sync = Message::decode(&sync.payload, bob.config.wire_format).unwrap();
        sync.repair_request.into_iter().next()
    });
    let request = request.expect("it asks");
    assert_eq!(request.message_id, id(ONE, 9_999 - 2));
    assert_eq!(request.retrieval_hint, Some(vec![b'*', 1]));
    hear_as_it_is(&mut bob, &parity_of(&contents, 2));
    assert_eq!(bob.released, [&*real]);
    let delivery = bob.channel.begin_delivery().unwrap();
    assert_eq!(*delivery.sender_id, *"alice");
    let expected = Counts {
        segments_received: 3,
        segments_recovered: 2,
        segments_discarded: 1,
        messages: 1,
    };
    assert_eq!(bob.channel.counts().0, expected);
}

#[test]
fn parity_of_others_has_the_room_of_who_made_it() {
    let limits = Limits {
        unauthenticated_share: 0.0,
        ..limits()
    };
    for (proven, is_whole) in [(None, false), (Some("alice"), false), (Some("carol"), true)] {
        let mut bob = Bob::of(config(), settings(), limits);
        let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
        bob.hear_of(message("alice", &id(ONE, 0), &contents[0]), true);
        let parity = parity_of(&contents, 1);
        let data = Octets::from(parity.encode(bob.config.wire_format).unwrap());
        let arrival = Arrival {
            authenticated_sender: proven,
            ..heard(&data)
        };
        bob.channel.handle_message(&arrival, at(0));
        bob.take_events();
        assert_eq!(!bob.released.is_empty(), is_whole, "{proven:?}");
    }
}

#[test]
fn who_lacks_what_another_one_answered_with_is_not_answered_again() {
    for is_answered in [false, true] {
        let mut bob = Bob::new();
        let contents = segments(&payload(1, 3 * SEGMENT_BYTES));
        hear_data(&mut bob, &contents, &[0, 1, 2]);
        ask_as_dave(&mut bob);
        if is_answered {
            hear_as_it_is(&mut bob, &parity_of(&contents, 0));
        }
        assert_eq!(answer_to_dave(&mut bob).is_some(), !is_answered);
    }
}

/// He lacks one segment of the message of alice.
fn ask_as_dave(bob: &mut Bob) {
    let mut question = named(&id(ONE, 9_999 - 1), Some("alice"));
    question.retrieval_hint = Some(vec![b'*', 0]);
    bob.hear(Message {
        content: None,
        repair_request: vec![question],
        ..message("dave", "question", b"")
    });
}

fn answer_to_dave(bob: &mut Bob) -> Option<Transmit> {
    bob.now_ms = 1_000_000;
    bob.channel.sds_mut().handle_timeout(at(bob.now_ms));
    bob.take_events();
    let kinds = Kinds::NONE.with(TransmitKind::Repair);
    bob.channel.poll_transmit(at(bob.now_ms), kinds)
}

#[test]
fn parity_is_made_of_what_is_whole_however_little_is_left_to_those_who_prove_nothing() {
    let limits = Limits {
        unauthenticated_share: 0.0,
        ..limits()
    };
    let mut bob = Bob::of(config(), settings(), limits);
    let contents = segments(&payload(1, 3 * SEGMENT_BYTES));
    for (ordinal, content) in contents.iter().enumerate().take(3) {
        bob.hear_of(message("alice", &id(ONE, ordinal as u32), content), true);
    }
    ask_as_dave(&mut bob);
    assert!(answer_to_dave(&mut bob).is_some());
}

// --- of which message -------------------------------------------------------------------------------

/// Where ids name no send, a message is known by its id, or by its hash where it has several contents.
#[test]
fn a_message_without_a_send_is_called_by_its_id_and_comes_as_often_as_it_is_sent() {
    let mut bob = Bob::new();
    for name in ["once", "twice"] {
        assert!(bob.hear(message("alice", name, &segments(b"again")[0])));
        let delivery = bob.channel.begin_delivery().expect("it is released");
        assert_eq!(delivery.send_id.as_deref(), Some(name));
        bob.channel.finish_delivery();
    }
}

#[test]
fn a_content_without_a_send_of_a_message_that_is_done_begins_no_other_one() {
    for restarts in [false, true] {
        let mut bob = Bob::new();
        let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
        for (name, content) in ["first", "second"].iter().zip(&contents) {
            bob.hear(message("alice", name, content));
        }
        assert_eq!(bob.released.len(), 1);
        if restarts {
            bob.restart().unwrap();
        }
        // It is not to come again.
        assert!(bob.hear(message("alice", "third", &contents[2])));
        assert!(!bob.channel.has_partial(), "{restarts}");
        assert_eq!(bob.stat("incoming_sends"), 0);
    }
}

#[test]
fn what_follows_a_content_waits_where_that_may_come_again() {
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    let no_room = Limits {
        unauthenticated_share: 0.0,
        ..limits()
    };
    for (limits, content, waiting) in [(limits(), &b"of no use"[..], 0), (no_room, &contents[0], 1)]
    {
        let mut bob = Bob::of(config(), settings(), limits);
        let after = message("carol", "after", &segments(b"after")[0]);
        bob.hear(follows(after, &id(ONE, 0)));
        assert_eq!(bob.channel.waiting().0, 1);
        bob.hear(message("alice", &id(ONE, 0), content));
        assert_eq!(bob.channel.waiting().0, waiting);
    }
}

#[test]
fn a_message_under_the_id_of_a_content_of_a_larger_one_is_one_of_its_own() {
    // Nothing of the larger one is here, or the first of its contents.
    for begun in [false, true] {
        let mut bob = Bob::new();
        let real = payload(1, 3 * SEGMENT_BYTES);
        let contents = segments(&real);
        if begun {
            hear_data(&mut bob, &contents, &[0]);
        }
        bob.hear(message("alice", &id(ONE, 1), &segments(b"apart")[0]));
        assert_eq!(bob.released, [b"apart"]);
        assert!(!bob.holds(&id(ONE, 1)));
        hear_data(&mut bob, &contents, &[0, 1, 2]);
        assert_eq!(bob.released, [b"apart", &*real]);
    }
}

#[test]
fn a_message_under_the_id_that_a_content_of_a_larger_one_has_is_taken_in_once() {
    let mut bob = Bob::new();
    let real = payload(1, 3 * SEGMENT_BYTES);
    let contents = segments(&real);
    hear_data(&mut bob, &contents, &[0]);
    for _ in 0..2 {
        assert!(bob.hear(message("alice", &id(ONE, 0), &segments(b"apart")[0])));
    }
    assert_eq!(bob.released, [b"apart"]);
    let (counts, _) = bob.channel.counts();
    assert_eq!(
        (counts.segments_received, counts.segments_discarded),
        (2, 0)
    );
    // It is called by its content.
    let delivery = bob.channel.begin_delivery().unwrap();
    let name = rival_name(&id(ONE, 0), "alice", &segments(b"apart")[0]);
    assert_eq!(delivery.send_id, Some(name));
    hear_data(&mut bob, &contents, &[1, 2]);
    assert!(bob.holds(&id(ONE, 2)));
    assert_eq!(bob.stat("incoming_sends"), 0);
}

/// Messages that are kept for repair, of a message that was given up, have these ids.
#[test]
fn a_message_of_one_content_is_taken_in_once_beside_what_is_kept_under_its_id() {
    let mut bob = Bob::new();
    let former = segments(&payload(1, 3 * SEGMENT_BYTES));
    hear_data(&mut bob, &former, &[0, 1]);
    bob.wait_for_expiry();
    for _ in 0..2 {
        assert!(bob.hear(message("alice", &id(ONE, 0), &segments(b"single")[0])));
    }
    assert_eq!(bob.released, [b"single"]);
    assert_eq!(bob.stat("rivals"), 1);
}

#[test]
fn a_message_of_one_segment_and_parity_is_released_once_whichever_comes_first() {
    for message_id in [MessageIdRule::Send, MessageIdRule::ContentSha256] {
        for order in [[0, 1], [1, 0]] {
            let settings = Settings {
                parity_for_single_segment: true,
                ..settings()
            };
            let config = Config {
                message_id,
                ..config()
            };
            let mut bob = Bob::of(config, settings, limits());
            let contents = parts(settings, b"single");
            assert_eq!(contents.len(), 2);
            for ordinal in order {
                bob.hear(message(
                    "alice",
                    &id(ONE, ordinal),
                    &contents[ordinal as usize],
                ));
                assert!(bob.holds(&id(ONE, ordinal)));
            }
            assert_eq!(bob.released, [b"single"]);
        }
    }
}

#[test]
fn what_comes_of_a_message_that_waits_is_received() {
    let mut bob = Bob::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    for (ordinal, content) in contents.iter().enumerate().take(3) {
        bob.hear(follows(
            message("alice", &id(ONE, ordinal as u32), content),
            &id(OTHER, 0),
        ));
    }
    let (counts, _) = bob.channel.counts();
    assert_eq!(
        (counts.segments_received, counts.segments_discarded),
        (3, 0)
    );
}

#[test]
fn the_place_of_draft_parity_is_that_which_its_id_names() {
    let mut bob = with_wire(WireFormat::Draft);
    let draft = *bob.segmentation.parameters.settings();
    let contents = parts(draft, &payload(1, 2 * SEGMENT_BYTES));
    hear_as_it_is(&mut bob, &message("alice", &id(ONE, 3), &contents[3]));
    assert_eq!(seen(&bob), [(SegmentStage::Received, 3, None, None)]);
    bob.events.clear();
    hear_as_it_is(&mut bob, &message("alice", "plain", &contents[3]));
    assert_eq!(seen(&bob), [(SegmentStage::Received, 0, None, None)]);
}

#[test]
fn each_segment_is_told_in_its_turn_to_who_observes() {
    let contents = segments(&payload(1, 3 * SEGMENT_BYTES));
    let mut bob = Bob::new();
    hear_data(&mut bob, &contents, &[0, 5, 3]);
    assert_eq!(seen(&bob), []);
    let mut bob = Bob::new();
    for ordinal in [0, 5, 3] {
        let came = message("alice", &id(ONE, ordinal), &contents[ordinal as usize]);
        observe(&mut bob, &came);
    }
    bob.take_events();
    let (data, all) = (Some(3), Some(6));
    let expected = [
        (SegmentStage::Received, 0, data, all),
        (SegmentStage::Received, 5, data, all),
        (SegmentStage::Received, 3, data, all),
        (SegmentStage::Recovered, 1, data, all),
        (SegmentStage::Recovered, 2, data, all),
    ];
    assert_eq!(seen(&bob), expected);
    let (counts, _) = bob.channel.counts();
    let expected = Counts {
        segments_received: 3,
        segments_recovered: 2,
        segments_discarded: 0,
        messages: 1,
    };
    assert_eq!(counts, expected);
}

#[test]
fn a_payload_that_draft_sends_as_it_is_is_a_message_of_one_content() {
    let real = payload(1, SEGMENT_BYTES - 40);
    let mut bob = with_wire(WireFormat::Draft);
    hear_as_it_is(&mut bob, &message("alice", &id(ONE, 0), &real));
    assert_eq!(seen(&bob), [(SegmentStage::Received, 0, Some(1), Some(1))]);
    assert!(bob.holds(&id(ONE, 0)));
    assert_eq!(bob.released, [&*real]);
    assert_eq!(bob.channel.counts().0.messages, 1);
    // Its bytes are those of the message that brought it.
    bob.commit();
    assert_eq!(
        (bob.stored("channel.parts"), bob.stored("channel.payload")),
        (1, 0)
    );
    assert_eq!(bob.restart().unwrap(), [&*real]);
    assert!(bob.hear(message("alice", &id(OTHER, 0), b"another")));
    assert_eq!(bob.released.last().unwrap(), b"another");
}

#[test]
fn a_payload_of_draft_under_the_id_of_a_content_of_a_larger_one_is_called_by_its_content() {
    let mut bob = with_wire(WireFormat::Draft);
    let draft = *bob.segmentation.parameters.settings();
    let real = payload(1, 2 * SEGMENT_BYTES);
    let contents = parts(draft, &real);
    hear_data(&mut bob, &contents, &[0]);
    for _ in 0..2 {
        assert!(bob.hear(message("alice", &id(ONE, 0), b"apart")));
    }
    hear_data(&mut bob, &contents, &[1]);
    assert_eq!(bob.released, [b"apart", &*real]);
    let delivery = bob.channel.begin_delivery().unwrap();
    let name = rival_name(&id(ONE, 0), "alice", b"apart");
    assert_eq!(delivery.send_id, Some(name));
}

#[test]
fn a_content_of_no_use_is_told_each_time_and_not_held() {
    let contents = segments(&payload(1, 3 * SEGMENT_BYTES));
    let few = Settings {
        max_total_segments: 5,
        ..settings()
    };
    let small = Limits {
        buffered_bytes_per_sender_max: SEGMENT_BYTES as u64 / 2,
        ..limits()
    };
    for (settings, limits, content, kind) in [
        (
            settings(),
            limits(),
            &b"junk"[..],
            FaultKind::SegmentInvalid,
        ),
        (few, limits(), &contents[0], FaultKind::SegmentInvalid),
        (settings(), small, &contents[0], FaultKind::SegmentDiscarded),
    ] {
        let mut bob = Bob::of(config(), settings, limits);
        for times in 1..=2 {
            assert!(bob.hear(message("alice", &id(ONE, 0), content)));
            assert_eq!(bob.faults(kind), times);
            let (counts, _) = bob.channel.counts();
            assert_eq!(counts.segments_discarded, times as u64);
            assert!(!bob.holds(&id(ONE, 0)), "{kind:?}");
        }
        assert_eq!(bob.events.len(), 2, "{:?}", bob.events);
    }
}

#[test]
fn a_segment_for_which_there_was_no_room_comes_again() {
    let limits = Limits {
        unauthenticated_share: 0.0,
        ..limits()
    };
    let mut bob = Bob::of(config(), settings(), limits);
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    let came = message("alice", &id(ONE, 0), &contents[0]);
    for times in 1..=2 {
        assert!(!bob.hear(came.clone()));
        let (counts, _) = bob.channel.counts();
        assert_eq!(counts.segments_discarded, times);
        assert!(!bob.holds(&id(ONE, 0)));
        assert_eq!(bob.stat("given_up_sends"), 0);
    }
    // Of a sender who is proven there is more.
    assert!(bob.hear_of(came, true));
    assert!(bob.holds(&id(ONE, 0)));
}

#[test]
fn an_identity_is_proven_where_it_is_that_of_the_sender() {
    for (proven, is_kept) in [
        (None, false),
        (Some("mallory"), false),
        (Some("alice"), true),
    ] {
        let limits = Limits {
            unauthenticated_share: 0.0,
            ..limits()
        };
        let mut bob = Bob::of(config(), settings(), limits);
        let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
        let came = message("alice", &id(ONE, 0), &contents[0]);
        let data = Octets::from(came.encode(bob.config.wire_format).unwrap());
        let arrival = Arrival {
            authenticated_sender: proven,
            ..heard(&data)
        };
        assert_eq!(
            bob.channel.handle_message(&arrival, at(0)),
            is_kept,
            "{proven:?}"
        );
    }
}

// --- what is said of it -----------------------------------------------------------------------------

#[test]
fn what_may_be_false_or_may_lack_more_than_it_says_is_withheld() {
    let real = payload(1, 2 * SEGMENT_BYTES);
    let draft = Settings {
        wire_format: WireFormat::Draft,
        ..settings()
    };
    let falsely = data_segments([9; 32], &real);
    for (wire_format, ordinal, contents, withheld) in [
        (WireFormat::Raw, 0, &falsely, 0),
        (WireFormat::Raw, 1, &falsely, 1),
        (WireFormat::Draft, 0, &parts(draft, &real), 0),
        (WireFormat::Draft, 3, &parts(draft, &real), 1),
    ] {
        let mut bob = with_wire(wire_format);
        if wire_format == WireFormat::Raw {
            hear_data(&mut bob, contents, &(0..=ordinal).collect::<Vec<_>>());
        } else {
            hear_data(&mut bob, contents, &[ordinal]);
        }
        assert_eq!(
            bob.stat("given_up_sends"),
            withheld,
            "{wire_format:?} {ordinal}"
        );
        let is_false = wire_format == WireFormat::Raw && ordinal == 1;
        assert_eq!(bob.faults(FaultKind::HashMismatch), usize::from(is_false));
    }
}

#[test]
fn false_segments_of_a_message_that_is_whole_all_the_same_are_told_by_their_number() {
    let mut bob = Bob::new();
    let real = payload(1, 2 * SEGMENT_BYTES);
    let contents = segments(&real);
    let hash = crate::keccak::keccak256(&real);
    let forged = Header {
        entire_message_hash: hash,
        slot: Slot::Data(1),
        data_segment_count: Some(2),
        parity_segment_count: Some(2),
        payload_length: None,
    };
    let forged = forged.encode(WireFormat::Raw, &payload(2, SEGMENT_BYTES));
    bob.hear(message("alice", &id(ONE, 1), &forged));
    hear_data(&mut bob, &contents, &[0]);
    assert_eq!(bob.faults(FaultKind::FalseSegments), 0);
    hear_data(&mut bob, &contents, &[2, 3]);
    assert_eq!(bob.released, [&*real]);
    let told = bob.events.iter().filter_map(|event| match event {
        Event::Fault(fault) if fault.kind == FaultKind::FalseSegments => Some(&*fault.detail),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), ["1"]);
    // Of one without any nothing is told.
    let other = segments(&payload(3, 2 * SEGMENT_BYTES));
    for ordinal in [0, 1] {
        let content = &other[ordinal as usize];
        bob.hear(message("alice", &id(OTHER, ordinal), content));
    }
    assert_eq!(bob.faults(FaultKind::FalseSegments), 1);
}

#[test]
fn what_happened_is_told_in_its_order_however_seldom_it_is_asked_for() {
    let small = Limits {
        work_budget: 1,
        sets_per_sender_max: 2,
        ..limits()
    };
    let few = Settings {
        max_total_segments: 5,
        ..settings()
    };
    let real = payload(1, 2 * SEGMENT_BYTES);
    let hash = crate::keccak::keccak256(&real);
    let falsely = [2, 3].map(|seed| data_segments(hash, &payload(seed, 2 * SEGMENT_BYTES)));
    let falsely = falsely.iter().flatten().take(3);
    let falsely = falsely
        .zip(0..)
        .map(|(content, at)| (id(ONE, at), content.clone()));
    let large = segments(&payload(4, 3 * SEGMENT_BYTES)).remove(0);
    let single = data_segments([9; 32], b"false").remove(0);
    let partial = (5..8).map(|seed| {
        let content = segments(&payload(seed, 2 * SEGMENT_BYTES)).remove(0);
        (format!("partial {seed}"), content)
    });
    let came: Vec<_> = [("junk".to_owned(), b"junk".to_vec())]
        .into_iter()
        .chain(falsely)
        .chain([("large".to_owned(), large), ("single".to_owned(), single)])
        .chain(partial)
        .chain([("more junk".to_owned(), b"junk".to_vec())])
        .collect();
    let told = |is_asked_each_time: bool| {
        let mut bob = Bob::of(config(), few, small);
        for (name, content) in &came {
            let came = Message {
                lamport_timestamp: Some(at(0).epoch_ms as u64),
                ..message("alice", name, content)
            };
            let data = Octets::from(came.encode(bob.config.wire_format).unwrap());
            bob.channel.handle_message(&heard(&data), at(0));
            if is_asked_each_time {
                bob.take_events();
            }
        }
        bob.take_events();
        bob.events
    };
    assert_eq!(told(false), told(true));
}

#[test]
fn what_parity_brought_back_is_known_by_its_content_where_ids_are_made_of_contents() {
    let config = Config {
        message_id: MessageIdRule::ContentSha256,
        ..config()
    };
    for wire_format in [WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243] {
        let settings = Settings {
            wire_format,
            ..settings()
        };
        let contents = parts(settings, &payload(1, 2 * SEGMENT_BYTES + 100));
        for (is_named_so, order) in [(true, [0, 2, 3]), (true, [3, 1, 2]), (false, [0, 2, 3])] {
            let mut bob = Bob::of(config.clone(), settings, limits());
            for ordinal in order {
                let content = &contents[ordinal];
                let name = match is_named_so {
                    true => sha256_id(content).to_string(),
                    false => format!("content {ordinal}"),
                };
                bob.hear(message("alice", &name, content));
            }
            assert_eq!(bob.released.len(), 1);
            let known = (0..3).filter(|ordinal| bob.holds(&sha256_id(&contents[*ordinal])));
            assert_eq!(
                known.count(),
                if is_named_so { 3 } else { 0 },
                "{wire_format:?} {order:?}"
            );
        }
    }
}

// --- what is kept -----------------------------------------------------------------------------------

#[test]
fn a_message_is_kept_for_a_content_that_fills_most_of_it() {
    const BYTES: usize = 64_000;
    for (filter_bytes, is_kept) in [(0, true), (BYTES / 2, false)] {
        let config = Config {
            enable_repair: false,
            ..config()
        };
        let settings = Settings {
            segment_size_bytes: BYTES,
            ..settings()
        };
        let mut bob = Bob::of(config, settings, limits());
        let content = &parts(settings, &payload(1, 2 * BYTES))[0];
        let came = Message {
            lamport_timestamp: Some(at(0).epoch_ms as u64),
            bloom_filter: Some(vec![0; filter_bytes]),
            ..message("alice", &id(ONE, 0), content)
        };
        let lent: Lent = Arc::new(came.encode(bob.config.wire_format).unwrap());
        let data = Octets::Lent(Arc::clone(&lent));
        let arrival = heard(&data);
        assert!(bob.channel.handle_message(&arrival, at(0)));
        bob.take_events();
        bob.commit();
        drop(data);
        assert_eq!(Arc::strong_count(&lent) > 1, is_kept, "{filter_bytes}");
    }
}

// --- what goes to make room -------------------------------------------------------------------------

/// Bob, who has room for this many bytes and sets of alice, and has the last segment of a message of hers.
fn with_what_may_go(sets_max: u64, bytes_max: u64, work_budget: u64) -> Bob {
    let limits = Limits {
        sets_per_sender_max: sets_max,
        buffered_bytes_per_sender_max: bytes_max,
        work_budget,
        ..limits()
    };
    let mut bob = Bob::of(config(), settings(), limits);
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES + 300));
    hear_data(&mut bob, &contents, &[2]);
    bob
}

fn assert_it_went(bob: &Bob) {
    assert!(!bob.holds(&id(ONE, 2)));
    let gone = bob.events.iter().any(|event| {
        matches!(event, Event::Fault(fault)
            if fault.kind == FaultKind::MessageDropped && fault.detail == Drop::Evicted.name())
    });
    assert!(gone, "{:?}", bob.events);
}

#[test]
fn what_went_for_a_segment_whose_counts_were_not_believed_is_given_up_at_once() {
    let mut bob = with_what_may_go(2, 1 << 20, 32);
    let real = payload(2, 2 * SEGMENT_BYTES);
    bob.hear(message("alice", &id(OTHER, 0), &segments(&real)[0]));
    let other_counts = &data_segments(crate::keccak::keccak256(&real), &real)[1];
    bob.hear(message("alice", &id(OTHER, 1), other_counts));
    assert_eq!(bob.faults(FaultKind::SegmentDiscarded), 1);
    assert_it_went(&bob);
}

#[test]
fn what_went_for_a_segment_that_has_no_room_all_the_same_is_given_up_at_once() {
    let mut bob = with_what_may_go(100, 3 * SEGMENT_BYTES as u64 - 100, 32);
    let contents = segments(&payload(2, 4 * SEGMENT_BYTES));
    for ordinal in 0..2 {
        bob.hear(message(
            "alice",
            &id(OTHER, ordinal),
            &contents[ordinal as usize],
        ));
    }
    assert!(bob.holds(&id(ONE, 2)));
    assert!(!bob.hear(message("alice", &id(OTHER, 2), &contents[2])));
    assert_it_went(&bob);
}

#[test]
fn what_went_for_a_segment_with_which_its_message_is_false_is_given_up_at_once() {
    let mut bob = with_what_may_go(100, 3 * SEGMENT_BYTES as u64 + 250, 1);
    let hash = crate::keccak::keccak256(&payload(2, 2 * SEGMENT_BYTES));
    let forged = [3, 4].map(|seed| data_segments(hash, &payload(seed, 2 * SEGMENT_BYTES)));
    for (ordinal, content) in forged.iter().flatten().enumerate().take(3) {
        assert!(bob.holds(&id(ONE, 2)));
        bob.hear(message("alice", &id(OTHER, ordinal as u32), content));
    }
    assert_eq!(bob.faults(FaultKind::MessageDropped), 2);
    assert_it_went(&bob);
}

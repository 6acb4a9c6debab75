//! Which event follows what, in which order, once each, and over a restart.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::sds::{DeliveredWhen, Name};

fn none_yet(delivered_when: DeliveredWhen) -> OwnSends {
    let sends = OwnSends::new(delivered_when);
    sends.listened().set(SendEventKind::ALL);
    sends
}

fn began(delivered_when: DeliveredWhen, data_count: u32, content_count: u32) -> OwnSends {
    let mut sends = none_yet(delivered_when);
    register(&mut sends, "s", "r", data_count, content_count);
    sends
}

fn register(
    sends: &mut OwnSends,
    send_id: &str,
    request_id: &str,
    data_count: u32,
    content_count: u32,
) {
    let send = OwnSend::new(
        request_id.into(),
        "m".into(),
        data_count,
        content_count,
        "raw leopard",
    );
    sends.register(send_id, send);
}

fn usual() -> OwnSends {
    began(DeliveredWhen::Any, 3, 4)
}

fn propagate(sends: &mut OwnSends, count: u32) {
    for ordinal in 0..count {
        sends.on_dispatched("s", ordinal);
        sends.on_propagated("s", ordinal);
    }
}

fn bob() -> Arc<str> {
    "bob".into()
}

/// Events in short: what happened, to whom, and to which chunks.
fn told(sends: &mut OwnSends) -> Vec<String> {
    sends.audit();
    sends.poll_events().into_iter().map(in_short).collect()
}

fn in_short(event: SendEvent) -> String {
    let chunks = |what: &str, progress: ChunkProgress| {
        assert_eq!(&*progress.message_id, "m");
        let ChunkProgress { chunks, total, .. } = progress;
        format!("{}: {what} {chunks:?} of {total}", progress.request_id)
    };
    let message = |what: &str, ids: RequestIds| {
        assert_eq!((&*ids.message_id, ids.send_id.is_empty()), ("m", false));
        format!("{}: {what}", ids.request_id)
    };
    match event {
        SendEvent::ChunkSending(progress) => chunks("sending", progress),
        SendEvent::ChunkSent(progress) => chunks("chunks sent", progress),
        SendEvent::ChunkPossiblyAcknowledged(progress) => chunks("possibly", progress),
        SendEvent::ChunkAcknowledged { progress, by } => {
            chunks(&format!("acknowledged by {by}"), progress)
        }
        SendEvent::ChunkError { progress, error } => {
            chunks(&format!("chunks failed ({error})"), progress)
        }
        SendEvent::MessageSent(ids) => message("sent", ids),
        SendEvent::MessageDelivered { ids, to } => {
            message(&format!("delivered to {}", to.join(" ")), ids)
        }
        SendEvent::MessageSendError { ids, stage, error } => {
            message(&format!("failed at {} ({error})", stage.name()), ids)
        }
        SendEvent::EphemeralDropped { .. } => panic!("a send is no ephemeral message"),
    }
}

/// Those that begin so.
fn of(sends: &mut OwnSends, start: &str) -> Vec<String> {
    let mut told = told(sends);
    told.retain(|told| told.starts_with(start));
    told
}

/// As a later life finds it.
fn resumed(sends: &mut OwnSends) -> OwnSends {
    let mut resumed = none_yet(sends.delivered_when().clone());
    let records: Vec<_> = sends.poll_persist().collect();
    for (send_id, record) in records {
        if let Some(record) = record {
            resumed
                .restore(send_id, &record)
                .expect("it was stored just now");
        }
    }
    resumed.audit();
    resumed
}

#[test]
fn chunk_events_are_cumulative_and_name_data_segments_only() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    let told = told(&mut sends);
    let expected = [
        "r: sending [0] of 3",
        "r: chunks sent [0] of 3",
        "r: sending [0, 1] of 3",
        "r: chunks sent [0, 1] of 3",
        "r: sending [0, 1, 2] of 3",
        "r: chunks sent [0, 1, 2] of 3",
        "r: sent",
    ];
    assert_eq!(told, expected);
}

#[test]
fn chunk_events_leave_out_parity_that_went_first() {
    let mut sends = usual();
    sends.on_propagated("s", 3);
    sends.on_propagated("s", 1);
    assert_eq!(told(&mut sends), ["r: chunks sent [1] of 3"]);
}

#[test]
fn acknowledged_progress_follows_the_specified_example() {
    let mut sends = began(DeliveredWhen::Any, 5, 5);
    for ordinal in [0, 1, 3, 2, 4] {
        sends.on_acknowledged("s", ordinal, &bob());
    }
    let expected = [
        "r: acknowledged by bob [0] of 5",
        "r: acknowledged by bob [0, 1] of 5",
        "r: acknowledged by bob [0, 1, 3] of 5",
        "r: acknowledged by bob [0, 1, 2, 3] of 5",
        "r: acknowledged by bob [0, 1, 2, 3, 4] of 5",
    ];
    assert_eq!(of(&mut sends, "r: acknowledged"), expected);
}

#[test]
fn a_possible_acknowledgement_never_follows_the_final_one() {
    let mut sends = began(DeliveredWhen::Any, 2, 3);
    sends.on_possibly_acknowledged("s", 0);
    sends.on_acknowledged("s", 0, &bob());
    sends.on_possibly_acknowledged("s", 0);
    sends.on_possibly_acknowledged("s", 2);
    let expected = ["r: possibly [0] of 2", "r: acknowledged by bob [0] of 2"];
    assert_eq!(told(&mut sends), expected);
}

#[test]
fn sent_needs_parity_too_and_comes_once() {
    let mut sends = usual();
    propagate(&mut sends, 3);
    assert_eq!(of(&mut sends, "r: sent"), [""; 0]);
    sends.on_propagated("s", 3);
    sends.on_propagated("s", 3);
    assert_eq!(told(&mut sends), ["r: sent"]);
}

#[test]
fn parity_that_was_made_later_is_of_no_stage() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    told(&mut sends);
    let before = sends.get("s").cloned();
    sends.on_dispatched("s", 4);
    sends.on_propagated("s", 4);
    sends.on_acknowledged("s", 4, &bob());
    sends.on_left_out("s", 4);
    sends.on_stored("s", 4);
    sends.on_possibly_acknowledged("s", 4);
    assert_eq!(
        (told(&mut sends).len(), sends.get("s").cloned()),
        (0, before)
    );
}

#[test]
fn delivered_waits_for_sent() {
    let mut sends = usual();
    propagate(&mut sends, 3);
    sends.on_reconstructible("s", &bob());
    assert_eq!(of(&mut sends, "r: deliv"), [""; 0]);
    sends.on_propagated("s", 3);
    assert_eq!(told(&mut sends), ["r: sent", "r: delivered to bob"]);
}

#[test]
fn delivered_when_counts_and_names_participants() {
    let named = BTreeSet::from([bob(), "carol".into()]);
    for (when, last) in [
        (DeliveredWhen::Count(2), "dave"),
        (DeliveredWhen::Named(named), "carol"),
    ] {
        let mut sends = began(when, 3, 4);
        propagate(&mut sends, 4);
        sends.on_reconstructible("s", &bob());
        sends.on_reconstructible("s", &bob());
        assert_eq!(of(&mut sends, "r: deliv"), [""; 0]);
        assert_eq!((sends.pending().count(), sends.pending_count()), (1, 1));
        sends.on_reconstructible("s", &last.into());
        assert_eq!(told(&mut sends), [format!("r: delivered to bob {last}")]);
        assert_eq!((sends.pending().count(), sends.pending_count()), (0, 0));
    }
}

#[test]
fn what_a_participant_holds_was_propagated() {
    let mut sends = usual();
    propagate(&mut sends, 3);
    told(&mut sends);
    sends.on_acknowledged("s", 3, &bob());
    assert_eq!(told(&mut sends), ["r: sent"]);
}

#[test]
fn who_can_reconstruct_holds_every_chunk() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    sends.on_acknowledged("s", 1, &bob());
    told(&mut sends);
    sends.on_reconstructible("s", &bob());
    sends.on_reconstructible("s", &"carol".into());
    let expected = [
        "r: acknowledged by bob [0, 1, 2] of 3",
        "r: delivered to bob",
    ];
    assert_eq!(told(&mut sends), expected);
}

#[test]
fn giving_up_names_the_stage_and_a_late_acknowledgement_still_delivers() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    told(&mut sends);
    sends.on_given_up("s", &[0, 1, 4]);
    sends.on_given_up("s", &[0, 1]);
    let error = "2 of 4 segments were not acknowledged after the last retransmission";
    assert_eq!(
        told(&mut sends),
        [format!("r: failed at delivery ({error})")]
    );
    assert_eq!(sends.pending_count(), 0);
    sends.on_reconstructible("s", &bob());
    assert_eq!(of(&mut sends, "r: deliv"), ["r: delivered to bob"]);
}

#[test]
fn giving_up_what_somebody_has_and_others_lack_counts_no_segments() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    told(&mut sends);
    sends.on_given_up("s", &[4]);
    let error = "not all who are to have the message acknowledged it after the last retransmission";
    assert_eq!(
        told(&mut sends),
        [format!("r: failed at delivery ({error})")]
    );
}

#[test]
fn giving_up_says_that_a_store_has_the_message() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    for ordinal in 0..3 {
        sends.on_stored("s", ordinal);
    }
    assert!(!sends.get("s").is_some_and(OwnSend::is_stored));
    let mut partly = resumed(&mut sends);
    told(&mut partly);
    partly.on_given_up("s", &[0]);
    assert!(told(&mut partly)[0].ends_with("retransmission)"));
    sends.on_left_out("s", 3);
    assert!(sends.get("s").is_some_and(OwnSend::is_stored));
    let in_store = sends.in_store().into_iter().map(|(_, ordinal)| ordinal);
    assert_eq!(in_store.collect::<Vec<_>>(), [0, 1, 2]);
    told(&mut sends);
    sends.on_given_up("s", &[0]);
    assert!(told(&mut sends)[0].ends_with("; a store has the message)"));
    assert_eq!(sends.in_store(), []);
}

#[test]
fn giving_up_before_everything_left_is_a_dispatch_error() {
    let mut sends = usual();
    propagate(&mut sends, 2);
    told(&mut sends);
    sends.on_given_up("s", &[0, 1, 2, 3]);
    let error = "2 of 4 segments could not be handed to the network";
    assert_eq!(
        told(&mut sends),
        [format!("r: failed at dispatch ({error})")]
    );
}

#[test]
fn what_a_store_has_of_parity_is_in_the_store_too() {
    let mut sends = usual();
    sends.on_stored("s", 3);
    assert_eq!(sends.in_store(), [("s".into(), 3)]);
}

#[test]
fn parity_that_can_never_be_sent_counts_among_what_could_not_be_handed_over() {
    let mut sends = usual();
    propagate(&mut sends, 2);
    sends.on_left_out("s", 3);
    told(&mut sends);
    sends.on_given_up("s", &[0, 1, 2]);
    let error = "2 of 4 segments could not be handed to the network";
    assert_eq!(
        told(&mut sends),
        [format!("r: failed at dispatch ({error})")]
    );
}

#[test]
fn a_message_of_which_only_parity_was_not_taken_fails_without_a_failed_chunk() {
    let mut sends = usual();
    propagate(&mut sends, 3);
    told(&mut sends);
    sends.on_undispatched("s", "busy");
    assert_eq!(told(&mut sends), ["r: failed at dispatch (busy)"]);
}

#[test]
fn a_message_is_sent_once_the_last_parity_that_it_lacks_can_never_be() {
    let mut sends = usual();
    propagate(&mut sends, 3);
    told(&mut sends);
    sends.on_left_out("s", 3);
    assert_eq!(told(&mut sends), ["r: sent"]);
}

#[test]
fn an_irrecoverable_segment_fails_the_message_once() {
    let mut sends = usual();
    sends.on_irrecoverable("s", 1, "no proof");
    sends.on_irrecoverable("s", 2, "no proof");
    let expected = [
        "r: chunks failed (no proof) [1] of 3",
        "r: failed at dispatch (no proof)",
    ];
    assert_eq!(told(&mut sends), expected);
    let mut sends = usual();
    propagate(&mut sends, 4);
    told(&mut sends);
    sends.on_irrecoverable("s", 1, "no proof");
    let expected = [
        "r: chunks failed (no proof) [1] of 3",
        "r: failed at delivery (no proof)",
    ];
    assert_eq!(told(&mut sends), expected);
    sends.on_undispatched("s", "busy");
    sends.on_irrecoverable("other", 0, "no proof");
    assert_eq!(told(&mut sends), [""; 0]);
}

#[test]
fn what_the_network_did_not_take_is_named_when_a_message_is_given_up() {
    let mut sends = usual();
    propagate(&mut sends, 1);
    told(&mut sends);
    sends.on_undispatched("s", "busy");
    let expected = [
        "r: chunks failed (busy) [1, 2] of 3",
        "r: failed at dispatch (busy)",
    ];
    assert_eq!(told(&mut sends), expected);
    let mut sends = usual();
    sends.on_undispatched("s", "busy");
    let all = ["r: chunks failed (busy) [0, 1, 2] of 3"];
    assert_eq!(of(&mut sends, "r: chunks"), all);
}

#[test]
fn a_message_is_sent_without_the_parity_that_can_never_be_and_a_restart_knows_it() {
    let mut sends = began(DeliveredWhen::Any, 3, 5);
    sends.on_left_out("s", 3);
    assert_eq!(sends.unsent(), [("s".into(), vec![0, 1, 2, 4])]);
    propagate(&mut sends, 3);
    assert_eq!(of(&mut sends, "r: sent"), [""; 0]);
    assert_eq!(sends.unsent(), [("s".into(), vec![4])]);
    let mut later = resumed(&mut sends);
    assert_eq!(later.unsent(), [("s".into(), vec![4])]);
    later.on_propagated("s", 4);
    assert_eq!(told(&mut later), ["r: sent"]);
    assert_eq!(later.unsent(), []);
}

#[test]
fn a_restart_keeps_progress_and_repeats_what_was_not_announced() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    sends.on_reconstructible("s", &bob());
    assert_eq!(of(&mut sends, "r: ").last().unwrap(), "r: delivered to bob");
    assert!(sends.is_unannounced("s", OutcomeKind::Sent, "r"));
    sends.on_announced("s", OutcomeKind::Sent, "r");
    assert!(!sends.is_unannounced("s", OutcomeKind::Sent, "r"));
    let kept = sends.get("s").cloned();
    let mut later = resumed(&mut sends);
    assert_eq!(told(&mut later), ["r: delivered to bob"]);
    assert_eq!(later.get("s").cloned(), kept);
    assert_eq!(
        (later.pending_count(), later.send_id_of("r")),
        (0, Some(&"s".into()))
    );
    // Nothing changed since.
    assert_eq!(later.poll_persist().count(), 0);
}

#[test]
fn a_restart_counts_no_unanswered_segment_of_what_was_sent() {
    let mut sends = usual();
    propagate(&mut sends, 4);
    let kept = sends.get("s").cloned();
    let later = resumed(&mut sends);
    assert_eq!(later.get("s").cloned(), kept);
    assert_eq!((later.unsent(), later.pending_count()), (vec![], 1));
}

/// One of two segments is on its way, and the request of another one shares the send.
fn underway() -> OwnSends {
    let mut sends = began(DeliveredWhen::Count(2), 2, 3);
    sends.attach("s", "r2");
    sends.on_unanswered("s");
    sends
}

#[test]
fn whatever_changes_of_a_send_is_stored() {
    type Change = fn(&mut OwnSends);
    let changes: [Change; 13] = [
        |sends| sends.attach("s", "r3"),
        |sends| sends.withdraw("r2"),
        |sends| sends.on_unanswered("s"),
        |sends| sends.on_answered("s"),
        |sends| sends.on_propagated("s", 0),
        |sends| sends.on_stored("s", 2),
        |sends| sends.on_left_out("s", 2),
        |sends| sends.on_acknowledged("s", 0, &bob()),
        |sends| sends.on_possibly_acknowledged("s", 0),
        |sends| sends.on_reconstructible("s", &bob()),
        |sends| sends.on_given_up("s", &[0]),
        |sends| sends.on_irrecoverable("s", 0, "no proof"),
        |sends| sends.on_undispatched("s", "busy"),
    ];
    assert_eq!(usual().poll_persist().count(), 1);
    for (at, change) in changes.into_iter().enumerate() {
        let mut sends = underway();
        assert_eq!(sends.poll_persist().count(), 1, "{at}");
        let before = sends.get("s").cloned();
        change(&mut sends);
        let stored: Vec<_> = sends.poll_persist().collect();
        let [(_, Some(record))] = &stored[..] else {
            panic!("{at}: {stored:?}");
        };
        let stored = OwnSend::decode(record).ok();
        assert_eq!(
            (&stored, stored != before),
            (&sends.get("s").cloned(), true)
        );
    }
    let mut sends = underway();
    sends.on_irrecoverable("s", 0, "no proof");
    sends.drop_changes();
    sends.on_announced("s", OutcomeKind::Failed, "r");
    assert_eq!(sends.poll_persist().count(), 1);
    sends.on_announced("s", OutcomeKind::Failed, "r");
    sends.on_stored("s", 1);
    sends.drop_changes();
    sends.on_stored("s", 1);
    assert_eq!(sends.poll_persist().count(), 0);
}

#[test]
fn where_nobody_listens_there_is_nobody_to_tell_and_chunks_are_not_told() {
    let mut sends = usual();
    sends.listened().set([]);
    propagate(&mut sends, 4);
    sends.on_acknowledged("s", 0, &bob());
    sends.on_possibly_acknowledged("s", 1);
    sends.on_reconstructible("s", &bob());
    // Whoever waits for a delivery is told all the same.
    assert_eq!(told(&mut sends), ["r: sent", "r: delivered to bob"]);
    assert!(!sends.is_unannounced("s", OutcomeKind::Delivered, "r"));
    register(&mut sends, "failed", "r2", 1, 1);
    sends.on_irrecoverable("failed", 0, "no proof");
    assert_eq!(told(&mut sends), ["r2: failed at dispatch (no proof)"]);
    assert!(sends.never_left("failed"));
    for (kind, outcome) in [
        (SendEventKind::MessageSent, OutcomeKind::Sent),
        (SendEventKind::MessageDelivered, OutcomeKind::Delivered),
        (SendEventKind::MessageSendError, OutcomeKind::Failed),
    ] {
        let mut sends = usual();
        sends.listened().set([kind]);
        propagate(&mut sends, 4);
        sends.on_given_up("s", &[]);
        sends.on_reconstructible("s", &bob());
        let waits = OutcomeKind::ALL.map(|kind| sends.is_unannounced("s", kind, "r"));
        assert_eq!(waits, OutcomeKind::ALL.map(|kind| kind == outcome));
    }
}

#[test]
fn each_kind_of_chunk_event_is_made_for_those_who_listen_to_it() {
    for (kind, start) in [
        (SendEventKind::ChunkSending, "r: sending"),
        (SendEventKind::ChunkSent, "r: chunks sent"),
        (SendEventKind::ChunkPossiblyAcknowledged, "r: possibly"),
        (SendEventKind::ChunkAcknowledged, "r: acknowledged"),
        (SendEventKind::ChunkError, "r: chunks failed"),
    ] {
        let mut sends = usual();
        sends.listened().set([kind]);
        propagate(&mut sends, 1);
        sends.on_possibly_acknowledged("s", 1);
        sends.on_acknowledged("s", 0, &bob());
        sends.on_undispatched("s", "busy");
        let told = told(&mut sends);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with(start), "{told:?}");
    }
}

#[test]
fn settled_sends_are_forgotten_beyond_the_bound() {
    let mut sends = none_yet(DeliveredWhen::Any);
    let count = SETTLED_REMEMBERED_MAX + 2;
    for number in 0..count {
        let send_id = format!("s{number}");
        register(&mut sends, &send_id, &format!("r{number}"), 1, 1);
        sends.on_propagated(&send_id, 0);
        sends.on_reconstructible(&send_id, &bob());
    }
    assert!(sends.get("s1").is_none() && sends.get("s2").is_some());
    let mut stored = sends.poll_persist();
    assert_eq!(stored.next(), Some((Name::new("s0"), None)));
    drop(stored);
    assert_eq!((sends.send_id_of("r0"), sends.pending_count()), (None, 0));
    // One that fails and is delivered after all is the newest again.
    sends.on_reconstructible("s2", &"carol".into());
    register(&mut sends, "new", "r", 1, 1);
    sends.on_propagated("new", 0);
    sends.on_given_up("new", &[0]);
    sends.drop_changes();
    let deleted = |sends: &mut OwnSends| -> Vec<Name> {
        let stored = sends.poll_persist();
        let deleted = stored.filter(|(_, record)| record.is_none());
        deleted.map(|(send_id, _)| send_id).collect()
    };
    assert!(sends.get("s2").is_none() && sends.get("s3").is_some());
    for number in 3..count {
        assert!(sends.get("new").is_some());
        if number == 4 {
            sends.on_reconstructible("new", &bob());
        }
        let send_id = format!("later {number}");
        register(&mut sends, &send_id, &send_id, 1, 1);
        sends.on_irrecoverable(&send_id, 0, "no proof");
        assert_eq!(deleted(&mut sends), [Name::from(format!("s{number}"))]);
    }
    assert!(sends.get("new").is_some());
    sends.audit();
}

#[test]
fn equal_content_shares_one_send_and_its_outcomes() {
    let mut sends = began(DeliveredWhen::Any, 1, 1);
    propagate(&mut sends, 1);
    sends.on_reconstructible("s", &bob());
    told(&mut sends);
    assert!(!sends.is_shared("r"));
    sends.attach("s", "r2");
    assert!(sends.is_shared("r") && sends.is_shared("r2"));
    assert_eq!(told(&mut sends), ["r2: sent", "r2: delivered to bob"]);
    let mut sends = began(DeliveredWhen::Any, 1, 1);
    sends.on_irrecoverable("s", 0, "no proof");
    told(&mut sends);
    sends.attach("s", "r2");
    sends.attach("unknown", "r3");
    assert_eq!(told(&mut sends), ["r2: failed at dispatch (no proof)"]);
    assert_eq!(sends.send_id_of("r3"), None);
}

#[test]
fn of_requests_that_share_a_send_those_are_told_after_a_restart_that_were_not_before_it() {
    let mut sends = began(DeliveredWhen::Any, 1, 1);
    sends.attach("s", "r2");
    propagate(&mut sends, 1);
    assert_eq!(of(&mut sends, "r2: sent"), ["r2: sent"]);
    sends.on_reconstructible("s", &bob());
    sends.attach("s", "r3");
    for request_id in ["r", "r", "r2", "unknown"] {
        sends.on_announced("s", OutcomeKind::Sent, request_id);
    }
    sends.on_announced("s", OutcomeKind::Delivered, "r2");
    let expected = ["r: delivered to bob", "r3: sent", "r3: delivered to bob"];
    assert_eq!(told(&mut resumed(&mut sends)), expected);
}

#[test]
fn what_was_withdrawn_is_forgotten_and_told_to_nobody() {
    let mut sends = began(DeliveredWhen::Any, 1, 1);
    sends.on_irrecoverable("s", 0, "no proof");
    sends.attach("s", "r2");
    sends.withdraw("r2");
    sends.withdraw("unknown");
    sends.on_announced("s", OutcomeKind::Failed, "r");
    assert!(sends.never_left("s"));
    sends.withdraw("r");
    assert_eq!(
        (sends.get("s"), sends.send_id_of("r"), sends.pending_count()),
        (None, None, 0)
    );
    assert_eq!(
        sends.poll_persist().collect::<Vec<_>>(),
        [("s".into(), None)]
    );
}

#[test]
fn who_shares_a_send_that_another_request_withdrew_from_is_still_told() {
    let mut sends = began(DeliveredWhen::Any, 1, 1);
    sends.attach("s", "r2");
    sends.on_irrecoverable("s", 0, "no proof");
    sends.withdraw("r");
    assert!(sends.is_unannounced("s", OutcomeKind::Failed, "r2"));
    assert!(!sends.is_unannounced("s", OutcomeKind::Failed, "r"));
    let mut later = resumed(&mut sends);
    assert_eq!(told(&mut later), ["r2: failed at dispatch (no proof)"]);
}

#[test]
fn what_was_withdrawn_before_it_was_sent_is_not_waited_for() {
    let mut sends = usual();
    sends.withdraw("r");
    sends.audit();
    assert_eq!((sends.unsent(), sends.pending_count()), (vec![], 0));
}

#[test]
fn nothing_left_of_what_failed_before_the_network_could_have_any() {
    let failed = |before: fn(&mut OwnSends)| {
        let mut sends = began(DeliveredWhen::Any, 1, 1);
        before(&mut sends);
        sends.on_irrecoverable("s", 0, "no proof");
        let untold = sends.never_left("s");
        sends.on_announced("s", OutcomeKind::Failed, "r");
        (untold, sends.never_left("s"))
    };
    assert_eq!(failed(|_| ()), (false, true));
    assert_eq!(failed(|sends| sends.on_unanswered("s")), (false, false));
    let answered = |sends: &mut OwnSends| {
        sends.on_unanswered("s");
        sends.on_answered("s");
        sends.on_answered("s");
    };
    assert_eq!(failed(answered), (false, true));
    assert_eq!(failed(|sends| sends.on_propagated("s", 0)), (false, false));
    let one_unanswered = |sends: &mut OwnSends| {
        sends.on_unanswered("s");
        sends.on_unanswered("s");
        sends.on_answered("s");
    };
    assert_eq!(failed(one_unanswered), (false, false));
    let mut sends = began(DeliveredWhen::Any, 2, 2);
    sends.on_propagated("s", 0);
    sends.on_irrecoverable("s", 1, "no proof");
    sends.on_announced("s", OutcomeKind::Failed, "r");
    assert!(!sends.never_left("s"));
    let mut sends = began(DeliveredWhen::Any, 1, 1);
    assert!(!sends.never_left("s") && !sends.never_left("unknown"));
    // Its node may have taken something before the end of the earlier life.
    let mut later = resumed(&mut sends);
    later.on_irrecoverable("s", 0, "no proof");
    later.on_announced("s", OutcomeKind::Failed, "r");
    assert!(!later.never_left("s"));
}

#[test]
fn a_send_that_is_begun_anew_is_another() {
    let mut sends = usual();
    let first = sends.serial_of("s");
    propagate(&mut sends, 4);
    register(&mut sends, "s", "again", 3, 4);
    assert_ne!(sends.serial_of("s"), first);
    assert_eq!(
        (sends.send_id_of("r"), sends.send_id_of("again")),
        (None, Some(&"s".into()))
    );
    assert_eq!(sends.get("s").map(|send| send.propagated.count()), Some(0));
    sends.drop_changes();
    assert_eq!(sends.poll_persist().count(), 0);
}

#[test]
fn every_field_is_stored() {
    let mut sends = began(DeliveredWhen::Count(9), 200, 300);
    for ordinal in [0, 63, 64, 199, 299] {
        sends.on_dispatched("s", ordinal);
        sends.on_stored("s", ordinal);
        sends.on_acknowledged("s", ordinal, &bob());
    }
    sends.on_possibly_acknowledged("s", 5);
    sends.on_left_out("s", 250);
    sends.attach("s", "r2");
    sends.on_reconstructible("s", &bob());
    sends.on_reconstructible("s", &"carol".into());
    sends.on_undispatched("s", "busy");
    let kept = sends.get("s").cloned().expect("it is there");
    assert!(kept.failure.is_some() && kept.unannounced.len() == 2);
    let record = kept.encode();
    assert_eq!(OwnSend::decode(&record).as_ref(), Ok(&kept));
    for cut in 0..record.len() {
        assert!(OwnSend::decode(&record[..cut]).is_err(), "{cut}");
        let mut altered = record.to_vec();
        altered[cut] ^= 1;
        assert!(OwnSend::decode(&altered).is_err(), "{cut}");
    }
    let mut newer = record.to_vec();
    newer[0] = 200;
    let error = OwnSend::decode(&newer)
        .expect_err("it is newer")
        .to_string();
    assert!(error.contains("version 200"), "{error}");
}

#[test]
fn what_a_send_has_come_to_is_stored_whatever_that_is() {
    let failures = [
        None,
        Some((FailureStage::Dispatch, "why".into())),
        Some((FailureStage::Delivery, "why".into())),
    ];
    for failure in failures {
        for (sent, delivered) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut send = OwnSend::new("r".into(), "m".into(), 2, 3, "raw leopard");
            (send.sent, send.delivered) = (sent, delivered);
            send.failure = failure.clone();
            assert_eq!(OwnSend::decode(&send.encode()), Ok(send));
        }
    }
}

#[test]
fn outcomes_that_earlier_releases_stored_are_told_once_each() {
    let record = |more: &str| {
        format!(
            r#"{{"version":2,"request_ids":["r"],"message_id":"m","data_count":1,"content_count":1,
            "delivered_to":["bob","carol"]{more}}}"#
        )
    };
    let read = |more: &str| OwnSend::decode(record(more).as_bytes()).expect("it is read");
    let delivered = read(r#","sent":true,"delivered":true"#);
    assert!(delivered.sent && delivered.delivered && delivered.failure.is_none());
    assert_eq!(delivered.delivered_to, [bob(), "carol".into()]);
    let failed = read(r#","error":"why","error_stage":"dispatch""#).failure;
    assert_eq!(failed, Some((FailureStage::Dispatch, "why".into())));
    assert_eq!(read(r#","error":"","error_stage":"""#).failure, None);
    let mask = |digits: usize| record(&format!(r#","sending":{}"#, "9".repeat(digits)));
    assert!(OwnSend::decode(mask(2_000).as_bytes()).is_ok());
    assert!(OwnSend::decode(mask(2_001).as_bytes()).is_err());
    let mut sends = none_yet(DeliveredWhen::Any);
    let untold = record(r#","sent":true,"unannounced":["sent","sent r","sent"]"#);
    sends
        .restore("s".into(), untold.as_bytes())
        .expect("it is read");
    assert_eq!(told(&mut sends), ["r: sent"]);
}

#[test]
fn what_earlier_releases_stored_is_read() {
    let all = [
        "340282366920938463463374607431768211455",
        "36893488147419103232",
    ];
    let record = format!(
        r#"{{"version":1,"request_ids":["r","r\u00e4"],"message_id":"m","data_count":70,"content_count":128,
        "sending":{0},"propagated":{0},"left_out":0,"acknowledged":{1},"possibly_acknowledged":6,
        "delivered_to":["bob"],"sent":true,"error":"why","error_stage":"delivery",
        "unannounced":["sent","error r"],"unanswered":2,"stored":1,"form":"raw leopard","later":[1]}}"#,
        all[0], all[1]
    );
    let send = OwnSend::decode(record.as_bytes()).expect("it is read");
    assert_eq!(send.request_ids, ["r".into(), Name::new("rä")]);
    assert_eq!((send.sending.count(), send.propagated.count()), (128, 128));
    assert!(send.acknowledged.contains(65) && send.acknowledged.count() == 1);
    assert_eq!(send.chunks(&send.possibly_acknowledged), [1, 2]);
    assert_eq!(
        (send.stored.count(), send.left_out.count(), send.unanswered),
        (1, 0, 2)
    );
    assert_eq!(
        (&*send.form, send.sent, send.delivered),
        ("raw leopard", true, false)
    );
    assert_eq!(send.failure, Some((FailureStage::Delivery, "why".into())));
    let mut sends = none_yet(DeliveredWhen::Any);
    sends
        .restore("s".into(), record.as_bytes())
        .expect("it is read");
    let failed = "r: failed at delivery (why)";
    assert_eq!(told(&mut sends), ["r: sent", "rä: sent", failed]);
    assert_eq!(sends.pending_count(), 0);
    let least =
        br#"{"version":1,"request_ids":["r"],"message_id":"m","data_count":1,"content_count":1}"#;
    assert_eq!(OwnSend::decode(least).map(|send| send.unanswered), Ok(1));
    for (damaged, word) in [
        (&b"{}"[..], "damaged"),
        (br#"{"version":1}"#, "damaged"),
        (br#"{"version":9,"request_ids":["r"],"message_id":"m","data_count":1,"content_count":1}"#, "version 9"),
        (br#"{"version":1,"request_ids":["r"],"message_id":"m","data_count":1,"content_count":1,"sent":3}"#, "damaged"),
        (br#"{"version":1,"request_ids":["r"],"message_id":"m","data_count":1,"content_count":1,"sending":-1}"#, "damaged"),
        (br#"{"version":1,"request_ids":["r"],"message_id":"m","data_count":1,"content_count":1,"unannounced":["x"]}"#, "damaged"),
        (b"", "damaged"),
    ] {
        let error = OwnSend::decode(damaged).expect_err("it is not whole").to_string();
        assert!(error.contains(word), "{error}");
    }
}

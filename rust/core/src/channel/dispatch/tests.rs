//! What leaves a channel, what its node says of it, and what becomes of our sends by that.

use super::{
    Allowance, DISPATCHES_MAX, DropReason, FURTHER_SLOW_MAX, Failure, NodeState,
    PROPAGATION_TIMEOUT_MS, REPAIRS_MAX, SLOW_MS,
};
use crate::channel::tests::{
    ONE, OTHER, SEGMENT_BYTES, TIMEOUT_MS, at, channel, config, heard, id, limits, message, named,
    payload, segments, settings,
};
use crate::channel::{
    Channel, ChunkProgress, Event, OutcomeKind, Segmentation, SendEvent, SendEventKind, Submission,
};
use crate::sds::{Config, Kinds, Octets, Transmit, TransmitKind};
use crate::segment::Parameters;
use crate::wire::sds::{Message, WireFormat};

pub(super) const MESSAGE: &str = "message";
pub(super) const THIRD: &str = "33333333333333333333333333333333";
pub(super) const EPHEMERAL: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
pub(super) const FAILED: Failure<'_> = Failure {
    error: "down",
    permanent: false,
    unanswered: false,
    retry_after_ms: None,
};
pub(super) const REFUSED: Failure<'_> = Failure {
    error: "no proof",
    permanent: true,
    ..FAILED
};
pub(super) const SILENT: Failure<'_> = Failure {
    error: "said nothing",
    unanswered: true,
    ..FAILED
};
/// A node that was not asked yet.
pub(super) const READY: NodeState = NodeState {
    online: true,
    held_ms: 0,
    failures: 0,
};

/// A participant who hears nobody.
pub(super) struct Alice {
    pub(super) channel: Channel,
    pub(super) now_ms: i64,
    pub(super) allowances: Vec<Allowance>,
    pub(super) is_limited: bool,
}

/// So many places, of which `reserve` are for acknowledgements.
pub(super) fn places(left: i64, reserve: i64, free: Kinds) -> Allowance {
    Allowance {
        free,
        left,
        open_left: (left - reserve).max(0),
        sync_left: left,
        ephemeral_left: left,
        repairs: true,
    }
}

/// Messages are counted, not their segments.
pub(super) fn messages(left: i64) -> Allowance {
    let free = Kinds::NONE
        .with(TransmitKind::Further)
        .with(TransmitKind::Retransmission);
    places(left, 0, free)
}

/// An event in short: to whom it is told, what, and which chunks it names.
fn in_short(event: SendEvent) -> String {
    let chunks = |what: &str, progress: ChunkProgress| {
        let ChunkProgress {
            request_id, chunks, ..
        } = progress;
        format!("{request_id} {what} {chunks:?}")
    };
    match event {
        SendEvent::ChunkSending(progress) => chunks("sending", progress),
        SendEvent::ChunkSent(progress) => chunks("took", progress),
        SendEvent::ChunkError { progress, error } => {
            format!("{} {error}", chunks("failed", progress))
        }
        SendEvent::ChunkPossiblyAcknowledged(progress) => chunks("possibly", progress),
        SendEvent::ChunkAcknowledged { progress, by } => {
            format!("{} {by}", chunks("acknowledged", progress))
        }
        SendEvent::MessageSent(ids) => format!("{} sent", ids.request_id),
        SendEvent::MessageDelivered { ids, .. } => format!("{} delivered", ids.request_id),
        SendEvent::MessageSendError { ids, stage, error } => {
            format!("{} error {} {error}", ids.request_id, stage.name())
        }
        SendEvent::EphemeralDropped {
            request_id, reason, ..
        } => format!("{request_id} dropped {}", reason.name()),
    }
}

impl Alice {
    pub(super) fn new() -> Self {
        Alice::of(config())
    }

    pub(super) fn of(config: Config) -> Self {
        let segmentation = Segmentation {
            parameters: Parameters::new(settings()).unwrap(),
            limits: limits(),
        };
        let channel = channel(&config, segmentation, 0);
        channel.own().listened().set(SendEventKind::ALL);
        Alice {
            channel,
            now_ms: 0,
            allowances: Vec::new(),
            is_limited: false,
        }
    }

    /// Who sends again so often, after 5 s at first.
    pub(super) fn retrying(max_retransmissions: u32) -> Self {
        Alice::of(Config {
            max_retransmissions,
            acknowledgement_timeout_ms: 5_000,
            ..config()
        })
    }

    pub(super) fn submit(&mut self, send_id: &str, data_count: u32, parity_count: u32) {
        let contents = segments(&payload(1, data_count as usize * SEGMENT_BYTES));
        let contents = contents
            .into_iter()
            .take((data_count + parity_count) as usize);
        let submission = Submission {
            send_id: send_id.into(),
            request_id: format!("r{}", &send_id[..1]).into(),
            message_id: MESSAGE.into(),
            contents: contents.map(Octets::from).collect(),
            data_count,
            reserve: 0,
        };
        assert!(self.channel.submit(submission)[0].1.is_ok());
    }

    pub(super) fn submit_ephemeral(&mut self) {
        let ids = ("re", MESSAGE);
        let content = Octets::from(vec![1; 100]);
        let channel = &mut self.channel;
        channel.submit_ephemeral(EPHEMERAL, ids, content, &self.allowances);
    }

    /// A send that has left, and its id.
    pub(super) fn send_before(&mut self) -> String {
        let send_id = "3".repeat(ONE.len());
        self.submit(&send_id, 1, 0);
        self.leave();
        send_id
    }

    /// What is handed out now.
    pub(super) fn poll(&mut self) -> Vec<Transmit> {
        let now = at(self.now_ms);
        let (transmits, held) = self.channel.poll_transmits(&self.allowances, now);
        self.is_limited = held != Kinds::NONE;
        transmits
    }

    /// The same, and it is handed to the node.
    pub(super) fn leave(&mut self) -> Vec<u64> {
        let left = self.poll().into_iter().map(|transmit| transmit.transmit_id);
        let left: Vec<u64> = left.collect();
        for &id in &left {
            assert!(self.channel.leave(id, self.now_ms));
        }
        left
    }

    pub(super) fn propagated(&mut self, id: u64) -> bool {
        let now = at(self.now_ms);
        self.channel.handle_propagated(id, b"hash", now)
    }

    pub(super) fn failed(&mut self, id: u64, failure: Failure<'_>) {
        self.channel.announce_failure();
        assert!(!self.may_try());
        self.channel.handle_failed(id, failure, at(self.now_ms));
    }

    pub(super) fn may_try(&self) -> bool {
        self.channel.may_try(self.now_ms)
    }

    pub(super) fn state(&self) -> NodeState {
        self.channel.node_state(at(self.now_ms))
    }

    pub(super) fn wait(&mut self, ms: i64) {
        self.now_ms += ms;
        self.channel.handle_time(true, at(self.now_ms));
    }

    pub(super) fn wake_in_ms(&mut self) -> Option<i64> {
        let now = at(self.now_ms);
        let allowances = self.allowances.clone();
        let wake_ms = self
            .channel
            .next_wake_ms(&allowances, self.now_ms + 777, now)?;
        Some(wake_ms - self.now_ms)
    }

    /// Carol says something, now.
    pub(super) fn hear(&mut self, said: Message) {
        let said = Message {
            lamport_timestamp: Some(at(self.now_ms).epoch_ms as u64),
            ..said
        };
        let data = Octets::from(said.encode(config().wire_format).unwrap());
        let arrival = heard(&data);
        assert!(self.channel.handle_message(&arrival, at(self.now_ms)));
    }

    /// The next message of a kind that is handed to the node, which takes all before it.
    pub(super) fn leave_next(&mut self, kind: TransmitKind) -> u64 {
        for _ in 0..1_000 {
            self.wait(1_000);
            for transmit in self.poll() {
                let id = transmit.transmit_id;
                assert!(self.channel.leave(id, self.now_ms));
                if transmit.kind == kind {
                    return id;
                }
                assert!(self.propagated(id));
            }
        }
        panic!("it leaves")
    }

    pub(super) fn announced(&mut self) {
        let own = self.channel.own_mut();
        own.on_announced(ONE, OutcomeKind::Failed, "r1");
    }

    /// What the application is told of requests.
    pub(super) fn told(&mut self) -> Vec<String> {
        let events = self.channel.own_mut().poll_events().into_iter();
        events.map(in_short).collect()
    }

    pub(super) fn outcomes(&mut self) -> Vec<String> {
        let told = self.told().into_iter();
        let is_outcome = |told: &String| !told.contains(" sending ") && !told.contains(" took ");
        told.filter(is_outcome).collect()
    }

    /// What the log and the application are told of the node.
    pub(super) fn events(&mut self) -> Vec<String> {
        let events = self.channel.poll_events(at(self.now_ms)).into_iter();
        let text = |event: Event| match event {
            Event::TransmitFailed { kind, of_node, .. } => {
                Some(format!("{} failed, known {of_node}", kind.name()))
            }
            Event::NodeFailing { failures, error } => Some(format!("failing {failures} {error}")),
            Event::NodeRecovered { failures, told } => {
                Some(format!("recovered {failures}, told {told}"))
            }
            Event::NodeHolds { hold_ms, .. } => Some(format!("holds {hold_ms}")),
            _ => None,
        };
        events.filter_map(text).collect()
    }

    /// Whether what is submitted under the same id is a send of its own, and does not share the fate of the
    /// failed.
    pub(super) fn begins_anew(&mut self) -> bool {
        let submission = Submission {
            send_id: ONE.into(),
            request_id: "again".into(),
            message_id: MESSAGE.into(),
            contents: vec![Octets::from(vec![1; 50])],
            data_count: 1,
            reserve: 0,
        };
        assert!(self.channel.submit(submission)[0].1.is_ok());
        self.channel.own().get(ONE).unwrap().request_ids.len() == 1
    }
}

// --- what is handed out ----------------------------------------------------------------------------

#[test]
fn what_the_network_took_is_sent() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    let left = alice.leave();
    assert_eq!((left.len(), alice.channel.dispatches_in_flight()), (2, 2));
    assert!(alice.propagated(left[0]));
    assert!(!alice.propagated(left[0]));
    assert_eq!(alice.outcomes(), [""; 0]);
    assert!(alice.propagated(left[1]));
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    assert_eq!(alice.events(), [""; 0]);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    assert!(!alice.channel.leave(left[1], 0));
    let counts = alice.channel.dispatch_counts();
    assert_eq!(counts.dispatched[..2], [1, 1]);
}

#[test]
fn the_node_has_so_many_to_answer_for_and_no_more() {
    let mut alice = Alice::new();
    for number in 0..DISPATCHES_MAX + 3 {
        alice.submit(&format!("{number:032x}"), 1, 0);
    }
    let left = alice.leave();
    assert_eq!(left.len(), DISPATCHES_MAX);
    assert_eq!(alice.poll().len(), 0);
    assert!(!alice.is_limited);
    alice.propagated(left[5]);
    alice.propagated(left[7]);
    assert_eq!(alice.poll().len(), 2);
}

#[test]
fn what_others_ask_for_leaves_the_node_places_for_what_is_new() {
    let asked: Vec<String> = (0..REPAIRS_MAX + 2).map(|n| format!("{n:032x}")).collect();
    let mut alice = Alice::new();
    for (seed, send_id) in (0..).zip(&asked) {
        let content = &segments(&payload(seed, 100))[0];
        alice.hear(message("carol", &id(send_id, 0), content));
    }
    let request = |send_id: &String| named(&id(send_id, 0), Some("carol"));
    alice.hear(Message {
        content: None,
        repair_request: asked.iter().map(request).collect(),
        ..message("dave", "asks", b"")
    });
    let mut answers = Vec::new();
    for _ in 0..1_000 {
        alice.wait(1_000);
        for transmit in alice.poll() {
            let id = transmit.transmit_id;
            if transmit.kind == TransmitKind::Repair {
                answers.push(id);
            } else {
                assert!(alice.channel.leave(id, alice.now_ms));
                alice.propagated(id);
            }
        }
    }
    assert_eq!(answers.len(), REPAIRS_MAX);
    for &id in &answers {
        assert!(alice.channel.leave(id, alice.now_ms));
    }
    alice.submit(ONE, 1, 0);
    assert_eq!(alice.leave().len(), 1);
    alice.propagated(answers[0]);
    alice.failed(answers[1], REFUSED);
    let left = alice.poll();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|one| one.kind == TransmitKind::Repair));
}

#[test]
fn of_a_large_message_a_slow_node_has_few_places() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2 * DISPATCHES_MAX as u32 - 1, 0);
    let left = alice.leave();
    assert_eq!(left.len(), DISPATCHES_MAX);
    alice.now_ms += SLOW_MS;
    alice.propagated(left[0]);
    let mut held = [&left[1..], &alice.leave()].concat();
    assert_eq!(held.len(), DISPATCHES_MAX);
    alice.now_ms += 1;
    while held.len() > FURTHER_SLOW_MAX {
        assert_eq!(alice.poll(), []);
        alice.propagated(held.remove(0));
    }
    assert_eq!(alice.poll(), []);
    alice.propagated(held.remove(0));
    held.append(&mut alice.leave());
    assert_eq!(held.len(), FURTHER_SLOW_MAX);
    assert!(!alice.is_limited);
    // The last left just now.
    alice.propagated(held.pop().unwrap());
    assert_eq!(alice.poll().len(), DISPATCHES_MAX - held.len());
}

#[test]
fn each_limit_lets_leave_what_it_has_places_for() {
    use TransmitKind::{Ephemeral, First, Further, Repair, Retransmission, Sync};
    let of = |kinds: &[TransmitKind]| kinds.iter().fold(Kinds::NONE, |set, kind| set.with(*kind));
    let free = of(&[Further, Retransmission]);
    let some = Allowance {
        ephemeral_left: 2,
        ..places(5, 2, free)
    };
    let all = Kinds::ALL;
    let without = [First, Further, Retransmission, Sync, Repair];
    let expected = [
        (0, all, None),
        (1, all, None),
        (2, of(&without), Some(DropReason::Approached)),
        (3, free.with(Sync), Some(DropReason::Approached)),
        (4, free.with(Sync), Some(DropReason::Approached)),
        (5, free, Some(DropReason::Reached)),
        (usize::MAX, free, Some(DropReason::Reached)),
    ];
    for (taken, kinds, reason) in expected {
        assert_eq!(some.kinds(taken), kinds, "{taken}");
        assert_eq!(some.drop_reason(taken), reason, "{taken}");
    }
    let unasked = Allowance {
        repairs: false,
        ..some
    };
    assert_eq!(
        unasked.kinds(0),
        of(&[First, Further, Retransmission, Sync, Ephemeral])
    );
    // Of two limits the tighter holds.
    let both = [some, places(1, 0, Kinds::NONE)];
    assert_eq!(super::allowance::allowed(&both, 0), all);
    assert_eq!(super::allowance::allowed(&both, 1), Kinds::NONE);
    let reason = super::allowance::drop_reason(&both, 1);
    assert_eq!(reason, Some(DropReason::Reached));
    assert!(super::allowance::counts(&both, Further));
    assert!(!super::allowance::counts(&both[..1], Further));
    assert!(super::allowance::counts(&both[..1], First));
    assert!(!super::allowance::counts(&[], First));
}

#[test]
fn no_more_is_prepared_than_there_are_places() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    alice.submit(OTHER, 1, 0);
    alice.allowances = vec![messages(1)];
    let first = alice.poll();
    let kinds = |transmits: &[Transmit]| -> Vec<TransmitKind> {
        transmits.iter().map(|transmit| transmit.kind).collect()
    };
    assert_eq!(kinds(&first), [TransmitKind::First, TransmitKind::Further]);
    assert!(alice.is_limited);
    assert_eq!(
        (alice.channel.unplaced(), alice.channel.counted_in_flight()),
        (1, 0)
    );
    // More waits for the next epoch, and is looked for then.
    assert_eq!(alice.wake_in_ms(), Some(777));
    assert!(alice.channel.leave(first[0].transmit_id, 0));
    assert_eq!(alice.channel.unplaced(), 0);
    assert!(alice.channel.leave(first[1].transmit_id, 0));
    // To leave twice takes no second place.
    assert!(alice.channel.leave(first[0].transmit_id, 0));
    assert_eq!(
        (alice.channel.unplaced(), alice.channel.counted_in_flight()),
        (0, 1)
    );
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    assert!(alice.is_limited);
    alice.allowances = vec![messages(1)];
    assert_eq!(kinds(&alice.poll()), [TransmitKind::First]);
    assert!(!alice.is_limited);
    for transmit in first {
        alice.propagated(transmit.transmit_id);
    }
    assert_eq!(
        (alice.channel.unplaced(), alice.channel.counted_in_flight()),
        (1, 0)
    );
}

#[test]
fn a_sync_takes_the_last_place_that_a_content_may_take_where_no_content_waits() {
    use TransmitKind::{First, Sync};
    for (allowance, expected) in [
        (messages(1), vec![First]),
        (messages(2), vec![Sync, First]),
        // The content says what the sync would.
        (places(2, 1, Kinds::NONE), vec![First]),
        // What is kept for syncs is theirs.
        (places(2, 2, Kinds::NONE), vec![Sync]),
    ] {
        let mut alice = Alice::new();
        let content = &segments(&payload(1, 100))[0];
        alice.hear(message("carol", &id(OTHER, 0), content));
        alice.wait(config().acknowledgement_timeout_ms);
        alice.allowances = vec![allowance];
        alice.submit(ONE, 1, 0);
        let left = alice.poll().into_iter();
        assert_eq!(left.map(|it| it.kind).collect::<Vec<_>>(), expected);
    }
    let mut alice = Alice::new();
    let content = &segments(&payload(1, 100))[0];
    alice.hear(message("carol", &id(OTHER, 0), content));
    alice.wait(config().acknowledgement_timeout_ms);
    alice.allowances = vec![messages(1)];
    assert_eq!(alice.poll()[0].kind, Sync);
}

#[test]
fn a_late_sync_leaves_the_last_place_to_a_content_that_waits() {
    use TransmitKind::{First, Sync};
    for is_content_late in [false, true] {
        let mut alice = Alice::new();
        let content = &segments(&payload(1, 100))[0];
        alice.hear(message("carol", &id(OTHER, 0), content));
        alice.wait(config().acknowledgement_timeout_ms);
        alice.allowances = vec![messages(9)];
        let sync = alice.poll();
        assert_eq!(sync[0].kind, Sync);
        alice.channel.handle_late(sync[0].transmit_id, at(0));
        alice.submit(ONE, 1, 0);
        if is_content_late {
            alice.allowances = vec![messages(1)];
            let first = alice.poll();
            assert_eq!(first[0].kind, First);
            alice.channel.handle_late(first[0].transmit_id, at(0));
        }
        alice.allowances = vec![messages(1)];
        let left = alice.poll().into_iter();
        assert_eq!(left.map(|it| it.kind).collect::<Vec<_>>(), [First]);
        alice.allowances = vec![messages(2)];
        assert_eq!(alice.poll()[0].kind, Sync);
    }
}

#[test]
fn nothing_is_held_that_waits_for_room_or_for_its_time() {
    let mut alice = Alice::of(Config {
        outgoing_buffer_messages_max: 1,
        ..config()
    });
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let [left] = alice.leave()[..] else {
        panic!("one fits")
    };
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    assert!(!alice.is_limited);
    assert_ne!(alice.wake_in_ms(), Some(777));
    alice.propagated(left);
    assert_eq!(alice.poll(), []);
}

#[test]
fn a_send_that_waits_for_room_for_all_of_it_is_held_by_no_limit() {
    let mut alice = Alice::of(Config {
        outgoing_buffer_messages_max: 3,
        ..config()
    });
    alice.submit(ONE, 2, 0);
    alice.submit(OTHER, 2, 0);
    assert_eq!(alice.leave().len(), 2);
    alice.allowances = vec![messages(5)];
    assert_eq!(alice.poll(), []);
    assert!(!alice.is_limited);
    assert_ne!(alice.wake_in_ms(), Some(777));
}

#[test]
fn what_is_late_leaves_in_the_order_in_which_it_came_back() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let prepared = alice.poll();
    for place in [1, 0] {
        alice
            .channel
            .handle_late(prepared[place].transmit_id, at(0));
    }
    alice.allowances = vec![messages(1)];
    assert_eq!(alice.poll(), prepared[1..]);
}

#[test]
fn what_is_late_of_a_send_whose_first_has_left_leaves_when_there_is_a_place() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    alice.allowances = vec![places(2, 0, Kinds::NONE)];
    let prepared = alice.poll();
    assert!(alice.channel.leave(prepared[0].transmit_id, 0));
    alice.channel.handle_late(prepared[1].transmit_id, at(0));
    assert_eq!(alice.poll(), prepared[1..]);
}

#[test]
fn what_is_late_leaves_before_the_rest_of_its_send() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    alice.allowances = vec![messages(1)];
    let prepared = alice.poll();
    assert_eq!(prepared.len(), 3);
    // The place went to somebody else.
    for transmit in &prepared[..2] {
        alice.channel.handle_late(transmit.transmit_id, at(0));
    }
    assert_eq!(alice.channel.unplaced(), 0);
    assert_eq!(alice.channel.dispatches_in_flight(), 3);
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    assert!(alice.is_limited);
    alice.allowances = vec![messages(1)];
    let again = alice.poll();
    assert_eq!(again, prepared[..2]);
    // The second time it is the last of those that are late.
    for place in [1, 0] {
        alice
            .channel
            .handle_late(prepared[place].transmit_id, at(0));
    }
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    alice.allowances = vec![messages(1)];
    let first_behind = [prepared[0].clone(), prepared[1].clone()];
    assert_eq!(alice.poll(), first_behind);
    assert_eq!(alice.outcomes(), [""; 0]);
    assert_eq!(alice.events(), [""; 0]);
}

#[test]
fn nothing_of_a_send_leaves_once_its_first_is_said_to_be_late_before_that() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    alice.submit(OTHER, 1, 0);
    alice.allowances = vec![messages(2)];
    let prepared = alice.poll();
    let [first, further, other] = &prepared[..] else {
        panic!("three are prepared")
    };
    alice.channel.announce_late(first.transmit_id);
    assert!(!alice.channel.leave(further.transmit_id, 0));
    assert!(alice.channel.leave(other.transmit_id, 0));
    alice.channel.handle_late(first.transmit_id, at(0));
    assert!(!alice.channel.leave(further.transmit_id, 0));
    assert_eq!(alice.poll(), prepared[..1]);
    for transmit in [first, further] {
        assert!(alice.channel.leave(transmit.transmit_id, 0));
    }
}

#[test]
fn what_is_late_and_not_the_first_of_its_send_holds_up_none_of_it() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    let prepared = alice.poll();
    alice.channel.announce_late(prepared[1].transmit_id);
    assert!(alice.channel.leave(prepared[2].transmit_id, 0));
}

#[test]
fn what_is_made_while_the_first_is_late_waits_behind_it() {
    let mut alice = Alice::new();
    alice.submit(ONE, DISPATCHES_MAX as u32 + 1, 0);
    alice.submit(OTHER, 2, 0);
    alice.allowances = vec![messages(1)];
    let prepared = alice.poll();
    assert_eq!(prepared.len(), DISPATCHES_MAX);
    alice.channel.handle_late(prepared[0].transmit_id, at(0));
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.channel.dispatches_in_flight(), DISPATCHES_MAX + 1);
    alice.allowances = vec![messages(1)];
    let again = alice.poll();
    assert_eq!(again, prepared[..1]);
    // There is room for one at a time.
    alice.propagated(prepared[1].transmit_id);
    let [last] = &alice.poll()[..] else {
        panic!("one more")
    };
    assert_eq!(
        (last.kind, last.send_id.as_deref()),
        (TransmitKind::Further, Some(ONE))
    );
}

// --- ephemeral messages ----------------------------------------------------------------------------

#[test]
fn each_way_in_which_an_ephemeral_message_ends_is_one_event() {
    type Act = fn(&mut Alice);
    let leave_and = |act: fn(&mut Alice, u64)| {
        move |alice: &mut Alice| {
            alice.submit_ephemeral();
            let [left] = alice.leave()[..] else {
                panic!("it leaves")
            };
            act(alice, left);
        }
    };
    let propagated = leave_and(|alice, id| assert!(alice.propagated(id)));
    let failed = leave_and(|alice, id| alice.failed(id, FAILED));
    let refused = leave_and(|alice, id| alice.failed(id, REFUSED));
    let held = leave_and(|alice, id| {
        let failure = Failure {
            retry_after_ms: Some(5_000),
            ..FAILED
        };
        alice.failed(id, failure);
    });
    let late = leave_and(|alice, id| alice.channel.handle_late(id, at(0)));
    let stopped = leave_and(|alice, _| alice.channel.handle_stopped(at(0)));
    let silent = leave_and(|alice, _| alice.wait(PROPAGATION_TIMEOUT_MS));
    let reached: Act = |alice| {
        alice.allowances = vec![messages(0)];
        alice.submit_ephemeral();
    };
    let approached: Act = |alice| {
        alice.allowances = vec![places(2, 2, Kinds::NONE)];
        alice.submit_ephemeral();
    };
    let offline: Act = |alice| {
        alice
            .channel
            .handle_connection(false, false, at(alice.now_ms));
        alice.submit_ephemeral();
        assert_eq!(alice.poll(), []);
    };
    let unsent: Act = |alice| {
        alice.submit_ephemeral();
        alice.channel.handle_stopped(at(0));
    };
    let unstored: Act = |alice| {
        alice.submit_ephemeral();
        let channel = &mut alice.channel;
        channel.handle_commit_failed(&[], "disk full", at(0));
    };
    type Case = (&'static str, Box<dyn Fn(&mut Alice)>);
    let cases: [Case; 12] = [
        ("re took [0]", Box::new(propagated)),
        ("re failed [0] down", Box::new(failed)),
        ("re failed [0] no proof", Box::new(refused)),
        ("re dropped rate_limit_reached", Box::new(held)),
        ("re dropped rate_limit_approached", Box::new(late)),
        (
            "re failed [0] the channel was stopped before the node answered",
            Box::new(stopped),
        ),
        (
            "re failed [0] the node said nothing of it for 60000 ms",
            Box::new(silent),
        ),
        ("re dropped rate_limit_reached", Box::new(reached)),
        ("re dropped rate_limit_approached", Box::new(approached)),
        (
            "re failed [0] the node is offline, and an ephemeral message does not wait",
            Box::new(offline),
        ),
        ("re failed [0] the channel was stopped", Box::new(unsent)),
        ("re failed [0] disk full", Box::new(unstored)),
    ];
    for (expected, act) in cases {
        let mut alice = Alice::new();
        act(&mut alice);
        assert_eq!(alice.told(), [expected]);
        alice
            .channel
            .handle_connection(true, true, at(alice.now_ms));
        alice.channel.handle_stopped(at(alice.now_ms));
        alice.wait(PROPAGATION_TIMEOUT_MS);
        alice.allowances.clear();
        assert_eq!(alice.poll().len(), 0, "{expected}");
        assert_eq!(alice.told(), [""; 0], "{expected}");
    }
}

#[test]
fn an_ephemeral_message_is_told_as_one_chunk_of_one() {
    let mut alice = Alice::new();
    alice.submit_ephemeral();
    let left = alice.leave()[0];
    alice.propagated(left);
    let event = SendEvent::ChunkSent(ChunkProgress {
        message_id: MESSAGE.into(),
        request_id: "re".into(),
        chunks: vec![0],
        total: 1,
    });
    assert_eq!(alice.channel.own_mut().poll_events(), [event]);
}

#[test]
fn an_ephemeral_message_that_the_node_has_ends_with_what_that_says() {
    let mut alice = Alice::retrying(0);
    alice.submit_ephemeral();
    let left = alice.leave()[0];
    // A limit drops only what waits, and a send that is given up ends alone.
    let content = Octets::from(vec![2; 100]);
    let channel = &mut alice.channel;
    channel.submit_ephemeral(THIRD, ("r3", MESSAGE), content, &[]);
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.told(), ["r3 dropped rate_limit_reached"]);
    alice.allowances.clear();
    alice.submit(ONE, 1, 0);
    let other = alice.leave()[0];
    alice.failed(other, FAILED);
    let error = ["r1 failed [0] down", "r1 error dispatch down"];
    assert_eq!(alice.outcomes(), error);
    assert!(alice.propagated(left));
    assert_eq!(alice.told(), ["re took [0]"]);
}

#[test]
fn an_ephemeral_message_that_waits_is_dropped_where_the_limit_is_reached_meanwhile() {
    for (allowance, reason) in [
        (messages(0), "rate_limit_reached"),
        (places(2, 2, Kinds::NONE), "rate_limit_approached"),
    ] {
        let mut alice = Alice::new();
        alice.submit_ephemeral();
        alice.allowances = vec![allowance];
        assert_eq!(alice.poll(), []);
        assert_eq!(alice.told(), [format!("re dropped {reason}")]);
        assert!(!alice.is_limited);
    }
}

#[test]
fn an_ephemeral_message_does_not_wait_for_a_node_that_refuses_everything() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave()[0];
    let failure = Failure {
        retry_after_ms: Some(5_000),
        ..FAILED
    };
    alice.failed(left, failure);
    alice.told();
    alice.submit_ephemeral();
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.told(), ["re dropped rate_limit_reached"]);
}

#[test]
fn so_many_ephemeral_messages_wait_for_the_node_and_no_more() {
    let mut alice = Alice::of(Config {
        outgoing_buffer_messages_max: 2,
        ..config()
    });
    for number in 0..3 {
        let send_id = format!("{number:032x}");
        let request_id = format!("r{number}");
        let ids = (&*request_id, MESSAGE);
        let content = Octets::from(vec![1; 100]);
        alice.channel.submit_ephemeral(&send_id, ids, content, &[]);
    }
    let error = "2 ephemeral messages wait for the node already";
    assert_eq!(alice.told(), [format!("r2 failed [0] {error}")]);
    assert_eq!(alice.leave().len(), 2);
    alice.channel.refuse_ephemeral("rx", MESSAGE, "too large");
    assert_eq!(alice.told(), ["rx failed [0] too large"]);
}

#[test]
fn an_ephemeral_message_fails_on_a_wire_that_has_none() {
    let mut alice = Alice::of(Config {
        outgoing_buffer_messages_max: 1,
        wire_format: WireFormat::Nim,
        ..config()
    });
    let error = "the nim wire has no ephemeral messages: lamport_timestamp must be set";
    for _ in 0..3 {
        alice.submit_ephemeral();
        assert_eq!(alice.told(), [format!("re failed [0] {error}")]);
    }
    assert_eq!(alice.poll(), []);
}

// --- time ------------------------------------------------------------------------------------------

#[test]
fn a_channel_that_is_stopped_does_nothing_by_itself() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    let due_in_ms = alice.wake_in_ms().expect("it is sent again");
    alice.now_ms += due_in_ms;
    let now = at(alice.now_ms);
    alice.channel.handle_time(false, now);
    assert!(alice.poll().is_empty());
    alice.channel.handle_time(true, now);
    assert!(!alice.poll().is_empty());
}

#[test]
fn what_becomes_of_a_send_by_time_alone_is_told() {
    let mut alice = Alice::retrying(0);
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    alice.wait(5_000);
    assert_eq!(alice.outcomes().len(), 1);
}

#[test]
fn a_partial_message_that_nothing_new_came_for_is_dropped_in_its_time() {
    let mut alice = Alice::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES));
    alice.hear(message("carol", &id(OTHER, 0), &contents[0]));
    alice.wait(TIMEOUT_MS - 1);
    assert!(alice.channel.has_partial());
    // A node that is away lets nothing leave: what else is due waits for it.
    alice
        .channel
        .handle_connection(false, false, at(alice.now_ms));
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    assert!(!alice.channel.has_partial());
}

#[test]
fn a_limit_that_should_have_reopened_is_looked_at_once_more() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll(), []);
    let allowances = alice.allowances.clone();
    let wake_ms = alice.channel.next_wake_ms(&allowances, 0, at(0));
    assert_eq!(wake_ms, Some(1));
}

#[test]
fn what_is_overdue_and_held_back_is_looked_at_again_soon() {
    let mut alice = Alice::new();
    let content = &segments(&payload(1, 100))[0];
    alice.hear(message("carol", &id(OTHER, 0), content));
    let due_in_ms = alice.wake_in_ms().expect("it is acknowledged");
    alice.wait(due_in_ms);
    // Commits fail, say.
    assert_eq!(alice.wake_in_ms(), Some(1_000));
    // A node that is connected again says so.
    alice
        .channel
        .handle_connection(false, false, at(alice.now_ms));
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.wake_in_ms(), None);
    alice
        .channel
        .handle_connection(true, true, at(alice.now_ms));
    assert_eq!(alice.poll().len(), 1);
    assert_ne!(alice.wake_in_ms(), Some(1_000));
}

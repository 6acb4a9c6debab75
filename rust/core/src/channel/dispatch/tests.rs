//! What leaves a channel, what its node says of it, and what becomes of our sends by that.

use super::{Allowance, DISPATCHES_MAX, DropReason, Failure, NodeState, PROPAGATION_TIMEOUT_MS};
use crate::channel::tests::{
    ONE, OTHER, SEGMENT_BYTES, TIMEOUT_MS, at, channel, config, id, limits, message, named,
    payload, segments, settings,
};
use crate::channel::{
    Arrival, Channel, Chunks, Event, Outcome, OutcomeKind, OwnSend, Segmentation, Submission, Told,
};
use crate::sds::{Config, Kinds, Octets, Transmit, TransmitKind};
use crate::segment::Parameters;
use crate::wire::sds::{Message, WireFormat};

const MESSAGE: &str = "message";
const THIRD: &str = "33333333333333333333333333333333";
const EPHEMERAL: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
const FAILED: Failure<'_> = Failure {
    error: "down",
    permanent: false,
    unanswered: false,
    retry_after_ms: None,
};
const REFUSED: Failure<'_> = Failure {
    error: "no proof",
    permanent: true,
    ..FAILED
};
const SILENT: Failure<'_> = Failure {
    error: "said nothing",
    unanswered: true,
    ..FAILED
};
/// A node that was not asked yet.
const READY: NodeState = NodeState {
    online: true,
    held_ms: 0,
    failures: 0,
};

/// A participant who hears nobody.
struct Alice {
    channel: Channel,
    now_ms: i64,
    allowances: Vec<Allowance>,
    is_limited: bool,
}

/// So many places, of which `reserve` are for acknowledgements.
fn places(left: i64, reserve: i64, free: Kinds) -> Allowance {
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
fn messages(left: i64) -> Allowance {
    let free = Kinds::NONE
        .with(TransmitKind::Further)
        .with(TransmitKind::Retransmission);
    places(left, 0, free)
}

impl Alice {
    fn new() -> Self {
        Alice::of(config())
    }

    fn of(config: Config) -> Self {
        let segmentation = Segmentation {
            parameters: Parameters::new(settings()).unwrap(),
            limits: limits(),
        };
        let channel = channel(&config, segmentation, 0);
        channel.own().listened().set(u16::MAX);
        Alice {
            channel,
            now_ms: 0,
            allowances: Vec::new(),
            is_limited: false,
        }
    }

    fn submit(&mut self, send_id: &str, data_count: u32, parity_count: u32) {
        let contents = segments(&payload(1, data_count as usize * SEGMENT_BYTES));
        let contents = contents
            .into_iter()
            .take((data_count + parity_count) as usize);
        let submission = Submission {
            send_id,
            request_id: &format!("r{}", &send_id[..1]),
            message_id: MESSAGE,
            contents: contents.map(Octets::from).collect(),
            data_count,
            reserve: 0,
            form: "",
        };
        self.channel.submit(submission).unwrap();
    }

    fn submit_ephemeral(&mut self) {
        let ids = ("re", MESSAGE);
        let content = Octets::from(vec![1; 100]);
        let channel = &mut self.channel;
        channel.submit_ephemeral(EPHEMERAL, ids, content, &self.allowances);
    }

    /// What is handed out now.
    fn poll(&mut self) -> Vec<Transmit> {
        let now = at(self.now_ms);
        let (transmits, is_limited) = self.channel.poll_transmits(&self.allowances, now);
        self.is_limited = is_limited;
        transmits
    }

    /// The same, and it is handed to the node.
    fn leave(&mut self) -> Vec<u64> {
        let left = self.poll().into_iter().map(|transmit| transmit.transmit_id);
        let left: Vec<u64> = left.collect();
        for &id in &left {
            assert!(self.channel.leave(id, self.now_ms));
        }
        left
    }

    fn propagated(&mut self, id: u64) -> bool {
        let now = at(self.now_ms);
        self.channel.handle_propagated(id, b"hash", now)
    }

    fn failed(&mut self, id: u64, failure: Failure<'_>) {
        self.channel.announce_failure();
        assert!(!self.may_try());
        self.channel.handle_failed(id, failure, at(self.now_ms));
    }

    fn may_try(&self) -> bool {
        self.channel.may_try(self.now_ms)
    }

    fn state(&self) -> NodeState {
        self.channel.node_state(at(self.now_ms))
    }

    fn wait(&mut self, ms: i64) {
        self.now_ms += ms;
        self.channel.handle_time(true, at(self.now_ms));
    }

    fn wake_in_ms(&mut self) -> Option<i64> {
        let now = at(self.now_ms);
        let allowances = self.allowances.clone();
        let wake_ms = self
            .channel
            .next_wake_ms(&allowances, self.now_ms + 777, now)?;
        Some(wake_ms - self.now_ms)
    }

    /// Carol says something, now.
    fn hear(&mut self, said: Message) {
        let said = Message {
            lamport_timestamp: Some(at(self.now_ms).epoch_ms as u64),
            ..said
        };
        let data = Octets::from(said.encode(config().wire_format).unwrap());
        let arrival = Arrival {
            data: &data,
            retrieval_hint: None,
            authenticated_sender: None,
            from_store: false,
            observed: false,
        };
        assert!(self.channel.handle_message(&arrival, at(self.now_ms)));
    }

    /// The next message of a kind that is handed to the node, which takes all before it.
    fn leave_next(&mut self, kind: TransmitKind) -> u64 {
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

    fn announced(&mut self) {
        let own = self.channel.own_mut();
        own.on_announced(ONE, OutcomeKind::Failed, "r1");
    }

    /// What the application is told of requests.
    fn told(&mut self) -> Vec<String> {
        let told = self.channel.own_mut().poll_told().into_iter();
        let text = |told: Told| match told {
            Told::Chunks {
                what,
                request_id,
                chunks,
                ..
            } => match what {
                Chunks::Sending => format!("{request_id} sending {chunks:?}"),
                Chunks::Sent => format!("{request_id} took {chunks:?}"),
                Chunks::Failed { error } => format!("{request_id} failed {chunks:?} {error}"),
                other => format!("{request_id} {other:?}"),
            },
            Told::Outcome {
                what, request_id, ..
            } => match what {
                Outcome::Failed { stage, error } => {
                    format!("{request_id} error {} {error}", stage.name())
                }
                Outcome::Sent => format!("{request_id} sent"),
                Outcome::Delivered { .. } => format!("{request_id} delivered"),
            },
            Told::Dropped {
                request_id, reason, ..
            } => format!("{request_id} dropped {}", reason.name()),
        };
        told.map(text).collect()
    }

    fn outcomes(&mut self) -> Vec<String> {
        let told = self.told().into_iter();
        let is_outcome = |told: &String| !told.contains(" sending ") && !told.contains(" took ");
        told.filter(is_outcome).collect()
    }

    /// What the log and the application are told of the node.
    fn events(&mut self) -> Vec<String> {
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
    fn begins_anew(&mut self) -> bool {
        let submission = Submission {
            send_id: ONE,
            request_id: "again",
            message_id: MESSAGE,
            contents: vec![Octets::from(vec![1; 50])],
            data_count: 1,
            reserve: 0,
            form: "",
        };
        self.channel.submit(submission).unwrap();
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
        alice.channel.handle_connection(false);
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
        alice.channel.handle_connection(true);
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
    let told = Told::Chunks {
        what: Chunks::Sent,
        message_id: MESSAGE.into(),
        request_id: "re".into(),
        chunks: vec![0],
        total: 1,
    };
    assert_eq!(alice.channel.own_mut().poll_told(), [told]);
}

#[test]
fn an_ephemeral_message_that_the_node_has_ends_with_what_that_says() {
    let mut alice = Alice::of(Config {
        max_retransmissions: 0,
        ..config()
    });
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

// --- failures --------------------------------------------------------------------------------------

#[test]
fn a_node_that_failed_is_left_alone_the_longer_the_more_often() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let pauses_ms = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    for (number, pause_ms) in (1..).zip(pauses_ms) {
        // Each failure counts for the send once in an acknowledgement timeout.
        let left = alice.leave();
        if left.is_empty() {
            break;
        }
        alice.failed(left[0], FAILED);
        assert_eq!(alice.state().failures, number);
        assert!(!alice.may_try());
        assert_eq!(alice.poll(), []);
        assert!(!alice.is_limited);
        alice.wait(pause_ms - 1);
        assert!(!alice.may_try(), "after {number}");
        assert_eq!(alice.wake_in_ms(), Some(1));
        alice.wait(1);
        assert!(alice.may_try());
    }
    let counts = alice.channel.dispatch_counts();
    assert!(counts.failures > 3);
}

#[test]
fn that_the_node_fails_is_told_once_and_that_it_does_no_longer() {
    let mut alice = Alice::of(Config {
        max_retransmissions: 100,
        ..config()
    });
    alice.submit(ONE, 1, 0);
    let mut told = Vec::new();
    for _ in 0..5 {
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        told.extend(alice.events());
        alice.wait(30_000);
    }
    // Its place is taken since the first time.
    let known = "further failed, known true";
    assert_eq!(
        told,
        [
            "first failed, known false",
            known,
            known,
            "failing 3 down",
            known,
            known
        ]
    );
    let left = alice.leave();
    alice.propagated(left[0]);
    assert_eq!(alice.events(), ["recovered 5, told true"]);
    assert_eq!(alice.state(), READY);
    // The next failure is a first one again.
    alice.submit(OTHER, 2, 0);
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    alice.wait(500);
    assert!(alice.may_try());
    alice.propagated(left[1]);
    assert_eq!(
        alice.events(),
        ["first failed, known false", "recovered 1, told false"]
    );
}

#[test]
fn that_the_node_recovered_is_told_as_news_where_its_failing_was() {
    for (failures, is_news) in [(2, false), (3, true)] {
        let mut alice = Alice::new();
        alice.submit(ONE, 1, 0);
        for _ in 0..failures {
            let left = alice.leave();
            alice.failed(left[0], FAILED);
            alice.wait(2_000);
        }
        alice.events();
        let left = alice.leave();
        alice.propagated(left[0]);
        let expected = format!("recovered {failures}, told {is_news}");
        assert_eq!(alice.events(), [expected]);
    }
}

#[test]
fn each_failure_is_told_in_its_turn_and_whether_it_is_one_of_the_node() {
    let mut alice = Alice::new();
    for number in 1..=6 {
        alice.submit(&number.to_string().repeat(32), 1, 0);
    }
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    alice.failed(left[1], FAILED);
    alice.propagated(left[2]);
    // It left before the node failed.
    alice.failed(left[3], FAILED);
    alice.failed(left[4], REFUSED);
    let held = Failure {
        retry_after_ms: Some(20_000),
        ..FAILED
    };
    alice.failed(left[5], held);
    let expected = [
        "first failed, known false",
        "first failed, known true",
        "recovered 1, told false",
        "first failed, known true",
        "first failed, known false",
        "holds 20000",
    ];
    assert_eq!(alice.events(), expected);
    let counts = alice.channel.dispatch_counts();
    assert_eq!((counts.failures, counts.held), (4, 1));
    assert_eq!(alice.state().failures, 0);
}

#[test]
fn a_node_that_takes_what_left_after_its_failure_is_tried_at_once() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let prepared = alice.poll();
    let [first, second] = [0, 1].map(|place: usize| prepared[place].transmit_id);
    alice.channel.leave(first, 0);
    alice.failed(first, FAILED);
    alice.now_ms = 10;
    // It was on its way.
    alice.channel.leave(second, 10);
    alice.propagated(second);
    assert!(alice.may_try());
}

#[test]
fn a_refusal_says_nothing_of_the_node_where_others_asked_for_the_message() {
    for (kind, failure, failures) in [
        (TransmitKind::Repair, REFUSED, 0),
        (TransmitKind::Repair, FAILED, 1),
        (TransmitKind::Sync, REFUSED, 1),
    ] {
        let mut alice = Alice::new();
        let content = &segments(&payload(1, 100))[0];
        alice.hear(message("carol", &id(OTHER, 0), content));
        alice.hear(Message {
            content: None,
            repair_request: vec![named(&id(OTHER, 0), Some("carol"))],
            ..message("dave", "asks", b"")
        });
        let left = alice.leave_next(kind);
        alice.failed(left, failure);
        assert_eq!(alice.state().failures, failures, "{kind:?} {failure:?}");
    }
}

#[test]
fn what_left_before_a_failure_says_nothing_new_of_the_node() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let left = alice.leave();
    alice.now_ms = 10;
    alice.failed(left[0], FAILED);
    alice.failed(left[1], FAILED);
    assert_eq!(alice.state().failures, 1);
    // It answers for what it took before: it is there, and tried again soon.
    alice.propagated(left[2]);
    assert_eq!(alice.state().failures, 0);
    alice.now_ms = 59;
    assert!(!alice.may_try());
    alice.now_ms = 60;
    assert!(alice.may_try());
    assert_eq!(alice.leave().len(), 2);
}

#[test]
fn a_hold_is_no_failure_and_told_once() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let held = |retry_after_ms| Failure {
        retry_after_ms: Some(retry_after_ms),
        ..FAILED
    };
    let left = alice.leave();
    alice.failed(left[0], held(20_000));
    assert_eq!(alice.events(), ["holds 20000"]);
    alice.failed(left[1], held(30_000));
    assert_eq!(alice.events(), [""; 0]);
    assert_eq!(
        alice.state(),
        NodeState {
            held_ms: 30_000,
            ..READY
        }
    );
    // A shorter one changes nothing.
    alice.failed(left[2], held(0));
    assert_eq!(alice.state().held_ms, 30_000);
    let counts = alice.channel.dispatch_counts();
    assert_eq!((counts.held, counts.failures), (3, 0));
    alice.wait(29_999);
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    let left = alice.leave();
    assert_eq!(left.len(), 3);
    // Longer than ten seconds after what was told: news.
    alice.failed(left[0], held(20_000));
    assert_eq!(alice.events(), ["holds 20000"]);
    // No node names more than a day.
    alice.failed(left[1], held(i64::MAX));
    assert_eq!(alice.state().held_ms, 24 * 3_600_000);
    // While it refuses everything it may keep what it has.
    alice.wait(PROPAGATION_TIMEOUT_MS);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    alice.propagated(left[2]);
    assert_eq!(alice.outcomes().len(), 1);
}

#[test]
fn a_hold_is_news_again_once_something_was_taken_after_the_last() {
    let held = Failure {
        retry_after_ms: Some(5_000),
        ..FAILED
    };
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let left = alice.leave();
    alice.failed(left[0], held);
    assert_eq!(alice.events(), ["holds 5000"]);
    // What it took before the hold says nothing of the hold.
    alice.propagated(left[1]);
    alice.failed(left[2], held);
    assert_eq!(alice.events(), [""; 0]);
    alice.wait(5_000);
    let left = alice.leave();
    alice.propagated(left[0]);
    alice.failed(left[1], held);
    assert_eq!(alice.events(), ["holds 5000"]);
}

#[test]
fn a_node_that_promises_a_short_time_again_and_again_is_asked_less_and_less_often() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    for hold_ms in [500, 1_000, 2_000, 4_000] {
        let failure = Failure {
            retry_after_ms: Some(0),
            ..FAILED
        };
        // However many it refuses at a time.
        for left in alice.leave() {
            alice.failed(left, failure);
        }
        assert_eq!(alice.state().held_ms, hold_ms);
        alice.wait(hold_ms);
    }
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_hold_that_can_never_end_is_a_refusal() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    let failure = Failure {
        retry_after_ms: Some(1_000),
        ..REFUSED
    };
    alice.failed(left[0], failure);
    assert_eq!(alice.state(), READY);
    let error = ["r1 failed [0] no proof", "r1 error dispatch no proof"];
    assert_eq!(alice.outcomes(), error);
}

#[test]
fn a_send_that_waits_for_a_failing_node_too_long_is_given_up_with_what_waits_beside_it() {
    let mut alice = Alice::of(Config {
        max_retransmissions: 2,
        acknowledgement_timeout_ms: 5_000,
        ..config()
    });
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    for number in 0..3 {
        let left = alice.leave();
        assert_eq!(left.len(), 2);
        assert_eq!(alice.outcomes(), [""; 0], "{number}");
        alice.failed(left[0], FAILED);
        // One failure of the node, however many messages it hits and however soon the next follows.
        alice.wait(4_999);
        if let Some(again) = alice.leave().first() {
            alice.failed(*again, FAILED);
        }
        alice.failed(left[1], FAILED);
        alice.wait(30_000);
    }
    let outcomes = alice.outcomes();
    for request in ["r1", "r2"] {
        assert!(
            outcomes.contains(&format!("{request} error dispatch down")),
            "{outcomes:?}"
        );
    }
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
}

#[test]
fn failures_of_the_node_count_for_a_send_once_in_an_acknowledgement_timeout() {
    for (wait_ms, is_given_up) in [(4_999, false), (5_000, true)] {
        let mut alice = Alice::of(Config {
            max_retransmissions: 1,
            acknowledgement_timeout_ms: 5_000,
            ..config()
        });
        alice.now_ms = 100_000;
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        assert_eq!(alice.outcomes(), [""; 0]);
        alice.wait(wait_ms);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        assert_eq!(!alice.outcomes().is_empty(), is_given_up, "{wait_ms}");
    }
}

#[test]
fn failures_of_the_node_count_anew_for_a_send_that_propagated_or_begins_anew() {
    let mut alice = Alice::of(Config {
        max_retransmissions: 1,
        acknowledgement_timeout_ms: 5_000,
        ..config()
    });
    alice.submit(OTHER, 2, 0);
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    alice.propagated(left[1]);
    alice.wait(5_000);
    for id in alice.leave() {
        alice.failed(id, FAILED);
    }
    assert_eq!(alice.outcomes(), [""; 0]);

    let mut alice = Alice::of(Config {
        max_retransmissions: 1,
        acknowledgement_timeout_ms: 5_000,
        ..config()
    });
    alice.submit(ONE, 1, 0);
    for outcomes in [0, 2] {
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        assert_eq!(alice.outcomes().len(), outcomes);
        alice.wait(5_000);
    }
    alice.announced();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.failed(left[0], FAILED);
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_failure_of_the_node_counts_for_no_send_that_a_store_has() {
    for is_stored in [false, true] {
        let mut alice = Alice::of(Config {
            max_retransmissions: 0,
            ..config()
        });
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        if is_stored {
            alice.channel.handle_stored(ONE, 0, at(0));
        }
        alice.failed(left[0], FAILED);
        assert_eq!(alice.outcomes().is_empty(), is_stored);
    }
}

#[test]
fn what_goes_again_to_a_failing_node_in_vain_ends_as_what_nobody_acknowledged() {
    let mut alice = Alice::of(Config {
        max_retransmissions: 1,
        acknowledgement_timeout_ms: 5_000,
        ..config()
    });
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    for _ in 0..2 {
        alice.wait(5_000);
        assert_eq!(alice.outcomes(), [""; 0]);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
    }
    alice.events();
    let error = "1 of 1 segments were not acknowledged after the last retransmission";
    assert_eq!(alice.outcomes(), [format!("r1 error delivery {error}")]);
}

#[test]
fn what_can_never_be_sent_again_ends_its_message() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.propagated(left[0]);
    let left = alice.leave_next(TransmitKind::Retransmission);
    alice.failed(left, REFUSED);
    let told = [
        "r1 sent",
        "r1 failed [0] no proof",
        "r1 error delivery no proof",
    ];
    assert_eq!(alice.outcomes(), told);
    for _ in 0..60 {
        alice.wait(1_000);
        assert_eq!(alice.poll(), []);
    }
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn what_can_never_be_sent_takes_no_other_send_with_it() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let left = alice.leave();
    alice.failed(left[0], REFUSED);
    assert!(alice.propagated(left[1]));
    assert!(alice.outcomes().contains(&"r2 sent".to_owned()));
}

#[test]
fn what_can_never_be_sent_ends_its_message_and_nothing_more_of_it_leaves() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    let prepared = alice.poll();
    alice.channel.leave(prepared[0].transmit_id, 0);
    alice.failed(prepared[0].transmit_id, REFUSED);
    let error = ["r1 failed [0] no proof", "r1 error dispatch no proof"];
    assert_eq!(alice.outcomes(), error);
    for transmit in &prepared[1..] {
        assert!(!alice.channel.leave(transmit.transmit_id, 0));
    }
    assert_eq!(alice.poll(), []);
    // The node is as good as before.
    assert_eq!(alice.state(), READY);
    assert_eq!(alice.events(), ["first failed, known false"]);
}

#[test]
fn parity_that_can_never_be_sent_is_done_without() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 1);
    let left = alice.leave();
    alice.failed(left[2], REFUSED);
    alice.propagated(left[0]);
    alice.propagated(left[1]);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    assert_eq!(alice.channel.dispatch_counts().parity_left_out, 1);
    alice.wait(60_000);
    assert!(
        alice
            .poll()
            .iter()
            .all(|transmit| transmit.ordinal != Some(2))
    );
}

#[test]
fn parity_that_a_failing_node_did_not_take_leaves_again() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 1);
    let left = alice.leave();
    alice.propagated(left[0]);
    alice.propagated(left[1]);
    alice.failed(left[2], FAILED);
    assert_eq!(alice.channel.dispatch_counts().parity_left_out, 0);
    alice.wait(500);
    let again: Vec<_> = alice.poll().iter().map(|again| again.ordinal).collect();
    assert_eq!(again, [Some(2)]);
}

#[test]
fn a_send_of_which_more_parity_can_be_made_ends_without_parity_that_can_never_be_sent() {
    let mut alice = Alice::new();
    let contents = segments(&payload(1, 2 * SEGMENT_BYTES)).into_iter().take(3);
    let submission = Submission {
        send_id: ONE,
        request_id: "r1",
        message_id: MESSAGE,
        contents: contents.map(Octets::from).collect(),
        data_count: 2,
        reserve: 4,
        form: "raw leopard",
    };
    alice.channel.submit(submission).unwrap();
    let left = alice.leave();
    alice.propagated(left[0]);
    alice.propagated(left[1]);
    alice.failed(left[2], REFUSED);
    assert_eq!(alice.outcomes(), ["r1 sent"]);
    let mut told = Vec::new();
    for _ in 0..300 {
        alice.wait(1_000);
        for id in alice.leave() {
            alice.propagated(id);
        }
        told.extend(alice.outcomes());
    }
    let [error] = &told[..] else {
        panic!("it ends once, not {told:?}")
    };
    assert!(error.starts_with("r1 error delivery"), "{error}");
}

#[test]
fn a_segment_that_fits_no_longer_ends_its_message_unless_it_is_parity_or_has_left() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 1);
    alice.submit(OTHER, 1, 0);
    let now = at(0);
    alice.channel.fail_oversized(ONE, 2, "too large", now);
    assert_eq!(alice.outcomes(), [""; 0]);
    alice.channel.fail_oversized(ONE, 1, "too large", now);
    let error = ["r1 failed [1] too large", "r1 error dispatch too large"];
    assert_eq!(alice.outcomes(), error);
    assert_eq!(alice.leave().len(), 1);
    alice.channel.fail_oversized(OTHER, 0, "too large", now);
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_node_that_says_nothing_is_waited_for_so_long() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.wait(PROPAGATION_TIMEOUT_MS - 1);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    assert_eq!(alice.state().failures, 1);
    // What it says afterwards comes too late.
    assert!(!alice.propagated(left[0]));
}

#[test]
fn each_message_that_the_node_says_nothing_of_is_given_up_in_its_time() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
        assert_eq!(alice.leave().len(), 1);
        alice.wait(20_000);
    }
    assert_eq!(alice.now_ms, PROPAGATION_TIMEOUT_MS);
    assert_eq!(alice.channel.dispatches_in_flight(), 2);
    // The node is tried again before it is looked at once more.
    assert_eq!(alice.wake_in_ms(), Some(500));
    alice.wait(19_999);
    assert_eq!(alice.channel.dispatches_in_flight(), 2);
    assert_eq!(alice.wake_in_ms(), Some(1));
    alice.wait(1);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    // However late it is looked at.
    alice.wait(25_000);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
}

#[test]
fn a_slow_node_that_answers_in_turn_is_not_silent() {
    let mut alice = Alice::new();
    for send_id in [ONE, OTHER, THIRD] {
        alice.submit(send_id, 1, 0);
    }
    let left = alice.leave();
    for id in left {
        alice.wait(PROPAGATION_TIMEOUT_MS - 1);
        assert!(alice.propagated(id));
    }
    assert_eq!(alice.state(), READY);
}

#[test]
fn a_node_that_answers_for_later_ones_lost_the_earlier() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let lost = alice.leave()[0];
    alice.wait(1_000);
    alice.submit(OTHER, 1, 0);
    let later = alice.leave()[0];
    alice.wait(50_000);
    alice.propagated(later);
    alice.wait(8_999);
    assert_eq!(alice.channel.dispatches_in_flight(), 1);
    alice.wait(1);
    assert!(!alice.channel.leave(lost, alice.now_ms));
}

#[test]
fn what_waits_to_be_handed_over_is_not_given_up() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let prepared = alice.poll();
    for _ in 0..3 {
        alice.wait(PROPAGATION_TIMEOUT_MS);
    }
    let id = prepared[0].transmit_id;
    assert!(alice.channel.leave(id, alice.now_ms));
    alice.wait(PROPAGATION_TIMEOUT_MS - 1);
    assert!(alice.propagated(id));
}

#[test]
fn an_announced_failure_holds_back_everything_until_it_is_applied() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let left = alice.leave();
    alice.channel.announce_failure();
    alice.channel.announce_failure();
    alice.channel.handle_failed(left[0], REFUSED, at(0));
    assert!(!alice.may_try());
    // Of one that nobody waits for any longer too.
    alice.channel.handle_failed(left[0], REFUSED, at(0));
    assert!(alice.may_try());
    alice.channel.handle_connection(false);
    assert!(!alice.may_try());
    assert!(!alice.state().online);
}

// --- what is taken back ----------------------------------------------------------------------------

#[test]
fn what_was_not_stored_or_not_answered_leaves_again() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    let ids = |transmits: Vec<Transmit>| -> Vec<u64> {
        transmits
            .iter()
            .map(|transmit| transmit.transmit_id)
            .collect()
    };
    let unstored = ids(alice.poll());
    alice
        .channel
        .handle_commit_failed(&unstored, "disk full", at(0));
    assert!(!alice.channel.leave(unstored[0], 0));
    let stopped = alice.leave();
    assert_eq!(stopped.len(), 2);
    alice.allowances = vec![messages(1)];
    alice.channel.handle_stopped(at(0));
    let late = ids(alice.poll());
    alice.channel.handle_late(late[0], at(0));
    alice.channel.handle_stopped(at(0));
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    assert_eq!(alice.outcomes(), [""; 0]);
    for id in alice.leave() {
        assert!(alice.propagated(id));
    }
    assert_eq!(alice.outcomes(), ["r1 sent"]);
}

#[test]
fn what_was_taken_back_before_it_left_takes_a_place_when_it_leaves() {
    type Act = fn(&mut Alice, &[Transmit]);
    let unstored: Act = |alice, prepared| {
        let ids: Vec<u64> = prepared
            .iter()
            .map(|transmit| transmit.transmit_id)
            .collect();
        alice.channel.handle_commit_failed(&ids, "disk full", at(0));
    };
    let stopped: Act = |alice, _| alice.channel.handle_stopped(at(0));
    let late: Act = |alice, prepared| {
        for transmit in prepared {
            alice.channel.handle_late(transmit.transmit_id, at(0));
        }
        alice.channel.handle_stopped(at(0));
    };
    let acts = [unstored, stopped, late].into_iter();
    for (act, waits) in acts.flat_map(|act| [(act, false), (act, true)]) {
        let mut alice = Alice::new();
        alice.submit(ONE, 2, 0);
        alice.allowances = vec![messages(1)];
        let prepared = alice.poll();
        act(&mut alice, &prepared);
        if waits {
            alice.allowances = vec![messages(0)];
            assert_eq!(alice.poll(), []);
            assert!(alice.is_limited);
        }
        alice.allowances = vec![messages(1)];
        let kinds = alice.poll().into_iter().map(|transmit| transmit.kind);
        let kinds: Vec<TransmitKind> = kinds.collect();
        assert_eq!(kinds, [TransmitKind::First, TransmitKind::Further]);
        assert_eq!(alice.channel.unplaced(), 1);
    }
    // What has left has its place.
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.leave();
    alice.channel.handle_stopped(at(0));
    alice.allowances = vec![messages(0)];
    assert_eq!(alice.poll().len(), 1);
}

#[test]
fn each_send_that_was_taken_back_before_it_left_takes_a_place() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let ids: Vec<u64> = alice.poll().iter().map(|it| it.transmit_id).collect();
    alice.channel.handle_commit_failed(&ids, "disk full", at(0));
    for (left, count) in [(0, 0), (1, 1), (0, 0), (1, 1)] {
        alice.allowances = vec![messages(left)];
        let prepared = alice.poll();
        assert_eq!(prepared.len(), count);
        for transmit in prepared {
            assert_eq!(transmit.kind, TransmitKind::First);
            assert!(alice.channel.leave(transmit.transmit_id, 0));
        }
    }
}

#[test]
fn the_rest_of_a_send_that_was_taken_back_takes_no_second_place() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    alice.allowances = vec![messages(1)];
    let prepared = alice.poll();
    assert!(alice.channel.leave(prepared[0].transmit_id, 0));
    let rest = [prepared[1].transmit_id];
    alice
        .channel
        .handle_commit_failed(&rest, "disk full", at(0));
    alice.allowances = vec![messages(0)];
    let kinds: Vec<_> = alice.poll().iter().map(|again| again.kind).collect();
    assert_eq!(kinds, [TransmitKind::Further]);
}

#[test]
fn a_node_that_was_silent_may_have_sent_it_until_it_says_otherwise() {
    let says: [fn(&mut Alice, u64); 2] = [
        |alice, _| alice.wait(PROPAGATION_TIMEOUT_MS),
        |alice, id| alice.failed(id, SILENT),
    ];
    for (say, count) in says.into_iter().flat_map(|say| [(say, 1), (say, 2)]) {
        let mut alice = Alice::of(Config {
            max_retransmissions: 0,
            ..config()
        });
        alice.submit(ONE, count, 0);
        let left = alice.leave();
        say(&mut alice, left[0]);
        alice.announced();
        for id in left {
            assert!(!alice.channel.own().never_left(ONE));
            alice.failed(id, REFUSED);
        }
        assert!(alice.begins_anew());
    }
}

#[test]
fn of_more_than_the_node_may_have_to_answer_for_the_oldest_counts_as_sent() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 1, 0);
    let prepared = alice.poll();
    let (dispatch, own) = (&mut alice.channel.dispatch, &mut alice.channel.own);
    dispatch.unanswered.add(&prepared[0], own);
    for transmit_id in 1_000..1_000 + DISPATCHES_MAX as u64 {
        let transmit = Transmit {
            transmit_id,
            ..prepared[1].clone()
        };
        dispatch.unanswered.add(&transmit, own);
    }
    for transmit_id in [prepared[0].transmit_id, 1_000] {
        dispatch.unanswered.on_answer(transmit_id, true, own);
    }
    let unanswered = |send_id| own.get(send_id).unwrap().unanswered;
    let expected = (1, DISPATCHES_MAX as u32 - 1);
    assert_eq!((unanswered(ONE), unanswered(OTHER)), expected);
}

#[test]
fn nothing_of_a_send_left_once_the_node_has_refused_all_that_it_was_handed() {
    for (answered, is_told) in (0..3).flat_map(|answered| [(answered, false), (answered, true)]) {
        let mut alice = Alice::new();
        alice.submit(ONE, 3, 0);
        let left = alice.leave();
        // The node has yet to answer for two when the third fails for good.
        alice.failed(left[2], REFUSED);
        for &id in &left[..answered] {
            // Of one that was refused before nothing more is known.
            alice.failed(id, REFUSED);
            alice.failed(id, REFUSED);
        }
        if is_told {
            let own = alice.channel.own_mut();
            own.on_announced(ONE, OutcomeKind::Failed, "r1");
        }
        let expected = is_told && answered == 2;
        assert_eq!(alice.begins_anew(), expected, "{answered} {is_told}");
    }
}

#[test]
fn something_may_have_left_where_the_node_says_anything_else() {
    let says: [fn(&mut Alice, u64); 3] = [
        |alice, id| assert!(!alice.propagated(id)),
        |alice, id| alice.failed(id, SILENT),
        |alice, id| alice.channel.handle_late(id, at(0)),
    ];
    for say in says {
        let mut alice = Alice::new();
        alice.submit(ONE, 2, 0);
        let left = alice.leave();
        alice.failed(left[1], REFUSED);
        say(&mut alice, left[0]);
        // It has said what it has to say.
        alice.failed(left[0], REFUSED);
        let own = alice.channel.own_mut();
        own.on_announced(ONE, OutcomeKind::Failed, "r1");
        assert!(!alice.begins_anew());
    }
}

#[test]
fn what_was_handed_over_for_another_send_of_the_same_id_counts_for_none() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    let prepared = alice.poll();
    let id = prepared[0].transmit_id;
    alice.channel.handle_stopped(at(0));
    // Handed over all the same, say by what an earlier life left behind.
    let (dispatch, own) = (&mut alice.channel.dispatch, &mut alice.channel.own);
    dispatch.unanswered.add(&prepared[0], own);
    alice.channel.withdraw("r1");
    assert!(alice.channel.own().get(ONE).is_none());
    let own = &mut alice.channel.own;
    let send = OwnSend::new("r1".into(), MESSAGE.into(), 1, 1, "");
    own.register(ONE, send);
    own.on_unanswered(ONE);
    own.on_irrecoverable(ONE, 0, "no proof");
    own.on_announced(ONE, OutcomeKind::Failed, "r1");
    alice.failed(id, REFUSED);
    assert!(!alice.channel.own().never_left(ONE));
}

#[test]
fn a_late_message_of_a_send_that_is_given_up_does_not_leave() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    let left = alice.leave();
    alice.channel.handle_late(left[1], at(0));
    alice.failed(left[0], REFUSED);
    let own = alice.channel.own_mut();
    own.on_announced(ONE, OutcomeKind::Failed, "r1");
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.channel.dispatches_in_flight(), 0);
    // The node has yet to say that it did not take the third.
    assert!(!alice.channel.own().never_left(ONE));
    alice.failed(left[2], REFUSED);
    assert!(alice.channel.own().never_left(ONE));
}

#[test]
fn a_send_whose_late_first_was_taken_back_begins_anew() {
    let mut alice = Alice::new();
    alice.submit(ONE, 2, 0);
    let left = alice.leave();
    alice.channel.handle_late(left[0], at(0));
    alice.failed(left[1], REFUSED);
    let own = alice.channel.own_mut();
    own.on_announced(ONE, OutcomeKind::Failed, "r1");
    alice.submit(ONE, 2, 0);
    // The second waits behind no first of the send before, and takes no place in its stead.
    let kinds: Vec<_> = alice.poll().iter().map(|transmit| transmit.kind).collect();
    assert_eq!(kinds, [TransmitKind::First, TransmitKind::Further]);
}

#[test]
fn nothing_of_a_cancelled_send_leaves_that_the_node_does_not_have() {
    let mut alice = Alice::new();
    alice.submit(ONE, 3, 0);
    alice.submit(OTHER, 1, 0);
    alice.allowances = vec![places(4, 0, Kinds::NONE)];
    let prepared: Vec<u64> = alice.poll().iter().map(|it| it.transmit_id).collect();
    assert!(alice.channel.leave(prepared[0], 0));
    alice.channel.handle_late(prepared[1], at(0));
    assert!(alice.channel.cancel("r1").unwrap().0);
    // One is with the node, and one is another's.
    assert_eq!(alice.channel.dispatches_in_flight(), 2);
    assert_eq!(alice.channel.unplaced(), 1);
    assert!(!alice.channel.leave(prepared[2], 0));
    // Its owner says that it is late.
    alice.channel.handle_late(prepared[2], at(0));
    assert_eq!(alice.poll(), []);
    assert!(alice.channel.leave(prepared[3], 0));
    assert!(alice.propagated(prepared[0]));
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn a_send_begun_anew_after_it_was_cancelled_has_failed_no_node() {
    let mut alice = Alice::of(Config {
        max_retransmissions: 1,
        acknowledgement_timeout_ms: 5_000,
        ..config()
    });
    for _ in 0..2 {
        alice.submit(ONE, 1, 0);
        let left = alice.leave();
        alice.failed(left[0], FAILED);
        alice.wait(5_000);
        assert!(alice.channel.cancel("r1").unwrap().0);
    }
    assert_eq!(alice.outcomes(), [""; 0]);
}

#[test]
fn what_is_late_of_one_send_outlives_another() {
    let mut alice = Alice::new();
    alice.submit(ONE, 1, 0);
    alice.submit(OTHER, 2, 0);
    let left = alice.leave();
    for &id in &left[1..] {
        alice.channel.handle_late(id, at(0));
    }
    alice.failed(left[0], REFUSED);
    let kinds: Vec<TransmitKind> = alice
        .poll()
        .into_iter()
        .map(|transmit| transmit.kind)
        .collect();
    assert_eq!(kinds, [TransmitKind::First, TransmitKind::Further]);
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
    let mut alice = Alice::of(Config {
        max_retransmissions: 0,
        acknowledgement_timeout_ms: 5_000,
        ..config()
    });
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
    assert_eq!(alice.channel.next_expiry_ms(), Some(TIMEOUT_MS));
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
    alice.channel.handle_connection(false);
    assert_eq!(alice.poll(), []);
    assert_eq!(alice.wake_in_ms(), None);
    alice.channel.handle_connection(true);
    assert_eq!(alice.poll().len(), 1);
    assert_ne!(alice.wake_in_ms(), Some(1_000));
}

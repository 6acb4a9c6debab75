use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::sender_accounts::SenderId;
use super::tests::{limits, parameters_of};
use super::*;
use crate::erasure::ErasureCode;
use crate::wire::segment::{Header, Slot, WireFormat};

const SENDERS: [(Option<&str>, bool); 7] = [
    (Some("alice"), true),
    (Some("bob"), true),
    (Some("mallory"), true),
    (Some("mallory"), false),
    (Some("one"), false),
    (Some("two"), false),
    (None, false),
];

/// More than any of these sets gets: nothing is tried, nothing completes.
const DATA_COUNT: u16 = 10;

#[derive(Debug, Clone)]
enum Step {
    /// A segment of a payload, one of two that claim its place, of a sender.
    Receive(u8, u8, bool, usize),
    Persist,
    Restart,
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..6u8, 0..6u8, any::<bool>(), 0..SENDERS.len())
            .prop_map(|(payload, index, forged, sender)| Step::Receive(payload, index, forged, sender)),
        1 => Just(Step::Persist),
        1 => Just(Step::Restart),
        1 => Just(Step::Expire),
    ]
}

fn parameters() -> Parameters {
    parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.5)
}

fn receiver() -> Reassembler {
    let limits = Limits {
        sets_max: 5,
        sets_per_sender_max: 3,
        buffered_bytes_max: 3_000,
        buffered_bytes_per_sender_max: 900,
        unauthenticated_share: 0.5,
        candidates_per_slot_max: 2,
        timeout_ms: 40,
        ..limits()
    };
    Reassembler::new(parameters(), limits)
}

/// A segment of a payload, in its wire form.
fn segment_of(payload: u8, index: u8, content: &[u8]) -> Vec<u8> {
    let header = Header {
        entire_message_hash: [payload; 32],
        slot: Slot::Data(index),
        data_segment_count: Some(DATA_COUNT),
        parity_segment_count: Some(0),
        payload_length: None,
    };
    header.encode(WireFormat::Raw, content)
}

/// What a sender has: payload, slot and content of its segments.
type Held = BTreeSet<([u8; 32], Slot, Vec<u8>)>;

fn held_by(reassembler: &Reassembler, name: &str) -> Held {
    let mut held = Held::new();
    for set in reassembler.sets.values() {
        for candidate in set.candidates() {
            let sender = candidate.sender;
            if sender.is_authenticated() && reassembler.accounts.name(sender) == Some(name) {
                held.insert((set.hash, candidate.slot, candidate.payload.to_vec()));
            }
        }
    }
    held
}

/// The accounts, the shares and the limits against what the sets hold.
fn check(reassembler: &Reassembler) {
    let (held, limits) = (&reassembler.accounts, &reassembler.limits);
    let mut accounts: BTreeMap<SenderId, (u64, u64)> = BTreeMap::new();
    let (mut claimed_sets, mut sharers) = (0, BTreeSet::new());
    for set in reassembler.sets.values() {
        let mut shares: BTreeMap<SenderId, (u32, u64)> = BTreeMap::new();
        for candidate in set.candidates() {
            let (segments, bytes) = shares.entry(candidate.sender).or_default();
            *segments += 1;
            *bytes += candidate.charge();
            sharers.extend(candidate.sharer);
        }
        let told: BTreeMap<SenderId, (u32, u64)> = set
            .shares()
            .iter()
            .map(|share| (share.sender, (share.segments, share.bytes)))
            .collect();
        assert_eq!(shares, told);
        let slots: BTreeSet<Slot> = set.candidates().iter().map(|held| held.slot).collect();
        assert_eq!(set.slots_held(), slots.len());
        assert!(!shares.is_empty());
        let claimed = shares
            .iter()
            .filter(|(sender, _)| !sender.is_authenticated());
        let main = claimed.map(|(_, (segments, _))| *segments).max();
        assert_eq!(set.main_claimed().map(|share| share.segments), main);
        claimed_sets += u64::from(main.is_some());
        for (sender, (_, bytes)) in shares {
            let account = accounts.entry(sender).or_default();
            *account = (account.0 + 1, account.1 + bytes);
        }
    }
    for (sender, (shares, bytes)) in &accounts {
        assert_eq!(
            (held.shares(*sender), held.bytes(*sender)),
            (*shares, *bytes)
        );
        assert!(*shares <= limits.sets_per_sender_max);
        assert!(*bytes <= limits.buffered_bytes_per_sender_max);
    }
    let bytes_of = |is_counted: &dyn Fn(&SenderId) -> bool| -> u64 {
        let counted = accounts.iter().filter(|(sender, _)| is_counted(sender));
        counted.map(|(_, (_, bytes))| bytes).sum()
    };
    let claimed = (claimed_sets, bytes_of(&|sender| !sender.is_authenticated()));
    assert_eq!(held.claimed(), claimed);
    assert_eq!(held.total_bytes(), bytes_of(&|_| true));
    assert_eq!(held.senders(), accounts.len() as u64);
    sharers.extend(accounts.into_keys());
    assert_eq!(held.accounts_open(), sharers.len());
    assert!(claimed.0 <= limits.sets_max / 2 && claimed.1 <= limits.buffered_bytes_max / 2);
    assert!(reassembler.sets.len() as u64 <= limits.sets_max);
    assert!(held.total_bytes() <= limits.buffered_bytes_max);
}

fn by(sender: &str, authenticated: bool) -> Receipt<'_> {
    Receipt {
        sender: Some(sender),
        authenticated,
        ..Receipt::default()
    }
}

#[test]
fn what_a_proven_sender_takes_over_lies_in_what_it_sent() {
    let mut reassembler = Reassembler::new(parameters(), limits());
    let [claimed, proven] = [(); 2].map(|()| Arc::new(segment_of(1, 0, &[7; 4096])));
    let lent = |bytes: &Arc<Vec<u8>>| -> Lent { Arc::clone(bytes) as Lent };
    reassembler.receive_lent(&lent(&claimed), &by("mallory", false));
    assert_eq!(Arc::strong_count(&claimed), 2);
    reassembler.receive_lent(&lent(&proven), &by("alice", true));
    let held = [&claimed, &proven].map(Arc::strong_count);
    assert_eq!(held, [1, 2]);
}

#[test]
fn a_proven_sender_takes_over_no_more_than_it_may_hold() {
    let segments = [0, 1].map(|index| segment_of(1, index, &[7; 256]));
    let buffered_bytes_per_sender_max = 2 * segments[0].len() as u64 - 1;
    let limits = Limits {
        buffered_bytes_per_sender_max,
        ..limits()
    };
    let mut reassembler = Reassembler::new(parameters(), limits);
    for (bytes, receipt) in [
        (&segments[0], by("alice", true)),
        (&segments[1], by("one", false)),
        (&segments[1], by("alice", true)),
    ] {
        reassembler.receive(bytes, &receipt);
        check(&reassembler);
    }
    assert_eq!(held_by(&reassembler, "alice").len(), 1);
    assert_eq!(reassembler.stats().senders_held, 2);
}

#[test]
fn who_sent_the_same_inherits_as_much_as_it_may_hold() {
    let segments = [1, 2].map(|payload| segment_of(payload, 0, &[7; 64]));
    let limits = Limits {
        sets_per_sender_max: 1,
        buffered_bytes_per_sender_max: segments[0].len() as u64,
        ..limits()
    };
    let mut reassembler = Reassembler::new(parameters(), limits);
    reassembler.receive(&segments[0], &by("bob", true));
    reassembler.receive(&segments[0], &by("alice", true));
    reassembler.receive(&segments[1], &by("bob", true));
    check(&reassembler);
    for (name, payload) in [("alice", 1), ("bob", 2)] {
        let held: Vec<_> = held_by(&reassembler, name).into_iter().collect();
        assert_eq!(held, [([payload; 32], Slot::Data(0), vec![7; 64])]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_displaces_what_a_proven_sender_holds(steps in vec(step(), 1..120)) {
        let mut reassembler = receiver();
        let mut stored: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut at_persist = (Stats::default(), [Held::new(), Held::new()]);
        let proven = |reassembler: &Reassembler| ["alice", "bob"].map(|name| held_by(reassembler, name));
        for (now_ms, step) in (0..).zip(steps) {
            let before = proven(&reassembler);
            match step {
                Step::Receive(payload, index, forged, sender) => {
                    let (name, authenticated) = SENDERS[sender];
                    let receipt = Receipt { now_ms, sender: name, authenticated, message_key: None };
                    // Who is honest sends no two segments for one place, of which one might go.
                    let content = [if forged && sender > 1 { sender as u8 } else { 0 }; 64];
                    reassembler.receive(&segment_of(payload, index, &content), &receipt);
                    for (own, (before, after)) in before.iter().zip(proven(&reassembler)).enumerate() {
                        prop_assert!(own == sender || before.is_subset(&after));
                    }
                }
                Step::Expire => {
                    reassembler.expire(now_ms);
                }
                Step::Persist => {
                    for record in reassembler.poll_persist() {
                        match record.change {
                            Change::PutSegment => {
                                stored.insert(record.key, record.value);
                            }
                            Change::DeleteSet => stored.retain(|key, _| !key.starts_with(&record.key)),
                            other => panic!("{other:?} of a payload that cannot complete"),
                        }
                    }
                    at_persist = (reassembler.stats(), proven(&reassembler));
                }
                Step::Restart => {
                    reassembler = receiver();
                    let records = stored.iter().map(|(key, value)| (Change::PutSegment, &key[..], &value[..]));
                    reassembler.restore(records);
                    let (was, is) = (at_persist.0, reassembler.stats());
                    prop_assert_eq!((is.restore_ignored, is.dropped, is.displaced), (0, [0; 3], 0));
                    prop_assert_eq!(
                        (is.sets_held, is.bytes_held, is.senders_held),
                        (was.sets_held, was.bytes_held, was.senders_held)
                    );
                    prop_assert_eq!(&proven(&reassembler), &at_persist.1);
                }
            }
            check(&reassembler);
        }
        reassembler.expire(i64::MAX);
        check(&reassembler);
        prop_assert_eq!(reassembler.accounts.accounts_open(), 0);
    }
}

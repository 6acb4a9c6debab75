//! Parity of others: it completes what is here in part, and nothing else comes of it.

use super::poison_tests::{Random, forged};
use super::sender_accounts::ACCOUNT_BYTES;
use super::tests::{limits, parameters_of, reconstructed};
use super::*;
use crate::erasure::ErasureCode;
use crate::segment::segment;
use crate::wire::segment::{Received, WireFormat, decode};

const RAW: WireFormat = WireFormat::Raw;
const ACCOUNT: u64 = ACCOUNT_BYTES as u64;
const KEY: &[u8] = b"alice's first";
const DATA: usize = 8;

struct Receiver {
    reassembler: Reassembler,
    payload: Vec<u8>,
    /// Eight segments of data, eight of parity.
    segments: Vec<Vec<u8>>,
    random: Random,
}

fn receiver_of(limits: Limits) -> Receiver {
    let parameters = parameters_of(RAW, ErasureCode::Leopard, 1.0);
    let payload: Vec<u8> = (0..DATA * 64).map(|at| (at * at / 7) as u8).collect();
    let segments = segment(&payload, &parameters).unwrap().to_vecs();
    assert_eq!(segments.len(), 2 * DATA);
    Receiver {
        reassembler: Reassembler::new(parameters, limits),
        payload,
        segments,
        random: Random(7),
    }
}

fn receiver() -> Receiver {
    receiver_of(limits())
}

fn receipt(sender: &str) -> Receipt<'_> {
    Receipt {
        now_ms: 0,
        sender: Some(sender),
        authenticated: sender != "claimed",
        message_key: Some(KEY),
    }
}

impl Receiver {
    /// Alice's own segment comes.
    fn own(&mut self, ordinal: usize) -> Outcome {
        self.reassembler
            .receive(&self.segments[ordinal], &receipt("alice"))
    }

    /// A member's parity comes, of this index.
    fn guest(&mut self, by: &str, index: usize) -> Option<Outcome> {
        let content = &self.segments[DATA + index];
        self.reassembler.receive_guest(content, &receipt(by))
    }

    fn forged_guest(&mut self, by: &str, index: usize) -> Option<Outcome> {
        let content = forged(&self.segments[DATA + index], RAW, &mut self.random);
        self.reassembler.receive_guest(&content, &receipt(by))
    }

    fn is_payload(&self, outcome: Option<Outcome>) -> bool {
        let payload = outcome.as_ref().and_then(reconstructed);
        payload.as_ref() == Some(&self.payload)
    }

    fn assert_empty(&self) {
        let stats = self.reassembler.stats();
        let held = (stats.sets_held, stats.bytes_held, stats.senders_held);
        assert_eq!(held, (0, 0, 0));
        assert_eq!(self.accounts(), 0);
    }

    fn accounts(&self) -> usize {
        self.reassembler.accounts.accounts_open()
    }

    /// What a sender is charged with, who is proven unless called "claimed".
    fn charged(&mut self, sender: &str) -> u64 {
        let accounts = &mut self.reassembler.accounts;
        let id = accounts.open(Some(sender), sender != "claimed");
        let bytes = accounts.bytes(id);
        accounts.release(id);
        bytes
    }

    fn charged_all<const N: usize>(&mut self, senders: [&str; N]) -> [u64; N] {
        senders.map(|sender| self.charged(sender))
    }

    /// The set of which most is here.
    fn largest_set(&self) -> SetId {
        let sets = self.reassembler.sets.iter();
        let (id, _) = sets.max_by_key(|(_, set)| set.slots_held()).unwrap();
        *id
    }
}

#[test]
fn parity_of_several_members_completes_what_is_here_in_part() {
    let mut receiver = receiver();
    (0..DATA - 3).for_each(|ordinal| drop(receiver.own(ordinal)));
    let stored = receiver.guest("bob", 0);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(2),
            ..
        })
    ));
    assert!(receiver.guest("bob", 0).is_none_or(|outcome| matches!(
        outcome,
        Outcome::Stored {
            segments_held: 1,
            ..
        }
    )));
    receiver.guest("carol", 4);
    let last = receiver.guest("bob", 7);
    assert!(receiver.is_payload(last));
    receiver.assert_empty();
    assert!(receiver.guest("bob", 5).is_none());
}

#[test]
fn the_senders_own_segment_may_be_the_last_one_that_was_lacking() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 3);
    let last = receiver.own(DATA + 1);
    assert!(receiver.is_payload(Some(last)));
    receiver.assert_empty();
}

#[test]
fn of_a_payload_of_which_nothing_is_here_nothing_is_kept() {
    let mut receiver = receiver();
    for index in 0..DATA {
        assert!(receiver.guest("bob", index).is_none());
    }
    receiver.assert_empty();
    receiver.own(0);
    let data = receiver.segments[1].clone();
    let bob = receipt("bob");
    assert!(receiver.reassembler.receive_guest(&data, &bob).is_none());
    assert!(
        receiver
            .reassembler
            .receive_guest(b"no segment", &bob)
            .is_none()
    );
    let elsewhere = Receipt {
        message_key: Some(b"alice's second"),
        ..bob
    };
    let parity = receiver.segments[DATA].clone();
    assert!(
        receiver
            .reassembler
            .receive_guest(&parity, &elsewhere)
            .is_none()
    );
    assert_eq!(receiver.reassembler.stats().sets_held, 1);
}

#[test]
fn forged_parity_harms_nobody_but_itself() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    for index in 0..DATA - 1 {
        let outcome = receiver.forged_guest("mallory", index);
        assert!(!matches!(outcome, Some(Outcome::Reconstructed(_))));
    }
    // One who makes all that is lacking is believed before many.
    receiver.guest("bob", 7);
    let last = receiver.guest("bob", 0);
    assert!(receiver.is_payload(last));
    receiver.assert_empty();
}

#[test]
fn the_senders_own_segments_never_wait_for_forged_parity() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    for index in 0..DATA {
        receiver.forged_guest("mallory", index);
    }
    receiver.own(DATA - 2);
    let last = receiver.own(DATA - 1);
    assert!(receiver.is_payload(Some(last)));
    receiver.assert_empty();
}

#[test]
fn what_forged_parity_may_cost_is_bounded_and_no_part_of_what_the_sender_may() {
    let mut receiver = receiver();
    (0..DATA - 1).for_each(|ordinal| drop(receiver.own(ordinal)));
    let names: Vec<String> = (0..500).map(|number| format!("mallory-{number}")).collect();
    for name in &names {
        for index in 0..DATA {
            receiver.forged_guest(name, index);
        }
    }
    let failed = receiver.reassembler.stats().failed_reconstructions;
    // Twice 32 reconstructions, of which an attempt makes one under either code.
    assert!((1..40).contains(&failed), "{failed} attempts");
    // What is spent is spent: not even genuine parity is tried any more.
    assert!(receiver.guest("bob", 0).is_none());
    let stats = receiver.reassembler.stats();
    assert_eq!((stats.sets_held, stats.dropped), (1, [0, 0, 0]));
    let last = receiver.own(DATA - 1);
    assert!(receiver.is_payload(Some(last)));
    receiver.assert_empty();
}

#[test]
fn parity_of_others_displaces_nothing() {
    let mut receiver = receiver_of(Limits {
        sets_max: 4,
        sets_per_sender_max: 2,
        ..limits()
    });
    receiver.own(0);
    let mut payload = receiver.payload.clone();
    // Nobody proved who sent two of these: they would make room for a segment of somebody who does.
    for (number, sender) in ["dave", "erin", "frank"].into_iter().enumerate() {
        payload[0] = 100 + number as u8;
        let parameters = receiver.reassembler.parameters;
        let other = segment(&payload, &parameters).unwrap().to_vecs();
        let receipt = Receipt {
            message_key: Some(sender.as_bytes()),
            authenticated: sender == "dave",
            ..receipt(sender)
        };
        receiver.reassembler.receive(&other[0], &receipt);
    }
    assert_eq!(receiver.reassembler.stats().sets_held, 4);
    assert!(receiver.guest("bob", 0).is_none());
    assert!(receiver.guest("claimed", 0).is_none());
    assert_eq!(receiver.reassembler.stats().sets_held, 4);
    // No account is left of who was refused.
    assert_eq!(receiver.accounts(), 4);
    assert!(receiver.reassembler.poll_dropped().is_empty());
}

#[test]
fn parity_of_others_displaces_nothing_of_who_made_it() {
    let mut receiver = receiver_of(Limits {
        sets_per_sender_max: 2,
        ..limits()
    });
    receiver.own(0);
    for number in 0..2 {
        let mut payload = receiver.payload.clone();
        payload[0] = 100 + number;
        let parameters = receiver.reassembler.parameters;
        let other = segment(&payload, &parameters).unwrap().to_vecs();
        let receipt = Receipt {
            message_key: Some(&[number]),
            ..receipt("bob")
        };
        receiver.reassembler.receive(&other[0], &receipt);
    }
    assert!(receiver.guest("bob", 0).is_none());
    assert_eq!(receiver.reassembler.stats().sets_held, 3);
    assert!(receiver.reassembler.poll_dropped().is_empty());
}

#[test]
fn nobody_hears_of_the_end_of_what_others_made() {
    let mut receiver = receiver();
    receiver.own(0);
    receiver.guest("bob", 0);
    receiver.guest("claimed", 1);
    let dropped = receiver.reassembler.expire(limits().timeout_ms);
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].message_key.as_deref(), Some(KEY));
    receiver.assert_empty();
}

#[test]
fn what_others_made_is_counted_and_charged_as_it_came() {
    let mut receiver = receiver();
    receiver.own(0);
    let before = receiver.reassembler.stats();
    receiver.guest("bob", 0);
    let after = receiver.reassembler.stats();
    assert_eq!(
        (after.received, after.stored),
        (before.received + 1, before.stored + 1)
    );
    let length = receiver.segments[DATA].len() as u64;
    assert_eq!(after.bytes_held, before.bytes_held + length);
}

#[test]
fn parity_of_a_place_that_its_senders_own_fills_is_of_no_use() {
    let mut receiver = receiver();
    receiver.own(0);
    receiver.own(DATA + 3);
    assert!(receiver.guest("bob", 3).is_none());
    assert_eq!(receiver.reassembler.stats().sets_held, 1);
    // As it is once the sender's own comes after it.
    receiver.guest("bob", 4);
    receiver.own(DATA + 4);
    let stored = receiver.guest("bob", 5);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(4),
            ..
        })
    ));
}

#[test]
fn several_contents_of_one_place_fill_one() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 0);
    let stored = receiver.forged_guest("mallory", 0);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(1),
            ..
        })
    ));
    assert_eq!(receiver.reassembler.stats().failed_reconstructions, 0);
    let last = receiver.guest("bob", 1);
    assert!(receiver.is_payload(last));
}

#[test]
fn parity_that_does_not_say_how_much_data_there_is_is_of_no_use() {
    let parameters = parameters_of(WireFormat::Draft, ErasureCode::Leopard, 1.0);
    let payload: Vec<u8> = (0..DATA * 64).map(|at| (at * at / 7) as u8).collect();
    let segments = segment(&payload, &parameters).unwrap().to_vecs();
    let mut reassembler = Reassembler::new(parameters, limits());
    for content in &segments[..DATA - 1] {
        reassembler.receive(content, &receipt("alice"));
    }
    let before = reassembler.stats();
    let parity = reassembler.receive_guest(&segments[DATA], &receipt("bob"));
    assert!(parity.is_none());
    // Under this wire whatever is no segment is a message: not of a member.
    let whole = reassembler.receive_guest(b"no segment", &receipt("bob"));
    assert!(whole.is_none());
    let after = reassembler.stats();
    assert_eq!(
        (after.sets_held, after.bytes_held),
        (before.sets_held, before.bytes_held)
    );
    assert_eq!(
        (after.stored, after.reconstructed),
        (before.stored, before.reconstructed)
    );
    let last = reassembler.receive(&segments[DATA], &receipt("alice"));
    assert_eq!(reconstructed(&last), Some(payload));
}

#[test]
fn nobody_makes_parity_of_a_payload_in_one_segment() {
    let mut settings = *parameters_of(RAW, ErasureCode::Leopard, 1.0).settings();
    settings.parity_for_single_segment = true;
    let parameters = Parameters::new(settings).unwrap();
    let segments = segment(&[7; 64], &parameters).unwrap().to_vecs();
    assert_eq!(segments.len(), 2);
    let mut reassembler = Reassembler::new(parameters, limits());
    // What claims to be it is here, and is not.
    let false_one = forged(&segments[0], RAW, &mut Random(7));
    reassembler.receive(&false_one, &receipt("alice"));
    assert_eq!(reassembler.stats().sets_held, 1);
    let parity = reassembler.receive_guest(&segments[1], &receipt("bob"));
    assert!(parity.is_none());
    let own = reassembler.receive(&segments[0], &receipt("alice"));
    assert_eq!(reconstructed(&own), Some(vec![7; 64]));
}

#[test]
fn parity_of_a_payload_that_could_never_be_held_is_of_no_use() {
    let announced = (DATA * 64) as u64;
    for (buffered_bytes_max, is_kept) in [(announced - 1, false), (announced, true)] {
        let mut receiver = receiver_of(Limits {
            buffered_bytes_max,
            buffered_bytes_per_sender_max: buffered_bytes_max,
            ..limits()
        });
        // The last one may be short: it does not tell.
        receiver.own(DATA - 1);
        assert_eq!(receiver.reassembler.stats().sets_held, 1);
        assert_eq!(receiver.guest("bob", 0).is_some(), is_kept);
        let sets_held = 1 + u64::from(is_kept);
        assert_eq!(receiver.reassembler.stats().sets_held, sets_held);
        assert_eq!(receiver.accounts(), 1 + usize::from(is_kept));
    }
}

#[test]
fn what_somebody_made_is_charged_to_nobody_else_and_given_back() {
    let mut receiver = receiver();
    let lengths: Vec<u64> = receiver.segments[DATA..]
        .iter()
        .map(|content| content.len() as u64)
        .collect();
    let all = ["alice", "bob", "carol", "claimed"];
    (0..DATA - 5).for_each(|ordinal| drop(receiver.own(ordinal)));
    let own = receiver.charged("alice");
    receiver.guest("bob", 0);
    assert_eq!(receiver.charged_all(all), [own, lengths[0], 0, 0]);
    // Who did not begin the set is charged with an account for each segment.
    receiver.guest("carol", 1);
    let carols = lengths[1] + ACCOUNT + "carol".len() as u64;
    assert_eq!(receiver.charged_all(all), [own, lengths[0], carols, 0]);
    receiver.guest("bob", 2);
    let bobs = lengths[0] + lengths[2];
    assert_eq!(receiver.charged_all(all), [own, bobs, carols, 0]);
    receiver.guest("claimed", 3);
    let claimed = lengths[3] + ACCOUNT + "claimed".len() as u64;
    assert_eq!(receiver.charged_all(all), [own, bobs, carols, claimed]);
    assert_eq!(receiver.reassembler.accounts.claimed(), (1, claimed));
    let last = receiver.own(DATA - 1);
    assert!(receiver.is_payload(Some(last)));
    assert_eq!(receiver.charged_all(all), [0; 4]);
    receiver.assert_empty();
}

#[test]
fn what_is_no_parity_of_it_is_given_back_to_whom_it_was_charged() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 0);
    let before = receiver.charged_all(["alice", "bob"]);
    receiver.forged_guest("mallory", 1);
    assert!(receiver.charged("mallory") > 0);
    let last = receiver.forged_guest("mallory", 2);
    // As many as are lacking came, and one of them is not what it says.
    assert!(matches!(
        last,
        Some(Outcome::Stored {
            segments_held: 1,
            segments_needed: Some(1),
            ..
        })
    ));
    assert_eq!(receiver.charged_all(["mallory", "carol"]), [0, 0]);
    assert_eq!(receiver.charged_all(["alice", "bob"]), before);
    assert_eq!(receiver.accounts(), 2);
    let last = receiver.guest("bob", 1);
    assert!(receiver.is_payload(last));
}

#[test]
fn where_enough_is_here_and_it_is_not_what_it_says_one_more_is_needed() {
    let mut receiver = receiver();
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 0);
    // Of two who make half of it each nobody knows which one errs.
    let stored = receiver.forged_guest("mallory", 1);
    assert!(matches!(
        stored,
        Some(Outcome::Stored {
            segments_held: 2,
            segments_needed: Some(1),
            ..
        })
    ));
    assert_eq!(receiver.reassembler.stats().failed_reconstructions, 1);
    let last = receiver.guest("bob", 2);
    assert!(receiver.is_payload(last));
}

#[test]
fn one_more_takes_nothing_from_who_is_at_the_limit() {
    for missing_bytes in [0, 1] {
        let mut receiver = receiver();
        let carols = receiver.segments[DATA + 1].len() as u64 + ACCOUNT + "carol".len() as u64;
        let other = [&receiver.payload[..], b"another"].concat();
        let parameters = receiver.reassembler.parameters;
        let other = segment(&other, &parameters).unwrap().to_vecs();
        let limits = Limits {
            buffered_bytes_per_sender_max: carols + other[0].len() as u64 - missing_bytes,
            ..limits()
        };
        receiver.reassembler = Reassembler::new(parameters, limits);
        let receipt = Receipt {
            message_key: Some(b"carol's first"),
            ..receipt("carol")
        };
        receiver.reassembler.receive(&other[0], &receipt);
        receiver.own(0);
        receiver.guest("bob", 0);
        let before = receiver.reassembler.stats();
        assert_eq!((before.sets_held, receiver.accounts()), (3, 3));
        assert_eq!(receiver.guest("carol", 1).is_some(), missing_bytes == 0);
        let after = receiver.reassembler.stats();
        assert_eq!((after.sets_held, receiver.accounts()), (3, 3));
        let charged = if missing_bytes == 0 { carols } else { 0 };
        assert_eq!(after.bytes_held, before.bytes_held + charged);
    }
}

#[test]
fn who_made_enough_is_tried_alone_before_all_together() {
    let mut receiver = receiver();
    (0..DATA - 3).for_each(|ordinal| drop(receiver.own(ordinal)));
    for index in [0, 1] {
        receiver.forged_guest("mallory", index);
        receiver.guest("bob", 2 + index);
    }
    let before = receiver.reassembler.stats().failed_reconstructions;
    let last = receiver.own(DATA - 3);
    assert!(receiver.is_payload(Some(last)));
    let after = receiver.reassembler.stats();
    // Mallory's came first.
    assert_eq!(after.failed_reconstructions, before + 1);
    assert_eq!(after.bad_segments, 0);
    receiver.assert_empty();
}

#[test]
fn what_its_sender_sent_itself_is_no_rival_of_what_came_for_its_place_before() {
    let mut receiver = receiver();
    (0..DATA - 3).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.forged_guest("mallory", 0);
    receiver.own(DATA);
    receiver.guest("bob", 1);
    // Nobody made enough alone.
    let last = receiver.guest("carol", 2);
    assert!(receiver.is_payload(last));
    let stats = receiver.reassembler.stats();
    assert_eq!((stats.failed_reconstructions, stats.bad_segments), (0, 0));
}

#[test]
fn who_alone_made_any_is_tried_once() {
    let mut receiver = receiver();
    (0..DATA - 1).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.forged_guest("mallory", 0);
    assert_eq!(receiver.reassembler.stats().failed_reconstructions, 1);
}

#[test]
fn what_expires_by_itself_may_come_again() {
    let mut receiver = receiver();
    let later = Receipt {
        now_ms: 100,
        ..receipt("alice")
    };
    receiver.own(0);
    receiver.guest("bob", 0);
    for ordinal in 1..DATA - 2 {
        let content = receiver.segments[ordinal].clone();
        receiver.reassembler.receive(&content, &later);
    }
    // Nothing new came for what bob made.
    assert_eq!(receiver.reassembler.expire(limits().timeout_ms), []);
    let stats = receiver.reassembler.stats();
    assert_eq!((stats.sets_held, stats.senders_held), (1, 1));
    receiver.guest("bob", 0);
    let last = receiver.guest("bob", 1);
    assert!(receiver.is_payload(last));
    receiver.assert_empty();
}

#[test]
fn what_is_made_of_forged_counts_harms_no_other_parity() {
    let mut receiver = receiver();
    // Nobody knows which counts are true: each makes a set of the payload.
    let other_counts = |bytes: &[u8]| {
        let Ok(Received::Segment(segment)) = decode(bytes, RAW, 256) else {
            panic!("our own segment is one")
        };
        let mut header = segment.header;
        header.parity_segment_count = Some(DATA as u16 - 1);
        header.encode(RAW, segment.payload)
    };
    (0..DATA - 2).for_each(|ordinal| drop(receiver.own(ordinal)));
    receiver.guest("bob", 0);
    let claimed = other_counts(&receiver.segments[0]);
    let alice = Receipt {
        authenticated: false,
        ..receipt("alice")
    };
    receiver.reassembler.receive(&claimed, &alice);
    assert_eq!(receiver.reassembler.stats().sets_held, 3);
    for index in [1, 2] {
        let parity = other_counts(&receiver.segments[DATA + index]);
        let stored = receiver
            .reassembler
            .receive_guest(&parity, &receipt("mallory"));
        let Some(Outcome::Stored { segments_held, .. }) = stored else {
            panic!("it is kept: {stored:?}")
        };
        assert_eq!(segments_held, index);
    }
    // Its set goes, and what was made of that, after so many attempts in vain as it may cost.
    for number in 0..300 {
        let name = format!("mallory-{number}");
        for index in 0..DATA - 1 {
            let parity = forged(&receiver.segments[DATA + index], RAW, &mut receiver.random);
            let parity = other_counts(&parity);
            receiver.reassembler.receive_guest(&parity, &receipt(&name));
        }
    }
    assert!(receiver.reassembler.stats().failed_reconstructions > 0);
    assert_eq!(receiver.reassembler.guests_of(receiver.largest_set()), 1);
    let last = receiver.guest("bob", 1);
    assert!(receiver.is_payload(last));
    receiver.assert_empty();
}

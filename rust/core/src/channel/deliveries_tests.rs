//! The queue of deliveries: what a crash at each point means under both promises.

use std::collections::BTreeMap;

use super::deliveries::{Deliveries, Delivery, Handover, Redelivery};
use super::records::{DELIVERY, HANDOVER, PAYLOAD, Records, Value, payload_key};
use super::restore_error::RestoreError;
use crate::hex::hex;
use crate::keccak::keccak256;
use crate::reassemble::Payload;
use crate::sds::{self, Name, Octets};

/// Its deliveries, and what a disk has of them and of their messages.
struct Life {
    handover: Handover,
    deliveries: Deliveries,
    records: BTreeMap<(&'static str, Vec<u8>), Vec<u8>>,
}

impl Life {
    fn new(redelivery: Redelivery) -> Self {
        let handover = Handover {
            redelivery,
            messages_max: 3,
            bytes_max: 1_000,
        };
        Life {
            handover,
            deliveries: Deliveries::new(handover),
            records: BTreeMap::new(),
        }
    }

    /// A message of alice, under a send that is named as it.
    fn release(&mut self, payload: &[u8]) {
        let send_id = Name::from_wire(payload);
        let key = payload_key("alice", &send_id).into_vec();
        self.records.insert((PAYLOAD, key), payload.to_vec());
        self.push(payload, Some(send_id));
    }

    fn push(&mut self, payload: &[u8], send_id: Option<Name>) {
        self.deliveries.push(Delivery {
            sender_id: "alice".into(),
            send_id,
            payload_hash: keccak256(payload),
            payload: Payload::of(payload, None),
            redelivered: false,
            released_ms: Some(1),
        });
    }

    fn commit(&mut self) {
        let mut records = Records::default();
        self.deliveries.poll_persist(&mut records);
        for record in records.into_vec() {
            let name = (record.kind, record.key.as_bytes().to_vec());
            match record.value {
                Some(Value::Bytes(value)) => self.records.insert(name, value.to_vec()),
                Some(Value::Payload(payload)) => self.records.insert(name, payload.to_vec()),
                None => self.records.remove(&name),
            };
        }
        for key in self.deliveries.poll_done() {
            self.records.remove(&(PAYLOAD, key.into_vec()));
        }
    }

    fn of_kind<T: From<Vec<u8>>>(&self, kind: &str) -> BTreeMap<Box<[u8]>, T> {
        let records = self.records.iter().filter(|((known, _), _)| *known == kind);
        let records = records.map(|((_, key), value)| (key.clone().into(), value.clone().into()));
        records.collect()
    }

    fn crash(&mut self) -> Result<(), RestoreError> {
        self.deliveries = Deliveries::new(self.handover);
        let deliveries = self.of_kind::<Octets>(DELIVERY);
        let handover = self.records.get(&(HANDOVER, Vec::new()));
        let mut payloads = self.of_kind(PAYLOAD);
        self.deliveries
            .restore(&deliveries, handover.map(|key| &key[..]), &mut payloads)
    }

    fn begin(&mut self) -> Option<(String, bool)> {
        let delivery = self.deliveries.begin()?;
        let payload = delivery.payload.to_vec();
        assert_eq!(delivery.payload_hash, keccak256(&payload));
        assert_eq!(&*delivery.sender_id, "alice");
        self.commit();
        let payload = String::from_utf8(payload).unwrap();
        Some((payload, delivery.redelivered))
    }

    fn finish(&mut self) {
        self.deliveries.finish();
        self.commit();
    }

    /// All that one commit begins; a star behind what a crash interrupted before.
    fn begin_all(&mut self) -> Vec<String> {
        let mut begun = Vec::new();
        while let Some(delivery) = self.deliveries.begin() {
            let payload = String::from_utf8(delivery.payload.to_vec()).unwrap();
            begun.push(payload + if delivery.redelivered { "*" } else { "" });
        }
        self.commit();
        begun
    }

    /// A commit follows once the application is done with so many.
    fn finish_and_begin(&mut self, count: usize) -> usize {
        for _ in 0..count {
            self.deliveries.finish();
        }
        self.begin_all().len()
    }

    /// Hands over all that waits; a star behind what a crash interrupted before.
    fn drain(&mut self) -> Vec<String> {
        let mut handed_over = Vec::new();
        while let Some((payload, redelivered)) = self.begin() {
            handed_over.push(payload + if redelivered { "*" } else { "" });
            self.finish();
        }
        handed_over
    }
}

fn with_three(redelivery: Redelivery) -> Life {
    let mut life = Life::new(redelivery);
    for payload in ["0", "1", "2"] {
        life.release(payload.as_bytes());
    }
    life.commit();
    life
}

#[test]
fn at_least_once_repeats_only_the_one_in_progress_and_flags_it() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    life.begin().unwrap();
    life.deliveries.finish();
    life.begin().unwrap();
    life.crash().unwrap();
    assert_eq!(life.drain(), ["1*", "2"]);
    assert_eq!(life.records, BTreeMap::new());
}

#[test]
fn at_least_once_flags_nothing_that_was_not_begun() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    life.begin().unwrap();
    life.finish();
    life.crash().unwrap();
    assert_eq!(life.drain(), ["1", "2"]);
}

#[test]
fn at_most_once_loses_only_the_one_in_progress() {
    let mut life = with_three(Redelivery::AtMostOnce);
    life.begin().unwrap();
    life.crash().unwrap();
    assert_eq!(life.drain(), ["1", "2"]);
    assert_eq!(life.records, BTreeMap::new());
}

#[test]
fn what_was_interrupted_at_least_once_is_flagged_at_most_once_and_leaves_nothing() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    life.begin().unwrap();
    life.handover.redelivery = Redelivery::AtMostOnce;
    // It is flagged until it is handed over, however many lives that takes.
    for _ in 0..2 {
        life.crash().unwrap();
        life.commit();
    }
    assert_eq!(life.drain(), ["0*", "1", "2"]);
    assert_eq!(life.records, BTreeMap::new());
}

#[test]
fn a_message_does_not_take_the_flag_of_another_that_had_its_place() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    life.begin().unwrap();
    life.records.retain(|(kind, _), _| *kind == HANDOVER);
    life.crash().unwrap();
    life.commit();
    assert_eq!(life.records, BTreeMap::new());
    life.release(b"a");
    life.commit();
    life.crash().unwrap();
    assert_eq!(life.drain(), ["a"]);
}

#[test]
fn one_delivery_is_in_progress_at_a_time() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    assert_eq!(life.begin().unwrap().0, "0");
    assert_eq!(life.begin(), None);
    life.finish();
    assert_eq!(life.begin().unwrap().0, "1");
}

/// Messages that wait, called by their numbers.
fn with_many(redelivery: Redelivery, count: usize) -> Life {
    let mut life = Life::new(redelivery);
    for number in 0..count {
        life.release(number.to_string().as_bytes());
    }
    life.commit();
    life
}

#[test]
fn where_many_wait_a_commit_begins_what_the_application_is_done_with_meanwhile() {
    let mut life = with_many(Redelivery::AtLeastOnce, 400);
    let mut begun = life.begin_all().len();
    let mut sizes = vec![begun];
    for _ in 0..8 {
        begun = life.finish_and_begin(begun);
        sizes.push(begun);
    }
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 64, 52]);
    // Who is slow has one ahead of the one that it is busy with.
    let mut life = with_many(Redelivery::AtLeastOnce, 400);
    life.begin_all();
    let slow: Vec<usize> = (0..4).map(|_| life.finish_and_begin(1)).collect();
    assert_eq!(slow, [2, 1, 1, 1]);
}

#[test]
fn where_few_wait_or_at_most_once_they_begin_one_by_one() {
    for (redelivery, waiting) in [(Redelivery::AtLeastOnce, 8), (Redelivery::AtMostOnce, 400)] {
        let mut life = with_many(redelivery, waiting);
        life.begin_all();
        while life.deliveries.len() > 1 {
            assert_eq!(life.finish_and_begin(1), 1);
        }
    }
}

#[test]
fn large_messages_begin_one_by_one() {
    let mut life = Life::new(Redelivery::AtLeastOnce);
    for number in 0..40 {
        life.release(&[b'a' + number; 1 << 19]);
    }
    life.begin_all();
    assert_eq!(life.finish_and_begin(1), 2);
    assert_eq!(life.finish_and_begin(2), 2);
    let mut life = Life::new(Redelivery::AtLeastOnce);
    for number in 0..40 {
        life.release(&[b'a' + number; (1 << 19) + 1]);
    }
    life.begin_all();
    assert_eq!(life.finish_and_begin(1), 1);
}

#[test]
fn all_that_a_crash_may_repeat_is_flagged_in_every_life_until_it_is_done() {
    let mut life = with_many(Redelivery::AtLeastOnce, 40);
    life.begin_all();
    life.finish_and_begin(1);
    assert_eq!(life.finish_and_begin(2), 4);
    for _ in 0..2 {
        life.crash().unwrap();
        assert_eq!(life.begin_all(), ["3*"]);
    }
    life.deliveries.finish();
    assert_eq!(life.begin_all(), ["4*", "5*"]);
    life.finish();
    life.crash().unwrap();
    let mut others: Vec<String> = (7..40).map(|number| number.to_string()).collect();
    others.splice(0..0, ["5*".into(), "6*".into()]);
    assert_eq!(life.drain(), others);
    assert_eq!(life.records, BTreeMap::new());
}

#[test]
fn what_several_lives_repeat_is_flagged_at_most_once_too() {
    let mut life = with_many(Redelivery::AtLeastOnce, 40);
    life.begin_all();
    life.finish_and_begin(1);
    life.handover.redelivery = Redelivery::AtMostOnce;
    life.crash().unwrap();
    assert_eq!(life.begin_all(), ["1*"]);
    life.crash().unwrap();
    assert_eq!(life.begin_all(), ["2*"]);
    life.crash().unwrap();
    assert_eq!(life.begin_all(), ["3"]);
}

#[test]
fn what_the_application_was_not_given_when_the_channel_ended_has_not_begun() {
    for (given, expected) in [
        (0, ["3", "4", "5"]),
        (1, ["3*", "4", "5"]),
        (9, ["3*", "4*", "5*"]),
    ] {
        let mut life = with_many(Redelivery::AtLeastOnce, 40);
        life.begin_all();
        life.finish_and_begin(1);
        life.finish_and_begin(2);
        life.deliveries.end(given);
        life.commit();
        life.crash().unwrap();
        assert_eq!(life.drain()[..3], expected);
    }
}

#[test]
fn order_continues_after_a_restart() {
    let mut life = Life::new(Redelivery::AtLeastOnce);
    for payload in ["a", "b"] {
        life.release(payload.as_bytes());
        life.commit();
        life.crash().unwrap();
    }
    assert_eq!(life.drain(), ["a", "b"]);
}

#[test]
fn ephemeral_messages_keep_their_place_and_are_never_stored() {
    for redelivery in [Redelivery::AtLeastOnce, Redelivery::AtMostOnce] {
        let mut life = Life::new(redelivery);
        life.release(b"a");
        life.push(b"typing", None);
        life.release(b"b");
        life.commit();
        assert_eq!(life.of_kind::<Vec<u8>>(DELIVERY).len(), 2);
        assert_eq!(life.drain(), ["a", "typing", "b"]);
        assert_eq!(life.records, BTreeMap::new());
    }
}

#[test]
fn an_ephemeral_message_changes_no_record() {
    for redelivery in [Redelivery::AtLeastOnce, Redelivery::AtMostOnce] {
        let mut life = Life::new(redelivery);
        life.push(b"typing", None);
        let mut records = Records::default();
        assert!(life.deliveries.begin().is_some());
        life.deliveries.poll_persist(&mut records);
        life.deliveries.finish();
        life.deliveries.poll_persist(&mut records);
        assert_eq!(records.into_vec(), []);
    }
}

#[test]
fn full_by_messages_or_by_bytes() {
    let mut life = Life::new(Redelivery::AtLeastOnce);
    life.release(&[b'a'; 999]);
    assert!(!life.deliveries.is_full(0, 0));
    assert!(!life.deliveries.is_full(0, 1));
    assert!(life.deliveries.is_full(0, 2));
    life.release(b"x");
    assert!(life.deliveries.is_full(0, 0));
    life.begin().unwrap();
    assert!(life.deliveries.is_full(0, 0));
    assert_eq!(
        (life.deliveries.len(), life.deliveries.size_bytes()),
        (2, 1_000)
    );
    life.finish();
    assert!(!life.deliveries.is_full(0, 0));
    life.release(b"y");
    life.release(b"z");
    assert!(life.deliveries.is_full(0, 0));
}

#[test]
fn what_waits_for_its_causes_fills_only_what_the_application_can_empty() {
    let mut life = Life::new(Redelivery::AtLeastOnce);
    assert!(!life.deliveries.is_full(5_000, 0));
    assert!(life.deliveries.is_full(5_000, 1));
    life.release(b"x");
    assert!(life.deliveries.is_full(999, 0));
    assert!(!life.deliveries.is_full(998, 0));
}

#[test]
fn what_changed_is_forgotten_where_nothing_is_stored() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    let stored = life.records.clone();
    life.deliveries.begin().unwrap();
    life.deliveries.drop_changes();
    life.commit();
    assert_eq!(life.records, stored);
    life.deliveries.finish();
    life.deliveries.drop_changes();
    life.deliveries.poll_done();
    life.commit();
    assert_eq!(life.records, stored);
}

#[test]
fn a_delivery_without_its_payload_is_damage() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    let key = payload_key("alice", "1").into_vec();
    life.records.remove(&(PAYLOAD, key));
    let error = life.crash().unwrap_err().to_string();
    assert!(error.starts_with("a message that waits for its delivery (record "));
    assert!(error.ends_with("is stored without its bytes: restore the database from a copy"));
}

#[test]
fn what_earlier_releases_stored_is_read() {
    let mut life = with_three(Redelivery::AtLeastOnce);
    let message_id = hex(&keccak256(b"1"));
    let json =
        format!(r#"{{"version":1,"sender_id":"alice","send_id":"1","message_id":"{message_id}"}}"#);
    let name = (DELIVERY, 1_u64.to_be_bytes().to_vec());
    assert!(life.records.insert(name, json.into()).is_some());
    life.crash().unwrap();
    assert_eq!(life.drain(), ["0", "1", "2"]);
}

#[test]
fn what_is_damaged_or_newer_is_told() {
    let damaged = |record: &[u8]| {
        let mut life = with_three(Redelivery::AtLeastOnce);
        let name = (DELIVERY, 1_u64.to_be_bytes().to_vec());
        life.records.insert(name, record.to_vec());
        life.crash().unwrap_err()
    };
    let whole = with_three(Redelivery::AtLeastOnce).records
        [&(DELIVERY, 1_u64.to_be_bytes().to_vec())]
        .clone();
    for length in 0..whole.len() {
        assert_eq!(
            damaged(&whole[..length]),
            RestoreError::Damaged("DeliveryRecord")
        );
    }
    for json in [
        r#"{"version":1}"#,
        r#"{"version":1,"sender_id":"alice","send_id":"1","message_id":"ab"}"#,
    ] {
        assert_eq!(
            damaged(json.as_bytes()),
            RestoreError::Damaged("DeliveryRecord")
        );
    }
    let version = sds::VERSION + 1;
    assert_eq!(
        damaged(&[version]),
        sds::RestoreError::Version(version).into()
    );
    let newer = damaged(br#"{"version":9}"#);
    assert_eq!(
        newer,
        RestoreError::Newer {
            what: "DeliveryRecord",
            version: 9
        }
    );
    let mut life = with_three(Redelivery::AtLeastOnce);
    life.records.insert((DELIVERY, vec![0; 7]), whole);
    assert_eq!(life.crash(), Err(RestoreError::Damaged("DeliveryRecord")));
}

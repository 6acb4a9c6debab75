use super::tests::{limits, parameters_of};
use super::*;
use crate::erasure::ErasureCode;
use crate::wire::segment::{Header, Slot, WireFormat};

fn reassembler(limits: Limits) -> Reassembler {
    let parameters = parameters_of(WireFormat::Raw, ErasureCode::Leopard, 0.5);
    Reassembler::new(parameters, limits)
}

/// Takes the `index`-th of 250 data segments of a payload.
fn receive(reassembler: &mut Reassembler, payload: u8, index: u8, now_ms: i64, sender: &str) {
    let header = Header {
        entire_message_hash: [payload; 32],
        slot: Slot::Data(index),
        data_segment_count: Some(250),
        parity_segment_count: Some(6),
        payload_length: None,
    };
    let receipt = Receipt {
        now_ms,
        sender: Some(sender),
        ..Receipt::default()
    };
    reassembler.receive(&header.encode(WireFormat::Raw, &[index; 64]), &receipt);
}

fn restored<'a>(limits: Limits, records: impl IntoIterator<Item = &'a Record>) -> Reassembler {
    let mut restored = reassembler(limits);
    let stored = records
        .into_iter()
        .map(|record| (record.change, &record.key[..], &record.value[..]));
    restored.restore(stored);
    restored
}

#[test]
fn what_cannot_be_read_or_does_not_belong_is_counted_and_left() {
    let mut before = reassembler(limits());
    receive(&mut before, 1, 249, 0, "one");
    let [stored] = &before.poll_persist()[..] else {
        panic!("one segment is stored")
    };
    let ignored = |records: &[&Record]| {
        let stats = restored(limits(), records.iter().copied()).stats();
        (stats.restore_ignored, stats.sets_held, stats.bytes_held)
    };
    let whole = ignored(&[stored]);
    assert_eq!((whole.0, whole.1), (0, 1));
    assert_eq!(ignored(&[stored, stored]), (1, whole.1, whole.2));

    type Damage = fn(&mut Record);
    let damages: [(&str, Damage); 11] = [
        ("version", |record| record.value[0] += 1),
        ("hash", |record| record.value[2] += 1),
        ("key of the set", |record| record.key[0] ^= 1),
        ("class", |record| record.key[20] = 2),
        ("beyond the data segments", |record| record.key[21] += 1),
        ("beyond the parity segments", |record| {
            record.key[20..22].copy_from_slice(&[1, 6]);
        }),
        ("more than any set has", |record| record.value[45] += 1),
        ("a key too long", |record| record.key.push(0)),
        ("a key too short", |record| record.key.truncate(22)),
        ("a value too short", |record| record.value.truncate(60)),
        ("no record", |record| record.change = Change::DeleteSet),
    ];
    for (what, damage) in damages {
        let mut damaged = stored.clone();
        damage(&mut damaged);
        assert_eq!(ignored(&[&damaged]), (1, 0, 0), "{what}");
    }
    // Other counts than the set has: 249 data segments and 6 for parity.
    let mut other = stored.clone();
    other.key[21] = 0;
    other.value[43] -= 1;
    assert_eq!(ignored(&[stored, &other]), (1, whole.1, whole.2));

    // More for one place than are kept; what is complete.
    let mut rival = stored.clone();
    rival.key[22] += 1;
    *rival.value.last_mut().unwrap() += 1;
    let one = Limits {
        candidates_per_slot_max: 1,
        ..limits()
    };
    let stats = restored(one, [stored, &rival]).stats();
    assert_eq!((stats.restore_ignored, stats.bytes_held), (1, whole.2));
    let small = Limits {
        buffered_bytes_max: whole.2 - 1,
        ..limits()
    };
    let stats = restored(small, [stored]).stats();
    assert_eq!((stats.restore_ignored, stats.bytes_held), (1, 0));
    let completed = Record {
        change: Change::PutCompleted,
        key: stored.key[..16].to_vec(),
        value: vec![0; 8],
    };
    assert_eq!(ignored(&[stored, &completed]), (1, 0, 0));
    let beyond = (u64::MAX / 2 + 1).to_be_bytes().to_vec();
    for value in [beyond, vec![0; 7]] {
        let damaged = Record {
            value,
            ..completed.clone()
        };
        assert_eq!(ignored(&[stored, &damaged]), (1, whole.1, whole.2));
    }
}

#[test]
fn sets_come_back_in_the_order_of_their_updates_and_with_who_began_them() {
    for times in [[5, 1], [1, 5]] {
        let (mut before, mut records) = (reassembler(limits()), Vec::new());
        for (payload, now_ms) in (1..).zip(times) {
            for (index, sender) in [(9, "first"), (0, "second")] {
                receive(&mut before, payload, index, now_ms, sender);
                // What was stored is not stored again.
                let [record] = &before.poll_persist()[..] else {
                    panic!("one segment is stored")
                };
                records.push(record.clone());
            }
        }
        records.sort_by(|one, other| one.key.cmp(&other.key));
        let mut after = restored(limits(), &records);
        assert_eq!(after.next_expiry_ms(), Some(1 + limits().timeout_ms));
        let dropped = after.expire(i64::MAX);
        let senders = dropped.iter().map(|dropped| dropped.sender.as_deref());
        assert!(senders.eq([Some("first"); 2]));
    }
}

#[test]
fn of_more_completions_than_are_remembered_the_last_come_back() {
    let mut before = reassembler(limits());
    for payload in [1, 2] {
        before.complete_whole(b"key", &[payload; HASH_LENGTH]);
    }
    let mut records = before.poll_persist();
    for _ in 0..2 {
        records.reverse();
        let one = Limits {
            completed_remembered_max: 1,
            ..limits()
        };
        let mut after = restored(one, &records);
        // The other one is stored no more.
        let [forgotten] = &after.poll_persist()[..] else {
            panic!("one is forgotten")
        };
        assert_eq!(forgotten.change, Change::DeleteCompleted);
        assert!(!after.complete_whole(b"key", &[2; HASH_LENGTH]));
    }
}

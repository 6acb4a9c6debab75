//! Epochs, both counting rules, the reserve, the ephemeral threshold, shares, and what survives a restart.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    Counts, EARLIER_MAX, MemberId, Moment, PAUSE_MS_MAX, PAUSE_MS_MIN, Record, SharedQuota,
    Standing, Terms,
};
use crate::channel::DropReason;
use crate::sds::{Kinds, TransmitKind};

const EPOCH_MS: i64 = 10_000;
const TERMS: Terms = Terms {
    epoch_size_ms: EPOCH_MS,
    quota: 10,
    counts: Counts::Segment,
    ack_reserve: 0,
    ephemeral_max: 9,
};
const SYNC_ONLY: Kinds = Kinds::NONE.with(TransmitKind::Sync);

fn at(epoch_ms: i64) -> Moment {
    Moment {
        epoch_ms,
        in_flight: 0,
    }
}

/// A limit with its members.
struct Shared {
    quota: SharedQuota,
    members: Vec<MemberId>,
}

impl Shared {
    fn new(terms: Terms, member_count: usize, epoch_ms: i64) -> Self {
        let mut quota = SharedQuota::new(terms);
        let members = (0..member_count)
            .map(|_| quota.join(at(epoch_ms)))
            .collect();
        Shared { quota, members }
    }

    fn alone(terms: Terms) -> Self {
        Shared::new(terms, 1, 0)
    }

    fn of_three(quota: i64, ack_reserve: i64) -> Self {
        let terms = Terms {
            quota,
            ack_reserve,
            ..TERMS
        };
        Shared::new(terms, 3, 0)
    }

    /// An epoch in which the first two have syncs for all places, before anybody else asks; when it begins.
    fn begin_with_syncs(&mut self, epoch: i64) -> Moment {
        let now = at(epoch * EPOCH_MS);
        for member in [0, 1] {
            self.take(member, TransmitKind::Sync, 3, now);
        }
        now
    }

    fn restored(terms: Terms, stored: Record) -> Self {
        let mut shared = Shared::alone(terms);
        shared.quota.add(stored);
        shared
    }

    fn kinds(&mut self, now: Moment) -> Kinds {
        self.quota.allowance(self.members[0], now).kinds(0)
    }

    fn drop_reason(&mut self, epoch_ms: i64) -> Option<DropReason> {
        let allowance = self.quota.allowance(self.members[0], at(epoch_ms));
        allowance.drop_reason(0)
    }

    /// How many of so many places each of these members gets in one round.
    fn take_together(
        &mut self,
        wanted: &[(usize, usize)],
        kind: TransmitKind,
        now: Moment,
    ) -> Vec<i64> {
        let ask = |&(member, count): &(usize, usize)| {
            self.quota.request(self.members[member], vec![kind; count])
        };
        let requests: Vec<_> = wanted.iter().map(ask).collect();
        if self.quota.count_round(now) {
            self.quota.handle_stored();
        }
        let answers = self.quota.poll_answers();
        assert_eq!(answers.len(), requests.len());
        let granted = |request: &u64| {
            let mut found = answers.iter().filter(|answer| answer.request == *request);
            let answer = found.next().expect("each request is answered");
            i64::try_from(answer.granted.iter().filter(|granted| **granted).count()).unwrap()
        };
        requests.iter().map(granted).collect()
    }

    fn take(
        &mut self,
        member: usize,
        kind: TransmitKind,
        count: usize,
        now: impl Into<Moment>,
    ) -> i64 {
        self.take_together(&[(member, count)], kind, now.into())[0]
    }

    /// How many the first of them gets who asks for more than there are.
    fn spend(&mut self, kind: TransmitKind, epoch_ms: i64) -> i64 {
        self.take(0, kind, 1_000, epoch_ms)
    }

    /// Takes all places of an epoch in its last millisecond.
    fn fill(&mut self, epoch_ms: i64) {
        self.spend(TransmitKind::First, epoch_ms);
        assert_eq!(self.spend(TransmitKind::Sync, epoch_ms), 1);
        assert_eq!(self.kinds(at(epoch_ms)), Kinds::NONE);
    }

    fn used(&self) -> i64 {
        self.quota.record().used
    }
}

impl From<i64> for Moment {
    fn from(epoch_ms: i64) -> Self {
        at(epoch_ms)
    }
}

// --- the count of an epoch -----------------------------------------------------------------------

#[test]
fn the_quota_is_spent_and_comes_back_with_the_next_epoch() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.spend(TransmitKind::First, 12_345), 10);
    assert_eq!(alone.kinds(at(19_999)), Kinds::NONE);
    let standing = Standing {
        used: 10,
        total: 10,
        resets_at_ms: 20_000,
    };
    assert_eq!(alone.quota.standing(at(19_999)), standing);
    assert_eq!(alone.quota.resets_at_ms(), 20_000);
    assert_eq!(alone.kinds(at(20_000)), Kinds::ALL);
    assert_eq!(alone.used(), 0);
}

#[test]
fn whatever_is_asked_at_a_time_opens_its_epoch() {
    let asks: [fn(&mut SharedQuota, Moment); 6] = [
        |quota, now| _ = quota.allowance(0, now),
        |quota, now| _ = quota.behind_ms(now),
        |quota, now| _ = quota.standing(now),
        |quota, now| _ = quota.is_open(2, now),
        |quota, now| _ = quota.join(now),
        |quota, now| _ = quota.count_round(now),
    ];
    for (number, ask) in asks.into_iter().enumerate() {
        let mut alone = Shared::alone(TERMS);
        ask(&mut alone.quota, at(25_000));
        assert_eq!(alone.kinds(at(15_000)), Kinds::NONE, "{number}");
    }
}

#[test]
fn a_clock_that_steps_back_never_reopens_an_epoch() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.spend(TransmitKind::First, 25_000), 10);
    assert_eq!(alone.kinds(at(15_000)), Kinds::NONE);
    assert_eq!(alone.kinds(at(29_999)), Kinds::NONE);
    // All of the open one is taken too: nothing leaves before the next.
    assert_eq!(
        alone
            .quota
            .reopens_at_ms(alone.members[0], TransmitKind::First, 15_000),
        30_000
    );
    assert_eq!(alone.spend(TransmitKind::First, 30_000), 10);
    assert_eq!(alone.kinds(at(25_000)), Kinds::NONE);
}

#[test]
fn of_the_fewest_places_answers_to_repair_requests_have_one() {
    for (quota, answers) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        let mut alone = Shared::alone(Terms { quota, ..TERMS });
        assert_eq!(alone.spend(TransmitKind::Repair, 5_000), answers);
    }
}

#[test]
fn acknowledgements_of_an_epoch_that_was_left_are_counted_there_and_in_the_open_one() {
    let terms = Terms {
        ack_reserve: 3,
        ..TERMS
    };
    // Two are left there, of the three that the open one keeps for them.
    let mut alone = Shared::alone(terms);
    assert_eq!(alone.spend(TransmitKind::First, 5_000), 8);
    assert_eq!(alone.kinds(at(95_000)), Kinds::ALL);
    assert_eq!(alone.take(0, TransmitKind::Sync, 1, 5_000), 1);
    assert_eq!(alone.spend(TransmitKind::Sync, 5_000), 1);
    assert_eq!(alone.used(), 2);
    // One of the three is left for any other epoch; the next that opens keeps three again.
    assert_eq!(alone.spend(TransmitKind::Sync, 41_000), 1);
    assert_eq!(alone.kinds(at(105_000)), Kinds::ALL);
    assert_eq!(alone.spend(TransmitKind::Sync, 51_000), 3);
    assert_eq!(alone.used(), 3);
}

#[test]
fn a_clock_that_is_behind_by_the_least_is_behind() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 3,
        ..TERMS
    });
    assert_eq!(alone.kinds(at(95_000)), Kinds::ALL);
    assert_eq!(alone.kinds(at(89_999)), SYNC_ONLY);
    assert_eq!(alone.spend(TransmitKind::Sync, 89_999), 3);
}

#[test]
fn a_single_place_that_was_taken_in_an_epoch_that_was_left_is_not_given_again() {
    let mut alone = Shared::alone(Terms {
        quota: 2,
        ack_reserve: 1,
        ..TERMS
    });
    assert_eq!(alone.spend(TransmitKind::First, 5_000), 1);
    for (epoch_ms, acknowledgements) in [(15_000, 1), (25_000, 0)] {
        alone.kinds(at(epoch_ms));
        let there = alone.spend(TransmitKind::Sync, 5_000);
        assert_eq!(there, acknowledgements);
    }
}

#[test]
fn where_the_epoch_on_record_is_full_nothing_leaves_in_one_before_it() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 3,
        ..TERMS
    });
    alone.fill(99_999);
    assert_eq!(alone.kinds(at(41_000)), Kinds::NONE);
    assert_eq!(alone.spend(TransmitKind::Sync, 41_000), 0);
    assert_eq!(alone.used(), 10);
}

#[test]
fn so_many_epochs_that_were_left_are_remembered() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 3,
        ..TERMS
    });
    let most = i64::try_from(EARLIER_MAX).unwrap();
    for epoch in 0..=most {
        alone.take(0, TransmitKind::First, 1, epoch * EPOCH_MS);
    }
    assert_eq!(alone.kinds(at(0)), SYNC_ONLY);
    alone.kinds(at((most + 1) * EPOCH_MS));
    assert_eq!(alone.kinds(at(0)), Kinds::NONE);
    assert_eq!(alone.kinds(at(EPOCH_MS)), SYNC_ONLY);
}

#[test]
fn answers_to_repair_requests_leave_room_for_our_own_messages() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 2,
        ..TERMS
    });
    assert_eq!(alone.spend(TransmitKind::Repair, 20_000), 4);
    assert_eq!(alone.spend(TransmitKind::First, 20_000), 4);
    assert_eq!(alone.spend(TransmitKind::Sync, 20_000), 1);
    assert_eq!(alone.spend(TransmitKind::Repair, 30_000), 4);
}

#[test]
fn answers_to_repair_requests_have_their_part_of_an_epoch_that_a_stored_count_opens() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.spend(TransmitKind::Repair, 5_000), 5);
    alone.quota.add(Record {
        epoch: 1,
        epoch_size_ms: EPOCH_MS,
        used: 2,
    });
    assert_eq!(alone.spend(TransmitKind::Repair, 15_000), 5);
}

#[test]
fn an_epoch_that_was_left_stays_closed_though_the_open_one_has_room() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.kinds(at(25_000)), Kinds::ALL);
    assert_eq!(alone.kinds(at(15_000)), Kinds::NONE);
    assert_eq!(alone.drop_reason(15_000), Some(DropReason::Reached));
    assert_eq!(
        alone
            .quota
            .reopens_at_ms(alone.members[0], TransmitKind::First, 15_000),
        20_000
    );
    assert_eq!(alone.kinds(at(20_000)), Kinds::ALL);
}

#[test]
fn acknowledgements_take_the_reserve_of_the_epoch_on_record_while_the_clock_stands_before_it() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 3,
        ..TERMS
    });
    assert_eq!(alone.spend(TransmitKind::First, 0), 7);
    assert_eq!(alone.spend(TransmitKind::First, 90_000), 7);
    // It was ahead, and is set right: in epochs in which nothing left there is room, and the reserve is one.
    assert_eq!(alone.quota.behind_ms(at(41_000)), 49_000);
    assert_eq!(alone.kinds(at(41_000)), SYNC_ONLY);
    assert_eq!(alone.spend(TransmitKind::Sync, 41_000), 3);
    assert_eq!(alone.kinds(at(51_000)), Kinds::NONE);
    assert_eq!(alone.kinds(at(95_000)), Kinds::NONE);
    assert_eq!(alone.used(), 10);
    assert_eq!(alone.quota.behind_ms(at(100_000)), 0);
    assert_eq!(alone.kinds(at(100_000)), Kinds::ALL);
}

#[test]
fn an_epoch_that_is_full_or_unknown_takes_no_acknowledgement_either() {
    let terms = Terms {
        ack_reserve: 3,
        ..TERMS
    };
    let stored = |epoch| Record {
        epoch,
        epoch_size_ms: EPOCH_MS,
        used: 2,
    };
    let mut alone = Shared::restored(terms, stored(3));
    alone.fill(59_999);
    assert_eq!(alone.kinds(at(75_000)), Kinds::ALL);
    assert_eq!(alone.kinds(at(55_000)), Kinds::NONE);
    assert_eq!(alone.kinds(at(29_999)), Kinds::NONE);
    assert!(!alone.quota.enters(29_999));
    assert!(alone.quota.enters(30_000));
    assert_eq!(alone.kinds(at(30_000)), SYNC_ONLY);
    // What a node holds may leave there, too; it is looked at once for each time that the clock comes there.
    let held = |in_flight| Moment {
        epoch_ms: 45_000,
        in_flight,
    };
    assert!(alone.quota.enters(45_000));
    assert_eq!(alone.kinds(held(5)), SYNC_ONLY);
    assert!(!alone.quota.enters(45_000));
    assert_eq!(alone.kinds(held(5)), SYNC_ONLY);
    assert_eq!(alone.kinds(at(85_000)), Kinds::ALL);
    assert!(alone.quota.enters(45_000));
    assert_eq!(alone.kinds(held(5)), Kinds::NONE);
    let mut restarted = Shared::restored(terms, stored(7));
    assert_eq!(restarted.kinds(at(69_999)), Kinds::NONE);
    // The count of the epoch of 12 s is nowhere, also once another one was open.
    let mut elsewhere = Shared::alone(terms);
    elsewhere.quota.close(at(12_000));
    assert_eq!(elsewhere.kinds(at(25_000)), Kinds::ALL);
    assert_eq!(elsewhere.kinds(at(15_000)), Kinds::NONE);
    // What it counted before that is nowhere, either.
    assert_eq!(elsewhere.kinds(at(5_000)), Kinds::NONE);
}

#[test]
fn what_a_node_holds_when_an_epoch_ends_counts_in_the_next_one_too() {
    let mut alone = Shared::alone(TERMS);
    assert!(alone.quota.enters(12_000));
    alone.kinds(at(12_000));
    assert!(!alone.quota.enters(19_999));
    assert!(alone.quota.enters(20_000));
    let held = Moment {
        epoch_ms: 20_000,
        in_flight: 4,
    };
    assert_eq!(alone.take(0, TransmitKind::First, 10, held), 6);
    assert_eq!(alone.used(), 10);
    // What is told later is not counted again.
    assert_eq!(alone.kinds(held), Kinds::NONE);
    let more = Moment {
        epoch_ms: 30_000,
        in_flight: 400,
    };
    assert_eq!(alone.kinds(more), Kinds::NONE);
    assert_eq!(alone.used(), 10);
}

#[test]
fn a_count_that_changed_is_stored_with_the_next() {
    let mut alone = Shared::alone(TERMS);
    let record = |epoch, used| Record {
        epoch,
        epoch_size_ms: EPOCH_MS,
        used,
    };
    alone.kinds(at(5_000));
    assert_eq!(alone.quota.poll_record(), None);
    // What a node holds counts in an epoch that begins.
    let held = Moment {
        epoch_ms: 10_000,
        in_flight: 1,
    };
    alone.kinds(held);
    assert_eq!(alone.quota.poll_record(), Some(record(1, 1)));
    assert_eq!(alone.take(0, TransmitKind::First, 3, 15_000), 3);
    assert_eq!(alone.quota.poll_record(), Some(record(1, 4)));
    alone.quota.give_back(2, 1);
    assert_eq!(alone.quota.poll_record(), Some(record(1, 2)));
    assert_eq!(alone.take(0, TransmitKind::First, 1, 15_000), 1);
    alone.kinds(at(20_000));
    assert_eq!(alone.quota.poll_record(), Some(record(2, 0)));
    alone.kinds(at(30_000));
    assert_eq!(alone.quota.poll_record(), None);
}

#[test]
fn messages_count_once_and_their_further_segments_are_free() {
    let mut alone = Shared::alone(Terms {
        counts: Counts::Message,
        ..TERMS
    });
    let free = Kinds::NONE
        .with(TransmitKind::Further)
        .with(TransmitKind::Retransmission);
    assert_eq!(alone.quota.free_kinds(), free);
    for kind in [TransmitKind::Further, TransmitKind::Retransmission] {
        assert_eq!(alone.spend(kind, 0), 1_000);
    }
    assert_eq!(alone.used(), 0);
    for kind in [
        TransmitKind::First,
        TransmitKind::Sync,
        TransmitKind::Ephemeral,
        TransmitKind::Repair,
    ] {
        assert_eq!(alone.take(0, kind, 1, 0), 1);
    }
    assert_eq!(alone.used(), 4);
    assert_eq!(alone.spend(TransmitKind::First, 0), 6);
    assert_eq!(alone.kinds(at(0)), free);
}

#[test]
fn every_envelope_counts_under_the_segment_rule() {
    for kind in TransmitKind::ALL {
        let mut alone = Shared::alone(TERMS);
        assert_eq!(alone.take(0, kind, 1, 12_345), 1);
        assert_eq!(alone.used(), 1);
    }
}

#[test]
fn the_reserve_is_left_for_syncs_over_the_epoch_and_is_never_the_whole_quota() {
    for (quota, ack_reserve, kept) in [(10, 1, 1), (1, 1, 0), (2, 2, 1), (5, 0, 0), (10, 5, 5)] {
        let mut alone = Shared::alone(Terms {
            quota,
            ack_reserve,
            ..TERMS
        });
        assert_eq!(alone.spend(TransmitKind::First, 0), quota - kept);
        let mut syncs = Vec::new();
        for epoch_ms in 0..EPOCH_MS {
            let granted = alone.take(0, TransmitKind::Sync, 2, epoch_ms);
            syncs.extend((0..granted).map(|_| epoch_ms));
        }
        let evenly = (0..kept).map(|sync| sync * EPOCH_MS / kept);
        assert_eq!(syncs, Vec::from_iter(evenly));
        assert_eq!(alone.used(), quota);
    }
}

#[test]
fn messages_have_of_the_reserve_what_the_time_that_is_over_left() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 4,
        ..TERMS
    });
    for (epoch_ms, messages) in [(0, 6), (2_499, 0), (2_500, 1), (7_500, 2), (9_999, 0)] {
        assert_eq!(alone.spend(TransmitKind::First, epoch_ms), messages);
    }
}

#[test]
fn syncs_have_all_of_an_epoch_in_which_nothing_else_leaves_and_no_more_than_its_time() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 2,
        ..TERMS
    });
    let mut syncs = 0;
    for epoch_ms in 0..EPOCH_MS {
        syncs += alone.spend(TransmitKind::Sync, epoch_ms);
        assert_eq!(syncs, 2 + 8 * epoch_ms / EPOCH_MS);
    }
    // What was left over is not carried into the next epoch.
    assert_eq!(alone.spend(TransmitKind::Sync, EPOCH_MS), 2);
}

#[test]
fn it_is_told_when_a_sync_and_when_a_message_may_leave() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 2,
        ..TERMS
    });
    let reopens = |alone: &Shared, epoch_ms| {
        let kinds = [TransmitKind::First, TransmitKind::Sync];
        kinds.map(|kind| alone.quota.reopens_at_ms(alone.members[0], kind, epoch_ms))
    };
    // By what others use of their time: one of eight.
    assert_eq!(alone.spend(TransmitKind::Sync, 0), 2);
    assert_eq!(reopens(&alone, 0)[1], EPOCH_MS / 8);
    // By the last one: half of an epoch ago.
    assert_eq!(alone.spend(TransmitKind::First, 0), 6);
    assert_eq!(reopens(&alone, 0), [EPOCH_MS / 2, EPOCH_MS / 2]);
    assert_eq!(alone.spend(TransmitKind::Sync, EPOCH_MS / 2), 1);
    assert_eq!(reopens(&alone, EPOCH_MS / 2), [EPOCH_MS, EPOCH_MS]);
    assert_eq!(alone.spend(TransmitKind::First, EPOCH_MS - 1), 0);
    // Of a message that never left nobody has the place but what is in time.
    alone.quota.give_back(9, 0);
    assert_eq!(alone.kinds(at(EPOCH_MS / 2)), Kinds::ALL);
}

#[test]
fn ephemeral_messages_are_dropped_from_the_threshold_on() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.take(0, TransmitKind::First, 8, 0), 8);
    assert_eq!(alone.drop_reason(0), None);
    assert_eq!(alone.take(0, TransmitKind::First, 1, 0), 1);
    assert_eq!(alone.drop_reason(0), Some(DropReason::Approached));
    assert_eq!(alone.take(0, TransmitKind::First, 1, 0), 1);
    assert_eq!(alone.drop_reason(0), Some(DropReason::Reached));
    assert_eq!(alone.drop_reason(EPOCH_MS), None);
    assert_eq!(alone.spend(TransmitKind::Ephemeral, EPOCH_MS), 9);
}

// --- restarts ------------------------------------------------------------------------------------

#[test]
fn a_restart_continues_the_count_of_the_epoch() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.quota.poll_record(), None);
    assert_eq!(alone.take(0, TransmitKind::First, 7, 12_345), 7);
    let stored = alone.quota.poll_record().expect("it changed");
    assert_eq!(alone.quota.poll_record(), None);
    let mut resumed = Shared::restored(TERMS, stored);
    assert_eq!(resumed.spend(TransmitKind::First, 13_000), 3);
    assert_eq!(resumed.spend(TransmitKind::First, 20_000), 10);
}

#[test]
fn counts_of_one_epoch_are_added_and_those_of_earlier_ones_are_remembered() {
    let mut alone = Shared::alone(Terms {
        ack_reserve: 3,
        ..TERMS
    });
    let stored = |epoch, used| Record {
        epoch,
        epoch_size_ms: EPOCH_MS,
        used,
    };
    assert_eq!(alone.take(0, TransmitKind::First, 2, 45_000), 2);
    alone.quota.add(stored(4, 3));
    assert_eq!(alone.used(), 5);
    alone.quota.add(stored(3, 9));
    assert_eq!(alone.used(), 5);
    alone.quota.add(stored(6, 1));
    assert_eq!(alone.quota.record(), stored(6, 1));
    // Of what was before the newest of them nobody knows all.
    assert_eq!(alone.kinds(at(45_000)), Kinds::NONE);
    // Of an earlier one as much is known as is stored.
    let mut later = Shared::alone(Terms {
        ack_reserve: 3,
        ..TERMS
    });
    later.kinds(at(45_000));
    later.quota.add(stored(3, 9));
    assert_eq!(later.spend(TransmitKind::Sync, 35_000), 1);
}

#[test]
fn a_changed_epoch_size_does_not_reopen_what_was_used() {
    let stored = Record {
        epoch: 1,
        epoch_size_ms: 60_000,
        used: 10,
    };
    let mut alone = Shared::restored(TERMS, stored);
    assert_eq!(alone.kinds(at(70_000)), Kinds::NONE);
    assert_eq!(alone.kinds(at(120_000)), Kinds::ALL);
    let shortest = Terms {
        epoch_size_ms: 1,
        ..TERMS
    };
    let mut alone = Shared::restored(shortest, stored);
    assert_eq!(alone.kinds(at(119_999)), Kinds::NONE);
    assert_eq!(alone.kinds(at(120_000)), Kinds::ALL);
}

#[test]
fn nothing_is_spent_of_an_epoch_that_was_counted_elsewhere_until_that_count_is_known() {
    let stored = Record {
        epoch: 1,
        epoch_size_ms: EPOCH_MS,
        used: 4,
    };
    let mut alone = Shared::alone(TERMS);
    alone.quota.close(at(12_000));
    assert_eq!(alone.kinds(at(13_000)), Kinds::NONE);
    assert_eq!(alone.used(), 10);
    alone.quota.add(stored);
    assert_eq!(alone.spend(TransmitKind::First, 14_000), 6);
    // It is known from then on.
    alone.quota.close(at(25_000));
    assert_eq!(alone.spend(TransmitKind::First, 25_000), 10);
    let mut waits = Shared::alone(TERMS);
    waits.quota.close(at(12_000));
    assert_eq!(waits.spend(TransmitKind::First, 19_999), 0);
    assert_eq!(waits.spend(TransmitKind::First, 20_000), 10);
}

#[test]
fn records_of_any_numbers_are_taken_over() {
    let numbers = [i64::MIN, -1, 0, 1, i64::MAX];
    for epoch in numbers {
        for epoch_size_ms in numbers {
            for used in numbers {
                let mut alone = Shared::restored(
                    Terms {
                        epoch_size_ms: 1,
                        ..TERMS
                    },
                    Record {
                        epoch,
                        epoch_size_ms,
                        used,
                    },
                );
                for epoch_ms in [0, 1, EPOCH_MS, i64::MAX / 2] {
                    let granted = alone.spend(TransmitKind::First, epoch_ms);
                    alone
                        .quota
                        .reopens_at_ms(alone.members[0], TransmitKind::First, epoch_ms);
                    alone.quota.standing(at(epoch_ms));
                    assert!(used < 0 || granted <= 10);
                }
            }
        }
    }
}

// --- members -------------------------------------------------------------------------------------

#[test]
fn who_asks_in_one_moment_gets_the_same() {
    for (quota, members, wanted, granted) in [
        (2, 3, 2, vec![1, 1, 0]),
        (9, 3, 20, vec![3, 3, 3]),
        (7, 2, 1, vec![1, 1]),
        (5, 1, 9, vec![5]),
    ] {
        let mut shared = Shared::new(Terms { quota, ..TERMS }, members, 0);
        let all: Vec<_> = (0..members).map(|member| (member, wanted)).collect();
        assert_eq!(
            shared.take_together(&all, TransmitKind::First, at(0)),
            granted
        );
    }
}

#[test]
fn members_that_are_more_than_the_places_take_turns() {
    for (quota, ack_reserve, members) in [(1, 0, 2), (1, 0, 3), (2, 1, 4), (3, 0, 5), (4, 1, 7)] {
        let mut shared = Shared::new(
            Terms {
                quota,
                ack_reserve,
                ..TERMS
            },
            members,
            0,
        );
        let epochs = 60;
        let mut granted = vec![0; members];
        for epoch in 0..epochs {
            // The first always comes first, alone in its round.
            for (member, granted) in granted.iter_mut().enumerate() {
                let now = at(epoch * EPOCH_MS);
                let allowance = shared.quota.allowance(shared.members[member], now);
                if allowance.kinds(0).has(TransmitKind::First) || epoch % 2 == 0 {
                    *granted += shared.take(member, TransmitKind::First, 1, now);
                }
            }
        }
        let least = granted.iter().min().unwrap();
        let share = epochs * (quota - ack_reserve) / i64::try_from(members).unwrap();
        assert!(*least >= share / 2, "{granted:?} of {share} each");
        assert!(
            granted.iter().sum::<i64>() >= epochs * (quota - ack_reserve) / 2,
            "{granted:?}"
        );
    }
}

#[test]
fn a_turn_is_kept_for_an_epoch_and_from_acknowledgements_too() {
    let mut shared = Shared::new(Terms { quota: 1, ..TERMS }, 3, 0);
    assert_eq!(shared.spend(TransmitKind::First, 0), 1);
    for member in [1, 2] {
        assert_eq!(shared.take(member, TransmitKind::First, 1, 1), 0);
    }
    // The second has the next epoch, whoever asks before it.
    assert_eq!(shared.spend(TransmitKind::Sync, EPOCH_MS), 0);
    assert_eq!(shared.take(2, TransmitKind::First, 1, EPOCH_MS), 0);
    assert_eq!(shared.take(1, TransmitKind::First, 2, EPOCH_MS), 1);
    // The third has the one after that, and does not ask: it has lost its turn.
    assert_eq!(shared.spend(TransmitKind::First, 2 * EPOCH_MS), 0);
    assert_eq!(shared.spend(TransmitKind::First, 3 * EPOCH_MS - 1), 0);
    assert_eq!(shared.spend(TransmitKind::First, 3 * EPOCH_MS), 1);
}

#[test]
fn a_turn_is_for_one_content_and_no_acknowledgement_takes_it() {
    let mut shared = Shared::of_three(5, 3);
    for member in [0, 1] {
        assert_eq!(shared.take(member, TransmitKind::First, 1, 0), 1);
    }
    // The third is passed over, though it acknowledges.
    assert_eq!(shared.take(2, TransmitKind::First, 1, 0), 0);
    assert_eq!(shared.take(2, TransmitKind::Sync, 1, 0), 1);
    let now = at(EPOCH_MS);
    assert_eq!(shared.take(0, TransmitKind::Sync, 2, now), 2);
    // Acknowledgements have all that is open, and the reserve is theirs but for one place.
    let member = shared.members[2];
    assert_eq!(shared.quota.allowance(member, now).open_left, 1);
    assert_eq!(shared.take(2, TransmitKind::First, 1, now), 1);
    assert_eq!(shared.quota.allowance(member, now).open_left, 0);
}

#[test]
fn a_turn_outlasts_a_count_that_could_not_be_stored() {
    let mut shared = Shared::of_three(5, 3);
    for (member, granted) in [(0, 1), (1, 1), (2, 0)] {
        assert_eq!(shared.take(member, TransmitKind::First, 1, 0), granted);
    }
    let now = at(EPOCH_MS);
    assert_eq!(shared.take(0, TransmitKind::Sync, 2, now), 2);
    let member = shared.members[2];
    shared.quota.request(member, vec![TransmitKind::First]);
    assert!(shared.quota.count_round(now));
    assert!(shared.quota.handle_store_failed(EPOCH_MS));
    assert_eq!(shared.quota.allowance(member, now).open_left, 0);
    let later = at(EPOCH_MS + PAUSE_MS_MIN);
    assert_eq!(shared.quota.allowance(member, later).open_left, 1);
}

#[test]
fn who_had_fewer_places_of_an_epoch_is_next_whatever_a_round_gave() {
    let mut shared = Shared::new(TERMS, 2, 0);
    assert_eq!(shared.take(0, TransmitKind::First, 4, 0), 4);
    let late = at(EPOCH_MS - 1);
    let together = shared.take_together(&[(0, 10), (1, 10)], TransmitKind::First, late);
    assert_eq!(together, [1, 5]);
}

#[test]
fn acknowledgements_of_others_keep_no_content_waiting_for_ever() {
    let mut shared = Shared::of_three(5, 3);
    let mut got = 0;
    for epoch in 0..10 {
        let now = shared.begin_with_syncs(epoch);
        // A channel asks for its content first where there is one place.
        got += shared.take(2, TransmitKind::First, 1, now);
        shared.take(2, TransmitKind::Sync, 1, now);
        assert!(shared.used() <= 5);
    }
    assert!(got >= 4, "{got}");
    // A clock that stands before the epoch on record opens nothing for whose turn it is.
    let before = at(9 * EPOCH_MS - 1);
    let member = shared.members[2];
    assert_eq!(shared.quota.allowance(member, before).open_left, 0);
}

#[test]
fn whose_contents_find_no_open_place_has_a_turn_without_having_asked() {
    let mut shared = Shared::of_three(3, 2);
    let mut got = 0;
    for epoch in 0..10 {
        let now = shared.begin_with_syncs(epoch);
        let waiting = shared.members[2];
        if shared.quota.allowance(waiting, now).open_left > 0 {
            got += shared.take(2, TransmitKind::First, 1, now);
        } else {
            shared.quota.pass_over(waiting, now);
        }
    }
    assert!(got >= 4, "{got}");
}

#[test]
fn who_was_idle_for_an_epoch_is_left_nothing() {
    let mut shared = Shared::new(TERMS, 2, 0);
    // Both joined in it.
    assert_eq!(shared.spend(TransmitKind::First, 0), 5);
    // In the next one the second still counts as active.
    assert_eq!(shared.spend(TransmitKind::First, EPOCH_MS), 5);
    assert_eq!(shared.spend(TransmitKind::First, 2 * EPOCH_MS), 10);
    // Acknowledgements make nobody active.
    assert_eq!(shared.take(1, TransmitKind::Sync, 1, 3 * EPOCH_MS), 1);
    assert_eq!(shared.spend(TransmitKind::First, 3 * EPOCH_MS), 9);
}

#[test]
fn who_was_idle_for_an_epoch_that_was_slept_through_is_left_nothing() {
    let mut shared = Shared::new(TERMS, 2, 0);
    assert_eq!(shared.spend(TransmitKind::First, 2 * EPOCH_MS), 10);
}

#[test]
fn who_asks_for_acknowledgements_and_more_is_left_a_share() {
    let mut shared = Shared::new(TERMS, 2, 0);
    let now_ms = 2 * EPOCH_MS;
    shared.kinds(at(now_ms));
    for (kinds, left) in [
        (vec![TransmitKind::Sync], 9),
        (vec![TransmitKind::Sync, TransmitKind::First], 5),
    ] {
        shared.quota.request(shared.members[1], kinds);
        assert!(shared.quota.count_round(at(now_ms)));
        shared.quota.handle_stored();
        shared.quota.poll_answers();
        let allowance = shared.quota.allowance(shared.members[0], at(now_ms));
        assert_eq!(allowance.open_left, left);
    }
}

#[test]
fn who_joins_counts_as_active_in_the_epoch_of_that_time() {
    let mut shared = Shared::new(TERMS, 2, 1_000 * EPOCH_MS);
    assert_eq!(shared.quota.member_count(), 2);
    assert_eq!(shared.spend(TransmitKind::First, 1_000 * EPOCH_MS), 5);
}

#[test]
fn who_asked_before_an_epoch_began_is_left_the_rest_of_a_share_in_it() {
    for epoch in [1, 5] {
        let mut shared = Shared::new(TERMS, 2, 0);
        let now_ms = epoch * EPOCH_MS;
        // Nothing was counted meanwhile.
        let waits = vec![TransmitKind::First];
        shared.quota.request(shared.members[0], waits);
        assert!(shared.quota.count_round(at(now_ms)));
        shared.quota.handle_stored();
        assert!(shared.quota.poll_answers()[0].granted[0]);
        assert_eq!(shared.take(1, TransmitKind::First, 9, now_ms), 5);
        // It is active in the epoch after that, too.
        let next_ms = now_ms + EPOCH_MS;
        assert_eq!(shared.take(1, TransmitKind::First, 9, next_ms), 5);
    }
}

#[test]
fn who_waits_for_acknowledgements_alone_when_an_epoch_begins_is_left_nothing_in_the_next() {
    let mut shared = Shared::new(TERMS, 2, 0);
    let waits = vec![TransmitKind::Sync];
    shared.quota.request(shared.members[0], waits);
    shared.quota.allowance(shared.members[1], at(EPOCH_MS));
    assert!(shared.quota.count_round(at(EPOCH_MS)));
    shared.quota.handle_stored();
    assert!(shared.quota.poll_answers()[0].granted[0]);
    assert_eq!(shared.take(1, TransmitKind::First, 20, 2 * EPOCH_MS), 10);
}

#[test]
fn what_may_be_prepared_when_an_epoch_begins_leaves_the_others_their_shares() {
    let mut shared = Shared::new(TERMS, 2, 0);
    let member = shared.members[0];
    let allowance = shared.quota.allowance(member, at(EPOCH_MS));
    assert_eq!((allowance.open_left, allowance.left), (5, 10));
}

#[test]
fn the_last_place_of_another_one_is_looked_for_before_the_epoch_ends() {
    for (epoch_size_ms, looks_at_ms) in [(EPOCH_MS, EPOCH_MS / 64), (10, 1)] {
        let terms = Terms {
            quota: 2,
            epoch_size_ms,
            ..TERMS
        };
        let shared = Shared::new(terms, 2, 0);
        let reopens_at_ms = shared
            .quota
            .reopens_at_ms(shared.members[0], TransmitKind::First, 0);
        assert_eq!(reopens_at_ms, looks_at_ms);
    }
}

#[test]
fn shares_are_those_of_the_epoch() {
    let mut shared = Shared::new(TERMS, 2, 0);
    for epoch_ms in [0, EPOCH_MS, 2 * EPOCH_MS] {
        assert_eq!(shared.spend(TransmitKind::First, epoch_ms), 5);
        assert_eq!(shared.take(1, TransmitKind::First, 5, epoch_ms), 5);
    }
}

#[test]
fn what_is_kept_for_others_shrinks_with_the_epoch_and_acknowledgements_take_it_all_the_same() {
    let mut shared = Shared::new(
        Terms {
            quota: 22,
            ack_reserve: 2,
            ..TERMS
        },
        2,
        0,
    );
    let reopens_at_ms = |shared: &Shared, epoch_ms| {
        let member = shared.members[0];
        shared
            .quota
            .reopens_at_ms(member, TransmitKind::First, epoch_ms)
    };
    for (epoch_ms, granted) in [(0, 10), (2_500, 2), (5_000, 4), (7_500, 2), (9_999, 2)] {
        assert_eq!(shared.spend(TransmitKind::First, epoch_ms), granted);
        // It is looked again before the next epoch.
        let looks_at_ms = (epoch_ms + EPOCH_MS / 64).min(EPOCH_MS);
        assert_eq!(reopens_at_ms(&shared, epoch_ms), looks_at_ms);
    }
    assert_eq!(shared.spend(TransmitKind::Sync, 9_999), 1);
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.spend(TransmitKind::First, 1), 10);
    assert_eq!(reopens_at_ms(&alone, 1), EPOCH_MS);
}

#[test]
fn places_that_could_not_be_stored_are_nobodys_and_none_is_given_for_a_while() {
    let long = Terms {
        epoch_size_ms: 1_000_000,
        ..TERMS
    };
    let mut shared = Shared::new(long, 2, 0);
    let mut now_ms = 1_000;
    let mut pause_ms = PAUSE_MS_MIN;
    for failure in 0..40 {
        for member in shared.members.clone() {
            shared.quota.request(member, vec![TransmitKind::First; 3]);
        }
        assert!(shared.quota.count_round(at(now_ms)));
        assert!(shared.quota.poll_answers().is_empty());
        let is_news = shared.quota.handle_store_failed(now_ms);
        assert_eq!(is_news, failure == 0);
        let answers = shared.quota.poll_answers();
        assert!(answers.iter().all(|answer| answer.granted == [false; 3]));
        assert_eq!((answers.len(), shared.used()), (2, 0));
        let member = shared.members[0];
        for paused_ms in [now_ms, now_ms + pause_ms - 1] {
            assert_eq!(shared.kinds(at(paused_ms)), Kinds::NONE);
            let reopens_at_ms = shared
                .quota
                .reopens_at_ms(member, TransmitKind::First, paused_ms);
            assert_eq!(reopens_at_ms, now_ms + pause_ms);
        }
        // A clock that is set back does not make it longer.
        let before_ms = now_ms + pause_ms - PAUSE_MS_MAX - 1;
        assert!(before_ms < 0 || shared.kinds(at(before_ms)) == Kinds::ALL);
        now_ms += pause_ms;
        assert_eq!(shared.kinds(at(now_ms)), Kinds::ALL);
        pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
    }
    assert_eq!(shared.take(0, TransmitKind::First, 1, now_ms), 1);
    shared
        .quota
        .request(shared.members[0], vec![TransmitKind::First]);
    assert!(shared.quota.count_round(at(now_ms)));
    assert!(shared.quota.handle_store_failed(now_ms));
    assert_eq!(shared.kinds(at(now_ms + PAUSE_MS_MIN)), Kinds::ALL);
}

#[test]
fn a_round_in_which_nothing_was_counted_is_answered_without_being_stored() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.spend(TransmitKind::First, 0), 10);
    alone
        .quota
        .request(alone.members[0], vec![TransmitKind::First]);
    assert!(!alone.quota.count_round(at(0)));
    assert_eq!(alone.quota.poll_answers()[0].granted, [false]);
}

#[test]
fn who_is_alone_waits_after_a_count_that_could_not_be_stored_too() {
    let mut alone = Shared::alone(TERMS);
    for is_news in [true, false] {
        alone
            .quota
            .request(alone.members[0], vec![TransmitKind::First]);
        alone.quota.count_round(at(0));
        assert_eq!(alone.quota.handle_store_failed(0), is_news);
        assert_eq!(alone.kinds(at(PAUSE_MS_MIN - 1)), Kinds::NONE);
    }
}

#[test]
fn answers_to_repair_requests_that_could_not_be_stored_take_nothing_of_their_part() {
    let long = Terms {
        epoch_size_ms: 1_000_000,
        ..TERMS
    };
    let mut alone = Shared::alone(long);
    let mut now_ms = 0;
    for _ in 0..3 {
        let member = alone.members[0];
        let kinds = [TransmitKind::First, TransmitKind::Repair];
        alone.quota.request(member, kinds.repeat(3));
        assert!(alone.quota.count_round(at(now_ms)));
        alone.quota.handle_store_failed(now_ms);
        alone.quota.poll_answers();
        now_ms += PAUSE_MS_MAX;
    }
    assert_eq!(alone.spend(TransmitKind::Repair, now_ms), 5);
    assert_eq!(alone.spend(TransmitKind::First, now_ms), 5);
}

#[test]
fn places_of_other_messages_that_never_left_give_nothing_to_answers_to_repair_requests() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.take(0, TransmitKind::Repair, 4, 0), 4);
    let member = alone.members[0];
    alone.quota.request(member, vec![TransmitKind::First; 2]);
    assert!(alone.quota.count_round(at(0)));
    alone.quota.handle_store_failed(0);
    alone.quota.poll_answers();
    assert_eq!(alone.take(0, TransmitKind::First, 2, PAUSE_MS_MIN), 2);
    alone.quota.give_back(1, 0);
    assert_eq!(alone.spend(TransmitKind::Repair, PAUSE_MS_MIN), 1);
}

#[test]
fn who_leaves_while_it_is_stored_gives_his_places_back() {
    let mut shared = Shared::new(TERMS, 2, 0);
    let (first, second) = (shared.members[0], shared.members[1]);
    let stays = shared.quota.request(first, vec![TransmitKind::First; 3]);
    let leaves = shared.quota.request(second, vec![TransmitKind::First; 3]);
    let waits = shared.quota.request(second, vec![TransmitKind::First]);
    assert!(shared.quota.count_round(at(0)));
    assert_eq!(shared.used(), 6);
    shared.quota.leave(second);
    shared.quota.handle_stored();
    let late = shared.quota.request(second, vec![TransmitKind::First]);
    let answers = shared.quota.poll_answers();
    let granted: BTreeMap<_, _> = answers
        .into_iter()
        .map(|answer| (answer.request, answer.granted))
        .collect();
    let expected = [
        (stays, vec![true; 3]),
        (leaves, vec![false; 3]),
        (waits, vec![false]),
        (late, vec![false]),
    ];
    assert_eq!(granted, BTreeMap::from(expected));
    assert_eq!(shared.used(), 3);
    assert_eq!(shared.quota.member_count(), 1);
    assert_eq!(shared.quota.asking().count(), 0);
    // Nobody is left who would wait for the end of a pause.
    shared.quota.request(first, vec![TransmitKind::First]);
    assert!(shared.quota.count_round(at(0)));
    shared.quota.leave(first);
    assert!(!shared.quota.handle_store_failed(0));
    assert_eq!(shared.used(), 3);
}

#[test]
fn where_nobody_counts_any_more_whatever_waits_is_refused() {
    let mut shared = Shared::new(TERMS, 2, 0);
    for member in shared.members.clone() {
        shared.quota.request(member, vec![TransmitKind::First; 2]);
        shared.quota.request(member, vec![TransmitKind::Sync]);
    }
    assert!(shared.quota.count_round(at(0)));
    assert_eq!(shared.quota.asking().count(), 2);
    shared.quota.refuse_all();
    let answers = shared.quota.poll_answers();
    assert_eq!((answers.len(), shared.used()), (4, 0));
    assert!(!answers.iter().any(|answer| answer.granted.contains(&true)));
    assert_eq!(shared.quota.asking().count(), 0);
    assert_eq!(shared.take(0, TransmitKind::First, 2, 0), 2);
}

#[test]
fn places_of_an_epoch_that_ended_are_void_and_are_not_taken_for_places_of_the_next() {
    let mut alone = Shared::alone(TERMS);
    assert_eq!(alone.spend(TransmitKind::First, 5_000), 10);
    assert!(alone.quota.is_open(0, at(9_999)));
    assert!(!alone.quota.is_open(0, at(10_000)));
    assert_eq!(alone.take(0, TransmitKind::First, 3, 10_000), 3);
    alone.quota.give_back(10, 0);
    assert_eq!(alone.used(), 3);
    alone.quota.give_back(1, 1);
    assert_eq!(alone.spend(TransmitKind::First, 10_000), 8);
}

// --- whatever happens ----------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Step {
    /// The clock is set to a time.
    Clock(i64),
    /// Members ask for so many places of a kind, in one round, which is stored or not.
    Round(Vec<(usize, TransmitKind, usize)>, Fate),
    /// Messages that have their places leave, be it late; places of those that may not are given back.
    Leave(usize),
    /// A node took messages, and did not say yet when they leave.
    Hand(usize),
    /// It says that they left: now.
    Answer(usize),
    /// The process dies and comes back.
    Restart,
    /// One leaves, and another one joins.
    Replace(usize),
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Stored,
    Failed,
    Stopped,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || prop::sample::select(TransmitKind::ALL.to_vec());
    let fate = prop_oneof![
        6 => Just(Fate::Stored),
        1 => Just(Fate::Failed),
        1 => Just(Fate::Stopped),
    ];
    let asks = prop::collection::vec((0..3_usize, kind(), 1..8_usize), 1..4);
    let step = prop_oneof![
        3 => (0..200_000_i64).prop_map(Step::Clock),
        6 => (asks, fate).prop_map(|(asks, fate)| Step::Round(asks, fate)),
        4 => (0..12_usize).prop_map(Step::Leave),
        2 => (0..4_usize).prop_map(Step::Hand),
        2 => (0..4_usize).prop_map(Step::Answer),
        1 => Just(Step::Restart),
        1 => (0..3_usize).prop_map(Step::Replace),
    ];
    prop::collection::vec(step, 0..120)
}

fn terms() -> impl Strategy<Value = Terms> {
    let sizes = prop::sample::select(vec![1_000_i64, 10_000, 60_000]);
    let counts = prop::sample::select(vec![Counts::Message, Counts::Segment]);
    let parts = (1..12_i64, 0..12_i64, 0..12_i64);
    (sizes, counts, parts).prop_map(
        |(epoch_size_ms, counts, (quota, ack_reserve, ephemeral_max))| Terms {
            epoch_size_ms,
            quota,
            counts,
            ack_reserve,
            ephemeral_max,
        },
    )
}

/// What a limit is for: how many messages really left, by epoch of the clock at which they did.
struct World {
    terms: Terms,
    shared: Shared,
    stored: Option<Record>,
    epoch_ms: i64,
    /// Epochs of places that were given and are not used yet.
    places: Vec<i64>,
    in_flight: usize,
    left: BTreeMap<i64, i64>,
}

impl World {
    fn new(terms: Terms) -> Self {
        World {
            terms,
            shared: Shared::new(terms, 3, 0),
            stored: None,
            epoch_ms: 0,
            places: Vec::new(),
            in_flight: 0,
            left: BTreeMap::new(),
        }
    }

    fn now(&self) -> Moment {
        // What nobody asks for is not told.
        let is_asked = self.shared.quota.enters(self.epoch_ms);
        Moment {
            epoch_ms: self.epoch_ms,
            in_flight: if is_asked {
                i64::try_from(self.in_flight).unwrap()
            } else {
                i64::MAX
            },
        }
    }

    fn leaves(&mut self) {
        let epoch = self.epoch_ms.div_euclid(self.terms.epoch_size_ms);
        *self.left.entry(epoch).or_default() += 1;
    }

    fn round(&mut self, asks: &[(usize, TransmitKind, usize)], fate: Fate) {
        let free = self.shared.quota.free_kinds();
        for &(member, kind, count) in asks {
            if !free.has(kind) {
                let member = self.shared.members[member];
                self.shared.quota.request(member, vec![kind; count]);
            }
        }
        while self.shared.quota.asking().next().is_some() {
            let now = self.now();
            if self.shared.quota.count_round(now) {
                match fate {
                    Fate::Stored => {
                        self.stored = Some(self.shared.quota.record());
                        self.shared.quota.handle_stored();
                    }
                    Fate::Failed => {
                        self.shared.quota.handle_store_failed(self.epoch_ms);
                    }
                    Fate::Stopped => self.shared.quota.refuse_all(),
                }
            }
        }
        for answer in self.shared.quota.poll_answers() {
            let granted = answer.granted.iter().filter(|granted| **granted);
            self.places.extend(granted.map(|_| answer.epoch));
        }
    }

    /// A message in the oldest place, where that is one of this time; else it is given back.
    fn use_place(&mut self) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let epoch = self.places.remove(0);
        let now = self.now();
        let is_open = self.shared.quota.is_open(epoch, now);
        if !is_open {
            self.shared.quota.give_back(1, epoch);
        }
        is_open
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Clock(epoch_ms) => self.epoch_ms = epoch_ms,
            Step::Round(asks, fate) => self.round(&asks, fate),
            Step::Leave(count) => {
                for _ in 0..count {
                    if self.use_place() {
                        self.leaves();
                    }
                }
            }
            Step::Hand(count) => {
                for _ in 0..count {
                    let now = self.now();
                    // What is handed over before an epoch that is open already is not looked for in it.
                    if self.shared.quota.behind_ms(now) == 0 {
                        self.in_flight += usize::from(self.use_place());
                    }
                }
            }
            Step::Answer(count) => {
                let now = self.now();
                if self.shared.quota.behind_ms(now) > 0 {
                    // Nobody can keep from an epoch that is over what was handed over in a later one.
                    return;
                }
                // The channel stores with what became of its messages what counts of them here.
                self.stored = self.shared.quota.poll_record().or(self.stored);
                for _ in 0..count.min(self.in_flight) {
                    self.in_flight -= 1;
                    self.leaves();
                }
            }
            Step::Restart => {
                // So does what its node held.
                self.in_flight = 0;
                self.places.clear();
                self.shared = Shared::new(self.terms, 3, 0);
                if let Some(stored) = self.stored {
                    self.shared.quota.add(stored);
                }
            }
            Step::Replace(member) => {
                let now = self.now();
                self.shared.quota.leave(self.shared.members[member]);
                self.shared.members[member] = self.shared.quota.join(now);
            }
        }
    }
}

proptest! {
    /// Counted by the epoch of the clock when each left, over failures, restarts and clocks that go to and fro.
    #[test]
    fn no_epoch_ever_carries_more_than_the_quota(terms in terms(), steps in steps()) {
        let mut world = World::new(terms);
        for step in steps {
            world.step(step);
            let most = world.left.values().max().copied().unwrap_or(0);
            prop_assert!(most <= terms.quota, "{most} left in an epoch of {}", terms.quota);
            let allowance = world.shared.quota.allowance(world.shared.members[0], world.now());
            prop_assert!(allowance.open_left >= 0 && allowance.sync_left >= 0);
            prop_assert!(allowance.ephemeral_left >= 0 && allowance.left <= terms.quota);
        }
    }

    /// Whoever gets a place leaves the others of their shares what the rest of the epoch leaves of them, and nothing more is
    /// held back from it.
    #[test]
    fn shares_are_kept(
        quota in 1..60_i64,
        ack_reserve in 0..10_i64,
        asks in prop::collection::vec((0..4_usize, 1..80_i64, 0..EPOCH_MS), 1..12),
    ) {
        let mut shared = Shared::new(Terms { quota, ack_reserve, ..TERMS }, 4, 0);
        let reserve = ack_reserve.min(quota - 1);
        let open = quota - reserve;
        let later = |places: i64, epoch_ms: i64| (places * (EPOCH_MS - epoch_ms) + EPOCH_MS - 1) / EPOCH_MS;
        let mut asks = asks;
        asks.sort_by_key(|ask| ask.2);
        let mut granted = [0; 4];
        for (member, count, epoch_ms) in asks {
            let got = shared.take(member, TransmitKind::First, usize::try_from(count).unwrap(), epoch_ms);
            granted[member] += got;
            let others = (0..4).filter(|other| *other != member);
            let unclaimed: i64 = others.map(|other| (open / 4 - granted[other]).max(0)).sum();
            let kept = later(unclaimed, epoch_ms);
            let left = quota - later(reserve, epoch_ms) - granted.iter().sum::<i64>();
            prop_assert!(left >= if got > 0 { kept } else { 0 }, "{left} of {kept} are left");
            prop_assert!(left <= kept || got == count, "{got} of {count}, {left} are left");
        }
    }

    /// Messages that come evenly leave at once, whatever acknowledgements are asked for beside them, but for the last
    /// places of an epoch: those are whole ones.
    #[test]
    fn no_acknowledgement_takes_the_place_of_a_message_that_comes_in_its_time(
        quota in 4..200_i64,
        reserved_percent in 0..30_i64,
        epochs in 1..4_i64,
        begins_ms in 0..EPOCH_MS,
    ) {
        let ack_reserve = quota * reserved_percent / 100;
        let open = quota - ack_reserve;
        let mut alone = Shared::alone(Terms { quota, ack_reserve, ..TERMS });
        let messages = (open - ack_reserve - 2).max(1);
        let mut told = 0;
        for epoch_ms in (begins_ms..begins_ms + epochs * EPOCH_MS).step_by(50) {
            alone.spend(TransmitKind::Sync, epoch_ms);
            while told * EPOCH_MS < (epoch_ms - begins_ms) * messages {
                let granted = alone.take(0, TransmitKind::First, 1, epoch_ms);
                let is_last = (EPOCH_MS - epoch_ms % EPOCH_MS) * open < 3 * EPOCH_MS;
                prop_assert!(is_last || granted == 1, "{told} at {epoch_ms}");
                told += 1;
            }
        }
    }

    /// Of those who ask in one round for as much, none gets two more than another.
    #[test]
    fn rounds_are_even(quota in 1..60_i64, members in 1..6_usize, wanted in 1..30_usize, epoch_ms in 0..EPOCH_MS) {
        let mut shared = Shared::new(Terms { quota, ..TERMS }, members, 0);
        let all: Vec<_> = (0..members).map(|member| (member, wanted)).collect();
        let granted = shared.take_together(&all, TransmitKind::First, at(epoch_ms));
        let (least, most) = (granted.iter().min().unwrap(), granted.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{granted:?}");
        prop_assert_eq!(granted.iter().sum::<i64>(), shared.used());
    }
}

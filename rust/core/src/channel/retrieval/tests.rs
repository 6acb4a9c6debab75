//! Questions to a store, by a channel that is told everything; what becomes of them in the network is no matter here.

use proptest::prelude::*;

use super::catch_up::Span;
use super::*;
use crate::channel::tests::{
    Bob, EPOCH_MS, ONE, RETRIEVAL, at, config, heard, id, limits, message, segments, settings,
};
use crate::channel::{Arrival, Event};
use crate::sds::{self, Config};
use crate::wire::sds::{HistoryEntry, Message};

const NS: i64 = NANOSECONDS_PER_MS;
const HOUR_MS: i64 = 3_600_000;
const INTERVAL_MS: i64 = RETRIEVAL.query_on_connect_interval_ms;
const FREQUENCY_MS: i64 = RETRIEVAL.retrieve_frequency_ms;
const FIRST_QUERY_RANGE_MS: i64 = 30 * 24 * HOUR_MS;

/// A channel that is started, has asked for what passed by, and had an answer.
fn caught_up() -> Bob {
    let mut bob = Bob::of(
        Config {
            missing_messages_max: 1_000,
            ..config()
        },
        settings(),
        limits(),
    );
    bob.channel.handle_started(at(0));
    assert!(matches!(poll(&mut bob), Some(Question::Passed(_))));
    answer(&mut bob);
    assert_eq!(poll(&mut bob), None);
    bob
}

fn poll(bob: &mut Bob) -> Option<Question> {
    bob.channel.poll_question(at(bob.now_ms))
}

fn answer(bob: &mut Bob) {
    bob.channel.handle_answered(true, at(bob.now_ms));
}

/// A message whose history names others, each by its hint if that has bytes.
fn naming(number: usize, entries: &[(String, &[u8])]) -> Message {
    let entry = |(message_id, hint): &(String, &[u8])| HistoryEntry {
        message_id: message_id.clone(),
        retrieval_hint: (!hint.is_empty()).then(|| hint.to_vec()),
        sender_id: None,
    };
    Message {
        causal_history: entries.iter().map(entry).collect(),
        ..message("peer", &format!("names {number}"), b"")
    }
}

/// A message of this id in one segment.
fn whole(message_id: &str, message: Message) -> Message {
    Message {
        message_id: message_id.into(),
        content: Some(segments(message_id.as_bytes()).remove(0)),
        ..message
    }
}

/// The store that is asked has it, and it is taken in.
fn bring(bob: &mut Bob, message_id: &str) {
    let data = message_of(message_id)
        .encode(bob.config.wire_format)
        .unwrap();
    bob.channel.handle_stored_message(b"hash", Some(&data));
    bob.hear(whole(message_id, message_of(message_id)));
}

/// Waits until a store is asked again.
fn next_question(bob: &mut Bob) -> Question {
    loop {
        let due_ms = bob.channel.next_question_ms(at(bob.now_ms)).unwrap();
        bob.now_ms = bob.now_ms.max(due_ms);
        if let Some(question) = poll(bob) {
            return question;
        }
        let later_ms = bob.channel.next_question_ms(at(bob.now_ms));
        assert!(later_ms.is_some_and(|later_ms| later_ms > bob.now_ms));
    }
}

/// When each of so many questions is asked for what is missing, where a store answers each in vain.
fn asked_at(bob: &mut Bob, count: usize) -> Vec<i64> {
    let mut asked = Vec::new();
    while asked.len() < count {
        if !matches!(next_question(bob), Question::Passed(_)) {
            asked.push(bob.now_ms);
        }
        answer(bob);
    }
    asked
}

fn pauses(asked: &[i64]) -> Vec<i64> {
    asked.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn seen_ns(bob: &mut Bob) -> Option<i64> {
    bob.channel.handle_time(true, at(bob.now_ms));
    bob.commit();
    let record = bob.records.get(&(LAST_SEEN.to_owned(), Vec::new()));
    record.map(|record| last_seen_ns(record).unwrap())
}

fn hear_at(bob: &mut Bob, timestamp_ns: i64) {
    let data = naming(0, &[])
        .encode(bob.config.wire_format)
        .unwrap()
        .into();
    let arrival = Arrival {
        timestamp_ns,
        ..heard(&data)
    };
    bob.channel.handle_message(&arrival, at(bob.now_ms));
    bob.take_events();
}

// --- what passed by -------------------------------------------------------------------------------

fn catch_up(last_seen_ns: i64) -> CatchUp {
    let mut catch_up = CatchUp::new(true, INTERVAL_MS);
    catch_up.restore(last_seen_ns);
    catch_up
}

fn moment(monotonic_ms: i64, epoch_ms: i64) -> Now {
    Now {
        monotonic_ms,
        epoch_ms,
    }
}

/// One that a store answered, five seconds after it began.
fn answered() -> CatchUp {
    let mut catch_up = catch_up(0);
    catch_up.begin(moment(5_000, EPOCH_MS));
    catch_up.on_answered(moment(5_000, EPOCH_MS));
    catch_up
}

#[test]
fn who_never_received_anything_asks_for_a_month() {
    let month = |epoch_ms: i64| Span {
        since_ms: (epoch_ms - FIRST_QUERY_RANGE_MS).max(0),
        thorough: false,
    };
    for epoch_ms in [EPOCH_MS, HOUR_MS] {
        let mut catch_up = catch_up(0);
        assert!(catch_up.next_ms() < Some(0));
        assert_eq!(catch_up.begin(moment(5_000, epoch_ms)), month(epoch_ms));
        assert_eq!(catch_up.next_ms(), None);
    }
}

#[test]
fn who_was_away_asks_for_all_of_that_time() {
    let gap_ms = EPOCH_MS - HOUR_MS;
    let mut catch_up = catch_up(gap_ms * NS);
    assert_eq!(catch_up.open_since_ns(), Some(gap_ms * NS));
    let span = Span {
        since_ms: gap_ms - QUERY_MARGIN_MS,
        thorough: true,
    };
    assert_eq!(catch_up.begin(moment(5_000, EPOCH_MS)), span);
}

#[test]
fn an_answer_is_good_for_an_interval_whatever_becomes_of_the_clock() {
    let asked_later = |passed_ms: i64, set_ms: i64| {
        let mut catch_up = answered();
        assert_eq!(catch_up.open_since_ns(), None);
        assert_eq!(catch_up.next_ms(), Some(5_000 + INTERVAL_MS));
        catch_up.begin(moment(5_000 + passed_ms, EPOCH_MS + passed_ms + set_ms))
    };
    let since = |since_ms: i64| Span {
        since_ms,
        thorough: false,
    };
    let until_ms = EPOCH_MS - 2 * QUERY_MARGIN_MS;
    assert_eq!(asked_later(INTERVAL_MS, 0), since(until_ms));
    assert_eq!(asked_later(INTERVAL_MS, HOUR_MS), since(until_ms));
    // So long ago is the answer by the clock that nobody sets.
    let until_ms = EPOCH_MS - HOUR_MS - QUERY_MARGIN_MS;
    assert_eq!(asked_later(INTERVAL_MS, -HOUR_MS), since(until_ms));
}

#[test]
fn the_earliest_of_several_gaps_is_asked_for() {
    let mut catch_up = answered();
    let gap_ms = EPOCH_MS - HOUR_MS;
    catch_up.on_gap(gap_ms * NS);
    catch_up.on_gap(EPOCH_MS * NS);
    assert!(catch_up.next_ms() < Some(0));
    let span = catch_up.begin(moment(6_000, EPOCH_MS));
    assert_eq!(
        (span.since_ms, span.thorough),
        (gap_ms - QUERY_MARGIN_MS, true)
    );
    // What opens meanwhile is asked for behind it.
    catch_up.on_store_near();
    assert_eq!(catch_up.next_ms(), None);
    catch_up.on_gap((EPOCH_MS + 1_000) * NS);
    assert_eq!(catch_up.open_since_ns(), Some(gap_ms * NS));
    catch_up.on_answered(moment(6_000, EPOCH_MS));
    assert_eq!(catch_up.open_since_ns(), Some((EPOCH_MS + 1_000) * NS));
    assert!(catch_up.next_ms() < Some(0));
}

#[test]
fn who_asks_no_store_for_what_passed_by_has_no_gap() {
    let mut catch_up = CatchUp::new(false, INTERVAL_MS);
    catch_up.restore(EPOCH_MS * NS);
    catch_up.on_gap(EPOCH_MS * NS);
    catch_up.on_store_near();
    assert_eq!((catch_up.next_ms(), catch_up.open_since_ns()), (None, None));
}

#[test]
fn a_store_that_does_not_answer_is_asked_less_often_until_it_does_or_another_comes_near() {
    let mut bob = caught_up();
    bob.channel.handle_missed((EPOCH_MS - HOUR_MS) * NS, at(0));
    let mut waited = Vec::new();
    for _ in 0..8 {
        let since_ms = EPOCH_MS - HOUR_MS - QUERY_MARGIN_MS;
        assert_eq!(next_question(&mut bob), Question::Gap(since_ms));
        // While a store is being asked nothing else is.
        assert_eq!(bob.channel.next_question_ms(at(bob.now_ms)), None);
        bob.channel.handle_no_answer(at(bob.now_ms));
        let next_ms = bob.channel.next_question_ms(at(bob.now_ms)).unwrap();
        waited.push(next_ms - bob.now_ms);
    }
    assert_eq!(
        waited,
        [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| seconds * 1_000)
    );
    // Whether the same store comes back, or there is one more.
    for is_lost in [true, false] {
        if is_lost {
            bob.channel.handle_connection(false, false, at(bob.now_ms));
        }
        bob.channel
            .handle_connection(true, !is_lost, at(bob.now_ms));
        assert!(matches!(poll(&mut bob), Some(Question::Gap(_))));
        bob.channel.handle_no_answer(at(bob.now_ms));
    }
    next_question(&mut bob);
    answer(&mut bob);
    bob.channel.handle_missed(0, at(bob.now_ms));
    next_question(&mut bob);
    bob.channel.handle_no_answer(at(bob.now_ms));
    let next_ms = bob.channel.next_question_ms(at(bob.now_ms)).unwrap();
    assert_eq!(next_ms - bob.now_ms, RETRY_MS_MIN);
    next_question(&mut bob);
    answer(&mut bob);
    bob.channel.handle_missed(0, at(bob.now_ms));
    assert!(poll(&mut bob).is_some());
    bob.channel.handle_no_answer(at(bob.now_ms));
    let next_ms = bob.channel.next_question_ms(at(bob.now_ms)).unwrap();
    assert_eq!(next_ms - bob.now_ms, RETRY_MS_MIN);
}

#[test]
fn what_found_no_room_is_asked_for_again_once_there_may_be_some() {
    let mut bob = caught_up();
    bob.channel.handle_connection(true, true, at(0));
    assert!(matches!(poll(&mut bob), Some(Question::Passed(_))));
    bob.channel.handle_answered(false, at(0));
    assert_eq!(poll(&mut bob), None);
    assert!(matches!(next_question(&mut bob), Question::Passed(_)));
    assert_eq!(bob.now_ms, ROOM_RECHECK_MS);
    // Another store is asked at once.
    bob.channel.handle_answered(false, at(bob.now_ms));
    assert_eq!(poll(&mut bob), None);
    bob.channel.handle_connection(true, true, at(bob.now_ms));
    assert!(matches!(poll(&mut bob), Some(Question::Passed(_))));
}

#[test]
fn while_the_application_takes_nothing_more_no_store_is_asked() {
    let mut bob = caught_up();
    bob.channel.handle_connection(true, true, at(0));
    assert!(poll(&mut bob).is_some());
    for number in 0..100 {
        bob.hear(message(
            "alice",
            &format!("{number}"),
            &segments(&[number, 1]).remove(0),
        ));
    }
    assert!(!bob.channel.has_delivery_room(0, 0));
    // Nor is it known what became of all that the last answer had.
    answer(&mut bob);
    let later_ms = bob.channel.next_question_ms(at(0));
    assert_eq!((poll(&mut bob), later_ms), (None, Some(FREQUENCY_MS)));
    assert_eq!(
        bob.channel.retrieval.catch_up.next_ms(),
        Some(ROOM_RECHECK_MS)
    );
}

#[test]
fn a_question_that_nobody_waits_for_is_asked_again() {
    let mut bob = caught_up();
    bob.channel.handle_missed(EPOCH_MS * NS, at(0));
    let question = poll(&mut bob);
    assert!(question.is_some());
    bob.channel.withdraw_question();
    assert_eq!(poll(&mut bob), question);
}

#[test]
fn only_a_started_channel_that_is_connected_asks() {
    let mut bob = Bob::new();
    assert_eq!(poll(&mut bob), None);
    bob.channel.handle_started(at(0));
    assert!(poll(&mut bob).is_some());
    answer(&mut bob);
    bob.channel.handle_connection(false, false, at(0));
    bob.hear(naming(1, &[("one".to_owned(), b"hint")]));
    assert_eq!(
        (poll(&mut bob), bob.channel.next_question_ms(at(0))),
        (None, None)
    );
    // A connection that is not as good as it can be is one all the same.
    bob.channel.handle_connection(true, false, at(0));
    assert!(matches!(poll(&mut bob), Some(Question::Gap(_))));
    answer(&mut bob);
    assert!(matches!(poll(&mut bob), Some(Question::Hashes(_))));
    answer(&mut bob);
    for is_full in [false, true] {
        bob.channel.handle_connection(true, is_full, at(0));
        assert_eq!(poll(&mut bob).is_some(), is_full);
        bob.channel.withdraw_question();
    }
    bob.channel.handle_stopped(at(0));
    assert_eq!(poll(&mut bob), None);
    // What passed a stopped channel by is asked for to its beginning.
    bob.channel.handle_started(at(HOUR_MS));
    bob.now_ms = HOUR_MS;
    assert!(matches!(poll(&mut bob), Some(Question::Gap(_))));
    assert!(bob.channel.handle_page(false, true, None, at(0)));
}

#[test]
fn a_page_is_followed_until_a_message_leads_back() {
    let stored = |bob: &Bob, message: &Message| message.encode(bob.config.wire_format).unwrap();
    let unknown = naming(1, &[("far".to_owned(), b"hint")]);
    let of_another = Message {
        channel_id: "other room".to_owned(),
        ..unknown.clone()
    };
    let content_alone = message("peer", "content", b"some");
    for (found, leads_back) in [
        (unknown, true),
        (of_another, false),
        (content_alone, false),
        (naming(2, &[]), false),
        (naming(3, &[("near".to_owned(), b"hint")]), false),
    ] {
        let mut bob = caught_up();
        bob.hear(Message {
            content: Some(segments(b"near").remove(0)),
            ..message_of("near")
        });
        bob.channel.handle_connection(true, true, at(0));
        assert!(matches!(poll(&mut bob), Some(Question::Passed(_))));
        let data = stored(&bob, &found);
        bob.channel.handle_stored_message(b"hash", Some(&data));
        bob.channel
            .handle_stored_message(b"other", Some(b"no message"));
        bob.channel.handle_stored_message(b"third", None);
        assert_eq!(
            bob.channel.handle_page(true, true, None, at(0)),
            !leads_back,
            "{found:?}"
        );
        assert!(!bob.channel.handle_page(false, true, None, at(0)));
        // No history has hints of what a message lacks that is partly here.
        bob.hear(message(
            "alice",
            &id(ONE, 0),
            &segments(&[7; 2_000]).remove(0),
        ));
        assert!(bob.channel.handle_page(true, true, None, at(0)));
        answer(&mut bob);
        // Where the beginning is known, nothing ends it.
        bob.channel.handle_missed(EPOCH_MS * NS, at(0));
        assert!(matches!(poll(&mut bob), Some(Question::Gap(_))));
        bob.channel.handle_stored_message(b"hash", Some(&data));
        assert!(bob.channel.handle_page(false, true, None, at(0)));
    }
}

fn message_of(message_id: &str) -> Message {
    message("peer", message_id, b"")
}

// --- up to when nothing was missed ----------------------------------------------------------------

#[test]
fn the_time_up_to_which_nothing_was_missed_is_stored_and_read() {
    let mut bob = caught_up();
    assert_eq!(seen_ns(&mut bob), None);
    hear_at(&mut bob, (EPOCH_MS - HOUR_MS) * NS);
    assert_eq!(seen_ns(&mut bob), Some((EPOCH_MS - HOUR_MS) * NS));
    let changed = bob.channel.poll_persist();
    assert!(changed.iter().all(|record| record.kind != LAST_SEEN));
    // Not with every message.
    hear_at(&mut bob, (EPOCH_MS - HOUR_MS) * NS + LAST_SEEN_STEP_NS);
    assert_eq!(seen_ns(&mut bob), Some((EPOCH_MS - HOUR_MS) * NS));
    // A stranger may name any time.
    hear_at(&mut bob, i64::MAX);
    assert_eq!(seen_ns(&mut bob), Some(EPOCH_MS * NS));
    // A gap stays one until a store answers.
    let gap_ns = (EPOCH_MS - 2 * HOUR_MS) * NS;
    bob.channel.handle_missed(gap_ns, at(0));
    assert_eq!(seen_ns(&mut bob), Some(gap_ns));
    assert!(matches!(poll(&mut bob), Some(Question::Gap(_))));
    assert_eq!(seen_ns(&mut bob), Some(gap_ns));
    bob.restart().unwrap();
    // A life in which nothing comes forgets nothing.
    assert_eq!(seen_ns(&mut bob), Some(gap_ns));
    bob.channel.handle_started(at(0));
    let since_ms = gap_ns / NS - QUERY_MARGIN_MS;
    assert_eq!(poll(&mut bob), Some(Question::Gap(since_ms)));
}

/// A channel that asks for a gap of two hours.
fn asking_for_a_gap() -> Bob {
    let mut bob = caught_up();
    let since_ms = EPOCH_MS - 2 * HOUR_MS;
    bob.channel.handle_missed(since_ms * NS, at(0));
    let asked = poll(&mut bob);
    assert_eq!(asked, Some(Question::Gap(since_ms - QUERY_MARGIN_MS)));
    bob
}

#[test]
fn what_is_taken_in_of_a_gap_is_not_asked_for_again() {
    let until_ms = EPOCH_MS - HOUR_MS;
    for restarts in [false, true] {
        let mut bob = asking_for_a_gap();
        let mut page = |until_ms: i64| {
            let until_ns = Some(until_ms * NS);
            assert!(bob.channel.handle_page(true, true, until_ns, at(0)));
        };
        page(until_ms);
        // No page leads back, nor to a time that has not come.
        page(until_ms - 1);
        page(EPOCH_MS + 1);
        if restarts {
            hear_at(&mut bob, EPOCH_MS * NS);
            assert_eq!(seen_ns(&mut bob), Some(until_ms * NS));
            bob.restart().unwrap();
            bob.channel.handle_started(at(0));
        } else {
            bob.channel.withdraw_question();
        }
        let rest = Question::Gap(until_ms - QUERY_MARGIN_MS);
        assert_eq!(poll(&mut bob), Some(rest));
        answer(&mut bob);
        assert_eq!(poll(&mut bob), None);
    }
}

#[test]
fn what_is_not_kept_of_a_gap_is_asked_for_again() {
    let until_ms = EPOCH_MS - HOUR_MS;
    let mut bob = asking_for_a_gap();
    let page = |bob: &mut Bob, all_kept| {
        let until_ns = Some(until_ms * NS);
        bob.channel.handle_page(true, all_kept, until_ns, at(0))
    };
    assert!(!page(&mut bob, false));
    // There is room by the time at which the answer ends; it was not asked for all of it.
    answer(&mut bob);
    let all = Question::Gap(EPOCH_MS - 2 * HOUR_MS - QUERY_MARGIN_MS);
    assert_eq!((poll(&mut bob), next_question(&mut bob)), (None, all));
    for number in 0..100 {
        let whole = segments(&[number, 1]).remove(0);
        bob.hear(message("alice", &format!("{number}"), &whole));
    }
    assert!(!bob.channel.has_delivery_room(0, 0));
    assert!(!page(&mut bob, true));
    while bob.channel.begin_delivery().is_some() {
        bob.channel.finish_delivery();
    }
    answer(&mut bob);
    let rest = Question::Gap(until_ms - QUERY_MARGIN_MS);
    assert_eq!((poll(&mut bob), next_question(&mut bob)), (None, rest));
}

#[test]
fn what_is_not_stored_is_forgotten() {
    let mut bob = caught_up();
    hear_at(&mut bob, EPOCH_MS * NS);
    bob.channel.handle_time(true, at(0));
    bob.channel.drop_changes();
    bob.commit();
    assert_eq!(bob.stored(LAST_SEEN), 0);
}

#[test]
fn an_earlier_release_wrote_the_time_as_json() {
    assert_eq!(last_seen_ns(br#"{"version":1,"timestamp_ns":17}"#), Ok(17));
    for (record, why) in [
        (&b"{}"[..], "damaged"),
        (br#"{"version":9,"timestamp_ns":17}"#, "9"),
        (&[VERSION + 1, 0, 0], "version"),
        (&[VERSION, 0, 0], "damaged"),
        (b"", "damaged"),
    ] {
        let error = last_seen_ns(record).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_time_that_has_not_come_hides_nothing() {
    let mut bob = caught_up();
    hear_at(&mut bob, EPOCH_MS * NS);
    assert_eq!(seen_ns(&mut bob), Some(EPOCH_MS * NS));
    bob.now_ms = -HOUR_MS;
    bob.restart().unwrap();
    bob.channel.handle_started(at(bob.now_ms));
    let since_ms = (EPOCH_MS - HOUR_MS) - FIRST_QUERY_RANGE_MS;
    assert_eq!(poll(&mut bob), Some(Question::Passed(since_ms)));
}

// --- what is missing ------------------------------------------------------------------------------

#[test]
fn what_no_store_has_is_asked_for_less_and_less_often() {
    let mut bob = caught_up();
    bob.hear(naming(1, &[("never".to_owned(), b"hint")]));
    let waited = pauses(&asked_at(&mut bob, 60));
    assert_eq!(waited[..9], [FREQUENCY_MS; 9]);
    assert_eq!(
        waited[9..14],
        [5, 10, 20, 40, 60].map(|seconds| seconds * 1_000)
    );
    assert!(waited[14..40].iter().all(|pause_ms| *pause_ms == 60_000));
    let doubled = (1..=10).map(|doublings| 60_000 << doublings);
    assert_eq!(waited[40..50], doubled.collect::<Vec<_>>());
    assert!(
        waited[50..]
            .iter()
            .all(|pause_ms| *pause_ms == 60_000 << 10)
    );
    // Another store, or one that has learned more meanwhile.
    bob.now_ms += FREQUENCY_MS;
    let near_ms = bob.now_ms;
    bob.channel.handle_connection(true, true, at(near_ms));
    let asked = asked_at(&mut bob, 11);
    assert_eq!(asked[0], near_ms);
    assert_eq!(pauses(&asked)[..9], [FREQUENCY_MS; 9]);
}

#[test]
fn what_has_no_hint_is_asked_for_less_often_sooner_and_by_no_more_than_one_query_in_a_while() {
    let mut bob = caught_up();
    bob.hear(naming(1, &[("never".to_owned(), b"")]));
    let pauses = pauses(&asked_at(&mut bob, 8));
    assert_eq!(
        pauses,
        [10, 10, 10, 20, 40, 60, 60].map(|seconds| seconds * 1_000)
    );
    bob.channel.handle_connection(true, true, at(bob.now_ms));
    assert!(matches!(poll(&mut bob), Some(Question::Passed(_))));
    answer(&mut bob);
    assert_eq!(poll(&mut bob), None);
    let near_ms = bob.now_ms;
    assert_eq!(asked_at(&mut bob, 1), [near_ms + 10_000]);
}

#[test]
fn what_has_no_hint_waits_though_a_store_comes_near_and_is_asked_for_the_rest() {
    let mut bob = caught_up();
    bob.hear(naming(
        1,
        &[("one".to_owned(), b"hint"), ("two".to_owned(), b"")],
    ));
    assert!(matches!(poll(&mut bob), Some(Question::Hashes(_))));
    // One question at a time.
    assert_eq!(poll(&mut bob), None);
    answer(&mut bob);
    // Nothing was heard by its transport time.
    let since_ms = EPOCH_MS - INTERVAL_MS - QUERY_MARGIN_MS;
    assert_eq!(poll(&mut bob), Some(Question::Window(since_ms)));
    answer(&mut bob);
    bob.now_ms = FREQUENCY_MS;
    bob.channel.handle_connection(true, true, at(bob.now_ms));
    assert!(matches!(poll(&mut bob), Some(Question::Passed(_))));
    answer(&mut bob);
    assert!(matches!(poll(&mut bob), Some(Question::Hashes(_))));
    answer(&mut bob);
    assert_eq!(poll(&mut bob), None);
}

#[test]
fn what_comes_before_its_query_is_made_needs_none() {
    let mut bob = caught_up();
    bob.hear(naming(
        1,
        &[("one".to_owned(), b"hint"), ("two".to_owned(), b"")],
    ));
    assert!(matches!(poll(&mut bob), Some(Question::Hashes(_))));
    answer(&mut bob);
    bob.hear(Message {
        content: Some(segments(b"two").remove(0)),
        ..message_of("two")
    });
    assert_eq!(poll(&mut bob), None);
}

#[test]
fn one_query_of_the_topic_serves_all_without_a_hint() {
    let mut bob = caught_up();
    hear_at(&mut bob, (EPOCH_MS - HOUR_MS) * NS);
    bob.hear(naming(
        1,
        &["a", "b", "c"].map(|id| (id.to_owned(), &b""[..])),
    ));
    let since_ms = EPOCH_MS - HOUR_MS - QUERY_MARGIN_MS - INTERVAL_MS;
    assert_eq!(poll(&mut bob), Some(Question::Window(since_ms)));
    answer(&mut bob);
    // Neither for what is found missing meanwhile.
    bob.hear(naming(2, &[("d".to_owned(), b"")]));
    assert_eq!(poll(&mut bob), None);
    let asked = asked_at(&mut bob, 7);
    assert_eq!(asked[0], 10_000);
    assert_eq!(pauses(&asked)[..2], [10_000, 10_000]);
    assert!(pauses(&asked).iter().all(|pause_ms| *pause_ms <= 60_000));
}

#[test]
fn the_topic_is_asked_for_again_soon_once_a_query_brought_all_and_later_where_one_did_not() {
    for comes in [true, false] {
        let mut bob = caught_up();
        bob.hear(naming(1, &[("a".to_owned(), b"")]));
        assert!(matches!(poll(&mut bob), Some(Question::Window(_))));
        if comes {
            bring(&mut bob, "a");
        }
        answer(&mut bob);
        bob.hear(naming(2, &[("b".to_owned(), b"")]));
        assert_eq!(poll(&mut bob), None);
        assert!(matches!(next_question(&mut bob), Question::Window(_)));
        assert_eq!(bob.now_ms, if comes { FREQUENCY_MS } else { 10_000 });
    }
}

#[test]
fn the_topic_is_looked_through_until_what_is_missing_has_come_with_what_it_follows() {
    let mut bob = caught_up();
    bob.hear(naming(1, &[("a".to_owned(), b""), ("b".to_owned(), b"")]));
    assert!(matches!(poll(&mut bob), Some(Question::Window(_))));
    let mut wants_more = |came: Message| {
        bob.hear(came);
        bob.channel.handle_page(false, true, None, at(0))
    };
    assert!(wants_more(whole("a", message_of("a"))));
    let follows = naming(2, &[("before".to_owned(), b"")]);
    assert!(wants_more(whole("b", follows)));
    // With a hint it is asked for by that.
    let follows = naming(3, &[("earliest".to_owned(), b"hint")]);
    assert!(!wants_more(whole("before", follows)));
}

#[test]
fn what_was_never_asked_for_is_asked_for_at_once_and_the_rest_in_turn() {
    let mut bob = caught_up();
    let hints: Vec<Vec<u8>> = (0..60_u8).map(|number| vec![number + 1; 32]).collect();
    let name = |number: usize| (format!("missing {number}"), &hints[number][..]);
    bob.hear(naming(1, &(0..50).map(name).collect::<Vec<_>>()));
    let mut asked = Vec::new();
    while let Some(Question::Hashes(hashes)) = poll(&mut bob) {
        assert!(hashes.len() <= 20);
        asked.extend(hashes);
        answer(&mut bob);
    }
    asked.sort();
    assert_eq!(asked, hints[..50]);
    bob.hear(naming(2, &(50..60).map(name).collect::<Vec<_>>()));
    // What is found missing meanwhile is gathered while there is much to go through.
    assert_eq!(
        next_question(&mut bob),
        Question::Hashes(hints[50..].to_vec())
    );
    assert_eq!(bob.now_ms, 50 / 10);
    answer(&mut bob);
    // One query a period, and each of them in its turn.
    let mut turns = std::collections::BTreeMap::new();
    for period in 0..6 {
        let Question::Hashes(hashes) = next_question(&mut bob) else {
            panic!("all have a hint");
        };
        assert_eq!(bob.now_ms, FREQUENCY_MS * (period + 1), "{period}");
        assert_eq!(hashes.len(), 20);
        for hash in hashes {
            *turns.entry(hash).or_insert(0) += 1;
        }
        answer(&mut bob);
    }
    assert!(
        turns.len() == 60 && turns.values().all(|count| *count == 2),
        "{turns:?}"
    );
}

#[test]
fn what_came_meanwhile_is_asked_for_no_more() {
    let mut bob = caught_up();
    let hints: Vec<Vec<u8>> = (0..40_u8).map(|number| vec![number + 1; 32]).collect();
    let named: Vec<_> = (0..40)
        .map(|at| (format!("missing {at}"), &hints[at][..]))
        .collect();
    bob.hear(naming(1, &named));
    let Some(Question::Hashes(first)) = poll(&mut bob) else {
        panic!("all have a hint");
    };
    assert_eq!(first, hints[..20]);
    answer(&mut bob);
    for (message_id, _) in &named[..30] {
        bob.hear(Message {
            content: Some(segments(message_id.as_bytes()).remove(0)),
            ..message_of(message_id)
        });
    }
    assert_eq!(
        next_question(&mut bob),
        Question::Hashes(hints[30..].to_vec())
    );
}

/// When others are asked for something, from now on.
fn others_asked_in_ms(bob: &Bob, message_id: &str) -> i64 {
    let requests = bob.channel.sds.inspect().repair_requests;
    let found = requests
        .iter()
        .find(|(name, _)| name.as_str() == message_id);
    found.expect("it is missing").1 - bob.now_ms
}

const STORE_FIRST_MS: i64 = 30_000;
const SOON_MS: i64 = 1_500;

#[test]
fn others_are_asked_soon_for_what_a_store_does_not_have() {
    for hint in [&b"hint"[..], b""] {
        for has_it in [true, false] {
            let mut bob = caught_up();
            bob.hear(naming(1, &[("one".to_owned(), hint)]));
            assert!(poll(&mut bob).is_some());
            assert!(others_asked_in_ms(&bob, "one") >= STORE_FIRST_MS);
            if has_it {
                let data = message_of("one").encode(bob.config.wire_format).unwrap();
                let hash = if hint.is_empty() { b"hash" } else { hint };
                bob.channel.handle_stored_message(hash, Some(&data));
            }
            answer(&mut bob);
            let is_soon = others_asked_in_ms(&bob, "one") < SOON_MS;
            assert_eq!(is_soon, !has_it, "{hint:?}");
        }
    }
}

#[test]
fn others_are_asked_soon_for_what_no_query_is_to_find_soon() {
    let mut bob = caught_up();
    bob.hear(naming(1, &[("invented".to_owned(), b"")]));
    assert!(poll(&mut bob).is_some());
    answer(&mut bob);
    // That was in vain, so the next query of the topic is far.
    bob.hear(naming(2, &[("lost".to_owned(), b"")]));
    assert!(others_asked_in_ms(&bob, "lost") >= STORE_FIRST_MS);
    assert_eq!(poll(&mut bob), None);
    assert!(others_asked_in_ms(&bob, "lost") < SOON_MS);
    // It is near where the one before brought something.
    let mut bob = caught_up();
    bob.hear(naming(
        1,
        &["here", "invented"].map(|id| (id.to_owned(), &b""[..])),
    ));
    assert!(poll(&mut bob).is_some());
    bring(&mut bob, "here");
    answer(&mut bob);
    bob.hear(naming(2, &[("lost".to_owned(), b"")]));
    assert_eq!(poll(&mut bob), None);
    assert!(others_asked_in_ms(&bob, "lost") >= STORE_FIRST_MS);
    assert!(matches!(next_question(&mut bob), Question::Window(_)));
    assert_eq!(bob.now_ms, FREQUENCY_MS);
}

#[test]
fn others_are_asked_soon_where_no_store_answers_until_one_does() {
    let mut bob = caught_up();
    bob.channel.handle_no_store(at(0));
    bob.hear(naming(1, &[("one".to_owned(), b"hint")]));
    assert!(others_asked_in_ms(&bob, "one") < SOON_MS);
    assert!(poll(&mut bob).is_some());
    answer(&mut bob);
    bob.hear(naming(2, &[("other".to_owned(), b"hint")]));
    assert!(others_asked_in_ms(&bob, "other") >= STORE_FIRST_MS);
}

/// What older messages than our first receipt name is lost once a store was asked for it in vain.
#[test]
fn only_what_a_store_does_not_have_is_irretrievable() {
    let lost = |bob: &mut Bob| {
        bob.take_events();
        let is_lost =
            |event: &&Event| matches!(event, Event::Sds(sds::Event::DependencyLost { .. }));
        bob.events.iter().filter(is_lost).count()
    };
    let newcomer = || {
        let mut bob = Bob::new();
        bob.channel.handle_started(at(0));
        // Nobody answered for the past so far.
        assert!(poll(&mut bob).is_some());
        bob.channel.handle_answered(false, at(0));
        bob
    };
    for has_it in [true, false] {
        let mut bob = newcomer();
        bob.hear(Message {
            content: Some(segments(b"after").remove(0)),
            ..naming(
                1,
                &[("one".to_owned(), b"hint"), ("two".to_owned(), b"other")],
            )
        });
        let Question::Hashes(_) = skip_passed(&mut bob) else {
            panic!("both have a hint");
        };
        bob.channel.handle_stored_message(b"other", None);
        if has_it {
            bob.channel.handle_stored_message(b"hint", None);
        }
        answer(&mut bob);
        assert_eq!(lost(&mut bob), usize::from(!has_it));
    }
    // Who asked for the past knows what is older.
    let mut bob = caught_up();
    bob.hear(Message {
        content: Some(segments(b"after").remove(0)),
        ..naming(1, &[("one".to_owned(), b"hint")])
    });
    assert!(matches!(poll(&mut bob), Some(Question::Hashes(_))));
    answer(&mut bob);
    assert_eq!(lost(&mut bob), 0);
    // Without a hint what a store answers is taken in later: only the next answer can tell.
    for has_it in [true, false] {
        let mut bob = newcomer();
        bob.hear(Message {
            content: Some(segments(b"after").remove(0)),
            ..naming(1, &[("one".to_owned(), b"")])
        });
        let Question::Window(_) = skip_passed(&mut bob) else {
            panic!("it has no hint");
        };
        answer(&mut bob);
        assert_eq!(lost(&mut bob), 0);
        let Question::Window(_) = skip_passed(&mut bob) else {
            panic!("it has no hint");
        };
        if has_it {
            let data = message_of("one").encode(bob.config.wire_format).unwrap();
            bob.channel.handle_stored_message(b"hash", Some(&data));
        }
        answer(&mut bob);
        assert_eq!(lost(&mut bob), usize::from(!has_it));
    }
}

/// The next question that is about what is missing; nobody answers for the past.
fn skip_passed(bob: &mut Bob) -> Question {
    loop {
        match next_question(bob) {
            Question::Passed(_) | Question::Gap(_) => {
                bob.channel.handle_answered(false, at(bob.now_ms))
            }
            question => return question,
        }
    }
}

// --- whatever happens -----------------------------------------------------------------------------

#[derive(Debug, Clone, Copy)]
enum Step {
    Wait(i64),
    SetClock(i64),
    /// A message of a transport time before the present, or behind it.
    Hear(i64),
    /// A message that names so many others, every second by a hint.
    Name(usize),
    Missed(i64),
    Connection(bool, bool),
    Poll,
    /// A page that ends with a transport time before the present, or behind it.
    Page(bool, i64),
    Answered(bool),
    NoAnswer,
    Withdraw,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let times = -2 * HOUR_MS..HOUR_MS;
    let step = prop_oneof![
        3 => (0..20_000_i64).prop_map(Step::Wait),
        1 => times.clone().prop_map(Step::SetClock),
        3 => times.clone().prop_map(Step::Hear),
        2 => (1..30_usize).prop_map(Step::Name),
        1 => times.clone().prop_map(Step::Missed),
        2 => (any::<bool>(), times).prop_map(|(all_kept, ms)| Step::Page(all_kept, ms)),
        1 => any::<(bool, bool)>().prop_map(|(online, full)| Step::Connection(online, full)),
        6 => Just(Step::Poll),
        4 => any::<bool>().prop_map(Step::Answered),
        1 => Just(Step::NoAnswer),
        1 => Just(Step::Withdraw),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// A channel, and where the gaps begin that no store has answered for.
struct World {
    bob: Bob,
    set_ms: i64,
    open_ns: Vec<i64>,
    /// Those that a store is being asked for; `None` where it is asked for something else, or nothing.
    asked_ns: Option<Vec<i64>>,
    /// Whether all of it is asked for, oldest first; and whether it is known that not all of it comes.
    is_gap: bool,
    is_cut: bool,
    online: bool,
    named: usize,
}

impl World {
    fn new() -> Self {
        let mut world = World {
            bob: Bob::new(),
            set_ms: 0,
            open_ns: vec![0],
            asked_ns: None,
            is_gap: false,
            is_cut: false,
            online: false,
            named: 0,
        };
        world.start();
        world
    }

    fn now(&self) -> Now {
        moment(self.bob.now_ms, EPOCH_MS + self.bob.now_ms + self.set_ms)
    }

    fn start(&mut self) {
        self.bob.channel.handle_started(self.now());
        self.open_ns.push(present_ns(self.now()));
        self.online = true;
    }

    /// The gap that was asked for is open again.
    fn take_back(&mut self) {
        self.open_ns
            .extend(self.asked_ns.take().unwrap_or_default());
    }

    fn step(&mut self, step: Step) {
        let now = self.now();
        let channel = &mut self.bob.channel;
        match step {
            Step::Wait(ms) => self.bob.now_ms += ms,
            Step::SetClock(ms) => self.set_ms += ms,
            Step::Hear(ms) => hear_at(&mut self.bob, (now.epoch_ms + ms) * NS),
            Step::Name(count) => {
                self.named += 1;
                let name = |at: usize| {
                    let hint: &[u8] = if at.is_multiple_of(2) { b"hint" } else { b"" };
                    (format!("{} {at}", self.named), hint)
                };
                let named: Vec<_> = (0..count).map(name).collect();
                self.bob.hear(naming(self.named, &named));
            }
            Step::Missed(ms) => {
                let since_ns = (now.epoch_ms + ms) * NS;
                channel.handle_missed(since_ns, now);
                self.open_ns.push(since_ns.min(present_ns(now)));
            }
            Step::Connection(online, is_full) => {
                channel.handle_connection(online, is_full, now);
                if self.online && !online {
                    self.open_ns.push(present_ns(now));
                }
                self.online = online;
            }
            Step::Poll => self.poll(),
            Step::Page(all_kept, ms) => {
                let until_ns = (now.epoch_ms + ms) * NS;
                let goes_on = channel.handle_page(true, all_kept, Some(until_ns), now);
                if let Some(asked_ns) = self.asked_ns.as_mut().filter(|_| self.is_gap) {
                    self.is_cut |= !all_kept;
                    assert_eq!(goes_on, !self.is_cut);
                    let seen_ns = if all_kept && ms <= 0 { until_ns } else { 0 };
                    for gap_ns in asked_ns {
                        *gap_ns = seen_ns.max(*gap_ns);
                    }
                }
            }
            Step::Answered(all_kept) => {
                channel.handle_answered(all_kept, now);
                if all_kept && !self.is_cut {
                    self.asked_ns = None;
                }
                self.take_back();
            }
            Step::NoAnswer => {
                channel.handle_no_answer(now);
                self.take_back();
            }
            Step::Withdraw => {
                channel.withdraw_question();
                self.take_back();
            }
            Step::Restart => {
                let seen_ns = self.seen_ns();
                // By a clock that is right.
                self.set_ms = 0;
                let now = self.now();
                self.bob.restart().unwrap();
                self.asked_ns = None;
                // Of a life whose clock was ahead nothing is known.
                self.open_ns = vec![if seen_ns <= present_ns(now) {
                    seen_ns
                } else {
                    0
                }];
                self.start();
                if seen_ns <= present_ns(now) {
                    assert_eq!(self.seen_ns(), seen_ns, "what is known is stored still");
                }
            }
        }
    }

    fn poll(&mut self) {
        let now = self.now();
        let due_ms = self.bob.channel.next_question_ms(now);
        let is_due = due_ms.is_some_and(|due_ms| due_ms <= now.monotonic_ms);
        let question = self.bob.channel.poll_question(now);
        match question {
            None => {
                // Who waits until then does not ask in vain all the time.
                let later_ms = self.bob.channel.next_question_ms(now);
                assert!(later_ms.is_none_or(|later_ms| later_ms > now.monotonic_ms));
            }
            Some(question) => {
                assert!(is_due && self.online);
                self.is_gap = matches!(question, Question::Gap(_));
                self.is_cut = false;
                if let Question::Passed(since_ms) | Question::Gap(since_ms) = question {
                    let gap_ms = self
                        .open_ns
                        .iter()
                        .min()
                        .map_or(i64::MAX, |gap_ns| gap_ns / NS);
                    assert!(since_ms <= gap_ms.max(now.epoch_ms - FIRST_QUERY_RANGE_MS));
                    assert!(since_ms <= now.epoch_ms);
                    self.asked_ns = Some(std::mem::take(&mut self.open_ns));
                }
            }
        }
    }

    fn seen_ns(&mut self) -> i64 {
        let now = self.now();
        self.bob.channel.handle_time(true, now);
        self.bob.commit();
        let record = self.bob.records.get(&(LAST_SEEN.to_owned(), Vec::new()));
        record.map_or(0, |record| last_seen_ns(record).unwrap())
    }
}

proptest! {
    /// A later life asks for everything that may have passed this one by, and no life asks without end.
    #[test]
    fn no_gap_is_taken_for_seen_before_a_store_answered_for_it(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            let seen_ns = world.seen_ns();
            let gaps = world.open_ns.iter().chain(world.asked_ns.iter().flatten());
            if let Some(gap_ns) = gaps.min() {
                prop_assert!(seen_ns <= *gap_ns, "{seen_ns} is behind the gap from {gap_ns}");
            }
        }
    }
}

//! What we answer others with: messages that are held (SDS, SDS-Repair: the incoming repair buffer).

use std::sync::Arc;

use hashlink::{LinkedHashMap, LinkedHashSet};

use super::answers::AnswerBuffer;
use super::rules::{REPAIR_BUFFER_MAX, in_response_group, response_offset_ms};
use crate::sds::config::Config;
use crate::sds::log::Log;
use crate::sds::name::Name;
use crate::wire::sds::{HistoryEntry, WireFormat};

/// What was heard so often within `ANSWERS_REMEMBERED_MS` is answered again only after a pause that
/// doubles from then on: requests cost little, and answers much.
const ANSWERED_FREELY: u32 = 3;
const PAUSE_DOUBLINGS_MAX: u32 = 11;
const ANSWERS_REMEMBERED_MS: i64 = 3_600_000;
/// A content under whose id another one was heard is sent again so many times more, after T_max each.
const STOOD_BY: u32 = 3;
/// Messages whose requests were heeded: a recorded one that is replayed asks for nothing.
const HEEDED_MAX: usize = 10_000;

/// A message that was sent again lately, by whomever.
#[derive(Debug)]
struct HeardAgain {
    last_ms: i64,
    times: u32,
    /// Whether we sent it last. Others may have missed that, and ask.
    by_us: bool,
}

/// What others asked for, and when it is sent again.
#[derive(Debug)]
pub struct Answering {
    enabled: bool,
    t_max_ms: i64,
    /// Within it an answer leaves: whoever asks has given a store its time.
    within_ms: i64,
    groups: u64,
    wire_format: WireFormat,
    /// An answer that came so lately may have overtaken the request for it.
    overtaken_ms: i64,
    me: Arc<str>,
    /// In whose share is what nobody asked for in this life.
    nobody: Arc<str>,
    answers: AnswerBuffer,
    /// When others asked for what is held here and was not heard again since.
    requested_ms: LinkedHashMap<Name, i64>,
    /// When what is held here was last heard again, and how often lately.
    heard_again: LinkedHashMap<Name, HeardAgain>,
    heeded: LinkedHashSet<(Name, u64)>,
    /// What was answered for unasked: how many more times that is done, and how long after the others
    /// each time.
    standing: LinkedHashMap<Name, (u32, i64)>,
    /// For `poll_persist`: ids of answers.
    changed: LinkedHashSet<Name>,
}

impl Answering {
    /// Nothing is answered.
    pub fn new(config: &Config, me: &Arc<str>) -> Self {
        Answering {
            enabled: config.enable_repair,
            t_max_ms: config.repair_t_max_ms,
            within_ms: config.times_without_store(0).1,
            groups: config.repair_groups,
            wire_format: config.wire_format,
            overtaken_ms: config.window_ms(),
            me: Arc::clone(me),
            nobody: "".into(),
            answers: AnswerBuffer::default(),
            requested_ms: LinkedHashMap::new(),
            heard_again: LinkedHashMap::new(),
            heeded: LinkedHashSet::new(),
            standing: LinkedHashMap::new(),
            changed: LinkedHashSet::new(),
        }
    }

    /// So long do answers take at most: T_max of a group as large as this one.
    pub fn set_within_ms(&mut self, within_ms: i64) {
        self.within_ms = within_ms;
    }

    /// What is answered, and when.
    pub fn answers(&self) -> impl Iterator<Item = (&Name, i64)> {
        self.answers.iter()
    }

    /// Answers that are due now or later.
    pub fn answers_held(&self) -> usize {
        self.answers.len()
    }

    /// When the next answer is due.
    pub fn next_answer_ms(&self) -> Option<i64> {
        self.answers.next_ms()
    }

    /// Another content is heard under the id of one that is held: who took that one for it asks for
    /// nothing, so it is answered unasked, and some times more.
    pub fn stand_by(
        &mut self,
        entry: &HistoryEntry,
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        let name = Name::new(&entry.message_id);
        // What is to be sent again anyway is put off by nobody, and begins anew by no further content.
        let was_owed = self.answers.contains(name.as_bytes());
        if was_owed && self.standing.contains_key(&name) {
            return;
        }
        let nobody = Arc::clone(&self.nobody);
        self.on_request((entry, &nobody), log, is_own, monotonic_ms);
        if let Some((at_ms, _)) = self.answers.get(name.as_bytes()) {
            let offset_ms = if was_owed { 0 } else { at_ms - monotonic_ms };
            self.standing.insert(name, (STOOD_BY, offset_ms));
        }
        if self.standing.len() > REPAIR_BUFFER_MAX {
            self.standing.pop_front();
        }
    }

    /// Somebody answered for what is held, us included: it need not be done now.
    pub fn on_answer(&mut self, message_id: &Name, monotonic_ms: i64) {
        if self.answers.remove(message_id) {
            self.changed.replace(message_id.clone());
        }
        let Some((left, offset_ms)) = self.standing.remove(message_id) else {
            return;
        };
        if left == 0 {
            return;
        }
        self.standing
            .insert(message_id.clone(), (left - 1, offset_ms));
        let entry = HistoryEntry {
            message_id: message_id.to_string(),
            ..HistoryEntry::default()
        };
        let at_ms = monotonic_ms + self.t_max_ms + offset_ms;
        let gone = self.answers.put(entry, &self.nobody, at_ms);
        self.changed.replace(message_id.clone());
        self.changed.extend(gone);
    }

    /// A message with requests came; whether it is the first time.
    pub fn heed(&mut self, message_id: Name, lamport_timestamp: u64) -> bool {
        if !self.heeded.insert((message_id, lamport_timestamp)) {
            return false;
        }
        if self.heeded.len() > HEEDED_MAX {
            self.heeded.pop_front();
        }
        true
    }

    /// Another participant, `by`, asks for `entry`: what is held under its id is sent again at T_resp, where this
    /// participant answers for its sender. `is_own` tells whether it is a content of ours whose bytes the
    /// outgoing buffer has.
    pub fn on_request(
        &mut self,
        (entry, by): (&HistoryEntry, &Arc<str>),
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        let message_id = entry.message_id.as_str();
        if !self.enabled {
            return;
        }
        let held = log
            .find(message_id.as_bytes())
            .and_then(|held| log.get(held));
        let Some(held) = held.filter(|_| !self.was_answered(message_id, monotonic_ms)) else {
            return;
        };
        self.requested_ms
            .insert(held.message_id.clone(), monotonic_ms);
        if self.requested_ms.len() > REPAIR_BUFFER_MAX {
            self.requested_ms.pop_front();
        }
        let kept = || is_own() || log.has_original(message_id.as_bytes());
        if self.answers.contains(message_id.as_bytes()) {
            self.answers.on_asked_again(message_id.as_bytes(), by);
            return;
        }
        if !kept() {
            return;
        }
        // The request may not name the sender, or a false one; who holds the message knows it.
        let (me, sender_id, wire_format) = (&*self.me, &*held.sender_id, self.wire_format);
        if in_response_group(me, sender_id, message_id, self.groups, wire_format) {
            let offset_ms =
                response_offset_ms(me, sender_id, message_id, self.within_ms, wire_format);
            let name = held.message_id.clone();
            let at_ms = monotonic_ms + offset_ms;
            let gone = self.answers.put(entry.clone(), by, at_ms);
            self.changed.replace(name);
            self.changed.extend(gone);
        }
    }

    /// Whether the answer overtook the request, or was given so often that it must wait.
    fn was_answered(&self, message_id: &str, monotonic_ms: i64) -> bool {
        let heard = self.heard_again.get(message_id.as_bytes());
        heard.is_some_and(|heard| {
            let more = heard.times.saturating_sub(ANSWERED_FREELY);
            let pause_ms = self.overtaken_ms << more.min(PAUSE_DOUBLINGS_MAX);
            (more > 0 || !heard.by_us) && monotonic_ms - heard.last_ms < pause_ms
        })
    }

    /// A message that is held came again; whether it answers a request that was heard, true once a
    /// request.
    pub fn heard_again(&mut self, message_id: &Name, monotonic_ms: i64) -> bool {
        self.note_heard_again(message_id, false, monotonic_ms);
        self.on_answer(message_id, monotonic_ms);
        let requested_ms = self.requested_ms.remove(message_id);
        requested_ms.is_some_and(|requested_ms| monotonic_ms - requested_ms <= self.t_max_ms)
    }

    /// The id of the next answer that is due: it leaves now.
    pub fn take_answer(&mut self, monotonic_ms: i64) -> Option<Name> {
        let name = self.answers.due(monotonic_ms)?.clone();
        self.on_answer(&name, monotonic_ms);
        self.note_heard_again(&name, true, monotonic_ms);
        Some(name)
    }

    /// Whether a send was answered with parity so often lately that it must wait.
    pub fn rests(&self, send_id: &str, monotonic_ms: i64) -> bool {
        self.was_answered(send_id, monotonic_ms)
    }

    /// A send is answered with parity now.
    pub fn on_answered_with_parity(&mut self, send_id: &Name, monotonic_ms: i64) {
        self.note_heard_again(send_id, true, monotonic_ms);
    }

    /// When one more answer may leave.
    pub fn paced_ms(&self) -> i64 {
        self.answers.paced_ms()
    }

    /// The answer that was taken leaves, with so many bytes.
    pub fn on_answer_left(&mut self, size_bytes: usize, monotonic_ms: i64) {
        self.answers.on_left(size_bytes, monotonic_ms);
    }

    fn note_heard_again(&mut self, message_id: &Name, by_us: bool, monotonic_ms: i64) {
        let before = self.heard_again.remove(message_id);
        let lately = before.filter(|heard| monotonic_ms - heard.last_ms < ANSWERS_REMEMBERED_MS);
        let heard = HeardAgain {
            last_ms: monotonic_ms,
            times: lately.map_or(0, |heard| heard.times).saturating_add(1),
            by_us,
        };
        self.heard_again.insert(message_id.clone(), heard);
        if self.heard_again.len() > REPAIR_BUFFER_MAX {
            self.heard_again.pop_front();
        }
    }

    /// What is owed has one moment.
    #[cfg(debug_assertions)]
    pub fn audit(&self) {
        self.answers.audit();
    }

    // --- stored form ----------------------------------------------------------------------------

    /// Ids of answers whose record changed since the last call, with what was asked for where the
    /// answer is still owed.
    pub fn poll_changed(&mut self) -> Vec<(Name, Option<&HistoryEntry>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .map(|name| {
                let owed = self.answers.get(name.as_bytes()).map(|(_, entry)| entry);
                (name, owed)
            })
            .collect()
    }

    /// An answer was owed in an earlier life: it is owed still, and so it is stored, or its record goes.
    pub fn restore_answer(
        &mut self,
        entry: &HistoryEntry,
        log: &Log,
        is_own: impl FnOnce() -> bool,
        monotonic_ms: i64,
    ) {
        let nobody = Arc::clone(&self.nobody);
        self.on_request((entry, &nobody), log, is_own, monotonic_ms);
        let name = Name::new(&entry.message_id);
        if self.answers.contains(name.as_bytes()) {
            self.changed.remove(&name);
        } else {
            self.changed.replace(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_MAX_MS: i64 = 60_000;
    const ID: &str = "held";

    /// Of bob, who holds alice's message.
    fn holding() -> (Answering, Log) {
        let mut log = Log::of(10);
        let (held, _) = log.add(Name::new(ID), "alice".into(), 1, None, 0);
        log.keep_original(held, vec![7; 10].into());
        (of_bob(), log)
    }

    fn of_bob() -> Answering {
        let config = Config {
            repair_t_max_ms: T_MAX_MS,
            repair_groups: 1,
            ..Config::example()
        };
        Answering {
            overtaken_ms: 100,
            ..Answering::new(&config, &"bob".into())
        }
    }

    fn entry(message_id: &str) -> HistoryEntry {
        HistoryEntry {
            message_id: message_id.into(),
            ..HistoryEntry::default()
        }
    }

    fn due_ms(answering: &Answering) -> Option<i64> {
        answering.answers.get(ID.as_bytes()).map(|(at_ms, _)| at_ms)
    }

    #[test]
    fn what_is_held_under_a_contested_id_is_sent_three_times_more_in_its_own_time() {
        let (mut answering, log) = holding();
        let offset_ms = response_offset_ms("bob", "alice", ID, T_MAX_MS, WireFormat::Spec);
        let mut now_ms = 5_000;
        answering.stand_by(&entry(ID), &log, || false, now_ms);
        for _ in 0..STOOD_BY {
            assert_eq!(due_ms(&answering), Some(now_ms + offset_ms));
            // One more content under the id puts it off no further.
            answering.stand_by(&entry(ID), &log, || false, now_ms + 1);
            assert_eq!(due_ms(&answering), Some(now_ms + offset_ms));
            now_ms += offset_ms;
            assert_eq!(answering.take_answer(now_ms), Some(Name::new(ID)));
            now_ms += T_MAX_MS;
        }
        assert_eq!(
            answering.take_answer(now_ms + offset_ms),
            Some(Name::new(ID))
        );
        assert_eq!(due_ms(&answering), None);
    }

    #[test]
    fn what_is_owed_already_is_stood_by_from_when_it_leaves() {
        let (mut answering, log) = holding();
        answering.on_request((&entry(ID), &"carol".into()), &log, || false, 0);
        let owed_ms = due_ms(&answering).unwrap();
        answering.stand_by(&entry(ID), &log, || false, 10);
        assert_eq!(due_ms(&answering), Some(owed_ms));
        answering.take_answer(owed_ms);
        assert_eq!(due_ms(&answering), Some(owed_ms + T_MAX_MS));
    }

    #[test]
    fn a_request_neither_moves_an_answer_that_is_owed_nor_makes_one_of_what_is_not_kept() {
        let (mut answering, mut log) = holding();
        answering.on_request((&entry(ID), &"carol".into()), &log, || false, 0);
        let owed_ms = due_ms(&answering);
        answering.on_request((&entry(ID), &"carol".into()), &log, || false, 10);
        assert!(owed_ms.is_some() && due_ms(&answering) == owed_ms);
        log.forget_original(&Name::new(ID));
        let mut answering = of_bob();
        answering.on_request((&entry(ID), &"carol".into()), &log, || false, 0);
        assert_eq!(due_ms(&answering), None);
        answering.on_request((&entry(ID), &"carol".into()), &log, || true, 0);
        assert!(due_ms(&answering).is_some());
    }

    #[test]
    fn of_what_others_ask_and_answer_the_oldest_is_forgotten_first() {
        let count = REPAIR_BUFFER_MAX + 1;
        let (mut log, mut answering) = (Log::of(count), of_bob());
        let names: Vec<Name> = (0..count)
            .map(|number| Name::from(format!("held {number}")))
            .collect();
        for (at_ms, name) in (0..).zip(&names) {
            let (held, _) = log.add(name.clone(), "alice".into(), 1, None, 0);
            log.keep_original(held, vec![7; 10].into());
            answering.on_request((&entry(name), &"carol".into()), &log, || false, at_ms);
        }
        let (first, others) = names.split_first().unwrap();
        assert!(!answering.requested_ms.contains_key(first));
        assert!(others.iter().eq(answering.requested_ms.keys()));
        // Asked for again, it is the newest of them.
        answering.on_request((&entry(&others[0]), &"carol".into()), &log, || false, 2_000);
        assert_eq!(answering.requested_ms.front(), Some((&others[1], &2)));
        assert_eq!(answering.requested_ms.back(), Some((&others[0], &2_000)));
        for name in &names {
            answering.heard_again(name, 3_000);
        }
        assert!(others.iter().eq(answering.heard_again.keys()));
    }

    #[test]
    fn requests_that_were_heeded_longest_ago_are_forgotten_first() {
        let mut answering = of_bob();
        let mut heed = |number: usize| answering.heed(Name::from(format!("sync {number}")), 1);
        assert!((0..HEEDED_MAX).all(&mut heed));
        assert!(!heed(0));
        assert!(heed(HEEDED_MAX));
        // The first one was heard again since.
        assert!(!heed(0));
        assert!(heed(1));
        assert!(!answering.heed(Name::new("sync 0"), 1));
        assert!(answering.heed(Name::new("sync 0"), 2));
        assert_eq!(answering.heeded.len(), HEEDED_MAX);
    }

    #[test]
    fn what_is_stood_by_for_longest_is_forgotten_first() {
        let count = REPAIR_BUFFER_MAX + 1;
        let (mut log, mut answering) = (Log::of(count), of_bob());
        let names: Vec<Name> = (0..count)
            .map(|number| Name::from(format!("held {number}")))
            .collect();
        for name in &names {
            let (held, _) = log.add(name.clone(), "bob".into(), 1, None, 0);
            log.keep_original(held, vec![7; 10].into());
            // Ours are due at once, and leave before the next one.
            answering.stand_by(&entry(name), &log, || false, 0);
            assert_eq!(answering.take_answer(0).as_ref(), Some(name));
        }
        assert!(names[1..].iter().eq(answering.standing.keys()));
    }

    fn changed(answering: &mut Answering) -> Vec<(String, bool)> {
        let changed = answering.poll_changed().into_iter();
        let changed = changed.map(|(name, owed)| (name.to_string(), owed.is_some()));
        changed.collect()
    }

    /// What is stood by is owed no longer, since too much else is. There is room for one answer then.
    fn crowded_out() -> (Answering, Log, i64) {
        let (mut answering, log) = holding();
        answering.stand_by(&entry(ID), &log, || false, 0);
        let offset_ms = due_ms(&answering).unwrap();
        for number in 0..REPAIR_BUFFER_MAX {
            let gone = answering
                .answers
                .put(entry(&format!("other {number}")), &"".into(), 0);
            answering.changed.extend(gone);
        }
        assert_eq!(changed(&mut answering), [(ID.to_owned(), false)]);
        answering.on_answer(&Name::new("other 0"), 10);
        assert_eq!(changed(&mut answering), [("other 0".to_owned(), false)]);
        assert_eq!(due_ms(&answering), None);
        (answering, log, offset_ms)
    }

    #[test]
    fn what_was_crowded_out_is_stood_by_anew() {
        let (mut answering, log, offset_ms) = crowded_out();
        answering.stand_by(&entry(ID), &log, || false, 10);
        assert_eq!(due_ms(&answering), Some(10 + offset_ms));
        assert_eq!(changed(&mut answering), [(ID.to_owned(), true)]);
        answering.answers.audit();
    }

    #[test]
    fn what_is_to_be_sent_once_more_is_stored_and_what_must_go_for_it_is_not() {
        let (mut answering, _, offset_ms) = crowded_out();
        assert_eq!(
            answering.answers.put(entry("late"), &"".into(), i64::MAX),
            None
        );
        answering.on_answer(&Name::new(ID), 10);
        assert_eq!(due_ms(&answering), Some(10 + T_MAX_MS + offset_ms));
        let expected = [(ID.to_owned(), true), ("late".to_owned(), false)];
        assert_eq!(changed(&mut answering), expected);
        answering.answers.audit();
    }

    /// How long after a content was heard `times` times a request for it is answered again.
    fn pause_ms(times: u32) -> i64 {
        let (_, log) = holding();
        let answered = |wait_ms: i64| {
            let mut answering = of_bob();
            for _ in 0..times {
                answering.heard_again(&Name::new(ID), 0);
            }
            answering.on_request((&entry(ID), &"carol".into()), &log, || false, wait_ms);
            due_ms(&answering).is_some()
        };
        (0..)
            .find(|wait_ms| answered(wait_ms * 100))
            .expect("it is answered")
            * 100
    }

    #[test]
    fn what_others_answered_is_answered_again_after_a_pause_that_doubles_from_the_fourth_time_on() {
        for (times, expected_ms) in [(0, 0), (1, 100), (3, 100), (4, 200), (5, 400), (7, 1_600)] {
            assert_eq!(pause_ms(times), expected_ms, "{times}");
        }
        for times in [14, 15, 40] {
            assert_eq!(pause_ms(times), 100 << PAUSE_DOUBLINGS_MAX, "{times}");
        }
    }

    #[test]
    fn what_we_answered_is_answered_three_times_more_at_once() {
        let send_id = Name::new(ID);
        let mut answering = of_bob();
        for _ in 0..ANSWERED_FREELY {
            answering.on_answered_with_parity(&send_id, 0);
            assert!(!answering.rests(ID, 0));
        }
        answering.on_answered_with_parity(&send_id, 0);
        assert_eq!([199, 200].map(|ms| answering.rests(ID, ms)), [true, false]);
        let (mut answering, log) = holding();
        let mut now_ms = 0;
        for times in 1..=ANSWERED_FREELY + 1 {
            answering.on_request((&entry(ID), &"carol".into()), &log, || false, now_ms);
            now_ms = due_ms(&answering).unwrap();
            assert_eq!(answering.take_answer(now_ms), Some(Name::new(ID)));
            assert_eq!(answering.rests(ID, now_ms), times > ANSWERED_FREELY);
        }
    }

    #[test]
    fn how_often_something_was_heard_is_forgotten_after_an_hour() {
        for (again_ms, is_forgotten) in [
            (ANSWERS_REMEMBERED_MS - 1, false),
            (ANSWERS_REMEMBERED_MS, true),
        ] {
            let (mut answering, log) = holding();
            for _ in 0..4 {
                answering.heard_again(&Name::new(ID), 0);
            }
            answering.heard_again(&Name::new(ID), again_ms);
            answering.on_request(
                (&entry(ID), &"carol".into()),
                &log,
                || false,
                again_ms + 100,
            );
            assert_eq!(due_ms(&answering).is_some(), is_forgotten);
        }
    }

    #[test]
    fn what_is_heard_again_answers_a_request_once_within_t_max() {
        let (mut answering, log) = holding();
        let id = Name::new(ID);
        assert!(!answering.heard_again(&id, 0));
        let mut now_ms = T_MAX_MS;
        for (wait_ms, answers) in [(T_MAX_MS, true), (T_MAX_MS + 1, false)] {
            answering.on_request((&entry(ID), &"carol".into()), &log, || false, now_ms);
            assert!(due_ms(&answering).is_some());
            now_ms += wait_ms;
            assert_eq!(answering.heard_again(&id, now_ms), answers);
            assert_eq!(due_ms(&answering), None);
            assert!(!answering.heard_again(&id, now_ms));
            now_ms += T_MAX_MS;
        }
    }

    #[test]
    fn who_repairs_nothing_or_is_in_another_group_answers_nothing() {
        let answers = |config: Config| {
            let (_, log) = holding();
            let mut answering = Answering::new(&config, &"bob".into());
            answering.on_request((&entry(ID), &"carol".into()), &log, || false, 0);
            answering.answers_held() == 1
        };
        let enable = |enable_repair| Config {
            enable_repair,
            ..Config::example()
        };
        assert_eq!(
            [true, false].map(|enabled| answers(enable(enabled))),
            [true, false]
        );
        let groups = Config {
            repair_groups: 1 << 40,
            ..Config::example()
        };
        assert!(!answers(groups));
    }

    #[test]
    fn what_must_go_for_an_answer_is_owed_no_longer_and_so_it_is_stored() {
        let (mut answering, log) = holding();
        for number in 0..REPAIR_BUFFER_MAX {
            let moment_ms = 2 * T_MAX_MS + number as i64;
            assert_eq!(
                answering
                    .answers
                    .put(entry(&number.to_string()), &"carol".into(), moment_ms),
                None
            );
        }
        answering.on_request((&entry(ID), &"carol".into()), &log, || false, 0);
        let latest = (REPAIR_BUFFER_MAX - 1).to_string();
        assert_eq!(
            changed(&mut answering),
            [(ID.to_owned(), true), (latest, false)]
        );
    }

    #[test]
    fn nobody_asks_for_so_much_that_what_others_are_owed_goes() {
        const FEW: usize = 100;
        let ids: Vec<String> = (0..3 * REPAIR_BUFFER_MAX)
            .map(|number| format!("held {number}"))
            .collect();
        let mut log = Log::of(ids.len());
        for id in &ids {
            let (held, _) = log.add(Name::new(id), "alice".into(), 1, None, 0);
            log.keep_original(held, vec![7; 10].into());
        }
        let (few, many) = ids.split_at(FEW);
        // Mallory asks after carol, before her, and for what she asks for as well.
        let (of_carol, of_mallory) = (("carol", few), ("mallory", many));
        let orders = [
            [of_carol, of_mallory, of_carol],
            [of_mallory, of_carol, of_mallory],
            [("mallory", &ids[..REPAIR_BUFFER_MAX]), of_carol, of_mallory],
        ];
        for order in orders {
            let mut answering = of_bob();
            for (by, asked) in order {
                for id in asked {
                    answering.on_request((&entry(id), &by.into()), &log, || false, 0);
                }
                answering.answers.audit();
            }
            assert_eq!(answering.answers_held(), REPAIR_BUFFER_MAX);
            let mut owed = few.iter();
            assert!(owed.all(|id| answering.answers.contains(id.as_bytes())));
        }
    }

    #[test]
    fn what_leaves_takes_the_pace_of_answers() {
        let mut answering = of_bob();
        assert_eq!(answering.paced_ms(), 0);
        answering.on_answer_left(20_000 << 10, 0);
        assert!(answering.paced_ms() > 0);
    }

    #[test]
    fn an_answer_of_an_earlier_life_is_owed_still_where_its_content_is_held() {
        let (mut answering, mut log) = holding();
        answering.restore_answer(&entry(ID), &log, || false, 0);
        assert!(due_ms(&answering).is_some());
        assert_eq!(changed(&mut answering), []);
        log.forget_original(&Name::new(ID));
        let mut answering = of_bob();
        answering.restore_answer(&entry(ID), &log, || false, 0);
        assert_eq!(due_ms(&answering), None);
        assert_eq!(changed(&mut answering), [(ID.to_owned(), false)]);
    }
}

//! What a store is asked, and when (004, Missing message retrieval and Query on connect).
//!
//! Whoever owns a channel asks the store: [`Channel::poll_question`] says what, [`Channel::handle_stored_message`] is
//! told each message of the answer, [`Channel::handle_page`] each of its pages, and [`Channel::handle_answered`] or
//! [`Channel::handle_no_answer`] ends it.
//!
//! - `catch_up`: from when on messages may have passed by;
//! - `rounds`: which missing messages are asked for again, and how soon.

mod catch_up;
mod rounds;

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Channel;
use super::json_record::decode;
use super::records::{LAST_SEEN, Records};
use super::restore_error::RestoreError;
use crate::sds::fields::{Reader, Writer};
use crate::sds::{Name, Now, VERSION};
use catch_up::{CatchUp, NANOSECONDS_PER_MS, QUERY_MARGIN_MS};
use rounds::{Rounds, Wanted};

/// What errors call its record.
const CALLED: &str = "LastSeenRecord";

/// After a question that no store answered the next one waits this long, doubled with each failure in a row.
const RETRY_MS_MIN: i64 = 1_000;
const RETRY_MS_MAX: i64 = 60_000;
/// How soon to look again whether the application has made room.
const ROOM_RECHECK_MS: i64 = 1_000;
/// How far the newest transport time may move before it is stored again.
const LAST_SEEN_STEP_NS: i64 = 10_000_000_000;

/// When a store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrievalConfig {
    /// Least time between two questions for the same missing message.
    pub retrieve_frequency_ms: i64,
    /// Whether a store is asked for what passed by.
    pub query_on_connect: bool,
    /// How long after an answer it is asked again though nothing is known to have passed by.
    pub query_on_connect_interval_ms: i64,
}

/// What a store is to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// For the messages with these transport hashes.
    Hashes(Vec<Vec<u8>>),
    /// For all of the content topic from this Unix time in ms on, newest first, until [`Channel::handle_page`] wants no
    /// more: what is missing has come. It has no end, since our clock may be ahead of those of senders, or behind.
    Window(i64),
    /// Likewise: what came before is found through histories.
    Passed(i64),
    /// Likewise, oldest first: all of it may have passed by, and causes come before their effects.
    Gap(i64),
}

impl Question {
    /// Whether the newest come first.
    pub fn is_newest_first(&self) -> bool {
        matches!(self, Question::Window(_) | Question::Passed(_))
    }

    /// Whether pages are asked for before those that came are taken in: they are likely to be wanted.
    pub fn goes_ahead(&self) -> bool {
        matches!(self, Question::Window(_) | Question::Gap(_))
    }
}

/// A question that a store is being asked.
#[derive(Debug)]
enum Asking {
    /// Missing messages, and those of them that the store did not answer with.
    Missing(Wanted, BTreeSet<Name>),
    /// What passed by.
    Passed {
        asked: Now,
        thorough: bool,
        /// Whether a message that came leads further back.
        leads_back: bool,
        /// Whether more is left in the store than was taken in.
        is_cut: bool,
    },
}

/// What a channel asks of a store.
#[derive(Debug)]
pub(super) struct Retrieval {
    config: RetrievalConfig,
    online: bool,
    catch_up: CatchUp,
    rounds: Rounds,
    asking: Option<Asking>,
    /// Before this monotonic time no store is asked anything.
    retry_at_ms: i64,
    failures_in_row: u32,
    /// The newest transport time of a message that came.
    newest_ns: i64,
    /// The transport time that is stored, and whether it is stored already.
    seen_ns: i64,
    is_seen_stored: bool,
}

impl Retrieval {
    pub fn new(config: RetrievalConfig) -> Self {
        Retrieval {
            config,
            online: false,
            catch_up: CatchUp::new(config.query_on_connect, config.query_on_connect_interval_ms),
            rounds: Rounds::new(config.retrieve_frequency_ms),
            asking: None,
            retry_at_ms: i64::MIN,
            failures_in_row: 0,
            newest_ns: 0,
            seen_ns: 0,
            is_seen_stored: true,
        }
    }

    /// Takes back what an earlier life stored. A time that has not come says nothing: the clock was ahead.
    pub fn restore(&mut self, record: &[u8], now: Now) -> Result<(), RestoreError> {
        self.seen_ns = last_seen_ns(record)?;
        if self.seen_ns <= present_ns(now) {
            self.newest_ns = self.seen_ns;
            self.catch_up.restore(self.seen_ns);
        }
        Ok(())
    }

    pub fn on_arrival(&mut self, timestamp_ns: i64) {
        self.newest_ns = self.newest_ns.max(timestamp_ns);
    }

    /// Notes up to which transport time nothing was missed, where that is another than the one that is stored: a gap
    /// that no store answered for stays one.
    pub fn note_seen(&mut self, now: Now) {
        let newest_ns = self.newest_until_ns(now);
        let gap_ns = self.catch_up.open_since_ns();
        let seen_ns = gap_ns.map_or(newest_ns, |gap_ns| gap_ns.min(newest_ns));
        let moved_ns = seen_ns.saturating_sub(self.seen_ns);
        if !(0..=LAST_SEEN_STEP_NS).contains(&moved_ns) {
            self.seen_ns = seen_ns;
            self.is_seen_stored = false;
        }
    }

    pub fn poll_persist(&mut self, records: &mut Records) {
        if !std::mem::replace(&mut self.is_seen_stored, true) {
            let record = Writer::new().long(self.seen_ns as u64).seal();
            records.put(LAST_SEEN, Vec::new(), Some(record));
        }
    }

    pub fn drop_changes(&mut self) {
        self.is_seen_stored = true;
    }

    /// The newest transport time so far, at most the present: a stranger's may be of another century.
    fn newest_until_ns(&self, now: Now) -> i64 {
        self.newest_ns.min(present_ns(now))
    }

    /// The channel starts, and nobody says how the connection is: a store out of reach is asked in vain.
    pub fn on_started(&mut self, now: Now) {
        self.online = true;
        self.catch_up.on_gap(present_ns(now));
        self.on_store_near();
    }

    /// A store is asked again once [`Retrieval::on_started`].
    pub fn on_stopped(&mut self) {
        self.online = false;
    }

    /// Where a connection comes back, or a store into reach, what passed by and what is missing is asked for.
    pub fn on_connection(&mut self, online: bool, is_full: bool, now: Now) {
        let was_online = std::mem::replace(&mut self.online, online);
        if !online {
            self.catch_up.on_gap(present_ns(now));
        } else if !was_online || is_full {
            self.on_store_near();
        }
    }

    fn on_store_near(&mut self) {
        self.catch_up.on_store_near();
        self.rounds.on_store_near();
        self.on_store_answers();
    }

    fn on_store_answers(&mut self) {
        self.retry_at_ms = i64::MIN;
        self.failures_in_row = 0;
    }

    /// What is being asked for is asked for again when it is due.
    fn take_back(&mut self) {
        if let Some(Asking::Passed { .. }) = self.asking.take() {
            self.catch_up.take_back(i64::MIN);
        }
    }
}

impl Channel {
    // --- what a store is asked ------------------------------------------------------------------

    /// From this transport time on messages may have passed by.
    pub fn handle_missed(&mut self, since_ns: i64, now: Now) {
        let since_ns = since_ns.min(present_ns(now));
        self.retrieval.catch_up.on_gap(since_ns);
    }

    /// Monotonic milliseconds at which a store is to be asked something; `None` for not before something comes.
    pub fn next_question_ms(&self, now: Now) -> Option<i64> {
        let retrieval = &self.retrieval;
        if !retrieval.online || retrieval.asking.is_some() {
            return None;
        }
        if !self.has_delivery_room(0, 0) {
            let pause_ms = retrieval.config.retrieve_frequency_ms.max(ROOM_RECHECK_MS);
            return Some(now.monotonic_ms.saturating_add(pause_ms));
        }
        let passed_ms = retrieval.catch_up.next_ms();
        // Of what a gap had, the newest would wait here for all before it, and take the room of those.
        let missing_ms = if retrieval.catch_up.goes_on() {
            None
        } else {
            retrieval.rounds.next_ms(&self.sds)
        };
        let due_ms = passed_ms.into_iter().chain(missing_ms).min();
        due_ms.map(|due_ms| due_ms.max(retrieval.retry_at_ms))
    }

    /// What a store is to be asked now; how it ends has to be said before the next one.
    pub fn poll_question(&mut self, now: Now) -> Option<Question> {
        let at_ms = now.monotonic_ms;
        if self
            .next_question_ms(now)
            .is_none_or(|due_ms| due_ms > at_ms)
        {
            return None;
        }
        let retrieval = &mut self.retrieval;
        if retrieval
            .catch_up
            .next_ms()
            .is_some_and(|due_ms| due_ms <= at_ms)
        {
            let span = retrieval.catch_up.begin(now);
            retrieval.asking = Some(Asking::Passed {
                asked: now,
                thorough: span.thorough,
                leads_back: false,
                is_cut: false,
            });
            let question = if span.thorough {
                Question::Gap
            } else {
                Question::Passed
            };
            return Some(question(span.since_ms));
        }
        let wanted = retrieval.rounds.poll(&self.sds, at_ms);
        let put_off = retrieval.rounds.take_put_off();
        self.sds
            .handle_unstored(put_off.iter().map(Name::as_str), now);
        let wanted = wanted?;
        let (question, absent) = match &wanted {
            Wanted::Hinted(hinted) => {
                let hashes: BTreeSet<&Vec<u8>> = hinted.iter().map(|(hint, _)| hint).collect();
                let absent = hinted.iter().map(|(_, message_id)| message_id.clone());
                let hashes = hashes.into_iter().cloned().collect();
                (Question::Hashes(hashes), absent.collect())
            }
            Wanted::Hintless(hintless) => {
                let newest_ms = retrieval.newest_until_ns(now) / NANOSECONDS_PER_MS;
                let newest_ms = if newest_ms == 0 {
                    now.epoch_ms
                } else {
                    newest_ms
                };
                let interval_ms = retrieval.config.query_on_connect_interval_ms;
                let absent = hintless.iter().map(|(message_id, _)| message_id.clone());
                let since_ms = newest_ms
                    .saturating_sub(interval_ms)
                    .saturating_sub(QUERY_MARGIN_MS);
                (Question::Window(since_ms.max(0)), absent.collect())
            }
        };
        retrieval.asking = Some(Asking::Missing(wanted, absent));
        Some(question)
    }

    /// The store that is being asked has a message, whatever it contains; before it is taken in.
    pub fn handle_stored_message(&mut self, message_hash: &[u8], data: Option<&[u8]>) {
        let message = data.and_then(|data| self.sds.read_message(data));
        match &mut self.retrieval.asking {
            Some(Asking::Missing(Wanted::Hinted(hinted), absent)) => {
                for (_, message_id) in hinted.iter().filter(|(hint, _)| *hint == message_hash) {
                    absent.remove(message_id);
                }
            }
            Some(Asking::Missing(Wanted::Hintless(_), absent)) => {
                if let Some(message) = message {
                    absent.remove(&Name::from_wire(message.message_id));
                }
            }
            Some(Asking::Passed { leads_back, .. }) => {
                *leads_back |= message.is_some_and(|message| self.sds.leads_back(&message));
            }
            None => {}
        }
    }

    /// A page of an answer is taken in; gives whether another one is wanted.
    ///
    /// Missing messages are looked for until they have come, with what they follow.
    ///
    /// Newest first, what came before a message of our channel that names its history is found through the history. So
    /// only one ends the search that is new here, or whose history is: what somebody repeats does not. Nor does one
    /// while messages are partly here, since no history has hints of their segments. A page without `news` ends it too.
    ///
    /// Of a gap with a known beginning all is asked for: histories lead through it a message at a time. Once all up to a
    /// page is kept, which ends with the transport time `until_ns`, the gap begins there: whatever interrupts the
    /// search, or a restart, has the rest asked for. It pauses while the application has to catch up first.
    pub fn handle_page(
        &mut self,
        news: bool,
        all_kept: bool,
        until_ns: Option<i64>,
        now: Now,
    ) -> bool {
        let (has_room, has_partial) = (self.has_delivery_room(0, 0), self.has_partial());
        let retrieval = &mut self.retrieval;
        match &mut retrieval.asking {
            Some(Asking::Passed {
                thorough: true,
                is_cut,
                ..
            }) => {
                *is_cut |= !(all_kept && has_room);
                // A time that has not come is no measure of what came before.
                let until_ns = until_ns.filter(|until_ns| *until_ns <= present_ns(now));
                if let Some(until_ns) = until_ns.filter(|_| all_kept) {
                    retrieval.catch_up.on_taken_in(until_ns);
                }
                !*is_cut
            }
            Some(Asking::Passed { leads_back, .. }) => news && (!*leads_back || has_partial),
            Some(Asking::Missing(wanted, _)) => retrieval.rounds.is_wanting(wanted, &self.sds),
            None => true,
        }
    }

    /// A store has answered; `all_kept` tells whether all that it had was taken in.
    pub fn handle_answered(&mut self, all_kept: bool, now: Now) {
        let has_room = self.has_delivery_room(0, 0);
        self.sds.handle_store_away(false, now);
        let retrieval = &mut self.retrieval;
        retrieval.on_store_answers();
        match retrieval.asking.take() {
            Some(Asking::Missing(wanted, absent)) => {
                let rounds = &mut retrieval.rounds;
                rounds.on_answered(&wanted, &absent, now.monotonic_ms);
                self.sds
                    .handle_unstored(absent.iter().map(Name::as_str), now);
                let surely_absent = wanted.surely_absent(&absent);
                self.sds
                    .handle_irretrievable(surely_absent.map(Name::as_str));
            }
            Some(Asking::Passed { asked, is_cut, .. }) if all_kept && has_room && !is_cut => {
                retrieval.catch_up.on_answered(asked);
                self.sds.handle_caught_up();
            }
            Some(Asking::Passed { .. }) => {
                let recheck_ms = now.monotonic_ms.saturating_add(ROOM_RECHECK_MS);
                retrieval.catch_up.take_back(recheck_ms);
            }
            None => {}
        }
    }

    /// No store answered: neither this question nor another one is asked before its time.
    pub fn handle_no_answer(&mut self, now: Now) {
        let retrieval = &mut self.retrieval;
        let pause_ms = RETRY_MS_MIN << retrieval.failures_in_row.min(16);
        retrieval.retry_at_ms = now.monotonic_ms.saturating_add(pause_ms.min(RETRY_MS_MAX));
        retrieval.failures_in_row = retrieval.failures_in_row.saturating_add(1);
        retrieval.take_back();
    }

    /// There is no store to ask, or none answers in time: until one answers others are asked for what is missing as
    /// where none has it.
    pub fn handle_no_store(&mut self, now: Now) {
        self.sds.handle_store_away(true, now);
    }

    /// Nobody waits for the answer any longer.
    pub fn withdraw_question(&mut self) {
        self.retrieval.take_back();
    }
}

/// The transport time of a stored record up to which nothing was missed.
///
/// # Errors
/// [`RestoreError`] where the record is damaged, or another release wrote it.
pub fn last_seen_ns(record: &[u8]) -> Result<i64, RestoreError> {
    /// As earlier releases wrote it.
    #[derive(Deserialize)]
    struct Json {
        timestamp_ns: i64,
    }
    match record.first() {
        Some(b'{') => Ok(decode::<Json>(record, CALLED)?.timestamp_ns),
        Some(&version) if version > VERSION => Err(crate::sds::RestoreError::Version(version))?,
        _ => {
            let seen_ns = Reader::new(record).and_then(|mut fields| fields.long());
            seen_ns
                .map(|seen_ns| seen_ns as i64)
                .ok_or(RestoreError::Damaged(CALLED))
        }
    }
}

fn present_ns(now: Now) -> i64 {
    now.epoch_ms.saturating_mul(NANOSECONDS_PER_MS)
}

#[cfg(test)]
mod tests;

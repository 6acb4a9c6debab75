//! Contents that left and are not acknowledged: when each goes again, if it does.

use std::collections::VecDeque;
use std::sync::Arc;

use hashlink::LinkedHashSet;

use super::demand::Demand;
use super::in_store::InStore;
use super::inquiry::Due;
use super::quorum::Quorum;
use super::resend::ResendTimers;
use super::send::{ContentRef, OutgoingRef, OutgoingSend};
use super::sends::Sends;
use crate::sds::config::Config;
use crate::sds::participants::Participants;

/// Contents from when they leave until they are acknowledged or given up.
#[derive(Debug)]
pub struct Unacknowledged {
    config: Config,
    unacknowledged: LinkedHashSet<ContentRef>,
    /// Held back, and not unacknowledged meanwhile.
    in_store: InStore,
    timers: ResendTimers,
    due: VecDeque<ContentRef>,
}

/// What becomes of a content whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// It goes again as soon as anything may leave, or waits on.
    Taken,
    /// It waits for an answer to others of its send, and its record changed.
    PutOff,
    /// As that, and those who were silent are asked by the next message.
    Asked,
    /// It was sent again as often as it may be: its send ends.
    Last,
}

impl Unacknowledged {
    /// Nothing has left.
    pub fn new(config: &Config) -> Self {
        Unacknowledged {
            config: config.clone(),
            unacknowledged: LinkedHashSet::new(),
            in_store: InStore::new(config.max_retransmissions),
            timers: ResendTimers::default(),
            due: VecDeque::new(),
        }
    }

    // --- views ----------------------------------------------------------------------------------

    /// What is unacknowledged, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = ContentRef> {
        self.unacknowledged.iter().copied()
    }

    /// How many are.
    pub fn len(&self) -> usize {
        self.unacknowledged.len()
    }

    /// Contents that a store has and that wait for somebody who lacks them.
    pub fn in_store(&self) -> &InStore {
        &self.in_store
    }

    /// Whether an acknowledgement of a content is waited for.
    pub fn awaits(&self, place: ContentRef) -> bool {
        self.unacknowledged.contains(&place) || self.in_store.contains(place)
    }

    /// Contents that are due again.
    pub fn due(&self) -> usize {
        self.due.len()
    }

    /// How long the first acknowledgement of a content is waited for.
    pub fn period_ms(&self) -> i64 {
        self.config.resend_period_ms(0)
    }

    /// How long a round of a send on demand takes: with back-off more each time that nobody says anything
    /// new.
    pub fn round_ms(&self, send: &OutgoingSend) -> i64 {
        let silent_rounds = send.demand.as_ref().map_or(0, Demand::silent_rounds);
        self.config.resend_period_ms(silent_rounds)
    }

    /// Within this time all who are to answer do.
    pub fn window_ms(&self) -> i64 {
        self.config.window_ms()
    }

    /// A burst has ended once nothing came for so long.
    pub fn gap_ms(&self) -> i64 {
        self.config.gap_ms()
    }

    /// So many rounds without an answer end a send.
    pub fn rounds_max(&self) -> u32 {
        self.config.max_retransmissions
    }

    // --- what leaves, and what need not any more ------------------------------------------------

    /// A content leaves now.
    pub fn on_left(&mut self, place: ContentRef, monotonic_ms: i64, sends: &mut Sends) {
        self.unacknowledged.replace(place);
        self.wait(place, monotonic_ms, sends);
    }

    /// A content goes as soon as anything may leave.
    pub fn add_due(&mut self, place: ContentRef, sends: &mut Sends) {
        self.unacknowledged.replace(place);
        self.push_due(place, sends);
    }

    /// A content of an earlier life, which stands among the unacknowledged, may not have left.
    pub fn restore_due(&mut self, place: ContentRef, sends: &mut Sends) {
        self.push_due(place, sends);
    }

    /// A content stands among what is due once, however often its time comes before it leaves.
    fn push_due(&mut self, place: ContentRef, sends: &mut Sends) {
        let content = sends.content_mut(place);
        if content.is_some_and(|content| !std::mem::replace(&mut content.is_due, true)) {
            self.due.push_back(place);
        }
    }

    /// A content that a store has is not held back any longer.
    pub fn leave_store(&mut self, place: ContentRef) {
        self.unacknowledged.replace(place);
    }

    /// Nobody waits for the acknowledgement of a content any longer.
    pub fn discard(&mut self, place: ContentRef) {
        self.unacknowledged.remove(&place);
        self.in_store.discard(place);
    }

    // --- timers ---------------------------------------------------------------------------------

    /// A content waits for its acknowledgement, or a send on demand for what its receivers say.
    pub fn wait(&mut self, place: ContentRef, monotonic_ms: i64, sends: &mut Sends) {
        let Some(send) = sends.get(place.0) else {
            return;
        };
        if send.demand.is_some() {
            self.look_again(place.0, monotonic_ms + self.round_ms(send), sends);
            return;
        }
        let Some(content) = send.contents.get(place.1 as usize) else {
            return;
        };
        // SDS: possibly acknowledged messages are rebroadcast at a longer period.
        let periods = if content.possible.is_empty() { 1 } else { 2 };
        let period_ms = periods * self.config.resend_period_ms(content.attempts);
        self.set_timer(place, monotonic_ms + period_ms, sends);
    }

    /// The longer period holds for the wait that has begun, too.
    pub fn wait_longer(&mut self, place: ContentRef, sends: &mut Sends) {
        let content = sends.content(place);
        let due = content.and_then(|content| Some((content.resend_ms?, content.attempts)));
        if let Some((due_ms, attempts)) = due {
            self.set_timer(
                place,
                due_ms + self.config.resend_period_ms(attempts),
                sends,
            );
        }
    }

    /// A send on demand has one timer, that of its first content.
    pub fn look_again(&mut self, handle: OutgoingRef, at_ms: i64, sends: &mut Sends) {
        self.set_timer((handle, 0), at_ms, sends);
    }

    /// A content is due at `at_ms`.
    pub fn set_timer(&mut self, place: ContentRef, at_ms: i64, sends: &mut Sends) {
        let held = self.unacknowledged.len() + self.in_store.len();
        self.timers.set(place, at_ms, held, sends);
    }

    /// When a content is due again.
    pub fn next_deadline(&mut self, sends: &mut Sends) -> Option<i64> {
        self.timers.next_ms(sends)
    }

    /// Takes a content whose time has come.
    pub fn take_timer(&mut self, monotonic_ms: i64, sends: &mut Sends) -> Option<ContentRef> {
        self.timers.take(monotonic_ms, sends)
    }

    // --- again ----------------------------------------------------------------------------------

    /// The time of a content has come, whose send is not finished.
    pub fn on_time(
        &mut self,
        place: ContentRef,
        monotonic_ms: i64,
        participants: &Participants,
        quorum: &Quorum,
        sends: &mut Sends,
    ) -> Turn {
        let (send, ordinal) = (&sends[place.0], place.1);
        let content = &send.contents[ordinal as usize];
        if content.in_flight != 0 {
            // What the node has yet to answer for is timed anew by the answer.
            return Turn::Taken;
        }
        if !quorum.wants(&send.acknowledged, ordinal) {
            // Not now: those who hold it may fall behind others who lack it.
            self.wait(place, monotonic_ms, sends);
            return Turn::Taken;
        }
        if let Some(stored_ms) = content.stored_ms {
            let lacks = |name: &Arc<str>| !send.acknowledged.holds(name, ordinal);
            let is_heard = quorum.is_heard(stored_ms, participants, lacks);
            if self.store_holds_back(place, is_heard, monotonic_ms) {
                self.wait_in_store(place, monotonic_ms, sends);
                return Turn::Taken;
            }
        }
        self.send_again_or_ask(place, monotonic_ms, quorum, sends)
    }

    /// Whether a store has a content and comes first, where somebody who lacks it `is_heard` or not.
    pub fn store_holds_back(
        &mut self,
        place: ContentRef,
        is_heard: bool,
        monotonic_ms: i64,
    ) -> bool {
        let period_ms = self.config.resend_period_ms(0);
        self.in_store
            .holds_back(place, is_heard, monotonic_ms, period_ms)
    }

    /// A content that a store has is looked at again in a period.
    pub fn wait_in_store(&mut self, place: ContentRef, monotonic_ms: i64, sends: &mut Sends) {
        self.wait(place, monotonic_ms, sends);
        self.unacknowledged.remove(&place);
    }

    /// All whose time had come were looked at: of those that a store has one may go as a probe. Gives the
    /// send of that one.
    pub fn probe(&mut self, monotonic_ms: i64, sends: &mut Sends) -> Option<OutgoingRef> {
        let probe = self.in_store.take_probe(monotonic_ms, self.period_ms())?;
        // One that the node has yet to answer for is under way.
        if sends
            .content(probe)
            .is_some_and(|content| content.in_flight == 0)
        {
            self.push_due(probe, sends);
        }
        Some(probe.0)
    }

    /// A content goes again, unless a few of its send ask first what is missing; or its send ends.
    fn send_again_or_ask(
        &mut self,
        place: ContentRef,
        monotonic_ms: i64,
        quorum: &Quorum,
        sends: &mut Sends,
    ) -> Turn {
        let period_ms = self.period_ms();
        let send = &mut sends[place.0];
        let is_missing = quorum.is_missed(send, place.1, self.config.gap_ms());
        let (count, waits) = (send.contents.len(), send.waits());
        let content = &mut send.contents[place.1 as usize];
        let left = (content.left_ms, is_missing);
        let may_sync = self.config.asks_by_sync();
        let due = send
            .inquiry
            .on_due(count, left, may_sync, monotonic_ms, period_ms);
        let put_off_ms = content.put_off_ms.take();
        if put_off_ms.is_some_and(|until_ms| until_ms <= monotonic_ms) && due != Due::Missing {
            // It waited in vain, as if it had gone again.
            content.attempts += 1;
        }
        if content.attempts >= self.config.max_retransmissions {
            if !waits {
                return Turn::Last;
            }
            // Its receivers may say nothing of a part, however long the rest takes to leave.
            self.wait(place, monotonic_ms, sends);
            return Turn::Taken;
        }
        let (until_ms, again_ms, turn) = match due {
            Due::Missing | Due::Unanswered => {
                self.add_due(place, sends);
                return Turn::Taken;
            }
            Due::Waits(until_ms) => (until_ms, until_ms, Turn::PutOff),
            Due::Asks(until_ms, again_ms) => (until_ms, again_ms, Turn::Asked),
        };
        content.put_off_ms = Some(until_ms);
        self.unacknowledged.replace(place);
        self.set_timer(place, again_ms, sends);
        turn
    }

    /// What its receivers lack of a send is known: what waited for that goes once all who answer had
    /// time to.
    pub fn on_answered(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        quorum: &Quorum,
        sends: &mut Sends,
    ) {
        let at_ms = monotonic_ms + self.config.window_ms();
        for ordinal in 0..sends[handle].contents.len() as u32 {
            let send = &sends[handle];
            let content = &send.contents[ordinal as usize];
            let waits = content.put_off_ms.is_some()
                && content.resend_ms.is_some_and(|due_ms| due_ms > at_ms);
            if waits && quorum.is_missed(send, ordinal, self.config.gap_ms()) {
                self.set_timer((handle, ordinal), at_ms, sends);
            }
        }
    }

    /// The content to send again, counted as an attempt unless it goes as a probe.
    pub fn next_due(
        &mut self,
        monotonic_ms: i64,
        quorum: &Quorum,
        sends: &mut Sends,
    ) -> Option<ContentRef> {
        while let Some(place) = self.due.pop_front() {
            if let Some(content) = sends.content_mut(place) {
                content.is_due = false;
            }
            if !self.awaits(place) {
                continue;
            }
            let is_attempt = self.is_attempt(place, sends);
            let send = &mut sends[place.0];
            let content = &mut send.contents[place.1 as usize];
            // What never left is waited for, whoever says that they have it.
            let never_left = content.lamport == 0;
            if never_left || quorum.wants(&send.acknowledged, place.1) {
                content.attempts += u32::from(is_attempt);
                return Some(place);
            }
            content.unconfirmed = false;
            self.wait(place, monotonic_ms, sends);
        }
        None
    }

    /// A retransmission failed: it was no attempt, and is due as soon as anything may leave. Whether the
    /// content is waited for at all.
    pub fn on_not_sent(&mut self, place: ContentRef, sends: &mut Sends) -> bool {
        if !self.awaits(place) {
            return false;
        }
        if self.is_attempt(place, sends) {
            let attempts = &mut sends[place.0].contents[place.1 as usize].attempts;
            *attempts = attempts.saturating_sub(1);
        }
        self.push_due(place, sends);
        true
    }

    /// What says that it is due stands there once.
    #[cfg(debug_assertions)]
    pub fn audit(&self, sends: &Sends) {
        let contents = sends.iter().flat_map(|send| &send.contents);
        let marked = contents.filter(|content| content.is_due).count();
        let held = |place: &&ContentRef| sends.content(**place).is_some();
        assert_eq!(marked, self.due.iter().filter(held).count());
        let goes_on = |content: &super::send::OutgoingContent| {
            content.is_due
                || content.queued
                || content.in_flight != 0
                || content.resend_ms.is_some()
        };
        for send in sends.iter().filter(|send| !send.finished) {
            let has_left = send.contents.iter().any(|content| content.left_ms > 0);
            if send.demand.is_some() && has_left {
                assert!(
                    send.contents.iter().any(goes_on),
                    "{:?} is waited for in vain",
                    send.send_id
                );
            }
        }
        for place in self.unacknowledged.iter() {
            let Some(send) = sends.get(place.0) else {
                continue;
            };
            if send.demand.is_none() && !send.finished {
                assert!(
                    goes_on(&send.contents[place.1 as usize]),
                    "{place:?} of {:?} never goes again",
                    send.send_id
                );
            }
        }
    }

    /// Whether a content that is due counts as one that goes again: no probe, nor one that may not have left.
    fn is_attempt(&self, place: ContentRef, sends: &Sends) -> bool {
        let may_have_left = !sends
            .content(place)
            .is_some_and(|content| content.unconfirmed);
        may_have_left && !self.in_store.contains(place)
    }
}

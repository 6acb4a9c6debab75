//! Asking before repeating: a lost acknowledgement is no reason to send all of a message again.

use std::sync::Arc;

use super::acknowledged::PARTICIPANTS_PER_SEND_MAX;
use crate::maps::HashMap;

/// A send of no more contents than this is repeated as it is.
const REPEATED_MAX: usize = 8;
/// Contents that go again to be answered: one alone is lost too easily.
const ASKING_CONTENTS: u32 = 3;
/// Syncs that ask, spread over a period: question and answer are lost as easily.
const ASKING_SYNCS: u32 = 3;
/// After so many inquiries that nobody answered, everything goes again.
const UNANSWERED_MAX: u32 = 2;

/// What the sender of one send knows of what its receivers lack.
///
/// Where nothing was heard since a content left of a receiver that may lack it, that receiver is asked by a
/// sync, where those may ask. Who did not answer that, or cannot, gets a few contents: whoever gets one again
/// acknowledges all that it has of the send. The rest goes once the answer names what came, or nobody answered
/// twice. What others say tells nothing of one who is silent: its acknowledgement may be all that got lost.
#[derive(Debug, Default)]
pub struct Inquiry {
    /// When somebody who cannot reconstruct the send named a content of it last.
    heard_ms: i64,
    /// When each that cannot did so last.
    named_ms: HashMap<Arc<str>, i64>,
    /// What left before this goes again, though nobody answered.
    released_ms: i64,
    /// When the open inquiry began, whether syncs ask, and how many of them or of contents left for it.
    open_ms: Option<i64>,
    by_sync: bool,
    asking: u32,
    unanswered: u32,
}

/// What becomes of a content that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// It is known to be missing: it goes.
    Missing,
    /// It goes, so that somebody answers, or since nobody did.
    Unanswered,
    /// It waits for the answer until this moment.
    Waits(i64),
    /// As that, and a sync asks; it is looked at again at the second moment.
    Asks(i64, i64),
}

impl Inquiry {
    /// A content of a send of `count` contents is due, which left at `left_ms`, and which some of those who
    /// were heard since lack where it `is_missing`; an answer takes a period at most. Whether syncs ask tells
    /// `may_sync`.
    pub fn on_due(
        &mut self,
        count: usize,
        (left_ms, is_missing): (i64, bool),
        may_sync: bool,
        now_ms: i64,
        period_ms: i64,
    ) -> Due {
        if count <= REPEATED_MAX || left_ms < self.released_ms {
            return Due::Unanswered;
        }
        if is_missing {
            return Due::Missing;
        }
        let part_ms = period_ms / i64::from(ASKING_SYNCS);
        if let Some(open_ms) = self.open_ms.filter(|open_ms| open_ms + period_ms > now_ms) {
            let until_ms = open_ms + period_ms;
            if self.by_sync {
                let at_ms = open_ms + i64::from(self.asking) * part_ms;
                if self.asking < ASKING_SYNCS && now_ms >= at_ms {
                    self.asking += 1;
                    return Due::Asks(until_ms, at_ms + part_ms);
                }
            } else if self.asking < ASKING_CONTENTS {
                self.asking += 1;
                return Due::Unanswered;
            }
            return Due::Waits(until_ms);
        }
        let mut in_vain = false;
        if let Some(open_ms) = self.open_ms.take() {
            in_vain = self.by_sync && left_ms < open_ms;
            self.unanswered = if self.heard_ms > open_ms {
                0
            } else {
                self.unanswered + 1
            };
            if self.unanswered == UNANSWERED_MAX {
                self.unanswered = 0;
                self.released_ms = now_ms;
                return Due::Unanswered;
            }
        }
        self.open_ms = Some(now_ms);
        self.by_sync = may_sync && !in_vain;
        self.asking = 1;
        match self.by_sync {
            true => Due::Asks(now_ms + period_ms, now_ms + part_ms),
            false => Due::Unanswered,
        }
    }

    /// Whether `name` was heard to name what it has since a content left at `left_ms`.
    pub fn is_heard_since(&self, name: &Arc<str>, left_ms: i64) -> bool {
        self.named_ms
            .get(name)
            .is_some_and(|named_ms| *named_ms > left_ms)
    }

    /// `by`, of whom it was not known that it can reconstruct the send of `count` contents, named one of them, or
    /// said that it can; whether that is its first answer to what is asked.
    pub fn on_named(&mut self, by: &Arc<str>, count: usize, now_ms: i64) -> bool {
        if count <= REPEATED_MAX {
            return false;
        }
        self.heard_ms = now_ms;
        let before_ms = self.named_ms.get(by).copied();
        if before_ms.is_none() && self.named_ms.len() >= PARTICIPANTS_PER_SEND_MAX {
            return false;
        }
        self.named_ms.insert(Arc::clone(by), now_ms);
        self.open_ms.is_some_and(|open_ms| {
            before_ms.is_none_or(|before_ms| before_ms <= open_ms) && now_ms > open_ms
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_MS: i64 = 1_000;

    fn due(inquiry: &mut Inquiry, left_ms: i64, now_ms: i64) -> Due {
        due_where(inquiry, (left_ms, false), now_ms)
    }

    fn due_where(inquiry: &mut Inquiry, left: (i64, bool), now_ms: i64) -> Due {
        inquiry.on_due(72, left, false, now_ms, PERIOD_MS)
    }

    fn due_with_syncs(inquiry: &mut Inquiry, left_ms: i64, now_ms: i64) -> Due {
        inquiry.on_due(72, (left_ms, false), true, now_ms, PERIOD_MS)
    }

    fn bob() -> Arc<str> {
        "bob".into()
    }

    #[test]
    fn a_few_ask_and_the_rest_waits_for_the_answer() {
        let mut inquiry = Inquiry::default();
        for _ in 0..ASKING_CONTENTS {
            assert_eq!(due(&mut inquiry, 10, 1_000), Due::Unanswered);
        }
        assert_eq!(due(&mut inquiry, 10, 1_001), Due::Waits(2_000));
        assert!(inquiry.on_named(&bob(), 72, 1_100));
        assert!(!inquiry.on_named(&bob(), 72, 1_101));
        assert!(inquiry.on_named(&"carol".into(), 72, 1_102));
        assert_eq!(due_where(&mut inquiry, (10, true), 1_200), Due::Missing);
    }

    #[test]
    fn who_spoke_says_nothing_for_those_who_are_silent() {
        let mut inquiry = Inquiry::default();
        inquiry.on_named(&bob(), 72, 500);
        assert!(inquiry.is_heard_since(&bob(), 499));
        assert!(!inquiry.is_heard_since(&bob(), 500));
        assert!(!inquiry.is_heard_since(&"carol".into(), 499));
        assert_eq!(due(&mut inquiry, 499, 1_000), Due::Unanswered);
        assert_eq!(inquiry.open_ms, Some(1_000));
    }

    #[test]
    fn everything_goes_after_two_inquiries_without_an_answer() {
        let mut inquiry = Inquiry::default();
        for round in 1..=2 {
            let now_ms = round * PERIOD_MS;
            for _ in 0..ASKING_CONTENTS {
                due(&mut inquiry, 10, now_ms);
            }
            assert_eq!(
                due(&mut inquiry, 10, now_ms),
                Due::Waits(now_ms + PERIOD_MS)
            );
        }
        for _ in 0..72 {
            assert_eq!(due(&mut inquiry, 10, 3_000), Due::Unanswered);
        }
        // What went again is asked for anew, and goes as before.
        for now_ms in [4_000, 5_000] {
            for _ in 0..ASKING_CONTENTS {
                due(&mut inquiry, 3_000, now_ms);
            }
            let waits = Due::Waits(now_ms + PERIOD_MS);
            assert_eq!(due(&mut inquiry, 3_000, now_ms), waits);
        }
        for _ in 0..72 {
            assert_eq!(due(&mut inquiry, 3_000, 6_000), Due::Unanswered);
        }
    }

    #[test]
    fn what_is_named_as_an_inquiry_begins_is_no_answer() {
        let mut inquiry = Inquiry::default();
        assert_eq!(due(&mut inquiry, 10, 1_000), Due::Unanswered);
        assert!(!inquiry.on_named(&bob(), 72, 1_000));
        due(&mut inquiry, 10, 2_000);
        for _ in 0..72 {
            assert_eq!(due(&mut inquiry, 10, 3_000), Due::Unanswered);
        }
    }

    #[test]
    fn who_named_something_before_it_is_asked_answers_with_the_next() {
        for before_ms in [500, 1_000] {
            let mut inquiry = Inquiry::default();
            inquiry.on_named(&bob(), 72, before_ms);
            due(&mut inquiry, 600, 1_000);
            inquiry.on_named(&bob(), 72, before_ms);
            assert!(inquiry.on_named(&bob(), 72, 1_001));
        }
    }

    #[test]
    fn so_many_who_answer_are_told_apart_and_no_more() {
        let mut inquiry = Inquiry::default();
        due(&mut inquiry, 10, 1_000);
        for number in 0..=PARTICIPANTS_PER_SEND_MAX {
            let name: Arc<str> = number.to_string().into();
            let has_room = number < PARTICIPANTS_PER_SEND_MAX;
            assert_eq!(inquiry.on_named(&name, 72, 1_001), has_room);
            assert_eq!(inquiry.is_heard_since(&name, 1_000), has_room);
        }
        // It is known, however full the table is.
        inquiry.on_named(&"0".into(), 72, 1_002);
        assert!(inquiry.is_heard_since(&"0".into(), 1_001));
    }

    #[test]
    fn what_was_answered_is_asked_again_and_never_released() {
        let mut inquiry = Inquiry::default();
        for round in 1..=5 {
            let now_ms = round * PERIOD_MS;
            for _ in 0..ASKING_CONTENTS {
                assert_eq!(due(&mut inquiry, 10, now_ms), Due::Unanswered);
            }
            let waits = Due::Waits(now_ms + PERIOD_MS);
            assert_eq!(due(&mut inquiry, 10, now_ms), waits, "round {round}");
            inquiry.on_named(&bob(), 72, now_ms + 1);
        }
    }

    #[test]
    fn syncs_ask_and_then_contents_whoever_did_not_answer() {
        let mut inquiry = Inquiry::default();
        for (now_ms, again_ms) in [(1_000, 1_333), (1_333, 1_666), (1_666, 1_999)] {
            let asks = Due::Asks(2_000, again_ms);
            assert_eq!(due_with_syncs(&mut inquiry, 10, now_ms), asks);
            let waits = Due::Waits(2_000);
            assert_eq!(due_with_syncs(&mut inquiry, 10, now_ms), waits);
        }
        let waits = Due::Waits(2_000);
        assert_eq!(due_with_syncs(&mut inquiry, 10, 1_999), waits);
        for _ in 0..ASKING_CONTENTS {
            assert_eq!(due_with_syncs(&mut inquiry, 10, 2_000), Due::Unanswered);
        }
        assert_eq!(due_with_syncs(&mut inquiry, 10, 2_000), Due::Waits(3_000));
        // Nobody answered either.
        assert_eq!(due_with_syncs(&mut inquiry, 10, 3_000), Due::Unanswered);
        // What left since is asked for anew.
        let asks = Due::Asks(5_000, 4_333);
        assert_eq!(due_with_syncs(&mut inquiry, 3_000, 4_000), asks);
    }

    #[test]
    fn syncs_ask_again_for_what_left_since_they_asked_and_after_contents_that_were_answered() {
        for left_ms in [1_000, 1_001] {
            let mut inquiry = Inquiry::default();
            due_with_syncs(&mut inquiry, 10, 1_000);
            let asks = Due::Asks(3_000, 2_333);
            assert_eq!(due_with_syncs(&mut inquiry, left_ms, 2_000), asks);
        }
        let mut inquiry = Inquiry::default();
        due_with_syncs(&mut inquiry, 10, 1_000);
        assert_eq!(due_with_syncs(&mut inquiry, 10, 2_000), Due::Unanswered);
        assert!(inquiry.on_named(&bob(), 72, 2_001));
        let asks = Due::Asks(4_000, 3_333);
        assert_eq!(due_with_syncs(&mut inquiry, 10, 3_000), asks);
    }

    #[test]
    fn few_contents_are_repeated_as_they_are() {
        let mut inquiry = Inquiry::default();
        for _ in 0..2 * REPEATED_MAX {
            assert_eq!(
                inquiry.on_due(REPEATED_MAX, (10, false), true, 1_000, PERIOD_MS),
                Due::Unanswered
            );
        }
    }
}

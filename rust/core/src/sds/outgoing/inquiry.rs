//! Asking before repeating: a lost acknowledgement is no reason to send all of a message again.

use std::collections::HashMap;
use std::sync::Arc;

use super::acknowledged::PARTICIPANTS_PER_SEND_MAX;

/// A send of no more contents than this is repeated as it is.
const REPEATED_MAX: usize = 8;
/// Contents that go again to be answered: one alone is lost too easily.
const ASKING_CONTENTS: u32 = 3;
/// After so many inquiries that nobody answered, everything goes again.
const UNANSWERED_MAX: u32 = 2;

/// What the sender of one send knows of what its receivers lack.
///
/// Whoever gets a content again acknowledges all that it has of the send. So where nothing was heard since
/// a content left of a receiver that may lack it, a few contents go first; the rest goes once the answer
/// names what came, or nobody answered twice. What others say tells nothing of one who is silent: its
/// acknowledgement may be all that got lost.
#[derive(Debug, Default)]
pub struct Inquiry {
    /// When somebody who cannot reconstruct the send named a content of it last.
    heard_ms: i64,
    /// When each that cannot did so last.
    named_ms: HashMap<Arc<str>, i64>,
    /// What left before this goes again, though nobody answered.
    released_ms: i64,
    /// When the open inquiry began, and how many contents left for it.
    open_ms: Option<i64>,
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
}

impl Inquiry {
    /// A content of a send of `count` contents is due, which left at `left_ms`, and which some of those who
    /// were heard since lack where it `is_missing`; an answer takes a period at most.
    pub fn on_due(
        &mut self,
        count: usize,
        (left_ms, is_missing): (i64, bool),
        now_ms: i64,
        period_ms: i64,
    ) -> Due {
        if count <= REPEATED_MAX || left_ms < self.released_ms {
            return Due::Unanswered;
        }
        if is_missing {
            return Due::Missing;
        }
        if let Some(open_ms) = self.open_ms.filter(|open_ms| open_ms + period_ms > now_ms) {
            if self.asking < ASKING_CONTENTS {
                self.asking += 1;
                return Due::Unanswered;
            }
            return Due::Waits(open_ms + period_ms);
        }
        if let Some(open_ms) = self.open_ms.take() {
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
        self.asking = 1;
        Due::Unanswered
    }

    /// Whether `name` was heard to name what it has since a content left at `left_ms`.
    pub fn is_heard_since(&self, name: &Arc<str>, left_ms: i64) -> bool {
        self.named_ms
            .get(name)
            .is_some_and(|named_ms| *named_ms > left_ms)
    }

    /// `by`, who cannot reconstruct the send of `count` contents, named one of them; whether that answers what
    /// was asked.
    pub fn on_named(&mut self, by: &Arc<str>, count: usize, now_ms: i64) -> bool {
        if count <= REPEATED_MAX {
            return false;
        }
        if let Some(named_ms) = self.named_ms.get_mut(by) {
            *named_ms = now_ms;
        } else if self.named_ms.len() < PARTICIPANTS_PER_SEND_MAX {
            self.named_ms.insert(Arc::clone(by), now_ms);
        }
        let before_ms = std::mem::replace(&mut self.heard_ms, now_ms);
        self.open_ms
            .is_some_and(|open_ms| before_ms <= open_ms && now_ms > open_ms)
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
        inquiry.on_due(72, left, now_ms, PERIOD_MS)
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
        // What went again is asked for anew.
        for _ in 0..ASKING_CONTENTS {
            due(&mut inquiry, 3_000, 4_000);
        }
        assert_eq!(due(&mut inquiry, 3_000, 4_000), Due::Waits(5_000));
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
    fn few_contents_are_repeated_as_they_are() {
        let mut inquiry = Inquiry::default();
        for _ in 0..2 * REPEATED_MAX {
            assert_eq!(
                inquiry.on_due(REPEATED_MAX, (10, false), 1_000, PERIOD_MS),
                Due::Unanswered
            );
        }
    }
}

//! Whether the node is worth a try: not while it is offline, for a while after it failed, or while it refuses all.

/// After a dispatch failed nothing is tried for this long, doubled with each failure in a row.
const PAUSE_MS_MIN: i64 = 500;
const PAUSE_MS_MAX: i64 = 30_000;
/// A node that answers meanwhile for what it took before is there: it is tried again after this long.
const PAUSE_MS_OF_ANSWERING: i64 = 50;
/// A node that names a longer time errs: it is tried again after this one.
const HOLD_MS_MAX: i64 = 24 * 3_600_000;
/// A hold that ends no later than this after one that was announced is no news, while nothing has left in
/// between.
const HOLD_NEWS_MS: i64 = 10_000;

/// What the node's answers say of the next try.
#[derive(Debug)]
pub(super) struct Readiness {
    pub online: bool,
    /// When it failed last; -1 for never.
    failed_ms: i64,
    held_until_ms: i64,
    failures: u32,
    paused_until_ms: i64,
    failures_in_row: u32,
    /// The end of the latest hold that the application was told of.
    announced_ms: i64,
}

impl Readiness {
    pub fn new() -> Self {
        Readiness {
            online: true,
            failed_ms: -1,
            held_until_ms: 0,
            failures: 0,
            paused_until_ms: 0,
            failures_in_row: 0,
            announced_ms: -HOLD_NEWS_MS,
        }
    }

    pub fn may_try(&self, monotonic_ms: i64) -> bool {
        self.online && self.resumes_ms(monotonic_ms).is_none()
    }

    /// How many times in a row it failed without naming a time.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Until when it refuses everything, as it said; in the past where it does not.
    pub fn held_until_ms(&self) -> i64 {
        self.held_until_ms
    }

    /// Whether it refuses everything until a time that it named.
    pub fn is_held(&self, monotonic_ms: i64) -> bool {
        self.held_until_ms > monotonic_ms
    }

    /// When an online node may be tried again; `None` where that is now.
    pub fn resumes_ms(&self, monotonic_ms: i64) -> Option<i64> {
        let resumes_ms = self.paused_until_ms.max(self.held_until_ms);
        (resumes_ms > monotonic_ms).then_some(resumes_ms)
    }

    /// Whether what left then left before the last failure, and so says nothing new of the node by failing
    /// too.
    pub fn is_known(&self, left_ms: Option<i64>) -> bool {
        left_ms.is_some_and(|left_ms| left_ms <= self.failed_ms)
    }

    /// It did not take a message and gave no time: it is left alone, the longer the more often in a row.
    pub fn on_failed(&mut self, monotonic_ms: i64) {
        self.failed_ms = monotonic_ms;
        self.failures = self.failures.saturating_add(1);
        self.paused_until_ms = monotonic_ms + self.back_off_ms();
    }

    /// It refuses everything for so long, which is no failure; for how long that is heeded, where it is news.
    ///
    /// One that promises too much is asked less and less often all the same.
    pub fn on_held(&mut self, retry_after_ms: i64, monotonic_ms: i64) -> Option<i64> {
        let mut hold_ms = retry_after_ms.clamp(PAUSE_MS_MIN, HOLD_MS_MAX);
        if !self.is_held(monotonic_ms) {
            hold_ms = hold_ms.max(self.back_off_ms());
        }
        self.held_until_ms = self.held_until_ms.max(monotonic_ms + hold_ms);
        if self.held_until_ms <= self.announced_ms + HOLD_NEWS_MS {
            return None;
        }
        self.announced_ms = self.held_until_ms;
        Some(self.held_until_ms - monotonic_ms)
    }

    /// It brought a message to the network that left then.
    pub fn on_taken(&mut self, left_ms: Option<i64>, monotonic_ms: i64) {
        self.failures = 0;
        self.failures_in_row = 0;
        self.paused_until_ms = if self.is_known(left_ms) {
            let answers_ms = self.failed_ms + PAUSE_MS_OF_ANSWERING;
            self.paused_until_ms.min(answers_ms)
        } else {
            0
        };
        if !self.is_held(monotonic_ms) {
            self.announced_ms = -HOLD_NEWS_MS;
        }
    }

    fn back_off_ms(&mut self) -> i64 {
        let pause_ms = (PAUSE_MS_MIN << self.failures_in_row.min(16)).min(PAUSE_MS_MAX);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        pause_ms
    }
}

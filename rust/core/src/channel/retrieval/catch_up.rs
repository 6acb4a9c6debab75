//! From when on messages may have passed by, and when a store is asked for them (004, Query on connect).

use crate::sds::Now;

/// Transport times are nanoseconds since the Unix epoch.
pub(super) const NANOSECONDS_PER_MS: i64 = 1_000_000;

/// How far back a participant asks that never received anything (as @waku/sdk does).
const FIRST_QUERY_RANGE_MS: i64 = 30 * 24 * 3_600_000;

/// Clocks of senders and stores differ; messages may be late.
pub(super) const QUERY_MARGIN_MS: i64 = 30_000;

/// What a store is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// From this transport time on.
    pub since_ms: i64,
    /// Whether all of it may have passed by, so that nothing but its beginning ends the search.
    pub thorough: bool,
}

/// A gap is open from the moment from which messages may have passed by until a store answered for all of it.
#[derive(Debug)]
pub(super) struct CatchUp {
    /// Whether a store is asked for what passed by at all.
    enabled: bool,
    /// How long after an answer it is asked again though nothing is known to have passed by.
    interval_ms: i64,
    /// Transport time up to which all was seen at the latest answer; 0 for never.
    last_seen_ns: i64,
    /// When that came, by the clock that nobody sets; `None` where it comes from an earlier life.
    answered_ms: Option<i64>,
    /// Where the open gap begins; 0 where that is not known.
    gap_ns: Option<i64>,
    /// Where the gap begins that a store is being asked for.
    asked_ns: Option<i64>,
    is_asking: bool,
    /// Asked again though no gap is open.
    is_due: bool,
    /// But not before this monotonic time.
    not_before_ms: i64,
}

impl CatchUp {
    pub fn new(enabled: bool, interval_ms: i64) -> Self {
        CatchUp {
            enabled,
            interval_ms,
            last_seen_ns: 0,
            answered_ms: None,
            gap_ns: enabled.then_some(0),
            asked_ns: None,
            is_asking: false,
            is_due: false,
            not_before_ms: i64::MIN,
        }
    }

    /// An earlier life missed nothing up to this transport time.
    pub fn restore(&mut self, last_seen_ns: i64) {
        self.last_seen_ns = last_seen_ns;
        self.gap_ns = self.enabled.then_some(last_seen_ns);
    }

    /// Where the earliest gap begins that no store has answered for: a later life must take nothing behind it for
    /// seen.
    pub fn open_since_ns(&self) -> Option<i64> {
        self.gap_ns.into_iter().chain(self.asked_ns).min()
    }

    /// Messages from this transport time on may have passed by.
    pub fn on_gap(&mut self, since_ns: i64) {
        if self.enabled {
            self.gap_ns = Some(self.gap_ns.map_or(since_ns, |gap_ns| gap_ns.min(since_ns)));
        }
    }

    /// A store came into reach, or may have: it is asked at once.
    pub fn on_store_near(&mut self) {
        self.is_due = self.enabled;
        self.not_before_ms = i64::MIN;
    }

    /// Monotonic milliseconds at which a store is to be asked; `None` while it is being asked, or never.
    pub fn next_ms(&self) -> Option<i64> {
        if self.is_asking {
            None
        } else if self.is_due || self.gap_ns.is_some() {
            Some(self.not_before_ms)
        } else {
            Some(self.answered_ms?.saturating_add(self.interval_ms))
        }
    }

    /// Whether the rest of a gap with a known beginning is about to be asked for.
    pub fn goes_on(&self) -> bool {
        self.is_due && self.gap_ns.is_some_and(|gap_ns| gap_ns > 0)
    }

    /// A store is asked now: [`CatchUp::on_answered`] or [`CatchUp::take_back`] follows.
    pub fn begin(&mut self, now: Now) -> Span {
        let mut since_ms = self.seen_until_ms(now);
        let gap_ns = self.gap_ns.take();
        self.asked_ns = gap_ns;
        (self.is_asking, self.is_due) = (true, false);
        self.not_before_ms = i64::MIN;
        let known_ns = gap_ns.filter(|gap_ns| *gap_ns > 0);
        if let Some(gap_ns) = known_ns {
            since_ms = since_ms.min(gap_ns / NANOSECONDS_PER_MS - QUERY_MARGIN_MS);
        }
        Span {
            // By a clock that was set back nothing later was seen either.
            since_ms: since_ms.min(now.epoch_ms).max(0),
            thorough: known_ns.is_some(),
        }
    }

    /// Of a gap whose beginning is known a store has given all up to this transport time, and that is taken in: it
    /// begins there now.
    pub fn on_taken_in(&mut self, until_ns: i64) {
        let Some(asked_ns) = &mut self.asked_ns else {
            return;
        };
        if until_ns > *asked_ns {
            *asked_ns = until_ns;
            self.last_seen_ns = self.last_seen_ns.max(until_ns);
            self.answered_ms = None;
        }
    }

    /// A store that was asked then has answered, and all that it had is taken in.
    pub fn on_answered(&mut self, asked: Now) {
        self.is_asking = false;
        self.asked_ns = None;
        let seen_ms = asked.epoch_ms.saturating_sub(QUERY_MARGIN_MS);
        self.last_seen_ns = seen_ms.saturating_mul(NANOSECONDS_PER_MS);
        self.answered_ms = Some(asked.monotonic_ms);
    }

    /// No store answered, or not all that it has could be taken in: it is asked again, from then on.
    pub fn take_back(&mut self, not_before_ms: i64) {
        (self.is_asking, self.is_due) = (false, true);
        self.not_before_ms = not_before_ms;
        if let Some(asked_ns) = self.asked_ns.take() {
            self.on_gap(asked_ns);
        }
    }

    /// The transport time from which on messages may have passed by, gaps aside.
    fn seen_until_ms(&self, now: Now) -> i64 {
        if self.last_seen_ns == 0 {
            return now.epoch_ms.saturating_sub(FIRST_QUERY_RANGE_MS);
        }
        let mut since_ms = self.last_seen_ns / NANOSECONDS_PER_MS;
        if let Some(answered_ms) = self.answered_ms {
            // Where the clock was set back meanwhile, by that it is as long ago as it really is.
            let ago_ms = now.monotonic_ms.saturating_sub(answered_ms);
            since_ms = since_ms.min(now.epoch_ms.saturating_sub(ago_ms));
        }
        since_ms.saturating_sub(QUERY_MARGIN_MS)
    }
}

//! After a count that could not be stored nothing is counted for a while, the longer the more failed in a row.

/// How long at first, doubled with each failure in a row.
pub const PAUSE_MS_MIN: i64 = 200;
/// How long at most.
pub const PAUSE_MS_MAX: i64 = 10_000;

#[derive(Debug, Default)]
pub struct Pause {
    failures_in_row: u32,
    until_ms: i64,
}

impl Pause {
    pub fn holds(&self, epoch_ms: i64) -> bool {
        // A clock that was set back does not make it longer.
        let left_ms = self.until_ms.saturating_sub(epoch_ms);
        0 < left_ms && left_ms <= PAUSE_MS_MAX
    }

    pub fn until_ms(&self) -> i64 {
        self.until_ms
    }

    pub fn handle_stored(&mut self) {
        self.failures_in_row = 0;
    }

    /// True for the first in a row.
    pub fn handle_store_failed(&mut self, epoch_ms: i64) -> bool {
        let pause_ms = PAUSE_MS_MAX.min(PAUSE_MS_MIN << self.failures_in_row.min(10));
        self.until_ms = epoch_ms.saturating_add(pause_ms);
        let is_first = self.failures_in_row == 0;
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        is_first
    }
}

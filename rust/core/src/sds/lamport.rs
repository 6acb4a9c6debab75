//! The Lamport clock of a channel (SDS, Lamport timestamps).

use super::config::{Config, Now};
use crate::wire::sds::WireFormat;

/// Timestamps are unsigned 64-bit on the wire; ours stop well below, so that adding one never
/// overflows.
pub const LAMPORT_MAX: u64 = (1 << 63) - 1;

/// Milliseconds under the wire "spec"; under "nim" seconds, as nim-sds counts.
///
/// A peer's timestamp moves ours at most `max_lamport_skew_ms` ahead of the epoch clock, so a
/// forged one cannot spend the range of all participants.
#[derive(Debug)]
pub struct LamportClock {
    in_seconds: bool,
    skew_max: u64,
    timestamp: u64,
}

impl LamportClock {
    /// A clock that begins now.
    pub fn new(config: &Config, now: Now) -> Self {
        let in_seconds = config.wire_format == WireFormat::Nim;
        let mut clock = LamportClock {
            in_seconds,
            skew_max: 0,
            // nim-sds starts at 0 and takes the epoch time at its first send.
            timestamp: if in_seconds {
                0
            } else {
                now.epoch_ms.max(0) as u64
            },
        };
        clock.skew_max = clock.span(config.max_lamport_skew_ms);
        clock
    }

    /// The newest timestamp.
    pub fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// The timestamp of the message that leaves now.
    pub fn tick(&mut self, now: Now) -> u64 {
        // nim-sds adds one to whichever is later.
        let epoch = self.epoch(now) + u64::from(self.in_seconds);
        self.timestamp = (self.timestamp + 1).max(epoch).min(LAMPORT_MAX);
        self.timestamp
    }

    /// A peer's timestamp, no further ahead of us than the skew allows.
    pub fn capped(&self, timestamp: u64, now: Now) -> u64 {
        timestamp
            .min(self.epoch(now).saturating_add(self.skew_max))
            .min(LAMPORT_MAX)
    }

    /// How many timestamps a duration has.
    pub fn span(&self, duration_ms: i64) -> u64 {
        (duration_ms / if self.in_seconds { 1_000 } else { 1 }).max(0) as u64
    }

    /// Whether a timestamp is older by our clock than a duration.
    pub fn is_older(&self, timestamp: u64, duration_ms: i64, now: Now) -> bool {
        timestamp < self.epoch(now).saturating_sub(self.span(duration_ms))
    }

    /// A content message was delivered; `timestamp` is already capped.
    pub fn observe(&mut self, timestamp: u64) {
        self.timestamp = self.timestamp.max(timestamp);
    }

    /// Goes on above what an earlier life sent.
    pub fn restore(&mut self, timestamp: u64) {
        self.timestamp = if timestamp == 0 {
            self.timestamp
        } else {
            timestamp
        };
    }

    /// How long ago by the epoch clock the newest timestamp was made; 0 where it is ahead.
    pub fn behind_ms(&self, now: Now) -> i64 {
        let unit_ms = if self.in_seconds { 1_000 } else { 1 };
        let behind = self.epoch(now).saturating_sub(self.timestamp);
        i64::try_from(behind)
            .unwrap_or(i64::MAX)
            .saturating_mul(unit_ms)
    }

    /// The time on the epoch clock, in the unit of timestamps.
    pub fn epoch(&self, now: Now) -> u64 {
        let unit_ms = if self.in_seconds { 1_000 } else { 1 };
        (now.epoch_ms.max(0) / unit_ms) as u64
    }
}

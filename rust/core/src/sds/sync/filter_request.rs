//! When our filter should be heard soon, so that others can name what we lack.

use std::sync::Arc;

use hashlink::LinkedHashMap;
use sha2::{Digest, Sha256};

use super::feedback::feedback_delay_ms;
use super::filter::{FilterSchedule, PeerFilter};
use crate::sds::config::{Config, Randomness};

/// Members whose last filter is remembered.
pub const FILTERS_REMEMBERED_MAX: usize = 1_000;
/// A filter of ours that nothing was added to is said on request so often: the first ones may not
/// have been heard.
const UNCHANGED_MAX: u32 = 3;

/// While the senders of all that is missing count what is lacking of it, the filter waits as often.
const PUT_OFF_MAX: u32 = 4;

/// Makes a sync with our filter due when something shows that we may lack more than we know of.
///
/// Two things do: a history that names what is missing, and another participant's filter with bits
/// that ours has not. What is on its way or repaired at once needs no filter, so both must still
/// hold after two acknowledgement timeouts. Another participant's filter without a bit more than
/// ours asks for all that ours would, and what differs for good is not talked about for ever: the
/// same filter, heard again with nothing new here, is no sign.
#[derive(Debug)]
pub struct FilterRequest {
    /// Whether a sync may be sent for this, or the periodic ones must do.
    prompt: bool,
    settle_ms: i64,
    window_ms: i64,
    interval_ms: i64,
    /// By member, what its last filter was, and how many ids ours held then.
    seen: LinkedHashMap<Arc<str>, ([u8; 32], u64)>,
    /// The newest filter that holds what ours does not.
    witness: Option<Box<[u8]>>,
    /// How often it was put off.
    put_off: u32,
    /// When a sync with our filter is due.
    pub due_ms: Option<i64>,
}

impl FilterRequest {
    /// Nothing is asked for.
    pub fn new(config: &Config) -> Self {
        FilterRequest {
            prompt: config.acknowledgement_sync || config.enable_repair,
            settle_ms: config.settle_ms(),
            window_ms: config.window_ms(),
            interval_ms: config.bloom_interval_ms,
            seen: LinkedHashMap::new(),
            witness: None,
            put_off: 0,
            due_ms: None,
        }
    }

    /// Filters that are remembered.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// A history names something that is not here.
    pub fn on_missing(&mut self, monotonic_ms: i64, members: usize, rng: &mut dyn Randomness) {
        if self.due_ms.is_none() && self.prompt {
            let delay_ms = feedback_delay_ms(rng, self.window_ms, members);
            self.due_ms = Some(monotonic_ms + self.settle_ms + delay_ms);
        }
    }

    /// `sender_id` said its filter just now; ours is settled.
    pub fn on_filter(
        &mut self,
        theirs: PeerFilter<'_>,
        filter: &FilterSchedule,
        monotonic_ms: i64,
        members: usize,
        rng: &mut dyn Randomness,
    ) {
        let PeerFilter { bytes, sender_id } = theirs;
        if bytes.len() != filter.size_bytes() {
            return;
        }
        let seen = (Sha256::digest(bytes).into(), filter.count());
        if self.seen.get(sender_id) == Some(&seen) {
            return;
        }
        self.seen.remove(sender_id);
        self.seen.insert(Arc::clone(sender_id), seen);
        if self.seen.len() > FILTERS_REMEMBERED_MAX {
            self.seen.pop_front();
        }
        if filter.is_exceeded_by(bytes) {
            self.witness = Some(bytes.into());
            self.on_missing(monotonic_ms, members, rng);
        } else {
            self.cancel();
        }
    }

    /// Numbers are telling what is missing: whether our filter, which is due, waits for what they bring.
    pub fn put_off(&mut self, monotonic_ms: i64) -> bool {
        let waits = self.put_off < PUT_OFF_MAX;
        if waits {
            self.put_off += 1;
            self.due_ms = Some(monotonic_ms + self.settle_ms);
        }
        waits
    }

    /// Whether our filter should leave now; called when it is due, with ours settled. `missing` tells
    /// whether anything is asked for.
    pub fn take(&mut self, missing: bool, filter: &FilterSchedule, monotonic_ms: i64) -> bool {
        let witness = self.witness.as_deref();
        let lacking = missing || witness.is_some_and(|bytes| filter.is_exceeded_by(bytes));
        if !lacking || filter.unchanged >= UNCHANGED_MAX {
            self.cancel();
            return false;
        }
        let again_ms = filter
            .last_sync_ms()
            .map(|said_ms| said_ms + self.interval_ms);
        if let Some(again_ms) = again_ms.filter(|again_ms| monotonic_ms < *again_ms) {
            self.due_ms = Some(again_ms);
            return false;
        }
        self.cancel();
        true
    }

    fn cancel(&mut self) {
        self.due_ms = None;
        self.put_off = 0;
        self.witness = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::config::Now;
    use crate::sds::log::Log;

    const INTERVAL_MS: i64 = 10_000;

    #[test]
    fn a_filter_is_said_again_after_its_interval_while_something_is_missing() {
        let config = Config {
            bloom_interval_ms: INTERVAL_MS,
            ..Config::example()
        };
        let mut filter = FilterSchedule::new(&config);
        let log = Log::of(10);
        let now = Now {
            monotonic_ms: 0,
            epoch_ms: 1_760_000_000_000,
        };
        filter.take(now, true, &log, &|_| false);
        let mut request = FilterRequest::new(&config);
        assert!(!request.take(true, &filter, INTERVAL_MS - 1));
        assert_eq!(request.due_ms, Some(INTERVAL_MS));
        assert!(request.take(true, &filter, INTERVAL_MS));
        assert!(!request.take(false, &filter, INTERVAL_MS));
    }
}

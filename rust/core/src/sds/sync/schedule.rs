//! When a periodic sync is due (specification 004, Synchronisation messages).

use super::feedback::late_share;
use crate::sds::config::{Now, Randomness};

const AFTER_START: f64 = 1.0;
const AFTER_CONTENT_SENT: f64 = 1.0;
const AFTER_SYNC_RECEIVED: f64 = 1.0;
const AFTER_CONTENT_RECEIVED: f64 = 0.5;
const AFTER_FAILURE: f64 = 2.0;

/// The schedule is shared by the channel: whoever speaks moves everyone's next sync.
///
/// While no content passes, syncs keep at least `sync_min_interval_ms` between them.
#[derive(Debug)]
pub struct SyncSchedule {
    interval_ms: i64,
    /// Half an interval.
    sooner_ms: i64,
    last_sync_ms: Option<i64>,
    content_since_sync: bool,
    /// When the next one is due.
    pub due_ms: Option<i64>,
}

impl SyncSchedule {
    /// A schedule that begins now.
    pub fn new(interval_ms: i64, now: Now, rng: &mut dyn Randomness) -> Self {
        let mut schedule = SyncSchedule {
            interval_ms,
            sooner_ms: rounded(interval_ms as f64 * AFTER_CONTENT_RECEIVED),
            last_sync_ms: None,
            content_since_sync: false,
            due_ms: None,
        };
        schedule.draw(now, AFTER_START, 0, rng);
        schedule
    }

    /// A content of ours left.
    pub fn on_content_sent(&mut self, now: Now, rng: &mut dyn Randomness) {
        self.content_since_sync = true;
        if self.interval_ms != 0 {
            let wait_ms = rounded(rng.unit() * self.interval_ms as f64 * AFTER_CONTENT_SENT);
            self.due_ms = Some(now.monotonic_ms + wait_ms);
        }
    }

    /// A content came: sooner than after one of ours. A sync that is due as soon already stays
    /// where it is.
    pub fn on_content_received(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.content_since_sync = true;
        if self
            .due_ms
            .is_some_and(|due_ms| due_ms - now.monotonic_ms > self.sooner_ms)
        {
            self.draw(now, AFTER_CONTENT_RECEIVED, members, rng);
        }
    }

    /// Somebody else's sync passed; `owes` says whether acknowledgements wait for ours, which others' syncs would put
    /// off for ever.
    pub fn on_sync_received(
        &mut self,
        now: Now,
        owes: bool,
        members: usize,
        rng: &mut dyn Randomness,
    ) {
        let due_ms = self.due_ms.filter(|_| owes);
        self.on_sync_passed(now, AFTER_SYNC_RECEIVED, members, rng);
        self.due_ms = due_ms.or(self.due_ms);
    }

    /// Ours left.
    pub fn on_sync_sent(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.on_sync_passed(now, AFTER_START, members, rng);
    }

    /// Ours could not be sent.
    pub fn on_sync_failed(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.draw(now, AFTER_FAILURE, members, rng);
    }

    /// An empty sync is not sent; the schedule goes on.
    pub fn on_nothing_to_say(&mut self, now: Now, members: usize, rng: &mut dyn Randomness) {
        self.draw(now, AFTER_START, members, rng);
    }

    fn on_sync_passed(
        &mut self,
        now: Now,
        multiplier: f64,
        members: usize,
        rng: &mut dyn Randomness,
    ) {
        self.last_sync_ms = Some(now.monotonic_ms);
        self.content_since_sync = false;
        self.draw(now, multiplier, members, rng);
    }

    fn draw(&mut self, now: Now, multiplier: f64, members: usize, rng: &mut dyn Randomness) {
        if self.interval_ms == 0 {
            return;
        }
        let mut share = rng.unit();
        let mut wait_ms = 0;
        if let Some(last_sync_ms) = self.last_sync_ms.filter(|_| !self.content_since_sync) {
            // The random part comes on top and falls late for most of a large group, so that
            // participants do not fall due together.
            share = late_share(share, members);
            wait_ms = (last_sync_ms + self.interval_ms - now.monotonic_ms).max(0);
        }
        wait_ms += rounded(share * self.interval_ms as f64 * multiplier);
        self.due_ms = Some(now.monotonic_ms + wait_ms);
    }
}

fn rounded(value: f64) -> i64 {
    value.round_ties_even() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::config::Drawn;

    const INTERVAL_MS: i64 = 30_000;
    const NOW: Now = Now {
        monotonic_ms: 1_000_000,
        epoch_ms: 1_000_000,
    };

    fn schedule(rng: &mut Drawn) -> SyncSchedule {
        SyncSchedule::new(INTERVAL_MS, NOW, rng)
    }

    #[test]
    fn the_next_sync_is_drawn_anew() {
        // delay = random() * sync_min_interval_ms * multiplier
        for share in [0.0, 0.25, 0.75, 0.999] {
            let after = |happening: fn(&mut SyncSchedule, &mut Drawn)| {
                let mut rng = Drawn::from([0.99, share]);
                let mut schedule = schedule(&mut rng);
                assert_eq!(
                    schedule.due_ms,
                    Some(NOW.monotonic_ms + rounded(0.99 * INTERVAL_MS as f64))
                );
                happening(&mut schedule, &mut rng);
                schedule.due_ms.unwrap() - NOW.monotonic_ms
            };
            let expected = |multiplier: f64| rounded(share * INTERVAL_MS as f64 * multiplier);
            assert_eq!(
                after(|schedule, rng| schedule.on_content_received(NOW, 0, rng)),
                expected(0.5)
            );
            assert_eq!(
                after(|schedule, rng| schedule.on_content_sent(NOW, rng)),
                expected(1.0)
            );
            assert_eq!(
                after(|schedule, rng| schedule.on_nothing_to_say(NOW, 0, rng)),
                expected(1.0)
            );
            assert_eq!(
                after(|schedule, rng| schedule.on_sync_failed(NOW, 0, rng)),
                expected(2.0)
            );
        }
    }

    #[test]
    fn two_syncs_keep_the_interval_and_the_random_part_comes_on_top() {
        for received in [false, true] {
            let mut rng = Drawn::from([0.99, 0.5]);
            let mut schedule = schedule(&mut rng);
            match received {
                true => schedule.on_sync_received(NOW, false, 0, &mut rng),
                false => schedule.on_sync_sent(NOW, 0, &mut rng),
            }
            assert_eq!(
                schedule.due_ms,
                Some(NOW.monotonic_ms + INTERVAL_MS + INTERVAL_MS / 2)
            );
        }
    }

    #[test]
    fn syncs_of_others_put_off_none_that_acknowledgements_wait_for() {
        for (apart_ms, owes, is_put_off) in [
            (INTERVAL_MS - 1, true, false),
            (INTERVAL_MS - 1, false, true),
            (INTERVAL_MS, true, false),
            (INTERVAL_MS, false, true),
        ] {
            let mut rng = Drawn::from([0.99, 0.5, 0.5]);
            let mut schedule = schedule(&mut rng);
            schedule.on_sync_received(NOW, owes, 0, &mut rng);
            let due_ms = schedule.due_ms.unwrap();
            let later = Now {
                monotonic_ms: NOW.monotonic_ms + apart_ms,
                ..NOW
            };
            schedule.on_sync_received(later, owes, 0, &mut rng);
            let put_off_ms = schedule.due_ms.unwrap() - due_ms;
            let expected_ms = if is_put_off { apart_ms } else { 0 };
            assert_eq!(put_off_ms, expected_ms, "{apart_ms} {owes}");
        }
    }

    #[test]
    fn receipt_of_content_never_puts_off_a_sync_that_is_due_sooner() {
        let mut rng = Drawn::from([0.1]);
        let mut schedule = schedule(&mut rng);
        let due_ms = schedule.due_ms;
        schedule.on_content_received(NOW, 0, &mut rng);
        assert_eq!(schedule.due_ms, due_ms);
    }

    #[test]
    fn an_interval_of_zero_turns_periodic_syncs_off() {
        let mut rng = Drawn::from([0.5]);
        let mut schedule = SyncSchedule::new(0, NOW, &mut rng);
        schedule.on_content_received(NOW, 0, &mut rng);
        schedule.on_content_sent(NOW, &mut rng);
        schedule.on_sync_received(NOW, false, 0, &mut rng);
        schedule.on_sync_sent(NOW, 0, &mut rng);
        schedule.on_sync_failed(NOW, 0, &mut rng);
        assert_eq!(schedule.due_ms, None);
    }
}

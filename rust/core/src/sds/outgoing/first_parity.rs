//! How much parity leaves with a message before anybody asks: as much as its like needed lately.

/// At most so many parity contents for a million data contents: what participants claim to lack
/// makes a sender spend no more than this on messages that nobody has lost anything of.
pub const FIRST_PARITY_MILLIONTHS_MAX: u32 = 500_000;
const MILLION: u64 = 1_000_000;
/// Below this it is none.
const MILLIONTHS_MIN: u32 = 1_000;
/// A message of so many data contents or more counts in full: of a few, one lost is a large share.
const COUNTS_IN_FULL: u64 = 32;
/// What a message lacked moves the rate by this part of the distance.
const RISE: u64 = 2;
/// One that lacked nothing takes this part of it away, and a larger one from the ninth in a row on.
const FALL: u64 = 24;
const FALL_IN_PEACE: u64 = 8;
const PEACE: u32 = 8;

/// The rate of first parity of one channel, from what the receivers of its messages lacked at first.
///
/// It settles where somewhat less than half of the messages need more: at the median of what is
/// needed, first parity that proves too much costs about what the spread of losses does.
#[derive(Debug, Default)]
pub struct FirstParity {
    millionths: u32,
    /// Messages in a row that lacked nothing.
    peace: u32,
}

impl FirstParity {
    /// Parity contents for a million data contents.
    pub fn millionths(&self) -> u32 {
        self.millionths
    }

    /// Goes on from a stored rate.
    pub fn restore(&mut self, millionths: u32) {
        self.millionths = millionths.min(FIRST_PARITY_MILLIONTHS_MAX);
    }

    /// A message of `needed` data contents left with `first` contents of parity, and after that its
    /// receivers lacked `lacked` at most.
    pub fn on_first_round(&mut self, needed: u32, first: u32, lacked: u32) {
        let weight = u64::from(needed).min(COUNTS_IN_FULL);
        let rate = u64::from(self.millionths);
        if lacked == 0 {
            self.peace = self.peace.saturating_add(1);
            let part = if self.peace > PEACE {
                FALL_IN_PEACE
            } else {
                FALL
            };
            let left = rate - rate * weight / (part * COUNTS_IN_FULL);
            self.millionths = left as u32;
            if self.millionths < MILLIONTHS_MIN {
                self.millionths = 0;
            }
            return;
        }
        self.peace = 0;
        let sample = (u64::from(first) + u64::from(lacked)) * MILLION / u64::from(needed.max(1));
        let sample = sample.min(u64::from(FIRST_PARITY_MILLIONTHS_MAX));
        let rise = sample.saturating_sub(rate) * weight / (RISE * COUNTS_IN_FULL);
        self.millionths = (rate + rise) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rate: &FirstParity, needed: u32) -> u32 {
        (u64::from(needed) * u64::from(rate.millionths()) / MILLION) as u32
    }

    #[test]
    fn the_rate_follows_what_is_lacked_and_is_none_where_nothing_is() {
        let mut rate = FirstParity::default();
        for _ in 0..200 {
            // Eight of 64 are lost every time.
            let first = count(&rate, 64);
            rate.on_first_round(64, first, 8_u32.saturating_sub(first));
        }
        assert!((6..=8).contains(&count(&rate, 64)), "{rate:?}");
        for _ in 0..60 {
            rate.on_first_round(64, count(&rate, 64), 0);
        }
        assert_eq!(rate.millionths(), 0);
    }

    #[test]
    fn whoever_claims_to_lack_everything_drives_it_to_its_bound_and_no_further() {
        let mut rate = FirstParity::default();
        for _ in 0..1_000 {
            rate.on_first_round(64, 64, u32::MAX);
            assert!(rate.millionths() <= FIRST_PARITY_MILLIONTHS_MAX);
        }
        assert!(rate.millionths() > FIRST_PARITY_MILLIONTHS_MAX - 10);
        rate.restore(u32::MAX);
        assert_eq!(rate.millionths(), FIRST_PARITY_MILLIONTHS_MAX);
        rate.on_first_round(0, 0, 1);
    }

    #[test]
    fn a_small_message_moves_it_less() {
        let (mut small, mut large) = (FirstParity::default(), FirstParity::default());
        small.on_first_round(2, 0, 1);
        large.on_first_round(64, 0, 32);
        assert!(small.millionths() * 10 < large.millionths());
        assert!(small.millionths() > 0);
    }
}

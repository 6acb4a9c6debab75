//! When one of many who would all say the same should say it (RFC 5401, RandomBackoff).

use crate::sds::config::Randomness;

/// Sender ids are free to forge, so what they claim as a group's size counts up to here.
const MEMBERS_MAX: usize = 1_000;

/// A random delay within `window_ms`, the rarer the earlier, the more `members` there are.
///
/// The density grows exponentially by a factor of `members` over the window, so however large the
/// group is, few draw a time within one network delay of the earliest, whom the others hear and
/// then keep quiet. One member alone draws uniformly.
pub fn feedback_delay_ms(rng: &mut dyn Randomness, window_ms: i64, members: usize) -> i64 {
    (late_share(rng.unit(), members) * window_ms as f64).round_ties_even() as i64
}

/// What a uniform draw from [0, 1) becomes under that density.
pub fn late_share(share: f64, members: usize) -> f64 {
    if members <= 1 {
        return share;
    }
    let growth = members.min(MEMBERS_MAX) as f64;
    (share * (growth - 1.0)).ln_1p() / growth.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::config::Drawn;

    /// Delays of `members` at evenly spread draws, in the order of the draws.
    fn delays(count: usize, members: usize) -> Vec<i64> {
        let draws: Vec<f64> = (0..count)
            .map(|at| (at as f64 + 0.5) / count as f64)
            .collect();
        let mut rng = Drawn::from(draws);
        (0..count)
            .map(|_| feedback_delay_ms(&mut rng, 1_000, members))
            .collect()
    }

    fn early(delays: &[i64]) -> f64 {
        delays.iter().filter(|delay| **delay < 500).count() as f64 / delays.len() as f64
    }

    #[test]
    fn the_delay_of_feedback_is_uniform_for_one_and_late_for_many() {
        let (alone, among_many) = (delays(2_000, 1), delays(20_000, 100));
        assert!(
            alone
                .iter()
                .chain(&among_many)
                .all(|delay| (0..=1_000).contains(delay))
        );
        assert!((0.49..0.51).contains(&early(&alone)));
        // The density at the end is a hundred times that at the beginning: 1/11 of all lie in the
        // first half.
        assert!((0.089..0.093).contains(&early(&among_many)));
        // One of a hundred that draw evenly speaks in the first part of the window.
        assert!(delays(100, 100)[0] < 150);
    }

    #[test]
    fn a_forged_group_is_no_larger_than_the_limit() {
        assert_eq!(delays(10, usize::MAX), delays(10, MEMBERS_MAX));
    }
}

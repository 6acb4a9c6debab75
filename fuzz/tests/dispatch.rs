//! A channel and its node under random sequences of operations.

use proptest::prelude::*;
use shardwire_fuzz::Sender;

// Miri takes a thousand times as long for a step.
const CASES: u32 = if cfg!(miri) { 4 } else { 1_000 };
const STEPS_MAX: usize = if cfg!(miri) { 24 } else { 300 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn each_message_is_sent_or_said_to_have_failed(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        let mut sender = Sender::from_seed(seed);
        for _ in 0..steps {
            sender.step();
        }
        sender.end();
    }
}

#[test]
fn what_is_late_of_a_message_that_is_given_up_does_not_leave() {
    let mut sender = Sender::from_seed(5_208_793_832_665_156_768);
    for _ in 0..44 {
        sender.step();
    }
    sender.end();
}

//! Whole channels under random sequences of operations.

use proptest::prelude::*;
use shardwire_fuzz::{Chat, delivers_once};

// Miri takes a thousand times as long for a step.
const CASES: u32 = if cfg!(miri) { 4 } else { 400 };
const STEPS_MAX: usize = if cfg!(miri) { 24 } else { 400 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn what_is_stored_is_what_is_waited_for(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        let mut chat = Chat::from_seed(seed);
        for _ in 0..steps {
            chat.step();
        }
        chat.end();
    }

    #[test]
    fn what_is_spelled_like_others_is_survived(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        let mut chat = Chat::spelled(seed);
        for _ in 0..steps {
            chat.step();
        }
        chat.end();
    }

    #[test]
    fn what_is_honest_is_delivered_once(seed in any::<u64>()) {
        delivers_once(seed);
    }
}

#[test]
fn a_content_that_was_taken_back_leaves_nothing_to_another_one_of_its_id() {
    let mut chat = Chat::from_seed(17_538_517_798_295_547_355);
    for _ in 0..48 {
        chat.step();
    }
    chat.end();
}

#[test]
fn what_is_asked_for_of_a_send_that_another_one_hides_is_asked_for_no_more() {
    let mut chat = Chat::from_seed(6_606_004_244_335_835_870);
    for _ in 0..151 {
        chat.step();
    }
    chat.end();
}

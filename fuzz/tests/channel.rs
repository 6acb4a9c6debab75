//! Whole channels under random sequences of operations.

use proptest::prelude::*;
use shardwire_fuzz::{Chat, delivers_once};

// Miri takes a thousand times as long for a step.
const CASES: u32 = if cfg!(miri) { 4 } else { 400 };
const STEPS_MAX: usize = if cfg!(miri) { 24 } else { 400 };

fn play(mut chat: Chat, steps: usize) {
    for _ in 0..steps {
        chat.step();
    }
    chat.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn what_is_stored_is_what_is_waited_for(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        play(Chat::from_seed(seed), steps);
    }

    #[test]
    fn what_is_spelled_like_others_is_survived(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        play(Chat::spelled(seed), steps);
    }

    #[test]
    fn what_stores_say_is_survived(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        play(Chat::asking(seed), steps);
    }

    #[test]
    fn what_is_honest_is_delivered_once(seed in any::<u64>()) {
        delivers_once(seed);
    }
}

#[test]
fn a_content_that_was_taken_back_leaves_nothing_to_another_one_of_its_id() {
    play(Chat::from_seed(17_538_517_798_295_547_355), 48);
}

#[test]
fn what_is_asked_for_of_a_send_that_another_one_hides_is_asked_for_no_more() {
    play(Chat::from_seed(6_606_004_244_335_835_870), 151);
}

#[test]
fn a_segment_of_a_message_that_was_just_released_is_waited_for_by_nobody() {
    play(Chat::spelled(5_921_359_537_101_056_364), 145);
}

#[test]
fn a_send_that_has_contents_under_the_names_of_rivals_is_given_up() {
    play(Chat::spelled(15_344_744_564_912_516_011), 190);
}

#[test]
fn a_content_that_was_refused_in_an_earlier_life_is_not_held_in_the_next() {
    play(Chat::from_seed(2_473_925_535_037_823_563), 296);
}

#[test]
fn a_send_that_is_whole_with_a_rival_beside_its_spelling_is_waited_for_by_nobody() {
    play(Chat::spelled(14_197_269_996_841_329_580), 131);
}

#[test]
fn what_is_spelled_like_a_send_that_waits_and_says_the_same_is_waited_for_by_nobody() {
    play(Chat::spelled(16_241_143_148_670_174_064), 192);
}

#[test]
fn what_came_in_part_of_the_past_holds_up_nothing_for_ever() {
    delivers_once(15_408_153_522_767_437_301);
}

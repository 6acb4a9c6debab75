//! Whole SDS machines under random sequences of operations.

use proptest::prelude::*;
use shardwire_fuzz::World;

// Miri takes a thousand times as long for a step.
const CASES: u32 = if cfg!(miri) { 4 } else { 400 };
const STEPS_MAX: usize = if cfg!(miri) { 24 } else { 400 };

fn play(mut world: World, steps: usize) {
    for _ in 0..steps {
        world.step();
    }
    world.restart_all();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_is_survived(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        let mut world = World::from_seed(seed);
        for _ in 0..steps {
            world.step();
        }
    }

    #[test]
    fn a_restart_keeps_what_was_stored(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        play(World::from_seed(seed), steps);
    }

    #[test]
    fn what_is_spelled_like_others_is_survived(seed in any::<u64>(), steps in 1_usize..STEPS_MAX) {
        play(World::spelled(seed), steps);
    }
}

#[test]
fn what_is_asked_for_of_a_send_that_goes_is_asked_for_no_more() {
    play(World::from_seed(8_030_991_831_091_129_025), 50);
}

#[test]
fn what_there_was_no_room_for_is_held_for_something() {
    play(World::spelled(4_044_516_487_757_866_839), 265);
}

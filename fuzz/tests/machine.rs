//! Whole SDS machines under random sequences of operations.

use proptest::prelude::*;
use shardwire_fuzz::World;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_is_survived(seed in any::<u64>(), steps in 1_usize..400) {
        let mut world = World::from_seed(seed);
        for _ in 0..steps {
            world.step();
        }
    }

    #[test]
    fn a_restart_keeps_what_was_stored(seed in any::<u64>(), steps in 1_usize..300) {
        let mut world = World::from_seed(seed);
        for _ in 0..steps {
            world.step();
        }
        world.restart_all();
    }
}

//! Altered segments among genuine ones, at random: 200,000 scenarios in which every promise is
//! checked at every step.

use std::cell::Cell;
use std::thread;

use arbitrary::Unstructured;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use shardwire_fuzz::memory::Counting;
use shardwire_fuzz::{Scenario, play};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CASES: u32 = 200_000;
const THREADS: u32 = 2;

/// Numbers of scenarios.
#[derive(Default)]
struct Reached {
    altered: Cell<u32>,
    slots: Cell<u32>,
    decodes: Cell<u32>,
    mismatches: Cell<u32>,
}

fn play_many(thread: u32) -> [u32; 4] {
    let reached = Reached::default();
    let add = |counter: &Cell<u32>, holds: bool| counter.set(counter.get() + u32::from(holds));
    let mut config = Config {
        cases: CASES / THREADS,
        failure_persistence: None,
        ..Config::default()
    };
    if let RngSeed::Fixed(seed) = &mut config.rng_seed {
        *seed += u64::from(thread);
    }
    TestRunner::new(config)
        .run(&vec(any::<u8>(), 60..160), |bytes| {
            let Ok(scenario) = Scenario::new(&mut Unstructured::new(&bytes)) else {
                return Ok(());
            };
            let counts = play(&scenario);
            let altered = counts.altered > 0;
            add(&reached.altered, altered);
            add(&reached.slots, counts.altered_stored > 0);
            add(&reached.decodes, altered && counts.decoded > 0);
            add(&reached.mismatches, altered && counts.mismatches > 0);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let Reached {
        altered,
        slots,
        decodes,
        mismatches,
    } = reached;
    [altered, slots, decodes, mismatches].map(Cell::into_inner)
}

#[test]
fn no_mutation_breaks_a_promise() {
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| thread::spawn(move || play_many(thread)))
        .collect();
    let counts = threads
        .into_iter()
        .map(|thread| thread.join().expect("every promise holds"));
    let [altered, slots, decodes, mismatches] = counts
        .reduce(|sum, more| std::array::from_fn(|place| sum[place] + more[place]))
        .expect("there are threads");
    println!(
        "{CASES} scenarios, {altered} of them with altered segments: {slots} in which one reached a \
         slot, {decodes} with a decode, {mismatches} with a hash that was not the payload's"
    );
    // What the generator makes must be worth the time: not refused at the door.
    assert!(slots * 2 >= CASES, "{slots} reached a slot");
    assert!(decodes * 20 >= CASES, "{decodes} decoded");
}

//! The fuzzer: libFuzzer's main function around the target that `SHARDWIRE_FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use shardwire_fuzz::memory::Counting;
use shardwire_fuzz::{TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("SHARDWIRE_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.into_iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("SHARDWIRE_FUZZ_TARGET is {name:?}: name a target"))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (_, run) = TARGET.get_or_init(chosen);
    run(bytes);
});

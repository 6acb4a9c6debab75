//! Replays `tests/corpus/`: what the fuzzer kept, and what it once found.

use std::fs;
use std::path::Path;

use shardwire_fuzz::TARGETS;
use shardwire_fuzz::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn every_kept_case_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus");
    for (target, run) in TARGETS {
        let directory = corpus.join(target);
        let mut cases = 0;
        for entry in fs::read_dir(&directory).expect("every target has a corpus") {
            let path = entry.expect("the directory can be read").path();
            let bytes = fs::read(&path).expect("a case can be read");
            // The name tells which case it was when the target panics.
            eprintln!("{target}: {}", path.display());
            run(&bytes);
            cases += 1;
        }
        assert!(cases > 0, "{} holds no case", directory.display());
    }
}

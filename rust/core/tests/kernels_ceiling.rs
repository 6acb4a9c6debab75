//! `SHARDWIRE_KERNEL` reaches every kernel that the machine has, and no result depends on it.

use std::env;
use std::process::Command;

use shardwire_core::cpu::{InstructionSet, KERNEL_VARIABLE};
use shardwire_core::erasure::{self, ErasureCode, encode, reconstruct};
use shardwire_core::keccak::{self, keccak256, keccak256_many};

/// Set for the processes that this test starts.
const CHILD: &str = "SHARDWIRE_KERNEL_TEST_CHILD";

/// What the machine has for erasure coding, least first.
fn erasure_sets() -> Vec<InstructionSet> {
    let mut sets = vec![InstructionSet::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        let gfni = is_x86_feature_detected!("gfni");
        let has = [
            (InstructionSet::Ssse3, is_x86_feature_detected!("ssse3")),
            (InstructionSet::Avx2, is_x86_feature_detected!("avx2")),
            (
                InstructionSet::Gfni256,
                gfni && is_x86_feature_detected!("avx2"),
            ),
            (
                InstructionSet::Gfni512,
                gfni && is_x86_feature_detected!("avx512bw"),
            ),
        ];
        sets.extend(has.into_iter().filter(|(_, has)| *has).map(|(set, _)| set));
    }
    #[cfg(target_arch = "aarch64")]
    sets.push(InstructionSet::Neon);
    sets
}

/// One digest over digests, parity and recovered shards of many sizes, by the kernels in use.
fn digest_of_everything() -> String {
    let byte = |index: usize| (index * index % 251) as u8;
    let data: Vec<u8> = (0..40_000).map(byte).collect();
    let messages: Vec<&[u8]> = (0..40).map(|index| &data[index..index * 37]).collect();
    let mut digests = vec![[0; 32]; messages.len()];
    keccak256_many(&messages, &mut digests);
    let mut all = digests.concat();
    for (k, m, shard_len) in [(10, 2, 640), (64, 8, 192), (100, 13, 64), (128, 64, 128)] {
        for code in [ErasureCode::Leopard, ErasureCode::Vandermonde] {
            let shards: Vec<&[u8]> = (0..k).map(|index| &data[index..][..shard_len]).collect();
            let parity = encode(code, &shards, m, shard_len).unwrap();
            let lost = |index: usize| index % 8 == 1 && index < 8 * m;
            let data = shards.iter().enumerate();
            let codeword: Vec<Option<&[u8]>> = data
                .map(|(index, shard)| (!lost(index)).then_some(*shard))
                .chain(parity.iter().map(|shard| Some(&shard[..])))
                .collect();
            for (index, shard) in reconstruct(code, &codeword, k, m, shard_len).unwrap() {
                assert_eq!(shard, shards[index]);
                all.extend(shard);
            }
            all.extend(parity.concat());
        }
    }
    keccak256(&all).map(|byte| format!("{byte:02x}")).concat()
}

/// What a process says that `SHARDWIRE_KERNEL` was set for: erasure set, hash set, digest.
fn run_under(ceiling: &str) -> Vec<String> {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(KERNEL_VARIABLE, ceiling)
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("child: "));
    line.unwrap_or_else(|| panic!("no answer under {ceiling}: {text}"))
        .split(' ')
        .map(str::to_owned)
        .collect()
}

#[test]
fn child() {
    if env::var_os(CHILD).is_some() {
        let (erasure, keccak) = (erasure::instruction_set(), keccak::instruction_set());
        let digest = digest_of_everything();
        println!("\nchild: {} {} {digest}", erasure.as_str(), keccak.as_str());
    }
}

#[test]
fn every_ceiling_takes_the_best_kernel_below_it_and_changes_no_result() {
    let has = erasure_sets();
    let digest = digest_of_everything();
    for ceiling in InstructionSet::ALL {
        let answer = run_under(ceiling.as_str());
        let best = has.iter().rfind(|set| **set <= ceiling).unwrap();
        assert_eq!(answer[0], best.as_str(), "under {ceiling:?}");
        let hash: InstructionSet = answer[1].parse().unwrap();
        assert!(hash <= ceiling, "{hash:?} under {ceiling:?}");
        assert_eq!(answer[2], digest, "under {ceiling:?}");
    }
    let unlimited = run_under("no such set");
    assert_eq!(unlimited[0], has.last().unwrap().as_str());
}

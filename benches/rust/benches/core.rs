//! Every case under criterion: `cargo bench [-- FILTER]`.
//!
//! Criterion measures one candidate after the other. For ratios, which want them interleaved, run
//! the crate's binary.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shardwire_benches::{erasure, keccak, reassemble, sds};

fn core(criterion: &mut Criterion) {
    let cases = keccak::cases()
        .into_iter()
        .chain(erasure::cases())
        .chain(reassemble::cases())
        .chain(sds::cases());
    for case in cases {
        let mut group = criterion.benchmark_group(case.name);
        group.throughput(match case.messages {
            0 => Throughput::Bytes(case.bytes as u64),
            messages => Throughput::Elements(messages as u64),
        });
        for mut candidate in case.candidates {
            group.bench_function(candidate.name, |bencher| bencher.iter(&mut candidate.run));
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200));
    targets = core
}
criterion_main!(benches);

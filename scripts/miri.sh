#!/usr/bin/env bash
# Runs every kernel under Miri, which emulates instructions that the machine need not have (AVX-512, GFNI, and NEON by
# its second run) and sees every access outside a buffer and every use of undefined bytes. The tests fail where a kernel
# is left out. `--target aarch64-unknown-linux-gnu` needs no cross compiler here: Miri links nothing.
# The structures in which Arrow arrays reach Python are looked at as well; those tests call no Python.
set -euo pipefail
cd "$(dirname "$0")/.."

TOOLCHAIN=${MIRI_TOOLCHAIN:-nightly}

cargo "+$TOOLCHAIN" miri --version >/dev/null 2>&1 || {
    echo "shardwire: 'make miri' needs Rust's nightly toolchain with Miri and the library's sources; install them with
  rustup toolchain install nightly --component miri,rust-src
  and name another nightly with MIRI_TOOLCHAIN=nightly-YYYY-MM-DD" >&2
    exit 1
}

run() {
    local target=$1 features=$2
    # Isolation forbids nothing that these tests do, but proptest asks for the working directory.
    MIRIFLAGS="-Zmiri-disable-isolation" RUSTFLAGS="${features:+-Ctarget-feature=$features}" \
        cargo "+$TOOLCHAIN" miri test --quiet --locked --package shardwire-core --lib --target "$target" -- edges
}

run x86_64-unknown-linux-gnu +ssse3,+avx2,+bmi1,+bmi2,+gfni,+avx512f,+avx512bw,+avx512vl
run aarch64-unknown-linux-gnu ""
cargo "+$TOOLCHAIN" miri test --quiet --locked --package shardwire-python --lib -- capsule
# Whole machines of SDS and of channels, whose tables lie in slabs and linked maps: a few sequences of operations, with restarts.
MIRIFLAGS="-Zmiri-disable-isolation" cargo "+$TOOLCHAIN" miri test --quiet --locked --package shardwire-fuzz --test machine --test channel
echo "make miri: the kernels for x86-64 and aarch64 agree with the definitions; Arrow arrays are taken over soundly"

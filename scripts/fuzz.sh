#!/usr/bin/env bash
# Fuzzes every decoder, the reassembler and the machines of SDS and of a channel with libFuzzer, guided by coverage.
# usage: scripts/fuzz.sh SECONDS [TARGET]   all targets share the time; exit status 1 means a finding
set -euo pipefail
cd "$(dirname "$0")/.."

SECONDS_TOTAL=${1:-60}
# Shares of the time: the reassembler and the machines have by far the most states.
declare -A SHARES=([reassembler]=10 [machine]=10 [channel]=10 [dispatch]=5 [segment]=2 [restore]=2 [sds]=2 [waku]=1 [waku_json]=1 [file]=1 [bloom]=1)
ORDER=(reassembler machine channel dispatch segment restore sds waku waku_json file bloom)
KEPT=tests/corpus
WORK=target/fuzz/corpus
INPUT_BYTES_MAX=512

missing() {
    echo "shardwire: $1" >&2
    exit 2
}

build() {
    command -v c++ >/dev/null ||
        missing "libFuzzer is C++ and 'c++' was not found; install a compiler (Debian: g++, macOS: xcode-select --install)"
    local host flags
    host=$(rustc -vV | sed -n 's/^host: //p')
    flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
    # With a target named, build scripts go without the flags, which they could not link.
    RUSTFLAGS=$flags cargo build --quiet --locked --profile fuzz --package shardwire-fuzz --features libfuzzer \
        --target "$host" --target-dir target/fuzz
    BINARY=target/fuzz/$host/fuzz/shardwire-fuzz
}

case "$SECONDS_TOTAL" in
'' | *[!0-9]*) missing "SECONDS is '$SECONDS_TOTAL': give a number of seconds, 10 or more" ;;
esac
[ "$SECONDS_TOTAL" -ge 10 ] || missing "SECONDS is $SECONDS_TOTAL: give 10 or more, all targets share them"
targets=("${ORDER[@]}")
if [ -n "${2:-}" ]; then
    [ -n "${SHARES[$2]:-}" ] || missing "TARGET is '$2': give one of ${ORDER[*]}"
    targets=("$2")
fi

echo "Building the fuzzer: some minutes the first time"
build
total=0
for target in "${targets[@]}"; do total=$((total + SHARES[$target])); done
echo "Fuzzing for $SECONDS_TOTAL s: ${targets[*]}"
found=0
for target in "${targets[@]}"; do
    time=$((SECONDS_TOTAL * SHARES[$target] / total))
    [ "$time" -gt 0 ] || time=1
    mkdir -p "$WORK/$target" "$KEPT/$target"
    echo "$target: $time s"
    log=$WORK/$target.log
    if SHARDWIRE_FUZZ_TARGET=$target RUST_BACKTRACE=1 "$BINARY" "$WORK/$target" "$KEPT/$target" \
        -max_total_time="$time" -max_len=$INPUT_BYTES_MAX -timeout=1200 -report_slow_units=1200 -rss_limit_mb=2048 -verbosity=1 \
        -print_final_stats=1 -artifact_prefix="$KEPT/$target/found-" >"$log" 2>&1; then
        sed -n 's/^stat::number_of_executed_units: */  inputs run: /p; s/^stat::new_units_added: */  inputs with new coverage: /p' "$log"
    else
        found=1
        echo "  FOUND: the input is in $KEPT/$target; its story ends:" >&2
        grep -v '^#' "$log" | tail -n 40 >&2
    fi
done
[ $found = 0 ] || { echo "make fuzz: found something; replay it with 'cargo test --package shardwire-fuzz'" >&2; exit 1; }
echo "make fuzz: nothing found in $SECONDS_TOTAL s"

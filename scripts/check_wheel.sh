#!/usr/bin/env bash
# Installs a built wheel into a clean environment that has neither Rust nor any extra, and uses it there.
set -euo pipefail
wheel=$(realpath "$1")
case "$wheel" in
*-abi3-*) ;;
*) echo "wheel-check: $wheel is no abi3 wheel" >&2 && exit 1 ;;
esac
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python=$("$(dirname "$0")/../.venv/bin/python" -c "import sys; print(sys._base_executable)")
"$python" -m venv "$directory/venv"
bin=$directory/venv/bin
# No compiler on the path: whatever is not in the wheel cannot be built.
export PATH=$bin:/usr/bin:/bin RUSTC=/nonexistent CARGO=/nonexistent
cd "$directory"
"$bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
"$bin/python" - <<'PYTHON'
import shardwire
from shardwire.segmentation import Reassembler, SegmentationConfig, segment

config = SegmentationConfig(segment_size_bytes=1024, enable_reed_solomon=True, parity_rate=0.5)
payload = bytes(range(256)) * 100
reassembler = Reassembler(config)
outcomes = [reassembler.receive(one, now_ms=0, sender="wheel") for one in segment(payload, config)[2:]]
assert payload in [getattr(outcome, "payload", None) for outcome in outcomes]
assert shardwire.keccak256(b"").hex().startswith("c5d2460186f7")
PYTHON
if message=$("$bin/shardwire" --help 2>&1); then
    echo "wheel-check: shardwire --help works without the extra cli, which this test does not expect" >&2
    exit 1
fi
[ "$(echo "$message" | wc -l)" = 1 ] && echo "$message" | grep -q 'shardwire\[cli\]' || {
    echo "wheel-check: without the extra cli, shardwire says: $message" >&2
    exit 1
}
echo "wheel-check: $(basename "$wheel") installs and works without Rust; without the extra: $message"

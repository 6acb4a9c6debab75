#!/usr/bin/env bash
# Builds the source distribution, and from it the wheels for Linux as they are released, into DIRECTORY: for old C libraries
# (glibc 2.17, musl 1.2) and both architectures, on any Linux, with zig as linker. macOS needs a machine of its own.
# usage: scripts/release_wheels.sh DIRECTORY [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$1
shift
targets=("$@")
[ $# -gt 0 ] || targets=({x86_64,aarch64}-unknown-linux-{gnu,musl})

python3 -m venv .venv/release
.venv/release/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-release.txt
# zig's linker is found on the path.
PATH=$PWD/.venv/release/bin:$PATH
rm -rf "$directory"
mkdir -p "$directory"
directory=$(realpath "$directory")
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
python3 scripts/crates.py lock
maturin sdist --out "$directory"
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
tar -xzf "$directory"/*.tar.gz --strip-components=1 -C "$sources"
cd "$sources"
for target in "${targets[@]}"; do
    case $target in
    *-gnu) compatibility=manylinux2014 ;;
    *-musl) compatibility=musllinux_1_2 ;;
    *)
        echo "release_wheels: $target is no target for Linux: x86_64- or aarch64-unknown-linux-gnu or -musl" >&2
        exit 2
        ;;
    esac
    echo "release_wheels: $target, $compatibility: 3 minutes on two cores"
    rustup --quiet target add "$target"
    maturin build --quiet --release --strip --zig --target "$target" --compatibility $compatibility --out "$directory"
done
ls -l "$directory"

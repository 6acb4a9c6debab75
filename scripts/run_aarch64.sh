#!/usr/bin/env bash
# Runs a Python of aarch64 under emulation, with the packages of a wheel: on Debian, as root or where QEMU is installed.
# usage: scripts/run_aarch64.sh WHEEL ARGUMENT...
set -euo pipefail
wheel=$(realpath "$1")
shift
command -v qemu-aarch64-static >/dev/null || {
    echo "run_aarch64: qemu-aarch64-static is missing: apt-get install qemu-user-static" >&2
    exit 1
}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir -p "$directory"/{lists,cache/archives}/partial "$directory"/{debs,system,packages}
apt() {
    apt-get --quiet --quiet -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= \
        -o Dir::State::lists="$directory/lists" -o Dir::Cache="$directory/cache" -o Dir::State::status=/dev/null "$@"
}
apt update
minor=$(apt-cache -o APT::Architecture=arm64 -o Dir::State::lists="$directory/lists" -o Dir::Cache="$directory/cache" \
    -o Dir::State::status=/dev/null depends python3-minimal | sed -n 's/.*Depends: python3\.\([0-9]*\)-minimal/\1/p' | head -1)
(
    cd "$directory/debs"
    apt download python3."$minor"-minimal libpython3."$minor"-minimal libpython3."$minor"-stdlib libc6 libexpat1 zlib1g libssl3 \
        libffi8 libgcc-s1 libsqlite3-0 liblzma5 libbz2-1.0 libuuid1 libcrypt1
)
for package in "$directory"/debs/*.deb; do dpkg-deb --extract "$package" "$directory/system"; done
python3 -m zipfile --extract "$wheel" "$directory/packages"
# The time of a kernel is measured by no clock here: emulation is a hundred times slower.
PYTHONPATH=$directory/packages qemu-aarch64-static -L "$directory/system" "$directory/system/usr/bin/python3.$minor" "$@"

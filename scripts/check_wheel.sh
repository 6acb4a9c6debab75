#!/usr/bin/env bash
# Checks what `make wheel` or `make release-wheels` left in DIRECTORY: each wheel is small, has every module and a bill of
# materials; its kernels are inlined; it works in a clean environment that has neither Rust nor any extra, under emulation
# where it is of another architecture. maturin built it from the source distribution, which is so known to build from itself;
# that one has the documents and the jobs for Spark as well, and the crates that were tested.
# usage: scripts/check_wheel.sh DIRECTORY
set -euo pipefail
WHEEL_BYTES_MAX=4000000
root=$(realpath "$(dirname "$0")/..")
built=$(realpath "$1")
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python=$("$root/.venv/bin/python" -c "import sys; print(sys._base_executable)")

fail() {
    echo "wheel-check: $1" >&2
    exit 1
}

check_size() {
    local bytes
    bytes=$(wc -c <"$wheel")
    [ "$bytes" -le $WHEEL_BYTES_MAX ] || fail "$(basename "$wheel") has $bytes bytes: $WHEEL_BYTES_MAX at most"
    "$python" - "$wheel" <<'PYTHON' || fail "the library in the wheel has its symbols: maturin's --strip leaves them out"
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
[library] = [wheel.read(name) for name in wheel.namelist() if name.endswith(".so")]
sys.exit(library.startswith(b"\x7fELF") and b".symtab" in library)
PYTHON
}

# As tests/unit/test_native_kernels.py for what tests load: a library without symbols has a map from its linker.
check_kernels() {
    [ -e "$built/native.map" ] || return 0
    grep -q shardwire_core "$built/native.map" || fail "native.map names nothing of the core"
    ! grep -qE 'core_arch\w*_mm' "$built/native.map" || fail "kernels call functions for single instructions: see native.map"
}

check_files() {
    comm -13 <("$python" -m zipfile --list "$wheel" | sed -n 's/^\(shardwire[^ ]*\) .*/\1/p' | sort) \
        <(cd "$root/python" && git ls-files shardwire | sort) >"$directory/missing"
    [ ! -s "$directory/missing" ] || fail "$(basename "$wheel") lacks $(tr '\n' ' ' <"$directory/missing")"
    comm -13 <(tar -tzf "$sdist" | sed 's#^[^/]*/##' | sort) \
        <(cd "$root" && git ls-files README.md CHANGELOG.md LICENSE docs proto spark_jobs python rust | sort) >"$directory/missing"
    [ ! -s "$directory/missing" ] || fail "$(basename "$sdist") lacks $(tr '\n' ' ' <"$directory/missing")"
    # Members that are not in it are cut from its manifest; cargo then cuts their crates and keeps the others.
    tar -xzOf "$sdist" "$(basename "$sdist" .tar.gz)/Cargo.lock" | grep -v '^source = ' | cmp -s - "$root/crates.lock" ||
        fail "$(basename "$sdist") has other crates than crates.lock"
}

check_bill_of_materials() {
    "$python" -m zipfile --list "$wheel" | grep -q '\.dist-info/sboms/.*\.cyclonedx\.json' ||
        fail "$(basename "$wheel") has no bill of materials of its crates"
}

runs_here() {
    "$python" - "$(basename "$wheel")" <<'PYTHON'
import sys
from pip._vendor.packaging import tags, utils

sys.exit(not utils.parse_wheel_filename(sys.argv[1])[3] & set(tags.sys_tags()))
PYTHON
}

# run_aarch64.sh takes packages of Debian from where this system's come from.
is_debian() {
    grep -qx 'ID=debian' /etc/os-release 2>/dev/null
}

# Installs the wheel into a clean environment and uses it.
check_use() {
    local bin=$directory/venv/bin message
    "$python" -m venv "$directory/venv"
    # No compiler on the path: whatever is not in the wheel cannot be built.
    export PATH=$bin:/usr/bin:/bin RUSTC=/nonexistent CARGO=/nonexistent
    cd "$directory"
    "$bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
    "$bin/python" "$root/scripts/use_wheel.py"
    if message=$("$bin/shardwire" --help 2>&1); then
        fail "shardwire --help works without the extra cli, which this test does not expect"
    fi
    [ "$(echo "$message" | wc -l)" = 1 ] && echo "$message" | grep -q 'shardwire\[cli\]' ||
        fail "without the extra cli, shardwire says: $message"
    echo "wheel-check: $(basename "$wheel") installs and works without Rust; without the extra: $message"
}

sdist=$(ls "$built"/*.tar.gz)
for wheel in "$built"/*.whl; do
    case "$wheel" in
    *-abi3-*.whl) ;;
    *) fail "$wheel is no abi3 wheel" ;;
    esac
    check_size
    check_files
    check_bill_of_materials
    if runs_here; then
        check_kernels
        (check_use)
        rm -rf "$directory/venv"
    elif [[ $wheel == *-manylinux*_aarch64.whl ]] && is_debian; then
        "$root/scripts/run_aarch64.sh" "$wheel" "$root/scripts/use_wheel.py"
        echo "wheel-check: $(basename "$wheel") works under emulation"
    else
        echo "wheel-check: $(basename "$wheel") is whole; nothing here runs it"
    fi
done

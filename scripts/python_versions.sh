#!/usr/bin/env bash
# Runs the unit, conformance and property tests on other versions of CPython, each in an environment of its own:
# python_versions.sh [3.12 3.13 3.14]; without arguments on those of them that are found.
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() {
    local python
    for python in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python; do
        # A shim may stand for a version that is not chosen.
        if "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
}

is_named=$#
[ $# -gt 0 ] || set -- 3.12 3.13 3.14
ran=0
for version in "$@"; do
    python=$(find_python "$version")
    if [ -z "$python" ]; then
        [ "$is_named" -eq 0 ] && continue
        echo "python_versions.sh: found no Python $version; install it, with its venv module" >&2
        exit 2
    fi
    environment=.venv/python-$version
    if [ ! -e "$environment/stamp" ] || [ requirements-dev.txt -nt "$environment/stamp" ]; then
        echo "Setting up $environment"
        "$python" -m venv --clear "$environment"
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
            -r requirements-demo.txt -r requirements-dev.txt
        touch "$environment/stamp"
    fi
    # The module of the development environment serves every version.
    PYTHONPATH=$PWD/python "$environment/bin/python" -m pytest --quiet --numprocesses=2 --dist=loadfile \
        tests/unit tests/conformance tests/properties
    echo "python_versions.sh: the tests passed on Python $version"
    ran=$((ran + 1))
done
if [ "$ran" -eq 0 ]; then
    echo "python_versions.sh: found none of Python $*; install one, with its venv module" >&2
    exit 2
fi

#!/usr/bin/env bash
# Runs the chosen part of the Spark tests on older versions of PySpark, each in an environment of its own:
# spark_versions.sh [--environment] [3.5 4.0 4.1]; with --environment it makes the environments alone.
set -euo pipefail
cd "$(dirname "$0")/.."
only_environment=false
if [ "${1:-}" = --environment ]; then
    only_environment=true
    shift
fi
[ $# -gt 0 ] || set -- 3.5 4.0 4.1
for version in "$@"; do
    environment=.venv/spark-$version
    wanted=tests/spark/requirements/$version.txt
    if [ ! -e "$environment/stamp" ] || [ "$wanted" -nt "$environment/stamp" ]; then
        echo "Setting up $environment"
        .venv/bin/python -m venv --clear "$environment"
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r "$wanted"
        touch "$environment/stamp"
    fi
    $only_environment && continue
    # Executors start in directories of their own.
    PYTHONPATH=$PWD/python "$environment/bin/python" -m pytest --quiet -W ignore::DeprecationWarning \
        tests/spark/test_spark_versions.py
    echo "spark_versions.sh: the chosen part passed on PySpark $version"
done

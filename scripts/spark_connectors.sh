#!/usr/bin/env bash
# Tests Kafka, Delta and Iceberg on PySpark 4.0, in the environment that spark_versions.sh makes.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/spark_versions.sh --environment 4.0
# Spark fetches the packages once.
export SHARDWIRE_IVY=${SHARDWIRE_IVY:-$PWD/.venv/ivy}
PYTHONPATH=$PWD/python .venv/spark-4.0/bin/python -m pytest --quiet tests/connectors/connector_tables.py

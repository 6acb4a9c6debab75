#!/usr/bin/env bash
# Packs a wheel into an environment as docs/guide/spark_clusters.md says, and runs the jobs with it on a standalone cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
spark=$(.venv/bin/python -c 'import pyspark; print(pyspark.__version__)')
.venv/bin/python -m venv "$directory/environment"
"$directory/environment/bin/python" -m pip install --quiet --disable-pip-version-check \
    "shardwire[spark,crypto] @ file://$wheel" "pyspark==$spark" matplotlib venv-pack setuptools
"$directory/environment/bin/venv-pack" --quiet --prefix "$directory/environment" --compress-level 1 \
    --output "$directory/environment.tar.gz" --exclude '*/pyspark/jars/*'
SHARDWIRE_CLUSTER_ENVIRONMENT=$directory .venv/bin/python -m pytest --quiet tests/cluster/cluster_jobs.py
echo "check_cluster.sh: the jobs passed on a standalone cluster"

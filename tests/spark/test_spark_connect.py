"""What works over Spark Connect, against a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from spark.submit import environment


def test_the_package_over_spark_connect(tmp_path: Path) -> None:
    client = [sys.executable, str(Path(__file__).parent / "connect_client.py"), str(tmp_path)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    settings = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    answer = subprocess.run(
        client, capture_output=True, text=True, env=environment() | settings, timeout=280, check=False
    )
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout.splitlines()[-1])
    assert "Spark Connect" in told.pop("archive")
    assert told == {
        "session": "pyspark.sql.connect.session",
        "reconstruct": ["recovered", True],
        "functions": 10,
        "with_keccak256": 10,
        "sql": 4,
        "store": [8, "103000001"],
        "stream": ["complete"],
        "segment_messages": 12,
        "channel_report": 10,
    }

"""Plans on another version of PySpark, in a process that is asked for one at a time.

As a script it is that process: a line of JSON in, the plan run, a line out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class OtherVersion:
    """A session on another version.

    Args:
        python: The interpreter that has it.
        cores: Of the session.
    """

    def __init__(self, python: str, cores: int) -> None:
        self._command = [python, str(Path(__file__)), str(cores)]
        self.version = ""

    def __enter__(self) -> OtherVersion:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Its workers have its libraries too, not those of the process that measures.
            env={**os.environ, "PYSPARK_PYTHON": self._command[0]},
        )
        self.version = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def run(self, plan: str, path: str, segment_size_bytes: int) -> None:
        """Runs a plan over these files: "i2", "key" or "bare"."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([plan, path, segment_size_bytes]) + "\n")
        self._process.stdin.flush()
        if self._answer() != plan:
            raise SystemExit(f"{self._command[0]} did not run {plan}")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _count(batches: Any) -> Any:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": pa.array([sum(batch.num_rows for batch in batches)])})


def _serve(cores: int) -> None:
    import pyspark
    from measure import drained
    from pyspark.sql import SparkSession

    from shardwire import SegmentationConfig
    from shardwire.spark import reconstruct
    from shardwire.spark.session import configure

    spark = configure(
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", 4)
        .getOrCreate()
    )
    print(pyspark.__version__, flush=True)
    for line in sys.stdin:
        plan, path, segment_size_bytes = json.loads(line)
        df, config = spark.read.parquet(path), SegmentationConfig(segment_size_bytes=segment_size_bytes)
        if plan == "i2":
            drained(df.repartition("digest").mapInArrow(_count, "rows bigint"))
        elif plan == "key":
            drained(reconstruct(df, config, key="digest", include_payload=False))
        else:
            drained(reconstruct(df.select("payload"), config, include_payload=False))
        print(plan, flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))

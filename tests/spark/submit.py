"""Jobs as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardwire.spark.java import ensure_java

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """A user's: nothing of this process's own Spark session."""
    python = Path(sys.executable)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return clean | {"PATH": f"{python.parent}:{clean['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}


def command(job: str, *arguments: str, submitted: bool = True) -> list[str]:
    """By `spark-submit`, or by Python where Spark is not reached anyway."""
    ensure_java()
    python = Path(sys.executable)
    settings = ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
    start = [str(python.parent / "spark-submit"), *settings] if submitted else [str(python)]
    return [*start, str(ROOT / "spark_jobs" / job), *arguments]


def submit(job: str, *arguments: str, submitted: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a job to its end."""
    return subprocess.run(
        command(job, *arguments, submitted=submitted),
        capture_output=True,
        text=True,
        env=environment(),
        timeout=280,
        check=False,
    )


def skip_starved(told: str) -> None:
    """Skips a test of a stream whose driver had no second Python within the 10 s that Spark waits for one."""
    if "Python worker failed to connect back" in told:
        pytest.skip("the machine is too busy for a stream of Spark")


def summary(output: str) -> dict[str, int]:
    """The table at the end of a job."""
    lines = [line.rsplit(None, 1) for line in output.splitlines() if line.startswith("  ")]
    return {name.strip(): int(value.replace(",", "")) for name, value in lines}

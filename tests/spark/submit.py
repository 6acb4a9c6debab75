"""Jobs as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shardwire.spark.java import ensure_java

ROOT = Path(__file__).parents[2]
# Of a stream's job on a machine that is busy with other things.
RUNS_MAX = 4


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


def run_until_served(run: Callable[[], tuple[int, str]]) -> tuple[int, str]:
    """The exit status and the output of a stream's job, run again as it says while Spark had no Python for it in time.

    Its driver waits 10 s for a second one, which on a busy machine is too short.
    """
    for _ in range(RUNS_MAX - 1):
        code, told = run()
        if "run it again, a stream with the same checkpoint" not in told:
            return code, told
    return run()


def summary(output: str) -> dict[str, int]:
    """The table at the end of a job."""
    lines = [line.rsplit(None, 1) for line in output.splitlines() if line.startswith("  ")]
    return {name.strip(): int(value.replace(",", "")) for name, value in lines}

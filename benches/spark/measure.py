"""Time and memory of Spark plans: rounds in turn, medians, ratios within a round, peaks of the Python workers."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE_INTERVAL_S = 0.05


def machine() -> str:
    """The processor, and which of the instructions it has that decide how fast Keccak-256 and SHA-256 are."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = said.get("flags", "").split()
    with_, without = (
        " ".join(flag for flag in ("avx2", "avx512f", "sha_ni") if (flag in flags) is has) for has in (True, False)
    )
    return f"{said.get('model name', platform.machine())} with {with_ or 'none'}, without {without or 'none'}"


def commit() -> str:
    """The commit that was measured."""
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def drained(plan: DataFrame) -> None:
    """Runs a plan from end to end; its rows go nowhere."""
    plan.write.format("noop").mode("overwrite").save()


@dataclass(slots=True)
class Taken:
    """What the rounds of one run took: seconds on the wall, and of the processor in all its processes."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def interleaved(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Taken]:
    """What every run takes, once a round, in turn; a first round warms up and does not count."""
    taken = {name: Taken() for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            processor, started = processor_seconds(), time.perf_counter()
            run()
            seconds = time.perf_counter() - started
            if number > 0:
                taken[name].seconds.append(seconds)
                taken[name].processor.append(processor_seconds() - processor)
    return taken


def processor_seconds(root: int | None = None) -> float:
    """What a process (this one where none is named) and all below it took of the processor since they began, with
    what has ended below them."""
    ticks = 0
    for process in _descendants(root or os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # User and system time: its own, and that of children that ended.
        ticks += sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def ratio(own: list[float], base: list[float]) -> float:
    """The median over the rounds of one run to another."""
    return statistics.median(a / b for a, b in zip(own, base, strict=True))


class WorkerMemory:
    """The most that any Python worker below this process held at once, in bytes, sampled from /proc."""

    def __init__(self) -> None:
        self.peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_INTERVAL_S):
            for process in _descendants(os.getpid()):
                self.peak = max(self.peak, _worker_peak(process))


def _descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold spaces.
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found = {root}
    grown = True
    while grown:
        below = {process for process, parent in parents.items() if parent in found} - found
        found |= below
        grown = bool(below)
    return found


def _worker_peak(process: int) -> int:
    """Peak resident bytes of a Python worker; 0 for what is none."""
    try:
        if b"pyspark.daemon" not in Path(f"/proc/{process}/cmdline").read_bytes():
            return 0
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0

"""Steps for a plan that fail on purpose, on the executors: what becomes of the result is what the tests ask."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

Batches = Iterator[pa.RecordBatch]
Step = Callable[[Batches], Batches]
RACE_WAIT_S = 45


def executor_pid() -> int:
    """The Java process above this Python worker."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert pid > 1
    return pid


def kill_executor_once(marker: Path) -> Step:
    """Hands on a task's first batch, then kills the executor under it, once for all tasks."""

    def step(batches: Batches) -> Batches:
        for batch in batches:
            yield batch
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(executor_pid(), signal.SIGKILL)

    return step


def fail_first_attempts(batches: Batches) -> Batches:
    """Fails every task's first attempt: in turn before its first batch and after its last one."""
    context = TaskContext.get()
    assert context is not None
    is_first = context.attemptNumber() == 0
    if is_first and context.partitionId() % 2:
        raise RuntimeError("injected: before the first row")
    yield from batches
    if is_first:
        raise RuntimeError("injected: after the last row")


def have_raced(directory: Path, partitions: Sequence[int]) -> bool:
    """Whether two attempts of each of these partitions came to their ends together, and none waited in vain."""
    return not any(directory.glob("alone-*")) and all((directory / f"raced-{each}").exists() for each in partitions)


def race_with_copies(directory: Path, partitions: Sequence[int]) -> Step:
    """Holds an attempt of these partitions back, its rows handed on, until another attempt has come as far.

    The first attempt is slow enough for that, so that Spark starts a copy of it. One that waits in vain fails.
    """

    def step(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        yield from batches
        if partition not in partitions:
            return
        # A stage that is run again counts its attempts from 0 again; this number is the attempt's own. One that died
        # with its executor does not count.
        (directory / f"ended-{partition}-{context.taskAttemptId()}-{executor_pid()}").touch()
        until = time.monotonic() + RACE_WAIT_S
        while sum(is_running(path.name.split("-")[3]) for path in directory.glob(f"ended-{partition}-*")) < 2:
            if time.monotonic() > until:
                # Its retry is no copy, and goes on alone.
                (directory / f"alone-{partition}").touch()
                raise TimeoutError(f"no copy of task {partition} came to its end within {RACE_WAIT_S} s")
            time.sleep(0.01)
        (directory / f"raced-{partition}").touch()

    return step


def is_running(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()

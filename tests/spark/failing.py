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


def executor_pid() -> int:
    """The Java process above this Python worker."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        assert pid > 1
    return pid


def kill_executor_once(marker: Path) -> Callable[[Batches], Batches]:
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


def race_with_copies(directory: Path, partitions: Sequence[int]) -> Callable[[Batches], Batches]:
    """Holds an attempt of these partitions back, its rows handed on, until another attempt has come as far.

    The first attempt is slow enough for that, so that Spark starts a copy of it.
    """

    def step(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        yield from batches
        if partition not in partitions:
            return
        (directory / f"ended-{partition}-{context.attemptNumber()}").touch()
        until = time.monotonic() + 150
        while len(list(directory.glob(f"ended-{partition}-*"))) < 2:
            if time.monotonic() > until:
                # A retry would be no copy: the test fails by this file.
                (directory / f"alone-{partition}").touch()
                raise TimeoutError(f"no copy of the task of partition {partition} came to its end within 150 s")
            time.sleep(0.01)

    return step

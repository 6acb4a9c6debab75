"""An action that fails or is interrupted leaves no task behind that writes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from shardwire.spark.actions import run_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STEPS = 200


def writing(path: Path, *, fails: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does for 10 s: it makes its file longer. The first one fails once the other is at work."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        [batch] = batches
        number = batch.column(0)[0].as_py()
        for _ in range(STEPS):
            time.sleep(0.05)
            with open(path / str(number), "ab") as file:
                file.write(b"x")
            if fails and number == 0 and (path / "1").exists():
                raise ValueError("of a task")
        yield batch

    return write


def told(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


@pytest.mark.parametrize("planning_s", [0.0, 1.0], ids=["at work", "while planned"])
def test_no_task_of_an_interrupted_action_runs_on(spark: SparkSession, tmp_path: Path, planning_s: float) -> None:
    rows = spark.range(0, 2, 1, 2).mapInArrow(writing(tmp_path, fails=False), "id long")
    main = threading.main_thread().ident
    assert main is not None

    def act() -> None:
        time.sleep(planning_s)
        rows.write.format("noop").mode("overwrite").save()

    def interrupt() -> None:
        while not planning_s and told(tmp_path) < 10:
            time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Timer(planning_s / 2, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_whole(spark.sparkContext, act)
    before = told(tmp_path)
    assert before < 2 * STEPS
    time.sleep(0.5)
    assert told(tmp_path) == before


def test_no_task_of_a_failed_action_runs_on(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 2, 1, 2).mapInArrow(writing(tmp_path, fails=True), "id long")
    with pytest.raises(PySparkException, match="of a task"):
        run_whole(spark.sparkContext, rows.write.format("noop").mode("overwrite").save)
    before = told(tmp_path)
    time.sleep(0.5)
    assert told(tmp_path) == before

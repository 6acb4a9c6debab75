"""Copies of slow tasks: two attempts of one task reach their commit together, and every message is there once."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from spark import failing
from spark.failing import Step, have_raced, race_with_copies
from spark.rows import CONFIG, in_partitions, payload_of

from shardwire.segmentation import segment
from shardwire.spark import reconstruct, reconstruct_archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Executors do not have the tests on their path.
cloudpickle.register_pickle_by_value(failing)

# Spark starts no copy of a task on the host of the first; all executors of a local cluster are on one.
OTHER_HOST = "127.0.0.2"
RACING = (0, 1)
RACES_MAX = 3
COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"
PAYLOADS = [payload_of(7_000 + number, 3_000) for number in range(24)]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason=f"{OTHER_HOST} is a loopback address on Linux alone")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, f"not within 120 s: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def two_hosts(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The cluster with one more executor, at another address, for as long as these tests run."""
    context: Any = spark_session.sparkContext
    jvm, scala_context = context._jvm, context._jsc.sc()
    backend = scala_context.schedulerBackend()
    masters = backend.getClass().getDeclaredField("masters")
    masters.setAccessible(True)

    def is_there() -> bool:
        return any(executor.host() == OTHER_HOST for executor in scala_context.statusTracker().getExecutorInfos())

    absent = jvm.scala.Option.empty()
    worker = jvm.org.apache.spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
        # A slot more than tasks race: one that was told to end, and is slow at it, keeps no copy waiting.
        *(OTHER_HOST, 0, 0, len(RACING) + 1, 1024, masters.get(backend), str(tmp_path_factory.mktemp("work"))),
        *(jvm.scala.Option.apply(77), scala_context.conf(), absent),
    )
    try:
        wait_for(is_there, f"an executor at {OTHER_HOST}")
        yield spark_session
    finally:
        worker.shutdown()
        wait_for(lambda: not is_there(), f"the end of the executor at {OTHER_HOST}")


@pytest.fixture
def segments(two_hosts: SparkSession) -> DataFrame:
    return in_partitions(two_hosts, 3, [part for payload in PAYLOADS for part in segment(payload, CONFIG)])


def test_an_archive_whose_tasks_race_with_their_copies(
    spark: SparkSession, segments: DataFrame, tmp_path: Path
) -> None:
    def write(step: Step, out: str) -> None:
        report = reconstruct_archive(spark, segments.mapInArrow(step, "payload binary"), out, CONFIG)
        # What both attempts of a task counted is told once.
        assert report.messages == {"complete": len(PAYLOADS)}
        assert report.payload_bytes == sum(map(len, PAYLOADS))

    race(spark, write, RACING, tmp_path)


def test_a_plan_whose_last_tasks_race_with_their_copies(
    spark: SparkSession, segments: DataFrame, tmp_path: Path
) -> None:
    messages = reconstruct(segments, CONFIG)

    def write(step: Step, out: str) -> None:
        messages.mapInArrow(step, messages.schema).write.parquet(out)

    # Two tasks in the last stage: one of them tells how long the other should take.
    spark.conf.set(COALESCE, "false")
    try:
        race(spark, write, [0], tmp_path)
    finally:
        spark.conf.unset(COALESCE)


def race(spark: SparkSession, write: Callable[[Step, str], None], partitions: Sequence[int], directory: Path) -> None:
    """Writes `PAYLOADS` until two attempts of each of these partitions have come to their ends together.

    Spark makes no copy on a host that any attempt of the task was on before. Where one failed, on a slow machine for
    example because what it fetches came late, no host is left: the other waits in vain, and its retry goes on alone.
    """
    for number in range(RACES_MAX):
        place = directory / str(number)
        place.mkdir()
        write(race_with_copies(place, partitions), str(place / "out"))
        found = spark.read.parquet(str(place / "out")).collect()
        assert Counter(bytes(row["payload"]) for row in found) == Counter(PAYLOADS)
        if have_raced(place, partitions):
            return
    pytest.fail(f"no copies of the tasks {partitions} came to their end in {RACES_MAX} runs")

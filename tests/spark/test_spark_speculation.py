"""Copies of slow tasks: two attempts of one task reach their commit together, and every message is there once."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from spark import failing
from spark.failing import race_with_copies
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
        *(OTHER_HOST, 0, 0, 1, 1024, masters.get(backend), str(tmp_path_factory.mktemp("work"))),
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
    step = race_with_copies(tmp_path, RACING)
    report = reconstruct_archive(spark, segments.mapInArrow(step, "payload binary"), str(tmp_path / "out"), CONFIG)
    assert attempts_at_the_end(tmp_path) == Counter(dict.fromkeys(RACING, 2))
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(bytes(row["payload"]) for row in found) == Counter(PAYLOADS)
    # What both attempts of a task counted is told once.
    assert report.messages == {"complete": len(PAYLOADS)}
    assert report.payload_bytes == sum(map(len, PAYLOADS))


def test_a_plan_whose_last_tasks_race_with_their_copies(
    spark: SparkSession, segments: DataFrame, tmp_path: Path
) -> None:
    messages = reconstruct(segments, CONFIG)
    step = race_with_copies(tmp_path, [0])
    # Of a stage with a single task no copy is made: nothing else tells how long it should take.
    spark.conf.set(COALESCE, "false")
    try:
        messages.mapInArrow(step, messages.schema).write.parquet(str(tmp_path / "out"))
    finally:
        spark.conf.unset(COALESCE)
    assert attempts_at_the_end(tmp_path) == {0: 2}
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(bytes(row["payload"]) for row in found) == Counter(PAYLOADS)


def attempts_at_the_end(directory: Path) -> Counter[int]:
    """By partition, the attempts that went through all their rows; none of them waited in vain for another."""
    assert not list(directory.glob("alone-*"))
    return Counter(int(path.name.split("-")[1]) for path in directory.glob("ended-*"))

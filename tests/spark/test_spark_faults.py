"""Executors that die and tasks that fail: the messages are the same, none is missing and none comes twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from spark import failing
from spark.failing import fail_first_attempts, kill_executor_once
from spark.rows import CONFIG, in_partitions, payload_of, reassembled, without

from shardwire.segmentation import segment
from shardwire.spark import reconstruct, reconstruct_archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Executors do not have the tests on their path.
cloudpickle.register_pickle_by_value(failing)

PAYLOADS = [payload_of(9_000 + number, 5_000) for number in range(24)]
PARTS = [part for number, payload in enumerate(PAYLOADS) for part in without(segment(payload, CONFIG), [number % 12])]
LOST = segment(payload_of(9_999, 5_000), CONFIG)[:4]
SCHEMA = "payload binary"


@pytest.fixture(scope="module")
def segments(spark_session: SparkSession) -> DataFrame:
    """In order of arrival, in four partitions, with a message that stays short and noise."""
    rows = [*PARTS, *LOST, b"noise"]
    return in_partitions(spark_session, 4, rows)


def found(rows: list[Any]) -> Counter[tuple[str, bytes | None]]:
    return Counter((row["status"], row["payload"]) for row in rows)


WANTED = Counter(("recovered" if number % 12 < 8 else "complete", payload) for number, payload in enumerate(PAYLOADS))
WANTED += Counter([("incomplete", None), ("invalid", None)])


def test_the_wanted_payloads_are_those_of_the_plain_reassembler() -> None:
    assert set(reassembled(PARTS, CONFIG).values()) == set(PAYLOADS)


def test_an_executor_killed_mid_task(spark: SparkSession, segments: DataFrame, tmp_path: Path) -> None:
    # In the stage after the shuffle: what the executor had shuffled for others is lost with it.
    step = kill_executor_once(tmp_path / "killed")
    messages = reconstruct(segments, CONFIG)
    rows = messages.mapInArrow(step, messages.schema).collect()
    assert (tmp_path / "killed").exists()
    assert found(rows) == WANTED


def test_an_archive_while_an_executor_is_killed(spark: SparkSession, segments: DataFrame, tmp_path: Path) -> None:
    killed = segments.mapInArrow(kill_executor_once(tmp_path / "killed"), SCHEMA)
    report = reconstruct_archive(spark, killed, str(tmp_path / "out"), CONFIG)
    assert (tmp_path / "killed").exists()
    assert found(spark.read.parquet(str(tmp_path / "out")).collect()) == WANTED
    assert sum(report.messages.values()) == sum(WANTED.values())


def test_an_archive_whose_tasks_fail_at_first(spark: SparkSession, segments: DataFrame, tmp_path: Path) -> None:
    failing_once = segments.mapInArrow(fail_first_attempts, SCHEMA)
    report = reconstruct_archive(spark, failing_once, str(tmp_path / "out"), CONFIG)
    assert found(spark.read.parquet(str(tmp_path / "out")).collect()) == WANTED
    assert sum(report.messages.values()) == sum(WANTED.values())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_skewed_archive(spark: SparkSession) -> None:
    """Nearly all rows belong to one message of one topic; the others come out all the same."""
    hot = segment(payload_of(8_000, 5_000), CONFIG)
    repeats = spark.range(30_000).selectExpr("'hot' topic", f"unhex('{hot[0].hex()}') payload")
    others = [("hot", part) for part in hot[1:]] + [("cold", part) for part in PARTS]
    df = repeats.union(spark.createDataFrame(others, "topic string, payload binary"))
    rows = reconstruct(df, CONFIG, by=["topic"]).collect()
    [message] = [row for row in rows if row["topic"] == "hot"]
    assert (message["payload"], message["duplicates"]) == (payload_of(8_000, 5_000), 29_999)
    assert {row["payload"] for row in rows if row["topic"] == "cold"} == set(PAYLOADS)

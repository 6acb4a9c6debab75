"""The data source `waku-store`, read by executors over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from spark.rows import CONFIG, payload_of
from store_server import StoreServer, serving

from shardwire import ConfigError
from shardwire.node import MessageEnvelope
from shardwire.segmentation import segment
from shardwire.spark import reconstruct, register
from shardwire.spark.store_options import StoreRange, split_times
from shardwire.spark.store_source import WakuStoreReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, OTHER = "/rc/1/a/proto", "/rc/1/b/proto"
PAYLOAD = payload_of(1, 20_000)


@pytest.fixture(params=["logos-delivery", "go-waku"])
def store(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    messages = [(MessageEnvelope(TOPIC, part), 1_000 + n) for n, part in enumerate(segment(PAYLOAD, CONFIG))]
    messages += [(MessageEnvelope(OTHER, bytes([n]), meta=b"m"), 1_000 + n) for n in range(30)]
    with serving(StoreServer(request.param, messages)) as server:
        yield server


def test_reads_and_reconstructs(spark: SparkSession, store: StoreServer) -> None:
    register(spark)
    df = (
        spark.read.format("waku-store")
        .option("url", store.url)
        .option("contentTopics", f"{TOPIC},{OTHER}")
        .option("startTime", 1_000)
        .option("endTime", 1_099)
        .option("partitions", 3)
        .option("pageSize", 5)
        .load()
    )
    rows = df.collect()
    assert len(rows) == len(store.messages)
    held = {store.hash_of(envelope, time): (envelope, time) for envelope, time in store.messages}
    for row in rows:
        envelope, time = held[bytes(row["message_hash"])]
        assert (row["content_topic"], row["payload"], row["timestamp"]) == (
            envelope.content_topic,
            envelope.payload,
            time,
        )
        assert row["meta"] == envelope.meta
    [message] = reconstruct(df.where(df.content_topic == TOPIC), CONFIG, by=["content_topic"]).collect()
    assert (message["payload"], message["status"]) == (PAYLOAD, "complete")
    assert message["first_timestamp"] == 1_000


def test_filters_narrow_the_query(spark: SparkSession, store: StoreServer) -> None:
    register(spark)
    df = spark.read.format("waku-store").option("url", store.url).load()
    found = df.where(f"content_topic = '{OTHER}' and timestamp > 1004 and timestamp <= 1010").collect()
    assert sorted(row["timestamp"] for row in found) == list(range(1_005, 1_011))
    asked = store.requests[-1]
    assert (asked["contentTopics"], asked["startTime"], asked["endTime"]) == (OTHER, "1005", "1010")


def test_times_are_split_without_gap_or_overlap() -> None:
    for start, end, count in ((0, 99, 7), (5, 5, 3), (10, 12, 3), (0, 10**18, 4)):
        parts = split_times(StoreRange((), start, end), count)
        assert (parts[0].start_time_ns, parts[-1].end_time_ns) == (start, end)
        for one, following in pairwise(parts):
            assert one.end_time_ns is not None
            assert following.start_time_ns == one.end_time_ns + 1
    assert split_times(StoreRange((), None, 5), 4) == [StoreRange((), None, 5)]


def test_wrong_options_are_refused() -> None:
    for match, options in {
        "needs the option 'url'": {},
        "no option 'pagesise'": {"url": "http://x", "pageSise": "5"},
        "startTime is 'now'": {"url": "http://x", "startTime": "now"},
        "partitions is 0": {"url": "http://x", "partitions": "0"},
        "dialect is 'x'": {"url": "http://x", "dialect": "x"},
        "startTime is 6: it must be at most endTime, 5": {"url": "http://x", "startTime": "6", "endTime": "5"},
    }.items():
        with pytest.raises(ConfigError, match=match):
            WakuStoreReader(options)


def test_wrong_options_are_told_where_they_are_given(spark: SparkSession) -> None:
    register(spark)
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException, match="waku-store has no option 'pagesise': it has url, dialect"):
            reader.format("waku-store").options(url="http://127.0.0.1:1", pagesise="5").load()


def test_filters_that_leave_nothing_ask_for_nothing(spark: SparkSession, store: StoreServer) -> None:
    register(spark)
    df = spark.read.format("waku-store").option("url", store.url).option("endTime", 1_005).load()
    assert df.where("timestamp > 1010").collect() == []
    assert store.requests == []

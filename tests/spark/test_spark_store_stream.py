"""The source `waku-store` as a stream: every message once, over restarts, from either dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.queries import run_to_end
from spark.rows import CONFIG, payload_of
from store_server import StoreServer, serving

from shardwire import ConfigError
from shardwire.node import MessageEnvelope
from shardwire.segmentation import segment
from shardwire.spark import reconstruct_stream, register
from shardwire.spark.store_stream import WakuStoreStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, OTHER = "/rc/1/a/proto", "/rc/1/b/proto"
MS = 1_000_000
PARTS = segment(payload_of(1, 5_000), CONFIG)


@pytest.fixture(params=["logos-delivery", "go-waku"])
def store(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    messages = [(MessageEnvelope(TOPIC, part), (100 + n) * MS) for n, part in enumerate(PARTS[:6])]
    messages += [(MessageEnvelope(OTHER, b"other"), 50 * MS)]
    with serving(StoreServer(request.param, messages)) as server:
        yield server


def run(spark: SparkSession, store: StoreServer, directory: Path, **options: Any) -> list[int]:
    """Reconstructs what the store holds by now; returns the rows that each micro-batch read."""
    register(spark)
    reader = spark.readStream.format("waku-store").option("url", store.url).option("pageSize", 2)
    for name, value in {"contentTopics": TOPIC, **options}.items():
        reader = reader.option(name, value)
    batches = run_to_end(reconstruct_stream(reader.load(), CONFIG, by=["content_topic"]), directory)
    return [progress["numInputRows"] for progress in batches]


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, store: StoreServer, tmp_path: Path) -> None:
    # Overloaded and unreachable for a moment: asked again.
    store.failures = [503, "drop"]
    assert sum(run(spark, store, tmp_path, endTime=110 * MS)) == 6
    assert spark.read.parquet(str(tmp_path / "out")).count() == 0
    store.messages += [(MessageEnvelope(TOPIC, part), (120 + n) * MS) for n, part in enumerate(PARTS[6:])]
    asked = len(store.requests)
    assert sum(run(spark, store, tmp_path, endTime=150 * MS, batchMs=30, partitions=2)) == 6
    # What was read before the restart is not asked for again.
    assert min(int(request["startTime"]) for request in store.requests[asked:]) == 110 * MS + 1
    assert {request["contentTopics"] for request in store.requests} == {TOPIC}
    [message] = spark.read.parquet(str(tmp_path / "out")).collect()
    assert (message["payload"], message["content_topic"]) == (payload_of(1, 5_000), TOPIC)
    assert message["first_timestamp"] == 100 * MS


def reader(store: StoreServer, now: list[int], **options: Any) -> WakuStoreStreamReader:
    given = {"url": store.url, "contentTopics": f"{TOPIC},{OTHER}", "delayMs": 10, **options}
    return WakuStoreStreamReader({name: str(value) for name, value in given.items()}, clock_ns=lambda: now[0])


def test_offsets(store: StoreServer) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    now = [200 * MS]
    stream = reader(store, now, batchMs=60)
    first = stream.initialOffset()
    assert first == {"time_ns": 50 * MS}
    assert reader(store, now, startTime=7).initialOffset() == {"time_ns": 7}
    limit = stream.getDefaultReadLimit()
    second = stream.latestOffset(first, limit)
    assert second == {"time_ns": 110 * MS}
    assert stream.latestOffset(second, limit) == {"time_ns": 170 * MS}
    # Ten milliseconds behind the clock, and never back.
    assert stream.latestOffset(first, ReadAllAvailable()) == {"time_ns": 190 * MS}
    assert stream.latestOffset({"time_ns": 195 * MS}, limit) == {"time_ns": 195 * MS}
    assert stream.latestOffset() == {"time_ns": 190 * MS}
    assert isinstance(reader(store, now).getDefaultReadLimit(), ReadAllAvailable)
    now[0] = 300 * MS
    assert reader(store, now, endTime=150 * MS).latestOffset(first, limit) == {"time_ns": 150 * MS + 1}
    stream.prepareForTriggerAvailableNow()
    now[0] = 900 * MS
    assert stream.latestOffset({"time_ns": 280 * MS}, limit) == {"time_ns": 290 * MS}


def test_spans_touch_and_do_not_overlap(store: StoreServer) -> None:
    stream = reader(store, [200 * MS], partitions=2)
    assert list(stream.partitions({"time_ns": 5}, {"time_ns": 5})) == []
    parts = [part.value for part in stream.partitions({"time_ns": 10}, {"time_ns": 20})]
    assert {(part.content_topics, part.start_time_ns, part.end_time_ns) for part in parts} == {
        ((topic,), start, end) for topic in (TOPIC, OTHER) for start, end in ((10, 14), (15, 19))
    }
    [whole] = reader(store, [0], contentTopics=TOPIC).partitions({"time_ns": 0}, {"time_ns": 1_000 * MS})
    batches = list(stream.read(whole))
    assert [value for batch in batches for value in batch.column("payload").to_pylist()] == PARTS[:6]


def test_an_empty_store_begins_now(store: StoreServer) -> None:
    store.messages.clear()
    assert reader(store, [500 * MS]).initialOffset() == {"time_ns": 490 * MS}


def test_wrong_options_are_refused() -> None:
    for match, options in {"delayMs is -1": {"delayMs": "-1"}, "batchMs is 0": {"batchMs": "0"}}.items():
        with pytest.raises(ConfigError, match=match):
            WakuStoreStreamReader({"url": "http://x", **options})

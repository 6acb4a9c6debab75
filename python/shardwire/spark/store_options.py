"""What is asked of a store: the options of the source `waku-store`, its ranges, and their pages as record batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa

from shardwire.errors import ConfigError
from shardwire.node.protocol import StorePage, StoreQuery
from shardwire.node.store_client import StoreClient, StoreDialect, StoreEndpoint
from shardwire.node.store_v3 import PAGE_SIZE_MAX
from shardwire.spark.versions import InputPartition

SOURCE_NAME = "waku-store"
SCHEMA = "content_topic string, timestamp bigint, payload binary, meta binary, message_hash binary, ephemeral boolean"

_OPTIONS = (
    "url",
    "dialect",
    "peerAddr",
    "pubsubTopic",
    "contentTopics",
    "startTime",
    "endTime",
    "partitions",
    "pageSize",
    "clusterId",
    "numShards",
    "timeoutMs",
    "retriesMax",
    "delayMs",
    "batchMs",
)


@dataclass(frozen=True, slots=True)
class StoreRange:
    """What is asked: of which topics, from when to when; None leaves a side open."""

    content_topics: tuple[str, ...]
    start_time_ns: int | None
    end_time_ns: int | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be in it."""
        start, end = self.start_time_ns, self.end_time_ns
        return start is not None and end is not None and start > end


class StorePartition(InputPartition):
    """One task's part."""

    def __init__(self, value: StoreRange) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of a read, checked."""

    endpoint: StoreEndpoint
    range: StoreRange
    partitions: int
    page_size: int
    delay_ms: int
    batch_ms: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """The options by their names in any case.

        Raises:
            ConfigError: An unknown option, a missing url, or a value out of its limits.
        """
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - {name.lower() for name in _OPTIONS})
        if unknown:
            raise ConfigError(f"{SOURCE_NAME} has no option {unknown[0]!r}: it has {', '.join(_OPTIONS)}")
        if "url" not in given:
            raise ConfigError(f"{SOURCE_NAME} needs the option 'url': the address of a node's REST interface")
        endpoint = StoreEndpoint(
            url=given["url"],
            dialect=cast(StoreDialect, given.get("dialect", "auto")),
            peer_addr=given.get("peeraddr"),
            pubsub_topic=given.get("pubsubtopic"),
            cluster_id=_integer(given, "clusterId", 1),
            num_shards_in_cluster=_integer(given, "numShards", 8, minimum=1),
            timeout_ms=_integer(given, "timeoutMs", 30_000),
            retries_max=_integer(given, "retriesMax", 5),
        )
        named = (topic.strip() for topic in given.get("contenttopics", "").split(","))
        topics = tuple(dict.fromkeys(topic for topic in named if topic))
        whole = StoreRange(topics, _integer(given, "startTime", None), _integer(given, "endTime", None))
        if whole.is_empty:
            raise ConfigError(
                f"{SOURCE_NAME}: startTime is {whole.start_time_ns}: it must be at most endTime, {whole.end_time_ns}"
            )
        return cls(
            endpoint=endpoint,
            range=whole,
            partitions=_integer(given, "partitions", 1, minimum=1),
            page_size=_integer(given, "pageSize", PAGE_SIZE_MAX, minimum=1, maximum=PAGE_SIZE_MAX),
            delay_ms=_integer(given, "delayMs", 10_000, minimum=0),
            batch_ms=_integer(given, "batchMs", None, minimum=1),
        )

    def plan(self, asked: StoreRange) -> list[InputPartition]:
        """A partition a range of time and topic: go-waku takes topics of one shard in a query, one topic suits all."""
        topics = asked.content_topics
        groups = [(topic,) for topic in topics] if len(topics) > 1 else [topics]
        return [
            StorePartition(replace(span, content_topics=group))
            for group in groups
            for span in split_times(asked, self.partitions)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The pages of one range, a batch a page."""
        asked: StoreRange = partition.value
        if asked.is_empty:
            return
        query = StoreQuery(
            content_topics=asked.content_topics,
            start_time_ns=asked.start_time_ns,
            end_time_ns=asked.end_time_ns,
            page_size=self.page_size,
        )
        with StoreClient(self.endpoint) as client:
            yield from map(batch_of_page, client.pages(query))


def split_times(whole: StoreRange, count: int) -> list[StoreRange]:
    """The range in `count` parts that touch and do not overlap: both ends of each are inclusive."""
    start, end = whole.start_time_ns, whole.end_time_ns
    if start is None or end is None or count == 1 or end - start < count:
        return [whole]
    edges = [start + (end - start + 1) * part // count for part in range(count + 1)]
    return [replace(whole, start_time_ns=first, end_time_ns=following - 1) for first, following in pairwise(edges)]


def batch_of_page(page: StorePage) -> pa.RecordBatch:
    """A page as a record batch in the source's schema."""
    envelopes = [message.envelope for message in page.messages]
    columns: dict[str, Any] = {
        "content_topic": pa.array([e and e.content_topic for e in envelopes], pa.string()),
        "timestamp": pa.array([message.timestamp_ns for message in page.messages], pa.int64()),
        "payload": pa.array([e and e.payload for e in envelopes], pa.binary()),
        "meta": pa.array([e and e.meta for e in envelopes], pa.binary()),
        "message_hash": pa.array([message.message_hash for message in page.messages], pa.binary()),
        "ephemeral": pa.array([e and e.ephemeral for e in envelopes], pa.bool_()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _integer(
    options: Mapping[str, str], name: str, default: Any, *, minimum: int | None = None, maximum: int | None = None
) -> Any:
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise ConfigError(f"{SOURCE_NAME}: {name} is {text!r}: it must be an integer") from None
    if minimum is not None and value < minimum:
        raise ConfigError(f"{SOURCE_NAME}: {name} is {value}: it must be at least {minimum}")
    if maximum is not None and value > maximum:
        raise ConfigError(f"{SOURCE_NAME}: {name} is {value}: it must be at most {maximum}")
    return value

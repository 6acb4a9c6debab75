"""Counters that the tasks of an action add to: each task counts once, however often it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import functions as F

from shardwire.archive.arrow import Array

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame

STATUSES = ("complete", "recovered", "incomplete", "invalid")


class _Sums(AccumulatorParam["Counter[str]"]):
    """Counters that are added up by name."""

    def zero(self, value: Counter[str]) -> Counter[str]:
        return Counter()

    def addInPlace(self, value1: Counter[str], value2: Counter[str]) -> Counter[str]:
        value1.update(value2)
        return value1


@dataclass(frozen=True, slots=True)
class TaskCounters:
    """Sums by name. Exact where the tasks that count belong to the last stage of an action: Spark takes what a task
    counted with its result, and one result of each."""

    sums: Accumulator[Counter[str]]

    @classmethod
    def of(cls, context: SparkContext) -> TaskCounters:
        """Counters whose sums this driver reads."""
        return cls(context.accumulator(Counter(), _Sums()))

    @classmethod
    def of_messages(cls, messages: DataFrame) -> TaskCounters:
        """Counters of the messages of a DataFrame, counted in a job of its own."""
        counters = cls.of(messages.sparkSession.sparkContext)
        found = messages.groupBy("status").agg(F.count("*"), F.sum("payload_length")).collect()
        counters.add({"payload_bytes": sum(size or 0 for _, _, size in found)})
        counters.add({status: count for status, count, _ in found})
        return counters

    def add(self, counts: Mapping[str, int]) -> None:
        """Adds to the sums of these names."""
        self.sums.add(Counter(counts))

    def count_messages(self, messages: pa.RecordBatch) -> None:
        """Counts rows of messages by status, those without a hash as `unread`, and the bytes of their payloads."""
        unread = messages.column("entire_message_hash").null_count
        status: Any = messages.column("status")
        counts = {str(one["values"]): int(one["counts"].as_py()) for one in status.value_counts()}
        self.add(
            {
                **counts,
                "invalid": counts.get("invalid", 0) - unread,
                "unread": unread,
                "payload_bytes": pa.compute.sum(messages.column("payload_length")).as_py() or 0,
            }
        )

    def count_arrived(self, payload: Array) -> None:
        """Counts the bytes of segments that crossed the network."""
        lengths = pa.compute.binary_length(cast("Any", payload))
        self.add({"arrived_bytes": pa.compute.sum(lengths).as_py() or 0})

    def __getitem__(self, name: str) -> int:
        return self.sums.value[name]

    @property
    def messages(self) -> dict[str, int]:
        """Messages with a hash, by status."""
        return {status: self[status] for status in STATUSES if self[status]}

"""What a channel's SDS messages tell: traffic, gaps, acknowledgements, retransmissions, overhead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from shardwire.archive.arrow import batch_of
from shardwire.archive.unwrap import UnwrapStep, around_sds, check_steps, state_of, unwrap_batch
from shardwire.config import SdsWireFormat
from shardwire.config.checks import check_integer
from shardwire.errors import ConfigError
from shardwire.spark.arrow_calls import map_in_arrow
from shardwire.spark.columns import check_batch, nanoseconds_column, typed_column
from shardwire.spark.functions import decode_sds
from shardwire.spark.report_plot import SENDERS_COLOURED_MAX, SENDERS_LISTED_MAX, check_picture, draw_report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NANOSECONDS_PER_MILLISECOND = 1_000_000
# Of nanoseconds in 64 bits.
INTERVAL_MS_MAX = ((1 << 63) - 1) // NANOSECONDS_PER_MILLISECOND


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """Answers as lazy DataFrames; times are in ns, latencies in ms.

    Attributes:
        decoded: A row a wire message, without its content. Every answer starts from these rows: `decoded.persist()`
            where several are asked for, so that the archive is read once.
        messages: A row a transmission: sender_id, message_id, kind, timestamp, size_bytes, content_bytes, is_repeat and
            the causal history.
        traffic: By sender, kind and interval: messages, repeats, bytes, content bytes.
        overhead: By kind: messages, bytes, content bytes, overhead_share.
        gaps: A row a message that a causal history names and that had not arrived by then: named_first, named_by (how
            many messages), arrived (null where it never did), state "lost" or "late".
        acknowledgements: By sender: messages, acknowledged, and percentiles of the time until another participant's
            history named them.
        unread: How many messages were no SDS messages, by reason.
        interval_ms: Width of an interval of `traffic`.
    """

    decoded: DataFrame
    messages: DataFrame
    traffic: DataFrame
    overhead: DataFrame
    gaps: DataFrame
    acknowledgements: DataFrame
    unread: DataFrame
    interval_ms: int

    def plot(self, path: str | Path) -> None:
        """Draws traffic, overhead, acknowledgement latency and gaps into a picture, whose ending names its kind.

        Raises:
            ConfigError: The library matplotlib is missing, or does not know the ending.
        """
        check_picture(path)
        # Senders' names are peers' own: however many there are, few rows come to the driver.
        sent = self.traffic.groupBy("sender_id").agg(F.sum("bytes").alias("bytes")).orderBy(F.desc("bytes"))
        largest = [row["sender_id"] for row in sent.limit(SENDERS_COLOURED_MAX).collect()]
        named = F.when(F.col("sender_id").isin(largest), F.col("sender_id")).alias("sender_id")
        sizes = self.traffic.groupBy(named, "interval_start").agg(F.sum("bytes").alias("bytes"))
        busiest = self.acknowledgements.orderBy(F.desc("messages"), "sender_id").limit(SENDERS_LISTED_MAX)
        interval_ns = self.interval_ms * NANOSECONDS_PER_MILLISECOND
        start = _interval_start(F.col("named_first"), interval_ns).alias("interval_start")
        late = self.gaps.groupBy("state", start).agg(F.count("*").alias("messages"))
        traffic, overhead, acknowledgements, gaps = (
            [row.asDict() for row in answer.collect()] for answer in (sizes, self.overhead, busiest, late)
        )
        draw_report(traffic, overhead, acknowledgements, gaps, interval_ns).savefig(path, dpi=120)


def channel_report(
    df: DataFrame,
    *,
    payload: str = "payload",
    unwrap: Sequence[UnwrapStep] = (),
    sds: SdsWireFormat | None = None,
    timestamp: str | None = None,
    interval_ms: int = 60_000,
) -> ChannelReport:
    """Reports on a channel from its archived messages. Lazy: every answer is a plan of its own.

    Args:
        df: One wire message a row, of one channel.
        payload: The column with the message's bytes.
        unwrap: What is around the segments, as in `reconstruct`; "sds" or "sds-nim" in it may be left out.
        sds: The SDS wire where `unwrap` names none; None for "spec".
        timestamp: As in `reconstruct`.
        interval_ms: Width of an interval of `traffic`.

    Raises:
        ConfigError: A column is missing or has another type; an unknown step; `sds` and `unwrap` name different wires;
            an interval below 1 ms or above 292 years.
    """
    check_batch(df)
    check_integer("interval_ms", interval_ms, 1, INTERVAL_MS_MAX)
    given = check_steps(unwrap)
    steps, wire_format = around_sds(given) or (given, sds or "spec")
    if sds is not None and sds != wire_format:
        raise ConfigError(f"sds is {sds!r} and unwrap names the wire {wire_format!r}: leave one out")
    wire = df.select(
        typed_column(df, payload, "payload", "binary").alias("payload"),
        nanoseconds_column(df, timestamp).alias("timestamp"),
    )
    unwrapped = map_in_arrow(wire, _Unwrap(steps), _UNWRAPPED)
    decoded = _decoded(unwrapped.where("payload is not null or error is not null"), wire_format)
    messages = _messages(decoded.where("kind is not null"))
    unread = decoded.where("reason is not null").groupBy("reason")
    return ChannelReport(
        decoded=decoded,
        messages=messages,
        traffic=_traffic(messages, interval_ms * NANOSECONDS_PER_MILLISECOND),
        overhead=_overhead(messages),
        gaps=_gaps(messages),
        acknowledgements=_acknowledgements(messages),
        unread=unread.agg(F.count("*").alias("messages")),
        interval_ms=interval_ms,
    )


def _decoded(unwrapped: DataFrame, wire_format: SdsWireFormat) -> DataFrame:
    is_unwrapped = F.col("error").isNull()
    return unwrapped.select(
        decode_sds("payload", wire_format).alias("message"),
        "timestamp",
        "error",
        F.length("payload").alias("size_bytes"),
    ).select(
        "message.sender_id",
        "message.message_id",
        F.when(is_unwrapped, F.col("message.kind")).alias("kind"),
        "timestamp",
        "size_bytes",
        F.coalesce(F.length("message.content"), F.lit(0)).alias("content_bytes"),
        F.col("message.causal_history.message_id").alias("history"),
        F.coalesce("error", "message.error").alias("reason"),
    )


def _messages(decoded: DataFrame) -> DataFrame:
    from pyspark.sql import Window

    earlier = Window.partitionBy("sender_id", "message_id").orderBy("timestamp")
    return decoded.drop("reason").select("*", (F.row_number().over(earlier) > 1).alias("is_repeat"))


def _traffic(messages: DataFrame, interval_ns: int) -> DataFrame:
    start = _interval_start(F.col("timestamp"), interval_ns)
    return messages.groupBy("sender_id", "kind", start.alias("interval_start")).agg(*_sizes())


def _interval_start(time: Column, interval_ns: int) -> Column:
    # Times are peers' own, and no difference of theirs may overflow, which fails a job under ANSI, Spark's default.
    return F.try_subtract(time, F.pmod(time, F.lit(interval_ns)))


def _overhead(messages: DataFrame) -> DataFrame:
    share = (F.sum("size_bytes") - F.sum("content_bytes")) / F.sum("size_bytes")
    return messages.groupBy("kind").agg(*_sizes(), share.alias("overhead_share"))


def _sizes() -> list[Column]:
    return [
        F.count("*").alias("messages"),
        F.count(F.when(F.col("is_repeat"), 1)).alias("repeats"),
        F.sum("size_bytes").alias("bytes"),
        F.sum("content_bytes").alias("content_bytes"),
    ]


def _named(messages: DataFrame) -> DataFrame:
    """A row an id that a first transmission's history names."""
    return messages.where("not is_repeat").select(
        F.explode("history").alias("named_id"), F.col("timestamp").alias("named_at"), F.col("sender_id").alias("namer")
    )


def _arrivals(messages: DataFrame) -> DataFrame:
    return messages.where("kind = 'content'").groupBy("message_id").agg(F.min("timestamp").alias("arrived"))


def _gaps(messages: DataFrame) -> DataFrame:
    named = _named(messages).groupBy(F.col("named_id").alias("message_id"))
    wanted = named.agg(F.min("named_at").alias("named_first"), F.count("*").alias("named_by"))
    missing = wanted.join(_arrivals(messages), "message_id", "left").where("arrived is null or arrived > named_first")
    return missing.select("*", F.when(F.col("arrived").isNull(), "lost").otherwise("late").alias("state"))


def _acknowledgements(messages: DataFrame) -> DataFrame:
    sent = messages.where("kind = 'content'").groupBy("sender_id", "message_id").agg(F.min("timestamp").alias("sent"))
    named = _named(messages).withColumnRenamed("named_id", "message_id")
    # One's own history acknowledges nothing.
    by_others = (
        sent.join(named, "message_id")
        .where("namer != sender_id and named_at >= sent")
        .groupBy("sender_id", "message_id")
        .agg(F.min("named_at").alias("acknowledged"))
    )
    timed = sent.join(by_others, ["sender_id", "message_id"], "left").withColumn(
        "latency_ms", F.try_subtract("acknowledged", "sent") / NANOSECONDS_PER_MILLISECOND
    )
    percentiles = [
        F.expr(f"percentile(latency_ms, {share / 100})").alias(f"latency_p{share}_ms") for share in (50, 90, 99)
    ]
    return timed.groupBy("sender_id").agg(
        F.count("*").alias("messages"), F.count("acknowledged").alias("acknowledged"), *percentiles
    )


_UNWRAPPED = StructType([StructField("payload", BinaryType()), StructField("timestamp", LongType())]).add(
    "error", "string"
)


@dataclass(frozen=True, slots=True)
class _Unwrap:
    """Runs on executors: wire messages in, SDS messages out."""

    steps: tuple[UnwrapStep, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            payload, timestamp = batch.columns
            state, _ = unwrap_batch(state_of(payload, timestamp, pa.nulls(batch.num_rows, pa.string())), self.steps)
            yield batch_of({name: state.column(name) for name in ("payload", "timestamp", "error")})

"""The summary of an archive that no one machine holds: what `shardwire.archive.summarize` gives, counted by Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as F

from shardwire.archive.acknowledgements import OTHERS, SENDERS_MAX, UNKNOWN
from shardwire.archive.arrow import STATUSES
from shardwire.archive.report import (
    INTERVALS_MAX,
    MESSAGES_LISTED_MAX,
    PERCENTILES,
    SEVERAL,
    WHOLE,
    ArchiveSummary,
    KindTally,
    Latencies,
    Tally,
)
from shardwire.archive.unwrap import UnwrapStep, around_sds, check_steps
from shardwire.config import SegmentationConfig
from shardwire.spark.reconstruct import reconstruct
from shardwire.spark.report import NANOSECONDS_PER_MILLISECOND, channel_report

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def summarize_archive(
    df: DataFrame,
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    by: Sequence[str] = (),
    unwrap: Sequence[UnwrapStep] = (),
    timestamp: str | None = None,
    sender: str | None = None,
) -> ArchiveSummary:
    """Says what became of the messages of an archive, as `shardwire.archive.summarize` does, for `report_page`.

    What comes to the driver is as bounded as the page: sums by sender, by interval and by kind, and the messages that
    are listed. Every figure is the same up to 1,000 senders. Beyond that senders with the fewest messages share a row
    here, and there those that come last.

    Args:
        df: One wire message a row; the other arguments are those of `reconstruct`.
        config: How the payloads were segmented.
        payload: The column with the message's bytes.
        by: Columns that keep messages apart.
        unwrap: What is around the segments; with "sds" or "sds-nim" in it acknowledgements and overhead are told too.
        timestamp: A column of times.
        sender: A column with who sent the row.

    Raises:
        ConfigError: As `reconstruct` raises it.
    """
    started_s = time.monotonic()
    found = ArchiveSummary()
    rows = reconstruct(
        df, config, payload=payload, by=by, include_payload=False, unwrap=unwrap, timestamp=timestamp, sender=sender
    )
    # Asked several times; without payloads it is small.
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        _read_messages(found, rows)
    finally:
        rows.unpersist()
    if around_sds(check_steps(unwrap)) is not None:
        _read_sds(found, channel_report(df, payload=payload, unwrap=unwrap, timestamp=timestamp).messages)
    found.seconds = time.monotonic() - started_s
    return found


def _read_messages(found: ArchiveSummary, rows: DataFrame) -> None:
    unread = rows.where("entire_message_hash is null").groupBy("error")
    found.unreadable = {
        row["error"]: row["rows"] for row in unread.agg(F.sum("segments_received").alias("rows")).collect()
    }
    names = F.col("senders")
    label = F.when(F.size(names) == 1, names[0]).when(F.size(names) > 1, SEVERAL).otherwise(UNKNOWN)
    messages = rows.where(F.col("entire_message_hash").isNotNull() & F.col("status").isin(*STATUSES)).withColumn(
        "label", label
    )
    [[begin_ns, end_ns]] = messages.agg(F.min("first_timestamp"), F.max("first_timestamp")).collect()
    begin_ns, end_ns = begin_ns or 0, end_ns or 0
    found.interval_ns = max(1, -(-(end_ns - begin_ns + 1) // INTERVALS_MAX))
    for row in _sums(messages):
        _add(found.total, row)
    for row in _sums(messages, _shared(messages, "label").alias("place")):
        _add(found.senders.setdefault(row["place"], Tally()), row)
    # Times are peers' own, and their difference may take more than 64 bits.
    interval = F.lit(found.interval_ns)
    since = F.pmod(F.pmod(F.col("first_timestamp"), interval) - F.lit(begin_ns % found.interval_ns), interval)
    at = F.col("first_timestamp") - since
    for row in _sums(messages.where("first_timestamp is not null"), at.alias("place")):
        _add(found.times.setdefault(row["place"], Tally()), row)
    unfinished = messages.where("status in ('incomplete', 'invalid')").orderBy(
        "entire_message_hash", F.coalesce("send_id", F.lit("")), "status", "segments_received", "label"
    )
    for row in unfinished.limit(MESSAGES_LISTED_MAX).collect():
        found.unfinished.append(
            {
                "hash": row["entire_message_hash"].hex(),
                "status": row["status"],
                "sender": row["label"],
                "received": row["segments_received"],
                "needed": row["data_segment_count"],
                "error": row["error"] or "",
            }
        )


def _shared(rows: DataFrame, name: str) -> Column:
    """Who has a row on the page: senders with the most rows, up to a limit, and the others in one."""
    largest = rows.groupBy(name).count().orderBy(F.desc("count"), name).limit(SENDERS_MAX + 1).collect()
    kept = [row[name] for row in largest]
    if len(kept) <= SENDERS_MAX:
        return F.col(name)
    return F.when(F.col(name).isin(*kept[:SENDERS_MAX]), F.col(name)).otherwise(OTHERS)


def _sums(messages: DataFrame, *place: Column) -> Any:
    """Rows with the sums of a place and a status."""

    def of(name: str) -> Column:
        return F.coalesce(F.col(name), F.lit(0))

    expected = of("data_segment_count")
    lacking = F.greatest(F.lit(0), expected - of("segments_received"))
    missing = F.when(F.col("status").isin(*WHOLE), of("data_segments_recovered")).otherwise(lacking)
    return (
        messages.groupBy(*place, "status")
        .agg(
            F.count("*").alias("messages"),
            F.sum(expected).alias("segments"),
            F.sum(missing).alias("missing"),
            F.sum(of("duplicates")).alias("duplicates"),
            F.sum(of("data_segments_recovered")).alias("recovered"),
        )
        .collect()
    )


def _add(tally: Tally, row: Any) -> None:
    tally.statuses[row["status"]] += row["messages"]
    tally.segments += row["segments"]
    tally.missing += row["missing"]
    tally.duplicates += row["duplicates"]
    tally.recovered += row["recovered"]


def _read_sds(found: ArchiveSummary, messages: DataFrame) -> None:
    messages = messages.persist(StorageLevel.DISK_ONLY)
    try:
        sizes = messages.groupBy("kind").agg(
            F.count("*").alias("messages"),
            F.sum("size_bytes").alias("size_bytes"),
            F.sum("content_bytes").alias("content_bytes"),
        )
        for row in sizes.collect():
            found.kinds[row["kind"]] = KindTally(
                row["messages"], size_bytes=row["size_bytes"], content_bytes=row["content_bytes"]
            )
        _read_latencies(found, messages)
    finally:
        messages.unpersist()


def _read_latencies(found: ArchiveSummary, messages: DataFrame) -> None:
    name = F.coalesce(F.when(F.col("sender_id") != "", F.col("sender_id")), F.lit(UNKNOWN))
    messages = messages.withColumn("name", name)
    # Two senders with one id sent two messages.
    sent = (
        messages.where("kind = 'content'")
        .groupBy("message_id", F.col("name").alias("sender"))
        .agg(F.min("timestamp").alias("sent"), F.count("*").alias("times"))
    )
    if "content" in found.kinds:
        [[repeats]] = sent.agg(F.sum(F.col("times") - 1)).collect()
        found.kinds["content"].repeats = repeats or 0
    named = messages.select(
        F.explode("history").alias("message_id"), F.col("name").alias("who"), F.col("timestamp").alias("time")
    )
    timed = acknowledged(sent, named).select(
        _shared(sent, "sender").alias("sender"), (F.col("waited") / NANOSECONDS_PER_MILLISECOND).alias("ms"), "is_named"
    )
    counts = timed.groupBy("sender").agg(
        F.count("*").alias("messages"), F.count(F.when(F.col("is_named"), 1)).alias("heard")
    )
    for row in counts.collect():
        if missing := row["messages"] - row["heard"]:
            found.unacknowledged[row["sender"]] = missing
        if row["heard"]:
            found.latencies[row["sender"]] = Latencies(row["heard"], None, None, None)
    by_sender = Window.partitionBy("sender")
    ranked = timed.where("ms is not null").select(
        "sender",
        "ms",
        (F.row_number().over(by_sender.orderBy("ms")) - 1).alias("rank"),
        F.count("*").over(by_sender).alias("count"),
    )
    shares = [
        F.max(F.when(F.col("rank") == F.floor((F.col("count") - 1) * share / 100), F.col("ms"))).alias(f"p{share}")
        for share in PERCENTILES
    ]
    for row in ranked.groupBy("sender").agg(*shares).collect():
        heard_of = found.latencies[row["sender"]].acknowledged
        found.latencies[row["sender"]] = Latencies(heard_of, *(row[f"p{share}"] for share in PERCENTILES))


def acknowledged(sent: DataFrame, named: DataFrame) -> DataFrame:
    """Who another participant's history named, and how long after.

    A join would cost the product of those that claim one message id and of those that name it: here the rows of an id
    are sorted, and each looks at what lies next to it.

    Args:
        sent: message_id, sender and the time, `sent`; a row each.
        named: message_id, who names it, and the time.

    Returns:
        sender, is_named and waited, which is null where a time is unknown.
    """
    events = sent.select(
        "message_id", F.col("sender").alias("who"), F.col("sent").alias("time"), F.lit(False).alias("is_naming")
    ).unionByName(named.withColumn("is_naming", F.lit(True)))
    message = Window.partitionBy("message_id")
    # The latest first: frames that grow cost a row each, those that shrink all rows each. What was sent at an unknown
    # time comes last: every history names it.
    behind = message.orderBy(F.desc_nulls_last("time"), F.desc("is_naming"), "who")
    naming = F.when(F.col("is_naming") & F.col("time").isNotNull(), F.struct("time", "who"))
    without_time = F.when(F.col("is_naming") & F.col("time").isNull(), F.col("who"))
    is_change = naming.isNotNull() & (F.col("next.who") != F.col("who"))
    found = (
        events.withColumn(
            "next", F.last(naming, ignorenulls=True).over(behind.rowsBetween(Window.unboundedPreceding, -1))
        )
        # The next one of somebody else than `next`.
        .withColumn(
            "other",
            F.last(F.when(is_change, F.col("next")), ignorenulls=True).over(
                behind.rowsBetween(Window.unboundedPreceding, Window.currentRow)
            ),
        )
        .withColumn("lowest", F.min(without_time).over(message))
        .withColumn("highest", F.max(without_time).over(message))
        .where("not is_naming")
    )
    # One's own history acknowledges nothing.
    named_at = F.when(F.col("next.who") != F.col("who"), F.col("next.time")).otherwise(F.col("other.time"))
    is_named = (
        named_at.isNotNull()
        | F.coalesce(F.col("lowest") != F.col("who"), F.lit(False))
        | F.coalesce(F.col("highest") != F.col("who"), F.lit(False))
    )
    return found.select(
        F.col("who").alias("sender"),
        F.try_subtract(named_at, F.col("time")).alias("waited"),
        is_named.alias("is_named"),
    )

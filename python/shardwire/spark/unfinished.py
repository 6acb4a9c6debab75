"""Messages that a stream has not finished: read from its checkpoint, which stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from shardwire.archive.arrow import ERROR, HASH, PAYLOAD, SEND_ID, SENDER, TIMESTAMP
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_kind, check_text
from shardwire.errors import ConfigError
from shardwire.spark import versions
from shardwire.spark.columns import column_of, name_in_state
from shardwire.spark.files import first_line
from shardwire.spark.reconstruct import reconstruct_segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def unfinished_messages(
    spark: SparkSession,
    checkpoint: str,
    config: SegmentationConfig | None = None,
    *,
    by: Sequence[str] = (),
    include_payload: bool = True,
) -> DataFrame:
    """A row for each message of which a stream holds segments and that it has not given a row, in its columns. Lazy.

    The query must not be running. Its state stays: a message that is told here as incomplete has its row in the
    stream's output when it is whole or expires.

    Args:
        spark: A session.
        checkpoint: Of a query of `reconstruct_stream`.
        config: As that query had it, like `by`.

    Raises:
        ConfigError: PySpark is older than 4.0, or no such query committed anything there.
    """
    versions.require_state()
    check_text("checkpoint", checkpoint)
    key = [column_of(name) for name in by]
    known = _state(spark, checkpoint, "known").where("not value.is_finished and value.held_bytes = 0")
    keys = [F.col("key").getField(name_in_state(name)).alias(name) for name in (*by, HASH, SEND_ID)]
    nothing = known.select(
        *keys,
        F.lit(None).cast("binary").alias(PAYLOAD),
        F.col("value.first_timestamp").alias(TIMESTAMP),
        F.lit(None).cast("string").alias(SENDER),
        F.coalesce("value.error", F.lit("the payload is null")).alias(ERROR),
    )
    held = _state(spark, checkpoint, "segments").select(
        *keys,
        F.col("list_element.payload").alias(PAYLOAD),
        F.col("list_element.timestamp").cast("bigint").alias(TIMESTAMP),
        F.col("list_element.sender").alias(SENDER),
        F.lit(None).cast("string").alias(ERROR),
    )
    names = (HASH, SEND_ID, PAYLOAD, TIMESTAMP, SENDER, ERROR)
    segments = held.unionByName(nothing).select(*key, *names)
    check_kind("config", config, SegmentationConfig)
    return reconstruct_segments(segments, config or SegmentationConfig(), by, include_payload)


def _state(spark: SparkSession, checkpoint: str, variable: str) -> DataFrame:
    state = spark.read.format("statestore").option("path", checkpoint).option("stateVarName", variable)
    try:
        return state.load()
    except (PySparkException, Py4JError) as error:
        raise ConfigError(
            f"checkpoint {checkpoint!r} is none of a query of reconstruct_stream that committed anything "
            f"({first_line(error)}): give the directory that the query had"
        ) from None

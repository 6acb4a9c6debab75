"""Messages that a stream has not finished: read from its checkpoint, which stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from shardwire.archive.arrow import HASH, MESSAGE_SCHEMA, SEND_ID
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_kind, check_list, check_text
from shardwire.errors import ConfigError
from shardwire.spark import versions
from shardwire.spark.columns import columns_of_names, from_state, name_in_state
from shardwire.spark.files import first_line
from shardwire.spark.reconstruct import message_schema
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.stream_known import KNOWN_SCHEMA, Known, put_together
from shardwire.spark.stream_state import BUCKET

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
    """A row for each message that a stream has not given a row, as it would give it now. Lazy.

    The query must not be running. Its state stays: a message that is told here as incomplete has its row in the
    stream's output when it is whole or expires.

    Args:
        spark: A session.
        checkpoint: Of a query of `reconstruct_stream`.
        config: As that query had it, like `by`.

    Raises:
        ConfigError: PySpark is older than 4.0, no such query committed anything there, or it had another `by`.
    """
    versions.require_state()
    check_text("checkpoint", checkpoint)
    check_kind("config", config, SegmentationConfig)
    check_list("by", by, "columns")
    known, segments = (_state(spark, checkpoint, name) for name in ("known", "segments"))
    keyed = set(known.select("key.*").columns)
    if BUCKET not in keyed:
        raise ConfigError(
            f"checkpoint {checkpoint!r} is of an earlier shardwire, and this one cannot read its state: give one of a "
            "query that was begun anew, with a new output"
        )
    times = {name: name_in_state(name, TimestampType()) for name in by}
    kept = [time if time in keyed else name_in_state(name) for name, time in times.items()]
    if {*kept, BUCKET} != keyed:
        raise ConfigError(
            f"by is {list(by)!r}, and the query of checkpoint {checkpoint!r} kept messages apart by other columns: "
            "give those"
        )
    keys = [F.col("key").getField(name).alias(name) for name in kept]
    keys += [F.col("user_map_key").getField(name).alias(ours) for name, ours in (("hash", HASH), ("send_id", SEND_ID))]
    # Prefixed: a column of `by` may be called like one of these.
    fields = [F.col("user_map_value").getField(name).alias(f"shardwire_known_{name}") for name in KNOWN_SCHEMA.names]
    known = known.select(*keys, *fields)
    segments = segments.select(*keys, F.explode("user_map_value.segments").alias("segment")).select(
        *columns_of_names((*kept, HASH, SEND_ID)), "segment.*"
    )
    message = columns_of_names((*kept, HASH, SEND_ID))
    together = known.groupBy(*message).cogroup(segments.groupBy(*message))
    put = partial(_put_together, config or SegmentationConfig(), include_payload, len(by))
    messages = together.applyInArrow(put, message_schema(known, kept))
    return messages.select(*map(from_state, kept, by), *MESSAGE_FIELDS.names)


def _put_together(
    config: SegmentationConfig, include_payload: bool, by_count: int, known: pa.Table, segments: pa.Table
) -> pa.Table:
    """Runs on executors: what is known of one message and the segments that are held of it in, its row out."""
    table = known.select(range(by_count))
    for place, column in enumerate(table.schema):
        # A cast of the whole table would lose the rows of one without columns.
        table = table.set_column(place, column.name, table.column(place).cast(_in_utc(column.type)))
    rows = []
    for digest, send_id, *state in zip(*(column.to_pylist() for column in known.columns[by_count:]), strict=True):
        held = list(zip(*(column.to_pylist() for column in segments.columns[by_count + 2 :]), strict=True))
        rows += put_together(config, include_payload, [((digest, send_id), Known.from_state(tuple(state)), held)])
    for field in MESSAGE_SCHEMA:
        table = table.append_column(field, pa.array([row[field.name] for row in rows], field.type))
    return table


def _in_utc(kind: Any) -> Any:
    """A type as Spark takes it back: it gives times in the session's zone, and refuses them in any but UTC."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _state(spark: SparkSession, checkpoint: str, variable: str) -> DataFrame:
    state = spark.read.format("statestore").option("path", checkpoint).option("stateVarName", variable)
    try:
        return state.load()
    except (PySparkException, Py4JError) as error:
        raise ConfigError(
            f"checkpoint {checkpoint!r} is none of a query of reconstruct_stream that committed anything "
            f"({first_line(error)}): give the directory that the query had"
        ) from None

"""Rows of an archive that are no segment, each with the reason, its place and its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from shardwire import _native
from shardwire.archive.arrow import batch_of
from shardwire.archive.unwrap import UnwrapStep, check_steps, state_of, unwrap_batch
from shardwire.config import SegmentationConfig, SegmentWireFormat
from shardwire.config.checks import check_kind
from shardwire.errors import ConfigError
from shardwire.spark.arrow_calls import map_in_arrow
from shardwire.spark.columns import check_distinct, clashing, column_of, columns_of_names, typed_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REASON = "reason"


def dead_letters(
    df: DataFrame,
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    unwrap: Sequence[UnwrapStep] = (),
) -> DataFrame:
    """The rows that `reconstruct` counts as no segment, as they are, with a column `reason`. Lazy.

    Their place is in the columns that they have: `topic`, `partition` and `offset` of Kafka; of files, select
    `input_file_name()` before.

    Args:
        df: One wire message a row.
        config: How the payloads were segmented.
        payload: The column with the message's bytes (binary).
        unwrap: What is around the segments, as in `reconstruct`.

    Raises:
        ConfigError: The column is missing or not binary, there is a column `reason`, or a step is unknown.
    """
    check_kind("config", config, SegmentationConfig)
    config = config or SegmentationConfig()
    steps = check_steps(unwrap)
    typed_column(df, payload, "payload", "binary")
    check_distinct(df)
    if clashing(df, [REASON], df.columns):
        raise ConfigError(f"the DataFrame has a column {REASON!r}, which the result needs: rename it before")
    schema = StructType([*df.schema.fields, StructField(REASON, StringType())])
    # The payload last, so that the others keep their positions.
    arranged = df.select(*columns_of_names(name for name in df.columns if name != payload), column_of(payload))
    ordered = StructType([schema[name] for name in (*arranged.columns, REASON)])
    found = map_in_arrow(
        arranged.where(column_of(payload).isNotNull()),
        _Unreadable(steps, config.wire_format, config.max_total_segments),
        ordered,
    )
    return found.select(*columns_of_names(schema.names))


@dataclass(frozen=True, slots=True)
class _Unreadable:
    steps: tuple[UnwrapStep, ...]
    wire_format: SegmentWireFormat
    max_total_segments: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            *rest, payload = batch.columns
            nothing = pa.nulls(batch.num_rows)
            state, _ = unwrap_batch(state_of(payload, nothing, nothing), self.steps)
            error = _native.arrow_unwrap_segment(state, self.wire_format, self.max_total_segments).column("error")
            if error.null_count < batch.num_rows:
                columns = dict(zip(batch.schema.names, [*rest, payload], strict=True))
                yield batch_of({**columns, REASON: error}).filter(error.is_valid())


def with_file(df: DataFrame, name: str = "file") -> DataFrame:
    """The DataFrame with the file that each row comes from, where it has no such column."""
    return df if name in df.columns else df.withColumn(name, F.input_file_name())

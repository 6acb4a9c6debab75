"""Segments from messages, and hashes of whole DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from shardwire import _native
from shardwire.archive.arrow import batch_of, parameters
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_bool, check_kind, check_text
from shardwire.errors import ConfigError
from shardwire.quoting import listed
from shardwire.spark.arrow_calls import map_in_arrow
from shardwire.spark.columns import check_distinct, clashing, column_of, columns_of_names, typed_column
from shardwire.spark.functions import keccak256_array
from shardwire.spark.schema import SEGMENT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_keccak256(
    df: DataFrame, column: str = "payload", *, output: str = "keccak256", keep_column: bool = True
) -> DataFrame:
    """The DataFrame with the Keccak-256 of a binary column, in one pass over whole batches. Lazy.

    Args:
        df: Any DataFrame.
        column: The column that is hashed.
        output: The column that is added.
        keep_column: False leaves the hashed column out, which spares its way back from Python to Java.

    Raises:
        ConfigError: The column is missing or not binary, or `output` is taken.
    """
    typed_column(df, column, "column", "binary")
    check_distinct(df)
    check_text("output", output)
    check_bool("keep_column", keep_column)
    if clashing(df, [output], df.columns):
        raise ConfigError(f"output is {output!r}, a column that the DataFrame has already: give another name")
    kept = [name for name in df.columns if keep_column or name != column]
    schema = StructType([*(df.schema[name] for name in kept), StructField(output, BinaryType())])
    # The hashed column last, so that the others keep their positions.
    arranged = df.select(*columns_of_names(name for name in df.columns if name != column), column_of(column))
    return map_in_arrow(arranged, _Hash(column, output, tuple(kept)), schema)


def segment_messages(df: DataFrame, config: SegmentationConfig | None = None, *, payload: str = "payload") -> DataFrame:
    """A row a segment for every payload. Lazy.

    Columns: those of `df` without the payload, then entire_message_hash, segment (the bytes to transmit), segment_index
    (data segments first), is_parity, data_segment_count, parity_segment_count, error. A payload that does not fit one
    message has one row with an `error` and no segment; a null payload has none. Under `draft` a small payload is its
    own only segment, with both counts 0.

    Args:
        df: One payload a row.
        config: How payloads are segmented.
        payload: The column with the payloads (binary).

    Raises:
        ConfigError: The column is missing or not binary, or a column has a name that the result needs.
    """
    typed_column(df, payload, "payload", "binary")
    check_distinct(df)
    kept = [name for name in df.columns if name != payload]
    taken = sorted(clashing(df, kept, SEGMENT_FIELDS.names))
    if taken:
        raise ConfigError(f"the DataFrame has the columns {listed(taken)}, which the result needs: rename them before")
    schema = StructType([*(df.schema[name] for name in kept), *SEGMENT_FIELDS.fields])
    messages = df.where(column_of(payload).isNotNull()).select(*columns_of_names(kept), column_of(payload))
    check_kind("config", config, SegmentationConfig)
    return map_in_arrow(messages, _Segmentation(config or SegmentationConfig()), schema)


@dataclass(frozen=True, slots=True)
class _Hash:
    column: str
    output: str
    kept: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = {name: batch.column(name) for name in self.kept}
            columns[self.output] = keccak256_array(batch.column(self.column))
            yield batch_of(columns)


@dataclass(frozen=True, slots=True)
class _Segmentation:
    config: SegmentationConfig

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        native_parameters = parameters(self.config)
        for batch in batches:
            *kept, payload = batch.columns
            segments = _native.arrow_segment_rows(payload, native_parameters)
            row = segments.column("row")
            columns = {name: column.take(row) for name, column in zip(batch.schema.names[:-1], kept, strict=True)}
            yield batch_of({**columns, **{name: segments.column(name) for name in SEGMENT_FIELDS.names}})

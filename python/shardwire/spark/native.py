"""The native module as the executors call it: a configuration in, Arrow in, Arrow out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from shardwire import _native
from shardwire.config import SegmentationConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Spark reads the annotations of a UDF at run time, where pyarrow's classes take no parameters.
if TYPE_CHECKING:
    Array: TypeAlias = pa.Array[Any]
else:
    Array = pa.Array


def parameters(config: SegmentationConfig) -> _native.SegmentationParameters:
    """The native form of a configuration; made where it is used, because it does not travel in a plan."""
    return _native.SegmentationParameters(
        segment_size_bytes=config.segment_size_bytes,
        enable_reed_solomon=config.enable_reed_solomon,
        parity_rate=config.parity_rate,
        parity_for_single_segment=config.parity_for_single_segment,
        erasure_code=config.erasure_code,
        wire_format=config.wire_format,
        max_total_segments=config.max_total_segments,
        max_tail_candidates=config.max_tail_candidates or config.segment_size_bytes,
    )


def limits_of(config: SegmentationConfig) -> dict[str, int]:
    """What the native state machines hold of one message, as their arguments."""
    limits = config.limits
    return {
        "candidates_per_slot_max": limits.candidates_per_slot_max,
        "held_bytes_max": limits.buffered_bytes_per_sender_max,
        "work_budget": limits.work_budget,
    }


def batch_of(columns: Mapping[str, Array]) -> pa.RecordBatch:
    """A record batch of named columns."""
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def columns_of(batch: pa.RecordBatch) -> dict[str, Array]:
    """The columns of a batch by their names."""
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def map_in_arrow(
    df: DataFrame, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """`DataFrame.mapInArrow` of a callable object. Lazy."""
    names = df.columns
    if any("." in name or "`" in name for name in names):
        # PySpark itself reads such names of the rows that it hands over as the way into a struct.
        df = df.toDF(*(f"shardwire_{place}" for place in range(len(names))))
        run = partial(_run_named, run, names)
    # Spark looks for the code of a plain function, which a callable object does not have.
    return df.mapInArrow(partial(_run, run), schema)


def _run(
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    _freeze_imports()
    return run(batches)


def _run_named(
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    return run(batch.rename_columns(names) for batch in batches)


@cache
def _freeze_imports() -> None:
    # A worker collects garbage after every task, which takes tens of milliseconds for what was only imported.
    gc.freeze()


def finished(machine: _native.ArrowReconstructor | _native.ArrowLocalReconstructor) -> Iterator[pa.RecordBatch]:
    """What a machine has left, asked for when everything before it was taken."""
    yield from machine.finish()


def flat(batches: Iterable[Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """One stream of what several calls returned."""
    for group in batches:
        yield from group

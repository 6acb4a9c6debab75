"""How executors call the native module: Arrow batches in, Arrow batches out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from shardwire import _native

# Java takes less time for as many bytes in batches of this size than in those of many MB.
OUTPUT_BATCH_BYTES = 1 << 20

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


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
    return flat(parts(batch, OUTPUT_BATCH_BYTES) for batch in run(batches))


def _run_named(
    run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    # A batch of pyarrow before 16 takes no new names.
    return run(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)


def parts(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """A batch as several of about so many bytes; a row stays whole. Nothing is copied."""
    rows = max(1, batch.num_rows * size_bytes // max(1, batch.nbytes))
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


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

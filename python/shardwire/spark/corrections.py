"""Corrections of messages that are whole within a partition, from what other partitions hold of them.

One message may be whole in several partitions, and one that a partition recovered through parity is complete where the
missing segments lie in others. Files without such rows stay as they are; the others are written anew, each task its own
file with the corrections for it: no payload crosses the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from shardwire.spark.columns import column_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from shardwire.spark.files import SinkFiles

# Corrections that go to every executor of one job at once.
CORRECTIONS_MAX = 200_000
# The number of the task that wrote a file; a directory above it may be called so too.
_PART = r"part-(\d+)-[^/]*$"
_PREFIX = "shardwire_corrected_"
_FILE, _PARTITION, _RECOVERED = (f"{_PREFIX}{name}" for name in ("file", "partition", "recovered"))


def corrected(
    corrections: DataFrame, by: Sequence[str], staged: SinkFiles, source: str, schema: StructType, target: str
) -> set[str]:
    """Writes those of the files that need it to `target`, corrected; returns their names.

    Args:
        corrections: Rows in the columns of messages: `first_timestamp` holds the partition, `error` the number of data
            segments that came nowhere, or null where another partition's row stands for the message.
        by: The columns that keep messages apart.
        staged: Where both directories are.
        source: The directory of the files.
        schema: Their columns.
        target: A directory.
    """
    counts = {row[0]: row[1] for row in corrections.groupBy("first_timestamp").count().collect()}
    files: dict[int, list[str]] = {}
    for name in staged.names(source):
        found = re.match(_PART, name)
        if found and int(found[1]) in counts:
            files.setdefault(int(found[1]), []).append(name)
    spark = corrections.sparkSession
    for partitions in _jobs(counts):
        paths = [staged.path(f"{source}/{name}") for partition in partitions for name in files.get(partition, ())]
        if paths:
            wrong = corrections.where(F.col("first_timestamp").isin(partitions))
            rows = spark.read.schema(schema).parquet(*paths)
            staged.write(_right(rows, wrong, by).write.mode("append"), target)
    return {name for own in files.values() for name in own}


def _jobs(counts: Mapping[int, int]) -> Iterator[list[int]]:
    """The partitions in groups whose corrections an executor can hold."""
    group: list[int] = []
    held = 0
    for partition in sorted(counts):
        if group and held + counts[partition] > CORRECTIONS_MAX:
            yield group
            group, held = [], 0
        group.append(partition)
        held += counts[partition]
    if group:
        yield group


def _right(rows: DataFrame, wrong: DataFrame, by: Sequence[str]) -> DataFrame:
    """The rows of one group of files without those that are dropped, and with the right status."""
    # Spark's join finds no two values without a type equal, which are null in every row.
    typed = [name for name in by if not isinstance(rows.schema[name].dataType, NullType)]
    identity = ("entire_message_hash", "send_id", *typed)
    told = wrong.select(
        *(column_of(name).alias(f"{_PREFIX}{name}") for name in identity),
        F.col("first_timestamp").alias(_PARTITION),
        F.col("error").cast("int").alias(_RECOVERED),
    )
    number = F.regexp_extract(F.input_file_name(), _PART, 1).cast("bigint")
    same: Column = F.col(_FILE) == F.col(_PARTITION)
    for name in identity:
        same &= column_of(name).eqNullSafe(column_of(f"{_PREFIX}{name}"))
    joined = rows.withColumn(_FILE, number).join(F.broadcast(told), same, "left")
    kept = joined.where(F.col(_PARTITION).isNull() | F.col(_RECOVERED).isNotNull())
    changed = F.col(_RECOVERED).isNotNull()
    is_complete = F.col(_RECOVERED) == 0
    changes = {
        "status": F.when(is_complete, "complete").otherwise("recovered"),
        "data_segments_recovered": F.col(_RECOVERED),
        "erasure_code": F.when(~is_complete, F.col("erasure_code")),
    }
    return kept.select(
        *(
            F.when(changed, changes[name]).otherwise(F.col(name)).alias(name) if name in changes else column_of(name)
            for name in rows.columns
        )
    )

"""An archive as Spark reads it: Parquet files with the columns of all of them; what it cannot read is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from shardwire.errors import ConfigError
from shardwire.spark.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task of an archive takes in about as much as a split of Spark's, in neighbouring files.
GROUP_BYTES = 128 << 20
GROUPS_MAX = 256
_LISTING_CONF = "spark.sql.sources.parallelPartitionDiscovery.threshold"
# Off while a plan over `read_in_order` runs: the groups are to stay partitions of their own.
UNION_CONF = "spark.sql.unionOutputPartitioning"
# What Spark says of what is no archive, and what is told instead.
_NO_ARCHIVE = {
    "PATH_NOT_FOUND": "is not there: give a directory or a file that exists",
    "UNABLE_TO_INFER_SCHEMA": "has no Parquet files: give a directory or a file of them",
    **dict.fromkeys(
        ("Illegal Parquet type", "UNSUPPORTED_TIME_TYPE"),
        "has a column of a type that this Spark does not read, as times of day: write its files anew with texts for "
        "it, or without it",
    ),
}
LEAVES_OUT = "spark.sql.files.ignoreCorruptFiles=true"
_NO_PARQUET = f"is no Parquet file, or damaged: take it away; {LEAVES_OUT} leaves such files out"
# The same of one of its files.
_NO_FILE = {
    **dict.fromkeys(
        # The latter of Spark 3.5.
        ("PARQUET_COLUMN_DATA_TYPE_MISMATCH", "Parquet column cannot be converted"),
        "has a column of another type than the first file: write it anew as that is",
    ),
    "FILE_NOT_EXIST": "was taken away meanwhile: run again while the archive stays as it is",
    "is not a Parquet file": _NO_PARQUET,
    "Could not read footer": _NO_PARQUET,
    "FAILED_READ_FILE": _NO_PARQUET,
}
# Which one that is, in the words of Spark and in those of Parquet.
_NAMED_FILE = re.compile(r"(?:reading|footer for|converted in) file:? (.+?)\.\s|: (\w+:.+?) is not a Parquet file")
# Of the columns of two files that Spark does not bring together, those that it would read as the same numbers.
_STRUCT = re.compile(r'"STRUCT<.*>"')
_NUMBER_OR_TIME = re.compile(r"(\w+|`[^`]+`): (BIGINT|TIMESTAMP(?:_NTZ)?)\b")


def read_parquet(spark: SparkSession, *paths: str) -> DataFrame:
    """Parquet files, with the columns of all of them: a file may lack one, which is null in its rows.

    Spark by itself takes the columns of the first file alone.

    Raises:
        ConfigError: A column is a number in one file and a time in another, which Spark would read as that number,
            whatever its unit; or as `unreadable_told` raises it.
    """
    archive = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    with unreadable_told(archive):
        try:
            return spark.read.option("mergeSchema", "true").parquet(*paths)
        except (PySparkException, Py4JError) as error:
            if "CANNOT_MERGE_SCHEMAS" not in str(error):
                raise
            found: list[dict[str, str]] = [dict(_NUMBER_OR_TIME.findall(one)) for one in _STRUCT.findall(str(error))]
        first, other = found[:2] if len(found) > 1 else [{}, {}]
        for name in first.keys() & other.keys():
            if (first[name] == "BIGINT") != (other[name] == "BIGINT"):
                raise ConfigError(
                    f"the archive {archive!r} has {name!r} as numbers (bigint, or nanoseconds) in some files "
                    "and as times in others, which Spark takes for numbers too: write those anew as the others are, or "
                    "reconstruct with shardwire.archive, which takes both"
                )
        # What else differs is told where it is read, and may never be.
        return spark.read.parquet(*paths)


def read_in_order(spark: SparkSession, source: str) -> DataFrame:
    """Parquet files in the order of their names, neighbours in one partition.

    Spark packs small files by their sizes, and messages that reach over the end of a file meet their rest elsewhere.
    """
    whole = read_parquet(spark, source)
    listed = Files(spark).listed(source)
    files = [
        (str(status.getPath().toString()), int(status.getLen()))
        for status in listed
        if not str(status.getPath().getName()).startswith(("_", "."))
    ]
    total = sum(size for _, size in files)
    groups = _groups(files, total, 2 * spark.sparkContext.defaultParallelism)
    nested = any(status.isDirectory() for status in listed)
    if nested or len(groups) in (0, len(files)):
        return whole
    listing = spark.conf.get(_LISTING_CONF)
    if files[0][0].startswith("file:"):
        # Otherwise Spark starts a job for each group, a task a file, to see what was listed just now. Where each look
        # takes a round trip that is right.
        spark.conf.set(_LISTING_CONF, str(len(files)))
    try:
        parts = [spark.read.schema(whole.schema).parquet(*group).coalesce(1) for group in groups]
    finally:
        spark.conf.set(_LISTING_CONF, str(listing))
    return reduce(DataFrame.union, parts)


@contextmanager
def unreadable_told(source: object) -> Iterator[None]:
    """Tells what Spark cannot read of an archive in one line, where it is a path.

    Raises:
        ConfigError: It is not there, or a file of it is none or damaged.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = str(error)
        reasons = [reason for mark, reason in _NO_ARCHIVE.items() if mark in said]
        if not reasons:
            found = _NAMED_FILE.search(said)
            file = repr(found[1] or found[2]) if found else "a file"
            reasons = [f"holds {file}, which {reason}" for mark, reason in _NO_FILE.items() if mark in said]
        if not reasons or not isinstance(source, str):
            raise
        raise ConfigError(f"the archive {source!r} {reasons[0]}") from None


def _groups(files: list[tuple[str, int]], total: int, groups_min: int) -> list[list[str]]:
    """Neighbouring files, about as many bytes in every group."""
    wanted = max(total // GROUPS_MAX, min(GROUP_BYTES, total // max(1, groups_min)))
    groups: list[list[str]] = []
    held = 0
    for path, size in files:
        # Half of a file too much is as good as half of one too little.
        if not groups or held + size // 2 > wanted:
            groups.append([])
            held = 0
        groups[-1].append(path)
        held += size
    return groups

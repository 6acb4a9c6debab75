"""The output of a job: made aside and put in its place as a whole, or a partition at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import AtomicType, BinaryType

from shardwire.errors import ConfigError
from shardwire.quoting import listed
from shardwire.spark.columns import columns_of_names
from shardwire.spark.files import Files, SinkFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Formats whose files are the table; every other format commits by a log of its own.
FILE_FORMATS = ("parquet", "orc", "json", "avro")
# What these take is nowhere to be read again, and so not to be counted.
_UNREADABLE = {
    **dict.fromkeys(("console", "memory", "noop"), "of which nothing is kept"),
    **dict.fromkeys(("csv", "text", "xml"), "which holds no bytes as they are"),
}


def format_of(name: str) -> str:
    """A format as an option names it: Spark does not mind its case, and what is asked of it here does."""
    lowered = name.lower()
    return lowered if lowered in FILE_FORMATS or lowered in _UNREADABLE else name


def refuse_unreadable(output_format: str) -> None:
    """Refuses a format of which nothing can be read again, before a job has done all its work for it.

    Raises:
        ConfigError: It is one.
    """
    if output_format in _UNREADABLE:
        raise ConfigError(
            f"--output-format is {output_format!r}, {_UNREADABLE[output_format]}: give parquet, json or orc, or a "
            "table's"
        )


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Where a job writes, and what becomes of what is there.

    Attributes:
        path: A directory, or the table's path for a format with a log.
        format: As Spark names it.
        overwrite: Whether what is there is replaced, once everything is written; with `partition_by` only those
            partitions that are written: a job run again for a day replaces that day.
        partition_by: Columns that become directories.
    """

    path: str
    format: str = "parquet"
    overwrite: bool = False
    partition_by: tuple[str, ...] = ()

    def check(self, spark: SparkSession, sources: Sequence[str]) -> SinkFiles | None:
        """Refuses an output that exists, overlaps a source or cannot be written, or would be replaced and holds other
        things, and an unreadable format, before anything is read.

        Raises:
            ConfigError: It does, or is one.
        """
        refuse_unreadable(self.format)
        if self.format not in FILE_FORMATS:
            for source in sources:
                Files(spark).refuse_overlap(source, self.path)
            return None
        files = SinkFiles(spark, self.path, sources, replace=self.overwrite)
        if self.overwrite and not self.partition_by:
            files.refuse_foreign(self.path)
        return files

    def check_columns(self, rows: DataFrame) -> None:
        """Refuses rows without a column that becomes directories, or with one whose values are no names.

        Raises:
            ConfigError: `partition_by` names a column that is missing, or holds bytes or several values.
        """
        kinds = {field.name: field.dataType for field in rows.schema.fields}
        names = [name for name, kind in kinds.items() if isinstance(kind, AtomicType) and kind != BinaryType()]
        for name in self.partition_by:
            if name not in names:
                kind = f" of type {kinds[name].simpleString()}, which names no directories" if name in kinds else ""
                raise ConfigError(f"--partition-by names the column {name!r}{kind}: there are {listed(names)}")

    def write(self, rows: DataFrame, files: SinkFiles | None, description: str) -> DataFrame:
        """Writes the rows; returns what was written, read from where it is."""
        spark = rows.sparkSession
        paths = [self.path]
        spark.sparkContext.setJobDescription(f"shardwire: {description}")
        try:
            writer = rows.write.partitionBy(*self.partition_by)
            if files is None:
                mode = "overwrite" if self.overwrite else "errorifexists"
                if self.overwrite and self.partition_by:
                    writer = writer.option("partitionOverwriteMode", "dynamic")
                writer.format(self.format).mode(mode).save(self.path)
            else:
                with files.staged():
                    files.write(writer, "result", self.format)
                    if self.overwrite and self.partition_by:
                        paths = files.publish_below("result", len(self.partition_by))
                    else:
                        files.publish("result")
        finally:
            spark.sparkContext.setJobDescription("shardwire: count what was written")
        if not paths:
            return rows.limit(0)
        # Below that path the names of directories are values of columns.
        reader = spark.read if files is None else spark.read.schema(rows.schema).option("basePath", self.path)
        return reader.format(self.format).load(paths).select(*columns_of_names(rows.columns))

"""The columns of somebody's DataFrame by their names: any names, dots and backticks included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType, TimestampType

from shardwire.archive.arrow import remedy_of
from shardwire.config.checks import check_text
from shardwire.errors import ConfigError
from shardwire.quoting import listed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

# Kinds of values that rows cannot be sorted by, or that do not come back from Python; and those that a stream's state
# does not take as a part of its keys, or takes 0.0 and -0.0 for one of.
_FLOATS = frozenset({"float", "double"})
_UNSORTED = frozenset({"map", "variant", "interval", "yearmonthinterval"})
_NO_STATE = _UNSORTED | _FLOATS | {"array", "daytimeinterval"}
_TIME_IN_STATE = "shardwire_time_"


def check_data_frame(df: object) -> None:
    """Refuses what is no DataFrame of Spark; its members tell, since Spark Connect has another class.

    Raises:
        ConfigError: It is none.
    """
    if not hasattr(df, "sparkSession") or not hasattr(df, "schema"):
        library = type(df).__module__.partition(".")[0]
        whose = "" if library == "builtins" else f" of {library}"
        raise ConfigError(
            f"df is a {type(df).__name__}{whose}: it must be a DataFrame of Spark; spark.read gives one, and "
            "spark.createDataFrame makes one of pandas'"
        )


def check_batch(df: DataFrame) -> None:
    """Refuses what is no DataFrame, and a stream before Spark would refuse it at its start.

    Raises:
        ConfigError: It is one of them.
    """
    check_data_frame(df)
    if df.isStreaming:
        raise ConfigError("df is streaming: read it with spark.read, or use reconstruct_stream")


def column_of(name: str) -> Column:
    """The column with this very name: Spark reads a dot as the way into a struct."""
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def columns_of_names(names: Iterable[str]) -> list[Column]:
    """The columns with these very names."""
    return [column_of(name) for name in names]


def name_in_state(name: str, kind: DataType | None = None) -> str:
    """What a column of `by` is called in a stream's state, where Spark finds none with a dot or a backtick.

    Times are there as integers: Python makes one of the session's zone of each, whose clocks show an hour twice.
    """
    if isinstance(kind, TimestampType):
        return f"{_TIME_IN_STATE}{name.encode().hex()}"
    return f"shardwire_by_{name.encode().hex()}" if "." in name or "`" in name else name


def in_state(name: str, kind: DataType) -> Column:
    """A column of `by` as a stream's state has it, under its name there."""
    column = column_of(name)
    value = F.unix_micros(column) if isinstance(kind, TimestampType) else column
    return value.alias(name_in_state(name, kind))


def from_state(kept: str, name: str) -> Column:
    """A column of a stream's state as a column of `by`, under that name."""
    column = column_of(kept)
    return (F.timestamp_micros(column) if kept.startswith(_TIME_IN_STATE) else column).alias(name)


def clashing(df: DataFrame, names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """Those of `names` that Spark would take for one of `taken`: it ignores case unless it is told otherwise."""
    compared = _comparison(df)
    taken = set(map(compared, taken))
    return [name for name in names if compared(name) in taken]


def check_named(df: DataFrame, name: str, role: str) -> None:
    """A name that an argument gives to one column of a DataFrame.

    Raises:
        ConfigError: It is no text, or the DataFrame has no such column, or several that Spark would not tell apart.
    """
    check_data_frame(df)
    check_text(role, name)
    if name not in df.columns:
        raise ConfigError(f"{role} names the column {name!r}: the DataFrame has {listed(df.columns)}")
    if len(clashing(df, df.columns, [name])) > 1:
        raise ConfigError(f"{role} names the column {name!r}, of which the DataFrame has several: rename all but one")


def check_distinct(df: DataFrame) -> None:
    """Holds that the columns of a DataFrame, all of which are kept, have names of their own.

    Raises:
        ConfigError: Spark would not tell two of them apart.
    """
    compared = _comparison(df)
    counts = Counter(map(compared, df.columns))
    for name in reversed(df.columns):
        if counts[compared(name)] > 1:
            raise ConfigError(f"the DataFrame has several columns {name!r}, and all are kept: rename all but one")


def check_keeps_apart(name: str, kind: DataType, *, in_state: bool) -> None:
    """The type of a column that keeps messages apart, on the way to a stream's state or elsewhere.

    Raises:
        ConfigError: Spark cannot bring rows together by such values, or takes values for one that are not.
    """
    where, refused = (" in a stream", _NO_STATE) if in_state else ("", _UNSORTED)
    if _has(kind, refused) or _has_collation(kind):
        raise ConfigError(
            f"by names the column {name!r} of type {kind.simpleString()}, whose values do not keep messages "
            f"apart{where}: cast it to string before"
        )


def floats_apart(df: DataFrame, names: Iterable[str]) -> list[Column]:
    """What sorts floats among these columns by every bit: Spark takes 0.0 and -0.0 for one, and the core for two."""
    return [column_of(name).cast("string") for name in names if _has(df.schema[name].dataType, _FLOATS)]


def typed_column(df: DataFrame, name: str, role: str, wanted: str) -> Column:
    """A column of a certain type.

    Raises:
        ConfigError: As `check_named` raises it, or the column has another type.
    """
    check_named(df, name, role)
    found = df.schema[name].dataType.simpleString()
    if found != wanted:
        remedy = remedy_of(found == "string", wanted)
        raise ConfigError(f"{role} names the column {name!r} of type {found}: it must be {wanted}; {remedy}")
    return column_of(name)


def nanoseconds_column(df: DataFrame, name: str | None) -> Column:
    """Times in ns: the named column, or `timestamp` where there is one, or null. Null too beyond the year 2262.

    Raises:
        ConfigError: The column is missing or neither bigint nor a timestamp, with a zone or without.
    """
    if name is None:
        if "timestamp" not in df.columns:
            return F.lit(None).cast("bigint")
        name = "timestamp"
    check_named(df, name, "timestamp")
    if df.schema[name].dataType.simpleString() == "bigint":
        return typed_column(df, name, "timestamp", "bigint")
    if df.schema[name].dataType.simpleString() == "timestamp_ntz":
        micros = _micros_of_utc(column_of(name))
    elif isinstance(df.schema[name].dataType, TimestampType):
        micros = F.unix_micros(column_of(name))
    else:
        found = df.schema[name].dataType.simpleString()
        raise ConfigError(
            f"timestamp names the column {name!r} of type {found}: it must be bigint (ns) or timestamp; cast it before"
        )
    # Under ANSI, Spark's default, a product that overflows would fail the job for one strange row.
    return F.try_multiply(micros, F.lit(1000).cast("bigint"))


def _micros_of_utc(moment: Column) -> Column:
    """A time without a zone as one of UTC, which it is in an Arrow table: a cast would take that of the session, whose
    clocks go forward and back."""
    since = moment - F.expr("timestamp_ntz'1970-01-01 00:00:00'")
    return (since.cast("interval second").cast("decimal(20,6)") * 1_000_000).cast("bigint")


def _comparison(df: DataFrame) -> Callable[[str], str]:
    """What Spark compares of a name."""
    is_exact = (df.sparkSession.conf.get("spark.sql.caseSensitive", "false") or "").lower() == "true"
    return str if is_exact else str.lower


def _has(kind: DataType, names: frozenset[str]) -> bool:
    """Whether a type is one of these, or holds one."""
    return kind.typeName() in names or any(_has(held, names) for held in _held(kind))


def _has_collation(kind: DataType) -> bool:
    # PySpark before 4.0 has none.
    own = isinstance(kind, StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY"
    return own or any(map(_has_collation, _held(kind)))


def _held(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [field.dataType for field in kind.fields]
    return [kind.elementType] if isinstance(kind, ArrayType) else []

"""Functions of whole Arrow batches as Spark's UDFs: over Arrow, or over pandas with a conversion each way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from shardwire.archive.arrow import Array, remedy_of
from shardwire.errors import ConfigError
from shardwire.spark import versions

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    Udf = Callable[..., Column]

# Integers that a float holds exactly.
_EXACT_MAX = 1 << 53
_ARROW_TYPES: dict[str, Any] = {"binary": pa.large_binary(), "string": pa.large_string(), "bigint": pa.int64()}
_HAS_TYPE: dict[str, Callable[[Any], bool]] = {
    "binary": lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    "string": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    # A literal number of SQL is an int.
    "bigint": pa.types.is_integer,
}
# What Spark makes of the values of a column in pandas.
_PANDAS_TYPES: dict[str, tuple[type, ...]] = {"binary": (bytes, bytearray), "string": (str,)}


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """What one native call makes of the columns of a batch.

    Attributes:
        of_batch: Arrow arrays in, one out; annotated with both, since Spark tells the kind of a UDF by that, and called
            as the function is called, since Spark names a column by that.
        takes: The SQL types of the arguments.
        returns: The SQL type of the result.
    """

    of_batch: Callable[..., Array]
    takes: tuple[str, ...]
    returns: DataType


@lru_cache(maxsize=256)
def arrow_form(function: BatchFunction) -> Udf:
    """An Arrow UDF; where PySpark has none, a pandas UDF over the same call."""
    if versions.arrow_udf is None:
        return pandas_form(function)
    of_batch, takes = function.of_batch, function.takes
    names = tuple(inspect.signature(of_batch).parameters)

    @wraps(of_batch)
    def of_arrays(*columns: Array) -> Array:
        for column, wanted, name in zip(columns, takes, names, strict=True):
            if not _HAS_TYPE[wanted](column.type):
                raise _other_type(name, from_arrow_type(column.type).simpleString(), wanted)
        return of_batch(*columns)

    udf: Udf = versions.arrow_udf(of_arrays, returnType=function.returns)
    return udf


@lru_cache(maxsize=256)
def pandas_form(function: BatchFunction) -> Udf:
    """A pandas UDF."""
    of_batch, takes = function.of_batch, function.takes
    names = tuple(inspect.signature(of_batch).parameters)

    def of_series(*columns: pd.Series) -> pd.Series:
        return _series(of_batch(*map(_array, columns, takes, names)))

    def of_structs(*columns: pd.Series) -> pd.DataFrame:
        return _frame(of_batch(*map(_array, columns, takes, names)))

    # The stubs want a function type; Spark prefers the annotations and warns about one.
    declare: Any = pandas_udf
    form = of_structs if isinstance(function.returns, StructType) else of_series
    form.__name__ = of_batch.__name__
    udf: Udf = declare(form, returnType=function.returns)
    return udf


def _other_type(name: str, found: str, wanted: str) -> ConfigError:
    remedy = remedy_of(found == "string", wanted)
    return ConfigError(f"column {name} is of type {found}: it must be {wanted}; {remedy}")


def _array(series: pd.Series, type_name: str, name: str) -> Array:
    first = series.first_valid_index()
    wanted = _PANDAS_TYPES.get(type_name)
    # Text and numbers would pass for bytes.
    if wanted is not None and first is not None and not isinstance(series.loc[first], wanted):
        found = type(series.loc[first])
        raise _other_type(name, "string" if found is str else found.__name__, type_name)
    if type_name == "bigint" and series.dtype.kind == "f":
        # pandas has no nullable integer by default: one null makes floats of them all.
        if (series.abs() > _EXACT_MAX).any():
            raise ConfigError(
                "a bigint argument is null in some rows of a batch, where pandas rounds the others: "
                "give coalesce(argument, 0)"
            )
        series = series.astype("Int64")
    array: Array = pa.array(series, type=_ARROW_TYPES[type_name], from_pandas=True)
    return array


def _series(array: Array) -> pd.Series:
    if pa.types.is_integer(array.type):
        return pd.Series(array.to_pylist(), dtype="Int32" if array.type == pa.int32() else "Int64")
    return pd.Series(array.to_pylist(), dtype=object)


def _frame(array: Any) -> pd.DataFrame:
    # A pandas UDF has no null struct: a null row becomes a struct of nulls. Lists of structs want dicts, as they are.
    columns = {
        field.name: pd.Series(array.field(place).to_pylist(), dtype=object) for place, field in enumerate(array.type)
    }
    return pd.DataFrame(columns, dtype=object)

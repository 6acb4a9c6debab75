"""The processor of a stream over pandas frames, which is all that PySpark 4.0 hands over.

pandas and Arrow turn a bigint column with a null into floats: times cross as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shardwire.archive.arrow import ERROR, HASH, PAYLOAD, SEND_ID, SENDER, TIMESTAMP
from shardwire.spark.stream_state import StreamReconstruction

if TYPE_CHECKING:
    from pyspark.sql import Row


class StreamFrames(StreamReconstruction):
    """`StreamReconstruction` with frames in and out."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[Any]:
        plain = (row for frame in rows for row in _rows_of(frame))
        yield from _frames_of(super().handleInputRows(_values_of(key), plain, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield from _frames_of(super().handleExpiredTimer(_values_of(key), timerValues, expiredTimerInfo))


def _rows_of(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in frame.to_dict("records"):
        row[TIMESTAMP] = _integer_of(row[TIMESTAMP])
        for name in (HASH, SEND_ID, PAYLOAD, SENDER, ERROR):
            row[name] = None if row[name] is None or row[name] is pd.NA else row[name]
        yield row


def _frames_of(rows: Iterable[Row]) -> Iterator[pd.DataFrame]:
    for row in rows:
        # Of an integer column with nulls pandas would make floats: a frame has one row, so that none is mixed.
        yield pd.DataFrame({name: pd.Series([value], dtype=_dtype_of(value)) for name, value in row.asDict().items()})


def _dtype_of(value: Any) -> Any:
    return object if value is None or isinstance(value, list | tuple | bytes | bytearray) else None


def _values_of(key: Any) -> tuple[Any, ...]:
    """The key in Python's own types, null as None."""
    return tuple(_value_of(value) for value in key)


def _value_of(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is None or value is pd.NaT or value != value else value


def _integer_of(text: Any) -> int | None:
    return int(text) if isinstance(text, str) else None

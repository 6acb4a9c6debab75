"""An archive of what a listener heard: Parquet, one row a message, as any store or operator would keep it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from shardwire.node import MessageReceived

_FIELDS: list[pa.Field[Any]] = [
    pa.field("content_topic", pa.string(), nullable=False),
    pa.field("timestamp", pa.int64(), nullable=False),  # nanoseconds since the Unix epoch
    pa.field("payload", pa.binary(), nullable=False),
    pa.field("meta", pa.binary(), nullable=False),
    pa.field("message_hash", pa.binary(), nullable=False),
]
SCHEMA = pa.schema(_FIELDS)
# Some files, so that executors share the reading.
ROWS_PER_FILE = 32


class ParquetArchive:
    """Writes messages to `part-NNNNN.parquet` files in a directory; a context manager that writes the rest at its end.

    Attributes:
        rows_written: Messages in files so far.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.rows_written = 0
        self._directory = directory
        self._rows: list[MessageReceived] = []
        self._files = 0

    def append(self, message: MessageReceived) -> None:
        self._rows.append(message)
        if len(self._rows) == ROWS_PER_FILE:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        table = pa.table(
            [
                [row.envelope.content_topic for row in rows],
                [row.timestamp_ns for row in rows],
                [row.envelope.payload for row in rows],
                [row.envelope.meta for row in rows],
                [row.message_hash for row in rows],
            ],
            schema=SCHEMA,
        )
        # Ciphertext does not compress.
        pq.write_table(table, self._directory / f"part-{self._files:05}.parquet", compression="none")
        self._files += 1
        self.rows_written += len(rows)

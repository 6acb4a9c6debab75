"""Where messages go: Parquet files or memory; rows of one partition may be corrected when all of it was read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from shardwire.archive.arrow import STATUSES

# By identity: the hash; and None where the row of another partition stands for the message, else how many data segments
# came in none.
Corrections = Mapping[str, tuple[bytes, int | None]]


def identity_of(digest: bytes, send_id: str | None, by: Sequence[Any]) -> str:
    """A message's name among corrections; values of `by` need not be hashable."""
    return repr((bytes(digest), send_id, *by))


class Totals:
    """What was written, counted by every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages: Counter[str] = Counter()
        self.payload_bytes = 0

    def add(self, table: pa.Table | pa.RecordBatch, sign: int = 1) -> None:
        """Adds the messages of a table, or takes them away."""
        statuses: Any = table.column("status")
        counts = {str(one["values"]): sign * int(one["counts"].as_py()) for one in statuses.value_counts()}
        size = pa.compute.sum(table.column("payload_length")).as_py() or 0
        with self._lock:
            self.messages.update(counts)
            self.payload_bytes += sign * size

    def by_status(self) -> dict[str, int]:
        """Messages by status, without those that there are none of."""
        return {status: self.messages[status] for status in STATUSES if self.messages[status]}


class Sink:
    """The messages of one partition.

    Args:
        schema: Of the messages.
        by: The columns that keep messages apart.
        totals: Counts what is written.
        path: The file; None keeps them in memory.
        compression: Of the file's columns.
    """

    def __init__(
        self, schema: pa.Schema, by: Sequence[str], totals: Totals, path: Path | None, compression: str = "snappy"
    ) -> None:
        self._schema = schema
        self._by = list(by)
        self._totals = totals
        self._path = path
        self._compression = compression
        self._writer: pa.parquet.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch, *, is_messages: bool = True) -> None:
        """Takes in messages, or rows for what is none."""
        if not batch.num_rows:
            return
        if is_messages:
            self._totals.add(batch)
        batch = pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(batch.columns, self._schema, strict=True)],
            schema=self._schema,
        )
        if self._path is None:
            self._held.append(batch)
            return
        if self._writer is None:
            self._writer = self._opened(self._path)
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def batches(self) -> list[pa.RecordBatch]:
        """What is held in memory."""
        return self._held

    def correct(self, corrections: Corrections) -> None:
        """Rewrites what holds these messages; after `close`."""
        wrong = pa.array([digest for digest, _ in corrections.values()], pa.binary())
        if self._path is None:
            tables = [self._corrected(pa.Table.from_batches([batch]), corrections, wrong) for batch in self._held]
            self._held = [batch for table in tables for batch in table.to_batches()]
        elif self._path.exists():
            aside = self._path.with_suffix(".corrected")
            with pa.parquet.ParquetFile(self._path) as file, self._opened(aside) as writer:
                for table in _row_groups(file):
                    fixed = self._corrected(table, corrections, wrong)
                    if fixed.num_rows:
                        writer.write_table(fixed)
            aside.replace(self._path)

    def _opened(self, path: Path) -> pa.parquet.ParquetWriter:
        others = [field.name for field in self._schema if field.name != "payload"]
        # The stubs know neither every codec nor a list of columns.
        options: dict[str, Any] = {"compression": self._compression, "use_dictionary": others}
        return pa.parquet.ParquetWriter(path, self._schema, **options)

    def _corrected(self, table: pa.Table, corrections: Corrections, hashes: Any) -> pa.Table:
        named = pa.compute.is_in(table.column("entire_message_hash"), value_set=hashes)
        if not pa.compute.any(named).as_py():
            return table
        kept = [True] * table.num_rows
        columns: dict[str, list[Any]] = {
            name: table.column(name).to_pylist() for name in ("status", "data_segments_recovered", "erasure_code")
        }
        identities = table.select(["entire_message_hash", "send_id", *self._by])
        rows: list[Any] = pa.compute.indices_nonzero(named).to_pylist()
        for row in rows:
            digest, send_id, *by = (column[row].as_py() for column in identities.columns)
            identity = identity_of(digest, send_id, by)
            if identity not in corrections:
                continue
            recovered = corrections[identity][1]
            if recovered is None:
                kept[row] = False
                continue
            columns["status"][row] = "recovered" if recovered else "complete"
            columns["data_segments_recovered"][row] = recovered
            if not recovered:
                columns["erasure_code"][row] = None
        self._totals.add(table, -1)
        for name, values in columns.items():
            place = table.schema.get_field_index(name)
            table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
        table = table.filter(pa.array(kept))
        self._totals.add(table)
        return table


def _row_groups(file: pa.parquet.ParquetFile) -> Iterator[pa.Table]:
    for number in range(file.metadata.num_row_groups):
        yield file.read_row_group(number)

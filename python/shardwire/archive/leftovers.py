"""Segments whose messages are not whole in the stretch that a thread reads: in memory, and on disk beyond that."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute

from shardwire.archive.arrow import HASH, PAYLOAD, SEGMENT_COLUMNS, SEND_ID
from shardwire.archive.source import BATCH_BYTES

_HASH_BYTES = 32
# What is on disk lies in so many files by the first bits of the hash: each is sorted in
# memory, or parted once more where it is too much for that.
_BUCKETS = 64


class Leftovers:
    """What all threads leave, in groups in which every message is whole.

    Args:
        by: The columns that keep messages apart.
        directory: Where what is too much for memory goes; the caller removes it.
        memory_bytes: How much stays in memory. A group has at most so much, unless one message, with what came again of
            it, has more.
        depth: The byte of the hash by which what is on disk is parted.
    """

    def __init__(self, by: Sequence[str], directory: Path, memory_bytes: int, depth: int = 0) -> None:
        self._by = by
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._depth = depth
        self._lock = threading.Lock()
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files = ExitStack()
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes in what `ArrowLocalReconstructor.poll_leftovers` gave."""
        batch = pa.RecordBatch.from_arrays(batch.columns, names=[*self._by, *SEGMENT_COLUMNS])
        with self._lock:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            self.bytes += batch.nbytes
            if self._held_bytes > self._memory_bytes:
                self._spill()

    def groups(self) -> Iterator[pa.Table]:
        """Sorted tables: the segments of a message lie next to each other in one of them."""
        if not self._writers:
            if self._held:
                yield self._sorted(pa.Table.from_batches(self._held))
                self._held.clear()
            return
        self._spill()
        self._files.close()
        for bucket in sorted(self._writers):
            path = self._path(bucket)
            with pa.memory_map(str(path)) as file:
                if path.stat().st_size > self._memory_bytes and self._depth + 1 < _HASH_BYTES:
                    yield from self._parted(pa.ipc.open_stream(file), bucket)
                else:
                    yield self._sorted(pa.ipc.open_stream(file).read_all())
            path.unlink()

    def _parted(self, batches: Iterable[pa.RecordBatch], bucket: int) -> Iterator[pa.Table]:
        """The groups of a file that is too much for memory, by the next byte of the hash."""
        directory = self._directory / f"{bucket:02}"
        directory.mkdir()
        parted = Leftovers(self._by, directory, self._memory_bytes, self._depth + 1)
        try:
            for batch in batches:
                parted.add(batch)
            yield from parted.groups()
        finally:
            parted.close()

    def close(self) -> None:
        """Closes what is open, whatever happened."""
        self._files.close()

    def _spill(self) -> None:
        if not self._held:
            return
        table = pa.Table.from_batches(self._held).combine_chunks()
        self._held.clear()
        self._held_bytes = 0
        column: Any = table.column(HASH).combine_chunks()
        # Older pyarrow gives an array of one chunk as chunks.
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        values = np.frombuffer(column.buffers()[2], np.uint8)
        start = column.offset * _HASH_BYTES
        first = values[start + self._depth : start + len(column) * _HASH_BYTES : _HASH_BYTES]
        buckets = first.astype(np.int64) * _BUCKETS >> 8
        for bucket in np.unique(buckets).tolist():
            part = table.take(np.flatnonzero(buckets == bucket))
            if bucket not in self._writers:
                file = self._files.enter_context(pa.OSFile(str(self._path(bucket)), "wb"))
                self._writers[bucket] = self._files.enter_context(pa.ipc.new_stream(file, table.schema))
            self._writers[bucket].write_table(part)

    def _path(self, bucket: int) -> Path:
        return self._directory / f"leftovers-{bucket:02}.arrow"

    def _sorted(self, table: pa.Table) -> pa.Table:
        # Offsets of 32 bits end at 2 GiB.
        place = table.schema.get_field_index(PAYLOAD)
        table = table.set_column(place, PAYLOAD, table.column(PAYLOAD).cast(pa.large_binary()))
        keys: list[tuple[str, Literal["ascending"]]] = [(name, "ascending") for name in (HASH, SEND_ID, *self._by)]
        return table.take(pa.compute.sort_indices(table, sort_keys=keys))


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """A table, some MB at a time."""
    rows = max(1, BATCH_BYTES * table.num_rows // max(1, table.nbytes))
    return table.combine_chunks().to_batches(max_chunksize=rows)

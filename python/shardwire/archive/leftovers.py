"""Segments whose messages are not whole in the stretch that a thread reads: in memory, and on disk beyond that."""

from __future__ import annotations

import heapq
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
_HASH_BITS = 8 * _HASH_BYTES
# What is on disk lies in so many files by the first bits of the hash: each is sorted in
# memory, or parted once more where it is too much for that.
_BUCKET_BITS = 6


class Leftovers:
    """What all threads leave, in groups in which every message is whole.

    Args:
        by: The columns that keep messages apart.
        directory: Where what is too much for memory goes; the caller removes it.
        memory_bytes: How much stays in memory, and of what is read back at once; sorting copies it some times.
        depth: The first bit of the hash by which what is on disk is parted.
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
        # The lowest and the highest hash in each file: how much of them is the same.
        self._hashes: dict[int, tuple[bytes, bytes]] = {}
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

    def groups(self) -> Iterator[Iterable[pa.Table]]:
        """Sorted tables, in order: the segments of a message lie next to each other within one group."""
        if not self._writers:
            if self._held:
                yield [self._sorted(self._held)]
                self._held.clear()
            return
        self._spill()
        self._files.close()
        for bucket in sorted(self._writers):
            path = self._path(bucket)
            with pa.memory_map(str(path)) as file:
                batches = pa.ipc.open_stream(file)
                depth = _first_difference(*self._hashes[bucket])
                if path.stat().st_size <= self._memory_bytes:
                    yield [self._sorted(list(batches))]
                elif depth == _HASH_BITS:
                    yield self._merged(batches, bucket)
                else:
                    yield from self._parted(batches, bucket, depth)
            path.unlink()

    def close(self) -> None:
        """Closes what is open, whatever happened."""
        self._files.close()

    def _parted(self, batches: Iterable[pa.RecordBatch], bucket: int, depth: int) -> Iterator[Iterable[pa.Table]]:
        """The groups of a file that is too much for memory, from the first bit in which its hashes differ."""
        directory = self._directory / f"{bucket:02}"
        directory.mkdir()
        parted = Leftovers(self._by, directory, self._memory_bytes, depth)
        try:
            for batch in batches:
                parted.add(batch)
            yield from parted.groups()
        finally:
            parted.close()

    def _merged(self, batches: Iterable[pa.RecordBatch], bucket: int) -> Iterator[pa.Table]:
        """The rows of a file that is too much for memory, all of one hash, sorted in runs that are then merged."""
        runs: list[Path] = []
        for some in _runs_of(batches, self._memory_bytes):
            runs.append(self._directory / f"run-{bucket:02}-{len(runs):05}.arrow")
            table = self._sorted(some)
            with pa.OSFile(str(runs[-1]), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                for batch in batches_of(table):
                    writer.write_batch(batch)
        names = (SEND_ID, *self._by)
        for _, table in heapq.merge(*(_slices(path, names) for path in runs), key=lambda one: one[0]):
            yield table
        for path in runs:
            path.unlink()

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
        hashes = values[start : start + len(column) * _HASH_BYTES].reshape(-1, _HASH_BYTES).astype(np.int64)
        place, shift = divmod(self._depth, 8)
        following = hashes[:, place + 1] if place + 1 < _HASH_BYTES else 0
        buckets = ((hashes[:, place] << 8 | following) << shift & 0xFFFF) >> 16 - _BUCKET_BITS
        for bucket in np.unique(buckets).tolist():
            part = table.take(np.flatnonzero(buckets == bucket))
            found: Any = pa.compute.min_max(part.column(HASH))
            low, high = found["min"].as_py(), found["max"].as_py()
            before = self._hashes.get(bucket, (low, high))
            self._hashes[bucket] = min(low, before[0]), max(high, before[1])
            if bucket not in self._writers:
                file = self._files.enter_context(pa.OSFile(str(self._path(bucket)), "wb"))
                self._writers[bucket] = self._files.enter_context(pa.ipc.new_stream(file, table.schema))
            self._writers[bucket].write_table(part)

    def _path(self, bucket: int) -> Path:
        return self._directory / f"leftovers-{bucket:02}.arrow"

    def _sorted(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches)
        # Offsets of 32 bits end at 2 GiB.
        place = table.schema.get_field_index(PAYLOAD)
        table = table.set_column(place, PAYLOAD, table.column(PAYLOAD).cast(pa.large_binary()))
        names = (HASH, SEND_ID, *self._by)
        keys: list[tuple[str, Literal["ascending"]]] = [(str(place), "ascending") for place in range(len(names))]
        sorted_by = pa.table([_bits(table.column(name)) for name in names], [name for name, _ in keys])
        return table.take(pa.compute.sort_indices(sorted_by, sort_keys=keys))


def _first_difference(low: bytes, high: bytes) -> int:
    return _HASH_BITS - (int.from_bytes(low) ^ int.from_bytes(high)).bit_length()


def _runs_of(batches: Iterable[pa.RecordBatch], memory_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches until they are as much as may be held."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > memory_bytes:
            yield held
            held, held_bytes = [], 0
    if held:
        yield held


def _slices(path: Path, names: Sequence[str]) -> Iterator[tuple[Any, pa.Table]]:
    """The rows of a sorted file, those of one message together as far as they lie in one batch."""
    with pa.memory_map(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            keys = list(zip(*(_comparable(batch.column(name)).to_pylist() for name in names), strict=True))
            start = 0
            for stop in range(1, len(keys) + 1):
                if stop == len(keys) or keys[stop] != keys[start]:
                    yield _order_of(keys[start]), pa.Table.from_batches([batch.slice(start, stop - start)])
                    start = stop


def _bits(column: Any) -> Any:
    """Floats as the integers of their bits, as which the core tells them apart: in the order of floats 0.0 is -0.0."""
    kind = column.type
    if not pa.types.is_floating(kind):
        return column
    bits: Any = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
    return column.view(bits)


def _comparable(column: Any) -> Any:
    """Values that Python has, in the same order: it has neither every text that is no UTF-8 nor nanoseconds."""
    column = _bits(column)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_temporal(kind):
        return column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    return column


def _order_of(key: tuple[Any, ...]) -> tuple[Any, ...]:
    # As pyarrow sorts, in every run the same way: what is null comes last.
    return tuple((value is None, value) for value in key)


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """A table, some MB at a time."""
    rows = max(1, BATCH_BYTES * table.num_rows // max(1, table.nbytes))
    return table.combine_chunks().to_batches(max_chunksize=rows)

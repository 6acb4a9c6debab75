"""The Parquet files that the pipeline is measured on, made once and kept in a directory."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shardwire import SegmentationConfig, keccak256
from shardwire.segmentation import segment

PARTS = 10
FILES = 8
_SCHEMA = pa.schema({"digest": pa.binary(), "payload": pa.binary()})
_ARCHIVE_SCHEMA = pa.schema({"timestamp": pa.int64(), "payload": pa.binary()})
# A row group is a sixteenth of a split, so that a split ends where a row group does.
_ROW_GROUP_BYTES = 8 << 20
# Rows, headers and the footer included, a file stays below one split of 128 MiB.
_SPLIT_BYTES = 126 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """Messages of as many segments."""

    name: str
    segment_size_bytes: int
    messages: int
    parts: int = PARTS

    @property
    def config(self) -> SegmentationConfig:
        return SegmentationConfig(segment_size_bytes=self.segment_size_bytes)

    @property
    def total_bytes(self) -> int:
        return self.messages * self.parts * self.segment_size_bytes


def shapes(scale: float) -> dict[str, Shape]:
    """big: 1 GB in segments of 100 KB. half: 1 GB in messages of 0.5 MB. small: 300 MB in segments of 1 KB.

    small10: ten times as many of them. ones: messages of one segment.
    """
    return {
        shape.name: shape
        for shape in (
            Shape("big", 100_000, max(32, int(1_024 * scale))),
            Shape("half", 50_000, max(64, int(2_048 * scale))),
            Shape("small", 1_000, max(32, int(30_000 * scale))),
            Shape("small10", 1_000, max(320, int(300_000 * scale))),
            Shape("ones", 1_000, max(32, int(100_000 * scale)), parts=1),
        )
    }


def shuffled(directory: Path, shape: Shape) -> str:
    """Files of segments in random order, each beside the hash of its message."""
    path = directory / f"{shape.name}-{shape.messages}"
    if not (path / "done").exists():
        path.mkdir(parents=True, exist_ok=True)
        _write_shuffled(path, shape)
        (path / "done").touch()
    return str(path / "*.parquet")


def _write_shuffled(path: Path, shape: Shape) -> None:
    chance = random.Random(1)
    writers = [_Writer(path / f"{n}.parquet", _SCHEMA) for n in range(FILES)]
    for _ in range(shape.messages):
        payload, parts = _message(chance, shape)
        digest = keccak256(payload)
        for part in parts:
            chance.choice(writers).add((digest, part))
    for writer in writers:
        writer.close()


def archive(directory: Path, shape: Shape, in_flight: int) -> str:
    """Traffic at 2 MB/s in order of arrival, `in_flight` messages at once, one segment in a hundred again 0 to 5 s
    later, in files of one split each."""
    path = directory / f"archive-{shape.name}-{shape.messages}-{in_flight}"
    if not (path / "done").exists():
        path.mkdir(parents=True, exist_ok=True)
        _write_archive(path, shape, in_flight)
        (path / "done").touch()
    return str(path / "*.parquet")


def _write_archive(path: Path, shape: Shape, in_flight: int) -> None:
    number, written, writer = 0, 0, _Writer(path / "000.parquet", _ARCHIVE_SCHEMA)
    for timestamp, part in _repeated(_arrivals(shape, in_flight), random.Random(2)):
        if written + len(part) > _SPLIT_BYTES:
            writer.close()
            number, written = number + 1, 0
            writer = _Writer(path / f"{number:03}.parquet", _ARCHIVE_SCHEMA)
        writer.add((timestamp, part))
        written += len(part)
    writer.close()


def _arrivals(shape: Shape, in_flight: int) -> Iterator[tuple[int, bytes]]:
    """Segments with their time in ns: each is the next one of a message in flight, whichever."""
    chance = random.Random(1)
    left = shape.messages
    flying: list[list[bytes]] = []
    sent_bytes = 0
    while left or flying:
        while left and len(flying) < in_flight:
            flying.append(_message(chance, shape)[1][::-1])
            left -= 1
        message = chance.choice(flying)
        part = message.pop()
        if not message:
            flying.remove(message)
        sent_bytes += len(part)
        yield sent_bytes * 500, part


def _repeated(rows: Iterable[tuple[int, bytes]], chance: random.Random) -> Iterator[tuple[int, bytes]]:
    again: list[tuple[int, bytes]] = []
    for timestamp, part in rows:
        while again and again[0][0] <= timestamp:
            yield again.pop(0)
        yield timestamp, part
        if chance.random() < 0.01:
            again.append((timestamp + chance.randrange(5_000_000_000), part))
            again.sort(key=lambda row: row[0])
    yield from again


def hot(directory: Path, total_bytes: int) -> str:
    """One message whose every segment came again and again, beside a few ordinary ones: one key holds all bytes."""
    path = directory / f"hot-{total_bytes}"
    if not (path / "done").exists():
        path.mkdir(parents=True, exist_ok=True)
        chance = random.Random(3)
        writer = _Writer(path / "0.parquet", _SCHEMA)
        shape = Shape("hot", 100_000, 8)
        for number in range(shape.messages):
            payload, parts = _message(chance, shape)
            digest = keccak256(payload)
            times = total_bytes // len(payload) if number == 0 else 1
            for _ in range(times):
                for part in parts:
                    writer.add((digest, part))
        writer.close()
        (path / "done").touch()
    return str(path / "*.parquet")


def _message(chance: random.Random, shape: Shape) -> tuple[bytes, list[bytes]]:
    payload = chance.randbytes(shape.segment_size_bytes * shape.parts)
    return payload, segment(payload, shape.config)


class _Writer:
    """A Parquet file, a row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="none", use_dictionary=False)
        self._rows: list[tuple[object, bytes]] = []
        self._bytes = 0

    def add(self, row: tuple[object, bytes]) -> None:
        self._rows.append(row)
        self._bytes += len(row[1])
        if self._bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            first, second = zip(*self._rows, strict=True)
            types = self._schema.types
            columns = [pa.array(first, types[0]), pa.array(second, types[1])]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows, self._bytes = [], 0

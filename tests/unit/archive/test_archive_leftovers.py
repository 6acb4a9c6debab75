"""What no stretch of an archive holds whole: sorted in a memory that nothing in an archive makes larger."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire.archive.arrow import HASH, PAYLOAD, SEGMENT_COLUMNS, SEND_ID
from shardwire.archive.leftovers import Leftovers

ROW_BYTES = 1_000
Row = tuple[bytes, str | None, str | None, int]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """Rows: hash, send id, topic, and a number, which is told by the payload."""
    count = len(rows)
    columns: list[Any] = [
        pa.array([topic for _, _, topic, _ in rows], pa.string()),
        pa.array([digest for digest, *_ in rows], pa.binary()),
        pa.array([send_id for _, send_id, *_ in rows], pa.string()),
        pa.array([number.to_bytes(8).ljust(ROW_BYTES) for *_, number in rows], pa.binary()),
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["topic", *SEGMENT_COLUMNS])


def told(tables: Iterator[pa.Table]) -> Iterator[Row]:
    for table in tables:
        for row in table.select([HASH, SEND_ID, "topic", PAYLOAD]).to_pylist():
            yield row[HASH], row[SEND_ID], row["topic"], int.from_bytes(row[PAYLOAD][:8])


def sorted_groups(directory: Path, rows: list[Row], memory_bytes: int, at_once: int = 50) -> list[list[Row]]:
    leftovers = Leftovers(["topic"], directory, memory_bytes)
    for start in range(0, len(rows), at_once):
        leftovers.add(batch_of(rows[start : start + at_once]))
    groups = [list(told(iter(group))) for group in leftovers.groups()]
    leftovers.close()
    assert not [file for file in directory.rglob("*") if file.is_file()]
    return groups


def order_of(row: Row) -> Any:
    digest, send_id, topic, _ = row
    return digest, send_id is None, send_id or "", topic is None, topic or ""


NAMES = st.none() | st.sampled_from(("", "a", "b", "é", "\U0001f600"))
# Hashes that differ in no bit, in the last one, or in others within one byte.
HASHES = st.sampled_from([bytes(31) + bytes([last]) for last in (0, 1, 2, 64)] + [bytes([3]) + bytes(31)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HASHES, NAMES, NAMES), max_size=60), st.sampled_from((0, 2_500, 9_000, 1 << 20)))
def test_messages_lie_together_in_order(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[bytes, str | None, str | None]], memory_bytes: int
) -> None:
    rows = [(*key, number) for number, key in enumerate(keys)]
    groups = sorted_groups(tmp_path_factory.mktemp("aside"), rows, memory_bytes, at_once=3)
    assert [row for group in groups for row in group] == sorted(rows, key=order_of)


def test_what_memory_holds_goes_to_no_file(tmp_path: Path) -> None:
    leftovers = Leftovers(["topic"], tmp_path, 1 << 20)
    for number in range(9):
        leftovers.add(batch_of([(bytes([number] * 32), None, None, number)]))
    assert list(tmp_path.iterdir()) == []
    assert sum(table.num_rows for group in leftovers.groups() for table in group) == 9
    leftovers.close()


@pytest.mark.parametrize(
    "values",
    [
        # Nanoseconds and days beyond what Python has, and texts that are no UTF-8.
        pa.array([3, None, (1 << 63) - 1, 1, 3], pa.timestamp("ns")),
        pa.array([3, None, (1 << 31) - 1, 1, 3], pa.date32()),
        pa.array([b"\xc3\xa9", None, b"\xff", b"\x00", b"\xc3\xa9"], pa.binary()).view(pa.string()),
        pa.array([b"\xc3\xa9", None, b"\xff", b"\x00", b"\xc3\xa9"], pa.large_binary()).view(pa.large_string()),
        # In the order of its bits -0.0 comes first, and is another one than 0.0.
        pa.array([0.0, None, 2.5, -0.0, 0.0], pa.float64()),
    ],
    ids=lambda values: str(values.type),
)
def test_repeats_of_one_message_are_merged_by_values_that_python_has_not(tmp_path: Path, values: Any) -> None:
    batch = batch_of([(bytes(32), None, None, number) for number in range(len(values))])
    batch = pa.RecordBatch.from_arrays([values, *batch.columns[1:]], names=["by", *SEGMENT_COLUMNS])
    leftovers = Leftovers(["by"], tmp_path, 2_500)
    for start in range(len(values)):
        leftovers.add(batch.slice(start, 1))
    tables = [table for group in leftovers.groups() for table in group]
    leftovers.close()
    told = [int.from_bytes(payload[:8]) for table in tables for payload in table[PAYLOAD].to_pylist()]
    assert told == [3, 0, 4, 2, 1]


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def most_held(directory: Path, rows: list[Row], memory_bytes: int) -> int:
    with counted_memory() as pool:
        leftovers = Leftovers(["topic"], directory, memory_bytes)
        for start in range(0, len(rows), 50):
            leftovers.add(batch_of(rows[start : start + 50]))
        count = sum(table.num_rows for group in leftovers.groups() for table in group)
        leftovers.close()
        assert count == len(rows)
        return pool.max_memory()


def test_one_message_with_its_repeats_is_not_held(tmp_path: Path) -> None:
    """Twenty megabytes of segments of one message; 500 KB may be held, and copies of it while it is sorted."""
    rows: list[Row] = [(bytes(32), None, f"topic-{number % 3}", number) for number in range(20_000)]
    assert most_held(tmp_path, rows, 500_000) < 4_000_000


@pytest.mark.parametrize("place", [0, 31])
def test_a_file_that_is_too_much_is_parted(tmp_path: Path, place: int) -> None:
    """Twenty megabytes of messages whose hashes begin alike, or are alike but for the last byte."""
    generator = random.Random(3)
    hashes = []
    for number in range(200):
        digest = bytearray(generator.randbytes(32) if place == 0 else bytes(32))
        digest[place] = number if place else 7
        hashes.append(bytes(digest))
    rows: list[Row] = [(hashes[number % 200], None, None, number) for number in range(20_000)]
    assert most_held(tmp_path, rows, 500_000) < 4_000_000

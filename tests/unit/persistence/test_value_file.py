"""The file of large values by itself: where there is room, what is written there, how long it gets."""

from __future__ import annotations

import errno
import os
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire.persistence import values
from shardwire.persistence.free_space import BLOCK_BYTES, FreeSpace, in_blocks
from shardwire.persistence.values import Place, ValueFile

SIZES = st.one_of(
    st.integers(1, 5 * BLOCK_BYTES), st.integers(1, 4).map(BLOCK_BYTES.__mul__), st.just(40 * BLOCK_BYTES)
)
# How many bytes are taken, or which of what is taken is given back.
STEPS = st.lists(st.one_of(st.tuples(st.just("take"), SIZES), st.tuples(st.just("give"), st.integers(0, 100))))


@given(STEPS, st.integers(0, 60))
@settings(deadline=None)
def test_nothing_overlaps_and_room_that_is_given_back_is_taken_again(
    steps: list[tuple[str, int]], again_at: int
) -> None:
    room = FreeSpace()
    taken: list[tuple[int, int]] = []
    for number, (step, what) in enumerate(steps):
        if number == again_at:
            # As after a restart, with the same places.
            room = FreeSpace(taken)
        if step == "take":
            start = room.take(what)
            needed = in_blocks(what)
            assert start % BLOCK_BYTES == 0
            assert all(start + needed <= other or other + in_blocks(size) <= start for other, size in taken)
            # There was no room further in front.
            assert start == first_fit(taken, needed)
            taken.append((start, what))
        elif taken:
            room.give_back(*taken.pop(what % len(taken)))
        assert room.end == max((start + in_blocks(size) for start, size in taken), default=0)


def first_fit(taken: list[tuple[int, int]], needed: int) -> int:
    start = 0
    for other, size in sorted(taken):
        if other - start >= needed:
            break
        start = other + in_blocks(size)
    return start


@pytest.mark.parametrize(
    "taken", [[(0, 10), (0, 10)], [(0, BLOCK_BYTES + 1), (BLOCK_BYTES, 1)], [(1, 1)], [(0, 0)], [(-BLOCK_BYTES, 1)]]
)
def test_what_cannot_be_in_use_is_refused(taken: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="cannot be in use"):
        FreeSpace(taken)


def read(file: ValueFile, start: int, size: int) -> bytes | None:
    return file.read(Place(start, size, 0))


@pytest.mark.parametrize("most", [None, 1, 70_000])
def test_what_is_written_is_read_also_where_a_call_writes_a_part(
    most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if most is not None:
        write = os.pwrite
        # The first call writes little, and each further one as much as it does at most.
        monkeypatch.setattr(os, "pwritev", lambda file, parts, at: write(file, b"".join(parts)[:most], at))
        monkeypatch.setattr(os, "pwrite", lambda file, part, at: write(file, part[: 50_000 + most], at))
    monkeypatch.setattr(values, "_PARTS_MAX", 3)
    file = ValueFile(tmp_path / "state.db", "a")
    rng = random.Random(1)
    kept: dict[int, bytes] = {}
    for _ in range(20):
        batch = [rng.randbytes(rng.choice([1, 4_096, BLOCK_BYTES, 100_001])) for _ in range(rng.randint(1, 6))]
        for start, value in zip(file.write(batch), batch, strict=True):
            assert start not in kept
            kept[start] = value
        for start in rng.sample(sorted(kept), len(kept) // 2):
            file.free([Place(start, len(kept.pop(start)), 0)])
        assert all(read(file, start, len(value)) == value for start, value in kept.items())
    file.close()


def test_it_is_cut_when_little_of_it_is_in_use_and_kept_between_two_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "KEPT_BYTES", 2_000_000)
    file = ValueFile(tmp_path / "state.db", "a")
    (path,) = (file._path,)
    last = Place(file.write([bytes(1_000_000)])[0], 1_000_000, 0)
    for _ in range(50):
        start = file.write([bytes(1_000_000)])[0]
        file.free([last])
        last = Place(start, 1_000_000, 0)
    # As much as two of them take.
    assert path.stat().st_size == 2 * in_blocks(1_000_000)
    file.free([last])
    assert path.stat().st_size == 2 * in_blocks(1_000_000)
    many = [Place(start, 1_000_000, 0) for start in file.write([bytes(1_000_000)] * 10)]
    assert path.stat().st_size == 10 * in_blocks(1_000_000)
    file.free(many[6:])
    assert path.stat().st_size == 10 * in_blocks(1_000_000)
    file.free(many[:6])
    assert path.stat().st_size == 2_000_000
    file.close()


def test_what_is_not_there_is_no_value(tmp_path: Path) -> None:
    file = ValueFile(tmp_path / "state.db", "a", read_only=True)
    assert read(file, 0, 1) is None
    assert not file.exists
    assert not file.keep([Place(0, 1, 0)])
    writer = ValueFile(tmp_path / "state.db", "a")
    writer.write([b"value"])
    assert file.keep([Place(0, 5, 0)])
    assert read(file, 0, 5) == b"value"
    for place in ((0, BLOCK_BYTES + 1), (BLOCK_BYTES, 1), (1 << 60, 1), (0, 1 << 60)):
        assert read(file, *place) is None
        assert not file.keep([Place(*place, 0)])
    # Another channel has another.
    assert read(ValueFile(tmp_path / "state.db", "b"), 0, 5) is None
    file.close()
    writer.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_written_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ValueFile(tmp_path / "state.db", "a")
    (kept,) = file.write([b"kept"])

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    sync = values._sync
    monkeypatch.setattr(values, "_sync", fail)
    with pytest.raises(OSError, match="no room"):
        file.write([bytes(100_000), bytes(200_000)])
    assert file._path.stat().st_size == BLOCK_BYTES
    monkeypatch.setattr(values, "_sync", sync)
    assert file.write([b"next"]) == [BLOCK_BYTES]
    assert read(file, kept, 4) == b"kept"
    file.close()


@pytest.mark.skipif(sys.platform != "linux", reason="names what a descriptor is")
def test_its_name_is_durable_before_anything_in_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    sync, sync_values = os.fsync, values._sync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def note_values(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync_values(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(values, "_sync", note_values)
    for _ in range(2):
        # Whoever made it may have been killed before.
        synced.clear()
        file = ValueFile(tmp_path / "state.db", "a")
        file.write([b"first"])
        file.write([b"second"])
        assert synced == [tmp_path, file._path, file._path]
        file.close()


def test_more_values_are_written_at_once_than_one_call_takes(tmp_path: Path) -> None:
    file = ValueFile(tmp_path / "state.db", "a")
    written = [bytes([number % 251]) * BLOCK_BYTES for number in range(1_100)]
    starts = file.write(written)
    assert all(file.read(Place(start, BLOCK_BYTES, 0)) == value for start, value in zip(starts, written, strict=True))
    file.close()

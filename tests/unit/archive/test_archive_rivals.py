"""Messages all of whose data segments lie in an archive, beside forged ones of the same places: they are complete."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from spark.rows import payload_of

from shardwire import SegmentationConfig
from shardwire.archive import reconstruct
from shardwire.segmentation import segment

CONFIG = SegmentationConfig(segment_size_bytes=640)


def forged(part: bytes, number: int = 0) -> bytes:
    return part[:-2] + bytes([part[-2] ^ 1 + number, part[-1]])


def status_of(rows: list[bytes]) -> tuple[str, bytes]:
    [row] = reconstruct(pa.table({"payload": rows}), CONFIG, threads=1).to_pylist()
    return row["status"], row["payload"]


@pytest.mark.parametrize("forgeries", [1, CONFIG.limits.candidates_per_slot_max - 1])
def test_of_one_segment(forgeries: int) -> None:
    payload = payload_of(1, 300)
    [part] = segment(payload, CONFIG)
    rivals = [forged(part, number) for number in range(forgeries)]
    assert status_of([*rivals, part]) == ("complete", payload)
    assert status_of([part, *rivals]) == ("complete", payload)


@pytest.mark.parametrize("place", range(4))
def test_of_several_whichever_of_them_has_a_rival(place: int) -> None:
    payload = payload_of(2, 2_300)
    parts = segment(payload, CONFIG)
    assert len(parts) == 4
    assert status_of([forged(parts[place]), *parts]) == ("complete", payload)


def test_of_two_in_every_order() -> None:
    payload = payload_of(3, 900)
    parts = segment(payload, CONFIG)
    rows = [*parts, forged(parts[-1], 0), forged(parts[-1], 1)]
    for order in itertools.permutations(rows):
        assert status_of(list(order)) == ("complete", payload)

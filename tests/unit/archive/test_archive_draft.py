"""Messages that went whole, as `draft` sends what fits one segment, in whatever company they lie in an archive."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shardwire import SegmentationConfig, keccak256
from shardwire.archive import reconstruct
from shardwire.segmentation import segment

CONFIG = SegmentationConfig(segment_size_bytes=640, wire_format="draft")
WHOLE = b"a message that fits one segment"


def forged() -> bytes:
    """A segment that says to be of the message that went whole."""
    other = bytes(range(250)) * 8
    return segment(other, CONFIG)[1].replace(keccak256(other), keccak256(WHOLE))


@pytest.mark.parametrize("rows", [[WHOLE, forged()], [forged(), WHOLE], [forged(), WHOLE, forged(), WHOLE]])
def test_a_forged_segment_does_not_hide_it(rows: list[bytes]) -> None:
    [row] = reconstruct(pa.table({"payload": rows}), CONFIG).to_pylist()
    assert (row["status"], row["payload"], row["error"]) == ("complete", WHOLE, None)
    assert row["data_segments_recovered"] == 0


@pytest.mark.parametrize("order", [1, -1])
def test_other_bytes_under_its_hash_do_not_hide_it(order: int) -> None:
    rows = [b"other bytes", WHOLE, b"still others"][::order]
    table = pa.table({"payload": rows, "digest": [keccak256(WHOLE)] * 3})
    [row] = reconstruct(table, CONFIG, key="digest").to_pylist()
    assert (row["status"], row["payload"], row["conflicts"]) == ("complete", WHOLE, 2)


def test_other_bytes_under_the_hash_of_a_segmented_message_hide_nothing() -> None:
    payload = bytes(range(250)) * 8
    rows = [b"other bytes", *segment(payload, CONFIG)]
    table = pa.table({"payload": rows, "digest": [keccak256(payload)] * len(rows)})
    [row] = reconstruct(table, CONFIG, key="digest").to_pylist()
    assert (row["status"], row["payload"]) == ("complete", payload)

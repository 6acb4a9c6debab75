"""Which files and rows of an archive are read, and what is kept of those that are no segments."""

from __future__ import annotations

import glob
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwire import SegmentationConfig, keccak256
from shardwire.archive import reconstruct
from shardwire.archive.arrow import MESSAGE_SCHEMA
from shardwire.archive.source import files_of
from shardwire.archive.unread import Unread
from shardwire.segmentation import segment


def test_files_that_a_pattern_finds_are_read_in_the_order_of_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / f"{number}.parquet") for number in range(5)]
    for name in names:
        Path(name).touch()
    found = glob.glob
    monkeypatch.setattr(glob, "glob", lambda pattern: sorted(found(pattern), reverse=True))
    assert files_of(str(tmp_path / "*.parquet")) == names


def test_what_others_have_not_finished_or_hide_is_passed_over(tmp_path: Path) -> None:
    for name in ("day=1/part.parquet", "_temporary/0/part.parquet", ".hidden/part.parquet", "_SUCCESS"):
        path = tmp_path / "_archive" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert files_of(tmp_path / "_archive") == [str(tmp_path / "_archive" / "day=1" / "part.parquet")]


@pytest.mark.parametrize("key", [None, "key"])
def test_rows_without_a_payload_are_left_out(tmp_path: Path, key: str | None) -> None:
    config = SegmentationConfig(segment_size_bytes=256)
    payload = bytes(1_000)
    parts = [*segment(payload, config), None]
    table = pa.table({"payload": pa.array(parts, pa.binary()), "key": [keccak256(payload)] * len(parts)})
    pq.write_table(table, tmp_path / "a.parquet")
    [found] = reconstruct(tmp_path / "a.parquet", config, key=key).to_pylist()
    assert (found["status"], found["payload"]) == ("complete", payload)
    assert found["segments_received"] == len(parts) - 1


def test_so_many_senders_of_what_is_no_segment_are_named() -> None:
    unread = Unread(())
    for number in range(100):
        row = {
            "status": "invalid",
            "error": "no segment",
            "segments_received": 1,
            "first_timestamp": number,
            "last_timestamp": number,
            "senders": [f"{number:03}"],
        }
        columns = [pa.array([row.get(field.name)], field.type) for field in MESSAGE_SCHEMA]
        assert unread.taken_from(pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)).num_rows == 0
    [told] = unread.batch(MESSAGE_SCHEMA).to_pylist()
    assert told["senders"] == [f"{number:03}" for number in range(64)]
    assert (told["segments_received"], told["first_timestamp"], told["last_timestamp"]) == (100, 0, 99)

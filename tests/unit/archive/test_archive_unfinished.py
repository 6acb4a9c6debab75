"""Messages that are whole in no stretch: `reconstruct` tells of them what a pass over all their segments tells."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from spark.rows import CONFIG, payload_of, segment_batch

from shardwire import _native, keccak256
from shardwire.archive import reconstruct
from shardwire.archive.arrow import limits_of, parameters
from shardwire.segmentation import segment

Rows = list[dict[str, Any]]


def at_once(rows: Rows) -> Rows:
    """What one pass over sorted segments makes of them, as `reconstruct` of `shardwire.spark` does."""
    machine = _native.ArrowReconstructor(parameters(CONFIG), by_count=0, include_payload=True, **limits_of(CONFIG))
    batches = machine.push(segment_batch(sorted(rows, key=lambda row: row["hash"])))
    return [row for batch in [*batches, *machine.finish()] for row in batch.to_pylist()]


def locally(rows: Rows) -> Rows:
    names = ("hash", "payload", "timestamp", "sender")
    types = (pa.binary(), pa.binary(), pa.int64(), pa.string())
    table = pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in zip(names, types, strict=True)}
    )
    found = reconstruct(table, CONFIG, key="hash", timestamp="timestamp", sender="sender", threads=1).to_pylist()
    return sorted(found, key=lambda row: bytes(row["entire_message_hash"]))


def row_of(digest: bytes, payload: bytes, timestamp: int | None = None, sender: str | None = None) -> dict[str, Any]:
    return {"hash": digest, "payload": payload, "timestamp": timestamp, "sender": sender}


def test_times_and_senders_of_repeats_are_told() -> None:
    part, digest = segment(payload_of(1, 3_000), CONFIG)[0], keccak256(payload_of(1, 3_000))
    rows = [row_of(digest, part, 50, "b"), row_of(digest, part, 10, "a"), row_of(digest, part, 90, "c")]
    [row] = locally(rows)
    assert (row["status"], row["segments_received"], row["duplicates"]) == ("incomplete", 1, 2)
    assert (row["first_timestamp"], row["last_timestamp"], row["senders"]) == (10, 90, ["a", "b", "c"])


def test_a_message_of_which_no_row_is_a_segment_has_its_row() -> None:
    digest = keccak256(b"nobody has it")
    [row] = locally([row_of(digest, b"garbage", 5, "a"), row_of(digest, segment(b"another", CONFIG)[0], 6, "b")])
    assert row["entire_message_hash"] == digest
    assert row["status"] == "invalid"
    assert row["error"] == "a segment of another message stands under this key"


def test_what_was_let_go_is_told() -> None:
    payload = payload_of(2, 3_000)
    digest, parts = keccak256(payload), segment(payload, CONFIG)
    rivals = [parts[1][:-1] + bytes([number]) for number in range(CONFIG.limits.candidates_per_slot_max + 2)]
    rows = [row_of(digest, part) for part in (parts[0], *rivals)]
    [told], [row] = at_once(rows), locally(rows)
    assert row["status"] == told["status"]
    assert told["error"] == row["error"]
    assert told["error"] is not None


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_told_as_by_one_pass(seed: int) -> None:
    chance = random.Random(seed)
    rows: Rows = []
    for number in range(5):
        payload = payload_of(100 * seed + number, 2_000)
        for part in segment(payload, CONFIG):
            came = bytes(chance.choice([part, part, part, part[:-1], part[:40] + b"----" + part[44:]]))
            for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
                moment, sender = chance.choice([None, chance.randrange(1_000)]), chance.choice([None, "a", "b", "c"])
                rows.append(row_of(keccak256(payload), came, moment, sender))
    chance.shuffle(rows)
    unfinished = [row for row in at_once(rows) if row["status"] in ("incomplete", "invalid")]
    assert [row for row in locally(rows) if row["status"] in ("incomplete", "invalid")] == unfinished

"""The native state machine of an archive's first pass: rows in any order, a bounded window, leftovers."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.rows import CONFIG, FIXED, payload_of, reassembled, rows_of, segment_batch

from shardwire import _native
from shardwire.archive.arrow import limits_of, parameters

Rows = list[dict[str, Any]]


def machine_of(window_bytes: int, by_count: int = 0) -> _native.ArrowLocalReconstructor:
    return _native.ArrowLocalReconstructor(
        parameters(CONFIG),
        by_count=by_count,
        include_payload=True,
        window_bytes=window_bytes,
        partition=5,
        **limits_of(CONFIG),
    )


def run(
    rows: Rows, *, window_bytes: int = 1 << 20, batch_rows: int = 7, by: dict[str, pa.DataType] | None = None
) -> tuple[Rows, Rows]:
    """The messages, and the leftovers without those that say that a message is whole."""
    machine = machine_of(window_bytes, len(by or {}))
    messages: Rows = []
    leftovers: Rows = []

    def take(batches: list[pa.RecordBatch]) -> None:
        messages.extend(row for batch in batches for row in batch.to_pylist())
        left = machine.poll_leftovers()
        if left is not None:
            assert left.schema.names == [*(by or {}), *FIXED]
            leftovers.extend(left.to_pylist())

    for start in range(0, len(rows), batch_rows):
        take(machine.push(segment_batch(rows[start : start + batch_rows], by)))
    take(machine.finish())
    assert machine.poll_leftovers() is None
    told = [row for row in leftovers if row["error"] == "whole"]
    hashes = [row["hash"] for row in told]
    assert hashes == [row["entire_message_hash"] for row in messages if row["entire_message_hash"] is not None]
    assert {row["timestamp"] for row in told} <= {5}
    # 21 bytes for each data segment that is missing.
    lengths = [21 * (row["data_segments_recovered"] or 0) for row in messages if row["entire_message_hash"] is not None]
    assert [len(row["payload"]) for row in told] == lengths
    return messages, [row for row in leftovers if row["error"] != "whole"]


def test_leftovers_go_on_as_they_came() -> None:
    whole, torn = rows_of(payload_of(16, 3_000)), rows_of(payload_of(17, 3_000))[:3]
    for place, row in enumerate(torn):
        row |= {"timestamp": place, "sender": "alice"}
    messages, leftovers = run([torn[0], *whole, *torn[1:], torn[0], {"error": "noise"}])
    assert [(row["status"], row["payload"]) for row in messages] == [
        ("complete", payload_of(16, 3_000)),
        ("invalid", None),
    ]
    assert [{name: row[name] for name in torn[0]} for row in leftovers] == torn


def test_messages_side_by_side_keep_their_by_columns_and_counts() -> None:
    by = {"topic": pa.string(), "shard": pa.int32()}
    rows = []
    for number in range(10):
        for topic, shard in (("a", 1), ("a", 2), ("b", None)):
            rows += [{**row, "topic": topic, "shard": shard} for row in rows_of(payload_of(number, 2_000))]
    rows += rows[:5]
    random.Random(1).shuffle(rows)
    messages, leftovers = run(rows, by=by)
    assert leftovers == []
    assert {(row["topic"], row["shard"], row["payload"]) for row in messages} == {
        (topic, shard, payload_of(number, 2_000))
        for number in range(10)
        for topic, shard in (("a", 1), ("a", 2), ("b", None))
    }
    assert len(messages) == 30
    assert sum(row["duplicates"] for row in messages) == 5


def test_a_full_window_settles_what_is_oldest_and_drops_its_late_repeats() -> None:
    payloads = [payload_of(number, 5_000) for number in range(40)]
    rows = [row for payload in payloads for row in rows_of(payload)]
    late, torn = rows_of(payloads[0])[2:5], rows_of(payload_of(100, 5_000))
    # The first half of one message comes before everything else, the second after it.
    messages, leftovers = run([*torn[:4], *rows, *late, *torn[4:8]], window_bytes=100_000)
    assert [row["payload"] for row in messages] == payloads
    assert [row["payload"] for row in leftovers] == [row["payload"] for row in torn[:8]]


def test_a_window_full_of_small_groups_keeps_few_batches_alive() -> None:
    machine = machine_of(window_bytes=100_000)
    before, peak, given, left = pa.total_allocated_bytes(), 0, 0, 0
    for number in range(300):
        # Each group has one segment in this batch and one in the next: nothing is ever whole.
        rows = [row for group in range(number, number + 2) for row in rows_of(payload_of(group, 2_000))[:1]]
        rows += [{"hash": rows[0]["hash"], "payload": bytes(5_000)} for _ in range(5)]
        batch = segment_batch(rows)
        given += batch.nbytes
        assert machine.push(batch) == []
        del batch
        leftovers = machine.poll_leftovers()
        left += 0 if leftovers is None else leftovers.num_rows
        del leftovers
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert [row["status"] for out in machine.finish() for row in out.to_pylist()] == []
    assert left + machine.poll_leftovers().num_rows >= 301
    assert peak < 600_000 < given / 10


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), window_bytes=st.sampled_from([0, 4_000, 30_000, 1 << 20]))
def test_both_passes_together_find_what_the_reassembler_finds(seed: int, window_bytes: int) -> None:
    chance = random.Random(seed)
    rows: Rows = []
    for number in range(chance.randrange(1, 6)):
        payload = payload_of(seed + number, chance.choice([1, 639, 641, 3_000, 6_401]))
        arrived = [row for row in rows_of(payload) if chance.random() < 0.8]
        rows += arrived + [row for row in arrived if chance.random() < 0.2]
    chance.shuffle(rows)
    messages, leftovers = run(rows, window_bytes=window_bytes, batch_rows=chance.randrange(1, 20))
    found = {row["entire_message_hash"]: row["payload"] for row in messages}
    # Of a message that is whole already, a late segment may be left, which tells whether it came at all.
    found |= reassembled([row["payload"] for row in leftovers if row["hash"] not in found], CONFIG)
    assert found == reassembled([row["payload"] for row in rows], CONFIG)
    assert None not in found.values()


def meet(rows: Rows) -> tuple[Rows, Rows]:
    """What the second pass makes of leftovers: the messages and the corrections."""
    machine = _native.ArrowReconstructor(parameters(CONFIG), by_count=0, include_payload=True, **limits_of(CONFIG))
    ordered = sorted(rows, key=lambda row: row["hash"])
    found = [row for batch in machine.push(segment_batch(ordered)) for row in batch.to_pylist()]
    found += [row for batch in machine.finish() for row in batch.to_pylist()]
    told = machine.poll_corrections()
    return found, [] if told is None else told.to_pylist()


def left_by(rows: Rows, partition: int) -> Rows:
    """Everything that a partition leaves for the others."""
    machine = _native.ArrowLocalReconstructor(
        parameters(CONFIG),
        by_count=0,
        include_payload=True,
        window_bytes=1 << 20,
        partition=partition,
        **limits_of(CONFIG),
    )
    machine.push(segment_batch(rows))
    machine.finish()
    left = machine.poll_leftovers()
    return [] if left is None else left.to_pylist()


PAYLOAD = payload_of(50, 5_000)
PARTS = rows_of(PAYLOAD)


def test_a_message_is_complete_where_its_missing_segments_lie_in_other_partitions() -> None:
    # Eight data segments and four of parity: the first partition recovers 1 and 2.
    first = left_by([PARTS[0], *PARTS[3:]], 3)
    for rest, wanted in (
        ([*PARTS[1:3]], [(3, "0")]),
        ([PARTS[1]], [(3, "1")]),
        ([PARTS[9]], []),
        ([], []),
    ):
        messages, told = meet([*first, *left_by(rest, 4)])
        assert messages == []
        assert [(row["timestamp"], row["error"]) for row in told] == wanted


def test_a_forged_segment_completes_nothing_and_a_padded_one_does() -> None:
    parts = rows_of(payload_of(51, 5_000))
    first = left_by([*parts[:7], *parts[8:]], 0)
    forged = parts[7]["payload"][:-4] + b"----"
    assert meet([*first, {"hash": parts[7]["hash"], "payload": forged}])[1] == []
    told = meet([*first, {"hash": parts[7]["hash"], "payload": parts[7]["payload"]}])[1]
    assert [row["error"] for row in told] == ["0"]


def test_one_row_stands_for_a_message_that_is_whole_in_several_partitions() -> None:
    lacking = []
    for partition, lost in enumerate(((0, 1), (2,), (2,))):
        lacking.append(left_by([part for place, part in enumerate(PARTS) if place not in lost], partition))
    messages, told = meet([row for left in lacking for row in left])
    assert messages == []
    # The second one's stands, and what it lacks came in the first.
    assert sorted((row["timestamp"], row["error"] or "dropped") for row in told) == [
        (0, "dropped"),
        (1, "0"),
        (2, "dropped"),
    ]


def test_a_late_segment_of_a_recovered_message_goes_on() -> None:
    others = [row for number in range(40) for row in rows_of(payload_of(number, 5_000))]
    messages, leftovers = run([*PARTS[1:], *others, PARTS[0], PARTS[3]], window_bytes=100_000)
    assert [row["data_segments_recovered"] for row in messages if row["payload"] == PAYLOAD] == [1]
    # One that the message had is a repeat and is dropped.
    assert [row["payload"] for row in leftovers] == [PARTS[0]["payload"]]

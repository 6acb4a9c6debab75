"""The native state machine under `reconstruct`, fed batch by batch without Spark."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.rows import CONFIG, payload_of, reassembled, rows_of, segment_batch

from shardwire import ReassemblyLimits, SegmentationConfig, _native, keccak256
from shardwire.archive.arrow import limits_of, parameters
from shardwire.segmentation import segment
from shardwire.spark.reconstruct import Reconstruction


def run(
    rows: list[dict[str, Any]],
    config: SegmentationConfig = CONFIG,
    *,
    batch_rows: int = 3,
    include_payload: bool = True,
    by: dict[str, pa.DataType] | None = None,
) -> list[dict[str, Any]]:
    batches = [segment_batch(rows[start : start + batch_rows], by) for start in range(0, len(rows), batch_rows)]
    reconstruction = Reconstruction(config, len(by or {}), include_payload)
    return [row for batch in reconstruction(batches) for row in batch.to_pylist()]


def test_a_complete_message_in_any_order_and_any_batches() -> None:
    payload = payload_of(1, 5_000)
    rows = rows_of(payload)
    random.Random(1).shuffle(rows)
    for batch_rows in (1, 2, 3, 100):
        [message] = run(rows, batch_rows=batch_rows)
        assert message["status"] == "complete"
        assert message["payload"] == payload
        assert message["payload_length"] == 5_000
        assert message["entire_message_hash"] == keccak256(payload)
        assert (message["data_segment_count"], message["parity_segment_count"]) == (8, 4)
        assert (message["segments_received"], message["duplicates"], message["conflicts"]) == (12, 0, 0)
        assert (message["copies"], message["data_segments_recovered"], message["erasure_code"]) == (1, 0, None)
        assert message["error"] is None


@pytest.mark.parametrize("wire_format", ["raw", "draft", "lip243"])
@pytest.mark.parametrize("erasure_code", ["leopard", "vandermonde"])
def test_lost_segments_come_back_through_parity(wire_format: Any, erasure_code: Any) -> None:
    config = SegmentationConfig(
        segment_size_bytes=640,
        enable_reed_solomon=True,
        parity_rate=0.5,
        wire_format=wire_format,
        erasure_code=erasure_code,
    )
    payload = payload_of(2, 5_001)
    rows = rows_of(payload, config, lost=(0, 7))
    [message] = run(rows, config)
    assert message["payload"] == payload
    assert message["status"] == "recovered"
    assert message["data_segments_recovered"] == 2
    assert message["erasure_code"] == erasure_code


def test_the_empty_payload() -> None:
    [message] = run(rows_of(b""))
    assert (message["status"], message["payload"], message["payload_length"]) == ("complete", b"", 0)


def test_too_few_segments_are_incomplete() -> None:
    payload = payload_of(3, 5_000)
    [message] = run(rows_of(payload, lost=range(5)))
    assert message["status"] == "incomplete"
    assert message["payload"] is None
    assert message["payload_length"] is None
    assert message["segments_received"] == 7


def test_duplicates_and_copies() -> None:
    payload = payload_of(4, 5_000)
    rows = rows_of(payload)
    [once_repeated] = run([*rows, rows[3]])
    assert (once_repeated["duplicates"], once_repeated["copies"]) == (1, 1)
    [sent_twice] = run([*rows, *rows[1:]])
    assert (sent_twice["duplicates"], sent_twice["copies"]) == (11, 2)
    assert sent_twice["payload"] == payload


def test_a_poisoned_segment_is_found_out() -> None:
    payload = payload_of(5, 5_000)
    genuine = segment(payload, CONFIG)
    position = genuine[2].index(payload[1280:1290])
    forged = genuine[2][:position] + bytes(10) + genuine[2][position + 10 :]
    digest = keccak256(payload)
    for order in ([forged, *genuine], [*genuine, forged]):
        [message] = run([{"hash": digest, "payload": part} for part in order])
        assert message["payload"] == payload
        assert message["conflicts"] == 1
    alone = [*genuine[:2], forged, *genuine[3:]]
    [message] = run([{"hash": digest, "payload": part} for part in alone])
    assert message["payload"] == reassembled(alone, CONFIG).get(digest)


def test_forged_counts_do_not_decide_the_geometry() -> None:
    payload = payload_of(6, 5_000)
    digest = keccak256(payload)
    forger = SegmentationConfig(segment_size_bytes=320)
    # The forger's segments claim the same hash with other counts.
    forged = [part.replace(keccak256(payload_of(7, 5_000)), digest) for part in segment(payload_of(7, 5_000), forger)]
    rows = [{"hash": digest, "payload": part} for part in [*forged[:5], *segment(payload, CONFIG)[2:]]]
    [message] = run(rows)
    assert message["payload"] == payload
    assert message["data_segment_count"] == 8


def test_forged_counts_of_either_class_do_not_part_a_draft_message() -> None:
    config = SegmentationConfig(segment_size_bytes=640, enable_reed_solomon=True, wire_format="draft")
    payload = payload_of(6, 640 * 8)
    digest = keccak256(payload)
    other = payload_of(7, 640 * 24)
    # As long as the genuine ones, for the same hash: one of 24 data segments, one of 3 parity segments.
    claims = [part.replace(keccak256(other), digest) for part in segment(other, config)]
    genuine = segment(payload, config)
    parts = [claims[1], claims[25], *genuine[1:]]
    for order in (parts, parts[::-1]):
        [message] = run([{"hash": digest, "payload": part} for part in order], config)
        assert (message["status"], message["payload"]) == ("recovered", payload)


def test_segments_that_hash_to_something_else_are_invalid() -> None:
    digest = keccak256(b"never sent")
    forged = [part.replace(keccak256(payload_of(8, 2_000)), digest) for part in segment(payload_of(8, 2_000), CONFIG)]
    [message] = run([{"hash": digest, "payload": part} for part in forged])
    assert message["status"] == "invalid"
    assert message["payload"] is None
    assert "hashes to" in message["error"]


def test_messages_keep_their_order_and_their_by_columns() -> None:
    by = {"topic": pa.string(), "shard": pa.int32()}
    rows, wanted = [], []
    for number in range(40):
        payload = payload_of(number, 700 + number)
        for topic, shard in (("a", 1), ("a", 2), ("b", None)):
            rows += [{**row, "topic": topic, "shard": shard} for row in rows_of(payload)]
            wanted.append((topic, shard, payload))
    for batch_rows in (1, 7, 1000):
        found = run(rows, by=by, batch_rows=batch_rows)
        assert [(row["topic"], row["shard"], row["payload"]) for row in found] == wanted
        assert {row["status"] for row in found} == {"complete"}


def test_sends_of_one_payload_are_rows_of_their_own() -> None:
    payload = payload_of(9, 2_000)
    rows = [{**row, "send_id": send} for send in ("11", "22") for row in rows_of(payload)]
    found = run(rows)
    assert [(row["send_id"], row["payload"], row["copies"]) for row in found] == [
        ("11", payload, 1),
        ("22", payload, 1),
    ]


def test_times_and_senders() -> None:
    rows = rows_of(payload_of(10, 2_000))
    for row, (timestamp, sender) in zip(rows, [(5, "bob"), (None, None), (-3, "alice"), (9, "bob")], strict=False):
        row |= {"timestamp": timestamp, "sender": sender}
    [message] = run(rows)
    assert (message["first_timestamp"], message["last_timestamp"]) == (-3, 9)
    assert message["senders"] == ["alice", "bob"]


def test_rows_that_cannot_be_read_are_counted_by_reason() -> None:
    rows = [
        {"error": "no segment: a", "timestamp": 2},
        {"error": "no segment: b", "timestamp": 4},
        {"error": "no segment: b", "timestamp": 3},
    ]
    told = [(row["status"], row["segments_received"], row["error"]) for row in run(rows, batch_rows=1)]
    assert told == [("invalid", 1, "no segment: a"), ("invalid", 2, "no segment: b")]
    assert [row["first_timestamp"] for row in run(rows)] == [2, 3]


def test_hostile_bytes_under_a_key_do_not_hide_the_message() -> None:
    payload = payload_of(11, 2_000)
    rows = rows_of(payload)
    noise = [b"", b"\xff" * 50, random.Random(2).randbytes(500), segment(b"another", CONFIG)[0]]
    rows += [{"hash": keccak256(payload), "payload": part} for part in noise]
    [message] = run(rows)
    assert message["payload"] == payload
    assert message["status"] == "complete"
    [message] = run([{"hash": keccak256(payload), "payload": part} for part in noise])
    assert message["status"] == "invalid"


def test_lengths_alone() -> None:
    [message] = run(rows_of(payload_of(12, 2_000)), include_payload=False)
    assert message["payload"] is None
    assert (message["status"], message["payload_length"]) == ("complete", 2_000)


def test_draft_delivers_whole_messages() -> None:
    config = SegmentationConfig(segment_size_bytes=640, wire_format="draft")
    [message] = run(rows_of(b"a small one", config), config)
    assert (message["status"], message["payload"]) == ("complete", b"a small one")
    assert message["data_segment_count"] == 1
    [message] = run([{"hash": keccak256(b"another"), "payload": b"a small one"}], config)
    assert message["status"] == "invalid"


def test_a_group_holds_no_more_than_its_limits() -> None:
    limits = ReassemblyLimits(buffered_bytes_per_sender_max=4_000, candidates_per_slot_max=2)
    config = SegmentationConfig(segment_size_bytes=640, limits=limits)
    payload = payload_of(13, 5_000)
    [message] = run(rows_of(payload, config), config)
    assert message["status"] == "incomplete"
    assert "may hold" in message["error"]
    # Five whole segments and the short last one.
    assert message["segments_received"] == 6


def test_a_flood_of_duplicates_and_rivals_is_bounded() -> None:
    payload = payload_of(14, 2_000)
    digest = keccak256(payload)
    genuine = segment(payload, CONFIG)
    offset = genuine[1].index(payload[640:650])
    rivals = [genuine[1][:offset] + bytes([n] * 10) + genuine[1][offset + 10 :] for n in range(100)]
    rows = [{"hash": digest, "payload": part} for part in [*genuine, *genuine * 50, *rivals]]
    [message] = run(rows, batch_rows=20)
    assert message["payload"] == payload
    assert message["conflicts"] == 100
    assert message["duplicates"] == 50 * len(genuine)


# Views came with pyarrow 16.
VIEWS = [pa.binary_view()] if hasattr(pa, "binary_view") else []


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), *VIEWS])
def test_every_binary_layout_is_taken(kind: pa.DataType) -> None:
    payload = payload_of(15, 3_000)
    batch = segment_batch(rows_of(payload))
    columns = [column.cast(kind) if pa.types.is_binary(column.type) else column for column in batch.columns]
    cast = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    # A slice has an offset into the same buffers.
    for batches in ([cast], [cast.slice(0, 2), cast.slice(2)]):
        found = [row for out in Reconstruction(CONFIG, 0, True)(batches) for row in out.to_pylist()]
        assert [row["payload"] for row in found] == [payload]


def test_no_rows_give_no_rows() -> None:
    assert run([]) == []
    assert [out.num_rows for out in Reconstruction(CONFIG, 0, True)([segment_batch([])])] == []


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="columns"):
        list(Reconstruction(CONFIG, 1, True)([segment_batch([])]))
    wrong = pa.RecordBatch.from_pydict({name: pa.array([1]) for name in segment_batch([]).schema.names})
    with pytest.raises(TypeError, match="must be binary"):
        list(Reconstruction(CONFIG, 0, True)([wrong]))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_loss_order_and_repeats_equal_the_reassembler(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32), label="seed")
    wire_format = data.draw(st.sampled_from(["raw", "draft", "lip243"]), label="wire")
    config = SegmentationConfig(
        segment_size_bytes=640, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format
    )
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    everything: list[bytes] = []
    for number in range(chance.randrange(1, 5)):
        payload = payload_of(seed + number, chance.choice([1, 639, 640, 641, 3_000, 6_401]))
        arrived = [row for row in rows_of(payload, config) if chance.random() < 0.75]
        arrived += [row for row in arrived if chance.random() < 0.2]
        chance.shuffle(arrived)
        rows += arrived
        everything += [row["payload"] for row in arrived]
    # Payloads of one byte are all the same message.
    rows.sort(key=lambda row: row["hash"])
    found = run(rows, config, batch_rows=chance.randrange(1, 20))
    assert {row["entire_message_hash"]: row["payload"] for row in found if row["payload"] is not None} == reassembled(
        everything, config
    )
    assert len(found) == len({row["hash"] for row in rows})
    assert all((row["status"] in ("complete", "recovered")) == (row["payload"] is not None) for row in found)


def whole(payload: bytes, partition: int) -> dict[str, Any]:
    """What a partition says of a message that it holds whole."""
    return {"hash": keccak256(payload), "payload": b"", "timestamp": partition, "error": "whole"}


def test_a_message_that_is_whole_elsewhere_has_no_row() -> None:
    one, two, three = (payload_of(number, 3_000) for number in (40, 41, 42))
    machine = _native.ArrowReconstructor(parameters(CONFIG), by_count=0, include_payload=True, **limits_of(CONFIG))
    # Only its hash tells; its late repeats may stand on either side of that row.
    repeats = rows_of(one)
    rows = [*repeats[:2], whole(one, 1), *repeats[2:], *rows_of(two)]
    rows += [whole(three, 1), whole(three, 2)]
    found = [*machine.push(segment_batch(rows)), *machine.finish()]
    assert [row["payload"] for batch in found for row in batch.to_pylist()] == [two]
    told = machine.poll_corrections().to_pylist()
    assert [(row["hash"], row["timestamp"], row["error"]) for row in told] == [(keccak256(three), 2, None)]

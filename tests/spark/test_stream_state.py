"""The processor of a stream by itself: what it keeps of a message, for how long, and the row that it gives."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.types import Row, StructType
from spark.rows import CONFIG, payload_of, without

from shardwire import ReassemblyLimits, SegmentationConfig, keccak256
from shardwire.segmentation import segment
from shardwire.spark import stream_state
from shardwire.spark.stream_known import Known
from shardwire.spark.stream_state import StreamReconstruction

# PySpark 3.5 keeps the state of a stream in frames.
processors = pytest.importorskip("pyspark.sql.streaming.stateful_processor", reason="PySpark 3.5 has no such processor")
PAYLOAD = payload_of(1, 5_000)
PARTS = segment(PAYLOAD, CONFIG)
REMEMBER_MS = 1_000_000


class MapStore:
    """Stands for a part of the state of one bucket: what is written is what Spark would write."""

    def __init__(self, key: StructType, schema: StructType) -> None:
        self.key = key
        self.schema = schema
        self.values: dict[bytes, bytes] = {}
        self.written = 0

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        found = self.values.get(pickle.dumps(self.key.toInternal(key)))
        return None if found is None else pickle.loads(found)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.written += 1
        self.values[pickle.dumps(self.key.toInternal(key))] = pickle.dumps(self.schema.toInternal(value))

    def removeKey(self, key: tuple[Any, ...]) -> None:
        del self.values[pickle.dumps(self.key.toInternal(key))]

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        return ((pickle.loads(key), pickle.loads(value)) for key, value in self.values.items())


class ValueStore(MapStore):
    def __init__(self, schema: StructType) -> None:
        super().__init__(StructType(), schema)

    def get(self) -> tuple[Any, ...] | None:
        return self.getValue(())

    def update(self, value: tuple[Any, ...]) -> None:
        self.updateValue((), value)

    def clear(self) -> None:
        self.values = {}


class Stream:
    """Feeds a processor as Spark does, with the segments of one message unless it is told of others."""

    known: MapStore
    segments: MapStore

    def __init__(self, config: SegmentationConfig = CONFIG, digest: bytes | None = keccak256(PAYLOAD)) -> None:
        self.timers: set[int] = set()
        self.watermark = 0
        self.digest = digest
        self.key = ("topic", 0)
        self.processor = StreamReconstruction(config, ("topic",), True, REMEMBER_MS)
        self.processor.init(self)  # type: ignore[arg-type]

    def getValueState(self, _: str, schema: StructType) -> ValueStore:
        self.index = ValueStore(schema)
        return self.index

    def getMapState(self, name: str, key: StructType, schema: StructType) -> MapStore:
        store = MapStore(key, schema)
        setattr(self, name, store)
        return store

    def registerTimer(self, at: int) -> None:
        self.timers.add(at)

    def batch(
        self,
        parts: Sequence[bytes | None],
        at: int = 1_000,
        error: str | None = None,
        sender: str = "alice",
        digest: bytes | None = None,
    ) -> list[Row]:
        return self.feed([self.row(part, at, error, sender, digest) for part in parts])

    def row(
        self,
        part: bytes | None,
        at: int = 1_000,
        error: str | None = None,
        sender: str = "alice",
        digest: bytes | None = None,
    ) -> dict[str, Any]:
        return {
            "shardwire_hash": self.digest if digest is None else digest,
            "shardwire_send_id": None,
            "shardwire_payload": part,
            "shardwire_timestamp": at * 1_000_000,
            "shardwire_sender": sender,
            "shardwire_error": error,
            "shardwire_event_time": at,
        }

    def feed(self, rows: Sequence[dict[str, Any]]) -> list[Row]:
        """One micro-batch."""
        return list(self.processor.handleInputRows(self.key, iter(rows), processors.TimerValues(-1, self.watermark)))

    def held(self) -> list[bytes]:
        """The bytes of the segments in the state."""
        return [payload for _, (segments,) in self.segments.iterator() for payload, *_ in segments]

    def left(self) -> list[str]:
        """What of the state is not empty."""
        stores = {name: getattr(self, name).values for name in ("index", "known", "segments")}
        return [name for name, values in (*stores.items(), ("timers", self.timers)) if values]

    def advance(self, watermark: int) -> list[Row]:
        """Moves the watermark and fires what is due."""
        self.watermark = watermark
        rows = []
        for at in sorted(self.timers):
            if at <= watermark:
                rows += list(
                    self.processor.handleExpiredTimer(
                        self.key, processors.TimerValues(-1, watermark), processors.ExpiredTimerInfo(at)
                    )
                )
                self.timers.discard(at)
        return rows


def test_a_message_in_one_micro_batch_leaves_no_bytes_behind() -> None:
    stream = Stream()
    [row] = stream.batch(PARTS)
    assert (row["topic"], row["payload"], row["status"]) == ("topic", PAYLOAD, "complete")
    assert (row["first_timestamp"], row["senders"]) == (1_000_000_000, ["alice"])
    assert stream.left() == ["index", "timers"]
    assert stream.known.written == stream.segments.written == 0
    assert sum(map(len, stream.index.values.values())) < 100


def test_a_message_over_many_micro_batches_and_its_repeats() -> None:
    stream = Stream()
    kept = without(PARTS, (1, 4))
    for at, part in enumerate(kept[:7]):
        assert stream.batch([part], at) == []
    # Eight data segments and four parity ones: the eighth place makes it whole.
    [row] = stream.batch([kept[0], kept[7]], 50)
    assert (row["status"], row["payload"], row["data_segments_recovered"]) == ("recovered", PAYLOAD, 2)
    assert (row["duplicates"], row["segments_received"], row["copies"]) == (1, 8, 1)
    assert (row["first_timestamp"], row["last_timestamp"]) == (0, 50_000_000)
    assert stream.batch(PARTS, 60) == []
    assert stream.left() == ["index", "timers"]


def test_a_message_that_was_sent_twice_is_told_so() -> None:
    stream = Stream()
    assert stream.batch(PARTS[:7] * 2) == []
    [row] = stream.batch(PARTS[7:8] * 2)
    assert (row["status"], row["copies"], row["duplicates"]) == ("complete", 2, 8)


def test_a_forged_larger_count_does_not_hold_a_message_back() -> None:
    stream = Stream()
    [*_, other] = segment(PAYLOAD, SegmentationConfig(segment_size_bytes=320))
    assert stream.batch([other]) == []
    [row] = stream.batch(PARTS[:8])
    assert (row["status"], row["payload"]) == ("complete", PAYLOAD)


def test_a_segment_may_come_more_often_than_its_count_tells() -> None:
    known = Known()
    assert known.keeps(0, 1, b"segment", CONFIG.limits)
    known.places[0][0].times = (1 << 32) - 1
    assert not known.keeps(0, 1, b"segment", CONFIG.limits)
    assert Known.from_state(known.to_state()).copies() == (1 << 32) - 1


def test_as_many_senders_are_named_as_elsewhere() -> None:
    stream = Stream()
    names = [f"{number:02}" for number in range(70)]
    for name in reversed(names):
        stream.batch(PARTS[:1], sender=name)
    [row] = stream.advance(10**9)
    assert row["senders"] == names[-64:]


def test_a_finished_message_is_forgotten_after_its_last_repeat() -> None:
    stream = Stream()
    stream.batch(PARTS, 1_000)
    stream.batch(PARTS[:1], 500_000)
    assert stream.advance(1_000 + REMEMBER_MS) == []
    assert stream.batch(PARTS, 500_001) == []
    assert stream.advance(500_001 + REMEMBER_MS) == []
    assert stream.left() == []
    assert [row["status"] for row in stream.batch(PARTS, 2_000_000)] == ["complete"]


def test_an_unfinished_message_expires_by_its_last_new_segment() -> None:
    stream = Stream()
    timeout_ms = CONFIG.limits.timeout_ms
    stream.batch(PARTS[:3], 1_000)
    stream.batch(PARTS[3:5], 200_000)
    # A repeat is nothing new, and what comes late takes no time away.
    stream.batch(PARTS[:1], 250_000)
    stream.batch(PARTS[5:6], 5)
    assert stream.advance(200_000 + timeout_ms - 1) == []
    [row] = stream.advance(200_000 + timeout_ms)
    assert (row["status"], row["segments_received"], row["duplicates"]) == ("incomplete", 6, 1)
    assert (row["entire_message_hash"], row["payload"]) == (keccak256(PAYLOAD), None)
    assert stream.left() == []


def test_a_segment_behind_the_watermark_is_used() -> None:
    stream = Stream()
    stream.batch(PARTS[:7], 1_000_000)
    stream.watermark = 1_200_000
    [row] = stream.batch(PARTS[7:8], 5)
    assert row["payload"] == PAYLOAD


def test_one_that_begins_behind_the_watermark_waits_for_the_next_advance() -> None:
    stream = Stream()
    stream.watermark = 10_000_000
    assert stream.batch(PARTS[:2], 5) == []
    assert all(at > stream.watermark for at in stream.timers)
    assert [row["status"] for row in stream.advance(20_000_000)] == ["incomplete"]


def forged(part: bytes, number: int) -> bytes:
    """A segment for the same place with other bytes."""
    return part[:300] + number.to_bytes(4, "big") + part[304:]


def test_rivals_are_bounded_and_the_message_is_found_among_them() -> None:
    stream = Stream()
    limits = CONFIG.limits
    flood = [forged(PARTS[2], number) for number in range(200)]
    assert stream.batch([PARTS[2], *flood]) == []
    assert len(stream.held()) == limits.candidates_per_slot_max
    found = stream.batch([part for part in PARTS if part != PARTS[2]])
    assert [(row["payload"], row["conflicts"]) for row in found] == [(PAYLOAD, 200)]


def test_one_message_holds_no_more_bytes_than_it_may() -> None:
    config = SegmentationConfig(
        segment_size_bytes=640,
        enable_reed_solomon=True,
        parity_rate=0.5,
        limits=ReassemblyLimits(buffered_bytes_per_sender_max=4_000),
    )
    stream = Stream(config)
    for number in range(100):
        assert stream.batch([forged(part, number) for part in PARTS[:7]]) == []
    assert sum(map(len, stream.held())) <= 4_000
    [row] = stream.advance(10**9)
    # What had no room in a place of its own is no rival of anything.
    rivals = 99 * row["segments_received"]
    assert (row["status"], row["payload"], row["conflicts"]) == ("incomplete", None, rivals)


def test_forged_segments_alone_end_as_invalid() -> None:
    stream = Stream()
    for number in range(3):
        assert stream.batch([forged(part, number) for part in PARTS]) == []
    [row] = stream.advance(10**9)
    assert (row["status"], row["payload"]) == ("invalid", None)
    assert row["conflicts"] == 2 * len(PARTS)


def test_what_is_no_segment_of_the_message_is_told() -> None:
    other = segment(payload_of(2, 5_000), CONFIG)[0]
    told = set()
    for rows in ([b"noise", other], [other, b"noise"]):
        stream = Stream()
        assert stream.batch(rows) == []
        [row] = stream.advance(10**9)
        assert (row["status"], row["segments_received"]) == ("invalid", 0)
        told.add(row["error"])
    assert told == {"a segment of another message stands under this key"}


def test_unreadable_rows_are_counted_and_not_kept() -> None:
    stream = Stream(digest=None)
    [row] = stream.batch([None] * 5_000, error="no segment: of any kind")
    assert (row["status"], row["segments_received"], row["error"]) == ("invalid", 5_000, "no segment: of any kind")
    assert row["entire_message_hash"] is None
    assert stream.left() == []


@pytest.mark.parametrize("wire_format", ["draft", "lip243"])
def test_other_wires(wire_format: Any) -> None:
    config = SegmentationConfig(
        segment_size_bytes=640, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format
    )
    parts = without(segment(PAYLOAD, config), (0, 3))
    stream = Stream(config)
    rows = [row for part in parts for row in stream.batch([part])]
    assert [(row["status"], row["payload"]) for row in rows] == [("recovered", PAYLOAD)]


def test_a_message_that_went_whole_under_draft() -> None:
    config = SegmentationConfig(segment_size_bytes=640, wire_format="draft")
    stream = Stream(config, digest=keccak256(b"small"))
    assert [row["payload"] for row in stream.batch([b"small", b"small"])] == [b"small"]


def test_messages_of_a_bucket_are_kept_apart() -> None:
    others = {keccak256(payload): payload for payload in (payload_of(number, 5_000) for number in range(20, 26))}
    stream = Stream()
    assert stream.batch(PARTS[:3], 1_000) == []
    for digest, payload in others.items():
        assert stream.batch(segment(payload, CONFIG)[:7], 200_000, digest=digest) == []
    first, second, *_ = others
    # The rows of two messages between each other, and what is no segment among them.
    mixed = [
        row
        for pair in zip(*(segment(others[digest], CONFIG)[7:] for digest in (first, second)), strict=True)
        for row in zip((first, second), pair, strict=True)
    ]
    rows = [stream.row(part, 201_000, digest=digest) for digest, part in mixed]
    unread = {**stream.row(b"noise", 201_000, error="no segment"), "shardwire_hash": None}
    found = stream.feed([*rows, unread])
    assert [(row["status"], row["payload"]) for row in found] == [
        ("complete", others[first]),
        ("complete", others[second]),
        ("invalid", None),
    ]
    # The one that began first expires alone, by a timer that was there before those of the others.
    timeout_ms = CONFIG.limits.timeout_ms
    [row] = stream.advance(1_000 + timeout_ms)
    assert (row["entire_message_hash"], row["segments_received"]) == (keccak256(PAYLOAD), 3)
    assert stream.batch(PARTS[:1], 202_000, digest=second) == []
    assert {row["entire_message_hash"] for row in stream.advance(200_000 + timeout_ms)} == set(others) - {first, second}
    assert stream.left() == ["index", "timers"]
    assert stream.advance(202_000 + REMEMBER_MS) == []
    assert stream.left() == []


def test_a_micro_batch_of_more_than_a_task_may_hold_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_state, "WINDOW_BYTES", 2_000)
    stream = Stream()
    parts = without(PARTS, (1, 4))
    # Its repeats come in the same micro-batch, after it is whole.
    [row] = stream.batch([*parts, *parts])
    assert (row["status"], row["payload"]) == ("recovered", PAYLOAD)
    # Between two parts it is in the state, where it is not in memory.
    assert stream.segments.written > 1
    assert stream.left() == ["index", "timers"]
    other = payload_of(30, 5_000)
    rows = [stream.row(part, digest=keccak256(other)) for part in segment(other, CONFIG)]
    assert [row["payload"] for row in stream.feed(rows)] == [other]


def test_a_timer_is_moved_where_one_is_needed_sooner() -> None:
    stream = Stream()
    stream.batch(PARTS, 1_000)
    [late] = stream.timers
    other = payload_of(31, 5_000)
    stream.batch(segment(other, CONFIG)[:2], 2_000, digest=keccak256(other))
    assert min(stream.timers) == 2_000 + CONFIG.limits.timeout_ms < late
    assert [row["status"] for row in stream.advance(2_000 + CONFIG.limits.timeout_ms)] == ["incomplete"]
    assert stream.batch(PARTS[:1], 3_000) == []
    assert stream.advance(late - 1) == stream.advance(3_000 + REMEMBER_MS) == []
    assert stream.left() == []

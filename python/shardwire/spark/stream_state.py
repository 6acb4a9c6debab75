"""What a stream keeps of a message, and the processor that Spark runs on it, on the executors."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from shardwire import _native
from shardwire.archive.arrow import ERROR, PAYLOAD, SENDER, TIMESTAMP, batch_of, parameters
from shardwire.config import ReassemblyLimits, SegmentationConfig
from shardwire.errors import InvalidSegmentError
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.versions import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        ListState,
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )

EVENT_TIME = "shardwire_event_time"

_DIGEST_BYTES = 16
# Of one candidate: place, data segments that it announces (0: none), arrivals, digest of its bytes.
_CANDIDATE = struct.Struct(f"<HHI{_DIGEST_BYTES}s")
_PARITY, _WHOLE = 0x1000, 0x2000
_TIMES_MAX = (1 << 32) - 1


@dataclass(slots=True)
class Candidate:
    """A segment that is held for a place."""

    place: int
    data_segment_count: int
    times: int
    digest: bytes


@dataclass(slots=True)
class Known:
    """What is known of a message beside the bytes of its segments.

    Attributes:
        is_finished: Its row has been given; only repeats can come.
        deadline_ms: When the message expires, or a finished one is forgotten.
        timer_ms: When the timer that is registered fires: it is moved when it does, not with each segment.
    """

    is_finished: bool = False
    deadline_ms: int = 0
    timer_ms: int = 0
    held_bytes: int = 0
    duplicates: int = 0
    conflicts: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    senders: list[str] = field(default_factory=list)
    error: str | None = None
    places: dict[int, list[Candidate]] = field(default_factory=dict)

    def note(self, timestamp: int | None, sender: str | None) -> None:
        """Takes in when and from whom a segment came."""
        if timestamp is not None:
            self.first_timestamp = timestamp if self.first_timestamp is None else min(self.first_timestamp, timestamp)
            self.last_timestamp = timestamp if self.last_timestamp is None else max(self.last_timestamp, timestamp)
        if sender is not None and sender not in self.senders and len(self.senders) < _native.SENDERS_MAX:
            self.senders.append(sender)

    def note_error(self, error: str) -> None:
        """Keeps the least of the reasons, so that the order of arrival does not matter."""
        error = error.encode()[: _native.ERROR_LENGTH_MAX].decode(errors="ignore")
        self.error = error if self.error is None else min(self.error, error)

    def keeps(self, place: int, data_segment_count: int, segment: bytes, limits: ReassemblyLimits) -> bool:
        """Whether a segment is new and there is room for it; counts it either way."""
        digest = hashlib.blake2b(segment, digest_size=_DIGEST_BYTES).digest()
        rivals = self.places.get(place, [])
        for one in rivals:
            if one.digest == digest:
                one.times = min(one.times + 1, _TIMES_MAX)
                self.duplicates += 1
                return False
        no_room = self.held_bytes + len(segment) > limits.buffered_bytes_per_sender_max
        if no_room or len(rivals) >= limits.candidates_per_slot_max:
            # One that is kept is counted as a rival when the message is put together.
            self.conflicts += bool(rivals)
            return False
        self.held_bytes += len(segment)
        self.places.setdefault(place, []).append(Candidate(place, data_segment_count, 1, digest))
        return True

    def may_be_whole(self) -> bool:
        """Whether as many places are filled as the message seems to need."""
        if _WHOLE in self.places:
            return True
        counts = [one.data_segment_count for one in self.candidates() if one.data_segment_count]
        # The smallest count that any segment announces: a forged larger one must not hold the message back.
        return bool(counts) and len(self.places) >= min(counts)

    def copies(self) -> int:
        """How often the message seems to have been sent: the lower median, over its places, of their arrivals."""
        ordered = sorted(max(one.times for one in rivals) for rivals in self.places.values())
        return ordered[(len(ordered) - 1) // 2] if ordered else 0

    def candidates(self) -> list[Candidate]:
        """Every segment that is held."""
        return [one for rivals in self.places.values() for one in rivals]

    def finish(self) -> None:
        """Forgets what only an unfinished message needs."""
        self.is_finished = True
        self.held_bytes = 0
        self.senders.clear()
        self.places.clear()
        self.error = None

    def to_state(self) -> tuple[Any, ...]:
        """The values of `KNOWN_SCHEMA`."""
        packed = b"".join(
            _CANDIDATE.pack(one.place, one.data_segment_count, one.times, one.digest) for one in self.candidates()
        )
        return (*(getattr(self, name) for name in _KNOWN_NAMES), packed)

    @classmethod
    def from_state(cls, values: tuple[Any, ...]) -> Known:
        """What `to_state` wrote."""
        *known, packed = values
        named = dict(zip(_KNOWN_NAMES, known, strict=True))
        found = cls(**{**named, "senders": list(named["senders"])})
        for fields in _CANDIDATE.iter_unpack(bytes(packed)):
            one = Candidate(*fields)
            found.places.setdefault(one.place, []).append(one)
        return found


KNOWN_SCHEMA = StructType(
    [
        StructField("is_finished", BooleanType()),
        StructField("deadline_ms", LongType()),
        StructField("timer_ms", LongType()),
        StructField("held_bytes", LongType()),
        StructField("duplicates", LongType()),
        StructField("conflicts", LongType()),
        StructField("first_timestamp", LongType()),
        StructField("last_timestamp", LongType()),
        StructField("senders", ArrayType(StringType())),
        StructField("error", StringType()),
        StructField("candidates", BinaryType()),
    ]
)
_KNOWN_NAMES = KNOWN_SCHEMA.names[:-1]

SEGMENT_SCHEMA = StructType(
    [
        StructField("payload", BinaryType()),
        StructField("timestamp", LongType()),
        StructField("sender", StringType()),
    ]
)
Segment = tuple[bytes, int | None, str | None]


class StreamReconstruction(StatefulProcessor):
    """Runs on executors: the new segments of one message in, its row out when it is whole or expires.

    Bytes are put together only when enough places are filled: until then a micro-batch costs what it brings.
    """

    segment_schema = SEGMENT_SCHEMA

    def __init__(
        self, config: SegmentationConfig, by: tuple[str, ...], include_payload: bool, remember_ms: int
    ) -> None:
        self._config = config
        self._by = by
        self._include_payload = include_payload
        self._remember_ms = remember_ms
        self._result = Row(*by, *MESSAGE_FIELDS.names)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._known: ValueState = handle.getValueState("known", KNOWN_SCHEMA)
        self._segments: ListState = handle.getListState("segments", self.segment_schema)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        *by, digest, _ = key
        if digest is None:
            for counted in _unread(rows):
                yield self._row(by, counted)
            return
        state = self._known.get()
        known = Known() if state is None else Known.from_state(state)
        fresh, latest_ms = self._receive(known, bytes(digest), rows)
        found = None
        if fresh and known.may_be_whole():
            found = self._put_together(key, known, [*self._held(known, fresh), *fresh])
            if found["status"] in ("complete", "recovered"):
                known.finish()
                self._segments.clear()
        if known.is_finished:
            self._wait(known, latest_ms + self._remember_ms, timerValues)
        elif fresh or state is None:
            if fresh:
                self._segments.appendList(self._stored(fresh))
            self._wait(known, latest_ms + self._config.limits.timeout_ms, timerValues)
        self._known.update(known.to_state())
        if known.is_finished and found is not None:
            yield self._row(by, found)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        state = self._known.get()
        if state is None:
            return
        known = Known.from_state(state)
        if known.deadline_ms > timerValues.getCurrentWatermarkInMs():
            known.timer_ms = known.deadline_ms
            self._handle.registerTimer(known.timer_ms)
            self._known.update(known.to_state())
            return
        if not known.is_finished:
            yield self._row(
                key[: len(self._by)], self._put_together(key, known, list(self._loaded(self._segments.get())))
            )
        self._segments.clear()
        self._known.clear()

    def close(self) -> None:
        pass

    def _receive(self, known: Known, digest: bytes, rows: Iterable[Any]) -> tuple[list[Segment], int]:
        """The segments among the rows that are new and kept, and the latest time of any row."""
        fresh: list[Segment] = []
        latest_ms = 0
        for row in rows:
            latest_ms = max(latest_ms, row[EVENT_TIME])
            if known.is_finished:
                continue
            known.note(row[TIMESTAMP], row[SENDER])
            segment = row[PAYLOAD]
            try:
                place, data_segment_count = self._place(segment, digest)
            except InvalidSegmentError as error:
                known.note_error(str(error))
                continue
            if known.keeps(place, data_segment_count, segment, self._config.limits):
                fresh.append((bytes(segment), row[TIMESTAMP], row[SENDER]))
        return fresh, latest_ms

    def _place(self, segment: bytes, digest: bytes) -> tuple[int, int]:
        """Where a segment belongs, and the data segments that it announces."""
        header = _native.inspect_segment(segment, self._config.wire_format, self._config.max_total_segments)
        if header is None:
            return _WHOLE, 1
        if header.entire_message_hash != digest:
            raise InvalidSegmentError("a segment of another message stands under this key")
        index = header.parity_segment_index if header.is_parity else header.data_segment_index
        return (index or 0) | (_PARITY if header.is_parity else 0), header.data_segment_count or 0

    def _held(self, known: Known, fresh: list[Segment]) -> Iterable[Segment]:
        """The segments of earlier micro-batches; the state is read only where there are some."""
        return self._loaded(self._segments.get()) if len(known.candidates()) > len(fresh) else ()

    def _stored(self, segments: list[Segment]) -> list[Any]:
        """Segments as the state store takes them."""
        return segments

    def _loaded(self, stored: Iterable[Any]) -> Iterable[Segment]:
        """Segments as the state store gives them."""
        return stored

    def _put_together(self, key: Any, known: Known, segments: list[Segment]) -> dict[str, Any]:
        digest, send_id = key[len(self._by) :]
        return put_together(self._config, self._include_payload, (bytes(digest), send_id), known, segments)

    def _wait(self, known: Known, deadline_ms: int, timers: TimerValues) -> None:
        """Moves the deadline; a timer is registered only where none would fire before it."""
        known.deadline_ms = max(known.deadline_ms, deadline_ms, timers.getCurrentWatermarkInMs() + 1)
        if not known.timer_ms:
            known.timer_ms = known.deadline_ms
            self._handle.registerTimer(known.timer_ms)

    def _row(self, by: Iterable[Any], found: dict[str, Any]) -> Row:
        return self._result(*by, *(found[name] for name in MESSAGE_FIELDS.names))


def put_together(
    config: SegmentationConfig,
    include_payload: bool,
    key: tuple[bytes, str | None],
    known: Known,
    segments: Sequence[Segment],
) -> dict[str, Any]:
    """The message of a hash and a send id as `reconstruct` gives it, from the segments that are held."""
    limits = config.limits
    machine = _native.ArrowReconstructor(
        parameters(config),
        by_count=0,
        include_payload=include_payload,
        candidates_per_slot_max=limits.candidates_per_slot_max,
        held_bytes_max=limits.buffered_bytes_per_sender_max,
        work_budget=limits.work_budget,
    )
    payloads, timestamps, senders = zip(*segments, strict=True) if segments else ((), (), ())
    digest, send_id = key
    rows = max(1, len(segments))
    # A message of which no segment could be read is a row all the same.
    error = known.error if not segments else None
    batch = batch_of(
        {
            "hash": pa.array([digest] * rows, pa.binary()),
            "send_id": pa.array([send_id] * rows, pa.string()),
            "payload": pa.array(payloads or [None], pa.large_binary()),
            "timestamp": pa.array(timestamps or [None], pa.int64()),
            "sender": pa.array(senders or [None], pa.string()),
            "error": pa.array([error] * rows, pa.string()),
        }
    )
    [found] = [row for made in (*machine.push(batch), *machine.finish()) for row in made.to_pylist()]
    found["duplicates"] += known.duplicates
    found["conflicts"] += known.conflicts
    found["copies"] = known.copies()
    found["senders"] = sorted(known.senders)
    found["first_timestamp"], found["last_timestamp"] = known.first_timestamp, known.last_timestamp
    found["error"] = known.error if found["error"] is None else found["error"]
    return dict(found)


def _unread(rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """A row per reason for what could not be read; nothing of it is kept."""
    counts: Counter[str] = Counter()
    noted: defaultdict[str, Known] = defaultdict(Known)
    for row in rows:
        reason = row[ERROR] or ("the payload is null" if row[PAYLOAD] is None else _native.NO_HASH)
        counts[reason] += 1
        noted[reason].note(row[TIMESTAMP], row[SENDER])
    for reason in sorted(counts):
        known = noted[reason]
        yield dict.fromkeys(MESSAGE_FIELDS.names) | {
            "status": "invalid",
            "segments_received": counts[reason],
            "duplicates": 0,
            "conflicts": 0,
            "first_timestamp": known.first_timestamp,
            "last_timestamp": known.last_timestamp,
            "senders": sorted(known.senders),
            "copies": 0,
            "error": reason,
        }

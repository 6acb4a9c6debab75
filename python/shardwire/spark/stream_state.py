"""The processor that Spark runs on a stream, on the executors.

Messages share the state of a bucket: Spark asks Python once a bucket, and a message that comes whole asks for no state
of its own.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from shardwire import _native
from shardwire.archive.arrow import ERROR, HASH, PAYLOAD, SEND_ID, SENDER, TIMESTAMP, WINDOW_BYTES
from shardwire.config import SegmentationConfig
from shardwire.errors import InvalidSegmentError
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.stream_known import KNOWN_SCHEMA, PARITY, WHOLE, Known, Message, Segment, put_together
from shardwire.spark.versions import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )

EVENT_TIME = "shardwire_event_time"
BUCKET = "shardwire_bucket"
# Of each value of `by`. More of them cost a micro-batch of many messages more calls, fewer one of few messages the
# rewriting of more that is remembered. A checkpoint belongs to the number that it was made with.
BUCKETS = 1024

_NAME_BYTES = 16
# Of a message: its name, when it expires or is forgotten, whether it is unfinished.
_ENTRY = struct.Struct(f"<{_NAME_BYTES}sq?")


@dataclass(slots=True)
class Index:
    """The messages of a bucket: of a finished one nothing else is left.

    Attributes:
        deadlines: By name, when a message expires or a finished one is forgotten.
        timer_ms: When the timer that is registered fires, or 0: it is moved when it does, not with each segment.
    """

    deadlines: dict[bytes, int] = field(default_factory=dict)
    unfinished: set[bytes] = field(default_factory=set)
    timer_ms: int = 0

    def wait(self, name: bytes, deadline_ms: int, *, finished: bool) -> None:
        """Moves the deadline of a message, which is never sooner for what comes late."""
        self.deadlines[name] = max(self.deadlines.get(name, 0), deadline_ms)
        (self.unfinished.discard if finished else self.unfinished.add)(name)

    def drop(self, names: set[bytes]) -> None:
        """Forgets messages."""
        self.unfinished -= names
        self.deadlines = {name: at for name, at in self.deadlines.items() if name not in names}

    def to_state(self) -> tuple[Any, ...]:
        """The values of `INDEX_SCHEMA`."""
        packed = [_ENTRY.pack(name, at, name in self.unfinished) for name, at in self.deadlines.items()]
        return b"".join(packed), self.timer_ms

    @classmethod
    def from_state(cls, values: tuple[Any, ...] | None) -> Index:
        """What `to_state` wrote; an empty one where nothing was."""
        found = cls()
        if values is not None:
            packed, found.timer_ms = values
            for name, deadline_ms, is_unfinished in _ENTRY.iter_unpack(bytes(packed)):
                found.wait(name, deadline_ms, finished=not is_unfinished)
        return found


INDEX_SCHEMA = StructType([StructField("messages", BinaryType()), StructField("timer_ms", LongType())])
_MESSAGE_FIELDS = [StructField("hash", BinaryType()), StructField("send_id", StringType())]
_MESSAGE_SCHEMA = StructType(_MESSAGE_FIELDS)
_CHUNK_SCHEMA = StructType([*_MESSAGE_FIELDS, StructField("number", IntegerType())])
_SEGMENT_SCHEMA = StructType(
    [
        StructField("payload", BinaryType()),
        StructField("timestamp", LongType()),
        StructField("sender", StringType()),
    ]
)
_SEGMENTS_SCHEMA = StructType([StructField("segments", ArrayType(_SEGMENT_SCHEMA))])


@dataclass(slots=True)
class _Arrival:
    """What a micro-batch brings of a message; `known` is None where the message is finished."""

    message: Message
    known: Known | None
    is_new: bool
    fresh: list[Segment] = field(default_factory=list)
    latest_ms: int = 0


class StreamReconstruction(StatefulProcessor):
    """Runs on executors: the new segments of the messages of a bucket in, a row of each that is whole or expires.

    Bytes are put together only when enough places are filled: until then a micro-batch costs what it brings.
    """

    def __init__(
        self, config: SegmentationConfig, by: tuple[str, ...], include_payload: bool, remember_ms: int
    ) -> None:
        self._config = config
        self._include_payload = include_payload
        self._remember_ms = remember_ms
        self._result = Row(*by, *MESSAGE_FIELDS.names)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._index: ValueState = handle.getValueState("index", INDEX_SCHEMA)
        self._known: MapState = handle.getMapState("known", _MESSAGE_SCHEMA, KNOWN_SCHEMA)
        self._segments: MapState = handle.getMapState("segments", _CHUNK_SCHEMA, _SEGMENTS_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        *by, _ = key
        index, unread = Index.from_state(self._index.get()), _Unread()
        touched: set[bytes] = set()
        for arrivals in self._arrivals(rows, index, unread):
            for found in self._use(arrivals, index, timerValues.getCurrentWatermarkInMs()):
                yield self._row(by, found)
            touched.update(_name(one.message) for one in arrivals)
        if touched:
            soonest = min(index.deadlines[name] for name in touched)
            self._write(index, soonest)
        for found in unread.found():
            yield self._row(by, found)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        *by, _ = key
        index, watermark_ms = Index.from_state(self._index.get()), timerValues.getCurrentWatermarkInMs()
        due = {name for name, at in index.deadlines.items() if at <= watermark_ms}
        expired = [] if index.unfinished.isdisjoint(due) else list(self._known.iterator())
        for message, values in expired:
            digest, send_id = message
            if _name((bytes(digest), send_id)) in due:
                one = _Arrival((bytes(digest), send_id), Known.from_state(values), is_new=False)
                [found] = self._put_together([one])
                self._forget(one)
                yield self._row(by, found)
        index.drop(due)
        index.timer_ms = 0
        if index.deadlines:
            self._write(index, min(index.deadlines.values()))
        else:
            self._index.clear()

    def close(self) -> None:
        pass

    def _arrivals(self, rows: Iterable[Any], index: Index, unread: _Unread) -> Iterator[list[_Arrival]]:
        """What the rows bring, a message once in each list: in several where they are more than a task may hold."""
        arrivals: dict[Message, _Arrival] = {}
        held_bytes = 0
        for row in rows:
            if row[HASH] is None:
                unread.note(row)
                continue
            message = (bytes(row[HASH]), row[SEND_ID])
            one = arrivals.get(message)
            if one is None:
                one = arrivals[message] = self._arrival(message, index)
            one.latest_ms = max(one.latest_ms, row[EVENT_TIME])
            held_bytes += self._receive(one, row)
            if held_bytes > WINDOW_BYTES:
                yield list(arrivals.values())
                arrivals, held_bytes = {}, 0
        yield list(arrivals.values())

    def _arrival(self, message: Message, index: Index) -> _Arrival:
        name = _name(message)
        if name in index.unfinished:
            return _Arrival(message, Known.from_state(_there(self._known.getValue(message))), is_new=False)
        is_new = name not in index.deadlines
        return _Arrival(message, Known() if is_new else None, is_new)

    def _receive(self, one: _Arrival, row: Any) -> int:
        """Takes in a row; the bytes of its segment where it is new and kept."""
        if one.known is None:
            return 0
        one.known.note(row[TIMESTAMP], row[SENDER])
        segment = row[PAYLOAD]
        try:
            place, data_segment_count = self._place(segment, one.message[0])
        except InvalidSegmentError as error:
            one.known.note_error(str(error))
            return 0
        if not one.known.keeps(place, data_segment_count, segment, self._config.limits):
            return 0
        one.fresh.append((bytes(segment), row[TIMESTAMP], row[SENDER]))
        return len(segment)

    def _place(self, segment: bytes, digest: bytes) -> tuple[int, int]:
        """Where a segment belongs, and the data segments that it announces."""
        header = _native.inspect_segment(segment, self._config.wire_format, self._config.max_total_segments)
        if header is None:
            return WHOLE, 1
        if header.entire_message_hash != digest:
            raise InvalidSegmentError("a segment of another message stands under this key")
        index = header.parity_segment_index if header.is_parity else header.data_segment_index
        return (index or 0) | (PARITY if header.is_parity else 0), header.data_segment_count or 0

    def _use(self, arrivals: Iterable[_Arrival], index: Index, watermark_ms: int) -> Iterator[dict[str, Any]]:
        """Keeps what came; gives the rows of the messages that are whole now."""
        filled: list[_Arrival] = []
        held_bytes = 0
        for one in arrivals:
            if one.known is None:
                self._remember(one, index, watermark_ms)
            elif not (one.fresh and one.known.may_be_whole()):
                self._keep(one, index, watermark_ms)
            else:
                filled.append(one)
                held_bytes += one.known.held_bytes
                if held_bytes > WINDOW_BYTES:
                    yield from self._finish(filled, index, watermark_ms)
                    filled, held_bytes = [], 0
        yield from self._finish(filled, index, watermark_ms)

    def _finish(self, filled: Sequence[_Arrival], index: Index, watermark_ms: int) -> Iterator[dict[str, Any]]:
        for one, found in zip(filled, self._put_together(filled), strict=True):
            if found["status"] in ("complete", "recovered"):
                self._forget(one)
                self._remember(one, index, watermark_ms)
                yield found
            else:
                self._keep(one, index, watermark_ms)

    def _keep(self, one: _Arrival, index: Index, watermark_ms: int) -> None:
        """Writes what is known of an unfinished message; only what is new of it gives it more time."""
        assert one.known is not None
        if one.fresh:
            self._segments.updateValue((*one.message, one.known.chunks), (one.fresh,))
            one.known.chunks += 1
        self._known.updateValue(one.message, one.known.to_state())
        if one.fresh or one.is_new:
            deadline_ms = max(one.latest_ms + self._config.limits.timeout_ms, watermark_ms + 1)
            index.wait(_name(one.message), deadline_ms, finished=False)

    def _remember(self, one: _Arrival, index: Index, watermark_ms: int) -> None:
        deadline_ms = max(one.latest_ms + self._remember_ms, watermark_ms + 1)
        index.wait(_name(one.message), deadline_ms, finished=True)

    def _forget(self, one: _Arrival) -> None:
        assert one.known is not None
        for number in range(one.known.chunks):
            self._segments.removeKey((*one.message, number))
        if not one.is_new:
            self._known.removeKey(one.message)

    def _put_together(self, arrivals: Iterable[_Arrival]) -> list[dict[str, Any]]:
        messages = [
            (one.message, one.known, [*self._stored(one), *one.fresh]) for one in arrivals if one.known is not None
        ]
        return put_together(self._config, self._include_payload, messages) if messages else []

    def _stored(self, one: _Arrival) -> Iterator[Segment]:
        """The segments of earlier micro-batches."""
        assert one.known is not None
        for number in range(one.known.chunks):
            [segments] = _there(self._segments.getValue((*one.message, number)))
            for payload, timestamp, sender in segments:
                yield bytes(payload), timestamp, sender

    def _write(self, index: Index, soonest_ms: int) -> None:
        """Writes the index; a timer is registered only where none would fire before it is needed."""
        if not index.timer_ms or soonest_ms < index.timer_ms:
            index.timer_ms = soonest_ms
            self._handle.registerTimer(soonest_ms)
        self._index.update(index.to_state())

    def _row(self, by: Iterable[Any], found: dict[str, Any]) -> Row:
        return self._result(*by, *(found[name] for name in MESSAGE_FIELDS.names))


class _Unread:
    """Counts by reason what could not be read; nothing of it is kept."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._noted: defaultdict[str, Known] = defaultdict(Known)

    def note(self, row: Any) -> None:
        reason = row[ERROR] or ("the payload is null" if row[PAYLOAD] is None else _native.NO_HASH)
        self._counts[reason] += 1
        self._noted[reason].note(row[TIMESTAMP], row[SENDER])

    def found(self) -> Iterator[dict[str, Any]]:
        """A row per reason."""
        for reason in sorted(self._counts):
            known = self._noted[reason]
            yield dict.fromkeys(MESSAGE_FIELDS.names) | {
                "status": "invalid",
                "segments_received": self._counts[reason],
                "duplicates": 0,
                "conflicts": 0,
                "first_timestamp": known.first_timestamp,
                "last_timestamp": known.last_timestamp,
                "senders": sorted(known.senders),
                "copies": 0,
                "error": reason,
            }


def _name(message: Message) -> bytes:
    """What a message is called in the index of its bucket."""
    digest, send_id = message
    told = b"" if send_id is None else b"\0" + send_id.encode()
    return hashlib.blake2b(digest + told, digest_size=_NAME_BYTES).digest()


def _there(values: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """What the index says is there."""
    assert values is not None
    return values

"""What a stream keeps of an unfinished message, and the row that it makes of it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
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
from shardwire.archive.arrow import SEGMENT_COLUMNS, batch_of, limits_of, parameters
from shardwire.config import ReassemblyLimits, SegmentationConfig

_DIGEST_BYTES = 16
# Of one candidate: place, data segments that it announces (0: none), arrivals, digest of its bytes.
_CANDIDATE = struct.Struct(f"<HHI{_DIGEST_BYTES}s")
PARITY, WHOLE = 0x1000, 0x2000
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
    """What is known of an unfinished message beside the bytes of its segments.

    Attributes:
        chunks: How many entries of the state hold its segments.
    """

    chunks: int = 0
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
        if WHOLE in self.places:
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
        StructField("chunks", IntegerType()),
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

# Hash and send id.
Message = tuple[bytes, str | None]
# Payload, time and sender.
Segment = tuple[bytes, int | None, str | None]


def put_together(
    config: SegmentationConfig,
    include_payload: bool,
    messages: Sequence[tuple[Message, Known, Sequence[Segment]]],
) -> list[dict[str, Any]]:
    """Messages as `reconstruct` gives them, in their order, from the segments that are held of each."""
    machine = _native.ArrowReconstructor(
        parameters(config), by_count=0, include_payload=include_payload, **limits_of(config)
    )
    rows: list[tuple[Any, ...]] = []
    for message, known, segments in messages:
        # A message of which no segment could be read is a row all the same.
        rows += [(*message, *one, None) for one in segments] or [(*message, None, None, None, known.error)]
    columns = zip(*rows, strict=True)
    kinds = (pa.binary(), pa.string(), pa.large_binary(), pa.int64(), pa.string(), pa.string())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    batch = batch_of(dict(zip(SEGMENT_COLUMNS, arrays, strict=True)))
    made = {
        (row["entire_message_hash"], row["send_id"]): row
        for table in (*machine.push(batch), *machine.finish())
        for row in table.to_pylist()
    }
    return [_completed(made[message], known) for message, known, _ in messages]


def _completed(found: dict[str, Any], known: Known) -> dict[str, Any]:
    found["duplicates"] += known.duplicates
    found["conflicts"] += known.conflicts
    found["copies"] = known.copies()
    found["senders"] = sorted(known.senders)
    found["first_timestamp"], found["last_timestamp"] = known.first_timestamp, known.last_timestamp
    found["error"] = known.error if found["error"] is None else found["error"]
    return found

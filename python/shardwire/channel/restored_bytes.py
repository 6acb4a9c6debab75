"""Stored records with every byte back in its place: what `SharedBytes` stored by reference is read through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwire._native import SdsMessage, keccak256
from shardwire.channel.records import PAYLOAD, PartsRecord, SegmentRecord, of_kind
from shardwire.channel.shared_bytes import CONTENT, FRAME, MESSAGE, PARTS, SEGMENT, SharedBytes
from shardwire.errors import InvalidSegmentError, PersistenceError
from shardwire.persistence.protocol import RecordName
from shardwire.segmentation import SegmentHeader, inspect


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of a partial message, to be received again."""

    record: SegmentRecord
    content: bytes = field(repr=False)


def expand(
    records: Mapping[RecordName, bytes], shared: SharedBytes
) -> tuple[dict[RecordName, bytes], list[StoredSegment]]:
    """The records as SDS and delivery know them, and the segments of partial messages in the order of their arrival.

    Args:
        records: What the persistence gave.
        shared: Takes back which record names which.

    Raises:
        PersistenceError: A record names another that is absent, or what it stands for is not whole.
    """
    shared.restore(records)
    expanded = {name: value for name, value in records.items() if name[0] not in (FRAME, PARTS, SEGMENT)}
    for key, frame in of_kind(records, FRAME).items():
        content = expanded.pop((CONTENT, key), None)
        if content is None:
            raise _damaged("a sent message", key)
        at, around = int.from_bytes(frame[:4], "big"), frame[4:]
        expanded[MESSAGE, key] = around[:at] + content + around[at:]
    segments = []
    for key, value in of_kind(records, SEGMENT).items():
        head, _, content = value.partition(b"\0")
        record = SegmentRecord.decode(head)
        if record.message_id:
            content = _content(expanded, record.message_id, record.sds_wire_format)
        header = _inspect(content, record.segment_wire_format)
        index = None if header is None or header.is_parity else header.data_segment_index
        payload_hash = b"" if header is None else header.entire_message_hash
        shared.restore_segment(key, record, payload_hash, index)
        segments.append(StoredSegment(record, content))
    for key, value in of_kind(records, PARTS).items():
        parts = PartsRecord.decode(value)
        shared.restore_parts(key, parts)
        expanded[PAYLOAD, key] = _payload(expanded, key, parts)
    return expanded, sorted(segments, key=lambda segment: segment.record.serial)


def _payload(records: Mapping[RecordName, bytes], key: bytes, parts: PartsRecord) -> bytes:
    pieces = []
    for message_id in parts.message_ids:
        content = _content(records, message_id, parts.sds_wire_format)
        header = _inspect(content, parts.segment_wire_format)
        pieces.append(content if header is None else header.segment_payload)
    payload = b"".join(pieces)[: parts.length]
    if keccak256(payload).hex() != parts.payload_hash:
        raise _damaged("a received message", key)
    return payload


def _content(records: Mapping[RecordName, bytes], message_id: str, wire_format: str) -> bytes:
    wire = records.get((MESSAGE, message_id.encode("utf-8", "replace")))
    message = None if wire is None else SdsMessage.decode(wire, "nim" if wire_format == "nim" else "spec")
    if message is None or message.content is None:
        raise _damaged("a received segment", message_id.encode("utf-8", "replace"))
    return message.content


def _inspect(content: bytes, wire_format: str) -> SegmentHeader | None:
    known = next((name for name in ("draft", "lip243") if name == wire_format), "raw")
    try:
        return inspect(content, wire_format=known)  # type: ignore[arg-type]
    except InvalidSegmentError as error:
        raise PersistenceError(f"a stored segment cannot be read ({error}): restore the database from a copy") from None


def _damaged(what: str, key: bytes) -> PersistenceError:
    return PersistenceError(
        f"{what} (record {key[:40]!r}) is stored without its bytes: restore the database from a copy"
    )

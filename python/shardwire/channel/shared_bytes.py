"""Every byte once: what SDS, reassembly and delivery each keep of the same message, as a persistence stores it.

SDS keeps the contents it sends and the messages it received, to repair others with; reassembly keeps segments until
their message is whole; delivery keeps the message until the application has it. All of these hold the same bytes. Here
one record has them and the others name it:

- A received message is its `sds.message` record. Segments of a partial message (`SEGMENT`) and the parts of a whole one
  (`PARTS`) name it, and it stays for as long as one of them does.
- A message of ours whose content was stored while it waited to leave is what the wire puts around that content
  (`FRAME`), beside the `sds.content` record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardwire.channel.records import PAYLOAD, PartsRecord, Records, SegmentRecord, payload_key
from shardwire.persistence.protocol import RecordName
from shardwire.sds.outputs import ContentReceived

SEGMENT = "channel.segment"
PARTS = "channel.parts"
FRAME = "channel.frame"
MESSAGE = "sds.message"
CONTENT = "sds.content"

# The kinds of records that are put into another form.
_CONCERNED = frozenset({PAYLOAD, MESSAGE, CONTENT})
# Below this a name costs about as much as the bytes.
SHARED_BYTES_MIN = 512
# The start of a content, by which it is found in the message around it: no two contents of a channel share theirs,
# which holds a hash and an index.
_HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class _Segment:
    """A stored segment of a partial message; `message_id` is None where its bytes stand in its own record."""

    key: bytes
    payload_hash: bytes
    message_id: str | None
    data_index: int | None


class SharedBytes:
    """What is stored by reference, and how often each stored message is named.

    Args:
        sds_wire_format: How messages are read.
        segment_wire_format: How contents are read.

    Attributes:
        is_kept: Whether SDS itself still needs a message of this id.
    """

    def __init__(self, sds_wire_format: str, segment_wire_format: str) -> None:
        self._formats = (sds_wire_format, segment_wire_format)
        self.is_kept: Callable[[str], bool] = lambda message_id: False
        # Ids of whole messages that are stored.
        self._stored: set[str] = set()
        self._uses: Counter[str] = Counter()
        # No longer named: gone with the next commit unless SDS keeps them.
        self._released: set[str] = set()
        # Named, and not stored yet.
        self._wires: dict[str, bytes] = {}
        # Contents of ours: how each begins and how long it is.
        self._contents: dict[str, tuple[bytes, int]] = {}
        self._framed: set[str] = set()
        self._segments: dict[bytes, list[_Segment]] = {}
        self._parts: dict[bytes, tuple[str, ...]] = {}
        self._written: set[RecordName] = set()
        self._changes: Records = {}
        self._serial = 0

    # --- what is kept ---

    def keep_segment(
        self,
        received: ContentReceived,
        send_id: str,
        wire: bytes,
        payload_hash: bytes,
        index: int | None,
        authenticated: bool,
    ) -> None:
        """Keeps a segment of a partial message for as long as that is partial.

        Args:
            received: The segment, and the SDS message that brought it.
            send_id: The send it belongs to.
            wire: That message.
            payload_hash: The hash that it names.
            index: Of a data segment; None for parity.
            authenticated: Whether its sender is proven.
        """
        message_id, content = received.message_id, received.content
        self._serial += 1
        record = SegmentRecord(received.sender_id, send_id, authenticated, *self._formats, serial=self._serial)
        key_of_message = payload_key(received.sender_id, send_id)
        key = key_of_message + self._serial.to_bytes(8, "big")
        if message_id in self._stored or message_id in self._wires:
            # A rival of the same id: one of the two is forged, and both are needed to find out which.
            self._put((SEGMENT, key), record.encode() + b"\0" + content)
            segment = _Segment(key, payload_hash, None, index)
        else:
            self._use(message_id, wire)
            record.message_id = message_id
            self._put((SEGMENT, key), record.encode())
            segment = _Segment(key, payload_hash, message_id, index)
        self._segments.setdefault(key_of_message, []).append(segment)

    def keeps_payload(self, key: bytes) -> bool:
        """Whether a whole message is kept under `key`."""
        return key in self._parts or (PAYLOAD, key) in self._written or self._changes.get((PAYLOAD, key)) is not None

    def drop_segments(self, key: bytes, payload_hash: bytes) -> list[str]:
        """A partial message was given up, or is whole; gives the ids of the messages that held its segments."""
        dropped: list[str] = []
        others: list[_Segment] = []
        for segment in self._segments.pop(key, ()):
            if segment.payload_hash != payload_hash:
                # Of another message that claims the same send.
                others.append(segment)
                continue
            self._put((SEGMENT, segment.key), None)
            if segment.message_id is not None:
                self._release(segment.message_id)
                dropped.append(segment.message_id)
        if others:
            self._segments[key] = others
        return dropped

    def keep_payload(
        self,
        key: bytes,
        payload: bytes,
        payload_hash: bytes,
        data_count: int | None,
        last: tuple[str, int | None, bytes] | None,
    ) -> None:
        """Keeps a whole message until its `PAYLOAD` record is deleted.

        Args:
            key: Of the message; what was kept of its segments goes.
            payload: The message.
            payload_hash: Its Keccak-256.
            data_count: How many data segments it is made of; None where some of them did not come as they were sent.
            last: The segment that completed it: id of its message, index among the data segments, and the message.
        """
        parts = self._find_parts(key, payload_hash, data_count, last) if len(payload) >= SHARED_BYTES_MIN else None
        if parts is None:
            self._put((PAYLOAD, key), payload)
        else:
            for message_id in parts:
                self._use(message_id, last[2] if last is not None and last[0] == message_id else None)
            self._parts[key] = parts
            record = PartsRecord(list(parts), len(payload), payload_hash.hex(), *self._formats)
            self._put((PARTS, key), record.encode())
        self.drop_segments(key, payload_hash)

    def _find_parts(
        self, key: bytes, payload_hash: bytes, data_count: int | None, last: tuple[str, int | None, bytes] | None
    ) -> tuple[str, ...] | None:
        """Ids of the messages that hold the data segments, in order; None where one is missing or has a rival."""
        if data_count is None or last is None:
            return None
        by_index: dict[int, str | None] = {}
        for segment in self._segments.get(key, ()):
            if segment.payload_hash == payload_hash and segment.data_index is not None:
                by_index[segment.data_index] = None if segment.data_index in by_index else segment.message_id
        message_id, index, _ = last
        if index is not None:
            known = message_id in self._stored or message_id in self._wires
            by_index[index] = None if index in by_index or known else message_id
        parts = [found for place in range(data_count) if (found := by_index.get(place)) is not None]
        return tuple(parts) if len(parts) == data_count else None

    def _use(self, message_id: str, wire: bytes | None) -> None:
        if wire is not None and message_id not in self._stored:
            self._wires[message_id] = wire
        self._uses[message_id] += 1

    def _release(self, message_id: str) -> None:
        self._uses[message_id] -= 1
        if not self._uses[message_id]:
            del self._uses[message_id]
            self._released.add(message_id)

    def _put(self, name: RecordName, value: bytes | None) -> None:
        """A record that comes and goes between two commits is never written."""
        if value is not None or name in self._written:
            self._changes[name] = value
        else:
            self._changes.pop(name, None)

    # --- what is stored ---

    def apply(self, records: Records) -> None:
        """Puts what one commit changes into its stored form, in place."""
        if not (records or self._wires or self._released or self._changes):
            return
        concerned = [name for name in records if name[0] in _CONCERNED]
        for name in concerned:
            if name[0] == PAYLOAD and records[name] is None:
                self._on_payload_deleted(name[1], records)
        if concerned:
            self._frame_messages(concerned, records)
        for message_id, wire in self._wires.items():
            if message_id in self._uses:
                records[MESSAGE, message_id.encode()] = wire
                self._stored.add(message_id)
        self._wires.clear()
        for message_id in self._released:
            if message_id in self._stored and message_id not in self._uses and not self.is_kept(message_id):
                records[MESSAGE, message_id.encode()] = None
                self._stored.discard(message_id)
        self._released.clear()
        records.update(self._changes)
        for name, value in self._changes.items():
            if value is None:
                self._written.discard(name)
            else:
                self._written.add(name)
        self._changes.clear()

    def _on_payload_deleted(self, key: bytes, records: Records) -> None:
        parts = self._parts.pop(key, None)
        if parts is not None:
            for message_id in parts:
                self._release(message_id)
            self._put((PARTS, key), None)
        else:
            self._put((PAYLOAD, key), None)
        del records[PAYLOAD, key]

    def _frame_messages(self, concerned: list[RecordName], records: Records) -> None:
        """What SDS puts and deletes of contents and messages."""
        for kind, key in concerned:
            if kind == PAYLOAD:
                continue
            value = records[kind, key]
            message_id = key.decode("utf-8", "replace")
            if kind == CONTENT and value is not None:
                self._forget_wire(message_id, key, records)
                self._contents[message_id] = (value[:_HEAD_BYTES], len(value))
            elif kind == MESSAGE and value is not None:
                self._on_message_put(message_id, key, value, records)
            elif kind == MESSAGE:
                self._on_message_deleted(message_id, key, records)
        for kind, key in concerned:
            if kind != CONTENT:
                continue
            message_id = key.decode("utf-8", "replace")
            if records[CONTENT, key] is None:
                if message_id in self._framed:
                    del records[CONTENT, key]
                self._contents.pop(message_id, None)

    def _forget_wire(self, message_id: str, key: bytes, records: Records) -> None:
        """A content that has yet to leave: a message stored under its id is that of an equal one, which was cancelled
        in the same cycle."""
        if message_id in self._framed:
            self._framed.discard(message_id)
            records[FRAME, key] = None
        elif message_id in self._stored and message_id not in self._uses:
            self._stored.discard(message_id)
            records[MESSAGE, key] = None

    def _on_message_put(self, message_id: str, key: bytes, wire: bytes, records: Records) -> None:
        content = self._contents.get(message_id)
        if content is not None and content[1] >= SHARED_BYTES_MIN:
            at = wire.find(content[0])
            if at >= 0 and at + content[1] <= len(wire):
                del records[MESSAGE, key]
                records[FRAME, key] = at.to_bytes(4, "big") + wire[:at] + wire[at + content[1] :]
                self._framed.add(message_id)
                return
        if message_id in self._stored and message_id in self._uses:
            del records[MESSAGE, key]
        else:
            # What is stored and not named may be another message of this id, which SDS forgot just now.
            self._stored.add(message_id)

    def _on_message_deleted(self, message_id: str, key: bytes, records: Records) -> None:
        if message_id in self._framed:
            self._framed.discard(message_id)
            self._contents.pop(message_id, None)
            records[FRAME, key] = records[CONTENT, key] = None
            del records[MESSAGE, key]
        elif message_id in self._uses:
            # It goes when nothing names it any more.
            del records[MESSAGE, key]
        else:
            self._stored.discard(message_id)

    # --- after a restart ---

    def restore(self, records: Mapping[RecordName, bytes]) -> None:
        """Takes back what is named by what; `expand` gives the bytes."""
        for (kind, key), value in records.items():
            message_id = key.decode("utf-8", "replace")
            if kind == MESSAGE:
                self._stored.add(message_id)
                # SDS may not keep all of them: what it does not keep and nothing names goes with the first commit.
                self._released.add(message_id)
            elif kind == FRAME:
                self._framed.add(message_id)
            elif kind == CONTENT:
                self._contents[message_id] = (value[:_HEAD_BYTES], len(value))
            elif kind == PAYLOAD:
                self._written.add((kind, key))
        for message_id in self._framed:
            self._contents.pop(message_id, None)

    def restore_parts(self, key: bytes, record: PartsRecord) -> None:
        self._written.add((PARTS, key))
        self._parts[key] = tuple(record.message_ids)
        self._uses.update(record.message_ids)

    def restore_segment(self, key: bytes, record: SegmentRecord, payload_hash: bytes, index: int | None) -> None:
        self._written.add((SEGMENT, key))
        self._serial = max(self._serial, record.serial)
        message_id = record.message_id or None
        if message_id is not None:
            self._uses[message_id] += 1
        key_of_message = payload_key(record.sender_id, record.send_id)
        self._segments.setdefault(key_of_message, []).append(_Segment(key, payload_hash, message_id, index))

"""The stored form of a machine: records by kind and key, written as they change and read back after a restart.

Every value but raw bytes begins with a version byte and ends with a checksum. Kinds: `sds.state` (counters),
`sds.log` (one received, sent or recovered content), `sds.message` (original bytes for repair), `sds.unsaid` (not yet
acknowledged), `sds.send`, `sds.content` and `sds.outgoing` (a send, the bytes and the state of one of its contents),
`sds.incoming`, `sds.missing`, `sds.lost`, `sds.answer`, `sds.participant`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any
from zlib import crc32

from shardwire._native import HistoryEntry
from shardwire.sds.encoding import pack, unpack
from shardwire.sds.local_log import LogEntry
from shardwire.sds.now import Now
from shardwire.sds.outgoing_send import OutgoingSend

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

Name = tuple[str, bytes]

VERSION = 1
_VERSION_BYTE = bytes((VERSION,))
_CHECKSUM_BYTES = 4
# version, lamport, base of the filter, syncs, sends, time of the first receipt (0: none)
_STATE = Struct("<BQQQQQ")
# version, flags, lamport, sequence, ordinal, lengths of sender, hint and the key of the send it waits in
_LOG = Struct("<BBQQHHHH")
_ORDERED, _HINT = 1, 2
_UNSAID = Struct("<BQ")


def text_of(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def seal(body: bytes) -> bytes:
    """`body` with its checksum: a damaged record is told from a whole one, so that no value need be doubted."""
    return body + crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def unseal(data: bytes) -> bytes:
    """What `seal` was given.

    Raises:
        ValueError: The record is damaged, or of another version.
    """
    body = data[:-_CHECKSUM_BYTES]
    if not body or body[0] != VERSION or crc32(body).to_bytes(_CHECKSUM_BYTES, "little") != data[-_CHECKSUM_BYTES:]:
        raise ValueError("a damaged record, or one of another version")
    return body


def seal_fields(fields: tuple[object, ...]) -> bytes:
    return seal(_VERSION_BYTE + pack(fields))


def _send_record(send: OutgoingSend) -> bytes:
    return seal_fields(
        (
            send.number,
            len(send.contents),
            send.contents_needed,
            send.dispatched,
            send.finished,
            send.given_up,
            None if send.history is None else tuple(map(entry_fields, send.history)),
            None if send.finished else send.bloom_filter,
            send.header_left,
            tuple(send.acknowledged.items()),
            tuple(send.complete),
        )
    )


def entry_fields(entry: HistoryEntry) -> tuple[str, bytes | None, str | None]:
    return (entry.message_id, entry.retrieval_hint, entry.sender_id)


def encode_log(entry: LogEntry) -> bytes:
    sender = entry.sender_id.encode()
    hint = entry.retrieval_hint
    waits = entry.send.key.encode() if entry.send is not None else b""
    flags = (_ORDERED if entry.ordered else 0) | (_HINT if hint is not None else 0)
    head = _LOG.pack(
        VERSION, flags, entry.lamport, entry.sequence, entry.ordinal, len(sender), len(hint or b""), len(waits)
    )
    return seal(head + sender + (hint or b"") + waits)


def decode_log(message_id: str, data: bytes) -> tuple[LogEntry, str]:
    """(entry, key of the send it waits in or "").

    Raises:
        ValueError: The bytes are no record of this version.
    """
    data = unseal(data)
    _, flags, lamport, sequence, ordinal, sender, hint, _ = _LOG.unpack_from(data)
    at = _LOG.size
    entry = LogEntry(
        message_id,
        text_of(data[at : at + sender]),
        lamport,
        data[at + sender : at + sender + hint] if flags & _HINT else None,
        sequence,
        ordinal,
    )
    entry.ordered = bool(flags & _ORDERED)
    return entry, text_of(data[at + sender + hint :])


class Records:
    """Gathers what changed in every part of the machine."""

    def __init__(self, machine: MessageChannel) -> None:
        self._machine = machine
        self._state = b""
        self._unsaid_count = 0
        # What is stored now, of the kinds whose records may vanish before they were ever written.
        self._stored: dict[str, set[str]] = {
            kind: set() for kind in ("sds.incoming", "sds.missing", "sds.unsaid", "sds.answer")
        }
        self.unreadable = 0

    def poll(self) -> dict[Name, bytes | None]:
        """Everything that changed since the last call."""
        machine = self._machine
        out: dict[Name, bytes | None] = {}
        machine.bloom.settle()
        state = self._encode_state()
        if state != self._state:
            self._state = state
            out["sds.state", b""] = state
        log = machine.log
        if log.forgotten:
            for message_id in log.forgotten:
                out["sds.log", message_id.encode()] = None
            log.forgotten.clear()
        if log.changed:
            for message_id, entry in log.changed.items():
                out["sds.log", message_id.encode()] = encode_log(entry)
            log.changed.clear()
        if machine.repair.originals.changed:
            by_id = machine.repair.originals.by_id
            for message_id in machine.repair.originals.changed:
                out["sds.message", message_id.encode()] = by_id.get(message_id)
            machine.repair.originals.changed.clear()
        if machine.acknowledgements.changed:
            self._poll_unsaid(out)
        self._poll_outgoing(out)
        self._poll_incoming(out)
        self._poll_repair(out)
        if machine.participants.changed:
            for sender_id in machine.participants.changed:
                since = machine.participants.since.get(sender_id)
                out["sds.participant", sender_id.encode()] = None if since is None else seal_fields((since,))
            machine.participants.changed.clear()
        return out

    def _encode_state(self) -> bytes:
        machine = self._machine
        transmission = machine.transmission
        return seal(
            _STATE.pack(
                VERSION,
                machine.lamport.timestamp,
                machine.bloom.base_sequence,
                transmission.sync_count,
                transmission.send_count,
                machine.participants.first_epoch_ms or 0,
            )
            + transmission.nonce.encode()
            + b"\0".join(entry.message_id.encode() for entry in machine.heads.by_key.values())
        )

    def _put(self, out: dict[Name, bytes | None], kind: str, name: str, value: bytes | None) -> None:
        """A record that may have come and gone between two calls: then there is nothing to delete."""
        stored = self._stored[kind]
        if value is not None:
            stored.add(name)
            out[kind, name.encode()] = value
        elif name in stored:
            stored.discard(name)
            out[kind, name.encode()] = None

    def _poll_unsaid(self, out: dict[Name, bytes | None]) -> None:
        changed = self._machine.acknowledgements.changed
        for message_id, unsaid in changed.items():
            self._unsaid_count += 1
            self._put(
                out, "sds.unsaid", message_id, seal(_UNSAID.pack(VERSION, self._unsaid_count)) if unsaid else None
            )
        changed.clear()

    def _poll_outgoing(self, out: dict[Name, bytes | None]) -> None:
        outgoing = self._machine.outgoing
        for message_id, data in outgoing.new_contents.items():
            out["sds.content", message_id.encode()] = data
        outgoing.new_contents.clear()
        for send_id in outgoing.changed_sends:
            send = outgoing.sends.get(send_id)
            out["sds.send", send_id.encode()] = None if send is None else _send_record(send)
        outgoing.changed_sends.clear()
        for message_id in outgoing.changed_contents:
            content = outgoing.by_id.get(message_id)
            key = message_id.encode()
            if content is None:
                out["sds.outgoing", key] = None
                out["sds.content", key] = None
                continue
            if content.send.finished and not content.in_flight and content.lamport:
                out["sds.content", key] = None
            out["sds.outgoing", key] = seal_fields(
                (
                    content.send.send_id,
                    content.ordinal,
                    content.lamport,
                    content.attempts,
                    content.queued,
                    content.carries_bloom,
                    content.retrieval_hint,
                    tuple(map(entry_fields, content.requests)),
                    tuple(sorted(content.possible or ())),
                )
            )
        outgoing.changed_contents.clear()

    def _poll_incoming(self, out: dict[Name, bytes | None]) -> None:
        incoming = self._machine.incoming
        for key in incoming.changed:
            send = incoming.sends.get(key)
            value = None
            if send is not None:
                flags = send.reconstructed | send.lost << 1 | send.from_before << 2 | send.siblings_reported << 3
                value = seal_fields(
                    (
                        send.send_id,
                        send.sender_id,
                        send.content_count,
                        send.contents_needed,
                        flags,
                        tuple(send.waits_for or ()),
                        tuple(send.history),
                    )
                )
            self._put(out, "sds.incoming", key, value)
        incoming.changed.clear()
        missing = incoming.gaps.missing
        for message_id in missing.changed:
            message = missing.by_id.get(message_id)
            value = None
            if message is not None:
                value = seal_fields((*entry_fields(message.entry), message.send.key, message.named_by))
            self._put(out, "sds.missing", message_id, value)
        missing.changed.clear()
        for key, lost in incoming.gaps.lost_changed.items():
            out["sds.lost", key.encode()] = _VERSION_BYTE if lost else None
        incoming.gaps.lost_changed.clear()

    def _poll_repair(self, out: dict[Name, bytes | None]) -> None:
        repair = self._machine.repair
        for message_id in repair.answers.changed:
            known = repair.answers.by_id.get(message_id)
            value = None if known is None else seal_fields(entry_fields(known[1]))
            self._put(out, "sds.answer", message_id, value)
        repair.answers.changed.clear()
        repair.requests.changed.clear()

    # --- restore --------------------------------------------------------------------------------

    def restore(self, records: Mapping[Name, bytes], now: Now) -> None:
        """Fills a new machine; a record that cannot be read is counted and passed over."""
        from shardwire.sds.restore import restore

        kinds: dict[str, list[tuple[str, bytes]]] = {}
        for (kind, key), value in records.items():
            kinds.setdefault(kind, []).append((text_of(key), value))
        for kind, stored in self._stored.items():
            stored.update(name for name, _ in kinds.get(kind, ()))
        restore(self._machine, self, kinds, now)
        self._state = self._encode_state()

    def read_state(self, data: bytes) -> tuple[int, int, int, int, int, str, list[str]]:
        data = unseal(data)
        _, lamport, base, syncs, sends, first = _STATE.unpack_from(data)
        rest = data[_STATE.size :]
        return lamport, base, syncs, sends, first, rest[:16].decode(), [text_of(key) for key in rest[16:].split(b"\0")]

    def read_unsaid(self, data: bytes) -> int:
        _, order = _UNSAID.unpack(unseal(data))
        self._unsaid_count = max(self._unsaid_count, order)
        return int(order)

    def attempt(self, read: Callable[..., Any], *arguments: object) -> Any:
        """What `read` makes of a record, or None where that cannot be read."""
        try:
            return read(*arguments)
        except (ValueError, StructError):
            self.unreadable += 1
            return None


def read_fields(data: bytes, count: int) -> list[Any]:
    """The fields of a versioned record.

    Raises:
        ValueError: Another version, or another number of fields.
    """
    fields = unpack(unseal(data)[1:])
    if not isinstance(fields, list) or len(fields) != count:
        raise ValueError("other fields")
    return fields

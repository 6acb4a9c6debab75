"""The stored form of a machine: records by kind and key, written as they change and read back after a restart.

Every value but raw bytes begins with a version byte and ends with a checksum. Kinds: `sds.state` (counters),
`sds.log` (one received, sent or recovered content, and whether it is acknowledged), `sds.message` (a message as it
came or left: for repair, and for resending), `sds.send`, `sds.content` and `sds.outgoing` (a send, the bytes of one of
its contents until it leaves first, and its state where the send has several), `sds.incoming`, `sds.missing`,
`sds.lost`, `sds.given_up`, `sds.rival`, `sds.answer`, `sds.participant`. A message that is received or sent and
acknowledged takes as few records as that allows: `sds.log` and `sds.message` for either, and `sds.send` for ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any
from zlib import crc32

from shardwire._native import HistoryEntry, LogEntry, Now, OutgoingContent, OutgoingSend, store_outgoing
from shardwire.sds.encoding import pack, unpack
from shardwire.sds.identity import content_id

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

Name = tuple[str, bytes]

VERSION = 2
_VERSION_BYTE = bytes((VERSION,))
# Ends the record of a lost dependency that is asked for when it is named.
_ASKABLE = b"\x01"
_CHECKSUM_BYTES = 4
# version, lamport, base of the filter, syncs, sends, time of the first receipt (0: none), what is said up to
_STATE = Struct("<BQQQQQQ")
# version, flags, lamport, sequence, unsaid, ordinal, lengths of sender, hint and the key of the send it waits in
_LOG = Struct("<BBQQQHHHH")
_ORDERED, _HINT = 1, 2
# version, flags, number, contents, needed, header bytes left, lengths of filter and history, ids in the history
_SEND = Struct("<BBQIIiIII")
_FINISHED, _GIVEN_UP, _FIXED, _FILTER, _ALONE = 1, 2, 4, 8, 16
# queued, lamport, attempts, participants that possibly acknowledged it
_STATE_OF_CONTENT = Struct("<BQII")
# version, queued, ordinal, lamport, attempts, length of the send id
_CONTENT = Struct("<BBIQIH")
_LENGTH = Struct("<H")


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


def read_send(send_id: str, data: bytes) -> tuple[OutgoingSend, int, OutgoingContent | None]:
    """(the send without its contents, how many it has, the only one without its bytes where the record has its state).

    Raises:
        ValueError: The bytes are no record of this version.
    """
    data = unseal(data)
    _, flags, number, count, needed, header_left, filter_bytes, field_bytes, ids = _SEND.unpack_from(data)
    send = OutgoingSend(send_id, number, needed)
    send.finished, send.given_up = bool(flags & _FINISHED), bool(flags & _GIVEN_UP)
    send.header_left = header_left
    at = _SEND.size + filter_bytes
    send.bloom_filter = data[_SEND.size : at] if flags & _FILTER else None
    send.history_fields = data[at : at + field_bytes]
    at += field_bytes
    names = []
    for _ in range(ids):
        name, at = _read_text(data, at)
        names.append(name)
    send.history_ids = tuple(names) if flags & _FIXED else None
    content: OutgoingContent | None = None
    if flags & _ALONE:
        content = OutgoingContent(send, 0, content_id(send_id, 0), b"")
        queued, content.lamport, content.attempts, possible = _STATE_OF_CONTENT.unpack_from(data, at)
        content.queued = bool(queued)
        at += _STATE_OF_CONTENT.size
        for _ in range(possible):
            name, at = _read_text(data, at)
            content.possible = (content.possible or set()) | {name}
    width = (count + 7) // 8
    while at < len(data):
        name, at = _read_text(data, at)
        send.acknowledged[name] = bits = int.from_bytes(data[at : at + width], "little")
        at += width
        if bits == (1 << count) - 1:
            send.complete[name] = None
    return send, count, content


def read_content(message_id: str, data: bytes, sends: Mapping[str, OutgoingSend]) -> OutgoingContent | None:
    """The content without its bytes; None where its send is not known.

    Raises:
        ValueError: The bytes are no record of this version.
    """
    data = unseal(data)
    _, queued, ordinal, lamport, attempts, length = _CONTENT.unpack_from(data)
    at = _CONTENT.size + length
    send = sends.get(text_of(data[_CONTENT.size : at]))
    if send is None:
        return None
    content = OutgoingContent(send, ordinal, message_id, b"")
    content.queued, content.lamport, content.attempts = bool(queued), lamport, attempts
    while at < len(data):
        name, at = _read_text(data, at)
        content.possible = (content.possible or set()) | {name}
    return content


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    return text_of(data[at : at + length]), at + length


def entry_fields(entry: HistoryEntry) -> tuple[str, bytes | None, str | None]:
    return (entry.message_id, entry.retrieval_hint, entry.sender_id)


def decode_log(message_id: str, data: bytes) -> tuple[LogEntry, str]:
    """(entry, key of the send it waits in or "").

    Raises:
        ValueError: The bytes are no record of this version.
    """
    data = unseal(data)
    _, flags, lamport, sequence, unsaid, ordinal, sender, hint, _ = _LOG.unpack_from(data)
    at = _LOG.size
    entry = LogEntry(
        message_id,
        text_of(data[at : at + sender]),
        lamport,
        data[at + sender : at + sender + hint] if flags & _HINT else None,
        sequence,
        ordinal,
    )
    entry.unsaid = unsaid
    entry.ordered = bool(flags & _ORDERED)
    return entry, text_of(data[at + sender + hint :])


class Records:
    """Gathers what changed in every part of the machine."""

    def __init__(self, machine: MessageChannel) -> None:
        self._machine = machine
        self._state = b""
        self._in_state: tuple[object, ...] = ()
        # What is stored now, of the kinds whose records may vanish before they were ever written.
        self._stored: dict[str, set[str]] = {
            "sds.incoming": machine.incoming.stored,
            "sds.outgoing": set(),
            "sds.missing": set(),
            "sds.given_up": set(),
            "sds.rival": set(),
            "sds.answer": set(),
        }
        self.unreadable = 0

    def poll(self) -> dict[Name, bytes | None]:
        """Everything that changed since the last call."""
        machine = self._machine
        out: dict[Name, bytes | None] = {}
        machine.bloom.settle()
        now_in_state = self._fields_of_state()
        if now_in_state != self._in_state:
            self._in_state = now_in_state
            state = self._encode_state()
            if state != self._state:
                self._state = state
                out["sds.state", b""] = state
        machine.log.store(VERSION, out)
        self._poll_outgoing(out)
        machine.repair.originals.store(out)
        self._poll_incoming(out)
        self._poll_repair(out)
        if machine.participants.changed:
            for sender_id in machine.participants.changed:
                heard = sender_id in machine.participants.heard_ms
                out["sds.participant", sender_id.encode()] = _VERSION_BYTE if heard else None
            machine.participants.changed.clear()
        return out

    def _fields_of_state(self) -> tuple[object, ...]:
        """What the state record is made of: mostly unchanged, and quicker to compare than to encode."""
        machine = self._machine
        return (
            machine.lamport.timestamp,
            machine.bloom.base_sequence,
            machine.transmission.sync_count,
            machine.transmission.send_count,
            machine.participants.first_epoch_ms,
            machine.acknowledgements.said_order,
            list(machine.heads.by_key.values()),
        )

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
                machine.acknowledgements.said_order,
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

    def _poll_outgoing(self, out: dict[Name, bytes | None]) -> None:
        outgoing = self._machine.outgoing
        store_outgoing(
            VERSION,
            outgoing.sends,
            outgoing.by_id,
            self._machine.repair.originals,
            outgoing.changed_sends,
            outgoing.changed_contents,
            outgoing.new_contents,
            outgoing.new_wires,
            self._stored["sds.outgoing"],
            out,
        )

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
            value = _VERSION_BYTE + _ASKABLE if key in incoming.gaps.askable else _VERSION_BYTE
            out["sds.lost", key.encode()] = value if lost else None
        incoming.gaps.lost_changed.clear()
        given_up = self._machine.given_up
        for name in given_up.changed:
            self._put(out, "sds.given_up", name, _VERSION_BYTE if name in given_up.sends else None)
        given_up.changed.clear()
        rivals = self._machine.rivals
        for name in rivals.changed:
            self._put(out, "sds.rival", name, _VERSION_BYTE if name in rivals.taken else None)
        rivals.changed.clear()

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

    def read_state(self, data: bytes) -> tuple[int, int, int, int, int, int, str, list[str]]:
        data = unseal(data)
        _, lamport, base, syncs, sends, first, said = _STATE.unpack_from(data)
        rest = data[_STATE.size :]
        heads = [text_of(key) for key in rest[16:].split(b"\0")]
        return lamport, base, syncs, sends, first, said, rest[:16].decode(), heads

    def attempt(self, read: Callable[..., Any], *arguments: object) -> Any:
        """What `read` makes of a record, or None where that cannot be read."""
        try:
            return read(*arguments)
        except (ValueError, StructError):
            self.unreadable += 1
            return None


def read_lost(data: bytes) -> bool:
    """Whether the lost dependency is asked for when it is named."""
    return data == _VERSION_BYTE + _ASKABLE


def read_fields(data: bytes, count: int) -> list[Any]:
    """The fields of a versioned record.

    Raises:
        ValueError: Another version, or another number of fields.
    """
    fields = unpack(unseal(data)[1:])
    if not isinstance(fields, list) or len(fields) != count:
        raise ValueError("other fields")
    return fields

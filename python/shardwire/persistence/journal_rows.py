"""The rows of a journal: one commit each, as bytes.

A row is laid out as: the number of changes and the bytes of their names (4 bytes each, big endian), the names, the
values. A name is laid out as: what is done (1 byte), the lengths of kind (2), key (4) and value (4), kind, key; and
where the value lies apart, its first byte, its bytes as they are stored (8 each) and their checksum (4). Under a key of
the database the values are sealed as one, bound to the names.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator

from shardwire.persistence.database import corruption
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.record_cipher import SEAL_BYTES, RecordCipher
from shardwire.persistence.values import Place

PUT, DELETE, ELSEWHERE, APART = range(4)

_COUNTS = struct.Struct(">II")
_NAME = struct.Struct(">BHII")
_PLACE = struct.Struct(">QQI")
# In the name of what is sealed.
_KIND = "journal"

APPEND = "INSERT INTO journal (channel, commits, checksum, changes) VALUES (?, ?, ?, ?)"
EMPTY = "DELETE FROM journal WHERE channel = ?"
READ = "SELECT commits, checksum, changes FROM journal WHERE channel = ? ORDER BY entry"

Change = tuple[int, RecordName, bytes | Place]
"""What is done to which record, with a value, empty where there is none, or the place of one."""
Latest = dict[RecordName, bytes | Place | None]
"""What rows amount to: values or their places, and None for what is deleted; what is missing stands elsewhere."""


def apply(records: Latest, change: Change) -> None:
    done, name, value = change
    if done == ELSEWHERE:
        records.pop(name, None)
    else:
        records[name] = None if done == DELETE else value


def encoded(channel_id: str, cipher: RecordCipher | None, commits: int, changes: Iterable[Change]) -> bytes:
    """The row of the `commits`-th commit of a channel."""
    seal_bytes = 0 if cipher is None else SEAL_BYTES
    names, values = [], []
    for done, (kind, key), value in changes:
        text = kind.encode()
        if isinstance(value, bytes):
            names.append(_NAME.pack(done, len(text), len(key), len(value)) + text + key)
            values.append(value)
        else:
            head = _NAME.pack(done, len(text), len(key), value.size - seal_bytes)
            names.append(head + text + key + _PLACE.pack(*value))
    head, body = b"".join(names), b"".join(values)
    if cipher is not None:
        body = cipher.seal(channel_id, _sealed_name(commits, head), body)
    return _COUNTS.pack(len(names), len(head)) + head + body


def decoded(
    channel_id: str, cipher: RecordCipher | None, commits: object, checksum: object, changes: object
) -> list[Change] | None:
    """The changes of a row, in order; None for one that is damaged."""
    if not _is_sound(commits, checksum, changes):
        return None
    assert isinstance(changes, bytes)
    assert isinstance(commits, int)
    _, head_bytes = _COUNTS.unpack_from(changes)
    head_end = _COUNTS.size + head_bytes
    body = changes[head_end:]
    if cipher is not None:
        found = cipher.open(channel_id, _sealed_name(commits, changes[_COUNTS.size : head_end]), body)
        if found is None:
            return None
        body = found
    result: list[Change] = []
    at = 0
    for done, name, size_bytes, place in _names(changes):
        if place is not None:
            result.append((done, name, place))
        else:
            result.append((done, name, body[at : at + size_bytes]))
            at += size_bytes
    return result


def checksum_of_row(commits: int, changes: bytes) -> int:
    return zlib.crc32(changes, zlib.crc32(commits.to_bytes(8, "big")))


def journaled_commits(connection: sqlite3.Connection, number: int) -> int:
    """Which commit of a channel its last row is; 0 where it has none."""
    (commits,) = connection.execute("SELECT max(commits) FROM journal WHERE channel = ?", (number,)).fetchone()
    if commits is not None and not isinstance(commits, int):
        raise corruption("a row of the journal has no number")
    return commits or 0


def latest_sizes(connection: sqlite3.Connection, number: int) -> dict[RecordName, int | None]:
    """Sizes of the values that a channel's rows put, and None for what they delete; damaged rows are passed over."""
    sizes: dict[RecordName, int | None] = {}
    for commits, checksum, changes in connection.execute(READ, (number,)):
        if _is_sound(commits, checksum, changes):
            for done, name, size_bytes, _ in _names(changes):
                if done == ELSEWHERE:
                    sizes.pop(name, None)
                else:
                    sizes[name] = None if done == DELETE else size_bytes
    return sizes


def latest_records(connection: sqlite3.Connection, number: int, channel_id: str, cipher: RecordCipher | None) -> Latest:
    """What a channel's rows amount to; damaged rows are passed over."""
    records: Latest = {}
    for commits, checksum, changes in connection.execute(READ, (number,)):
        for change in decoded(channel_id, cipher, commits, checksum, changes) or ():
            apply(records, change)
    return records


def _names(changes: bytes) -> Iterator[tuple[int, RecordName, int, Place | None]]:
    count, _ = _COUNTS.unpack_from(changes)
    at = _COUNTS.size
    for _ in range(count):
        done, kind_bytes, key_bytes, value_bytes = _NAME.unpack_from(changes, at)
        at += _NAME.size
        kind = changes[at : at + kind_bytes].decode()
        at += kind_bytes
        key = changes[at : at + key_bytes]
        at += key_bytes
        place = None
        if done == APART:
            place = Place(*_PLACE.unpack_from(changes, at))
            at += _PLACE.size
        yield done, (kind, key), value_bytes, place


def _is_sound(commits: object, checksum: object, changes: object) -> bool:
    # Damage can change the types too.
    typed = isinstance(commits, int) and isinstance(changes, bytes)
    return typed and checksum == checksum_of_row(commits, changes)  # type: ignore[arg-type]


def _sealed_name(commits: int, head: bytes) -> RecordName:
    return _KIND, commits.to_bytes(8, "big") + head

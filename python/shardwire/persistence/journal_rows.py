"""The rows of a journal: what one commit changes, as bytes.

A row is laid out as: the number of changes and the bytes of their names (4 bytes each, big endian), the names, the
values. A name is laid out as: what is done (1 byte), the lengths of kind (2), key (4) and value (4), kind, key; and
where the value lies apart, its first byte, its bytes as they are stored (8 each) and their checksum (4). Under a key of
the database the values are sealed as one, bound to the names and to the number of the commit.

They stand in a file (`JournalFile`); up to version 7 of the schema they stood in a table.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator

from shardwire.persistence.database import corruption
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.record_cipher import SEAL_BYTES, RecordCipher
from shardwire.persistence.values import Place

# A value that is elsewhere stands among the records already: only rows of the table say so.
PUT, DELETE, ELSEWHERE, APART = range(4)

_COUNTS = struct.Struct(">II")
_NAME = struct.Struct(">BHII")
_PLACE = struct.Struct(">QQI")
# In the name of what is sealed.
_KIND = "journal"

EMPTY = "DELETE FROM journal WHERE channel = ?"
_READ = "SELECT commits, checksum, changes FROM journal WHERE channel = ? ORDER BY entry"

Row = tuple[int, bytes]
"""Which commit of its channel, and what it changes."""
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


def decoded(channel_id: str, cipher: RecordCipher | None, row: Row) -> list[Change] | None:
    """The changes of a row, in order; None for one that was altered."""
    commits, changes = row
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


def table_rows(connection: sqlite3.Connection, number: int) -> list[Row]:
    """What an earlier release left of a channel in the table.

    Raises:
        sqlite3.Error: One of them is damaged.
    """
    rows = []
    for commits, checksum, changes in connection.execute(_READ, (number,)):
        # Damage can change the types too.
        if not (isinstance(commits, int) and isinstance(changes, bytes)) or checksum != _checksum_of(commits, changes):
            raise corruption("a row of the journal does not match its checksum")
        rows.append((commits, changes))
    return rows


def latest_rows(
    connection: sqlite3.Connection,
    number: int,
    commits: int,
    token: bytes | None,
    read_file: Callable[[bytes, int], list[Row]],
) -> tuple[list[Row], int]:
    """The commits of a channel that are not folded, and the number of the last one, folded or not.

    Args:
        connection: To the database.
        number: Of the channel.
        commits: Up to which all is folded.
        token: With which the file was begun; None where there is none.
        read_file: Gives its rows behind a commit.

    Raises:
        sqlite3.Error: What an earlier release left is damaged.
        OSError: The file cannot be read.
    """
    rows = table_rows(connection, number)
    after = max(commits, rows[-1][0]) if rows else commits
    if token is not None:
        rows += read_file(token, after)
    return rows, max(after, rows[-1][0]) if rows else after


def latest_sizes(rows: Iterable[Row]) -> dict[RecordName, int | None]:
    """Sizes of the values that rows put, and None for what they delete."""
    sizes: dict[RecordName, int | None] = {}
    for _, changes in rows:
        for done, name, size_bytes, _ in _names(changes):
            if done == ELSEWHERE:
                sizes.pop(name, None)
            else:
                sizes[name] = None if done == DELETE else size_bytes
    return sizes


def latest_records(rows: Iterable[Row], channel_id: str, cipher: RecordCipher | None) -> Latest:
    """What rows amount to; those that were altered are passed over."""
    records: Latest = {}
    for row in rows:
        for change in decoded(channel_id, cipher, row) or ():
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


def _checksum_of(commits: int, changes: bytes) -> int:
    return zlib.crc32(changes, zlib.crc32(commits.to_bytes(8, "big")))


def _sealed_name(commits: int, head: bytes) -> RecordName:
    return _KIND, commits.to_bytes(8, "big") + head

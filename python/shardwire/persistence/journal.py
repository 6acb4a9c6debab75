"""The latest commits of a channel, one row each, until they are folded into its records.

A record that is changed in its place costs a page of the database or more, and a commit changes a dozen; most are gone
again soon, as those of a message under way are. So a commit is one row, appended; from time to time what is left of
many commits is written among the records at once. Large values are written there at once, and so never twice.

A row is laid out as: the number of changes and the bytes of their names (4 bytes each, big endian), the names, the
values. A name is laid out as: what is done (1 byte), the lengths of kind (2), key (4) and value (4), kind, key. Under a
key of the database the values are sealed as one, bound to the names.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardwire.persistence.checksums import checksum_of
from shardwire.persistence.database import corruption, opened
from shardwire.persistence.protocol import Changes, RecordName
from shardwire.persistence.record_cipher import RecordCipher

# After so much it is folded: memory, and the time that a restart takes, grow with it.
JOURNAL_COMMITS_MAX = 1_024
JOURNAL_BYTES_MAX = 1 << 20
# Values from this size on are written among the records at once.
LARGE_VALUE_BYTES = 4_096

_COUNTS = struct.Struct(">II")
_NAME = struct.Struct(">BHII")
_PUT, _DELETE, _ELSEWHERE = range(3)
# In the name of what is sealed.
_KIND = "journal"

_APPEND = "INSERT INTO journal (channel, commits, checksum, changes) VALUES (?, ?, ?, ?)"
_EMPTY = "DELETE FROM journal WHERE channel = ?"
_READ = "SELECT commits, checksum, changes FROM journal WHERE channel = ? ORDER BY entry"
PUT_RECORD = (
    "INSERT INTO record (channel, kind, key, checksum, value) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (channel, kind, key) DO UPDATE SET checksum = excluded.checksum, value = excluded.value"
)
DELETE_RECORD = "DELETE FROM record WHERE channel = ? AND kind = ? AND key = ?"
# Bounds of the key, rather than its beginning, are what the primary key is searched by.
DELETE_PREFIX = "DELETE FROM record WHERE channel = ? AND kind = ? AND key >= ? AND key < ?"
_ALL_RECORDS = "SELECT kind, key, checksum, value FROM record WHERE channel = ?"

Records = Mapping[RecordName, bytes | None]


@dataclass(slots=True)
class _Latest:
    """What the rows amount to: values, or None for what is deleted.

    Attributes:
        records: By name; what is not here stands among the records as it is.
        commits: How many rows.
        size_bytes: Of all of them.
    """

    records: dict[RecordName, bytes | None] = field(default_factory=dict)
    commits: int = 0
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.commits >= JOURNAL_COMMITS_MAX or self.size_bytes >= JOURNAL_BYTES_MAX


class Journal:
    """That of one channel.

    What stores runs within a transaction of the caller's, but for `append`. The caller calls `forget` where it fails.
    """

    def __init__(self, channel_id: str) -> None:
        self._channel_id = channel_id
        # None where it has to be read first.
        self._latest: _Latest | None = None
        # Names of large values among the records, whose deletion gives much room back.
        self._large: set[RecordName] = set()

    @property
    def has_rows(self) -> bool:
        """Whether it is known to have some."""
        return self._latest is not None and self._latest.commits > 0

    def forget(self) -> None:
        """Nobody knows what the database holds now."""
        self._latest = None

    # --- reading ---

    def read(self, connection: sqlite3.Connection, number: int, cipher: RecordCipher | None) -> dict[RecordName, bytes]:
        """All records of the channel.

        Raises:
            sqlite3.Error: A record or a row is damaged.
        """
        records: dict[RecordName, bytes] = {}
        for row in connection.execute(_ALL_RECORDS, (number,)):
            found = opened(cipher, self._channel_id, row)
            if found is None:
                raise corruption("a record does not match its checksum")
            records[found[0]] = found[1]
        self._large = {name for name, value in records.items() if len(value) >= LARGE_VALUE_BYTES}
        for name, value in self._read_latest(connection, number, cipher).records.items():
            if value is None:
                records.pop(name, None)
            else:
                records[name] = value
        return records

    def _read_latest(self, connection: sqlite3.Connection, number: int, cipher: RecordCipher | None) -> _Latest:
        if self._latest is None:
            latest = _Latest()
            for commits, checksum, changes in connection.execute(_READ, (number,)):
                decoded = _decoded(self._channel_id, cipher, commits, checksum, changes)
                if decoded is None:
                    raise corruption("a row of the journal does not match its checksum")
                latest.commits += 1
                latest.size_bytes += len(changes)
                for done, name, value in decoded:
                    _apply(latest.records, done, name, value)
            self._latest = latest
        return self._latest

    # --- writing ---

    def store(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        changes: Changes,
    ) -> None:
        """Stores the `commits`-th commit of the channel."""
        latest = self._read_latest(connection, number, cipher)
        if changes.deleted_prefixes or latest.is_full:
            self._fold(connection, number, commits, cipher, latest, changes)
            return
        direct = self._append(connection, number, commits, cipher, latest, changes)
        self._write_records(connection, number, cipher, direct)

    def append(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        changes: Changes,
    ) -> bool:
        """As `store` where that takes one row and no more: a statement that is a transaction by itself. Else False."""
        latest = self._latest
        if latest is None or changes.deleted_prefixes or latest.is_full:
            return False
        values = changes.records.values()
        if any(value is not None and len(value) >= LARGE_VALUE_BYTES for value in values):
            return False
        if self._large and not self._large.isdisjoint(changes.records):
            return False
        self._append(connection, number, commits, cipher, latest, changes)
        return True

    def _append(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        latest: _Latest,
        changes: Changes,
    ) -> dict[RecordName, bytes | None]:
        """Appends a row; what is to be written among the records beside it."""
        direct: dict[RecordName, bytes | None] = {}
        names, values = [], []
        for name, value in changes.records.items():
            done, kept = (_DELETE, b"") if value is None else (_PUT, value)
            if len(kept) >= LARGE_VALUE_BYTES or name in self._large:
                direct[name] = value
                done, kept = _ELSEWHERE, b""
            kind, key = name
            text = kind.encode()
            names.append(_NAME.pack(done, len(text), len(key), len(kept)) + text + key)
            values.append(kept)
            _apply(latest.records, done, name, kept)
        row = self._encoded(cipher, commits, names, values)
        latest.commits += 1
        latest.size_bytes += len(row)
        connection.execute(_APPEND, (number, commits, _checksum(commits, row), row))
        return direct

    def fold(self, connection: sqlite3.Connection, number: int, commits: int, cipher: RecordCipher | None) -> None:
        """Writes what there is among the records; `commits` have been made."""
        latest = self._read_latest(connection, number, cipher)
        if latest.commits:
            self._fold(connection, number, commits, cipher, latest, Changes())

    def _fold(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        latest: _Latest,
        changes: Changes,
    ) -> None:
        self._write_records(connection, number, cipher, latest.records)
        prefixes = [(number, kind, key, _behind(key)) for kind, key in changes.deleted_prefixes]
        connection.executemany(DELETE_PREFIX, prefixes)
        self._write_records(connection, number, cipher, changes.records)
        connection.execute(_EMPTY, (number,))
        connection.execute("UPDATE channel SET commits = ? WHERE id = ?", (commits, number))
        self._latest = _Latest()

    def _write_records(
        self, connection: sqlite3.Connection, number: int, cipher: RecordCipher | None, records: Records
    ) -> None:
        deletes, puts = [], []
        # In the order in which they stand there: what is on one page is written at once.
        for name in sorted(records):
            kind, key = name
            value = records[name]
            if value is not None and len(value) >= LARGE_VALUE_BYTES:
                self._large.add(name)
            else:
                self._large.discard(name)
            if value is None:
                deletes.append((number, kind, key))
            else:
                kept = value if cipher is None else cipher.seal(self._channel_id, name, value)
                puts.append((number, kind, key, checksum_of(kind, key, kept), kept))
        if deletes:
            connection.executemany(DELETE_RECORD, deletes)
        if puts:
            connection.executemany(PUT_RECORD, puts)

    def _encoded(self, cipher: RecordCipher | None, commits: int, names: list[bytes], values: list[bytes]) -> bytes:
        head = b"".join(names)
        body = b"".join(values)
        if cipher is not None:
            body = cipher.seal(self._channel_id, _sealed_name(commits, head), body)
        return _COUNTS.pack(len(names), len(head)) + head + body


def journaled_commits(connection: sqlite3.Connection, number: int) -> int:
    """Which commit of a channel its last row is; 0 where it has none."""
    (commits,) = connection.execute("SELECT max(commits) FROM journal WHERE channel = ?", (number,)).fetchone()
    if commits is not None and not isinstance(commits, int):
        raise corruption("a row of the journal has no number")
    return commits or 0


def latest_sizes(connection: sqlite3.Connection, number: int) -> dict[RecordName, int | None]:
    """Sizes of the values that a channel's rows put, and None for what they delete; damaged rows are passed over."""
    sizes: dict[RecordName, int | None] = {}
    for commits, checksum, changes in connection.execute(_READ, (number,)):
        if _is_sound(commits, checksum, changes):
            for done, name, size_bytes in _names(changes):
                if done == _ELSEWHERE:
                    sizes.pop(name, None)
                else:
                    sizes[name] = size_bytes if done == _PUT else None
    return sizes


def latest_records(
    connection: sqlite3.Connection, number: int, channel_id: str, cipher: RecordCipher | None
) -> dict[RecordName, bytes | None]:
    """What a channel's rows amount to; damaged rows are passed over."""
    records: dict[RecordName, bytes | None] = {}
    for commits, checksum, changes in connection.execute(_READ, (number,)):
        for done, name, value in _decoded(channel_id, cipher, commits, checksum, changes) or ():
            _apply(records, done, name, value)
    return records


def _apply(records: dict[RecordName, bytes | None], done: int, name: RecordName, value: bytes) -> None:
    if done == _ELSEWHERE:
        records.pop(name, None)
    else:
        records[name] = value if done == _PUT else None


def _decoded(
    channel_id: str, cipher: RecordCipher | None, commits: object, checksum: object, changes: object
) -> list[tuple[int, RecordName, bytes]] | None:
    """What is done to which record, in order; None for a row that is damaged."""
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
    decoded = []
    at = 0
    for done, name, size_bytes in _names(changes):
        decoded.append((done, name, body[at : at + size_bytes]))
        at += size_bytes
    return decoded


def _names(changes: bytes) -> Iterator[tuple[int, RecordName, int]]:
    count, _ = _COUNTS.unpack_from(changes)
    at = _COUNTS.size
    for _ in range(count):
        done, kind_bytes, key_bytes, value_bytes = _NAME.unpack_from(changes, at)
        at += _NAME.size
        kind = changes[at : at + kind_bytes].decode()
        at += kind_bytes
        yield done, (kind, changes[at : at + key_bytes]), value_bytes
        at += key_bytes


def _is_sound(commits: object, checksum: object, changes: object) -> bool:
    # Damage can change the types too.
    typed = isinstance(commits, int) and isinstance(changes, bytes)
    return typed and checksum == _checksum(commits, changes)  # type: ignore[arg-type]


def _checksum(commits: int, changes: bytes) -> int:
    return zlib.crc32(changes, zlib.crc32(commits.to_bytes(8, "big")))


def _sealed_name(commits: int, head: bytes) -> RecordName:
    return _KIND, commits.to_bytes(8, "big") + head


def _behind(prefix: bytes) -> bytes:
    """The least key behind those that begin with `prefix`; where there is none, one longer than keys are."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\xff" * 1_024

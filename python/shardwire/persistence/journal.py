"""The latest commits of a channel, one row each, until they are folded into its records.

A record that is changed in its place costs a page of the database or more, and a commit changes a dozen; most are gone
again soon, as those of a message under way are. So a commit is one row, appended; from time to time what is left of
many commits is written among the records at once. Large values never go through a row: many at once lie apart, in a
file of their own; others are written among the records at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardwire.persistence.apart import ApartValues, Values
from shardwire.persistence.checksums import checksum_of
from shardwire.persistence.database import corruption, opened
from shardwire.persistence.journal_rows import (
    APART,
    APPEND,
    DELETE,
    ELSEWHERE,
    EMPTY,
    PUT,
    READ,
    Change,
    Latest,
    apply,
    checksum_of_row,
    decoded,
    encoded,
)
from shardwire.persistence.protocol import Changes, RecordName
from shardwire.persistence.record_cipher import RecordCipher
from shardwire.persistence.tables import (
    ALL_RECORDS,
    DELETE_PLACE,
    DELETE_PLACES,
    DELETE_RECORD,
    DELETE_RECORDS,
    PUT_PLACE,
    PUT_RECORD,
    key_behind,
)
from shardwire.persistence.values import Place, ValueFile

# After so much it is folded: memory, and the time that a restart takes, grow with it.
JOURNAL_COMMITS_MAX = 1_024
JOURNAL_BYTES_MAX = 1 << 20
# Values from this size on are no part of a row.
LARGE_VALUE_BYTES = 4_096

Placed = Mapping[RecordName, Place]


@dataclass(slots=True)
class _Latest:
    """What the rows amount to.

    Attributes:
        records: By name; what is not here stands among the records and places as it is.
        commits: How many rows.
        size_bytes: Of all of them.
    """

    records: Latest = field(default_factory=dict)
    commits: int = 0
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.commits >= JOURNAL_COMMITS_MAX or self.size_bytes >= JOURNAL_BYTES_MAX


class Journal:
    """That of one channel.

    What stores runs within a transaction of the caller's, but for `place` and `append`. The caller calls `forget` where
    it fails, and `settle` where it is durable.

    Args:
        channel_id: The channel.
        file: Where its large values lie.
    """

    def __init__(self, channel_id: str, file: ValueFile) -> None:
        self._channel_id = channel_id
        self._apart = ApartValues(channel_id, file)
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
            sqlite3.Error: A record, a row or a value that lies apart is damaged.
            OSError: The file of large values cannot be read.
        """
        records: dict[RecordName, bytes] = {}
        for row in connection.execute(ALL_RECORDS, (number,)):
            found = opened(cipher, self._channel_id, row)
            if found is None:
                raise corruption("a record does not match its checksum")
            records[found[0]] = found[1]
        self._large = {name for name, value in records.items() if len(value) >= LARGE_VALUE_BYTES}
        for name, value in self._read_latest(connection, number, cipher).records.items():
            if value is None:
                records.pop(name, None)
            elif not isinstance(value, Place):
                records[name] = value
        records.update(self._apart.read(cipher))
        return records

    def _read_latest(self, connection: sqlite3.Connection, number: int | None, cipher: RecordCipher | None) -> _Latest:
        if self._latest is None:
            latest = _Latest()
            for commits, checksum, changes in connection.execute(READ, (number,)):
                found = decoded(self._channel_id, cipher, commits, checksum, changes)
                if found is None:
                    raise corruption("a row of the journal does not match its checksum")
                latest.commits += 1
                latest.size_bytes += len(changes)
                for change in found:
                    apply(latest.records, change)
            self._apart.look(connection, number, latest.records)
            self._latest = latest
        return self._latest

    # --- writing ---

    def place(
        self,
        connection: sqlite3.Connection,
        number: int | None,
        cipher: RecordCipher | None,
        large: Mapping[RecordName, bytes],
    ) -> Placed:
        """Writes large values of a commit apart, where they are enough: before the commit itself, which names them.

        The number of a channel that was never stored is None.

        Raises:
            sqlite3.Error: A row is damaged, or values are missing.
            OSError: Nothing was stored.
        """
        self._read_latest(connection, number, cipher)
        return self._apart.store(cipher, large)

    def store(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        changes: Changes,
        placed: Placed,
    ) -> None:
        """Stores the `commits`-th commit of the channel, some values of which were placed."""
        latest = self._read_latest(connection, number, cipher)
        if changes.deleted_prefixes or latest.is_full:
            self._fold(connection, number, commits, cipher, latest, changes, placed)
            return
        direct = self._append(connection, number, commits, cipher, latest, changes, placed)
        self._write_records(connection, number, cipher, direct)

    def append(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        changes: Changes,
        placed: Placed,
    ) -> bool:
        """As `store` where that takes one row and no more: a statement that is a transaction by itself. Else False.

        Every large value among the changes has been placed.
        """
        latest = self._latest
        if latest is None or changes.deleted_prefixes or latest.is_full:
            return False
        if self._large and not self._large.isdisjoint(changes.records):
            return False
        self._append(connection, number, commits, cipher, latest, changes, placed)
        return True

    def _append(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        latest: _Latest,
        changes: Changes,
        placed: Placed,
    ) -> dict[RecordName, bytes | None]:
        """Appends a row; what is to be written among the records beside it."""
        direct: dict[RecordName, bytes | None] = {}
        row: list[Change] = []
        records, large = latest.records, self._large
        for name, value in changes.records.items():
            if placed and name in placed:
                if name in large:
                    direct[name] = None
                row.append((APART, name, placed[name]))
                records[name] = placed[name]
            elif name in large or (value is not None and len(value) >= LARGE_VALUE_BYTES):
                direct[name] = value
                row.append((ELSEWHERE, name, b""))
                records.pop(name, None)
            else:
                row.append((DELETE, name, b"") if value is None else (PUT, name, value))
                records[name] = value
        self._apart.note(changes.records, placed)
        changed = encoded(self._channel_id, cipher, commits, row)
        latest.commits += 1
        latest.size_bytes += len(changed)
        connection.execute(APPEND, (number, commits, checksum_of_row(commits, changed), changed))
        return direct

    def fold(self, connection: sqlite3.Connection, number: int, commits: int, cipher: RecordCipher | None) -> None:
        """Writes what there is among the records and places; `commits` have been made."""
        latest = self._read_latest(connection, number, cipher)
        if latest.commits:
            self._fold(connection, number, commits, cipher, latest, Changes(), {})

    def bring_back(
        self, connection: sqlite3.Connection, number: int, commits: int, cipher: RecordCipher | None
    ) -> None:
        """As `fold`, and values that lie apart too: nothing names any place then."""
        self.fold(connection, number, commits, cipher)
        self._apart.bring_back(connection, number)

    def settle(self) -> None:
        """What was stored is durable."""
        self._apart.settle()

    def _fold(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        latest: _Latest,
        changes: Changes,
        placed: Placed,
    ) -> None:
        self._write_records(connection, number, cipher, latest.records)
        for kind, prefix in changes.deleted_prefixes:
            self._apart.note_prefix(kind, prefix)
        prefixes = [(number, kind, key, key_behind(key)) for kind, key in changes.deleted_prefixes]
        connection.executemany(DELETE_RECORDS, prefixes)
        connection.executemany(DELETE_PLACES, prefixes)
        self._write_records(connection, number, cipher, {**changes.records, **placed})
        self._apart.note(changes.records, placed)
        connection.execute(EMPTY, (number,))
        connection.execute("UPDATE channel SET commits = ? WHERE id = ?", (commits, number))
        self._latest = _Latest()

    def _write_records(
        self, connection: sqlite3.Connection, number: int, cipher: RecordCipher | None, records: Values
    ) -> None:
        """Among the records and places."""
        listed = self._apart.listed
        deletes, puts, unlisted, places = [], [], [], []
        # In the order in which they stand there: what is on one page is written at once.
        for name in sorted(records):
            value = records[name]
            self._large.discard(name)
            if isinstance(value, Place):
                places.append((number, *name, *value))
                listed.add(name)
            elif name in listed:
                unlisted.append((number, *name))
                listed.discard(name)
            if isinstance(value, bytes):
                if len(value) >= LARGE_VALUE_BYTES:
                    self._large.add(name)
                kept = value if cipher is None else cipher.seal(self._channel_id, name, value)
                puts.append((number, *name, checksum_of(*name, kept), kept))
            else:
                deletes.append((number, *name))
        for statement, rows in (
            (DELETE_RECORD, deletes),
            (DELETE_PLACE, unlisted),
            (PUT_RECORD, puts),
            (PUT_PLACE, places),
        ):
            if rows:
                connection.executemany(statement, rows)


def large_values(changes: Changes) -> dict[RecordName, bytes]:
    """Those that are no part of a row."""
    return {
        name: value for name, value in changes.records.items() if value is not None and len(value) >= LARGE_VALUE_BYTES
    }

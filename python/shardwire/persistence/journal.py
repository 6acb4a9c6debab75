"""The latest commits of a channel, one row each in a file of their own, until they are folded into its records.

A record that is changed in its place costs a page of the database or more, and a commit changes a dozen; most are gone
again soon, as those of a message under way are. So a commit is one row, appended and synced; from time to time what is
left of many commits is written among the records at once. Many large values of one commit lie apart, in another file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardwire._native import ChangedRecords, JournalFile, RecordTable, Wake
from shardwire.errors import PersistenceError
from shardwire.persistence.channel_files import file_of
from shardwire.persistence.checksums import checksum_of
from shardwire.persistence.database import corruption, opened
from shardwire.persistence.journal_rows import EMPTY, Row, apply, encoded, in_table, latest_rows
from shardwire.persistence.large_values import LargeValues, Values
from shardwire.persistence.protocol import RecordName
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
JOURNAL_BYTES_MAX = 2 << 20
# Values from this size on may lie apart.
LARGE_VALUE_BYTES = 4_096
# Of values in a commit that is begun without a thread of its own: to make its row takes no time worth mentioning.
BEGUN_BYTES_MAX = 32 << 10

_TOKEN_BYTES = 8
_SET_COMMITS = "UPDATE channel SET commits = ?, journal = ? WHERE id = ?"

Placed = Mapping[RecordName, Place]


@dataclass(slots=True)
class _Latest:
    """What the rows amount to.

    Attributes:
        records: By name; what is not here stands among the records and places as it is.
        commits: How many rows.
        size_bytes: Of all of them.
    """

    records: RecordTable = field(default_factory=lambda: RecordTable(keeps_deleted=True))
    commits: int = 0
    size_bytes: int = 0


class Journal:
    """The journal of one channel.

    The caller calls `forget` where something that stores fails, and `settle` where it is durable. `fold` runs within a
    transaction of the caller's.

    Args:
        database: Path of the database.
        channel_id: The channel.
        values: Where its large values lie.
    """

    def __init__(self, database: Path, channel_id: str, values: ValueFile) -> None:
        self._channel_id = channel_id
        self._large_values = LargeValues(channel_id, values)
        self._path = file_of(database, channel_id, ".journal")
        self._file = JournalFile(os.fspath(self._path), os.fspath(database))
        # Rows that were found and not decoded yet.
        self._rows: list[Row] = []
        # None where it has to be decoded first.
        self._latest: _Latest | None = None
        # The token with which the file was begun; None before the first fold.
        self._token: bytes | None = None
        # Whether the file was found: of its rows the disk may lack one after a failed sync, and more may stand behind a
        # damaged one. The next commit leaves it behind.
        self._is_doubtful = False
        # That of a fold which is not durable yet.
        self._next_token: bytes | None = None

    @property
    def has_file(self) -> bool:
        return self._file.exists

    @property
    def takes_a_fold(self) -> bool:
        """Whether the records are not all there is."""
        return bool(self._rows or self._is_doubtful or (self._latest is not None and self._latest.commits))

    def require_in_place(self) -> None:
        """What is written to a file that was deleted or moved away nobody finds again.

        Raises:
            PersistenceError: It was.
        """
        if not self._file.is_in_place:
            raise PersistenceError(
                f"journal file {str(self._path)!r} was deleted, moved or replaced while it is in use: nothing was "
                "stored; put it back in its place, or close its channel"
            )

    # --- reading ---

    def look(self, connection: sqlite3.Connection, number: int, commits: int, token: bytes | None) -> int:
        """Finds the rows behind the `commits`-th commit, up to which all is folded; the number of the last.

        Raises:
            sqlite3.Error: What an earlier release left is damaged.
            OSError: The file cannot be read.
        """
        self._rows, commits = latest_rows(connection, number, commits, token, self._file.read)
        self._token = token
        self._is_doubtful = self._file.exists
        return commits

    def forget(self) -> None:
        """Nobody knows what the database holds now, nor the file."""
        self._latest = None
        self._rows = []
        self._next_token = None

    def read(self, connection: sqlite3.Connection, number: int, cipher: RecordCipher | None) -> dict[RecordName, bytes]:
        """All records of the channel.

        Raises:
            sqlite3.Error: A record, a row or a value that lies apart is damaged.
            OSError: A file cannot be read.
        """
        records: dict[RecordName, bytes] = {}
        for row in connection.execute(ALL_RECORDS, (number,)):
            found = opened(cipher, self._channel_id, row)
            if found is None:
                raise corruption("a record does not match its checksum")
            records[found[0]] = found[1]
        for name, value in in_table(self._read_latest(connection, number, cipher).records).items():
            if value is None:
                records.pop(name, None)
            elif not isinstance(value, Place):
                records[name] = value
        records.update(self._large_values.read(cipher))
        return records

    def _read_latest(self, connection: sqlite3.Connection, number: int | None, cipher: RecordCipher | None) -> _Latest:
        if self._latest is None:
            latest = _Latest()
            for row in self._rows:
                if not apply(latest.records, self._channel_id, cipher, row):
                    raise corruption("a row of the journal was altered")
                latest.commits += 1
                latest.size_bytes += len(row[1])
            self._large_values.look(connection, number, in_table(latest.records))
            self._latest, self._rows = latest, []
        return self._latest

    # --- writing ---

    def place(
        self, connection: sqlite3.Connection, number: int | None, cipher: RecordCipher | None, changes: ChangedRecords
    ) -> Placed | None:
        """Writes large values of a commit apart, where they are enough: before the commit itself, which names them.

        The number of a channel that was never stored is None.

        Raises:
            sqlite3.Error: A row is damaged, or values are missing.
            OSError: Nothing was stored.
        """
        if not self._large_values.takes(changes.value_bytes):
            return None
        values = changes.to_dict().items()
        large = {name: value for name, value in values if value is not None and len(value) >= LARGE_VALUE_BYTES}
        self._read_latest(connection, number, cipher)
        return self._large_values.store(cipher, large) or None

    def append(self, commits: int, cipher: RecordCipher | None, changes: ChangedRecords, placed: Placed | None) -> bool:
        """Stores the `commits`-th commit of the channel, some values of which were placed; durable when this returns.

        False, and nothing is done, where it takes a fold.

        Raises:
            OSError: Nobody knows whether it is stored.
        """
        row = self._row(commits, cipher, changes, placed)
        if row is None:
            return False
        self._file.append(commits, row)
        self._note(changes, placed, row)
        return True

    def begin(self, commits: int, cipher: RecordCipher | None, changes: ChangedRecords, wake: Wake) -> bool:
        """As `append` in a thread that has no part in the interpreter, and wakes when it is done; `end` ends it.

        False, and nothing is done, where it takes more than that.
        """
        if changes.value_bytes > BEGUN_BYTES_MAX:
            return False
        row = self._row(commits, cipher, changes)
        if row is None or not self._file.begin(commits, row, wake):
            return False
        self._note(changes, None, row)
        return True

    def end(self) -> None:
        """Waits for what was begun.

        Raises:
            OSError: Nobody knows whether it is stored.
        """
        self._file.end()

    def _row(
        self, commits: int, cipher: RecordCipher | None, changes: ChangedRecords, placed: Placed | None = None
    ) -> bytes | None:
        """None where no row may be appended."""
        latest = self._latest
        if latest is None or latest.commits >= JOURNAL_COMMITS_MAX:
            return None
        if self._token is None or self._is_doubtful:
            return None
        row = encoded(self._channel_id, cipher, commits, changes, placed)
        return row if latest.size_bytes + len(row) <= JOURNAL_BYTES_MAX else None

    def _note(self, changes: ChangedRecords, placed: Placed | None, row: bytes) -> None:
        latest = self._latest
        assert latest is not None
        latest.records.apply(changes, placed)
        latest.commits += 1
        latest.size_bytes += len(row)
        if self._large_values.holds_any or placed:
            self._large_values.note(changes.to_dict(), placed or {})

    def fold(
        self,
        connection: sqlite3.Connection,
        number: int,
        commits: int,
        cipher: RecordCipher | None,
        changes: ChangedRecords,
        deleted_prefixes: Collection[RecordName] = (),
        placed: Placed | None = None,
    ) -> None:
        """Writes what there is among the records and places, deletes what begins with a prefix, and then writes
        `changes`; `commits` have been made with them.

        Raises:
            sqlite3.Error: Nothing of it counts.
            OSError: The same.
        """
        latest = self._read_latest(connection, number, cipher)
        self._write_records(connection, number, cipher, in_table(latest.records))
        for kind, prefix in deleted_prefixes:
            self._large_values.note_prefix(kind, prefix)
        prefixes = [(number, kind, key, key_behind(key)) for kind, key in deleted_prefixes]
        connection.executemany(DELETE_RECORDS, prefixes)
        connection.executemany(DELETE_PLACES, prefixes)
        records = changes.to_dict()
        self._write_records(connection, number, cipher, {**records, **(placed or {})})
        self._large_values.note(records, placed or {})
        connection.execute(EMPTY, (number,))
        self._next_token = os.urandom(_TOKEN_BYTES)
        connection.execute(_SET_COMMITS, (commits, self._next_token, number))

    def bring_back(self, connection: sqlite3.Connection, number: int) -> None:
        """Moves values that lie apart among the records: nothing names any place then."""
        self._large_values.bring_back(connection, number)

    def settle(self) -> None:
        """What was stored is durable."""
        if self._next_token is not None:
            self._latest = _Latest()
            self._token, self._next_token = self._next_token, None
            self._is_doubtful = False
            self._file.restart(self._token)
        self._large_values.settle()

    def remove(self) -> None:
        """Deletes the file, of which nothing counts.

        Raises:
            OSError: It cannot be deleted.
        """
        self._file.remove()

    def close(self) -> None:
        self._file.close()

    def _write_records(
        self, connection: sqlite3.Connection, number: int, cipher: RecordCipher | None, records: Values
    ) -> None:
        """Among the records and places."""
        listed = self._large_values.listed
        deletes, puts, unlisted, places = [], [], [], []
        # In the order in which they stand there: what is on one page is written at once.
        for name in sorted(records):
            value = records[name]
            if isinstance(value, Place):
                places.append((number, *name, *value))
                listed.add(name)
            elif name in listed:
                unlisted.append((number, *name))
                listed.discard(name)
            if isinstance(value, bytes):
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

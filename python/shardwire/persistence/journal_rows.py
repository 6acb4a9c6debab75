"""The rows of a journal: what one commit changes, laid out by the core.

Under a key of the database the values of a row are sealed as one, bound to the names in it and to the number of the
commit. Rows stand in a file (`JournalFile`); up to version 7 of the schema they stood in a table.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping

from shardwire._native import ChangedRecords, RecordTable, split_row
from shardwire.persistence.database import corruption
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.record_cipher import SEAL_BYTES, RecordCipher
from shardwire.persistence.values import Place

# What a head has before its names.
_COUNTS_BYTES = 8
# In the name of what is sealed.
_KIND = "journal"

# More than any channel lives to make: a larger number is damage, and a few behind it there would be none to store.
_COMMITS_MAX = 1 << 62

EMPTY = "DELETE FROM journal WHERE channel = ?"
_READ = "SELECT commits, checksum, changes FROM journal WHERE channel = ? ORDER BY entry"

Row = tuple[int, bytes]
"""Which commit of its channel, and what it changes."""
Latest = dict[RecordName, bytes | Place | None]
"""What rows amount to: values or their places, and None for what is deleted; what is missing stands elsewhere."""


def encoded(
    channel_id: str,
    cipher: RecordCipher | None,
    commits: int,
    changes: ChangedRecords,
    placed: Mapping[RecordName, Place] | None = None,
) -> bytes:
    """The row of the `commits`-th commit of a channel, some values of which were placed."""
    if cipher is None:
        head, values = changes.row(placed)
    else:
        head, values = changes.row(placed, SEAL_BYTES)
        values = cipher.seal(channel_id, _sealed_name(commits, head), values)
    return head + values


def apply(table: RecordTable, channel_id: str, cipher: RecordCipher | None, row: Row) -> bool:
    """Applies what a row changes; False, and nothing is done, for one that was altered."""
    commits, body = row
    parts = split_row(body)
    if parts is None:
        return False
    head, values = parts
    found = values if cipher is None else cipher.open(channel_id, _sealed_name(commits, head), values)
    return found is not None and table.apply_row(head, found)


def in_table(table: RecordTable) -> Latest:
    """What the rows that were applied amount to."""
    return {**table.values(), **{name: Place(*numbers) for name, numbers in table.places().items()}}


def latest_records(rows: Iterable[Row], channel_id: str, cipher: RecordCipher | None) -> Latest:
    """What rows amount to; those that were altered are passed over."""
    table = RecordTable(keeps_deleted=True)
    for row in rows:
        apply(table, channel_id, cipher, row)
    return in_table(table)


def table_rows(connection: sqlite3.Connection, number: int) -> list[Row]:
    """What an earlier release left of a channel in the table.

    Raises:
        sqlite3.Error: One of them is damaged.
    """
    rows = []
    for commits, checksum, changes in connection.execute(_READ, (number,)):
        # Damage can change the types and the sign, too.
        typed = isinstance(commits, int) and commits >= 0 and isinstance(changes, bytes)
        if not typed or checksum != _checksum_of(commits, changes):
            raise corruption("a row of the journal does not match its checksum")
        rows.append((commits, changes))
    return rows


def latest_rows(
    connection: sqlite3.Connection,
    number: int,
    commits: object,
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
        sqlite3.Error: That number, or what an earlier release left, is damaged.
        OSError: The file cannot be read.
    """
    if not (isinstance(commits, int) and 0 <= commits <= _COMMITS_MAX):
        raise corruption("a channel has no number of commits")
    rows = table_rows(connection, number)
    after = max(commits, rows[-1][0]) if rows else commits
    if token is not None:
        rows += read_file(token, after)
    return rows, max(after, rows[-1][0]) if rows else after


def _checksum_of(commits: int, changes: bytes) -> int:
    return zlib.crc32(changes, zlib.crc32(commits.to_bytes(8, "big")))


def _sealed_name(commits: int, head: bytes) -> RecordName:
    return _KIND, commits.to_bytes(8, "big") + head[_COUNTS_BYTES:]

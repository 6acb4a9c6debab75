"""What a database holds, read beside the process that uses it: nothing is locked, changed or upgraded."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from shardwire.config.checks import check_path
from shardwire.errors import PersistenceError
from shardwire.persistence import schema
from shardwire.persistence.channel_lock import holder_of
from shardwire.persistence.commit_count import told_commits
from shardwire.persistence.database import cipher_of, opened
from shardwire.persistence.journal import journaled_commits, latest_records, latest_sizes
from shardwire.persistence.protocol import ChannelState, RecordName
from shardwire.persistence.record_cipher import SEAL_BYTES, RecordCipher, check_key

_SIZES = "SELECT kind, key, length(value) FROM record WHERE channel = ?"
_READ = "SELECT kind, key, checksum, value FROM record WHERE channel = ? AND kind = ?"


@dataclass(frozen=True, slots=True)
class StoredKind:
    """How much is stored of one kind of record.

    Attributes:
        records: How many records there are.
        size_bytes: The bytes of their values.
    """

    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoredChannel:
    """One channel that a database holds.

    Attributes:
        channel_id: Its id.
        kinds: What is stored of it, by kind.
        state: The records of the kinds that were asked for.
        held_by: Who uses it now; None where nobody does.
        lost_commits: Commits that were told of and are missing: its log was damaged or deleted at some time, or an
            older copy put in its place.
    """

    channel_id: str
    kinds: Mapping[str, StoredKind]
    state: ChannelState = field(repr=False)
    held_by: str | None
    lost_commits: int = 0


def read_channels(
    path: str | os.PathLike[str], kinds: Collection[str] = (), *, key: bytes | None = None
) -> tuple[StoredChannel, ...]:
    """The channels of a database, in the order of their ids, as they were at one moment.

    Args:
        path: The database of a `SqlitePersistence`; other processes may use it meanwhile.
        kinds: Kinds whose records are read, not only counted.
        key: Of the database; without one its records can be counted.

    Raises:
        ConfigError: `path` is none, the key has not 32 bytes, or the library `cryptography` is missing.
        PersistenceError: There is no such file, it cannot be read, is no database of shardwire's, or of a newer schema;
            or records are to be read and the key is not the one of the database.
    """
    if key is not None:
        check_key(key)
    check_path("path", path)
    place = Path(path)
    if not place.is_file():
        raise PersistenceError(f"database {str(place)!r} does not exist: give the path of one")
    try:
        connection = sqlite3.connect(f"file:{quote(os.fspath(place))}?mode=ro", uri=True, isolation_level=None)
        try:
            schema.require_readable(connection, str(place))
            # Before the snapshot: who uses it may commit meanwhile.
            told = {
                str(channel_id): told_commits(place, str(channel_id))
                for (channel_id,) in connection.execute("SELECT channel_id FROM channel").fetchall()
            }
            # One snapshot for all of it.
            connection.execute("BEGIN")
            version = schema.require_readable(connection, str(place))
            cipher = cipher_of(connection, key, place) if kinds or key is not None else None
            counts = "commits, lost_commits" if schema.counts_commits(version) else "0, 0"
            # The journal tells the sizes of values, the rows those of what is sealed.
            seal_bytes = 0 if schema.protection_of(connection) is None else SEAL_BYTES
            has_journal = schema.has_journal(version)
            found = connection.execute(f"SELECT id, channel_id, {counts} FROM channel ORDER BY channel_id").fetchall()
            return tuple(
                _read(
                    connection,
                    place,
                    cipher,
                    number,
                    str(channel_id),
                    kinds,
                    lost + max(0, told.get(str(channel_id), 0) - _commits(connection, number, commits, has_journal)),
                    has_journal=has_journal,
                    seal_bytes=seal_bytes,
                )
                for number, channel_id, commits, lost in found
            )
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise PersistenceError(f"database {str(place)!r} cannot be read: {error}") from None


def _read(
    connection: sqlite3.Connection,
    place: Path,
    cipher: RecordCipher | None,
    number: int,
    channel_id: str,
    kinds: Collection[str],
    lost_commits: int,
    *,
    has_journal: bool,
    seal_bytes: int,
) -> StoredChannel:
    sizes: dict[RecordName, int | None] = {
        (str(kind), key): max(0, int(size_bytes or 0) - seal_bytes)
        for kind, key, size_bytes in connection.execute(_SIZES, (number,))
    }
    rows = [row for kind in kinds for row in connection.execute(_READ, (number, kind))]
    # The process that uses the database says what is wrong with it.
    records: dict[RecordName, bytes | None] = dict(
        found for found in (opened(cipher, channel_id, row) for row in rows) if found is not None
    )
    if has_journal:
        sizes |= latest_sizes(connection, number)
        latest = latest_records(connection, number, channel_id, cipher) if kinds else {}
        records |= {name: value for name, value in latest.items() if name[0] in kinds}
    counts: dict[str, list[int]] = {}
    for (kind, _), size_bytes in sorted(sizes.items()):
        if size_bytes is not None:
            counts.setdefault(kind, []).append(size_bytes)
    return StoredChannel(
        channel_id,
        {kind: StoredKind(len(found), sum(found)) for kind, found in counts.items()},
        ChannelState({name: value for name, value in records.items() if value is not None}),
        holder_of(place, channel_id),
        lost_commits,
    )


def _commits(connection: sqlite3.Connection, number: int, folded: int, has_journal: bool) -> int:
    return max(folded, journaled_commits(connection, number)) if has_journal else folded

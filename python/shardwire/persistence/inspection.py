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
from shardwire.persistence.apart import listed_places, value_at
from shardwire.persistence.channel_lock import holder_of
from shardwire.persistence.commit_count import told_commits
from shardwire.persistence.database import cipher_of, opened
from shardwire.persistence.journal_rows import Latest, journaled_commits, latest_records, latest_sizes
from shardwire.persistence.protocol import ChannelState, RecordName
from shardwire.persistence.record_cipher import SEAL_BYTES, RecordCipher, check_key
from shardwire.persistence.values import Place, ValueFile

# How often what lies apart is read again, where who uses the database wrote over it meanwhile.
_ATTEMPTS = 10
# A value that was not where it should be, of a channel.
_Missed = tuple[str, RecordName, Place]
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
    missed: set[_Missed] = set()
    for _ in range(_ATTEMPTS):
        before, missed = missed, set()
        try:
            found = _read_at_once(place, kinds, key, missed)
        except sqlite3.Error as error:
            raise PersistenceError(f"database {str(place)!r} cannot be read: {error}") from None
        except OSError as error:
            raise PersistenceError(f"large values of {str(place)!r} cannot be read: {error}") from None
        # What is missed twice is damaged: the process that uses the database says so.
        if missed <= before:
            break
    return found


def _read_at_once(
    place: Path, kinds: Collection[str], key: bytes | None, missed: set[_Missed]
) -> tuple[StoredChannel, ...]:
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
                missed,
                version=version,
                seal_bytes=seal_bytes,
            )
            for number, channel_id, commits, lost in found
        )
    finally:
        connection.close()


def _read(
    connection: sqlite3.Connection,
    place: Path,
    cipher: RecordCipher | None,
    number: int,
    channel_id: str,
    kinds: Collection[str],
    lost_commits: int,
    missed: set[_Missed],
    *,
    version: int,
    seal_bytes: int,
) -> StoredChannel:
    sizes: dict[RecordName, int | None] = {
        (str(kind), key): max(0, int(size_bytes or 0) - seal_bytes)
        for kind, key, size_bytes in connection.execute(_SIZES, (number,))
    }
    rows = [row for kind in kinds for row in connection.execute(_READ, (number, kind))]
    # The process that uses the database says what is wrong with it.
    records: Latest = dict(found for found in (opened(cipher, channel_id, row) for row in rows) if found is not None)
    if schema.has_places(version):
        listed = listed_places(connection, number) or {}
        sizes |= {name: max(0, found.size - seal_bytes) for name, found in listed.items()}
        records |= {name: found for name, found in listed.items() if name[0] in kinds}
    if schema.has_journal(version):
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
        ChannelState(_values(place, cipher, channel_id, records, missed)),
        holder_of(place, channel_id),
        lost_commits,
    )


def _values(
    database: Path, cipher: RecordCipher | None, channel_id: str, records: Latest, missed: set[_Missed]
) -> dict[RecordName, bytes]:
    values = {}
    file = ValueFile(database, channel_id, read_only=True)
    try:
        for name, value in records.items():
            found = value_at(file, cipher, channel_id, name, value) if isinstance(value, Place) else value
            if found is not None:
                values[name] = found
            elif isinstance(value, Place):
                missed.add((channel_id, name, value))
    finally:
        file.close()
    return values


def _commits(connection: sqlite3.Connection, number: int, folded: int, has_journal: bool) -> int:
    return max(folded, journaled_commits(connection, number)) if has_journal else folded

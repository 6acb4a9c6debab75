"""What a database holds, read beside the process that uses it: nothing is locked, changed or upgraded."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from shardwire._native import read_journal, sizes_in_rows
from shardwire.config.checks import check_list, check_path
from shardwire.errors import PersistenceError
from shardwire.persistence import schema
from shardwire.persistence.channel_files import file_of
from shardwire.persistence.channel_lock import holder_of
from shardwire.persistence.commit_count import told_commits
from shardwire.persistence.database import cipher_of, opened
from shardwire.persistence.failures import is_full
from shardwire.persistence.journal_rows import Latest, Row, latest_records, latest_rows
from shardwire.persistence.large_values import listed_places, value_at
from shardwire.persistence.protocol import ChannelState, RecordName
from shardwire.persistence.record_cipher import SEAL_BYTES, RecordCipher, check_key
from shardwire.persistence.values import Place, ValueFile
from shardwire.quoting import os_reason

# How often all is read again, where who uses the database wrote over what lies beside it meanwhile.
_ATTEMPTS = 10
# What was not where it should be, of a channel: a value, or the commits behind one.
_Missed = tuple[str, RecordName, Place] | tuple[str, int]
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
    check_list("kinds", kinds, "kinds of records")
    place = Path(path)
    if not place.is_file():
        raise PersistenceError(f"database {str(place)!r} does not exist: give the path of one")
    missed: set[_Missed] = set()
    for _ in range(_ATTEMPTS):
        before, missed = missed, set()
        try:
            found = _read_at_once(place, kinds, key, missed)
        except sqlite3.Error as error:
            is_refused = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN
            is_why = is_refused and not _can_write_beside(place)
            remedy = ": its directory cannot be written, look at a copy elsewhere" if is_why else ""
            if is_full(error):
                remedy = ": the disk is full, and to be read it needs room beside it, make some"
            raise PersistenceError(f"database {str(place)!r} cannot be read: {error}{remedy}") from None
        except OSError as error:
            raise PersistenceError(
                f"a file of the state in {str(place)!r} cannot be read: {os_reason(error)}"
            ) from None
        # What is missed twice is damaged: the process that uses the database says so.
        if missed <= before:
            break
    return found


def _read_at_once(
    place: Path, kinds: Collection[str], key: bytes | None, missed: set[_Missed]
) -> tuple[StoredChannel, ...]:
    connection = sqlite3.connect(f"file:{quote(os.fspath(place))}?{_mode(place)}", uri=True, isolation_level=None)
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
        token = "journal" if schema.has_journal_files(version) else "NULL"
        # The journal tells the sizes of values, the rows those of what is sealed.
        seal_bytes = 0 if schema.protection_of(connection) is None else SEAL_BYTES
        found = connection.execute(f"SELECT id, channel_id, {counts}, {token} FROM channel ORDER BY channel_id")
        channels = []
        for number, channel_id, commits, lost, token in found.fetchall():
            name = str(channel_id)
            rows, commits = _rows(connection, place, name, number, commits, token, version)
            if commits < told.get(name, 0):
                missed.add((name, commits))
                lost += told[name] - commits
            sizes = _sizes(connection, number, rows, version, seal_bytes)
            records = _records(connection, place, cipher, number, name, kinds, rows, missed, version) if kinds else {}
            channels.append(StoredChannel(name, _counted(sizes), ChannelState(records), holder_of(place, name), lost))
        return tuple(channels)
    finally:
        connection.close()


def _mode(place: Path) -> str:
    """SQLite makes files beside a database with a log to read it, which a backup or another's directory may not take,
    and who may only read leaves them there.

    One at rest has no log, and nobody who is using it.
    """
    if place.with_name(f"{place.name}-wal").is_file():
        # Who closes it last, and may write, moves the log of a killed process into the database.
        return "mode=ro"
    return "mode=rw" if _can_write_beside(place) and os.access(place, os.W_OK) else "mode=ro&immutable=1"


def _can_write_beside(place: Path) -> bool:
    return os.access(place.absolute().parent, os.W_OK)


def _sizes(
    connection: sqlite3.Connection, number: int, rows: Sequence[Row], version: int, seal_bytes: int
) -> dict[RecordName, int | None]:
    """Of the values of a channel; None for what is not there any more."""
    sizes: dict[RecordName, int | None] = {
        (str(kind), key): max(0, int(size_bytes or 0) - seal_bytes)
        for kind, key, size_bytes in connection.execute(_SIZES, (number,))
    }
    if schema.has_places(version):
        listed = listed_places(connection, number) or {}
        sizes |= {name: max(0, found.size - seal_bytes) for name, found in listed.items()}
    return sizes | sizes_in_rows([row for _, row in rows])


def _counted(sizes: Mapping[RecordName, int | None]) -> dict[str, StoredKind]:
    counts: dict[str, list[int]] = {}
    for (kind, _), size_bytes in sizes.items():
        if size_bytes is not None:
            counts.setdefault(kind, []).append(size_bytes)
    return {kind: StoredKind(len(found), sum(found)) for kind, found in sorted(counts.items())}


def _records(
    connection: sqlite3.Connection,
    place: Path,
    cipher: RecordCipher | None,
    number: int,
    channel_id: str,
    kinds: Collection[str],
    rows: Sequence[Row],
    missed: set[_Missed],
    version: int,
) -> dict[RecordName, bytes]:
    """The records of some kinds, without damaged ones: the process that uses the database reports those."""
    stored = [row for kind in kinds for row in connection.execute(_READ, (number, kind))]
    records: Latest = dict(found for found in (opened(cipher, channel_id, row) for row in stored) if found is not None)
    latest: Latest = dict(listed_places(connection, number) or {}) if schema.has_places(version) else {}
    latest |= latest_records(rows, channel_id, cipher)
    records |= {name: value for name, value in latest.items() if name[0] in kinds}
    return _values(place, cipher, channel_id, records, missed)


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


def _rows(
    connection: sqlite3.Connection,
    database: Path,
    channel_id: str,
    number: int,
    commits: int,
    token: object,
    version: int,
) -> tuple[list[Row], int]:
    """The latest commits of a channel, and the number of the last."""
    if not schema.has_journal(version):
        return [], commits
    path = os.fspath(file_of(database, channel_id, ".journal"))
    return latest_rows(
        connection,
        number,
        commits,
        token if isinstance(token, bytes) else None,
        lambda token, after: read_journal(path, token, after),
    )

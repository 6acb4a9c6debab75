"""The tables of a database, and the way from each older version to the present one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from shardwire.errors import PersistenceError
from shardwire.persistence.transaction import transaction

# "shwr": marks the file as ours.
APPLICATION_ID = 0x73687772

VERSION_1 = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE channel (id INTEGER PRIMARY KEY, channel_id TEXT NOT NULL UNIQUE);
CREATE TABLE record (
    channel INTEGER NOT NULL REFERENCES channel (id),
    kind TEXT NOT NULL,
    key BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (channel, kind, key)
) WITHOUT ROWID;
"""


def _to_version_2(connection: sqlite3.Connection) -> None:
    """Records in a table with row ids: in one without, long values slow down every search among the keys."""
    connection.execute(
        "CREATE TABLE record_2 (channel INTEGER NOT NULL REFERENCES channel (id), kind TEXT NOT NULL, "
        "key BLOB NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (channel, kind, key))"
    )
    connection.execute(
        "INSERT INTO record_2 (channel, kind, key, checksum, value) "
        "SELECT channel, kind, key, checksum, value FROM record ORDER BY channel, kind, key"
    )
    connection.execute("DROP TABLE record")
    connection.execute("ALTER TABLE record_2 RENAME TO record")


def _to_version_3(connection: sqlite3.Connection) -> None:
    """Segments of partial messages are found by their payload's hash and by their sender."""
    connection.execute(
        "CREATE INDEX segment_by_hash ON record (channel, substr(value, 3, 32)) WHERE kind = 'segmentation.segment'"
    )
    connection.execute(
        "CREATE INDEX segment_by_sender ON record (channel, substr(value, 59, 68)) WHERE kind = 'segmentation.segment'"
    )


def _to_version_4(connection: sqlite3.Connection) -> None:
    """Values may be sealed under a key: the one row there is then tells with which salt, and proves the key."""
    connection.execute("CREATE TABLE protection (salt BLOB NOT NULL, proof BLOB NOT NULL)")


def _to_version_5(connection: sqlite3.Connection) -> None:
    """How many commits a channel has had, and how many of those that were told of are missing."""
    connection.execute("ALTER TABLE channel ADD COLUMN commits INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE channel ADD COLUMN lost_commits INTEGER NOT NULL DEFAULT 0")


def _to_version_6(connection: sqlite3.Connection) -> None:
    """The latest commits of a channel, one row each, before they are folded into its records."""
    connection.execute(
        "CREATE TABLE journal (entry INTEGER PRIMARY KEY, channel INTEGER NOT NULL REFERENCES channel (id), "
        "commits INTEGER NOT NULL, checksum INTEGER NOT NULL, changes BLOB NOT NULL)"
    )


def _to_version_7(connection: sqlite3.Connection) -> None:
    """Large values may lie in a file beside the database: where, as far as the journal does not tell."""
    connection.execute(
        "CREATE TABLE place (channel INTEGER NOT NULL REFERENCES channel (id), kind TEXT NOT NULL, key BLOB NOT NULL, "
        "start INTEGER NOT NULL, size INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (channel, kind, key)) "
        "WITHOUT ROWID"
    )


def _to_version_8(connection: sqlite3.Connection) -> None:
    """The latest commits lie in a file beside the database: the token with which it was begun."""
    connection.execute("ALTER TABLE channel ADD COLUMN journal BLOB")


# Position n - 1 holds the step from version n to version n + 1. Steps are never changed once released.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _to_version_2,
    _to_version_3,
    _to_version_4,
    _to_version_5,
    _to_version_6,
    _to_version_7,
    _to_version_8,
)


def current_version() -> int:
    return len(MIGRATIONS) + 1


def prepare(connection: sqlite3.Connection, name: str, protection: tuple[bytes, bytes] | None = None) -> None:
    """Creates the tables in an empty database, or upgrades older ones, in one transaction.

    Args:
        connection: To the database.
        name: Of the database, for errors.
        protection: Salt and proof for a database that is created here; None for one that is not sealed.

    Raises:
        PersistenceError: The database is another application's, or of a newer schema.
    """
    with transaction(connection):
        version = _stored_version(connection, name)
        is_new = version is None
        if version is None:
            for statement in VERSION_1.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("INSERT INTO schema_version VALUES (1)")
            version = 1
        _refuse_newer(version, name)
        if version < current_version():
            for migrate in MIGRATIONS[version - 1 :]:
                migrate(connection)
            connection.execute("UPDATE schema_version SET version = ?", (current_version(),))
        if is_new and protection is not None:
            connection.execute("INSERT INTO protection VALUES (?, ?)", protection)


def protection_of(connection: sqlite3.Connection) -> tuple[bytes, bytes] | None:
    """Salt and proof of a database whose values are sealed; None of another."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'protection'").fetchone()
    rows = connection.execute("SELECT salt, proof FROM protection").fetchall() if tables != (0,) else []
    if not rows:
        return None
    if len(rows) > 1 or not all(isinstance(part, bytes) for part in rows[0]):
        error = sqlite3.DatabaseError("protection does not hold one salt and one proof")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    return rows[0][0], rows[0][1]


def require_readable(connection: sqlite3.Connection, name: str) -> int:
    """The version of the schema.

    Raises:
        PersistenceError: The database is empty, another application's, or of a newer schema.
    """
    version = _stored_version(connection, name)
    if version is None:
        raise PersistenceError(f"database {name!r} is empty: give the path of another file")
    _refuse_newer(version, name)
    return version


def _refuse_newer(version: int, name: str) -> None:
    if version > current_version():
        raise PersistenceError(
            f"database {name!r} has schema version {version}, this release reads versions 1 to "
            f"{current_version()}: use the release that wrote it, or a newer one"
        )


def counts_commits(version: int) -> bool:
    """Whether the table of channels of this version counts them."""
    return version >= 5


def has_journal(version: int) -> bool:
    """Whether a database of this version may have commits in a table beside its records."""
    return version >= 6


def has_journal_files(version: int) -> bool:
    """Whether it may have them in files."""
    return version >= 8


def has_places(version: int) -> bool:
    """Whether values of a database of this version may lie beside it."""
    return version >= 7


def _stored_version(connection: sqlite3.Connection, name: str) -> int | None:
    """None for an empty database."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id == 0 and tables == 0:
        return None
    if application_id != APPLICATION_ID:
        raise PersistenceError(f"database {name!r} is not shardwire's: give the path of another file")
    versions = connection.execute("SELECT version FROM schema_version").fetchall()
    if len(versions) != 1 or not isinstance(versions[0][0], int) or versions[0][0] < 1:
        error = sqlite3.DatabaseError("schema_version does not hold one version")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    return int(versions[0][0])

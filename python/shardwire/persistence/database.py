"""The file of a database: made for its owner alone, opened, refused where it is none of ours, its log kept short."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from shardwire.errors import PersistenceError
from shardwire.persistence import schema
from shardwire.persistence.checksums import is_sound
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.record_cipher import SALT_BYTES, RecordCipher
from shardwire.quoting import one_line

# How long a commit waits for one of another process, whose channels may share the database.
BUSY_TIMEOUT_MS = 10_000
# Pages of a new file. Most bytes stand in values of 100 KB, which larger pages write with fewer calls.
PAGE_BYTES = 16_384
# The write-ahead log grows as large as the file before it is copied there, within these bounds. What is written and
# deleted within that, as a message under way is, is mostly copied once or not at all; and whoever sends little needs
# little room.
LOG_BYTES_MIN = 1 << 20
LOG_BYTES_MAX = 32 << 20
# Of the database file format: the first bytes name it, those from 68 on the application.
_HEADER_BYTES = 100
# Whoever closes a file takes away the locks that other instances of this process have on it. So each waits here until
# a new file, which has none yet, is closed again.
_MAKING = threading.Lock()


class Database:
    """An open file.

    Args:
        path: Its path; made where it is missing.
        key: Under which its values are sealed; None where they are not.

    Attributes:
        connection: To it.
        cipher: Of its values; None where they are not sealed.

    Raises:
        PersistenceError: It is not shardwire's, of a newer schema, cannot be made, or has another key or none.
        sqlite3.Error: It cannot be opened, or is corrupt.
    """

    def __init__(self, path: Path, key: bytes | None = None) -> None:
        self._path = path
        _refuse_replacing_a_corrupt_file(path)
        _refuse_one_byte(path)
        _make_private(path)
        _refuse_read_only(path)
        self.connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(key)
            self.cipher = cipher_of(self.connection, key, path)
            # Device and inode of what is open.
            status = path.stat()
            self._file = status.st_dev, status.st_ino
            self._log_pages = 0
            self._limit_log(status.st_size)
            # What a killed process left.
            self.empty_log()
        except BaseException as error:
            self.connection.close()
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) == sqlite3.SQLITE_NOTADB:
                _refuse_another_kind_of_file(path)
            raise

    def require_in_place(self) -> None:
        """SQLite goes on writing to a file that was deleted or moved away, where nobody finds it again.

        Raises:
            PersistenceError: It was.
        """
        try:
            status = self._path.stat()
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._file:
            raise PersistenceError(
                f"database {str(self._path)!r} was deleted, moved or replaced while it is in use: nothing was stored; "
                "put it back in its place, or close its channels"
            )
        self._limit_log(status.st_size)

    def empty_log(self) -> None:
        """Copies the log into the file and gives its room back, as far as nobody reads it now."""
        # Whatever fails, a full disk above all: what was committed stays in the log.
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("PRAGMA busy_timeout = 0")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")

    def close(self) -> None:
        if not self.connection.in_transaction:
            # SQLite itself does it for the last connection only.
            self.empty_log()
        self.connection.close()

    def _prepare(self, key: bytes | None) -> None:
        connection = self.connection
        # Of no effect on a file that has pages already.
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise PersistenceError(
                f"database {str(self._path)!r}: its file system allows no write-ahead log: put it on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        # Some builds of SQLite write zeros over every page that a deletion frees: as much again as the values were.
        # "FAST" writes them only where that takes no further page.
        connection.execute("PRAGMA secure_delete = FAST")
        # Elsewhere than on macOS these change nothing; there fsync alone does not reach the disk.
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
        # Not the quick check: that passes over an index that misses some of its rows.
        finding = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if finding != "ok":
            raise corruption(finding)
        salt = os.urandom(SALT_BYTES)
        protection = None if key is None else (salt, RecordCipher(key, salt).proof())
        schema.prepare(connection, str(self._path), protection)
        (self._page_bytes,) = connection.execute("PRAGMA page_size").fetchone()

    def _limit_log(self, size_bytes: int) -> None:
        """As the file grows; it does when the log is copied into it."""
        pages = min(max(size_bytes, LOG_BYTES_MIN), LOG_BYTES_MAX) // self._page_bytes
        if pages != self._log_pages:
            self._log_pages = pages
            self.connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            # What one large commit took is given back.
            self.connection.execute(f"PRAGMA journal_size_limit = {pages * self._page_bytes}")


def cipher_of(connection: sqlite3.Connection, key: bytes | None, path: Path) -> RecordCipher | None:
    """What opens the values of a database; None where they are not sealed.

    Raises:
        PersistenceError: They are and `key` is another or None, or they are not and there is a key.
    """
    protection = schema.protection_of(connection)
    if protection is None:
        if key is not None:
            raise PersistenceError(
                f"database {str(path)!r} is not encrypted, and a key was given: open it without one, or give the path "
                "of a new database, which is encrypted from its first record"
            )
        return None
    if key is None:
        raise PersistenceError(f"database {str(path)!r} is encrypted, and no key was given: give the key it began with")
    salt, proof = protection
    cipher = RecordCipher(key, salt)
    if not cipher.proves(proof):
        raise PersistenceError(
            f"database {str(path)!r} is encrypted under another key than the one given: give the key it began with"
        )
    return cipher


def opened(cipher: RecordCipher | None, channel_id: str, row: tuple[Any, ...]) -> tuple[RecordName, bytes] | None:
    """The name and the value of a stored row: kind, key, checksum, value. None for one that is damaged."""
    kind, key, checksum, value = row
    if not is_sound(kind, key, checksum, value):
        return None
    if cipher is not None:
        value = cipher.open(channel_id, (kind, key), value)
    return None if value is None else ((kind, key), value)


def corruption(finding: str) -> sqlite3.DatabaseError:
    """What SQLite raises for a corrupt file."""
    # What a check finds has a heading in a line of its own.
    error = sqlite3.DatabaseError(one_line(finding))
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _make_private(path: Path) -> None:
    """Makes the file, empty, for its owner alone whatever the umask; SQLite gives the log the same mode."""
    with _MAKING:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            # It is there already, with the mode that somebody gave it, or SQLite says what is wrong.
            return
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)


def _refuse_replacing_a_corrupt_file(path: Path) -> None:
    if path.exists():
        return
    kept = sorted(path.parent.glob(f"{path.name}.corrupt-*[0-9]"))
    if kept:
        raise PersistenceError(
            f"database {str(path)!r} was found corrupt and kept as {str(kept[-1])!r}: put a sound copy in "
            "its place, or move the corrupt file away to begin with empty state"
        )


def _refuse_read_only(path: Path) -> None:
    """SQLite opens it to read alone, for nothing to be stored, and gives its log a mode that stays in the way."""
    if os.path.isfile(path) and not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PersistenceError(
            f"database {str(path)!r} cannot be written: let this user read and write it, what lies beside it, and its "
            "directory"
        )


def _refuse_one_byte(path: Path) -> None:
    """SQLite takes a file of one byte for an empty one."""
    try:
        is_one_byte = path.is_file() and path.stat().st_size == 1
    except OSError:
        # SQLite says what is wrong with it.
        return
    if is_one_byte:
        raise _no_database(path)


def _refuse_another_kind_of_file(path: Path) -> None:
    """A file given by mistake stays as it is; one that was a database of ours is a corrupt one.

    Only for one that SQLite does not read: reading it here would take the locks of other instances away.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        # SQLite says what is wrong with it.
        return
    ours = header[68:72] == schema.APPLICATION_ID.to_bytes(4, "big")
    if header and not header.startswith(b"SQLite format 3\0") and not ours:
        raise _no_database(path)


def _no_database(path: Path) -> PersistenceError:
    return PersistenceError(f"{str(path)!r} is no SQLite database: give the path of another file")

"""State in an SQLite database that survives crashes and power cuts."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

from shardwire.errors import ConfigError, PersistenceError
from shardwire.persistence import reassembly, schema
from shardwire.persistence.channel_lock import ChannelLock
from shardwire.persistence.checksums import checksum_of, is_sound
from shardwire.persistence.protocol import Changes, ChannelState, RecordName

# How long a commit waits for one of another process, whose channels may share the database.
BUSY_TIMEOUT_MS = 10_000
# Pages of a new file. Most bytes stand in values of 100 KB, which larger pages write with fewer calls.
PAGE_BYTES = 16_384
# Of the database file format: the first bytes name it, those from 68 on the application.
_HEADER_BYTES = 100
# How long the write-ahead log grows before it is copied into the file. What is written and deleted within that, as a
# message under way is, is mostly copied once or not at all.
CHECKPOINT_BYTES = 32 << 20

_PUT = (
    "INSERT INTO record (channel, kind, key, checksum, value) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (channel, kind, key) DO UPDATE SET checksum = excluded.checksum, value = excluded.value"
)
_DELETE = "DELETE FROM record WHERE channel = ? AND kind = ? AND key = ?"
# Bounds of the key, rather than its beginning, are what the primary key is searched by.
_DELETE_PREFIX = "DELETE FROM record WHERE channel = ? AND kind = ? AND key >= ? AND key < ?"
_LOAD = "SELECT kind, key, checksum, value FROM record WHERE channel = ?"

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})


class SqlitePersistence:
    """One database for any number of channels; write-ahead log, every commit synced to the disk before it returns.

    The file is opened on first use, so an instance can be made where the file is not; it pickles as its path. Each
    channel used through it is locked for other processes, and other instances, until `release` or `close`. A
    database found corrupt is set aside under a name ending in `.corrupt-<time>`, and no new one takes its place while
    it lies there.

    Args:
        path: The database file; made, but not its directory, where missing. Two more files appear beside it while it
            is in use (`-wal`, `-shm`), and one lock file for each channel.

    Raises:
        ConfigError: The path names no file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if os.fspath(path) == ":memory:":
            raise ConfigError("path is ':memory:': use MemoryPersistence, which keeps state in this process only")
        if not self._path.name:
            raise ConfigError(f"path is {os.fspath(path)!r}: it must name a file")
        # Serialises the writer threads of the channels; SQLite has one writer at a time anyway.
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        # Device and inode of the file that is open.
        self._file: tuple[int, int] | None = None
        self._channel_locks: dict[str, ChannelLock] = {}
        self._channel_keys: dict[str, int] = {}
        # How many channels loaded each state: one of them that is refused takes it from no other.
        self._loads: dict[str, int] = {}
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    def load(self, channel_id: str) -> ChannelState | None:
        """The stored state, or None for a channel that was never stored.

        Raises:
            PersistenceError: The file cannot be opened, is not shardwire's, of a newer schema, corrupt (and then set
                aside), or the channel's state is in use elsewhere.
        """
        with self._lock:
            try:
                connection = self._open(channel_id)
                state = self._read(connection, channel_id)
            except sqlite3.Error as error:
                raise self._failure("load", channel_id, error) from error
            self._loads[channel_id] = self._loads.get(channel_id, 0) + 1
            return state

    def acquire(self, channel_id: str) -> None:
        """Takes a channel for this instance, as `load` does, and reads nothing of it: `close` gives it free.

        Raises:
            PersistenceError: As for `load`.
        """
        with self._lock:
            try:
                self._open(channel_id)
            except sqlite3.Error as error:
                raise self._failure("acquire", channel_id, error) from error

    def commit(self, channel_id: str, changes: Changes) -> None:
        """Applies `changes` in one transaction; durable when this returns.

        Raises:
            PersistenceError: Nothing was stored: the disk is full, the database locked or corrupt, or as for `load`.
                Where the cause can pass, the same call may be tried again.
        """
        with self._lock:
            try:
                connection = self._open(channel_id)
                self._require_file_in_place()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._apply(connection, channel_id, changes)
                    connection.execute("COMMIT")
                except BaseException:
                    # Some failures, such as a full disk, have rolled back already.
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    self._channel_keys.pop(channel_id, None)
                    raise
            except sqlite3.Error as error:
                raise self._failure("commit", channel_id, error) from error

    def find_segments(
        self, channel_id: str, *, entire_message_hash: bytes | None = None, sender: str | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Stored segments of partial messages of a bare `Reassembler`, by what they claim (001 Storage / Persistence).

        Args:
            channel_id: The name they were committed under.
            entire_message_hash: The payload's hash, 32 bytes.
            sender: Who sent them. Given beside the hash, both must hold.

        Returns:
            Keys and values as `Reassembler.poll_persist` gave them, in the order of the keys.

        Raises:
            ValueError: Neither is given.
            PersistenceError: As for `load`.
        """
        terms: tuple[bytes, ...]
        if entire_message_hash is not None:
            query, terms = reassembly.BY_HASH, (bytes(entire_message_hash),)
        elif sender is not None:
            query, terms = reassembly.BY_SENDER, reassembly.sender_range(sender)
        else:
            raise ValueError("nothing to find segments by: give entire_message_hash, sender or both")
        with self._lock:
            try:
                connection = self._open(channel_id)
                channel = self._find_channel(connection, channel_id)
                found = []
                for kind, key, checksum, value in connection.execute(query, (channel, *terms)):
                    if not is_sound(kind, key, checksum, value):
                        raise _corruption("a record does not match its checksum")
                    if sender is None or reassembly.is_sender(value, sender):
                        found.append((key, value))
                return found
            except sqlite3.Error as error:
                raise self._failure("find_segments", channel_id, error) from error

    def expire_segments(self, channel_id: str, at_or_before_ms: int) -> int:
        """Deletes the partial messages of a bare `Reassembler` whose last new segment came at this time or earlier.

        It saves loading, after a restart, what would expire at once.

        Args:
            channel_id: The name they were committed under.
            at_or_before_ms: By the clock that `Reassembler.receive` was given.

        Returns:
            The number of segments deleted.

        Raises:
            PersistenceError: As for `commit`.
        """
        with self._lock:
            try:
                connection = self._open(channel_id)
                channel = self._find_channel(connection, channel_id)
                terms = {"channel": channel, "time": reassembly.time_term(at_or_before_ms)}
                return connection.execute(reassembly.EXPIRE, terms).rowcount
            except sqlite3.Error as error:
                raise self._failure("expire_segments", channel_id, error) from error

    def release(self, channel_id: str) -> None:
        """Takes back one `load`: with the last one the channel is free for other instances and processes, and with
        the last channel the file is closed, until it is used again."""
        with self._lock:
            loads = self._loads.pop(channel_id, 0) - 1
            if loads > 0:
                self._loads[channel_id] = loads
                return
            if self._channel_locks.keys() <= {channel_id}:
                self._release()
            else:
                self._channel_keys.pop(channel_id, None)
                lock = self._channel_locks.pop(channel_id, None)
                if lock is not None:
                    lock.release()

    def close(self) -> None:
        """Closes the file and gives the channels free; further calls raise `PersistenceError`."""
        with self._lock:
            self._closed = True
            self._release()

    def __reduce__(self) -> tuple[type[SqlitePersistence], tuple[str]]:
        return (type(self), (os.fspath(self._path),))

    def __repr__(self) -> str:
        return f"SqlitePersistence({os.fspath(self._path)!r})"

    # --- details ---

    def _read(self, connection: sqlite3.Connection, channel_id: str) -> ChannelState | None:
        channel = self._find_channel(connection, channel_id)
        if channel is None:
            return None
        records: dict[RecordName, bytes] = {}
        for kind, key, checksum, value in connection.execute(_LOAD, (channel,)):
            if not is_sound(kind, key, checksum, value):
                raise _corruption("a record does not match its checksum")
            records[kind, key] = value
        return ChannelState(records)

    def _apply(self, connection: sqlite3.Connection, channel_id: str, changes: Changes) -> None:
        channel = self._find_channel(connection, channel_id)
        if channel is None:
            cursor = connection.execute("INSERT INTO channel (channel_id) VALUES (?)", (channel_id,))
            channel = self._channel_keys[channel_id] = int(cursor.lastrowid or 0)
        puts = []
        deletes = []
        for (kind, key), value in changes.records.items():
            if value is None:
                deletes.append((channel, kind, key))
            else:
                puts.append((channel, kind, key, checksum_of(kind, key, value), value))
        prefixes = [(channel, kind, key, _behind(key)) for kind, key in changes.deleted_prefixes]
        connection.executemany(_DELETE_PREFIX, prefixes)
        connection.executemany(_DELETE, deletes)
        connection.executemany(_PUT, puts)

    def _find_channel(self, connection: sqlite3.Connection, channel_id: str) -> int | None:
        key = self._channel_keys.get(channel_id)
        if key is None:
            row = connection.execute("SELECT id FROM channel WHERE channel_id = ?", (channel_id,)).fetchone()
            if row is None:
                return None
            if not isinstance(row[0], int):
                raise _corruption("a channel has no number")
            key = self._channel_keys[channel_id] = row[0]
        return key

    def _open(self, channel_id: str) -> sqlite3.Connection:
        if self._closed:
            raise PersistenceError(f"{self!r} is closed: make a new one")
        if channel_id not in self._channel_locks:
            self._require_directory()
            self._channel_locks[channel_id] = ChannelLock(self._path, channel_id)
        if self._connection is None:
            try:
                self._connection = self._connect()
                self._file = self._file_in_place()
            except BaseException:
                self._channel_locks.pop(channel_id).release()
                raise
        return self._connection

    def _require_directory(self) -> None:
        if not self._path.parent.is_dir():
            raise PersistenceError(f"database {str(self._path)!r}: its directory does not exist: make it first")

    def _file_in_place(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _require_file_in_place(self) -> None:
        """SQLite goes on writing to a file that was deleted or moved away, where nobody finds it again."""
        if self._file_in_place() != self._file:
            raise PersistenceError(
                f"database {str(self._path)!r} was deleted, moved or replaced while it is in use: nothing was stored; "
                "put it back in its place, or close its channels"
            )

    def _connect(self) -> sqlite3.Connection:
        self._refuse_replacing_a_corrupt_file()
        self._refuse_another_kind_of_file()
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            # Of no effect on a file that has pages already.
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise PersistenceError(
                    f"database {str(self._path)!r}: its file system allows no write-ahead log: put it on a local disk"
                )
            connection.execute("PRAGMA synchronous = FULL")
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // page_bytes}")
            connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")
            # Elsewhere than on macOS these change nothing; there fsync alone does not reach the disk.
            connection.execute("PRAGMA fullfsync = 1")
            connection.execute("PRAGMA checkpoint_fullfsync = 1")
            # Not the quick check: that passes over an index that misses some of its rows.
            finding = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if finding != "ok":
                raise _corruption(finding)
            schema.prepare(connection, str(self._path))
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_replacing_a_corrupt_file(self) -> None:
        if self._path.exists():
            return
        kept = sorted(self._path.parent.glob(f"{self._path.name}.corrupt-*[0-9]"))
        if kept:
            raise PersistenceError(
                f"database {str(self._path)!r} was found corrupt and kept as {str(kept[-1])!r}: put a sound copy in "
                "its place, or move the corrupt file away to begin with empty state"
            )

    def _refuse_another_kind_of_file(self) -> None:
        """A file given by mistake stays as it is; one that was a database of ours is a corrupt one."""
        try:
            with self._path.open("rb") as file:
                header = file.read(_HEADER_BYTES)
        except OSError:
            # SQLite says what is wrong with it.
            return
        ours = header[68:72] == schema.APPLICATION_ID.to_bytes(4, "big")
        if header and not header.startswith(b"SQLite format 3\0") and not ours:
            raise PersistenceError(f"{str(self._path)!r} is no SQLite database: give the path of another file")

    def _failure(self, call: str, channel_id: str, error: sqlite3.Error) -> PersistenceError:
        name = f"{call} of channel {channel_id!r} in {str(self._path)!r}"
        # Without a code it is the interpreter that could not read a value. The low byte is the primary code.
        unread = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else sqlite3.SQLITE_ERROR
        code = getattr(error, "sqlite_errorcode", unread) & 0xFF
        if code in _CORRUPT:
            kept = self._set_aside()
            return PersistenceError(
                f"{name}: the database is corrupt ({error}); it was kept as {str(kept)!r}: put a sound copy in its "
                "place, or move the corrupt file away to begin with empty state"
            )
        remedies = {
            sqlite3.SQLITE_FULL: "the disk is full: make room, nothing was stored",
            sqlite3.SQLITE_BUSY: "another process holds the database locked",
            sqlite3.SQLITE_LOCKED: "another process holds the database locked",
            sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
            sqlite3.SQLITE_READONLY: "the file is read-only",
            sqlite3.SQLITE_IOERR: "the disk reported an error, nothing was stored",
        }
        return PersistenceError(f"{name}: {remedies.get(code, 'SQLite reported an error')} ({error})")

    def _set_aside(self) -> Path:
        """Renames the database and its log. Whoever else has it open can store no more."""
        self._release()
        kept = self._path.with_name(f"{self._path.name}.corrupt-{time.time_ns() // 1_000_000}")
        for suffix in ("", "-wal", "-shm"):
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                source.rename(kept.with_name(kept.name + suffix))
        return kept

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for lock in self._channel_locks.values():
            lock.release()
        self._channel_locks.clear()
        self._channel_keys.clear()
        self._loads.clear()


def _behind(prefix: bytes) -> bytes:
    """The least key behind those that begin with `prefix`; where there is none, one longer than keys are."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\xff" * 1_024


def _corruption(finding: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(finding)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error

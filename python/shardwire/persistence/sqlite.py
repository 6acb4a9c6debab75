"""State in an SQLite database that survives crashes and power cuts."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

from shardwire.errors import ConfigError, PersistenceError
from shardwire.persistence import reassembly
from shardwire.persistence.channel_lock import ChannelLock
from shardwire.persistence.checksums import checksum_of, is_sound
from shardwire.persistence.database import Database, corruption
from shardwire.persistence.protocol import Changes, ChannelState, RecordName

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
            is in use (`-wal`, `-shm`), and one lock file for each channel. What is made is its owner's alone to read.

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
        self._database: Database | None = None
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
                connection = self._open(channel_id).connection
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
                database = self._open(channel_id)
                database.require_in_place()
                connection = database.connection
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
                failure = self._failure("commit", channel_id, error)
                if self._database is not None and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                    # What the log holds may have room in the file already.
                    self._database.empty_log()
                raise failure from error

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
                connection = self._open(channel_id).connection
                channel = self._find_channel(connection, channel_id)
                found = []
                for kind, key, checksum, value in connection.execute(query, (channel, *terms)):
                    if not is_sound(kind, key, checksum, value):
                        raise corruption("a record does not match its checksum")
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
                connection = self._open(channel_id).connection
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
                raise corruption("a record does not match its checksum")
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
                raise corruption("a channel has no number")
            key = self._channel_keys[channel_id] = row[0]
        return key

    def _open(self, channel_id: str) -> Database:
        if self._closed:
            raise PersistenceError(f"{self!r} is closed: make a new one")
        if channel_id not in self._channel_locks:
            self._require_directory()
            self._channel_locks[channel_id] = ChannelLock(self._path, channel_id)
        if self._database is None:
            try:
                self._database = Database(self._path)
            except BaseException:
                self._channel_locks.pop(channel_id).release()
                raise
        return self._database

    def _require_directory(self) -> None:
        if not self._path.parent.is_dir():
            raise PersistenceError(f"database {str(self._path)!r}: its directory does not exist: make it first")

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
        if self._database is not None:
            self._database.close()
            self._database = None
        for lock in self._channel_locks.values():
            lock.release()
        self._channel_locks.clear()
        self._channel_keys.clear()
        self._loads.clear()


def _behind(prefix: bytes) -> bytes:
    """The least key behind those that begin with `prefix`; where there is none, one longer than keys are."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\xff" * 1_024

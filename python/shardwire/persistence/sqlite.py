"""State in an SQLite database that survives crashes and power cuts."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from shardwire._native import ChangedRecords, Wake
from shardwire.config.checks import check_path, check_text
from shardwire.errors import ConfigError, PersistenceError
from shardwire.persistence import reassembly
from shardwire.persistence.channel_files import state_files
from shardwire.persistence.database import Database, corruption, opened
from shardwire.persistence.failures import cause_of
from shardwire.persistence.held_channel import BegunCommit, HeldChannel
from shardwire.persistence.protocol import Changes, ChannelState, RecordName, check_commit
from shardwire.persistence.record_cipher import check_key
from shardwire.persistence.tables import DELETE_RECORD
from shardwire.quoting import os_reason

_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})


class SqlitePersistence:
    """One database for any number of channels; write-ahead log, every commit synced to the disk before it returns.

    The file is opened on first use, so an instance can be made where the file is not; it pickles as its path. Each
    channel used through it is locked for other processes, and other instances, until `release` or `close`. A
    database found corrupt is set aside under a name ending in `.corrupt-<time>`, and no new one takes its place while
    it lies there.

    Args:
        path: The database file; made, but not its directory, where missing. Two more files appear beside it while it
            is in use (`-wal`, `-shm`), and two small ones for each channel: its lock and the count of its commits. A
            channel in use has its latest commits in another (`.journal`), and many bytes that it stores at once in
            one more (`.values`); whoever is killed leaves them, and they belong to the database until that is closed
            again. What is made is its owner's alone to read.
        key: 32 bytes that encrypt every value on disk (extra `crypto`); None leaves them readable for whoever reads the
            files. A database keeps the key it began with, or none. Channel ids and the names of records stay readable:
            participants' and message ids, hashes, sizes, how many there are. With a key it cannot be pickled.

    Raises:
        ConfigError: The path names no file, the key has not 32 bytes, or the library `cryptography` is missing.
    """

    # For the repr of one whose constructor refused its arguments.
    _path = Path()
    _place = Path()
    _key: bytes | None = None

    def __init__(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        check_path("path", path)
        self._path = Path(path)
        if os.fspath(path) == ":memory:":
            raise ConfigError("path is ':memory:': use MemoryPersistence, which keeps state in this process only")
        if not self._path.name:
            raise ConfigError(f"path is {os.fspath(path)!r}: it must name a file")
        if key is not None:
            check_key(key)
            self._key = bytes(key)
        # Serialises the writer threads of the channels; SQLite has one writer at a time anyway.
        self._lock = threading.RLock()
        self._database: Database | None = None
        self._held: dict[str, HeldChannel] = {}
        # Which process took the channels.
        self._process = 0
        self._lost_commits: dict[str, int] = {}
        self._closed = False

    @property
    def path(self) -> Path:
        """Where the database is, as it was given."""
        return self._path

    @property
    def lost_commits(self) -> Mapping[str, int]:
        """How many commits are missing from the state of a channel, for each where this instance found that it is older
        than what was told of it: its log was damaged or deleted, or an older copy put in its place.

        The channel goes on from there; a warning is logged.
        """
        with self._lock:
            found = {channel_id: held.lost_commits for channel_id, held in self._held.items() if held.lost_commits}
            return {**self._lost_commits, **found}

    def load(self, channel_id: str) -> ChannelState | None:
        """The stored state, or None for a channel that was never stored.

        Raises:
            PersistenceError: The file cannot be opened, is not shardwire's, of a newer schema, corrupt (and then set
                aside), or the channel's state is in use elsewhere.
        """
        check_text("channel_id", channel_id)
        with self._lock:
            was_held = channel_id in self._held
            try:
                state = self._read(self._open(channel_id), channel_id)
            except (sqlite3.Error, OSError) as error:
                failure = self._failure("load", channel_id, error)
                if not was_held:
                    # Nobody releases what he could not load.
                    self.release(channel_id)
                raise failure from error
            self._held[channel_id].loads += 1
            return state

    def acquire(self, channel_id: str) -> None:
        """Takes a channel for this instance, as `load` does, and reads nothing of it: `close` gives it free.

        Raises:
            PersistenceError: As for `load`.
        """
        with self._lock:
            try:
                self._open(channel_id)
            except (sqlite3.Error, OSError) as error:
                raise self._failure("acquire", channel_id, error) from error

    def commit(self, channel_id: str, changes: Changes) -> None:
        """Applies `changes` in one transaction; durable when this returns.

        Raises:
            PersistenceError: Nothing was stored: the disk is full, the database locked or corrupt, or as for `load`. Of
                what a disk failed to write all may be found later, or nothing. Where the cause can pass, the same call
                may be tried again.
        """
        check_commit(channel_id, changes)
        with self._lock:
            try:
                database = self._open(channel_id)
                database.require_in_place()
                changed, prefixes = ChangedRecords(dict(changes.records.items())), changes.deleted_prefixes
                self._held[channel_id].commit(database.connection, database.cipher, changed, prefixes)
            except (sqlite3.Error, OSError) as error:
                failure = self._failure("commit", channel_id, error)
                if self._database is not None and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                    # What the log holds may have room in the file already.
                    self._database.empty_log()
                raise failure from error

    def begin_commit(self, channel_id: str, changes: ChangedRecords, wake: Wake) -> BegunCommit | None:
        """Begins a commit without waiting for the disk, where that takes nothing else; it wakes when it is done.

        None, and nothing is done, where it takes more: `commit` is for that.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            held = self._held.get(channel_id)
            if held is None or self._database is None or self._is_forked:
                return None
            return held.begin(self._database.cipher, changes, wake)
        except OSError:
            return None
        finally:
            self._lock.release()

    def end_commit(self, channel_id: str, begun: BegunCommit) -> None:
        """Waits until the commit that was begun is durable.

        Raises:
            PersistenceError: As for `commit`.
        """
        self._require_own_process()
        try:
            begun.end()
        except OSError as error:
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
            ConfigError: Neither is given.
            PersistenceError: As for `load`.
        """
        terms: tuple[bytes, ...]
        if entire_message_hash is not None:
            query, terms = reassembly.BY_HASH, (bytes(entire_message_hash),)
        elif sender is not None:
            query, terms = reassembly.BY_SENDER, reassembly.sender_range(sender)
        else:
            raise ConfigError("nothing to find segments by: give entire_message_hash, sender or both")
        with self._lock:
            try:
                database = self._open(channel_id)
                if database.cipher is not None:
                    # No index tells what sealed values hold.
                    query, terms = reassembly.ALL, ()
                return [
                    (key, value)
                    for (_, key), value in self._records(database, channel_id, query, terms)
                    if (sender is None or reassembly.is_sender(value, sender))
                    and (entire_message_hash is None or reassembly.is_of_message(value, entire_message_hash))
                ]
            except (sqlite3.Error, OSError) as error:
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
                database = self._open(channel_id)
                if database.cipher is not None:
                    return self._expire_sealed(database, channel_id, at_or_before_ms)
                channel = self._fold(database, channel_id)
                terms = {"channel": channel, "time": reassembly.time_term(at_or_before_ms)}
                return database.connection.execute(reassembly.EXPIRE, terms).rowcount
            except (sqlite3.Error, OSError) as error:
                raise self._failure("expire_segments", channel_id, error) from error

    def release(self, channel_id: str) -> None:
        """Takes back one `load`: with the last one the channel is free for other instances and processes, and with
        the last channel the file is closed, until it is used again."""
        with self._lock:
            held = self._held.get(channel_id)
            if self._is_forked:
                return
            if held is not None and held.loads > 1:
                held.loads -= 1
            elif self._held.keys() <= {channel_id}:
                self._release()
            elif held is not None:
                self._come_to_rest(channel_id)
                self._give_free(channel_id)

    def close(self) -> None:
        """Closes the file and gives the channels free; further calls raise `PersistenceError`."""
        with self._lock:
            self._closed = True
            if not self._is_forked:
                self._release()

    def __reduce__(self) -> tuple[type[SqlitePersistence], tuple[str]]:
        if self._key is not None:
            # A pickle ends up in job plans and caches, where keys must not be.
            raise TypeError(f"{self!r} holds a key and cannot be pickled: make it where it is used")
        return (type(self), (os.fspath(self._path),))

    def __repr__(self) -> str:
        return f"SqlitePersistence({os.fspath(self._path)!r}{', encrypted' if self._key is not None else ''})"

    # --- details ---

    def _read(self, database: Database, channel_id: str) -> ChannelState | None:
        held, connection = self._held[channel_id], database.connection
        held.wait()
        number = held.number(connection)
        if number is None:
            return None
        return ChannelState(held.journal.read(connection, number, database.cipher))

    def _records(
        self, database: Database, channel_id: str, query: str, terms: tuple[bytes, ...] = ()
    ) -> Iterator[tuple[RecordName, bytes]]:
        """Records of a channel that a query finds, with their values as they were given."""
        channel = self._fold(database, channel_id)
        for row in database.connection.execute(query, (channel, *terms)):
            found = opened(database.cipher, channel_id, row)
            if found is None:
                raise corruption("a record does not match its checksum")
            yield found

    def _expire_sealed(self, database: Database, channel_id: str, at_or_before_ms: int) -> int:
        """As `reassembly.EXPIRE` does where values can be read."""
        found = [(key, value) for (_, key), value in self._records(database, channel_id, reassembly.ALL)]
        channel = self._held[channel_id].number(database.connection)
        expired = [(channel, reassembly.SEGMENT, key) for key in reassembly.expired(found, at_or_before_ms)]
        with self._held[channel_id].transaction(database.connection):
            database.connection.executemany(DELETE_RECORD, expired)
        return len(expired)

    def _fold(self, database: Database, channel_id: str) -> int | None:
        """Writes the latest commits among the records; the number of those, None where there never were any."""
        return self._held[channel_id].fold(database.connection, database.cipher)

    def _come_to_rest(self, channel_id: str) -> None:
        """As far as it is possible."""
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error, OSError):
                self._held[channel_id].come_to_rest(self._database.connection, self._database.cipher)

    def _open(self, channel_id: str) -> Database:
        if self._closed:
            raise PersistenceError(f"{self!r} is closed: make a new one")
        if not self._held:
            # Whoever changes the directory, or a link, meanwhile leaves all of its files where they are.
            self._place, self._process = Path(os.path.realpath(self._path)), os.getpid()
        self._require_own_process()
        if channel_id not in self._held:
            self._require_directory()
            self._held[channel_id] = HeldChannel(self._place, channel_id)
        if self._database is None:
            try:
                self._database = Database(self._place, self._key)
            except BaseException:
                self._give_free(channel_id)
                raise
        return self._database

    @property
    def _is_forked(self) -> bool:
        """Whether what is open belongs to the process from which this one was forked: here it is not touched."""
        return bool(self._held) and self._process != os.getpid()

    def _require_own_process(self) -> None:
        if self._is_forked:
            raise PersistenceError(
                f"{self!r} is in use by process {self._process}, from which this one was forked: make a new one here"
            )

    def _require_directory(self) -> None:
        if not self._place.parent.is_dir():
            raise PersistenceError(f"database {str(self._path)!r}: its directory does not exist: make it first")

    def _failure(self, call: str, channel_id: str, error: sqlite3.Error | OSError) -> PersistenceError:
        name = f"{call} of channel {channel_id!r} in {str(self._path)!r}"
        # Without a code it is the interpreter that could not read a value. The low byte is the primary code.
        unread = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else sqlite3.SQLITE_ERROR
        code = getattr(error, "sqlite_errorcode", unread) & 0xFF
        if code in _CORRUPT and isinstance(error, sqlite3.Error):
            remedy = "put a sound copy in its place, or move the corrupt file away to begin with empty state"
            try:
                done = f"it was kept as {str(self._set_aside())!r}"
            except OSError as left:
                done = f"it could not be renamed ({os_reason(left)})"
            return PersistenceError(f"{name}: the database is corrupt ({error}); {done}: {remedy}")
        return PersistenceError(f"{name}: {cause_of(error, code, is_directory=os.path.isdir(self._place))}")

    def _set_aside(self) -> Path:
        """Renames the database and what belongs to it. Whoever else has it open can store no more."""
        self._release(is_sound=False)
        kept = self._place.with_name(f"{self._place.name}.corrupt-{time.time_ns() // 1_000_000}")
        beside = [self._place.with_name(self._place.name + suffix) for suffix in ("", "-wal", "-shm")]
        for source in (*beside, *state_files(self._place)):
            if source.exists():
                source.rename(kept.with_name(kept.name + source.name.removeprefix(self._place.name)))
        return kept

    def _release(self, *, is_sound: bool = True) -> None:
        if self._database is not None:
            if is_sound:
                for channel_id in self._held:
                    self._come_to_rest(channel_id)
            self._database.close()
            self._database = None
        for channel_id in list(self._held):
            self._give_free(channel_id)

    def _give_free(self, channel_id: str) -> None:
        held = self._held.pop(channel_id)
        if held.lost_commits:
            self._lost_commits[channel_id] = held.lost_commits
        held.release()

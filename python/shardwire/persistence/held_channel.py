"""One channel of a database, as the instance that has it knows it."""

from __future__ import annotations

import contextlib
import errno
import logging
import sqlite3
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from shardwire._native import ChangedRecords, Wake
from shardwire.persistence.channel_lock import ChannelLock
from shardwire.persistence.commit_count import CommitCount
from shardwire.persistence.database import corruption
from shardwire.persistence.journal import Journal
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.record_cipher import RecordCipher
from shardwire.persistence.transaction import transaction
from shardwire.persistence.values import ValueFile

logger = logging.getLogger(__name__)


class BegunCommit:
    """A commit that is being written.

    Attributes:
        failure: What it failed with, once it is ended.
    """

    def __init__(self, held: HeldChannel) -> None:
        self._held = held
        self.failure: OSError | None = None

    def end(self) -> None:
        """Waits until it is durable.

        Raises:
            OSError: Nobody knows whether it is.
        """
        self._held.wait()
        if self.failure is not None:
            raise self.failure


class HeldChannel:
    """Its lock, its number in the database, how many commits it has had, and the latest of them.

    Attributes:
        loads: How many channels loaded its state: one of them that is refused takes it from no other.
        lost_commits: Commits that were told of and are missing, found since it is held.
        journal: The latest commits, which are not among the records yet.

    Raises:
        PersistenceError: Another holder has it, or its files cannot be made.
    """

    def __init__(self, database: Path, channel_id: str) -> None:
        self._database = database
        self._channel_id = channel_id
        self._lock = ChannelLock(database, channel_id)
        try:
            self._count = CommitCount(database, channel_id)
        except BaseException:
            self._lock.release()
            raise
        self._values = ValueFile(database, channel_id)
        self.journal = Journal(database, channel_id, self._values)
        self._begun: BegunCommit | None = None
        # Who ends what was begun: its channel, or whoever closes the database meanwhile.
        self._ending = threading.Lock()
        self.loads = 0
        self.lost_commits = 0
        self._number: int | None = None
        self._commits = 0
        # Missing commits that are not in the database yet.
        self._found_lost = 0
        self._looked = False

    def number(self, connection: sqlite3.Connection) -> int | None:
        """What its records are stored under; None where it was never stored.

        Raises:
            sqlite3.Error: The database cannot be read.
            OSError: The latest commits cannot be read.
        """
        if not self._looked:
            row = connection.execute(
                "SELECT id, commits, journal FROM channel WHERE channel_id = ?", (self._channel_id,)
            ).fetchone()
            self._number, commits = None, 0
            if row is not None:
                number, commits, token = row
                if not (isinstance(number, int) and isinstance(token, bytes | None)):
                    raise corruption("a channel has no number")
                self._number = number
                commits = self.journal.look(connection, number, commits, token)
            if commits > self._commits:
                # The first look, or a commit that was taken for failed was made.
                self._commits, self._found_lost = commits, 0
            self._compare()
            self._looked = True
        return self._number

    def commit(
        self,
        connection: sqlite3.Connection,
        cipher: RecordCipher | None,
        changes: ChangedRecords,
        deleted_prefixes: Collection[RecordName],
    ) -> None:
        """Durable when this returns.

        Raises:
            PersistenceError: A file of it is no longer in its place.
            sqlite3.Error: Nothing was stored.
            OSError: A file could not be written. What came after the last commit that returned may be found later.
        """
        self.wait()
        self._values.require_in_place()
        self.journal.require_in_place()
        try:
            placed = self.journal.place(connection, self.number(connection), cipher, changes)
            can_append = self._number is not None and not (self._found_lost or deleted_prefixes)
            if not (can_append and self.journal.append(self._commits + 1, cipher, changes, placed)):
                with transaction(connection):
                    number, commits = self._begin(connection)
                    self.journal.fold(connection, number, commits, cipher, changes, deleted_prefixes, placed)
            # Within: who is interrupted here counts anew.
            self._on_committed()
        except BaseException:
            self._on_commit_failed()
            raise

    def begin(self, cipher: RecordCipher | None, changes: ChangedRecords, wake: Wake) -> BegunCommit | None:
        """Begins a commit that is a row of the journal. None, and nothing is done, where it takes more than that."""
        if self._begun is not None or self._number is None or not self._looked or self._found_lost:
            return None
        try:
            if not self.journal.begin(self._commits + 1, cipher, changes, wake):
                return None
        except BaseException:
            # Interrupted, it may have begun all the same.
            with contextlib.suppress(OSError):
                self.journal.end()
            self._on_commit_failed()
            raise
        self._begun = BegunCommit(self)
        return self._begun

    def wait(self) -> None:
        """Waits for a commit that was begun, if one was."""
        with self._ending:
            begun, self._begun = self._begun, None
            if begun is None:
                return
            # Until it is known to be durable.
            begun.failure = InterruptedError(errno.EINTR, "it was interrupted")
            try:
                self.journal.end()
                self._on_committed()
                begun.failure = None
            except OSError as error:
                begun.failure = error
                self._on_commit_failed()
            except BaseException:
                self._on_commit_failed()
                raise

    def fold(self, connection: sqlite3.Connection, cipher: RecordCipher | None) -> int | None:
        """Writes the latest commits among the records; the number of those, None where there never were any.

        Raises:
            sqlite3.Error: All is as it was.
            OSError: The same.
        """
        self.wait()
        number = self.number(connection)
        if number is not None and self.journal.takes_a_fold:
            with self.transaction(connection):
                self.journal.fold(connection, number, self._commits, cipher, ChangedRecords())
            self.journal.settle()
        return number

    @contextlib.contextmanager
    def transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        """As `transaction`, for what changes its records behind it."""
        try:
            with transaction(connection):
                yield
        except BaseException:
            self._on_commit_failed()
            raise

    def come_to_rest(self, connection: sqlite3.Connection, cipher: RecordCipher | None) -> None:
        """Leaves no large values apart, and no rows for the next life to read.

        Raises:
            sqlite3.Error: All is as it was, which is as good.
            OSError: The same, or a file cannot be deleted.
        """
        self.wait()
        if not (self.journal.takes_a_fold or self.journal.has_file or self._values.exists):
            return
        try:
            number = self.number(connection)
            if number is not None:
                with transaction(connection):
                    self.journal.fold(connection, number, self._commits, cipher, ChangedRecords())
                    self.journal.bring_back(connection, number)
        except BaseException:
            self._on_commit_failed()
            raise
        self.journal.settle()
        self.journal.remove()
        self._values.remove()

    def _begin(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """The number that records are stored under, made where there is none, and which commit this one is."""
        number = self.number(connection)
        if number is None:
            cursor = connection.execute(
                "INSERT INTO channel (channel_id, lost_commits) VALUES (?, ?)", (self._channel_id, self._found_lost)
            )
            number = self._number = int(cursor.lastrowid or 0)
        elif self._found_lost:
            connection.execute(
                "UPDATE channel SET lost_commits = lost_commits + ? WHERE id = ?", (self._found_lost, number)
            )
        return number, self._commits + 1

    def _on_committed(self) -> None:
        self._commits += 1
        self._found_lost = 0
        self._count.write(self._commits)
        self.journal.settle()

    def _on_commit_failed(self) -> None:
        """Nobody knows what the database holds now."""
        self._looked = False
        self.journal.forget()

    def release(self) -> None:
        self.wait()
        self.journal.close()
        self._values.close()
        self._count.close()
        self._lock.release()

    def _compare(self) -> None:
        told = self._count.read()
        if told <= self._commits:
            return
        lost = told - self._commits
        # From there on, so that it is told of once; stored with the next commit.
        self._commits = told
        self._found_lost += lost
        self.lost_commits += lost
        logger.warning(
            "the state of channel %r in %r is older than what was told of it: %d commits are missing, as after "
            "damage to its write-ahead log, or where an older copy was put in its place; it goes on from there",
            self._channel_id,
            str(self._database),
            lost,
        )

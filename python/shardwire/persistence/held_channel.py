"""One channel of a database, as the instance that has it knows it."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from shardwire.persistence.channel_lock import ChannelLock
from shardwire.persistence.commit_count import CommitCount
from shardwire.persistence.database import corruption
from shardwire.persistence.journal import Journal, Placed, large_values
from shardwire.persistence.journal_rows import journaled_commits
from shardwire.persistence.protocol import Changes
from shardwire.persistence.record_cipher import RecordCipher
from shardwire.persistence.transaction import transaction
from shardwire.persistence.values import ValueFile

logger = logging.getLogger(__name__)


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
        self.journal = Journal(channel_id, self._values)
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
        """
        if not self._looked:
            row = connection.execute(
                "SELECT id, commits FROM channel WHERE channel_id = ?", (self._channel_id,)
            ).fetchone()
            if row is not None and not all(isinstance(part, int) for part in row):
                raise corruption("a channel has no number")
            self._number, commits = row or (None, 0)
            if self._number is not None:
                commits = max(commits, journaled_commits(connection, self._number))
            if commits > self._commits:
                # The first look, or a commit that was taken for failed was made.
                self._commits, self._found_lost = commits, 0
            self._compare()
            self._looked = True
        return self._number

    @property
    def commits(self) -> int:
        """How many it has had."""
        return self._commits

    def commit(self, connection: sqlite3.Connection, cipher: RecordCipher | None, changes: Changes) -> None:
        """Durable when this returns.

        Raises:
            PersistenceError: The file of its large values is no longer in its place.
            sqlite3.Error: Nothing was stored.
            OSError: Nothing was stored: large values could not be written.
        """
        self._values.require_in_place()
        try:
            large = large_values(changes)
            placed = self.journal.place(connection, self.number(connection), cipher, large) if large else {}
            if len(large) > len(placed) or not self._append(connection, cipher, changes, placed):
                with transaction(connection):
                    number, commits = self._begin(connection)
                    self.journal.store(connection, number, commits, cipher, changes, placed)
        except BaseException:
            self.on_commit_failed()
            raise
        self._commits += 1
        self._found_lost = 0
        self._count.write(self._commits)
        self.journal.settle()

    def come_to_rest(self, connection: sqlite3.Connection, cipher: RecordCipher | None) -> None:
        """Leaves no large values apart, and few rows for the next life to read.

        Raises:
            sqlite3.Error: All is as it was, which is as good.
            OSError: The same, or the file of large values cannot be deleted.
        """
        if not (self.journal.has_rows or self._values.exists):
            return
        try:
            number = self.number(connection)
            if number is not None:
                with transaction(connection):
                    self.journal.bring_back(connection, number, self._commits, cipher)
        except BaseException:
            self.on_commit_failed()
            raise
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

    def _append(
        self, connection: sqlite3.Connection, cipher: RecordCipher | None, changes: Changes, placed: Placed
    ) -> bool:
        """Commits `changes` in one statement, where that is all it takes; else False, and nothing is done.

        With each further one the thread would wait for its turn in the interpreter, twice.
        """
        if not self._looked or self._number is None or self._found_lost:
            return False
        return self.journal.append(connection, self._number, self._commits + 1, cipher, changes, placed)

    def on_commit_failed(self) -> None:
        """Nobody knows what the database holds now."""
        self._looked = False
        self.journal.forget()

    def release(self) -> None:
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

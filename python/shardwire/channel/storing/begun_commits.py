"""Commits to a database that wait only for the disk: a descriptor wakes the event loop, without a Python thread."""

from __future__ import annotations

import asyncio
from typing import Self

from shardwire._native import ChangedRecords, Wake
from shardwire.errors import PersistenceError
from shardwire.persistence import SqlitePersistence
from shardwire.persistence.held_channel import BegunCommit
from shardwire.persistence.protocol import Persistence


class BegunCommits:
    """The commit of one channel that is under way, if there is one.

    Args:
        persistence: The database.
        channel_id: The channel, whose state is loaded.
        loop: The running loop.

    Raises:
        NotImplementedError: The loop watches no descriptors.
        OSError: There are none left.
    """

    def __init__(self, persistence: SqlitePersistence, channel_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self._persistence = persistence
        self._channel_id = channel_id
        self._loop = loop
        self._wake: Wake | None = Wake()
        self._begun: tuple[BegunCommit, asyncio.Future[None]] | None = None
        loop.add_reader(self._wake.fileno(), self._on_woken)

    @classmethod
    def of(cls, persistence: Persistence, channel_id: str, loop: asyncio.AbstractEventLoop) -> Self | None:
        """None where a commit takes a thread: another persistence, or a loop that watches no descriptors."""
        # A class that changes `commit` sees all of them.
        if not isinstance(persistence, SqlitePersistence) or type(persistence).commit is not SqlitePersistence.commit:
            return None
        try:
            return cls(persistence, channel_id, loop)
        except (NotImplementedError, OSError):
            return None

    def begin(self, changes: ChangedRecords) -> asyncio.Future[None] | None:
        """A future that is done when the changes are durable, and raises as `SqlitePersistence.commit`.

        None, and nothing is begun, where the commit takes a thread.
        """
        if self._begun is not None or self._wake is None:
            return None
        begun = self._persistence.begin_commit(self._channel_id, changes, self._wake)
        if begun is None:
            return None
        committed = self._loop.create_future()
        self._begun = begun, committed
        return committed

    def close(self) -> None:
        """Stops watching: a commit that has begun goes on, and nobody hears how it ends."""
        # Its descriptors end with it, and a closed channel may be collected late.
        wake, self._wake = self._wake, None
        if wake is not None:
            self._loop.remove_reader(wake.fileno())

    def _on_woken(self) -> None:
        if self._wake is not None:
            self._wake.clear()
        if self._begun is None:
            return
        (begun, committed), self._begun = self._begun, None
        try:
            self._persistence.end_commit(self._channel_id, begun)
        except PersistenceError as error:
            if not committed.done():
                committed.set_exception(error)
        else:
            if not committed.done():
                committed.set_result(None)

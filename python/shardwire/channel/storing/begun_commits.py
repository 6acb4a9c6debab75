"""Commits to a database that wait for nothing but the disk: the event loop hears of them without a thread of Python."""

from __future__ import annotations

import asyncio
from typing import Self

from shardwire.errors import PersistenceError
from shardwire.persistence import SqlitePersistence
from shardwire.persistence.protocol import Changes, Persistence


class BegunCommits:
    """Those of one channel, one at a time.

    Args:
        persistence: The database.
        channel_id: The channel, whose state is loaded.
        loop: The running loop.
        descriptor: What can be read when a commit is done.
    """

    def __init__(
        self, persistence: SqlitePersistence, channel_id: str, loop: asyncio.AbstractEventLoop, descriptor: int
    ) -> None:
        self._persistence = persistence
        self._channel_id = channel_id
        self._loop = loop
        self._descriptor = descriptor
        self._committed: asyncio.Future[None] | None = None
        loop.add_reader(descriptor, self._on_readable)

    @classmethod
    def of(cls, persistence: Persistence, channel_id: str, loop: asyncio.AbstractEventLoop) -> Self | None:
        """None where a commit takes a thread: another persistence, or a loop that watches no descriptors."""
        # A class that changes `commit` sees all of them.
        if not isinstance(persistence, SqlitePersistence) or type(persistence).commit is not SqlitePersistence.commit:
            return None
        try:
            return cls(persistence, channel_id, loop, persistence.commit_descriptor(channel_id))
        except (NotImplementedError, OSError):
            return None

    def begin(self, changes: Changes) -> asyncio.Future[None] | None:
        """What is done when the changes are durable, and raises as `SqlitePersistence.commit`. None, and nothing is
        done, where it takes a thread."""
        if self._committed is not None or not self._persistence.begin_commit(self._channel_id, changes):
            return None
        self._committed = self._loop.create_future()
        return self._committed

    def close(self) -> None:
        """What is begun goes on; nobody hears of it any more."""
        self._loop.remove_reader(self._descriptor)

    def _on_readable(self) -> None:
        committed, self._committed = self._committed, None
        try:
            self._persistence.end_commit(self._channel_id)
        except PersistenceError as error:
            if committed is not None and not committed.done():
                committed.set_exception(error)
        else:
            if committed is not None and not committed.done():
                committed.set_result(None)

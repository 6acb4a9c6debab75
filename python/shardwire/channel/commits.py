"""Commits what the cycles of a channel gave, and then carries it out.

A commit that fails is tried again with everything that came since; nothing of it is carried out before one succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from shardwire._native import ChangedRecords
from shardwire.channel.collected import Collected
from shardwire.channel.engine import Engine
from shardwire.channel.hooks import is_ours
from shardwire.channel.storing.writer import Writer
from shardwire.errors import PersistenceError
from shardwire.node.clock import Clock
from shardwire.sds import Now

logger = logging.getLogger(__name__)

# After a failed commit it is tried again after this long, doubled with each failure in a row.
COMMIT_PAUSE_MS_MIN = 200
COMMIT_PAUSE_MS_MAX = 10_000


class Commits:
    """The commits of one channel, in order.

    Args:
        engine: Told of a commit that failed.
        writer: Where changes are committed.
        clock: Both times.
        carry_out: Called with what a commit made true: it resolves, announces, dispatches and delivers.

    Attributes:
        failures: Commits that failed since one succeeded.
    """

    def __init__(self, engine: Engine, writer: Writer, clock: Clock, carry_out: Callable[[Collected], None]) -> None:
        self._engine = engine
        self._writer = writer
        self._clock = clock
        self._carry_out = carry_out
        # What no commit has stored yet; empty where all is.
        self._uncommitted = ChangedRecords()
        # What waits for a commit that succeeds, oldest first.
        self._unfinished: list[Collected] = []
        self.failures = 0
        # Until then further failures are logged at level debug: waiting callers make commits be tried more often.
        self._told_until_ms = 0

    @property
    def stores(self) -> bool:
        """Whether there is anything to store to; without it all is carried out at once."""
        return self._writer.stores

    @property
    def may_commit_at_once(self) -> bool:
        """Whether what is added now would be durable without waiting, and nothing older is not."""
        return self._writer.is_immediate and not self._unfinished

    @property
    def pause_ms(self) -> int:
        """How long to wait before the next commit after those that failed."""
        return min(COMMIT_PAUSE_MS_MAX, COMMIT_PAUSE_MS_MIN << min(self.failures - 1, 10))

    def add(self, collected: Collected) -> None:
        """Takes what a cycle gave."""
        self._unfinished.append(collected)
        if self.failures:
            self._uncommitted = self._uncommitted.merged(collected.changes)
        else:
            self._uncommitted = collected.changes

    async def commit(self) -> None:
        """Makes durable what was added, waiting for that where it takes a thread."""
        if not self._uncommitted:
            return
        begun = self._begin()
        try:
            await self._writer.commit(self._uncommitted)
        except BaseException as error:
            self._on_raised(error)
        else:
            self._on_committed(begun)

    def commit_at_once(self) -> None:
        """As `commit`, for a writer that is immediate."""
        if not self._uncommitted:
            return
        begun = self._begin()
        try:
            self._writer.commit_at_once(self._uncommitted)
        except BaseException as error:
            self._on_raised(error)
        else:
            self._on_committed(begun)

    def carry_out(self) -> None:
        """Carries out everything that is durable now: nothing where the last commit failed."""
        if self.failures:
            return
        unfinished, self._unfinished = self._unfinished, []
        for collected in unfinished:
            self._carry_out(collected)

    def _begin(self) -> tuple[int, int] | None:
        """The size of a commit and the time at which it begins; None where nobody measures them."""
        if not self._engine.meter.observers:
            return None
        return self._uncommitted.value_bytes, self._clock.monotonic_ms()

    def _on_committed(self, begun: tuple[int, int] | None) -> None:
        if begun is not None:
            value_bytes, since_ms = begun
            self._engine.meter.on_commit(value_bytes, self._clock.monotonic_ms() - since_ms)
        self.failures = 0

    def _on_raised(self, error: BaseException) -> None:
        if isinstance(error, PersistenceError):
            self._on_failed(error)
        elif is_ours(error):
            raise error
        else:
            # What the driver of a database raises is no reason to give up either.
            logger.log(self._level(), "the persistence raised %s", type(error).__name__, exc_info=error)
            failure = PersistenceError(f"the persistence raised {type(error).__name__}: nothing was stored")
            failure.__cause__ = error
            self._on_failed(failure)

    def _on_failed(self, error: PersistenceError) -> None:
        """Callers of `send` hear of it; what this commit covers leaves or is handed over once a later one succeeds."""
        level = self._level()
        self.failures += 1
        now = Now(self._clock.monotonic_ms(), self._clock.epoch_ms())
        logger.log(level, "state cannot be stored, nothing is sent or delivered meanwhile: %s", error)
        if level == logging.ERROR:
            self._told_until_ms = now.monotonic_ms + self.pause_ms
        self._engine.on_commit_failed(self._unfinished[-1], error, now)

    def _level(self) -> int:
        """The level at which a failure is logged."""
        told_lately = self.failures and self._clock.monotonic_ms() < self._told_until_ms
        return logging.DEBUG if told_lately else logging.ERROR

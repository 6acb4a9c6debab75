"""What the network brings, on its way from the driver to the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardwire.channel.driver import Driver, Input
from shardwire.channel.engine import Engine
from shardwire.channel.receiving.reception import Arrival
from shardwire.sds import Now

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Arrivals:
    """Takes received messages in when the driver comes to them.

    Args:
        driver: Queues them.
        engine: Takes them.
        forget: Told the hash of a message that was not kept.
    """

    def __init__(self, driver: Driver, engine: Engine, forget: Callable[[bytes], None]) -> None:
        self._driver = driver
        self._engine = engine
        self._forget = forget

    @property
    def refused(self) -> int:
        """How many messages were not kept for want of room."""
        return self._engine.counts.get("dropped_by_backpressure", 0)

    @property
    def has_room(self) -> bool:
        """Whether all that is queued would be kept, were each a message."""
        return self._engine.machine.has_delivery_room(*self._driver.queued)

    async def when_taken_in(self, told: Callable[[Now], T]) -> asyncio.Future[T]:
        """Has something told once everything that was queued before is taken in; the future has what it gives."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def reach(now: Now) -> None:
            given = told(now)
            if not future.done():
                future.set_result(given)

        waiting = self._driver.post_received(reach)
        if waiting is not None:
            await waiting
        return future

    def post(self, told: Input) -> None:
        """Has the engine told something when the driver comes to it."""
        self._driver.post(told)

    def receive(self, arrivals: Sequence[Arrival], now: Now) -> None:
        """Gives messages to the engine; what it does not keep may come again."""
        if len(arrivals) > 1 and self._go_together(arrivals):
            try:
                self._receive(arrivals, now)
            except Exception:
                # One by one it is found which; those before it are repetitions then.
                logger.debug("one of %d received messages raised", len(arrivals))
            else:
                return
        for arrival in arrivals:
            try:
                self._receive((arrival,), now)
            except Exception as error:
                # A message of a peer ends no channel.
                self._engine.peer_log.tell("a received message raised %s", type(error).__name__, error=error)
                self._engine.count("dropped_by_error")

    def _go_together(self, arrivals: Sequence[Arrival]) -> bool:
        """Whether there is room behind all of these, were each a message, and nobody observes what each brings."""
        size_bytes = sum([len(arrival.data) for arrival in arrivals])
        return not self._engine.timeline and self._engine.machine.has_delivery_room(len(arrivals), size_bytes)

    def _receive(self, arrivals: Sequence[Arrival], now: Now) -> None:
        kept = self._engine.receive(arrivals, now)
        if not all(kept):
            for arrival, is_kept in zip(arrivals, kept, strict=True):
                if not is_kept:
                    self._forget(arrival.message_hash)

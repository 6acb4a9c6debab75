"""What the network brings, on its way from the driver to the engine, and the time up to which nothing was missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from shardwire._native import HistoryEntry
from shardwire.channel.driver import Driver
from shardwire.channel.engine import Engine
from shardwire.channel.receiving.reception import Arrival
from shardwire.channel.storing.records import LAST_SEEN, LastSeenRecord
from shardwire.sds import Now

logger = logging.getLogger(__name__)

# How far the newest transport time may move before it is stored again.
LAST_SEEN_STEP_NS = 10_000_000_000


class Arrivals:
    """Takes received messages in when the driver comes to them, and stores how far they reach.

    Args:
        driver: Queues them.
        engine: Takes them.
        last_seen_ns: The transport time that is stored.
        seen_until_ns: Tells, for a Unix time in ms, up to which transport time nothing was missed.
        forget: Told the hash of a message that was not kept.
    """

    def __init__(
        self,
        driver: Driver,
        engine: Engine,
        last_seen_ns: int,
        seen_until_ns: Callable[[int], int],
        forget: Callable[[bytes], None],
    ) -> None:
        self._driver = driver
        self._engine = engine
        self._stored_ns = last_seen_ns
        self._seen_until_ns = seen_until_ns
        self._forget = forget
        # The list is made anew only when it changed: a peer may name thousands of messages that never existed.
        self._missing: Mapping[str, HistoryEntry] = {}
        self._missing_version = -1

    # --- what a store is asked for ---

    def missing(self) -> Mapping[str, HistoryEntry]:
        """What histories name and is not here, by message id."""
        machine = self._engine.machine
        if (version := machine.missing_version()) != self._missing_version:
            self._missing_version, self._missing = version, machine.missing_by_id()
        return self._missing

    def is_known(self, message_id: str) -> bool:
        """Whether a message is in the local log."""
        return self._engine.machine.holds(message_id)

    def has_partial(self) -> bool:
        """Whether messages are partly here."""
        return self._engine.machine.has_partial()

    def has_room(self) -> bool:
        """Whether what comes would be kept."""
        return self._engine.has_room()

    @property
    def refused(self) -> int:
        """How many messages were not kept for want of room."""
        return self._engine.counts.get("dropped_by_backpressure", 0)

    async def all_taken_in(self) -> None:
        """Returns when everything that was queued before is taken in."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reach(now: Now) -> None:
            if not future.done():
                future.set_result(None)

        waiting = self._driver.post_received(reach)
        if waiting is not None:
            await waiting
        await future

    def on_caught_up(self) -> None:
        """A store has answered for what passed by, and all of it is taken in."""
        self._driver.post(self._engine.machine.handle_caught_up)

    def on_irretrievable(self, message_ids: tuple[str, ...]) -> None:
        """A store was asked for these and does not have them."""
        self._driver.post(lambda now: self._engine.on_irretrievable(message_ids, now))

    def on_missed(self) -> None:
        """Something passed by: a later life must not take it for seen."""
        self._driver.post(self._note_seen)

    def receive(self, arrivals: Sequence[Arrival], now: Now) -> None:
        """Gives messages to the engine; what it does not keep may come again."""
        self._note_seen(now)
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
        return not self._engine.timeline and self._engine.has_room(len(arrivals), size_bytes)

    def _receive(self, arrivals: Sequence[Arrival], now: Now) -> None:
        kept = self._engine.receive(arrivals, now)
        if not all(kept):
            for arrival, is_kept in zip(arrivals, kept, strict=True):
                if not is_kept:
                    self._forget(arrival.message_hash)

    def _note_seen(self, now: Now) -> None:
        seen_ns = self._seen_until_ns(now.epoch_ms)
        if not 0 <= seen_ns - self._stored_ns <= LAST_SEEN_STEP_NS:
            self._stored_ns = seen_ns
            self._engine.keep({(LAST_SEEN, b""): LastSeenRecord(seen_ns).encode()})

"""Asks a store whether it has what was published (P2P-RELIABILITY, Store-based, publisher)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

from shardwire.errors import NodeError
from shardwire.node.clock import Clock
from shardwire.node.protocol import RequestId, StorePage, StoreQuery
from shardwire.node.wake import Wake
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

# How soon after publishing the store is asked first: before a channel resends for want of an acknowledgement.
FIRST_LOOK_MS = 1_000
NEXT_LOOK_MS = 3_000
# What the store does not have by then it never got; a channel sends it again.
GIVE_UP_MS = 60_000
QUERY_INTERVAL_MS = 500
QUERY_TIMEOUT_MS = 30_000
FAILURE_PAUSE_MS_MAX = 10_000
HASHES_PER_QUERY = 100
MESSAGES_MAX = 10_000


class StorePresence:
    """Tells of each published message once a store has it; one that it never has is forgotten.

    Args:
        name: Names the node in the log.
        query: Asks the store.
        clock: Monotonic time.
        on_stored: Told the request, the hash and the content topic.
    """

    def __init__(
        self,
        name: str,
        query: Callable[[StoreQuery], Awaitable[StorePage]],
        clock: Clock,
        on_stored: Callable[[RequestId, bytes, str], None],
    ) -> None:
        self._name = name
        self._query = query
        self._clock = clock
        self._on_stored = on_stored
        # Hash -> request, content topic, and when it was published.
        self._published: dict[bytes, tuple[RequestId, str, int]] = {}
        # When each is asked for next.
        self._due: list[tuple[int, bytes]] = []
        self._failures_in_row = 0
        self._wake = Wake()

    def add(self, request_id: RequestId, message_hash: bytes, content_topic: str) -> None:
        """A message was published just now."""
        if len(self._published) >= MESSAGES_MAX:
            # The oldest has waited longest for a store that does not keep up.
            del self._published[next(iter(self._published))]
        now_ms = self._clock.monotonic_ms()
        self._published[message_hash] = (request_id, content_topic, now_ms)
        heappush(self._due, (now_ms + FIRST_LOOK_MS, message_hash))
        self._wake.set()

    async def run(self) -> None:
        """Asks whenever something is due, until cancelled."""
        while True:
            while not self._due:
                self._wake.clear()
                await self._wake.wait()
            wait_ms = self._due[0][0] - self._clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
                continue
            hashes = self._take_due()
            if hashes:
                await self._ask(hashes)
            if len(hashes) < HASHES_PER_QUERY:
                await asyncio.sleep(QUERY_INTERVAL_MS / 1000)

    def _take_due(self) -> list[bytes]:
        now_ms = self._clock.monotonic_ms()
        hashes: list[bytes] = []
        while self._due and self._due[0][0] <= now_ms and len(hashes) < HASHES_PER_QUERY:
            message_hash = heappop(self._due)[1]
            published = self._published.get(message_hash)
            if published is None:
                continue
            if now_ms - published[2] > GIVE_UP_MS:
                del self._published[message_hash]
            else:
                hashes.append(message_hash)
        return hashes

    async def _ask(self, hashes: list[bytes]) -> None:
        query = StoreQuery(message_hashes=tuple(hashes), page_size=len(hashes), include_data=False)
        pause_ms = 0
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_MS / 1000):
                page = await self._query(query)
        except (NodeError, TimeoutError) as error:
            pause_ms = min(FAILURE_PAUSE_MS_MAX, 1_000 << min(self._failures_in_row, 16))
            if not self._failures_in_row:
                told = one_line(error) or "no answer in time"
                logger.info("%s: the store does not say what it has: %s", self._name, told)
            self._failures_in_row += 1
        else:
            self._failures_in_row = 0
            wanted = set(hashes)
            for message in page.messages:
                if message.message_hash in wanted:
                    wanted.discard(message.message_hash)
                    published = self._published.pop(message.message_hash, None)
                    if published is not None:
                        request_id, content_topic, _ = published
                        self._on_stored(request_id, message.message_hash, content_topic)
        finally:
            # Whatever the transport raised, and however wrong its page is.
            due_ms = self._clock.monotonic_ms() + NEXT_LOOK_MS
            for message_hash in hashes:
                if message_hash in self._published:
                    heappush(self._due, (due_ms, message_hash))
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)

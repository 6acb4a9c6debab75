"""Asks a store page by page: so many queries a minute, each with a timeout, until the pages bring nothing new."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shardwire.channel.hooks import awaitable_of, ends_process
from shardwire.channel.receiving.node_events import fault_of_page
from shardwire.errors import NodeError
from shardwire.node.clock import Clock
from shardwire.node.protocol import Node, StorePage, StoreQuery

logger = logging.getLogger(__name__)

PAGES_PER_QUERY_MAX = 500
# A store whose pages go on and bring nothing is left.
PAGES_WITHOUT_NEWS_MAX = 3
# A node whose `query_store` never returns does not end retrieval.
QUERY_TIMEOUT_MS = 60_000
# Others are asked for what is missing while a store takes longer than this.
PATIENCE_S = 2.0
_MINUTE_MS = 60_000


@dataclass(slots=True)
class Walk:
    """A walk through the pages of one query; no asynchronous generator, since an event loop registers each of those."""

    query: StoreQuery
    cursor: bytes | None = None
    seen: set[bytes] = field(default_factory=set)
    without_news: int = 0
    pages_left: int = PAGES_PER_QUERY_MAX
    # Whether the store had further pages when the last one that is asked for had come.
    is_cut: bool = False


class StoreQueries:
    """The queries of one channel.

    Args:
        node: Asked.
        clock: For the limit.
        per_minute_max: Queries sent in any minute; more wait.
        on_slow: Called for each that has no answer after `PATIENCE_S`.

    Attributes:
        count: How many were sent.
    """

    def __init__(self, node: Node, clock: Clock, per_minute_max: int, on_slow: Callable[[], None]) -> None:
        self._node = node
        self._clock = clock
        self._per_minute_max = per_minute_max
        self._on_slow = on_slow
        self._times_ms: deque[int] = deque()
        self._was_there = True
        self.count = 0

    @property
    def is_there(self) -> bool:
        """Whether the node says that it has a store; where it says nothing, what it said last."""
        try:
            self._was_there = bool(self._node.has_store)
        except BaseException as error:
            if ends_process(error):
                raise
            logger.debug("has_store of the node raised %s", type(error).__name__)
        return self._was_there

    async def next_page(self, walk: Walk) -> StorePage | None:
        """The next page of a query; None after the last one that is asked for.

        Raises:
            NodeError: The node did not answer in time, or as it raised.
        """
        if not walk.pages_left:
            return None
        wait_ms = self._quota_wait_ms()
        while wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = self._quota_wait_ms()
        query, cursor = walk.query, walk.cursor
        page = await self._ask(query if cursor is None else replace(query, cursor=cursor))
        known = len(walk.seen)
        walk.seen.update([message.message_hash for message in page.messages])
        walk.without_news = 0 if len(walk.seen) > known else walk.without_news + 1
        # A store that repeats itself is not followed, whatever its cursors.
        if page.cursor is None or page.cursor == cursor or walk.without_news >= PAGES_WITHOUT_NEWS_MAX:
            walk.pages_left = 0
        else:
            walk.cursor = page.cursor
            walk.pages_left -= 1
            walk.is_cut = not walk.pages_left
        return page

    async def _ask(self, query: StoreQuery) -> StorePage:
        limit = asyncio.timeout(QUERY_TIMEOUT_MS / 1000)
        patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._on_slow)
        try:
            async with limit:
                page = await awaitable_of("query_store", self._node.query_store(query))
        except TimeoutError:
            if not limit.expired():
                raise
            raise NodeError(f"query_store of the node did not return within {QUERY_TIMEOUT_MS} ms") from None
        finally:
            patience.cancel()
        fault = fault_of_page(page)
        if fault is not None:
            raise NodeError(f"query_store of the node gave {fault}")
        return page

    def _quota_wait_ms(self) -> int:
        """How long until one more query fits the minute; a query that fits now is counted as made."""
        now_ms = self._clock.monotonic_ms()
        while self._times_ms and self._times_ms[0] <= now_ms - _MINUTE_MS:
            self._times_ms.popleft()
        if len(self._times_ms) >= self._per_minute_max:
            return self._times_ms[0] + _MINUTE_MS - now_ms
        self._times_ms.append(now_ms)
        self.count += 1
        return 0

"""Asks the store for what is missing (004, Missing message retrieval) and for what passed by (Query on connect)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from shardwire._native import HistoryEntry, MissingMessage, SdsMessage
from shardwire.channel.hooks import heed_cancellation, is_ours
from shardwire.channel.reception import Reception
from shardwire.config import SdsWireFormat, SyncConfig
from shardwire.errors import NodeError, ShardwireError
from shardwire.node.clock import NANOSECONDS_PER_MS, Clock
from shardwire.node.protocol import ConnectionState, Node, StoredMessage, StorePage, StoreQuery
from shardwire.node.wake import Wake

logger = logging.getLogger(__name__)

HASHES_PER_PAGE = 100
# Messages with their data: at most 3 MB in one answer.
MESSAGES_PER_QUERY = 20
# One query of the topic serves every missing message without a hint for this long.
WINDOW_INTERVAL_MS = 10_000
# A message that so many rounds did not bring is asked for less and less often: whoever names what never was would
# otherwise keep every member asking for as long as it is waited for.
ROUNDS_AT_FREQUENCY = 10
WINDOW_ROUNDS_AT_FREQUENCY = 3
PAUSE_MS_MAX = 60_000
PAGES_PER_QUERY_MAX = 500
# A store whose pages go on and bring nothing is left.
PAGES_WITHOUT_NEWS_MAX = 3
# How far back a participant asks that never received anything (as @waku/sdk does).
FIRST_QUERY_RANGE_MS = 30 * 24 * 3_600_000
# Clocks of senders and stores differ; messages may be late.
QUERY_MARGIN_MS = 30_000
# How soon to look again whether the application has made room.
ROOM_RECHECK_MS = 1_000
# A node whose `query_store` never returns does not end retrieval.
QUERY_TIMEOUT_MS = 60_000
# Going through what is missing takes time: so many a second of it, and what is detected meanwhile is gathered.
MISSING_PER_S_MAX = 10_000
_MINUTE_MS = 60_000


@dataclass(slots=True)
class _Asked:
    """A missing message that was asked for: how often a store answered without it, and when it is asked for again."""

    rounds: int
    due_ms: int


@dataclass(slots=True)
class _Walk:
    """Through the pages of one query; no generator, since an event loop keeps book of each of those."""

    query: StoreQuery
    cursor: bytes | None = None
    seen: set[bytes] = field(default_factory=set)
    without_news: int = 0
    pages_left: int = PAGES_PER_QUERY_MAX


class Retrieval:
    """Store queries of one channel: batched, at their frequency, limited in any minute.

    Args:
        node: Asked.
        channel_id: Ours.
        content_topic: Ours.
        sync: Frequencies and limits.
        wire_format: How SDS messages are read, for the stop rule of query on connect.
        clock: Both times.
        reception: Takes in what a store answers, and knows what was taken in before.
        missing: What is missing, by message id, kept up to date by its owner.
        has_room: Whether what is fetched would be kept.
        on_caught_up: Called when the store has answered what passed by, and all of it is on its way in.
        on_irretrievable: Told message ids that the store was asked for and does not have.
        last_seen_ns: Transport time up to which nothing was missed before this start; 0 for never.
    """

    def __init__(
        self,
        node: Node,
        channel_id: str,
        content_topic: str,
        sync: SyncConfig,
        wire_format: SdsWireFormat,
        clock: Clock,
        reception: Reception,
        missing: Mapping[str, MissingMessage],
        has_room: Callable[[], bool],
        on_caught_up: Callable[[], Awaitable[None]],
        on_irretrievable: Callable[[tuple[str, ...]], None],
        last_seen_ns: int,
    ) -> None:
        self._node = node
        self._channel_id = channel_id
        self._content_topic = content_topic
        self._sync = sync
        self._wire_format: SdsWireFormat = wire_format
        self._clock = clock
        self._reception = reception
        self._missing = missing
        self._has_room = has_room
        self._on_caught_up = on_caught_up
        self._on_irretrievable = on_irretrievable
        self._last_seen_ns = last_seen_ns
        # When that was found, by the clock that nobody sets; None where it comes from an earlier life.
        self._seen_at_ms: int | None = None
        self._wake = Wake()
        self._online = True
        self._catch_up = sync.query_on_connect
        self._caught_up_ms: int | None = None
        # Message ids that were asked for and are missing still, the one asked for longest ago first.
        self._asked: dict[str, _Asked] = {}
        self._next_round_ms = 0
        self._next_window_ms = 0
        self._query_times_ms: deque[int] = deque()
        self.queries = 0

    def on_missing(self) -> None:
        """Something new is missing: it is asked for at once."""
        self._wake.set()

    def on_connection(self, state: ConnectionState) -> None:
        """A connection that comes back, or a store that comes into reach, makes us ask for what passed by."""
        was_online, self._online = self._online, state is not ConnectionState.DISCONNECTED
        if self._online and self._sync.query_on_connect and (not was_online or state is ConnectionState.CONNECTED):
            self._catch_up = True
            for asked in self._asked.values():
                # Another store, or one that has learned more meanwhile.
                asked.rounds = asked.due_ms = 0
            self._wake.set()

    async def run(self) -> None:
        """Asks whenever something is due, until cancelled."""
        while True:
            self._wake.clear()
            if self._online:
                try:
                    await self._query_what_is_due()
                except NodeError as error:
                    # No store in reach: asked again with the next period or connection.
                    logger.debug("store query: %s", error)
                except ShardwireError as error:
                    logger.warning("store query: %s", error)
                except BaseException as error:
                    if is_ours(error):
                        raise
                    logger.exception("the node raised %s for a store query", type(error).__name__)
            heed_cancellation()
            await asyncio.sleep(len(self._missing) / MISSING_PER_S_MAX)
            await self._sleep()

    async def _query_what_is_due(self) -> None:
        if not self._has_room():
            return
        if self._catch_up:
            self._catch_up = False
            self._caught_up_ms = self._clock.monotonic_ms()
            await self._query_passed()
        due = self._due_entries()
        hinted = [entry for entry in due if entry.retrieval_hint]
        for start in range(0, len(hinted), MESSAGES_PER_QUERY):
            await self._query_hints(hinted[start : start + MESSAGES_PER_QUERY])
        hintless = [entry for entry in due if not entry.retrieval_hint]
        if hintless and self._clock.monotonic_ms() >= self._next_window_ms:
            self._next_window_ms = self._clock.monotonic_ms() + WINDOW_INTERVAL_MS
            await self._query_window(hintless)

    def _due_entries(self) -> list[HistoryEntry]:
        """What was never asked for, and with every period as many of the others as one query takes, in turn."""
        missing, asked = self._missing, self._asked
        if not missing:
            asked.clear()
            return []
        now_ms = self._clock.monotonic_ms()
        for message_id in [message_id for message_id in asked if message_id not in missing]:
            del asked[message_id]
        due = []
        if len(asked) < len(missing):
            due = [message.entry for message_id, message in missing.items() if message_id not in asked]
        if now_ms >= self._next_round_ms:
            self._next_round_ms = now_ms + self._sync.retrieve_frequency_ms
            again = (missing[message_id].entry for message_id, known in asked.items() if known.due_ms <= now_ms)
            due += islice(again, MESSAGES_PER_QUERY)
        return due

    def _note_asked(self, entries: Sequence[HistoryEntry]) -> None:
        due_ms = self._clock.monotonic_ms() + self._sync.retrieve_frequency_ms
        for entry in entries:
            asked = self._asked.pop(entry.message_id, None) or _Asked(0, 0)
            asked.due_ms = due_ms
            self._asked[entry.message_id] = asked

    def _note_answered(self, entries: Sequence[HistoryEntry], frequency_ms: int, rounds_at_frequency: int) -> None:
        """A store has answered; whatever of these is missing still, it may not have."""
        now_ms = self._clock.monotonic_ms()
        for entry in entries:
            asked = self._asked.get(entry.message_id)
            if asked is not None:
                asked.rounds += 1
                doublings = min(max(0, asked.rounds - rounds_at_frequency), 16)
                asked.due_ms = now_ms + min(frequency_ms << doublings, max(frequency_ms, PAUSE_MS_MAX))

    async def _query_hints(self, entries: Sequence[HistoryEntry]) -> None:
        self._note_asked(entries)
        by_hash = {entry.retrieval_hint: entry.message_id for entry in entries if entry.retrieval_hint}
        for message_hash in by_hash:
            # Missing, so whatever became of an earlier arrival does not count.
            self._reception.forget(message_hash)
        answered, _ = await self._fetch(tuple(by_hash))
        self._note_answered(entries, self._sync.retrieve_frequency_ms, ROUNDS_AT_FREQUENCY)
        absent = tuple(message_id for message_hash, message_id in by_hash.items() if message_hash not in answered)
        if absent:
            self._on_irretrievable(absent)

    async def _query_window(self, entries: Sequence[HistoryEntry]) -> None:
        """Without a hint a message can only be found by topic and time: the window ends now.

        What the store answers is taken in later, so only the next attempt can tell what it does not have.
        """
        absent = {entry.message_id for entry in entries if entry.message_id in self._asked}
        self._note_asked(entries)
        end_ms = self._clock.epoch_ms() + QUERY_MARGIN_MS
        start_ms = end_ms - 2 * QUERY_MARGIN_MS - self._sync.query_on_connect_interval_ms
        walk = _Walk(replace(self._topic_query(start_ms, forward=True), end_time_ns=end_ms * NANOSECONDS_PER_MS))
        while (page := await self._next_page(walk)) is not None:
            _, taken = await self._fetch(self._unknown(page))
            absent -= {message.message_id for data in taken if (message := self._decode(data)) is not None}
        frequency_ms = max(WINDOW_INTERVAL_MS, self._sync.retrieve_frequency_ms)
        self._note_answered(entries, frequency_ms, WINDOW_ROUNDS_AT_FREQUENCY)
        if absent:
            self._on_irretrievable(tuple(sorted(absent)))

    async def _query_passed(self) -> None:
        """004, Query on connect: newest first, until a message of our channel names its history.

        What came before that one is then found through the history. A page of which everything is known ends it too.
        """
        epoch_ms, monotonic_ms = self._clock.epoch_ms(), self._clock.monotonic_ms()
        # Without an end: where our clock is behind, what others sent lately lies in its future.
        walk = _Walk(self._topic_query(self._passed_since_ms(epoch_ms, monotonic_ms), forward=False))
        while (page := await self._next_page(walk)) is not None:
            unknown = self._unknown(page)
            _, taken = await self._fetch(unknown)
            if not unknown or any(self._names_history(data) for data in taken):
                break
        if self._has_room():
            await self._on_caught_up()
            self._last_seen_ns = (epoch_ms - QUERY_MARGIN_MS) * NANOSECONDS_PER_MS
            self._seen_at_ms = monotonic_ms

    def _passed_since_ms(self, epoch_ms: int, monotonic_ms: int) -> int:
        """The transport time from which on messages may have passed by."""
        if not self._last_seen_ns:
            return epoch_ms - FIRST_QUERY_RANGE_MS
        since_ms = self._last_seen_ns // NANOSECONDS_PER_MS
        if self._seen_at_ms is not None:
            # Where the clock was set back meanwhile, by that it is as long ago as it really is.
            since_ms = min(since_ms, epoch_ms - (monotonic_ms - self._seen_at_ms))
        return since_ms - QUERY_MARGIN_MS

    def _topic_query(self, start_ms: int, *, forward: bool) -> StoreQuery:
        return StoreQuery(
            content_topics=(self._content_topic,),
            start_time_ns=max(0, start_ms) * NANOSECONDS_PER_MS,
            page_size=HASHES_PER_PAGE,
            forward=forward,
            include_data=False,
        )

    def _unknown(self, page: StorePage) -> tuple[bytes, ...]:
        """Hashes of a page that were neither sent nor taken in before."""
        known = self._reception.known_hashes
        return tuple([name for message in page.messages if (name := message.message_hash) not in known])

    def _names_history(self, data: bytes) -> bool:
        message = self._decode(data)
        return message is not None and bool(message.causal_history)

    def _decode(self, data: bytes) -> SdsMessage | None:
        message = SdsMessage.decode(data, self._wire_format)
        return message if message is not None and message.channel_id == self._channel_id else None

    async def _fetch(self, hashes: tuple[bytes, ...]) -> tuple[set[bytes], list[bytes]]:
        """Takes in messages by hash, oldest first, so that causes come before effects.

        Returns:
            The hashes that the store has, and the SDS messages that were new.
        """
        answered: set[bytes] = set()
        taken: list[bytes] = []
        for start in range(0, len(hashes), MESSAGES_PER_QUERY):
            batch = hashes[start : start + MESSAGES_PER_QUERY]
            walk = _Walk(StoreQuery(message_hashes=batch, page_size=MESSAGES_PER_QUERY))
            while (page := await self._next_page(walk)) is not None:
                for message in sorted(page.messages, key=lambda message: message.timestamp_ns):
                    answered.add(message.message_hash)
                    data = await self._ingest(message)
                    if data is not None:
                        taken.append(data)
        return answered, taken

    async def _ingest(self, message: StoredMessage) -> bytes | None:
        if message.envelope is None:
            return None
        return await self._reception.ingest(
            message.envelope, message.message_hash, message.timestamp_ns, from_store=True
        )

    async def _next_page(self, walk: _Walk) -> StorePage | None:
        """The next page of a query; None after the last one that is asked for."""
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
        return page

    async def _ask(self, query: StoreQuery) -> StorePage:
        """Raises:
        NodeError: The node did not answer in time, or as it raised.
        """
        limit = asyncio.timeout(QUERY_TIMEOUT_MS / 1000)
        try:
            async with limit:
                return await self._node.query_store(query)
        except TimeoutError:
            if not limit.expired():
                raise
            logger.warning("query_store of the node did not return within %d ms", QUERY_TIMEOUT_MS)
            raise NodeError(f"query_store of the node did not return within {QUERY_TIMEOUT_MS} ms") from None

    def _quota_wait_ms(self) -> int:
        """How long until one more query fits the minute; where that is 0 it counts as made."""
        now_ms = self._clock.monotonic_ms()
        while self._query_times_ms and self._query_times_ms[0] <= now_ms - _MINUTE_MS:
            self._query_times_ms.popleft()
        if len(self._query_times_ms) >= self._sync.store_queries_per_minute_max:
            return self._query_times_ms[0] + _MINUTE_MS - now_ms
        self._query_times_ms.append(now_ms)
        self.queries += 1
        return 0

    async def _sleep(self) -> None:
        delay_ms = self._next_due_ms()
        if self._wake.is_set():
            return
        timer = None
        if delay_ms is not None:
            timer = asyncio.get_running_loop().call_later(max(1, delay_ms) / 1000, self._on_timer)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _on_timer(self) -> None:
        elapsed_ms = self._clock.monotonic_ms() - (self._caught_up_ms or 0)
        if self._sync.query_on_connect and elapsed_ms >= self._sync.query_on_connect_interval_ms:
            self._catch_up = True
        self._wake.set()

    def _next_due_ms(self) -> int | None:
        if not self._online:
            return None
        if not self._has_room():
            return max(self._sync.retrieve_frequency_ms, ROOM_RECHECK_MS)
        now_ms = self._clock.monotonic_ms()
        due = []
        missing, asked = self._missing, self._asked
        if missing:
            earliest_ms = min([known.due_ms if (known := asked.get(message_id)) else 0 for message_id in missing])
            due.append(max(self._next_round_ms, earliest_ms) - now_ms)
        if self._sync.query_on_connect and self._caught_up_ms is not None:
            due.append(self._caught_up_ms + self._sync.query_on_connect_interval_ms - now_ms)
        return min(due, default=None)

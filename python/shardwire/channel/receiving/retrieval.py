"""Asks the store for what is missing (004, Missing message retrieval) and for what passed by (Query on connect)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.hooks import heed_cancellation, is_ours
from shardwire.channel.receiving.catch_up import QUERY_MARGIN_MS, CatchUp
from shardwire.channel.receiving.reception import Reception
from shardwire.channel.receiving.store_queries import StoreQueries, Walk
from shardwire.config import SdsWireFormat
from shardwire.errors import ShardwireError
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.protocol import ConnectionState, StorePage, StoreQuery
from shardwire.node.wake import Wake
from shardwire.quoting import one_line

if TYPE_CHECKING:
    from shardwire.channel.arrivals import Arrivals


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
# After so many, half an hour and more, that pause doubles too, down to twice a day: the sum of them is small.
ROUNDS_AT_PAUSE_MAX = 40
PAUSE_DOUBLINGS_MAX = 10
# How soon to look again whether the application has made room.
ROOM_RECHECK_MS = 1_000
# Going through what is missing takes time: so many a second of it, and what is detected meanwhile is gathered.
MISSING_PER_S_MAX = 10_000


@dataclass(slots=True)
class _Asked:
    """A missing message that was asked for: how often a store answered without it, and when it is asked for again."""

    rounds: int
    due_ms: int


class Retrieval:
    """Store queries of one channel: batched, at their frequency, limited in any minute.

    Args:
        arguments: Of the channel.
        reception: Takes in what a store answers, and knows what was taken in before.
        arrivals: Knows what is here and what is missing, and is told what a store does not have.
        last_seen_ns: Transport time up to which nothing was missed before this start; 0 for never.

    Attributes:
        catch_up: From when on messages may have passed by.
    """

    def __init__(
        self,
        arguments: ChannelArguments,
        reception: Reception,
        arrivals: Arrivals,
        last_seen_ns: int,
    ) -> None:
        sync = arguments.config.sync
        self._channel_id = arguments.channel_id
        self._content_topic = arguments.content_topic
        self._sync = sync
        # How SDS messages are read, for the stop rule of query on connect.
        self._wire_format: SdsWireFormat = arguments.config.sds.wire_format
        self._clock = arguments.clock
        self._reception = reception
        self._arrivals = arrivals
        self._missing = arrivals.missing
        self.catch_up = CatchUp(sync.query_on_connect, sync.query_on_connect_interval_ms, last_seen_ns)
        self._store = StoreQueries(arguments.node, arguments.clock, sync.store_queries_per_minute_max)
        self._wake = Wake()
        self._online = True
        # Message ids that were asked for and are missing still, the one asked for longest ago first.
        self._asked: dict[str, _Asked] = {}
        self._next_round_ms = 0
        self._next_window_ms = 0

    @property
    def queries(self) -> int:
        return self._store.count

    def on_missing(self) -> None:
        """Something new is missing: it is asked for at once."""
        self._wake.set()

    def on_started(self) -> None:
        """The channel starts, and nobody says how the connection is: a store out of reach is asked in vain."""
        self._online = True
        self.on_missed(self._present_ns())
        self._on_store_near()

    def on_missed(self, since_ns: int) -> None:
        """From this transport time on messages may have passed by."""
        self.catch_up.on_gap(min(since_ns, self._present_ns()))
        self._wake.set()

    def on_connection(self, state: ConnectionState) -> None:
        """Where a connection comes back, or a store into reach, what passed by and what is missing is asked for."""
        was_online, self._online = self._online, state is not ConnectionState.DISCONNECTED
        if was_online and not self._online:
            self.catch_up.on_gap(self._present_ns())
        if self._online and (not was_online or state is ConnectionState.CONNECTED):
            self._on_store_near()

    def _on_store_near(self) -> None:
        self.catch_up.on_store_near()
        for asked in self._asked.values():
            # Another store, or one that has learned more meanwhile.
            asked.rounds = asked.due_ms = 0
        self._wake.set()

    def _present_ns(self) -> int:
        return self._clock.epoch_ms() * NANOSECONDS_PER_MS

    async def run(self) -> None:
        """Asks whenever something is due, until cancelled."""
        while True:
            self._wake.clear()
            if self._may_ask():
                try:
                    await self._query_what_is_due()
                except BaseException as error:
                    if is_ours(error):
                        raise
                    self._on_query_failed(error)
            heed_cancellation()
            await asyncio.sleep(len(self._missing()) / MISSING_PER_S_MAX)
            await self._sleep()

    def _may_ask(self) -> bool:
        if not self._online or not self._store.is_there:
            return False
        return self._clock.monotonic_ms() >= self.catch_up.retry_at_ms and self._arrivals.has_room()

    def _on_query_failed(self, error: BaseException) -> None:
        """It is asked again until a store answers; told of once until then."""
        level = logging.DEBUG if self.catch_up.fails else logging.WARNING
        unexpected = None if isinstance(error, ShardwireError) else error
        text = f"it raised {type(error).__name__}" if unexpected is not None else one_line(error)
        logger.log(level, "no store answered, it is asked again until one does: %s", text, exc_info=unexpected)
        self.catch_up.on_failed(self._clock.monotonic_ms())

    async def _query_what_is_due(self) -> None:
        asked, failed = self.queries, self.catch_up.fails
        catch_up_ms = self.catch_up.next_ms()
        if catch_up_ms is not None and catch_up_ms <= self._clock.monotonic_ms():
            await self._query_passed()
        due = self._due_entries()
        hinted = [entry for entry in due if entry.retrieval_hint]
        for start in range(0, len(hinted), MESSAGES_PER_QUERY):
            await self._query_hints(hinted[start : start + MESSAGES_PER_QUERY])
        hintless = [entry for entry in due if not entry.retrieval_hint]
        if hintless and self._clock.monotonic_ms() >= self._next_window_ms:
            self._next_window_ms = self._clock.monotonic_ms() + WINDOW_INTERVAL_MS
            await self._query_window(hintless)
        if failed and self.queries > asked:
            logger.info("the store answers again")
            self.catch_up.on_recovered()

    def _due_entries(self) -> list[HistoryEntry]:
        """What was never asked for, and with every period as many of the others as one query takes, in turn.

        Those without a hint are asked for all at once, and take no turn from the others.
        """
        missing, asked = self._missing(), self._asked
        if not missing:
            asked.clear()
            return []
        now_ms = self._clock.monotonic_ms()
        for message_id in [message_id for message_id in asked if message_id not in missing]:
            del asked[message_id]
        due = []
        if len(asked) < len(missing):
            due = [entry for message_id, entry in missing.items() if message_id not in asked]
        if now_ms >= self._next_round_ms:
            self._next_round_ms = now_ms + self._sync.retrieve_frequency_ms
            again = [missing[message_id] for message_id, known in asked.items() if known.due_ms <= now_ms]
            due += islice((entry for entry in again if entry.retrieval_hint), MESSAGES_PER_QUERY)
            due += (entry for entry in again if not entry.retrieval_hint)
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
                pause_ms = min(frequency_ms << doublings, max(frequency_ms, PAUSE_MS_MAX))
                asked.due_ms = now_ms + (
                    pause_ms << min(max(0, asked.rounds - ROUNDS_AT_PAUSE_MAX), PAUSE_DOUBLINGS_MAX)
                )

    async def _query_hints(self, entries: Sequence[HistoryEntry]) -> None:
        self._note_asked(entries)
        by_hash = {entry.retrieval_hint: entry.message_id for entry in entries if entry.retrieval_hint}
        for message_hash in by_hash:
            # Missing, so whatever became of an earlier arrival does not count.
            self._reception.forget(message_hash)
        answered, _, _ = await self._fetch(tuple(by_hash))
        self._note_answered(entries, self._sync.retrieve_frequency_ms, ROUNDS_AT_FREQUENCY)
        absent = tuple(message_id for message_hash, message_id in by_hash.items() if message_hash not in answered)
        if absent:
            self._arrivals.on_irretrievable(absent)

    async def _query_window(self, entries: Sequence[HistoryEntry]) -> None:
        """Without a hint a message can only be found by topic and time.

        The window begins an interval before the latest message that came, or before now where that is earlier, and has
        no end: our clock may be ahead of those of senders, or behind. What the store answers is taken in later, so
        only the next attempt can tell what it does not have.
        """
        absent = {entry.message_id for entry in entries if entry.message_id in self._asked}
        self._note_asked(entries)
        epoch_ms = self._clock.epoch_ms()
        latest_ms = self._reception.newest_until_ns(epoch_ms) // NANOSECONDS_PER_MS or epoch_ms
        start_ms = latest_ms - QUERY_MARGIN_MS - self._sync.query_on_connect_interval_ms
        walk = Walk(self._topic_query(start_ms, forward=True))
        while (page := await self._store.next_page(walk)) is not None:
            _, brought, _ = await self._fetch(self._unknown(page))
            absent -= brought
        frequency_ms = max(WINDOW_INTERVAL_MS, self._sync.retrieve_frequency_ms)
        self._note_answered(entries, frequency_ms, WINDOW_ROUNDS_AT_FREQUENCY)
        if absent:
            self._arrivals.on_irretrievable(tuple(sorted(absent)))

    async def _query_passed(self) -> None:
        """004, Query on connect: newest first, until a message of our channel names its history.

        What came before that one is then found through the history. So only one ends it that is new here, or whose
        history is: what somebody repeats does not. Nor does one while messages are partly here, since no history has
        hints of their segments. A page of which everything is known ends it too. Of a gap with a known beginning all is
        asked for: histories lead through it a message at a time.
        """
        epoch_ms, monotonic_ms, refused = self._clock.epoch_ms(), self._clock.monotonic_ms(), self._arrivals.refused
        span = self.catch_up.begin(epoch_ms, monotonic_ms)
        try:
            # Without an end: where our clock is behind, what others sent lately lies in its future.
            walk = Walk(self._topic_query(span.since_ms, forward=False))
            while (page := await self._store.next_page(walk)) is not None:
                unknown = self._unknown(page)
                _, _, leads_back = await self._fetch(unknown)
                if not span.thorough and (not unknown or (leads_back and await self._is_whole())):
                    break
            await self._arrivals.all_taken_in()
        except BaseException as error:
            if is_ours(error):
                self.catch_up.put_off(0)
            raise
        if self._arrivals.refused == refused and self._arrivals.has_room():
            self._arrivals.on_caught_up()
            self.catch_up.on_answered(epoch_ms, monotonic_ms)
        else:
            self.catch_up.put_off(self._clock.monotonic_ms() + ROOM_RECHECK_MS)

    async def _is_whole(self) -> bool:
        """Whether no message is partly here, once all that was fetched is taken in."""
        await self._arrivals.all_taken_in()
        return not self._arrivals.has_partial()

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

    def _leads_back(self, message: SdsMessage) -> bool:
        """Whether the history of a message leads to what passed by before it."""
        if not message.causal_history:
            return False
        if message.content and not self._arrivals.is_known(message.message_id):
            return True
        return any(not self._arrivals.is_known(entry.message_id) for entry in message.causal_history)

    def _decode(self, data: bytes) -> SdsMessage | None:
        message = SdsMessage.decode(data, self._wire_format)
        return message if message is not None and message.channel_id == self._channel_id else None

    async def _fetch(self, hashes: tuple[bytes, ...]) -> tuple[set[bytes], set[str], bool]:
        """Takes in messages by hash, oldest first, so that causes come before effects.

        Returns:
            The hashes that the store has, the ids of the messages that it brought, and whether the history of one
            leads further back.
        """
        answered: set[bytes] = set()
        brought: set[str] = set()
        leads_back = False
        for start in range(0, len(hashes), MESSAGES_PER_QUERY):
            batch = hashes[start : start + MESSAGES_PER_QUERY]
            walk = Walk(StoreQuery(message_hashes=batch, page_size=MESSAGES_PER_QUERY))
            while (page := await self._store.next_page(walk)) is not None:
                for stored in sorted(page.messages, key=lambda message: message.timestamp_ns):
                    answered.add(stored.message_hash)
                    envelope = stored.envelope
                    data = None if envelope is None else await self._reception.open(envelope, stored.message_hash)
                    if envelope is None or data is None:
                        continue
                    message = self._decode(data)
                    if message is not None:
                        brought.add(message.message_id)
                        # Asked before it is taken in.
                        leads_back = leads_back or self._leads_back(message)
                    waiting = self._reception.hand_on(
                        data, envelope.payload, stored.message_hash, stored.timestamp_ns, from_store=True
                    )
                    if waiting is not None:
                        await waiting
        return answered, brought, leads_back

    async def _sleep(self) -> None:
        delay_ms = self._next_due_ms()
        timer = None
        if delay_ms is not None:
            timer = asyncio.get_running_loop().call_later(max(1, delay_ms) / 1000, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _next_due_ms(self) -> int | None:
        """How long until something is due; None for never."""
        if not self._online or not self._store.is_there:
            return None
        if not self._arrivals.has_room():
            return max(self._sync.retrieve_frequency_ms, ROOM_RECHECK_MS)
        due = []
        missing, asked = self._missing(), self._asked
        if missing:
            window_ms = self._next_window_ms
            earliest_ms = min(
                [
                    max(
                        known.due_ms if (known := asked.get(message_id)) else 0,
                        0 if entry.retrieval_hint else window_ms,
                    )
                    for message_id, entry in missing.items()
                ]
            )
            due.append(max(self._next_round_ms, earliest_ms))
        catch_up_ms = self.catch_up.next_ms()
        if catch_up_ms is not None:
            due.append(catch_up_ms)
        return None if not due else max(min(due), self.catch_up.retry_at_ms) - self._clock.monotonic_ms()

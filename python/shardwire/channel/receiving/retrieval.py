"""Asks the store what the machine says is to be asked (004, Missing message retrieval and Query on connect)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from shardwire._native import StoreQuestion, StoreQuestions
from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.hooks import heed_cancellation, is_ours
from shardwire.channel.receiving.reception import Reception
from shardwire.channel.receiving.store_queries import StoreQueries, Walk
from shardwire.errors import ShardwireError
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.protocol import StoredMessage, StorePage, StoreQuery
from shardwire.node.wake import Wake
from shardwire.quoting import one_line
from shardwire.sds import Now

if TYPE_CHECKING:
    from shardwire.channel.arrivals import Arrivals


logger = logging.getLogger(__name__)

HASHES_PER_PAGE = 100
# So many bytes of messages in an answer are enough, so that it comes in time.
ANSWER_BYTES = 3_000_000
# Messages with their data in one answer: of the largest, and of small ones.
MESSAGES_PER_QUERY_MIN = 20
MESSAGES_PER_QUERY_MAX = 100
# Pages that are asked for while those before them wait to be taken in, which may be done once a second.
PAGES_AHEAD_MAX = 16


class Retrieval:
    """Store queries of one channel: one question at a time, limited in any minute.

    Args:
        arguments: Of the channel.
        questions: Says what is asked, and when.
        reception: Takes in what a store answers, and knows what was taken in before.
        arrivals: Knows when that is done, and what was not kept.
    """

    def __init__(
        self, arguments: ChannelArguments, questions: StoreQuestions, reception: Reception, arrivals: Arrivals
    ) -> None:
        self._content_topic = arguments.content_topic
        self._clock = arguments.clock
        self._questions = questions
        self._reception = reception
        self._arrivals = arrivals
        queries_max = arguments.config.sync.store_queries_per_minute_max
        self._store = StoreQueries(arguments.node, arguments.clock, queries_max, self._tell_no_store)
        self._wake = Wake()
        # Whether the latest question had no answer.
        self._fails = False
        # Whether the machine knows that no store answers.
        self._without_store = False
        # Messages with their data that are asked for at once: more, while they are small.
        self._messages_per_query = MESSAGES_PER_QUERY_MIN

    @property
    def queries(self) -> int:
        return self._store.count

    def wake(self) -> None:
        """The machine was told something: a store may be asked sooner."""
        self._wake.set()

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.epoch_ms())

    async def run(self) -> None:
        """Asks whenever something is due, until cancelled."""
        while True:
            self._wake.clear()
            question = self._poll()
            if question is None:
                await self._sleep()
                continue
            try:
                await self._ask(question)
            except BaseException as error:
                if is_ours(error):
                    self._questions.withdraw()
                    raise
                self._on_no_answer(error)
            heed_cancellation()
            # A node may answer without ever letting others run.
            await asyncio.sleep(0)

    def _poll(self) -> StoreQuestion | None:
        if self._store.is_there:
            return self._questions.poll(self._now())
        self._tell_no_store()
        return None

    def _tell_no_store(self) -> None:
        """Others are asked meanwhile; told of once until a store answers."""
        if not self._without_store:
            self._without_store = True
            self._arrivals.post(self._questions.handle_no_store)

    async def _sleep(self) -> None:
        now = self._now()
        due_ms = self._questions.next_ms(now) if self._store.is_there else None
        timer = None
        if due_ms is not None:
            delay_ms = max(1, due_ms - now.monotonic_ms)
            timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _on_no_answer(self, error: BaseException) -> None:
        """It is asked again until a store answers; told of once until then."""
        level = logging.DEBUG if self._fails else logging.WARNING
        unexpected = None if isinstance(error, ShardwireError) else error
        text = f"it raised {type(error).__name__}" if unexpected is not None else one_line(error)
        logger.log(level, "no store answered, it is asked again until one does: %s", text, exc_info=unexpected)
        self._fails = True
        self._questions.handle_no_answer(self._now())
        self._tell_no_store()

    async def _ask(self, question: StoreQuestion) -> None:
        refused, ended = self._arrivals.refused, True
        if question.hashes:
            for message_hash in question.hashes:
                # Missing, so whatever became of an earlier arrival does not count.
                self._reception.forget(message_hash)
            await self._fetch(question.hashes)
        else:
            ended = await self._walk(question, refused)
        if self._fails:
            logger.info("the store answers again")
            self._fails = False

        def end(now: Now) -> None:
            self._without_store = False
            self._questions.handle_answered(ended and self._arrivals.refused == refused, now)
            self._wake.set()

        if question.hashes:
            self._arrivals.post(end)
        else:
            await self._arrivals.when_taken_in(end)

    async def _walk(self, question: StoreQuestion, refused: int) -> bool:
        """Takes in what the store has of the content topic and is not known here, page by page.

        Returns:
            Whether the store said that there is no more, or no more is wanted.
        """
        query = StoreQuery(
            content_topics=(self._content_topic,),
            start_time_ns=question.since_ms * NANOSECONDS_PER_MS,
            page_size=HASHES_PER_PAGE,
            forward=not question.newest_first,
            include_data=False,
        )
        walk = Walk(query)
        # Of the pages that wait to be taken in: whether another one is wanted then.
        waiting: deque[asyncio.Future[bool]] = deque()
        # The transport time that the pages so far end with: 0 before there is one, None once they are not in order.
        until_ns: int | None = 0 if query.forward else None
        try:
            while (page := await self._store.next_page(walk)) is not None:
                known = self._reception.known_hashes
                unknown = [message for message in page.messages if message.message_hash not in known]
                if walk.query.include_data:
                    await self._take_in(unknown)
                else:
                    await self._fetch(tuple([message.message_hash for message in unknown]))
                if until_ns is not None:
                    until_ns = _end_of(page, until_ns)
                # A page that is known brought nothing, and what follows the last one is the end of the answer.
                if (unknown or not question.goes_ahead) and (walk.pages_left or walk.is_cut):
                    handle_page = partial(self._handle_page, bool(unknown), until_ns or None, refused)
                    waiting.append(await self._arrivals.when_taken_in(handle_page))
                    # A turn for the driver: where nothing throttles it, the page is taken in.
                    await asyncio.sleep(0)
                    ahead_max = PAGES_AHEAD_MAX if question.goes_ahead and self._arrivals.has_room else 0
                    if not await _are_followed(waiting, ahead_max):
                        return True
                # Behind a page that is all new comes another one, which is asked for with its data at once.
                is_new = 0 < len(unknown) == len(page.messages)
                page_size = self._messages_per_query if is_new else HASHES_PER_PAGE
                walk.query = replace(query, page_size=page_size, include_data=is_new)
        except Exception:
            # What came before is not asked for again.
            await _are_followed(waiting)
            raise
        return not await _are_followed(waiting) or not (walk.is_cut and until_ns)

    def _handle_page(self, news: bool, until_ns: int | None, refused: int, now: Now) -> bool:
        return self._questions.handle_page(news, self._arrivals.refused == refused, until_ns, now)

    async def _fetch(self, hashes: tuple[bytes, ...]) -> None:
        """Takes in messages by hash."""
        start = 0
        while start < len(hashes):
            batch = hashes[start : start + self._messages_per_query]
            start += len(batch)
            walk = Walk(StoreQuery(message_hashes=batch, page_size=len(batch)))
            while (page := await self._store.next_page(walk)) is not None:
                await self._take_in(page.messages)

    async def _take_in(self, messages: Sequence[StoredMessage]) -> None:
        """Takes in messages of a store, oldest first, so that causes come before effects."""
        size_bytes = 0
        for stored in sorted(messages, key=lambda message: message.timestamp_ns):
            envelope, message_hash = stored.envelope, stored.message_hash
            data = None if envelope is None else await self._reception.open(envelope, message_hash)
            self._questions.handle_message(message_hash, data)
            if envelope is None:
                continue
            size_bytes += len(envelope.payload)
            if data is None:
                continue
            waiting = self._reception.hand_on(
                data, envelope.payload, message_hash, stored.timestamp_ns, from_store=True
            )
            if waiting is not None:
                await waiting
        if messages:
            fitting = ANSWER_BYTES * len(messages) // max(1, size_bytes)
            most = min(2 * self._messages_per_query, fitting, MESSAGES_PER_QUERY_MAX)
            self._messages_per_query = max(most, MESSAGES_PER_QUERY_MIN)


async def _are_followed(pages: deque[asyncio.Future[bool]], ahead_max: int = 0) -> bool:
    """Waits until so many pages at most are not taken in, all once one is the last that is wanted.

    Returns:
        Whether another page is wanted.
    """
    goes_on = True
    while pages and (len(pages) > ahead_max or pages[0].done() or not goes_on):
        goes_on &= await pages.popleft()
    return goes_on


def _end_of(page: StorePage, before_ns: int) -> int | None:
    """The transport time that a page ends with behind one that ended so; None where it is not in order."""
    times = [before_ns, *[message.timestamp_ns for message in page.messages]]
    # A store need not tell times where it gives no data.
    return before_ns if not any(times[1:]) else times[-1] if times == sorted(times) else None

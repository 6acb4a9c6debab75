"""Events that wait: for a callback, or for the reader of an iterator."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar, cast

from shardwire.events import (
    ChannelEvent,
    ChunkAcknowledgedEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    MessageReceivedEvent,
)
from shardwire.node.wake import Wake

logger = logging.getLogger(__name__)

E = TypeVar("E", bound=ChannelEvent)

# Announcements that wait for a callback that does not return, or for the reader of an iterator. Beyond it chunk events
# go, which are cumulative: a later one says all that an earlier one said. Where that makes too little room the oldest
# of the others go too, a tenth at a time, but for received messages, and those of no request of ours first: strangers
# bring about as many as they like. `delivered` and `pending` still answer for what an outcome would have told, and as
# that counts as untold, the next life of a channel that keeps its state tells it.
ANNOUNCEMENTS_MAX = 10_000
_CUMULATIVE = (ChunkSendingEvent, ChunkSentEvent, ChunkPossiblyAcknowledgedEvent, ChunkAcknowledgedEvent)

D = TypeVar("D")
Waiting = deque[tuple[ChannelEvent, D]]
"""Events, each with who is told when it is dealt with."""
Done = Callable[[bool], None]
"""Told whether a reader took an event, once it is done with it."""


def make_room(waiting: Waiting[D]) -> Waiting[D]:
    """These, or what is left of them where too many wait."""
    if len(waiting) < ANNOUNCEMENTS_MAX:
        return waiting
    kept: Waiting[D] = deque(entry for entry in waiting if not isinstance(entry[0], _CUMULATIVE))
    for is_surplus in (_is_of_no_request, _is_no_message):
        surplus = len(kept) - ANNOUNCEMENTS_MAX * 9 // 10
        left = iter(kept)
        kept = deque()
        for entry in left:
            if surplus > 0 and is_surplus(entry[0]):
                surplus -= 1
            else:
                kept.append(entry)
    logger.warning("a callback or an event iterator that is too slow lost %d events", len(waiting) - len(kept))
    return kept


def _is_no_message(event: ChannelEvent) -> bool:
    return not isinstance(event, MessageReceivedEvent)


def _is_of_no_request(event: ChannelEvent) -> bool:
    return _is_no_message(event) and not hasattr(event, "request_id")


def concerns(event: ChannelEvent | None, request_id: str) -> bool:
    return getattr(event, "request_id", None) == request_id


def without(waiting: Waiting[D], request_id: str) -> Waiting[D]:
    return deque(entry for entry in waiting if not concerns(entry[0], request_id))


class _Channel(Protocol):
    """What an iterator asks of the subscriptions that it is one of."""

    def require_loop(self) -> None: ...
    def forget(self, iterator: EventIterator[Any]) -> None: ...


class EventIterator(Generic[E]):
    """An async iterator over the events of a channel; asking for the next event says the last one was dealt with.

    It ends when the channel closes. One that is left (`break`) counts as done with its last event once nothing refers
    to it any more; `aclose()` says so at once. A message that was not taken from it goes to whoever listens next, where
    nobody else has it.
    """

    def __init__(self, subscriptions: _Channel, kind: type[E]) -> None:
        # The class of events that it gives.
        self.kind = kind
        self._subscriptions = subscriptions
        self._queue: deque[tuple[Any, Done | None]] = deque()
        self._wake = Wake()
        self._done: Done | None = None
        self._ended = False

    def __reduce__(self) -> NoReturn:
        # A copy that is dropped would be done with the message that the reader of this one still has.
        raise TypeError("an iterator over events has one reader, and cannot be copied or pickled: make another one")

    @property
    def has_ended(self) -> bool:
        """Whether it takes no further events."""
        return self._ended

    def put(self, event: ChannelEvent, done: Done | None) -> None:
        """Called by the channel: queues an event. `done` is told once the reader is done with it, or leaves."""
        if self._ended:
            if done is not None:
                done(False)
            return
        self._queue = make_room(self._queue)
        self._queue.append((event, done))
        self._wake.set()

    def drop(self, request_id: str) -> None:
        """Takes back the events of a request that the reader has not taken."""
        self._queue = without(self._queue, request_id)

    def end(self) -> None:
        """Lets the reader take what is queued, then stops the iteration."""
        self._ended = True
        self._wake.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        self._subscriptions.require_loop()
        self._finish_last()
        while not self._queue:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        event, self._done = self._queue.popleft()
        return cast(E, event)

    def _finish_last(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(True)

    async def aclose(self) -> None:
        """Leaves: nothing waits for this iterator any longer."""
        self._release()
        self._subscriptions.forget(self)

    def _release(self) -> None:
        self._ended = True
        self._finish_last()
        while self._queue:
            _, done = self._queue.popleft()
            if done is not None:
                done(False)
        self._wake.set()

    def __del__(self) -> None:
        self._release()

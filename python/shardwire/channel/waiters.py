"""Callers that wait: for the driver to do something for them, and for a message to be delivered."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator

from shardwire.errors import NodeError
from shardwire.events import ChannelEvent, MessageDeliveredEvent, MessageSendErrorEvent

# Requests of which nothing else remembers that they were refused or cancelled.
FAILURES_REMEMBERED_MAX = 1_000


class Callers:
    """Callers that wait for the driver to do something for them, at most until the driver ends."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()

    def ask(self) -> Answer:
        return Answer(self)

    def wait(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def fail_all(self, error: Exception) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(error)


class Answer:
    """The answer that a caller waits for: called with None, or with the error; later calls do nothing.

    It makes no future for a caller who finds it there already.
    """

    __slots__ = ("_callers", "_error", "_future", "_is_there")

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._is_there = False
        self._error: Exception | None = None
        self._future: asyncio.Future[None] | None = None

    def __call__(self, error: Exception | None) -> None:
        if self._is_there:
            return
        self._is_there, self._error = True, error
        future = self._future
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    async def wait(self) -> None:
        """Raises the error, where it is one."""
        if not self._is_there:
            self._future = self._callers.wait()
            await self._future
        elif self._error is not None:
            raise self._error


class DeliveryWaiters:
    """Callers of `delivered` by request id, and the latest requests that will never be delivered, with the reason."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, str] = OrderedDict()
        self._futures: dict[str, list[asyncio.Future[frozenset[str]]]] = {}

    def wait_for(self, request_id: str) -> asyncio.Future[frozenset[str]]:
        future: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(request_id, []).append(future)
        future.add_done_callback(lambda done: self._forget(request_id, done))
        return future

    def on_event(self, event: ChannelEvent) -> None:
        """Wakes those whose message is delivered or can never be sent."""
        if isinstance(event, MessageDeliveredEvent):
            if event.request_id in self._futures:
                for future in self._take(event.request_id):
                    future.set_result(event.delivered_to)
        elif isinstance(event, MessageSendErrorEvent) and event.stage == "dispatch":
            self.give_up(event.request_id, f"message {event.request_id} was not sent: {event.error}")

    def failure_of(self, request_id: str) -> NodeError | None:
        """Why a request will never be delivered, where that is known and not long ago."""
        failure = self._failures.get(request_id)
        return NodeError(failure) if failure is not None else None

    def give_up(self, request_id: str, failure: str) -> None:
        """A request will never be delivered."""
        self._failures[request_id] = failure
        if len(self._failures) > FAILURES_REMEMBERED_MAX:
            self._failures.popitem(last=False)
        self._fail(request_id, NodeError(failure))

    def _fail(self, request_id: str, error: Exception) -> None:
        for future in self._take(request_id):
            future.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        for request_id in list(self._futures):
            self._fail(request_id, error)

    def _take(self, request_id: str) -> Iterator[asyncio.Future[frozenset[str]]]:
        return (future for future in self._futures.pop(request_id, []) if not future.done())

    def _forget(self, request_id: str, future: asyncio.Future[frozenset[str]]) -> None:
        futures = self._futures.get(request_id)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._futures[request_id]

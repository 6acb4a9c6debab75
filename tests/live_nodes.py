"""Nodes over real servers, in real time."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from shardwire.node import NodeEvent
from shardwire.node.event_stream import EventStream

TOPIC = "/test/1/room/proto"
OTHER_TOPIC = "/test/1/other.room $+#*>/proto"
PATIENCE_S = 60.0

E = TypeVar("E", bound=NodeEvent)


def real_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine function as a plain test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def next_of(stream: EventStream, kind: type[E], *, within_s: float = PATIENCE_S) -> E:
    """The next event of a kind; others are passed over."""
    async with asyncio.timeout(within_s):
        async for event in stream:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the events ended before a {kind.__name__}")


async def drained(
    stream: EventStream, *, first: Mapping[type[NodeEvent], int] | None = None, quiet_s: float = 0.3
) -> list[NodeEvent]:
    """Everything until nothing comes for a while, which begins when so many of each kind of `first` have come."""
    events: list[NodeEvent] = []
    missing = Counter(first or {})
    while True:
        patience_s = PATIENCE_S if +missing else quiet_s
        try:
            events.append(await asyncio.wait_for(stream.__anext__(), patience_s))
        except (TimeoutError, StopAsyncIteration):
            return events
        missing[type(events[-1])] -= 1


async def until(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - of anything: nobody sets an event for it
            await asyncio.sleep(0.01)

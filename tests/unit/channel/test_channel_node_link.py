"""What a channel leaves of its node: iterators that are closed, topics that stay with who still uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.channel.node_link import EVENTS_PAUSE_MS_MIN
from shardwire.config import ChannelConfig
from shardwire.errors import NodeError
from shardwire.node import MemoryNode, NodeEvent


class Counted:
    """The events of a node, of which it is counted how many iterators are open.

    Attributes:
        fails: Asked for each event; where true, the iterator raises in its place.
        opened_ms: When each iterator was asked for.
    """

    def __init__(self, node: MemoryNode, fails: Callable[[], bool] = lambda: False) -> None:
        self.fails = fails
        self.open = 0
        self.opened_ms: list[float] = []
        self._events = node.events
        node.events = self._counted  # type: ignore[method-assign]

    def _counted(self) -> AsyncGenerator[NodeEvent]:
        self.open += 1
        self.opened_ms.append(asyncio.get_running_loop().time() * 1_000)
        return _Closed(self, self._events())  # type: ignore[return-value]


class _Closed:
    """An iterator that says whether it was closed: a generator is closed by the garbage collector, too."""

    def __init__(self, counted: Counted, events: object) -> None:
        self._counted, self._events = counted, events
        self._is_open = True

    def __aiter__(self) -> _Closed:
        return self

    async def __anext__(self) -> NodeEvent:
        event: NodeEvent = await anext(self._events)  # type: ignore[call-overload]
        if self._counted.fails():
            raise ConnectionError("the socket was closed")
        return event

    async def aclose(self) -> None:
        self._counted.open -= self._is_open
        self._is_open = False
        await self._events.aclose()  # type: ignore[attr-defined]


def test_events_are_closed_where_the_node_cannot_subscribe() -> None:
    async def subscribe(topics: Sequence[str]) -> None:
        raise NodeError("no such topic")

    async def scenario(world: World) -> None:
        node = await world.node("alice")
        node.subscribe = subscribe  # type: ignore[method-assign]
        events = Counted(node)
        with pytest.raises(NodeError, match="no such topic"):
            await world.join("alice")
        assert (len(events.opened_ms), events.open) == (1, 0)

    run_world(scenario)


def test_events_that_raised_are_closed_before_others_are_asked_for() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("bob")
        events = Counted(node)
        alice = await world.join("alice")
        await world.join("bob")
        for round_ in range(3):
            failures = [True]
            events.fails = lambda failures=failures: bool(failures and failures.pop())  # type: ignore[misc]
            await alice.delivered(await alice.send(b"%d" % round_), timeout_ms=600_000)
        assert (len(events.opened_ms), events.open) == (4, 1)

    run_world(scenario)


def test_events_that_gave_something_and_raised_are_asked_for_again_soon() -> None:
    """However often that happens: only those that give nothing are asked for less and less often."""

    async def scenario(world: World) -> None:
        node = await world.node("bob")
        # Every second event: each iterator gives one.
        turn = [0]

        def fails() -> bool:
            turn[0] += 1
            return turn[0] % 2 == 0

        events = Counted(node, fails)
        alice = await world.join("alice")
        await world.join("bob")
        for number in range(40):
            await alice.send(b"%d" % number)
            await asyncio.sleep(1)
        pauses = [later - before for before, later in zip(events.opened_ms, events.opened_ms[1:], strict=False)]
        assert len(pauses) >= 8
        assert max(pauses) < 4 * EVENTS_PAUSE_MS_MIN

    run_world(scenario)


def test_nothing_leaves_while_the_events_of_the_node_fail() -> None:
    """Nobody would hear what became of it."""

    async def scenario(world: World) -> None:
        node = await world.node("alice")
        failing = [False]
        events = Counted(node, lambda: failing[0])
        open_events = node.events

        def refusing() -> AsyncIterator[NodeEvent]:
            if failing[0]:
                raise ConnectionError("not yet")
            return open_events()

        node.events = refusing  # type: ignore[method-assign]
        alice = await world.join("alice")
        bob = await world.join("bob")
        failing[0] = True
        await bob.send(b"breaks it")
        await asyncio.sleep(5)
        left = world.sent_by("alice")
        request_id = await alice.send(b"waits")
        await asyncio.sleep(20)
        assert world.sent_by("alice") == left
        failing[0] = False
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}
        assert len(events.opened_ms) == 2

    run_world(scenario)


def test_a_subscription_that_failed_takes_none_from_another_channel() -> None:
    """Both were made at the same time, on one node and topic."""

    async def scenario(world: World) -> None:
        node = await world.node("bob")
        subscribe = node.subscribe
        answers = [0, 1]

        async def failing_first(topics: Sequence[str]) -> None:
            await asyncio.sleep(0.5)
            if not answers.pop(0):
                raise NodeError("not yet")
            await subscribe(topics)

        node.subscribe = failing_first  # type: ignore[method-assign]
        config = ChannelConfig.logos()
        first = asyncio.create_task(create_reliable_channel(node, CHANNEL, TOPIC, "first", config=config))
        await asyncio.sleep(0.1)
        bob = await world.join("bob")
        with pytest.raises(NodeError, match="not yet"):
            await first
        await asyncio.sleep(1)
        alice = await world.join("alice")
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}
        await close_channel(bob)
        assert node.subscriptions == ()

    assert run_world(scenario).messages("bob") == [b"x"]

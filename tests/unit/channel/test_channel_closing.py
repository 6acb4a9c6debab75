"""Closing always finishes: whatever the node raises, however long it takes, and whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, join_released, run_world

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.topics import _BY_NODE
from shardwire.config import ChannelConfig
from shardwire.errors import ChannelClosedError, ConfigError, NodeError
from shardwire.events import MessageSendErrorEvent, MessageSentEvent
from shardwire.node import NetworkConditions
from shardwire.node.protocol import NodeEvent


async def raise_os_error() -> None:
    raise ConnectionError("peer went away")


async def hang() -> None:
    await asyncio.sleep(1e9)


async def swallow_cancellations() -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + 300
    while loop.time() < until:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            continue


async def end_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def tasks_of_channels() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("shardwire ")]


ENDINGS = pytest.mark.parametrize("end", [raise_os_error, hang, swallow_cancellations, end_cancelled])


@ENDINGS
@pytest.mark.parametrize("call", ["unsubscribe", "aclose"])
def test_closing_finishes_whatever_the_node_does(call: str, end: Callable[[], Awaitable[None]]) -> None:
    class Events:
        def __init__(self, events: AsyncIterator[NodeEvent]) -> None:
            self._events = events

        def __aiter__(self) -> Events:
            return self

        async def __anext__(self) -> NodeEvent:
            return await anext(self._events)

        async def aclose(self) -> None:
            await end()

    async def unsubscribe(topics: object) -> None:
        await end()

    async def scenario(world: World) -> None:
        node = await world.node("alice")
        if call == "unsubscribe":
            node.unsubscribe = unsubscribe  # type: ignore[method-assign]
        else:
            events = node.events
            node.events = lambda: Events(events())  # type: ignore[assignment, method-assign]
        alice, persistence = await join_released(world, "alice")
        request_id = await alice.send(b"nobody listens")
        waiter = asyncio.create_task(alice.delivered(request_id, timeout_ms=1_000_000))
        await asyncio.sleep(1)
        await asyncio.wait_for(close_channel(alice), 60)
        with pytest.raises(ChannelClosedError):
            await waiter
        assert tasks_of_channels() == []
        assert persistence.released

    run_world(scenario)


@pytest.mark.parametrize("call", ["send", "query_store"])
def test_closing_leaves_a_task_behind_whose_hook_swallows_cancellations(call: str) -> None:
    async def stuck(_: object) -> None:
        await swallow_cancellations()

    async def scenario(world: World) -> None:
        node = await world.node("alice")
        setattr(node, call, stuck)
        alice, persistence = await join_released(world, "alice")
        await alice.send(b"x")
        await asyncio.sleep(1)
        await asyncio.wait_for(close_channel(alice), 60)
        assert persistence.released

    run_world(scenario)


def test_a_drain_that_is_cancelled_closes_all_the_same() -> None:
    async def scenario(world: World) -> None:
        alice, persistence = await join_released(world, "alice")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                async with alice:
                    await alice.send(b"nobody listens")
        assert alice.is_closed()
        assert not alice.is_started()
        assert persistence.released
        assert tasks_of_channels() == []
        assert world.nodes["alice"].subscriptions == ()

    run_world(scenario)


def test_two_drains_take_the_time_of_each_and_closing_at_once_ends_both() -> None:
    async def scenario(world: World) -> None:
        alice, _ = await join_released(world, "alice")
        await alice.send(b"nobody listens")
        loop = asyncio.get_running_loop()
        started = loop.time()
        drains = [asyncio.create_task(close_channel(alice, timeout_ms)) for timeout_ms in (600_000, 300_000)]
        await asyncio.sleep(10)
        assert not alice.is_closed()
        await close_channel(alice)
        await asyncio.gather(*drains)
        assert loop.time() - started == pytest.approx(10, abs=1)

    run_world(scenario)


def test_a_stop_that_is_cancelled_stops_all_the_same() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        unsubscribe = node.unsubscribe

        async def slow(topics: Any) -> None:
            await asyncio.sleep(1)
            await unsubscribe(topics)

        node.unsubscribe = slow  # type: ignore[method-assign]
        alice, _ = await join_released(world, "alice")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(alice.stop(), 0.1)
        await alice.stop()
        assert node.subscriptions == ()
        await alice.start()
        await world.join("bob")
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}

    run_world(scenario)


@pytest.mark.parametrize("wait", [hang, swallow_cancellations])
def test_closing_ends_a_start_that_waits_for_the_node(wait: Callable[[], Awaitable[None]]) -> None:
    async def subscribe(topics: object) -> None:
        await wait()

    async def scenario(world: World) -> None:
        node = await world.node("alice")
        node.subscribe = subscribe  # type: ignore[method-assign]
        config = ChannelConfig.logos(auto_start=False)
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        starting = asyncio.create_task(channel.start())
        await asyncio.sleep(1)
        await asyncio.wait_for(close_channel(channel), 60)
        with pytest.raises(ChannelClosedError):
            await starting

    run_world(scenario)


@pytest.mark.parametrize("answer_ms", [0, 10])
@pytest.mark.parametrize("steps", range(1, 8))
@pytest.mark.parametrize("call", ["start", "create"])
def test_a_start_that_is_cancelled_leaves_no_subscription_behind(call: str, steps: int, answer_ms: int) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        subscribe = node.subscribe

        async def answer_late(topics: Any) -> None:
            await asyncio.sleep(answer_ms / 1000)
            await subscribe(topics)

        node.subscribe = answer_late  # type: ignore[method-assign]
        config = ChannelConfig.logos(auto_start=call == "create")
        creating = create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        channel = await creating if call == "start" else None
        starting: asyncio.Task[Any] = asyncio.create_task(creating if channel is None else channel.start())
        await asyncio.sleep(answer_ms / 1000)
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        (result,) = await asyncio.gather(starting, return_exceptions=True)
        # A call that had ended by then is as good as any.
        channel = result if isinstance(result, ReliableChannel) else channel
        if channel is not None:
            await close_channel(channel)
        assert node.subscriptions == ()
        assert id(node) not in _BY_NODE

    run_world(scenario)


def test_a_subscription_that_a_node_makes_though_it_is_cancelled_is_given_back() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        subscribe = node.subscribe

        async def stubborn(topics: Any) -> None:
            await swallow_cancellations()
            await subscribe(topics)

        node.subscribe = stubborn  # type: ignore[method-assign]
        config = ChannelConfig.logos(auto_start=False)
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(channel.start(), 1)
        await close_channel(channel)
        await asyncio.sleep(1_000)
        assert node.subscriptions == ()

    run_world(scenario)


@pytest.mark.parametrize("fail", [raise_os_error, end_cancelled])
def test_a_node_that_cannot_subscribe_is_told_of_by_a_node_error(fail: Callable[[], Awaitable[None]]) -> None:
    async def subscribe(topics: object) -> None:
        await fail()

    async def scenario(world: World) -> None:
        (await world.node("alice")).subscribe = subscribe  # type: ignore[method-assign]
        with pytest.raises(NodeError, match="subscribe of the node raised"):
            await world.join("alice")
        assert tasks_of_channels() == []

    run_world(scenario)


@pytest.mark.parametrize("events", [lambda: None, hang])
def test_events_of_a_node_must_be_an_async_iterator(events: Callable[[], Any]) -> None:
    async def scenario(world: World) -> None:
        (await world.node("alice")).events = events  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match="it must be an async iterator"):
            await world.join("alice")

    run_world(scenario)


def test_events_may_be_any_async_iterable() -> None:
    class Iterable:
        def __init__(self, events: AsyncIterator[NodeEvent]) -> None:
            self._events = events

        async def __aiter__(self) -> AsyncIterator[NodeEvent]:
            async for event in self._events:
                yield event

    async def scenario(world: World) -> None:
        node = await world.node("bob")
        events = node.events
        node.events = lambda: Iterable(events())  # type: ignore[assignment, method-assign]
        alice = await world.join("alice")
        await world.join("bob")
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"x"]


def test_events_that_raise_are_asked_for_again_and_what_they_missed_is_fetched() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("bob")
        open_events = node.events
        opened = 0

        def events() -> AsyncIterator[NodeEvent]:
            nonlocal opened
            opened += 1
            return failing() if opened == 1 else refusing() if opened == 2 else open_events()

        async def failing() -> AsyncIterator[NodeEvent]:
            async for event in open_events():
                yield event
                raise ConnectionError("the socket was closed")

        def refusing() -> AsyncIterator[NodeEvent]:
            raise ConnectionError("not yet")

        node.events = events  # type: ignore[method-assign]
        alice = await world.join("alice")
        bob = await world.join("bob")
        for message in (b"one", b"two", b"three"):
            await alice.delivered(await alice.send(message), timeout_ms=600_000)
        assert opened == 3
        assert bob.stats()["node_events_failed"] == 2

    assert run_world(scenario, NetworkConditions()).messages("bob") == [b"one", b"two", b"three"]


def test_a_closed_channel_runs_nothing_and_stores_nothing_more() -> None:
    """Whoever has closed a channel may take its database away, however long a callback and the last commits took."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True, listen=False)
        began = asyncio.Event()

        async def slow(event: MessageSentEvent) -> None:
            began.set()
            await asyncio.sleep(3)

        async def soon(event: MessageSendErrorEvent) -> None:
            # The commit that notes the first is being written.
            await asyncio.sleep(0.1)

        alice.on_message_sent(slow)
        alice.on_message_send_error(soon)
        await world.node("bob")
        await alice.send(b"sent")
        await began.wait()
        world.nodes["alice"].send_fault = lambda envelope: NodeError("no proof", permanent=True)
        await alice.send(b"failing")
        await asyncio.sleep(1)
        await close_channel(alice)
        assert tasks_of_channels() == []
        commits = world.disks["alice"].commits
        await asyncio.sleep(10)
        assert world.disks["alice"].commits == commits

    run_world(scenario, commit_ms=200)


@pytest.mark.parametrize("drain_timeout_ms", [0, 60_000])
def test_a_channel_closes_by_its_own_method(drain_timeout_ms: int) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        request_id = await alice.send(b"last words")
        await alice.close(drain_timeout_ms)
        assert alice.is_closed()
        assert not alice.is_started()
        assert [send.request_id for send in alice.pending()] == ([] if drain_timeout_ms else [request_id])
        await alice.close()
        with pytest.raises(ConfigError, match="drain_timeout_ms is -1"):
            await alice.close(-1)

    run_world(scenario, NetworkConditions(delay_ms=(20, 20)))


def test_a_node_that_cannot_subscribe_is_not_kept() -> None:
    async def refuse(topics: object) -> None:
        raise NodeError("no peers")

    async def scenario(world: World) -> None:
        node = await world.node("alice")
        node.subscribe = refuse  # type: ignore[assignment, method-assign]
        for _ in range(2):
            with pytest.raises(NodeError, match="no peers"):
                await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=ChannelConfig.logos())
        assert id(node) not in _BY_NODE

    run_world(scenario)


def test_a_message_whose_callback_closed_the_channel_is_not_handed_over_again() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", on_disk=True)
        bob.on_message_received(lambda event: bob.close())
        await alice.send(b"x")
        await asyncio.sleep(60)
        assert bob.is_closed()
        await world.join("bob", on_disk=True)
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [b"x"]

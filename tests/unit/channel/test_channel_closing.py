"""Closing always finishes: whatever the node raises, however long it takes, and whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.topics import _BY_NODE
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import ChannelClosedError, ConfigError, NodeError, PersistenceError
from shardwire.node import NetworkConditions
from shardwire.node.protocol import NodeEvent
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Changes


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


class Released(MemoryPersistence):
    """Notes whether the channel gave its state free."""

    released = False

    def release(self, channel_id: str) -> None:
        self.released = True


def tasks_of_channels() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("shardwire ")]


async def join_released(world: World, name: str) -> tuple[Any, Released]:
    persistence = Released()
    config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
    return await world.join(name, config), persistence


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


def test_a_persistence_that_raises_anything_refuses_sends_until_it_stores_again() -> None:
    class Failing(MemoryPersistence):
        fails = False

        def commit(self, channel_id: str, changes: Changes) -> None:
            if self.fails:
                raise TimeoutError("the database server did not answer")
            super().commit(channel_id, changes)

    async def scenario(world: World) -> None:
        persistence = Failing()
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(persistence=persistence)))
        await world.join("bob")
        persistence.fails = True
        for result in await asyncio.gather(*(alice.send(b"refused") for _ in range(2)), return_exceptions=True):
            assert isinstance(result, PersistenceError)
        persistence.fails = False
        await asyncio.sleep(60)
        assert await alice.delivered(await alice.send(b"stored"), timeout_ms=60_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"stored"]


def test_a_driver_that_fails_tells_everybody_who_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        alice, persistence = await join_released(world, "alice")
        session = alice._session
        request_id = await alice.send(b"nobody listens")

        def broken(*_: object, **__: object) -> None:
            raise AssertionError("a broken invariant")

        session.engine.collect = broken
        calls = [alice.send(b"x"), alice.cancel("unknown"), alice.delivered(request_id, timeout_ms=1_000_000)]
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
        assert [type(result) for result in results if result is not False] == [ChannelClosedError] * (
            3 - results.count(False)
        )
        await close_channel(alice)
        assert persistence.released

    run_world(scenario)


@pytest.mark.parametrize("heals_after_ms", [50, 150, 300, 450, 600, 60_000])
def test_a_message_that_cannot_be_stored_for_its_hand_over_waits_for_the_next_life(
    heals_after_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", on_disk=True)
        disk = world.disks["bob"]
        sending = asyncio.create_task(alice.send(b"x"))
        await asyncio.sleep(0.15)
        disk.fails_with = PersistenceError("disk full")
        await sending
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(close_channel(bob))
        await asyncio.sleep(heals_after_ms / 1_000)
        disk.fails_with = None
        await asyncio.wait_for(closing, 60)
        await world.join("bob", on_disk=True)
        await asyncio.sleep(60)

    assert run_world(scenario, commit_ms=100).messages("bob") == [b"x"]
    assert [record.message for record in caplog.records if record.levelno == logging.CRITICAL] == []


def test_a_driver_that_fails_while_somebody_waits_for_a_cycle_lets_the_channel_close() -> None:
    async def scenario(world: World) -> None:
        alice, persistence = await join_released(world, "alice")

        def broken(*_: object, **__: object) -> None:
            raise AssertionError("a broken invariant")

        alice._session.engine.on_stopped = broken
        async with asyncio.timeout(60):
            await alice.stop()
            await close_channel(alice)
        assert persistence.released

    run_world(scenario)

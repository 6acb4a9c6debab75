"""Events by their callbacks and iterators: which come, when at the latest, and when none comes any more."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire.channel import close_channel
from shardwire.channel.observing.subscriptions import UNREAD_S
from shardwire.events import ChannelEvent, MessageSentEvent


def test_who_waits_for_an_event_stops_when_the_channel_closes() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", listen=False)
        messages = alice.messages()
        reader = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(1)
        await close_channel(alice)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(reader, 10)

    run_world(scenario)


def test_who_waits_for_an_event_stops_when_somebody_leaves_the_iterator() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", listen=False)
        messages = alice.messages()
        reader = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(1)
        await messages.aclose()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(reader, 10)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(messages), 10)

    run_world(scenario)


def test_no_event_of_a_message_is_read_once_it_is_cancelled() -> None:
    async def scenario(world: World) -> None:
        # Takes it for the network, and acknowledges nothing.
        await world.node("silent")
        alice = await world.join("alice", listen=False)
        events = alice.events()
        cancelled = await alice.send(b"cancelled")
        await asyncio.sleep(5)
        assert await alice.cancel(cancelled)
        other = await alice.send(b"another")
        async for event in events:
            assert getattr(event, "request_id", other) == other
            if isinstance(event, MessageSentEvent):
                break

    run_world(scenario)


def test_messages_that_nobody_reads_on_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False)
        messages = bob.messages()
        for number in range(3):
            await alice.send(b"%d" % number)
        for _ in range(3):
            await anext(messages)
            await asyncio.sleep(2 * UNREAD_S)
        await messages.aclose()

    run_world(scenario)
    assert sum("messages wait for events() or messages()" in record.getMessage() for record in caplog.records) == 1


def test_who_begins_to_read_is_given_what_waits_at_once() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False)
        await alice.delivered(await alice.send(b"waits"), timeout_ms=60_000)
        await asyncio.sleep(1)
        messages = bob.messages()
        assert (await asyncio.wait_for(anext(messages), 0.05)).message == b"waits"
        await messages.aclose()

    run_world(scenario)


def test_each_callback_of_a_name_is_given_the_events_of_that_name() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        given: list[ChannelEvent] = []
        bob.on_message_received(given.append)
        for subscribe in (alice.on_message_sent, alice.on_message_delivered, alice.on_message_send_error):
            subscribe(given.append)
        request_id = await alice.send(b"x")
        await alice.delivered(request_id, timeout_ms=60_000)
        await asyncio.sleep(1)
        assert sorted(type(event).__name__ for event in given) == [
            "MessageDeliveredEvent",
            "MessageReceivedEvent",
            "MessageSentEvent",
        ]

    run_world(scenario)

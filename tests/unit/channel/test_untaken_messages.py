"""A message that its reader left without having taken it goes to the next listener."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest
from channel_world import World, run_world

from shardwire import close_channel
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.events import ChannelEvent, MessageReceivedEvent, MessageSentEvent

RECEIVED = MessageReceivedEvent(b"payload", "alice", "ab")


def is_ending() -> bool:
    return True


def run(scenario: Callable[[Subscriptions], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(Subscriptions()), 10)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["dropped", "closed"])
def test_it_goes_to_the_next_listener(how: str) -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        iterator = subscriptions.iterate(MessageReceivedEvent)
        handing = asyncio.create_task(subscriptions.hand_over(RECEIVED, is_ending))
        await asyncio.sleep(0.01)
        if how == "closed":
            await iterator.aclose()
        del iterator
        gc.collect()
        await asyncio.sleep(0.01)
        assert not handing.done()
        # One that listens to other events is none.
        others = subscriptions.iterate(MessageSentEvent)
        await asyncio.sleep(0.01)
        following = subscriptions.iterate(MessageReceivedEvent)
        assert await anext(following) is RECEIVED
        assert not handing.done()
        await following.aclose()
        await handing
        assert not others.has_ended

    run(scenario)


def test_it_is_done_where_somebody_else_has_it() -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        left, taken = subscriptions.iterate(MessageReceivedEvent), subscriptions.iterate(MessageReceivedEvent)
        handing = asyncio.create_task(subscriptions.hand_over(RECEIVED, is_ending))
        assert await anext(taken) is RECEIVED
        await left.aclose()
        await taken.aclose()
        await handing
        heard: list[ChannelEvent] = []
        subscriptions.on(MessageReceivedEvent, heard.append)
        left = subscriptions.iterate(MessageReceivedEvent)
        handing = asyncio.create_task(subscriptions.hand_over(RECEIVED, is_ending))
        await asyncio.sleep(0)
        await left.aclose()
        await handing
        assert heard == [RECEIVED]

    run(scenario)


def test_whoever_reads_with_a_time_limit_misses_nothing() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False)
        read: list[bytes] = []

        async def reads() -> None:
            while len(read) < 60:
                # The limit comes in the same step of the loop as some of the messages.
                try:
                    async with asyncio.timeout(0.05):
                        async for event in bob.messages():
                            read.append(event.message)
                except TimeoutError:
                    continue

        async def restarts() -> None:
            for steps in range(600):
                reader = asyncio.create_task(reads())
                for _ in range(steps % 12):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.01 * (steps % 7))
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

        restarting = asyncio.create_task(restarts())
        for number in range(60):
            await alice.send(b"%d" % number)
            await asyncio.sleep(0.05)
        await restarting
        await reads()
        assert read == [b"%d" % number for number in range(60)]

    run_world(scenario)


def test_the_next_life_hands_over_what_nobody_took() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False, on_disk=True)
        iterator = bob.messages()
        await alice.send(b"a message")
        await asyncio.sleep(1)
        await iterator.aclose()
        await close_channel(bob)
        bob = await world.join("bob", listen=False, on_disk=True)
        event = await asyncio.wait_for(anext(bob.messages()), 10)
        assert event.message == b"a message"

    run_world(scenario)


def test_what_nobody_listened_for_is_new_to_whoever_listens_in_the_next_life() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", listen=False, on_disk=True)
        await alice.send(b"a message")
        await asyncio.sleep(10)
        await world.crash("bob")
        await world.join("bob", on_disk=True)
        await asyncio.sleep(10)
        assert [(event.message, event.redelivered) for event in world.received["bob"]] == [(b"a message", False)]

    run_world(scenario)

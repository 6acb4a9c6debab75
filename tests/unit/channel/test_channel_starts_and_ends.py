"""Starts, stops and ends of a channel: what each takes, and what none of them leaves behind."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, join_released, run_world

from shardwire.channel import close_channel
from shardwire.channel.observing.timeline import SegmentObservation
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.errors import ChannelClosedError, NodeError


def test_a_channel_that_drains_takes_nothing_new() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        first = await alice.send(b"nobody listens")
        draining = asyncio.create_task(close_channel(alice, 60_000))
        await asyncio.sleep(1)
        assert not alice.is_closed()
        for send in (alice.send, alice.send_ephemeral):
            with pytest.raises(ChannelClosedError, match="is closed: create it again"):
                await send(b"too late")
        assert [send.request_id for send in alice.pending()] == [first]
        await draining

    run_world(scenario)


def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        unsubscribe = node.unsubscribe

        async def unsubscribe_late(topics: object) -> None:
            await asyncio.sleep(1)
            await unsubscribe(topics)  # type: ignore[arg-type]

        node.unsubscribe = unsubscribe_late  # type: ignore[method-assign]
        alice, persistence = await join_released(world, "alice")
        closing = asyncio.create_task(close_channel(alice))
        await asyncio.sleep(0.5)
        closing.cancel()
        await asyncio.wait({closing})
        assert not persistence.released
        await asyncio.sleep(2)
        assert persistence.released
        assert node.subscriptions == ()

    run_world(scenario)


def test_a_start_of_a_started_channel_does_nothing() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        await bob.start()
        assert await alice.delivered(await alice.send(b"once"), timeout_ms=60_000) == {"bob"}
        await close_channel(bob)
        assert world.nodes["bob"].subscriptions == ()

    assert run_world(scenario).messages("bob") == [b"once"]


def test_a_stopped_channel_makes_nothing_leave_until_it_starts_again() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        left: list[SegmentObservation] = []
        alice.observe(left.append)
        request_id = await alice.send(b"nobody listens")
        await asyncio.sleep(1)
        await alice.stop()
        before = len(left)
        assert before
        await asyncio.sleep(3_600)
        assert len(left) == before
        await world.join("bob")
        await alice.start()
        assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}

    run_world(scenario, limit_ms=10_000_000)


def test_a_message_that_is_refused_at_once_is_known_as_that_at_once() -> None:
    """Whoever has its request id asks before any event could have been told."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(segmentation=SegmentationConfig(wire_format="draft")))
        request_id = await alice.send_ephemeral(b"")
        with pytest.raises(NodeError, match=f"message {request_id} was not sent: "):
            await alice.delivered(request_id)

    run_world(scenario)

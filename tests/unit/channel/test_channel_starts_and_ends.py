"""Starts, stops and ends of a channel: what each takes, and what none of them leaves behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest
from channel_world import World, join_released, run_world

from shardwire.channel import close_channel, waiters
from shardwire.channel.observing.timeline import SegmentObservation
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.errors import ChannelClosedError, ConfigError, NodeError
from shardwire.events import MessageReceivedEvent, MessageSentEvent


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

        async def unsubscribe_late(topics: Sequence[str]) -> None:
            await asyncio.sleep(1)
            await unsubscribe(topics)

        node.unsubscribe = unsubscribe_late  # type: ignore[method-assign, assignment]
        alice, persistence = await join_released(world, "alice")
        closing = asyncio.create_task(close_channel(alice))
        await asyncio.sleep(0.5)
        closing.cancel()
        await asyncio.wait({closing})
        released = [persistence.released]
        await asyncio.sleep(2)
        released.append(persistence.released)
        assert released == [False, True]
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


def test_a_drain_ends_as_soon_as_all_is_delivered() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice")
        await alice.send(b"acknowledged soon")
        started = asyncio.get_running_loop().time()
        await close_channel(alice, 600_000)
        assert alice.pending() == ()
        assert asyncio.get_running_loop().time() - started < 60

    run_world(scenario)


def test_who_begins_to_listen_is_handed_what_waits_at_once() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", listen=False)
        await alice.delivered(await alice.send(b"waits"), timeout_ms=60_000)
        await asyncio.sleep(1)
        received: list[bytes] = []
        bob.on_message_received(lambda event: received.append(event.message))
        await asyncio.sleep(0.05)
        assert received == [b"waits"]

    run_world(scenario)


def test_what_was_handed_over_before_the_last_message_is_not_handed_over_again_after_a_crash() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", listen=False, on_disk=True)
        begun = asyncio.Event()

        async def take(event: MessageReceivedEvent) -> None:
            if event.message == b"second":
                begun.set()
                await asyncio.sleep(1e6)

        bob.on_message_received(take)
        for message in (b"first", b"second"):
            await alice.send(message)
        await begun.wait()
        await world.crash("bob")
        await world.join("bob", on_disk=True)
        await asyncio.sleep(60)

    world = run_world(scenario, commit_ms=200, limit_ms=10_000_000)
    assert [(event.message, event.redelivered) for event in world.received["bob"]] == [(b"second", True)]


def test_refused_messages_are_remembered_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "FAILURES_REMEMBERED_MAX", 3)

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(segmentation=SegmentationConfig(wire_format="draft")))
        forgotten, *remembered = [await alice.send_ephemeral(b"") for _ in range(4)]
        for request_id in remembered:
            with pytest.raises(NodeError, match=f"message {request_id} was not sent: "):
                await alice.delivered(request_id)
        with pytest.raises(ConfigError):
            await alice.delivered(forgotten)

    run_world(scenario)


def test_who_waited_leaves_nothing_behind() -> None:
    """A channel may live for months."""

    def futures() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.Future) for each in gc.get_objects())

    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        request_id = await alice.send(b"nobody listens")
        before = futures()
        for _ in range(20):
            await alice.cancel(await alice.send(b"stored, then cancelled"))
            with pytest.raises(TimeoutError):
                await alice.delivered(request_id, timeout_ms=10)
        assert futures() - before < 10

    run_world(scenario, commit_ms=10)


def test_outcomes_are_still_told_while_the_channel_closes() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", listen=False)
        told: list[str] = []

        async def tell(event: MessageSentEvent) -> None:
            await asyncio.sleep(0.2)
            told.append(event.request_id)

        alice.on_message_sent(tell)
        sent = [await alice.send(b"%d" % number) for number in range(3)]
        await asyncio.sleep(0.1)
        await close_channel(alice)
        assert told == sent

    run_world(scenario)


def test_a_channel_with_nothing_to_tell_closes_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice")
        await alice.delivered(await alice.send(b"x"), timeout_ms=60_000)
        await asyncio.sleep(10)
        since = asyncio.get_running_loop().time()
        await close_channel(alice)
        assert asyncio.get_running_loop().time() - since < 0.5

    run_world(scenario)

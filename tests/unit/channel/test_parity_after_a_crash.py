"""Parity on demand where the power fails, or the node, before all of a message has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from channel_world import CHANNEL, TOPIC, Disk, Mount, World, run_world
from wrapped_node import WrappedNode

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.config import ErasureCode, RateLimitConfig, Repair, SegmentationConfig, SegmentWireFormat
from shardwire.errors import NodeError
from shardwire.events import MessageSendErrorEvent, MessageSentEvent
from shardwire.node import MessageEnvelope, MessagePropagated, MessageSent, NetworkConditions, NodeEvent
from shardwire.segmentation import segment

SEGMENT = 512
REPAIRS: tuple[Repair, ...] = ("arq", "parity")


def payload_of(count: int) -> bytes:
    return bytes((at * 7 + at // 251) % 256 for at in range(count * SEGMENT))


def config(repair: Repair, parity_rate: float | None = None) -> ChannelConfig:
    segmentation = SegmentationConfig(segment_size_bytes=SEGMENT)
    if parity_rate is not None:
        segmentation = SegmentationConfig(segment_size_bytes=SEGMENT, enable_reed_solomon=True, parity_rate=parity_rate)
    return ChannelConfig.logos(segmentation=segmentation, repair=repair)


@pytest.mark.parametrize("count", [10, 60])
@pytest.mark.parametrize("repair", REPAIRS)
def test_what_was_stored_and_never_left_is_in_the_store_after_a_crash(repair: Repair, count: int) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config(repair), on_disk=True)
        await asyncio.sleep(1)
        disk = world.disks["alice"]
        disk.power_fails_after = disk.commits + 1
        world.nodes["alice"].send_fault = lambda envelope: NodeError("gone")
        await alice.send(payload_of(count))
        await disk.power_failed.wait()
        await world.crash("alice")
        disk.power_fails_after = None
        await world.join("alice", config(repair), on_disk=True)
        await asyncio.sleep(300)
        await world.crash("alice")
        await world.join("bob", config(repair))
        await asyncio.sleep(300)

    world = run_world(scenario)
    assert world.of("alice", MessageSendErrorEvent) == []
    assert len(world.of("alice", MessageSentEvent)) == 1
    assert world.messages("bob") == [payload_of(count)]


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_message_is_sent_whose_first_parity_failed_before_a_restart(repair: Repair) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config(repair, 0.5), on_disk=True)
        left = 0

        def refuse_parity(envelope: object) -> NodeError | None:
            nonlocal left
            left += 1
            return NodeError("down") if left > 10 else None

        await asyncio.sleep(1)
        world.nodes["alice"].send_fault = refuse_parity
        await alice.send(payload_of(10))
        await asyncio.sleep(1)
        await world.crash("alice")
        await world.join("alice", config(repair, 0.5), on_disk=True)
        await asyncio.sleep(1_200)

    assert len(run_world(scenario).of("alice", MessageSentEvent)) == 1


@pytest.mark.parametrize("repair", REPAIRS)
def test_parity_that_failed_and_is_needed_no_more_holds_up_nothing(repair: Repair) -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config(repair, 0.5))
        await world.join("bob", config(repair, 0.5))
        await asyncio.sleep(1)
        left = 0

        def refuse_some(envelope: object) -> NodeError | None:
            nonlocal left
            left += 1
            return NodeError("down") if left > 11 and asyncio.get_running_loop().time() < 2 else None

        world.nodes["alice"].send_fault = refuse_some
        await alice.send(payload_of(10))
        await asyncio.sleep(10)
        await alice.send(b"after")
        await asyncio.sleep(2)
        assert world.messages("bob") == [payload_of(10), b"after"]

    run_world(scenario)


@pytest.mark.parametrize("wire_format", ["raw", "lip243"])
@pytest.mark.parametrize("erasure_code", ["leopard", "vandermonde"])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 17, 127])
def test_no_less_parity_leaves_than_is_configured(
    count: int, erasure_code: ErasureCode, wire_format: SegmentWireFormat
) -> None:
    chosen = SegmentationConfig(
        segment_size_bytes=SEGMENT,
        enable_reed_solomon=True,
        parity_rate=0.125,
        erasure_code=erasure_code,
        wire_format=wire_format,
    )
    payload = payload_of(count)
    made = asyncio.run(ChannelSegmenter(chosen, lambda: 0).prepare(payload))
    assert len(made.contents) == len(segment(payload, chosen))


class LateNode(WrappedNode):
    """Says ten seconds later that something is in the network."""

    async def events(self) -> AsyncIterator[NodeEvent]:
        events: asyncio.Queue[NodeEvent] = asyncio.Queue()

        async def read() -> None:
            loop = asyncio.get_running_loop()
            async for event in self._inner.events():
                loop.call_later(
                    10 if isinstance(event, MessagePropagated | MessageSent) else 0, events.put_nowait, event
                )

        reading = asyncio.create_task(read())
        try:
            while True:
                yield await events.get()
        finally:
            reading.cancel()


class MuteNode(WrappedNode):
    """Says nothing of what it is handed after the first messages.

    Attributes:
        answers: How many it answers for.
    """

    answers = 0

    async def send(self, envelope: MessageEnvelope) -> str:
        self.answers -= 1
        request_id = await super().send(envelope)
        return request_id if self.answers >= 0 else "none that it speaks of"


@pytest.mark.parametrize("crashes", [False, True])
def test_what_others_have_whole_is_delivered_whatever_the_node_says_of_parity_that_nobody_has(crashes: bool) -> None:
    """Who can reconstruct a message has all of it: nothing waits for what a node, or one before a crash, never says."""
    chosen = config("arq", 0.5)

    async def scenario(world: World) -> None:
        await world.join("bob", chosen)
        disk = Disk()
        mount = disk.mount()
        node = MuteNode(await world.node("alice"))
        node.answers = 4
        world.lose("alice", "bob", {4, 5})
        stored = replace(chosen, sds=replace(chosen.sds, persistence=mount))
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=stored)
        request_id = await alice.send(payload_of(4))
        await asyncio.sleep(0.2)
        [pending] = alice.pending()
        assert (pending.segments_propagated, pending.delivered_to, pending.sent) == (4, frozenset(), False)
        if crashes:
            mount.cut_power()
            await world.nodes.pop("alice").stop()
            await close_channel(alice)
            stored = replace(chosen, sds=replace(chosen.sds, persistence=disk.mount()))
            node = MuteNode(await world.node("alice"))
            alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=stored)
        world.nodes["bob"].conditions = None
        assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}
        assert alice.pending() == ()
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [payload_of(4)]


@pytest.mark.parametrize("repair", REPAIRS)
def test_ten_crashes_in_a_minute_do_not_send_everything_ten_times(repair: Repair) -> None:
    async def scenario(world: World) -> None:
        disk = Disk()

        async def live() -> tuple[Mount, ReliableChannel]:
            mount = disk.mount()
            chosen = config(repair)
            chosen = replace(chosen, sds=replace(chosen.sds, persistence=mount))
            node = LateNode(await world.node("alice"))
            return mount, await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=chosen)

        mount, alice = await live()
        await alice.send(payload_of(100))
        for _ in range(10):
            await asyncio.sleep(5.9)
            mount.cut_power()
            await world.nodes.pop("alice").stop()
            await close_channel(alice)
            mount, alice = await live()
        assert world.sent_by("alice") <= 2 * 100
        await close_channel(alice)

    run_world(scenario)


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_new_message_leaves_in_the_epoch_of_a_restart(repair: Repair) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config(repair), on_disk=True)
        await asyncio.sleep(1)
        disk = world.disks["alice"]
        disk.power_fails_after = disk.commits + 1
        await alice.send(payload_of(50))
        await disk.power_failed.wait()
        await world.crash("alice")
        disk.power_fails_after = None
        limit = RateLimitConfig(enabled=True, messages_per_epoch=20, epoch_size_ms=60_000, counts="segment")
        alice = await world.join("alice", replace(config(repair), rate_limit=limit), on_disk=True)
        await asyncio.sleep(0.1)
        request_id = await alice.send(b"new")
        await asyncio.sleep(5)
        assert request_id in [event.request_id for event in world.of("alice", MessageSentEvent)]

    run_world(scenario)


def test_an_error_counts_no_more_segments_than_there_are() -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        await world.join("bob")
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        alice = await world.join("alice", config("parity"))
        await asyncio.sleep(1)
        await alice.send(payload_of(10))
        await asyncio.sleep(600)
        assert alice.stats()["parity_on_demand"] > 0
        (error,) = world.of("alice", MessageSendErrorEvent)
        assert error.error.startswith("10 of 10 segments were not acknowledged")

    run_world(scenario)

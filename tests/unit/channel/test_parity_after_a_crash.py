"""Parity on demand where the power fails, or the node, before all of a message has left."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire import ChannelConfig
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.config import ErasureCode, Repair, SegmentationConfig, SegmentWireFormat
from shardwire.errors import NodeError
from shardwire.events import MessageSendErrorEvent, MessageSentEvent
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

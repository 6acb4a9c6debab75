"""Large messages that take long or are given up before they are whole: delivered where that can be, never falsely."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from channel_world import World, run_world

from shardwire.config import (
    ChannelConfig,
    RateLimitConfig,
    ReassemblyLimits,
    SdsConfig,
    SegmentationConfig,
)
from shardwire.errors import ShardwireError
from shardwire.events import IrretrievableMessageEvent, MessageDeliveredEvent, MessageSendErrorEvent
from shardwire.node import NetworkConditions

SEGMENT_BYTES = 1_024


def config_of(preset: str = "logos", *, quota: int | None = None, **limits: int) -> ChannelConfig:
    base = ChannelConfig.logos() if preset == "logos" else ChannelConfig.waku()
    segmentation = SegmentationConfig(segment_size_bytes=SEGMENT_BYTES, limits=ReassemblyLimits(**limits))
    rate_limit = RateLimitConfig(enabled=quota is not None, messages_per_epoch=quota, counts="segment")
    return replace(base, segmentation=segmentation, rate_limit=rate_limit)


@pytest.mark.parametrize("preset", ["logos", "waku"])
def test_a_message_that_takes_several_epochs_arrives(preset: str) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config_of(preset, quota=20))
        await world.join("bob", config_of(preset, quota=20))
        await alice.send(bytes(40 * SEGMENT_BYTES))
        await asyncio.sleep(3_000)

    world = run_world(scenario)
    assert world.messages("bob") == [bytes(40 * SEGMENT_BYTES)]
    assert [event.delivered_to for event in world.of("alice", MessageDeliveredEvent)] == [{"bob"}]
    assert world.of("bob", IrretrievableMessageEvent) == []


@pytest.mark.parametrize("repairs", [True, False])
def test_a_message_that_expired_goes_on_with_its_next_segment(repairs: bool) -> None:
    async def scenario(world: World) -> None:
        config = config_of(quota=12)
        alice = await world.join("alice", replace(config, sds=SdsConfig(enable_repair=repairs)))
        # Without a rate limit of its own it does not wait for the epochs of others.
        await world.join("bob", replace(config_of(timeout_ms=60_000), sds=SdsConfig(enable_repair=repairs)))
        await alice.send(bytes(24 * SEGMENT_BYTES))
        await asyncio.sleep(3_000)

    world = run_world(scenario)
    assert world.messages("bob") == [bytes(24 * SEGMENT_BYTES)]
    assert [event.delivered_to for event in world.of("alice", MessageDeliveredEvent)] == [{"bob"}]
    assert world.channels["bob"].stats()["Expired"] >= 1
    assert len(world.of("bob", IrretrievableMessageEvent)) == 1


@pytest.mark.parametrize("sets_max", [1, 2])
def test_whom_a_send_counts_as_holding_it_got_it_whatever_was_evicted(sets_max: int) -> None:
    names, sends = ("alice", "bob", "carol"), []

    async def scenario(world: World) -> None:
        channels = [
            await world.join(name, config_of(sets_max=sets_max, sets_per_sender_max=sets_max)) for name in names
        ]
        for number in range(6):
            for name, channel in zip(names, channels, strict=True):
                payload = f"{name} {number}".encode().ljust(3 * SEGMENT_BYTES)
                sends.append((channel, await channel.send(payload), payload))
            await asyncio.sleep(1)
        await asyncio.sleep(1_000)
        for channel, request_id, payload in sends:
            try:
                delivered_to = await channel.delivered(request_id, timeout_ms=10)
            except ShardwireError:
                continue
            for name in delivered_to:
                assert payload in world.messages(name)

    world = run_world(scenario, NetworkConditions(loss=0.2, delay_ms=(5, 40)), seed=5)
    assert any(channel.stats()["Evicted"] for channel in world.channels.values())
    assert any(world.of(name, MessageDeliveredEvent) for name in names)


def test_parity_that_does_not_tell_how_many_segments_there_are_is_no_acknowledgement() -> None:
    segmentation = SegmentationConfig(
        wire_format="draft", segment_size_bytes=SEGMENT_BYTES, enable_reed_solomon=True, parity_rate=1.0
    )
    config = ChannelConfig.logos(segmentation=segmentation)
    delivered: list[int] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        world.lose("alice", "bob", {0, 1})
        await alice.send(bytes(2 * SEGMENT_BYTES))
        for wait_s in (4, 60):
            await asyncio.sleep(wait_s)
            delivered.append(len(world.of("alice", MessageDeliveredEvent)))

    assert run_world(scenario).messages("bob") == [bytes(2 * SEGMENT_BYTES)]
    assert delivered == [0, 1]


def test_a_message_of_more_segments_than_the_incoming_buffer_holds_arrives() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config_of())
        await world.join("bob", replace(config_of(), sds=SdsConfig(incoming_buffer_messages_max=3)))
        for number in range(2):
            await alice.send(bytes([number]) * 8 * SEGMENT_BYTES)
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [bytes([number]) * 8 * SEGMENT_BYTES for number in range(2)]


def test_what_a_receiver_cannot_read_is_not_delivered() -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice")
        await world.join("bob", ChannelConfig.logos(segmentation=SegmentationConfig(wire_format="lip243")))
        await alice.send(b"hello")
        await asyncio.sleep(120)

    world = run_world(scenario)
    assert world.of("alice", MessageDeliveredEvent) == world.messages("bob") == []
    assert [event.stage for event in world.of("alice", MessageSendErrorEvent)] == ["delivery"]
    assert world.channels["bob"].stats()["segments_discarded"] > 1

"""A participant that repeats the message ids of others: every message arrives all the same, once."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire._native import SdsMessage
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.events import MessageDeliveredEvent
from shardwire.node import MessageEnvelope, NetworkConditions
from shardwire.segmentation import segment

LOGOS = ChannelConfig.logos()
DRAFT = ChannelConfig.logos(segmentation=SegmentationConfig(wire_format="draft"))
WAKU = ChannelConfig.waku()
LARGE = bytes(250_000)


async def repeat_first(world: World, forge: str, payload: bytes, config: ChannelConfig = LOGOS) -> None:
    """From here on a stranger sends another message under the id of each of alice's, and bob has it before hers."""
    stranger = await world.node("stranger")
    content = payload if config.segmentation.wire_format == "draft" else segment(payload, config.segmentation)[0]
    sending: list[asyncio.Future[None]] = []

    async def forestall(message: SdsMessage) -> None:
        rival = SdsMessage(
            sender_id=forge,
            message_id=message.message_id,
            channel_id=CHANNEL,
            lamport_timestamp=message.lamport_timestamp,
            content=content,
        )
        world.nodes["bob"].conditions = None
        await stranger.send(MessageEnvelope(TOPIC, rival.encode()))

    def watch(envelope: MessageEnvelope) -> None:
        message = SdsMessage.decode(envelope.payload)
        assert message is not None
        if message.content is not None:
            world.nodes["bob"].conditions = NetworkConditions(delay_ms=(200, 200))
            sending.append(asyncio.ensure_future(forestall(message)))

    world.nodes["alice"].send_fault = watch


def received(world: World, name: str) -> list[tuple[str, bytes]]:
    return sorted((event.sender_id, event.message) for event in world.received[name])


@pytest.mark.parametrize("config", [LOGOS, DRAFT], ids=["raw", "draft"])
@pytest.mark.parametrize("forge", ["mallory", "alice"])
def test_a_message_whose_id_another_used_first_arrives_once(config: ChannelConfig, forge: str) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await repeat_first(world, forge, b"forged", config)
        request_id = await alice.send(b"real")
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}
        await asyncio.sleep(120)

    world = run_world(scenario)
    assert received(world, "bob") == sorted([("alice", b"real"), (forge, b"forged")])
    assert len(world.of("alice", MessageDeliveredEvent)) == 1


@pytest.mark.parametrize("forge", ["mallory", "alice"])
def test_a_large_message_arrives_whose_every_id_another_used_first(forge: str) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        await repeat_first(world, forge, b"forged")
        await alice.send(LARGE)
        await asyncio.sleep(120)

    messages = [event.message for event in run_world(scenario).received["bob"]]
    assert messages.count(LARGE) == 1


@pytest.mark.parametrize("preset", [LOGOS, WAKU], ids=["logos", "waku"])
def test_a_large_message_arrives_after_a_forged_part_in_its_senders_name(preset: ChannelConfig) -> None:
    """Bob lost two segments; under the id of one of them he has a small message that says it is alice's. She sends
    nothing again, as carol has it all."""
    config = replace(preset, segmentation=replace(preset.segmentation, segment_size_bytes=1_024))
    payload = random.Random(0).randbytes(5_000)

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        for name in ("bob", "carol"):
            await world.join(name, config)
        stranger = await world.node("stranger")
        parts: list[SdsMessage] = []

        def watch(envelope: MessageEnvelope) -> None:
            message = SdsMessage.decode(envelope.payload)
            assert message is not None
            if message.content is not None:
                parts.append(message)
                world.nodes["bob"].conditions = NetworkConditions(loss=float(len(parts) in (2, 4)))

        world.nodes["alice"].send_fault = watch
        await alice.send(payload)
        await asyncio.sleep(3)
        world.nodes["alice"].send_fault = world.nodes["bob"].conditions = None
        content = b"forged" if preset is WAKU else segment(b"forged", config.segmentation)[0]
        forged = SdsMessage(
            sender_id="alice",
            message_id=parts[1].message_id,
            channel_id=CHANNEL,
            lamport_timestamp=parts[1].lamport_timestamp,
            content=content,
        )
        await stranger.send(MessageEnvelope(TOPIC, forged.encode()))
        # From then on bob hears nothing for longer than a partial message is kept.
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        await asyncio.sleep(400)
        world.nodes["bob"].conditions = None
        await asyncio.sleep(2_400)

    messages = [event.message for event in run_world(scenario).received["bob"]]
    assert sorted(messages, key=len) == [b"forged", payload]


@pytest.mark.parametrize("payload", [b"real", LARGE], ids=["small", "large"])
def test_a_restart_of_the_receiver_loses_and_repeats_nothing(payload: bytes) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", on_disk=True, listen=False)
        await repeat_first(world, "mallory", bytes(2_000))
        await alice.send(payload)
        await asyncio.sleep(5)
        await world.crash("bob")
        await world.join("bob", on_disk=True)
        await asyncio.sleep(120)

    messages = [event.message for event in run_world(scenario).received["bob"]]
    assert messages.count(payload) == 1


def test_a_store_that_answers_with_both_brings_neither_twice() -> None:
    config = replace(LOGOS, sds=replace(LOGOS.sds, enable_repair=False))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await repeat_first(world, "mallory", b"forged", config)
        await alice.send(b"real")
        await asyncio.sleep(10)
        bob = world.channels["bob"]
        await bob.stop()
        await bob.start()
        await asyncio.sleep(60)

    assert received(run_world(scenario), "bob") == [("alice", b"real"), ("mallory", b"forged")]


def test_a_rival_without_a_segment_that_comes_again_after_a_restart_is_a_duplicate() -> None:
    async def scenario(world: World) -> None:
        sent: list[MessageEnvelope] = []
        alice = await world.join("alice", DRAFT)
        await world.join("bob", DRAFT, on_disk=True)
        await repeat_first(world, "mallory", b"forged", DRAFT)
        forestall = world.nodes["alice"].send_fault
        assert forestall is not None

        def note(envelope: MessageEnvelope) -> None:
            sent.append(envelope)
            forestall(envelope)

        world.nodes["alice"].send_fault = note
        await alice.send(b"real")
        await asyncio.sleep(5)
        await world.crash("bob")
        await world.join("bob", DRAFT, on_disk=True)
        message = SdsMessage.decode(sent[0].payload)
        assert message is not None
        again = SdsMessage(
            sender_id="alice",
            message_id=message.message_id,
            channel_id=CHANNEL,
            lamport_timestamp=(message.lamport_timestamp or 0) + 1,
            content=message.content,
        )
        await world.nodes["stranger"].send(MessageEnvelope(TOPIC, again.encode()))
        await asyncio.sleep(5)

    assert received(run_world(scenario), "bob") == [("alice", b"real"), ("mallory", b"forged")]

"""Several messages under one sender and send, as a stranger makes them who sees what others send: none is lost."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from channel_stranger import Stranger
from channel_world import World, run_world
from stored_kinds import MESSAGE, PARTS, PAYLOAD, SEGMENT

from shardwire.config import ChannelConfig, ReassemblyLimits, SegmentationConfig, SegmentWireFormat
from shardwire.segmentation import segment

SEND = "5e" * 16
OTHER = "ca" * 16
RAW = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=False)
DRAFT = SegmentationConfig(wire_format="draft", enable_reed_solomon=False)
REAL = random.Random(1).randbytes(3_000)
FORGED = random.Random(2).randbytes(3_000)


def config_of(segmentation: SegmentationConfig) -> ChannelConfig:
    return ChannelConfig.logos(segmentation=segmentation)


class Forger(Stranger):
    """Sends segments in the name of others."""

    async def send_all(
        self, sender: str, payload: bytes, *ordinals: int, segmentation: SegmentationConfig = RAW
    ) -> None:
        contents = segment(payload, segmentation)
        for ordinal in ordinals or range(len(contents)):
            await self.send(sender, f"{SEND}.{ordinal}", contents[ordinal])


async def look(world: World, segmentation: SegmentationConfig, restarts: bool) -> None:
    """Bob's application begins to listen: in this life, or in the one after a crash."""
    if restarts:
        await world.crash("bob")
        await world.join("bob", config_of(segmentation), on_disk=True)
    else:
        world.listen("bob", world.channels["bob"])
    await asyncio.sleep(60)


def received(world: World) -> list[bytes]:
    return [event.message for event in world.received["bob"]]


def test_rivals_of_a_message_that_was_given_up_may_come_again() -> None:
    limits = ReassemblyLimits(timeout_ms=10_000)

    async def scenario(world: World) -> None:
        await world.join("bob", config_of(replace(RAW, limits=limits)))
        stranger = Forger(world)
        await stranger.send_all("mallory", FORGED)
        await stranger.send_all("alice", REAL, 0, 1)
        await asyncio.sleep(30)
        await stranger.send_all("alice", REAL)

    assert received(run_world(scenario)) == [FORGED, REAL]


@pytest.mark.parametrize("forged", [b"forged", FORGED], ids=["small", "large"])
@pytest.mark.parametrize("restarts", [False, True])
def test_of_two_messages_under_one_send_both_are_delivered_and_nothing_stays(forged: bytes, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", config_of(RAW), on_disk=True, listen=False)
        stranger = Forger(world)
        await stranger.send_all("alice", forged)
        await stranger.send_all("alice", REAL)
        await look(world, RAW, restarts)

    world = run_world(scenario)
    assert received(world) == [forged, REAL]
    assert [world.disks["bob"].of_kind(kind) for kind in (SEGMENT, PAYLOAD, PARTS)] == [[], [], []]
    assert not [name for kind, name in world.disks["bob"].records if kind == MESSAGE and b"\0" in name]


@pytest.mark.parametrize("restarts", [False, True])
def test_two_messages_without_segments_under_one_send_are_kept_apart(restarts: bool) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", config_of(DRAFT), on_disk=True, listen=False)
        stranger = Forger(world)
        await stranger.send("alice", f"{SEND}.1", b"forged")
        await stranger.send("alice", f"{SEND}.0", REAL)
        await look(world, DRAFT, restarts)

    world = run_world(scenario)
    assert received(world) == [b"forged", REAL]
    assert [world.disks["bob"].of_kind(kind) for kind in (PAYLOAD, PARTS)] == [[], []]


@pytest.mark.parametrize("segmentation", [RAW, DRAFT], ids=["raw", "draft"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_that_waits_is_not_replaced_by_another_one(segmentation: SegmentationConfig, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", config_of(segmentation), on_disk=True)
        stranger = Forger(world)
        contents = [payload if segmentation is DRAFT else segment(payload, RAW)[0] for payload in (b"real", b"forged")]
        await stranger.send("alice", f"{SEND}.0", contents[0], f"{OTHER}.0")
        await stranger.send("alice", f"{SEND}.1", contents[1])
        if restarts:
            await world.crash("bob")
            await world.join("bob", config_of(segmentation), on_disk=True)
        await asyncio.sleep(3_000)
        assert world.channels["bob"].stats()["messages_waiting_for_causes"] == 0

    world = run_world(scenario)
    assert sorted(received(world)) == [b"forged", b"real"]
    assert [world.disks["bob"].of_kind(kind) for kind in (PAYLOAD, PARTS)] == [[], []]


def test_a_second_message_under_a_send_waits_for_what_it_follows_also_over_a_restart() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", config_of(DRAFT), on_disk=True, listen=False)
        stranger = Forger(world)
        await stranger.send("alice", f"{SEND}.1", b"forged")
        await stranger.send("alice", f"{SEND}.0", REAL, f"{OTHER}.0")
        await world.crash("bob")
        await world.join("bob", config_of(DRAFT), on_disk=True)
        await stranger.send("carol", f"{OTHER}.0", b"before")
        await asyncio.sleep(60)

    world = run_world(scenario)
    assert received(world) == [b"forged", b"before", REAL]
    assert [world.disks["bob"].of_kind(kind) for kind in (PAYLOAD, PARTS)] == [[], []]


def test_a_message_in_one_segment_that_comes_again_as_another_of_its_id_was_given_up_is_delivered_once() -> None:
    limits = ReassemblyLimits(timeout_ms=10_000)

    async def scenario(world: World) -> None:
        await world.join("bob", config_of(replace(RAW, limits=limits)))
        stranger = Forger(world)
        await stranger.send_all("alice", FORGED, 0)
        for _ in range(2):
            await stranger.send_all("alice", b"real")
            # The forged one expires.
            await asyncio.sleep(30)
        await stranger.send_all("alice", b"real")

    assert received(run_world(scenario)) == [b"real"]


@pytest.mark.parametrize("wire_format", ["raw", "draft"])
def test_a_message_whose_id_one_that_was_given_up_has_is_delivered_once(wire_format: SegmentWireFormat) -> None:
    segmentation = replace(RAW, wire_format=wire_format, limits=ReassemblyLimits(timeout_ms=10_000))

    async def scenario(world: World) -> None:
        await world.join("bob", config_of(segmentation))
        stranger = Forger(world)
        await stranger.send_all("alice", FORGED, 0, segmentation=segmentation)
        await asyncio.sleep(30)
        for _ in range(3):
            await stranger.send_all("alice", b"real", segmentation=segmentation)

    assert received(run_world(scenario)) == [b"real"]


def test_a_message_that_came_while_another_of_its_id_was_open_is_delivered_once() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", config_of(RAW))
        stranger = Forger(world)
        await stranger.send_all("alice", FORGED, 0)
        for _ in range(3):
            await stranger.send_all("alice", b"real")

    assert received(run_world(scenario)) == [b"real"]


def test_a_message_that_is_whole_takes_no_segment_of_another_with_it() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", config_of(RAW), on_disk=True)
        stranger = Forger(world)
        await stranger.send_all("alice", REAL, 1, 2)
        await stranger.send_all("alice", b"forged")
        await world.crash("bob")
        await world.join("bob", config_of(RAW), on_disk=True)
        await stranger.send_all("alice", REAL, 0)
        await asyncio.sleep(10)

    world = run_world(scenario)
    assert received(world) == [b"forged", REAL]
    assert [world.disks["bob"].of_kind(kind) for kind in (SEGMENT, PAYLOAD, PARTS)] == [[], [], []]

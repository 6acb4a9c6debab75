"""Two large messages under one sender and send, of which one is forged: what is stored of each, and of its segments."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from channel_stranger import Stranger
from channel_world import World, run_world
from stored_kinds import MESSAGE, PARTS, PAYLOAD, SEGMENT

from shardwire.channel import ReliableChannel
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.errors import PersistenceError
from shardwire.segmentation import segment

SEND = "5e" * 16
OTHER = "ca" * 16
SEGMENTATION = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=True, parity_rate=1.0)
CONFIG = ChannelConfig.logos(segmentation=SEGMENTATION)
WITHOUT_REPAIR = replace(CONFIG, sds=replace(CONFIG.sds, enable_repair=False))
DRAFT = ChannelConfig.logos(segmentation=SegmentationConfig(wire_format="draft"))
# Three data segments, and two.
REAL = random.Random(1).randbytes(3_000)
FORGED = random.Random(2).randbytes(2_000)
REALS, FORGEDS = segment(REAL, SEGMENTATION), segment(FORGED, SEGMENTATION)


class Forger(Stranger):
    """Sends bob segments in alice's name."""

    async def send_part(self, contents: list[bytes], place: int, *follows: str, ordinal: int | None = None) -> None:
        """One of these contents, under the id of its own place or of another one."""
        await self.send("alice", f"{SEND}.{place if ordinal is None else ordinal}", contents[place], *follows)


def false(content: bytes) -> bytes:
    """The same header around other bytes."""
    return content[:300] + bytes(byte ^ 0xFF for byte in content[300:400]) + content[400:]


async def begin_again(world: World, *, listen: bool = True, config: ChannelConfig = CONFIG) -> ReliableChannel:
    await world.crash("bob")
    return await world.join("bob", config, on_disk=True, listen=listen)


def assert_nothing_stored(world: World) -> None:
    assert [world.disks["bob"].of_kind(kind) for kind in (SEGMENT, PAYLOAD, PARTS)] == [[], [], []]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_here_of_one_stays_when_the_other_is_whole(restarts: bool) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", CONFIG, on_disk=True)
        stranger = Forger(world)
        await stranger.send_part(REALS, 0)
        for place in (0, 1):
            await stranger.send_part(FORGEDS, place, ordinal=place + 1)
        assert world.messages("bob") == [FORGED]
        if restarts:
            await begin_again(world)
        for place in (3, 4):
            await stranger.send_part(REALS, place)
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert world.messages("bob") == [FORGED, REAL]
    assert_nothing_stored(world)


def waiting_bytes(world: World) -> int:
    return world.channels["bob"]._session.engine.stats()["messages_waiting_for_causes_bytes"]


def test_one_that_waits_for_what_it_follows_is_not_replaced_by_the_other() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", CONFIG, on_disk=True)
        stranger = Forger(world)
        for place in (0, 1):
            await stranger.send_part(FORGEDS, place, f"{OTHER}.0")
        assert (world.messages("bob"), waiting_bytes(world)) == ([], len(FORGED))
        for place in (3, 4, 5):
            await stranger.send_part(REALS, place)
        await stranger.send("carol", f"{OTHER}.0", segment(b"before", SEGMENTATION)[0])
        await asyncio.sleep(1)
        # What is counted as waiting is what waits: else bob would take nothing more in the end.
        assert waiting_bytes(world) == 0

    world = run_world(scenario)
    assert sorted(world.messages("bob")) == sorted([FORGED, REAL, b"before"])
    assert_nothing_stored(world)


def test_one_that_waits_for_what_it_follows_is_released_in_the_next_life_though_the_other_has_its_name() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", CONFIG, on_disk=True, listen=False)
        stranger = Forger(world)
        for place in (0, 1):
            await stranger.send_part(FORGEDS, place)
        for place in (3, 4, 5):
            await stranger.send_part(REALS, place, f"{OTHER}.0")
        await begin_again(world)
        assert waiting_bytes(world) == len(REAL)
        await stranger.send("carol", f"{OTHER}.0", segment(b"before", SEGMENTATION)[0])
        await asyncio.sleep(1)
        assert waiting_bytes(world) == 0

    world = run_world(scenario)
    assert world.messages("bob") == [FORGED, b"before", REAL]
    assert_nothing_stored(world)


@pytest.mark.parametrize("places", [(0, -1, 1, 2), (-1, 0, 1, 2), (-1, 1, 2, 3, 4)], ids=["after", "before", "alone"])
def test_a_whole_message_is_stored_without_the_false_segment_that_was_among_its_own(places: tuple[int, ...]) -> None:
    """`-1` stands for a false one in the first place: its bytes are in no message that waits for its delivery."""

    async def scenario(world: World) -> None:
        await world.join("bob", CONFIG, on_disk=True, listen=False)
        stranger = Forger(world)
        for place in places:
            if place < 0:
                await stranger.send("alice", f"{SEND}.9", false(REALS[0]))
            else:
                await stranger.send_part(REALS, place)
        [_] = world.disks["bob"].of_kind(PARTS)
        await begin_again(world)
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert world.messages("bob") == [REAL]
    assert_nothing_stored(world)


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_names_a_message_keeps_it_in_every_life(is_whole: bool) -> None:
    """Without repair nothing else does."""

    async def scenario(world: World) -> None:
        await world.join("bob", WITHOUT_REPAIR, on_disk=True, listen=False)
        stranger = Forger(world)
        for place in range(2 + is_whole):
            await stranger.send_part(REALS, place)
        for _ in range(2):
            await begin_again(world, listen=False, config=WITHOUT_REPAIR)
            await asyncio.sleep(1)
        assert len(world.disks["bob"].of_kind(MESSAGE)) == 2 + is_whole
        await begin_again(world, config=WITHOUT_REPAIR)
        if not is_whole:
            await stranger.send_part(REALS, 2)
        await asyncio.sleep(1)
        assert world.disks["bob"].of_kind(MESSAGE) == []

    world = run_world(scenario)
    assert world.messages("bob") == [REAL]
    assert_nothing_stored(world)


def test_a_message_that_comes_again_while_it_waits_for_its_delivery_is_delivered_once() -> None:
    """After so many others that nothing remembers it but what waits."""
    config = replace(DRAFT, sds=replace(DRAFT.sds, missing_messages_max=5))

    async def scenario(world: World) -> None:
        bob = await world.join("bob", config, on_disk=True, listen=False)
        stranger = Forger(world)
        for content in (b"first", b"rival"):
            await stranger.send("alice", f"{SEND}.0", content)
        for number in range(20):
            for content in (b"one", b"other"):
                await stranger.send("alice", f"{number:032x}.0", content)
        await stranger.send("alice", f"{SEND}.0", b"rival")
        world.listen("bob", bob)
        await asyncio.sleep(1)

    messages = run_world(scenario).messages("bob")
    assert (messages.count(b"first"), messages.count(b"rival")) == (1, 1)


@pytest.mark.parametrize("kind", [MESSAGE, PARTS])
def test_a_whole_message_of_which_a_byte_changed_is_damage(kind: str) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", CONFIG, on_disk=True, listen=False)
        stranger = Forger(world)
        for place in (1, 2, 3):
            await stranger.send_part(REALS, place)
        await world.crash("bob")
        records = world.disks["bob"].records
        name = next(name for name, value in records.items() if name[0] == kind and len(value) > 1_000)
        records[name] = false(records[name][::-1])[::-1]
        with pytest.raises(PersistenceError, match="restore the database from a copy"):
            await world.join("bob", CONFIG, on_disk=True)

    run_world(scenario)


@pytest.mark.parametrize("kind", [SEGMENT, PARTS])
def test_what_a_newer_release_stored_of_a_message_is_not_read(kind: str) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", CONFIG, on_disk=True, listen=False)
        stranger = Forger(world)
        for place in range(3 if kind == PARTS else 2):
            await stranger.send_part(REALS, place)
        await world.crash("bob")
        records = world.disks["bob"].records
        for name, value in list(records.items()):
            if name[0] == kind:
                records[name] = bytes([value[0] + 1]) + value[1:]
        with pytest.raises(PersistenceError, match="this release reads version"):
            await world.join("bob", CONFIG, on_disk=True)

    run_world(scenario)

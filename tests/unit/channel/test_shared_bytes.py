"""Every byte is stored once, and after a restart everything that names it has it back."""

from __future__ import annotations

import asyncio
import random

import pytest
from channel_world import Disk, World, run_world
from stored_kinds import CONTENT, DELIVERY, FRAME, MESSAGE, PARTS, PAYLOAD, SEGMENT, SEND

from shardwire.channel import ReliableChannel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig
from shardwire.errors import PersistenceError
from shardwire.events import MessageReceivedEvent
from shardwire.node import NetworkConditions

LARGE = random.Random(11).randbytes(1_000_000)


def stored_bytes(disk: Disk, *kinds: str) -> int:
    return sum(len(value) for (kind, _), value in disk.records.items() if not kinds or kind in kinds)


def originals(channel: ReliableChannel) -> tuple[set[str], int]:
    """Message ids of what is kept to repair others with, and how many bytes."""
    machine = channel._session.engine.machine
    return set(machine.inspect()["originals"]), machine.stats()["original_bytes"]


@pytest.mark.parametrize(
    ("config", "at_alice", "at_bob"),
    [
        (ChannelConfig.logos(repair="arq"), 1.05, 1.05),
        # A receiver keeps the parity that came, one segment of ten for each that was lost.
        (ChannelConfig.logos(), 1.05, 1.25),
        # Each message carries a filter of 18 KB.
        (ChannelConfig.waku(), 1.5, 1.5),
    ],
    ids=["arq", "parity", "waku"],
)
def test_a_message_is_stored_once_on_either_side_at_any_time(
    config: ChannelConfig, at_alice: float, at_bob: float
) -> None:
    most: dict[str, int] = {}

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config, on_disk=True)
        await world.join("bob", config, on_disk=True, listen=False)
        world.network.conditions = NetworkConditions(delay_ms=(1, 400), loss=0.1)
        await alice.send(LARGE)
        while not world.disks["bob"].of_kind(DELIVERY):
            await asyncio.sleep(0.1)
            for name, disk in world.disks.items():
                most[name] = max(most.get(name, 0), stored_bytes(disk))
        # Nobody listens at bob: the whole message waits, and nothing of its segments beside it.
        bob = world.disks["bob"]
        assert len(bob.of_kind(DELIVERY)) == 1
        assert bob.of_kind(SEGMENT) == []

    run_world(scenario)
    assert len(LARGE) < most["alice"] < at_alice * len(LARGE)
    assert len(LARGE) < most["bob"] < at_bob * len(LARGE)


def test_parity_that_was_made_on_demand_is_not_stored_at_its_sender() -> None:
    config = ChannelConfig.logos(repair="parity")
    most = 0

    async def scenario(world: World) -> None:
        nonlocal most
        world.network.store_online = False
        alice = await world.join("alice", config, on_disk=True)
        await world.join("bob", config)
        world.lose("alice", "bob", {1, 4, 8})
        request_id = await alice.send(LARGE)
        while not world.messages("bob"):
            await asyncio.sleep(0.1)
            most = max(most, stored_bytes(world.disks["alice"]))
        await alice.delivered(request_id, timeout_ms=60_000)
        assert alice.stats()["parity_on_demand"] == 3
        # A restart neither needs it nor counts it as lost.
        await world.crash("alice")
        alice = await world.join("alice", config, on_disk=True)
        assert alice.stats()["records_unreadable"] == 0
        most = max(most, stored_bytes(world.disks["alice"]))

    assert run_world(scenario).messages("bob") == [LARGE]
    assert len(LARGE) < most < 1.02 * len(LARGE)


def test_a_whole_message_that_waits_is_put_together_again_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", on_disk=True, listen=False)
        for payload in (LARGE, LARGE[:600], b"small"):
            await alice.send(payload)
        await asyncio.sleep(10)
        await world.crash("bob")
        disk = world.disks["bob"]
        # Below a few hundred bytes a message is stored as it is.
        assert (len(disk.of_kind(PARTS)), disk.of_kind(PAYLOAD)) == (2, [b"small"])
        await world.join("bob", on_disk=True)
        await asyncio.sleep(10)
        assert disk.of_kind(PARTS) == disk.of_kind(PAYLOAD) == disk.of_kind(DELIVERY) == []

    assert run_world(scenario).messages("bob") == [LARGE, LARGE[:600], b"small"]


def test_what_parity_recovered_is_stored_beside_the_names_of_the_rest() -> None:
    """However a message came to be whole, a receiver stores it about once."""
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config, on_disk=True, listen=False)
        # No store is asked any more for what passed by.
        await asyncio.sleep(1)
        world.lose("alice", "bob", {3})
        await alice.send(LARGE)
        await asyncio.sleep(10)
        disk = world.disks["bob"]
        assert disk.of_kind(PAYLOAD) == []
        [parts] = disk.of_kind(PARTS)
        segment_bytes = alice.config.segmentation.segment_size_bytes
        assert segment_bytes < len(parts) < segment_bytes + 2_000
        # Besides, one parity segment came in the place of the one that was lost.
        assert stored_bytes(disk) < 1.05 * len(LARGE) + 2 * segment_bytes
        await world.crash("bob")
        await world.join("bob", config, on_disk=True)
        await asyncio.sleep(10)

    assert run_world(scenario).messages("bob") == [LARGE]


def test_a_sender_answers_for_what_it_sent_before_a_restart_with_the_same_bytes() -> None:
    """Who was away, with no store in reach, has it from the sender's own records."""

    async def scenario(world: World) -> None:
        world.network.store_online = False
        # The later contents wait for the next epoch, so they are stored before they are encoded.
        limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=8, counts="segment")
        config = ChannelConfig.logos(rate_limit=limit)
        alice = await world.join("alice", config, on_disk=True)
        await world.join("bob")
        await world.join("carol")
        await alice.send(b"before")
        await asyncio.sleep(5)
        world.nodes["carol"].go_offline()
        request_id = await alice.send(LARGE)
        await alice.delivered(request_id, timeout_ms=200_000)
        await asyncio.sleep(1)
        disk = world.disks["alice"]
        # Around contents: headers, and one filter of 18 KB.
        assert 3 <= len(disk.of_kind(FRAME)) < 10
        assert stored_bytes(disk, FRAME) < 25_000
        assert stored_bytes(disk) < 1.05 * len(LARGE)
        before = originals(alice)
        await world.crash("alice")
        await world.nodes.pop("bob").stop()
        alice = await world.join("alice", config, on_disk=True)
        assert originals(alice) == before
        world.nodes["carol"].go_online()
        await alice.send(b"after")
        await asyncio.sleep(900)

    assert run_world(scenario).messages("carol") == [b"before", LARGE, b"after"]


def test_received_messages_stay_while_named_and_go_when_nothing_names_them() -> None:
    """Without repair SDS keeps no message: what is stored serves the partial message alone."""
    config = ChannelConfig.logos(sds=SdsConfig(enable_repair=False))

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        await world.join("bob", config, on_disk=True)
        world.lose("alice", "bob", {4})
        await alice.send(LARGE)
        await asyncio.sleep(0.5)
        disk = world.disks["bob"]
        assert len(disk.of_kind(MESSAGE)) == len(disk.of_kind(SEGMENT)) == 9
        await world.crash("bob")
        world.nodes["alice"].send_fault = None
        await world.join("bob", config, on_disk=True)
        await asyncio.sleep(60)
        assert disk.of_kind(MESSAGE) == disk.of_kind(SEGMENT) == disk.of_kind(PARTS) == []

    assert run_world(scenario).messages("bob") == [LARGE]


def test_what_was_sent_and_not_acknowledged_survives_two_restarts() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        await world.node("bob")
        await alice.send(LARGE)
        for _ in range(2):
            await asyncio.sleep(2)
            await world.crash("alice")
            await world.join("alice", on_disk=True)
        world.network.store_online = False
        await world.join("bob")
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [LARGE]


def test_settled_sends_leave_no_content_behind_without_repair() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(enable_repair=False))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config, on_disk=True)
        await world.join("bob", config)
        await alice.delivered(await alice.send(LARGE))
        await asyncio.sleep(5)
        disk = world.disks["alice"]
        assert disk.of_kind(CONTENT) == disk.of_kind(FRAME) == disk.of_kind(MESSAGE) == []
        assert len(disk.of_kind(SEND)) == 1

    run_world(scenario)


@pytest.mark.parametrize("kind", [MESSAGE, PARTS])
def test_a_message_without_its_bytes_is_damage(kind: str) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", on_disk=True, listen=False)
        await alice.send(LARGE)
        await asyncio.sleep(10)
        await world.crash("bob")
        records = world.disks["bob"].records
        del records[next(name for name in records if name[0] == kind)]
        with pytest.raises(PersistenceError, match="restore the database from a copy"):
            await world.join("bob", on_disk=True)

    run_world(scenario)


def test_at_most_once_never_writes_the_parts_of_what_is_handed_over_at_once() -> None:
    config = ChannelConfig.logos(redelivery="at-most-once")
    handed_over: list[MessageReceivedEvent] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", config, on_disk=True, listen=False)
        bob.on_message_received(handed_over.append)
        await alice.send(LARGE)
        await asyncio.sleep(10)
        assert world.disks["bob"].of_kind(PARTS) == []

    run_world(scenario)
    assert [event.message for event in handed_over] == [LARGE]

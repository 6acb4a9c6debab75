"""The power fails after every single commit of a conversation, at either side; then everything goes on.

SIGKILL cannot test a power cut, since what was written survives in the page cache. Here a life sees exactly one prefix
of its commits, for every prefix there is.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from channel_world import Disk, World, run_world

from shardwire._native import SdsMessage
from shardwire.config import ChannelConfig, Redelivery, Repair, SegmentationConfig
from shardwire.errors import ChannelClosedError, NodeError, PersistenceError
from shardwire.events import MessageReceivedEvent
from shardwire.node import MemoryNetwork, NetworkConditions

PAYLOADS = [random.Random(number).randbytes(6_000 if number % 3 == 1 else 50) for number in range(8)]
LOSSY = NetworkConditions(loss=0.2, duplicate=0.1, delay_ms=(1, 20), reorder=0.2)


@dataclass
class Journal:
    """What the applications saw."""

    returned: list[bytes] = field(default_factory=list)
    # (message, redelivered, life of the receiver)
    handed_over: list[tuple[bytes, bool, int]] = field(default_factory=list)
    finished: list[bytes] = field(default_factory=list)
    lives: dict[str, int] = field(default_factory=dict)
    parity_on_demand: int = 0
    # What left under each id.
    wires: dict[str, set[bytes]] = field(default_factory=dict)


def config(redelivery: Redelivery, repair: Repair) -> ChannelConfig:
    segmentation = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=repair == "arq")
    return ChannelConfig.logos(segmentation=segmentation, redelivery=redelivery, repair=repair)


async def live(world: World, name: str, journal: Journal, chosen: ChannelConfig) -> None:
    journal.lives[name] = life = journal.lives.get(name, 0) + 1
    channel = await world.join(name, chosen, on_disk=True, listen=False)

    async def receive(event: MessageReceivedEvent) -> None:
        if journal.lives[name] != life:
            return
        journal.handed_over.append((event.message, event.redelivered, life))
        await asyncio.sleep(0.005)
        if journal.lives[name] == life:
            journal.finished.append(event.message)

    channel.on_message_received(receive)


async def send_all(world: World, journal: Journal) -> None:
    """Sends each payload until a call returns; an interrupted call may or may not have been durable."""
    for payload in PAYLOADS:
        while payload not in journal.returned:
            channel = world.channels.get("alice")
            try:
                if channel is None:
                    raise ChannelClosedError("between two lives")
                await channel.send(payload)
            except (ChannelClosedError, PersistenceError, NodeError):
                await asyncio.sleep(0.05)
            else:
                journal.returned.append(payload)
        await asyncio.sleep(0.03)


def converse(victim: str, power_fails_after: int | None, chosen: ChannelConfig) -> tuple[Journal, int]:
    """One conversation; gives its journal and the number of the victim's commits."""
    journal = Journal()
    commits: list[int] = []

    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(LOSSY, seed=7, trace_payloads=True)
        disk = world.disks[victim] = Disk()
        disk.power_fails_after = power_fails_after
        joined = asyncio.Event()

        async def fail() -> None:
            await disk.power_failed.wait()
            journal.lives[victim] += 1
            # It may have failed while the channel was being made.
            await joined.wait()
            await world.crash(victim)
            await asyncio.sleep(0.5)
            await live(world, victim, journal, chosen)

        failure = asyncio.create_task(fail())
        for name in ("alice", "bob"):
            await live(world, name, journal, chosen)
        joined.set()
        await send_all(world, journal)
        world.network.conditions = NetworkConditions()
        await asyncio.sleep(120)
        commits.append(disk.commits)
        failure.cancel()

    world = run_world(scenario)
    parity = sum(channel.stats().get("parity_on_demand", 0) for channel in world.channels.values())
    journal.parity_on_demand += parity
    for record in world.network.trace:
        assert record.payload is not None
        message = SdsMessage.decode(record.payload, "spec")
        if message is not None and message.content:
            journal.wires.setdefault(message.message_id, set()).add(record.payload)
    return journal, commits[0]


def check(journal: Journal, redelivery: Redelivery) -> None:
    assert journal.returned == PAYLOADS
    assert all(len(wires) == 1 for wires in journal.wires.values()), "an id has two messages"
    seen: set[bytes] = set()
    last_of_life: dict[int, bytes] = {}
    for message, redelivered, life in journal.handed_over:
        first_of_life = life not in last_of_life
        if message in seen:
            assert redelivered, "a repeated message is not flagged"
        if redelivered:
            assert redelivery == "at-least-once"
            assert first_of_life, "only the event in progress comes again, before any other"
        seen.add(message)
        last_of_life[life] = message
    lost = set(PAYLOADS) - seen
    if redelivery == "at-least-once":
        assert not lost
        assert set(journal.finished) == set(PAYLOADS)
    else:
        assert len(lost) <= 1


@pytest.mark.parametrize("redelivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("victim", ["alice", "bob"])
@pytest.mark.parametrize("repair", ["arq", "parity"])
def test_power_fails_after_each_commit(repair: Repair, victim: str, redelivery: Redelivery) -> None:
    chosen = config(redelivery, repair)
    journal, commits = converse(victim, None, chosen)
    check(journal, redelivery)
    assert commits > 20
    assert (journal.parity_on_demand > 0) == (repair == "parity")
    for power_fails_after in range(1, commits + 1):
        journal, _ = converse(victim, power_fails_after, chosen)
        try:
            check(journal, redelivery)
        except AssertionError as error:
            raise AssertionError(f"power failed after commit {power_fails_after} of {victim}: {error}") from error

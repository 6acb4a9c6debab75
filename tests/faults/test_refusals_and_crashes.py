"""A sender whose node refuses, whose power fails and whose network loses, in any order: what was promised is kept."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from channel_world import Disk, World, run_world

from shardwire.config import ChannelConfig, Repair, SegmentationConfig
from shardwire.errors import ChannelClosedError, NodeError, PersistenceError
from shardwire.events import MessageDeliveredEvent, MessageSendErrorEvent, MessageSentEvent
from shardwire.node import MessageEnvelope, NetworkConditions

SEEDS = range(40)
RECEIVERS = ("bob", "carol")
LOSSY = NetworkConditions(loss=0.15, duplicate=0.05, delay_ms=(1, 40), reorder=0.1)
SEGMENT_BYTES = 256


@dataclass
class Life:
    """What happens to alice, drawn from a seed."""

    rng: random.Random
    repair: Repair
    returned: dict[str, bytes] = field(default_factory=dict)
    interrupted: list[bytes] = field(default_factory=list)
    refuses: float = 0.0
    crashes: int = 0

    def config(self) -> ChannelConfig:
        parity = self.rng.choice((None, 0.25, 0.5))
        segmentation = SegmentationConfig(
            segment_size_bytes=SEGMENT_BYTES, enable_reed_solomon=parity is not None, parity_rate=parity or 0.0
        )
        return ChannelConfig.logos(
            segmentation=segmentation,
            repair=self.repair,
            delivered_when=frozenset(RECEIVERS),
            redelivery="at-most-once",
        )

    def refuse(self, envelope: MessageEnvelope) -> NodeError | None:
        return NodeError("busy") if self.rng.random() < self.refuses else None

    async def begin(self, world: World, config: ChannelConfig) -> None:
        disk = world.disks.setdefault("alice", Disk())
        disk.power_fails_after, disk.power_failed = None, asyncio.Event()
        await world.join("alice", config, on_disk=True)
        world.nodes["alice"].send_fault = self.refuse

    async def crash_and_begin_again(self, world: World, config: ChannelConfig) -> None:
        self.crashes += 1
        await world.crash("alice")
        await asyncio.sleep(self.rng.choice((0.0, 0.3, 15.0)))
        await self.begin(world, config)

    async def send(self, world: World) -> None:
        payload = self.rng.randbytes(self.rng.choice((40, 1_000, 4_000, 9_000, 20_000)))
        try:
            self.returned[await world.channels["alice"].send(payload)] = payload
        except (ChannelClosedError, PersistenceError):
            self.interrupted.append(payload)

    async def live(self, world: World) -> None:
        """Twelve messages, and whatever else happens meanwhile."""
        rng = self.rng
        config = self.config()
        for name in RECEIVERS:
            await world.join(name, ChannelConfig.logos(repair=self.repair))
        await self.begin(world, config)
        for _ in range(12):
            disk = world.disks["alice"]
            self.refuses = rng.choice((0.0, 0.0, 0.3, 1.0))
            world.network.store_online = rng.random() < 0.7
            happening = rng.choice(("nothing", "nothing", "crash now", "power fails", "stops"))
            if happening == "power fails":
                disk.power_fails_after = disk.commits + rng.randrange(1, 12)
            await self.send(world)
            await asyncio.sleep(rng.choice((0.0, 0.02, 0.5, 3.0, 20.0)))
            if happening == "power fails":
                await asyncio.wait([asyncio.ensure_future(disk.power_failed.wait())], timeout=30)
            if happening in ("power fails", "crash now"):
                await self.crash_and_begin_again(world, config)
            elif happening == "stops":
                await world.channels["alice"].stop()
                await asyncio.sleep(rng.choice((0.0, 5.0)))
                await world.channels["alice"].start()
        self.refuses, world.network.store_online, world.network.conditions = 0.0, True, NetworkConditions()
        await asyncio.sleep(900)
        assert world.channels["alice"].pending() == ()


@pytest.mark.parametrize("repair", ["arq", "parity"])
def test_each_message_that_was_taken_arrives_once_everywhere_or_fails_by_name(repair: Repair) -> None:
    crashes = delivered = 0
    for seed in SEEDS:
        life = Life(random.Random(f"{seed} {repair}"), repair)
        world = run_world(life.live, LOSSY, seed=seed)
        try:
            check(world, life)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        crashes += life.crashes
        delivered += len(world.of("alice", MessageDeliveredEvent))
    assert crashes > len(SEEDS)
    assert delivered > 10 * len(SEEDS)


def check(world: World, life: Life) -> None:
    told = {
        kind: {event.request_id for event in world.of("alice", kind)}
        for kind in (MessageSentEvent, MessageDeliveredEvent, MessageSendErrorEvent)
    }
    failed = told[MessageSendErrorEvent]
    for request_id, payload in life.returned.items():
        # Whoever has what was given up may say so later.
        assert request_id in failed | told[MessageDeliveredEvent], "no outcome was told"
        assert request_id in failed or request_id in told[MessageSentEvent], "delivered and never sent"
        for name in RECEIVERS:
            count = world.messages(name).count(payload)
            assert count == 1 or (count == 0 and request_id in failed), f"{name} has it {count} times"
    known = {*life.returned.values(), *life.interrupted}
    for name in RECEIVERS:
        received = world.messages(name)
        assert len(received) == len(set(received)), f"{name} has something twice"
        assert set(received) <= known

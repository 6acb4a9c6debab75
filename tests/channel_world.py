"""A small world for channels: a network in virtual time and channels on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.encryption.protocol import Encryption
from shardwire.errors import PersistenceError
from shardwire.events import ChannelEvent, MessageReceivedEvent
from shardwire.node import MemoryNetwork, MemoryNode, MessageEnvelope, NetworkConditions, NodeConfig, run_virtual
from shardwire.node.clock import Clock
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Changes, ChannelState, RecordName

TOPIC = "/shardwire/1/test/proto"
CHANNEL = "channel"


class Disk:
    """What survives a crash. Each mount is a `Persistence` until its power is cut; then it stores nothing more."""

    def __init__(self) -> None:
        self.records: dict[RecordName, bytes] = {}
        self.fails_with: PersistenceError | None = None
        self.commits = 0
        # The power fails right after this many commits; `power_failed` is set then.
        self.power_fails_after: int | None = None
        self.power_failed = asyncio.Event()

    def mount(self) -> Mount:
        return Mount(self)

    def of_kind(self, kind: str) -> list[bytes]:
        return [value for (name, _), value in sorted(self.records.items()) if name == kind]


class Mount:
    """A disk as one life of a process sees it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._is_on = True

    def cut_power(self) -> None:
        self._is_on = False

    def load(self, channel_id: str) -> ChannelState | None:
        return ChannelState(dict(self._disk.records)) if self._disk.records else None

    def commit(self, channel_id: str, changes: Changes) -> None:
        if not self._is_on:
            raise PersistenceError("the power is cut")
        if self._disk.fails_with is not None:
            raise self._disk.fails_with
        self._disk.commits += 1
        for name, value in changes.records.items():
            if value is None:
                self._disk.records.pop(name, None)
            else:
                self._disk.records[name] = value
        if self._disk.commits == self._disk.power_fails_after:
            self.cut_power()
            self._disk.power_failed.set()

    def close(self) -> None:
        """Nothing to release."""


class World:
    """A memory network, and the channels made on it, which are closed at the end."""

    def __init__(self, conditions: NetworkConditions | None = None, seed: int = 7) -> None:
        self.network = MemoryNetwork(conditions or NetworkConditions(), seed=seed)
        self.nodes: dict[str, MemoryNode] = {}
        self.channels: dict[str, ReliableChannel] = {}
        self.received: dict[str, list[MessageReceivedEvent]] = {}
        self.events: dict[str, list[ChannelEvent]] = {}
        self.disks: dict[str, Disk] = {}
        self._mounts: dict[str, Mount] = {}
        self._lives = 0
        self._seed = seed

    async def node(self, name: str, config: NodeConfig | None = None) -> MemoryNode:
        if name not in self.nodes:
            self.nodes[name] = self.network.create_node(name, config or NodeConfig())
            await self.nodes[name].start()
        return self.nodes[name]

    async def join(
        self,
        name: str,
        config: ChannelConfig | None = None,
        *,
        encryption: Encryption | None = None,
        node: str | None = None,
        channel_id: str = CHANNEL,
        listen: bool = True,
        node_config: NodeConfig | None = None,
        on_disk: bool = False,
        clock: Clock | None = None,
    ) -> ReliableChannel:
        """A channel of `name`, which records its received messages and its events; on its disk where asked to."""
        config = config or ChannelConfig.logos()
        if on_disk:
            self._mounts[name] = self.disks.setdefault(name, Disk()).mount()
            config = replace(config, sds=replace(config.sds, persistence=self._mounts[name]))
        memory_node = await self.node(node or name, node_config)
        self._lives += 1
        rng = random.Random(f"{self._seed} {name} {self._lives}")
        channel = await create_reliable_channel(
            memory_node, channel_id, TOPIC, name, encryption, config, rng=rng, clock=clock
        )
        self.channels[name if channel_id == CHANNEL else f"{name}/{channel_id}"] = channel
        if listen:
            self.listen(name, channel)
        return channel

    def cut_power(self, name: str) -> None:
        """From now on nothing of this life of a channel reaches its disk."""
        self._mounts[name].cut_power()

    async def crash(self, name: str) -> None:
        """Ends the life of a channel on a disk, and of its node, as a power cut does."""
        self.cut_power(name)
        await self.nodes.pop(name).stop()
        await close_channel(self.channels.pop(name))

    def listen(self, name: str, channel: ReliableChannel) -> None:
        received = self.received.setdefault(name, [])
        events = self.events.setdefault(name, [])
        channel.on_message_received(received.append)
        channel.on(ChannelEvent, events.append)

    def messages(self, name: str) -> list[bytes]:
        return [event.message for event in self.received.get(name, [])]

    def of(self, name: str, kind: type[Any]) -> list[Any]:
        return [event for event in self.events.get(name, []) if isinstance(event, kind)]

    def sent_by(self, name: str) -> int:
        return sum(1 for record in self.network.trace if record.sender == name)

    def lose(self, sender: str, receiver: str, positions: set[int]) -> None:
        """Makes `receiver` lose the envelopes that `sender` sends next at these positions, counted from 0."""
        count = 0

        def choose(envelope: MessageEnvelope) -> None:
            nonlocal count
            self.nodes[receiver].conditions = NetworkConditions(loss=1.0) if count in positions else None
            count += 1

        self.nodes[sender].send_fault = choose

    async def close(self) -> None:
        for channel in self.channels.values():
            await close_channel(channel)
        for node in self.nodes.values():
            await node.stop()


def run_world(
    scenario: Callable[[World], Awaitable[None]],
    conditions: NetworkConditions | None = None,
    *,
    seed: int = 7,
    limit_ms: int = 3_600_000,
    commit_ms: int = 0,
) -> World:
    """Runs a scenario in virtual time and gives its world back for inspection; commits to a disk take `commit_ms`."""

    async def main() -> World:
        world = World(conditions, seed)
        try:
            await scenario(world)
        finally:
            await world.close()
        return world

    return run_virtual(main(), limit_ms=limit_ms, executor_delay_ms=lambda: commit_ms)


class Released(MemoryPersistence):
    """Notes whether the channel gave its state free."""

    released = False

    def release(self, channel_id: str) -> None:
        self.released = True


async def join_released(world: World, name: str) -> tuple[Any, Released]:
    persistence = Released()
    config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
    return await world.join(name, config), persistence

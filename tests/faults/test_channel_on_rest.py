"""Channels on Waku nodes that fail: they say so once, recover, lose nothing, deliver nothing twice. In virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from stub_waku_node import StubHttp, StubNetwork, StubNode

from shardwire import ChannelConfig, ReliableChannel, SegmentationConfig, close_channel, create_reliable_channel
from shardwire.config import SdsConfig
from shardwire.node import run_virtual
from shardwire.node.rest.rest_store import StoreSettings
from shardwire.node.rest.transport import RestTransport
from shardwire.node.transport import TransportNode
from shardwire.persistence import MemoryPersistence

TOPIC = "/faults/1/room/proto"
SMALL, LARGE = b"small", bytes(range(256)) * 8_000
LIMIT_MS = 3_600_000


class World:
    """Two participants, each with a node of its own."""

    def __init__(self, dialect: Any = "go-waku", *, light: bool = False) -> None:
        self.network = StubNetwork()
        self.stubs = {
            "alice": StubNode(self.network, dialect),
            "bob": StubNode(self.network, dialect, light=light),
        }
        self.nodes: dict[str, TransportNode] = {}
        self.channels: dict[str, ReliableChannel] = {}
        self.received: dict[str, list[bytes]] = {"alice": [], "bob": []}
        self.sent: dict[str, list[bytes]] = {"alice": [], "bob": []}
        self._requests: list[tuple[str, str]] = []

    async def open(self) -> None:
        for name, stub in self.stubs.items():
            node = self.nodes[name] = TransportNode(RestTransport(name, StubHttp(stub), StoreSettings(), None))
            await node.start()
            config = ChannelConfig.logos(
                segmentation=SegmentationConfig(enable_reed_solomon=True),
                sds=SdsConfig(persistence=MemoryPersistence()),
            )
            channel = self.channels[name] = await create_reliable_channel(node, "room", TOPIC, name, config=config)
            channel.on_message_received(lambda event, name=name: self.received[name].append(event.message))

    async def send(self, sender: str, *messages: bytes) -> None:
        for message in messages:
            self._requests.append((sender, await self.channels[sender].send(message)))
            self.sent[sender].append(message)

    async def settle(self) -> None:
        """Everything is delivered, once."""
        for sender, request_id in self._requests:
            await self.channels[sender].delivered(request_id, timeout_ms=900_000)
        await asyncio.sleep(30)
        assert Counter(self.received["bob"]) == Counter(self.sent["alice"])
        assert Counter(self.received["alice"]) == Counter(self.sent["bob"])

    async def close(self) -> None:
        for channel in self.channels.values():
            await close_channel(channel, drain_timeout_ms=10_000)
        for node in self.nodes.values():
            await node.stop()


def played(make: Callable[[], World], play: Callable[[World], Awaitable[None]], caplog: Any) -> list[str]:
    """Runs a world; what was logged at WARNING and above."""

    async def run() -> None:
        world = make()
        await world.open()
        await play(world)
        await world.settle()
        await world.close()
        assert all(stub.queues == {} for stub in world.stubs.values())

    with caplog.at_level(logging.WARNING):
        run_virtual(run(), limit_ms=LIMIT_MS)
    return [record.getMessage() for record in caplog.records if "stopped" not in record.getMessage()]


@pytest.mark.parametrize("dialect", ["go-waku", "logos-delivery"])
@pytest.mark.parametrize("where", ["alice", "bob"])
@pytest.mark.parametrize("fault", ["refuse", "hang", "error", "drop", "malformed", "endless"])
def test_a_node_that_fails(fault: Any, where: str, dialect: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        await world.send("alice", SMALL, LARGE)
        await asyncio.sleep(0.05)
        world.stubs[where].fault = fault
        await world.send("alice", b"during", LARGE + b"during")
        await world.send("bob", b"from bob")
        await asyncio.sleep(40)
        assert world.nodes[where].connection_state.value == "Disconnected"
        world.stubs[where].fault = None

    told = played(lambda: World(dialect), play, caplog)
    assert sum(f"{where}: disconnected" in line for line in told) == 1
    assert sum(f"{where}: publishing fails" in line for line in told) <= 1


@pytest.mark.parametrize("where", ["alice", "bob"])
@pytest.mark.parametrize("light", [False, True])
def test_a_node_that_is_killed_and_restarted(where: str, light: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        await world.send("alice", LARGE)
        await asyncio.sleep(0.02)
        for _ in range(3):
            world.stubs[where].fault = "refuse"
            world.stubs[where].restart()
            await world.send("alice", LARGE + b"%d" % _)
            await asyncio.sleep(8)
            world.stubs[where].fault = None
            await asyncio.sleep(5)

    told = played(lambda: World(light=light), play, caplog)
    assert sum(f"{where}: disconnected" in line for line in told) == 3


@pytest.mark.parametrize("dialect", ["go-waku", "logos-delivery"])
def test_a_node_that_drops_its_cache(dialect: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        for number in range(20):
            await world.send("alice", LARGE + b"%d" % number)
            await asyncio.sleep(0.01)
            queue = world.stubs["bob"].queues.get(TOPIC)
            if queue is not None:
                # As nwaku does with what is older than its fifty.
                del queue[: len(queue) // 2]
            if number % 5 == 0:
                world.stubs["bob"].restart()

    played(lambda: World(dialect), play, caplog)


@pytest.mark.parametrize("field", ["payload", "timestamp", "meta", "contentTopic"])
def test_a_node_that_lies(field: str, caplog: pytest.LogCaptureFixture) -> None:
    lies: dict[str, Any] = {"payload": "bGllcw==", "timestamp": 5, "meta": "bGllcw==", "contentTopic": "/a/1/b/proto"}

    def lie(said: dict[str, Any]) -> dict[str, Any]:
        message = said.get("message", said)
        if isinstance(message, dict):
            message[field] = lies[field]
        return said

    async def play(world: World) -> None:
        await world.send("alice", SMALL, LARGE)
        world.stubs["bob"].lie = lie
        await world.send("alice", b"during", LARGE + b"during")
        await asyncio.sleep(30)
        world.stubs["bob"].lie = None

    played(World, play, caplog)


def test_a_store_that_lies_about_hashes(caplog: pytest.LogCaptureFixture) -> None:
    def lie(said: dict[str, Any]) -> dict[str, Any]:
        return said | {"message_hash": "A" * 43 + "="} if "message_hash" in said else said

    async def play(world: World) -> None:
        bob = world.stubs["bob"]
        bob.fault = "refuse"
        await world.send("alice", SMALL, LARGE)
        await asyncio.sleep(20)
        bob.fault, bob.lie = None, lie
        await asyncio.sleep(30)
        bob.lie = None

    played(World, play, caplog)


def test_a_node_that_comes_back_in_another_cluster(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        bob = world.stubs["bob"]
        bob.fault = "refuse"
        await world.send("alice", SMALL, LARGE)
        await asyncio.sleep(5)
        bob.fault, bob.cluster_id = None, 9
        bob.restart()
        await asyncio.sleep(60)
        assert world.nodes["bob"].connection_state.value == "Disconnected"
        bob.cluster_id = 1

    told = played(World, play, caplog)
    assert sum("bob: disconnected" in line for line in told) == 1


def test_a_node_that_loses_its_peers(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        for stub in world.stubs.values():
            stub.relay_peers = 0
        await world.send("alice", SMALL, LARGE)
        await asyncio.sleep(100)
        for stub in world.stubs.values():
            stub.relay_peers = 2

    told = played(World, play, caplog)
    for name in ("alice", "bob"):
        assert sum(f"{name}: disconnected" in line for line in told) == 1


def test_an_rln_quota_that_outlasts_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        world.stubs["alice"].publish_answers.extend([(500, "Failed to publish: Nonce limit reached")] * 2)
        await world.send("alice", SMALL, LARGE)

    told = played(World, play, caplog)
    assert sum("nothing is published for" in line for line in told) == 1

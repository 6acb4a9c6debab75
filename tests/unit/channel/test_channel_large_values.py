"""A message of 16 MB that is half there when its sender and its receiver end, well or badly."""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from channel_world import CHANNEL, TOPIC
from state_files import values_files

from shardwire import keccak256
from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.config import ChannelConfig
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual
from shardwire.persistence import SqlitePersistence, read_channels

PAYLOAD = random.Random(16).randbytes(16_000_000)


async def join(
    network: MemoryNetwork, directory: Path, name: str, key: bytes | None
) -> tuple[ReliableChannel, SqlitePersistence]:
    node = network.create_node(name)
    await node.start()
    persistence = SqlitePersistence(directory / f"{name}.db", key=key)
    config = ChannelConfig.logos()
    config = replace(config, sds=replace(config.sds, persistence=persistence))
    return await create_reliable_channel(node, CHANNEL, TOPIC, name, None, config), persistence


def stored_bytes(database: Path, key: bytes | None) -> int:
    [stored] = [stored for stored in read_channels(database, key=key) if stored.channel_id == CHANNEL]
    return sum(kind.size_bytes for kind in stored.kinds.values())


@pytest.mark.parametrize("key", [None, keccak256(b"key")])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_it_is_completed_by_the_next_life(end: str, key: bytes | None, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()

    async def half_of_it() -> None:
        # Every second segment is lost, and nothing comes back.
        network = MemoryNetwork(NetworkConditions(loss=0.5, delay_ms=(1, 5)), seed=1)
        alice, of_alice = await join(network, first, "alice", key)
        bob, of_bob = await join(network, first, "bob", key)
        bob.on_message_received(lambda event: pytest.fail("it was whole in its first life"))
        await alice.send(PAYLOAD)
        await asyncio.sleep(0.1)
        for name in ("alice", "bob"):
            assert values_files(first / f"{name}.db")
            assert stored_bytes(first / f"{name}.db", key) > 6_000_000
        if end == "killed":
            shutil.copytree(first, second)
        for channel, persistence in ((alice, of_alice), (bob, of_bob)):
            await close_channel(channel)
            persistence.close()
        if end == "closed":
            shutil.copytree(first, second)
            assert {file.suffix for file in second.iterdir()} == {".db", ".lock", ".count"}
            assert stored_bytes(second / "bob.db", key) > 6_000_000

    async def rest_of_it() -> bytes:
        network = MemoryNetwork(NetworkConditions(delay_ms=(1, 5)), seed=2)
        bob, of_bob = await join(network, second, "bob", key)
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        bob.on_message_received(lambda event: received.set_result(event.message))
        alice, of_alice = await join(network, second, "alice", key)
        [pending] = alice.pending()
        await alice.delivered(pending.request_id, timeout_ms=600_000)
        message = await received
        assert sum(record.size_bytes for record in network.trace) < 12_000_000
        for channel, persistence in ((alice, of_alice), (bob, of_bob)):
            await close_channel(channel)
            persistence.close()
        return message

    run_virtual(half_of_it(), limit_ms=600_000)
    assert run_virtual(rest_of_it(), limit_ms=3_600_000) == PAYLOAD
    for name in ("alice", "bob"):
        assert values_files(second / f"{name}.db") == []

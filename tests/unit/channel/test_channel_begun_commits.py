"""Commits of a channel to SQLite in real time: most wait for the disk alone, and none is told before it is there."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from channel_world import CHANNEL, TOPIC
from state_files import FailingFile

from shardwire._native import ChangedRecords, Wake
from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.storing.writer import Writer
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import PersistenceError
from shardwire.node import MemoryNetwork, run_virtual
from shardwire.persistence import Changes, ChannelState, SqlitePersistence, read_channels
from shardwire.persistence.held_channel import BegunCommit


class Counted(SqlitePersistence):
    """Counts how it was called."""

    begun = committed = 0
    closes = False

    def begin_commit(self, channel_id: str, changes: ChangedRecords, wake: Wake) -> BegunCommit | None:
        begun = super().begin_commit(channel_id, changes, wake)
        self.begun += begun is not None
        if self.closes and begun is not None:
            # It waits for what is begun.
            self.close()
        return begun


class Watching(Counted):
    def commit(self, channel_id: str, changes: Changes) -> None:
        self.committed += 1
        super().commit(channel_id, changes)


class Wrapped:
    """Another persistence, for all that a channel knows."""

    def __init__(self, inner: SqlitePersistence) -> None:
        self.inner = inner
        self.committed = 0

    def load(self, channel_id: str) -> ChannelState | None:
        return self.inner.load(channel_id)

    def commit(self, channel_id: str, changes: Changes) -> None:
        self.committed += 1
        self.inner.commit(channel_id, changes)

    def release(self, channel_id: str) -> None:
        self.inner.release(channel_id)

    def close(self) -> None:
        self.inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def join(network: MemoryNetwork, name: str, persistence: Any) -> ReliableChannel:
    node = network.create_node(name)
    await node.start()
    config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
    return await create_reliable_channel(node, CHANNEL, TOPIC, name, None, config)


async def converse(alice: Any, bob: Any, messages: int) -> list[bytes]:
    network = MemoryNetwork()
    channels = [await join(network, "alice", alice), await join(network, "bob", bob)]
    received: list[bytes] = []
    done = asyncio.Event()

    def receive(event: Any) -> None:
        received.append(event.message)
        if len(received) == messages:
            done.set()

    channels[1].on_message_received(receive)
    for number in range(messages):
        await channels[0].send(b"%d" % number)
    await asyncio.wait_for(done.wait(), 30)
    for channel in channels:
        await close_channel(channel)
    return received


def test_most_commits_of_a_conversation_take_no_thread(tmp_path: Path) -> None:
    alice, bob = Counted(tmp_path / "alice.db"), Counted(tmp_path / "bob.db")
    received = asyncio.run(converse(alice, bob, 50))
    assert received == [b"%d" % number for number in range(50)]
    assert alice.begun > 50
    assert bob.begun > 10
    alice.close()
    bob.close()
    for name in ("alice", "bob"):
        [stored] = read_channels(tmp_path / f"{name}.db")
        assert stored.lost_commits == 0
        assert stored.kinds["sds.log"].records > 0


@pytest.mark.parametrize("make", [Watching, lambda path: Wrapped(Counted(path))])
def test_a_persistence_of_ones_own_sees_every_commit(make: Callable[[Path], Any], tmp_path: Path) -> None:
    alice, bob = make(tmp_path / "alice.db"), make(tmp_path / "bob.db")
    assert len(asyncio.run(converse(alice, bob, 20))) == 20
    assert alice.begun == bob.begun == 0
    assert alice.committed >= 20
    assert bob.committed > 3
    alice.close()
    bob.close()


def test_virtual_time_has_a_thread_of_its_own(tmp_path: Path) -> None:
    alice, bob = Counted(tmp_path / "alice.db"), Counted(tmp_path / "bob.db")
    assert len(run_virtual(converse(alice, bob, 20), limit_ms=600_000)) == 20
    assert alice.begun == bob.begun == 0
    alice.close()
    bob.close()


def test_a_send_whose_row_failed_is_refused_and_the_next_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        persistence = Counted(tmp_path / "alice.db")
        network = MemoryNetwork()
        channel = await join(network, "alice", persistence)
        for number in range(3):
            await channel.send(b"%d" % number)
        journal = persistence._held[CHANNEL].journal
        file = journal._file
        journal._file = cast(Any, failing := FailingFile(file))
        begun = persistence.begun
        with pytest.raises(PersistenceError, match="the disk reported an error, nothing was stored"):
            await channel.send(b"refused")
        assert persistence.begun == begun + 1
        failing.fails = False
        await channel.send(b"kept")
        assert len(channel.pending()) == 4
        await close_channel(channel)
        persistence.close()
        again = Counted(tmp_path / "alice.db")
        channel = await join(MemoryNetwork(), "alice", again)
        assert len(channel.pending()) == 4
        await close_channel(channel)
        again.close()

    asyncio.run(scenario())


def test_a_send_returns_whoever_else_waited_for_its_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        persistence = Counted(tmp_path / "alice.db")
        channel = await join(MemoryNetwork(), "alice", persistence)
        for number in range(3):
            await channel.send(b"%d" % number)
        persistence.closes = True
        # Where it is not the first commit from now on it is refused.
        await asyncio.wait_for(asyncio.gather(channel.send(b"last"), return_exceptions=True), 10)
        assert persistence.begun > 0
        await close_channel(channel)

    asyncio.run(scenario())
    [stored] = read_channels(tmp_path / "alice.db")
    assert (stored.kinds["channel.send"].records >= 3, stored.lost_commits) == (True, 0)


def test_a_channel_that_is_closed_while_it_commits_leaves_all_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        for life in range(1, 4):
            persistence = Counted(tmp_path / "alice.db")
            channel = await join(MemoryNetwork(), "alice", persistence)
            for _ in range(3):
                await channel.send(b"sent")
            # Somebody else closes what it stores to.
            last = asyncio.create_task(channel.send(b"last"))
            for _ in range(life):
                await asyncio.sleep(0)
            closing = threading.Thread(target=persistence.close)
            closing.start()
            await asyncio.gather(last, return_exceptions=True)
            closing.join()
            await close_channel(channel)
            [stored] = read_channels(tmp_path / "alice.db")
            assert stored.lost_commits == 0
            assert stored.kinds["channel.send"].records >= 3 * life

    asyncio.run(scenario())


def test_a_channel_that_is_closed_is_woken_by_no_commit_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        channel = await join(MemoryNetwork(seed=7), "alice", SqlitePersistence(tmp_path / "state.db"))
        descriptor = cast(Any, channel)._session._writer._begun._wake.fileno()
        await close_channel(channel)
        assert not asyncio.get_running_loop().remove_reader(descriptor)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_closed_channel_that_is_not_collected_yet_leaves_no_descriptor_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    async def main() -> None:
        before = descriptors()
        channel = await join(MemoryNetwork(seed=7), "alice", SqlitePersistence(tmp_path / "state.db"))
        await channel.send_ephemeral(b"sent")
        await close_channel(channel)
        assert descriptors() == before
        assert channel.is_closed()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_writer_whose_event_loop_is_closed_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    writer = Writer(SqlitePersistence(tmp_path / "state.db"), CHANNEL)
    asyncio.run(writer.load())
    released = writer.release_without_loop()
    assert released is not None
    released.result(30)
    assert len(os.listdir("/dev/fd")) <= before

"""A channel whose database is locked, full, corrupt or of an older release: clear errors, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from channel_world import CHANNEL, TOPIC
from stored_kinds import PARTS, PAYLOAD

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import ConfigError, PersistenceError
from shardwire.events import MessageReceivedEvent
from shardwire.node import MemoryNetwork, run_virtual
from shardwire.persistence import Changes, SqlitePersistence, journal, read_channels, schema

LARGE = random.Random(3).randbytes(400_000)

HOLDER = """
import asyncio, sys
from shardwire import ChannelConfig, SdsConfig, SqlitePersistence, create_reliable_channel
from shardwire.node import MemoryNetwork, run_virtual

async def main():
    node = MemoryNetwork().create_node("alice")
    await node.start()
    config = ChannelConfig.logos(sds=SdsConfig(persistence=SqlitePersistence(sys.argv[1])))
    await create_reliable_channel(node, "channel", "/shardwire/1/test/proto", "alice", None, config)
    print("held", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def join(network: MemoryNetwork, name: str, persistence: SqlitePersistence | None) -> ReliableChannel:
    node = network.nodes.get(name)
    if node is None or node.stopped:
        node = network.create_node(name)
        await node.start()
    config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
    return await create_reliable_channel(node, CHANNEL, TOPIC, name, None, config)


def kept_content(path: Path) -> bytes:
    (kept,) = path.parent.glob(f"{path.name}.corrupt-*[0-9]")
    return kept.read_bytes()


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


async def received_by(channel: ReliableChannel, count: int) -> list[bytes]:
    messages: list[bytes] = []
    enough = asyncio.Event()

    def note(event: MessageReceivedEvent) -> None:
        messages.append(event.message)
        if len(messages) >= count:
            enough.set()

    channel.on_message_received(note)
    await asyncio.wait_for(enough.wait(), 20)
    return messages


def test_a_channel_state_that_another_process_holds_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(PersistenceError, match=rf"in use by process {holder.pid}.*close the other one"):
            asyncio.run(join(MemoryNetwork(), "alice", SqlitePersistence(path)))
    finally:
        holder.kill()
        holder.communicate()

    async def take_over() -> None:
        persistence = SqlitePersistence(path)
        await close_channel(await join(MemoryNetwork(), "alice", persistence))
        persistence.close()

    asyncio.run(take_over())


def test_a_full_database_refuses_a_send_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each commit goes to the database itself.
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 0)

    async def main() -> None:
        network = MemoryNetwork()
        persistence = SqlitePersistence(tmp_path / "alice.db")
        alice, bob = await join(network, "alice", persistence), await join(network, "bob", None)
        database = persistence._database
        assert database is not None
        connection = database.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(PersistenceError, match="the disk is full: make room, nothing was stored"):
            await alice.send(LARGE)
        assert alice.pending() == ()
        connection.execute("PRAGMA max_page_count = 1000000")
        request_id = await asyncio.wait_for(alice.send(LARGE[::-1]), 20)
        assert await received_by(bob, 1) == [LARGE[::-1]]
        assert await alice.delivered(request_id) == {"bob"}
        for channel in (alice, bob):
            await close_channel(channel)
        persistence.close()

    asyncio.run(main())


def test_a_corrupt_database_is_kept_aside_and_no_channel_begins_anew_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"

    async def main() -> None:
        persistence = SqlitePersistence(path)
        channel = await join(MemoryNetwork(), "alice", persistence)
        await channel.send(b"not to be lost")
        await close_channel(channel)
        persistence.close()
        content = bytearray(path.read_bytes())
        content[100:4_000] = os.urandom(3_900)
        path.write_bytes(content)
        with pytest.raises(PersistenceError, match=r"the database is corrupt.*it was kept as"):
            await join(MemoryNetwork(), "alice", SqlitePersistence(path))
        assert kept_content(path) == content
        with pytest.raises(PersistenceError, match="was found corrupt and kept as"):
            await join(MemoryNetwork(), "alice", SqlitePersistence(path))

    asyncio.run(main())


def test_a_stored_sender_id_that_differs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def main() -> None:
        persistence = SqlitePersistence(path)
        await close_channel(await join(MemoryNetwork(), "alice", persistence))
        with pytest.raises(ConfigError, match=r"sender_id is 'bob'.*belongs to 'alice'"):
            await join(MemoryNetwork(), "bob", persistence)
        persistence.close()

    asyncio.run(main())


def test_a_channel_goes_on_from_a_database_of_version_1(tmp_path: Path) -> None:
    """Version 1 stored a message that waits for the application as it is."""
    path = tmp_path / "bob.db"

    async def wait_for_delivery(persistence: SqlitePersistence) -> None:
        network = MemoryNetwork()
        alice, bob = await join(network, "alice", None), await join(network, "bob", persistence)
        await alice.delivered(await alice.send(LARGE))
        for channel in (alice, bob):
            await close_channel(channel)

    newer = SqlitePersistence(tmp_path / "newer.db")
    asyncio.run(wait_for_delivery(newer))
    state = newer.load(CHANNEL)
    assert state is not None
    (name,) = [name for name in state.records if name[0] == PARTS]
    newer.commit(CHANNEL, Changes({name: None, (PAYLOAD, name[1]): LARGE}))
    newer.close()
    connection = sqlite3.connect(path)
    connection.executescript(
        f"""{schema.VERSION_1}
        PRAGMA application_id = {schema.APPLICATION_ID};
        INSERT INTO schema_version VALUES (1);
        ATTACH '{tmp_path / "newer.db"}' AS newer;
        INSERT INTO channel SELECT id, channel_id FROM newer.channel;
        INSERT INTO record SELECT channel, kind, key, checksum, value FROM newer.record;"""
    )
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(1,)]
    connection.close()

    async def read() -> list[bytes]:
        newer = SqlitePersistence(path)
        bob = await join(MemoryNetwork(), "bob", newer)
        messages = await received_by(bob, 1)
        await close_channel(bob)
        newer.close()
        return messages

    assert asyncio.run(read()) == [LARGE]
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(schema.current_version(),)]
    connection.close()


def test_a_closed_channel_gives_its_state_free_and_a_refused_one_takes_it_from_no_other(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def main() -> None:
        persistence = SqlitePersistence(path)
        channel = await join(MemoryNetwork(), "alice", persistence)
        with pytest.raises(PersistenceError, match="in this SqlitePersistence is in use by this process already"):
            await join(MemoryNetwork(), "bob", persistence)
        with pytest.raises(PersistenceError, match="in use by this process already"):
            await join(MemoryNetwork(), "alice", SqlitePersistence(path))
        request_id = await channel.send(b"kept")
        await close_channel(channel)
        resumed = await join(MemoryNetwork(), "alice", SqlitePersistence(path))
        assert [pending.request_id for pending in resumed.pending()] == [request_id]
        await close_channel(resumed)
        # The first instance was not closed: it opens its file again.
        resumed = await join(MemoryNetwork(), "alice", persistence)
        assert [pending.request_id for pending in resumed.pending()] == [request_id]
        await close_channel(resumed)

    asyncio.run(main())


@pytest.mark.parametrize("anew", [True, False])
def test_a_state_is_free_once_the_event_loop_of_its_channel_is_closed(anew: bool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    left_open: list[ReliableChannel] = []

    async def send(number: int) -> int:
        given = SqlitePersistence(path) if anew else persistence
        left_open.append(await join(MemoryNetwork(), "alice", given))
        await left_open[-1].send(b"%d" % number)
        return len(left_open[-1].pending())

    assert [asyncio.run(send(number)) for number in range(3)] == [1, 2, 3]

    async def close() -> None:
        channel = await join(MemoryNetwork(), "alice", SqlitePersistence(path))
        assert len(channel.pending()) == 3
        await close_channel(channel)

    asyncio.run(close())
    [stored] = read_channels(path)
    assert (stored.held_by, stored.lost_commits) == (None, 0)


class Slow(SqlitePersistence):
    """Gives nothing free before it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.began, self.may = threading.Event(), threading.Event()

    def release(self, channel_id: str) -> None:
        self.began.set()
        self.may.wait()
        super().release(channel_id)


def test_who_asks_for_a_state_that_another_event_loop_gives_free_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    left_open = Slow(path)

    async def use(persistence: SqlitePersistence) -> None:
        await close_channel(await join(MemoryNetwork(), "alice", persistence))

    asyncio.run(join(MemoryNetwork(), "alice", left_open))
    other = threading.Thread(target=lambda: asyncio.run(use(SqlitePersistence(tmp_path / "other.db"))))
    other.start()
    left_open.began.wait()
    threading.Timer(0.3, left_open.may.set).start()
    asyncio.run(use(SqlitePersistence(path)))
    other.join()


def test_a_state_stays_with_a_channel_whose_event_loop_is_open_and_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def main() -> None:
        with pytest.raises(PersistenceError, match="in use by this process already"):
            await join(MemoryNetwork(), "alice", SqlitePersistence(path))

    with asyncio.Runner() as holding:
        channel = holding.run(join(MemoryNetwork(), "alice", SqlitePersistence(path)))
        asyncio.run(main())
        holding.run(close_channel(channel))


def test_a_state_of_small_messages_fits_a_small_volume(tmp_path: Path) -> None:
    largest = 0

    async def main() -> None:
        nonlocal largest
        network = MemoryNetwork()
        persistence = SqlitePersistence(tmp_path / "alice.db")
        alice, bob = await join(network, "alice", persistence), await join(network, "bob", None)
        for number in range(216):
            request_id = await alice.send(b"%d" % number)
            await alice.delivered(request_id, timeout_ms=600_000)
            largest = max(largest, size_of(tmp_path))
        for channel in (alice, bob):
            await close_channel(channel)
        persistence.close()

    run_virtual(main(), limit_ms=3_600_000)
    # What the guide calls the smallest volume.
    assert largest < 4_000_000
    assert not (tmp_path / "alice.db-wal").exists()

"""Both sides of a transfer are killed at arbitrary points on a lossy network, and go on; and the memory it takes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from channel_world import World, run_world

from shardwire import FileReceivedEvent, PersistenceError
from shardwire._native import FileChunk, decode_file_message
from shardwire.files import receiver as receiver_module
from shardwire.files import sender as sender_module
from shardwire.node import NetworkConditions

LOSSY = NetworkConditions(loss=0.2, duplicate=0.05, delay_ms=(5, 400), reorder=0.1)
CHUNK = 16 << 10
DATA = random.Random(11).randbytes(60 * CHUNK + 123)


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "WINDOW_BYTES", 6 * CHUNK)
    for module in (sender_module, receiver_module):
        monkeypatch.setattr(module, "REPORT_BYTES", 4 * CHUNK)


class Crashes:
    """A transfer from alice to bob, in whose course either is killed.

    Args:
        forgets: Whether a participant that is killed loses what its channel had stored too.
    """

    def __init__(self, world: World, rng: random.Random, source: Path, inbox: Path, forgets: bool) -> None:
        self.world = world
        self.rng = rng
        self.source = source
        self.inbox = inbox
        self.forgets = forgets
        self.sending: asyncio.Task[frozenset[str]] | None = None
        self.kills = 0

    async def begin(self, name: str) -> None:
        channel = await self.world.join(name, on_disk=True)
        if name == "bob":
            channel.receive_files(self.inbox)
        else:
            self.sending = asyncio.create_task(channel.send_file(self.source, chunk_size_bytes=CHUNK))

    async def kill(self, name: str) -> None:
        """Lets the power fail right after one of the next commits, and all that was not durable with it."""
        disk = self.world.disks[name]
        disk.power_failed.clear()
        disk.power_fails_after = disk.commits + self.rng.randint(1, 40)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(disk.power_failed.wait(), 40)
        disk.power_fails_after = None
        if name == "alice" and self.sending is not None and self.sending.done() and not self.sending.exception():
            return
        self.kills += 1
        if name == "alice":
            await self._end_sending()
        await self.world.crash(name)
        if name == "bob":
            self._lose_some_of_the_disk()
        if self.forgets:
            del self.world.disks[name]
        await asyncio.sleep(self.rng.choice([0, 1, 40, 200]))
        await self.begin(name)

    async def _end_sending(self) -> None:
        assert self.sending is not None
        self.sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, PersistenceError):
            await self.sending

    def _lose_some_of_the_disk(self) -> None:
        for path in self.inbox.glob(".*"):
            if self.rng.random() < 0.3:
                os.truncate(path, self.rng.randint(0, path.stat().st_size))

    async def finish(self) -> frozenset[str]:
        while True:
            assert self.sending is not None
            try:
                return await self.sending
            except PersistenceError:
                await self.begin("alice")


@pytest.mark.parametrize("seed", range(24))
def test_a_transfer_survives_kills_of_both_sides(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source, inbox = tmp_path / "data.bin", tmp_path / "inbox"
    source.write_bytes(DATA)
    inbox.mkdir()
    kills = 0

    async def scenario(world: World) -> None:
        nonlocal kills
        crashes = Crashes(world, rng, source, inbox, forgets=seed % 3 == 2)
        await crashes.begin("bob")
        await crashes.begin("alice")
        for _ in range(rng.randint(1, 5)):
            await crashes.kill(rng.choice(["alice", "bob"]))
            await asyncio.sleep(rng.random() * 10)
        assert await crashes.finish() == {"bob"}
        kills = crashes.kills

    world = run_world(scenario, LOSSY, seed=seed, limit_ms=36_000_000)
    assert (inbox / "data.bin").read_bytes() == DATA
    assert os.listdir(inbox) == ["data.bin"]
    assert kills
    assert world.of("bob", FileReceivedEvent)


def test_a_killed_receiver_is_sent_only_what_it_lacks(tmp_path: Path) -> None:
    source, inbox = tmp_path / "data.bin", tmp_path / "inbox"
    source.write_bytes(DATA)
    inbox.mkdir()

    async def scenario(world: World) -> None:
        crashes = Crashes(world, random.Random(1), source, inbox, forgets=False)
        await crashes.begin("bob")
        await crashes.begin("alice")
        while len(chunk_indices(world)) < 30:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await crashes._end_sending()
        await world.crash("alice")
        await world.crash("bob")
        await asyncio.sleep(100)
        await crashes.begin("bob")
        await crashes.begin("alice")
        assert await crashes.finish() == {"bob"}

    indices = chunk_indices(run_world(scenario, NetworkConditions(delay_ms=(20, 20))))
    assert set(range(61)) <= set(indices)
    # The window is what may be sent twice.
    assert len(indices) <= 61 + 7


def chunk_indices(world: World) -> list[int]:
    """The chunks that bob was handed."""
    found = [decode_file_message(message) for message in world.messages("bob")]
    return [message.index for message in found if isinstance(message, FileChunk)]


MEMORY = """
import asyncio, sys
from pathlib import Path
from shardwire import close_channel, create_reliable_channel
from shardwire.node import MemoryNetwork, run_virtual

directory, size_bytes = Path(sys.argv[1]), int(sys.argv[2])
source, inbox = directory / "sparse.bin", directory / "inbox"
inbox.mkdir()
with source.open("wb") as file:
    file.truncate(size_bytes)
    file.seek(size_bytes // 2)
    file.write(b"in the middle")


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


async def main():
    network = MemoryNetwork(store=False)
    channels = []
    for name in ("alice", "bob"):
        node = network.create_node(name)
        await node.start()
        channels.append(await create_reliable_channel(node, "files", "/app/1/files/proto", name))
    alice, bob = channels
    bob.receive_files(inbox)
    before = peak_bytes()
    assert await alice.send_file(source) == {"bob"}
    for channel in channels:
        await close_channel(channel)
    received = inbox / "sparse.bin"
    assert received.stat().st_size == size_bytes
    with received.open("rb") as file:
        file.seek(size_bytes // 2)
        assert file.read(13) == b"in the middle"
    print(peak_bytes() - before)


run_virtual(main(), limit_ms=3_600_000)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of a process is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Both sides in one process, and the network between them."""

    def peak_of(megabytes: int) -> int:
        directory = tmp_path / str(megabytes)
        directory.mkdir()
        run = subprocess.run(
            [sys.executable, "-c", MEMORY, str(directory), str(megabytes << 20)],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(run.stdout)

    small, large = peak_of(64), peak_of(256)
    assert large - small < 32 << 20, f"{small >> 20} MiB for 64 MiB, {large >> 20} MiB for 256 MiB"

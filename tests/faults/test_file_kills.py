"""Sender and receiver of a file are processes, killed in the middle of it, on real sockets and real databases."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FILE_BYTES = 24 << 20

PARTICIPANT = """
import asyncio, sys
from pathlib import Path
from shardwire import ChannelConfig, SdsConfig, SqlitePersistence, close_channel, create_reliable_channel
from shardwire.node import UdpNode

name, port, peer, directory = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])


async def main():
    node = UdpNode(f"udp://127.0.0.1:{port}", peers=[f"127.0.0.1:{peer}"])
    await node.start()
    persistence = SqlitePersistence(directory / f"{name}.sqlite")
    config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence)).without_store()
    channel = await create_reliable_channel(node, "files", "/app/1/files/proto", name, config=config)
    channel.on("file:progress", lambda event: print(event.done_bytes, flush=True))
    if name == "bob":
        channel.receive_files(directory / "inbox")
        await asyncio.Event().wait()
    print(*await channel.send_file(directory / "data.bin"), flush=True)
    await close_channel(channel)
    await node.stop()


asyncio.run(main())
"""


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Participant:
    """A process that sends or receives the file; its lines tell how far the receiver is."""

    def __init__(self, name: str, port: int, peer: int, directory: Path) -> None:
        self._arguments = [sys.executable, "-c", PARTICIPANT, name, str(port), str(peer), str(directory)]
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(self._arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.strip()

    def runs_until(self, done_bytes: int) -> None:
        """Returns when the receiver has so much."""
        assert any(line.isdigit() and int(line) >= done_bytes for line in self.lines()), "it ended before"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill_and_restart(self) -> None:
        self.kill()
        self._start()


@contextmanager
def participant(name: str, port: int, peer: int, directory: Path) -> Iterator[Participant]:
    made = Participant(name, port, peer, directory)
    try:
        yield made
    finally:
        made.kill()


def test_both_sides_are_killed_and_the_file_arrives(tmp_path: Path) -> None:
    data = random.Random(9).randbytes(FILE_BYTES)
    (tmp_path / "data.bin").write_bytes(data)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    alice_port, bob_port = free_ports(2)
    with (
        participant("bob", bob_port, alice_port, tmp_path) as bob,
        participant("alice", alice_port, bob_port, tmp_path) as alice,
    ):
        alice.runs_until(4 << 20)
        bob.kill_and_restart()
        alice.runs_until(12 << 20)
        assert [name for name in os.listdir(inbox) if not name.startswith(".")] == []
        alice.kill_and_restart()
        # It goes on where the receiver is.
        first = next(alice.lines())
        assert first.isdigit()
        assert int(first) >= 12 << 20
        assert "bob" in list(alice.lines())
        assert alice.process.wait() == 0
    received = inbox / "data.bin"
    assert hashlib.sha256(received.read_bytes()).digest() == hashlib.sha256(data).digest()
    assert os.listdir(inbox) == ["data.bin"]

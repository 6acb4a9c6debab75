"""What the sender of a file leaves behind, and what it makes of errors that are not its own."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from channel_world import World, run_world

from shardwire.files.chain import FileSource

CHUNK = 64 << 10


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "photo.raw"
    path.write_bytes(bytes(3 * CHUNK))
    return path


def test_a_file_that_was_sent_takes_no_message_from_who_listens_later(source: Path, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", listen=False), await world.join("bob", listen=False)
        (tmp_path / "inbox").mkdir()
        end = bob.receive_files(tmp_path / "inbox")
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}
        end()
        await bob.send(b"for the application")
        await asyncio.sleep(60)
        world.listen("alice", alice)
        await asyncio.sleep(1)
        assert world.messages("alice") == [b"for the application"]

    run_world(scenario)


def test_a_file_system_that_does_not_answer_in_time_is_no_receiver_that_does_not(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: FileSource) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(FileSource, "scan", read)

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(TimeoutError, match="Connection timed out"):
            await alice.send_file(source, timeout_ms=60_000)

    run_world(scenario)

"""What the sender of a file leaves behind, and what it makes of errors that are not its own."""

from __future__ import annotations

import asyncio
import errno
import secrets
from pathlib import Path

import pytest
from channel_world import World, run_world

from shardwire._native import FileChunk, FileManifest, FileStatus, decode_file_message, encode_file_status
from shardwire.channel import ReliableChannel, reliable_channel
from shardwire.errors import ConfigError, QueueFullError
from shardwire.events import FileFailedEvent, FileProgressEvent
from shardwire.files import receiver as receiver_module
from shardwire.files import sender as sender_module
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


def test_a_chunk_for_which_the_queue_has_no_room_is_sent_once_it_has(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not only when the receiver misses it."""
    send, refused = ReliableChannel.send, 0

    async def refuse_once(self: ReliableChannel, message: bytes) -> str:
        nonlocal refused
        if isinstance(decode_file_message(message), FileChunk) and not refused:
            refused += 1
            raise QueueFullError("the queue is full")
        return await send(self, message)

    monkeypatch.setattr(ReliableChannel, "send", refuse_once)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        (tmp_path / "inbox").mkdir()
        bob.receive_files(tmp_path / "inbox")
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}
        await asyncio.sleep(1)

    told = map(decode_file_message, run_world(scenario).messages("alice"))
    assert [each.state for each in told if isinstance(each, FileStatus)] == ["requested", "received"]
    assert refused == 1


@pytest.mark.parametrize("path", [".", "..", "/"])
def test_a_directory_is_refused_as_that_and_not_for_its_name(path: str) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(ConfigError, match="it must be a regular file"):
            await alice.send_file(path)

    run_world(scenario)


def test_other_messages_wait_behind_few_chunks_of_a_file_that_the_network_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "UNSENT_BYTES", 4 * CHUNK)
    source = tmp_path / "long.raw"
    source.write_bytes(bytes(20 * CHUNK))

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        (tmp_path / "inbox").mkdir()
        bob.receive_files(tmp_path / "inbox")
        # Bob asks for the file.
        unsubscribe = alice.on(FileProgressEvent, lambda event: world.nodes["alice"].go_offline())
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK))
        await asyncio.sleep(60)
        unsubscribe()
        assert [send.sent for send in alice.pending()].count(False) == 4
        world.nodes["alice"].go_online()
        assert await sending == {"bob"}

    run_world(scenario)


def test_who_knows_nothing_of_a_file_is_offered_it_once_a_second_at_most(source: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=20_000))
        await asyncio.sleep(2)
        offers = [each for each in map(decode_file_message, world.messages("bob")) if isinstance(each, FileManifest)]
        for _ in range(30):
            await bob.send(
                encode_file_status(
                    transfer_id=offers[0].transfer_id,
                    state="unknown",
                    session=offers[0].session,
                    nonce=secrets.randbits(64),
                )
            )
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        offers = [each for each in map(decode_file_message, world.messages("bob")) if isinstance(each, FileManifest)]
        assert 1 < len(offers) <= 6
        with pytest.raises(TimeoutError):
            await sending

    run_world(scenario)


def test_who_must_not_have_a_file_may_refuse_it(source: Path, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob, carol = [await world.join(name) for name in ("alice", "bob", "carol")]
        (tmp_path / "inbox").mkdir()

        async def choose_late(offer: object) -> Path:
            await asyncio.sleep(5)
            return tmp_path / "inbox" / "photo.raw"

        bob.receive_files(choose_late)
        carol.receive_files(lambda offer: None)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob"}) == {"bob"}
        await asyncio.sleep(1)

    run_world(scenario)


@pytest.mark.parametrize("receivers_max", [1, 2])
def test_so_many_receivers_are_counted_and_no_more(
    source: Path, tmp_path: Path, receivers_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "RECEIVERS_MAX", receivers_max)

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        for name in ("bob", "carol"):
            (tmp_path / name).mkdir()
            (await world.join(name)).receive_files(tmp_path / name)
        having = await alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when="any", timeout_ms=600_000)
        assert len(having) == receivers_max
        await asyncio.sleep(1)

    run_world(scenario)


def files_in(directory: Path, count: int) -> list[Path]:
    paths = [directory / f"{number}.bin" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%d" % number)
    return paths


def test_files_that_are_sent_at_once_wait_for_their_turn(tmp_path: Path) -> None:
    paths = files_in(tmp_path, 40)
    (inbox := tmp_path / "inbox").mkdir()

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        await asyncio.gather(*(alice.send_file(path, timeout_ms=60_000) for path in paths))
        # A receiver is never offered more than it takes at once.
        assert world.of("bob", FileFailedEvent) == []

    run_world(scenario)
    assert sorted(path.read_bytes() for path in inbox.iterdir()) == sorted(b"%d" % number for number in range(40))


def test_a_file_that_nobody_takes_keeps_no_other_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliable_channel, "TRANSFERS_MAX", 1)
    for_carol, for_bob = files_in(tmp_path, 2)
    (inbox := tmp_path / "inbox").mkdir()

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(lambda offer: inbox / offer.name if offer.name == for_bob.name else None)
        waiting = asyncio.create_task(alice.send_file(for_carol, delivered_when={"carol"}))
        await asyncio.sleep(1)
        assert await alice.send_file(for_bob, timeout_ms=120_000) == {"bob"}
        waiting.cancel()

    run_world(scenario)


def test_a_file_is_offered_again_to_who_receives_as_many_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "TRANSFERS_MAX", 1)
    paths = files_in(tmp_path, 3)
    (inbox := tmp_path / "inbox").mkdir()

    async def scenario(world: World) -> None:
        senders = [await world.join(name) for name in ("alice", "carol", "dave")]
        bob = await world.join("bob")
        bob.receive_files(inbox)
        sent = [
            sender.send_file(path, delivered_when={"bob"}, timeout_ms=60_000)
            for sender, path in zip(senders, paths, strict=True)
        ]
        await asyncio.gather(*sent)
        assert {event.reason for event in world.of("bob", FileFailedEvent)} == {"busy"}

    run_world(scenario)
    assert len(list(inbox.iterdir())) == 3

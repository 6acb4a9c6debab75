"""Files over channels in virtual time: sent, taken, refused, and what hostile participants do about it."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from channel_world import World, run_world

from shardwire import (
    ChannelClosedError,
    ChannelConfig,
    ChannelEvent,
    ConfigError,
    FileChangedError,
    FileFailedEvent,
    FileOffer,
    FileProgressEvent,
    FileReceivedEvent,
    FileRefusedError,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    QueueFullError,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    close_channel,
    keccak256,
)
from shardwire._native import (
    FileChunk,
    FileManifest,
    FileStatus,
    decode_file_message,
    encode_file_chunk,
    encode_file_manifest,
    encode_file_status,
)
from shardwire.files import receiver as receiver_module
from shardwire.files import sender as sender_module
from shardwire.files.chain import FileSource
from shardwire.files.partial import PartialFile
from shardwire.files.sender import FileSender
from shardwire.node import MemoryNetwork, NetworkConditions, running_clock

LOSSY = NetworkConditions(loss=0.2, duplicate=0.05, delay_ms=(5, 40), reorder=0.1)
CHUNK = 64 << 10
DATA = random.Random(3).randbytes(20 * CHUNK + 77)


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few chunks meet the limits that others meet at hundreds of megabytes."""
    monkeypatch.setattr(sender_module, "WINDOW_BYTES", 6 * CHUNK)
    for module in (sender_module, receiver_module):
        monkeypatch.setattr(module, "REPORT_BYTES", 2 * CHUNK)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sent" / "photo.raw"
    path.parent.mkdir()
    path.write_bytes(DATA)
    return path


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "inbox"
    path.mkdir()
    yield path
    # Whatever happens, nothing else is in it than whole files.
    assert [name for name in os.listdir(path) if name.startswith(".")] == []


def statuses(world: World, name: str) -> list[FileStatus]:
    """What `name` was told of transfers."""
    decoded = [decode_file_message(message) for message in world.messages(name)]
    return [message for message in decoded if isinstance(message, FileStatus)]


async def told(channel: ReliableChannel, kind: type[ChannelEvent]) -> None:
    """Waits for the next event of a kind."""
    happened = asyncio.Event()
    unsubscribe = channel.on(kind, lambda _: happened.set())
    await happened.wait()
    unsubscribe()


@pytest.mark.parametrize("conditions", [NetworkConditions(), LOSSY], ids=["clean", "lossy"])
@pytest.mark.parametrize("size", [0, 1, CHUNK, len(DATA)])
def test_a_file_arrives(source: Path, inbox: Path, size: int, conditions: NetworkConditions) -> None:
    source.write_bytes(DATA[:size])

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=600_000) == {"bob"}
        assert (inbox / "photo.raw").read_bytes() == DATA[:size]
        await asyncio.sleep(1)

    world = run_world(scenario, conditions)
    [received] = world.of("bob", FileReceivedEvent)
    assert (received.file_name, received.size_bytes, received.sender_id) == ("photo.raw", size, "alice")
    assert received.path == inbox / "photo.raw"
    assert received.name == "file:received"
    assert world.of("bob", FileFailedEvent) == []
    for name in ("alice", "bob"):
        told = [event.done_bytes for event in world.of(name, FileProgressEvent)]
        assert told == sorted(told)
        assert {(event.sender_id, event.receiver_id) for event in world.of(name, FileProgressEvent)} <= {
            ("alice", "bob")
        }
    assert world.of("alice", FileProgressEvent)[-1].done_bytes == size


def test_no_more_than_the_window_is_under_way(source: Path, inbox: Path) -> None:
    most = 0

    async def scenario(world: World) -> None:
        nonlocal most
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK))
        for _ in range(3_000):
            most = max(most, len(alice.pending()))
            await asyncio.sleep(0.01)
        await sending

    run_world(scenario, LOSSY)
    # And the offer.
    assert 4 <= most <= 7


class Asking:
    """A participant that says of a file whatever it likes."""

    def __init__(self, world: World, bob: ReliableChannel, offer: FileManifest) -> None:
        self._world, self._bob, self._offer = world, bob, offer

    @classmethod
    async def joins(cls, world: World, name: str = "bob") -> Asking:
        """Waits for the first message, which is the offer."""
        bob = world.channels[name]
        if not world.messages(name):
            await told(bob, MessageReceivedEvent)
        [offer] = map(decode_file_message, world.messages(name))
        assert isinstance(offer, FileManifest)
        return cls(world, bob, offer)

    async def say(self, state: str, next_index: int, nonce: int = 1) -> None:
        transfer_id, session = self._offer.transfer_id, self._offer.session
        await self._bob.send(
            encode_file_status(
                transfer_id=transfer_id, state=state, next_index=next_index, session=session, nonce=nonce
            )
        )

    def came(self) -> list[int]:
        """The chunks that came."""
        messages = map(decode_file_message, self._world.messages("bob"))
        return sorted(message.index for message in messages if isinstance(message, FileChunk))


def test_who_says_nothing_is_sent_no_more_than_the_window_and_a_report(source: Path) -> None:
    """Its channel acknowledges what it cannot hand over yet."""

    async def scenario(world: World) -> None:
        alice, _ = await world.join("alice"), await world.join("bob")
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=45_000))
        bob = await Asking.joins(world)
        await bob.say("requested", 0)
        await asyncio.sleep(20)
        # Once more, as it may have had no use for them when they came.
        assert bob.came() == sorted(2 * [*range(8)])
        await bob.say("held", 5)
        await asyncio.sleep(20)
        assert bob.came() == sorted([*range(8), *range(13)])
        with pytest.raises(TimeoutError, match="'bob' has 5 of 21 chunks"):
            await sending

    run_world(scenario)


def test_who_takes_an_offer_late_has_what_is_on_its_way_and_asks_for_the_rest(source: Path) -> None:
    """What was sent since the offer comes to it as it came to others: nothing goes again for its sake."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        await world.join("carol")
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=20_000))
        bob, carol = await Asking.joins(world), await Asking.joins(world, "carol")
        await bob.say("requested", 0)
        await asyncio.sleep(2)
        sent = alice.stats()["sends"]
        assert sent > 1
        await carol.say("requested", 0)
        await asyncio.sleep(2)
        assert alice.stats()["sends"] == sent
        # It had a later one, and not this one.
        await carol.say("requested", 0, nonce=2)
        await asyncio.sleep(2)
        assert alice.stats()["sends"] > sent
        with pytest.raises(TimeoutError):
            await sending

    run_world(scenario)


def test_who_asks_again_for_a_chunk_that_is_on_its_way_had_no_use_for_it(source: Path) -> None:
    """It came before the offer was taken, and its acknowledgement has not come yet."""

    async def scenario(world: World) -> None:
        alice, _ = await world.join("alice"), await world.join("bob")
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=25_000))
        bob = await Asking.joins(world)
        for nonce in (1, 2):
            await bob.say("requested", 0, nonce)
            await asyncio.sleep(0.1)
        # Sooner than what nobody asks for again would be sent again.
        await asyncio.sleep(1.5)
        assert bob.came().count(0) > 1
        with pytest.raises(TimeoutError):
            await sending

    run_world(scenario, NetworkConditions(delay_ms=(200, 200)))


def test_sent_again_it_is_there_already(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        await alice.send_file(source, chunk_size_bytes=CHUNK)
        before = world.sent_by("alice")
        inode = (inbox / "photo.raw").stat().st_ino
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}
        assert world.sent_by("alice") - before < 5
        assert (inbox / "photo.raw").stat().st_ino == inode
        await asyncio.sleep(1)

    assert len(run_world(scenario).of("bob", FileReceivedEvent)) == 2


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_is_durable_before_it_is_told_as_received(
    is_there: bool, source: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that stands there already, as after a crash between its name and its durability."""
    if is_there:
        (inbox / "photo.raw").write_bytes(DATA)
    fsync = os.fsync
    # Who has which name when it is synced.
    synced: list[tuple[int, list[str]]] = []
    lacking: list[set[int]] = []

    def note(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, os.listdir(inbox)))
        fsync(descriptor)

    def on_received(event: FileReceivedEvent) -> None:
        # The directory counts once the file has its name in it.
        durable = {inode for inode, names in synced if inode != inbox.stat().st_ino or "photo.raw" in names}
        lacking.append({event.path.stat().st_ino, inbox.stat().st_ino} - durable)

    monkeypatch.setattr(os, "fsync", note)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        bob.on(FileReceivedEvent, on_received)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}

    run_world(scenario)
    assert lacking == [set()]


def test_a_repeat_passes_where_ids_are_made_of_contents(source: Path, inbox: Path) -> None:
    config = ChannelConfig.logos(sds=SdsConfig(message_id="content-sha256"))

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", config), await world.join("bob", config)
        for _ in range(2):
            end = bob.receive_files(inbox)
            await alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=600_000)
            (inbox / "photo.raw").unlink()
            end()

    run_world(scenario)


def test_several_receivers_some_of_them_late(source: Path, inbox: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        sending = asyncio.create_task(
            alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob", "carol"}, timeout_ms=3_000_000)
        )
        await told(bob, FileReceivedEvent)
        await asyncio.sleep(200)
        assert not sending.done()
        carol = await world.join("carol")
        carol.receive_files(elsewhere)
        assert await sending == {"bob", "carol"}

    run_world(scenario, LOSSY)
    assert (inbox / "photo.raw").read_bytes() == (elsewhere / "photo.raw").read_bytes() == DATA


def test_two_participants_receive_a_file_in_one_directory(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob, carol = [await world.join(name) for name in ("alice", "bob", "carol")]
        for receiver in (bob, carol):
            receiver.receive_files(inbox)
        received = await alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob", "carol"})
        assert received == {"bob", "carol"}

    run_world(scenario, LOSSY)
    assert os.listdir(inbox) == ["photo.raw"]
    assert (inbox / "photo.raw").read_bytes() == DATA


def test_who_takes_it_is_waited_for_though_another_has_it(source: Path, inbox: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    async def scenario(world: World) -> None:
        alice, bob, carol = [await world.join(name) for name in ("alice", "bob", "carol")]
        world.nodes["carol"].conditions = NetworkConditions(loss=0.5)
        bob.receive_files(inbox)
        carol.receive_files(elsewhere)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob", "carol"}

    run_world(scenario)
    assert (elsewhere / "photo.raw").read_bytes() == DATA


def test_a_receiver_that_begins_in_the_middle_asks_to_be_offered_the_file(source: Path, inbox: Path) -> None:
    """It was not there for the offer, and hears chunks of something."""

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        end = bob.receive_files(inbox)
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=600_000))
        await told(bob, FileProgressEvent)
        end()
        bob.receive_files(inbox)
        assert await sending == {"bob"}

    world = run_world(scenario, NetworkConditions(delay_ms=(20, 20)))
    assert "unknown" in [status.state for status in statuses(world, "alice")]
    assert (inbox / "photo.raw").read_bytes() == DATA


def test_a_function_chooses_where_and_whether(source: Path, inbox: Path) -> None:
    offers: list[FileOffer] = []

    async def choose(offer: FileOffer) -> str | None:
        offers.append(offer)
        await asyncio.sleep(0.1)
        return None if offer.name == "unwanted" else str(inbox / f"from {offer.sender_id}.raw")

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(choose)
        await alice.send_file(source, chunk_size_bytes=CHUNK)
        with pytest.raises(FileRefusedError, match=r"'unwanted' was refused by 'bob' \(declined\)") as refused:
            await alice.send_file(source, name="unwanted", chunk_size_bytes=CHUNK)
        assert refused.value.refused_by == {"bob": "declined"}

    run_world(scenario)
    assert [(offer.name, offer.size_bytes, offer.sender_id) for offer in offers] == [
        ("photo.raw", len(DATA), "alice"),
        ("unwanted", len(DATA), "alice"),
    ]
    assert os.listdir(inbox) == ["from alice.raw"]


def _raises(offer: FileOffer) -> str:
    raise RuntimeError(f"no {offer.name}")


@pytest.mark.parametrize(
    ("reason", "setting"),
    [
        ("too_large", {"file_bytes_max": len(DATA) - 1}),
        ("exists", {}),
        ("failed", {"destination": _raises}),
        ("failed", {"destination": lambda offer: Path("/nowhere/at/all")}),
        ("failed", {"destination": lambda offer: "/"}),
    ],
)
def test_a_refusal_gives_its_reason(source: Path, inbox: Path, reason: str, setting: dict[str, Any]) -> None:
    if reason == "exists":
        (inbox / "photo.raw").write_bytes(b"precious")

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(**{"destination": inbox, **setting})
        with pytest.raises(FileRefusedError) as refused:
            await alice.send_file(source, delivered_when={"bob"}, chunk_size_bytes=CHUNK)
        assert refused.value.refused_by == {"bob": reason}
        await asyncio.sleep(1)

    [failed] = run_world(scenario).of("bob", FileFailedEvent)
    assert (failed.reason, failed.file_name, failed.sender_id) == (reason, "photo.raw", "alice")
    assert [path.read_bytes() for path in inbox.iterdir()] == ([b"precious"] if reason == "exists" else [])


def test_one_participant_refuses_and_another_takes_it(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob, carol = [await world.join(name) for name in ("alice", "bob", "carol")]
        bob.receive_files(inbox)
        carol.receive_files(lambda offer: None)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}

    run_world(scenario, LOSSY)


def test_a_full_disk_leaves_nothing(source: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = PartialFile.write

    def until_full(self: PartialFile, chunk: FileChunk) -> None:
        if chunk.index == 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, chunk)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        with monkeypatch.context() as full:
            full.setattr(PartialFile, "write", until_full)
            with pytest.raises(FileRefusedError, match="no_space"):
                await alice.send_file(source, chunk_size_bytes=CHUNK)
        assert os.listdir(inbox) == []
        # When there is room again it can be sent again.
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}

    assert run_world(scenario).of("bob", FileFailedEvent)[0].reason == "no_space"


def test_a_file_that_does_not_fit_the_disk_is_refused_before_it_is_sent(inbox: Path, tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        message, _ = encode_file_manifest(
            name="huge", size_bytes=(1 << 63) - 1, chunk_size_bytes=1 << 20, chain_hash=bytes(32), nonce=1, session=9
        )
        await alice.send(message)
        await asyncio.sleep(10)

    world = run_world(scenario)
    assert [status.reason for status in statuses(world, "alice")] == ["no_space"]
    assert os.listdir(inbox) == []


def test_a_file_that_changes_is_withdrawn(source: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FileSource.read

    def change_then_read(self: FileSource, index: int) -> tuple[bytes, bytes]:
        if index == 9:
            source.write_bytes(DATA[: 9 * CHUNK] + bytes(len(DATA) - 9 * CHUNK))
        return read(self, index)

    monkeypatch.setattr(FileSource, "read", change_then_read)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        with pytest.raises(FileChangedError, match=r"photo\.raw' changed while it was sent"):
            await alice.send_file(source, chunk_size_bytes=CHUNK)
        await asyncio.sleep(60)

    [failed] = run_world(scenario, LOSSY).of("bob", FileFailedEvent)
    assert failed.reason == "changed"
    assert os.listdir(inbox) == []


def test_a_file_that_changes_is_told_as_that_though_the_queue_is_full(
    source: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdraw = FileSender._withdraw

    async def fill_then_withdraw(self: FileSender) -> None:
        monkeypatch.setattr(ReliableChannel, "send", refuse)
        await withdraw(self)

    async def refuse(self: ReliableChannel, message: bytes) -> str:
        raise QueueFullError("the queue is full")

    def change(self: FileSource, index: int) -> tuple[bytes, bytes]:
        raise FileChangedError("it changed")

    monkeypatch.setattr(FileSender, "_withdraw", fill_then_withdraw)
    monkeypatch.setattr(FileSource, "read", change)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        end = bob.receive_files(inbox)
        with pytest.raises(FileChangedError, match="it changed"):
            await alice.send_file(source, chunk_size_bytes=CHUNK)
        end()

    run_world(scenario)
    for path in inbox.iterdir():
        path.unlink()


def offered(data: bytes, name: str = "a.bin") -> tuple[list[bytes], bytes]:
    """The messages of a transfer, made by hand, and its id."""
    pieces = [data[start : start + 4_096] for start in range(0, len(data), 4_096)]
    following = [bytes(32)]
    for piece in reversed(pieces):
        following.insert(0, keccak256(piece + following[0]))
    message, transfer_id = encode_file_manifest(
        name=name, size_bytes=len(data), chunk_size_bytes=4_096, chain_hash=following[0], nonce=1, session=9
    )
    chunks = [
        encode_file_chunk(
            transfer_id=transfer_id, index=index, next_hash=following[index + 1], data=piece, nonce=index, session=9
        )
        for index, piece in enumerate(pieces)
    ]
    return [message, *chunks], transfer_id


def altered(message: bytes) -> bytes:
    return message[:-20] + bytes([message[-20] ^ 1]) + message[-19:]


def test_a_chunk_that_never_comes_is_asked_for_at_once_and_once(inbox: Path) -> None:
    messages, _ = offered(DATA[:40_000])

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        for gap in (2, 5):
            for number, message in enumerate(messages):
                if number != gap:
                    await alice.send(message)
            await asyncio.sleep(5)
        assert [(status.state, status.next_index) for status in statuses(world, "alice")] == [
            ("requested", 0),
            ("requested", 1),
            # The second offer, and what comes behind it.
            ("requested", 1),
            ("requested", 4),
        ]
        for message in messages[5:]:
            await alice.send(message)
        await asyncio.sleep(5)

    run_world(scenario)
    assert (inbox / "a.bin").read_bytes() == DATA[:40_000]


def test_wrong_chunks_of_others_do_no_harm(inbox: Path) -> None:
    data = DATA[:40_000]
    messages, _ = offered(data)

    async def scenario(world: World) -> None:
        alice, bob, mallory = [await world.join(name) for name in ("alice", "bob", "mallory")]
        bob.receive_files(inbox)
        await alice.send(messages[0])
        await asyncio.sleep(5)
        for message in messages[1:]:
            for _ in range(receiver_module.WRONG_CHUNKS_MAX):
                await mallory.send(altered(message))
            await asyncio.sleep(5)
            await alice.send(message)
            await asyncio.sleep(5)
        assert (inbox / "a.bin").read_bytes() == data

    run_world(scenario)


def test_wrong_chunks_of_its_sender_end_a_transfer(inbox: Path) -> None:
    messages, _ = offered(DATA[:40_000])

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        await alice.send(messages[0])
        for _ in range(receiver_module.WRONG_CHUNKS_MAX):
            await alice.send(altered(messages[1]))
        await asyncio.sleep(5)
        assert [status.state for status in statuses(world, "alice")] == ["requested"]
        await alice.send(altered(messages[1]))
        await asyncio.sleep(5)

    world = run_world(scenario)
    assert [(status.state, status.reason) for status in statuses(world, "alice")][1:] == [("refused", "failed")]
    assert os.listdir(inbox) == []


@pytest.mark.parametrize(
    "name", ["../evil", "/tmp/evil", "..", "a/../../evil", "..\\evil", ".bashrc", "nul", "a\nb", "x:y", "\u202efdp"]
)
def test_names_never_leave_the_directory(inbox: Path, name: str) -> None:
    messages, _ = offered(DATA[:9_000], name)
    before = sorted(inbox.parent.rglob("*"))

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        for message in messages:
            await alice.send(message)
        await asyncio.sleep(10)

    world = run_world(scenario)
    assert {(status.state, status.reason) for status in statuses(world, "alice")} == {("refused", "name")}
    assert sorted(inbox.parent.rglob("*")) == before


def test_a_sender_does_not_offer_such_names(source: Path) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(ConfigError, match=r"name is '\.\./x': it must not .*; give another one with name="):
            await alice.send_file(source, name="../x")

    run_world(scenario)


def test_a_file_whose_hash_is_wrong_does_not_appear(inbox: Path) -> None:
    """The last chunk is right by its own hash, and another one stands in the offer."""
    messages, _ = offered(DATA[:8_192])
    wrong, wrong_id = encode_file_manifest(
        name="a.bin", size_bytes=8_192, chunk_size_bytes=4_096, chain_hash=bytes(32), nonce=1, session=9
    )
    empty, _ = encode_file_manifest(
        name="empty", size_bytes=0, chunk_size_bytes=4_096, chain_hash=b"\x01" * 32, nonce=1, session=9
    )

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        await alice.send(wrong)
        for index, message in enumerate(messages[1:]):
            chunk = decode_file_message(message)
            assert isinstance(chunk, FileChunk)
            for _ in range(10):
                await alice.send(
                    encode_file_chunk(
                        transfer_id=wrong_id,
                        index=index,
                        next_hash=chunk.next_hash,
                        data=chunk.data,
                        nonce=1,
                        session=9,
                    )
                )
        await alice.send(empty)
        await asyncio.sleep(20)

    world = run_world(scenario)
    assert [status.reason for status in statuses(world, "alice") if status.state == "refused"] == ["failed", "failed"]
    assert os.listdir(inbox) == []


def test_offers_beyond_the_limit_are_put_off(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "TRANSFERS_MAX", 3)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        transfers = [offered(DATA[number : number + 9_000], f"{number}.bin")[0] for number in range(5)]
        for messages in transfers[:4]:
            await alice.send(messages[0])
        await asyncio.sleep(5)
        assert [status.reason for status in statuses(world, "alice")] == ["", "", "", "busy"]
        # What nobody goes on with makes room, and leaves nothing where nothing came of it.
        hidden = len(os.listdir(inbox))
        await asyncio.sleep(receiver_module.TRANSFER_IDLE_MS / 1_000)
        await alice.send(transfers[4][0])
        await asyncio.sleep(5)
        assert statuses(world, "alice")[-1].state == "requested"
        assert len(os.listdir(inbox)) == hidden == 6
        # And goes on where it was when it is offered again.
        for messages in transfers[1:3]:
            for message in messages:
                await alice.send(message)
        await alice.send(transfers[4][1])
        for message in transfers[4][2:]:
            await alice.send(message)
        await asyncio.sleep(120)
        for message in transfers[0]:
            await alice.send(message)
        await asyncio.sleep(20)
        assert sorted(os.listdir(inbox)) == ["0.bin", "1.bin", "2.bin", "4.bin"]

    run_world(scenario)


def test_two_files_of_one_name_do_not_mix(inbox: Path) -> None:
    first, second = offered(DATA[:9_000])[0], offered(DATA[9_000:20_000])[0]

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        for message in (first[0], second[0], first[1], second[1], *first[2:], *second[2:]):
            await alice.send(message)
        await asyncio.sleep(20)

    world = run_world(scenario)
    assert [status.reason for status in statuses(world, "alice") if status.state == "refused"] == ["exists"]
    # At once, and not when all of it has come.
    [failed] = world.of("bob", FileFailedEvent)
    assert failed.error.startswith("another file is being received as ")
    assert (inbox / "a.bin").read_bytes() == DATA[:9_000]


def test_a_name_is_free_again_once_nobody_goes_on_with_its_transfer(inbox: Path) -> None:
    first, second = offered(DATA[:9_000])[0], offered(DATA[9_000:20_000])[0]

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        for message in (first[0], second[0]):
            await alice.send(message)
        await asyncio.sleep(receiver_module.TRANSFER_IDLE_MS / 1_000 + 5)
        for message in second:
            await alice.send(message)
        await asyncio.sleep(20)

    world = run_world(scenario)
    assert [status.reason for status in statuses(world, "alice") if status.state == "refused"] == ["exists"]
    assert (inbox / "a.bin").read_bytes() == DATA[9_000:20_000]


def test_a_file_that_changed_after_a_timeout_is_taken(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False)
        with pytest.raises(TimeoutError):
            await alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=1_000)
        await asyncio.to_thread(source.write_bytes, DATA[::-1])
        bob.receive_files(inbox)
        with pytest.raises(FileRefusedError, match="exists"):
            await alice.send_file(source, chunk_size_bytes=CHUNK)
        await asyncio.sleep(receiver_module.TRANSFER_IDLE_MS / 1_000)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}

    run_world(scenario)
    assert (inbox / "photo.raw").read_bytes() == DATA[::-1]


def test_a_strangers_chunks_are_asked_about_once_each(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "STRANGE_TRANSFERS_MAX", 10)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        for number in range(30):
            for index in (5, 6, 1 << 63):
                await alice.send(
                    encode_file_chunk(
                        transfer_id=bytes([number] * 32),
                        index=index,
                        next_hash=bytes(32),
                        data=b"data",
                        nonce=1,
                        session=9,
                    )
                )
        await asyncio.sleep(20)
        receiver = bob._file_receiver
        assert receiver is not None
        assert len(receiver._strange) == 10

    assert [status.state for status in statuses(run_world(scenario), "alice")] == ["unknown"] * 30


def test_statuses_of_others_do_not_lead_a_sender_astray(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob, mallory = [await world.join(name) for name in ("alice", "bob", "mallory")]
        bob.receive_files(inbox)

        async def meddle(event: Any) -> None:
            message = decode_file_message(event.message)
            if isinstance(message, FileManifest):
                for state, index in (("held", 1 << 60), ("requested", 1 << 63), ("received", 500), ("withdrawn", 0)):
                    await mallory.send(
                        encode_file_status(
                            transfer_id=message.transfer_id,
                            state=state,  # type: ignore[arg-type]
                            next_index=index,
                            nonce=index,
                            session=message.session,
                        )
                    )

        mallory.on_message_received(meddle)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob"}) == {"bob"}

    run_world(scenario, NetworkConditions(delay_ms=(20, 20)))
    assert (inbox / "photo.raw").read_bytes() == DATA


def test_an_answer_to_an_earlier_offer_is_none(source: Path, inbox: Path) -> None:
    """It waited in the channel while nobody listened, and may no longer be true."""

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")

        async def answer(event: Any) -> None:
            message = decode_file_message(event.message)
            if isinstance(message, FileManifest):
                for state in ("received", "refused"):
                    status = encode_file_status(
                        transfer_id=message.transfer_id,
                        state=state,  # type: ignore[arg-type]
                        session=message.session - 1,
                        nonce=1,
                    )
                    await bob.send(status)

        bob.on_message_received(answer)
        with pytest.raises(TimeoutError, match="nobody has answered"):
            await alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob"}, timeout_ms=20_000)
        assert [status.state for status in statuses(world, "alice")] == ["received", "refused"]
        bob.receive_files(inbox)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob"}) == {"bob"}
        assert (inbox / "photo.raw").read_bytes() == DATA

    run_world(scenario)


def test_nobody_there_is_a_timeout_and_few_offers(source: Path) -> None:
    async def scenario(world: World) -> None:
        alice, _ = await world.join("alice"), await world.join("bob")
        with pytest.raises(TimeoutError, match=r"not received within 3000000 ms: nobody has answered; sent again"):
            await alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=3_000_000)

    world = run_world(scenario)
    offers = [decode_file_message(message) for message in world.messages("bob")]
    assert all(isinstance(offer, FileManifest) for offer in offers)
    # Half a minute, one, two, four, eight, then ten each.
    assert len(offers) == 9


def test_a_channel_without_room_does_not_outlast_the_timeout(source: Path) -> None:
    config = ChannelConfig.logos(sds=SdsConfig(outgoing_buffer_messages_max=2))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        # Nobody acknowledges what takes the room.
        with pytest.raises(TimeoutError):
            while True:
                await asyncio.wait_for(alice.send(os.urandom(8)), 1)
        begun = running_clock().monotonic_ms()
        with pytest.raises(TimeoutError, match=r"'photo\.raw' was not received within 2000 ms: nobody has answered"):
            await alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=2_000)
        assert running_clock().monotonic_ms() - begun == 2_000

    run_world(scenario)


def test_one_offer_waits_for_who_is_away(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK))
        await asyncio.sleep(3_000)
        assert len(alice.pending()) == 1
        bob = await world.join("bob")
        bob.receive_files(inbox)
        assert await sending == {"bob"}

    run_world(scenario)


def test_who_is_out_of_reach_is_sent_no_more_than_the_window(source: Path, inbox: Path) -> None:
    """On a network without a store, where nothing waits for it."""
    config = ChannelConfig.logos().without_store()

    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(NetworkConditions(delay_ms=(20, 20)), store=False)
        alice, bob = await world.join("alice", config), await world.join("bob", config)
        # Somebody who takes messages and is no participant.
        await world.node("relay")
        bob.receive_files(inbox)
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK, delivered_when={"bob"}))
        # Taken, and two chunks of it there.
        await told(bob, FileProgressEvent)
        await told(bob, FileProgressEvent)
        # What bob says of it leaves within the same millisecond, before or after this.
        await asyncio.sleep(0.01)
        world.network.partition([{"alice", "relay"}, {"bob"}])
        await asyncio.sleep(3_000)
        failed = world.of("alice", MessageSendErrorEvent)
        # And offers.
        assert 0 < len(failed) <= 7 + 9
        world.network.heal()
        assert await sending == {"bob"}

    run_world(scenario)
    assert (inbox / "photo.raw").read_bytes() == DATA


def test_a_healthy_receiver_is_not_sent_twice_what_another_one_missed(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob, mallory = [await world.join(name) for name in ("alice", "bob", "mallory")]
        bob.receive_files(inbox)
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK))
        await asyncio.sleep(1.1)
        [offer] = [
            message
            for message in map(decode_file_message, world.messages("mallory"))
            if isinstance(message, FileManifest)
        ]
        await mallory.send(
            encode_file_status(transfer_id=offer.transfer_id, state="unknown", session=offer.session, nonce=1)
        )
        assert await sending == {"bob"}

    world = run_world(scenario, NetworkConditions(delay_ms=(200, 200)))
    decoded = [decode_file_message(message) for message in world.messages("bob")]
    assert len([message for message in decoded if isinstance(message, FileManifest)]) == 2
    assert [message.index for message in decoded if isinstance(message, FileChunk)] == list(range(21))


def test_a_timeout_says_how_far_it_came_and_the_next_call_goes_on(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        world.nodes["bob"].conditions = NetworkConditions(delay_ms=(400, 400))
        world.nodes["alice"].conditions = NetworkConditions(delay_ms=(400, 400))
        with pytest.raises(TimeoutError, match=r"'bob' has \d+ of 21 chunks; sent again, it goes on there"):
            await alice.send_file(source, chunk_size_bytes=CHUNK, timeout_ms=2_000)
        await asyncio.sleep(60)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}

    world = run_world(scenario)
    chunks = [decode_file_message(message) for message in world.messages("bob")]
    indices = [chunk.index for chunk in chunks if isinstance(chunk, FileChunk)]
    assert indices == list(range(21))
    assert (inbox / "photo.raw").read_bytes() == DATA


def test_a_channel_that_closes_ends_the_sending(source: Path) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        sending = asyncio.create_task(alice.send_file(source, chunk_size_bytes=CHUNK))
        await asyncio.sleep(5)
        await close_channel(alice)
        with pytest.raises(ChannelClosedError, match=r"closed while 'photo\.raw' was sent: send it again on a new one"):
            await sending
        with pytest.raises(ChannelClosedError):
            await alice.send_file(source)

    run_world(scenario)


@pytest.mark.parametrize(
    ("chosen", "reason", "error"),
    [
        (True, "failed", "the place chosen is a bool: it must be the path of a file, or None"),
        (b"place", "failed", "the place chosen is a bytes: it must be the path of a file, or None"),
        (".", "failed", "the place chosen is '.': it must be the path of a file"),
        ("inbox/a\0", "failed", r"the place chosen is 'inbox/a\x00': it must be the path of a file"),
        ("inbox/\ud800", "failed", r"the place chosen is 'inbox/\ud800': it must be the path of a file"),
        ("inbox", "exists", "the place chosen is a directory: choose the path of a file in it: 'inbox'"),
        ("missing/photo", "failed", "No such file or directory: 'missing/photo'"),
    ],
)
def test_what_is_no_place_for_a_file_says_so(
    source: Path, inbox: Path, chosen: Any, reason: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inbox.parent)
    failed: list[FileFailedEvent] = []

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.on(FileFailedEvent, failed.append)
        bob.receive_files(lambda offer: chosen)
        with pytest.raises(FileRefusedError, match=rf"refused by 'bob' \({reason}\)"):
            await alice.send_file(source, delivered_when={"bob"}, timeout_ms=60_000)
        await asyncio.sleep(1)

    assert inbox.name == "inbox"
    run_world(scenario)
    assert [(event.reason, event.error) for event in failed] == [(reason, error)]


def test_a_name_that_no_file_can_have_is_refused_before_anything_is_sent(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(lambda offer: inbox / ("x" * 300))
        with pytest.raises(FileRefusedError, match=r"refused by 'bob' \(failed\)"):
            await alice.send_file(source, delivered_when={"bob"}, timeout_ms=60_000)

    world = run_world(scenario)
    assert "requested" not in {status.state for status in statuses(world, "bob")}


class Odd(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, GeneratorExit, Odd])
def test_a_function_that_chooses_and_raises_is_told_of_in_the_log(
    kind: type[BaseException], is_async: bool, source: Path, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def choose(offer: FileOffer) -> Path:
        raise kind(offer.name)

    async def choose_later(offer: FileOffer) -> Path:
        await asyncio.sleep(0.1)
        return choose(offer)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(choose_later if is_async else choose)
        with pytest.raises(FileRefusedError, match=r"refused by 'bob' \(failed\)"):
            await alice.send_file(source, delivered_when={"bob"}, timeout_ms=60_000)
        with pytest.raises(ConfigError, match=r"destination .*<lambda> cannot be called with one argument"):
            alice.receive_files(lambda: inbox)  # type: ignore[arg-type, misc]

    [failed] = run_world(scenario).of("bob", FileFailedEvent)
    [line] = [record.getMessage() for record in caplog.records if "receive_files" in record.getMessage()]
    assert re.search(rf"receive_files.*choose\w* raised {kind.__name__} at {re.escape(__file__)}:\d+ in choose", line)
    assert failed.error == f"choosing a place raised {kind.__name__}"
    assert source.name not in line


def test_wrong_arguments_are_refused_at_once(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        channel = await world.join("alice")
        for settings, error in (
            (
                {"chunk_size_bytes": 4_095},
                r"chunk_size_bytes is 4095: it must be an integer from 4,096 to [\d,]+, which",
            ),
            ({"chunk_size_bytes": (16 << 20) + 1}, "chunk_size_bytes is 16777217"),
            ({"timeout_ms": -1}, "timeout_ms is -1: it must be None or an integer of at least 0"),
            (
                {"timeout_ms": 10**12 + 1},
                "timeout_ms is too large: it must be at most 1000000000000",
            ),
            # By the name of the argument, not as a fault of the channel's configuration.
            ({"delivered_when": 0}, r"^delivered_when is 0: it must be 'any'"),
            ({"delivered_when": ["bob"]}, r"^delivered_when is \['bob'\]: it must be 'any', .* or a non-empty set"),
            ({"delivered_when": {"alice"}}, "delivered_when names 'alice' alone, who sends the file: name who shall"),
            ({"name": 5}, "name is 5: it must be a text"),
        ):
            with pytest.raises(ConfigError, match=error):
                await channel.send_file(source, **settings)  # type: ignore[arg-type]
        with pytest.raises(FileNotFoundError):
            await channel.send_file(inbox / "none")
        for destination in (inbox / "none", source, "", 5, None, "x" * 5_000, "a\0b"):
            with pytest.raises(ConfigError, match=r"destination is .*: it must be a directory that exists or a func"):
                channel.receive_files(destination)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"file_bytes_max is 1\.5"):
            channel.receive_files(inbox, file_bytes_max=1.5)  # type: ignore[arg-type]
        end = channel.receive_files(inbox)
        with pytest.raises(ConfigError, match="being received on this channel: end that first"):
            channel.receive_files(inbox)
        end()
        channel.receive_files(inbox)
        end()
        await channel.close()
        with pytest.raises(ChannelClosedError, match="is closed: create it again"):
            channel.receive_files(inbox)

    run_world(scenario)


def test_a_group_may_share_who_must_have_a_file(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        assert await alice.send_file(source, delivered_when={"alice", "bob"}, timeout_ms=60_000) == {"bob"}

    run_world(scenario)


def test_small_messages_make_small_chunks(source: Path, inbox: Path) -> None:
    config = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=512))
    tiny = replace(config, segmentation=replace(config.segmentation, max_total_segments=4))

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", config), await world.join("bob", config)
        bob.receive_files(inbox)
        await alice.send_file(source)
        carol = await world.join("carol", tiny)
        with pytest.raises(ConfigError, match=r"a message of this channel holds [\d,]+ bytes: files need 4,224; raise"):
            await carol.send_file(source)

    world = run_world(scenario)
    decoded = [decode_file_message(message) for message in world.messages("bob")]
    assert max(len(chunk.data) for chunk in decoded if isinstance(chunk, FileChunk)) < 512 * 255
    assert (inbox / "photo.raw").read_bytes() == DATA

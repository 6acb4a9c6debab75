"""What a receiver of files takes, keeps and removes."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from channel_world import World, run_world

from shardwire import FileFailedEvent, FileReceivedEvent, ReliableChannel, keccak256
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
from shardwire.files.partial import PartialFile

CHUNK = 4 << 10


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "photo.raw"
    path.write_bytes(bytes(5 * CHUNK))
    return path


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    path = tmp_path / "inbox"
    path.mkdir()
    return path


def sizes(inbox: Path) -> list[int]:
    return sorted(path.stat().st_size for path in inbox.iterdir())


def test_a_file_of_just_the_size_that_is_taken_is_taken(source: Path, inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox, file_bytes_max=5 * CHUNK)
        assert await alice.send_file(source, chunk_size_bytes=CHUNK) == {"bob"}
        await asyncio.sleep(1)

    run_world(scenario)


def offered(data: bytes, nonce: int = 1) -> list[bytes]:
    """The offer of a file of two chunks, and its first chunk."""
    last = keccak256(data[CHUNK:] + bytes(32))
    offer, transfer_id = encode_file_manifest(
        name="photo.raw",
        size_bytes=len(data),
        chunk_size_bytes=CHUNK,
        chain_hash=keccak256(data[:CHUNK] + last),
        nonce=1,
        session=9,
    )
    chunk = encode_file_chunk(
        transfer_id=transfer_id, index=0, next_hash=last, data=data[:CHUNK], nonce=nonce, session=9
    )
    return [offer, chunk]


async def interrupted(world: World, inbox: Path) -> tuple[ReliableChannel, ReliableChannel, bytes]:
    """Alice, bob, who has the first of two chunks and receives no files now, and the offer."""
    alice, bob = await world.join("alice"), await world.join("bob")
    end = bob.receive_files(inbox)
    offer, chunk = offered(bytes(2 * CHUNK))
    for message in (offer, chunk):
        await alice.send(message)
    await asyncio.sleep(5)
    end()
    return alice, bob, offer


def test_what_was_begun_of_a_file_is_removed_where_another_one_has_taken_its_place(inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob, offer = await interrupted(world, inbox)
        assert sizes(inbox) == [32, CHUNK]
        (inbox / "photo.raw").write_bytes(b"another one")
        bob.receive_files(inbox)
        await alice.send(offer)
        await asyncio.sleep(5)

    world = run_world(scenario)
    assert [event.reason for event in world.of("bob", FileFailedEvent)] == ["exists"]
    assert os.listdir(inbox) == ["photo.raw"]


def test_chunks_of_a_file_that_makes_room_for_another_one_stay(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "TRANSFERS_MAX", 1)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(lambda offer: inbox / offer.transfer_id)
        for message in offered(bytes(2 * CHUNK)):
            await alice.send(message)
        await asyncio.sleep(2 * receiver_module.TRANSFER_IDLE_MS / 1_000)
        await alice.send(offered(bytes(CHUNK) + b"x")[0])
        await asyncio.sleep(5)

    run_world(scenario)
    assert sizes(inbox) == [0, 0, 32, CHUNK]


def test_chunks_that_come_again_are_no_wrong_ones(inbox: Path) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        data = bytes(2 * CHUNK)
        await alice.send(offered(data)[0])
        for nonce in range(2 * receiver_module.WRONG_CHUNKS_MAX):
            await alice.send(offered(data, nonce)[1])
        await asyncio.sleep(20)

    world = run_world(scenario)
    assert world.of("bob", FileFailedEvent) == []
    assert len(os.listdir(inbox)) == 2


def test_how_far_a_file_has_come_is_told_once_in_so_many_bytes(
    source: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "REPORT_BYTES", 2 * CHUNK)

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        await alice.send_file(source, chunk_size_bytes=CHUNK)
        await asyncio.sleep(1)

    told = map(decode_file_message, run_world(scenario).messages("alice"))
    assert [each.next_index for each in told if isinstance(each, FileStatus) and each.state == "held"] == [2, 4]


@pytest.mark.parametrize("session", [8, 9])
def test_an_offer_is_withdrawn_by_who_made_it(inbox: Path, session: int) -> None:
    """The one that is made now is not by what was said of an earlier one."""

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        offer = offered(bytes(2 * CHUNK))[0]
        await alice.send(offer)
        await asyncio.sleep(5)
        manifest = decode_file_message(offer)
        assert isinstance(manifest, FileManifest)
        await alice.send(
            encode_file_status(
                transfer_id=manifest.transfer_id, state="withdrawn", reason="changed", nonce=1, session=session
            )
        )
        await asyncio.sleep(5)

    world = run_world(scenario)
    assert [event.reason for event in world.of("bob", FileFailedEvent)] == (["changed"] if session == 9 else [])
    assert world.of("bob", FileReceivedEvent) == []


@pytest.mark.parametrize("ending", ["received", "withdrawn"])
def test_of_a_file_that_is_over_nothing_is_asked(inbox: Path, ending: str) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(inbox)
        data = bytes(2 * CHUNK)
        for message in offered(data):
            await alice.send(message)
        manifest = decode_file_message(offered(data)[0])
        assert isinstance(manifest, FileManifest)
        transfer_id = manifest.transfer_id
        last = encode_file_chunk(
            transfer_id=transfer_id, index=1, next_hash=bytes(32), data=data[CHUNK:], nonce=1, session=9
        )
        withdrawal = encode_file_status(
            transfer_id=transfer_id, state="withdrawn", reason="changed", nonce=1, session=9
        )
        await alice.send(last if ending == "received" else withdrawal)
        await asyncio.sleep(5)
        await alice.send(offered(data, nonce=2)[1])
        await asyncio.sleep(5)

    told = map(decode_file_message, run_world(scenario).messages("alice"))
    states = [each.state for each in told if isinstance(each, FileStatus)]
    assert states == (["requested", "received"] if ending == "received" else ["requested"])


def test_the_file_of_which_nothing_came_for_longest_makes_room(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that was offered first."""
    monkeypatch.setattr(receiver_module, "TRANSFERS_MAX", 2)
    idle_s = receiver_module.TRANSFER_IDLE_MS / 1_000

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(lambda offer: inbox / offer.transfer_id)
        first, silent, third = [offered(bytes(CHUNK) + bytes([number])) for number in range(3)]
        for message in (first[0], silent[0]):
            await alice.send(message)
        await asyncio.sleep(idle_s - 1)
        await alice.send(first[1])
        await asyncio.sleep(5)
        await alice.send(third[0])
        await asyncio.sleep(5)

    assert run_world(scenario).of("bob", FileFailedEvent) == []


def test_a_file_that_is_under_way_makes_no_room(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "TRANSFERS_MAX", 1)
    idle_s = receiver_module.TRANSFER_IDLE_MS / 1_000

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        bob.receive_files(lambda offer: inbox / offer.transfer_id)
        first, second = [offered(bytes(CHUNK) + bytes([number])) for number in range(2)]
        await alice.send(first[0])
        await asyncio.sleep(idle_s - 1)
        await alice.send(first[1])
        await asyncio.sleep(5)
        await alice.send(second[0])
        await asyncio.sleep(5)

    assert [event.reason for event in run_world(scenario).of("bob", FileFailedEvent)] == ["busy"]


@pytest.mark.parametrize("free_bytes", [CHUNK, CHUNK - 1])
def test_a_file_is_taken_up_where_what_is_missing_of_it_fits_the_disk(
    inbox: Path, free_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        alice, bob, offer = await interrupted(world, inbox)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free_bytes))
        bob.receive_files(inbox)
        await alice.send(offer)
        await asyncio.sleep(5)

    failed = [event.reason for event in run_world(scenario).of("bob", FileFailedEvent)]
    assert failed == ([] if free_bytes == CHUNK else ["no_space"])
    assert len(os.listdir(inbox)) == (2 if free_bytes == CHUNK else 0)


def test_what_lies_behind_the_right_chunks_of_a_partial_file_is_not_of_the_file(tmp_path: Path) -> None:
    data = bytes(2 * CHUNK)
    manifest, chunk = map(decode_file_message, offered(data))
    assert isinstance(manifest, FileManifest)
    assert isinstance(chunk, FileChunk)
    partial = PartialFile(tmp_path / "photo.raw", manifest, "mark")
    partial.resume()
    partial.write(chunk)
    for path in tmp_path.iterdir():
        with path.open("ab") as file:
            file.write(b"\1" * 3 * CHUNK)
    again = PartialFile(tmp_path / "photo.raw", manifest, "mark")
    again.resume()
    last = decode_file_message(
        encode_file_chunk(
            transfer_id=manifest.transfer_id, index=1, next_hash=bytes(32), data=data[CHUNK:], nonce=1, session=9
        )
    )
    assert isinstance(last, FileChunk)
    assert again.fits(last)
    again.write(last)
    again.finish()
    assert (tmp_path / "photo.raw").read_bytes() == data

"""The hash chain of a file, and the partial file that it guards: what is wrong is not taken, whatever a crash left."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from shardwire import ConfigError, FileChangedError, keccak256
from shardwire._native import FileChunk, FileManifest, decode_file_message, encode_file_chunk, encode_file_manifest
from shardwire.files import partial as partial_module
from shardwire.files.chain import END_OF_CHAIN, FileSource, file_has_chain
from shardwire.files.partial import PartialFile

CHUNK = 4_096
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 5 * CHUNK + 7]


def by_definition(data: bytes) -> list[bytes]:
    """The hash of each chunk, as `proto/file_transfer.proto` says it, and the end behind them."""
    hashes = [bytes(32)]
    for start in reversed(range(0, len(data), CHUNK)):
        hashes.insert(0, keccak256(data[start : start + CHUNK] + hashes[0]))
    return hashes


def offer_of(data: bytes, name: str = "a.bin") -> FileManifest:
    message, _ = encode_file_manifest(
        name=name, size_bytes=len(data), chunk_size_bytes=CHUNK, chain_hash=by_definition(data)[0], nonce=1, session=9
    )
    manifest = decode_file_message(message)
    assert isinstance(manifest, FileManifest)
    return manifest


def chunk_of(index: int, data: bytes, next_hash: bytes) -> FileChunk:
    message = encode_file_chunk(transfer_id=bytes(32), index=index, next_hash=next_hash, data=data, nonce=1, session=9)
    chunk = decode_file_message(message)
    assert isinstance(chunk, FileChunk)
    return chunk


def chunks_of(data: bytes) -> list[FileChunk]:
    hashes = by_definition(data)
    return [
        chunk_of(index, data[start : start + CHUNK], hashes[index + 1])
        for index, start in enumerate(range(0, len(data), CHUNK))
    ]


def data_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_a_source_gives_the_chain_and_its_chunks(tmp_path: Path, size: int) -> None:
    data, path = data_of(size), tmp_path / "file"
    path.write_bytes(data)
    source = FileSource(path, CHUNK)
    try:
        assert source.scan() == by_definition(data)[0]
        expected = [(chunk.data, chunk.next_hash) for chunk in chunks_of(data)]
        assert [source.read(index) for index in range(source.chunk_count)] == expected
    finally:
        source.close()
    assert file_has_chain(path, size, CHUNK, by_definition(data)[0])
    assert not file_has_chain(path, size, CHUNK, keccak256(b"another"))
    assert not file_has_chain(path, size + 1, CHUNK, by_definition(data)[0])


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(2 * CHUNK)
        file.write(b"changed")


@pytest.mark.parametrize(
    "change", [_overwrite, lambda path: os.truncate(path, 2 * CHUNK + 1), lambda path: os.truncate(path, 9 * CHUNK)]
)
def test_a_source_that_changes_is_not_sent_on(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "file"
    path.write_bytes(data_of(4 * CHUNK))
    source = FileSource(path, CHUNK)
    try:
        source.scan()
        source.read(2)
        change(path)
        with pytest.raises(FileChangedError, match=r"changed while it was sent: send it again"):
            source.read(2)
    finally:
        source.close()


@pytest.mark.parametrize("said", [0, 2 * CHUNK, 9 * CHUNK])
def test_a_file_of_another_size_than_it_says_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int
) -> None:
    """As files of /proc, which have no size, and of /sys, which have a page."""
    monkeypatch.setattr(FileSource, "_has_its_size", lambda source: True)
    path = tmp_path / "file"
    path.write_bytes(data_of(4 * CHUNK))
    source = FileSource(path, CHUNK)
    source.size_bytes, source.chunk_count = said, said // CHUNK
    try:
        with pytest.raises(FileChangedError, match=f"does not have the {said} bytes .* send a copy of it"):
            source.scan()
    finally:
        source.close()


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="this system has no files without a size")
def test_a_file_without_a_size_is_not_sent_as_an_empty_one() -> None:
    source = FileSource(Path("/proc/cpuinfo"), CHUNK)
    try:
        with pytest.raises(FileChangedError, match="does not have the 0 bytes"):
            source.scan()
    finally:
        source.close()


def test_only_regular_files_are_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="it must be a regular file"):
            FileSource(path, CHUNK)
    with pytest.raises(FileNotFoundError):
        FileSource(tmp_path / "none", CHUNK)


def receive(partial: PartialFile, chunks: list[FileChunk]) -> None:
    for chunk in chunks:
        assert partial.fits(chunk)
        partial.write(chunk)


@pytest.mark.parametrize("size", SIZES)
def test_a_partial_file_becomes_the_file(tmp_path: Path, size: int) -> None:
    data = data_of(size)
    partial = PartialFile(tmp_path / "a.bin", offer_of(data), "bob")
    partial.resume()
    for chunk in chunks_of(data):
        assert not partial.is_whole
        assert not (tmp_path / "a.bin").exists()
        receive(partial, [chunk])
    assert partial.is_whole
    assert partial.held_bytes == size
    partial.finish()
    assert (tmp_path / "a.bin").read_bytes() == data
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_wrong_chunk_does_not_fit() -> None:
    data = data_of(3 * CHUNK + 5)
    first, second, *_, last = chunks_of(data)
    partial = PartialFile(Path("a.bin"), offer_of(data), "bob")
    assert partial.fits(first)
    altered = bytes([first.data[0] ^ 1]) + first.data[1:]
    for index, chunk_data, next_hash in (
        (0, altered, first.next_hash),
        (0, first.data, keccak256(first.next_hash)),
        (0, first.data[:-1], first.next_hash),
        (0, first.data + b"0", first.next_hash),
        (1, second.data, second.next_hash),
        (1, first.data, first.next_hash),
        (3, last.data, END_OF_CHAIN),
        (1 << 63, first.data, first.next_hash),
    ):
        assert not partial.fits(chunk_of(index, chunk_data, next_hash))


def test_a_chain_that_goes_on_behind_the_last_chunk_is_refused(tmp_path: Path) -> None:
    # Its sender claims fewer bytes than it hashed.
    data = data_of(2 * CHUNK)
    message, _ = encode_file_manifest(
        name="a", size_bytes=CHUNK, chunk_size_bytes=CHUNK, chain_hash=by_definition(data)[0], nonce=1, session=9
    )
    manifest = decode_file_message(message)
    assert isinstance(manifest, FileManifest)
    partial = PartialFile(tmp_path / "a", manifest, "bob")
    assert not partial.fits(chunks_of(data)[0])
    message, _ = encode_file_manifest(
        name="a", size_bytes=0, chunk_size_bytes=CHUNK, chain_hash=by_definition(data)[0], nonce=1, session=9
    )
    manifest = decode_file_message(message)
    assert isinstance(manifest, FileManifest)
    assert not PartialFile(tmp_path / "a", manifest, "bob").is_whole


def test_a_claimed_size_allocates_and_writes_nothing(tmp_path: Path) -> None:
    message, _ = encode_file_manifest(
        name="a", size_bytes=(1 << 63) - 1, chunk_size_bytes=CHUNK, chain_hash=bytes(32), nonce=1, session=9
    )
    manifest = decode_file_message(message)
    assert isinstance(manifest, FileManifest)
    partial = PartialFile(tmp_path / "a", manifest, "bob")
    partial.resume()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0, 0]


def test_what_a_crash_leaves_is_taken_up_as_far_as_it_is_right(tmp_path: Path) -> None:
    rng = random.Random(5)
    data = data_of(8 * CHUNK + 100)
    chunks = chunks_of(data)
    resumed_at = set()
    for _ in range(60):
        partial = PartialFile(tmp_path / "a.bin", offer_of(data), "bob")
        partial.resume()
        assert partial.next_index == 0
        held = rng.randrange(len(chunks) + 1)
        receive(partial, chunks[:held])
        right = held
        # The disk forgets an end of either file, or a block of it.
        for path, unit in ((partial._data, CHUNK), (partial._hashes, 32)):
            length = path.stat().st_size
            if length and rng.random() < 0.5:
                kept = rng.randrange(length + 1)
                os.truncate(path, kept)
                whole = held if kept == length else kept // unit
                right = min(right, whole)
            if (length := path.stat().st_size) and rng.random() < 0.5:
                place = rng.randrange(length)
                stored = bytearray(path.read_bytes())
                stored[place] ^= 1
                path.write_bytes(stored)
                right = min(right, place // unit)
        again = PartialFile(tmp_path / "a.bin", offer_of(data), "bob")
        again.resume()
        assert again.next_index == right
        resumed_at.add(right)
        receive(again, chunks[right:])
        again.finish()
        assert (tmp_path / "a.bin").read_bytes() == data
        assert os.listdir(tmp_path) == ["a.bin"]
        (tmp_path / "a.bin").unlink()
    assert len(resumed_at) > 4


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_file_that_is_there_is_never_replaced(tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    if not links:
        monkeypatch.setattr(partial_module.os, "link", refuse)
    data = data_of(100)
    partial = PartialFile(tmp_path / "a.bin", offer_of(data), "bob")
    partial.resume()
    receive(partial, chunks_of(data))
    (tmp_path / "a.bin").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        partial.finish()
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "a.bin").unlink()
    partial.finish()
    assert (tmp_path / "a.bin").read_bytes() == data
    assert os.listdir(tmp_path) == ["a.bin"]


def test_two_receive_a_file_in_one_directory(tmp_path: Path) -> None:
    """What one has written the other one neither cuts off nor misses."""
    data = data_of(3 * CHUNK)
    first, second, third = chunks_of(data)
    bob, carol = (PartialFile(tmp_path / "a.bin", offer_of(data), name) for name in ("bob", "carol"))
    bob.resume()
    receive(bob, [first])
    carol.resume()
    assert carol.next_index == 0
    receive(bob, [second, third])
    bob.finish()
    assert (tmp_path / "a.bin").read_bytes() == data
    receive(carol, [first, second, third])
    carol.finish()
    assert (tmp_path / "a.bin").read_bytes() == data
    assert os.listdir(tmp_path) == ["a.bin"]

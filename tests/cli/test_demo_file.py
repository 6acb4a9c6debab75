"""The demo of what no message holds: sent as a file, live, and its chunks reconstructed from the archive."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from shardwire import keccak256
from shardwire.cli.app import run
from shardwire.cli.demo.file_live import FileBars, FileLiveResult, run_file_live
from shardwire.cli.demo.file_run import ArchivedChunks, archived_chunks, broken_promises
from shardwire.cli.demo.settings import RECEIVERS, largest_file_bytes
from shardwire.cli.demo.spark_check import SparkMessage, SparkResult
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import run_virtual

SIZE_BYTES = 5_000_000
CHUNK_BYTES = 256 << 10
CHUNKS = -(-SIZE_BYTES // CHUNK_BYTES)


def test_five_megabytes_arrive_as_a_file_and_the_archive_holds_their_chunks(tmp_path: Path) -> None:
    payload = random.Random(7).randbytes(SIZE_BYTES)
    file = tmp_path / "five.bin"
    file.write_bytes(payload)
    private = tmp_path / "private"
    private.mkdir()
    encryption = ChaCha20Poly1305Encryption(bytes(32))
    bars = FileBars(Console(quiet=True), SIZE_BYTES)
    archive = tmp_path / "archive"
    live = run_virtual(
        run_file_live(
            file,
            encryption,
            archive=archive,
            private=private,
            seed=7,
            bars=bars,
            size_bytes=SIZE_BYTES,
            chunk_size_bytes=CHUNK_BYTES,
        ),
        limit_ms=600_000,
    )
    assert live.delivered_to == set(RECEIVERS)
    assert live.hashes == dict.fromkeys(RECEIVERS, keccak256(payload))
    expected = {keccak256(payload[start : start + CHUNK_BYTES]) for start in range(0, SIZE_BYTES, CHUNK_BYTES)}
    assert len(live.chunks) >= len(expected) == CHUNKS  # Some went again, as other messages.
    assert [task.percentage for task in bars._progress.tasks if task.total] == [100.0, 100.0]
    key_file = tmp_path / "key"
    encryption.write_key_file(key_file)
    assert b"".join(path.read_bytes() for path in archive.iterdir()).find(payload[:64]) == -1


def answer(*messages: SparkMessage) -> SparkResult:
    return SparkResult(messages, 1.0, 1.0)


def message(name: bytes, status: str = "complete", found: bytes | None = None) -> SparkMessage:
    return SparkMessage(name, status, 3, 2, 4, 0, 10, name if found is None and status != "incomplete" else found)


A, B, C, OTHER = (keccak256(name) for name in (b"a", b"b", b"c", b"other"))
LIVE = FileLiveResult(frozenset(RECEIVERS), dict.fromkeys(RECEIVERS, A), {A, B, C})


@pytest.mark.parametrize(
    ("messages", "expected", "phrases"),
    [
        ([message(A), message(B, "recovered"), message(C), message(OTHER)], ArchivedChunks(3, 1, 0, 0), []),
        ([message(A), message(B, "incomplete")], ArchivedChunks(1, 0, 2, 0), []),
        ([message(A), message(B, found=C)], ArchivedChunks(1, 0, 2, 1), ["1 messages that Spark found do not have"]),
        ([message(A), message(B, "invalid")], ArchivedChunks(2, 0, 1, 1), ["1 messages that Spark found do not have"]),
        ([message(OTHER)], ArchivedChunks(0, 0, 3, 0), ["Spark rebuilt no chunk"]),
    ],
)
def test_what_spark_found_is_judged_by_hashes(
    messages: list[SparkMessage], expected: ArchivedChunks, phrases: list[str]
) -> None:
    found = archived_chunks(LIVE, answer(*messages))
    assert found == expected
    told = broken_promises(LIVE, found, A)
    assert len(told) == len(phrases)
    assert all(phrase in line for phrase, line in zip(phrases, told, strict=True))


def test_a_file_that_differs_or_is_not_reported_fails_the_demo() -> None:
    good = ArchivedChunks(3, 0, 0, 0)
    assert broken_promises(LIVE, good, A) == []
    assert len(broken_promises(replace(LIVE, hashes={"bob": A}), good, A)) == 1
    assert len(broken_promises(replace(LIVE, delivered_to=frozenset({"bob"})), good, A)) == 1


@pytest.mark.parametrize("options", [[], ["--as-file"]])
def test_what_one_message_does_not_hold_goes_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    file = tmp_path / "file.bin"
    with file.open("wb") as opened:
        opened.truncate(100_000 if options else largest_file_bytes() + 1)
    taken: list[Path] = []

    def run_file_demo(chosen: Path, output: Path, seed: int, *, aside: bool) -> int:
        assert not aside
        taken.append(chosen)
        return 0

    monkeypatch.setattr("shardwire.cli.demo.run.run_file_demo", run_file_demo)
    assert run(["demo", str(file), "-o", str(tmp_path / "output"), *options]) == 0
    assert taken == [file]


@pytest.mark.spark
@pytest.mark.slow
def test_demo_of_a_file_from_end_to_end(tmp_path: Path) -> None:
    payload = random.Random(7).randbytes(SIZE_BYTES)
    (tmp_path / "file.bin").write_bytes(payload)
    done = subprocess.run(
        [sys.executable, "-m", "shardwire.cli", "demo", "file.bin", "--as-file", "--output", "output"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for expected in (keccak256(payload).hex(), "received by bob, carol", " chunks rebuilt", "Everything matched"):
        assert expected in done.stdout
    assert "Traceback" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.bin", "output"]
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["archive.parquet", "spark.log"]

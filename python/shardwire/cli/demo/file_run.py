"""The demo of a file that no message holds, from end to end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

from shardwire.cli.demo.file_live import FileBars, FileLiveResult, file_config, file_hash, run_file_live
from shardwire.cli.demo.settings import ARCHIVE, BESIDE_LISTENER, CONDITIONS, LISTENER, RECEIVERS, SENDER, SPARK_LOG
from shardwire.cli.demo.spark_check import SparkResult, reconstruct_on_spark
from shardwire.encryption import ChaCha20Poly1305Encryption


@dataclass(frozen=True, slots=True)
class ArchivedChunks:
    """What Spark made of the archive.

    Attributes:
        whole: Chunks that it rebuilt and whose hash is right.
        recovered: Of those, the ones that took parity.
        missing: Chunks that the receiver beside the listener has and the archive has not whole.
        false: Messages whose hash is not right.
    """

    whole: int
    recovered: int
    missing: int
    false: int


def run_file_demo(file: Path, output: Path, seed: int, *, aside: bool = False) -> int:
    """Runs the demo with `send_file` and prints what happens.

    Args:
        file: What to send.
        output: Directory that gets the archive.
        seed: Of the network's faults.
        aside: Whether what happens is told on the standard error stream.

    Returns:
        0 where both receivers have every byte, the sender knows it, and every chunk that Spark rebuilt is right;
        else 1.

    Raises:
        ShardwireError: The file was not received in time.
        OSError: A file cannot be read or written.
    """
    started = time.monotonic()
    console = Console(soft_wrap=True, stderr=aside)
    size_bytes = file.stat().st_size
    expected = file_hash(file)
    receivers = " and ".join(RECEIVERS)
    console.print(
        f"[bold]{SENDER}[/bold] sends {file} ({size_bytes:,} bytes) to {receivers} as a file, in chunks of one message "
        f"each; {LISTENER}, beside {BESIDE_LISTENER}, only listens.\n"
        f"The network loses {CONDITIONS.loss:.0%}, duplicates {CONDITIONS.duplicate:.0%} and reorders "
        f"{CONDITIONS.reorder:.0%} on the way to each of them.\nKeccak-256 {expected.hex()}\n",
        highlight=False,
    )
    archive = output / ARCHIVE
    shutil.rmtree(archive, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    # Keys, databases and copies of the file are of no use after the run: they go with it. Executors, which run
    # elsewhere, read the key.
    with tempfile.TemporaryDirectory(prefix=".shardwire-demo-", dir=output.resolve()) as name:
        private = Path(name)
        encryption = ChaCha20Poly1305Encryption(os.urandom(32))
        key_file = private / "channel.key"
        encryption.write_key_file(key_file)
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)])
        with FileBars(console, size_bytes) as bars:
            live = asyncio.run(
                run_file_live(
                    file, encryption, archive=archive, private=private, seed=seed, bars=bars, size_bytes=size_bytes
                )
            )
        console.print(
            f"received by {', '.join(sorted(live.delivered_to))}; {live.archived_rows} messages archived",
            highlight=False,
        )
        with console.status(f"Spark reconstructs the chunks from {archive} on two executors"):
            spark = reconstruct_on_spark(archive, key_file, file_config().segmentation, output / SPARK_LOG)
    chunks = archived_chunks(live, spark)
    console.print(
        f"Spark: {chunks.whole} of {len(live.chunks)} chunks rebuilt from the archive and verified by their hashes, "
        f"{chunks.recovered} of them through parity. It rebuilds messages: only the "
        f"channel's receivers join chunks to a file.\nLive part {live.seconds:.1f} s, Spark {spark.seconds:.1f} s "
        f"(its job {spark.job_seconds:.1f} s), all {time.monotonic() - started:.1f} s.",
        highlight=False,
    )
    broken = broken_promises(live, chunks, expected)
    for phrase in broken:
        console.print(f"[red]failed:[/red] {phrase}")
    if not broken:
        console.print("[green]Everything matched, in the channel and on Spark.")
        if chunks.missing:
            console.print(f"Not shown by this run: the listener heard too little of {chunks.missing} chunks.")
    return 1 if broken else 0


def archived_chunks(live: FileLiveResult, spark: SparkResult) -> ArchivedChunks:
    """What Spark's answer says of the chunks."""
    whole = {one.entire_message_hash for one in spark.messages if one.keccak256 == one.entire_message_hash}
    false = [
        one for one in spark.messages if one.status == "invalid" or one.keccak256 not in (None, one.entire_message_hash)
    ]
    rebuilt = whole & live.chunks
    recovered = sum(one.status == "recovered" for one in spark.messages if one.entire_message_hash in rebuilt)
    return ArchivedChunks(len(rebuilt), recovered, len(live.chunks - whole), len(false))


def broken_promises(live: FileLiveResult, chunks: ArchivedChunks, expected: bytes) -> list[str]:
    """What did not hold, one phrase each."""
    broken = [f"{name} has not the file byte for byte" for name in RECEIVERS if live.hashes.get(name) != expected]
    if not live.delivered_to.issuperset(RECEIVERS):
        broken.append("the sender does not know that both receivers have the file")
    if chunks.false:
        broken.append(f"{chunks.false} messages that Spark found do not have their hash")
    if live.chunks and not chunks.whole:
        broken.append("Spark rebuilt no chunk")
    return broken

"""The demo from end to end."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

from shardwire import keccak256
from shardwire.cli.demo.file_run import run_file_demo
from shardwire.cli.demo.live import LiveResult, run_live
from shardwire.cli.demo.network import lost_segment
from shardwire.cli.demo.picture import draw_picture
from shardwire.cli.demo.progress import LiveBars
from shardwire.cli.demo.report import broken_promises, not_shown, summary_table
from shardwire.cli.demo.settings import (
    ARCHIVE,
    BESIDE_LISTENER,
    CONDITIONS,
    EPOCH_SIZE_MS,
    LISTENER,
    PARITY_RATE,
    RECEIVERS,
    SENDER,
    SPARK_LOG,
    DemoPlan,
    largest_file_bytes,
    plan_demo,
)
from shardwire.cli.demo.source import Source, load_source, regular_size_bytes
from shardwire.cli.demo.spark_check import reconstruct_on_spark
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ShardwireError

PICTURE = "demo.png"


def run_demo(file: Path | None, output: Path, seed: int, *, as_file: bool = False, aside: bool = False) -> int:
    """Runs the demo and prints what happens.

    Args:
        file: What to send; None for a binary of this Python.
        as_file: Whether it goes by `send_file` though one message holds it; what none holds goes so in any case.
        output: Directory that gets the archive and the picture.
        seed: Of the network's faults.
        aside: Whether what happens is told on the standard error stream.

    Returns:
        0 where everybody got every byte, in the channel and on Spark, and the sender knows it; else 1.

    Raises:
        ShardwireError: The file is too small, or it was not delivered.
        OSError: A file cannot be read or written.
    """
    if file is not None and (as_file or regular_size_bytes(file) > largest_file_bytes()):
        return run_file_demo(file, output, seed, aside=aside)
    if as_file:
        raise ShardwireError("--as-file sends a file: name it")
    started = time.monotonic()
    console = Console(soft_wrap=True, stderr=aside)
    source = load_source(file)
    plan = plan_demo(len(source.payload))
    payload_hash = keccak256(source.payload)
    _announce(console, source, plan, payload_hash, lost_segment(plan, seed))
    archive = output / ARCHIVE
    shutil.rmtree(archive, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    # Keys and databases are of no use after the run: they go with it.
    with tempfile.TemporaryDirectory(prefix="shardwire-demo-") as private:
        encryption = ChaCha20Poly1305Encryption(os.urandom(32))
        key_file = Path(private) / "channel.key"
        encryption.write_key_file(key_file)
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)])
        with LiveBars(console, plan.segment_count) as bars:
            live = asyncio.run(
                run_live(source.payload, plan, encryption, archive=archive, state=Path(private), seed=seed, bars=bars)
            )
        _report_live(console, live)
        with console.status(f"Spark reconstructs the file from {archive} on two executors"):
            spark = reconstruct_on_spark(archive, key_file, plan.config.segmentation, output / SPARK_LOG)
    console.print(summary_table(live, spark, plan, payload_hash))
    draw_picture(live, plan, len(source.payload), output / PICTURE)
    console.print(
        f"Live part {live.seconds:.1f} s, Spark {spark.seconds:.1f} s (its job {spark.job_seconds:.1f} s), "
        f"all {time.monotonic() - started:.1f} s. Timeline of the segments: {output / PICTURE}",
        highlight=False,
    )
    broken = broken_promises(live, spark, plan, source.payload)
    for phrase in broken:
        console.print(f"[red]failed:[/red] {phrase}")
    if not broken:
        console.print("[green]Everything matched, in the channel and on Spark.")
        for phrase in not_shown(live, spark):
            console.print(f"Not shown by this run: {phrase}.")
    return 1 if broken else 0


def _announce(console: Console, source: Source, plan: DemoPlan, payload_hash: bytes, lost: int) -> None:
    quota = plan.config.rate_limit.messages_per_epoch
    receivers = " and ".join(RECEIVERS)
    console.print(
        f"[bold]{SENDER}[/bold] sends {source.name} ({len(source.payload):,} bytes) to {receivers}; "
        f"{LISTENER}, beside {BESIDE_LISTENER}, only listens.\n"
        f"{plan.data_segment_count} data and {plan.parity_segment_count} parity segments of "
        f"{plan.config.segmentation.segment_size_bytes:,} bytes (Reed-Solomon, parity_rate={PARITY_RATE}), "
        f"ChaCha20-Poly1305, at most {quota} messages in {EPOCH_SIZE_MS / 1_000:.0f} s.\n"
        f"The network loses {CONDITIONS.loss:.0%}, duplicates {CONDITIONS.duplicate:.0%} and "
        f"reorders {CONDITIONS.reorder:.0%} on the way to each of them. Data segment {lost} reaches nobody, however "
        f"often it is sent: parity has to bring it back.\n"
        f"Keccak-256 {payload_hash.hex()}\n",
        highlight=False,
    )


def _report_live(console: Console, live: LiveResult) -> None:
    for name, at_ms in (("sent", live.sent_at_ms), ("delivered", live.delivered_at_ms)):
        if at_ms is not None:
            console.print(
                f"event [bold]{name}[/bold] after {(at_ms - live.began_at_ms) / 1_000:.1f} s", highlight=False
            )
    console.print(
        f"delivered to {', '.join(sorted(live.delivered_to)) or 'nobody'}; {live.retransmissions} retransmissions, "
        f"{live.epochs_crossed} epoch boundaries crossed, {live.archived_rows} messages archived",
        highlight=False,
    )

"""Goodput of reliable channels on the in-memory node: `python benches/python/channel_goodput.py`.

First one sender and three receivers under loss, in virtual time: how long until all three hold the message, what went
over the wire, what was sent again. Then one receiver in the same process and real time, beside the floor: two passes
of Keccak-256 and one of SHA-256 over the payload.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import os
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from shardwire import (
    ChannelConfig,
    MemoryPersistence,
    Persistence,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    SqlitePersistence,
    close_channel,
    create_reliable_channel,
    keccak256,
)
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual

TOPIC = "/shardwire/1/bench/proto"
LOSSES = (0.0, 0.05, 0.2, 0.4)
SIZES = (1_000, 1_000_000, 16_000_000)
BURST_BYTES = 16_000_000
BURSTS = 16
RESULTS = Path(__file__).resolve().parent.parent / "results"


async def join(
    network: MemoryNetwork, name: str, config: ChannelConfig, persistence: Persistence, *, encrypted: bool = False
) -> ReliableChannel:
    node = network.create_node(name)
    await node.start()
    encryption = ChaCha20Poly1305Encryption([bytes(32)]) if encrypted else None
    sds = SdsConfig(persistence=persistence)
    config = ChannelConfig.logos(segmentation=config.segmentation, sds=sds, delivered_when=config.delivered_when)
    return await create_reliable_channel(node, "bench", TOPIC, name, encryption, config, rng=random.Random(name))


async def through_loss(loss: float, size_bytes: int) -> tuple[float, float, int]:
    """Virtual seconds until delivery to all three, wire bytes over payload bytes, retransmissions."""
    network = MemoryNetwork(NetworkConditions(loss=loss, delay_ms=(5, 40)), seed=1)
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=loss > 0), delivered_when=3)
    channels = [await join(network, name, config, MemoryPersistence()) for name in ("alice", "bob", "carol", "dave")]
    for channel in channels[1:]:
        channel.on_message_received(lambda event: None)
    # What members say when they join is not part of the figure.
    await asyncio.sleep(60)
    before = sum(record.size_bytes for record in network.trace)
    loop = asyncio.get_running_loop()
    start = loop.time()
    request_id = await channels[0].send(random.Random(2).randbytes(size_bytes))
    await channels[0].delivered(request_id, timeout_ms=600_000)
    elapsed = loop.time() - start
    wire_bytes = sum(record.size_bytes for record in network.trace) - before
    retransmissions = channels[0].stats().get("dispatched_retransmission", 0)
    for channel in channels:
        await close_channel(channel)
    return elapsed, wire_bytes / size_bytes, retransmissions


async def in_one_process(directory: Path, *, sqlite: bool, encrypted: bool) -> tuple[float, list[float], list[float]]:
    """Wire bytes over payload bytes, and for each message the seconds of processor time and of real time."""
    network = MemoryNetwork(NetworkConditions(), seed=1)
    persistences: list[Persistence] = []
    channels = []
    for name in ("alice", "bob"):
        persistences.append(SqlitePersistence(directory / f"{name}{encrypted}.db") if sqlite else MemoryPersistence())
        channels.append(await join(network, name, ChannelConfig.logos(), persistences[-1], encrypted=encrypted))
    arrived = asyncio.Semaphore(0)
    channels[1].on_message_received(lambda event: arrived.release())
    payload = os.urandom(BURST_BYTES)
    processor_s, real_s = [], []
    for _ in range(BURSTS):
        start, processor = time.perf_counter(), time.process_time()
        await channels[0].send(payload)
        await arrived.acquire()
        real_s.append(time.perf_counter() - start)
        processor_s.append(time.process_time() - processor)
    wire_bytes = sum(record.size_bytes for record in network.trace)
    for channel in channels:
        await close_channel(channel)
    for persistence in persistences:
        persistence.close()
    return wire_bytes / (BURSTS * BURST_BYTES), processor_s, real_s


def floor() -> float:
    payload = os.urandom(BURST_BYTES)
    times = []
    for _ in range(3):
        start = time.process_time()
        keccak256(payload)
        keccak256(payload)
        hashlib.sha256(payload).digest()
        times.append(time.process_time() - start)
    return BURST_BYTES / min(times)


def measure_loss() -> list[dict[str, Any]]:
    rows = []
    for loss in LOSSES:
        for size_bytes in SIZES:
            start = time.perf_counter()
            elapsed, overhead, retransmissions = run_virtual(through_loss(loss, size_bytes), limit_ms=3_600_000)
            rows.append(
                {
                    "loss": loss,
                    "payload_bytes": size_bytes,
                    "real_s": round(time.perf_counter() - start, 3),
                    "virtual_s": round(elapsed, 3),
                    "wire_per_payload": round(overhead, 4),
                    "retransmissions": retransmissions,
                }
            )
    return rows


def measure_one_process() -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for sqlite in (False, True):
            for encrypted in (False, True):
                best = floor()
                wire, used_s, real_s = asyncio.run(in_one_process(Path(directory), sqlite=sqlite, encrypted=encrypted))
                rows.append(
                    {
                        "persistence": "SQLite" if sqlite else "memory",
                        "encryption": "ChaCha20-Poly1305" if encrypted else "none",
                        "mb_per_s_of_processor_time": _mb_per_s(statistics.median(used_s)),
                        "mb_per_s_of_real_time": _mb_per_s(statistics.median(real_s)),
                        # What is taken from the system for the first time, such as memory, shows in the first.
                        "first_mb_per_s_of_processor_time": _mb_per_s(used_s[0]),
                        "wire_per_payload": round(wire, 4),
                        # The machine's speed varies: measured right before, so that the two can be compared.
                        "floor_mb_per_s": round(best / 1e6, 1),
                    }
                )
    return rows


def _mb_per_s(seconds: float) -> float:
    return round(BURST_BYTES / seconds / 1e6, 1)


def as_markdown(result: dict[str, Any]) -> str:
    lines = [
        "# Goodput of reliable channels",
        "",
        f"{result['machine']}. Command: `python benches/python/channel_goodput.py --output NAME`.",
        "",
        "One sender and three receivers on the in-memory node, 5 to 40 ms of delay, delivered to all three; parity",
        "where there is loss. Real seconds include the making of four channels and one idle minute of virtual time.",
        "",
        "| loss | payload bytes | real s | virtual s | wire / payload | retransmissions |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["through_loss"]:
        lines.append(
            f"| {row['loss']:.0%} | {row['payload_bytes']:,} | {row['real_s']:.2f} | {row['virtual_s']:.2f} | "
            f"{row['wire_per_payload']:.3f} | {row['retransmissions']} |"
        )
    lines += [
        "",
        f"{BURSTS} messages of 16 MB, one after another, to one receiver in the same process, no loss, no parity: the",
        "median, and the first of them, whose memory comes anew from the system. The floor is two passes of Keccak-256",
        "and one of SHA-256 over the payload, measured right before each row.",
        "",
        "| persistence | encryption | MB/s of processor time | first | MB/s of real time | floor | wire / payload |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["one_process"]:
        lines.append(
            f"| {row['persistence']} | {row['encryption']} | {row['mb_per_s_of_processor_time']:.0f} | "
            f"{row['first_mb_per_s_of_processor_time']:.0f} | {row['mb_per_s_of_real_time']:.0f} | "
            f"{row['floor_mb_per_s']:.0f} | {row['wire_per_payload']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="also write benches/results/NAME.json and NAME.md", metavar="NAME")
    parser.add_argument("--note", default="", help="what else to say of the machine, in the results")
    parser.add_argument("--part", choices=("loss", "process"), help="measure this part alone")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
        + (f", {arguments.note}" if arguments.note else ""),
        "through_loss": measure_loss() if arguments.part != "process" else [],
        "one_process": measure_one_process() if arguments.part != "loss" else [],
    }
    print(as_markdown(result))
    if arguments.output:
        path = RESULTS / arguments.output
        path.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
        path.with_suffix(".md").write_text(as_markdown(result))


if __name__ == "__main__":
    main()

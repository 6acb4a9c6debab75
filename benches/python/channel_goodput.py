"""Goodput of reliable channels on the in-memory node: `python benches/python/channel_goodput.py`.

First one sender and three receivers under loss, in virtual time: how long until all three hold the message, what went
over the wire, what was sent again. Then one receiver in the same process and real time, beside the floor: two passes
of Keccak-256 and one of SHA-256 over the payload.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import tempfile
import time
from pathlib import Path

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
BURSTS = 4


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


async def in_one_process(directory: Path, *, sqlite: bool, encrypted: bool) -> tuple[float, float]:
    """Payload bytes per second of processor time and of real time."""
    network = MemoryNetwork(NetworkConditions(), seed=1)
    persistences: list[Persistence] = []
    channels = []
    for name in ("alice", "bob"):
        persistences.append(SqlitePersistence(directory / f"{name}{encrypted}.db") if sqlite else MemoryPersistence())
        channels.append(await join(network, name, ChannelConfig.logos(), persistences[-1], encrypted=encrypted))
    arrived = asyncio.Semaphore(0)
    channels[1].on_message_received(lambda event: arrived.release())
    payload = os.urandom(BURST_BYTES)
    start, processor = time.perf_counter(), time.process_time()
    for _ in range(BURSTS):
        await channels[0].send(payload)
        await arrived.acquire()
    elapsed, used = time.perf_counter() - start, time.process_time() - processor
    for channel in channels:
        await close_channel(channel)
    for persistence in persistences:
        persistence.close()
    return BURSTS * BURST_BYTES / used, BURSTS * BURST_BYTES / elapsed


def floor() -> float:
    payload = os.urandom(BURST_BYTES)
    start = time.process_time()
    keccak256(payload)
    keccak256(payload)
    hashlib.sha256(payload).digest()
    return BURST_BYTES / (time.process_time() - start)


def main() -> None:
    logging.disable(logging.WARNING)
    print(f"{'loss':>5} {'payload':>11} {'real s':>8} {'virtual s':>10} {'wire/payload':>13} {'resent':>7}")
    for loss in LOSSES:
        for size_bytes in SIZES:
            start = time.perf_counter()
            elapsed, overhead, retransmissions = run_virtual(through_loss(loss, size_bytes), limit_ms=3_600_000)
            real = time.perf_counter() - start
            print(
                f"{loss:>5.0%} {size_bytes:>11,} {real:>8.2f} {elapsed:>10.2f} {overhead:>13.3f} {retransmissions:>7}"
            )
    print(f"\n{'16 MB, one receiver, one process':<36} {'MB/s of processor time':>24} {'MB/s of real time':>18}")
    print(f"{'floor: 2 x Keccak-256, SHA-256':<36} {floor() / 1e6:>24.0f}")
    with tempfile.TemporaryDirectory() as directory:
        for sqlite in (False, True):
            for encrypted in (False, True):
                used, real = asyncio.run(in_one_process(Path(directory), sqlite=sqlite, encrypted=encrypted))
                name = f"{'SQLite' if sqlite else 'memory'}{', ChaCha20-Poly1305' if encrypted else ''}"
                print(f"{name:<36} {used / 1e6:>24.0f} {real / 1e6:>18.0f}")


if __name__ == "__main__":
    main()

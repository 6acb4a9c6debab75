"""Channels whose network never gets better: a third of what each receiver should get is lost for as long as they live.

`python -m tests.simulation.endless_loss --seed 7` runs one world, `--from 0 --to 200` a range. Each preset has its own
times and limits, with a store and without. Nobody crashes, nobody lies: everything that is sent must be delivered to
everyone, once, before the world ends.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual
from tests.simulation import processes

LOSS = 0.3
SENDS = 40
TRAFFIC_MS = (60_000, 300_000)
ENDS_AT_MS = 2 * 3_600_000
SEGMENT_BYTES = 1_024
SEGMENTS_MAX = 12
LARGE_SHARE = 0.25
LOOK_MS = 30_000


@dataclass(frozen=True, slots=True)
class LossyWorld:
    """What a seed decides.

    Attributes:
        seed: The seed.
        preset: "logos" or "waku".
        participants: How many.
        store: Whether the network has a store.
        parity: Whether messages of several segments have parity.
        sends: (ms, sender, size in bytes) of each message.
    """

    seed: int
    preset: str
    participants: int
    store: bool
    parity: bool
    sends: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world.

    Attributes:
        world: The world.
        missing: (receiver, number of the send) of deliveries that did not happen.
        repeated: Deliveries that happened more than once.
        last_ms: Virtual time by which everything was delivered, as exactly as `LOOK_MS`.
        envelopes: That left a node.
    """

    world: LossyWorld
    missing: tuple[tuple[int, int], ...]
    repeated: int
    last_ms: int
    envelopes: int

    @property
    def deliveries(self) -> int:
        return len(self.world.sends) * (self.world.participants - 1)


def make_lossy_world(seed: int) -> LossyWorld:
    """The world of a seed: mostly small groups, since in large ones many hold each message."""
    rng = random.Random(f"endless loss/{seed}")
    participants = rng.choice((3, 3, 4, 5, 8, 12, 20))
    until_ms = rng.randint(*TRAFFIC_MS)
    sends = []
    for at_ms in sorted(rng.randrange(until_ms) for _ in range(SENDS)):
        large = rng.random() < LARGE_SHARE
        size_bytes = rng.randint(SEGMENT_BYTES, SEGMENTS_MAX * SEGMENT_BYTES) if large else rng.randint(20, 200)
        sends.append((at_ms, rng.randrange(participants), size_bytes))
    return LossyWorld(
        seed=seed,
        preset=rng.choice(("logos", "waku")),
        participants=participants,
        store=rng.random() < 0.3,
        parity=rng.random() < 0.5,
        sends=tuple(sends),
    )


def run_lossy_world(world: LossyWorld) -> Outcome:
    """Runs a world until everything is delivered, or to its end."""
    return run_virtual(_simulate(world), limit_ms=2 * ENDS_AT_MS)


async def _simulate(world: LossyWorld) -> Outcome:
    network = MemoryNetwork(NetworkConditions(loss=LOSS, delay_ms=(5, 150)), seed=world.seed, store=world.store)
    preset = getattr(ChannelConfig, world.preset)()
    config = replace(
        preset,
        segmentation=replace(
            preset.segmentation,
            segment_size_bytes=SEGMENT_BYTES,
            enable_reed_solomon=world.parity,
            parity_rate=0.25,
        ),
    )
    loop = asyncio.get_running_loop()
    received: list[Counter[bytes]] = [Counter() for _ in range(world.participants)]
    channels: list[ReliableChannel] = []
    for index in range(world.participants):
        name = f"p{index:02}"
        node = network.create_node(name)
        await node.start()
        channel = await create_reliable_channel(
            node, "lossy", "/lossy/1/room/proto", name, config=config, rng=random.Random(f"{world.seed}/{name}")
        )
        channel.on_message_received(lambda event, counts=received[index]: counts.update((event.message,)))
        channels.append(channel)
    payloads = [_payload(world, number) for number in range(len(world.sends))]
    for (at_ms, sender, _), payload in zip(world.sends, payloads, strict=True):
        await asyncio.sleep(max(0.0, at_ms / 1000 - loop.time()))
        await channels[sender].send(payload)
    missing = _missing(world, received, payloads)
    while missing and loop.time() * 1000 < ENDS_AT_MS:
        await asyncio.sleep(LOOK_MS / 1000)
        missing = _missing(world, received, payloads)
    last_ms = round(loop.time() * 1000)
    for channel in channels:
        await close_channel(channel)
    repeated = sum(count - 1 for counts in received for count in counts.values())
    return Outcome(world, missing, repeated, last_ms, len(network.trace))


def _payload(world: LossyWorld, number: int) -> bytes:
    head = number.to_bytes(4, "big")
    return head + random.Random(f"{world.seed}/{number}").randbytes(world.sends[number][2] - len(head))


def _missing(world: LossyWorld, received: list[Counter[bytes]], payloads: list[bytes]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (receiver, number)
        for number, (_, sender, _) in enumerate(world.sends)
        for receiver in range(world.participants)
        if receiver != sender and payloads[number] not in received[receiver]
    )


def _judge(seed: int) -> Outcome:
    return run_lossy_world(make_lossy_world(seed))


def run_many(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Runs worlds in `jobs` processes; their outcomes in the order of the seeds."""
    return processes.run_many(_judge, seeds, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.endless_loss", description=__doc__)
    parser.add_argument("--seed", type=int, help="the only seed")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--to", dest="end", type=int, default=40, help="the seed to stop before (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.end) if arguments.seed is None else [arguments.seed]
    began, deliveries, failed, late_ms = time.perf_counter(), 0, 0, 0
    for outcome in run_many(seeds, arguments.jobs):
        deliveries += outcome.deliveries
        late_ms = max(late_ms, outcome.last_ms)
        if outcome.missing or outcome.repeated:
            failed += len(outcome.missing) + outcome.repeated
            print(f"{outcome.world}: missing {outcome.missing}, repeated {outcome.repeated}", flush=True)
    elapsed_s = time.perf_counter() - began
    print(f"{deliveries} deliveries in {elapsed_s:.1f} s, the last after {late_ms // 1000} s of {ENDS_AT_MS // 1000}")
    print(f"failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

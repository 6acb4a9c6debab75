"""What the default channel does in either way of repair: `python -m benches.repair.defaults`.

A sender with the defaults and a store sends messages one after another to receivers that lose their share each, in
virtual time and from seeds. Compared are how long a message takes to all of them, what all of them send for it, and
what sender and receiver have stored at the end. `--output NAME` also writes benches/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from shardwire import ChannelConfig, close_channel, create_reliable_channel
from shardwire.config import SdsConfig, SegmentationConfig
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual
from shardwire.node.clock import running_clock
from shardwire.persistence import MemoryPersistence

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "/shardwire/1/bench/proto"
LIMIT_MS = 4 * 3_600_000
LATENCY_MS = (20, 60)
SEGMENT_BYTES = 1_024
MESSAGES = 20
SEEDS = 2

Way = Literal["arq", "parity"]


@dataclass(frozen=True)
class Case:
    """`repair` of the channel, segments of a message, receivers, and the part that each of them loses."""

    repair: Way
    data_count: int
    receivers: int
    loss: float


@dataclass(frozen=True)
class Outcome:
    """Of all messages: mean milliseconds until everybody has one, bytes sent for a byte of payload, and bytes stored at
    the end for a byte of payload."""

    whole_ms: float
    sent: float
    stored_by_sender: float
    stored_by_receiver: float


def measure(case: Case, seed: int) -> Outcome:
    logging.getLogger("shardwire").setLevel(logging.ERROR)
    return run_virtual(_measure(case, seed), limit_ms=LIMIT_MS)


async def _measure(case: Case, seed: int) -> Outcome:
    network = MemoryNetwork(NetworkConditions(delay_ms=LATENCY_MS), seed=seed, trace_payloads=True)
    segmentation = SegmentationConfig(segment_size_bytes=SEGMENT_BYTES)
    stores = [MemoryPersistence() for _ in range(case.receivers + 1)]
    arrived = 0
    everybody = asyncio.Event()

    def on_received(_: object) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == case.receivers:
            everybody.set()

    channels = []
    for number, store in enumerate(stores):
        node = network.create_node(f"p{number}")
        await node.start()
        sds = SdsConfig(persistence=store)
        config = ChannelConfig.logos(segmentation=segmentation, sds=sds, repair=case.repair)
        rng = random.Random(f"{seed}/{number}")
        channel = await create_reliable_channel(node, "bench", TOPIC, f"p{number}", None, config, rng=rng)
        channels.append(channel)
        node.conditions = NetworkConditions(delay_ms=LATENCY_MS, loss=case.loss)
        if number:
            channel.on_message_received(on_received)
    took = []
    # A message of one segment is a small one.
    payload_bytes = case.data_count * SEGMENT_BYTES if case.data_count > 1 else 100
    for number in range(MESSAGES):
        arrived = 0
        everybody.clear()
        began_ms = running_clock().monotonic_ms()
        await channels[0].send(random.Random(f"{seed}/{number}").randbytes(payload_bytes))
        await everybody.wait()
        took.append(running_clock().monotonic_ms() - began_ms)
        await asyncio.sleep(10)
    sent = sum(len(record.payload or b"") for record in network.trace)
    # What is stored is committed by then.
    await asyncio.sleep(60)
    states = [store.load("bench") for store in stores]
    stored = [sum(map(len, state.records.values())) for state in states if state is not None]
    for channel in channels:
        await close_channel(channel)
    total = MESSAGES * payload_bytes
    return Outcome(statistics.fmean(took), sent / total, stored[0] / total, statistics.fmean(stored[1:]) / total)


def markdown(rows: list[tuple[Case, Outcome]]) -> str:
    lines = [
        "# The default channel in either way of repair",
        "",
        f"`python -m benches.repair.defaults`: {MESSAGES} messages of k segments of {SEGMENT_BYTES} B, of 100 B where",
        "k is 1, one after another to n receivers, with the defaults, a store, and loss at each participant; means",
        f"over {SEEDS} seeds, in virtual time. Sent is all that anybody sent, stored what a persistence holds a minute",
        "after the last message, both in bytes for a byte of payload.",
        "",
        "| k | n | loss | repair | ms until all have it | sent | stored by the sender | by a receiver |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, out in rows:
        place = f"| {case.data_count} | {case.receivers} | {case.loss:.0%} | {case.repair} "
        lines.append(
            place
            + f"| {out.whole_ms:,.0f} | {out.sent:.2f} | {out.stored_by_sender:.2f} | {out.stored_by_receiver:.2f} |"
        )
    return "\n".join([*lines, ""])


def mean(outcomes: list[Outcome]) -> Outcome:
    parts = [asdict(outcome) for outcome in outcomes]
    return Outcome(**{name: statistics.fmean(part[name] for part in parts) for name in parts[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="name of the results to write")
    output = parser.parse_args().output
    places = product((1, 16, 64), (1, 5), (0.0, 0.01, 0.05, 0.10, 0.20))
    ways: tuple[Way, ...] = ("arq", "parity")
    cases = [Case(way, *place) for place in places for way in ways]
    jobs = [(case, seed) for case in cases for seed in range(SEEDS)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        outcomes = list(pool.map(measure, *zip(*jobs, strict=True)))
    rows = [(case, mean(outcomes[at * SEEDS :][:SEEDS])) for at, case in enumerate(cases)]
    print(markdown(rows))
    if output:
        results = ROOT / "benches" / "results"
        (results / f"{output}.md").write_text(markdown(rows))
        figures = [asdict(case) | {name: round(value, 3) for name, value in asdict(out).items()} for case, out in rows]
        (results / f"{output}.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What repair costs where the sender goes away: `python -m benches.repair.away`.

A sender transmits a message once and is gone for good. One receiver has it whole, each other one lost its share; they
repair each other, with segments by name (`arq`) or with parity that the sender never sent (`parity`). Virtual time and
seeds, as in `benches.repair`. `--output NAME` also writes benches/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from benches.repair.bound import Loss, bound
from benches.repair.channels import AFTERMATH_MS, LATENCY_MS, LIMIT_MS, TOPIC, Bursts
from shardwire import ChannelConfig, close_channel, create_reliable_channel
from shardwire._native import SdsMessage
from shardwire.config import SegmentationConfig
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual
from shardwire.node.clock import running_clock

ROOT = Path(__file__).resolve().parents[2]
SEGMENT_BYTES = 1_024
SEEDS = 5
# The sender is gone after this long: all that it sends by itself has arrived.
BURST_MS = 200
PATIENCE_MS = 3_000_000


@dataclass(frozen=True)
class Away:
    """One message to `receivers`, of whom the first loses nothing.

    Attributes:
        repair: `parity` or `arq`.
        data_count: Data segments of the message.
        receivers: How many there are.
        share: What each of the others loses of all that is sent.
        with_store: Whether the timers are those of a network with a store, which has none of it.
    """

    repair: str
    data_count: int
    receivers: int
    share: float
    with_store: bool


@dataclass(frozen=True)
class AwayCost:
    """What that took.

    Attributes:
        whole: Receivers that have the message.
        segments: Sent in all.
        made: What of that the sender never sent.
        control_bytes: Of messages without a segment, once the sender was gone.
        whole_ms: From `send` until the last receiver had the message.
    """

    whole: int
    segments: int
    made: int
    control_bytes: int
    whole_ms: int


def measure_away(case: Away, seed: int) -> AwayCost:
    """The cost of one message."""
    logging.getLogger("shardwire").setLevel(logging.ERROR)
    return run_virtual(_measure(case, seed), limit_ms=2 * LIMIT_MS)


async def _measure(case: Away, seed: int) -> AwayCost:
    network = MemoryNetwork(NetworkConditions(delay_ms=LATENCY_MS), seed=seed, trace_payloads=True)
    network.store_online = False
    names = [f"r{number:02}" for number in range(case.receivers)]
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(segment_size_bytes=SEGMENT_BYTES, enable_reed_solomon=False),
        repair="parity" if case.repair == "parity" else "arq",
        delivered_when=frozenset(names),
    )
    if not case.with_store:
        config = config.without_store(case.receivers + 1)
    whole: dict[str, int] = {}
    everybody = asyncio.Event()
    channels, nodes = [], {}
    for name in ("sender", *names):
        nodes[name] = node = network.create_node(name)
        await node.start()
        rng = random.Random(f"{seed}/{name}")
        channels.append(await create_reliable_channel(node, "bench", TOPIC, name, None, config, rng=rng))
        if name != "sender":

            def on_received(_: object, name: str = name) -> None:
                whole[name] = running_clock().monotonic_ms()
                if len(whole) == case.receivers:
                    everybody.set()

            channels[-1].on_message_received(on_received)
        if name not in ("sender", names[0]):
            node.conditions = Bursts(delay_ms=LATENCY_MS, model=Loss(case.share))
    began_ms = running_clock().monotonic_ms()
    await channels[0].send(random.Random(seed).randbytes(case.data_count * SEGMENT_BYTES))
    await asyncio.sleep(BURST_MS / 1_000)
    burst = len(network.trace)
    await nodes["sender"].stop()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(everybody.wait(), PATIENCE_MS / 1_000)
    whole_ms = running_clock().monotonic_ms() - began_ms
    await asyncio.sleep(AFTERMATH_MS / 1_000)
    segments = made = control = 0
    for at, record in enumerate(network.trace):
        assert record.payload is not None
        message = SdsMessage.decode(record.payload, "spec")
        if message is not None and message.content:
            segments += 1
            made += message.kind == "ephemeral"
        elif at >= burst:
            control += len(record.payload)
    for channel in channels:
        await close_channel(channel)
    return AwayCost(len(whole), segments, made, control, whole_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", help="name of the results to write")
    options = parser.parse_args()
    places = product(((16, 5), (64, 20)), (0.10, 0.20), (True, False), ("parity", "arq"))
    cases = [Away(repair, *size, share, with_store) for size, share, with_store, repair in places]
    jobs = [case for case in cases for _ in range(options.seeds)]
    seeded = [seed for _ in cases for seed in range(options.seeds)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        costs = list(pool.map(measure_away, jobs, seeded))
    lines = [
        "# What repair costs where the sender is gone",
        "",
        f"`python -m benches.repair.away`: one message of k segments of {SEGMENT_BYTES} B to n receivers, of whom one",
        f"has it whole; the sender is gone after its first burst. Means over {options.seeds} seeds, no store; *timers*",
        "are those of a network that has one, or of `without_store`. B is what any code must send on average until",
        "each of the n - 1 others has k segments; *sent* counts the burst. *Made* is parity that the sender never",
        "sent; control is what carries no segment, once the sender is gone.",
        "",
        "| k | n | loss | timers | repair | whole | sent / B | after the burst | made | control, KB | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for at, case in enumerate(cases):
        own = costs[at * options.seeds : (at + 1) * options.seeds]
        least = bound(case.data_count, case.receivers - 1, Loss(case.share))
        mean = {name: statistics.fmean(asdict(cost)[name] for cost in own) for name in asdict(own[0])}
        rows.append(
            {**asdict(case), "bound": round(least, 3), **{name: round(value, 1) for name, value in mean.items()}}
        )
        cells = [
            case.data_count,
            case.receivers,
            f"{case.share:.0%}",
            "with a store" if case.with_store else "without",
            case.repair,
            f"{mean['whole']:.1f}",
            f"{mean['segments'] / least:.2f}",
            f"{mean['segments'] - case.data_count:.0f}",
            f"{mean['made']:.0f}",
            f"{mean['control_bytes'] / 1_000:.0f}",
            f"{mean['whole_ms'] / 1_000:.0f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    text = "\n".join([*lines, ""])
    print(text)
    if options.output:
        results = ROOT / "benches" / "results"
        run = {"segment_bytes": SEGMENT_BYTES, "seeds": options.seeds, "rows": rows}
        (results / f"{options.output}.json").write_text(json.dumps(run) + "\n")
        (results / f"{options.output}.md").write_text(text)


if __name__ == "__main__":
    main()

"""How soon who was away has all that it missed: `python -m benches.repair.returns`.

Members of a group without a store send messages of 100 B at random moments. One of them stops, with its state kept,
and starts again after a while, with the others speaking all along; one that only listens does the same. Seconds from
its start until the application has all that was sent meanwhile, in virtual time and from seeds. `--output NAME` also
writes benches/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import random
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from shardwire import (
    ChannelConfig,
    MemoryPersistence,
    ReliableChannel,
    SdsConfig,
    close_channel,
    create_reliable_channel,
)
from shardwire.events import MessageReceivedEvent
from shardwire.node import MemoryNetwork, MemoryNode, NetworkConditions, run_virtual

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "/shardwire/1/bench/proto"
MESSAGE_BYTES = 100
SEEDS = 3
BEFORE_S = 30
PATIENCE_S = 600
LIMIT_MS = 10_000_000


@dataclass(frozen=True)
class Return:
    """A group and who comes back to it.

    Attributes:
        members: How many there are.
        each_per_s: Messages a second of each that speaks.
        away_s: How long one is away.
        speaks: Whether that one speaks, too.
        loss: What each receiver loses.
    """

    members: int
    each_per_s: float
    away_s: int
    speaks: bool
    loss: float


CASES = [
    Return(3, 10, 20, True, 0.0),
    Return(3, 10, 20, False, 0.0),
    Return(3, 10, 60, True, 0.0),
    Return(3, 10, 60, False, 0.0),
    Return(3, 10, 60, True, 0.1),
    Return(3, 50, 30, True, 0.0),
    Return(3, 100, 30, True, 0.0),
    Return(20, 1, 20, True, 0.0),
    Return(20, 1, 60, True, 0.0),
]


async def come_back(case: Return, seed: int) -> tuple[int, float, int]:
    """Messages that were missed, seconds until they were there, envelopes of the whole group in those."""
    network = MemoryNetwork(NetworkConditions(loss=case.loss, delay_ms=(5, 40)), seed=seed, store=False)
    loop, rng = asyncio.get_running_loop(), random.Random(seed)
    states = [MemoryPersistence() for _ in range(case.members)]
    channels: dict[int, ReliableChannel] = {}
    nodes: dict[int, MemoryNode] = {}
    returning = case.members - 1
    sent: list[bytes] = []
    numbers = itertools.count()
    lacking: set[bytes] = set()
    whole = asyncio.Event()

    def on_received(event: MessageReceivedEvent) -> None:
        lacking.discard(event.message)
        if not lacking:
            whole.set()

    async def join(member: int) -> None:
        nodes[member] = node = network.create_node(f"member {member}")
        await node.start()
        config = ChannelConfig.logos(sds=SdsConfig(persistence=states[member])).without_store(members=case.members)
        channel = await create_reliable_channel(
            node, "bench", TOPIC, f"member {member}", config=config, rng=random.Random(f"{seed}/{member}")
        )
        channel.on_message_received(on_received if member == returning else lambda event: None)
        channels[member] = channel

    async def speak(member: int) -> None:
        while True:
            await asyncio.sleep(rng.expovariate(case.each_per_s))
            if (channel := channels.get(member)) is None:
                continue
            message = next(numbers).to_bytes(8, "big") + bytes(MESSAGE_BYTES - 8)
            if member != returning:
                sent.append(message)
            await channel.send(message)

    for member in range(case.members):
        await join(member)
    speaking = [
        asyncio.create_task(speak(member)) for member in range(case.members) if member != returning or case.speaks
    ]
    await asyncio.sleep(BEFORE_S)
    await close_channel(channels.pop(returning))
    await nodes[returning].stop()
    first = len(sent)
    await asyncio.sleep(case.away_s)
    missed = len(sent) - first
    lacking.update(sent[first:])
    whole.clear()
    before, since_s = len(network.trace), loop.time()
    await join(returning)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(whole.wait(), PATIENCE_S)
    seconds, envelopes = loop.time() - since_s, len(network.trace) - before
    for task in speaking:
        task.cancel()
    await asyncio.gather(*speaking, return_exceptions=True)
    for channel in channels.values():
        await close_channel(channel)
    return missed, seconds, envelopes


def as_markdown(rows: list[dict[str, float]]) -> str:
    lines = [
        "# How soon who was away has what it missed",
        "",
        f"`python -m benches.repair.returns`: messages of {MESSAGE_BYTES} B in a group without a store,",
        f"`without_store(members)`, delays of 5 to 40 ms. Medians over {SEEDS} seeds, in virtual time.",
        "",
        "| members | messages a second in all | loss | away, s | speaks | missed | whole after, s | envelopes in it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        per_s = (row["members"] - (not row["speaks"])) * row["each_per_s"]
        speaks = "yes" if row["speaks"] else "no"
        took = f"{row['missed']:,.0f} | {row['seconds']:.0f} | {row['envelopes']:,.0f}"
        lines.append(f"| {row['members']} | {per_s:.0f} | {row['loss']:.0%} | {row['away_s']} | {speaks} | {took} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="NAME", help="also write benches/results/NAME.json and NAME.md")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    rows = []
    for case in CASES:
        runs = [run_virtual(come_back(case, seed), limit_ms=LIMIT_MS) for seed in range(SEEDS)]
        missed, seconds, envelopes = (statistics.median(values) for values in zip(*runs, strict=True))
        rows.append({**asdict(case), "missed": missed, "seconds": round(seconds, 1), "envelopes": envelopes})
        print(rows[-1], flush=True)
    page = as_markdown(rows)
    print(page)
    if arguments.output:
        results = ROOT / "benches" / "results"
        (results / f"{arguments.output}.json").write_text(json.dumps(rows, indent=2) + "\n")
        (results / f"{arguments.output}.md").write_text(page)


if __name__ == "__main__":
    main()

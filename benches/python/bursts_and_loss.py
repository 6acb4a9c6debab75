"""How long bursts, losses and files take, in virtual time: `python benches/python/bursts_and_loss.py`.

On an in-process network whose messages take 5 to 40 ms, with a store: seconds of its clock until the last receiver has
all, of a conversation the median and the 99th percentile until one has one message, and what the sender sent. The
network's clock stands while anything is computed, so the figures are those of the protocol, and the same on any
machine. `--beside TREE` runs the same on another checkout of the project, its native module built, in the same run.
`--output NAME` also writes benches/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import platform
import random
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trees import Figures, add_tree_arguments, keep, run_cases

from shardwire import (
    ChannelConfig,
    MessageReceivedEvent,
    ReliableChannel,
    ReliableChannelOptions,
    close_channel,
    create_reliable_channel,
)
from shardwire.node import MemoryNetwork, MemoryNode, NetworkConditions, run_virtual

TOPIC = "/shardwire/1/bench/proto"
MESSAGE_BYTES = 100
AT_ONCE = 100
LIMIT_S = 600
SEEDS = 30
MEMBERS = 4
TURNS = 300


@dataclass
class Group:
    """One sender, alice, and receivers that count what came."""

    network: MemoryNetwork
    nodes: list[MemoryNode] = field(default_factory=list)
    channels: list[ReliableChannel] = field(default_factory=list)
    came: list[int] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    async def join(
        cls,
        receivers: int,
        loss: float,
        config: ChannelConfig | ReliableChannelOptions,
        seed: int,
        store: bool = True,
    ) -> Group:
        group = cls(MemoryNetwork(NetworkConditions(loss=loss, delay_ms=(5, 40)), seed=seed, store=store))
        for number in range(receivers + 1):
            node = group.network.create_node(f"node-{number}")
            await node.start()
            group.nodes.append(node)
            rng = random.Random(100 * seed + number)
            channel = await create_reliable_channel(node, "bench", TOPIC, f"p{number}", config=config, rng=rng)
            group.channels.append(channel)
            group.came.append(0)
            if number:
                channel.on_message_received(group._counting(number))
        # Everybody has spoken, and the queries on connecting are over.
        for channel in group.channels:
            await channel.send(b"here")
        await asyncio.sleep(60)
        group.came = [0] * len(group.came)
        return group

    def _counting(self, number: int) -> Callable[[object], None]:
        def count(_: object) -> None:
            self.came[number] += 1
            self.news.set()

        return count

    async def send_many(self, count: int) -> None:
        alice = self.channels[0]
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            sends = [alice.send(number.to_bytes(8, "big") + bytes(MESSAGE_BYTES - 8)) for number in numbers]
            await asyncio.gather(*sends)

    async def all_have(self, count: int) -> None:
        while min(self.came[1:]) < count:
            self.news.clear()
            await self.news.wait()

    def sent(self) -> int:
        """Messages of the network that alice sent."""
        counts = self.channels[0].stats()
        return sum(value for name, value in counts.items() if name.startswith("dispatched_"))

    async def close(self) -> None:
        for channel in self.channels:
            await close_channel(channel)


async def timed(group: Group, action: Callable[[Group], Awaitable[object]]) -> Figures:
    """Seconds and messages of alice until an action is over; infinite after ten minutes."""
    loop = asyncio.get_running_loop()
    began_s, sent = loop.time(), group.sent()
    try:
        async with asyncio.timeout(LIMIT_S):
            await action(group)
        took_s = loop.time() - began_s
    except TimeoutError:
        took_s = float("inf")
    figures = {"s": took_s, "sent": float(group.sent() - sent)}
    await group.close()
    return figures


async def burst(count: int, receivers: int, loss: float, config: ChannelConfig | ReliableChannelOptions) -> Figures:
    async def action(group: Group) -> None:
        await group.send_many(count)
        await group.all_have(count)

    return await timed(await Group.join(receivers, loss, config, 1), action)


async def missed(count: int, config: ChannelConfig | ReliableChannelOptions) -> Figures:
    group = await Group.join(1, 0.0, config, 1)
    group.nodes[1].go_offline()
    await group.send_many(count)
    await asyncio.sleep(60)
    group.nodes[1].go_online()
    return await timed(group, lambda group: group.all_have(count))


async def large(size_bytes: int, receivers: int, loss: float, seed: int) -> Figures:
    async def action(group: Group) -> None:
        await group.channels[0].send(random.Random(seed).randbytes(size_bytes))
        await group.all_have(1)

    return await timed(await Group.join(receivers, loss, ChannelConfig.logos(), seed), action)


async def file(size_bytes: int, receivers: int) -> Figures:
    group = await Group.join(receivers, 0.05, ChannelConfig.logos(), 1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        source = Path(directory) / "file"
        source.write_bytes(random.Random(1).randbytes(size_bytes))
        names = {channel.sender_id for channel in group.channels[1:]}
        for channel in group.channels[1:]:
            inbox = Path(directory) / channel.sender_id
            inbox.mkdir()
            channel.receive_files(inbox)
        return await timed(group, lambda group: group.channels[0].send_file(source, delivered_when=names))


async def conversation(store: bool = True, **conditions: Any) -> Figures:
    """Four members say `TURNS` messages each, one in half a second, while one in twenty is lost on its way."""
    group = await Group.join(MEMBERS - 1, 0.05, ChannelConfig.logos(), 1, store)
    group.network.conditions = NetworkConditions(loss=0.05, delay_ms=(5, 40), **conditions)
    loop = asyncio.get_running_loop()
    sent_at: dict[bytes, float] = {}
    waits: list[float] = []
    news = asyncio.Event()

    def count(event: MessageReceivedEvent) -> None:
        # Who sends to all has had no callback so far: what came before is handed over now.
        if event.message in sent_at:
            waits.append(loop.time() - sent_at[event.message])
            news.set()

    for channel in group.channels:
        channel.on_message_received(count)
    before = group.sent()
    for turn in range(TURNS):
        for number, channel in enumerate(group.channels):
            payload = b"%d of %d" % (turn, number)
            sent_at[payload] = loop.time()
            await channel.send(payload)
        await asyncio.sleep(0.5)
    async with asyncio.timeout(LIMIT_S):
        while len(waits) < MEMBERS * (MEMBERS - 1) * TURNS:
            news.clear()
            await news.wait()
    figures = {"median s": statistics.median(waits), "s": statistics.quantiles(waits, n=100)[-1]}
    figures["sent"] = float(group.sent() - before)
    await group.close()
    return figures


def large_of_all_seeds(size_bytes: int, receivers: int, loss: float) -> Figures:
    runs = [run_virtual(large(size_bytes, receivers, loss, seed)) for seed in range(1, SEEDS + 1)]
    return {"s": statistics.median(run["s"] for run in runs), "sent": statistics.mean(run["sent"] for run in runs)}


CASES: dict[str, Callable[[], Figures]] = {
    "5,000 messages at once to one, ReliableChannelOptions": lambda: run_virtual(
        burst(5_000, 1, 0.0, ReliableChannelOptions())
    ),
    "2,000 messages that one missed, ReliableChannelOptions": lambda: run_virtual(
        missed(2_000, ReliableChannelOptions())
    ),
    "2,000 messages at once to three, a loss of 5 %": lambda: run_virtual(burst(2_000, 3, 0.05, ChannelConfig.logos())),
    "1 MB to one, a loss of 10 %, median of 30": lambda: large_of_all_seeds(1_000_000, 1, 0.1),
    "1 MB to three, a loss of 5 %, median of 30": lambda: large_of_all_seeds(1_000_000, 3, 0.05),
    "a file of 50 MB to one, a loss of 5 %": lambda: run_virtual(file(50_000_000, 1)),
    "a file of 50 MB to three, a loss of 5 %": lambda: run_virtual(file(50_000_000, 3)),
    "a conversation of four, a loss of 5 %": lambda: run_virtual(conversation()),
    "a conversation of four, a loss of 5 %, the store lacks 10 %": lambda: run_virtual(conversation(store_loss=0.1)),
    "a conversation of four, a loss of 5 %, the store lacks 10 % and takes 1 to 10 s": lambda: run_virtual(
        conversation(store_loss=0.1, store_delay_ms=(1_000, 10_000))
    ),
    "a conversation of four, a loss of 5 %, no store": lambda: run_virtual(conversation(store=False)),
}


def waited(figures: Figures) -> str:
    median = f"{figures['median s']:.2f}, " if "median s" in figures else ""
    return f"{median}{figures['s']:.2f}"


def report(runs: dict[str, Figures]) -> str:
    lines = [
        "# Bursts, losses and files, in virtual time",
        "",
        f"{platform.machine()}, CPython {platform.python_version()}. Command:",
        "`python benches/python/bursts_and_loss.py --output NAME`.",
        "",
        f"Messages of {MESSAGE_BYTES} B where it says no other size, 5 to 40 ms on the way, on an in-process network",
        "with a store; `logos()` where it says nothing else. Of a conversation, each message to each member: the",
        "median and the 99th percentile.",
        "",
        "| case | until the last has all, s | messages of the sender on the network |",
        "|---|---|---|",
    ]
    rows = [f"| {case} | {waited(figures)} | {figures['sent']:,.1f} |" for case, figures in runs.items()]
    return "\n".join([*lines, *rows, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="run one and print its figures")
    add_tree_arguments(parser)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.case:
        print(json.dumps(CASES[arguments.case]()))
        return
    runs = run_cases(__file__, {case: (case,) for case in CASES}, arguments, "; ")
    keep(arguments.output, report(runs), runs)


if __name__ == "__main__":
    main()

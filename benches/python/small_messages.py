"""Small messages through whole channels: `python benches/python/small_messages.py`.

Messages of 100 B from one sender to one, five and twenty receivers, all in one process on an in-process network in real
time, with state kept nowhere, in memory, in SQLite, or on a disk of which every commit takes 5 ms, sent one after the
other or a hundred at once: messages a second, processor time of all participants a message, and how long a lone message
takes from `send` to the callback of the last receiver. Each case runs in a process of its own; rounds are interleaved,
and medians count. `ReliableChannel` of @waku/sdk does the same on as many messages as it
takes within minutes, where `tests/interop/install_peers.py` was run. `--beside TREE` runs the same on another checkout
of the project, its native module built, in the same run. `--output NAME` also writes benches/results/NAME.json and
NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trees import ROOT, Figures, add_tree_arguments, keep, run_case

from shardwire import (
    ChannelConfig,
    MemoryPersistence,
    Persistence,
    SdsConfig,
    SqlitePersistence,
    close_channel,
    create_reliable_channel,
)
from shardwire.node import MemoryNetwork
from shardwire.persistence.protocol import Changes

TOPIC = "/shardwire/1/bench/proto"
MESSAGE_BYTES = 100
WARM_UP = 200
MESSAGES = 4_000
LONE_MESSAGES = 30
ROUNDS = 5
# Where state is kept, receivers, and how many messages are sent at once.
CASES = [
    ("none", 1, 1),
    ("none", 5, 1),
    ("none", 20, 1),
    ("memory", 1, 1),
    ("memory", 5, 1),
    ("memory", 20, 1),
    ("sqlite", 1, 1),
    ("sqlite", 5, 1),
    ("sqlite", 1, 100),
    ("sqlite", 5, 100),
    ("slow disk", 1, 100),
]
# What a commit takes on a disk that turns, or that others write to.
SLOW_COMMIT_S = 0.005
# Receivers and messages: what the peer takes grows with every message.
PEER_CASES = [(1, 1_000), (1, 2_000), (5, 1_000)]


class SlowDisk:
    """A persistence that takes `SLOW_COMMIT_S` for each commit."""

    def __init__(self) -> None:
        self._kept = MemoryPersistence()
        self.load = self._kept.load
        self.close = self._kept.close

    def commit(self, channel_id: str, changes: Changes) -> None:
        time.sleep(SLOW_COMMIT_S)
        self._kept.commit(channel_id, changes)


KEPT: dict[str, Callable[[Path], Persistence | None]] = {
    "none": lambda database: None,
    "memory": lambda database: MemoryPersistence(),
    "sqlite": SqlitePersistence,
    "slow disk": lambda database: SlowDisk(),
}
# Every figure, and how many decimals it is worth.
UNITS = [("messages a second", 0), ("processor time, us", 0), ("lone message, ms", 1)]


async def measure(persistence: str, receivers: int, at_once: int, messages: int) -> Figures:
    """One case: messages a second, microseconds of processor time a message, milliseconds of a lone one."""
    network = MemoryNetwork()
    received = 0
    wake = asyncio.Event()

    def on_received(_: object) -> None:
        nonlocal received
        received += 1
        wake.set()

    async def until(count: int) -> None:
        while received < count:
            wake.clear()
            await wake.wait()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        channels = []
        for number in range(receivers + 1):
            node = network.create_node(f"node{number}")
            await node.start()
            database = Path(directory) / f"{number}.db"
            config = ChannelConfig.logos(sds=SdsConfig(persistence=KEPT[persistence](database)))
            channel = await create_reliable_channel(node, "bench", TOPIC, f"member{number}", config=config)
            if number:
                channel.on_message_received(on_received)
            channels.append(channel)
        sender = channels[0]
        for number in range(WARM_UP):
            await sender.send(number.to_bytes(8, "big") + bytes(MESSAGE_BYTES - 8))
        await until(WARM_UP * receivers)
        before_s, before_cpu_s = time.perf_counter(), time.process_time()
        for first in range(WARM_UP, WARM_UP + messages, at_once):
            numbers = range(first, min(first + at_once, WARM_UP + messages))
            sends = [sender.send(number.to_bytes(8, "big") + bytes(MESSAGE_BYTES - 8)) for number in numbers]
            if at_once == 1:
                await sends[0]
            else:
                await asyncio.gather(*sends)
        await until((WARM_UP + messages) * receivers)
        seconds, cpu_s = time.perf_counter() - before_s, time.process_time() - before_cpu_s
        # What is acknowledged meanwhile is not part of a lone message's time.
        await asyncio.sleep(3)
        lone = []
        for number in range(LONE_MESSAGES):
            expected = received + receivers
            began_s = time.perf_counter()
            await sender.send(b"lone" + number.to_bytes(8, "big") + bytes(MESSAGE_BYTES - 12))
            await until(expected)
            lone.append(time.perf_counter() - began_s)
            await asyncio.sleep(0.02)
        for channel in channels:
            await close_channel(channel)
    return {
        "messages a second": messages / seconds,
        "processor time, us": cpu_s / messages * 1e6,
        "lone message, ms": statistics.median(lone) * 1e3,
    }


def run_one(tree: Path, persistence: str, receivers: int, at_once: int, messages: int) -> Figures:
    """The case in a new process on the sources of `tree`."""
    case = persistence, str(receivers), str(at_once)
    return run_case(__file__, tree, "--case", *case, "--messages", str(messages))


def run_peer(receivers: int, messages: int) -> Figures | None:
    """As `measure`, of `ReliableChannel`; None where it is not installed."""
    sys.path.insert(0, str(ROOT / "tests"))
    from interop.install_peers import answer_of

    figures: Figures | None = answer_of(ROOT / "benches" / "channel_peer.mjs", str(receivers), str(messages))
    return figures


def beside_peer() -> dict[str, dict[str, Figures]]:
    """Ours without a persistence and the peer's, by case: one run each."""
    found = {}
    for receivers, messages in PEER_CASES:
        if (theirs := run_peer(receivers, messages)) is None:
            print("@waku/sdk is not installed: python tests/interop/install_peers.py", file=sys.stderr)
            break
        case = f"{called(receivers)}, {messages:,} messages"
        found[case] = {"ours": run_one(ROOT, "none", receivers, 1, messages), "theirs": theirs}
        print(f"{case}: {found[case]}", file=sys.stderr)
    return found


def called(receivers: int) -> str:
    return f"{receivers} {'receiver' if receivers == 1 else 'receivers'}"


def rows(runs: dict[str, list[Figures]], beside: dict[str, list[Figures]]) -> list[list[str]]:
    table = []
    for case, figures in runs.items():
        row = [case]
        for name, digits in UNITS:
            ours = [figure[name] for figure in figures]
            cell = f"{statistics.median(ours):,.{digits}f}"
            if beside:
                ratios = [mine / theirs[name] for mine, theirs in zip(ours, beside[case], strict=True)]
                cell += f" ({statistics.median(ratios):.2f} x)"
            row.append(cell)
        table.append(row)
    return table


def peer_lines(peer: dict[str, dict[str, Figures]]) -> list[str]:
    """A table of the peer's figures, each with ours over it."""
    if not peer:
        return []
    lines = [
        "",
        "`ReliableChannel` of @waku/sdk 0.0.36, its nodes in its process; in brackets ours, stored nowhere, over it.",
        "",
        "| case | messages a second | processor time a message, us | a lone message, ms |",
        "|---|---|---|---|",
    ]
    for case, figures in peer.items():
        ours, theirs = figures["ours"], figures["theirs"]
        cells = [f"{theirs[name]:,.{digits}f} ({ours[name] / theirs[name]:.2f} x)" for name, digits in UNITS]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines


def report(table: list[list[str]], peer: dict[str, dict[str, Figures]], beside: str, rounds: int) -> str:
    lines = [
        "# Small messages through whole channels",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}. Command:",
        "`python benches/python/small_messages.py --output NAME`.",
        "",
        f"Messages of {MESSAGE_BYTES} B from one sender, all participants in one process, `logos()`, on an in-process",
        f"network. Processor time is that of all participants. Medians of {rounds} interleaved rounds"
        + (f"; in brackets beside {beside}." if beside else "."),
        "",
        "| case | messages a second | processor time a message, us | a lone message, ms |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table), *peer_lines(peer), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", nargs=3, metavar=("PERSISTENCE", "RECEIVERS", "AT_ONCE"), help="run one and print its figures"
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_tree_arguments(parser)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.case:
        persistence, receivers, at_once = arguments.case
        print(json.dumps(asyncio.run(measure(persistence, int(receivers), int(at_once), arguments.messages))))
        return
    runs: dict[str, list[Figures]] = {}
    beside: dict[str, list[Figures]] = {}
    for round_ in range(arguments.rounds):
        for persistence, receivers, at_once in CASES:
            case = f"{persistence}, {called(receivers)}" + (f", {at_once} sends at once" if at_once > 1 else "")
            measured = (persistence, receivers, at_once, arguments.messages // receivers)
            runs.setdefault(case, []).append(run_one(ROOT, *measured))
            if arguments.beside:
                beside.setdefault(case, []).append(run_one(arguments.beside.resolve(), *measured))
            print(f"round {round_ + 1}: {case}: {runs[case][-1]}", file=sys.stderr)
    peer = beside_peer()
    text = report(rows(runs, beside), peer, arguments.beside_name if arguments.beside else "", arguments.rounds)
    keep(arguments.output, text, {"ours": runs, "beside": beside, "peer": peer})


if __name__ == "__main__":
    main()

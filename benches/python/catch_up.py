"""Who was away catches up from a store: `python benches/python/catch_up.py`.

One participant sends messages of 100 B while the only other one is offline. It comes back, and fetches them from the
store of an in-process network: seconds until the first and until the last one is handed over, store queries, and
processor time of both a message. By default a channel asks a store 120 times in any minute. Each case runs in a process
of its own, and what has not come after three minutes counts as not come. `--beside TREE` runs the same on another
checkout of the project, its native module built, in the same run. `--output NAME` also writes
benches/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import platform
import tempfile
import time
from pathlib import Path

from trees import Figures, add_tree_arguments, keep, run_cases

from shardwire import ChannelConfig, Persistence, SdsConfig, SqlitePersistence, close_channel, create_reliable_channel
from shardwire.node import MemoryNetwork

TOPIC = "/shardwire/1/bench/proto"
MESSAGE_BYTES = 100
AT_ONCE = 100
LIMIT_S = 180
# Where state is kept, and how many messages were missed.
CASES = [("none", 1_000), ("none", 10_000), ("sqlite", 10_000), ("none", 30_000)]


async def measure(persistence: str, missed: int) -> Figures:
    """One case, of messages that were sent while their receiver was offline."""
    network = MemoryNetwork()
    times: list[float] = []
    came = asyncio.Event()

    def on_received(_: object) -> None:
        times.append(time.perf_counter())
        if len(times) >= missed:
            came.set()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        nodes, channels = [], []
        for name in ("alice", "bob"):
            node = network.create_node(name)
            await node.start()
            kept: Persistence | None = None
            if persistence == "sqlite":
                kept = SqlitePersistence(Path(directory) / f"{name}.db")
            config = ChannelConfig.logos(sds=SdsConfig(persistence=kept))
            channels.append(await create_reliable_channel(node, "bench", TOPIC, name, config=config))
            nodes.append(node)
        sender, receiver = channels
        receiver.on_message_received(on_received)
        await sender.delivered(await sender.send(bytes(MESSAGE_BYTES)))
        nodes[1].go_offline()
        times.clear()
        for first in range(0, missed, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, missed))
            sends = [sender.send(number.to_bytes(8, "big") + bytes(MESSAGE_BYTES - 8)) for number in numbers]
            await asyncio.gather(*sends)
        await asyncio.sleep(3)
        queries = receiver.stats()["store_queries"]
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        nodes[1].go_online()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(came.wait(), LIMIT_S)
        cpu_s = time.process_time() - began_cpu_s
        figures = {
            "came": len(times),
            "first, s": times[0] - began_s if times else float("nan"),
            "last, s": times[-1] - began_s if times else float("nan"),
            "queries": receiver.stats()["store_queries"] - queries,
            "processor time, us": cpu_s / missed * 1e6,
        }
        for channel in channels:
            await close_channel(channel)
    return figures


def row(case: str, figures: Figures) -> str:
    cells = [
        case,
        f"{figures['came']:,.0f}",
        f"{figures['first, s']:.1f}",
        f"{figures['last, s']:.1f}",
        f"{figures['queries']:,.0f}",
        f"{figures['processor time, us']:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def report(runs: dict[str, Figures]) -> str:
    lines = [
        "# Catching up from a store",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}. Command:",
        "`python benches/python/catch_up.py --output NAME`.",
        "",
        f"Messages of {MESSAGE_BYTES} B that were sent while their receiver was offline, `logos()`, on an in-process",
        f"network with a store, which is asked 120 times in any minute at most. Within {LIMIT_S} s of coming back.",
        "",
        "| case | came | first, s | last, s | store queries | processor time a message, us |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(row(case, figures) for case, figures in runs.items()), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs=2, metavar=("PERSISTENCE", "MISSED"), help="run one and print its figures")
    add_tree_arguments(parser)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.case:
        persistence, missed = arguments.case
        print(json.dumps(asyncio.run(measure(persistence, int(missed)))))
        return
    cases = {f"{persistence}, {missed:,} missed": (persistence, str(missed)) for persistence, missed in CASES}
    runs = run_cases(__file__, cases, arguments, ", ")
    keep(arguments.output, report(runs), runs)


if __name__ == "__main__":
    main()

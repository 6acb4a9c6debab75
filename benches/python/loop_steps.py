"""How long a hostile burst holds the event loop: `python benches/python/loop_steps.py`.

One channel (`logos()`, in memory) hears each burst at once, with 2,000 messages in its log. Processor time of single
steps of the loop, from the first message to 3 s after the last: how many took more than 5 ms, the longest, and the
longest without the passes of the interpreter's garbage collector, which look at all that the burst left in the
process, the network in memory with it. Every burst runs in a process of its own, three times; the worst counts.
`--output NAME` also writes benches/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import gc
import json
import logging
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shardwire import ChannelConfig, create_reliable_channel
from shardwire._native import BloomFilter, HistoryEntry, SdsMessage
from shardwire.node import MemoryNetwork, MessageEnvelope
from shardwire.segmentation import SegmentationConfig, segment

ROOT = Path(__file__).resolve().parents[2]
TOPIC, ROOM = "/bench/1/steps/proto", "steps"
LOGGED = 2_000
ROUNDS = 3
SHOWN_MS = 5.0
Figures = dict[str, float]


class Forger:
    """Makes the messages of a burst."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.logged = [self.id_of() for _ in range(LOGGED)]

    def id_of(self) -> str:
        return f"{self.rng.randbytes(16).hex()}.0"

    def message(self, sender_id: str, content: bytes | None, message_id: str | None = None, **fields: Any) -> bytes:
        return SdsMessage(
            sender_id=sender_id,
            message_id=message_id or self.id_of(),
            channel_id=ROOM,
            lamport_timestamp=time.time_ns() // 1_000_000,
            content=content,
            **fields,
        ).encode()

    def tiny(self) -> bytes:
        return segment(self.rng.randbytes(8), SegmentationConfig())[0]

    def invented(self, count: int) -> list[HistoryEntry]:
        return [HistoryEntry(self.id_of(), None, "alice") for _ in range(count)]

    def log(self) -> Iterator[bytes]:
        return (self.message("alice", self.tiny(), message_id) for message_id in self.logged)

    def naming(self, senders: int) -> Iterator[bytes]:
        return (self.message(f"m{n % senders}", None, causal_history=self.invented(1_000)) for n in range(100))

    def web(self) -> Iterator[bytes]:
        return (self.message("m", self.tiny(), causal_history=self.invented(1_000)) for _ in range(100))

    def filters(self) -> Iterator[bytes]:
        for _ in range(100):
            bloom = BloomFilter(10_000, 0.001)
            bloom.insert_many(self.id_of() for _ in range(1_000))
            yield self.message("m", None, bloom_filter=bloom.to_bytes())

    def announcing(self) -> Iterator[bytes]:
        config = SegmentationConfig(segment_size_bytes=64, enable_reed_solomon=False)
        return (self.message("m", segment(self.rng.randbytes(64 * 200), config)[0]) for _ in range(2_000))

    def requesting(self) -> Iterator[bytes]:
        for number in range(0, LOGGED, 100):
            wanted = [HistoryEntry(message_id, None, "alice") for message_id in self.logged[number : number + 100]]
            yield self.message("m", None, repair_request=wanted)

    def acknowledging(self) -> Iterator[bytes]:
        history = [HistoryEntry(message_id) for message_id in self.logged[:1_000]]
        return (self.message(f"ghost{number}", None, causal_history=history) for number in range(100))

    def many(self) -> Iterator[bytes]:
        return (self.message("m", self.tiny()) for _ in range(9_000))

    def garbage(self) -> Iterator[bytes]:
        return (self.rng.randbytes(self.rng.randint(0, 2_000)) for _ in range(9_000))


BURSTS: dict[str, Callable[[Forger], Iterator[bytes]]] = {
    "nothing": lambda forger: iter(()),
    "100 syncs that name 1,000 invented ids each, one name": lambda forger: forger.naming(1),
    "100 syncs that name 1,000 invented ids each, 100 names": lambda forger: forger.naming(100),
    "100 messages that follow 1,000 invented ids each": Forger.web,
    "100 syncs with invented filters of 18 KB": Forger.filters,
    "2,000 messages that announce 200 segments each": Forger.announcing,
    "20 requests for 100 held messages each": Forger.requesting,
    "100 acknowledgements of 1,000 messages each": Forger.acknowledging,
    "9,000 small messages": Forger.many,
    "9,000 envelopes of garbage": Forger.garbage,
}


async def hear(burst: Callable[[Forger], Iterator[bytes]]) -> None:
    forger = Forger()
    network = MemoryNetwork(seed=1)
    node, other = network.create_node("bob"), network.create_node("m")
    await node.start()
    await other.start()
    channel = await create_reliable_channel(node, ROOM, TOPIC, "bob", None, ChannelConfig.logos())
    for data in forger.log():
        await other.send(MessageEnvelope(TOPIC, data))
    payloads = list(burst(forger))
    await asyncio.sleep(3)
    assert channel.stats()["log"] == LOGGED
    # What was there before is not looked at in the burst.
    gc.collect()
    gc.freeze()
    await asyncio.sleep(0)
    for data in payloads:
        await other.send(MessageEnvelope(TOPIC, data))
    # All of them left in one step, which is the sender's.
    at = len(STEPS)
    await asyncio.sleep(0)
    del STEPS[: at + 1]
    await asyncio.sleep(3)
    await channel.close()


# Processor time of each step, and of the collections within it, in s.
STEPS: list[tuple[float, float]] = []


def measure(name: str) -> Figures:
    collected = started = 0.0

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal collected, started
        if phase == "start":
            started = time.process_time()
        else:
            collected += time.process_time() - started

    gc.callbacks.append(on_collection)
    run = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        before, collected_before = time.process_time(), collected
        run(handle)
        STEPS.append((time.process_time() - before, collected - collected_before))

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    logging.disable()
    asyncio.run(hear(BURSTS[name]))
    return {
        "steps over 5 ms": sum(spent * 1_000 > SHOWN_MS for spent, _ in STEPS),
        "longest ms": max(spent for spent, _ in STEPS) * 1_000,
        "longest ms without collections": max(spent - collecting for spent, collecting in STEPS) * 1_000,
    }


def worst(name: str) -> Figures:
    command = [sys.executable, __file__, "--one", name]
    rounds = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(ROUNDS)]
    return {figure: max(each[figure] for each in rounds) for figure in rounds[0]}


def table(results: dict[str, Figures]) -> str:
    heads = list(next(iter(results.values())))
    lines = [f"| burst | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(f'{value:.0f}' for value in row.values())} |" for name, row in results.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", choices=BURSTS, help="one burst, in this process")
    parser.add_argument("--output", metavar="NAME", help="also write benches/results/NAME.json and NAME.md")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    results = {}
    for name in BURSTS:
        results[name] = worst(name)
        print(f"{name}: {results[name]}", file=sys.stderr)
    print(table(results))
    if arguments.output:
        place = ROOT / "benches" / "results" / arguments.output
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        place.with_suffix(".json").write_text(json.dumps({**machine, "results": results}, indent=1) + "\n")
        place.with_suffix(".md").write_text(
            f"# How long a hostile burst holds the event loop\n\n{table(results)}\n\nMade by "
            f"`python benches/python/loop_steps.py`: the worst of {ROUNDS} rounds, ms of processor time, on "
            f"{machine['machine']} with Python {machine['python']}.\n"
        )


if __name__ == "__main__":
    main()

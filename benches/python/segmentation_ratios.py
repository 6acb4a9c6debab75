"""Segmentation and reassembly as ratios to one Keccak-256 pass over the same bytes, in the same run.

    python -m benches.python.segmentation_ratios [--rounds 21] [--only NAME] [--results FILE.json]

The pass and the cases take turns within a round, and the thread's CPU time counts. A ratio is the median over rounds
of a case's time to the pass's in that round: 1.0 is the speed of the hash alone. Outputs are dropped within the time
measured, but where a case says that they are kept.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benches.python.peers import context
from shardwire import keccak256, keccak256_many
from shardwire.config import ErasureCode
from shardwire.segmentation import PayloadReconstructed, Reassembler, SegmentationConfig, reassemble_many, segment
from shardwire.segmentation import segment_many as many

SIZE = 10 << 20
CONFIG = SegmentationConfig(enable_reed_solomon=True)
RANDOM = random.Random(7)
THREADS = "segment in 2 threads"

Case = Callable[[], object]


def receive(segments: list[bytes], config: SegmentationConfig) -> int:
    """The number of payloads that come out; each is dropped at once."""
    reassembler = Reassembler(config)
    found = 0
    for bytes_ in segments:
        found += isinstance(reassembler.receive(bytes_, now_ms=0, sender="a"), PayloadReconstructed)
    return found


def forged(segment_bytes: bytes) -> bytes:
    """The segment with other bytes in the middle of its payload, of the same length."""
    start, stop = 200, len(segment_bytes) - 200
    return segment_bytes[:start] + RANDOM.randbytes(stop - start) + segment_bytes[stop:]


def in_order(segments: list[bytes]) -> list[bytes]:
    return segments


def shuffled(segments: list[bytes]) -> list[bytes]:
    return RANDOM.sample(segments, len(segments))


def receiving(segments: list[bytes], config: SegmentationConfig = CONFIG) -> Case:
    assert receive(segments, config) == 1, "the case does not do what its name says"
    return lambda: receive(segments, config)


def poisoned(segments: list[bytes], bad: int) -> list[bytes]:
    places = set(RANDOM.sample(range(len(segments)), bad))
    return [forged(one) if place in places else one for place, one in enumerate(segments)]


def cases_of_10_mib() -> dict[str, Case]:
    payload = RANDOM.randbytes(SIZE)
    segments = segment(payload, CONFIG)
    data = segments[: -(-SIZE // CONFIG.segment_size_bytes)]
    lost = set(RANDOM.sample(range(len(data)), 12))
    neighbours = [one for pair in zip(data[1::2], data[::2], strict=False) for one in pair] + data[len(data) & ~1 :]
    return {
        "segment, outputs dropped": lambda: len(segment(payload, CONFIG)),
        "receive in order": receiving(segments),
        "receive, neighbours swapped": receiving(neighbours),
        "receive shuffled": receiving(shuffled(data)),
        "receive, 12 lost": receiving([one for place, one in enumerate(segments) if place not in lost]),
        "receive shuffled, data and parity": receiving(shuffled(segments)),
        **{
            f"receive {order.__name__.replace('_', ' ')}, {bad} poisoned": receiving(order(poisoned(segments, bad)))
            for bad in (1, 4, 7)
            for order in (in_order, shuffled)
        },
    }


def keeping(payload: bytes) -> dict[str, Case]:
    """On its own: a case that follows would pay for the pages that go back to the system here."""
    kept: list[list[bytes]] = []

    def keep() -> None:
        kept.append(segment(payload, CONFIG))
        if len(kept) > 4:
            kept.clear()

    return {"hash": lambda: keccak256(payload), "segment, outputs kept": keep}


def poison_at_64_and_8(code: ErasureCode) -> dict[str, Case]:
    config = replace(CONFIG, erasure_code=code)
    payload = RANDOM.randbytes(64 * config.segment_size_bytes)
    segments = segment(payload, config)
    cases = {
        "hash": lambda: keccak256(payload),
        f"64 + 8 {code}, clean in order": receiving(segments, config),
        f"64 + 8 {code}, clean shuffled": receiving(shuffled(segments), config),
    }
    for bad in (1, 4, 7):
        cases[f"64 + 8 {code}, {bad} bad in order"] = receiving(poisoned(segments, bad), config)
        cases[f"64 + 8 {code}, {bad} bad shuffled"] = receiving(shuffled(poisoned(segments, bad)), config)
    return cases


def batches() -> dict[str, Case]:
    payloads = [RANDOM.randbytes(RANDOM.randint(100 << 10, 1 << 20)) for _ in range(64)]
    wire = [segment(payload, CONFIG) for payload in payloads]
    return {
        "hash": lambda: [keccak256(payload) for payload in payloads],
        "64 payloads, keccak256_many": lambda: keccak256_many(payloads),
        "64 payloads, segment in a loop": lambda: [len(segment(payload, CONFIG)) for payload in payloads],
        "64 payloads, segment_many": lambda: len(many(payloads, CONFIG)),
        "64 payloads, receive in a loop": lambda: [receive(one, CONFIG) for one in wire],
        "64 payloads, reassemble_many": lambda: len(reassemble_many(wire, CONFIG)),
    }


def threads_to_one(payload: bytes, threads: int = 2, rounds: int = 11) -> float:
    """Wall time of as many threads that each segment the payload, to that of one."""

    def seconds(count: int) -> float:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda _: None, range(count)))
            start = time.perf_counter()
            list(pool.map(lambda _: [len(segment(payload, CONFIG)) for _ in range(3)], range(count)))
            return time.perf_counter() - start

    return statistics.median(seconds(threads) / seconds(1) for _ in range(rounds))


def ratios(hash_pass: Case, cases: dict[str, Case], rounds: int) -> dict[str, float]:
    """The median ratio of each case to the pass."""

    def seconds(case: Case) -> float:
        start = time.thread_time()
        case()
        return time.thread_time() - start

    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        reference = seconds(hash_pass)
        for name, case in cases.items():
            taken[name].append(seconds(case) / reference)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    payload = RANDOM.randbytes(SIZE)
    groups = [
        {"hash": lambda: keccak256(payload), **cases_of_10_mib()},
        keeping(payload),
        poison_at_64_and_8("leopard"),
        poison_at_64_and_8("vandermonde"),
        batches(),
    ]
    started = context(f"python -m benches.python.segmentation_ratios --only '{arguments.only}'", arguments.rounds)
    results = []
    print("| case | time / hash | hash / time |\n|---|---|---|")
    for group in groups:
        hash_pass = group.pop("hash")
        wanted = {name: case for name, case in group.items() if arguments.only in name}
        for name, ratio in ratios(hash_pass, wanted, arguments.rounds).items():
            print(f"| {name} | {ratio:.3f} | {1 / ratio:.3f} |")
            results.append({"case": name, "candidate": "one Keccak pass", "ours_to_peer": 1 / ratio})
        sys.stdout.flush()
    if arguments.only in THREADS:
        wall = threads_to_one(payload)
        print(f"{THREADS}: {wall:.3f} of the wall time of one, {2 / wall:.2f} times its throughput")
        results.append({"case": THREADS, "candidate": "one thread, wall time", "ours_to_peer": 2 / wall})
    if arguments.results and results:
        arguments.results.write_text(json.dumps({"context": started, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()

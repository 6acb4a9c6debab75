"""Runs worlds: `python -m tests.simulation --seed 7` one of them, with `--count 1000` that many from there on.

A failing seed is printed with what was violated; the same command with that seed alone replays it. With `--resume` the
seeds that passed are noted in a file, and skipped when the command is given again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.checkers import check
from tests.simulation.run import run_world
from tests.simulation.worlds import FAULT_KINDS, make_world

FAILURES_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """One world's result.

    Attributes:
        seed: Its seed.
        violations: By checker; empty where all held.
        participants: Of the world.
        sends: Of the world.
        faults: Of the world.
        envelopes: That left a node.
        seconds: Processor time it took.
    """

    seed: int
    violations: dict[str, list[str]]
    participants: int
    sends: int
    large_sends: int
    faults: frozenset[str]
    envelopes: int
    seconds: float


def judge(seed: int) -> Verdict:
    """Runs and checks the world of one seed."""
    world = make_world(seed)
    began = time.process_time()
    envelopes = 0
    try:
        evidence = run_world(world)
        violations = check(evidence)
        envelopes = len(evidence.trace)
    except Exception as error:
        violations = {"ran to its end": [f"{type(error).__name__}: {error}"]}
    seconds = time.process_time() - began
    large = sum(plan.size_bytes > world.segment_size_bytes for plan in world.sends)
    # Worlds are full of cycles; left alone they pile up to gigabytes before the oldest generation is looked at.
    gc.collect()
    return Verdict(seed, violations, world.participants, len(world.sends), large, world.faults, envelopes, seconds)


def judge_many(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """Runs worlds in `jobs` processes; the verdicts come in the order of the seeds."""
    if jobs == 1:
        yield from map(judge, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, _quiet, maxtasksperchild=500) as pool:
        yield from pool.imap(judge, seeds, chunksize=4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds from there on (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--resume", type=Path, help="file of the seeds that passed; they are skipped")
    parser.add_argument("--verbose", action="store_true", help="show the log of the channels")
    arguments = parser.parse_args()
    if not arguments.verbose:
        _quiet()
    passed = _read_passed(arguments.resume)
    seeds = [seed for seed in range(arguments.seed, arguments.seed + arguments.count) if seed not in passed]
    began = time.perf_counter()
    verdicts = []
    with _passed_log(arguments.resume) as note_passed:
        for verdict in judge_many(seeds, 1 if len(seeds) == 1 else arguments.jobs):
            verdicts.append(verdict)
            if verdict.violations:
                _print_failure(verdict)
            else:
                note_passed(verdict.seed)
    print_totals(verdicts, time.perf_counter() - began, skipped=arguments.count - len(seeds))
    return 1 if any(verdict.violations for verdict in verdicts) else 0


def print_totals(verdicts: list[Verdict], seconds: float, skipped: int = 0) -> None:
    """Prints what ran, by kind of fault, and what failed."""
    count = len(verdicts)
    if not count:
        print(f"no world ran; {skipped} had passed before")
        return
    faults = Counter(fault for verdict in verdicts for fault in verdict.faults)
    sizes = Counter(_size_class(verdict.participants) for verdict in verdicts)
    sends = sum(verdict.sends for verdict in verdicts)
    large = sum(verdict.large_sends for verdict in verdicts)
    print(f"{count} worlds in {seconds:.1f} s ({skipped} had passed before)")
    print("participants: " + ", ".join(f"{name}: {sizes[name] / count:.0%}" for name in sorted(sizes)))
    print(f"sends: {sends}, of several segments: {large / sends:.0%}; envelopes: {sum(v.envelopes for v in verdicts)}")
    print("faults: " + ", ".join(f"{kind}: {faults[kind] / count:.0%}" for kind in FAULT_KINDS))
    slowest = max(verdicts, key=lambda verdict: verdict.seconds)
    print(f"slowest: seed {slowest.seed}, {slowest.participants} participants, {slowest.seconds:.1f} s")
    failed = [verdict for verdict in verdicts if verdict.violations]
    kinds = Counter(kind for verdict in failed for kind in verdict.violations)
    print(f"failed: {len(failed)}" + "".join(f"; {kind}: {number}" for kind, number in kinds.most_common()))
    if failed:
        print("failing seeds: " + " ".join(str(verdict.seed) for verdict in failed[:FAILURES_NAMED_MAX]))


def _size_class(participants: int) -> str:
    if participants <= 5:
        return "2-5"
    return "6-15" if participants <= 15 else "16-50"


def _print_failure(verdict: Verdict) -> None:
    print(f"seed {verdict.seed} ({verdict.participants} participants; {', '.join(sorted(verdict.faults))}):")
    for kind, violations in verdict.violations.items():
        for violation in violations[:5]:
            print(f"  {kind}: {violation}")
        if len(violations) > 5:
            print(f"  {kind}: and {len(violations) - 5} more")
    sys.stdout.flush()


def _quiet() -> None:
    logging.getLogger("shardwire").setLevel(logging.CRITICAL)


def _read_passed(path: Path | None) -> set[int]:
    if path is None or not path.exists():
        return set()
    return {int(line) for line in path.read_text().split()}


@contextlib.contextmanager
def _passed_log(path: Path | None):  # type: ignore[no-untyped-def]
    if path is None:
        yield lambda seed: None
        return
    with path.open("a", buffering=1) as file:
        yield lambda seed: file.write(f"{seed}\n")


if __name__ == "__main__":
    sys.exit(main())

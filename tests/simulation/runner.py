"""Runs and judges many worlds in several processes, and remembers the verdicts in a file."""

from __future__ import annotations

import gc
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulation.checkers import check
from tests.simulation.processes import quiet
from tests.simulation.run import run_world
from tests.simulation.worlds import FAULT_KINDS, make_world

FAILURES_NAMED_MAX = 40
# A process is replaced after as many worlds.
WORLDS_PER_PROCESS = 500
# Worlds that are put in order of their size.
WORLDS_SORTED = 1_000
# Containers that a world allocates between two looks for garbage.
WORLD_ALLOCATIONS = 100_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """One world's result.

    Attributes:
        seed: Its seed.
        violations: By checker; empty where all held.
        participants: Of the world.
        sends: Of the world.
        large_sends: Those of several segments.
        faults: Of the world, in the order of `FAULT_KINDS`.
        preset: The channel's preset.
        envelopes: That left a node.
        receipts: Envelopes that reached a node, summed over all nodes.
        cpu_seconds: Processor time it took.
    """

    seed: int
    violations: dict[str, list[str]]
    participants: int
    sends: int
    large_sends: int
    faults: tuple[str, ...]
    preset: str
    envelopes: int
    receipts: int
    cpu_seconds: float


def judge(seed: int) -> Verdict:
    """Runs and checks the world of one seed."""
    world = make_world(seed)
    began = time.process_time()
    envelopes = receipts = 0
    # Nearly all that a world makes lives as long as it does: looking for garbage meanwhile finds little.
    thresholds = gc.get_threshold()
    gc.set_threshold(WORLD_ALLOCATIONS)
    try:
        evidence = run_world(world)
        violations = check(evidence)
        envelopes = len(evidence.trace)
        receipts = sum(len(record.outcomes) for record in evidence.trace)
        del evidence
    except Exception as error:
        violations = {"ran to its end": [f"{type(error).__name__}: {error}"]}
    finally:
        gc.set_threshold(*thresholds)
    # Worlds are full of cycles; left alone they pile up to gigabytes before the oldest generation is looked at.
    gc.collect()
    seconds = time.process_time() - began
    return Verdict(
        seed=seed,
        violations=violations,
        participants=world.participants,
        sends=len(world.sends),
        large_sends=sum(plan.size_bytes > world.segment_size_bytes for plan in world.sends),
        faults=tuple(kind for kind in FAULT_KINDS if kind in world.faults),
        preset=world.preset,
        envelopes=envelopes,
        receipts=receipts,
        cpu_seconds=round(seconds, 3),
    )


def judge_many(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """Runs worlds in `jobs` processes, the largest of each thousand first; so come the verdicts."""
    if jobs == 1:
        yield from map(judge, seeds)
        return
    # One world at a time: some take fifty times as long as others. The last ones are short, so that all processes end
    # together.
    with multiprocessing.get_context("spawn").Pool(jobs, prepare, maxtasksperchild=WORLDS_PER_PROCESS) as pool:
        yield from pool.imap(judge, largest_first(seeds), chunksize=1)


def largest_first(seeds: Iterable[int]) -> list[int]:
    """Seeds in the order in which they are run; an interrupted range has still run worlds of every size."""
    left, ordered = list(seeds), []
    for start in range(0, len(left), WORLDS_SORTED):
        batch = left[start : start + WORLDS_SORTED]
        ordered += sorted(batch, key=lambda seed: make_world(seed).participants, reverse=True)
    return ordered


def prepare(*, verbose: bool = False) -> None:
    """Sets up a process that does nothing but run worlds."""
    # What is imported stays: the look for garbage after each world passes it over.
    gc.freeze()
    if not verbose:
        quiet()


class StateFile:
    """Verdicts as JSON lines, appended as they come; the newest of a seed counts."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.verdicts: dict[int, Verdict] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            fields = json.loads(line)
        except ValueError:
            # The end of a run that was killed while it wrote.
            return
        self.verdicts[fields["seed"]] = Verdict(**{**fields, "faults": tuple(fields["faults"])})

    def add(self, verdict: Verdict) -> None:
        """Notes a verdict."""
        self.verdicts[verdict.seed] = verdict
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")


def totals(verdicts: Sequence[Verdict]) -> list[str]:
    """What ran, by kind of fault, and what failed, in lines."""
    count = len(verdicts)
    if not count:
        return ["no world ran"]
    faults = Counter(fault for verdict in verdicts for fault in verdict.faults)
    sizes = Counter(_size_class(verdict.participants) for verdict in verdicts)
    presets = Counter(verdict.preset for verdict in verdicts)
    sends = sum(verdict.sends for verdict in verdicts)
    large = sum(verdict.large_sends for verdict in verdicts)
    seconds = sum(verdict.cpu_seconds for verdict in verdicts)
    slowest = max(verdicts, key=lambda verdict: verdict.cpu_seconds)
    failed = [verdict for verdict in verdicts if verdict.violations]
    kinds = Counter(kind for verdict in failed for kind in verdict.violations)
    lines = [
        f"{count} worlds, {seconds:.0f} s of processor time, {seconds / count:.2f} s a world",
        "participants: " + ", ".join(f"{name}: {sizes[name] / count:.0%}" for name in sorted(sizes)),
        "presets: " + ", ".join(f"{name}: {presets[name] / count:.0%}" for name in sorted(presets)),
        f"sends: {sends}, of several segments: {large / sends:.0%}; "
        f"envelopes: {sum(verdict.envelopes for verdict in verdicts)}, "
        f"receipts: {sum(verdict.receipts for verdict in verdicts)}",
        "faults: " + ", ".join(f"{kind}: {faults[kind] / count:.0%}" for kind in FAULT_KINDS),
        f"slowest: seed {slowest.seed}, {slowest.participants} participants, {slowest.cpu_seconds:.1f} s",
        f"failed: {len(failed)}" + "".join(f"; {kind}: {number}" for kind, number in kinds.most_common()),
    ]
    if failed:
        lines.append("failing seeds: " + " ".join(str(verdict.seed) for verdict in failed[:FAILURES_NAMED_MAX]))
    return lines


def failure(verdict: Verdict) -> list[str]:
    """What a world violated, in lines."""
    faults = ", ".join(verdict.faults)
    lines = [f"seed {verdict.seed} ({verdict.preset}, {verdict.participants} participants; {faults}):"]
    for kind, violations in verdict.violations.items():
        lines += [f"  {kind}: {violation}" for violation in violations[:5]]
        if len(violations) > 5:
            lines.append(f"  {kind}: and {len(violations) - 5} more")
    return lines


def _size_class(participants: int) -> str:
    if participants <= 5:
        return "2-5"
    return "6-15" if participants <= 15 else "16-50"

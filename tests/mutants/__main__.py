"""Breaks the library on purpose, one change at a time, and runs the tests that must notice.

Prints a line for each mutant, which is killed when one of its tests fails; ends with exit status 1 where one survives.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.mutants.catalogue import Mutant, load, sample, seed_of_tree
from tests.mutants.trial import Report, Tree


def judge_all(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, Report]]:
    """The report of each, in the order in which they come; first every test must pass without any change.

    Raises:
        RuntimeError: One does not.
    """
    if not mutants:
        return
    native = [mutant for mutant in mutants if mutant.is_rust]
    if native and len(native) < len(mutants):
        yield from judge_all([mutant for mutant in mutants if not mutant.is_rust], jobs)
        yield from judge_all(native, jobs)
        return
    with tempfile.TemporaryDirectory(prefix="shardwire-mutants-") as name:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        # cargo itself uses every core.
        jobs = 1 if native else min(jobs, len(mutants))
        for number in range(jobs):
            trees.put(Tree(Path(name) / f"tree-{number}", rust=bool(native)))

        def judge(mutant: Mutant) -> tuple[Mutant, Report]:
            tree = trees.get()
            try:
                return mutant, tree.judge(mutant)
            finally:
                trees.put(tree)

        def run_unchanged(tests: Sequence[str]) -> Report:
            tree = trees.get()
            try:
                return tree.run(tests)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            shares = [share for number in range(jobs) if (share := tests[number::jobs])]
            for unchanged in pool.map(run_unchanged, shares):
                if unchanged.verdict != "survived":
                    raise RuntimeError(f"a test fails without any change: {unchanged.detail}")
            for task in as_completed([pool.submit(judge, mutant) for mutant in mutants]):
                yield task.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="those with the text in name, requirement or file")
    parser.add_argument("--sample", type=int, metavar="N", help="so many, drawn by the seed")
    parser.add_argument("--seed", help="of the sample (default: the commit's hash)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: %(default)s)")
    parser.add_argument("--no-rust", action="store_true", help="leave out those that change Rust and take minutes each")
    arguments = parser.parse_args()
    chosen = tuple(
        mutant
        for mutant in load().mutants
        if any(arguments.only in text for text in (mutant.name, mutant.requirement, mutant.file))
        and not (arguments.no_rust and mutant.is_rust)
    )
    if arguments.sample is not None:
        chosen = tuple(sample(chosen, arguments.sample, arguments.seed or seed_of_tree()))
    began = time.monotonic()
    survivors: list[str] = []
    try:
        for mutant, report in judge_all(chosen, arguments.jobs):
            about = f"{report.verdict:8} {report.seconds:5.1f} s  {mutant.requirement:8} {mutant.name}"
            print(f"{about}: {report.detail}", flush=True)
            if report.verdict != "killed":
                survivors.append(mutant.name)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    seconds = time.monotonic() - began
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were killed in {seconds:.0f} s")
    if survivors:
        print(f"not killed: {', '.join(sorted(survivors))}")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())

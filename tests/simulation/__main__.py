"""Runs worlds: `--seed 7` one of them, `--from 0 --to 1000` a range, from the first to before the last.

A failing seed is printed with what was violated; `--seed` alone replays it. With `--state FILE` the verdicts are kept:
given again, the command goes on where it stopped, and its totals cover the whole range.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.simulation.runner import StateFile, failure, judge_many, prepare, totals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds from there on (default: %(default)s)")
    parser.add_argument("--from", dest="first", type=int, help="the same as --seed")
    parser.add_argument("--to", dest="end", type=int, help="the seed to stop before, in place of --count")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--state", type=Path, help="file of verdicts; seeds that it has are not run again")
    parser.add_argument("--failed-again", action="store_true", help="run those again that the file says failed")
    parser.add_argument("--verbose", action="store_true", help="show the log of the channels")
    arguments = parser.parse_args()
    prepare(verbose=arguments.verbose)
    first = arguments.seed if arguments.first is None else arguments.first
    seeds = range(first, first + arguments.count if arguments.end is None else arguments.end)
    state = StateFile(arguments.state)
    done = {seed for seed, verdict in state.verdicts.items() if not (arguments.failed_again and verdict.violations)}
    left = [seed for seed in seeds if seed not in done]
    began = time.perf_counter()
    for verdict in judge_many(left, 1 if len(left) == 1 else arguments.jobs):
        state.add(verdict)
        if verdict.violations:
            print("\n".join(failure(verdict)), flush=True)
    print(f"{len(left)} worlds ran in {time.perf_counter() - began:.1f} s, {len(seeds) - len(left)} had run before")
    verdicts = [state.verdicts[seed] for seed in seeds]
    print("\n".join(totals(verdicts)))
    return 1 if any(verdict.violations for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs chaos: `--seed 7` one world, `--from 0 --to 1000` a range, from the first to before the last."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.simulation.chaos.checks import check
from tests.simulation.chaos.plan import make_plan
from tests.simulation.chaos.run import run_plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="the only seed")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--to", dest="end", type=int, default=40, help="the seed to stop before (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="show the log of the channels")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if arguments.verbose else logging.CRITICAL + 1)
    seeds = range(arguments.first, arguments.end) if arguments.seed is None else [arguments.seed]
    began, failed = time.perf_counter(), 0
    for seed in seeds:
        found = check(run_plan(make_plan(seed)))
        failed += bool(found)
        for name, violations in found.items():
            for text in violations:
                print(f"seed {seed}: {name}: {text}", flush=True)
    print(f"{len(seeds)} seeds ran in {time.perf_counter() - began:.1f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

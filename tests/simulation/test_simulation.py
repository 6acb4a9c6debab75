"""Whole networks in virtual time; `python -m tests.simulation` runs as many more of them as one likes.

The environment variable SHARDWIRE_WORLDS sets how many of them are a test run's, SHARDWIRE_VARIED_WORLDS how many of
those whose participants are configured differently.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.simulation.checkers import check
from tests.simulation.mutations import MUTATIONS
from tests.simulation.run import run_world
from tests.simulation.runner import judge, judge_many, totals
from tests.simulation.worlds import VARIED_FROM, make_world

# Three quarters of a second of processor time each: a tenth for two participants to twenty for fifty. More of them:
# `python -m tests.simulation --from 600 --to 20000 --state FILE`, which can be interrupted.
WORLDS = int(os.environ.get("SHARDWIRE_WORLDS", "600"))
VARIED_WORLDS = int(os.environ.get("SHARDWIRE_VARIED_WORLDS", "60"))
MUTATION_WORLDS_FIRST = 10
MUTATION_WORLDS_MAX = 60


def read_found_seeds() -> list[int]:
    lines = (Path(__file__).parent / "found_seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.slow
@pytest.mark.timeout(120 + 5 * WORLDS)
def test_the_invariants_hold_in_every_world(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.perf_counter()
    verdicts = list(judge_many(range(WORLDS), os.cpu_count() or 1))
    elapsed_s = time.perf_counter() - began
    with capsys.disabled():
        print("", f"{len(verdicts)} worlds ran in {elapsed_s:.1f} s", *totals(verdicts), sep="\n")
    assert len(verdicts) == WORLDS
    assert {verdict.seed: verdict.violations for verdict in verdicts if verdict.violations} == {}


@pytest.mark.slow
@pytest.mark.timeout(120 + 5 * VARIED_WORLDS)
def test_the_invariants_hold_where_participants_are_configured_differently() -> None:
    verdicts = judge_many(range(VARIED_FROM, VARIED_FROM + VARIED_WORLDS), os.cpu_count() or 1)
    assert {verdict.seed: verdict.violations for verdict in verdicts if verdict.violations} == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [seed for seed in read_found_seeds() if seed >= WORLDS])
def test_a_seed_that_once_failed_passes(seed: int) -> None:
    assert judge(seed).violations == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_checkers_find_a_planted_bug(name: str) -> None:
    mutation, expected = MUTATIONS[name]
    # Where something was found once much goes on: a full table, say, is rare elsewhere.
    for seed in (
        *range(MUTATION_WORLDS_FIRST),
        *read_found_seeds(),
        *range(MUTATION_WORLDS_FIRST, MUTATION_WORLDS_MAX),
    ):
        world = make_world(seed)
        if world.participants > 6:
            # The bugs show as well in small worlds, sooner.
            continue
        with mutation():
            found = check(run_world(world))
        if expected & found.keys():
            assert check(run_world(world)) == {}, f"world {seed} fails without the bug too"
            return
    pytest.fail(f"{name}: no world shows it")


REPLAY = """
import hashlib, logging, sys
logging.getLogger("shardwire").setLevel(logging.CRITICAL)
from tests.simulation.run import run_world
from tests.simulation.worlds import make_world
evidence = run_world(make_world(int(sys.argv[1])))
digest = hashlib.sha256()
for record in evidence.trace:
    digest.update(repr(record).encode() + record.payload)
for participant in evidence.participants:
    digest.update(repr(participant.received).encode() + repr(participant.sent).encode())
print(digest.hexdigest())
"""


def test_a_seed_replays_to_the_last_bit_in_another_process() -> None:
    # Without encryption, whose nonces are the system's.
    seed = next(seed for seed in range(100) if not make_world(seed).encrypted and len(make_world(seed).faults) > 4)
    digests = set()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", REPLAY, str(seed)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join([".", "python"])},
        )
        digests.add(run.stdout)
    assert len(digests) == 1

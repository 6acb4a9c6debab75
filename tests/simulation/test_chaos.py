"""Small worlds in which everything that an application supplies fails at random, each from one seed.

The environment variable SHARDWIRE_CHAOS sets how many of them are a test run's; `python -m tests.simulation.chaos
--from 0 --to 1000` runs as many more as one likes.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.chaos.checks import check
from tests.simulation.chaos.mutations import MUTATIONS
from tests.simulation.chaos.plan import make_plan
from tests.simulation.chaos.run import run_plan

SEEDS = int(os.environ.get("SHARDWIRE_CHAOS", "40"))
# Seeds that once failed, beyond those that are run anyway.
FOUND = (55, 92, 141, 170, 531, 2009, 2072, 2220)
MUTATION_SEEDS_MAX = 60


@pytest.mark.timeout(60 + 5 * SEEDS)
def test_no_send_is_lost_whatever_fails() -> None:
    found = {seed: check(run_plan(make_plan(seed))) for seed in (*range(SEEDS), *FOUND)}
    assert {seed: violations for seed, violations in found.items() if violations} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_checks_find_a_planted_bug(name: str) -> None:
    mutation, expected = MUTATIONS[name]
    for seed in range(MUTATION_SEEDS_MAX):
        plan = make_plan(seed)
        with mutation():
            found = check(run_plan(plan))
        if expected & found.keys():
            assert check(run_plan(plan)) == {}, f"seed {seed} fails without the bug too"
            return
    pytest.fail(f"{name}: no seed shows it")

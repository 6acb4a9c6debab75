"""Everything that is sent arrives, though the network never gets better.

The environment variable SHARDWIRE_LOSSY_WORLDS sets how many worlds are a test run's;
`python -m tests.simulation.endless_loss --from 0 --to 400` runs as many more as one likes.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.endless_loss import make_lossy_world, run_many

WORLDS = int(os.environ.get("SHARDWIRE_LOSSY_WORLDS", "60"))


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * WORLDS)
def test_nothing_is_lost_for_good(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = list(run_many(range(WORLDS), os.cpu_count() or 1))
    deliveries = sum(outcome.deliveries for outcome in outcomes)
    with capsys.disabled():
        print("", f"{deliveries} deliveries at a loss of 30 % in {len(outcomes)} worlds", sep="\n")
    assert {outcome.world.seed: outcome.missing for outcome in outcomes if outcome.missing} == {}
    assert {outcome.world.seed: outcome.repeated for outcome in outcomes if outcome.repeated} == {}


def test_the_worlds_are_of_both_presets_with_and_without_a_store() -> None:
    worlds = [make_lossy_world(seed) for seed in range(WORLDS)]
    assert {(world.preset, world.store) for world in worlds} == {
        ("logos", False),
        ("logos", True),
        ("waku", False),
        ("waku", True),
    }
    assert {world.participants for world in worlds} >= {3, 20}

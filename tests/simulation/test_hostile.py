"""An attacker's bytes bring about bounded work and traffic, and nothing that arrives is kept from the application.

The environment variable SHARDWIRE_HOSTILE_WORLDS sets how many worlds a test run takes.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.simulation.hostile import (
    CYCLES_FREE,
    INSIDER,
    KEYLESS,
    Course,
    HostileWorld,
    Outcome,
    make_hostile_world,
    run_many,
)

WORLDS = int(os.environ.get("SHARDWIRE_HOSTILE_WORLDS", "400"))
SEEDS = range(WORLDS)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * WORLDS)
def test_no_attack_achieves_anything(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = list(run_many(SEEDS, os.cpu_count() or 1))
    messages = sum(outcome.attacked.messages_in for outcome in outcomes)
    with capsys.disabled():
        print("", f"{messages} messages of attackers in {len(outcomes)} worlds", sep="\n")
    assert {outcome.world.seed: faults for outcome in outcomes if (faults := outcome.faults())} == {}


def test_the_worlds_have_every_attack_on_both_presets_with_and_without_a_store() -> None:
    worlds = [make_hostile_world(seed) for seed in SEEDS]
    kinds = {(world.preset, world.store, world.insider) for world in worlds}
    assert kinds == {
        (preset, *rest) for preset in ("logos", "waku") for rest in ((a, b) for a in (0, 1) for b in (0, 1))
    }
    assert {name for world in worlds if world.insider for _, name, _ in world.attacks} == set(INSIDER)
    assert {name for world in worlds if not world.insider for _, name, _ in world.attacks} == set(KEYLESS)
    assert all(world.encrypted for world in worlds if not world.insider)


QUIET = Course(
    missing=((1, 2),),
    repeated=0,
    bytes_in=0,
    messages_in=0,
    bytes_out=1_000,
    cycles=500,
    late_envelopes=20,
    irretrievable_events=0,
)
WORLD = HostileWorld(0, "logos", 3, False, False, True, 0.0, (), ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"missing": ((1, 2), (0, 0))}, ["lost: ((1, 2), (0, 0))"]),
        ({"missing": ()}, []),
        ({"repeated": 1}, ["delivered again: 1"]),
        ({"bytes_out": 10_000_000}, ["3200 bytes out for each byte of 1000"]),
        ({"cycles": 500 + CYCLES_FREE + 30_000}, ["1000 cycles for each message of 10"]),
        ({"late_envelopes": 100}, ["80 envelopes long after the attack"]),
        ({"irretrievable_events": 31}, ["31 events of irretrievable messages"]),
    ],
)
def test_what_an_attacker_achieves_is_told(change: dict[str, object], told: list[str]) -> None:
    attacked = replace(QUIET, bytes_in=1_000, messages_in=10)
    assert Outcome(WORLD, replace(attacked, **change), QUIET).faults() == told  # type: ignore[arg-type]

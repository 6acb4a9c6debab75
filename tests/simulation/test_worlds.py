"""The distribution of simulated worlds is the one that is asked for."""

from __future__ import annotations

import itertools
from collections import Counter

from tests.simulation.run import payload_of
from tests.simulation.worlds import FAULT_KINDS, LOSS_MAX, VARIED_FROM, World, make_world

WORLDS = [make_world(seed) for seed in range(1_000)]


def share(worlds: list[World]) -> float:
    return len(worlds) / len(WORLDS)


def test_a_seed_gives_one_world() -> None:
    assert make_world(7) == make_world(7)
    assert make_world(7) != make_world(8)


def test_the_numbers_of_participants_have_their_shares() -> None:
    assert all(2 <= world.participants <= 50 for world in WORLDS)
    assert 0.66 < share([world for world in WORLDS if world.participants <= 5]) < 0.74
    assert 0.21 < share([world for world in WORLDS if 6 <= world.participants <= 15]) < 0.29
    assert 0.03 < share([world for world in WORLDS if world.participants >= 16]) < 0.08


def test_every_world_has_enough_sends_and_enough_of_them_are_large() -> None:
    for world in WORLDS:
        large = sum(plan.size_bytes > world.segment_size_bytes for plan in world.sends)
        assert len(world.sends) >= 30
        assert large >= len(world.sends) / 5
        assert all(0 <= plan.at_ms < world.calm_at_ms for plan in world.sends)
        assert all(plan.reply_to is None or plan.reply_to < plan.number for plan in world.sends)


def test_every_kind_of_fault_is_in_a_fifth_of_the_worlds_and_really_happens() -> None:
    happens = {
        "loss": lambda world: 0 < world.loss <= LOSS_MAX,
        "duplication": lambda world: world.duplicate > 0,
        "reorder": lambda world: world.reorder > 0,
        "partition": lambda world: world.partitions,
        "store outage": lambda world: world.store_outages,
        "late joiner": lambda world: any(world.joins_at_ms),
        "restart": lambda world: world.crashes,
        "slow callback": lambda world: any(world.callback_ms),
        "hostile participant": lambda world: world.hostile_at_ms,
        "clock step": lambda world: world.clock_steps,
    }
    assert set(happens) == set(FAULT_KINDS)
    counts = Counter(kind for world in WORLDS for kind in world.faults)
    for kind in FAULT_KINDS:
        assert counts[kind] / len(WORLDS) >= 0.2
        assert all(bool(happens[kind](world)) == (kind in world.faults) for world in WORLDS), kind


def test_both_ways_of_repair_have_their_share() -> None:
    logos = [world for world in WORLDS if world.preset == "logos"]
    assert 0.45 < sum(world.repair == "parity" for world in logos) / len(logos) < 0.55


def test_both_presets_have_their_share_and_large_groups_are_throttled() -> None:
    assert 0.16 < share([world for world in WORLDS if world.preset == "waku"]) < 0.24
    assert all(world.process_ms >= 250 for world in WORLDS if world.participants > 15)
    assert any(world.process_ms == 0 for world in WORLDS if world.participants > 5)


def test_faults_end_before_the_calm() -> None:
    for world in WORLDS:
        assert all(crash.at_ms <= crash.back_at_ms <= world.calm_at_ms for crash in world.crashes)
        assert all(0 < entry.until_ms <= world.calm_at_ms for entry in (*world.partitions, *world.store_outages))
        assert max(world.joins_at_ms) < world.calm_at_ms
        for name in range(world.participants):
            lives = sorted((crash.at_ms, crash.back_at_ms) for crash in world.crashes if crash.participant == name)
            assert all(back <= at for (_, back), (at, _) in itertools.pairwise(lives))


def test_no_two_messages_of_a_world_are_equal() -> None:
    for world in WORLDS[:50]:
        payloads = [payload_of(world, plan) for plan in world.sends]
        assert len(set(payloads)) == len(payloads)
        assert [len(payload) for payload in payloads] == [plan.size_bytes for plan in world.sends]


def test_varied_worlds_have_what_the_others_never_have() -> None:
    worlds = [make_world(VARIED_FROM + number) for number in range(200)]
    happens = {
        "standstill": lambda world: world.standstills and world.awake_at_ms > world.calm_at_ms,
        "sleep": lambda world: any(standstill.slept for standstill in world.standstills),
        "cancelled": lambda world: any(plan.cancelled_ms is not None for plan in world.sends),
        "abandoned": lambda world: any(plan.abandoned_ms is not None for plan in world.sends),
        "second channel": lambda world: world.aside,
        "nim": lambda world: world.sds_wire_format == "nim",
        "draft under logos": lambda world: world.preset == "logos" and world.wire_format == "draft",
        "adapted": lambda world: world.adapted,
        "replay window": lambda world: world.variations[0][0].sds["replay_window_ms"],
    }
    assert [what for what, does in happens.items() if not any(map(does, worlds))] == []
    assert not any(does(world) for what, does in happens.items() if what != "replay window" for world in WORLDS)

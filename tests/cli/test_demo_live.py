"""The demo's live part in virtual time: whatever luck loses, a segment comes back through parity."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rich.console import Console

from shardwire.cli.demo.live import LiveResult, run_live
from shardwire.cli.demo.network import lost_segment
from shardwire.cli.demo.progress import LiveBars
from shardwire.cli.demo.report import not_shown
from shardwire.cli.demo.settings import BESIDE_LISTENER, LISTENER, RECEIVERS, plan_demo
from shardwire.cli.demo.spark_check import SparkResult
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import run_virtual

PAYLOAD = random.Random(7).randbytes(300_001)


def live_part(directory: Path, seed: int) -> LiveResult:
    plan = plan_demo(len(PAYLOAD))
    bars = LiveBars(Console(quiet=True), plan.segment_count)
    encryption = ChaCha20Poly1305Encryption(bytes(32))
    archive = directory / "archive"
    return run_virtual(run_live(PAYLOAD, plan, encryption, archive=archive, state=directory, seed=seed, bars=bars))


@pytest.mark.parametrize("seed", range(6))
def test_one_data_segment_reaches_nobody_and_comes_back(tmp_path: Path, seed: int) -> None:
    plan = plan_demo(len(PAYLOAD))
    lost = lost_segment(plan, seed)
    live = live_part(tmp_path, seed)
    assert any(one.ordinal == lost for one in live.transmissions)
    for name in (*RECEIVERS, LISTENER):
        assert lost not in live.arrived(name)
        # Enough to rebuild the file from.
        assert len(live.arrived(name)) >= plan.data_segment_count
    assert live.arrived(LISTENER) == live.arrived(BESIDE_LISTENER)
    for name in RECEIVERS:
        assert live.received[name] == PAYLOAD
        assert lost in live.segments(name, "recovered")
    assert not_shown(live, SparkResult((), 0.0, 0.0)) == ["Spark needed no parity"]


def test_the_lost_segment_is_another_with_another_seed() -> None:
    plan = plan_demo(len(PAYLOAD))
    lost = {lost_segment(plan, seed) for seed in range(40)}
    assert len(lost) > 10
    assert lost <= set(range(plan.data_segment_count))

"""What a channel measures: every metric, with values that follow from the scenario."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from pathlib import Path

import pytest
from channel_machines import channel_machine
from channel_world import World, run_world

import shardwire.channel
from shardwire.channel import GAUGES, MEASUREMENTS, METRICS, Measurement
from shardwire.config import ChannelConfig, RateLimitConfig
from shardwire.events import MessageReceivedEvent
from shardwire.node import NetworkConditions
from shardwire.sds import TransmitKind

EPOCH_MS = 60_000


def test_every_metric_is_measured_and_says_what_happened() -> None:
    measured: dict[str, dict[str, list[int]]] = {"alice": defaultdict(list), "bob": defaultdict(list)}

    async def slow(event: MessageReceivedEvent) -> None:
        await asyncio.sleep(2)

    async def scenario(world: World) -> None:
        limit = RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=3, counts="segment")
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit))
        bob = await world.join("bob", listen=False, on_disk=True)
        bob.on_message_received(slow)
        for name, channel in (("alice", alice), ("bob", bob)):
            channel.measure(lambda seen, of=measured[name]: of[seen.name].append(seen.value))  # type: ignore[misc]
        # The quota leaves two segments in the first epoch and one for the next.
        await alice.delivered(await alice.send(bytes(250_000)), timeout_ms=200_000)
        await alice.delivered(await alice.send(b"small"), timeout_ms=200_000)
        await asyncio.sleep(20)

    run_world(scenario, NetworkConditions(delay_ms=(100, 100)))
    sender, receiver = measured["alice"], measured["bob"]
    assert set(sender) | set(receiver) == set(MEASUREMENTS)
    assert 250_000 < sender["message_size_bytes"][0] < 251_000
    assert sorted(size // 100_000 for size in sender["segment_size_bytes"]) == [0, 0, 1, 1]
    assert sender["queue_wait_ms"][0] == 0
    assert 0 < sender["queue_wait_ms"][2] <= EPOCH_MS
    for sent, acknowledged, delivered in zip(
        sender["sent_ms"], sender["acknowledged_ms"], sender["delivered_ms"], strict=True
    ):
        assert sent + 200 <= delivered
        assert acknowledged <= delivered
    assert receiver["received_message_size_bytes"] == [250_000, 5]
    assert receiver["hand_over_ms"] == [2_000, 2_000]
    assert len(receiver["delivery_wait_ms"]) == 2
    assert len(receiver["commit_ms"]) == len(receiver["commit_size_bytes"])
    assert sum(receiver["commit_size_bytes"]) > 250_000


def test_a_channel_whose_state_ends_with_it_makes_no_records() -> None:
    measured: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=RateLimitConfig(True, messages_per_epoch=100)))
        bob = await world.join("bob")
        for channel in (alice, bob):
            channel.measure(lambda seen: measured.append(seen.name))
        await alice.delivered(await alice.send(bytes(250_000)))
        await alice.stop()
        await alice.start()
        await alice.delivered(await alice.send(b"after"))
        assert world.messages("bob") == [bytes(250_000), b"after"]

    run_world(scenario)
    assert "delivered_ms" in measured
    assert "commit_ms" not in measured


def test_unsubscribing_ends_it_and_an_observer_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Measurement] = []

    def broken(measurement: Measurement) -> None:
        raise ValueError("secret")

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        alice.measure(broken)
        unsubscribe = alice.measure(seen.append)
        await alice.delivered(await alice.send(b"1"))
        unsubscribe()
        unsubscribe()
        count = len(seen)
        assert count
        await alice.delivered(await alice.send(b"2"))
        assert len(seen) == count

    with caplog.at_level(logging.ERROR):
        world = run_world(scenario)
    assert world.messages("bob") == [b"1", b"2"]
    assert re.search(r"metrics observer .*raised ValueError at .*test_channel_metrics.py:\d+ in", caplog.text)
    assert "secret" not in caplog.text


def test_counters_only_grow_and_gauges_are_named() -> None:
    async def scenario(world: World) -> None:
        world.network.conditions = NetworkConditions(loss=0.2, delay_ms=(1, 50))
        alice = await world.join("alice")
        bob = await world.join("bob")
        before: dict[str, int] = {}
        fell: set[str] = set()
        for _ in range(60):
            await alice.send(bytes(150_000))
            await asyncio.sleep(0.5)
            for channel in (alice, bob):
                for name, value in channel.stats().items():
                    key = f"{channel.sender_id} {name}"
                    if value < before.get(key, 0):
                        fell.add(name)
                    before[key] = value
        assert fell
        assert fell <= GAUGES
        assert set(alice.stats()) | set(bob.stats()) >= GAUGES
        assert set(METRICS) >= set(MEASUREMENTS) | set(alice.stats()) | set(bob.stats())

    run_world(scenario)


def test_every_counter_is_there_from_the_beginning() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        assert alice.stats().keys() == METRICS.keys() - set(MEASUREMENTS)

    run_world(scenario)


def test_every_number_is_described_once_and_under_one_name() -> None:
    """Also those that are counted only when something goes wrong: whatever the channel's sources count."""
    package = Path(shardwire.channel.__file__).parent
    text = "".join(path.read_text() for path in package.rglob("*.py"))
    counted = set(re.findall(r"""count\(\s*"(\w+)"|counts\["(\w+)"\]""", text))
    names = {name for pair in counted for name in pair if name}
    assert {"dropped_by_error", "node_events_failed"} <= names
    machine = channel_machine("alice", ChannelConfig.logos())
    names |= set(machine.dispatch_stats()) | set(machine.receiving_stats())
    assert {f"dispatched_{kind.value}" for kind in TransmitKind} < names
    names |= {f"dropped_{reason}" for reason in ("undecodable", "other_channel", "own", "duplicate", "over_limit")}
    assert names <= set(METRICS)
    plain = [name.replace("_", "").lower().rstrip("es") for name in METRICS]
    assert len(set(plain)) == len(plain)


def test_the_guide_says_what_every_name_of_stats_counts() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "metrics.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| (.+) \| (gauge|counter) \|$", page, re.MULTILINE)
    wanted = [(n, told, "gauge" if n in GAUGES else "counter") for n, told in METRICS.items() if n not in MEASUREMENTS]
    assert table == wanted

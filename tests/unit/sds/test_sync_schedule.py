"""When periodic syncs and retransmissions are due (specification 004, Synchronisation messages, Message retries)."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace

import pytest
from channel_world import World, run_world
from sds_exchange import Exchange, Party, at

from shardwire._native import Now
from shardwire.channel import ReliableChannel
from shardwire.config import ChannelConfig, ReliableChannelOptions, SyncConfig
from shardwire.node import NetworkConditions
from shardwire.sds.sync_timer import SyncTimer

INTERVAL_MS = 30_000


class Drawing(random.Random):
    """Draws what it is told, then goes on as usual."""

    def __init__(self, *shares: float) -> None:
        super().__init__(1)
        self.shares = list(shares)

    def random(self) -> float:
        return self.shares.pop(0) if self.shares else super().random()


@pytest.mark.parametrize(
    ("happening", "multiplier"),
    [("on_content_received", 0.5), ("on_content_sent", 1.0), ("on_nothing_to_say", 1.0), ("on_sync_failed", 2.0)],
)
@pytest.mark.parametrize("share", [0.0, 0.25, 0.75, 0.999])
def test_the_next_sync_is_drawn_anew(happening: str, multiplier: float, share: float) -> None:
    """delay = random() * sync_min_interval_ms * multiplier."""
    now = Now(1_000_000, 1_000_000)
    timer = SyncTimer(INTERVAL_MS, Drawing(0.99, share), now)
    assert timer.due_ms == now.monotonic_ms + round(0.99 * INTERVAL_MS)
    getattr(timer, happening)(now)
    assert timer.due_ms == now.monotonic_ms + round(share * INTERVAL_MS * multiplier)


@pytest.mark.parametrize("happening", ["on_sync_received", "on_sync_sent"])
def test_two_syncs_keep_the_interval_and_the_random_part_comes_on_top(happening: str) -> None:
    now = Now(1_000_000, 1_000_000)
    timer = SyncTimer(INTERVAL_MS, Drawing(0.99, 0.5), now)
    getattr(timer, happening)(now)
    assert timer.due_ms == now.monotonic_ms + INTERVAL_MS + INTERVAL_MS // 2


def test_receipt_of_content_never_puts_off_a_sync_that_is_due_sooner() -> None:
    now = Now(1_000_000, 1_000_000)
    timer = SyncTimer(INTERVAL_MS, Drawing(0.1), now)
    due_ms = timer.due_ms
    timer.on_content_received(now)
    assert timer.due_ms == due_ms


def test_an_interval_of_zero_turns_periodic_syncs_off() -> None:
    timer = SyncTimer(0, Drawing(), Now(0, 0))
    for happening in (timer.on_content_received, timer.on_content_sent, timer.on_sync_received, timer.on_sync_failed):
        happening(Now(10, 10))
        assert timer.due_ms is None


def test_an_idle_channel_goes_on_with_its_syncs() -> None:
    config = ChannelConfig.waku()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await alice.delivered(await alice.send(b"x"), timeout_ms=120_000)
        before = len(world.network.trace)
        await asyncio.sleep(900)
        # At most one an interval for the whole channel, and on the average one and a half intervals apart.
        assert 10 <= len(world.network.trace) - before <= 30

    run_world(scenario)


@pytest.mark.parametrize("seed", range(2))
def test_of_a_large_idle_group_few_speak_at_once(seed: int) -> None:
    """However long a message takes to reach and to be taken in by the others."""
    group = [Party(f"p{number}", seed=seed) for number in range(40)]
    exchange = Exchange(group, seed=seed, delay_ms=(300, 1_000))
    group[0].send("the last word", at(0))
    exchange.run(300_000)
    before = sum(len(party.transmitted) for party in group)
    exchange.run(300_000 + 30 * INTERVAL_MS)
    # One an interval at most, and hardly ever another beside it: with uniform delays there are about fifty.
    assert 20 <= sum(len(party.transmitted) for party in group) - before <= 40


def dispatch_times(channel: ReliableChannel) -> list[int]:
    times: list[int] = []
    channel.observe(lambda seen: times.append(seen.at_ms) if seen.stage == "dispatched" else None)
    return times


def test_retries_keep_equal_intervals_unless_back_off_is_asked_for() -> None:
    def intervals(back_off_percent: int) -> list[int]:
        found: list[int] = []

        async def scenario(world: World) -> None:
            config = ReliableChannelOptions(retry_interval_ms=2_000, max_retry_attempts=4).to_config()
            world.network.store_online = False
            alice = await world.join(
                "alice", replace(config, sds=replace(config.sds, back_off_percent=back_off_percent))
            )
            await world.node("silent")
            times = dispatch_times(alice)
            await alice.send(b"nobody answers")
            await asyncio.sleep(120)
            found.extend(after - before for before, after in itertools.pairwise(times))

        run_world(scenario)
        return found

    assert intervals(0) == [2_000] * 4
    assert intervals(50) == sorted(intervals(50))
    assert len(set(intervals(50))) == 4


def test_what_was_held_back_is_released_by_the_sweep_and_not_by_each_message() -> None:
    """Two lost messages come at their retries, half a second apart; what waited for them follows at the sweeps."""

    def release_times_ms(sweep_in_buf_interval_ms: int) -> list[int]:
        config = ChannelConfig.logos(
            sync=SyncConfig(sweep_in_buf_interval_ms=sweep_in_buf_interval_ms, query_on_connect=False)
        )
        config = replace(config, sds=replace(config.sds, acknowledgement_timeout_ms=2_000, enable_repair=False))
        released: dict[bytes, int] = {}

        async def scenario(world: World) -> None:
            world.network.store_online = False
            alice = await world.join("alice", config)
            bob = await world.join("bob", config)
            await alice.send(b"zeroth")
            await asyncio.sleep(20)
            bob.on_message_received(
                lambda event: released.setdefault(event.message, world.network.clock.epoch_ms()) and None
            )
            world.lose("alice", "bob", {0, 2})
            for message in (b"a", b"b", b"c", b"d"):
                await alice.send(message)
                await asyncio.sleep(0.25)
            await asyncio.sleep(20)
            assert world.messages("bob") == [b"zeroth", b"a", b"b", b"c", b"d"]

        run_world(scenario, NetworkConditions(delay_ms=(5, 5)))
        return [released[message] - released[b"a"] for message in (b"a", b"b", b"c", b"d")]

    at_once = release_times_ms(0)
    assert at_once[1] <= 10
    assert 400 <= at_once[2] <= at_once[3] <= 600
    # What arrives with its causes met needs no sweep; what waits in the buffer does.
    swept = release_times_ms(5_000)
    assert 400 <= swept[2] <= 600
    assert 4_900 <= swept[3] - swept[1] <= 5_100

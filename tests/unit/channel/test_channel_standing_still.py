"""A process that stood still for an hour goes on as if it had slept: nothing counts as lost by the time alone."""

from __future__ import annotations

import asyncio

from channel_world import World, run_world
from manual_clock import ManualClock

from shardwire.channel.awake_clock import STOOD_MS_MIN, AwakeClock
from shardwire.config import ChannelConfig
from shardwire.events import IrretrievableMessageEvent
from shardwire.node import NetworkConditions, VirtualClock

HOUR_MS = 3_600_000


class StoppedClock(VirtualClock):
    """A clock on which a process may have stood still: its timers fire as much too late."""

    stood_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.stood_ms


def test_what_somebody_lacked_when_it_was_stopped_is_asked_for_and_comes_in_order() -> None:
    async def scenario(world: World) -> None:
        clock = StoppedClock()
        # Alice does not send again by herself what Carol has.
        config = ChannelConfig.logos().without_store(3)
        alice = await world.join("alice", config)
        await world.join("bob", config, clock=clock)
        await world.join("carol", config)
        world.network.store_online = False
        await alice.send(b"heard")
        await asyncio.sleep(60)
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        await alice.send(b"missed")
        await asyncio.sleep(10)
        world.nodes["bob"].conditions = None
        await alice.send(b"follows")
        await asyncio.sleep(0.05)
        assert world.messages("bob") == [b"heard"]
        clock.stood_ms = HOUR_MS
        await asyncio.sleep(60)
        assert world.messages("bob") == [b"heard", b"missed", b"follows"]
        assert world.of("bob", IrretrievableMessageEvent) == []

    run_world(scenario)


def test_time_passes_but_for_what_a_timer_is_late() -> None:
    manual = ManualClock()
    clock = AwakeClock(manual)
    read = []
    # Idle, late for want of a processor, stopped, and whatever comes until there is another timer.
    for expected_ms, at_ms in (
        (None, HOUR_MS),
        (HOUR_MS + 100, HOUR_MS + 99 + STOOD_MS_MIN),
        (HOUR_MS + 20_000, 3 * HOUR_MS),
        (HOUR_MS + 30_000, 3 * HOUR_MS + 10_000),
    ):
        clock.expect(expected_ms)
        manual.ms = at_ms
        read.append(clock.monotonic_ms())
    manual.ms += HOUR_MS
    read.append(clock.monotonic_ms())
    clock.expect(None)
    manual.ms += HOUR_MS
    read.append(clock.monotonic_ms())
    ran_ms = HOUR_MS + 20_000
    assert read[:4] == [HOUR_MS, HOUR_MS + 99 + STOOD_MS_MIN, ran_ms, ran_ms + 10_000]
    assert read[4:] == [HOUR_MS + 30_000, 2 * HOUR_MS + 30_000]
    assert clock.epoch_ms() == manual.ms

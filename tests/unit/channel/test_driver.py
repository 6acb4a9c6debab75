"""The driver of a channel: how much one cycle takes on before others have the event loop."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from shardwire.channel.collected import Collected
from shardwire.channel.driver import STEP_MS_MAX, Driver
from shardwire.persistence.protocol import Changes
from shardwire.sds import Now

# What one input takes on the clock of these tests.
INPUT_MS = 4


class SlowClock:
    """A clock on which nothing but inputs takes time."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def epoch_ms(self) -> int:
        return self.ms

    def epoch_ns(self) -> int:
        return self.ms * 1_000_000


def driver_on(clock: SlowClock, process_task_min_elapse_ms: int) -> Driver:
    engine: Any = SimpleNamespace(
        meter=None,
        handle_time=lambda now: None,
        next_wake_ms=lambda now: None,
        collect=lambda now, may_transmit, may_hand_over: Collected(Changes({})),
    )
    writer: Any = SimpleNamespace()
    return Driver(
        engine, writer, clock, lambda collected: None, lambda: True, lambda: False, process_task_min_elapse_ms
    )


@pytest.mark.parametrize("process_task_min_elapse_ms", [0, 1_000])
@pytest.mark.parametrize("received", [False, True])
def test_others_have_the_loop_between_slow_inputs(received: bool, process_task_min_elapse_ms: int) -> None:
    clock = SlowClock()
    # After which input others had the loop.
    turns: list[int] = []
    applied: list[int] = []

    async def main() -> None:
        driver = driver_on(clock, process_task_min_elapse_ms)

        def apply(now: Now) -> None:
            clock.ms += INPUT_MS
            applied.append(now.monotonic_ms)

        for _ in range(100):
            if received:
                assert driver.post_received(apply, 1) is None
            else:
                driver.post(apply)
        task = asyncio.create_task(driver.run())
        for _ in range(1_000):
            await asyncio.sleep(0)
            turns.append(len(applied))
            if len(applied) == 100:
                break
        if not received:
            await driver.flush()
        driver.close()
        await task

    asyncio.run(main())
    # A batch of received messages that was begun goes on without another wait.
    assert len(applied) == 100
    steps = [later - earlier for earlier, later in pairwise(turns)]
    assert max(steps) == -(-STEP_MS_MAX // INPUT_MS)


def test_others_have_the_loop_between_the_slow_steps_of_a_cycle() -> None:
    clock = SlowClock()
    # The time on the clock when others had the loop.
    turns_ms: list[int] = []

    def collect(now: Now, may_transmit: bool, may_hand_over: object) -> Collected:
        clock.ms += STEP_MS_MAX
        return Collected(Changes({("message", "1"): b"x"}))

    async def commit(changes: Changes) -> None:
        clock.ms += STEP_MS_MAX

    engine: Any = SimpleNamespace(
        meter=None, handle_time=lambda now: None, next_wake_ms=lambda now: None, collect=collect
    )
    writer: Any = SimpleNamespace(commit=commit)

    def apply(now: Now) -> None:
        clock.ms += STEP_MS_MAX

    async def main() -> None:
        driver = Driver(engine, writer, clock, lambda collected: None, lambda: True, lambda: False)
        driver.post(apply)
        task = asyncio.create_task(driver.run())
        while clock.ms < 3 * STEP_MS_MAX:
            await asyncio.sleep(0)
            turns_ms.append(clock.ms)
        driver.close()
        await task

    asyncio.run(main())
    assert turns_ms[:3] == [STEP_MS_MAX, 2 * STEP_MS_MAX, 3 * STEP_MS_MAX]

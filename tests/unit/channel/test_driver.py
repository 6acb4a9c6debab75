"""The driver of a channel: how much one cycle takes on before others have the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock

from shardwire._native import ChangedRecords
from shardwire.channel.awake_clock import AwakeClock
from shardwire.channel.collected import Collected
from shardwire.channel.commits import COMMIT_PAUSE_MS_MAX, COMMIT_PAUSE_MS_MIN, Commits
from shardwire.channel.driver import (
    AT_ONCE_MAX,
    BATCH_BYTES_MAX,
    INPUTS_PER_CYCLE_MAX,
    QUEUED_INPUT_BYTES_MAX,
    STEP_MS_MAX,
    Driver,
)
from shardwire.channel.observing.metrics import Meter
from shardwire.channel.receiving.reception import Arrival
from shardwire.errors import PersistenceError
from shardwire.node import run_virtual, running_clock
from shardwire.sds import Now

# What one input takes on the clock of these tests.
INPUT_MS = 4


async def pass_turns() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


def arrival() -> Arrival:
    return Arrival(b"x", b"hash", 0, None, False)


def driver_on(
    clock: ManualClock,
    take_in: Callable[[Sequence[Arrival], Now], None],
    process_task_min_elapse_ms: int = 0,
    *,
    is_immediate: bool = False,
    handle_time: Callable[[Now], None] = lambda now: None,
) -> Driver:
    engine: Any = SimpleNamespace(
        meter=None,
        handle_time=handle_time,
        next_wake_ms=lambda now: None,
        collect=lambda now, may_transmit, may_hand_over: Collected(ChangedRecords()),
    )
    writer: Any = SimpleNamespace(stores=not is_immediate, is_immediate=is_immediate)
    commits = Commits(engine, writer, clock, lambda collected: None)
    driver = Driver(engine, commits, AwakeClock(clock), process_task_min_elapse_ms)
    driver.connect(take_in=take_in, may_transmit=lambda: True, may_hand_over=lambda: False)
    return driver


@pytest.mark.parametrize("process_task_min_elapse_ms", [0, 1_000])
@pytest.mark.parametrize("received", [False, True])
def test_others_have_the_loop_between_slow_inputs(received: bool, process_task_min_elapse_ms: int) -> None:
    clock = ManualClock()
    # After which input others had the loop.
    turns: list[int] = []
    applied: list[int] = []

    async def main() -> None:
        def take_in(arrivals: Sequence[Arrival], now: Now) -> None:
            for _ in arrivals:
                apply(now)

        driver = driver_on(clock, take_in, process_task_min_elapse_ms)

        def apply(now: Now) -> None:
            clock.ms += INPUT_MS
            applied.append(now.monotonic_ms)

        for _ in range(100):
            if received:
                assert driver.post_received(arrival()) is None
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
    clock = ManualClock()
    # The time on the clock when others had the loop.
    turns_ms: list[int] = []

    def collect(now: Now, may_transmit: bool, may_hand_over: object) -> Collected:
        clock.ms += STEP_MS_MAX
        return Collected(ChangedRecords({("message", b"1"): b"x"}))

    async def commit(changes: ChangedRecords) -> None:
        clock.ms += STEP_MS_MAX

    engine: Any = SimpleNamespace(
        meter=Meter(), handle_time=lambda now: None, next_wake_ms=lambda now: None, collect=collect
    )
    writer: Any = SimpleNamespace(commit=commit, stores=True, is_immediate=False)

    def nothing(arrivals: Sequence[Arrival], now: Now) -> None: ...

    def apply(now: Now) -> None:
        clock.ms += STEP_MS_MAX

    async def main() -> None:
        commits = Commits(engine, writer, clock, lambda collected: None)
        driver = Driver(engine, commits, AwakeClock(clock))
        driver.connect(take_in=nothing, may_transmit=lambda: True, may_hand_over=lambda: False)
        driver.post(apply)
        task = asyncio.create_task(driver.run())
        while clock.ms < 3 * STEP_MS_MAX:
            await asyncio.sleep(0)
            turns_ms.append(clock.ms)
        driver.close()
        await task

    asyncio.run(main())
    assert turns_ms[:3] == [STEP_MS_MAX, 2 * STEP_MS_MAX, 3 * STEP_MS_MAX]


def test_what_is_applied_at_once_leaves_others_their_turn() -> None:
    """However much comes: after so many inputs, or so long, the next one waits for the driver."""
    applied: list[int] = []

    async def main(input_ms: int) -> int:
        clock = ManualClock()
        applied.clear()
        driver = driver_on(clock, lambda arrivals, now: None, is_immediate=True)

        def apply(now: Now) -> None:
            clock.ms += input_ms
            applied.append(now.monotonic_ms)

        for _ in range(AT_ONCE_MAX + 10):
            driver.apply(apply)
        at_once = len(applied)
        task = asyncio.create_task(driver.run())
        await driver.flush()
        await pass_turns()
        assert len(applied) == AT_ONCE_MAX + 10
        driver.close()
        await task
        return at_once

    assert asyncio.run(main(0)) == AT_ONCE_MAX
    assert asyncio.run(main(INPUT_MS)) == -(-STEP_MS_MAX // INPUT_MS)


@pytest.mark.parametrize("ahead", [1, AT_ONCE_MAX, INPUTS_PER_CYCLE_MAX + 1])
@pytest.mark.parametrize("input_ms", [0, INPUT_MS])
def test_what_is_applied_at_once_comes_behind_what_is_ahead(ahead: int, input_ms: int) -> None:
    """However much that is: what of it takes too long for now is the driver's, with all that comes behind it."""
    applied: list[int] = []

    async def main() -> int:
        clock = ManualClock()
        driver = driver_on(clock, lambda arrivals, now: None, is_immediate=True)

        def input_of(number: int) -> Callable[[Now], None]:
            def apply(now: Now) -> None:
                clock.ms += input_ms
                applied.append(number)

            return apply

        for number in range(ahead):
            driver.post(input_of(number))
        driver.apply(input_of(ahead))
        at_once = len(applied)
        driver.apply(input_of(ahead + 1))
        # Those ahead count as what is applied at once.
        assert len(applied) == at_once + (ahead < AT_ONCE_MAX - 1 and not input_ms)
        task = asyncio.create_task(driver.run())
        await driver.flush()
        driver.close()
        await task
        return at_once

    at_once = asyncio.run(main())
    assert applied == list(range(ahead + 2))
    if input_ms:
        assert at_once == min(ahead + 1, -(-STEP_MS_MAX // INPUT_MS))
    else:
        assert at_once == (ahead + 1 if ahead <= INPUTS_PER_CYCLE_MAX else INPUTS_PER_CYCLE_MAX)


def test_what_an_input_ahead_raises_ends_the_driver_and_not_who_comes_behind_it() -> None:
    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: None, is_immediate=True)
        applied: list[Now] = []

        def fail(now: Now) -> None:
            raise AssertionError("a broken invariant")

        driver.post(fail)
        driver.apply(applied.append)
        assert not applied
        with pytest.raises(AssertionError, match="a broken invariant"):
            await driver.run()

    asyncio.run(main())


def test_cheap_messages_are_taken_in_together_and_costly_ones_alone() -> None:
    clock = ManualClock()
    batches: list[int] = []
    cost_ms = 0

    def take_in(arrivals: Sequence[Arrival], now: Now) -> None:
        batches.append(len(arrivals))
        clock.ms += cost_ms * len(arrivals)

    async def main() -> None:
        nonlocal cost_ms
        driver = driver_on(clock, take_in, 0)
        task = asyncio.create_task(driver.run())
        for _ in range(100):
            driver.post_received(arrival())
        await driver.flush()
        assert batches == [1, 2, 4, 8, 16, 32, 32, 5]
        batches.clear()
        cost_ms = 1
        for _ in range(50):
            driver.post_received(arrival())
        await pass_turns()
        assert sum(batches) == 50
        driver.close()
        await task
        # Those that took long are followed by one alone, and so are those of many bytes.
        assert batches[:2] == [32, 1]
        assert max(batches[1:]) <= 4

    asyncio.run(main())


def test_nothing_is_applied_at_once_where_it_has_to_become_durable() -> None:
    applied: list[Now] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: None, 0)
        driver.apply(applied.append)
        assert not applied
        task = asyncio.create_task(driver.run())
        await driver.flush()
        assert len(applied) == 1
        driver.close()
        await task

    asyncio.run(main())


def test_messages_of_many_bytes_are_taken_in_by_few() -> None:
    batches: list[int] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: batches.append(len(arrivals)), 0)
        for _ in range(40):
            driver.post_received(Arrival(bytes(BATCH_BYTES_MAX // 2), b"hash", 0, None, False))
        task = asyncio.create_task(driver.run())
        await driver.flush()
        driver.close()
        await task

    asyncio.run(main())
    assert batches == [1] + [2] * 19 + [1]


def large() -> Arrival:
    return Arrival(bytes(QUEUED_INPUT_BYTES_MAX // 4), b"hash", 0, None, False)


def test_what_has_no_room_waits_until_something_was_taken_in() -> None:
    taken: list[int] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: taken.append(len(arrivals)), 0)
        # Room comes again as often as it was lacking.
        for round_ in range(3):
            for _ in range(4):
                assert driver.post_received(large()) is None
            waiting = driver.post_received(large())
            assert waiting is not None
            fifth = asyncio.ensure_future(waiting)
            await pass_turns()
            assert not fifth.done()
            assert sum(taken) == 5 * round_
            task = asyncio.create_task(driver.run())
            await asyncio.wait_for(fifth, 10)
            await driver.flush()
            await pass_turns()
            assert sum(taken) == 5 * (round_ + 1)
            task.cancel()
            await asyncio.wait({task})

    asyncio.run(main())


def test_closing_lets_go_of_who_waits_for_room_and_takes_nothing_in() -> None:
    taken: list[Sequence[Arrival]] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: taken.append(arrivals), 0)
        for _ in range(4):
            driver.post_received(large())
        waiting = driver.post_received(large())
        assert waiting is not None
        fifth = asyncio.ensure_future(waiting)
        await pass_turns()
        driver.close()
        await driver.run()
        assert taken == []
        await asyncio.wait_for(fifth, 10)

    asyncio.run(main())


def test_what_comes_after_the_end_is_not_applied() -> None:
    applied: list[Now] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: None, is_immediate=True)
        driver.close()
        await driver.run()
        driver.apply(applied.append)
        # Nobody cycles any more: who waits for a cycle would wait for ever.
        await asyncio.wait_for(driver.flush(), 10)
        assert applied == []

    asyncio.run(main())


def test_an_end_from_outside_lets_go_of_who_waits_for_a_cycle() -> None:
    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: None, 0)
        task = asyncio.create_task(driver.run())
        await pass_turns()
        flushing = asyncio.create_task(driver.flush())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait_for(flushing, 10)

    asyncio.run(main())


def test_a_flush_waits_for_all_that_was_posted_before_it() -> None:
    applied: list[Now] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: None, 0)
        task = asyncio.create_task(driver.run())
        for _ in range(3 * INPUTS_PER_CYCLE_MAX):
            driver.post(applied.append)
        await driver.flush()
        assert len(applied) == 3 * INPUTS_PER_CYCLE_MAX
        driver.close()
        await task

    asyncio.run(main())


def test_a_message_whose_time_has_come_wakes_the_driver_by_itself() -> None:
    clock = ManualClock()
    taken: list[int] = []

    async def main() -> None:
        driver = driver_on(clock, lambda arrivals, now: taken.append(len(arrivals)), 1_000)
        task = asyncio.create_task(driver.run())
        for messages in (1, 2):
            await pass_turns()
            driver.post_received(arrival())
            await pass_turns()
            assert sum(taken) == messages
            clock.ms += 1_000
        driver.close()
        await task

    asyncio.run(main())


def test_no_cycle_takes_in_more_than_one_commit_is_to_cover() -> None:
    """However cheap messages are, the first of many does not wait for the last."""
    taken = 0
    # How many were taken in when a cycle had done so.
    after_cycles: list[int] = []

    def take_in(arrivals: Sequence[Arrival], now: Now) -> None:
        nonlocal taken
        taken += len(arrivals)

    async def main() -> None:
        driver = driver_on(ManualClock(), take_in, handle_time=lambda now: after_cycles.append(taken))
        for _ in range(3 * INPUTS_PER_CYCLE_MAX):
            driver.post_received(arrival())
        task = asyncio.create_task(driver.run())
        await pass_turns()
        driver.close()
        await task

    asyncio.run(main())
    assert after_cycles[:3] == [INPUTS_PER_CYCLE_MAX * cycles for cycles in (1, 2, 3)]


def test_what_comes_while_a_batch_is_taken_in_waits_for_its_own_time() -> None:
    """Also where nothing else wakes the driver."""
    taken_ms: dict[bytes, int] = {}

    async def main() -> None:
        clock = running_clock()
        slow = ManualClock()
        slow.ms = clock.monotonic_ms()

        def take_in(arrivals: Sequence[Arrival], now: Now) -> None:
            for one in arrivals:
                taken_ms[one.data] = slow.ms
            slow.ms += 2 * STEP_MS_MAX
            if len(taken_ms) == 2:
                driver.post_received(Arrival(b"later", b"hash", 0, None, False))

        driver = driver_on(slow, take_in, 1_000)
        for name in (b"first", b"second", b"third"):
            driver.post_received(Arrival(name, b"hash", 0, None, False))
        task = asyncio.create_task(driver.run())
        for _ in range(300):
            await asyncio.sleep(0.01)
            slow.ms = max(slow.ms, clock.monotonic_ms())
        driver.close()
        await task

    run_virtual(main())
    assert list(taken_ms) == [b"first", b"second", b"third", b"later"]
    assert taken_ms[b"third"] - taken_ms[b"first"] < 1_000
    assert 1_000 <= taken_ms[b"later"] - taken_ms[b"third"] < 1_100


def test_messages_that_wait_for_their_time_wake_nobody() -> None:
    cycles = 0

    async def main() -> None:
        def count(now: Now) -> None:
            nonlocal cycles
            cycles += 1

        driver = driver_on(ManualClock(), lambda arrivals, now: None, 60_000, handle_time=count)
        task = asyncio.create_task(driver.run())
        driver.post_received(arrival())
        await pass_turns()
        begun = cycles
        for _ in range(100):
            driver.post_received(arrival())
            await asyncio.sleep(0)
        assert cycles == begun
        driver.close()
        await task

    asyncio.run(main())


def test_all_that_was_posted_before_the_end_is_applied() -> None:
    applied: list[Now] = []

    async def main() -> None:
        driver = driver_on(ManualClock(), lambda arrivals, now: None)
        for _ in range(3 * INPUTS_PER_CYCLE_MAX):
            driver.post(applied.append)
        driver.close()
        await driver.run()

    asyncio.run(main())
    assert len(applied) == 3 * INPUTS_PER_CYCLE_MAX


class Storing:
    """What a driver needs to store: an engine of which every cycle changes something, and a writer that may fail."""

    def __init__(self) -> None:
        self.fails = False
        # Whether each look at the engine let something leave.
        self.may_transmit: list[bool] = []

    def driver(self, clock: Any, *, is_immediate: bool = False) -> Driver:
        engine: Any = SimpleNamespace(
            meter=Meter(),
            handle_time=lambda now: None,
            next_wake_ms=lambda now: None,
            collect=self._collect,
            on_commit_failed=lambda collected, error, now: None,
        )
        writer: Any = SimpleNamespace(
            commit=self._commit, commit_at_once=self._store, stores=True, is_immediate=is_immediate
        )
        commits = Commits(engine, writer, clock, lambda collected: None)
        driver = Driver(engine, commits, AwakeClock(clock))
        driver.connect(take_in=lambda arrivals, now: None, may_transmit=lambda: True, may_hand_over=lambda: False)
        return driver

    def _collect(self, now: Now, may_transmit: bool, may_hand_over: object) -> Collected:
        self.may_transmit.append(may_transmit)
        return Collected(ChangedRecords({("message", b"1"): b"x"}))

    def _store(self, changes: ChangedRecords) -> None:
        if self.fails:
            raise PersistenceError("the disk is full")

    async def _commit(self, changes: ChangedRecords) -> None:
        self._store(changes)


def test_while_commits_fail_nothing_leaves_and_all_does_once_one_succeeds() -> None:
    storing = Storing()

    async def main() -> None:
        driver = storing.driver(running_clock())
        storing.fails = True
        driver.post(lambda now: None)
        task = asyncio.create_task(driver.run())
        await asyncio.sleep(60)
        assert len(storing.may_transmit) > 5
        assert storing.may_transmit == [True] + [False] * (len(storing.may_transmit) - 1)
        storing.fails = False
        await asyncio.sleep(2 * COMMIT_PAUSE_MS_MAX / 1000)
        assert storing.may_transmit[-1]
        driver.close()
        await task

    run_virtual(main())


def test_an_end_does_not_wait_for_the_pause_after_a_commit_that_failed() -> None:
    storing = Storing()

    async def main() -> None:
        clock = running_clock()
        driver = storing.driver(clock)
        storing.fails = True
        driver.post(lambda now: None)
        task = asyncio.create_task(driver.run())
        await asyncio.sleep(300)
        since_ms = clock.monotonic_ms()
        driver.close()
        await task
        assert clock.monotonic_ms() == since_ms

    run_virtual(main())


def test_whoever_waits_has_a_failing_commit_tried_no_more_often_than_that_pauses() -> None:
    storing = Storing()

    async def main() -> None:
        driver = storing.driver(running_clock())
        storing.fails = True
        task = asyncio.create_task(driver.run())
        for _ in range(100):
            driver.post_for_caller(lambda now: None)
            await asyncio.sleep(COMMIT_PAUSE_MS_MIN / 1000 / 10)
        assert 5 <= len(storing.may_transmit) <= 12
        driver.close()
        await task

    run_virtual(main())


def test_what_is_applied_at_once_leaves_in_the_turn_of_the_driver() -> None:
    """Many messages then go together."""
    storing = Storing()

    async def main() -> None:
        driver = storing.driver(ManualClock(), is_immediate=True)
        for _ in range(3):
            driver.apply(lambda now: None)
        assert storing.may_transmit == [False] * 3
        task = asyncio.create_task(driver.run())
        await pass_turns()
        assert storing.may_transmit == [False] * 3 + [True]
        driver.close()
        await task

    asyncio.run(main())

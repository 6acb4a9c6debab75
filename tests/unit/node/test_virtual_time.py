from __future__ import annotations

import asyncio
import itertools
import time
import warnings

import pytest

from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    Clock,
    SystemClock,
    UdpNode,
    VirtualClock,
    VirtualTimeError,
    VirtualTimeLoop,
    run_virtual,
    running_clock,
)
from shardwire.node.virtual_time import START_EPOCH_MS


def test_time_jumps_to_the_next_timer() -> None:
    async def sleep_two_days() -> tuple[int, int]:
        clock = running_clock()
        await asyncio.sleep(2 * 86_400)
        return clock.monotonic_ms(), clock.epoch_ms()

    began = time.monotonic()
    assert run_virtual(sleep_two_days(), start_epoch_ms=5_000) == (172_800_000, 172_805_000)
    assert time.monotonic() - began < 5


def test_timers_land_on_whole_milliseconds_however_many_came_before() -> None:
    async def main() -> None:
        clock = running_clock()
        await asyncio.sleep(1_000_000.005)
        for count in range(2_000):
            assert clock.monotonic_ms() == 1_000_000_005 + 7 * count
            assert clock.epoch_ns() == (START_EPOCH_MS + clock.monotonic_ms()) * 1_000_000
            await asyncio.sleep(0.007)

    run_virtual(main())


def test_timers_fire_in_order_and_interleave() -> None:
    async def main() -> list[tuple[str, int]]:
        log: list[tuple[str, int]] = []
        clock = running_clock()

        async def tick(name: str, period_ms: int) -> None:
            for _ in range(3):
                await asyncio.sleep(period_ms / 1000)
                log.append((name, clock.monotonic_ms()))

        await asyncio.gather(tick("a", 10), tick("b", 15))
        return log

    # At 30 both are due: b set its timer first, at 15.
    log = run_virtual(main())
    assert log == [("a", 10), ("b", 15), ("a", 20), ("b", 30), ("a", 30), ("b", 45)]


def test_cancelled_timers_fire_no_more_and_are_not_kept() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        fired: list[int] = []
        timers = [loop.call_later(3_600 + number, fired.append, number) for number in range(1_000)]
        kept = timers[::100]
        for timer in timers:
            if timer not in kept:
                timer.cancel()
        assert len(loop._timers) < 300
        await asyncio.sleep(7_200)
        kept[0].cancel()
        assert not loop._timers
        return fired

    assert run_virtual(main()) == list(range(0, 1_000, 100))


def test_what_a_callback_raises_is_reported_and_stops_nothing() -> None:
    async def main() -> list[object]:
        reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

        def fail() -> None:
            raise LookupError("theirs")

        loop.call_soon(fail)
        loop.call_later(1, fail)
        await asyncio.sleep(2)
        return reported

    assert [repr(error) for error in run_virtual(main())] == ["LookupError('theirs')"] * 2


def test_timeouts_work() -> None:
    async def main() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        return running_clock().monotonic_ms()

    assert run_virtual(main()) == 30_000


def test_a_deadlock_is_an_error_that_names_who_waits() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(1.5)
        await asyncio.create_task(wait_forever(), name="the waiter")

    with pytest.raises(VirtualTimeError, match=r"deadlock at 1\.500 s.*the waiter \(.*wait_forever\)"):
        run_virtual(main())


def test_a_run_that_goes_on_past_its_limit_is_an_error_and_its_tasks_are_cancelled() -> None:
    finished = []

    async def main() -> None:
        try:
            for _ in itertools.count():
                await asyncio.sleep(1)
        finally:
            await asyncio.sleep(5)
            finished.append(True)

    with pytest.raises(VirtualTimeError, match=r"did not end within 10\.000 s"):
        run_virtual(main(), limit_ms=10_000)
    assert finished == [True]


def test_steps_without_any_passage_of_time_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.node.virtual_time.STEPS_PER_INSTANT_MAX", 1_000)

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(VirtualTimeError, match="no time passed in 1000 steps"):
        run_virtual(spin())


def test_the_limit_must_be_positive() -> None:
    async def main() -> None:
        pass

    with pytest.raises(ConfigError, match="limit_ms is 0"):
        run_virtual(main(), limit_ms=0)


def test_the_exception_of_the_program_is_raised() -> None:
    async def main() -> None:
        await asyncio.sleep(3)
        raise LookupError("theirs")

    with pytest.raises(LookupError, match="theirs"):
        run_virtual(main())


class Odd(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, Odd, GeneratorExit])
def test_executor_work_runs_on_the_loop_and_takes_the_time_it_is_given(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error("from the thread")

    async def main() -> None:
        clock = running_clock()
        assert await asyncio.to_thread(lambda: clock.monotonic_ms()) == 20
        with pytest.raises(error, match="from the thread"):
            await asyncio.get_running_loop().run_in_executor(None, fail)
        assert clock.monotonic_ms() == 40

    run_virtual(main(), executor_delay_ms=lambda: 20)


def test_clocks_on_one_loop_step_apart() -> None:
    async def main() -> None:
        ours, theirs = running_clock(), VirtualClock(start_epoch_ms=START_EPOCH_MS)
        assert isinstance(ours, Clock)
        await asyncio.sleep(1)
        theirs.step(-3_600_000)
        assert ours.epoch_ms() - theirs.epoch_ms() == 3_600_000
        assert ours.monotonic_ms() == theirs.monotonic_ms() == 1_000
        theirs.step(7_200_000)
        assert theirs.epoch_ns() - ours.epoch_ns() == 3_600_000 * 1_000_000

    run_virtual(main())


def test_a_virtual_clock_needs_virtual_time() -> None:
    async def main() -> None:
        VirtualClock()

    with pytest.raises(ConfigError, match=r"make it inside of run_virtual"):
        asyncio.run(main())


def test_the_system_clock_is_that_of_the_machine_and_the_default_in_real_time() -> None:
    async def main() -> Clock:
        return running_clock()

    clock = asyncio.run(main())
    assert isinstance(clock, SystemClock)
    assert isinstance(running_clock(), SystemClock)
    before = time.time_ns()
    assert before <= clock.epoch_ns() <= time.time_ns()
    assert abs(clock.epoch_ms() - time.time_ns() // 1_000_000) <= 1_000
    assert abs(clock.monotonic_ms() - time.monotonic_ns() // 1_000_000) <= 1_000


def test_what_another_loop_calls_its_clock_is_none_of_ours() -> None:
    async def main() -> Clock:
        asyncio.get_running_loop().clock = "half past ten"  # type: ignore[attr-defined]
        return running_clock()

    assert isinstance(asyncio.run(main()), SystemClock)


def test_a_run_within_a_loop_is_refused_and_leaves_nothing_behind() -> None:
    async def never() -> None:
        raise AssertionError

    async def main() -> None:
        with pytest.raises(RuntimeError, match="run_virtual cannot be called from a running event loop"):
            run_virtual(never())
        assert await asyncio.to_thread(lambda: run_virtual(asyncio.sleep(3_600, "in a thread"))) == "in a thread"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


def test_sockets_are_told_not_to_be_there_in_virtual_time() -> None:
    told = "virtual time has no sockets: use a MemoryNetwork, or asyncio.run"

    async def main() -> None:
        with pytest.raises(NodeError, match=told):
            await UdpNode("udp://127.0.0.1:0").start()
        with pytest.raises(NotImplementedError, match=told):
            await asyncio.open_connection("127.0.0.1", 1)

    run_virtual(main(), limit_ms=600_000)

"""A process that is held does nothing; what it was about to do comes late, or as much later where its machine slept."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.standing_still import StandstillLoop, context_of


@pytest.mark.parametrize(("slept", "woke_at"), [(False, [60.0, 62.0]), (True, [65.0, 67.0])])
def test_timers_of_a_held_process_are_late_and_others_are_not(slept: bool, woke_at: list[float]) -> None:
    async def run(told: list[float], given: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        for seconds in (10, 2):
            await asyncio.sleep(seconds)
            told.append(loop.time())
        await given.wait()
        told.append(loop.time())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StandstillLoop)
        held: list[float] = []
        other: list[float] = []
        given = asyncio.Event()
        tasks = [
            asyncio.create_task(run(told, given), context=context_of(name))
            for name, told in (("held", held), ("other", other))
        ]
        await asyncio.sleep(5)
        loop.hold("held")
        given.set()
        await asyncio.sleep(55)
        assert (held, other) == ([], [10.0, 12.0, 12.0])
        assert loop.release("held", slept=slept) == 55_000
        await asyncio.gather(*tasks)
        assert held == [*woke_at, woke_at[-1]]

    loop = StandstillLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())

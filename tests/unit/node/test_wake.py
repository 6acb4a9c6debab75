from __future__ import annotations

import asyncio

from shardwire.node import run_virtual
from shardwire.node.wake import Wake


def test_it_wakes_everyone_who_waits_and_whoever_comes_before_it_is_cleared() -> None:
    async def main() -> None:
        wake = Wake()
        woken: list[int] = []

        async def wait(number: int) -> None:
            await wake.wait()
            woken.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(2)]
        await asyncio.sleep(1)
        assert not woken
        assert not wake.is_set()
        wake.set()
        wake.set()
        # Waking is not undone for those who slept.
        wake.clear()
        await asyncio.gather(*tasks)
        assert woken == [0, 1]
        wake.set()
        await asyncio.wait_for(wait(2), 1)
        assert woken == [0, 1, 2]
        assert wake.is_set()

    run_virtual(main())


def test_waiters_that_gave_up_are_forgotten_and_wake_nobody_else() -> None:
    async def main() -> None:
        wake = Wake()
        patient = asyncio.ensure_future(wake.wait())
        for _ in range(100):
            try:
                await asyncio.wait_for(wake.wait(), 0.01)
            except TimeoutError:
                continue
            raise AssertionError("nobody set it")
        assert len(wake._waiters) <= 2
        assert not patient.done()
        wake.set()
        await asyncio.wait_for(patient, 1)

    run_virtual(main())

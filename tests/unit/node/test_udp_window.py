"""How much of a message is under way at once, and how long a neighbour is asked about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from virtual_nodes import virtual

from shardwire.node import running_clock
from shardwire.node.udp.datagram import STATUS, Datagram
from shardwire.node.udp.neighbours import Neighbour
from shardwire.node.udp.outflow import (
    AFTER_LOSS,
    TIMEOUT_MS_MAX,
    WINDOW_MAX,
    WINDOW_MIN,
    WINDOW_START,
    NobodyAnswersError,
    Outflow,
)

ALL = (1 << 64) - 1


class Side:
    """One side, and a neighbour that answers what a test says."""

    def __init__(self) -> None:
        self.bob = Neighbour(("192.0.2.2", 2), 22, 222, 0, 0)
        self.left_ms: list[int] = []
        self.clock = running_clock()
        self.outflow = Outflow(11, self.clock, self._transmit)
        self.number = 0

    def _transmit(self, fragment: Datagram, neighbours: Iterable[Neighbour]) -> bool:
        self.left_ms.append(self.clock.monotonic_ms())
        return True

    async def send(self, parts: int = 64) -> asyncio.Task[None]:
        self.number += 1
        sending = asyncio.create_task(self.outflow.send([b"x"] * parts, [self.bob]))
        await asyncio.sleep(0)
        return sending

    def answer(self, held: int) -> None:
        self.outflow.take_status(Datagram(11, 22, STATUS, self.number, held=held), self.bob)

    async def look(self, until_s: float) -> None:
        """Looks every 10 ms; the neighbour has other messages meanwhile."""
        end_ms = self.clock.monotonic_ms() + until_s * 1_000
        while self.clock.monotonic_ms() < end_ms:
            await asyncio.sleep(0.01)
            self.bob.on_answer(self.clock.monotonic_ms())
            self.outflow.look()


@virtual
async def test_the_window_stays_between_its_limits() -> None:
    side = Side()
    for _ in range(40):
        sending = await side.send()
        while not sending.done():
            side.answer(ALL)
            await asyncio.sleep(0.001)
    assert side.outflow.window == WINDOW_MAX
    await side.send()
    await side.look(20)
    assert side.outflow.window == WINDOW_MIN
    side.outflow.stop()


@virtual
async def test_what_is_lost_together_makes_the_window_smaller_once() -> None:
    side = Side()
    await asyncio.sleep(1)
    await side.send()
    await asyncio.sleep(0.06)
    # First one and then three more are missing, as two answers of one moment say.
    side.answer(1 << 4)
    side.answer(1 << 4 | 1 << 8)
    assert side.outflow.resent == 4
    assert side.outflow.window == int(WINDOW_START * AFTER_LOSS)
    side.outflow.stop()


@virtual
async def test_fragments_that_overtake_one_another_a_little_are_not_sent_again() -> None:
    side = Side()
    await side.send(8)
    await asyncio.sleep(0.06)
    side.answer(0b1000)
    assert side.outflow.resent == 0
    side.answer(0b1_0000)
    assert side.outflow.resent == 1
    side.outflow.stop()


@virtual
async def test_a_neighbour_that_has_no_fragment_of_a_message_is_asked_less_often_and_not_for_ever() -> None:
    side = Side()
    sending = await side.send(32)
    await side.look(30)
    with pytest.raises(NobodyAnswersError):
        await sending
    probed_ms = sorted(set(side.left_ms))[1:]
    assert len(probed_ms) == 20
    assert probed_ms[-1] - probed_ms[-2] >= TIMEOUT_MS_MAX


@virtual
async def test_a_neighbour_that_comes_along_slowly_is_asked_on() -> None:
    side = Side()
    sending = await side.send(30)
    for held in range(1, 9):
        await side.look(1.5)
        side.answer((1 << held) - 1)
    assert not sending.done()
    side.answer((1 << 30) - 1)
    await sending


@virtual
async def test_no_more_leaves_than_the_window_holds() -> None:
    side = Side()
    sending = await side.send()
    assert len(side.left_ms) == side.outflow.window == WINDOW_START
    sending.cancel()


@virtual
async def test_messages_in_fragments_that_the_path_still_carries_go_on() -> None:
    side = Side()
    sending = await side.send(2)
    side.outflow.abandon_larger(1)
    await asyncio.sleep(0)
    assert not sending.done()
    side.outflow.abandon_larger(0)
    with pytest.raises(NobodyAnswersError):
        await sending

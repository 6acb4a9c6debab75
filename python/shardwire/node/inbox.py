"""What is on its way to one node of a memory network."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from shardwire.node.protocol import MessageReceived
from shardwire.node.trace import Fate, Outcome

IN_FLIGHT_MAX = 100_000
# The loop fires timers up to its own resolution early.
_EARLY_S = 1e-6


class Inbox:
    """Copies in flight to one receiver, handed over at their time of arrival.

    Copies of one sender arrive in the order in which they left, but for those that others may overtake. Equal times
    keep the order of departure.

    Args:
        deliver: Takes an arrived message; answers None where it was delivered, else why not.
    """

    def __init__(self, deliver: Callable[[MessageReceived], Outcome | None]) -> None:
        self._deliver = deliver
        self._in_flight: list[tuple[float, int, int, MessageReceived, Fate]] = []
        self._departures = count()
        self._last_arrival_s: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    def depart(self, sender: str, delay_ms: int, may_be_overtaken: bool, message: MessageReceived, fate: Fate) -> None:
        """Takes a copy that reaches the receiver `delay_ms` from now, or after its predecessors where later."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        fate.depart(delay_ms)
        arrival_s = now_s + delay_ms / 1000
        if not may_be_overtaken:
            arrival_s = max(arrival_s, self._last_arrival_s.get(sender, 0.0))
            self._last_arrival_s[sender] = arrival_s
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            fate.refuse(delay_ms, "overflow")
            return
        if arrival_s <= now_s and not self._due(now_s):
            self._hand_over(delay_ms, message, fate)
            return
        heapq.heappush(self._in_flight, (arrival_s, next(self._departures), delay_ms, message, fate))
        self._set_timer(loop)

    def clear(self) -> None:
        """Loses everything in flight: the receiver is gone."""
        for _, _, delay_ms, _, fate in self._in_flight:
            fate.refuse(delay_ms, "offline")
        self._in_flight.clear()
        self._last_arrival_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, now_s: float) -> bool:
        return bool(self._in_flight) and self._in_flight[0][0] <= now_s + _EARLY_S

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._in_flight:
            return
        first_s = self._in_flight[0][0]
        if self._timer is not None:
            if self._timer_s <= first_s:
                return
            self._timer.cancel()
        self._timer_s = first_s
        self._timer = loop.call_at(first_s, self._arrive, loop)

    def _arrive(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now_s = loop.time()
        while self._due(now_s):
            _, _, delay_ms, message, fate = heapq.heappop(self._in_flight)
            self._hand_over(delay_ms, message, fate)
        self._set_timer(loop)

    def _hand_over(self, delay_ms: int, message: MessageReceived, fate: Fate) -> None:
        refusal = self._deliver(message)
        if refusal is None:
            fate.arrive(delay_ms)
        else:
            fate.refuse(delay_ms, refusal)

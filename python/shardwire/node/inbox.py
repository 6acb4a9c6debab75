"""What is on its way in a memory network."""

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


class Transit:
    """Every copy in flight of a network, with one timer for the next arrival: a timer for each receiver is what a
    large network would spend its time on. Equal times keep the order of departure.
    """

    def __init__(self) -> None:
        self._in_flight: list[tuple[float, int, Inbox, int, MessageReceived, Fate]] = []
        self._departures = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    def add(
        self,
        arrival_s: float,
        inbox: Inbox,
        delay_ms: int,
        message: MessageReceived,
        fate: Fate,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        heapq.heappush(self._in_flight, (arrival_s, next(self._departures), inbox, delay_ms, message, fate))
        if self._timer is None or arrival_s < self._timer_s:
            self._set_timer(loop)

    def is_due(self, now_s: float) -> bool:
        """Whether something is to be handed over before what arrives now."""
        return bool(self._in_flight) and self._in_flight[0][0] <= now_s + _EARLY_S

    def withdraw(self, inbox: Inbox) -> None:
        """Loses everything on its way to `inbox`."""
        kept = []
        for copy in self._in_flight:
            if copy[2] is inbox:
                copy[5].refuse(copy[3], "offline")
            else:
                kept.append(copy)
        heapq.heapify(kept)
        self._in_flight = kept
        if not kept and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = self._in_flight[0][0]
        self._timer = loop.call_at(self._timer_s, self._arrive, loop)

    def _arrive(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        due_s = loop.time() + _EARLY_S
        in_flight = self._in_flight
        # Handing over runs nothing but queues of the receivers: nothing departs or is withdrawn meanwhile.
        while in_flight and in_flight[0][0] <= due_s:
            _, _, inbox, delay_ms, message, fate = heapq.heappop(in_flight)
            inbox.arrive(delay_ms, message, fate)
        if in_flight:
            self._set_timer(loop)


class Inbox:
    """The way to one receiver.

    Copies of one sender arrive in the order in which they left, but for those that others may overtake.

    Args:
        transit: What is in flight in the network.
        deliver: Takes an arrived message; answers None where it was delivered, else why not.
    """

    def __init__(self, transit: Transit, deliver: Callable[[MessageReceived], Outcome | None]) -> None:
        self._transit = transit
        self._deliver = deliver
        self._count = 0
        self._last_arrival_s: dict[str, float] = {}

    def depart(
        self,
        sender: str,
        delay_ms: int,
        may_be_overtaken: bool,
        message: MessageReceived,
        fate: Fate,
        now_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Takes a copy that reaches the receiver `delay_ms` after `now_s`, or after its predecessors where later."""
        fate.depart(delay_ms)
        arrival_s = now_s + delay_ms / 1000
        if not may_be_overtaken:
            arrival_s = max(arrival_s, self._last_arrival_s.get(sender, 0.0))
            self._last_arrival_s[sender] = arrival_s
        if self._count >= IN_FLIGHT_MAX:
            fate.refuse(delay_ms, "overflow")
            return
        self._count += 1
        if arrival_s <= now_s and not self._transit.is_due(now_s):
            self.arrive(delay_ms, message, fate)
        else:
            self._transit.add(arrival_s, self, delay_ms, message, fate, loop)

    def arrive(self, delay_ms: int, message: MessageReceived, fate: Fate) -> None:
        """Hands over a copy that has come."""
        self._count -= 1
        refusal = self._deliver(message)
        if refusal is None:
            fate.arrive(delay_ms)
        else:
            fate.refuse(delay_ms, refusal)

    def clear(self) -> None:
        """Loses everything in flight: the receiver is gone."""
        self._transit.withdraw(self)
        self._count = 0
        self._last_arrival_s.clear()

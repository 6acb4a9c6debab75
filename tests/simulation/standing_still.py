"""Processes that stand still in virtual time, as under SIGSTOP, while the network and the others go on.

What belongs to a process is what runs in its context. Of one that is held nothing runs: what others gave it waits in
its queues, and its timers fire late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappush
from typing import Any

from shardwire.node import VirtualClock
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.inbox import Transit
from shardwire.node.virtual_time import VirtualTimeLoop

# The process that runs; None for the network and the simulation itself.
PROCESS: ContextVar[str | None] = ContextVar("process", default=None)


def context_of(process: str) -> Context:
    """A context of its own, in which a process runs."""
    context = copy_context()
    context.run(PROCESS.set, process)
    return context


class SleepingClock(VirtualClock):
    """A clock whose monotonic time does not count how long its machine slept; Unix time does."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() - self.slept_ms


class StandstillLoop(VirtualTimeLoop):
    """A loop of several processes, each of which can be held."""

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        # By process that is held: since when, what it was about to run, and its timers.
        self._held: dict[str | None, tuple[int, list[asyncio.Handle], list[Any]]] = {}

    def hold(self, process: str) -> None:
        """Nothing of a process runs from the next instant on."""
        self._held[process] = (self.elapsed_ns, [], [])
        self._take_timers(process)

    def release(self, process: str, *, slept: bool) -> int:
        """Lets it go on; gives how many milliseconds it stood still.

        Where its machine `slept`, its timers take as long as if no time had passed; else those that are due fire now.
        """
        since_ns, soon, timers = self._held.pop(process)
        stood_ns = self.elapsed_ns - since_ns
        for due_ns, number, timer in timers:
            if not timer._cancelled:
                timer._scheduled = True
                heappush(self._timers, (due_ns + stood_ns if slept else due_ns, number, timer))
        self._ready.extend(soon)
        return stood_ns // NANOSECONDS_PER_MS

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        held = self._held.get(PROCESS.get() if context is None else context.get(PROCESS))
        if held is not None:
            held[1].append(self._ready.pop())
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = super().call_later(delay, callback, *args, context=context)
        self._take_timers(PROCESS.get())
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        self._take_timers(PROCESS.get())
        return timer

    def _take_timers(self, process: str | None) -> None:
        """Of a process that is held; what was ready in the instant in which it was may set some more."""
        if process not in self._held:
            return
        kept = []
        for entry in self._timers:
            timer = entry[2]
            # What is on its way is the network's, whoever sent it.
            is_network = isinstance(getattr(timer._callback, "__self__", None), Transit)
            if timer._context.get(PROCESS) != process or is_network:
                kept.append(entry)
            elif not timer._cancelled:
                timer._scheduled = False
                self._held[process][2].append(entry)
        # In place: a step of the loop holds on to the list.
        self._timers[:] = kept
        heapify(self._timers)

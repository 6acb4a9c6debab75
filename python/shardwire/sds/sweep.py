"""When sends that became free are released (specification 004, Batched sweeping)."""

from __future__ import annotations

from collections import deque

from shardwire._native import IncomingSend


class Sweep:
    """With an interval, what became free waits for the next sweep; without one nothing is kept here."""

    __slots__ = ("_interval_ms", "_swept_ms", "ready")

    def __init__(self, sweep_in_buf_interval_ms: int) -> None:
        self._interval_ms = sweep_in_buf_interval_ms
        self._swept_ms = 0
        self.ready: deque[IncomingSend] = deque()

    @property
    def at_once(self) -> bool:
        return self._interval_ms == 0

    def next_ms(self) -> int | None:
        """The moment of the next sweep; None while nothing waits for it."""
        return self._swept_ms + self._interval_ms if self.ready else None

    def take(self, monotonic_ms: int) -> deque[IncomingSend]:
        """What is to be released now."""
        next_ms = self.next_ms()
        if next_ms is None or monotonic_ms < next_ms:
            return deque()
        self._swept_ms = monotonic_ms
        ready, self.ready = self.ready, deque()
        return ready

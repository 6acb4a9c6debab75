"""A clock that a test sets."""

from __future__ import annotations


class ManualClock:
    """Both times are `ms`, which passes by itself for nothing."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def epoch_ms(self) -> int:
        return self.ms

    def epoch_ns(self) -> int:
        return self.ms * 1_000_000

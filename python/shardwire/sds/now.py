"""Time as the machine is told it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Now:
    """One moment on both clocks.

    Attributes:
        monotonic_ms: For timers; never goes back.
        epoch_ms: Unix time, for Lamport timestamps; may step.
    """

    monotonic_ms: int
    epoch_ms: int

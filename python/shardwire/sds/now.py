"""Time as the machine is told it."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """One moment on both clocks.

    Attributes:
        monotonic_ms: For timers; never goes back.
        epoch_ms: Unix time, for Lamport timestamps; may step.
    """

    monotonic_ms: int
    epoch_ms: int

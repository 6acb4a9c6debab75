"""Where time enters: what has a clock takes one of these, so that the same code runs in real and in virtual time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, runtime_checkable

from shardwire.errors import ConfigError

NANOSECONDS_PER_MS = 1_000_000


@runtime_checkable
class Clock(Protocol):
    """Both readings of time.

    The monotonic one times and never goes back; its origin is arbitrary, its rate is that of the event loop's timers.
    The epoch ones are Unix time and may step in either direction.
    """

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""

    def epoch_ms(self) -> int:
        """Unix time in milliseconds; may step in either direction."""

    def epoch_ns(self) -> int:
        """Unix time in nanoseconds; may step in either direction."""


def check_clock(clock: object) -> None:
    """An argument that is a clock, or None.

    Raises:
        ConfigError: It is neither.
    """
    if clock is not None and (isinstance(clock, type) or not isinstance(clock, Clock)):
        what = f"the class {clock.__name__}" if isinstance(clock, type) else f"a {type(clock).__name__}"
        raise ConfigError(f"clock is {what}: it must be a shardwire.node.clock.Clock or None")


class SystemClock:
    """The clocks of the machine: `time.monotonic_ns` and `time.time_ns`."""

    def monotonic_ms(self) -> int:
        """Milliseconds of `time.monotonic_ns`, which never goes back."""
        return time.monotonic_ns() // NANOSECONDS_PER_MS

    def epoch_ms(self) -> int:
        """Unix time in milliseconds, of `time.time_ns`."""
        return time.time_ns() // NANOSECONDS_PER_MS

    def epoch_ns(self) -> int:
        """Unix time in nanoseconds, of `time.time_ns`."""
        return time.time_ns()


_SYSTEM_CLOCK = SystemClock()


def running_clock() -> Clock:
    """The clock of the running event loop where it has one (virtual time), the system's otherwise.

    Call it from a coroutine or a callback: it looks at the loop that runs the caller.
    """
    try:
        clock: Clock | None = getattr(asyncio.get_running_loop(), "clock", None)
    except RuntimeError:
        return _SYSTEM_CLOCK
    # A full check against the protocol costs more than most of what asks for the time.
    return clock if clock is not None and hasattr(clock, "epoch_ns") else _SYSTEM_CLOCK

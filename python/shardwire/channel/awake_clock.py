"""The time of a channel, in which its process ran."""

from __future__ import annotations

from shardwire.node.clock import Clock

# So late the event loop is not for want of a processor.
STOOD_MS_MIN = 10_000


class AwakeClock:
    """A clock whose monotonic time leaves out how long the process stood still: stopped, or in a paused container.

    It is as where a machine sleeps: by a time in which nobody could ask for anything, or hear it, nothing is lost.

    Args:
        clock: Both times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stood_ms = 0
        # When it would be read again at the latest.
        self._expected_ms: int | None = None

    def expect(self, at_ms: int | None) -> None:
        """Says that the event loop has a timer for then; None that it has none."""
        self._expected_ms = at_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment in which the process ran."""
        now_ms = self._clock.monotonic_ms() - self._stood_ms
        expected_ms = self._expected_ms
        if expected_ms is None or now_ms < expected_ms + STOOD_MS_MIN:
            return now_ms
        self._stood_ms += now_ms - expected_ms
        self._expected_ms = None
        return expected_ms

    def epoch_ms(self) -> int:
        """Unix time in milliseconds."""
        return self._clock.epoch_ms()

    def epoch_ns(self) -> int:
        """Unix time in nanoseconds."""
        return self._clock.epoch_ns()

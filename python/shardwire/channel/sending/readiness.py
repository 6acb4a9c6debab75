"""Whether the node is worth a try: not while it is offline, for a while after it failed, or while it refuses all."""

from __future__ import annotations

# After a dispatch failed nothing is tried for this long, doubled with each failure in a row.
PAUSE_MS_MIN = 500
PAUSE_MS_MAX = 30_000
# A node that answers meanwhile for what it took before is there: it is tried again after this long.
PAUSE_MS_OF_ANSWERING = 50
# A node that names a longer time errs: it is tried again after this one.
HOLD_MS_MAX = 24 * 3_600_000
# A hold that ends no later than this after one that was announced is no news, while nothing has left in between.
HOLD_NEWS_MS = 10_000


class Readiness:
    """What the node's answers say of the next try.

    Attributes:
        online: Whether the node is connected.
        failed_ms: When it failed last; -1 for never.
        held_until_ms: Until when it refuses everything, as it said; in the past where it does not.
        failures: How many times in a row it failed without naming a time.
    """

    __slots__ = (
        "_announced_ms",
        "_failures_in_row",
        "_paused_until_ms",
        "failed_ms",
        "failures",
        "held_until_ms",
        "online",
    )

    def __init__(self) -> None:
        self.online = True
        self.failed_ms = -1
        self.held_until_ms = 0
        self.failures = 0
        self._paused_until_ms = 0
        self._failures_in_row = 0
        # The end of the latest hold that the application was told of.
        self._announced_ms = -HOLD_NEWS_MS

    def may_try(self, monotonic_ms: int) -> bool:
        return self.online and self._paused_until_ms <= monotonic_ms and self.held_until_ms <= monotonic_ms

    def is_held(self, monotonic_ms: int) -> bool:
        """Whether the node refuses everything until a time that it named."""
        return self.held_until_ms > monotonic_ms

    def resumes_ms(self, monotonic_ms: int) -> int | None:
        """When an online node may be tried again; None where that is now."""
        resumes_ms = max(self._paused_until_ms, self.held_until_ms)
        return resumes_ms if resumes_ms > monotonic_ms else None

    def is_known(self, left_ms: int | None) -> bool:
        """Whether what left then left before the last failure, and so says nothing new of the node by failing too."""
        return left_ms is not None and left_ms <= self.failed_ms

    def on_failed(self, monotonic_ms: int) -> None:
        """The node did not take a message and gave no time: it is left alone, the longer the more often in a row."""
        self.failed_ms = monotonic_ms
        self.failures += 1
        self._paused_until_ms = monotonic_ms + self._back_off_ms()

    def on_held(self, retry_after_ms: int, monotonic_ms: int) -> bool:
        """The node refuses everything for so long, which is no failure; whether that is news.

        One that promises too much is asked less and less often all the same.
        """
        hold_ms = min(max(retry_after_ms, PAUSE_MS_MIN), HOLD_MS_MAX)
        if not self.is_held(monotonic_ms):
            hold_ms = max(hold_ms, self._back_off_ms())
        self.held_until_ms = max(self.held_until_ms, monotonic_ms + hold_ms)
        if self.held_until_ms <= self._announced_ms + HOLD_NEWS_MS:
            return False
        self._announced_ms = self.held_until_ms
        return True

    def on_taken(self, left_ms: int | None, monotonic_ms: int) -> None:
        """The node brought a message to the network that left then."""
        self.failures = 0
        self._failures_in_row = 0
        if self.is_known(left_ms):
            self._paused_until_ms = min(self._paused_until_ms, self.failed_ms + PAUSE_MS_OF_ANSWERING)
        else:
            self._paused_until_ms = 0
        if not self.is_held(monotonic_ms):
            self._announced_ms = -HOLD_NEWS_MS

    def _back_off_ms(self) -> int:
        pause_ms = min(PAUSE_MS_MAX, PAUSE_MS_MIN << min(self._failures_in_row, 16))
        self._failures_in_row += 1
        return pause_ms

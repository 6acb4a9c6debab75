"""What the application is told of what holds messages back: of the rate limit once an epoch, and once a time that the
node names; of a node that fails once, and once when it does no longer."""

from __future__ import annotations

import logging

from shardwire._native import ChannelMachine
from shardwire.channel.limits.quota import Quota
from shardwire.channel.sending.flights import Flights
from shardwire.events import ChannelEvent, NodeFailingEvent, RateLimitEvent
from shardwire.sds import Now
from shardwire.sds.outputs import TransmitKind

logger = logging.getLogger(__name__)

# Failures of the node in a row of which the application is told.
FAILURES_TOLD = 3


class LimitNotices:
    """Turns what holds messages back into `RateLimitEvent` and `NodeFailingEvent`.

    Args:
        machine: Says how much waits.
        quota: The rate limits.
        flights: What is prepared to leave.
    """

    def __init__(self, machine: ChannelMachine, quota: Quota, flights: Flights) -> None:
        self._machine = machine
        self._quota = quota
        self._flights = flights
        # When more may leave by what was told last, and whether the clock stood before an epoch that was counted.
        self._announced = -1, False
        self._events: list[ChannelEvent] = []

    def on_limited(self, now: Now) -> None:
        """Something waits for the rate limit."""
        limiter = self._quota.tightest(now.epoch_ms)
        if limiter is None:
            return
        behind_ms = self._quota.behind_ms(now.epoch_ms)
        resets_at_ms = self._quota.reopens_at_ms(now.epoch_ms) if behind_ms else limiter.resets_at_ms
        if (resets_at_ms, behind_ms > 0) == self._announced:
            return
        self._announced = resets_at_ms, behind_ms > 0
        self.tell(resets_at_ms, now, behind_ms)
        if behind_ms:
            logger.warning(
                "the clock stands %d ms before an epoch of the rate limit that was counted already: only "
                "acknowledgements leave until it is there; set it right",
                behind_ms,
            )

    def tell(self, resets_at_ms: int, now: Now, behind_ms: int = 0) -> None:
        """Everything waits until a time."""
        waiting = self._machine.waiting()
        queued = waiting[TransmitKind.FIRST] + waiting[TransmitKind.FURTHER]
        limiter = self._quota.tightest(now.epoch_ms)
        used, total = (limiter.used, limiter.quota) if limiter is not None else (0, 0)
        # What is prepared to leave has its place, but for what others take before it.
        used = min(total, used + self._flights.unplaced)
        self._events.append(RateLimitEvent(used, total, resets_at_ms, queued, behind_ms))

    def on_failed(self, failures: int, error: str) -> None:
        """The node failed so many times in a row, and named no time."""
        if failures == FAILURES_TOLD:
            self._events.append(NodeFailingEvent(True, failures, error))

    def on_taken(self, failures: int) -> None:
        """It took a message after so many failures."""
        if failures >= FAILURES_TOLD:
            self._events.append(NodeFailingEvent(False, 0, ""))

    def poll(self) -> list[ChannelEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

"""Timestamps of what a node sends, and the recognition of its own messages by them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

from shardwire.node.clock import NANOSECONDS_PER_MS, Clock

# A clock that reads this far below the last stamp was set back: stamps follow it, or a node that proves (RLN allows
# 20 s) would refuse everything until the clock has caught up.
STAMP_LEAD_MS_MAX = 10_000
# Echoes come within seconds; this many stamps are some minutes of the fastest node.
STAMPS_REMEMBERED_MAX = 100_000
STAMP_OFFSET_NS_MAX = 1_000_000


class Stamps:
    """Gives every message a time of its own: the present, and always later than the one before.

    A content topic and a stamp together name a message of ours, so that an echo is known before it is decoded.

    Args:
        clock: Unix time.
        offset_ns: Added to it: nodes whose clocks tick alike, in coarse steps, would otherwise take messages of one
            another for their own.
    """

    def __init__(self, clock: Clock, offset_ns: int) -> None:
        self._clock = clock
        self._offset_ns = offset_ns
        self._last_ns = 0
        self._ours: OrderedDict[tuple[int, str], None] = OrderedDict()

    def next_ns(self, content_topic: str) -> int:
        """The stamp of the next message on a topic, nanoseconds since the Unix epoch."""
        now_ns = self._clock.epoch_ns() + self._offset_ns
        stamp_ns = max(now_ns, self._last_ns + 1)
        if stamp_ns - now_ns > STAMP_LEAD_MS_MAX * NANOSECONDS_PER_MS:
            stamp_ns = now_ns
        while (stamp_ns, content_topic) in self._ours:
            stamp_ns += 1
        self._last_ns = stamp_ns
        self._ours[stamp_ns, content_topic] = None
        if len(self._ours) > STAMPS_REMEMBERED_MAX:
            self._ours.popitem(last=False)
        return stamp_ns

    @property
    def ours(self) -> Container[tuple[int, str]]:
        """Stamp and topic of every message of ours, as far back as they are remembered."""
        return self._ours

    def is_ours(self, content_topic: str, timestamp_ns: int) -> bool:
        """Whether a message on this topic with this stamp is ours."""
        return (timestamp_ns, content_topic) in self._ours

"""The Lamport clock of a channel (SDS, Lamport timestamps)."""

from __future__ import annotations

from shardwire._native import LamportTime, Now
from shardwire.config import SdsWireFormat

# Timestamps are unsigned 64-bit on the wire; ours stop well below, so that adding one never overflows.
LAMPORT_MAX = (1 << 63) - 1


class LamportClock(LamportTime):
    """Milliseconds under the wire "spec"; under "nim" seconds, as nim-sds counts.

    A peer's timestamp moves ours at most `max_skew_ms` ahead of the epoch clock, so a forged one cannot spend the
    range of all participants.
    """

    __slots__ = ("_seconds", "skew_max", "unit_ms")

    def __init__(self, wire_format: SdsWireFormat, max_skew_ms: int, now: Now) -> None:
        self._seconds = wire_format == "nim"
        self.unit_ms = 1_000 if self._seconds else 1
        self.skew_max = max_skew_ms // 1000 if self._seconds else max_skew_ms
        # nim-sds starts at 0 and takes the epoch time at its first send.
        self.timestamp = 0 if self._seconds else max(0, now.epoch_ms)

    def tick(self, now: Now) -> int:
        """The timestamp of the message that leaves now."""
        self.timestamp = self.next(now)
        return self.timestamp

    def next(self, now: Now) -> int:
        """The timestamp of a message that would leave now."""
        timestamp = self.timestamp + 1
        # nim-sds adds one to whichever is later.
        epoch = now.epoch_ms // 1000 + 1 if self._seconds else now.epoch_ms
        if epoch > timestamp:
            timestamp = epoch
        return timestamp if timestamp < LAMPORT_MAX else LAMPORT_MAX

    def capped(self, timestamp: int, now: Now) -> int:
        """A peer's timestamp, no further ahead of us than the skew allows."""
        here = now.epoch_ms // 1000 if self._seconds else now.epoch_ms
        return min(timestamp, here + self.skew_max, LAMPORT_MAX)

    def observe(self, timestamp: int) -> None:
        """A content message was delivered; `timestamp` is already capped."""
        if timestamp > self.timestamp:
            self.timestamp = timestamp

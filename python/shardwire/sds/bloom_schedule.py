"""The bloom filter of what this participant holds, and when it rides on a message."""

from __future__ import annotations

from collections.abc import Callable

from shardwire._native import BloomFilter, FilterTime, LocalLog, LogEntry, Now
from shardwire.config import SdsConfig

_UNCHANGED_INTERVALS = 4


class BloomSchedule(FilterTime):
    """A filter that rolls: it is rebuilt from the newest entries before its error rate degrades.

    At 1.2 x capacity insertions the filter is rebuilt from the newest 0.8 x capacity entries of the log, so it never
    holds less than that and a rebuild comes once in 0.4 x capacity messages.
    """

    __slots__ = (
        "_capacity",
        "_count",
        "_filter",
        "_interval_ms",
        "_log",
        "_sent_count",
        "asked",
        "base_sequence",
        "insert",
        "size_bytes",
        "stale",
        "unchanged",
        "waiting",
        "withholds",
    )

    def __init__(self, config: SdsConfig, log: LocalLog) -> None:
        self._log = log
        self._capacity = config.bloom_filter_capacity
        self._interval_ms = config.bloom_interval_ms
        self._filter = BloomFilter(config.bloom_filter_capacity, config.bloom_filter_error_rate, config.wire_format)
        # Ids on their way in: they enter together, and may be taken back until then.
        self.waiting: list[str] = []
        # Inserts an id whose entry was just added to the log. Bound once: the list is emptied and never replaced.
        self.insert = self.waiting.append
        self._count = 0
        # Entries with a higher sequence are in the filter: enough to rebuild it bit by bit.
        self.base_sequence = 0
        self.size_bytes = self._filter.size_bytes
        self._sent_count = -1
        # Whether others should hear it as soon as the interval allows, and how often they heard this one before.
        self.asked = False
        self.unchanged = 0
        # Whether the filter holds what must not be said, and which entries those are.
        self.stale = False
        self.withholds: Callable[[LogEntry], bool] = lambda entry: False

    @property
    def filter(self) -> BloomFilter:
        """The filter of everything inserted so far."""
        if self.waiting:
            self._flush()
        return self._filter

    @property
    def count(self) -> int:
        """Ids inserted since the filter was made or rolled."""
        return self._count + len(self.waiting)

    def refuse(self, message_id: str) -> None:
        """Takes back an id: from now on no filter that leaves holds it."""
        if message_id in self.waiting:
            self.waiting.remove(message_id)
        else:
            self.stale = True

    def rebuild(self, base_sequence: int, monotonic_ms: int) -> None:
        """After a restart: fills the filter with the log's entries after `base_sequence`, and starts the interval."""
        self.last_ms = monotonic_ms
        self.base_sequence = base_sequence
        self._refill(len(self._log.entries), base_sequence)

    def due(self, now: Now) -> bool:
        """Whether the next message that may carry the filter should."""
        if self._interval_ms == 0:
            return True
        last_ms = self.last_ms
        if (last_ms is not None and now.monotonic_ms - last_ms < self._interval_ms) or self.count == 0:
            return False
        # One that tells nothing new still shows a peer that was away what we lack, at a slower pace.
        told = self._sent_count == self.count and not self.asked
        interval_ms = self._interval_ms * (_UNCHANGED_INTERVALS if told else 1)
        return last_ms is None or now.monotonic_ms - last_ms >= interval_ms

    def take(self, now: Now) -> bytes:
        """The serialized filter, for the message that leaves now."""
        if self.stale:
            self.rebuild(self.base_sequence, now.monotonic_ms)
            self._sent_count = -1
        self.last_ms = now.monotonic_ms
        self.unchanged = self.unchanged + 1 if self._sent_count == self.count else 0
        self._sent_count = self.count
        self.asked = False
        return self.filter.to_bytes()

    def settle(self) -> None:
        """Lets what waits enter, before the log is stored."""
        if self.waiting:
            self._flush()

    def _flush(self) -> None:
        if (self._count + len(self.waiting)) * 5 < self._capacity * 6:
            self._filter.insert_many(self.waiting)
            self._count += len(self.waiting)
            self.waiting.clear()
            return
        oldest = self._refill(max(1, self._capacity * 4 // 5), 0)
        self.base_sequence = self._log.sequence if oldest is None else oldest - 1
        self._sent_count = -1

    def _refill(self, count: int, base_sequence: int) -> int | None:
        """The filter is that of the newest `count` entries after `base_sequence`; the sequence number of the oldest."""
        self._count, oldest = self._filter.refill(self._log, count, base_sequence, self.withholds)
        self.stale = False
        self.waiting.clear()
        return oldest

"""From when on messages may have passed by, and when a store is asked for them (004, Query on connect)."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.node.clock import NANOSECONDS_PER_MS

# How far back a participant asks that never received anything (as @waku/sdk does).
FIRST_QUERY_RANGE_MS = 30 * 24 * 3_600_000
# Clocks of senders and stores differ; messages may be late.
QUERY_MARGIN_MS = 30_000
# After a query that no store answered the next one waits this long, doubled with each failure in a row.
RETRY_MS_MIN = 1_000
RETRY_MS_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Span:
    """What a store is asked for.

    Attributes:
        since_ms: From this transport time on.
        thorough: Whether all of it may have passed by, so that nothing but its beginning ends the search.
    """

    since_ms: int
    thorough: bool


class CatchUp:
    """A gap is open from the moment from which messages may have passed by until a store answered for all of it.

    Args:
        enabled: Whether a store is asked for what passed by at all.
        interval_ms: How long after an answer it is asked again though nothing is known to have passed by.
        last_seen_ns: Transport time up to which nothing passed by before this start; 0 for never.
    """

    def __init__(self, enabled: bool, interval_ms: int, last_seen_ns: int) -> None:
        self._enabled = enabled
        self._interval_ms = interval_ms
        # Up to when all was seen at the latest answer, and when that came by the clock that nobody sets; None where it
        # comes from an earlier life.
        self._last_seen_ns = last_seen_ns
        self._answered_ms: int | None = None
        # Where the open gap begins, and the one that a store is being asked for; None where there is none.
        self._gap_ns: int | None = last_seen_ns if enabled else None
        self._asked_ns: int | None = None
        self._is_asking = False
        # Asked again though no gap is open.
        self._is_due = False
        self._retry_at_ms = 0
        self._failures_in_row = 0

    @property
    def open_since_ns(self) -> int | None:
        """Where the earliest gap begins that no store has answered for; None where there is none.

        What a later life takes for seen must not lie behind it.
        """
        return min((since for since in (self._gap_ns, self._asked_ns) if since is not None), default=None)

    def on_gap(self, since_ns: int) -> None:
        """Messages from this transport time on may have passed by."""
        if self._enabled:
            self._gap_ns = since_ns if self._gap_ns is None else min(self._gap_ns, since_ns)

    def on_store_near(self) -> None:
        """A store came into reach, or may have: it is asked at once."""
        self._is_due = self._enabled
        self._retry_at_ms = self._failures_in_row = 0

    def next_ms(self) -> int | None:
        """Monotonic time at which a store is to be asked; None while it is being asked, or never."""
        if not self._enabled or self._is_asking:
            return None
        if self._is_due or self._gap_ns is not None:
            return self._retry_at_ms
        return None if self._answered_ms is None else max(self._retry_at_ms, self._answered_ms + self._interval_ms)

    def begin(self, epoch_ms: int, monotonic_ms: int) -> Span:
        """A store is asked now: `on_answered` or `on_failed` follows."""
        since_ms = self._seen_until_ms(epoch_ms, monotonic_ms)
        gap_ns, self._gap_ns, self._asked_ns = self._gap_ns, None, self._gap_ns
        self._is_asking, self._is_due = True, False
        if gap_ns:
            since_ms = min(since_ms, gap_ns // NANOSECONDS_PER_MS - QUERY_MARGIN_MS)
        return Span(max(0, since_ms), thorough=bool(gap_ns))

    def on_answered(self, asked_epoch_ms: int, asked_ms: int) -> None:
        """A store answered, and all that it had is taken in; it had been asked at these times."""
        self._is_asking = False
        self._asked_ns = None
        self._retry_at_ms = self._failures_in_row = 0
        self._last_seen_ns = (asked_epoch_ms - QUERY_MARGIN_MS) * NANOSECONDS_PER_MS
        self._answered_ms = asked_ms

    def on_failed(self, monotonic_ms: int) -> None:
        """No store answered: neither this question nor another one is asked before its time."""
        self._retry_at_ms = monotonic_ms + min(RETRY_MS_MAX, RETRY_MS_MIN << min(self._failures_in_row, 16))
        self._failures_in_row += 1
        self.put_off(self._retry_at_ms)

    def on_recovered(self) -> None:
        """A store answers again."""
        self._retry_at_ms = self._failures_in_row = 0

    def put_off(self, until_ms: int) -> None:
        """Not all that a store has could be taken in: it is asked again."""
        self._retry_at_ms = max(self._retry_at_ms, until_ms)
        if self._is_asking:
            self._is_asking, self._is_due = False, True
            asked_ns, self._asked_ns = self._asked_ns, None
            if asked_ns is not None:
                self.on_gap(asked_ns)

    @property
    def retry_at_ms(self) -> int:
        """Before this monotonic time no store is asked anything."""
        return self._retry_at_ms

    @property
    def fails(self) -> bool:
        """Whether the latest query failed."""
        return self._failures_in_row > 0

    def _seen_until_ms(self, epoch_ms: int, monotonic_ms: int) -> int:
        """The transport time from which on messages may have passed by, gaps aside."""
        if not self._last_seen_ns:
            return epoch_ms - FIRST_QUERY_RANGE_MS
        since_ms = self._last_seen_ns // NANOSECONDS_PER_MS
        if self._answered_ms is not None:
            # Where the clock was set back meanwhile, by that it is as long ago as it really is.
            since_ms = min(since_ms, epoch_ms - (monotonic_ms - self._answered_ms))
        return since_ms - QUERY_MARGIN_MS

"""Who was heard in the channel, and when."""

from __future__ import annotations

from collections import OrderedDict

# Sender ids are free to forge; the least recently heard goes first.
PARTICIPANTS_MAX = 10_000
# Times are kept this exactly: who speaks all the time is not moved all the time.
HEARD_EXACTLY_MS = 1_000


class Participants:
    """Senders by the time they were last heard.

    Attributes:
        live_ms: When each spoke last, other than out of a store, the latest last.
        first_epoch_ms: When anybody was heard first; None before.
    """

    __slots__ = ("changed", "first_epoch_ms", "heard_ms", "live_ms")

    def __init__(self) -> None:
        self.heard_ms: OrderedDict[str, int] = OrderedDict()
        self.live_ms: OrderedDict[str, int] = OrderedDict()
        self.first_epoch_ms: int | None = None
        # For poll_persist.
        self.changed: dict[str, None] = {}

    def hear(self, sender_id: str, monotonic_ms: int, *, live: bool = False) -> bool:
        """Notes that `sender_id` spoke; True the first time."""
        heard = self.heard_ms
        if live:
            self.live_ms[sender_id] = monotonic_ms
            self.live_ms.move_to_end(sender_id)
            if len(self.live_ms) > PARTICIPANTS_MAX:
                self.live_ms.popitem(last=False)
        heard_ms = heard.get(sender_id)
        if heard_ms is not None:
            if monotonic_ms - heard_ms >= HEARD_EXACTLY_MS:
                heard[sender_id] = monotonic_ms
                heard.move_to_end(sender_id)
            return False
        heard[sender_id] = monotonic_ms
        self.changed[sender_id] = None
        if len(heard) > PARTICIPANTS_MAX:
            forgotten, _ = heard.popitem(last=False)
            self.changed[forgotten] = None
        return True

    def within(self, monotonic_ms: int, ttl_ms: int) -> tuple[str, ...]:
        """Senders heard in the last `ttl_ms`, in the order of their names."""
        return tuple(sorted(name for name, heard in self.heard_ms.items() if monotonic_ms - heard <= ttl_ms))

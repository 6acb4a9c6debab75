"""Who was heard in the channel, and when."""

from __future__ import annotations

from collections import OrderedDict

# Sender ids are free to forge; the least recently heard goes first.
PARTICIPANTS_MAX = 10_000


class Participants:
    """Senders by the time they were last heard."""

    __slots__ = ("changed", "heard_ms")

    def __init__(self) -> None:
        self.heard_ms: OrderedDict[str, int] = OrderedDict()
        self.changed: dict[str, bool] = {}

    def hear(self, sender_id: str, monotonic_ms: int) -> bool:
        """Notes that `sender_id` spoke; True the first time."""
        heard = self.heard_ms
        first = sender_id not in heard
        heard[sender_id] = monotonic_ms
        if not first:
            heard.move_to_end(sender_id)
            return False
        self.changed[sender_id] = True
        if len(heard) > PARTICIPANTS_MAX:
            forgotten, _ = heard.popitem(last=False)
            self.changed[forgotten] = False
        return True

    def within(self, monotonic_ms: int, ttl_ms: int) -> tuple[str, ...]:
        """Senders heard in the last `ttl_ms`, in the order of their names."""
        return tuple(sorted(name for name, heard in self.heard_ms.items() if monotonic_ms - heard <= ttl_ms))

"""Messages that were handed out and that nobody has answered for, and until when an answer is awaited."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from shardwire.channel.sending.dispatch import PROPAGATION_TIMEOUT_MS
from shardwire.sds.outputs import Transmit


@dataclass(slots=True)
class Flight:
    """A transmit that was handed out; not frozen, as one is made for each.

    Attributes:
        transmit: The transmit.
        counts: Whether it takes a place of the rate limit.
        left_ms: When it was handed to the node; None while it waits for that, and for its place.
    """

    transmit: Transmit
    counts: bool
    left_ms: int | None = None


class Flights:
    """By transmit id, oldest first. A node that answers in turn is not silent, however long its turn takes."""

    __slots__ = ("_answered_left_ms", "_answered_ms", "_by_id", "look_ms", "unplaced")

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, Flight] = OrderedDict()
        # How many wait for a place of the rate limit.
        self.unplaced = 0
        # When to look next for what the node has not answered for; None while nothing is in flight.
        self.look_ms: int | None = None
        # When the node answered last, and when the latest that it answered for had left.
        self._answered_ms = self._answered_left_ms = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._by_id.values()))

    def of_send(self, send_id: str) -> list[Transmit]:
        return [flight.transmit for flight in self._by_id.values() if flight.transmit.send_id == send_id]

    def counted(self) -> int:
        """How many the node holds that take a place of the rate limit."""
        return sum(flight.counts for flight in self._by_id.values() if flight.left_ms is not None)

    def add(self, transmit: Transmit, counts: bool, monotonic_ms: int) -> None:
        self._by_id[transmit.transmit_id] = Flight(transmit, counts)
        self.unplaced += counts
        if self.look_ms is None:
            self.look_ms = monotonic_ms + PROPAGATION_TIMEOUT_MS

    def leave(self, transmit_id: int, monotonic_ms: int) -> bool:
        """It is handed to the node now; False where nobody waits for it any longer."""
        flight = self._by_id.get(transmit_id)
        if flight is None:
            return False
        if flight.left_ms is None:
            self.unplaced -= flight.counts
        flight.left_ms = monotonic_ms
        return True

    def pop(self, transmit_id: int) -> Flight | None:
        flight = self._by_id.pop(transmit_id, None)
        if flight is not None and flight.left_ms is None:
            self.unplaced -= flight.counts
        return flight

    def on_answered(self, flight: Flight, monotonic_ms: int) -> None:
        """The node brought a flight to the network."""
        self._answered_ms = monotonic_ms
        if flight.left_ms is not None and flight.left_ms > self._answered_left_ms:
            self._answered_left_ms = flight.left_ms

    def overdue(self, monotonic_ms: int, not_before_ms: int) -> Collection[Flight]:
        """Those that the node has said nothing of for `PROPAGATION_TIMEOUT_MS` since `not_before_ms`, or later ones.

        Whoever is told of them takes them out, then calls `look_again`.
        """
        if self.look_ms is None or self.look_ms > monotonic_ms:
            return ()
        return [flight for flight in self if self._overdue_ms(flight, monotonic_ms, not_before_ms) <= monotonic_ms]

    def look_again(self, monotonic_ms: int, not_before_ms: int) -> None:
        """Sets when the next may be overdue."""
        if self.look_ms is not None and self.look_ms <= monotonic_ms:
            overdue_ms = (self._overdue_ms(flight, monotonic_ms, not_before_ms) for flight in self._by_id.values())
            self.look_ms = min(overdue_ms, default=None)

    def _overdue_ms(self, flight: Flight, monotonic_ms: int, not_before_ms: int) -> int:
        """When a flight has waited too long; what the dispatcher still holds has not begun to."""
        since_ms = monotonic_ms if flight.left_ms is None else flight.left_ms
        if since_ms >= self._answered_left_ms:
            # A slow node that answers in turn has not come to it yet.
            since_ms = max(since_ms, self._answered_ms)
        return max(since_ms, not_before_ms) + PROPAGATION_TIMEOUT_MS

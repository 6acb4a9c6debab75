"""The local log: what was received, sent or recovered, by id, and in the order of (lamport, message id)."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardwire.sds.incoming_send import IncomingSend

# Ordered insertion looks here first: messages rarely arrive further out of order.
_NEAR_TAIL = 64


class LogEntry:
    """One content that this participant holds, or can reconstruct.

    Attributes:
        message_id: Its SDS message id.
        sender_id: Who sent it first.
        lamport: Its capped timestamp; 0 where it was recovered and never received.
        retrieval_hint: Newest transport hash known for it.
        sequence: Place in the order in which the entries came, and entered the bloom filter.
        ordinal: Place in its send.
        send: The incoming send it waits in; None once that is delivered, and for our own.
        ordered: Whether it stands for its delivered send in the log's order.
        spoken_ms: When this participant last named it, 0 for never; not kept over a restart.
        unsaid: Place in the order in which contents came that no message of ours has named since; 0 where one has.
        repeats: How many more syncs name it; not kept over a restart.
    """

    __slots__ = (
        "lamport",
        "message_id",
        "ordered",
        "ordinal",
        "repeats",
        "retrieval_hint",
        "send",
        "sender_id",
        "sequence",
        "spoken_ms",
        "unsaid",
    )

    def __init__(
        self, message_id: str, sender_id: str, lamport: int, retrieval_hint: bytes | None, sequence: int, ordinal: int
    ) -> None:
        self.message_id = message_id
        self.sender_id = sender_id
        self.lamport = lamport
        self.retrieval_hint = retrieval_hint
        self.sequence = sequence
        self.ordinal = ordinal
        self.send: IncomingSend | None = None
        self.spoken_ms = 0
        self.unsaid = 0
        self.repeats = 0
        self.ordered = False


def _order(entry: LogEntry) -> tuple[int, str]:
    return (entry.lamport, entry.message_id)


class LocalLog:
    """Entries by id (for duplicates and dependencies) and the delivered sends in log order (for causal history).

    One entry stands in the order for each delivered send: the newest of its contents. Bounded by `entries_max`: the
    entry that came first is forgotten first, unless its send still waits.
    """

    __slots__ = ("_arrival", "_entries_max", "_on_forgotten", "_ordered", "changed", "entries", "forgotten", "sequence")

    def __init__(self, entries_max: int, on_forgotten: Callable[[str], None]) -> None:
        self._entries_max = entries_max
        self._on_forgotten = on_forgotten
        self.entries: dict[str, LogEntry] = {}
        self._arrival: deque[LogEntry] = deque()
        self._ordered: list[LogEntry] = []
        self.sequence = 0
        # For poll_persist: entries to write, ids to delete.
        self.changed: dict[str, LogEntry] = {}
        self.forgotten: list[str] = []

    def add(
        self,
        message_id: str,
        sender_id: str,
        lamport: int,
        retrieval_hint: bytes | None,
        ordinal: int,
    ) -> LogEntry:
        """Holds a new entry; the caller knows that `message_id` is not held yet."""
        self.sequence = sequence = self.sequence + 1
        entry = LogEntry(message_id, sender_id, lamport, retrieval_hint, sequence, ordinal)
        entries = self.entries
        entries[message_id] = entry
        self._arrival.append(entry)
        self.changed[message_id] = entry
        if len(entries) > self._entries_max:
            self._forget_oldest()
        return entry

    def refuse(self, entry: LogEntry) -> None:
        """Takes out the entry that was added last."""
        del self.entries[entry.message_id]
        if self._arrival and self._arrival[-1] is entry:
            self._arrival.pop()
        else:
            self._arrival.remove(entry)
        self.changed.pop(entry.message_id, None)

    def withdraw(self, message_id: str) -> LogEntry | None:
        """Takes out and gives the entry of a message of ours that never left."""
        entry = self.entries.get(message_id)
        if entry is not None:
            self.refuse(entry)
            self.forgotten.append(message_id)
        return entry

    def take_back(self, entries: list[LogEntry]) -> None:
        """Restores stored entries, given in the order of their sequence."""
        for entry in entries:
            self.entries[entry.message_id] = entry
            self._arrival.append(entry)
            self.sequence = max(self.sequence, entry.sequence)
        self._ordered = sorted((entry for entry in entries if entry.ordered), key=_order)

    def deliver(self, entry: LogEntry) -> None:
        """Puts a delivered send, by its newest content, into the order (SDS: lamport, then message id)."""
        entry.ordered = True
        self.changed[entry.message_id] = entry
        ordered = self._ordered
        if not ordered or ordered[-1].lamport < entry.lamport or _order(ordered[-1]) < _order(entry):
            ordered.append(entry)
        else:
            start = len(ordered) - _NEAR_TAIL
            if start > 0 and _order(ordered[start]) < _order(entry):
                insort(ordered, entry, lo=start, key=_order)
            else:
                insort(ordered, entry, key=_order)
        if len(ordered) > 2 * self._entries_max + _NEAR_TAIL:
            self._ordered = [known for known in ordered if known.message_id in self.entries]

    def newest(self, count: int) -> list[LogEntry]:
        """The last `count` delivered sends' entries, oldest first."""
        found: list[LogEntry] = []
        entries = self.entries
        for entry in reversed(self._ordered):
            if len(found) >= count:
                break
            if entries.get(entry.message_id) is entry:
                found.append(entry)
        found.reverse()
        return found

    def ordered_ids(self) -> list[str]:
        """Ids of the delivered sends in log order."""
        return [entry.message_id for entry in self._ordered if self.entries.get(entry.message_id) is entry]

    def newest_arrivals(self) -> Iterator[LogEntry]:
        """Entries, the last one to come first."""
        return reversed(self._arrival)

    def touch(self, entry: LogEntry) -> None:
        """Marks an entry whose stored form changed."""
        if entry.message_id in self.entries:
            self.changed[entry.message_id] = entry

    def _forget_oldest(self) -> None:
        arrival = self._arrival
        for _ in range(len(arrival)):
            oldest = arrival.popleft()
            if oldest.send is None:
                self.entries.pop(oldest.message_id, None)
                self.changed.pop(oldest.message_id, None)
                self.forgotten.append(oldest.message_id)
                self._on_forgotten(oldest.message_id)
                return
            arrival.append(oldest)

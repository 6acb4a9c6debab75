"""Messages on their way in: fragments until they are whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from shardwire.node.clock import Clock
from shardwire.node.udp.datagram import STATUS, Datagram
from shardwire.node.udp.neighbours import Address, Neighbour

# A message of which nothing came for so long is asked for; each time twice as long after the last.
STALL_MS = 20
STALL_MS_MAX = 1_000
# After so long without a fragment it is given up.
EXPIRY_MS = 10_000
# So often its sender is told what is here, so that it goes on.
FRAGMENTS_PER_STATUS = 16
MESSAGES_PER_SENDER_MAX = 256
BYTES_PER_SENDER_MAX = 16 << 20
BYTES_MAX = 64 << 20
REMEMBERED_PER_SENDER = 4_096


@dataclass(slots=True)
class _Partial:
    """A message of which some is here."""

    parts: list[bytes | None]
    heard_ms: int
    told_ms: int
    held: int = 0
    size: int = 0
    untold: int = 0
    pause_ms: int = STALL_MS


@dataclass(slots=True)
class _Sender:
    """What one process has under way."""

    address: Address
    token: int
    partials: OrderedDict[int, _Partial] = field(default_factory=OrderedDict)
    # Those that were whole, and how many fragments they had.
    whole: OrderedDict[int, int] = field(default_factory=OrderedDict)
    size: int = 0


class Intake:
    """Joins fragments, and tells their senders what is here.

    A fragment allocates what it brings; what its header claims is at most a list of 64 places.

    Args:
        sender: Our process.
        clock: Monotonic time.
        send: Sends a datagram to an address.
        on_message: Given each whole message.
    """

    def __init__(
        self, sender: int, clock: Clock, send: Callable[[bytes, Address], None], on_message: Callable[[bytes], None]
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._send = send
        self._on_message = on_message
        self._senders: dict[int, _Sender] = {}
        self._size = 0

    @property
    def size_bytes(self) -> int:
        """What waits for the rest of its message."""
        return self._size

    def take(self, fragment: Datagram, neighbour: Neighbour, token: int) -> bool:
        """Takes a fragment; False where it contradicts the others of its message.

        Args:
            fragment: The datagram.
            neighbour: Who sent it.
            token: What its sender is shown in answers.
        """
        sender = self._senders.get(fragment.sender)
        if sender is None:
            sender = self._senders[fragment.sender] = _Sender(neighbour.address, token)
        sender.address, sender.token = neighbour.address, token
        number = fragment.number
        if number in sender.whole:
            # Our answer was lost.
            self._tell(sender, number, (1 << sender.whole[number]) - 1)
            return True
        now_ms = self._clock.monotonic_ms()
        partial = sender.partials.get(number)
        if partial is None:
            partial = sender.partials[number] = _Partial([None] * fragment.count, now_ms, now_ms)
        elif len(partial.parts) != fragment.count:
            return False
        partial.heard_ms, partial.pause_ms = now_ms, STALL_MS
        if partial.parts[fragment.index] is not None:
            return True
        partial.parts[fragment.index] = fragment.data
        partial.held |= 1 << fragment.index
        partial.untold += 1
        partial.size += len(fragment.data)
        sender.size += len(fragment.data)
        self._size += len(fragment.data)
        if partial.held == (1 << fragment.count) - 1:
            self._complete(sender, number, partial)
        elif partial.untold >= FRAGMENTS_PER_STATUS:
            self._tell_of(sender, number, partial)
        self._make_room(sender)
        return True

    def look(self) -> None:
        """Asks for what is missing of messages that stand still, and gives up what stood still too long."""
        now_ms = self._clock.monotonic_ms()
        for sender in self._senders.values():
            for number, partial in list(sender.partials.items()):
                if now_ms - partial.heard_ms > EXPIRY_MS:
                    self._drop(sender, number)
                elif now_ms - max(partial.heard_ms, partial.told_ms) >= partial.pause_ms:
                    partial.pause_ms = min(2 * partial.pause_ms, STALL_MS_MAX)
                    self._tell_of(sender, number, partial)

    def forget(self, process: int) -> None:
        """A sender went."""
        sender = self._senders.pop(process, None)
        if sender is not None:
            self._size -= sender.size

    def _complete(self, sender: _Sender, number: int, partial: _Partial) -> None:
        message = b"".join([part for part in partial.parts if part is not None])
        self._drop(sender, number)
        sender.whole[number] = len(partial.parts)
        if len(sender.whole) > REMEMBERED_PER_SENDER:
            sender.whole.popitem(last=False)
        self._tell(sender, number, partial.held)
        self._on_message(message)

    def _make_room(self, sender: _Sender) -> None:
        """Lets the oldest message of a sender go where it has too many, and of the largest sender where all have."""
        while len(sender.partials) > MESSAGES_PER_SENDER_MAX or sender.size > BYTES_PER_SENDER_MAX:
            self._drop(sender, next(iter(sender.partials)))
        while self._size > BYTES_MAX:
            largest = max(self._senders.values(), key=lambda each: each.size)
            self._drop(largest, next(iter(largest.partials)))

    def _drop(self, sender: _Sender, number: int) -> None:
        partial = sender.partials.pop(number)
        sender.size -= partial.size
        self._size -= partial.size

    def _tell_of(self, sender: _Sender, number: int, partial: _Partial) -> None:
        partial.untold = 0
        partial.told_ms = self._clock.monotonic_ms()
        self._tell(sender, number, partial.held)

    def _tell(self, sender: _Sender, number: int, held: int) -> None:
        status = Datagram(sender.token, self._sender, STATUS, number, held=held)
        self._send(status.encode(), sender.address)

"""What a memory network saw: every envelope, and what became of it at each receiver."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["delivered", "duplicated", "lost", "partitioned", "offline", "overflow", "in-flight"]


@dataclass(frozen=True, slots=True)
class ReceiverOutcome:
    """What became of an envelope at one node that is subscribed to its topic; the sender itself is not listed.

    Attributes:
        receiver: Name of the node.
        outcome: "delivered"; "duplicated", delivered twice; "lost" by the network's conditions; "partitioned", out
            of reach; "offline", not connected when it was sent or when it arrived; "overflow", a full queue of the
            receiver refused it; "in-flight", on its way still.
        delays_ms: Delay of each copy that was delivered or is in flight.
    """

    receiver: str
    outcome: Outcome
    delays_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One envelope that left its node.

    Attributes:
        time_ns: When it left, Unix time by the network's clock.
        sender: Name of the node.
        request_id: What the node's `send` returned for it.
        message_hash: Deterministic message hash (14/WAKU2-MESSAGE).
        timestamp_ns: Timestamp of the envelope, by the clock of the node.
        content_topic: Its content topic.
        size_bytes: Length of the encoded WakuMessage.
        ephemeral: Whether stores pass it over.
        stored: Whether the store took it.
        outcomes: By receiver, in the order in which the nodes were created.
        payload: What the envelope carried, where the network was made with `trace_payloads=True`; else None.
    """

    time_ns: int
    sender: str
    request_id: str
    message_hash: bytes
    timestamp_ns: int
    content_topic: str
    size_bytes: int
    ephemeral: bool
    stored: bool
    outcomes: tuple[ReceiverOutcome, ...]
    payload: bytes | None = field(default=None, repr=False)


class Fate:
    """What becomes of one envelope at one receiver, as it unfolds."""

    __slots__ = ("_delivered_delays_ms", "_pending_delays_ms", "_refusal", "receiver")

    def __init__(self, receiver: str, refusal: Outcome | None = None) -> None:
        self.receiver = receiver
        self._refusal = refusal
        # One or two of them: as tuples they cost less than lists.
        self._delivered_delays_ms: tuple[int, ...] = ()
        self._pending_delays_ms: tuple[int, ...] = ()

    def depart(self, delay_ms: int) -> None:
        self._pending_delays_ms += (delay_ms,)

    def arrive(self, delay_ms: int) -> None:
        pending = self._pending_delays_ms
        if len(pending) == 1:
            # By far the most: the tuple of the one copy moves as it is.
            self._pending_delays_ms = ()
            self._delivered_delays_ms += pending
            return
        self._settle(delay_ms)
        self._delivered_delays_ms += (delay_ms,)

    def refuse(self, delay_ms: int, outcome: Outcome) -> None:
        self._settle(delay_ms)
        self._refusal = outcome

    def _settle(self, delay_ms: int) -> None:
        pending = self._pending_delays_ms
        at = pending.index(delay_ms)
        self._pending_delays_ms = pending[:at] + pending[at + 1 :]

    def freeze(self) -> ReceiverOutcome:
        delays_ms = self._delivered_delays_ms + self._pending_delays_ms
        if self._pending_delays_ms:
            return ReceiverOutcome(self.receiver, "in-flight", delays_ms)
        if self._delivered_delays_ms:
            return ReceiverOutcome(self.receiver, "delivered" if len(delays_ms) == 1 else "duplicated", delays_ms)
        return ReceiverOutcome(self.receiver, self._refusal or "lost")


@dataclass(slots=True)
class TraceEntry:
    """A `TraceRecord` that is still being written."""

    time_ns: int
    sender: str
    request_id: str
    message_hash: bytes
    timestamp_ns: int
    content_topic: str
    size_bytes: int
    ephemeral: bool
    stored: bool
    fates: list[Fate]
    payload: bytes | None

    def freeze(self) -> TraceRecord:
        return TraceRecord(
            self.time_ns,
            self.sender,
            self.request_id,
            self.message_hash,
            self.timestamp_ns,
            self.content_topic,
            self.size_bytes,
            self.ephemeral,
            self.stored,
            tuple(fate.freeze() for fate in self.fates),
            self.payload,
        )


class Trace:
    """The newest `records_max` envelopes, oldest first."""

    def __init__(self, records_max: int) -> None:
        self._entries: deque[TraceEntry] = deque(maxlen=records_max)

    def append(self, entry: TraceEntry) -> None:
        self._entries.append(entry)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TraceRecord]:
        return (entry.freeze() for entry in self._entries)

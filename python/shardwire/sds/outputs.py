"""What leaves the SDS machine: messages to transmit, and events.

Those that are made for every message are native classes, the others slotted dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from shardwire._native import (
    ContentAcknowledged,
    ContentReceived,
    HistoryEntry,
    MissingDetected,
    SdsEvent,
    SendAcknowledged,
    SendReleased,
    Transmit,
)

__all__ = [
    "ContentAcknowledged",
    "ContentPossiblyAcknowledged",
    "ContentReceived",
    "DependencyLost",
    "EphemeralReceived",
    "MessageDropped",
    "MissingDetected",
    "SdsEvent",
    "SendAcknowledged",
    "SendGivenUp",
    "SendReleased",
    "SenderIdConflict",
    "SyncReceived",
    "Transmit",
    "TransmitKind",
]


class TransmitKind(Enum):
    """Why a message leaves; the rate limit treats each kind in its own way."""

    FIRST = "first"  # the first content of a send to be dispatched
    FURTHER = "further"  # any other content of a send, for the first time
    RETRANSMISSION = "retransmission"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"
    REPAIR = "repair"

    # Members are singletons: hashing them by identity spares a call for every `in`.
    __hash__ = object.__hash__


@dataclass(slots=True)
class EphemeralReceived(SdsEvent):
    """An ephemeral message: no order, no acknowledgement."""

    message_id: str
    sender_id: str
    content: bytes = field(repr=False)


@dataclass(slots=True)
class ContentPossiblyAcknowledged(SdsEvent):
    """`by`'s bloom filter holds one content of a send of ours; `count` participants' filters do so far."""

    send_id: str
    ordinal: int
    message_id: str
    by: str
    count: int


@dataclass(slots=True)
class SendGivenUp(SdsEvent):
    """`max_retransmissions` passed for some content and nobody is waited for any longer."""

    send_id: str
    unacknowledged: tuple[int, ...]


@dataclass(slots=True)
class DependencyLost(SdsEvent):
    """A dependency stayed missing for `timeout_for_lost_messages_ms`; its dependents go on without it."""

    entry: HistoryEntry


@dataclass(slots=True)
class SyncReceived(SdsEvent):
    """A sync message of another participant."""

    sender_id: str


@dataclass(slots=True)
class SenderIdConflict(SdsEvent):
    """A message under our sender id that we never sent."""

    message_id: str


@dataclass(slots=True)
class MessageDropped(SdsEvent):
    """A received message that is not processed: "undecodable", "other-channel", "own", "duplicate", "over-limit"."""

    reason: str

"""Scalable Data Sync: the reliability protocol as a state machine without clock or I/O."""

from __future__ import annotations

from shardwire._native import (
    ContentAcknowledged,
    ContentPossiblyAcknowledged,
    ContentReceived,
    ContentsWanted,
    DependencyLost,
    EphemeralReceived,
    MessageChannel,
    MessageDropped,
    MissingDetected,
    Now,
    SdsEvent,
    SendAcknowledged,
    SenderIdConflict,
    SendGivenUp,
    SendReleased,
    SyncReceived,
    Transmit,
)
from shardwire.sds.outputs import TransmitKind

ALL_KINDS: frozenset[TransmitKind] = frozenset(TransmitKind)

__all__ = [
    "ALL_KINDS",
    "ContentAcknowledged",
    "ContentPossiblyAcknowledged",
    "ContentReceived",
    "ContentsWanted",
    "DependencyLost",
    "EphemeralReceived",
    "MessageChannel",
    "MessageDropped",
    "MissingDetected",
    "Now",
    "SdsEvent",
    "SendAcknowledged",
    "SendGivenUp",
    "SendReleased",
    "SenderIdConflict",
    "SyncReceived",
    "Transmit",
    "TransmitKind",
]

"""Scalable Data Sync: the reliability protocol as a state machine without clock or I/O."""

from __future__ import annotations

from shardwire._native import Now
from shardwire.sds.message_channel import ALL_KINDS, MessageChannel
from shardwire.sds.outputs import (
    ContentAcknowledged,
    ContentPossiblyAcknowledged,
    ContentReceived,
    DependencyLost,
    EphemeralReceived,
    MessageDropped,
    MissingDetected,
    SdsEvent,
    SendAcknowledged,
    SenderIdConflict,
    SendGivenUp,
    SendReleased,
    SyncReceived,
    Transmit,
    TransmitKind,
)

__all__ = [
    "ALL_KINDS",
    "ContentAcknowledged",
    "ContentPossiblyAcknowledged",
    "ContentReceived",
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

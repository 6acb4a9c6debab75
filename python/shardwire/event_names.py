"""The strings that subscribe to the events of a channel, and the class that each stands for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from shardwire.events import (
    CallbackErrorEvent,
    ChannelEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    EphemeralDroppedEvent,
    FileFailedEvent,
    FileProgressEvent,
    FileReceivedEvent,
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    NodeFailingEvent,
    RateLimitEvent,
    SenderIdConflictEvent,
    WithinReachEvent,
)

# What `ReliableChannel.on` takes beside a class.
EventName = Literal[
    "callback-error",
    "ephemeral-message-dropped",
    "file:failed",
    "file:progress",
    "file:received",
    "irretrievable-message",
    "message-acknowledged",
    "message-possibly-acknowledged",
    "message-received",
    "message-sent",
    "node-failing",
    "rate-limit",
    "reliable:message:delivered",
    "reliable:message:delivery-error",
    "reliable:message:received",
    "reliable:message:send-error",
    "reliable:message:sent",
    "sender-id-conflict",
    "sending-message",
    "sending-message-irrecoverable-error",
    "within-reach",
]

EVENT_TYPES: tuple[type[ChannelEvent], ...] = (
    MessageReceivedEvent,
    MessageSentEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    IrretrievableMessageEvent,
    EphemeralDroppedEvent,
    RateLimitEvent,
    NodeFailingEvent,
    SenderIdConflictEvent,
    WithinReachEvent,
    FileProgressEvent,
    FileReceivedEvent,
    FileFailedEvent,
    CallbackErrorEvent,
)

EVENT_TYPES_BY_NAME: Mapping[str, type[ChannelEvent]] = MappingProxyType(
    {name: kind for kind in EVENT_TYPES for name in kind.names}
)

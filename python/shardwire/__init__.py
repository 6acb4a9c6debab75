"""Reliable messages of many megabytes, and files of any size, over lossy publish/subscribe networks.

Everything an application needs is importable from here; each name is loaded from its room when it is first used, so
importing `shardwire` costs little and needs no optional dependency.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardwire import erasure
    from shardwire._native import HistoryEntry, Keccak256, __version__, keccak256, keccak256_many
    from shardwire.channel import (
        GAUGES,
        MEASUREMENTS,
        METRICS,
        Cancellation,
        Measurement,
        PendingSend,
        RateLimitStatus,
        ReliableChannel,
        SdsObservation,
        SegmentObservation,
        close_channel,
        create_reliable_channel,
    )
    from shardwire.config import (
        ChannelChanges,
        ChannelConfig,
        RateLimitConfig,
        ReassemblyLimits,
        ReliableChannelOptions,
        SdsConfig,
        SegmentationConfig,
        SyncConfig,
    )
    from shardwire.encryption import Encryption
    from shardwire.errors import (
        ChannelClosedError,
        ConfigError,
        DecryptionError,
        FileChangedError,
        FileRefusedError,
        InvalidSegmentError,
        MissingLibraryError,
        NodeError,
        NotEnoughShardsError,
        PayloadTooLargeError,
        PersistenceError,
        QueueFullError,
        ShardwireError,
    )
    from shardwire.events import (
        CallbackErrorEvent,
        ChannelEvent,
        ChunkAcknowledgedEvent,
        ChunkErrorEvent,
        ChunkInfo,
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
    from shardwire.files import FileOffer
    from shardwire.names import ChannelId, MessageId, ReliableSendId, SenderId
    from shardwire.node import (
        ConnectionState,
        ConnectionStatus,
        MessageEnvelope,
        MessagePropagated,
        MessageReceived,
        MessageSendError,
        MessageSent,
        Node,
        NodeConfig,
        NodeEvent,
        RequestId,
        StoredMessage,
        StorePage,
        StoreQuery,
    )
    from shardwire.persistence import Changes, ChannelState, MemoryPersistence, Persistence, SqlitePersistence


def _refuse_subinterpreters() -> None:
    """The native module says so itself, but has made its types by then, which are one for the process."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "shardwire works in the main interpreter of a process alone, and this is a subinterpreter: "
                "import it in the main one, or in a process of its own"
            )
        return


_refuse_subinterpreters()

_ROOMS = {
    "shardwire._native": ("HistoryEntry", "Keccak256", "__version__", "keccak256", "keccak256_many"),
    "shardwire.channel": (
        "GAUGES",
        "MEASUREMENTS",
        "METRICS",
        "Cancellation",
        "Measurement",
        "PendingSend",
        "RateLimitStatus",
        "ReliableChannel",
        "SdsObservation",
        "SegmentObservation",
        "close_channel",
        "create_reliable_channel",
    ),
    "shardwire.config": (
        "ChannelChanges",
        "ChannelConfig",
        "RateLimitConfig",
        "ReassemblyLimits",
        "ReliableChannelOptions",
        "SdsConfig",
        "SegmentationConfig",
        "SyncConfig",
    ),
    "shardwire.encryption": ("Encryption",),
    "shardwire.errors": (
        "ChannelClosedError",
        "ConfigError",
        "DecryptionError",
        "FileChangedError",
        "FileRefusedError",
        "InvalidSegmentError",
        "MissingLibraryError",
        "NodeError",
        "NotEnoughShardsError",
        "PayloadTooLargeError",
        "PersistenceError",
        "QueueFullError",
        "ShardwireError",
    ),
    "shardwire.events": (
        "CallbackErrorEvent",
        "ChannelEvent",
        "ChunkAcknowledgedEvent",
        "ChunkErrorEvent",
        "ChunkInfo",
        "ChunkPossiblyAcknowledgedEvent",
        "ChunkSendingEvent",
        "ChunkSentEvent",
        "EphemeralDroppedEvent",
        "FileFailedEvent",
        "FileProgressEvent",
        "FileReceivedEvent",
        "IrretrievableMessageEvent",
        "MessageDeliveredEvent",
        "MessageReceivedEvent",
        "MessageSendErrorEvent",
        "MessageSentEvent",
        "NodeFailingEvent",
        "RateLimitEvent",
        "SenderIdConflictEvent",
        "WithinReachEvent",
    ),
    "shardwire.files": ("FileOffer",),
    "shardwire.names": ("ChannelId", "MessageId", "ReliableSendId", "SenderId"),
    "shardwire.node": (
        "ConnectionState",
        "ConnectionStatus",
        "MessageEnvelope",
        "MessagePropagated",
        "MessageReceived",
        "MessageSendError",
        "MessageSent",
        "Node",
        "NodeConfig",
        "NodeEvent",
        "RequestId",
        "StorePage",
        "StoreQuery",
        "StoredMessage",
    ),
    "shardwire.persistence": ("Changes", "ChannelState", "MemoryPersistence", "Persistence", "SqlitePersistence"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "GAUGES",
    "MEASUREMENTS",
    "METRICS",
    "CallbackErrorEvent",
    "Cancellation",
    "Changes",
    "ChannelChanges",
    "ChannelClosedError",
    "ChannelConfig",
    "ChannelEvent",
    "ChannelId",
    "ChannelState",
    "ChunkAcknowledgedEvent",
    "ChunkErrorEvent",
    "ChunkInfo",
    "ChunkPossiblyAcknowledgedEvent",
    "ChunkSendingEvent",
    "ChunkSentEvent",
    "ConfigError",
    "ConnectionState",
    "ConnectionStatus",
    "DecryptionError",
    "Encryption",
    "EphemeralDroppedEvent",
    "FileChangedError",
    "FileFailedEvent",
    "FileOffer",
    "FileProgressEvent",
    "FileReceivedEvent",
    "FileRefusedError",
    "HistoryEntry",
    "InvalidSegmentError",
    "IrretrievableMessageEvent",
    "Keccak256",
    "Measurement",
    "MemoryPersistence",
    "MessageDeliveredEvent",
    "MessageEnvelope",
    "MessageId",
    "MessagePropagated",
    "MessageReceived",
    "MessageReceivedEvent",
    "MessageSendError",
    "MessageSendErrorEvent",
    "MessageSent",
    "MessageSentEvent",
    "MissingLibraryError",
    "Node",
    "NodeConfig",
    "NodeError",
    "NodeEvent",
    "NodeFailingEvent",
    "NotEnoughShardsError",
    "PayloadTooLargeError",
    "PendingSend",
    "Persistence",
    "PersistenceError",
    "QueueFullError",
    "RateLimitConfig",
    "RateLimitEvent",
    "RateLimitStatus",
    "ReassemblyLimits",
    "ReliableChannel",
    "ReliableChannelOptions",
    "ReliableSendId",
    "RequestId",
    "SdsConfig",
    "SdsObservation",
    "SegmentObservation",
    "SegmentationConfig",
    "SenderId",
    "SenderIdConflictEvent",
    "ShardwireError",
    "SqlitePersistence",
    "StorePage",
    "StoreQuery",
    "StoredMessage",
    "SyncConfig",
    "WithinReachEvent",
    "__version__",
    "close_channel",
    "create_reliable_channel",
    "erasure",
    "keccak256",
    "keccak256_many",
]


# Type checkers take a module with this function to have every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "erasure":
            return import_module("shardwire.erasure")
        room = _ROOM_OF.get(name)
        if room is None:
            raise AttributeError(f"module 'shardwire' has no attribute {name!r}")
        value = getattr(import_module(room), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

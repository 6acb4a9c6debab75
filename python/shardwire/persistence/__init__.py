"""Where channels keep their state: the `Persistence` protocol, in memory and in SQLite."""

from __future__ import annotations

from shardwire.persistence.inspection import StoredChannel, StoredKind, read_channels
from shardwire.persistence.memory import MemoryPersistence
from shardwire.persistence.protocol import Changes, ChannelState, Persistence, RecordName
from shardwire.persistence.reassembly import reassembly_changes, reassembly_operations
from shardwire.persistence.sqlite import SqlitePersistence

__all__ = [
    "Changes",
    "ChannelState",
    "MemoryPersistence",
    "Persistence",
    "RecordName",
    "SqlitePersistence",
    "StoredChannel",
    "StoredKind",
    "read_channels",
    "reassembly_changes",
    "reassembly_operations",
]

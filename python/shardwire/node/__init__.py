"""Nodes that carry the messages of channels: the `Node` protocol and its kinds, clocks, virtual time."""

from __future__ import annotations

from shardwire.node.clock import Clock, SystemClock, running_clock
from shardwire.node.conditions import NetworkConditions
from shardwire.node.memory import MemoryNode
from shardwire.node.network import STORE, MemoryNetwork
from shardwire.node.protocol import (
    MAX_MESSAGE_SIZE_BYTES,
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MessagesMissed,
    Node,
    NodeConfig,
    NodeEvent,
    RequestId,
    StoredMessage,
    StorePage,
    StoreQuery,
)
from shardwire.node.store import MessageStore
from shardwire.node.trace import ReceiverOutcome, TraceRecord
from shardwire.node.virtual_time import VirtualClock, VirtualTimeError, VirtualTimeLoop, run_virtual

__all__ = [
    "MAX_MESSAGE_SIZE_BYTES",
    "STORE",
    "Clock",
    "ConnectionState",
    "ConnectionStatus",
    "MemoryNetwork",
    "MemoryNode",
    "MessageEnvelope",
    "MessagePropagated",
    "MessageReceived",
    "MessageSendError",
    "MessageSent",
    "MessageStore",
    "MessagesMissed",
    "NetworkConditions",
    "Node",
    "NodeConfig",
    "NodeEvent",
    "ReceiverOutcome",
    "RequestId",
    "StorePage",
    "StoreQuery",
    "StoredMessage",
    "SystemClock",
    "TraceRecord",
    "VirtualClock",
    "VirtualTimeError",
    "VirtualTimeLoop",
    "run_virtual",
    "running_clock",
]

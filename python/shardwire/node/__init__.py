"""Nodes that carry the messages of channels: the `Node` protocol and its kinds, clocks, virtual time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from shardwire.node.mqtt import MqttNode, MqttNodeStatus
    from shardwire.node.nats import NatsNode, NatsNodeStatus, NatsStreamStatus, StreamLimits
    from shardwire.node.rest import WakuNodeStatus, WakuRestNode
    from shardwire.node.udp import UdpNeighbour, UdpNode, UdpNodeStatus
    from shardwire.node.url import NODE_SCHEMES, create_node

# Loaded when they are first used: their clients are extras.
_ROOM_OF = {
    "MqttNode": "shardwire.node.mqtt",
    "MqttNodeStatus": "shardwire.node.mqtt",
    "NatsNode": "shardwire.node.nats",
    "NatsNodeStatus": "shardwire.node.nats",
    "NatsStreamStatus": "shardwire.node.nats",
    "StreamLimits": "shardwire.node.nats",
    "WakuNodeStatus": "shardwire.node.rest",
    "WakuRestNode": "shardwire.node.rest",
    "UdpNeighbour": "shardwire.node.udp",
    "UdpNode": "shardwire.node.udp",
    "UdpNodeStatus": "shardwire.node.udp",
    "NODE_SCHEMES": "shardwire.node.url",
    "create_node": "shardwire.node.url",
}

__all__ = [
    "MAX_MESSAGE_SIZE_BYTES",
    "NODE_SCHEMES",
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
    "MqttNode",
    "MqttNodeStatus",
    "NatsNode",
    "NatsNodeStatus",
    "NatsStreamStatus",
    "NetworkConditions",
    "Node",
    "NodeConfig",
    "NodeEvent",
    "ReceiverOutcome",
    "RequestId",
    "StorePage",
    "StoreQuery",
    "StoredMessage",
    "StreamLimits",
    "SystemClock",
    "TraceRecord",
    "UdpNeighbour",
    "UdpNode",
    "UdpNodeStatus",
    "VirtualClock",
    "VirtualTimeError",
    "VirtualTimeLoop",
    "WakuNodeStatus",
    "WakuRestNode",
    "create_node",
    "run_virtual",
    "running_clock",
]


# Type checkers take a module with this function to have every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        room = _ROOM_OF.get(name)
        if room is None:
            raise AttributeError(f"module 'shardwire.node' has no attribute {name!r}")
        value = getattr(import_module(room), name)
        globals()[name] = value
        return value

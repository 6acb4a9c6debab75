"""`NatsNode`: messages over a NATS server, with its JetStream as their store. Needs the extra `nats`."""

from __future__ import annotations

from shardwire.node.nats.node import NatsNode
from shardwire.node.nats.status import NatsNodeStatus, NatsStreamStatus
from shardwire.node.nats.stream import StreamLimits

__all__ = ["NatsNode", "NatsNodeStatus", "NatsStreamStatus", "StreamLimits"]

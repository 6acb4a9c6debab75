"""The base of every node over a real network: `TransportNode`, and the `Transport` that one writes for it."""

from __future__ import annotations

from shardwire.node.transport.answers import (
    Ambiguous,
    Answer,
    Passing,
    PassingUntil,
    Permanent,
    Published,
    Restamp,
)
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.node import TransportNode
from shardwire.node.transport.transport import Transport, TransportLink

__all__ = [
    "Ambiguous",
    "Answer",
    "OutgoingMessage",
    "Passing",
    "PassingUntil",
    "Permanent",
    "Published",
    "Restamp",
    "Transport",
    "TransportLink",
    "TransportNode",
]

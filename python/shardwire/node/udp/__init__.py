"""`UdpNode`: messages from participant to participant in datagrams, without any server."""

from __future__ import annotations

from shardwire.node.udp.node import UdpNode
from shardwire.node.udp.status import UdpNeighbour, UdpNodeStatus

__all__ = ["UdpNeighbour", "UdpNode", "UdpNodeStatus"]

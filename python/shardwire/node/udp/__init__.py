"""`UdpNode`: messages from participant to participant in datagrams, without any server."""

from __future__ import annotations

from shardwire.node.udp.node import UdpNode

__all__ = ["UdpNode"]

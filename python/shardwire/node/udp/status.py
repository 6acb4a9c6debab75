"""Whom a UDP node exchanges datagrams with, for people."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.node.protocol import ConnectionState


@dataclass(frozen=True, slots=True)
class UdpNeighbour:
    """One neighbour that is here.

    Attributes:
        address: Its address and port.
        responds: Whether it answers to messages.
    """

    address: str
    responds: bool


@dataclass(frozen=True, slots=True)
class UdpNodeStatus:
    """Who is in reach at the moment.

    Attributes:
        state: The connection, as told.
        address: The own address and port.
        group: The multicast group; None where there is none.
        neighbours: Who is here.
        peers_missing: Those that were named and are not.
        datagram_bytes: Size of the datagrams.
    """

    state: ConnectionState
    address: str
    group: str | None
    neighbours: tuple[UdpNeighbour, ...]
    peers_missing: tuple[str, ...]
    datagram_bytes: int

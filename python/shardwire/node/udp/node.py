"""A node that exchanges datagrams with others, without any server."""

from __future__ import annotations

from collections.abc import Sequence

from shardwire.config.checks import check_bool, check_integer, check_kind, check_list, check_text
from shardwire.errors import ConfigError
from shardwire.node.clock import Clock
from shardwire.node.protocol import NodeConfig
from shardwire.node.transport.address import ServerAddress, check_port, parse_server_url
from shardwire.node.transport.node import TransportNode
from shardwire.node.udp.datagram import FRAGMENT_HEADER_BYTES
from shardwire.node.udp.sockets import is_group
from shardwire.node.udp.status import UdpNodeStatus
from shardwire.node.udp.transport import UdpPlace, UdpTransport

DEFAULT_PORT = 9_700
# What every path of today's internet carries in one packet (RFC 9000, 14.1).
DATAGRAM_BYTES_MAX = 1_200
_DATAGRAM_BYTES_LEAST = 508
_DATAGRAM_BYTES_MOST = 65_507
PEERS_MAX = 64


class UdpNode(TransportNode):
    """A `Node` that sends every message to each of its neighbours, or to a multicast group.

    There is no store: participants give one another what they missed. A message travels in up to 64 datagrams; what is
    lost of it is sent again for some seconds, and no faster than the neighbours take it. `MessagePropagated` says that
    one neighbour has it. Everybody should reach everybody: messages are not passed on.

    Args:
        url: The own address, `udp://host[:port]`, with port 0 for a free one; `udp://0.0.0.0` and `udp://[::]` for all
            of this machine. Or that of a multicast group, such as `udp://239.255.70.1`. `?peers=host:port,host:port`
            names neighbours too.
        peers: Neighbours, each `host:port`. One of two that know each other is enough.
        accept_peers: Whether others may come that are not among `peers`. They are sent everything: encrypt.
        interface: Where a group is joined: an IPv4 address of this machine, or for IPv6 the name of an interface.
        ttl: How many routers a datagram to a group may pass, and one more.
        datagram_bytes_max: Largest datagram. Where the path carries only smaller ones, they are made smaller.
        config: Configuration of the node; its `max_message_size_bytes` counts where it is smaller than 64 datagrams.
        clock: Both times; None for those of the running event loop.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        url: str = "udp://0.0.0.0",
        *,
        peers: Sequence[str] = (),
        accept_peers: bool = True,
        interface: str | None = None,
        ttl: int = 1,
        datagram_bytes_max: int = DATAGRAM_BYTES_MAX,
        config: NodeConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_kind("config", config, NodeConfig)
        address = parse_server_url("UdpNode: url", url, {"udp": DEFAULT_PORT}, queries=("peers",), may_listen=True)
        if address.user is not None:
            raise ConfigError("UdpNode: url holds credentials: there is nobody to show them to, use an Encryption")
        check_bool("UdpNode: accept_peers", accept_peers)
        check_text("UdpNode: interface", interface, or_none=True)
        check_list("UdpNode: peers", peers, "texts host:port", read_once=True)
        given = tuple(peers)
        if not all(isinstance(peer, str) for peer in given):
            raise ConfigError(f"UdpNode: peers is {peers!r}: it must be a list of texts host:port")
        named = [*given, *(peer for _, value in address.query for peer in value.split(",") if peer)]
        places = tuple(_parse_peer(peer) for peer in named)
        if len(places) > PEERS_MAX:
            raise ConfigError(f"UdpNode: {len(places)} peers are named: {PEERS_MAX} may be, use a group for more")
        group = is_group(address.host)
        if group:
            # Its members meet at the same one.
            check_port(f"UdpNode: url is {url!r}", address.port)
        if group and places:
            raise ConfigError("UdpNode: peers are named beside a group: who is in the group is found by itself")
        if not group and not places and not accept_peers:
            raise ConfigError("UdpNode: no peers are named and none may come: name some, or set accept_peers")
        if interface is not None and not group:
            raise ConfigError("UdpNode: interface is given without a group: the url says where to listen")
        check_integer("UdpNode: ttl", ttl, 0, 255)
        check_integer("UdpNode: datagram_bytes_max", datagram_bytes_max, _DATAGRAM_BYTES_LEAST, _DATAGRAM_BYTES_MOST)
        assert _DATAGRAM_BYTES_LEAST > FRAGMENT_HEADER_BYTES
        place = UdpPlace(address.host, address.port, places, accept_peers, interface, ttl, datagram_bytes_max)
        self._udp = UdpTransport(
            str(address), place, size_bytes_max=None if config is None else config.max_message_size_bytes
        )
        super().__init__(self._udp, config, clock=clock)

    @property
    def max_message_size_bytes(self) -> int:
        """Largest encoded WakuMessage: what 64 datagrams hold, before the start too; less once the path carries only
        smaller ones."""
        return self._udp.message_bytes_max

    @property
    def address(self) -> tuple[str, int] | None:
        """Own address and port; None before the start."""
        address = self._udp.address
        return None if address is None else (address[0], address[1])

    def status(self) -> UdpNodeStatus:
        """Who is in reach. After the start it takes a second or two until those are known who are.

        Raises:
            NodeError: The node is not started.
        """
        self._require_running("status")
        return self._udp.status()


def _parse_peer(peer: str) -> tuple[str, int]:
    parsed: ServerAddress = parse_server_url("UdpNode: a peer", f"udp://{peer}", {"udp": DEFAULT_PORT})
    return parsed.host, parsed.port

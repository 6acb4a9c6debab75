"""UDP sockets of a node, served by its event loop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import struct
import sys
from collections.abc import Callable

from shardwire.errors import NodeError
from shardwire.node.transport.address import ServerAddress, unreachable
from shardwire.node.udp.neighbours import Address

# As much as the system allows: a burst waits here until the loop comes round.
SOCKET_BUFFER_BYTES = 4 << 20
# Datagrams taken in one step, so that everything else on the loop has its turn.
DATAGRAMS_PER_STEP = 64
DATAGRAM_BYTES_MAX = 65_535
_REMEDIES = {
    errno.EADDRNOTAVAIL: "name an address of this machine, or udp://0.0.0.0 for all of them",
    errno.EADDRINUSE: "another program has this port, name another one, or 0 for a free one",
    errno.EACCES: "this user may not listen there, name a port above 1023",
}
_PASSING_ERRORS = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})


class DatagramTooLargeError(Exception):
    """The path carries no datagram of this size."""


class UdpSocket:
    """One socket.

    Args:
        connection: The bound socket.
        on_datagram: Given each datagram and where it came from.
        on_writable: Called when `send` may succeed again.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_datagram: Callable[[bytes, Address], None],
        on_writable: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._on_datagram = on_datagram
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._waits = False
        self.failures = 0
        connection.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        self._loop.add_reader(connection, self._read)

    @property
    def address(self) -> Address:
        address: Address = self._connection.getsockname()
        return address

    def send(self, datagram: bytes, address: Address) -> bool:
        """Sends a datagram; False where the system takes none now.

        Raises:
            DatagramTooLargeError: It is larger than the path carries.
        """
        try:
            self._connection.sendto(datagram, address)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise DatagramTooLargeError from None
            if error.errno in _PASSING_ERRORS:
                self._wait()
                return False
            # No route, no permission, an answer of ICMP to an earlier one: as good as lost on the way.
            self.failures += 1
        return True

    def close(self) -> None:
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()

    def _wait(self) -> None:
        if not self._waits and self._on_writable is not None:
            self._waits = True
            self._loop.add_writer(self._connection, self._write)

    def _write(self) -> None:
        self._waits = False
        self._loop.remove_writer(self._connection)
        if self._on_writable is not None:
            self._on_writable()

    def _read(self) -> None:
        for _ in range(DATAGRAMS_PER_STEP):
            try:
                datagram, address = self._connection.recvfrom(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.failures += 1
                return
            self._on_datagram(datagram, address)
            if self._connection.fileno() < 0:
                return


def is_group(host: str) -> bool:
    """Whether a host is the address of a multicast group."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_multicast
    except ValueError:
        return False


async def resolve(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[tuple[int, Address]]:
    """Family and addresses of a host.

    Raises:
        OSError: It has none.
    """
    flags = socket.AI_V4MAPPED if family == socket.AF_INET6 else 0
    found = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM, flags=flags)
    return [(each[0], each[4]) for each in found]  # type: ignore[misc]


async def bind(host: str, port: int) -> socket.socket:
    """A socket for datagrams of its own.

    Raises:
        NodeError: The address is none of this machine, or taken.
    """
    try:
        family, address = (await resolve(host, port))[0]
        connection = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        raise _unusable(host, port, error) from None
    try:
        if family == socket.AF_INET6:
            # IPv4 neighbours come as mapped addresses.
            connection.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        _forbid_fragments(connection, family)
        connection.bind(address)
    except OSError as error:
        connection.close()
        raise _unusable(host, port, error) from None
    return connection


def bind_group(group: str, port: int, interface: str | None, ttl: int) -> tuple[socket.socket, socket.socket, Address]:
    """A socket that hears a group, one that speaks to it and is answered, and the group's address.

    Raises:
        NodeError: The group cannot be joined.
    """
    family = socket.AF_INET6 if ":" in group else socket.AF_INET
    heard, spoken = socket.socket(family, socket.SOCK_DGRAM), socket.socket(family, socket.SOCK_DGRAM)
    try:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform != "linux" and hasattr(socket, "SO_REUSEPORT"):
            heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        address: Address
        if family == socket.AF_INET6:
            index = 0 if interface is None else socket.if_nametoindex(interface)
            address = (group, port, 0, index)
            heard.bind(address)
            packed = socket.inet_pton(family, group) + struct.pack("@I", index)
            heard.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, packed)
            spoken.bind(("::", 0))
            spoken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            spoken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
            spoken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        else:
            own = socket.inet_aton(interface or "0.0.0.0")
            address = (group, port)
            heard.bind(address)
            heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + own)
            spoken.bind((interface or "0.0.0.0", 0))
            spoken.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            spoken.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
            spoken.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        _forbid_fragments(spoken, family)
    except OSError as error:
        heard.close()
        spoken.close()
        raise NodeError(f"the group {group} port {port} cannot be joined: {unreachable(error)}") from None
    return heard, spoken, address


def _unusable(host: str, port: int, error: OSError) -> NodeError:
    remedy = _REMEDIES.get(error.errno or 0)
    place = ServerAddress("udp", host, port)
    return NodeError(f"{place} cannot be used: {unreachable(error)}{'' if remedy is None else f': {remedy}'}")


def _forbid_fragments(connection: socket.socket, family: int) -> None:
    """Lets the system say that a datagram is too large, rather than cut it into packets of which none may be lost."""
    if sys.platform != "linux":
        return
    # Linux: IP_MTU_DISCOVER and IPV6_MTU_DISCOVER, with IP_PMTUDISC_DO; `socket` names them from 3.14 on.
    if family == socket.AF_INET6:
        connection.setsockopt(socket.IPPROTO_IPV6, 23, 2)
    connection.setsockopt(socket.IPPROTO_IP, 10, 2)

"""How messages travel in datagrams."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from shardwire.errors import NodeError
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.protocol import ConnectionState
from shardwire.node.transport.address import unreachable
from shardwire.node.transport.answers import Ambiguous, Answer, Passing, Published
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.transport import Transport, TransportLink
from shardwire.node.udp.datagram import FRAGMENT, FRAGMENT_HEADER_BYTES, FRAGMENTS_MAX, HELLO, Datagram, decode
from shardwire.node.udp.intake import Intake
from shardwire.node.udp.neighbours import Address, Group, Neighbour, Neighbours, written
from shardwire.node.udp.outflow import NobodyAnswersError, Outflow
from shardwire.node.udp.sockets import DatagramTooLargeError, UdpSocket, bind, bind_group, is_group, resolve
from shardwire.node.udp.status import UdpNeighbour, UdpNodeStatus

logger = logging.getLogger(__name__)

PUBLISHES_AT_ONCE = 64
LOOK_MS = 10
HELLO_LOOK_MS = 250
RESOLVE_MS = 30_000
# What every path carries (RFC 9000, 14.1, less room for tunnels; RFC 791), tried one after the other where the
# system says that a datagram is too large.
SMALLER_DATAGRAMS_BYTES = (1_200, 1_000, 800, 548)
MISSED_MARGIN_NS = 5_000 * NANOSECONDS_PER_MS
GOODBYES = 2
# Neighbours that run are found within a second or two; with nobody after this time there is nobody.
FINDING_MS = 5_000


@dataclass(frozen=True, slots=True)
class UdpPlace:
    """Where a node is, and whom it is to reach.

    Attributes:
        host: Own address, or a multicast group.
        port: The port.
        peers: Hosts and ports of neighbours.
        accept_peers: Whether others may come by themselves.
        interface: Where a group is joined: an address of IPv4, or a name of IPv6.
        ttl: How many routers a datagram to a group passes.
        datagram_bytes_max: Largest datagram.
    """

    host: str
    port: int
    peers: tuple[tuple[str, int], ...]
    accept_peers: bool
    interface: str | None
    ttl: int
    datagram_bytes_max: int


class UdpTransport(Transport):
    """Cuts messages into datagrams for every neighbour, and joins theirs.

    Args:
        name: For the log.
        place: Where we are.
        size_bytes_max: Largest encoded message; None for what 64 datagrams hold.
    """

    publishes_at_once = PUBLISHES_AT_ONCE

    def __init__(self, name: str, place: UdpPlace, *, size_bytes_max: int | None) -> None:
        self.name = name
        self._place = place
        self._size_bytes_max = size_bytes_max
        self._datagram_bytes = place.datagram_bytes_max
        self._sockets: list[UdpSocket] = []
        # Host and port of a neighbour that the user named -> its address, as it was found last.
        self._addresses: dict[tuple[str, int], Address] = {}

    @property
    def message_bytes_max(self) -> int:
        """Largest encoded message, as far as is known: a path that carries only smaller datagrams says so later."""
        carried = FRAGMENTS_MAX * (self._datagram_bytes - FRAGMENT_HEADER_BYTES)
        return min(carried, self._size_bytes_max or carried)

    @property
    def address(self) -> Address | None:
        """The own address; None before the start."""
        return self._sockets[0].address if self._sockets else None

    async def connect(self, link: TransportLink) -> None:
        self._link = link
        self._sender = secrets.randbits(64) or 1
        self._group: Address | None = None
        place = self._place
        clock = link.clock
        # None once somebody came: who is alone after that lost somebody.
        self._finding_until_ms: int | None = clock.monotonic_ms() + FINDING_MS
        # Before anything that can fail: what is there by then is disconnected.
        self._outflow = Outflow(self._sender, clock, self._transmit)
        self._intake = Intake(self._sender, clock, self._send, self._on_message)
        if is_group(place.host):
            heard, spoken, self._group = bind_group(place.host, place.port, place.interface, place.ttl)
            self._sockets = [
                UdpSocket(spoken, self._on_datagram, self._on_writable),
                UdpSocket(heard, self._on_datagram),
            ]
            self._neighbours: Neighbours = Group(
                self._sender, clock, self._send, self._group, on_come=self._on_come, on_go=self._on_go
            )
        else:
            connection = await bind(place.host, place.port)
            self._family = connection.family
            self._sockets = [UdpSocket(connection, self._on_datagram, self._on_writable)]
            self._neighbours = Neighbours(
                self._sender,
                secrets.token_bytes(32),
                clock,
                self._send,
                accept=place.accept_peers,
                on_come=self._on_come,
                on_go=self._on_go,
            )
            await self._resolve_peers(first=True)
        assert self.address is not None
        logger.info("%s: listens at %s", self.name, written(self.address))
        link.max_message_size_bytes = self.message_bytes_max
        link.run("hellos", self._keep_saying_hello)
        link.run("timers", self._keep_looking)
        if place.peers:
            link.run("names", self._keep_resolving)

    async def disconnect(self) -> None:
        if not self._sockets:
            return
        self._outflow.stop()
        for _ in range(GOODBYES):
            self._neighbours.say_goodbye()
        for each in self._sockets:
            each.close()
        self._sockets = []

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        """Everything comes; the node drops what it did not subscribe to."""

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        """As `subscribe`."""

    async def publish(self, message: OutgoingMessage) -> Answer:
        neighbours = [neighbour for neighbour in self._neighbours if neighbour.responds] or list(self._neighbours)
        if not neighbours:
            until_ms = self._finding_until_ms
            is_early = until_ms is not None and self._link.clock.monotonic_ms() < until_ms
            return Passing("nobody is in reach", is_early=is_early)
        data = message.encode()
        step = self._datagram_bytes - FRAGMENT_HEADER_BYTES
        parts = [data[begin : begin + step] for begin in range(0, len(data), step)]
        if len(parts) > FRAGMENTS_MAX:
            # Datagrams became smaller since it was measured.
            return Passing(f"the message takes {len(parts)} datagrams of {self._datagram_bytes} bytes")
        try:
            await self._outflow.send(parts, neighbours)
        except NobodyAnswersError as error:
            return Ambiguous(str(error))
        return Published()

    def status(self) -> UdpNodeStatus:
        """Who is here, and who is not."""
        assert self.address is not None
        return UdpNodeStatus(
            self._link.state,
            written(self.address),
            None if self._group is None else written(self._group),
            tuple(UdpNeighbour(written(each.address), each.responds) for each in self._neighbours),
            tuple(written(address) for address in self._neighbours.missing),
            self._datagram_bytes,
        )

    # --- what comes in ---

    def _on_datagram(self, data: bytes, address: Address) -> None:
        datagram = decode(data)
        if datagram is None:
            self._link.count("datagrams_malformed")
            return
        if datagram.sender == self._sender:
            # A group brings back what we say; addresses of our own may be among the peers.
            return
        if datagram.kind == HELLO:
            if not self._neighbours.take_hello(datagram, address, len(data)):
                self._link.count("hellos_refused")
            return
        in_group = self._group is not None
        if in_group and datagram.kind != FRAGMENT and datagram.to != self._sender:
            return
        neighbour = self._neighbours.heard(datagram, address)
        if neighbour is None:
            self._link.count("datagrams_unproven")
        elif datagram.kind == FRAGMENT:
            if not self._intake.take(datagram, neighbour, datagram.sender if in_group else neighbour.token):
                self._link.count("datagrams_malformed")
        else:
            self._outflow.take_status(datagram, neighbour)

    def _on_message(self, message: bytes) -> None:
        self._link.received_encoded(message)

    def _on_come(self, neighbour: Neighbour, missed_since_ns: int) -> None:
        self._link.count("neighbours_came")
        self._finding_until_ms = None
        self._link.connection(ConnectionState.CONNECTED)
        if missed_since_ns:
            self._link.missed(max(0, missed_since_ns - MISSED_MARGIN_NS))

    def _on_go(self, neighbour: Neighbour) -> None:
        self._link.count("neighbours_went")
        self._outflow.give_up(neighbour)
        self._intake.forget(neighbour.sender)
        if not len(self._neighbours):
            why = "the last neighbour said good-bye" if neighbour.said_goodbye else "nobody is in reach"
            self._link.connection(ConnectionState.DISCONNECTED, why, wanted=neighbour.said_goodbye)

    # --- what goes out ---

    def _send(self, datagram: bytes, address: Address) -> None:
        """For datagrams that may be lost."""
        try:
            self._sockets[0].send(datagram, address)
        except DatagramTooLargeError:
            self._link.count("datagrams_too_large")

    def _transmit(self, fragment: Datagram, neighbours: Iterable[Neighbour]) -> bool:
        connection = self._sockets[0]
        data = b""
        try:
            if self._group is not None:
                data = fragment.encode()
                return connection.send(data, self._group)
            taken = True
            for neighbour in neighbours:
                fragment.to = neighbour.token
                data = fragment.encode()
                taken = connection.send(data, neighbour.address) and taken
            return taken
        except DatagramTooLargeError:
            self._link.count("datagrams_too_large")
            # Others of the same message say nothing new.
            if len(data) <= self._datagram_bytes:
                self._shrink_datagrams()
            return True

    def _on_writable(self) -> None:
        self._outflow.resume()

    def _shrink_datagrams(self) -> None:
        smaller = next((size for size in SMALLER_DATAGRAMS_BYTES if size < self._datagram_bytes), None)
        if smaller is not None:
            logger.warning(
                "%s: the path carries no datagrams of %d bytes, %d are tried", self.name, self._datagram_bytes, smaller
            )
            self._datagram_bytes = smaller
            self._link.max_message_size_bytes = self.message_bytes_max
            # Not in the middle of sending one of these.
            asyncio.get_running_loop().call_soon(self._outflow.abandon_larger, smaller - FRAGMENT_HEADER_BYTES)

    # --- time ---

    async def _keep_saying_hello(self) -> None:
        while True:
            self._neighbours.say_hellos()
            await asyncio.sleep(HELLO_LOOK_MS / 1000)

    async def _keep_resolving(self) -> None:
        """Apart from the hellos: a name server that does not answer takes longer than neighbours wait for one."""
        since_ms = self._link.clock.monotonic_ms()
        while True:
            await asyncio.sleep(HELLO_LOOK_MS / 1000)
            now_ms = self._link.clock.monotonic_ms()
            if now_ms - since_ms > RESOLVE_MS and self._neighbours.unreached:
                since_ms = now_ms
                await self._resolve_peers(first=False)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            self._intake.look()
            self._outflow.look()

    async def _resolve_peers(self, *, first: bool) -> None:
        for host, port in self._place.peers:
            try:
                self._addresses[host, port] = (await resolve(host, port, self._family))[0][1]
            except OSError as error:
                # Later a name that is not found now keeps its address: it is mostly the name server that is away.
                if first:
                    raise NodeError(f"the peer {host} port {port} has no address: {unreachable(error)}") from None
        self._neighbours.configure(self._addresses.values())

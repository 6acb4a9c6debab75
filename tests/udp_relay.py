"""A path between two UDP nodes that loses, repeats and cuts."""

from __future__ import annotations

import asyncio
import random
import socket


class UdpRelay:
    """Stands between two nodes: each finds the other one behind an address of the relay.

    Args:
        ports: Where the two nodes listen, on loopback.
        loss: Share of the datagrams that never arrive, either way.
        seed: Of what is lost.

    Attributes:
        fronts: The ports of the relay: what the first node sends to `fronts[1]` reaches the second, and the other way.
        cut: Whether nothing gets through.
        passed_from: Datagrams of each node that got through.
        largest: The largest datagram seen, in bytes.
    """

    def __init__(self, ports: tuple[int, int], *, loss: float = 0.0, seed: int = 1) -> None:
        self.loss = loss
        self.cut = False
        self.passed_from = [0, 0]
        self.largest = 0
        self._ports = ports
        self._rng = random.Random(seed)
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        loop = asyncio.get_running_loop()
        for side, connection in enumerate(self._sockets):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            connection.setblocking(False)
            connection.bind(("127.0.0.1", 0))
            loop.add_reader(connection, self._pass_on, side)
        self.fronts: tuple[int, int] = tuple(each.getsockname()[1] for each in self._sockets)  # type: ignore[assignment]

    def close(self) -> None:
        for connection in self._sockets:
            asyncio.get_running_loop().remove_reader(connection)
            connection.close()

    def _pass_on(self, side: int) -> None:
        """What comes to a side's front goes to its node, from the other front."""
        for _ in range(64):
            try:
                data = self._sockets[side].recv(65_535)
            except BlockingIOError:
                return
            self.largest = max(self.largest, len(data))
            if self.cut or self._rng.random() < self.loss:
                continue
            try:
                self._sockets[1 - side].sendto(data, ("127.0.0.1", self._ports[side]))
                self.passed_from[1 - side] += 1
            except OSError:
                continue

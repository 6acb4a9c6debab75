"""The networks that participants meet on."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import paho.mqtt.subscribe as paho_subscribe
from live_servers import LiveServer, Mosquitto, NatsServer, free_port
from udp_relay import UdpRelay


class LiveNetwork(ABC):
    """A network with its servers, for one scenario.

    Args:
        directory: For what the servers keep.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    async def start(self) -> None:
        """Starts the servers."""

    @abstractmethod
    async def stop(self) -> None:
        """Ends them, whatever state they are in."""

    @abstractmethod
    def node(self, name: str) -> dict[str, Any]:
        """The node of a participant: `node` and `arguments`, as `participant.Participant` takes them."""

    @abstractmethod
    async def crash(self) -> None:
        """Kills the server between the participants."""

    @abstractmethod
    async def start_again(self) -> None:
        """Starts it again."""

    @abstractmethod
    def pause(self) -> None:
        """Stops it: connections stand, and nothing is answered."""

    @abstractmethod
    def go_on(self) -> None: ...

    @abstractmethod
    async def subscriptions(self) -> int:
        """How many subscriptions of participants the server has."""


class ServerNetwork(LiveNetwork):
    """One server, to which all participants connect."""

    server: LiveServer

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def crash(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_again(self) -> None:
        await asyncio.to_thread(self.server.start)

    def pause(self) -> None:
        self.server.pause()

    def go_on(self) -> None:
        self.server.go_on()


class NatsNetwork(ServerNetwork):
    """nats-server, with JetStream or without."""

    def __init__(self, directory: Path, *, jetstream: bool) -> None:
        super().__init__(directory)
        self._monitor_port = free_port()
        self.server = NatsServer(
            directory / "nats", jetstream=jetstream, settings=f"http: 127.0.0.1:{self._monitor_port}"
        )

    def node(self, name: str) -> dict[str, Any]:
        return {"node": "NatsNode", "arguments": {"url": self.server.url}}

    async def subscriptions(self) -> int:
        def ask() -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor_port}/connz?subs=1", timeout=10) as answer:
                connections = json.load(answer)["connections"]
            return sum(len(connection.get("subscriptions_list", ())) for connection in connections)

        return await asyncio.to_thread(ask)


class MqttNetwork(ServerNetwork):
    """mosquitto, where participants keep their client ids, so that the broker keeps their sessions, or do not."""

    def __init__(self, directory: Path, *, named: bool = True) -> None:
        super().__init__(directory)
        self._named = named
        self.server = Mosquitto(directory / "mqtt", settings="sys_interval 1")

    def node(self, name: str) -> dict[str, Any]:
        client_id = name if self._named else None
        return {"node": "MqttNode", "arguments": {"url": self.server.url, "client_id": client_id}}

    async def subscriptions(self) -> int:
        def ask() -> int:
            message: Any = paho_subscribe.simple(
                "$SYS/broker/subscriptions/count", hostname="127.0.0.1", port=self.server.port
            )
            return int(message.payload)

        # As it was at its last count, a second ago, before we asked.
        await asyncio.sleep(1.5)
        return await asyncio.to_thread(ask)


class UdpNetwork(LiveNetwork):
    """Two UDP nodes, and a path between them that loses a share of the datagrams."""

    def __init__(self, directory: Path, *, loss: float) -> None:
        super().__init__(directory)
        self._loss = loss
        self._ports = free_port(), free_port()

    async def start(self) -> None:
        self._relay = UdpRelay(self._ports, loss=self._loss)

    async def stop(self) -> None:
        self._relay.close()

    def node(self, name: str) -> dict[str, Any]:
        side = ("alice", "bob").index(name)
        peer = f"127.0.0.1:{self._relay.fronts[1 - side]}"
        return {"node": "UdpNode", "arguments": {"url": f"udp://127.0.0.1:{self._ports[side]}", "peers": [peer]}}

    async def crash(self) -> None:
        self._relay.cut = True

    async def start_again(self) -> None:
        self._relay.cut = False

    def pause(self) -> None:
        self._relay.cut = True

    def go_on(self) -> None:
        self._relay.cut = False

    async def subscriptions(self) -> int:
        """Who sends anything within two hellos."""
        before = self._relay.passed_from[:]
        await asyncio.sleep(7)
        return sum(now > then for now, then in zip(self._relay.passed_from, before, strict=True))

"""Two channels over a real server that does everything wrong in turn, while both of them go on sending."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import paho.mqtt.publish as paho_publish
import pytest
from live_nodes import real_time, until
from live_servers import LiveServer, Mosquitto, NatsServer
from nats.aio.client import Client as NatsClient

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel
from shardwire.events import MessageReceivedEvent
from shardwire.node import ConnectionState, MqttNode, NatsNode
from shardwire.node.mqtt import session as mqtt_session
from shardwire.node.nats import session as nats_session
from shardwire.node.transport import TransportNode

TOPIC = "/test/1/faults/proto"
PAUSE_S = 0.02
GARBAGE = (b"\xff" * 300, b"\x0a\xff\xff\xff\xff\x0f", bytes(50_000), b"\x0a\x03abc", b"")
SECRET = "open-sesame"


class Broker(ABC):
    """A server, its nodes, and what it can be made to do."""

    server: LiveServer

    @abstractmethod
    def node(self, name: str) -> TransportNode: ...

    @abstractmethod
    async def spread_garbage(self) -> None:
        """Publishes what is no message on the topic of the channel."""

    @abstractmethod
    def refuse(self) -> None:
        """Lets the server refuse everybody from its next start on."""

    @abstractmethod
    def admit(self) -> None:
        """Lets it admit them again."""

    async def drop_session(self) -> int:
        """Throws a client out; how many connections break."""
        return 0


class Nats(Broker):
    def __init__(self, directory: Path, *, jetstream: bool) -> None:
        self.server: NatsServer = NatsServer(directory, jetstream=jetstream)
        self.admit()

    def node(self, name: str) -> TransportNode:
        return NatsNode(self.server.url, user="ali", password=SECRET)

    async def spread_garbage(self) -> None:
        client = NatsClient()
        await client.connect(self.server.url, user="ali", password=SECRET)
        for garbage in GARBAGE:
            for last in (64 * "0", "x"):
                await client.publish(f"shardwire.test.1.faults.proto.{last}", garbage)
        await client.flush()
        await client.close()

    def refuse(self) -> None:
        self.server.settings = "authorization { user: ali, password: another }"

    def admit(self) -> None:
        self.server.settings = f"authorization {{ user: ali, password: {SECRET} }}"


class Mqtt(Broker):
    def __init__(self, directory: Path) -> None:
        self.server: Mosquitto = Mosquitto(directory)

    def node(self, name: str) -> TransportNode:
        return MqttNode(self.server.url, user="ali", password=SECRET, client_id=name)

    async def spread_garbage(self) -> None:
        messages = [("shardwire/test/1/faults/proto", garbage, 1, False) for garbage in GARBAGE]
        await asyncio.to_thread(paho_publish.multiple, messages, "127.0.0.1", self.server.port)

    def refuse(self) -> None:
        self.server.listener = "allow_anonymous false"

    def admit(self) -> None:
        self.server.listener = "allow_anonymous true"

    async def drop_session(self) -> int:
        def take_over() -> None:
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="bob", protocol=paho.MQTTv5)
            # A clean start: what the broker kept for it is gone.
            client.connect("127.0.0.1", self.server.port, clean_start=True)
            for _ in range(20):
                client.loop(0.05)
            client.disconnect()
            client.loop(0.05)

        await asyncio.to_thread(take_over)
        return 1


BROKERS = {
    "nats": lambda directory: Nats(directory, jetstream=False),
    "jetstream": lambda directory: Nats(directory, jetstream=True),
    "mqtt": Mqtt,
}


class Speaker:
    """A channel that goes on sending numbered messages, and counts what it receives."""

    def __init__(self, name: str, node: TransportNode, channel: ReliableChannel) -> None:
        self.name, self.node, self.channel = name, node, channel
        self.sent: list[bytes] = []
        self.delivered: set[str] = set()
        self.requests: list[str] = []
        self.received: Counter[bytes] = Counter()
        channel.on_message_received(self._on_received)
        channel.on_message_delivered(lambda event: self.delivered.add(event.request_id))
        self._silent = False
        self._speaking = asyncio.create_task(self._speak())

    def _on_received(self, event: MessageReceivedEvent) -> None:
        self.received[event.message] += 1

    async def _speak(self) -> None:
        while not self._silent:
            message = f"{self.name} {len(self.sent)} ".encode() + bytes(2_000)
            self.requests.append(await self.channel.send(message))
            self.sent.append(message)
            await asyncio.sleep(PAUSE_S)

    async def fall_silent(self) -> None:
        # Between two sends: one that is cancelled may have left.
        self._silent = True
        await self._speaking

    async def all_received_by(self, other: Speaker) -> None:
        try:
            await until(lambda: set(self.sent) == set(other.received))
        except TimeoutError:
            sent, received = set(self.sent), set(other.received)
            lost, strange = sorted(sent - received), sorted(received - sent)
            raise AssertionError(
                f"{other.name} lacks {[message[:16] for message in lost]} of {self.name}, "
                f"and has {[message[:16] for message in strange]} besides; {other.channel.stats()}"
            ) from None


@pytest.mark.parametrize("kind", BROKERS)
@real_time
async def test_whatever_the_server_does_nothing_is_lost_and_nothing_comes_twice(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nats_session, "HEARTBEAT_MS", 300)
    monkeypatch.setattr(mqtt_session, "KEEP_ALIVE_S", 1)
    monkeypatch.setattr(mqtt_session, "LOOK_S", 0.1)
    caplog.set_level(logging.INFO, "shardwire")
    broker: Any = BROKERS[kind](tmp_path)
    breaks = 0
    with broker.server as server:
        speakers = []
        for name in ("alice", "bob"):
            node = broker.node(name)
            await node.start()
            config = ChannelConfig.logos() if node.has_store else ChannelConfig.logos().without_store(members=2)
            channel = await create_reliable_channel(node, "faults", TOPIC, name, config=config)
            speakers.append(Speaker(name, node, channel))

        def all_connected() -> bool:
            return all(each.node.connection_state is ConnectionState.CONNECTED for each in speakers)

        def none_connected() -> bool:
            return all(each.node.connection_state is ConnectionState.DISCONNECTED for each in speakers)

        async def go_on() -> None:
            await until(all_connected)
            received = [sum(each.received.values()) for each in speakers]
            await until(
                lambda: all(sum(each.received.values()) > count for each, count in zip(speakers, received, strict=True))
            )

        await go_on()
        await broker.spread_garbage()
        await go_on()

        await asyncio.to_thread(server.restart)
        breaks += 2
        await until(lambda: caplog.text.count(": disconnected") == breaks)
        await go_on()

        broker.refuse()
        await asyncio.to_thread(server.restart)
        breaks += 2
        await until(none_connected)
        await asyncio.sleep(2)
        assert none_connected()
        broker.admit()
        await asyncio.to_thread(server.restart)
        await go_on()

        server.pause()
        await until(none_connected)
        breaks += 2
        await asyncio.sleep(1)
        server.go_on()
        await go_on()

        breaks += await broker.drop_session()
        await until(lambda: caplog.text.count(": disconnected") >= breaks)
        await go_on()
        await broker.spread_garbage()

        for speaker in speakers:
            await speaker.fall_silent()
        alice, bob = speakers
        for speaker, other in ((alice, bob), (bob, alice)):
            await speaker.all_received_by(other)
            await until(lambda speaker=speaker: set(speaker.requests) <= speaker.delivered)  # type: ignore[misc]
            assert set(other.received.values()) == {1}
            assert len(speaker.sent) > 100
        # The broken connections are told, once each, and that publishing fails meanwhile: a dozen lines, not thousands.
        records = [
            record
            for record in caplog.records
            if record.levelno >= logging.WARNING and record.name.startswith("shardwire")
        ]
        told = [record.getMessage() for record in records]
        assert len([line for line in told if ": disconnected" in line]) == breaks, told
        assert len(told) <= 3 * breaks, told
        assert [record for record in records if record.levelno >= logging.ERROR] == []
        assert SECRET not in caplog.text
        for speaker in speakers:
            await close_channel(speaker.channel)
            await speaker.node.stop()
